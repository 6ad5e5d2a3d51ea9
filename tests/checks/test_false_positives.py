"""Signals that have taken healthy nodes out of service elsewhere, each told by whom, and what is made of them here."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Sequence

import pynvml
import pytest

from checks.catalog import read_overrides
from checks.diagnosis import FleetLogs, Hardware, Recommendation, ReportedFault, Storm, Timing, diagnose
from checks.judges.tools import judge
from checks.kernel_log import Cursor, read_lines, unread
from checks.model import Action, Confidence, Diagnosis, Finding, Verdict
from checks.probes.nvml_findings import judge_nvml
from checks.probes.readings import OK, GpuReadings, NvmlState, Reading
from tests.checks.node import BUSES, FakeBindings, TestNode

NOW = 1_800_000_000.0
DAY = 86_400.0
FINE = (Finding("gpu_count", Verdict.OK, "all 8 GPUs are on the bus and answer"), Finding("nvml", Verdict.OK, "8 GPUs answer"))
NO_ROW = "Row Remapper Error: (0x00000002eebc4100) - All reserved rows for bank are remapped"
HARMLESS = {Action.NONE, Action.RESTART_JOB}


@pytest.fixture(autouse=True)
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeBindings:
    bindings = FakeBindings()
    monkeypatch.setitem(sys.modules, "pynvml", bindings)
    return bindings


def xid(code: int, at: float, bus: str = "1b", text: str = "text") -> str:
    return f"[{at:12.6f}] NVRM: Xid (PCI:0000:{bus}:00): {code}, pid=1, name=python, {text}"


def weigh(
    *lines: str,
    findings: Sequence[Finding] = FINE,
    reports: Sequence[ReportedFault] = (),
    uptime_s: float = 5000.0,
    settling_s: float = 0.0,
    after_s: float | None = None,
    hardware: Hardware | None = None,
) -> Diagnosis:
    timing = Timing(NOW, uptime_s, settling_s, after_s)
    return diagnose(findings, list(read_lines(lines)), reports, timing=timing, hardware=hardware or Hardware("p5.48xlarge"))


def logs(**files: list[str]) -> tuple[list[Recommendation], list[Storm]]:
    fleet = FleetLogs(Hardware(), NOW)
    for name, lines in files.items():
        assert sum(1 for _ in fleet.read(io.BytesIO("\n".join(lines).encode()), name)) >= 0
    return fleet.conclude()


def test_one_job_crash_that_prints_xid_45_on_77_nodes_is_one_incident_and_takes_no_node_out() -> None:
    """https://github.com/NVIDIA/NVSentinel/pull/1629"""
    lines = {f"node-{node}": [f"2026-04-03T06:20:{node % 60:02d}Z node-{node} kernel: {xid(45, 9000)}"] for node in range(77)}
    found, storms = logs(**lines)
    assert [(storm.kind, len(storm.nodes)) for storm in storms] == [("application", 77)]
    assert {one.diagnosis.action for one in found} == {Action.NONE}


def test_672_lines_of_xid_45_on_three_nodes_are_no_672_faults() -> None:
    """https://github.com/NVIDIA/NVSentinel/issues/1710"""
    lines = {f"node-{node}": [xid(45, 9000 + number * 48.0) for number in range(224)] for node in range(3)}
    found, storms = logs(**lines)
    assert [one.lines for one in found] == [224] * 3
    assert {one.diagnosis.action for one in found} == {Action.NONE}
    assert len(storms) == 1


def test_a_flood_of_xid_95_with_29_different_lines_is_one_accusation_with_its_count() -> None:
    """https://github.com/NVIDIA/NVSentinel/issues/1120"""
    text = "Uncontained: LTC TAG (0x2, 0x1). RST: Yes, D-RST: No"
    (one,), _ = logs(node=[xid(95, 9000 + number / 100, f"{number % 29:02x}", text) for number in range(5000)])
    assert (one.diagnosis.fault_class, one.diagnosis.action) == ("memory_uncorrectable", Action.RESET_GPU)
    assert "5000 lines, of which 29 tell something new" in one.diagnosis.because


def test_links_that_train_after_a_known_boot_are_no_fault_so_a_reboot_never_asks_for_a_reboot() -> None:
    """https://github.com/NVIDIA/NVSentinel/issues/1701"""
    training = "[   38.178720] nvidia-nvswitch3: SXid (PCI:0000:04:00.0): 20034, Fatal, Link 44 LTSSM Fault Up"
    assert weigh(training, uptime_s=90, settling_s=120).action is Action.NONE


def test_link_faults_at_the_boot_of_most_nodes_are_one_roll_out_not_214_reboots() -> None:
    """https://github.com/NVIDIA/NVSentinel/issues/1701"""
    training = "[   38.178720] nvidia-nvswitch3: SXid (PCI:0000:04:00.0): 20034, Fatal, Link 44 LTSSM Fault Up"
    quiet = "[   12.000000] systemd[1]: started"
    found, storms = logs(**{f"node-{node}": [training if node < 214 else quiet] for node in range(288)})
    assert [(storm.kind, len(storm.nodes)) for storm in storms] == [("rollout", 214)]
    assert {one.diagnosis.action for one in found} == {Action.NONE, Action.CONTACT_SUPPORT}


@pytest.mark.parametrize(
    "alert",
    ["DCGM_FR_IMEX_UNHEALTHY", "IPAMDNotReady", "NetworkingReady is False: nodelocaldns", "GPU health watch is not running"],
)
def test_an_alert_that_does_not_apply_to_the_node_accuses_nobody_when_every_reading_is_in_order(alert: str) -> None:
    """https://github.com/NVIDIA/NVSentinel/issues/1471, https://github.com/aws/eks-node-monitoring-agent/issues/28,
    https://github.com/aws/containers-roadmap/issues/2536
    """
    diagnosis = weigh(reports=[ReportedFault("alertmanager", what=alert, seen_at=NOW - 5)])
    assert (diagnosis.fault_class, diagnosis.action, diagnosis.confidence) == ("none", Action.NONE, Confidence.HIGH)
    assert alert in " ".join(diagnosis.because)


def test_gpus_without_nvlink_have_no_link_fault(node: TestNode) -> None:
    """https://github.com/NVIDIA/NVSentinel/pull/1481"""
    node.write("sys/devices/virtual/dmi/id/product_name", "g5.48xlarge\n")
    report = node.probe()
    assert (report.verdict, report.diagnosis.fault_class) == (Verdict.OK, "none")


@pytest.mark.parametrize(
    ("rows", "fault_class", "action"),
    [((0, 0, 1, 0), "reset_needed", Action.RESET_GPU), ((0, 0, 0, 1), "memory_exhausted", Action.REPLACE_NODE)],
)
def test_pending_and_failed_row_remaps_are_not_overlooked(
    node: TestNode, nvml: FakeBindings, rows: tuple[int, int, int, int], fault_class: str, action: Action
) -> None:
    """https://github.com/NVIDIA/NVSentinel/issues/1826, https://github.com/aws/eks-node-monitoring-agent/pull/246"""
    nvml.rows[2] = rows
    diagnosis = node.probe().diagnosis
    assert (diagnosis.fault_class, diagnosis.action) == (fault_class, action)
    assert diagnosis.gpu is not None
    assert diagnosis.gpu.index == 2


def test_an_outage_of_the_monitor_is_unknown_while_it_lasts_and_forgotten_after(node: TestNode, nvml: FakeBindings) -> None:
    """https://github.com/aws/eks-node-monitoring-agent/pull/275, https://github.com/aws/containers-roadmap/issues/2555"""
    nvml.init_error = pynvml.NVML_ERROR_LIBRARY_NOT_FOUND
    during = node.probe()
    assert (during.verdict, during.diagnosis.action) == (Verdict.UNKNOWN, Action.NONE)
    nvml.init_error = 0
    assert node.probe().verdict is Verdict.OK


def test_a_job_fault_of_three_days_ago_is_history_and_its_age_is_told() -> None:
    """https://github.com/aws/eks-node-monitoring-agent/issues/215"""
    diagnosis = weigh(xid(13, 100), uptime_s=3 * DAY)
    assert diagnosis.fault_class == "none"
    assert "min ago" in " ".join(diagnosis.because)


def test_what_an_xid_means_can_be_changed_by_its_users() -> None:
    """https://github.com/aws/eks-node-monitoring-agent/issues/272"""
    own = read_overrides({"xid:43": {"action": "RESTART_JOB", "why": "our jobs hang after it"}})
    assert weigh(xid(43, 4900)).action is Action.NONE
    changed = weigh(xid(43, 4900), hardware=Hardware("p5.48xlarge", overrides=own))
    assert changed.action is Action.RESTART_JOB
    assert "our jobs hang after it" in " ".join(changed.because)


def test_a_reader_that_sees_no_gpu_at_all_does_not_reboot_a_node_whose_gpus_are_all_on_the_bus(
    node: TestNode, nvml: FakeBindings
) -> None:
    """https://github.com/aws/sagemaker-hyperpod-cli/pull/425"""
    nvml.count = 0
    report = node.probe()
    assert (report.verdict, report.diagnosis.action) == (Verdict.UNKNOWN, Action.NONE)


def test_a_row_remap_failure_is_replaced_not_rebooted() -> None:
    """https://github.com/awslabs/awsome-distributed-ai/pull/1190"""
    assert weigh(xid(64, 4900, text=NO_ROW)).action is Action.REPLACE_NODE


def test_a_network_link_that_flaps_is_told_and_takes_no_node_out() -> None:
    """https://github.com/leptonai/gpud/issues/1110"""
    flaps = [
        f"[{4000 + number * 10:12.6f}] mlx5_core 0000:ca:00.0 ibs1: Link {'down' if number % 2 else 'up'}" for number in range(20)
    ]
    assert weigh(*flaps).action is Action.NONE


def test_links_that_are_down_on_one_gpu_are_a_fault_and_links_that_no_gpu_has_are_none() -> None:
    """https://github.com/leptonai/gpud/issues/1085"""

    def linked(up: list[int]) -> NvmlState:
        links = [
            GpuReadings(number, {"nvlink_states": Reading(OK, [1] * few + [0] * (18 - few))}) for number, few in enumerate(up)
        ]
        return NvmlState("read", gpus=tuple(links))

    def down(up: list[int]) -> list[Finding]:
        return [finding for finding in judge_nvml(linked(up), NOW) if finding.check == "nvlink_down"]

    (finding,) = down([18] * 7 + [16])
    assert "GPU 7 has 16 active NVLinks" in finding.summary
    assert weigh(findings=(*FINE, finding)).fault_class == "link"
    assert down([0] * 8) == []


def test_a_gpu_off_the_bus_is_the_fault_and_the_remap_failures_after_it_are_its_consequences() -> None:
    """https://github.com/leptonai/gpud/issues/604"""
    diagnosis = weigh(xid(79, 4900), xid(64, 4901, text=NO_ROW), xid(45, 4902))
    assert (diagnosis.fault_class, diagnosis.code, diagnosis.action) == ("gpu_lost", 79, Action.REBOOT_NODE)
    assert "consequences: XID 64" in " ".join(diagnosis.because)


def test_a_difference_that_heals_itself_leaves_nothing_behind(node: TestNode, nvml: FakeBindings) -> None:
    """https://github.com/leptonai/gpud/issues/1055"""
    nvml.rows[2] = (0, 0, 1, 0)
    assert node.probe().diagnosis.fault_class == "reset_needed"
    nvml.rows.clear()
    assert node.probe().diagnosis.fault_class == "none"


@pytest.mark.parametrize("code", [13, 31, 43, 45])
def test_an_application_fault_makes_no_gpu_unhealthy_and_least_of_all_for_ever(code: int) -> None:
    """https://github.com/NVIDIA/k8s-device-plugin/issues/1014, https://github.com/NVIDIA/gpu-operator/issues/1065"""
    assert weigh(xid(code, 4990)).action in HARMLESS
    assert weigh(xid(code, 4990), uptime_s=DAY).fault_class == "none"


def test_a_slow_or_failed_all_reduce_by_itself_is_never_ok_and_never_names_a_broken_gpu() -> None:
    """https://github.com/Azure/azurehpc-health-checks/issues/142"""
    judgement = judge(
        "nccl-tests", "# nThread 1 nGpus 1 minBytes 8\nnode-1: Test NCCL failure common.cu:958 'unhandled cuda error'\n"
    )
    assert judgement.verdict is not Verdict.OK
    assert not any(culprit.startswith("GPU") for culprit in judgement.culprits)


def test_a_fault_line_that_was_dealt_with_does_not_hold_the_node_until_the_log_rotates() -> None:
    """https://github.com/Azure/azurehpc/pull/648"""
    events = list(read_lines([xid(95, 100), xid(79, 200)]))
    new, cursor = unread(events, Cursor(), "boot-1")
    assert [event.code for event in new] == [95, 79]
    assert unread(events, cursor, "boot-1")[0] == []
    assert weigh(xid(95, 100), xid(79, 200), after_s=300).fault_class == "none"


def test_a_node_that_comes_up_with_seven_of_eight_gpus_is_named_before_any_job_hangs_on_it(
    node: TestNode, nvml: FakeBindings
) -> None:
    """https://github.com/NVIDIA/aicr/issues/1858"""
    nvml.count = 7
    report = node.probe()
    assert (report.verdict, report.diagnosis.fault_class) == (Verdict.CRITICAL, "gpu_lost")
    assert "7 of 8 GPUs" in report.diagnosis.because[0]
    assert report.diagnosis.gpu is not None
    assert report.diagnosis.gpu.pci == f"0000:{BUSES[7]}:00"


@pytest.mark.parametrize("tool", ["nccl-tests", "dcgm", "gpu-burn", "nvbandwidth", "ib_write_bw"])
def test_a_measurement_that_is_missing_certifies_nothing(tool: str) -> None:
    """https://github.com/NVIDIA/cluster-readiness-engine/pull/6"""
    assert judge(tool, "").verdict is Verdict.UNKNOWN
    assert weigh(findings=()).confidence is Confidence.LOW
    (one,), _ = logs(node=[json.dumps({"nothing": "of a kernel"})])
    assert one.verdict is Verdict.UNKNOWN
