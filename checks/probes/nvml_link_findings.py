"""Judges the links of the GPUs by what NVML says: NVLinks down or with errors, the NVSwitch fabric, PCIe."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Optional

from checks.model import Action, Finding, GpuRef, Verdict
from checks.probes.nvml_fabric import FABRIC_STATES, fabric_faults, fabric_words
from checks.probes.nvml_links import NVLINK_USUAL
from checks.probes.readings import OK, GpuReadings

FABRIC_SETTLES_S = 300.0
"""A fabric that is not up so long after boot stays down. Hotspare default."""

_IDLE = 0x1
"""Clocks event reason of an idle GPU, which lowers its PCIe generation to save power. Source: nvml.h."""

NVLINK_FATAL = "recoveries_failed"


def judge_links(gpu: GpuReadings, peers: Sequence[GpuReadings], who: GpuRef, at: float, up_s: Optional[float]) -> list[Finding]:
    """Return what is wrong with one GPU's links. `peers` are all GPUs of the node, `up_s` how long the node is up, seconds."""
    found = [*_nvlink_states(gpu, peers, who, at), *_nvlink_errors(gpu, who, at), *_fabric(gpu, peers, who, at, up_s)]
    found += _c2c(gpu, who, at)
    return [*found, *_pcie_link(gpu, who, at), *_pcie_errors(gpu, who, at)]


def _active(gpu: GpuReadings) -> Optional[int]:
    states = gpu.get("nvlink_states")
    return sum(1 for state in states.value if state) if states.state == OK else None


def _nvlink_states(gpu: GpuReadings, peers: Sequence[GpuReadings], who: GpuRef, at: float) -> Iterable[Finding]:
    """A GPU with fewer links than most others of its node is the signal; bridged PCIe cards may differ in pairs."""
    active, counts = _active(gpu), [_active(peer) for peer in peers]
    known = [count for count in counts if count is not None]
    usual = max(set(known), key=known.count) if known else 0
    if active is None or active >= usual or 2 * known.count(usual) <= len(known):
        return
    down = [link for link, state in enumerate(gpu.get("nvlink_states").value) if not state]
    summary = f"GPU {gpu.index} has {active} active NVLinks, most others here have {usual}"
    evidence = f"not active: link {', '.join(str(link) for link in down)}"
    yield Finding("nvlink_down", Verdict.CRITICAL, summary, evidence, at, Action.RESET_GPU, None, who)


def _nvlink_errors(gpu: GpuReadings, who: GpuRef, at: float) -> Iterable[Finding]:
    """CRC errors that were replayed are normal up to a rate, so they alone are no finding."""
    errors = gpu.get("nvlink_errors")
    nonzero = dict(errors.value["nonzero"]) if errors.state == OK else {}
    for name in NVLINK_USUAL:
        nonzero.pop(name, None)
    if not nonzero:
        return
    evidence = "; ".join(
        f"{name.replace('_', ' ')}: " + ", ".join(f"link {link} {count}" for link, count in links.items())
        for name, links in nonzero.items()
    )
    if NVLINK_FATAL in nonzero:
        links = ", ".join(nonzero[NVLINK_FATAL])
        summary = f"GPU {gpu.index}: NVLink {links} could not be recovered; a reset can wait for the job's end"
        yield Finding("nvlink_recovery_failed", Verdict.WARN, summary, evidence[:500], at, Action.RESET_GPU, None, who)
    else:
        summary = f"GPU {gpu.index} counts errors on its NVLinks: {', '.join(name.replace('_', ' ') for name in nonzero)}"
        yield Finding("nvlink_errors", Verdict.WARN, summary, evidence[:500], at, Action.RUN_DIAGNOSTICS, None, who)


def _c2c(gpu: GpuReadings, who: GpuRef, at: float) -> Iterable[Finding]:
    """Links to a Grace CPU correct errors by themselves (XID 121): only one that is down, or interrupts, are told."""
    states, errors = gpu.get("c2c_states"), gpu.get("c2c_errors")
    down = [link for link, state in enumerate(states.value) if not state] if states.state == OK else []
    interrupts = errors.value["nonzero"].get("interrupt_errors", {}) if errors.state == OK else {}
    if down and len(down) < len(states.value):
        summary = f"GPU {gpu.index}: C2C link {', '.join(map(str, down))} to the CPU is down, others of the GPU are up"
        evidence = f"NVML field 171 by link: {states.value}"
        yield Finding("c2c_down", Verdict.WARN, summary, evidence, at, Action.RUN_DIAGNOSTICS, None, who)
    if interrupts:
        summary = f"GPU {gpu.index} counts {sum(interrupts.values())} errors with interrupts on its C2C links to the CPU"
        evidence = f"NVML field 231: {', '.join(f'link {link} {count}' for link, count in interrupts.items())}"
        yield Finding("c2c_errors", Verdict.OK, summary, evidence, at, Action.NONE, None, who)


def _fabric(gpu: GpuReadings, peers: Sequence[GpuReadings], who: GpuRef, at: float, up_s: Optional[float]) -> Iterable[Finding]:
    """A single GPU of a bigger board, as small instances have it, never joins: there is nobody to be linked to."""
    reading = gpu.get("fabric")
    fabric = reading.value if reading.state == OK else {}
    if not fabric:
        return
    state = fabric["state"]
    words = FABRIC_STATES[state] if state < len(FABRIC_STATES) else str(state)
    mask = fabric.get("mask", 0)
    evidence = f"fabric: {words}, status {fabric.get('status')}, summary {fabric.get('summary')}, mask {mask:#x}"
    evidence += f" ({told})" if (told := fabric_words(mask)) else ""
    faults = fabric_faults(mask)
    if state < 3 and ((up_s or 0.0) <= FABRIC_SETTLES_S or len(peers) == 1):
        yield Finding("fabric_joining", Verdict.OK, f"GPU {gpu.index} has not joined an NVSwitch fabric", evidence, at, gpu=who)
    elif state < 3:
        summary = f"GPU {gpu.index} has not joined the NVSwitch fabric ({words}); Fabric Manager may not run"
        yield Finding("fabric", Verdict.WARN, summary, evidence, at, Action.REBOOT_NODE, None, who)
    elif state >= 3 and (fabric.get("status") or faults or fabric.get("summary") == 2):
        summary = f"GPU {gpu.index} is unhealthy in the NVSwitch fabric: {', '.join(faults) or 'no reason given'}"
        yield Finding("fabric", Verdict.CRITICAL, summary, evidence, at, Action.REBOOT_NODE, None, who)
    elif state >= 3 and fabric.get("summary") == 3:
        summary = f"GPU {gpu.index} has limited capacity in the NVSwitch fabric"
        yield Finding("fabric", Verdict.WARN, summary, evidence, at, Action.REBOOT_NODE, None, who)


def _pcie_link(gpu: GpuReadings, who: GpuRef, at: float) -> Iterable[Finding]:
    """The width counts always, the generation only while the GPU works."""
    numbers = {name: gpu.get(f"pcie_{name}").number() for name in ("generation", "generation_max", "width", "width_max")}
    evidence = ", ".join(f"{name.replace('_', ' ')} {number}" for name, number in numbers.items() if number is not None)
    reasons = gpu.get("clocks_event_reasons").number()
    below = []
    if 0 < (numbers["width"] or 0) < (numbers["width_max"] or 0):
        below.append(f"x{numbers['width']} in place of x{numbers['width_max']}")
    if reasons is not None and not reasons & _IDLE and 0 < (numbers["generation"] or 0) < (numbers["generation_max"] or 0):
        below.append(f"generation {numbers['generation']} in place of {numbers['generation_max']}")
    if below:
        summary = f"GPU {gpu.index} has a slow PCIe link: {', '.join(below)}"
        yield Finding("pcie_link", Verdict.WARN, summary, evidence, at, Action.REBOOT_NODE, None, who)


def _pcie_errors(gpu: GpuReadings, who: GpuRef, at: float) -> Iterable[Finding]:
    """Non-fatal errors matter when they rise: see `checks.probes.nvml_rates`."""
    fatal = gpu.get("pcie_fatal").number()
    if fatal:
        summary = f"GPU {gpu.index} had {fatal} fatal PCIe errors"
        yield Finding("pcie_fatal", Verdict.WARN, summary, f"NVML field 180 = {fatal}", at, Action.REBOOT_NODE, None, who)
