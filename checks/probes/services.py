"""The services that GPUs need: Fabric Manager, persistence daemon, IMEX, as systemd tells of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Callable, Optional

from checks.catalog import nvlink_kind
from checks.host import CommandOutput, Host
from checks.model import Finding, Verdict
from checks.probes.rates import SETTLES_S

FABRIC_MANAGER = "nvidia-fabricmanager"
PERSISTENCE = "nvidia-persistenced"
IMEX = "nvidia-imex"
COMMAND = ("systemctl", "show", "-p", "Id,LoadState,ActiveState,SubState", FABRIC_MANAGER, PERSISTENCE, IMEX)
IMEX_PEERS = "/etc/nvidia-imex/nodes_config.cfg"
"""Where IMEX reads which nodes share memory over NVLink. Source: NVIDIA IMEX service guide, DU-11746-001."""
_FABRIC_MANAGER_PROCESS = "nv-fabricmanage"
"""Its name as the kernel has it, cut to 15 characters; it also runs in the driver's container, without a unit."""


@dataclass(frozen=True)
class Unit:
    """States of one unit in systemd's words."""

    load: str
    active: str
    sub: str


@dataclass(frozen=True)
class Services:
    """Units by name without ".service". `error` says why systemd, which is there, did not answer; both empty: no systemd.

    `fabric_manager_runs` is whether its process was seen where it has no unit, None where that was not looked at.
    """

    units: dict[str, Unit] = field(default_factory=dict)
    error: str = ""
    fabric_manager_runs: Optional[bool] = None
    imex_peers: bool = False


def start_services(host: Host, deadline_s: float) -> Callable[[], Services]:
    """Start asking systemd; what is returned waits for its answer."""
    shown = host.start(COMMAND, deadline_s)
    return lambda: _read(host, shown())


def _read(host: Host, output: CommandOutput) -> Services:
    if output.timed_out:
        return Services(error="systemctl did not answer in time")
    if output.missing or not output.ok:
        # A container or another init system: nothing can be said, and nothing is missing.
        return Services()
    units = parse_units(output.stdout)
    absent = units.get(FABRIC_MANAGER) is None or units[FABRIC_MANAGER].load == "not-found"
    runs = _runs(host, _FABRIC_MANAGER_PROCESS) if absent else None
    return Services(units, "" if units else "systemctl told of no unit", runs, host.exists(IMEX_PEERS))


def parse_units(text: str) -> dict[str, Unit]:
    """Parse what `systemctl show` prints: a block a unit, NAME=VALUE lines, an empty line between."""
    units = {}
    for block in text.split("\n\n"):
        pairs = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        name = pairs.get("Id", "")
        if name:
            states = (pairs.get(key, "") for key in ("LoadState", "ActiveState", "SubState"))
            units[name[: -len(".service")] if name.endswith(".service") else name] = Unit(*states)
    return units


def _runs(host: Host, name: str) -> bool:
    pids = [entry for entry in host.list("/proc") or () if entry.isdigit()]
    return any(host.read_text(f"/proc/{pid}/comm") == name for pid in pids)


def judge_services(
    services: Services, instance_type: str, persistence_on: Optional[bool], at: float, uptime_s: Optional[float]
) -> list[Finding]:
    """Services count from 5 minutes after boot. One that does not run is a matter of configuration, never of hardware.

    `persistence_on` is what NVML says of persistence mode, None where it was not asked.
    """
    if services.error:
        return [Finding("service", Verdict.UNKNOWN, f"services could not be read: {services.error}", seen_at=at)]
    if not services.units:
        return []
    if uptime_s is not None and uptime_s < SETTLES_S:
        summary = f"services are looked at from {SETTLES_S:g} s after boot"
        return [Finding("service", Verdict.OK, summary, f"up for {uptime_s:.0f} s", at)]
    kind = nvlink_kind(instance_type)
    bad = [
        *(_fabric_manager(services) if kind == "switch" else ()),
        *(_imex(services) if kind == "rack" else ()),
        *_persistence(services.units.get(PERSISTENCE), persistence_on),
    ]
    if bad:
        return [Finding("service", Verdict.WARN, summary, evidence, at) for summary, evidence in bad]
    running = [name for name, unit in services.units.items() if unit.active == "active"]
    running += [f"{FABRIC_MANAGER} (without a unit)"] * bool(services.fabric_manager_runs)
    return [
        Finding("service", Verdict.OK, "no service that the GPUs need is down", f"active: {', '.join(running) or 'none'}", at)
    ]


Complaint = tuple[str, str]
"""Summary and evidence."""


def _fabric_manager(services: Services) -> Iterable[Complaint]:
    """GPUs on NVSwitches cannot be used without it. Source: NVIDIA Fabric Manager user guide, DU-09883-001."""
    unit = services.units.get(FABRIC_MANAGER)
    if services.fabric_manager_runs is not None:
        if not services.fabric_manager_runs:
            yield "Fabric Manager is not there: no unit and no process", f"{FABRIC_MANAGER}: {_states(unit)}"
    elif unit is not None and unit.active != "active":
        yield f"Fabric Manager does not run ({unit.active}); start {FABRIC_MANAGER}", f"{FABRIC_MANAGER}: {_states(unit)}"


def _imex(services: Services) -> Iterable[Complaint]:
    """Kubernetes runs it in containers as needed; a unit that failed, or has peers and does not run, is wrong."""
    unit = services.units.get(IMEX)
    stopped = unit is not None and unit.load == "loaded" and unit.active != "active"
    if unit is not None and stopped and (unit.active == "failed" or services.imex_peers):
        yield f"IMEX does not run ({unit.active}); start {IMEX}", f"{IMEX}: {_states(unit)}"


def _persistence(unit: Optional[Unit], on: Optional[bool]) -> Iterable[Complaint]:
    """Without it the driver forgets its state between jobs; the old way of switching persistence on is as good."""
    if unit is not None and unit.load == "loaded" and (unit.active == "failed" or (unit.active == "inactive" and on is False)):
        yield f"the persistence daemon does not run ({unit.active}); start {PERSISTENCE}", f"{PERSISTENCE}: {_states(unit)}"


def _states(unit: Optional[Unit]) -> str:
    return f"{unit.load}, {unit.active}, {unit.sub}" if unit else "no unit"
