"""What a diagnosis is told besides findings and kernel events: the machine, the clock, the reports of others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Optional

from checks.catalog import Machine, Override, gpu_family
from checks.model import Action, GpuRef
from checks.pci_address import canonical

EVENT_AGE_S = 900.0
"""Age up to which a fault that is an event, not a state, still counts, seconds. Hotspare default: three sweeps of 5 minutes."""


RANK = (
    Action.NONE,
    Action.RESTART_JOB,
    Action.RUN_DIAGNOSTICS,
    Action.CONTACT_SUPPORT,
    Action.RESET_GPU,
    Action.SOFT_REBOOT,
    Action.REBOOT_NODE,
    Action.POWER_CYCLE,
    Action.REPLACE_NODE,
)
"""Of two things that are wrong the one with the later action here is the diagnosis: its repair covers the other."""


@dataclass(frozen=True)
class ReportedFault:
    """What someone else says of the node: an alert, a person, the watcher. `seen_at` is Unix time, 0.0 where it is not known."""

    source: str
    xid: Optional[int] = None
    sxid: Optional[int] = None
    what: str = ""
    gpu: GpuRef = field(default_factory=GpuRef)
    seen_at: float = 0.0

    @property
    def name(self) -> str:
        """The fault in a few words."""
        if self.xid is not None:
            return f"XID {self.xid}"
        return f"SXid {self.sxid}" if self.sxid is not None else self.what or "a fault without a name"


@dataclass(frozen=True)
class Hardware:
    """The machine as the probe knows it: EC2 instance type and driver version (may be empty), and its GPUs.

    `overrides` are what the settings say of single codes.
    """

    instance_type: str = ""
    gpus: tuple[GpuRef, ...] = ()
    driver_version: str = ""
    overrides: Mapping[str, Override] = field(default_factory=dict)

    @property
    def machine(self) -> Machine:
        """What the meaning of an event may depend on."""
        return Machine(self.driver_version, gpu_family(self.instance_type), self.overrides)

    def complete(self, gpu: GpuRef) -> GpuRef:
        """Return the same GPU with every identity that the probe knows of it; unknown GPUs come back as they are."""
        return next((known for known in self.gpus if same_gpu(known, gpu)), gpu)


@dataclass(frozen=True)
class Timing:
    """When the evidence was taken and what of it counts.

    `now` is Unix time, `uptime_s` seconds since boot (None: not known). Link training lines of the first `settling_s` seconds do
    not count. Kernel events up to `after_s` seconds since boot were dealt with before. `event_age_s` limits the age of events.
    """

    now: float
    uptime_s: Optional[float] = None
    settling_s: float = 0.0
    after_s: Optional[float] = None
    event_age_s: float = EVENT_AGE_S

    @property
    def booted_at(self) -> Optional[float]:
        """Unix time of the boot, None where the uptime is not known."""
        return None if self.uptime_s is None else self.now - self.uptime_s

    def when(self, monotonic_s: Optional[float]) -> Optional[float]:
        """Unix time of a moment given in seconds since boot, None where it cannot be told."""
        return None if monotonic_s is None or self.booted_at is None else self.booted_at + monotonic_s


def same_gpu(one: GpuRef, other: GpuRef) -> bool:
    """Say whether two references share an identity that both have; serial and UUID before bus id before index."""
    for left, right in ((one.serial, other.serial), (one.uuid, other.uuid), (canonical(one.pci), canonical(other.pci))):
        if left and right:
            return left == right
    return one.index is not None and one.index == other.index


def named(gpu: GpuRef) -> bool:
    """Say whether a reference names any GPU at all."""
    return bool(gpu.serial or gpu.uuid or gpu.pci) or gpu.index is not None
