"""How the host's own fault lines look: one rule per signal, in the print formats of Linux, NVIDIA's driver and network drivers.

What a signal means is in the catalog (`host_signals.csv`), under the same name. Several rules of one line: the first counts.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Pattern(NamedTuple):
    """How a host fault line looks. Every line that `regex` matches holds one of `words`: a quick search comes first."""

    words: tuple[str, ...]
    regex: re.Pattern[str]


def _pattern(regex: str, *words: str) -> Pattern:
    return Pattern(words, re.compile(regex))


_NVIDIA = {
    "gpu_lost_at_probe": _pattern(r"NVRM: fallen off the bus and is not responding to commands", "NVRM: fallen off"),
    "wpr2_latched": _pattern(r"NVRM: .{0,200}unexpected WPR2 already up", "NVRM: "),
    "driver_start_failed": _pattern(
        r"(?:NVRM: .{0,200}(?:RmInitAdapter failed!|rm_init_adapter failed|No NVIDIA (?:GPU found|devices probed)"
        r"|NVIDIA probe routine failed|None of the NVIDIA devices were initialized)|nvidia: probe of \S{4,20} failed with error)",
        "NVRM: ",
        ": probe of ",
    ),
    "gpu_reset_required": _pattern(r"NVRM: .{0,200}NV_ERR_RESET_REQUIRED", "NVRM: "),
    "driver_mismatch": _pattern(r"NVRM: API mismatch", "NVRM: "),
    "inforom_corrupted": _pattern(r"infoROM is corrupted at gpu", "infoROM is corrupted"),
    "fabric_manager_mismatch": _pattern(
        r"[Ff]abric [Mm]anager .{0,60}driver interface version .{1,40}don't match", "driver interface version"
    ),
    "fabric_manager_failed": _pattern(
        r"nvidia-fabricmanager\.service: (?:Main process exited|Failed with result)", "nvidia-fabricmanager.service: "
    ),
}

_PCI = {
    "pcie_fatal": _pattern(
        r"(?:AER: (?:Multiple )?Uncorrect(?:ed|able) \(Fatal\) error|PCIe Bus Error: severity=Uncorrect(?:ed|able) \(Fatal\)"
        r"|DPC: containment event)",
        "AER: ",
        "PCIe Bus Error: ",
        "DPC: containment event",
    ),
    "pcie_nonfatal": _pattern(
        r"(?:AER: (?:Multiple )?Uncorrect(?:ed|able) \(Non-Fatal\) error"
        r"|PCIe Bus Error: severity=Uncorrect(?:ed|able) \(Non-Fatal\))",
        "AER: ",
        "PCIe Bus Error: ",
    ),
    "pcie_corrected": _pattern(
        r"(?:AER: (?:Multiple )?Correct(?:ed|able) error|PCIe Bus Error: severity=Correct(?:ed|able)\b)",
        "AER: ",
        "PCIe Bus Error: ",
    ),
    "pcie_gone": _pattern(
        r"(?:not ready \d{1,7}ms after .{2,20}; giving up|nvidia \S{7,16}: .{0,40}change power state .{0,60}inaccessible)",
        "; giving up",
        "change power state",
    ),
}

_PROCESSOR_AND_MEMORY = {
    "machine_check_uncorrected": _pattern(
        r"(?:\[Hardware Error\]:\s{1,4}(?:event severity: (?:recoverable|fatal)|Uncorrected,)"
        r"|mce: Uncorrected hardware memory error)",
        "[Hardware Error]",
        "Uncorrected hardware memory",
    ),
    "machine_check_corrected": _pattern(
        r"\[Hardware Error\]:\s{1,4}(?:event severity: corrected|Corrected error,)", "[Hardware Error]"
    ),
    "machine_check": _pattern(r"(?:mce: \[Hardware Error\]|\[Hardware Error\]:\s{1,4}Deferred error,)", "[Hardware Error]"),
    "memory_uncorrected": _pattern(
        r"(?:EDAC (?:\w{1,20} )?MC\d+: (?:\d+ )?UE\b|Memory failure: 0x[0-9a-f]{1,16}: )", "EDAC ", "Memory failure: 0x"
    ),
    "memory_corrected": _pattern(
        r"(?:EDAC (?:\w{1,20} )?MC\d+: (?:\d+ )?CE\b|CE memory read error on )", "EDAC ", "CE memory read error on "
    ),
}

_KERNEL = {
    "lockup": _pattern(
        r"(?:soft lockup - CPU#\d+ stuck for|Watchdog detected hard LOCKUP"
        r"|rcu.{0,60}(?:self-detected stall| detected (?:expedited )?stalls?) on|BUG: workqueue lockup)",
        "soft lockup - CPU#",
        "hard LOCKUP",
        "detected stall",
        "expedited stall",
        "BUG: workqueue lockup",
    ),
    "kernel_bug": _pattern(
        r"(?:Kernel [Pp]anic - |(?:(?<=[\];>])|(?<=kernel:)|^)\s{0,3}BUG: |BUG: unable to handle|kernel BUG at "
        r"|Oops: .{0,40}\[#\d+\]|Unable to handle kernel "
        r"|general protection fault.{0,160}\[#\d+\])",
        "anic - ",
        "BUG: ",
        "kernel BUG at ",
        "Unable to handle kernel ",
        "Oops: ",
        "general protection fault",
    ),
    "out_of_memory": _pattern(
        r"(?:(?:Out of memory: |Memory cgroup out of memory: )?Killed process \d+ \(|invoked oom-killer"
        r"|[Oo]ut of memory: Kill process \d+ |oom-kill:constraint=)",
        "Killed process ",
        "ut of memory: Kill",
        "oom-kill",
    ),
    "hung_task": _pattern(r"task .{1,80}:\d+ .{0,40}blocked for more than \d+ seconds", "blocked for more than"),
    "limit_reached": _pattern(
        r"(?:VFS: file-max limit \d+ reached|nf_conntrack: (?:nf_conntrack: )?table full)", "file-max limit ", ": table full"
    ),
    "nccl_crash": _pattern(r"segfault at .{0,200}in libnccl\.so", "in libnccl.so"),
}

_STORAGE = {
    "storage_lost": _pattern(
        r"(?:Disabling device after reset failure|no available path - failing I/O|Buffer I/O error on dev"
        r"|I/O error while writing superblock|XFS .{0,120}(?:Shutting down filesystem|[Ff]ilesystem has been shut down)"
        r"|EXT4-fs error|BTRFS: error|Remounting filesystem read-only|md/raid.{0,40}: Disk failure|Aborting journal on device"
        r"|nvme nvme\d+: I/O .{0,120}timeout, (?:reset|disable) controller"
        r"|nvme nvme\d+: (?:controller is down; will reset|Device not ready; aborting reset|Removing after probe failure))",
        "after reset failure",
        "- failing I/O",
        "I/O error ",
        "ilesystem",
        "EXT4-fs error",
        "BTRFS: error",
        ": Disk failure",
        "Aborting journal on",
        "nvme nvme",
    ),
    "storage_error": _pattern(
        r"(?:attempt to access beyond end of device|(?:critical medium|I/O) error, dev \w+, sector)",
        "beyond end of device",
        " error, dev ",
    ),
    "shared_storage": _pattern(
        r"(?:nfs: server \S{1,253} not responding|NFS: .{0,80}Lock reclaim failed|LustreError: )",
        " not responding",
        "Lock reclaim failed",
        "LustreError: ",
    ),
}

_EFA = r"(?:\befa \S{7,16}(?: \S{1,32})?|\binfiniband (?:rdmap|efa_)\w{1,24}): "
"""How lines of the EFA driver begin, before and after it has a PCI device to name."""
_EFA_SILENT = r"-(?:19|62|110|ENODEV|ETIME|ETIMEDOUT)\b"
"""Errors of a command that the device never answered; all others are an answer. Source: Linux, efa_com.c."""

_NETWORK = {
    "nic_power": _pattern(r"Detected insufficient power on the PCIe slot \(\d{1,4}W\)", "insufficient power on the PCIe"),
    "nic_module": _pattern(
        r"[Pp]ort module event(?:\[error\])?: .{0,80}(?:High Temperature|[Cc]able (?:error|is unplugged))", "ort module event"
    ),
    "nic_failed": _pattern(
        r"(?:mlx5_core \S{7,16}: .{0,80}(?:health compromised|firmware (?:fatal|internal) error|health recovery failed"
        r"|entering error state|Will cause a leak of a command resource)"
        rf"|{_EFA}(?!Failed to (?:process|submit|create|alloc|register|destroy|map|attach|post|copy)).{{0,120}}"
        r"(?:[Ff]ailed|[Tt]imeout|[Rr]eset|never set)|\befa: probe of \S{4,20} failed"
        rf"|{_EFA}Failed to (?:process|submit) command .{{0,60}} err {_EFA_SILENT}"
        r"|\bena \S{7,16}.{0,40}: (?:Keep alive watchdog timeout|Device reset failed))",
        "mlx5_core ",
        "efa ",
        "infiniband ",
        ": probe of ",
        "Keep alive watchdog",
        "Device reset failed",
    ),
    "nic_command_refused": _pattern(rf"{_EFA}Failed to (?:process|submit) command ", "efa ", "infiniband "),
    "nic_register_refused": _pattern(r"mlx5_core .{0,60}mlx5_cmd_out_err.{0,60}ACCESS_REG.{0,60}failed", "mlx5_core "),
    "nic_link_down": _pattern(r"mlx5_core \S{7,16}.{0,60}: Link down", "mlx5_core "),
}

PATTERNS: dict[str, Pattern] = {**_NVIDIA, **_PCI, **_PROCESSOR_AND_MEMORY, **_KERNEL, **_STORAGE, **_NETWORK}
"""Signal name to the pattern of its line. Sources: kernel and driver print formats as gathered in `host_signals.csv`."""

WORDS = tuple(dict.fromkeys(word for pattern in PATTERNS.values() for word in pattern.words))
"""Every host fault line holds one of these."""

NVIDIA_WORDS = tuple(dict.fromkeys(word for pattern in _NVIDIA.values() for word in pattern.words if word.startswith("NVRM")))
"""Every host fault line that the NVIDIA driver prints holds one of these."""
