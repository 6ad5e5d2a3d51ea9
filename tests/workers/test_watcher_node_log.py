"""What of a node's kernel log is reported, and how far the log counts as handled."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from checks.catalog import Machine, read_overrides
from checks.kernel_log import Cursor
from workers.watcher.node_log import NodeLog, Start

BOOT = "boot-1"


def start(cursor: Cursor | None = None, uptime_s: float | None = 1000.0, repeat_s: float = 30.0) -> Start:
    return Start(boot_id=BOOT, uptime_s=uptime_s, cursor=cursor, first_connect_max_age_s=600.0, repeat_s=repeat_s)


def xid(code: int, at: float, pci: str = "0000:18:00", text: str = "GPU has fallen off the bus.") -> str:
    return f"[{at:12.6f}] NVRM: Xid (PCI:{pci}): {code}, pid=1234, name=python, {text}"


def reported(log: NodeLog, now: float = 0.0) -> list[tuple[str, int | None, int]]:
    """Report all that is due, as the follower does."""
    batches = log.due(now)
    for batch in batches:
        log.confirmed(batch, now)
    return [(batch.fault_class, batch.event.code, batch.count) for batch in batches]


def test_a_fault_is_due_at_once() -> None:
    log = NodeLog(start())
    log.take("[  990.000000] eth0: link up")
    log.take(xid(79, 995.0))
    assert reported(log) == [("gpu_lost", 79, 1)]
    assert reported(log) == []


def test_the_same_fault_a_thousand_times_is_one_report_and_then_one_count() -> None:
    log = NodeLog(start())
    log.take(xid(79, 995.0))
    assert reported(log, now=0.0) == [("gpu_lost", 79, 1)]
    for n in range(999):
        log.take(xid(79, 995.0 + n / 1000))
        assert reported(log, now=1.0) == []
    assert reported(log, now=30.0) == [("gpu_lost", 79, 999)]
    assert reported(log, now=90.0) == []


def test_two_classes_of_fault_are_two_reports() -> None:
    log = NodeLog(start())
    log.take(xid(64, 995.0, text="Row remapping failed for bank 0"))
    log.take(xid(119, 996.0, pci="0000:2a:00", text="Timeout waiting for RPC from GSP!"))
    assert sorted(code for _, code, _ in reported(log)) == [64, 119]  # type: ignore[type-var]


def test_what_follows_from_a_reported_fault_is_no_fault_of_its_own() -> None:
    log = NodeLog(start())
    log.take(xid(79, 995.0))
    assert reported(log) == [("gpu_lost", 79, 1)]
    for _ in range(3):
        log.take(xid(45, 995.5, text="Ch 00000008"))
    assert reported(log, now=60.0) == []


def test_a_line_that_needs_no_action_is_not_reported() -> None:
    log = NodeLog(start())
    log.take(xid(63, 995.0, text="Row remapping event: Rows 0x1 0x2 are remapped."))
    log.take(xid(92, 996.0, text="High single-bit ECC error rate"))
    assert all(code not in (63,) for _, code, _ in reported(log))


def test_on_the_first_connection_old_lines_are_history_and_young_ones_are_not() -> None:
    log = NodeLog(start(uptime_s=1000.0))
    log.take(xid(79, 399.0))
    assert reported(log) == []
    log.take(xid(79, 401.0))
    assert reported(log) == [("gpu_lost", 79, 1)]


def test_history_stays_history_when_the_first_connection_breaks_at_once() -> None:
    first = NodeLog(start(uptime_s=1000.0))
    second = NodeLog(start(cursor=first.cursor, uptime_s=1010.0))
    second.take(xid(79, 399.0))
    assert reported(second) == []


def test_without_an_uptime_every_line_counts_as_young() -> None:
    log = NodeLog(start(uptime_s=None))
    log.take(xid(79, 1.0))
    assert reported(log) == [("gpu_lost", 79, 1)]


def test_a_node_seen_before_is_read_on_from_its_cursor_however_old_the_lines_are() -> None:
    lines = [xid(79, 10.0), xid(64, 20.0, pci="0000:2a:00", text="Row remapping failed"), xid(119, 30.0, pci="0000:3a:00")]
    first = NodeLog(start(uptime_s=40.0))
    for line in lines[:2]:
        first.take(line)
    assert len(reported(first)) == 2
    second = NodeLog(start(cursor=first.cursor, uptime_s=90_000.0))
    for line in lines:
        second.take(line)
    assert [code for _, code, _ in reported(second)] == [119]


def test_after_another_boot_the_log_is_read_from_its_beginning() -> None:
    log = NodeLog(start(cursor=Cursor(boot_id="boot-0", monotonic_s=500.0), uptime_s=9000.0))
    log.take(xid(79, 5.0))
    assert reported(log) == [("gpu_lost", 79, 1)]


def test_the_cursor_stays_before_a_line_that_is_not_yet_reported() -> None:
    log = NodeLog(start())
    log.take("[  990.000000] eth0: link up")
    before = log.cursor
    log.take(xid(79, 995.0))
    log.take("[  996.000000] eth0: link down")
    assert log.cursor == before
    reported(log)
    assert (log.cursor.boot_id, log.cursor.monotonic_s) == (BOOT, 995.0)


def test_of_lines_with_one_time_stamp_none_is_lost_and_none_comes_twice() -> None:
    lines = ["[  990.000000] a", xid(79, 990.0), xid(64, 990.0, pci="0000:2a:00", text="Row remapping failed")]
    first = NodeLog(start())
    first.take(lines[0])
    first.take(lines[1])
    assert reported(first) == [("gpu_lost", 79, 1)]
    second = NodeLog(start(cursor=first.cursor))
    for line in lines:
        second.take(line)
    assert [code for _, code, _ in reported(second)] == [64]


@given(
    st.lists(st.tuples(st.sampled_from([79, 64, 119, 74, None]), st.integers(0, 3)), max_size=30),
    st.lists(st.booleans(), max_size=30),
)
def test_wherever_the_watcher_is_restarted_every_class_of_fault_is_reported(
    log_lines: list[tuple[int | None, int]], restarts: list[bool]
) -> None:
    """A restart after any line, with or without having reported it, neither loses a class nor moves the cursor back."""
    lines, at = [], 900.0
    for code, step in log_lines:
        at += step
        lines.append(xid(code, at, pci=f"0000:{code % 90:02}:00") if code else f"[{at:12.6f}] all is well")
    alone = NodeLog(start())
    for line in lines:
        alone.take(line)
    wanted = {fault_class for fault_class, _, _ in reported(alone)}
    seen: set[str] = set()
    cursor: Cursor | None = None
    for end, confirm in zip(range(1, len(lines) + 1), [*restarts, *[True] * len(lines)], strict=False):
        log = NodeLog(start(cursor=cursor))
        for line in lines[:end]:
            log.take(line)
        if confirm:
            seen |= {fault_class for fault_class, _, _ in reported(log)}
        assert cursor is None or log.cursor.monotonic_s >= cursor.monotonic_s
        cursor = log.cursor
    last = NodeLog(start(cursor=cursor))
    for line in lines:
        last.take(line)
    seen |= {fault_class for fault_class, _, _ in reported(last)}
    assert wanted <= seen


def test_the_settings_word_on_a_code_decides_what_is_reported() -> None:
    own = read_overrides({"xid:79": {"action": "NONE"}, "xid:63": {"action": "RESET_GPU"}})
    log = NodeLog(replace(start(), machine=Machine(overrides=own)))
    log.take(xid(79, 995.0))
    log.take(xid(63, 996.0, "0000:19:00"))
    assert reported(log) == [("reset_needed", 63, 1)]


def test_a_line_that_is_printed_late_is_reported_and_not_lost_by_a_restart() -> None:
    lines = [xid(79, 996.0), xid(64, 995.0, pci="0000:2a:00", text="Row remapping failed")]
    first = NodeLog(start())
    first.take(lines[0])
    assert len(reported(first)) == 1
    first.take(lines[1])
    second = NodeLog(start(cursor=first.cursor))
    for line in lines:
        second.take(line)
    assert 64 in [code for _, code, _ in reported(second)]


def test_a_line_without_a_stamp_keeps_its_place_in_the_log() -> None:
    lines = ["[  990.000000] a", xid(79, 991.0), xid(119, 0.0, pci="0000:2a:00").partition("] ")[2], "[  992.000000] b"]
    first = NodeLog(start())
    for line in lines:
        first.take(line)
    assert sorted(code for _, code, _ in reported(first)) == [79, 119]  # type: ignore[type-var]
    second = NodeLog(start(cursor=first.cursor))
    for line in lines:
        second.take(line)
    assert reported(second) == []


def test_a_line_that_names_another_boot_is_not_judged() -> None:
    line = '{"MESSAGE": "NVRM: Xid (PCI:0000:18:00): 79, GPU has fallen off the bus.", "_BOOT_ID": "%s", "_TRANSPORT": "kernel"}'
    log = NodeLog(start())
    log.take(line % "boot0")
    assert reported(log) == []
    log.take(line % "boot1")
    assert reported(log) == [("gpu_lost", 79, 1)]


def test_the_driver_version_decides_how_registers_are_read() -> None:
    meanings = set()
    for version in ("570.124.06", "580.95.05"):
        log = NodeLog(replace(start(), machine=Machine(version)))
        for unit in range(32):
            log.take(xid(145, 990.0 + unit / 10, pci=f"0000:{unit:02x}:00", text=f"(0x{unit:08x} 0x00000001 0x0 0x0 0x0)"))
        meanings.add(tuple(reported(log)))
    assert len(meanings) == 2
