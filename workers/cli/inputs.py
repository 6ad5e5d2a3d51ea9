"""Reads what a person gives a command: a file, a pipe or standard input, packed or not; a driver version."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import sys
import zlib
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, cast

from activities.errors import BadInput
from checks.catalog import Machine

DAMAGED = (OSError, EOFError, zlib.error, lzma.LZMAError)
"""What reading from a packed input may raise where it is cut or damaged."""

_PACKED: tuple[tuple[bytes, Callable[[BinaryIO], object]], ...] = (
    (b"\x1f\x8b", lambda stream: gzip.GzipFile(fileobj=stream)),
    (b"BZh", bz2.BZ2File),
    (b"\xfd7zXZ\x00", lzma.LZMAFile),
)
_REFUSED = ((b"\x28\xb5\x2f\xfd", "zstdcat {}"), (b"LPKSHHRH", "journalctl --file {} -k -o json"))
"""Beginnings of files that another program has to read first, and its command."""


def driver_of(version: str) -> str:
    """Return the driver version that a person named. Raises BadInput for what is none: registers would be read at random."""
    if version and not Machine(version).driver_branch:
        raise BadInput(f"{version!r} is no driver version; write it as 580.95.05, or as 580")
    return version


def open_input(file: str, stack: ExitStack, what: str) -> BinaryIO:
    """Open a file, or standard input for "-", and unpack what gzip, bzip2 or xz packed; `stack` closes it.

    Raises BadInput, saying why and what to do; `what` says what the file should hold.
    """
    try:
        stream = _standard_input(stack) if file == "-" else stack.enter_context(_file(file))
        begin = stream.peek(16)[:16]
    except (OSError, ValueError) as error:
        raise BadInput(f"cannot read {file}: {getattr(error, 'strerror', None) or error}; name {what}, or -") from error
    refused = next((command for mark, command in _REFUSED if begin.startswith(mark)), "")
    if refused:
        raise BadInput(f"cannot read {file}: another program has to; pipe it in: {refused.format(file)} | hotspare ... -")
    unpack = next((opener for mark, opener in _PACKED if begin.startswith(mark)), None)
    return cast("BinaryIO", unpack(stream)) if unpack else stream


def _file(file: str) -> io.BufferedReader[Any]:
    return Path(file).open("rb")


def _standard_input(stack: ExitStack) -> io.BufferedReader[Any]:
    """Standard input, of which the first bytes can be looked at; it is left open."""
    stream = sys.stdin.buffer
    if isinstance(stream, io.BufferedReader):
        return stream
    reader: io.BufferedReader[Any] = io.BufferedReader(cast("io.RawIOBase", stream))
    stack.callback(reader.detach)
    return reader
