"""Named faults of GPUs, NVLink and NVSwitch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from checks.model import Action
from infra.lab.faults import Fault
from infra.lab.named_faults import NamedFault

_DRIVER = "https://github.com/NVIDIA/open-gpu-kernel-modules"
_CATALOG = "https://docs.nvidia.com/deploy/xid-errors/"
_GPUD = "https://github.com/leptonai/gpud"
_NVML = "https://docs.nvidia.com/deploy/nvml-api/"
_MEMORY_GUIDE = "https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/"
_FABRIC_GUIDE = "https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/"

_LOST_AT_PROBE = (
    "NVRM: The NVIDIA GPU {pci}",
    "NVRM: (PCI ID: 10de:2330) installed in this system has",
    "NVRM: fallen off the bus and is not responding to commands.",
)
_START_FAILED = (
    "NVRM: GPU {pci}: RmInitAdapter failed! (0x62:0x65:2028)",
    "NVRM: GPU {pci}: rm_init_adapter failed, device minor number 3",
)
_API_MISMATCH = (
    "NVRM: API mismatch: the client has the version 580.105.08, but",
    "NVRM: this kernel module has the version 580.95.05.  Please",
    "NVRM: make sure that this kernel module and all NVIDIA driver",
    "NVRM: components have the same version.",
)
_UNCORRECTED = {"ecc_volatile_uncorrected": 1, "ecc_aggregate_uncorrected": 1}


def _xid(what: str, fault_class: str, action: Action, source: str, code: int, cure: str = "reboot", **more: Any) -> NamedFault:
    return NamedFault(what, fault_class, action, source, Fault(xid=code, cure=cure, **more))


def _line(what: str, fault_class: str, action: Action, source: str, *lines: str, cure: str = "reboot", **more: Any) -> NamedFault:
    return NamedFault(what, fault_class, action, source, Fault(lines=lines, cure=cure, **more))


def _nvml(
    what: str, fault_class: str, action: Action, source: str, state: Mapping[str, Any], cure: str = "reboot", **more: Any
) -> NamedFault:
    return NamedFault(what, fault_class, action, source, Fault(gpu_state=state, cure=cure, **more))


_BY_XID = {
    "fell_off_bus": _xid("a GPU stops to answer on PCIe", "gpu_lost", Action.REBOOT_NODE, _GPUD, 79),
    "gsp_timeout": _xid("the GPU's firmware answers no more", "gsp_hang", Action.REBOOT_NODE, _DRIVER + "/issues/446", 119),
    "gsp_exception": _xid("the GPU's firmware crashed", "gsp_hang", Action.REBOOT_NODE, _DRIVER + "/issues/829", 120),
    "recovery_reboot": _xid("the driver asks for a reboot", "reboot_needed", Action.REBOOT_NODE, _CATALOG, 154),
    "dram_uncorrectable": _xid("uncorrectable error in DRAM", "memory_uncorrectable", Action.RESET_GPU, _DRIVER, 48),
    "uncontained_error": _xid("memory error that reached others", "memory_uncorrectable", Action.RESET_GPU, _DRIVER, 95),
    "contained_error": _xid("memory error that hit one process", "memory_contained", Action.RESTART_JOB, _DRIVER, 94),
    "row_remap_failure": _xid(
        "no spare memory row is left",
        "memory_exhausted",
        Action.REPLACE_NODE,
        "https://github.com/imbue-ai/cluster-health",
        64,
        "never",
    ),
    "no_spare_tpc": _xid(
        "no spare compute unit is left",
        *("memory_exhausted", Action.REPLACE_NODE, _DRIVER, 157, "never"),
        text="Unable to retire TPC 7 from GPC 3 as there are no spare TPCs available.",
        kills=False,
    ),
    "nvlink_fatal": _xid("an NVLink of one GPU fails", "link", Action.RESET_GPU, _CATALOG, 74),
    "illegal_instruction": _xid("a kernel of the job is wrong", "application", Action.RESTART_JOB, _GPUD + "/pull/46", 13),
    "page_fault": _xid(
        "the job reads what is not its own",
        "application",
        Action.RESTART_JOB,
        "https://github.com/tinygrad/tinygrad/issues/6947",
        31,
    ),
    "encoder_fault": _xid(
        "a unit fails that no training needs",
        *("unknown_code", Action.CONTACT_SUPPORT, _CATALOG, 142),
        text="pid='<unknown>', name=<unknown>, Graphics Exception: NVENC3 error",
        kills=False,
    ),
    "unlisted_xid": _xid(
        "a code that no catalog has",
        *("unknown_code", Action.CONTACT_SUPPORT, _DRIVER, 999),
        text="an event of a driver newer than any catalog",
        kills=False,
    ),
    "channel_reset": _xid(
        "a channel is torn down after its process", "none", Action.NONE, "https://github.com/akash-network/support/issues/244", 43
    ),
    "killed_process": _xid(
        "a process on the GPU is killed",
        *("none", Action.NONE, "https://github.com/madMAx43v3r/chia-gigahorse/issues/301", 45),
        kills=False,
    ),
    "nvswitch_fatal": NamedFault(
        "a port of an NVSwitch fails", "fabric", Action.REBOOT_NODE, _GPUD + " (sxid README)", Fault(sxid=20034, cure="reboot")
    ),
    "nvswitch_route_error": NamedFault(
        "the job sends where no route is",
        *("application", Action.RESTART_JOB, "https://github.com/imbue-ai/cluster-health"),
        Fault(sxid=12028, kills=True),
    ),
    "nvswitch_notice": NamedFault(
        "an NVSwitch prints a notice", "none", Action.NONE, "https://github.com/NVIDIA/nvtrust/issues/124", Fault(sxid=22013)
    ),
}

_BY_LINE = {
    "lost_at_probe": _line(
        "a GPU was gone when the driver started",
        *("gpu_lost", Action.REBOOT_NODE, "https://github.com/NVIDIA/NVSentinel/issues/155", *_LOST_AT_PROBE),
        absent=True,
        kills=True,
        cure="power_cycle",
    ),
    "start_failed": _line(
        "the driver cannot start a GPU",
        *("reboot_needed", Action.REBOOT_NODE, _DRIVER, *_START_FAILED),
        absent=True,
        kills=True,
    ),
    "wpr2_latched": _line(
        "a GPU's protected memory stays locked",
        *("gpu_lost", Action.POWER_CYCLE, _DRIVER + "/issues/1353"),
        "NVRM: _kgspBootGspRm: unexpected WPR2 already up, cannot proceed with booting GSP",
        *_START_FAILED,
        absent=True,
        kills=True,
        cure="power_cycle",
    ),
    "reset_required": _line(
        "a GPU refuses work until it is reset",
        *("reset_needed", Action.RESET_GPU, _DRIVER),
        "NVRM: nvAssertOkFailedNoLog: Assertion failed: Reset required [NV_ERR_RESET_REQUIRED] (0x00000062) returned from "
        "kgspWaitForRmInitDone(pGpu, pKernelGsp) @ kernel_gsp.c:1824",
        kills=True,
    ),
    "api_mismatch": _line(
        "driver library and kernel module differ", "configuration", Action.NONE, _DRIVER, *_API_MISMATCH, cure="never"
    ),
    "inforom_corrupted": _line(
        "a board's own records are damaged",
        *("reboot_needed", Action.REBOOT_NODE, _DRIVER),
        "NVRM: WARNING: infoROM is corrupted at gpu {pci}",
    ),
}

_BY_NVML = {
    "silent_loss": NamedFault("a GPU is lost without any line", "gpu_lost", Action.REBOOT_NODE, _NVML, Fault(lost=True)),
    "not_counted": NamedFault(
        "the driver counts a GPU less than the bus", "gpu_lost", Action.REBOOT_NODE, _NVML, Fault(absent=True, cure="power_cycle")
    ),
    "dead_on_bus": NamedFault(
        "a GPU's configuration space reads as ones",
        *("gpu_lost", Action.REBOOT_NODE, "https://docs.kernel.org/PCI/pci-error-recovery.html"),
        Fault(lost=True, files={"sys/bus/pci/devices/{pci}/config": "\xff" * 64}),
    ),
    "row_remap_failure_flag": _nvml(
        "the flag of a failed row remap is set",
        *("memory_exhausted", Action.REPLACE_NODE, _MEMORY_GUIDE),
        {**_UNCORRECTED, "remap_uncorrectable": 8, "remap_failure": 1},
        "never",
    ),
    "sram_threshold": _nvml(
        "more SRAM errors than NVIDIA allows",
        *("memory_exhausted", Action.REPLACE_NODE, _NVML),
        {**_UNCORRECTED, "sram": {"threshold": 1, "aggregate_uncorrected": 12}},
        "never",
    ),
    "row_remap_pending": _nvml(
        "a row waits to be remapped",
        "reset_needed",
        Action.RESET_GPU,
        _MEMORY_GUIDE,
        {"remap_uncorrectable": 1, "remap_pending": 1},
    ),
    "repair_pending": _nvml(
        "a compute unit waits to be repaired", "reset_needed", Action.RESET_GPU, _NVML, {"repair_pending": [0, 1]}
    ),
    "sram_uncorrected": _nvml(
        "uncorrected errors in SRAM, few",
        *("reset_needed", Action.RESET_GPU, _NVML),
        {**_UNCORRECTED, "sram": {"volatile_uncorrected": 1, "aggregate_uncorrected": 1}},
    ),
    "recovery_reset_flag": _nvml("NVML asks for a reset", "reset_needed", Action.RESET_GPU, _NVML, {"recovery_action": 1}),
    "recovery_reboot_flag": _nvml("NVML asks for a reboot", "reboot_needed", Action.REBOOT_NODE, _NVML, {"recovery_action": 2}),
    "nvlinks_down": _nvml("two NVLinks of one GPU are down", "link", Action.RESET_GPU, _NVML, {"nvlinks_down": [3, 4]}),
    "nvlink_crc_storm": NamedFault(
        "an NVLink repeats packets all the time",
        *("link", Action.RESET_GPU, _NVML),
        Fault(gpu_state={"nvlink_errors": {"163": {"7": 900_000}}}),
        by_rise=True,
    ),
    "fabric_unhealthy": _nvml(
        "a GPU is unhealthy in the NVSwitch fabric",
        *("fabric", Action.REBOOT_NODE, _NVML),
        {"fabric": {"state": 3, "status": 0, "summary": 2}},
    ),
    "pcie_half_width": NamedFault(
        "a GPU's PCIe link has half its lanes",
        *("reboot_needed", Action.REBOOT_NODE, _NVML),
        Fault(
            gpu_state={"pcie": {"width": 8}}, files={"sys/bus/pci/devices/{pci}/current_link_width": "8\n"}, cure="power_cycle"
        ),
    ),
    "pcie_fatal_count": _nvml(
        "a GPU counts a fatal PCIe error", "reboot_needed", Action.REBOOT_NODE, _NVML, {"pcie": {"180": 1}}
    ),
    "ecc_off": _nvml(
        "the GPUs run without ECC",
        *("configuration", Action.REBOOT_NODE, _NVML),
        {"ecc_mode": [0, 0]},
        "never",
        every_gpu=True,
    ),
    "dram_corrected": _nvml(
        "DRAM errors were corrected",
        "none",
        Action.NONE,
        _MEMORY_GUIDE,
        {"ecc_volatile_corrected": 4, "ecc_aggregate_corrected": 9},
    ),
}

GPU_FAULTS: dict[str, NamedFault] = {**_BY_XID, **_BY_LINE, **_BY_NVML}
