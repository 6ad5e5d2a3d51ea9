"""Named faults of PCIe and the network, and those that only show from outside: nodes that are slow or away."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from checks.model import Action
from infra.lab.faults import Fault
from infra.lab.healthy_devices import aer_file
from infra.lab.named_faults import NamedFault

_LINUX = "https://git.kernel.org/pub/scm/linux/kernel/git/torvalds/linux.git/tree/"
_AER = _LINUX + "drivers/pci/pcie/aer.c"
_SYSFS = _LINUX + "Documentation/ABI/stable/sysfs-class-infiniband"
_EFA = "https://github.com/amzn/amzn-drivers/tree/master/kernel/linux/efa"

_PORT = "sys/class/infiniband/{efa}/ports/1/"
_GPU = "sys/bus/pci/devices/{pci}/"


def _line(what: str, fault_class: str, action: Action, source: str, *lines: str, **more: Any) -> NamedFault:
    return NamedFault(what, fault_class, action, source, Fault(lines=lines, **more))


def _files(what: str, fault_class: str, action: Action, source: str, files: Mapping[str, str | None], **more: Any) -> NamedFault:
    return NamedFault(what, fault_class, action, source, Fault(files=files, **more))


_NETWORK = {
    "pcie_fatal": _line(
        "a PCIe device reported a fatal error",
        *("reboot_needed", Action.REBOOT_NODE, _AER),
        "pcieport 0000:52:01.0: AER: Uncorrected (Fatal) error received: {pci}",
        "nvidia {pci}: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Receiver ID)",
        files={_GPU + "aer_dev_fatal": aer_file("fatal", MalfTLP=1)},
        kills=True,
    ),
    "pcie_nonfatal": _line(
        "a PCIe device lost a transaction",
        *("unknown_code", Action.RUN_DIAGNOSTICS, _AER),
        "nvidia {pci}: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer, (Requester ID)",
    ),
    "pcie_nonfatal_rise": NamedFault(
        "a GPU counts new PCIe errors that are not fatal",
        *("none", Action.NONE, _AER),
        Fault(files={_GPU + "aer_dev_nonfatal": aer_file("nonfatal", CmpltTO=4)}),
        by_rise=True,
    ),
    "pcie_corrected": _line(
        "a PCIe error was corrected",
        *("none", Action.NONE, _AER),
        "pcieport 0000:52:01.0: AER: Corrected error received: {pci}",
        "nvidia {pci}: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
        files={_GPU + "aer_dev_correctable": aer_file("correctable", RxErr=1)},
    ),
    "efa_failed": _line(
        "the driver cannot bring an EFA device back",
        *("host", Action.REBOOT_NODE, _EFA),
        "efa {efa_pci} {efa}: Device isn't ready, can't reset device",
        kills=True,
    ),
    "efa_port_down": _files(
        "the port of an EFA device is down",
        *("host", Action.REPLACE_NODE, _SYSFS),
        {_PORT + "state": "1: DOWN\n", _PORT + "phys_state": "2: Polling\n"},
        cure="never",
    ),
    "efa_missing": _files(
        "an EFA device is not there",
        *("configuration", Action.NONE, "https://docs.aws.amazon.com/ec2/latest/instancetypes/ac.html"),
        {"sys/class/infiniband/{efa}": None, "sys/bus/pci/devices/{efa_pci}": None},
        cure="power_cycle",
    ),
    "efa_retransmits": NamedFault(
        "an EFA device sends again what was not answered",
        *("none", Action.NONE, _EFA),
        Fault(rising={_PORT + "hw_counters/retrans_pkts": 50.0, _PORT + "hw_counters/retrans_timeout_events": 5.0}),
        by_rise=True,
    ),
    "nic_health": _line(
        "a network card's firmware stopped",
        *("host", Action.REBOOT_NODE, _LINUX + "drivers/net/ethernet/mellanox/mlx5/core/health.c"),
        "mlx5_core 0000:b1:00.0: poll_health:825:(pid 0): device's health compromised - reached miss count",
    ),
}

_SEEN_FROM_OUTSIDE = {
    "slow_network": NamedFault(
        "the node is slow towards others",
        *("slow_node", Action.REPLACE_NODE, "https://github.com/NVIDIA/nccl-tests"),
        Fault(slow=0.5, slow_kind="inter", cure="never"),
    ),
    "slow_inside": NamedFault(
        "the node is slow in itself",
        *("slow_node", Action.REPLACE_NODE, "https://github.com/NVIDIA/nccl-tests"),
        Fault(slow=0.5, slow_kind="intra", cure="never"),
    ),
    "hang": NamedFault(
        "the node answers no command",
        *(
            "unreachable",
            Action.REBOOT_NODE,
            "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/monitoring-system-instance-status-check.html",
        ),
        Fault(hang=True),
    ),
}

NETWORK_FAULTS: dict[str, NamedFault] = {**_NETWORK, **_SEEN_FROM_OUTSIDE}
