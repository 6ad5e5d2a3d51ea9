"""How a node is set up is read from its files and commands; what is not there and what cannot be read are two things."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from checks.host import Host
from checks.model import Action, Finding, Verdict
from checks.parity import Configuration, configuration_from_json, fits
from checks.parity.configuration import KNOWN, NOT_APPLICABLE, UNREADABLE, known
from checks.probes.configuration import judge_configuration, read_configuration, with_checks
from checks.probes.pci import read_pci
from checks.probes.readings import ERROR, NOT_SUPPORTED, OK, GpuReadings, NvmlState, Reading
from checks.probes.software import driver_version_in
from tests.checks.node import TestNode

OPEN = """NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs-builder@U22)
GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)
"""
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.12  Wed Sep 20 09:35:17 UTC 2023\n"
DEBIAN = """# EFA installer version: 1.38.0
# Debug packages installed: no
# Packages installed:
efa-config_1.17_all efa-profile_1.7_all libfabric-aws-bin_1.22.0amzn5.0_amd64 libfabric1-aws_1.22.0amzn5.0_amd64 \
openmpi40-aws_4.1.7-1_amd64 libnccl-ofi_1.13.2-1_amd64 efa_2.13.0-1.amzn1_all
"""
REDHAT = """# EFA installer version: 1.41.0
# Packages installed:
efa-config-1.18-1.amzn2.noarch libfabric-aws-2.1.0amzn3.0-1.amzn2.x86_64 libnccl-ofi-1.14.2-1.amzn2.x86_64
"""
MDSTAT = """Personalities : [raid0] [raid1]
md0 : active raid0 nvme8n1[7] nvme7n1[6] nvme6n1[5] nvme5n1[4] nvme4n1[3] nvme3n1[2] nvme2n1[1] nvme1n1[0]
      29687050240 blocks super 1.2 512k chunks

unused devices: <none>
"""
MOUNTS = """/dev/nvme0n1p1 / ext4 rw,relatime 0 0
proc /proc proc rw 0 0
/dev/md0 /scratch xfs rw,noatime 0 0
10.0.3.4@tcp:/abcd /fsx lustre rw,flock 0 0
fs-1.efs.us-east-1.amazonaws.com:/ /home nfs4 rw 0 0
auto.data /data autofs rw 0 0
10.0.0.9:/data/set /data/set nfs4 rw 0 0
10.0.0.9:/pv /var/lib/kubelet/pods/1/volumes/pv nfs4 rw 0 0
"""


@pytest.fixture
def node(tmp_path: Path) -> TestNode:
    """A p5.48xlarge with everything installed."""
    node = TestNode(tmp_path)
    node.write("etc/os-release", 'NAME="Ubuntu"\nVERSION_ID="22.04"\nPRETTY_NAME="Ubuntu 22.04.5 LTS"\n')
    node.write("proc/sys/kernel/osrelease", "6.8.0-1029-aws\n")
    node.write("proc/driver/nvidia/version", OPEN)
    node.write("usr/local/cuda/version.json", '{"cuda" : {"name" : "CUDA SDK", "version" : "12.8.1"}, "nvcc": {"version": "9"}}')
    node.write("usr/lib/x86_64-linux-gnu/libnccl.so.2.26.2", "")
    node.write("usr/lib/x86_64-linux-gnu/libnccl.so.2", "")
    node.write("opt/amazon/efa_installed_packages", DEBIAN)
    node.write("proc/mounts", MOUNTS)
    node.write("proc/mdstat", MDSTAT)
    for number in range(32):
        node.write(f"sys/class/infiniband/rdmap{number}s0/device/vendor", "0x1d0f\n")
    node.write("sys/class/infiniband/mlx5_0/device/vendor", "0x15b3\n")
    for number in range(9):
        model = "Amazon EC2 NVMe Instance Storage" if number else "Amazon Elastic Block Store"
        node.write(f"sys/block/nvme{number}n1/device/model", f"{model}\n")
    node.command("nv-fabricmanager", "echo Fabric Manager version is : 580.95.05")
    node.command("modinfo", "echo 2.13.0g")
    return node


def gpus(**changed: Reading) -> NvmlState:
    """Eight healthy GPUs, the last one changed."""
    values = {
        "name": Reading(OK, "NVIDIA H100 80GB HBM3"),
        "mig_mode": Reading(OK, [0, 0]),
        "ecc_mode": Reading(OK, [1, 1]),
        "persistence_mode": Reading(OK, 1),
        "compute_mode": Reading(OK, 0),
        "clock_sm_max_mhz": Reading(OK, 1980),
        "clock_application_mhz": Reading(NOT_SUPPORTED),
    }
    every = [GpuReadings(index, values) for index in range(7)]
    return NvmlState("read", driver_version="580.95.05", gpus=(*every, GpuReadings(7, {**values, **changed})))


def read(node: TestNode, nvml: NvmlState | None = None, instance_type: str = "p5.48xlarge") -> Configuration:
    host = Host(environment=node.environment)
    return read_configuration(host, read_pci(host), nvml or gpus(), instance_type, 5.0)


def test_everything_of_a_whole_node_is_read(node: TestNode) -> None:
    seen = read(node)
    values = {name: fact.value for name, fact in seen.facts.items() if fact.state == KNOWN}
    assert values == {
        "os": "Ubuntu 22.04.5 LTS",
        "kernel": "6.8.0-1029-aws",
        "driver": "580.95.05",
        "driver_kind": "open",
        "fabric_manager": "580.95.05",
        "cuda": "12.8.1",
        "nccl": "2.26.2",
        "efa_installer": "1.38.0",
        "efa_driver": "2.13.0g",
        "libfabric": "1.22.0amzn5.0",
        "ofi_plugin": "1.13.2",
        "efa_devices": "32",
        "gpus": "8",
        "gpu_model": "NVIDIA H100 80GB HBM3",
        "mig_mode": "off",
        "ecc_mode": "on",
        "persistence_mode": "on",
        "compute_mode": "default",
        "clock_sm_max": "1980 MHz",
        "instance_store": "8 disks, raid0 of 8 on /scratch",
        "shared_mounts": "lustre /fsx, nfs4 /home",
    }
    missing = {name for name, fact in seen.facts.items() if fact.state == NOT_APPLICABLE}
    assert missing == {"clock_application", "imex_domain"}
    assert not [name for name, fact in seen.facts.items() if fact.state == UNREADABLE]


def test_an_empty_root_is_unreadable_and_accuses_nobody(tmp_path: Path) -> None:
    host = Host(str(tmp_path), {"PATH": str(tmp_path)})
    seen = read_configuration(host, read_pci(host), NvmlState("no_library", "no libnvidia-ml.so.1"), "p5.48xlarge", 5.0)
    assert {fact.state for name, fact in seen.facts.items() if name != "imex_domain"} == {UNREADABLE}
    assert judge_configuration(seen, 0.0) == []


def test_an_older_driver_and_red_hats_package_names_are_read_too(node: TestNode) -> None:
    node.write("proc/driver/nvidia/version", CLOSED)
    node.write("opt/amazon/efa_installed_packages", REDHAT)
    seen = read(node)
    assert [seen.value(name) for name in ("driver", "driver_kind")] == ["535.104.12", "proprietary"]
    assert [seen.value(name) for name in ("efa_installer", "libfabric", "ofi_plugin")] == ["1.41.0", "2.1.0amzn3.0", "1.14.2"]


def test_what_is_not_installed_is_a_value_and_no_gap(node: TestNode) -> None:
    (node.root / "opt/amazon/efa_installed_packages").unlink()
    (node.root / "usr/lib/x86_64-linux-gnu/libnccl.so.2.26.2").unlink()
    (node.root / "usr/local/cuda/version.json").unlink()
    (node.root / "usr/local/cuda").rmdir()
    node.command("modinfo", "echo 'modinfo: ERROR: Module efa not found.' >&2; exit 1")
    seen = read(node)
    assert {seen.value(name) for name in ("efa_installer", "ofi_plugin", "nccl", "cuda", "efa_driver")} == {"not installed"}


def test_nccl_by_its_header_alone(node: TestNode) -> None:
    (node.root / "usr/lib/x86_64-linux-gnu/libnccl.so.2.26.2").unlink()
    node.write(
        "usr/include/nccl.h", '#define NCCL_MAJOR 2\n#define NCCL_MINOR 21\n#define NCCL_PATCH 5\n#define NCCL_SUFFIX ""\n'
    )
    assert read(node).value("nccl") == "2.21.5"


def test_a_type_without_nvswitches_needs_no_fabric_manager(node: TestNode) -> None:
    assert read(node, instance_type="g5.48xlarge").get("fabric_manager").state == NOT_APPLICABLE


@pytest.mark.parametrize("body", ["exit 3", "echo usage: nv-fabricmanager", "kill -9 $$"])
def test_a_fabric_manager_that_tells_no_version_is_unreadable(node: TestNode, body: str) -> None:
    node.command("nv-fabricmanager", body)
    seen = read(node)
    assert seen.get("fabric_manager").state == UNREADABLE
    assert judge_configuration(seen, 0.0) == []


def test_a_fabric_manager_of_another_version_than_the_driver_is_a_finding_by_itself(node: TestNode) -> None:
    node.command("nv-fabricmanager", "echo Fabric Manager version is : 570.172.08")
    found = judge_configuration(read(node), 7.0)
    assert [(one.check, one.verdict, one.action) for one in found] == [("parity", Verdict.WARN, Action.NONE)]
    assert "570.172.08" in found[0].summary
    assert "580.95.05" in found[0].summary


def test_the_probe_says_how_the_node_is_set_up_and_that_no_repair_is_for_it(node: TestNode) -> None:
    node.command("nv-fabricmanager", "echo Fabric Manager version is : 570.172.08")
    report = node.probe(no_nvml=True)
    document = json.loads(json.dumps(report.to_json()))
    assert document["configuration"]["values"]["kernel"] == "6.8.0-1029-aws"
    assert "as the caller wished" in document["configuration"]["unreadable"]["ecc_mode"]
    assert (report.diagnosis.fault_class, report.diagnosis.action) == ("configuration", Action.NONE)


@pytest.mark.parametrize(
    ("changed", "fact", "value"),
    [
        ({"ecc_mode": Reading(OK, [0, 0])}, "ecc_mode", "off on 1 GPUs, on on 7 GPUs"),
        ({"mig_mode": Reading(OK, [0, 1])}, "mig_mode", "off on 7 GPUs, off (on after the next reset) on 1 GPUs"),
        ({"compute_mode": Reading(OK, 3)}, "compute_mode", "default on 7 GPUs, exclusive process on 1 GPUs"),
        ({"persistence_mode": Reading(ERROR, detail="unknown error")}, "persistence_mode", None),
    ],
)
def test_gpus_of_one_node_that_differ_show(node: TestNode, changed: dict[str, Reading], fact: str, value: str | None) -> None:
    assert read(node, gpus(**changed)).value(fact) == value


def test_an_array_that_lost_a_disk_and_one_that_is_not_mounted_show(node: TestNode) -> None:
    node.write("proc/mdstat", "md127 : inactive nvme2n1[1](S) nvme1n1[0](F)\n      1 blocks\n")
    assert read(node).value("instance_store") == "8 disks, array of 2 not mounted"
    (node.root / "proc/mdstat").unlink()
    assert read(node).value("instance_store") == "8 disks, no array"


def test_what_other_checks_found_of_clock_and_mounts_is_a_fact_too() -> None:
    findings = [Finding("clock", Verdict.WARN, "not synchronised"), Finding("mounts", Verdict.UNKNOWN, "?")]
    seen = with_checks(Configuration(), findings)
    assert seen.value("clock") == "not synchronised"
    assert seen.get("mounts").state == UNREADABLE
    assert with_checks(Configuration(), [Finding("mounts", Verdict.OK, "")]).value("mounts") == "readable"


def test_a_configuration_survives_its_way_through_json() -> None:
    seen = Configuration("p5.48xlarge", {"kernel": known("6.8"), "cuda": read_nothing().get("cuda")})
    assert configuration_from_json(json.loads(json.dumps(seen.to_json()))) == seen


def read_nothing() -> Configuration:
    return Configuration()


@pytest.mark.parametrize("foreign", [None, {}, [], {"values": 1}, {"values": {}, "unreadable": {}}])
def test_a_foreign_document_is_refused(foreign: object) -> None:
    with pytest.raises((KeyError, TypeError, AttributeError)):
        configuration_from_json(foreign)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC 2023\nGCC version:  gcc 11.4",
            "535.129.03",
        ),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs@U22)  Tue Sep 23", "580.95.05"),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  595.45.04  Release Build\nGCC version: gcc 13.2.0",
            "595.45.04",
        ),
        ("GCC version:  gcc version 11.4.0", ""),
        ("1000.0 0.0\n", ""),
        ("", ""),
    ],
)
def test_the_driver_tells_its_version_in_every_build(text: str, version: str) -> None:
    assert driver_version_in(text) == version


PEERS = "".join(f"10.0.0.{number}\n" for number in range(1, 19))
ROUTES = """Local:
  +-- 10.0.0.0/24 2 0 2
     |-- 10.0.0.7
        /32 host LOCAL
     |-- 10.0.0.255
        /32 link BROADCAST
"""


@pytest.mark.parametrize(
    ("peers", "routes", "value"),
    [
        (PEERS, ROUTES, "18 nodes (756f5a58)"),
        ("# the rack\n" + "".join(reversed(PEERS.splitlines(keepends=True))), ROUTES, "18 nodes (756f5a58)"),
        (PEERS.replace("10.0.0.7\n", ""), ROUTES, "17 nodes (69af721f), without this node"),
        (PEERS, "", "18 nodes (756f5a58)"),
        ("tray-1\ntray-2\n", ROUTES, "2 nodes (0db9480d)"),
    ],
)
def test_the_imex_domain_of_a_rack_is_its_list_of_nodes_in_any_order_and_whether_this_node_is_on_it(
    node: TestNode, peers: str, routes: str, value: str
) -> None:
    node.write("etc/nvidia-imex/nodes_config.cfg", peers)
    node.write("proc/net/fib_trie", routes)
    assert read(node, instance_type="p6e-gb200.36xlarge").value("imex_domain") == value


def test_a_tray_whose_imex_domain_is_another_does_not_join_its_peers(node: TestNode) -> None:
    node.write("proc/net/fib_trie", ROUTES)
    node.write("etc/nvidia-imex/nodes_config.cfg", PEERS)
    peers = [read(node, instance_type="p6e-gb200.36xlarge")] * 3
    node.write("etc/nvidia-imex/nodes_config.cfg", PEERS.replace("10.0.0.7\n", "10.0.0.99\n"))
    (difference,) = fits(read(node, instance_type="p6e-gb200.36xlarge"), peers).differences
    assert "IMEX domain 18 nodes" in difference.words
    assert "without this node here" in difference.words


def test_an_imex_list_that_cannot_be_read_accuses_nobody(node: TestNode) -> None:
    seen = read(node, instance_type="p6e-gb200.36xlarge")
    assert seen.get("imex_domain").state == UNREADABLE
