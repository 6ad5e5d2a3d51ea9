"""The diagnosis: what is weighed, what is history, what a report alone can do, and how sure the answer is."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checks.catalog import FAULT_CLASSES, assess_recovery
from checks.diagnosis import Hardware, ReportedFault, Timing, diagnose
from checks.kernel_log import read_lines
from checks.model import Action, Confidence, Diagnosis, Finding, GpuRef, Verdict

NOW = 1_800_000_000.0
UPTIME = 5000.0
GPU = GpuRef(index=3, uuid="GPU-3", pci="0000:1b:00", serial="1650")
HARDWARE = Hardware("p5.48xlarge", (GPU, GpuRef(index=4, uuid="GPU-4", pci="0000:1c:00", serial="1651")))
FINE = (
    Finding("host", Verdict.OK, "up"),
    Finding("gpu_count", Verdict.OK, "all 8 GPUs are on the bus and answer"),
    Finding("nvml", Verdict.OK, "8 GPUs answer"),
)
UNASKED = Finding("nvml", Verdict.UNKNOWN, "the GPUs could not be read: not asked")
REMAP_FAILED = Finding("row_remap_failure", Verdict.CRITICAL, "no spare row", action=Action.REPLACE_NODE, gpu=GPU)
REMAP_PENDING = Finding("row_remap_pending", Verdict.WARN, "remap waits", action=Action.RESET_GPU, gpu=GPU)
COUNT = Finding("gpu_count", Verdict.CRITICAL, "7 of 8 GPUs are there", action=Action.REBOOT_NODE)


def xid(code: int, at: float = 4900.0, bus: str = "1b", text: str = "text") -> str:
    return f"[{at:12.6f}] NVRM: Xid (PCI:0000:{bus}:00): {code}, {text}"


def weigh(
    *lines: str,
    findings: Sequence[Finding] = FINE,
    reports: Sequence[ReportedFault] = (),
    settling_s: float = 0.0,
    after_s: float | None = None,
    uptime_s: float | None = UPTIME,
) -> Diagnosis:
    timing = Timing(NOW, uptime_s, settling_s, after_s)
    return diagnose(findings, list(read_lines(lines)), reports, timing=timing, hardware=HARDWARE)


def said(diagnosis: Diagnosis) -> str:
    return " | ".join(diagnosis.because)


def test_a_quiet_readable_node_has_nothing_wrong_and_that_is_sure() -> None:
    diagnosis = weigh()
    assert (diagnosis.fault_class, diagnosis.action, diagnosis.confidence) == ("none", Action.NONE, Confidence.HIGH)


def test_a_quiet_node_that_could_not_be_read_in_full_is_not_called_well() -> None:
    diagnosis = weigh(findings=(*FINE[:2], UNASKED))
    assert (diagnosis.fault_class, diagnosis.confidence) == ("none", Confidence.LOW)
    assert "could not be read" in said(diagnosis)
    assert weigh(findings=()).confidence is Confidence.LOW


def test_one_kernel_line_accuses_with_medium_confidence_and_names_the_gpu_in_full() -> None:
    diagnosis = weigh(xid(79), findings=(*FINE[:2], UNASKED))
    assert (diagnosis.fault_class, diagnosis.action, diagnosis.code) == ("gpu_lost", Action.REBOOT_NODE, 79)
    assert diagnosis.confidence is Confidence.MEDIUM
    assert diagnosis.gpu == GPU


def test_a_kernel_line_and_a_missing_gpu_agree_so_it_is_sure() -> None:
    diagnosis = weigh(xid(79), findings=(FINE[0], COUNT, UNASKED))
    assert (diagnosis.fault_class, diagnosis.confidence, diagnosis.code) == ("gpu_lost", Confidence.HIGH, 79)
    assert "second signal: 7 of 8" in said(diagnosis)


def test_a_remap_failure_in_log_and_nvml_replaces_the_node_for_sure() -> None:
    diagnosis = weigh(xid(64, text="All reserved rows for bank are remapped"), findings=(*FINE, REMAP_FAILED))
    assert (diagnosis.fault_class, diagnosis.action) == ("memory_exhausted", Action.REPLACE_NODE)
    assert diagnosis.confidence is Confidence.HIGH


def test_a_reading_of_another_gpu_is_no_second_signal() -> None:
    diagnosis = weigh(xid(64, bus="1c", text="All reserved rows for bank are remapped"), findings=(*FINE, REMAP_FAILED))
    assert (diagnosis.action, diagnosis.confidence) == (Action.REPLACE_NODE, Confidence.MEDIUM)


@pytest.mark.parametrize(
    ("finding", "fault_class", "action", "at_boundary"),
    [
        (REMAP_FAILED, "memory_exhausted", Action.REPLACE_NODE, False),
        (REMAP_PENDING, "reset_needed", Action.RESET_GPU, True),
        (COUNT, "gpu_lost", Action.REBOOT_NODE, False),
        (
            Finding("gpu_lost", Verdict.CRITICAL, "lost", action=Action.REBOOT_NODE, gpu=GPU),
            "gpu_lost",
            Action.REBOOT_NODE,
            False,
        ),
        (Finding("nvml_hung", Verdict.CRITICAL, "hangs", action=Action.REBOOT_NODE), "reboot_needed", Action.REBOOT_NODE, False),
        (Finding("driver_mismatch", Verdict.WARN, "differ"), "configuration", Action.NONE, True),
    ],
)
def test_readings_accuse_without_any_kernel_line(finding: Finding, fault_class: str, action: Action, at_boundary: bool) -> None:
    diagnosis = weigh(findings=(*FINE, finding))
    assert (diagnosis.fault_class, diagnosis.action, diagnosis.at_boundary) == (fault_class, action, at_boundary)
    assert diagnosis.confidence is Confidence.MEDIUM


def test_nvmls_recovery_action_accuses_by_itself() -> None:
    meaning = assess_recovery(2, "GPU 3")
    finding = Finding("recovery_action", Verdict.CRITICAL, meaning.because, action=meaning.action, gpu=GPU)
    assert (weigh(findings=(*FINE, finding)).fault_class, meaning.action) == ("reboot_needed", Action.REBOOT_NODE)


def test_an_alert_alone_on_a_readable_healthy_node_accuses_nobody() -> None:
    diagnosis = weigh(reports=[ReportedFault("alertmanager", xid=79, seen_at=NOW - 5)])
    assert (diagnosis.fault_class, diagnosis.action) == ("none", Action.NONE)
    assert "alertmanager reported XID 79: not confirmed" in said(diagnosis)


def test_an_alert_that_the_kernel_log_bears_out_is_called_confirmed() -> None:
    diagnosis = weigh(xid(79), reports=[ReportedFault("alertmanager", xid=79, seen_at=NOW - 5)])
    assert diagnosis.fault_class == "gpu_lost"
    assert "alertmanager reported XID 79: confirmed" in said(diagnosis)


def test_an_alert_and_a_reading_that_agree_are_two_signals() -> None:
    diagnosis = weigh(findings=(FINE[0], COUNT), reports=[ReportedFault("alertmanager", xid=79)])
    assert (diagnosis.fault_class, diagnosis.confidence) == ("gpu_lost", Confidence.HIGH)


def test_an_alert_about_another_gpu_is_not_confirmed_by_this_ones_fault() -> None:
    report = ReportedFault("alertmanager", xid=79, gpu=GpuRef(uuid="GPU-4"))
    assert "not confirmed" in said(weigh(xid(79), reports=[report]))


def test_an_alert_without_a_code_is_told_and_confirms_nothing() -> None:
    report = ReportedFault("alertmanager", what="GPU temperature is high")
    assert weigh(reports=[report]).fault_class == "none"
    told = said(weigh(findings=(FINE[0], COUNT), reports=[report]))
    assert "GPU temperature is high" in told
    assert "confirmed" not in told


def test_an_alert_from_before_the_boot_is_history() -> None:
    diagnosis = weigh(reports=[ReportedFault("alertmanager", xid=79, seen_at=NOW - UPTIME - 60)])
    assert diagnosis.fault_class == "none"
    assert "before the last boot" in said(diagnosis)


def test_a_thousand_lines_of_one_fault_are_one_accusation() -> None:
    diagnosis = weigh(*(xid(48, at=4900 + number * 0.01) for number in range(1000)))
    assert diagnosis.fault_class == "memory_uncorrectable"
    assert len(diagnosis.because) == 1
    assert "1000 lines" in said(diagnosis)


def test_consequences_do_not_change_the_diagnosis() -> None:
    diagnosis = weigh(xid(31), xid(43), xid(45))
    assert (diagnosis.fault_class, diagnosis.action, diagnosis.code) == ("application", Action.RESTART_JOB, 31)


def test_unknown_codes_are_never_ignored() -> None:
    diagnosis = weigh(xid(4711))
    assert (diagnosis.fault_class, diagnosis.action) == ("unknown_code", Action.CONTACT_SUPPORT)
    followed = weigh(xid(51), xid(154, text="GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"))
    assert (followed.fault_class, followed.action) == ("reset_needed", Action.RESET_GPU)


def test_harmless_codes_accuse_nobody_but_are_told() -> None:
    diagnosis = weigh(xid(63))
    assert diagnosis.fault_class == "none"
    assert "XID 63" in said(diagnosis)


def test_an_event_is_history_after_a_while_unless_somebody_just_reported_it() -> None:
    old = xid(94, at=UPTIME - 3600, text="Contained: SM (0x1). RST: No, D-RST: No")
    assert weigh(old).fault_class == "none"
    assert "an event, not a state" in said(weigh(old))
    assert weigh(old, reports=[ReportedFault("watcher", xid=94, seen_at=NOW - 1)]).fault_class == "memory_contained"


def test_a_state_counts_however_old_its_line_is() -> None:
    assert weigh(xid(79, at=1.0)).fault_class == "gpu_lost"


def test_lines_from_before_the_last_repair_are_history() -> None:
    assert weigh(xid(95, at=100), after_s=200).fault_class == "none"
    assert weigh(xid(95, at=100), xid(95, at=300), after_s=200).fault_class == "memory_uncorrectable"


def test_a_recovery_action_set_back_to_none_ends_what_came_before_it_on_that_gpu() -> None:
    reset = xid(154, at=4950, text="GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)")
    assert weigh(xid(95), reset).fault_class == "none"
    assert weigh(xid(95, bus="1c"), reset).fault_class == "memory_uncorrectable"


def test_a_reset_does_not_bring_back_spare_memory_rows() -> None:
    reset = xid(154, at=4950, text="GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)")
    assert weigh(xid(64, text="All reserved rows for bank are remapped"), reset).fault_class == "memory_exhausted"


def test_a_fault_is_named_before_the_recovery_action_that_came_with_it() -> None:
    reboot = xid(154, at=4899, text="GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)")
    for lines in ((reboot, xid(79)), (xid(79), reboot.replace("4899", "4901"))):
        diagnosis = weigh(*lines)
        assert (diagnosis.fault_class, diagnosis.action, diagnosis.code) == ("gpu_lost", Action.REBOOT_NODE, 79)


@pytest.mark.parametrize(
    ("service", "words"),
    [
        (Finding("service", Verdict.WARN, "it does not run", "nvidia-fabricmanager: loaded failed"), "start that first"),
        (Finding("service", Verdict.OK, "no service is down", "active: nvidia-fabricmanager"), "a process was killed"),
        (Finding("service", Verdict.OK, "services are looked at from 300 s after boot"), "look whether Fabric Manager runs"),
    ],
)
def test_channels_removed_for_no_known_reason_point_at_fabric_manager(service: Finding, words: str) -> None:
    diagnosis = weigh(xid(45), findings=(*FINE, service))
    assert words in said(diagnosis)
    assert diagnosis.action is Action.NONE
    assert words not in said(weigh(xid(31), xid(45), findings=(*FINE, service)))


def test_of_several_recovery_actions_the_last_one_holds() -> None:
    first = xid(154, at=4900, text="GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)")
    last = xid(154, at=4901, text="GPU recovery action changed from 0x2 (Node Reboot Required) to 0x1 (GPU Reset Required)")
    assert weigh(first, last).action is Action.RESET_GPU


def test_a_context_switch_timeout_needs_a_reset_only_if_the_driver_asks() -> None:
    quiet = Finding("recovery_action", Verdict.OK, "no GPU asks to be recovered")
    assert weigh(xid(109), findings=(*FINE, quiet)).action is Action.RESTART_JOB
    assert weigh(xid(109)).action is Action.RESET_GPU


def test_link_training_just_after_a_boot_is_not_counted_but_other_faults_are() -> None:
    line = "[   38.178720] nvidia-nvswitch3: SXid (PCI:0000:04:00.0): 20034, Fatal, Link 44 LTSSM Fault Up"
    assert weigh(xid(136, at=30), line, uptime_s=60, settling_s=120).fault_class == "none"
    assert weigh(xid(136, at=130), uptime_s=140, settling_s=120).fault_class == "link"
    assert weigh(xid(79, at=30), uptime_s=60, settling_s=120).fault_class == "gpu_lost"
    assert weigh(xid(136, at=30), uptime_s=60).fault_class == "link"


def test_of_two_faults_the_one_with_the_wider_repair_is_the_diagnosis_and_the_other_is_told() -> None:
    diagnosis = weigh(xid(31, bus="1c"), xid(79))
    assert diagnosis.fault_class == "gpu_lost"
    assert "also: XID 31" in said(diagnosis)


CODES = st.integers(1, 200)


@settings(deadline=None, derandomize=True, max_examples=150)
@given(st.lists(st.tuples(CODES, st.floats(0, UPTIME), st.sampled_from(["1b", "1c"])), max_size=12), st.floats(0, 300))
def test_any_mixture_gives_one_known_class_with_reasons(lines: list[tuple[int, float, str]], settling_s: float) -> None:
    diagnosis = weigh(*(xid(code, at, bus) for code, at, bus in sorted(lines, key=lambda line: line[1])), settling_s=settling_s)
    assert diagnosis.fault_class in FAULT_CLASSES
    assert diagnosis.because
    assert (diagnosis.fault_class == "none") <= (diagnosis.action is Action.NONE)


@settings(deadline=None, derandomize=True, max_examples=100)
@given(CODES)
def test_a_report_without_evidence_never_accuses(code: int) -> None:
    assert weigh(reports=[ReportedFault("hand", xid=code, seen_at=NOW)]).action is Action.NONE
