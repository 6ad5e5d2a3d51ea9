"""The cursor: no line is judged twice, and none of an earlier boot."""

from __future__ import annotations

import json

from checks.kernel_log import Cursor, read_lines, unread
from checks.model import KernelEvent

BOOT, NEXT_BOOT = "11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222"


def xid(at: float | None, code: int, bus: str = "1b") -> str:
    stamp = "" if at is None else f"[{at:12.6f}] "
    return f"{stamp}NVRM: Xid (PCI:0000:{bus}:00): {code}, text"


def events(*lines: str) -> list[KernelEvent]:
    return list(read_lines(lines))


def codes(found: list[KernelEvent]) -> list[int | None]:
    return [event.code for event in found]


def test_a_log_read_again_has_nothing_new() -> None:
    log = [xid(10, 31), xid(11, 79)]
    first, cursor = unread(events(*log), Cursor(), BOOT)
    again, same = unread(events(*log), cursor, BOOT)
    assert (codes(first), codes(again), same) == ([31, 79], [], cursor)


def test_only_what_was_added_is_judged_even_at_the_same_stamp() -> None:
    log = [xid(10, 31), xid(11, 79)]
    _, cursor = unread(events(*log), Cursor(), BOOT)
    more, cursor = unread(events(*log, xid(11, 79, "1c"), xid(12, 48)), cursor, BOOT)
    assert codes(more) == [79, 48]
    assert more[0].pci == "0000:1c:00"
    assert unread(events(*log, xid(11, 79, "1c"), xid(12, 48)), cursor, BOOT)[0] == []


def test_after_a_reboot_the_log_begins_anew() -> None:
    _, cursor = unread(events(xid(5000, 79)), Cursor(), BOOT)
    found, cursor = unread(events(xid(12, 48)), cursor, NEXT_BOOT)
    assert codes(found) == [48]
    assert (cursor.boot_id, cursor.monotonic_s) == (NEXT_BOOT, 12)


def test_lines_that_name_an_earlier_boot_are_not_judged_after_the_reboot() -> None:
    def journal(boot: str, line: str) -> str:
        stamp, _, text = line.partition("] ")
        return json.dumps(
            {"MESSAGE": text, "_BOOT_ID": boot.replace("-", ""), "_SOURCE_MONOTONIC_TIMESTAMP": str(int(float(stamp[1:]) * 1e6))}
        )

    found, _ = unread(events(journal(BOOT, xid(9000, 79)), journal(NEXT_BOOT, xid(12, 48))), Cursor(), NEXT_BOOT)
    assert codes(found) == [48]


def test_lines_without_a_clock_keep_their_place() -> None:
    log = [xid(None, 31), xid(None, 43)]
    first, cursor = unread(events(*log), Cursor(), BOOT)
    more, cursor = unread(events(*log, xid(None, 79)), cursor, BOOT)
    assert (codes(first), codes(more)) == ([31, 43], [79])
    assert codes(unread(events(xid(None, 48)), cursor, BOOT)[0]) == [48]
