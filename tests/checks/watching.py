"""Looks at what a test node has beside its GPUs, again and again, with a memory of earlier looks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from checks.diagnosis import Timing, diagnose
from checks.host import Host
from checks.model import Action, Finding, Verdict
from checks.probes.beside_gpus import judge_beside_gpus, start_reading
from checks.probes.host_state import read_host
from checks.probes.looks import read_looks, save_looks
from checks.probes.pci import read_pci
from checks.probes.readings import OK, GpuReadings, NvmlState, Reading
from checks.thresholds import Thresholds
from tests.checks.node import BUSES, TestNode

START = 1_764_463_200.0
NO_NVML = NvmlState("skipped")


@dataclass
class Watch:
    """One node and its time, which stands still between looks."""

    node: TestNode
    instance_type: str = "p5.48xlarge"
    now: float = START
    nvml: NvmlState = NO_NVML
    limits: Thresholds = field(default_factory=Thresholds)

    def look(self, after_s: float = 0.0) -> list[Finding]:
        """Let time pass, look once, and remember."""
        self.now += after_s
        host = Host(environment={**self.node.environment, "HOTSPARE_STATE": str(self.node.root / "looks.json")})
        state = read_host(host)
        looks = read_looks(host, state.boot_id, self.now)
        seen = start_reading(host, self.limits)(read_pci(host).devices)
        findings = judge_beside_gpus(seen, self.nvml, self.instance_type, looks, self.limits, self.now, state.uptime_s)
        assert save_looks(host, looks) == ""
        return findings

    def only(self, check: str, after_s: float = 0.0) -> Finding:
        """Look once, and return the one finding of a check."""
        (finding,) = [one for one in self.look(after_s) if one.check == check]
        return finding

    def ill(self, after_s: float = 0.0) -> list[Finding]:
        """Look once, and return what is not in order."""
        return [one for one in self.look(after_s) if one.verdict is not Verdict.OK]


def gpus(**values: Any) -> NvmlState:
    """Eight GPUs that all read the same."""
    read = {name: Reading(OK, value) for name, value in values.items()}
    places = [Reading(OK, f"00000000:{bus.upper()}:00.0") for bus in BUSES]
    return NvmlState("read", gpus=tuple(GpuReadings(index, {**read, "pci": pci}) for index, pci in enumerate(places)))


def fault_class(findings: Sequence[Finding]) -> tuple[str, Action]:
    """What the findings by themselves make of the node."""
    seen = diagnose(findings, timing=Timing(START, 5000.0))
    return (seen.fault_class, seen.action)


def add_efa(node: TestNode, count: int = 32, driver: bool = True) -> list[str]:
    """Give a node EFA devices; returns their RDMA names."""
    names = []
    for number in range(count):
        pci = f"sys/bus/pci/devices/0000:{number + 1:02x}:1b.0"
        for file, text in (("vendor", "0x1d0f"), ("device", "0xefa2"), ("class", "0x020000")):
            node.write(f"{pci}/{file}", f"{text}\n")
        if driver:
            names.append(f"rdmap{number + 1}s27")
            add_port(node, names[-1], "0x1d0f", "0xefa2", layer="Unknown", rate="100 Gb/sec (4X EDR)")
            for counter in ("retrans_timeout_events", "unresponsive_remote_events", "rx_drops", "retrans_pkts"):
                node.write(f"sys/class/infiniband/{names[-1]}/ports/1/hw_counters/{counter}", "0\n")
    return names


def add_port(
    node: TestNode,
    name: str,
    vendor: str = "0x15b3",
    device: str = "0x1021",
    layer: str = "InfiniBand",
    rate: str = "400 Gb/sec (4X NDR)",
) -> None:
    """Give a node an RDMA device with one port that is up."""
    folder = f"sys/class/infiniband/{name}"
    for file, text in (
        ("device/vendor", vendor),
        ("device/device", device),
        ("ports/1/link_layer", layer),
        ("ports/1/rate", rate),
    ):
        node.write(f"{folder}/{file}", f"{text}\n")
    set_port(node, name, "4: ACTIVE", "5: LinkUp")
    if vendor == "0x15b3":
        for counter in ("link_downed", "symbol_error", "port_rcv_errors", "link_error_recovery", "port_xmit_discards"):
            node.write(f"{folder}/ports/1/counters/{counter}", "0\n")
        for counter in ("rnr_nak_retry_err", "local_ack_timeout_err", "roce_slow_restart"):
            node.write(f"{folder}/ports/1/hw_counters/{counter}", "0\n")


def set_port(node: TestNode, name: str, state: str, phys_state: str) -> None:
    """Let a port be in these states."""
    node.write(f"sys/class/infiniband/{name}/ports/1/state", f"{state}\n")
    node.write(f"sys/class/infiniband/{name}/ports/1/phys_state", f"{phys_state}\n")


def count(node: TestNode, name: str, counter: str, value: object) -> None:
    """Let a counter of a port read so."""
    folder = node.root / f"sys/class/infiniband/{name}/ports/1"
    place = next(found for found in ("counters", "hw_counters") if (folder / found / counter).exists())
    node.write(f"sys/class/infiniband/{name}/ports/1/{place}/{counter}", f"{value}\n")
