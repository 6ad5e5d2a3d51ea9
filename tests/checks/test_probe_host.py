"""Memory, limits, memory errors, services and clock: in order, ill, absent, unreadable."""

from __future__ import annotations

import pytest

from checks.model import Action, Verdict
from checks.probes.clock import parse_tracking
from checks.probes.services import parse_units
from checks.thresholds import Thresholds
from tests.checks.node import TRACKING, TestNode
from tests.checks.watching import Watch, fault_class, gpus

HOUR = 3600.0


def test_a_healthy_node_has_nothing_ill_beside_its_gpus(watch: Watch) -> None:
    seen = watch.look()
    assert {one.verdict for one in seen} == {Verdict.OK}
    assert {one.check for one in seen} == {"efa_count", "disk", "mounts", "service", "clock"}


# Errors of the system's memory


def edac(node: TestNode, file: str, count: object) -> None:
    for name in ("mc0/ce_count", "mc0/ue_count", "mc1/ce_count", "mc1/ue_count"):
        if not (node.root / f"sys/devices/system/edac/mc/{name}").exists():
            node.write(f"sys/devices/system/edac/mc/{name}", "0\n")
    node.write(f"sys/devices/system/edac/mc/{file}", f"{count}\n")


def test_a_memory_error_that_could_not_be_corrected_condemns_the_machine(watch: Watch, node: TestNode) -> None:
    edac(node, "mc1/ue_count", 1)
    seen = watch.only("edac")
    assert (seen.verdict, seen.action) == (Verdict.CRITICAL, Action.REPLACE_NODE)
    assert fault_class([seen]) == ("hardware", Action.REPLACE_NODE)


def test_corrected_memory_errors_count_by_the_day(watch: Watch, node: TestNode) -> None:
    edac(node, "mc0/ce_count", 50_000)
    assert watch.only("edac").verdict is Verdict.OK
    edac(node, "mc0/ce_count", 51_000)
    assert watch.only("edac", HOUR).verdict is Verdict.OK
    edac(node, "mc0/ce_count", 51_001)
    seen = watch.only("edac", HOUR)
    assert (seen.verdict, seen.action) == (Verdict.WARN, Action.REPLACE_NODE)
    assert "threshold 1000 a day" in seen.evidence
    assert watch.only("edac", 2 * 86400.0).verdict is Verdict.OK


def test_corrected_memory_errors_count_by_module_where_modules_are_told_apart(watch: Watch, node: TestNode) -> None:
    for module in ("dimm0", "dimm1"):
        edac(node, f"mc0/{module}/dimm_ce_count", 0)
    watch.look()
    edac(node, "mc0/ce_count", 1800)
    for module in ("dimm0", "dimm1"):
        edac(node, f"mc0/{module}/dimm_ce_count", 900)
    assert watch.only("edac", HOUR).verdict is Verdict.OK
    edac(node, "mc0/dimm1/dimm_ce_count", 1100)
    assert "mc0/dimm1" in watch.only("edac", 60).summary


def test_memory_counters_that_cannot_be_read_are_unknown_and_hidden_controllers_are_nothing(watch: Watch, node: TestNode) -> None:
    assert not [one for one in watch.look() if one.check == "edac"]
    edac(node, "mc0/ue_count", "")
    assert watch.only("edac", 60).verdict is Verdict.UNKNOWN


# Memory and limits


@pytest.mark.parametrize(
    ("file", "text", "check", "verdict"),
    [
        ("proc/meminfo", "MemTotal: 2000000 kB\nMemAvailable: 30000 kB\n", "memory", Verdict.WARN),
        ("proc/meminfo", "nonsense\n", "memory", Verdict.UNKNOWN),
        ("proc/sys/fs/file-nr", "95\t0\t100\n", "limits", Verdict.WARN),
        ("proc/sys/net/netfilter/nf_conntrack_count", "262000\n", "limits", Verdict.WARN),
    ],
)
def test_a_node_short_of_memory_or_near_a_limit_of_the_kernel_is_told(
    node: TestNode, file: str, text: str, check: str, verdict: Verdict
) -> None:
    node.write("proc/sys/net/netfilter/nf_conntrack_max", "262144\n")
    node.write(file, text)
    (seen,) = [one for one in node.probe(no_nvml=True).findings if one.check == check]
    assert seen.verdict is verdict
    assert fault_class([seen])[0] == ("configuration" if check == "limits" else "none")


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("proc/sys/fs/file-nr", "9024\t0\t9223372036854775807\n"),
        ("proc/sys/fs/file-nr", "9024\n"),
        ("proc/sys/net/netfilter/nf_conntrack_count", "412\n"),
    ],
)
def test_limits_far_away_or_not_told_are_nothing(node: TestNode, file: str, text: str) -> None:
    node.write("proc/sys/net/netfilter/nf_conntrack_max", "262144\n")
    node.write(file, text)
    assert not [one for one in node.probe(no_nvml=True).findings if one.check in ("limits", "memory")]


# Services


@pytest.mark.parametrize(
    ("instance_type", "active", "verdict"),
    [
        ("p5.48xlarge", "active", Verdict.OK),
        ("p5.48xlarge", "inactive", Verdict.WARN),
        ("p5.48xlarge", "failed", Verdict.WARN),
        ("p5.48xlarge", "activating", Verdict.WARN),
        ("p5.48xlarge", "not-found", Verdict.WARN),
        ("p6-b200.48xlarge", "inactive", Verdict.WARN),
        ("p5.4xlarge", "inactive", Verdict.OK),
        ("g5.48xlarge", "not-found", Verdict.OK),
        ("", "not-found", Verdict.OK),
    ],
)
def test_fabric_manager_must_run_where_gpus_sit_on_nvswitches(
    watch: Watch, node: TestNode, instance_type: str, active: str, verdict: Verdict
) -> None:
    watch.instance_type = instance_type
    node.units(("nvidia-fabricmanager", active), ("nvidia-persistenced", "active"))
    seen = watch.only("service")
    assert seen.verdict is verdict
    if verdict is Verdict.WARN:
        assert fault_class([seen]) == ("configuration", Action.NONE)


def test_fabric_manager_may_run_in_a_container(watch: Watch, node: TestNode) -> None:
    node.units(("nvidia-fabricmanager", "not-found"))
    node.write("proc/4711/comm", "nv-fabricmanage\n")
    assert watch.only("service").verdict is Verdict.OK


def test_services_have_five_minutes_after_a_boot(watch: Watch, node: TestNode) -> None:
    node.units(("nvidia-fabricmanager", "activating"))
    node.write("proc/uptime", "299.00 1.00\n")
    assert watch.only("service").verdict is Verdict.OK
    node.write("proc/uptime", "301.00 1.00\n")
    assert watch.only("service").verdict is Verdict.WARN


@pytest.mark.parametrize(
    ("active", "persistence", "verdict"),
    [
        ("active", 0, Verdict.OK),
        ("inactive", 1, Verdict.OK),
        ("inactive", 0, Verdict.WARN),
        ("failed", 1, Verdict.WARN),
        ("not-found", 0, Verdict.OK),
    ],
)
def test_the_persistence_daemon_counts_when_persistence_mode_is_off(
    watch: Watch, node: TestNode, active: str, persistence: int, verdict: Verdict
) -> None:
    node.units(("nvidia-fabricmanager", "active"), ("nvidia-persistenced", active))
    watch.nvml = gpus(persistence_mode=persistence)
    assert watch.only("service").verdict is verdict


@pytest.mark.parametrize(
    ("instance_type", "active", "peers", "verdict"),
    [
        ("p6e-gb200.36xlarge", "active", True, Verdict.OK),
        ("p6e-gb200.36xlarge", "inactive", True, Verdict.WARN),
        ("p6e-gb200.36xlarge", "inactive", False, Verdict.OK),
        ("p6e-gb200.36xlarge", "failed", False, Verdict.WARN),
        ("p6e-gb200.36xlarge", "not-found", True, Verdict.OK),
        ("p5.48xlarge", "failed", True, Verdict.OK),
    ],
)
def test_imex_counts_on_racks_that_are_one_nvlink_domain(
    watch: Watch, node: TestNode, instance_type: str, active: str, peers: bool, verdict: Verdict
) -> None:
    watch.instance_type = instance_type
    node.units(("nvidia-fabricmanager", "active"), ("nvidia-imex", active))
    if peers:
        node.write("etc/nvidia-imex/nodes_config.cfg", "10.0.0.1\n10.0.0.2\n")
    assert watch.only("service").verdict is verdict


@pytest.mark.parametrize(
    ("body", "verdict"),
    [
        ("echo 'System has not been booted with systemd' >&2; exit 1", None),
        ("exec sleep 60", Verdict.UNKNOWN),
        ("exit 0", Verdict.UNKNOWN),
    ],
)
def test_a_node_without_systemd_says_nothing_and_a_silent_systemd_is_unknown(
    watch: Watch, node: TestNode, body: str, verdict: Verdict | None
) -> None:
    node.command("systemctl", body)
    watch.limits = Thresholds(command_deadline_s=0.5)
    assert [one.verdict for one in watch.look() if one.check == "service"] == ([verdict] if verdict else [])


def test_units_that_are_aliases_or_cut_short_are_read() -> None:
    imex = "Id=nvidia-imex.service\nLoadState=masked\nActiveState=inactive\n\n\n"
    units = parse_units(f"Id=chrony.service\nActiveState=active\n\n{imex}")
    assert (units["chrony"].active, units["nvidia-imex"].load, units["nvidia-imex"].sub) == ("active", "masked", "")


# Clock


def tracking(offset: str = "0.000001234", leap: str = "Normal") -> str:
    fields = TRACKING.split(",")
    return ",".join([*fields[:4], offset, *fields[5:13], leap])


@pytest.mark.parametrize(
    ("line", "verdict"),
    [
        (tracking(), Verdict.OK),
        (tracking("-0.099"), Verdict.OK),
        (tracking("-0.101"), Verdict.WARN),
        (tracking("3600.5"), Verdict.WARN),
        (tracking("0.0", "Not synchronised"), Verdict.WARN),
        (tracking("0.0", "Insert second"), Verdict.OK),
    ],
)
def test_a_clock_that_is_off_or_not_synchronised_is_a_matter_of_configuration(
    watch: Watch, node: TestNode, line: str, verdict: Verdict
) -> None:
    node.write("tracking", line + "\n")
    seen = watch.only("clock")
    assert seen.verdict is verdict
    if verdict is Verdict.WARN:
        assert fault_class([seen]) == ("configuration", Action.NONE)


@pytest.mark.parametrize("line", [tracking("3600.5"), tracking("0.0", "Not synchronised")])
def test_a_clock_has_five_minutes_after_a_boot_to_find_the_time(watch: Watch, node: TestNode, line: str) -> None:
    node.write("tracking", line + "\n")
    node.write("proc/uptime", "299.00 1.00\n")
    assert watch.only("clock_settling").verdict is Verdict.OK
    assert watch.ill() == []
    node.write("proc/uptime", "301.00 1.00\n")
    assert watch.only("clock").verdict is Verdict.WARN


def test_lines_that_are_no_tracking_are_not_read() -> None:
    assert parse_tracking("") is None
    assert parse_tracking("a,b,c") is None
    assert parse_tracking(tracking("soon")) is None


@pytest.mark.parametrize(
    ("chronyc", "timedatectl", "verdict"),
    [
        (None, "echo NTPSynchronized=yes", Verdict.OK),
        (None, "echo NTPSynchronized=no", Verdict.WARN),
        (None, "echo 'Failed to connect to bus' >&2; exit 1", None),
        ("echo '506 Cannot talk to daemon'; exit 1", "echo NTPSynchronized=yes", Verdict.OK),
        ("echo '506 Cannot talk to daemon'; exit 1", "exit 1", Verdict.WARN),
        ("exec sleep 60", "exit 1", Verdict.UNKNOWN),
        ("exit 0", "exit 1", Verdict.UNKNOWN),
        (None, "exec sleep 60", Verdict.UNKNOWN),
    ],
)
def test_whoever_keeps_the_clock_is_asked_and_silence_is_unknown(
    watch: Watch, node: TestNode, chronyc: str | None, timedatectl: str, verdict: Verdict | None
) -> None:
    (node.root / "bin/chronyc").unlink()
    if chronyc is not None:
        node.command("chronyc", chronyc)
    node.command("timedatectl", timedatectl)
    watch.limits = Thresholds(command_deadline_s=0.5)
    assert [one.verdict for one in watch.look() if one.check == "clock"] == ([verdict] if verdict else [])
