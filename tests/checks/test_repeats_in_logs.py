"""Repeats told from a log alone: over boots where the lines bear a time of day, within a boot where events come again."""

from __future__ import annotations

from checks.model import Action
from tests.checks.test_diagnosis_fleet_logs import BOOT, alone, xid


def at(day: int, uptime_s: float, text: str) -> str:
    return f"2026-11-{day:02} 10:00:00+00:00 node-1 kernel: [{uptime_s:12.6f}] {text}"


def boot(day: int) -> str:
    return f"2026-11-{day:02} 09:00:00+00:00 node-1 kernel: {BOOT}"


def test_a_gpu_lost_in_the_boot_before_and_again_is_the_second_within_the_month() -> None:
    found = alone(at(1, 3600, xid(79)), boot(2), at(20, 900_000, xid(79))).diagnosis
    assert (found.fault_class, found.action) == ("hardware", Action.REPLACE_NODE)
    assert found.because[0].startswith("second XID 79 on GPU 0000:1b:00 in 19 days")


def test_a_fault_of_an_earlier_boot_on_another_gpu_or_out_of_the_window_is_no_repeat() -> None:
    assert alone(at(1, 3600, xid(79, bus="1c")), boot(2), at(20, 900_000, xid(79))).diagnosis.action is Action.REBOOT_NODE
    assert alone(at(1, 3600, xid(119)), boot(2), at(20, 900_000, xid(119))).diagnosis.action is Action.REBOOT_NODE


def test_without_a_time_of_day_an_earlier_boot_says_nothing_of_repeats() -> None:
    assert alone(f"[{9000:12.6f}] {xid(79)}", BOOT, f"[{50:12.6f}] {xid(79)}").diagnosis.action is Action.REBOOT_NODE
    assert alone(f"[{9000:12.6f}] {xid(79)}", f"[{50:12.6f}] {xid(79)}").diagnosis.action is Action.REBOOT_NODE


def test_an_event_that_comes_again_in_one_boot_is_a_second_one_and_a_burst_is_not() -> None:
    assert alone(f"[{1000:12.6f}] {xid(44)}", f"[{9000:12.6f}] {xid(44)}").diagnosis.action is Action.RESET_GPU
    assert alone(*(f"[{1000 + n:12.6f}] {xid(44)}" for n in range(60))).diagnosis.action is Action.RESTART_JOB
    assert alone(xid(44), xid(44)).diagnosis.action is Action.RESTART_JOB


def test_of_a_month_of_boots_the_faults_of_the_last_week_are_counted() -> None:
    lines = [line for day in range(1, 28) for line in (boot(day), *(at(day, 3600 + n, xid(94)) for n in range(20)))]
    found = alone(*lines).diagnosis
    assert (found.action, found.because[0].split(" on ")[0]) == (Action.RUN_DIAGNOSTICS, "8th XID 94")
