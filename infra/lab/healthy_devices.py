"""The devices of a healthy lab node as /sys shows them: PCI functions, EFA devices, disks, memory controllers.

File names and texts are those of Linux: drivers/pci/pci-sysfs.c and aer.c, drivers/infiniband/core/sysfs.c, the EFA driver's
counters, Documentation/admin-guide/ras.rst, drivers/nvme/host/sysfs.c (https://git.kernel.org).
"""

from __future__ import annotations

from infra.lab.hardware import Hardware

PCI_DEVICES = "sys/bus/pci/devices"
RDMA_DEVICES = "sys/class/infiniband"

CORRECTABLE = ("RxErr", "BadTLP", "BadDLLP", "Rollover", "Timeout", "NonFatalErr", "CorrIntErr", "HeaderOF")
UNCORRECTABLE = (
    *("Undefined", "DLP", "SDES", "TLP", "FCP", "CmpltTO", "CmpltAbrt", "UnxCmplt", "RxOF", "MalfTLP", "ECRC", "UnsupReq"),
    *("ACSViol", "UncorrIntErr", "BlockedTLP", "AtomicOpBlocked", "TLPBlockedErr", "PoisonTLPBlocked"),
)
_AER = {
    "correctable": (CORRECTABLE, "TOTAL_ERR_COR"),
    "nonfatal": (UNCORRECTABLE, "TOTAL_ERR_NONFATAL"),
    "fatal": (UNCORRECTABLE, "TOTAL_ERR_FATAL"),
}
_EFA_TRAFFIC = (
    *("tx_bytes", "tx_pkts", "rx_bytes", "rx_pkts", "send_bytes", "send_wrs", "recv_bytes", "recv_wrs"),
    *("rdma_read_wrs", "rdma_read_bytes", "rdma_read_resp_bytes", "rdma_write_wrs", "rdma_write_bytes", "rdma_write_recv_bytes"),
)
_EFA_ERRORS = (
    *("rx_drops", "rdma_read_wr_err", "rdma_write_wr_err", "retrans_bytes", "retrans_pkts", "retrans_timeout_events"),
    *("unresponsive_remote_events", "impaired_remote_conn_events"),
)
_LANES = {100: "4X EDR", 200: "4X HDR", 400: "4X NDR"}
_SPEED = {4: "16.0 GT/s PCIe", 5: "32.0 GT/s PCIe"}


def aer_file(kind: str, **counts: int) -> str:
    """Text of aer_dev_correctable, aer_dev_nonfatal or aer_dev_fatal with these counts; what is not named is 0."""
    names, total = _AER[kind]
    if unknown := set(counts) - set(names):
        raise ValueError(f"aer_dev_{kind} has no {', '.join(unknown)}")
    return "".join(f"{name} {counts.get(name, 0)}\n" for name in names) + f"{total} {sum(counts.values())}\n"


def rdma_name(pci: str) -> str:
    """Name of the RDMA device at a PCI address, as udev gives it: rdmap, the bus, s, the slot, in decimal."""
    return f"rdmap{int(pci[5:7], 16)}s{int(pci[8:10], 16)}"


def device_folders(hardware: Hardware) -> dict[str, dict[str, str]]:
    """Return the folders of devices that a node shares with all healthy nodes of its type: files by name, folders by path."""
    generation = 4 if "A100" in hardware.gpu_name else 5
    folders = {f"{PCI_DEVICES}/{pci}": _pci_function("0x10de", hardware.device, "0x030200", generation) for pci in hardware.pci}
    for pci in hardware.efa:
        folders[f"{PCI_DEVICES}/{pci}"] = _pci_function("0x1d0f", hardware.efa_device, "0x020000", generation)
        folders[f"{RDMA_DEVICES}/{rdma_name(pci)}"] = _efa(hardware)
    return folders


def _pci_function(vendor: str, device: str, kind: str, generation: int) -> dict[str, str]:
    speed = _SPEED[generation]
    return {
        "vendor": f"{vendor}\n",
        "device": f"{device}\n",
        "class": f"{kind}\n",
        "config": _configuration_space(vendor, device, kind),
        "current_link_speed": f"{speed}\n",
        "max_link_speed": f"{speed}\n",
        "current_link_width": "16\n",
        "max_link_width": "16\n",
        **{f"aer_dev_{name}": aer_file(name) for name in _AER},
    }


def _configuration_space(vendor: str, device: str, kind: str) -> str:
    """The first 64 bytes, each as the character of its number (Latin-1): ids, command, status, class."""
    header = int(vendor, 16).to_bytes(2, "little") + int(device, 16).to_bytes(2, "little") + b"\x06\x04\x10\x00\xa1"
    return (header + int(kind, 16).to_bytes(3, "little")).ljust(64, b"\0").decode("latin-1")


def _efa(hardware: Hardware) -> dict[str, str]:
    port = {
        "state": "4: ACTIVE\n",
        "phys_state": "5: LinkUp\n",
        "rate": f"{hardware.efa_gbits} Gb/sec ({_LANES[hardware.efa_gbits]})\n",
        "link_layer": "Unknown\n",
        "lid": "0x0\n",
        **{f"hw_counters/{name}": "0\n" for name in _EFA_ERRORS},
        **{f"hw_counters/{name}": "8192\n" for name in _EFA_TRAFFIC},
        "hw_counters/lifespan": "12\n",
    }
    return {
        "node_type": "7: unspecified\n",
        "fw_ver": "0.0.0.0\n",
        "device/vendor": "0x1d0f\n",
        "device/device": f"{hardware.efa_device}\n",
        **{f"ports/1/{name}": text for name, text in port.items()},
    }


def disk_files(disks: int, disk_gb: int) -> dict[str, str]:
    """Return the files of the root volume (nvme0) and of the instance store's disks."""
    files: dict[str, str] = {}
    for number in range(disks + 1):
        model = "Amazon EC2 NVMe Instance Storage" if number else "Amazon Elastic Block Store"
        controller, block = f"sys/class/nvme/nvme{number}", f"sys/block/nvme{number}n1"
        files |= {f"{controller}/state": "live\n", f"{controller}/model": f"{model}\n", f"{controller}/transport": "pcie\n"}
        files |= {f"{block}/device/model": f"{model}\n"}
        files |= {f"{block}/size": f"{(disk_gb if number else 500) * 10**9 // 512}\n", f"{block}/ro": "0\n"}
    return files


def memory_controller_files(controllers: int) -> dict[str, str]:
    """Return EDAC's counters, one memory controller a socket."""
    names = {"mc_name": "Skylake Socket#0 IMC#0\n", "ce_count": "0\n", "ue_count": "0\n", "ce_noinfo_count": "0\n"}
    names |= {"ue_noinfo_count": "0\n", "seconds_since_reset": "1000\n", "size_mb": "1048576\n"}
    folders = [f"sys/devices/system/edac/mc/mc{number}" for number in range(controllers)]
    return {f"{folder}/{name}": text for folder in folders for name, text in names.items()}
