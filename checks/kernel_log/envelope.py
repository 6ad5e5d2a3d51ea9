"""Takes a kernel message out of what it was wrapped in: dmesg, syslog, /dev/kmsg, journald JSON, a container's JSON log."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple, Optional

_KMSG = re.compile(r"^\s*\d{1,4},\d+,(\d+),[^;]{0,80};")
_STAMP = re.compile(r"(?:^|[\s>\x00])\[\s*(\d+(?:\.\d+)?)\](?=\s|$)")
_ESCAPE = re.compile(r"\\x([0-9a-fA-F]{2})")

MESSAGE_LIMIT = 4096
"""Characters of one message that are looked at. Source: the kernel's printk cuts a record at about 1 kB; wrapping adds some."""


class Message(NamedTuple):
    """A kernel message with the seconds since boot, where its envelope says them."""

    text: str
    monotonic_s: Optional[float]


def open_line(line: str) -> Iterator[Message]:
    """Yield the messages that a line carries: itself, or every text inside it when the line is a JSON document."""
    stripped = line.strip()
    if stripped.startswith("{"):
        document = _json(stripped)
        if isinstance(document, dict):
            yield from _messages_in(document)
            return
        stripped = stripped.replace('\\"', '"')
    yield _plain(stripped[:MESSAGE_LIMIT])


def stamp_before(text: str, end: int) -> Optional[float]:
    """Return the seconds since boot written as "[   12.345678]" before position `end`, None where there is no such stamp."""
    stamps = _STAMP.findall(text, 0, end)
    return float(stamps[-1]) if stamps else None


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _plain(text: str) -> Message:
    kmsg = _KMSG.match(text)
    monotonic_s = int(kmsg.group(1)) / 1e6 if kmsg else None
    return Message(_ESCAPE.sub(lambda escape: chr(int(escape.group(1), 16)), text), monotonic_s)


def _messages_in(document: dict[str, Any]) -> Iterator[Message]:
    monotonic_s = _journal_stamp(document)
    for text in _texts(document, depth=0):
        message = _plain(text[:MESSAGE_LIMIT])
        yield Message(message.text, monotonic_s if message.monotonic_s is None else message.monotonic_s)


def _journal_stamp(document: dict[str, Any]) -> Optional[float]:
    """Return journald's stamp of the kernel, or else of its own receipt, in seconds since boot."""
    for key in ("_SOURCE_MONOTONIC_TIMESTAMP", "__MONOTONIC_TIMESTAMP"):
        value = str(document.get(key, ""))
        if value.isdigit():
            return int(value[:18]) / 1e6
    return None


def _texts(value: Any, depth: int) -> Iterator[str]:
    """Yield every text in a JSON value; journald writes a message with odd bytes as a list of numbers."""
    if depth > 8:
        return
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _texts(inner, depth + 1)
    elif isinstance(value, list):
        if value and all(isinstance(item, int) and 0 <= item < 256 for item in value):
            yield bytes(value).decode("utf-8", "replace")
        else:
            for inner in value:
                yield from _texts(inner, depth + 1)
