"""How fast a GPU's counters rise from look to look is judged: over resets, over boots, never from one look."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checks.diagnosis import Timing, diagnose
from checks.model import Action, Finding, Verdict
from checks.probes.looks import Looks
from checks.probes.nvml_findings import MUST_ANSWER, judge_nvml
from checks.probes.readings import ERROR, LOST, NOT_SUPPORTED, OK, NvmlState, Reading
from checks.thresholds import Thresholds
from tests.checks.test_nvml_findings import HEALTHY, node

NOW = 1_000_000_000.0
DAY_S = 86400.0
UP_S = 40 * DAY_S
ABSENT = Reading(NOT_SUPPORTED)


class Watched:
    """One GPU that is looked at again and again. Each look says how long after the last one, in seconds."""

    def __init__(self) -> None:
        self.looks = Looks("boot-1", NOW)

    def look(self, after_s: float = 0.0, boot: str = "boot-1", up_s: float = UP_S, **values: Any) -> list[Finding]:
        self.looks = Looks(boot, self.looks.now + after_s, self.looks.samples())
        state = NvmlState("read", gpus=(node(**values).gpus[2],))
        return [
            one
            for one in judge_nvml(state, self.looks.now, up_s, self.looks)
            if one.verdict is not Verdict.OK and one.gpu is not None
        ]


def crc(link_4: int, link_5: int = 0) -> dict[str, Any]:
    return {"nvlink_errors": {"counters": ["replay", "recovery", "crc"], "nonzero": {"crc": {"4": link_4, "5": link_5}}}}


def errors(**counts: int) -> dict[str, Any]:
    counters = ["replay", "recovery", "crc", "receive_errors", "recoveries_done", "recoveries_failed"]
    return {"nvlink_errors": {"counters": counters, "nonzero": {name: {"7": count} for name, count in counts.items()}}}


@pytest.fixture
def gpu() -> Watched:
    return Watched()


def told(findings: list[Finding]) -> list[tuple[str, Action]]:
    return [(one.check, one.action) for one in findings]


@pytest.mark.parametrize(("rise", "expected"), [(99 * 60, []), (100 * 60, [("nvlink_crc", Action.RESET_GPU)])])
def test_crc_errors_of_a_link_matter_from_a_hundred_a_second(gpu: Watched, rise: int, expected: list[Any]) -> None:
    assert gpu.look(**crc(1_000_000)) == []
    found = gpu.look(60, **crc(1_000_000 + rise))
    assert told(found) == expected
    if found:
        assert "NVLink 4;" in found[0].summary
        assert "100 a second" in found[0].evidence
        assert diagnose(found, timing=Timing(NOW, UP_S)).fault_class == "link"


def test_crc_errors_are_judged_link_by_link(gpu: Watched) -> None:
    gpu.look(**crc(0, 0))
    assert gpu.look(60, **crc(60 * 60, 60 * 60)) == []


@pytest.mark.parametrize("counter", ["replay", "recovery", "receive_errors"])
def test_any_new_error_of_an_nvlink_is_a_fault_of_the_link(gpu: Watched, counter: str) -> None:
    assert told(gpu.look(**errors(**{counter: 3}))) == [("nvlink_errors", Action.RUN_DIAGNOSTICS)]
    found = gpu.look(300, **errors(**{counter: 4}))
    assert told(found) == [("nvlink_errors", Action.RUN_DIAGNOSTICS), ("nvlink_errors_rising", Action.RESET_GPU)]
    assert "1 more in 5 min on link 7" in found[1].evidence
    diagnosis = diagnose(found, timing=Timing(NOW, UP_S))
    assert (diagnosis.fault_class, diagnosis.action, diagnosis.at_boundary) == ("link", Action.RESET_GPU, True)


def test_errors_that_no_longer_rise_are_old_news_after_a_while(gpu: Watched) -> None:
    gpu.look(**errors(replay=3))
    gpu.look(300, **errors(replay=4))
    for _ in range(14):
        gpu.look(300, **errors(replay=4))
    assert told(gpu.look(300, **errors(replay=4))) == [("nvlink_errors", Action.RUN_DIAGNOSTICS)]


def test_recoveries_that_succeeded_may_rise(gpu: Watched) -> None:
    gpu.look(**errors(recoveries_done=1))
    assert gpu.look(300, **errors(recoveries_done=9)) == []


def test_a_driver_loaded_anew_clears_its_counters_and_that_is_no_rise(gpu: Watched) -> None:
    gpu.look(**errors(replay=500))
    assert told(gpu.look(300, **errors(replay=2))) == [("nvlink_errors", Action.RUN_DIAGNOSTICS)]


def test_a_new_boot_has_no_earlier_look(gpu: Watched) -> None:
    gpu.look(**errors(replay=2))
    assert told(gpu.look(600, boot="boot-2", **errors(replay=9))) == [("nvlink_errors", Action.RUN_DIAGNOSTICS)]


def test_what_links_count_while_they_train_is_no_base(gpu: Watched) -> None:
    gpu.look(up_s=20.0, **errors(replay=0))
    assert "nvlink_errors_rising" not in {one.check for one in gpu.look(300, up_s=320.0, **errors(replay=6))}


@pytest.mark.parametrize(
    ("generation", "width", "limit"), [(4, 16, 16), (5, 16, 31), (6, 16, 62), (3, 16, 8), (5, 8, 16), (1, 16, 3)]
)
def test_pcie_replays_a_minute_are_judged_by_generation_and_lanes(gpu: Watched, generation: int, width: int, limit: int) -> None:
    link: dict[str, Any] = {
        "pcie_generation": generation,
        "pcie_generation_max": generation,
        "pcie_width": width,
        "pcie_width_max": width,
    }
    assert gpu.look(pcie_replays=7, **link) == []
    assert gpu.look(60, pcie_replays=7 + limit, **link) == []
    assert told(gpu.look(60, pcie_replays=8 + 2 * limit, **link)) == [("pcie_replays", Action.RUN_DIAGNOSTICS)]


def test_a_burst_of_replays_long_ago_is_no_rate_now(gpu: Watched) -> None:
    assert told(gpu.look(up_s=3600.0, pcie_replays=60 * 40)) == [("pcie_replays", Action.RUN_DIAGNOSTICS)]
    assert gpu.look(60, up_s=3660.0, pcie_replays=60 * 40) == []


def test_non_fatal_pcie_errors_matter_when_they_rise(gpu: Watched) -> None:
    assert gpu.look(pcie_nonfatal=5) == []
    assert gpu.look(300, pcie_nonfatal=5) == []
    assert told(gpu.look(300, pcie_nonfatal=6)) == [("pcie_nonfatal", Action.RUN_DIAGNOSTICS)]


@pytest.mark.parametrize(("in_a_month", "expected"), [(2, []), (3, [("row_remap_rate", Action.RUN_DIAGNOSTICS)])])
def test_rows_remapped_within_a_month_are_counted_over_reboots(gpu: Watched, in_a_month: int, expected: list[Any]) -> None:
    gpu.look(remapped_rows=[0, 4, 0, 0])
    for day in range(1, 20):
        rows = 4 + min(day // 5, in_a_month)
        found = gpu.look(DAY_S, boot=f"boot-{day}", up_s=DAY_S, remapped_rows=[0, rows, 0, 0])
    assert told(found) == expected


def test_rows_remapped_a_few_a_year_are_what_the_remap_is_for(gpu: Watched) -> None:
    for month in range(12):
        assert gpu.look(25 * DAY_S, remapped_rows=[0, month, 0, 0]) == []


def test_another_gpu_in_the_slot_has_its_own_history(gpu: Watched) -> None:
    gpu.look(remapped_rows=[0, 0, 0, 0])
    assert gpu.look(DAY_S, remapped_rows=[0, 40, 0, 0], uuid="GPU-y") == []


@pytest.mark.parametrize(
    ("pages", "expected"),
    [((14, 15), []), ((15, 16), [("retired_pages", Action.REPLACE_NODE)]), ((20, 20), [])],
)
def test_pages_retired_one_after_another_on_an_old_gpu(gpu: Watched, pages: tuple[int, int], expected: list[Any]) -> None:
    for count in pages:
        found = gpu.look(3 * DAY_S, retired_pages_dbe=count, remapped_rows=ABSENT)
    assert told(found) == expected


@pytest.mark.parametrize(
    ("reading", "action"),
    [
        ("slow_hardware_thermal_ns", Action.RUN_DIAGNOSTICS),
        ("slow_power_brake_ns", Action.CONTACT_SUPPORT),
        ("slow_software_thermal_ns", Action.CONTACT_SUPPORT),
        ("violation_thermal_ns", Action.CONTACT_SUPPORT),
    ],
)
def test_a_gpu_slowed_down_most_of_ten_minutes_is_told(gpu: Watched, reading: str, action: Action) -> None:
    def look(slow_s: int) -> list[tuple[str, Action]]:
        values: dict[str, Any] = {reading: 10**15 + slow_s * 10**9}
        return told(gpu.look(300, **values))

    assert [look(slow_s) for slow_s in (0, 300, 350)] == [[], [], []]
    assert look(700) == [("slowdown", action)]


@pytest.mark.parametrize("reading", ["violation_power_ns", "violation_board_limit_ns", "violation_reliability_ns"])
def test_time_at_the_power_cap_or_the_boards_limit_is_normal_under_load(gpu: Watched, reading: str) -> None:
    zero: dict[str, Any] = {reading: 0}
    always: dict[str, Any] = {reading: 600 * 10**9}
    gpu.look(**zero)
    assert gpu.look(600, **always) == []


def slow_looks(gpu: Watched, bits: Callable[[int], int]) -> list[tuple[str, Action]]:
    for minute in range(15):
        found = gpu.look(60, clocks_event_reasons=bits(minute), slow_hardware_thermal_ns=ABSENT)
    return [one for one in told(found) if one[0] == "slowdown"]


def test_without_a_counter_of_time_the_looks_that_saw_a_slowdown_are_counted(gpu: Watched) -> None:
    assert slow_looks(gpu, lambda minute: 0x8 if minute % 5 < 3 else 0) == [("slowdown", Action.RUN_DIAGNOSTICS)]


@pytest.mark.parametrize("bits", [lambda minute: 0x8 * (minute % 2), lambda minute: 0x9, lambda minute: 0x4])
def test_slowdowns_now_and_then_or_at_rest_and_the_power_cap_are_not(gpu: Watched, bits: Callable[[int], int]) -> None:
    assert slow_looks(gpu, bits) == []


def test_errors_with_interrupts_on_the_link_to_the_cpu_matter_when_they_rise(gpu: Watched) -> None:
    def c2c(count: int) -> dict[str, Any]:
        nonzero = {"interrupt_errors": {"0": count}, "replays": {"0": 9 * count}}
        return {"c2c_states": [1], "c2c_errors": {"counters": ["interrupt_errors", "replays"], "nonzero": nonzero}}

    assert gpu.look(**c2c(2)) == []
    assert gpu.look(600, **c2c(2)) == []
    assert told(gpu.look(600, **c2c(3))) == [("c2c_errors", Action.RUN_DIAGNOSTICS)]


def test_a_gpu_that_does_not_tell_its_uuid_has_no_history(gpu: Watched) -> None:
    gpu.look(uuid=ABSENT, pcie_nonfatal=1)
    assert gpu.look(600, uuid=ABSENT, pcie_nonfatal=2) == []
    assert gpu.looks.samples() == {}


def test_the_thresholds_can_be_overridden() -> None:
    looks = Looks("boot-1", NOW)
    state = NvmlState("read", gpus=(node(remapped_rows=[0, 0, 0, 0]).gpus[2],))
    judge_nvml(state, NOW, UP_S, looks)
    later = Looks("boot-1", NOW + DAY_S, looks.samples())
    state = NvmlState("read", gpus=(node(remapped_rows=[0, 1, 0, 0]).gpus[2],))
    found = judge_nvml(state, later.now, UP_S, later, Thresholds(row_remaps_per_30_days=1))
    assert "row_remap_rate" in {one.check for one in found}


def test_a_healthy_node_of_eight_gpus_keeps_a_small_file() -> None:
    looks = Looks("boot-1", NOW)
    for _ in range(50):
        looks = Looks("boot-1", looks.now + 300, looks.samples())
        judge_nvml(node(), looks.now, UP_S, looks)
    assert max(len(samples) for samples in looks.samples().values()) <= 30


STATES = st.sampled_from([OK, NOT_SUPPORTED, ERROR, LOST])


@settings(deadline=None, derandomize=True, max_examples=150)
@given(st.dictionaries(st.sampled_from(sorted(HEALTHY)), STATES), st.dictionaries(st.sampled_from(sorted(HEALTHY)), STATES))
def test_whatever_a_gpu_does_not_tell_is_lost_or_unknown_or_absent_and_never_a_fault(
    first: dict[str, str], second: dict[str, str]
) -> None:
    looks = Looks("boot-1", NOW)
    for tags in (first, second):
        looks = Looks("boot-1", looks.now + 300, looks.samples())
        unread: dict[str, Any] = {name: Reading(tag) for name, tag in tags.items() if tag != OK}
        state = NvmlState("read", gpus=(node(**unread).gpus[2],))
        found = [one for one in judge_nvml(state, looks.now, UP_S, looks) if one.verdict is not Verdict.OK]
        if LOST in tags.values():
            assert told(found) == [("gpu_lost", Action.REBOOT_NODE)]
        elif any(name in MUST_ANSWER and tag == ERROR for name, tag in tags.items()):
            assert [(one.check, one.verdict) for one in found] == [("unreadable", Verdict.UNKNOWN)]
        else:
            assert found == []
