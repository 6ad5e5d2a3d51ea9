"""Fault lines of the host, in the wordings of different kernels and drivers, and lines like them that are no faults."""

from __future__ import annotations

import pytest

from checks.catalog import assess
from checks.kernel_log import parse_line
from checks.model import Action


@pytest.mark.parametrize(
    ("line", "signal"),
    [
        ("pcieport 0000:00:01.0: AER: Uncorrected (Fatal) error received: 0000:1b:00.0", "pcie_fatal"),
        ("pcieport 0000:00:01.0: AER: Multiple Uncorrectable (Fatal) error message received from 0000:1b:00.0", "pcie_fatal"),
        ("nvidia 0000:1b:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer", "pcie_fatal"),
        ("pcieport 0000:00:01.0: DPC: containment event, status:0x1f01 source:0x0000", "pcie_fatal"),
        ("pcieport 0000:00:01.0: AER: Uncorrected (Non-Fatal) error received: 0000:1b:00.0", "pcie_nonfatal"),
        ("nvidia 0000:1b:00.0: PCIe Bus Error: severity=Uncorrectable (Non-Fatal), type=Transaction Layer", "pcie_nonfatal"),
        ("pcieport 0000:00:01.0: AER: Corrected error received: 0000:1b:00.0", "pcie_corrected"),
        ("pcieport 0000:00:01.0: AER: Multiple Correctable error message received from 0000:1b:00.0", "pcie_corrected"),
        ("nvidia 0000:1b:00.0: not ready 65535ms after FLR; giving up", "pcie_gone"),
        ("{1}[Hardware Error]: event severity: recoverable", "machine_check_uncorrected"),
        ("{12}[Hardware Error]: event severity: corrected", "machine_check_corrected"),
        ("mce: [Hardware Error]: CPU 12: Machine Check: 0 Bank 4: be00000000800400", "machine_check"),
        ("{1}[Hardware Error]:  event severity: fatal", "machine_check_uncorrected"),
        ("[Hardware Error]: Uncorrected, software restartable error.", "machine_check_uncorrected"),
        ("mce: Uncorrected hardware memory error in user-access at 3b116c400", "machine_check_uncorrected"),
        ("[Hardware Error]: Corrected error, no action required.", "machine_check_corrected"),
        ("[Hardware Error]: Deferred error, no action required.", "machine_check"),
        ("CE memory read error on CPU_SrcID#0_Ha#0_Chan#1_DIMM#0", "memory_corrected"),
        ("nvme nvme1: Device not ready; aborting reset, CSTS=0x1", "storage_lost"),
        ("nvme nvme1: Removing after probe failure status: -19", "storage_lost"),
        ("rcu: INFO: rcu_sched detected expedited stalls on CPUs/tasks: { 12-... }", "lockup"),
        ("BUG: workqueue lockup - pool cpus=3 node=0 flags=0x0 nice=0 stuck for 33s!", "lockup"),
        ("Kernel Panic - not syncing: Fatal exception", "kernel_bug"),
        ("BUG: kernel NULL pointer dereference, address: 0000000000000010", "kernel_bug"),
        ("BUG: Bad page state in process python3  pfn:12345", "kernel_bug"),
        ("NVRM: None of the NVIDIA devices were initialized.", "driver_start_failed"),
        ("mlx5_core 0000:0c:00.0: wait_func:1061: MAD(0x50d) timeout. Will cause a leak of a command resource", "nic_failed"),
        ("efa 0000:4f:00.0: The ready bit in device status register was never set", "nic_failed"),
        ("mlx5_core 0000:0c:00.0: mlx5_cmd_out_err:808: ACCESS_REG(0x805) op_mod(0x1) failed", "nic_register_refused"),
        ("EDAC MC1: 1 UE memory read error on CPU_SrcID#0_MC#1", "memory_uncorrected"),
        ("EDAC amd64 MC0: UE Error Addr", "memory_uncorrected"),
        ("Memory failure: 0x3f5a2c: recovery action for dirty LRU page: Recovered", "memory_uncorrected"),
        ("EDAC MC0: 12 CE memory scrubbing error on CPU_SrcID#0", "memory_corrected"),
        ("nvme nvme2: I/O 12 QID 3 timeout, reset controller", "storage_lost"),
        ("nvme nvme2: I/O tag 12 (100c) opcode 0x2 (I/O Cmd) QID 3 timeout, reset controller", "storage_lost"),
        ("nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0xffff", "storage_lost"),
        ("nvme nvme1: Disabling device after reset failure: -19", "storage_lost"),
        ("block nvme1n1: no available path - failing I/O", "storage_lost"),
        ("Buffer I/O error on dev nvme1n1, logical block 0, async page read", "storage_lost"),
        ("EXT4-fs (nvme1n1): I/O error while writing superblock", "storage_lost"),
        ("EXT4-fs (nvme1n1): Remounting filesystem read-only", "storage_lost"),
        ("XFS (nvme1n1): log I/O error -5. Shutting down filesystem", "storage_lost"),
        ("XFS (md0): Filesystem has been shut down due to log error (0x2).", "storage_lost"),
        ("md/raid0:md0: Disk failure on nvme3n1 detected", "storage_lost"),
        ("blk_update_request: I/O error, dev nvme1n1, sector 0 op 0x0:(READ)", "storage_error"),
        ("nfs: server 10.0.0.5 not responding, still trying", "shared_storage"),
        ("LustreError: 11-0: fs-OST0001-osc: operation ost_write failed", "shared_storage"),
        ("python3 invoked oom-killer: gfp_mask=0xcc0, order=0, oom_score_adj=0", "out_of_memory"),
        ("oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,task=python3,pid=77,uid=0", "out_of_memory"),
        ("Memory cgroup out of memory: Killed process 77 (python3) total-vm:1kB", "out_of_memory"),
        ("Out of memory: Kill process 77 (python3) score 900 or sacrifice child", "out_of_memory"),
        ("INFO: task kworker/u8:3:1234 blocked for more than 241 seconds.", "hung_task"),
        ("NMI watchdog: Watchdog detected hard LOCKUP on cpu 3", "lockup"),
        ("rcu: INFO: rcu_sched self-detected stall on CPU", "lockup"),
        ("rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:", "lockup"),
        ("Kernel panic - not syncing: Fatal exception", "kernel_bug"),
        ("BUG: unable to handle page fault for address: ffffdead", "kernel_bug"),
        ("Unable to handle kernel NULL pointer dereference at virtual address 0", "kernel_bug"),
        ("kernel BUG at mm/slub.c:379!", "kernel_bug"),
        ("Oops: 0002 [#1] SMP NOPTI", "kernel_bug"),
        ("general protection fault, probably for non-canonical address 0xdead: 0000 [#1] SMP", "kernel_bug"),
        ("VFS: file-max limit 3276800 reached", "limit_reached"),
        ("nf_conntrack: nf_conntrack: table full, dropping packet", "limit_reached"),
        ("python3[77]: segfault at 0 ip 00007f sp 00007f error 4 in libnccl.so.2.21.5[7f+1000]", "nccl_crash"),
        ("NVRM: GPU 0000:1b:00.0: rm_init_adapter failed, device minor number 3", "driver_start_failed"),
        ("NVRM: The NVIDIA probe routine failed for 1 device(s).", "driver_start_failed"),
        ("nvidia: probe of 0000:1b:00.0 failed with error -1", "driver_start_failed"),
        ("NVRM: WARNING: infoROM is corrupted at gpu 0000:1b:00.0", "inforom_corrupted"),
        (
            "fabric manager NVIDIA GPU driver interface version 580.1 don't match with driver version 575.2",
            "fabric_manager_mismatch",
        ),
        ("systemd[1]: nvidia-fabricmanager.service: Failed with result 'exit-code'.", "fabric_manager_failed"),
        ("mlx5_core 0000:0c:00.0: Detected insufficient power on the PCIe slot (27W).", "nic_power"),
        ("mlx5_core 0000:0c:00.0: Port module event[error]: module 0, Cable error, High Temperature", "nic_module"),
        ("mlx5_core 0000:0c:00.0: poll_health:800: device's health compromised - reached miss count", "nic_failed"),
        ("efa 0000:4f:00.0: Reset the device due to a timeout", "nic_failed"),
        ("efa 0000:4f:00.0 rdmap79s0: Failed to process command CREATE_QP (opcode 1) comp_status 0 err -62", "nic_failed"),
        ("efa 0000:4f:00.0 rdmap79s0: Failed to submit command CREATE_CQ (opcode 9) err -ENODEV", "nic_failed"),
        ("infiniband rdmap16s27: Wait for completion (polling) timeout", "nic_failed"),
        ("infiniband rdmap16s27: Failed to process command REG_MR (opcode 7) comp_status 3 err -22", "nic_command_refused"),
        ("efa 0000:4f:00.0 rdmap79s0: Failed to process command REG_MR (opcode 7) err -12", "nic_command_refused"),
        ("infiniband efa_0: Failed to submit command CREATE_AH (opcode 5) err -12", "nic_command_refused"),
        ("ena 0000:00:05.0 ens5: Keep alive watchdog timeout.", "nic_failed"),
        ("mlx5_core 0000:0c:00.0 ibs1: Link down", "nic_link_down"),
    ],
)
def test_each_wording_has_its_signal(line: str, signal: str) -> None:
    event = parse_line(f"Aug 10 15:36:05 node-7 kernel: [  100.000001] {line}")
    assert event is not None
    assert (event.kind, event.signal, event.node, event.monotonic_s) == ("host", signal, "node-7", 100.000001)
    assert event.code is None
    assert assess(event).because


@pytest.mark.parametrize(
    "line",
    [
        "pcieport 0000:00:01.0: AER: enabled with IRQ 24",
        "traps: python3[77] general protection fault ip:7f sp:7f error:0 in libc.so.6[7f+1000]",
        "python3[77]: segfault at 0 ip 00007f sp 00007f error 4 in libc.so.6[7f+1000]",
        "EDAC MC0: Giving out device to module skx_edac",
        "EXT4-fs (nvme0n1p1): mounted filesystem with ordered data mode",
        "XFS (nvme1n1): Mounting V5 Filesystem",
        "nvme nvme2: I/O 12 QID 3 timeout, completion polled",
        "efa 0000:4f:00.0: Setup irq:68 name:efa-mgmnt",
        "mlx5_core 0000:0c:00.0: firmware version: 28.39.1002",
        "NVRM: GPU 0000:91:00.0: GPU has fallen off the bus.",
        "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.95.05",
        "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping further processing",
        "nfs: server 10.0.0.5 OK",
        "task scheduler ready",
        "python3[77]: BUG: this is a program's own word",
        "efa 0000:4f:00.0: Failed to create CQ, the job asked for too many",
        "infiniband mlx5_0: Failed to process command REG_MR (opcode 7) comp_status 3 err -22",
        "infiniband rdmap16s27: Failed to register mr cmd",
        "EXT4-fs (nvme0n1p1): unmounting filesystem",
        "nvme nvme2: I/O 12 QID 3 timeout, aborting",
    ],
)
def test_lines_like_them_are_no_faults(line: str) -> None:
    assert parse_line(f"[  100.000001] {line}") is None


def test_the_device_that_reported_a_pcie_error_is_named_not_its_port() -> None:
    event = parse_line("pcieport 0000:00:01.0: AER: Uncorrected (Fatal) error received: 0000:1b:00.0")
    assert event is not None
    assert event.pci == "0000:1b:00.0"


@pytest.mark.parametrize(
    ("line", "pid", "name"),
    [
        ("Out of memory: Killed process 77 (python3) total-vm:1kB", "77", "python3"),
        ("Memory cgroup out of memory: Killed process 77 (a (b) c), UID 0, total-vm:1kB", "77", "a (b) c"),
        ("oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,task=python3,pid=77,uid=0", "77", "python3"),
        ("watchdog: BUG: soft lockup - CPU#24 stuck for 22s! [kworker/24:1:77]", "77", "kworker/24:1"),
        ("INFO: task jbd2/nvme0n1-8:77 blocked for more than 120 seconds.", "77", "jbd2/nvme0n1-8"),
        ("ray::Worker[77]: segfault at 8 ip 00007f sp 00007f error 4 in libnccl.so.2[7f+1000]", "77", "ray::Worker"),
    ],
)
def test_the_process_that_a_line_is_about_is_named(line: str, pid: str, name: str) -> None:
    event = parse_line(f"[  100.000001] {line}")
    assert event is not None
    assert (event.pid, event.name) == (pid, name)


@pytest.mark.parametrize(
    "line",
    [
        "pcieport 0000:40:01.1: AER: Uncorrected (Non-Fatal) error received: id=4101",
        "pcieport 0000:40:01.1: DPC: containment event, status:0x1f01 source:0x4101",
    ],
)
def test_the_requester_that_older_kernels_print_as_a_number_is_a_device(line: str) -> None:
    event = parse_line(line)
    assert event is not None
    assert event.pci == "0000:41:00.1"


@pytest.mark.parametrize(
    ("status", "fault_class", "action"),
    [
        ("0xf", "gpu_lost", Action.REBOOT_NODE),
        ("0x62", "reset_needed", Action.RESET_GPU),
        ("0x65", "reboot_needed", Action.REBOOT_NODE),
        ("0x40", "reboot_needed", Action.REBOOT_NODE),
    ],
)
def test_a_failed_driver_start_is_read_by_its_status(status: str, fault_class: str, action: Action) -> None:
    event = parse_line(f"NVRM: GPU 0000:1b:00.0: RmInitAdapter failed! (0x24:{status}:1589)")
    assert event is not None
    meaning = assess(event)
    assert (meaning.fault_class, meaning.action) == (fault_class, action)
