"""Named faults of the host: processor, memory, kernel, disks, and how it is set up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from checks.model import Action
from infra.lab.faults import Fault
from infra.lab.healthy_host import (
    CLOCK,
    DISKS,
    FABRIC_MANAGER_VERSION,
    NOT_SYNCHRONISED,
    SERVICES,
    arrays,
    clock_off_by,
    how_full,
    mounts,
)
from infra.lab.named_faults import NamedFault

_LINUX = "https://git.kernel.org/pub/scm/linux/kernel/git/torvalds/linux.git/tree/"
_EDAC = "https://docs.kernel.org/admin-guide/RAS/main.html"
_NVME = _LINUX + "drivers/nvme/host/"
_FABRIC_GUIDE = "https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/"
_CHRONY = "https://chrony-project.org/doc/4.4/chronyc.html"
_STATVFS = "https://man7.org/linux/man-pages/man3/statvfs.3.html"
_SYSTEMD = "https://www.freedesktop.org/software/systemd/man/latest/systemctl.html"

_MC0 = "sys/devices/system/edac/mc/mc0/"


def _line(what: str, fault_class: str, action: Action, source: str, *lines: str, **more: Any) -> NamedFault:
    return NamedFault(what, fault_class, action, source, Fault(lines=lines, **more))


def _files(what: str, fault_class: str, action: Action, source: str, files: Mapping[str, str | None], **more: Any) -> NamedFault:
    return NamedFault(what, fault_class, action, source, Fault(files=files, **more))


_PROCESSOR_AND_MEMORY = {
    "machine_check_fatal": _line(
        "the CPU had an error that could not be corrected",
        *("hardware", Action.REPLACE_NODE, _LINUX + "drivers/firmware/efi/cper.c"),
        "{{1}}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 1",
        "{{1}}[Hardware Error]: event severity: fatal",
        "{{1}}[Hardware Error]:  Error 0, type: fatal",
        kills=True,
        cure="never",
    ),
    "machine_check": _line(
        "the CPU logged a machine check",
        *("unknown_code", Action.RUN_DIAGNOSTICS, _LINUX + "arch/x86/kernel/cpu/mce/core.c"),
        "mce: [Hardware Error]: Machine check events logged",
    ),
    "memory_uncorrected": _line(
        "system memory had an error that could not be corrected",
        *("hardware", Action.REPLACE_NODE, _EDAC),
        "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (channel:1 slot:0 page:0x2c3e5a offset:0x0 grain:32)",
        kills=True,
        cure="never",
    ),
    "edac_uncorrected": _files(
        "a memory controller counts an uncorrected error",
        *("hardware", Action.REPLACE_NODE, _EDAC),
        {_MC0 + "ue_count": "1\n"},
        cure="never",
    ),
    "memory_corrected": _line(
        "system memory corrected an error",
        *("none", Action.NONE, _EDAC),
        "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (channel:1 slot:0 page:0x2c3e5a offset:0x0 grain:32)",
    ),
    "memory_corrected_storm": NamedFault(
        "a module of memory corrects errors all the time",
        *("hardware", Action.REPLACE_NODE, _EDAC),
        Fault(rising={_MC0 + "ce_count": 2.0}, cure="never"),
        by_rise=True,
    ),
    "edac_corrected": _files(
        "a memory controller counts a few corrected errors", "none", Action.NONE, _EDAC, {_MC0 + "ce_count": "3\n"}
    ),
}

_KERNEL = {
    "soft_lockup": _line(
        "a CPU makes no progress",
        *("host", Action.REBOOT_NODE, _LINUX + "kernel/watchdog.c"),
        "watchdog: BUG: soft lockup - CPU#37 stuck for 26s! [python3:48122]",
    ),
    "kernel_bug": _line(
        "the kernel met an error of its own",
        *("host", Action.REBOOT_NODE, _LINUX + "arch/x86/mm/fault.c"),
        "BUG: unable to handle page fault for address: ffffb3a0c0d3f000",
        kills=True,
    ),
    "out_of_memory": _line(
        "the job took more memory than it may",
        *("application", Action.RESTART_JOB, _LINUX + "mm/oom_kill.c"),
        "python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=job,mems_allowed=0-1,oom_memcg=/job,task_memcg=/job,"
        "task=python3,pid=48122,uid=1000",
        "Memory cgroup out of memory: Killed process 48122 (python3) total-vm:2147483648kB, anon-rss:1992294400kB, "
        "file-rss:0kB, shmem-rss:0kB, UID:1000 pgtables:3911680kB oom_score_adj:0",
        kills=True,
    ),
    "nccl_crash": _line(
        "a process crashed inside NCCL",
        *("application", Action.RESTART_JOB, _LINUX + "arch/x86/mm/fault.c"),
        "pt_main_thread[2536443]: segfault at 7f797fe00000 ip 00007f7c7ac69996 sp 00007f7c12fd7c30 error 4 in "
        "libnccl.so.2[7f7c7ac00000+d3d3000]",
        kills=True,
    ),
    "hung_task": _line(
        "a task waits long in the kernel",
        *("none", Action.NONE, _LINUX + "kernel/hung_task.c"),
        "INFO: task python3:48122 blocked for more than 120 seconds.",
    ),
    "connection_table_full": _line(
        "the kernel drops packets of new connections",
        *("configuration", Action.NONE, _LINUX + "net/netfilter/nf_conntrack_core.c"),
        "nf_conntrack: nf_conntrack: table full, dropping packet",
        files={"proc/sys/net/netfilter/nf_conntrack_count": "262144\n"},
        cure="never",
    ),
}

_STORAGE = {
    "disk_gone": _line(
        "a disk of the instance store went away",
        *("host", Action.REBOOT_NODE, _NVME + "pci.c"),
        "nvme nvme3: I/O 512 (I/O Cmd) QID 4 timeout, reset controller",
        "nvme nvme3: Disabling device after reset failure: -19",
        "md/raid0:md0: Disk failure on nvme3n1 detected, failing array.",
        files={"sys/class/nvme/nvme3/state": "dead\n"},
        kills=True,
    ),
    "disk_dead": _files(
        "an NVMe controller is not live", "host", Action.REBOOT_NODE, _NVME + "sysfs.c", {"sys/class/nvme/nvme3/state": "dead\n"}
    ),
    "read_only": _line(
        "the root file system went read-only",
        *("host", Action.REBOOT_NODE, _LINUX + "fs/ext4/super.c"),
        "EXT4-fs error (device nvme0n1p1): ext4_journal_check_start:84: comm systemd-journal: Detected aborted journal",
        "EXT4-fs (nvme0n1p1): Remounting filesystem read-only",
        files={"proc/mounts": mounts(8, root="ro")},
        kills=True,
    ),
    "read_only_mount": _files(
        "the instance store is mounted read-only",
        *("host", Action.REBOOT_NODE, _LINUX + "fs/xfs/xfs_super.c"),
        {"proc/mounts": mounts(8, scratch="ro")},
    ),
    "array_degraded": _files(
        "the array of the instance store lost a disk",
        *("host", Action.REBOOT_NODE, "https://raid.wiki.kernel.org/index.php/Mdstat"),
        {"proc/mdstat": arrays(8, failed=3)},
    ),
    "disk_full": _files(
        "the root volume is full", "configuration", Action.NONE, _STATVFS, {DISKS: how_full(root="0.3 97.0")}, cure="never"
    ),
    "shared_storage_hangs": _files(
        "a shared file system does not answer those who ask",
        *("configuration", Action.NONE, _STATVFS),
        {DISKS: how_full(shared="hung")},
        cure="never",
    ),
    "shared_storage": _line(
        "a shared file system does not answer",
        *("none", Action.NONE, _LINUX + "fs/nfs/nfs4state.c"),
        "nfs: server fs-0a1b2c.fsx.us-east-1.amazonaws.com not responding, still trying",
    ),
}

_CONFIGURATION = {
    "fabric_manager_other_version": _files(
        "Fabric Manager is of another version than the driver",
        *("configuration", Action.NONE, _FABRIC_GUIDE),
        {FABRIC_MANAGER_VERSION: "575.57.08\n"},
        cure="never",
    ),
    "fabric_manager_stopped": _files(
        "Fabric Manager does not run",
        *("configuration", Action.NONE, _SYSTEMD),
        {f"{SERVICES}/nvidia-fabricmanager.service": "loaded failed failed\n"},
    ),
    "clock_unsynchronised": _files(
        "the clock follows no source", "configuration", Action.NONE, _CHRONY, {CLOCK: NOT_SYNCHRONISED}, cure="never"
    ),
    "clock_off": _files(
        "the clock is half a second off", "configuration", Action.NONE, _CHRONY, {CLOCK: clock_off_by(0.5)}, cure="never"
    ),
    "other_driver": NamedFault(
        "the node was set up with another driver",
        *("none", Action.NONE, _FABRIC_GUIDE),
        Fault(driver="570.172.08", cure="never"),
    ),
}

HOST_FAULTS: dict[str, NamedFault] = {**_PROCESSOR_AND_MEMORY, **_KERNEL, **_STORAGE, **_CONFIGURATION}
