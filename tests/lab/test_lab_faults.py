"""A fault of a lab node shows where a real one shows, and only as long as the node has it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from infra.lab.faults import Cure, Fault
from infra.lab.hardware import HARDWARE
from infra.lab.healthy_devices import aer_file, rdma_name
from infra.lab.lab import Lab
from infra.lab.machine_files import MachineFiles, make_template
from infra.lab.named_faults import table
from infra.lab.options import LabOptions
from tests.lab.conftest import Reach

EFA = "sys/class/infiniband/rdmap130s0"
"""The EFA device beside GPU 3 of a p5.48xlarge."""
PORT_STATE = f"{EFA}/ports/1/state"
TIMEOUTS = f"{EFA}/ports/1/hw_counters/retrans_timeout_events"


def tree(folder: Path) -> dict[str, bytes]:
    """Every file under a folder, links followed."""
    paths = [Path(at) / name for at, _, names in os.walk(folder, followlinks=True) for name in names]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@pytest.fixture
def machine(tmp_path: Path) -> MachineFiles:
    """The files of a p5.48xlarge under tmp_path / "node"."""
    hardware = HARDWARE["p5.48xlarge"]
    files = MachineFiles(tmp_path / "node", make_template(tmp_path / "healthy", hardware), hardware)
    files.lay_out()
    return files


@pytest.mark.parametrize("instance_type", HARDWARE)
async def test_a_node_has_the_devices_of_its_instance_type(tmp_path: Path, instance_type: str) -> None:
    options = LabOptions(folder=tmp_path / "lab", nodes=1, spares=0, instance_type=instance_type, temporal=False)
    async with Lab(options) as lab:
        reach = Reach(lab)
        listed = await reach.output("node-1", 'ls "$HOTSPARE_HOST_ROOT/sys/class/infiniband"')
        on_bus = await reach.output("node-1", "lspci -n -d 1d0f:")
        on_head = await reach.output("head", 'ls "$HOTSPARE_HOST_ROOT/sys/bus/pci/devices"')
    wanted = {"p4d.24xlarge": 4, "p4de.24xlarge": 4, "p5.48xlarge": 32, "p5en.48xlarge": 16, "p6-b200.48xlarge": 8}
    assert len(listed.split()) == len(on_bus.splitlines()) == wanted[instance_type]
    assert on_head == ""


async def test_services_clock_and_versions_answer_as_the_real_tools_do(lab: Lab, reach: Reach) -> None:
    shown = await reach.output("node-1", "systemctl show -p Id,LoadState,ActiveState,SubState nvidia-fabricmanager nvidia-imex")
    fabric_manager, imex = (dict(line.split("=") for line in block.splitlines()) for block in shown.strip().split("\n\n"))
    assert fabric_manager == {
        "Id": "nvidia-fabricmanager.service",
        "LoadState": "loaded",
        "ActiveState": "active",
        "SubState": "running",
    }
    assert (imex["LoadState"], imex["ActiveState"]) == ("not-found", "inactive")
    assert (await reach.output("node-1", "chronyc -c tracking")).strip().split(",")[13] == "Normal"
    assert await reach.output("node-1", "timedatectl show -p NTPSynchronized") == "NTPSynchronized=yes\n"
    assert await reach.output("node-1", "nv-fabricmanager --version") == "Fabric Manager version is : 580.95.05\n"
    assert await reach.output("node-1", "modinfo -F version nvidia") == "580.95.05\n"
    assert (await reach.run("node-1", "modinfo -F version no_such_module")).exit_status == 1


async def test_a_fault_of_files_is_gone_after_the_boot_that_cures_it(lab: Lab, reach: Reach) -> None:
    read = f'cat "$HOTSPARE_HOST_ROOT/{PORT_STATE}"'
    await lab.inject("node-1", Fault.named("efa_port_down", cure="reboot"))
    assert await reach.output("node-1", read) == "1: DOWN\n"
    assert await reach.output("node-2", read) == "4: ACTIVE\n"
    await lab.nodes["node-1"].reboot()
    assert await reach.output("node-1", read) == "4: ACTIVE\n"


async def test_a_fault_that_no_boot_cures_stays_until_a_person_takes_it_away(lab: Lab, reach: Reach) -> None:
    await lab.inject("node-1", Fault.named("clock_unsynchronised"))
    await lab.nodes["node-1"].reboot()
    assert await reach.output("node-1", "timedatectl show -p NTPSynchronized --value") == "no\n"
    await lab.cure("node-1")
    assert await reach.output("node-1", "timedatectl show -p NTPSynchronized --value") == "yes\n"


async def test_another_driver_shows_wherever_a_driver_is_asked_for(lab: Lab, reach: Reach) -> None:
    await lab.inject("node-1", Fault(driver="570.172.08", cure="never"))
    await lab.nodes["node-1"].reboot()
    for command in (
        "nvidia-smi --query-gpu=driver_version --format=csv,noheader | sort -u",
        "nv-fabricmanager --version",
        "modinfo -F version nvidia",
        'head -1 "$HOTSPARE_HOST_ROOT/proc/driver/nvidia/version"',
        "dmesg | grep 'Open Kernel Module'",
    ):
        assert "570.172.08" in await reach.output("node-1", command), command


async def test_a_gpu_that_the_driver_does_not_count_leaves_the_others_counted_from_0(lab: Lab, reach: Reach) -> None:
    before = (await reach.output("node-1", "nvidia-smi -L")).splitlines()
    await lab.inject("node-1", Fault(absent=True, gpu=2))
    after = (await reach.output("node-1", "nvidia-smi -L")).splitlines()
    assert [line.split(":")[0] for line in after] == [f"GPU {index}" for index in range(7)]
    assert [line.split("UUID")[1] for line in after] == [line.split("UUID")[1] for line in before[:2] + before[3:]]


async def test_a_line_of_any_kind_names_the_gpu_and_the_device_it_is_about(lab: Lab) -> None:
    lines = await lab.inject("node-1", Fault(lines=("nvidia {pci}: GPU in {slot} beside {efa} at {efa_pci}",), gpu=3))
    assert lines == ["nvidia 0000:86:00.0: GPU in 0000:86:00 beside rdmap130s0 at 0000:82:00.0"]


def test_every_named_fault_survives_the_way_to_a_lab_in_another_process() -> None:
    for name in table():
        fault = Fault.named(name, gpu=5)
        assert Fault(**json.loads(json.dumps(fault.to_json()))) == fault
        assert (fault.name, fault.gpu) == (name, 5)


def test_every_named_fault_has_a_cure_and_a_public_source() -> None:
    for name, row in table().items():
        told = row.to_json()
        assert Cure(told["cure"]), name
        assert all(told[word] for word in ("what", "signal", "ended_by", "fault_class")), name
        assert row.source.startswith("https://"), name


def test_an_unknown_name_is_answered_with_the_names_there_are() -> None:
    with pytest.raises(ValueError, match="fell_off_bus"):
        Fault.named("gremlins")


@pytest.mark.parametrize("path", ["/etc/passwd", "../outside", "proc/../../outside"])
def test_a_fault_writes_nothing_outside_its_node(path: str) -> None:
    with pytest.raises(ValueError, match="under the node's root"):
        Fault(files={path: ""})


def test_files_come_back_as_they_were_whatever_a_fault_made_of_them(tmp_path: Path, machine: MachineFiles) -> None:
    healthy = tree(tmp_path / "healthy")
    before = tree(tmp_path / "node")
    assert before == healthy
    machine.show({PORT_STATE: "1: DOWN\n", "proc/mdstat": None, "etc/new": "x", "sys/class/infiniband/rdmap131s0": None})
    broken = tree(tmp_path / "node")
    assert broken[PORT_STATE] == b"1: DOWN\n"
    assert "proc/mdstat" not in broken
    assert not any("rdmap131s0" in name for name in broken)
    machine.show({TIMEOUTS: "7\n"})
    assert tree(tmp_path / "node") == before | {TIMEOUTS: b"7\n"}
    machine.show({})
    assert tree(tmp_path / "node") == before
    assert tree(tmp_path / "healthy") == healthy


def test_a_rising_counter_rises_on_as_if_it_had_for_ten_minutes(tmp_path: Path, machine: MachineFiles) -> None:
    path = tmp_path / "node" / f"{EFA}/ports/1/hw_counters/tx_pkts"
    machine.show({}, {f"{EFA}/ports/1/hw_counters/tx_pkts": 1e9})
    first = int(path.read_text())
    machine.count_on()
    assert 8192 + 600 * 1e9 <= first < int(path.read_text())
    machine.show({})
    assert path.read_text() == "8192\n"


def test_error_counts_of_a_device_add_up_and_have_the_kernels_names() -> None:
    text = aer_file("fatal", MalfTLP=2, DLP=1)
    assert text.splitlines()[-1] == "TOTAL_ERR_FATAL 3"
    assert "MalfTLP 2\n" in text
    with pytest.raises(ValueError, match="RxErr"):
        aer_file("fatal", RxErr=1)


def test_rdma_devices_are_named_by_bus_and_slot() -> None:
    assert (rdma_name("0000:4f:00.0"), rdma_name("0000:10:1b.0")) == ("rdmap79s0", "rdmap16s27")
