"""The system of a healthy lab node: mounts, memory, limits, versions of what is installed, services and clock.

Texts are those of Linux's /proc, and of the tools that the `commands` imitate. Versions go together as AWS releases them.
"""

from __future__ import annotations

from infra.lab.hardware import DRIVER_VERSION, Hardware
from infra.lab.healthy_devices import disk_files, memory_controller_files

KERNEL = "6.8.0-1035-aws"
EFA_DRIVER_VERSION = "2.17.2g"
EFA_INSTALLER_VERSION = "1.43.2"
NCCL_VERSION = "2.27.7"
OFI_PLUGIN_VERSION = "1.16.3"

SERVICES = "var/lib/lab/services"
"""One file a unit: load state, active state, sub-state, as `systemctl show` tells them."""
CLOCK = "var/lib/lab/clock"
"""What `chronyc -c tracking` prints. Fields: https://chrony-project.org/doc/4.4/chronyc.html."""
DISKS = "var/lib/lab/disks"
"""How full each file system is, as `nvidia/lab_disks.py` reads it."""
FABRIC_MANAGER_VERSION = "var/lib/lab/fabric_manager_version"
SYNCHRONISED = (
    "A9FEA97B,169.254.169.123,4,1764463200.123456789,0.000001234,-0.000000321,0.000012345,"
    "-12.345,-0.001,0.012,0.000123456,0.000098765,16.2,Normal\n"
)
NOT_SYNCHRONISED = (
    "7F7F0101,,0,0.000000000,0.000000000,0.000000000,0.000000000,-12.345,0.000,0.000,1.000000000,1.000000000,0.0,"
    "Not synchronised\n"
)


def clock_off_by(seconds: float) -> str:
    """Return the clock's tracking line with an offset of the system time from the true time, seconds."""
    fields = SYNCHRONISED.split(",")
    return ",".join([*fields[:4], f"{seconds:.9f}", *fields[5:]])


def version_file(driver: str) -> str:
    """Text of /proc/driver/nvidia/version."""
    return (
        f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {driver}  Release Build  (dvs-builder@U22-I3-AF03-20-3)  "
        "Tue Sep 23 09:46:31 UTC 2025\nGCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04.2)\n"
    )


def driver_files(driver: str) -> dict[str, str]:
    """Return the files that name the driver's version, Fabric Manager's with it."""
    return {
        "proc/driver/nvidia/version": version_file(driver),
        "sys/module/nvidia/version": f"{driver}\n",
        FABRIC_MANAGER_VERSION: f"{driver}\n",
    }


def host_files(hardware: Hardware | None) -> dict[str, str]:
    """Return the files of a healthy node's system by path; `hardware` is None for the head node, which has no GPU."""
    disks = hardware.disks if hardware else 0
    files = {
        "etc/os-release": 'NAME="Ubuntu"\nID=ubuntu\nVERSION_ID="22.04"\nPRETTY_NAME="Ubuntu 22.04.5 LTS"\n',
        "proc/sys/kernel/osrelease": f"{KERNEL}\n",
        "proc/version": f"Linux version {KERNEL} (buildd@lcy02) (gcc 12.3.0) #37-Ubuntu SMP\n",
        "proc/meminfo": "MemTotal:       2097152000 kB\nMemFree:        1998848000 kB\nMemAvailable:   2013265920 kB\n",
        "proc/loadavg": "4.20 3.90 3.75 3/2411 48122\n",
        "proc/sys/fs/file-nr": "9024\t0\t9223372036854775807\n",
        "proc/sys/net/netfilter/nf_conntrack_count": "412\n",
        "proc/sys/net/netfilter/nf_conntrack_max": "262144\n",
        "proc/sys/kernel/threads-max": "16384000\n",
        "proc/sys/kernel/pid_max": "4194304\n",
        "proc/mounts": mounts(disks),
        "proc/mdstat": arrays(disks),
        CLOCK: SYNCHRONISED,
        DISKS: how_full(),
        **_services(hardware),
        **disk_files(disks, hardware.disk_gb if hardware else 0),
        **memory_controller_files(2 if hardware else 1),
    }
    return files | (_accelerated(hardware) if hardware else {})


def _services(hardware: Hardware | None) -> dict[str, str]:
    gpu = "loaded active running" if hardware else "not-found inactive dead"
    units = {
        "chrony": "loaded active running",
        "chronyd": "loaded active running",
        "systemd-timesyncd": "not-found inactive dead",
        "nvidia-fabricmanager": gpu,
        "nvidia-persistenced": gpu,
        "nvidia-imex": "not-found inactive dead",
        "ssh": "loaded active running",
    }
    return {f"{SERVICES}/{unit}.service": f"{state}\n" for unit, state in units.items()}


def how_full(*, root: str = "62.0 97.0", scratch: str = "88.0 99.9", shared: str = "57600 41.0 93.0") -> str:
    """Per cent of bytes and inodes free on the root volume and the instance store, and size and both of the shared one."""
    return f"/ 500 {root}\n/opt/dlami/nvme 30400 {scratch}\n/fsx {shared}\n"


def mounts(disks: int, *, root: str = "rw", scratch: str = "rw") -> str:
    """Text of /proc/mounts; `root` and `scratch` say whether the root volume and the instance store are rw or ro."""
    lines = [
        "sysfs /sys sysfs rw,nosuid,nodev,noexec,relatime 0 0",
        "proc /proc proc rw,nosuid,nodev,noexec,relatime 0 0",
        f"/dev/root / ext4 {root},relatime,discard,errors=remount-ro 0 0",
        "tmpfs /dev/shm tmpfs rw,nosuid,nodev,inode64 0 0",
    ]
    if disks:
        options = f"{scratch},noatime,attr2,inode64,logbufs=8,sunit=1024,swidth=8192,noquota"
        lines.append(f"/dev/md0 /opt/dlami/nvme xfs {options} 0 0")
        lines.append("10.0.3.17@tcp:/kq3wlbev /fsx lustre rw,relatime,flock,lazystatfs 0 0")
    return "".join(line + "\n" for line in lines)


def arrays(disks: int, *, failed: int = 0) -> str:
    """Text of /proc/mdstat; `failed` is the number of a disk that failed."""
    if not disks:
        return "Personalities : \nunused devices: <none>\n"
    numbers = reversed(range(1, disks + 1))
    members = " ".join(f"nvme{number}n1[{number - 1}]{'(F)' * (number == failed)}" for number in numbers)
    state = "broken" if failed else "active"
    return (
        f"Personalities : [raid0] \nmd0 : {state} raid0 {members}\n      29687480320 blocks super 1.2 512k chunks\n\n"
        "unused devices: <none>\n"
    )


def _accelerated(hardware: Hardware) -> dict[str, str]:
    major, minor, patch = NCCL_VERSION.split(".")
    nccl = f"libnccl.so.{NCCL_VERSION}"
    return {
        **driver_files(DRIVER_VERSION),
        "sys/module/efa/version": f"{EFA_DRIVER_VERSION}\n",
        "opt/amazon/efa_installed_packages": (
            f"# EFA installer version: {EFA_INSTALLER_VERSION}\n# Debug packages installed: no\n# Packages installed:\n"
            f"efa-config_1.18_all efa-profile_1.7_all libfabric-aws-bin_2.1.0amzn5.0_amd64 libfabric1-aws_2.1.0amzn5.0_amd64 "
            f"openmpi40-aws_4.1.7-2_amd64 libnccl-ofi_{OFI_PLUGIN_VERSION}-1_amd64 efa_{EFA_DRIVER_VERSION}-1_amd64\n"
        ),
        "usr/include/nccl.h": f"#define NCCL_MAJOR {major}\n#define NCCL_MINOR {minor}\n#define NCCL_PATCH {patch}\n",
        f"usr/lib/x86_64-linux-gnu/{nccl}": "",
        "usr/local/cuda/version.json": '{\n   "cuda" : {\n      "name" : "CUDA SDK",\n      "version" : "13.0.1"\n   }\n}\n',
        "opt/dlami/nvme/.keep": "",
        "dev/shm/.keep": "",
    }
