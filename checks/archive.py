"""Packs the checks into one archive for nodes: deterministic, so that equal checks have an equal digest and travel once.

Runs on the control side. On the node it is unpacked once per digest, and `python3 run_checks.py` works from there.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

SHIPPED_SUFFIXES = (".py", ".csv")


class PynvmlMissing(Exception):
    """The NVML bindings that travel with the checks are not installed as one file; the message says what to type."""


@dataclass(frozen=True)
class Archive:
    """A gzipped tar file and the SHA-256 of its content, in hex."""

    content: bytes
    digest: str


def build_archive() -> Archive:
    """Pack this package, `pynvml.py` beside it, and `run_checks.py` on top. Raises PynvmlMissing."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, content in sorted(_files()):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            entry.mode = 0o644
            tar.addfile(entry, io.BytesIO(content))
    content = gzip.compress(raw.getvalue(), mtime=0)
    return Archive(content, hashlib.sha256(content).hexdigest())


def _files() -> Iterator[tuple[str, bytes]]:
    package = Path(__file__).parent
    for path in package.rglob("*"):
        if path.suffix in SHIPPED_SUFFIXES and "__pycache__" not in path.parts:
            yield f"checks/{path.relative_to(package).as_posix()}", path.read_bytes()
    yield "run_checks.py", (package / "run_checks.py").read_bytes()
    yield "pynvml.py", _bindings().read_bytes()


def _bindings() -> Path:
    found = find_spec("pynvml")
    if found is None or not found.origin or not found.origin.endswith("pynvml.py"):
        raise PynvmlMissing("the module pynvml of nvidia-ml-py is not installed: type `pip install nvidia-ml-py`")
    return Path(found.origin)
