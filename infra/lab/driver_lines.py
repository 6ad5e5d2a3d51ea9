"""The lines that NVIDIA's driver prints for XIDs and SXids, and what they do to a GPU of the lab.

Line formats are those of NVIDIA's open kernel modules and of published logs; the numbers of recovery actions are NVML's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Effect:
    """What an XID looks like: texts after "Xid (PCI:...): ", other lines, the GPU's new state, whether work on it dies."""

    texts: tuple[str, ...]
    plain: tuple[str, ...] = ()
    gpu: dict[str, Any] = field(default_factory=dict)
    kills_work: bool = True


_NOBODY = "pid='<unknown>', name=<unknown>, "
_RESET = "154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"
_REBOOT = "154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"
_DRAIN = "154, GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)"
_NEW_ROW = f"63, {_NOBODY}Row Remapper: New row (0x0000000018f31d80) marked for remapping, reset gpu to activate."

EFFECTS: dict[int, Effect] = {
    13: Effect((f"13, {_NOBODY}Graphics SM Warp Exception on (GPC 7, TPC 7, SM 0): Illegal Instruction Parameter",)),
    31: Effect(
        (
            (
                f"31, {_NOBODY}Ch 00000030, intr 00000000. MMU Fault: ENGINE GRAPHICS GPC0 GPCCLIENT_T1_0 faulted @ "
                "0x10_00200000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ"
            ),
        )
    ),
    43: Effect((f"43, {_NOBODY}Ch 00000008",)),
    45: Effect((f"45, {_NOBODY}Ch 00000008",)),
    48: Effect(
        (
            (
                f"48, {_NOBODY}An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at physAddr "
                "0x18f31d80 partition 16, subpartition 3."
            ),
            _NEW_ROW,
            _DRAIN,
        ),
        gpu={"ecc_volatile_uncorrected": 1, "remap_pending": 1, "recovery_action": 4},
    ),
    63: Effect((_NEW_ROW,), gpu={"remap_pending": 1}, kills_work=False),
    64: Effect(
        (
            f"64, {_NOBODY}Row Remapper Error: (0x00000002eebc4100) - All reserved rows for bank are remapped",
            f"94, {_NOBODY}Contained: MMU (0x1). RST: No, D-RST: No",
        ),
        gpu={"ecc_volatile_uncorrected": 1, "remap_uncorrectable": 8, "remap_failure": 1},
    ),
    74: Effect(
        (f"74, {_NOBODY}NVLink: fatal error detected on link 14(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)", _RESET),
        gpu={"nvlinks_down": [14], "recovery_action": 1},
    ),
    79: Effect(
        (f"79, {_NOBODY}GPU has fallen off the bus.", _REBOOT),
        plain=("NVRM: GPU {pci}: GPU has fallen off the bus.",),
        gpu={"lost": True, "recovery_action": 2},
    ),
    92: Effect(("92, SM SBE interrupt storm detected",), gpu={"ecc_volatile_corrected": 4096}, kills_work=False),
    94: Effect((f"94, {_NOBODY}Contained: SM (0x1). RST: No, D-RST: No",), gpu={"ecc_volatile_uncorrected": 1}),
    95: Effect(
        (f"95, {_NOBODY}Uncontained: LTC TAG (0x2, 0x1). RST: Yes, D-RST: No", _RESET),
        gpu={"ecc_volatile_uncorrected": 1, "recovery_action": 1},
    ),
    109: Effect((f"109, {_NOBODY}Ch 00000008, errorString CTX SWITCH TIMEOUT, Info 0x58005",)),
    119: Effect(
        (f"119, {_NOBODY}Timeout waiting for RPC from GSP! Expected function 76 (GSP_RM_CONTROL) (0x20801348 0x410).", _REBOOT),
        plain=(
            (
                "NVRM: Rate limiting GSP RPC error prints for GPU at PCI:{slot} (printing 1 of every 30).  "
                "The GPU likely needs to be reset."
            ),
        ),
        gpu={"hung": True, "recovery_action": 2},
    ),
    120: Effect(
        (f"120, {_NOBODY}GSP task exception: load access page fault (cause:0xd) @ pc:0x140ca4a, partition:4#0, task:3", _REBOOT),
        gpu={"hung": True, "recovery_action": 2},
    ),
    140: Effect(
        (
            (
                f"140, {_NOBODY}An uncorrectable ECC error detected (possible firmware handling failure) "
                "DRAM:2, LTC:0, MMU:0, PCIE:0"
            ),
            _RESET,
        ),
        gpu={"ecc_volatile_uncorrected": 2, "recovery_action": 1},
    ),
    149: Effect(
        (
            "149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x021425c6 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)",
            _DRAIN,
        ),
        gpu={"nvlinks_down": [1], "recovery_action": 4},
    ),
    154: Effect((_REBOOT,), gpu={"recovery_action": 2}, kills_work=False),
    160: Effect(
        ("160, Marking Channel 3 in FBPA 2 along with its pair for repair. Perform node reboot to activate repair.",),
        kills_work=False,
    ),
}
"""Effect per XID. The first text carries the code itself, the rest is what the driver prints with it."""

SXID_TEXTS = {
    12028: "Non-fatal, Link 61 egress non-posted PRIV error (First)",
    20009: "Non-fatal, Link 04 RX Short Error Rate",
    20034: "Fatal, Link 48 LTSSM Fault Up",
    22013: "Non-fatal, Link 44 Minion Link DLREQ interrupt",
}
"""Text per NVSwitch code after "SXid (PCI:...): <code>, "."""

NVSWITCH_PCI = "0000:06:00.0"
