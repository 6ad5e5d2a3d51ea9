"""The faults a lab can inject: what each prints, what becomes of the machine, and what cures it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from infra.lab.driver_lines import EFFECTS, NVSWITCH_PCI, SXID_TEXTS, Effect
from infra.lab.hardware import Hardware
from infra.lab.healthy_devices import rdma_name
from infra.lab.healthy_host import driver_files

__all__ = [
    "EFFECTS",
    "Cure",
    "Effect",
    "Fault",
    "Place",
    "gpu_changes",
    "kernel_lines",
    "kills_work",
    "machine_changes",
    "rising_counters",
]


class Cure(StrEnum):
    """What ends a fault, or what the node does instead of recovering.

    REBOOT: any boot. POWER_CYCLE: stop and start only, a reboot brings it back. NEVER, COMES_BACK: it shows again after every
    boot. NO_BOOT: the next reboot is the last, the node stays away. HANG: after the next boot SSH accepts, commands hang.
    """

    REBOOT = "reboot"
    POWER_CYCLE = "power_cycle"
    NEVER = "never"
    COMES_BACK = "comes_back"
    NO_BOOT = "no_boot"
    HANG = "hang"

    def ended_by(self, *, power_cycle: bool) -> bool:
        """Whether a boot ends the fault."""
        if self is Cure.POWER_CYCLE:
            return power_cycle
        return self is Cure.REBOOT


@dataclass(frozen=True)
class Place:
    """Where a fault is: PCI address of its GPU ("dddd:bb:dd.f"), name and PCI address of the EFA device beside it."""

    pci: str = "0000:00:00.0"
    efa: str = ""
    efa_pci: str = ""

    @classmethod
    def of_gpu(cls, index: int, hardware: Hardware) -> Place:
        """The GPU with this index, and the first of the EFA devices that are next to it."""
        efa = hardware.efa[index * len(hardware.efa) // len(hardware.pci)]
        return cls(hardware.pci[index], rdma_name(efa), efa)

    def put_into(self, text: str) -> str:
        """Fill in {pci}, {slot} (the address without its function), {efa} and {efa_pci}."""
        return text.format(pci=self.pci, slot=self.pci.rsplit(".", 1)[0], efa=self.efa, efa_pci=self.efa_pci)


@dataclass(frozen=True)
class Fault:
    """A fault to inject into one node.

    `xid` or `sxid`: the code of the kernel line; `text` replaces the usual text after the code. `gpu` is the index of the GPU.
    `lost`: the GPU is gone without a line. `hang`: commands over SSH hang at once. `wrong`: wrong elements in every all-reduce.
    `slow`: share of the bandwidth that is left (0.5 is half), `slow_kind` intra (inside the node), inter (between nodes) or pair
    (only together with `peer`). `repeat`: how often the line is printed.

    `lines` are kernel lines of any kind, with {pci}, {slot}, {efa}, {efa_pci} filled in. `gpu_state` sets what the driver answers
    of the GPU (keys: `gpu_counters.py`), of all GPUs with `every_gpu`; `absent`: the driver does not count the GPU at all.
    `files` sets files under the node's root by path (same names filled in), None takes one away. `rising` makes counters there
    rise, so many a second, as if for ten minutes already. `driver` is the version of driver, kernel module and Fabric Manager.
    `kills`: whether work dies of it, where that does not follow from the code. `name` is what `Fault.named` was asked for.
    """

    xid: int | None = None
    sxid: int | None = None
    gpu: int = 3
    cure: str = Cure.REBOOT.value
    text: str = ""
    lost: bool = False
    hang: bool = False
    wrong: int = 0
    slow: float | None = None
    slow_kind: str = "inter"
    peer: str = ""
    repeat: int = 1
    name: str = ""
    lines: tuple[str, ...] = ()
    gpu_state: Mapping[str, Any] = field(default_factory=dict)
    every_gpu: bool = False
    absent: bool = False
    files: Mapping[str, str | None] = field(default_factory=dict)
    rising: Mapping[str, float] = field(default_factory=dict)
    driver: str = ""
    kills: bool | None = None

    def __post_init__(self) -> None:
        Cure(self.cure)
        object.__setattr__(self, "lines", tuple(self.lines))
        if self.slow_kind not in ("intra", "inter", "pair") or (self.slow_kind == "pair") != bool(self.peer):
            raise ValueError("slow_kind is intra, inter or pair, and pair alone names its peer")
        if self.xid is not None and self.xid not in EFFECTS and not self.text:
            known = ", ".join(str(code) for code in sorted(EFFECTS))
            raise ValueError(f"no line is known for XID {self.xid}; give its text, or one of: {known}")
        if self.sxid is not None and self.sxid not in SXID_TEXTS and not self.text:
            known = ", ".join(str(code) for code in sorted(SXID_TEXTS))
            raise ValueError(f"no line is known for SXid {self.sxid}; give its text, or one of: {known}")
        if any(name.startswith("/") or ".." in name.split("/") for name in (*self.files, *self.rising)):
            raise ValueError("files of a fault are named by their path under the node's root, such as proc/mdstat")

    @classmethod
    def named(cls, name: str, *, gpu: int | None = None, cure: str = "") -> Fault:
        """Return a fault of the table in `named_faults.py`. ValueError lists the names if there is no such one."""
        from infra.lab.named_faults import named

        return named(name, gpu=gpu, cure=cure)

    def to_json(self) -> dict[str, Any]:
        """Return the fault as plain JSON; `Fault(**data)` reads it back."""
        return asdict(self)


def kernel_lines(fault: Fault, place: Place) -> list[str]:
    """Return the lines that a kernel prints for this fault at this place, without time stamps."""
    slot = place.pci.rsplit(".", 1)[0]
    lines: list[str] = []
    if fault.xid is not None:
        effect = EFFECTS.get(fault.xid, Effect(()))
        texts = (f"{fault.xid}, {fault.text}", *effect.texts[1:]) if fault.text else effect.texts
        lines.append(f"NVRM: Xid (PCI:{slot}): {texts[0]}")
        lines += [place.put_into(line) for line in effect.plain]
        lines += [f"NVRM: Xid (PCI:{slot}): {text}" for text in texts[1:]]
    if fault.sxid is not None:
        text = fault.text or SXID_TEXTS[fault.sxid]
        head = f"nvidia-nvswitch1: SXid (PCI:{NVSWITCH_PCI}): {fault.sxid}, "
        lines += [head + text, head + "Severity 1 Engine instance 48 Sub-engine instance 00"]
    lines += [place.put_into(line) for line in fault.lines]
    return lines * fault.repeat


def gpu_changes(fault: Fault) -> dict[str, Any]:
    """Return the fields of the GPU's state that the fault sets."""
    effect = EFFECTS.get(fault.xid) if fault.xid is not None else None
    changes = {**(effect.gpu if effect else {}), **fault.gpu_state}
    return {**changes, "lost": True} if fault.lost else changes


def machine_changes(fault: Fault, place: Place) -> dict[str, str | None]:
    """Return the files that the fault sets or takes away, by path under the node's root."""
    changes: dict[str, str | None] = dict(driver_files(fault.driver)) if fault.driver else {}
    return changes | {place.put_into(name): text for name, text in fault.files.items()}


def rising_counters(fault: Fault, place: Place) -> dict[str, float]:
    """Return the counters that the fault makes rise, by path under the node's root, and how much a second."""
    return {place.put_into(name): rate for name, rate in fault.rising.items()}


def kills_work(fault: Fault) -> bool:
    """Whether processes on the GPU die of the fault."""
    if fault.kills is not None:
        return fault.kills
    if fault.lost or (fault.sxid is not None and "Non-fatal" not in (fault.text or SXID_TEXTS[fault.sxid])):
        return True
    return fault.xid is not None and (fault.xid not in EFFECTS or EFFECTS[fault.xid].kills_work)
