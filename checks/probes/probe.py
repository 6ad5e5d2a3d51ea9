"""One look at a node: kernel log, PCI bus, NVML and host, joined into one report with a diagnosis."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Callable, Optional

from checks.catalog import Override
from checks.diagnosis import Hardware, Timing, current_events, diagnose
from checks.document import GpuProcess, ProbeReport
from checks.host import Host
from checks.model import GpuRef
from checks.probes.beside_gpus import judge_beside_gpus, start_reading
from checks.probes.configuration import judge_configuration, read_configuration, with_checks
from checks.probes.host_state import judge_host, read_host
from checks.probes.kernel_events import KernelLog, judge_kernel_log, read_kernel_log
from checks.probes.leftovers import read_leftovers
from checks.probes.looks import judge_looks, read_looks, save_looks
from checks.probes.nvml import read_nvml
from checks.probes.nvml_findings import gpu_ref, judge_nvml
from checks.probes.pci import PciGpus, judge_pci, read_pci
from checks.probes.readings import NvmlState
from checks.thresholds import Thresholds


@dataclass(frozen=True)
class ProbeOptions:
    """How to look. `deep` adds every reading to the document; `settling_s` is as in `checks.diagnosis.Timing`.

    Kernel lines up to `handled_until` (Unix time by the node's clock) were dealt with before and accuse nobody. With `leftovers`
    every process is looked at, for what group runs have left.
    """

    deep: bool = False
    settling_s: float = 0.0
    handled_until: Optional[float] = None
    no_nvml: bool = False
    leftovers: bool = False
    instance_type: str = ""
    thresholds: Thresholds = Thresholds()  # noqa: RUF009 - frozen, so safely shared
    overrides: Mapping[str, Override] = field(default_factory=dict)


def probe(
    host: Host,
    options: ProbeOptions,
    read_gpus: Optional[Callable[[float], NvmlState]] = None,
    clock: Callable[[], float] = time.time,
) -> ProbeReport:
    """Look at the node once. Passive: opens NVML briefly, and not at all after an XID that says it would hang."""
    limits = options.thresholds
    at = clock()
    state = read_host(host)
    looks = read_looks(host, state.boot_id, at)
    finish_reading = start_reading(host, limits)
    log = read_kernel_log(host, limits.command_deadline_s)
    pci = read_pci(host)
    beside = finish_reading(pci.devices)
    nvml = _read_nvml(log, options, read_gpus)
    instance_type = options.instance_type or state.instance_type
    hardware = Hardware(instance_type, _gpus(nvml, pci, log), nvml.driver_version, options.overrides)
    timing = Timing(at, state.uptime_s, options.settling_s, _after_s(at, state.uptime_s, options), limits.event_age_s)
    setup = read_configuration(host, pci, nvml, instance_type, limits.command_deadline_s)
    readings = (
        *judge_host(state, limits.min_memory_percent, at, limits.max_table_percent),
        *judge_pci(pci, nvml, instance_type, int(limits.expected_gpus), at),
        *judge_nvml(nvml, at, state.uptime_s, looks, limits),
        *judge_beside_gpus(beside, nvml, instance_type, looks, limits, at, state.uptime_s),
        *judge_configuration(setup, at),
        # Last: what is judged above notes its counters into the looks.
        *judge_looks(save_looks(host, looks), at),
    )
    findings = (*readings, *judge_kernel_log(log, current_events(log.events, timing), readings, hardware, timing))
    processes = _processes(nvml, host)
    return ProbeReport(
        boot_id=state.boot_id,
        uptime_s=state.uptime_s,
        taken_at=at,
        instance_type=instance_type,
        gpus=hardware.gpus,
        gpu_processes=processes,
        findings=findings,
        events=log.events,
        diagnosis=diagnose(findings, log.events, timing=timing, hardware=hardware),
        readings=nvml.to_json() if options.deep else None,
        driver_version=nvml.driver_version,
        configuration=with_checks(setup, readings),
        leftovers=read_leftovers(host, [(one.pid, one.gpu_index) for one in processes or ()]) if options.leftovers else None,
    )


def _after_s(at: float, uptime_s: Optional[float], options: ProbeOptions) -> Optional[float]:
    """Seconds since boot up to which lines were dealt with; without an uptime nothing counts as dealt with."""
    if options.handled_until is None or uptime_s is None:
        return None
    return options.handled_until - (at - uptime_s)


def _read_nvml(log: KernelLog, options: ProbeOptions, read_gpus: Optional[Callable[[float], NvmlState]]) -> NvmlState:
    unsafe = log.nvml_is_unsafe
    if unsafe:
        return NvmlState("skipped", f"not asked, because this boot has {unsafe}, after which NVML hangs until a reboot")
    if options.no_nvml:
        return NvmlState("skipped", "not asked, as the caller wished")
    deadline_s = options.thresholds.nvml_deadline_s
    return read_gpus(deadline_s) if read_gpus else read_nvml(deadline_s, options.deep)


def _gpus(nvml: NvmlState, pci: PciGpus, log: KernelLog) -> tuple[GpuRef, ...]:
    """Return what is known of every GPU: NVML's identities first, and what only the bus lists after them."""
    read = [gpu_ref(gpu) for gpu in nvml.gpus]
    addresses = {gpu.pci for gpu in read}
    uuids = dict(log.uuids)
    return (*read, *(GpuRef(uuid=uuids.get(address, ""), pci=address) for address in pci.addresses if address not in addresses))


def _processes(nvml: NvmlState, host: Host) -> Optional[tuple[GpuProcess, ...]]:
    """Return the processes on all GPUs, None where one GPU could not say: an unread GPU is not a free one."""
    if nvml.outcome != "read":
        return None
    processes = []
    for gpu in nvml.gpus:
        reading = gpu.get("process_ids")
        if reading.state != "ok":
            return None
        processes += [GpuProcess(pid, gpu.index, host.read_text(f"/proc/{pid}/comm") or "") for pid in reading.value]
    return tuple(processes)
