"""Takes kernel messages out of what they were wrapped in: dmesg, syslog, /dev/kmsg, journald, container logs, JSON in JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Optional

_KMSG = re.compile(r"^\s*\d{1,4},\d+,(\d+),[^;]{0,80};")
_STAMP = re.compile(
    r"(?:(?:^|[\s>\x00\"])\[\s*|\[\s*(?=\d{1,12}\.\d{6}\]))(\d{1,12}(?:\.\d{1,9})?)(?:\s*<[^>]{0,20}>)?\](?=[\s\[]|$)"
)
_ESCAPE = re.compile(r"((?:\\+x[0-9a-fA-F]{2}){1,64})|\\+(?:u([0-9a-fA-F]{4})|([nrt\"'/]))|(?<!CPU)#(0[0-3][0-7])")
_BYTE = re.compile(r"x(..)")
_TRACE = re.compile(r"\[\d{3,4}\]\s{1,4}(?:\S{1,12}\s{1,4})?(\d{1,12}\.\d{6}): ")
_COLOUR = re.compile(r"\x1b\[[0-9;?]{0,16}[@-~]")
_HTML = {"&lt;": "<", "&gt;": ">", "&quot;": '"', "&#39;": "'", "&amp;": "&"}
_OBJECT = re.compile(r'\{\s*"')
_SYSLOG_NODE = re.compile(r"(?:^|\s)(\S{1,253})\s+kernel(?:\[\d+\])?(?::| -)")
_NO_NODE = re.compile(r"[\[\]>;]|:$|^[\d:.,+Z-]+$|^(?:UTC|[A-Z]{3,4})$")
_CONTROL = {"n": "\n", "r": "\r", "t": "\t"}
_JSON = json.JSONDecoder(strict=False)
_FAULT = "Xid ("
_BLANK = " \t\r\n\f\v\ufeff"
"""White space, and the mark with which files of other systems begin."""

MESSAGE_LIMIT = 4096
"""Characters of one message that are looked at. Source: the kernel's printk cuts a record at about 1 kB; wrapping adds some."""

LEAD = 512
"""Characters kept before a fault word in a longer text, where its time stamp stands. Hotspare default."""

WINDOWS = 64
"""Pieces of one over-long line that are looked at. Hotspare default: more is no log line."""

DOCUMENTS = 4096
"""JSON objects of one line that are opened. Hotspare default: one answer of a log store holds a thousand."""

JSON_DEPTH = 4
"""How often JSON inside a JSON text is opened. Hotspare default: journald inside a container log inside a shipper is 3."""

NODE_KEYS = ("_HOSTNAME", "hostname", "host", "node", "node_name", "nodename")
"""JSON keys that name the node. Sources: journald, Fluent Bit, Kubernetes events."""


class Message(NamedTuple):
    """A kernel message, with the seconds since boot, the node and the boot id where its envelope says them."""

    text: str
    monotonic_s: Optional[float]
    node: str = ""
    boot_id: str = ""


def open_line(line: str, words: Iterable[str] = (), depth: int = 0) -> Iterator[Message]:
    """Yield the messages that a line carries: every text inside its JSON document, and what stands outside of one.

    Of a text longer than `MESSAGE_LIMIT` only the surroundings of `words` are looked at, or its beginning where none is given.
    """
    outside, place = list[str](), 0
    for document, start, end in _documents_in(line) if depth < JSON_DEPTH else ():
        node = _first_text(document, NODE_KEYS) or _node(line[place:start])
        wrapped = Message("", _journal_stamp(document), node, _first_text(document, ("_BOOT_ID",)))
        for text in _texts(document, depth=0):
            for message in open_line(text, words, depth + 1):
                yield _with_envelope(message, wrapped)
        outside.append(line[place:start])
        place = end
    for piece in _pieces("".join([*outside, line[place:]]).strip(_BLANK), words):
        yield _plain(piece)


def stamp_before(text: str, end: int) -> Optional[float]:
    """Return the seconds since boot written as "[   12.345678]" before position `end`, None where there is no such stamp.

    A trace writes "[003] ..... 12.345678:", where the brackets hold the processor.
    """
    stamps = _TRACE.findall(text, 0, end) or _STAMP.findall(text, 0, end)
    return float(stamps[-1]) if stamps else None


def _documents_in(line: str) -> Iterator[tuple[dict[str, Any], int, int]]:
    """Yield the JSON objects in a line, wherever they begin, with their places; up to one that is cut.

    Braces after the beginning of a fault line are its own words, such as the name of a process.
    """
    place = 0
    for _ in range(DOCUMENTS):
        opening = _OBJECT.search(line, place) if "{" in line else None
        if not opening or _FAULT in line[place : opening.start()]:
            return
        try:
            document, end = _JSON.raw_decode(line, opening.start())
        except (ValueError, RecursionError):
            return
        if not isinstance(document, dict):
            return
        yield document, opening.start(), end
        place = end


def _with_envelope(message: Message, wrapped: Message) -> Message:
    """What the message itself says of its time and place counts before what its envelope says."""
    monotonic_s = wrapped.monotonic_s if message.monotonic_s is None else message.monotonic_s
    return Message(message.text, monotonic_s, message.node or wrapped.node, message.boot_id or wrapped.boot_id)


def _pieces(text: str, words: Iterable[str]) -> Iterator[str]:
    if len(text) <= MESSAGE_LIMIT:
        yield text
        return
    places = sorted(set(_places(text, words))) or [0]
    looked_at = 0
    for place in places[:WINDOWS]:
        if place >= looked_at:
            start, looked_at = max(looked_at, place - LEAD), place + MESSAGE_LIMIT
            yield text[start:looked_at]


def _places(text: str, words: Iterable[str]) -> Iterator[int]:
    for word in words:
        place = text.find(word)
        for _ in range(WINDOWS):
            if place < 0:
                break
            yield place
            place = text.find(word, place + 1)


def _plain(text: str) -> Message:
    kmsg = _KMSG.match(text)
    monotonic_s = int(kmsg.group(1)) / 1e6 if kmsg else None
    node = _node(text)
    if "\\" in text or "#0" in text:
        text = _ESCAPE.sub(_unescaped, text)
    if "\x1b" in text:
        text = _COLOUR.sub("", text)
    if "&" in text:
        for escaped, character in _HTML.items():
            text = text.replace(escaped, character)
    return Message(text, monotonic_s, node)


def _unescaped(escape: re.Match[str]) -> str:
    """The kernel writes each byte of a letter as \\xNN."""
    if escape.group(1):
        return bytes(int(byte, 16) for byte in _BYTE.findall(escape.group(1))).decode("utf-8", "replace")
    if escape.group(2):
        return chr(int(escape.group(2), 16))
    return chr(int(escape.group(4), 8)) if escape.group(4) else _CONTROL.get(escape.group(3), escape.group(3))


def _node(text: str) -> str:
    """Return the host that syslog names before the word kernel."""
    found = _SYSLOG_NODE.search(text, 0, LEAD) if " kernel" in text else None
    return found.group(1) if found and not _NO_NODE.search(found.group(1)) else ""


def _first_text(document: dict[str, Any], keys: Iterable[str]) -> str:
    return next((value for key in keys if isinstance(value := document.get(key), str) and value), "")


def _journal_stamp(document: dict[str, Any]) -> Optional[float]:
    """Return journald's stamp of the kernel, or else of its own receipt, in seconds since boot."""
    for key in ("_SOURCE_MONOTONIC_TIMESTAMP", "__MONOTONIC_TIMESTAMP"):
        value = str(document.get(key, ""))
        if value.isascii() and value.isdigit():
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
        if value and all(type(item) is int and 0 <= item < 256 for item in value):
            yield bytes(value).decode("utf-8", "replace")
        else:
            for inner in value:
                yield from _texts(inner, depth + 1)
