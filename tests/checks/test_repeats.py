"""A fault that comes back asks for more, exactly as the catalog's rule says; what only looks like a repeat does not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checks.diagnosis import Hardware, History, PastFault, PastRepair, Timing, diagnose, with_log
from checks.diagnosis.facts import RANK
from checks.diagnosis.history import KEPT_FAULTS
from checks.kernel_log import read_lines
from checks.model import Action, Diagnosis, Finding, GpuRef, Verdict

NOW = 1_800_000_000.0
UPTIME = 5000.0
DAY = 86_400.0
GPU = GpuRef(index=3, uuid="GPU-3", pci="0000:1b:00", serial="1650")
HARDWARE = Hardware("p5.48xlarge", (GPU, GpuRef(index=4, uuid="GPU-4", pci="0000:1c:00", serial="1651")))
FINE = (Finding("gpu_count", Verdict.OK, "all 8 GPUs are on the bus"), Finding("nvml", Verdict.OK, "8 GPUs answer"))
LINK_REGISTERS = "NVLink: fatal error detected on link {}(0x100, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"


def xid(code: int, at: float = 4900.0, bus: str = "1b", text: str = "text") -> str:
    return f"[{at:12.6f}] NVRM: Xid (PCI:0000:{bus}:00): {code}, {text}"


def past(code: int, days: float, serial: str = "1650", **more: object) -> PastFault:
    at = NOW - 100 - days * DAY
    known: dict[str, object] = {"gpu": GpuRef(serial=serial), "boot_id": f"boot {days}", "lasting": True, **more}
    return PastFault("xid", code, at, at + 5, **known)  # type: ignore[arg-type]


def weigh(*lines: str, faults: tuple[PastFault, ...] = (), settling_s: float = 0.0, **more: object) -> Diagnosis:
    history = History(faults, boot_id="now", **more)  # type: ignore[arg-type]
    timing = Timing(NOW, UPTIME, settling_s)
    return diagnose(FINE, list(read_lines(lines)), timing=timing, hardware=HARDWARE, history=history)


def test_a_second_loss_of_one_gpu_within_thirty_days_replaces_the_node_and_says_why() -> None:
    diagnosis = weigh(xid(79), faults=(past(79, 6),))
    assert (diagnosis.fault_class, diagnosis.action, diagnosis.code) == ("hardware", Action.REPLACE_NODE, 79)
    assert diagnosis.gpu == GPU
    assert diagnosis.because[0].startswith("second XID 79 on GPU serial 1650 in 6 days")


@pytest.mark.parametrize(
    ("code", "days", "action"),
    [
        (79, 31, Action.REBOOT_NODE),
        (119, 6.9, Action.REPLACE_NODE),
        (119, 7.1, Action.REBOOT_NODE),
        (44, 0.9, Action.RESET_GPU),
        (44, 1.1, Action.RESTART_JOB),
    ],
)
def test_a_repeat_counts_within_its_window_alone(code: int, days: float, action: Action) -> None:
    assert weigh(xid(code), faults=(past(code, days),)).action is action


def test_the_same_fault_on_another_gpu_is_no_repeat() -> None:
    assert weigh(xid(79), faults=(past(79, 1, serial="1651"),)).action is Action.REBOOT_NODE


def test_a_gpu_is_known_by_its_serial_in_whatever_slot_it_was() -> None:
    moved = past(79, 1, gpu=GpuRef(serial="1650", pci="0000:1c:00"))
    assert weigh(xid(79), faults=(moved,)).action is Action.REPLACE_NODE


def test_a_bus_address_names_no_gpu_across_a_power_cycle() -> None:
    unnamed = past(79, 1, gpu=GpuRef(pci="0000:1b:00"))
    assert weigh(xid(79), faults=(unnamed,)).action is Action.REPLACE_NODE
    moved = (PastRepair(NOW - 3600, Action.POWER_CYCLE),)
    assert weigh(xid(79), faults=(unnamed,), repairs=moved).action is Action.REBOOT_NODE


def test_a_reboot_of_ours_does_not_make_the_past_undone() -> None:
    reboot = (PastRepair(NOW - UPTIME - 60, Action.REBOOT_NODE),)
    assert weigh(xid(79), faults=(past(79, 6),), repairs=reboot).action is Action.REPLACE_NODE


def test_a_fault_that_is_back_after_the_reboot_of_its_own_incident_is_no_second_one() -> None:
    before = past(79, 0.1, incident="run 1")
    assert weigh(xid(79), faults=(before,), incident="run 1").action is Action.REBOOT_NODE
    assert weigh(xid(79), faults=(before,), incident="run 2").action is Action.REPLACE_NODE


def test_a_burst_over_several_boots_of_one_incident_counts_once() -> None:
    before = tuple(past(94, days, incident="run 1", lasting=False) for days in (1, 1.1, 1.2))
    assert weigh(xid(94), faults=before, incident="run 2").action is Action.RESTART_JOB
    more = (*before, past(94, 2, incident="run 0"))
    assert weigh(xid(94), faults=more, incident="run 2").action is Action.RUN_DIAGNOSTICS


def test_links_that_train_after_a_reboot_of_ours_are_no_repeat() -> None:
    line = xid(149, at=40, text="NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x021425c6 0x0 0x0 0x0 0x0 0x0)")
    again = xid(149, text="NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x021425c6 0x0 0x0 0x0 0x0 0x0)")
    reboot = (PastRepair(NOW - UPTIME - 60, Action.REBOOT_NODE),)
    reset = (PastRepair(NOW - 3000, Action.RESET_GPU),)
    assert weigh(line, again, repairs=reboot + reset).action is Action.RESET_GPU
    assert weigh(line, again, repairs=reset).action is Action.REPLACE_NODE


def test_a_state_that_is_told_twice_in_one_boot_is_one_fault_until_something_was_repaired() -> None:
    lines = xid(119, at=1000), xid(119, at=4900)
    assert weigh(*lines).action is Action.REBOOT_NODE
    assert weigh(*lines, repairs=(PastRepair(NOW - 2000, Action.RESET_GPU),)).action is Action.REPLACE_NODE


def test_an_event_that_comes_again_in_one_boot_is_a_second_one() -> None:
    assert weigh(xid(44, at=1000), xid(44)).action is Action.RESET_GPU
    assert weigh(*(xid(44, at=4850 + n) for n in range(40))).action is Action.RESTART_JOB


def test_an_application_fault_is_the_gpus_only_under_different_jobs() -> None:
    before = past(31, 0.5, job="llama", lasting=False)
    assert weigh(xid(31), faults=(before,), job="llama").action is Action.RESTART_JOB
    other = weigh(xid(31), faults=(before,), job="mixtral")
    assert (other.fault_class, other.action) == ("unknown_code", Action.RUN_DIAGNOSTICS)
    assert "different jobs" in other.because[0]


def test_where_the_job_is_not_known_the_answer_says_that_it_matters() -> None:
    before = past(31, 0.5, job="llama", lasting=False)
    unknown = weigh(xid(31), faults=(before,))
    assert (unknown.action, unknown.awaits_job) == (Action.RESTART_JOB, True)
    assert not weigh(xid(31), faults=(before,), job="llama").awaits_job
    assert not weigh(xid(31)).awaits_job


def test_one_bad_unit_of_a_gpu_is_told_from_a_program_that_faults_everywhere() -> None:
    def warp(gpc: int, at: float) -> str:
        return xid(13, at=at, text=f"Graphics SM Warp Exception on (GPC {gpc}, TPC 1, SM 0): Illegal Instruction Parameter")

    assert weigh(warp(7, 1000), warp(7, 4900)).action is Action.RUN_DIAGNOSTICS
    assert weigh(warp(7, 1000), warp(6, 4900)).action is Action.RESTART_JOB
    everywhere = [warp(gpc, at + gpc) for at in (1000, 4900) for gpc in range(7)]
    assert weigh(*everywhere).action is Action.RESTART_JOB


def test_link_faults_count_per_link_and_after_a_reset() -> None:
    before = past(74, 2, link=3)
    line = xid(74, text=LINK_REGISTERS.format(3))
    assert "second XID 74 on link 3" in weigh(line, faults=(before,)).because[0]
    assert "second" not in weigh(xid(74, text=LINK_REGISTERS.format(4)), faults=(before,)).because[0]


def test_a_rule_that_asks_for_less_than_the_line_never_lowers_the_action() -> None:
    diagnosis = weigh(xid(48), faults=(past(48, 6),))
    assert (diagnosis.fault_class, diagnosis.action) == ("memory_uncorrectable", Action.RESET_GPU)
    assert "RUN_DIAGNOSTICS before it serves again" in diagnosis.because[0]


def test_a_harmless_line_that_keeps_coming_is_looked_into_when_the_job_is_done() -> None:
    rows = tuple(past(63, days, lasting=False) for days in (20, 10))
    diagnosis = weigh(xid(63), faults=rows)
    assert (diagnosis.action, diagnosis.at_boundary) == (Action.RUN_DIAGNOSTICS, True)
    assert weigh(xid(63), faults=rows[:1]).action is Action.NONE
    assert weigh(xid(63, at=1000), faults=rows).action is Action.NONE, "an event of an hour ago is history"


def switch(link: int, at: float = 4900.0, severity: str = "Fatal") -> str:
    return f"[{at:12.6f}] nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 11013, {severity}, Link {link:02} ingress DBE"


def test_a_switch_link_that_fails_twice_replaces_the_node_and_corrected_errors_never_do() -> None:
    before = PastFault("sxid", 11013, NOW - DAY, NOW - DAY, gpu=GpuRef(pci="0000:c1:00"), link=46, lasting=True, boot_id="b")
    assert weigh(switch(46), faults=(before,)).action is Action.REPLACE_NODE
    assert weigh(switch(47), faults=(before,)).action is Action.REBOOT_NODE
    assert weigh(switch(46, severity="Non-fatal"), faults=(before,)).action is Action.NONE
    quiet = (switch(46, 1000, "Non-fatal"), switch(46, 4900, "Non-fatal"))
    assert weigh(*quiet).action is Action.NONE


def test_a_kernel_that_panics_twice_in_a_week_is_replaced() -> None:
    oops = f"[{4900:12.6f}] BUG: unable to handle page fault for address: ffffa0b1"
    before = PastFault("host", None, NOW - 3 * DAY, NOW - 3 * DAY, signal="kernel_bug", lasting=True, boot_id="b")
    assert weigh(oops).action is Action.REBOOT_NODE
    assert weigh(oops, faults=(before,)).action is Action.REPLACE_NODE


def remembered(*lines: str, history: History | None = None, hardware: Hardware = HARDWARE) -> History:
    known = history or History(boot_id="now", incident="run 1", job="llama")
    return with_log(known, list(read_lines(lines)), Timing(NOW, UPTIME), hardware)


def test_a_fault_is_remembered_once_however_often_it_is_looked_at() -> None:
    lines = [xid(79, at=4800 + n / 10) for n in range(300)]
    once = remembered(*lines)
    [fault] = once.faults
    assert (fault.code, fault.gpu, fault.incident, fault.job) == (79, GPU, "run 1", "llama")
    assert remembered(*lines[200:], history=once) == once


def test_consequences_and_codes_without_a_rule_are_not_remembered() -> None:
    assert [fault.code for fault in remembered(xid(31), xid(43), xid(45), xid(62, bus="1c")).faults] == [31]


def test_the_serial_is_filled_in_once_it_can_be_read() -> None:
    blind = remembered(xid(79), hardware=Hardware("p5.48xlarge"))
    assert blind.faults[0].gpu == GpuRef(pci="0000:1b:00")
    assert remembered(history=blind).faults[0].gpu.serial == "1650"


FAULTS = st.builds(
    past,
    st.sampled_from([13, 31, 44, 48, 63, 74, 79, 94, 119]),
    st.floats(0, 60),
    st.sampled_from(["1650", "1651", ""]),
    lasting=st.booleans(),
    job=st.sampled_from(["", "llama", "mixtral"]),
    incident=st.sampled_from(["", "run 1", "run 2"]),
    link=st.none() | st.integers(0, 3),
)


@settings(deadline=None, derandomize=True, max_examples=150)
@given(
    st.lists(FAULTS, max_size=90),
    st.lists(st.tuples(st.sampled_from([13, 31, 44, 48, 63, 74, 79, 94, 119]), st.floats(1, UPTIME)), max_size=12),
)
def test_whatever_the_past_the_action_never_goes_down_and_memory_stays_small(
    faults: list[PastFault], log: list[tuple[int, float]]
) -> None:
    lines = [xid(code, at=at) for code, at in sorted(log, key=lambda one: one[1])]
    plain, after = weigh(*lines), weigh(*lines, faults=tuple(faults))
    assert RANK.index(after.action) >= RANK.index(plain.action)
    kept = remembered(*lines, history=replace(History(boot_id="now"), faults=tuple(faults)))
    assert len(kept.faults) <= KEPT_FAULTS
    assert remembered(*lines, history=kept).faults == kept.faults
