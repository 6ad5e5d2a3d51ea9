"""The faults that have a name, as a table: what breaks, where it shows, what a diagnosis is to say, what ends it, who says so."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from checks.model import Action
from infra.lab.faults import Cure, Fault

ENDS = {
    Cure.REBOOT: "any boot",
    Cure.POWER_CYCLE: "a stop and start",
    Cure.NEVER: "other hardware, or `hotspare lab cure`",
    Cure.COMES_BACK: "other hardware, or `hotspare lab cure`; it shows again after every boot",
    Cure.NO_BOOT: "other hardware; the next boot never ends",
    Cure.HANG: "other hardware; after the next boot commands hang",
}


@dataclass(frozen=True)
class NamedFault:
    """One row. `fault_class` and `action` are what a diagnosis of the node comes to; `source` is public and shows the format.

    `by_rise`: it shows only to those who looked at the node before, minutes ago: what tells is how fast a counter rose.
    """

    what: str
    fault_class: str
    action: Action
    source: str
    fault: Fault
    by_rise: bool = False

    @property
    def signal(self) -> str:
        """Where it shows: kernel log, NVML, files of the node, in the rate of an all-reduce, or over SSH."""
        fault = self.fault
        shows = {
            "kernel log": fault.xid is not None or fault.sxid is not None or fault.lines,
            "NVML": fault.gpu_state or fault.lost or fault.absent or fault.driver,
            "files": fault.files or fault.rising or fault.driver,
            "all-reduce": fault.slow is not None or fault.wrong,
            "SSH": fault.hang,
        }
        return ", ".join(name for name, true in shows.items() if true)

    def to_json(self) -> dict[str, Any]:
        """Return the row as plain JSON."""
        over = self.fault_class in ("application", "memory_contained", "none") and not self.fault.files
        ends = "nothing: it is over, its lines stay until the next boot" if over else ENDS[Cure(self.fault.cure)]
        row = {"what": self.what, "fault_class": self.fault_class, "action": self.action.value, "signal": self.signal}
        return {**row, "cure": self.fault.cure, "ended_by": ends, "source": self.source}


def table() -> dict[str, NamedFault]:
    """Return every named fault."""
    from infra.lab.named_gpu_faults import GPU_FAULTS
    from infra.lab.named_host_faults import HOST_FAULTS
    from infra.lab.named_network_faults import NETWORK_FAULTS

    return {**GPU_FAULTS, **HOST_FAULTS, **NETWORK_FAULTS}


def named(name: str, *, gpu: int | None = None, cure: str = "") -> Fault:
    """Return a fault by name, on another GPU or with another cure if wanted. ValueError lists the names."""
    known = table()
    if name not in known:
        raise ValueError(f"no fault is named {name}; there are {', '.join(sorted(known))}")
    fault = known[name].fault
    return replace(fault, name=name, gpu=fault.gpu if gpu is None else gpu, cure=cure or fault.cure)
