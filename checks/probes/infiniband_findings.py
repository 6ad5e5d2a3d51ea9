"""Judges RDMA ports: links that are down or flap, counters that rise, EFA interfaces that are missing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Optional

from checks.catalog import expected_efa, gpu_family
from checks.model import Action, Finding, Verdict
from checks.probes.infiniband import Rdma, RdmaPort
from checks.probes.looks import Looks, Rise
from checks.probes.rates import HOUR_S, rose, too_fast
from checks.thresholds import Thresholds

ACTIVE = 4
DISABLED = 3
"""Numbers of the state and of the physical state. Source: Linux, drivers/infiniband/core/sysfs.c."""
_BRIDGED = re.compile(r"\bB[23]00\b")
BRIDGES = 2
"""Boards of these GPUs have two ConnectX devices that lead to their own NVSwitches. Source: NVIDIA Fabric Manager user guide."""
NEEDED = {"A100": (1, 200.0), "H100": (8, 400.0), "H200": (8, 400.0), "B200": (8, 400.0), "GB200": (8, 400.0)}
"""GPU, and so many ports that a node needs, of so many Gb/s each. Source: gpud, minimum of ports by GPU product."""
DOWN_S = 300.0
"""A link that is down for longer does not come back by itself. Hotspare default: a switch restarts in less."""
DEGRADATIONS = 3
FLAPS = 2
"""In an hour, so many make the port bad. Sources: NVSentinel (3 degradations in 1 h); Hotspare default for flaps."""
FATAL = ("link_downed", "excessive_buffer_overrun_errors", "local_link_integrity_errors", "rnr_nak_retry_err")
"""Counters that do not rise on a link in order. Source: NVSentinel, InfiniBand counter thresholds."""
EFA_STRICT = (
    *("retrans_timeout_events", "unresponsive_remote_events", "impaired_remote_conn_events"),
    *("rdma_read_wr_err", "rdma_write_wr_err", "rx_drops"),
)
"""EFA counters that are flat while all is well. Source: AWS, Monitor an Elastic Fabric Adapter; the EFA driver's hw_counters."""


def judge_infiniband(
    rdma: Rdma,
    instance_type: str,
    looks: Looks,
    limits: Thresholds,
    at: float,
    uptime_s: Optional[float],
    gpu_names: Sequence[str] = (),
) -> list[Finding]:
    """Return the findings of all ports. A node without RDMA that is not expected to have any gives none.

    `gpu_names` are the GPUs' models in NVML's words, for boards whose instance type is not known.
    """
    if rdma.error:
        return [Finding("ib_link", Verdict.UNKNOWN, "RDMA devices could not be listed", rdma.error, at)]
    findings = list(_efa_count(rdma, instance_type, int(limits.expected_efa), at))
    boards = [gpu_family(instance_type), *gpu_names]
    ports = _network_ports(rdma.ports, boards, looks)
    findings += _unread(ports, at)
    enough = _enough(ports, int(limits.expected_ib_ports), boards)
    links = list(_links(ports, looks, enough, at, uptime_s))
    findings += links
    told = {finding.check for finding in links if finding.verdict is not Verdict.OK}
    if ports and "ib_link" not in told and not any(port.unread for port in ports):
        findings.append(Finding("ib_link", Verdict.OK, f"{len(ports)} RDMA ports: none is down that should be up", seen_at=at))
    for port in ports:
        findings += _efa_errors(port, looks, limits, at) if port.kind == "efa" else _errors(port, looks, limits, at)
    return findings


def counters_of(rdma: Rdma) -> Iterable[tuple[str, float]]:
    """Name every counter that later looks compare with."""
    for port in rdma.ports:
        if not port.bridge:
            yield from ((f"ib/{port.place}/{name}", value) for name, value in port.counters.items())


def note_links(rdma: Rdma, looks: Looks) -> None:
    """Remember when each port was seen active; a reboot does not change that a cable was there."""
    for port in rdma.ports:
        if port.state == ACTIVE:
            looks.note(_active_at(port), looks.now, across_boots=True)


def _network_ports(ports: Sequence[RdmaPort], boards: Sequence[str], looks: Looks) -> list[RdmaPort]:
    """Leave out the bridges to the board's NVSwitches; where their own data is not readable, up to two that never were up."""
    kept = [port for port in ports if not port.bridge]
    if not any(_BRIDGED.search(board) for board in boards):
        return kept
    unmarked = BRIDGES - (len(ports) - len(kept))
    silent = [port for port in kept if port.kind == "infiniband" and port.state not in (ACTIVE, None)]
    never_up = [port for port in silent if _last_active(port, looks) is None][: max(0, unmarked)]
    return [port for port in kept if port not in never_up]


def _unread(ports: Sequence[RdmaPort], at: float) -> Iterable[Finding]:
    missed = [f"{port.place}: {', '.join(port.unread)}" for port in ports if port.unread]
    if missed:
        summary = f"{len(missed)} RDMA ports do not say how they are"
        yield Finding("ib_link", Verdict.UNKNOWN, summary, "; ".join(missed)[:500], at)


def _efa_count(rdma: Rdma, instance_type: str, wanted: int, at: float) -> Iterable[Finding]:
    """Fewer EFA devices than the bus or the type has is a matter of configuration: driver, launch template, not hardware."""
    expected = wanted or expected_efa(instance_type) or 0
    have = len({port.device for port in rdma.ports if port.kind == "efa"})
    evidence = f"RDMA {have}, PCI {rdma.efa_functions}, {instance_type or 'this type'} can have {expected or 'none known'}"
    if have < rdma.efa_functions:
        summary = f"{rdma.efa_functions - have} of {rdma.efa_functions} EFA devices have no driver"
        yield Finding("efa_count", Verdict.WARN, summary, evidence, at)
    elif have < expected and (have or wanted):
        summary = f"{have} of {expected} EFA interfaces are there"
        yield Finding("efa_count", Verdict.WARN, summary, evidence, at)
    elif have or expected:
        words = f"{have} EFA interfaces are there" if have else "this node was launched without EFA interfaces"
        yield Finding("efa_count", Verdict.OK, words, evidence, at)


def _enough(ports: Sequence[RdmaPort], wanted: int, boards: Sequence[str]) -> bool:
    """Say whether as many ports are up as were asked for, else as the GPUs need, else, for GPUs of which that is not known, one.

    With enough of them one that never was up is no fault: no repair gives it a cable.
    """
    family = next((name for name in NEEDED for board in boards if re.search(rf"\b{name}\b", board)), "")
    least, gbits = (wanted, 0.0) if wanted else NEEDED.get(family, (1, 0.0))
    up = [port for port in ports if port.kind != "efa" and port.state == ACTIVE and (port.rate_gbits or 0.0) >= gbits]
    return len(up) >= least


def _links(ports: Sequence[RdmaPort], looks: Looks, enough: bool, at: float, uptime_s: Optional[float]) -> Iterable[Finding]:
    active = [port for port in ports if port.state == ACTIVE]
    usual = {port.model: max(one.rate_gbits or 0.0 for one in active if one.model == port.model) for port in active}
    for port in ports:
        if port.state == ACTIVE and port.rate_gbits is not None and port.rate_gbits < usual[port.model]:
            summary = f"RDMA port {port.place} runs at {port.rate_gbits:g} Gb/s, others here at {usual[port.model]:g}"
            yield Finding("ib_link", Verdict.WARN, summary, "ports of the same model", at, Action.RUN_DIAGNOSTICS)
        elif port.state is not None and port.state != ACTIVE and port.phys_state != DISABLED:
            yield _down(port, looks, enough, at, uptime_s)


def _down(port: RdmaPort, looks: Looks, enough: bool, at: float, uptime_s: Optional[float]) -> Finding:
    """A port that was up before is a fault once it is down for long; one that never was may have no cable.

    With too few ports up that is a warning, which `expected_ib_ports` ends where the node is wired so.
    """
    down_s = _last_active(port, looks)
    evidence = f"state {port.state}, physical state {port.phys_state}; in order: 4 and 5"
    if down_s is None and port.kind != "efa":
        verdict = Verdict.OK if enough else Verdict.WARN
        summary = f"RDMA port {port.place} is not active, and was not seen active before: it may have no cable"
        return Finding("ib_link", verdict, summary, evidence, at, Action.NONE if enough else Action.RUN_DIAGNOSTICS)
    down_s = (uptime_s or 0.0) if down_s is None else down_s
    if min(down_s, uptime_s or 0.0) <= DOWN_S:
        summary = f"RDMA port {port.place} is not active"
        return Finding("ib_link", Verdict.WARN, summary, f"{evidence}; a fault after {DOWN_S:g} s", at, Action.RUN_DIAGNOSTICS)
    summary = f"RDMA port {port.place} is down for {down_s / 60:.0f} min"
    return Finding("ib_link", Verdict.CRITICAL, summary, f"{evidence}; threshold {DOWN_S:g} s", at, Action.REPLACE_NODE)


def _last_active(port: RdmaPort, looks: Looks) -> Optional[float]:
    """Seconds since the port was last seen active, in this boot or an earlier one, None where it never was."""
    past = looks.earlier.get(_active_at(port))
    return looks.now - past[-1].at if past else None


def _active_at(port: RdmaPort) -> str:
    return f"ib/{port.place}/active_at"


def _errors(port: RdmaPort, looks: Looks, limits: Thresholds, at: float) -> Iterable[Finding]:
    risen = {name: rise for name in FATAL if (rise := _rose(port, looks, name, 0.0)) is not None}
    symbols = _rose(port, looks, "symbol_error", limits.ib_symbol_errors_per_h)
    if symbols is not None:
        risen["symbol_error"] = symbols
    if risen:
        flaps = risen["link_downed"].amount if "link_downed" in risen else 0
        events = sum(rise.amount for name, rise in risen.items() if name != "symbol_error")
        bad = flaps >= FLAPS or events >= DEGRADATIONS
        summary = f"RDMA port {port.place} degrades: {', '.join(sorted(risen))}"
        action = Action.REPLACE_NODE if bad else Action.RUN_DIAGNOSTICS
        evidence = f"{_told(risen)}; none may rise, symbol_error by {limits.ib_symbol_errors_per_h:g} an hour (NVSentinel)"
        yield Finding("ib_errors", Verdict.CRITICAL, summary, evidence, at, action)
    for name, per_s in _soft(limits).items():
        fast = _fast(port, looks, name, per_s)
        if fast is not None:
            summary = f"RDMA port {port.place} counts {name} too fast: {fast.per_second:.2g} a second"
            evidence = f"{_told({name: fast})}; threshold {per_s:.2g} a second (NVSentinel)"
            yield Finding("ib_errors", Verdict.WARN, summary, evidence, at, Action.RUN_DIAGNOSTICS)
    carrier = _rose(port, looks, "carrier_changes", limits.carrier_changes_per_h)
    if carrier is not None:
        summary = f"the network interface of RDMA port {port.place} lost its carrier"
        evidence = f"{_told({'carrier_changes': carrier})}; threshold {limits.carrier_changes_per_h:g} an hour"
        yield Finding("ib_errors", Verdict.WARN, summary, evidence, at, Action.RUN_DIAGNOSTICS)


def _soft(limits: Thresholds) -> dict[str, float]:
    """Rates a second that a link may reach under load without being ill."""
    return {
        "link_error_recovery": limits.ib_link_recoveries_per_min / 60.0,
        "port_rcv_errors": limits.ib_receive_errors_per_s,
        "local_ack_timeout_err": limits.ib_ack_timeouts_per_s,
        "port_xmit_discards": limits.ib_discards_per_s,
        "roce_slow_restart": limits.roce_slow_restarts_per_s,
    }


def _efa_errors(port: RdmaPort, looks: Looks, limits: Thresholds, at: float) -> Iterable[Finding]:
    """Retransmissions follow a dead peer as they announce a dying one: a sign for a person, never a reason to replace."""
    risen = {name: rise for name in EFA_STRICT if (rise := _rose(port, looks, name, limits.efa_errors_per_10min, 600.0))}
    if risen:
        summary = f"EFA device {port.device} counts {', '.join(sorted(risen))}"
        evidence = f"{_told(risen)}; flat while all is well; a peer that died has the same effect"
        yield Finding("efa_errors", Verdict.WARN, summary, evidence, at)


def _rose(port: RdmaPort, looks: Looks, name: str, most: float, window_s: float = HOUR_S) -> Optional[Rise]:
    value = port.counters.get(name)
    return None if value is None else rose(looks, f"ib/{port.place}/{name}", value, most, window_s)


def _fast(port: RdmaPort, looks: Looks, name: str, per_s: float) -> Optional[Rise]:
    value = port.counters.get(name)
    return None if value is None else too_fast(looks, f"ib/{port.place}/{name}", value, per_s)


def _told(risen: dict[str, Rise]) -> str:
    return ", ".join(f"{name} +{rise.amount:g} in {rise.seconds / 60:.0f} min" for name, rise in sorted(risen.items()))
