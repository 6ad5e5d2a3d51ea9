"""Finds the few lines of a big log that may be faults, by searching bytes in whole blocks instead of looking at each line."""

from __future__ import annotations

import codecs
from collections.abc import Generator, Iterator, Sequence
from typing import BinaryIO, cast

from checks.kernel_log.container_logs import join, may_be_parted, whole_of
from checks.kernel_log.host_patterns import NVIDIA_WORDS, WORDS

BLOCK = 1 << 18
"""Bytes read at once. Measured: from 64 KiB to 1 MiB equally fast, for the block stays in the processor's cache."""

LINE_LIMIT = 1 << 20
"""Bytes of one line that are held together; a longer one is looked at in pieces. Hotspare default: no log line is so long."""

OVERLAP = 4096
"""Bytes of a piece that are looked at again with the next, so that no message is cut. Source: as `MESSAGE_LIMIT`."""

LEAD = 256
"""Bytes before the overlap that come along for the time stamp of what begins there. Hotspare default: syslog's is shorter."""

BEGINNING = 128
"""Bytes by which a log in UTF-16 is told: every second one is zero. Hotspare default."""

FOLLOWING = 2
"""Lines after a hit that come along, because an event may go on there without the driver's name. Source: XID 31."""

LISTED_MESSAGE = '"MESSAGE"'
"""In journald's JSON a message with odd bytes is a list of numbers, in which no word can be found."""

_LISTED_FAULTS = (b"88,105,100", b"88, 105, 100")
"""The letters of "Xid" in such a list."""

_CODES = ("NVRM: ", "Xid (PCI:", "detected NVSwitch ")
"""Every XID or SXid line holds one of these: the short forms of old drivers begin with "NVRM: ". Long words are found faster."""

NVIDIA_ALONE: tuple[bytes, ...] = tuple(word.encode() for word in (*_CODES, *NVIDIA_WORDS))
"""Every line of an XID, SXid or driver start failure holds one of these, but for lists of numbers."""

ALL_WORDS: tuple[bytes, ...] = tuple(word.encode() for word in (*_CODES, *WORDS))
"""Every fault line holds one of these, but for lists of numbers."""


def scan(stream: BinaryIO, words: Sequence[bytes]) -> Iterator[bytes]:
    """Yield, in order, the lines that hold one of `words`, each with the `FOLLOWING` lines after it, without line ends.

    Reads by blocks: memory stays below a few `LINE_LIMIT`s whatever the size of the log or of its lines.
    """
    needles = _fewest(words)
    rest, parted, wanted = b"", b"", 0
    stream = as_utf8(stream)
    while True:
        block = stream.read(BLOCK)
        if not block:
            break
        block = rest + block
        end = block.rfind(b"\n") + 1
        if not end and len(block) > LINE_LIMIT:
            yield from _piece(block, needles)
            rest = _told(block[-OVERLAP - LEAD :], needles)
            continue
        rest = block[end:]
        whole = block[:end]
        if parted or may_be_parted(whole):
            whole, parted = join(parted + whole)
        if whole:
            wanted = yield from _wanted(whole, needles, wanted)
    for last in (*whole_of(parted).split(b"\n"), rest):
        if last and (wanted or _hits(last, needles)):
            yield last


def as_utf8(stream: BinaryIO) -> BinaryIO:
    """Read a log in UTF-16, as other systems' tools write it, as one in UTF-8; leave any other as it is."""
    begin = stream.read(BEGINNING)
    again = cast("BinaryIO", _Again(begin, stream))
    for encoding, zeroes, letters in (("utf-16-le", begin[1::2], begin[::2]), ("utf-16-be", begin[::2], begin[1::2])):
        if zeroes.count(0) > 0.8 * len(zeroes) and letters.count(0) == 0:
            return cast("BinaryIO", codecs.EncodedFile(again, "utf-8", encoding, errors="replace"))
    return again


class _Again:
    """A stream whose beginning was read already."""

    def __init__(self, begin: bytes, stream: BinaryIO) -> None:
        self._begin = begin
        self._stream = stream

    def read(self, size: int = -1) -> bytes:
        begin, self._begin = self._begin, b""
        return begin + self._stream.read(size) if begin else self._stream.read(size)


def _piece(block: bytes, needles: Sequence[bytes]) -> Iterator[bytes]:
    """Yield the beginning of an over-long line if a needle begins in it; what begins in the overlap comes with the next piece."""
    cut = len(block) - OVERLAP
    if any(0 <= block.find(needle) < cut for needle in needles):
        later = [place for place in (block.find(needle, cut) for needle in needles) if place >= 0]
        yield block[: min(later, default=len(block))]


def _told(lead: bytes, needles: Sequence[bytes]) -> bytes:
    """Blank out in the lead what the piece before has told."""
    for needle in needles:
        place = lead.find(needle, 0, LEAD + len(needle) - 1)
        while place >= 0:
            lead = lead[:place] + b" " * len(needle) + lead[place + len(needle) :]
            place = lead.find(needle, place, LEAD + len(needle) - 1)
    return lead


def _fewest(words: Sequence[bytes]) -> tuple[bytes, ...]:
    """Leave out words that hold another one of them: who finds the shorter finds both."""
    return tuple(word for word in dict.fromkeys(words) if not any(other != word and other in word for other in words))


def _wanted(block: bytes, needles: Sequence[bytes], wanted: int) -> Generator[bytes, None, int]:
    """Yield the wanted lines of whole lines; return how many lines of the next block belong to the last hit."""
    place = 0
    for start in [*_hits(block, needles), len(block)]:
        while wanted and place < start:
            end = block.find(b"\n", place)
            yield block[place:end]
            place, wanted = end + 1, wanted - 1
        if place <= start < len(block):
            end = block.find(b"\n", start)
            yield block[start:end]
            place, wanted = end + 1, FOLLOWING
    return wanted


def _hits(block: bytes, needles: Sequence[bytes]) -> list[int]:
    """Return where the lines begin that hold a needle, in order."""
    starts: set[int] = set()
    for needle in (*needles, *(_LISTED_FAULTS if LISTED_MESSAGE.encode() in block else ())):
        place = block.find(needle)
        while place >= 0:
            starts.add(block.rfind(b"\n", 0, place) + 1)
            end = block.find(b"\n", place)
            if end < 0:
                break
            place = block.find(needle, end)
    return sorted(starts)
