"""The probe as a whole: what one look at a node says when all is well, when something is wrong, and when it cannot be seen."""

from __future__ import annotations

import json
import sys

import pynvml
import pytest

from checks.document import EVENTS_LIMIT
from checks.model import Action, Confidence, Finding, Verdict
from checks.thresholds import BadThreshold, Thresholds, read_thresholds
from tests.checks.node import FakeBindings, TestNode

BY_NVML_STATUS = {
    "no_library": pynvml.NVML_ERROR_LIBRARY_NOT_FOUND,
    "no_driver": pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
    "error": pynvml.NVML_ERROR_UNKNOWN,
}


@pytest.fixture(autouse=True)
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeBindings:
    bindings = FakeBindings()
    monkeypatch.setitem(sys.modules, "pynvml", bindings)
    return bindings


def finding(findings: tuple[Finding, ...], check: str) -> Finding:
    return next(one for one in findings if one.check == check)


def test_a_healthy_node_is_ok_in_every_check(node: TestNode) -> None:
    report = node.probe()
    assert {one.verdict for one in report.findings} == {Verdict.OK}
    assert {one.check for one in report.findings} >= {"host", "kernel_log", "gpu_count", "nvml", "recovery_action", "row_remap"}
    assert (report.verdict, report.diagnosis.fault_class, report.diagnosis.confidence) == (Verdict.OK, "none", Confidence.HIGH)
    assert (report.instance_type, report.uptime_s) == ("p5.48xlarge", 5000.0)
    assert [(gpu.index, gpu.uuid, gpu.serial, gpu.pci) for gpu in report.gpus][3] == (3, "GPU-3", "1650003", "0000:86:00")
    assert report.gpu_processes == ()


def test_the_document_is_plain_json_with_the_agreed_keys(node: TestNode) -> None:
    node.xid(94, "Contained: SM (0x1). RST: No, D-RST: No")
    document = json.loads(json.dumps(node.probe().to_json()))
    assert document["schema"] == 1
    assert document["verdict"] == "WARN"
    assert document["diagnosis"]["fault_class"] == "memory_contained"
    assert document["diagnosis"]["action"] == "RESTART_JOB"
    assert set(document) == {
        *("schema", "verdict", "boot_id", "uptime_s", "taken_at", "instance_type", "gpus", "gpu_processes"),
        *("findings", "events", "dropped", "diagnosis", "driver_version", "configuration"),
    }
    (event,) = document["events"]
    assert (event["kind"], event["code"], event["pci"], event["monotonic_s"]) == ("xid", 94, "0000:86:00", 4990.0)
    assert "readings" in node.probe(deep=True).to_json()


def test_a_lost_gpu_in_the_log_stops_every_nvml_call(node: TestNode, nvml: FakeBindings) -> None:
    node.kernel_lines.append("[    2.8] NVRM: GPU at PCI:0000:86:00: GPU-11111111-1111-1111-1111-111111111111")
    node.xid(79, "GPU has fallen off the bus.")
    nvml.hangs_in = "nvmlInit"
    report = node.probe(thresholds=Thresholds(nvml_deadline_s=5))
    assert "XID 79" in finding(report.findings, "nvml").summary
    assert finding(report.findings, "nvml").verdict is Verdict.UNKNOWN
    assert (report.verdict, report.diagnosis.fault_class) == (Verdict.CRITICAL, "gpu_lost")
    assert report.diagnosis.gpu is not None
    assert report.diagnosis.gpu.uuid == "GPU-11111111-1111-1111-1111-111111111111"
    assert report.gpu_processes is None


def test_a_gpu_whose_configuration_space_reads_all_ones_confirms_the_loss(node: TestNode) -> None:
    node.xid(79, "GPU has fallen off the bus.")
    (node.root / "sys/bus/pci/devices/0000:86:00.0/config").write_bytes(b"\xff" * 64)
    diagnosis = node.probe().diagnosis
    assert (diagnosis.fault_class, diagnosis.confidence) == ("gpu_lost", Confidence.HIGH)


def test_a_driver_that_hangs_is_killed_at_the_deadline_and_is_a_finding(node: TestNode, nvml: FakeBindings) -> None:
    nvml.hangs_in = "nvmlDeviceGetRemappedRows"
    report = node.probe(thresholds=Thresholds(nvml_deadline_s=0.3))
    assert finding(report.findings, "nvml_hung").verdict is Verdict.CRITICAL
    assert (report.diagnosis.fault_class, report.diagnosis.action) == ("reboot_needed", Action.REBOOT_NODE)


@pytest.mark.parametrize("outcome", sorted(BY_NVML_STATUS))
def test_a_driver_that_cannot_be_asked_is_unknown_never_ok(node: TestNode, nvml: FakeBindings, outcome: str) -> None:
    nvml.init_error = BY_NVML_STATUS[outcome]
    report = node.probe()
    assert (report.verdict, finding(report.findings, "nvml").evidence) == (Verdict.UNKNOWN, outcome)
    assert (report.diagnosis.fault_class, report.diagnosis.confidence) == ("none", Confidence.LOW)
    assert report.gpu_processes is None


def test_a_node_that_cannot_start_a_process_is_unknown(node: TestNode, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("checks.probes.nvml.os.fork", refuse)
    with monkeypatch.context() as patched:
        patched.setattr("checks.host.subprocess.Popen", lambda *_, **__: refuse())
        report = node.probe()
    assert report.verdict is Verdict.UNKNOWN
    assert "no process could be started" in finding(report.findings, "nvml").summary


def test_absent_bindings_are_unknown(node: TestNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert finding(node.probe().findings, "nvml").evidence == "no_library"


def test_a_driver_that_differs_from_its_library_is_a_matter_of_configuration(node: TestNode, nvml: FakeBindings) -> None:
    nvml.init_error = pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH
    assert node.probe().diagnosis.fault_class == "configuration"


def test_a_gpu_that_nvml_calls_lost_is_found_without_any_kernel_line(node: TestNode, nvml: FakeBindings) -> None:
    nvml.errors["nvmlDeviceGetHandleByIndex", 5] = pynvml.NVML_ERROR_GPU_IS_LOST
    report = node.probe()
    assert finding(report.findings, "gpu_lost").verdict is Verdict.CRITICAL
    assert (report.diagnosis.fault_class, report.diagnosis.action) == ("gpu_lost", Action.REBOOT_NODE)
    assert finding(report.findings, "gpu_count").summary == "7 of 8 GPUs are there"
    assert report.gpu_processes is None


def test_a_gpu_missing_from_nvml_is_named_by_its_bus_id(node: TestNode, nvml: FakeBindings) -> None:
    nvml.count = 7
    count = finding(node.probe().findings, "gpu_count")
    assert (count.verdict, count.gpu and count.gpu.pci) == (Verdict.CRITICAL, "0000:ca:00")


def test_a_gpu_missing_from_the_bus_is_found_by_the_instance_type(node: TestNode, nvml: FakeBindings) -> None:
    for name in ("vendor", "class"):
        (node.root / f"sys/bus/pci/devices/0000:ca:00.0/{name}").unlink()
    nvml.count = 7
    assert node.probe().diagnosis.fault_class == "gpu_lost"
    assert node.probe(thresholds=Thresholds(expected_gpus=7)).diagnosis.fault_class == "none"


def test_a_pci_bus_that_cannot_be_listed_is_unknown(node: TestNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("checks.probes.pci.DEVICES", "/nowhere")
    assert finding(node.probe().findings, "gpu_count").verdict is Verdict.UNKNOWN


def test_no_spare_row_left_replaces_the_node(node: TestNode, nvml: FakeBindings) -> None:
    nvml.rows[2] = (0, 512, 0, 1)
    diagnosis = node.probe().diagnosis
    assert (diagnosis.fault_class, diagnosis.action) == ("memory_exhausted", Action.REPLACE_NODE)
    assert diagnosis.gpu is not None
    assert diagnosis.gpu.serial == "1650002"


def test_a_waiting_remap_resets_at_the_jobs_end(node: TestNode, nvml: FakeBindings) -> None:
    nvml.rows[2] = (0, 1, 1, 0)
    report = node.probe()
    assert (report.verdict, report.diagnosis.action, report.diagnosis.at_boundary) == (Verdict.WARN, Action.RESET_GPU, True)


def test_a_reading_that_is_not_supported_is_neither_zero_nor_a_fault(node: TestNode, nvml: FakeBindings) -> None:
    for gpu in range(8):
        nvml.errors["nvmlDeviceGetRemappedRows", gpu] = pynvml.NVML_ERROR_NOT_SUPPORTED
        nvml.errors["field", gpu] = pynvml.NVML_ERROR_NOT_SUPPORTED
    report = node.probe(deep=True)
    assert report.verdict is Verdict.OK
    assert not {"row_remap", "recovery_action"} & {one.check for one in report.findings}
    assert report.readings is not None
    assert report.readings["gpus"][0]["values"]["remapped_rows"][:2] == ["not_supported", None]


def test_a_reading_that_fails_makes_the_node_unknown(node: TestNode, nvml: FakeBindings) -> None:
    nvml.errors["nvmlDeviceGetTotalEccErrors", 6] = pynvml.NVML_ERROR_UNKNOWN
    report = node.probe()
    assert report.verdict is Verdict.UNKNOWN
    assert "ecc_uncorrected" in finding(report.findings, "unreadable").evidence


def test_the_drivers_recovery_action_is_followed(node: TestNode, nvml: FakeBindings) -> None:
    nvml.recovery[1] = 2
    assert node.probe().diagnosis.action is Action.REBOOT_NODE
    nvml.recovery[1] = 4
    drain = node.probe().diagnosis
    assert (drain.action, drain.at_boundary) == (Action.RESET_GPU, True)


def test_an_error_counter_backs_the_kernel_line_but_accuses_nobody_alone(node: TestNode, nvml: FakeBindings) -> None:
    nvml.volatile[3] = 1
    assert (node.probe().verdict, node.probe().diagnosis.fault_class) == (Verdict.OK, "none")
    node.xid(94, "Contained: SM (0x1). RST: No, D-RST: No")
    assert node.probe().diagnosis.confidence is Confidence.HIGH


def test_a_context_switch_timeout_is_a_warning_while_the_driver_asks_for_nothing(node: TestNode, nvml: FakeBindings) -> None:
    node.xid(109, "Ch 00000008, errorString CTX SWITCH TIMEOUT, Info 0x58005")
    report = node.probe()
    assert (report.verdict, report.diagnosis.action) == (Verdict.WARN, Action.RESTART_JOB)
    nvml.recovery[3] = 1
    report = node.probe()
    assert (report.verdict, report.diagnosis.action) == (Verdict.CRITICAL, Action.RESET_GPU)


def test_a_gpu_slowed_by_a_power_brake_is_a_warning(node: TestNode, nvml: FakeBindings) -> None:
    nvml.clocks[0] = 0x80 | 0x1
    assert "power brake" in finding(node.probe().findings, "clocks").summary


def test_processes_on_the_gpus_are_named(node: TestNode, nvml: FakeBindings) -> None:
    nvml.processes[0] = [4242]
    node.write("proc/4242/comm", "python3\n")
    processes = node.probe().gpu_processes
    assert processes is not None
    assert [(one.pid, one.gpu_index, one.name) for one in processes] == [(4242, 0, "python3")]


def test_a_kernel_log_kept_from_the_user_is_read_another_way(node: TestNode) -> None:
    node.command("dmesg", "echo 'dmesg: read kernel buffer failed: Operation not permitted' >&2; exit 1")
    node.command("sudo", "exit 1")
    line = "NVRM: Xid (PCI:0000:86:00): 64, Row Remapper Error: (0x2) - All reserved rows for bank are remapped"
    record = json.dumps({"MESSAGE": line, "_SOURCE_MONOTONIC_TIMESTAMP": "4990000000"})
    node.command("journalctl", f"cat <<'EOF'\n{record}\nEOF")
    report = node.probe()
    assert [(event.code, event.monotonic_s) for event in report.events] == [(64, 4990.0)]


def test_a_kernel_log_that_nobody_may_read_is_unknown_with_every_reason(node: TestNode) -> None:
    for name in ("dmesg", "sudo", "journalctl"):
        node.command(name, f"echo '{name} refuses' >&2; exit 1")
    log = finding(node.probe().findings, "kernel_log")
    assert log.verdict is Verdict.UNKNOWN
    assert all(f"{name} refuses" in log.evidence for name in ("dmesg", "sudo", "journalctl"))


def test_a_storm_of_lines_is_cut_to_the_newest_and_counted(node: TestNode) -> None:
    for number in range(1000):
        node.xid(31, "MMU Fault", at=4000 + number * 0.1)
    document = node.probe().to_json()
    assert (len(document["events"]), document["dropped"]) == (EVENTS_LIMIT, 1000 - EVENTS_LIMIT)
    assert document["events"][-1]["monotonic_s"] == pytest.approx(4099.9)


def test_a_host_without_boot_id_cannot_date_its_evidence(node: TestNode) -> None:
    (node.root / "proc/sys/kernel/random/boot_id").unlink()
    assert finding(node.probe().findings, "host").verdict is Verdict.UNKNOWN


def test_a_host_short_of_memory_is_a_warning(node: TestNode) -> None:
    node.write("proc/meminfo", "MemTotal: 2000000 kB\nMemAvailable: 1000 kB\n")
    assert finding(node.probe().findings, "memory").verdict is Verdict.WARN


def test_nvml_can_be_left_alone_and_that_is_said(node: TestNode) -> None:
    report = node.probe(no_nvml=True)
    assert report.verdict is Verdict.UNKNOWN
    assert "as the caller wished" in finding(report.findings, "nvml").summary


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("{", "no JSON"),
        ("[]", "no JSON object"),
        ('{"nvml_dealdine_s": 1}', "nvml_dealdine_s"),
        ('{"event_age_s": "1"}', "event_age_s"),
    ],
)
def test_a_wrong_threshold_is_an_error_that_names_it(text: str, named: str) -> None:
    with pytest.raises(BadThreshold, match=named):
        read_thresholds(text)


def test_thresholds_are_overridden_by_name() -> None:
    assert read_thresholds('{"event_age_s": 60}') == Thresholds(event_age_s=60)
