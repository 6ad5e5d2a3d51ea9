"""The GPUs of a lab node look to NVML's own bindings, to nvidia-smi and to the checks as real ones do."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pynvml
import pytest

from checks.archive import build_archive
from infra.lab.faults import EFFECTS, Fault
from infra.lab.lab import Lab
from infra.lab.options import LabOptions
from tests.lab.conftest import Reach

ASK_NVML = """
import json, os, sys
sys.path.insert(0, os.environ["HOME"])
import pynvml as nvml

def ask(call, *args):
    try:
        answer = call(*args)
    except nvml.NVMLError as error:
        return type(error).__name__
    return answer.decode() if isinstance(answer, bytes) else answer

nvml.nvmlInit()
gpus = []
for index in range(nvml.nvmlDeviceGetCount()):
    gpu = ask(nvml.nvmlDeviceGetHandleByIndex, index)
    if isinstance(gpu, str):
        gpus.append(gpu)
        continue
    recovery = nvml.nvmlDeviceGetFieldValues(gpu, [nvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])[0]
    gpus.append({
        "uuid": ask(nvml.nvmlDeviceGetUUID, gpu), "serial": ask(nvml.nvmlDeviceGetSerial, gpu),
        "name": ask(nvml.nvmlDeviceGetName, gpu), "pci": nvml.nvmlDeviceGetPciInfo(gpu).busId,
        "memory": nvml.nvmlDeviceGetMemoryInfo(gpu).total, "remapped": ask(nvml.nvmlDeviceGetRemappedRows, gpu),
        "ecc": ask(nvml.nvmlDeviceGetTotalEccErrors, gpu, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC),
        "recovery": recovery.value.uiVal, "processes": [p.pid for p in nvml.nvmlDeviceGetComputeRunningProcesses(gpu)],
        "unknown": ask(nvml.nvmlDeviceGetVbiosVersion, gpu),
    })
by_pci = ask(nvml.nvmlDeviceGetHandleByPciBusId, b"0000:53:00.0")
print(json.dumps({"gpus": gpus, "driver": ask(nvml.nvmlSystemGetDriverVersion), "by_pci": ask(nvml.nvmlDeviceGetSerial, by_pci)}))
"""


async def ask_nvml(reach: Reach, node: str) -> dict[str, Any]:
    """Run NVML's own bindings on a node."""
    connection = await reach.connect(node)
    try:
        async with connection.start_sftp_client() as sftp:
            await sftp.put(pynvml.__file__, "pynvml.py")
        done = await connection.run("python3 -", input=ASK_NVML)
    finally:
        connection.close()
        await connection.wait_closed()
    assert done.exit_status == 0, done.stderr
    answer: dict[str, Any] = json.loads(str(done.stdout))
    return answer


async def probe(reach: Reach, node: str) -> dict[str, Any]:
    """Run the real checks on a node."""
    connection = await reach.connect(node)
    try:
        unpacked = await connection.run("tar xz", input=build_archive().content, encoding=None)
        assert unpacked.exit_status == 0
        done = await connection.run("python3 run_checks.py probe --depth quick")
    finally:
        connection.close()
        await connection.wait_closed()
    document: dict[str, Any] = json.loads(str(done.stdout))
    return document


async def test_nvmls_own_bindings_read_the_gpus_of_a_node(lab: Lab, reach: Reach) -> None:
    seen = await ask_nvml(reach, "node-1")
    assert seen["driver"] == "580.95.05"
    assert [gpu["pci"] for gpu in seen["gpus"]][:2] == ["00000000:53:00.0", "00000000:64:00.0"]
    assert len({gpu["serial"] for gpu in seen["gpus"]}) == 8
    assert seen["by_pci"] == seen["gpus"][0]["serial"]
    healthy = seen["gpus"][3]
    assert (healthy["ecc"], healthy["remapped"], healthy["recovery"], healthy["processes"]) == (0, [0, 0, 0, 0], 0, [])
    assert healthy["unknown"] == "NVMLError_FunctionNotFound"
    assert healthy["memory"] == 81559 * 2**20
    listed = await reach.output("node-1", "nvidia-smi -L")
    assert [line.split("UUID: ")[1].rstrip(")") for line in listed.splitlines()] == [gpu["uuid"] for gpu in seen["gpus"]]


async def test_a_gpu_that_fell_off_the_bus_is_lost_to_nvml_and_nvidia_smi_alone(lab: Lab, reach: Reach) -> None:
    await lab.inject("node-1", Fault(xid=79, gpu=5))
    seen = await ask_nvml(reach, "node-1")
    assert seen["gpus"][5] == "NVMLError_GpuIsLost"
    assert all(isinstance(gpu, dict) for index, gpu in enumerate(seen["gpus"]) if index != 5)
    smi = await reach.run("node-1", "nvidia-smi")
    assert smi.exit_status == 15
    assert "GPU is lost" in str(smi.stdout)
    assert "lost" not in await reach.output("node-2", "nvidia-smi -L")
    assert (await reach.output("node-1", "lspci -nn -d 10de:")).count("(rev ff)") == 1


async def test_faults_set_the_counters_that_the_driver_sets(lab: Lab, reach: Reach) -> None:
    await lab.inject("node-1", Fault(xid=64, gpu=2))
    await lab.inject("node-1", Fault(xid=95, gpu=4))
    gpus = (await ask_nvml(reach, "node-1"))["gpus"]
    assert gpus[2]["remapped"][3] == 1
    assert (gpus[4]["ecc"], gpus[4]["recovery"]) == (1, 1)
    printed = await reach.output("node-1", "nvidia-smi -q")
    assert printed.count("Remapping Failure Occurred             : Yes") == 1
    assert printed.count("GPU Recovery Action                    : GPU Reset") == 1


async def test_training_shows_as_a_process_on_every_gpu_until_it_ends(lab: Lab, reach: Reach) -> None:
    await lab.job.start()
    busy = (await ask_nvml(reach, "node-1"))["gpus"]
    assert all(len(gpu["processes"]) == 1 for gpu in busy)
    assert (await ask_nvml(reach, "spare-1"))["gpus"][0]["processes"] == []
    await lab.job.hold()
    assert all(gpu["processes"] == [] for gpu in (await ask_nvml(reach, "node-1"))["gpus"])


@pytest.mark.parametrize(
    ("fault", "fault_class"),
    [
        (Fault(xid=79), "gpu_lost"),
        (Fault(lost=True), "gpu_lost"),
        (Fault(xid=64), "memory_exhausted"),
        (Fault(xid=94), "memory_contained"),
        (Fault(xid=119), "gsp_hang"),
        (Fault(xid=74), "link"),
    ],
)
async def test_the_checks_diagnose_an_injected_fault_as_what_it_is(
    lab: Lab, reach: Reach, fault: Fault, fault_class: str
) -> None:
    assert (await probe(reach, "node-1"))["diagnosis"]["fault_class"] == "none"
    await lab.inject("node-1", fault)
    assert (await probe(reach, "node-1"))["diagnosis"]["fault_class"] == fault_class
    await lab.nodes["node-1"].reboot()
    assert (await probe(reach, "node-1"))["verdict"] == "OK"


def change_gpu(lab: Lab, node: str, gpu: int, **changed: Any) -> None:
    """Change what the node's driver answers of one GPU, until the node writes its state anew."""
    path = lab.nodes[node].root / "var/lib/lab/gpus.json"
    state = json.loads(path.read_text())
    state["gpus"][gpu].update(changed)
    path.write_text(json.dumps(state))


@pytest.mark.parametrize(
    ("changed", "check", "fault_class"),
    [
        ({"sram": {"threshold": 1}}, "sram_threshold", "memory_exhausted"),
        ({"repair_pending": [0, 1]}, "repair_pending", "reset_needed"),
        ({"nvlinks_down": [3, 4]}, "nvlink_down", "link"),
        ({"fabric": {"state": 3, "status": 0, "mask": 0, "summary": 2}}, "fabric", "fabric"),
        ({"refused": {"nvmlDeviceGetPcieReplayCounter": 15}}, "gpu_lost", "gpu_lost"),
        ({"memory_unrepairable": 1}, "memory_unrepairable", "memory_exhausted"),
        ({"fields": {"307": 1}}, "bank_remap_pending", "reset_needed"),
        ({"inforom": 14}, "inforom", "reboot_needed"),
        ({"mig_mode": [1, 1], "repair_pending": [0, 1]}, "repair_pending", "reboot_needed"),
    ],
)
async def test_the_checks_see_what_the_driver_says_without_any_kernel_line(
    lab: Lab, reach: Reach, changed: dict[str, Any], check: str, fault_class: str
) -> None:
    change_gpu(lab, "node-1", 5, **changed)
    document = await probe(reach, "node-1")
    assert document["diagnosis"]["fault_class"] == fault_class
    accusing = [one for one in document["findings"] if one["verdict"] != "OK"]
    assert check in {one["check"] for one in accusing}
    assert accusing[0]["gpu"]["index"] == 5


async def age_looks(reach: Reach, node: str, seconds: float) -> None:
    """Make what the node remembers of its counters older."""
    path = await reach.output(node, 'printf %s "$HOME/.cache/hotspare/looks.json"')
    content = await reach.output(node, f"cat {path}")
    looks = json.loads(content)
    looks["looks"] = [[at - seconds, boot] for at, boot in looks["looks"]]
    await reach.output(node, f"printf %s '{json.dumps(looks)}' > {path}")


async def test_the_checks_see_from_one_run_to_the_next_what_rises(lab: Lab, reach: Reach) -> None:
    change_gpu(lab, "node-1", 5, nvlink_errors={"163": {"3": 10_000}}, fields={"270": 0})
    assert (await probe(reach, "node-1"))["verdict"] == "OK"
    await age_looks(reach, "node-1", 600)
    change_gpu(lab, "node-1", 5, nvlink_errors={"163": {"3": 100_000}}, fields={"270": 500 * 10**9})
    document = await probe(reach, "node-1")
    accusing = {one["check"] for one in document["findings"] if one["verdict"] != "OK"}
    assert accusing == {"nvlink_crc", "slowdown"}
    assert document["diagnosis"]["fault_class"] == "link"


@pytest.mark.parametrize("instance_type", ["p6-b200.48xlarge", "p4d.24xlarge"])
async def test_what_healthy_gpus_of_other_families_count_is_in_order(lab_options: LabOptions, instance_type: str) -> None:
    async with Lab(replace(lab_options, nodes=1, spares=0, instance_type=instance_type)) as lab:
        reach = Reach(lab)
        for _ in range(2):
            document = await probe(reach, "node-1")
            accusing = [one for one in document["findings"] if one["verdict"] != "OK"]
            assert (document["verdict"], accusing) == ("OK", [])
            await age_looks(reach, "node-1", 600)


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_NO_PERMISSION, pynvml.NVML_ERROR_NOT_SUPPORTED])
async def test_what_a_driver_refuses_to_tell_of_sram_leaves_the_node_in_order(lab: Lab, reach: Reach, code: int) -> None:
    for gpu in range(8):
        change_gpu(lab, "node-1", gpu, refused={"nvmlDeviceGetSramEccErrorStatus": code})
    document = await probe(reach, "node-1")
    assert document["verdict"] == "OK"
    assert "sram_threshold" not in {one["check"] for one in document["findings"]}


async def test_a_slow_node_passes_its_checks(lab: Lab, reach: Reach) -> None:
    await lab.inject("node-1", Fault(slow=0.5))
    assert (await probe(reach, "node-1"))["verdict"] == "OK"


async def test_a_fault_prints_its_lines_as_often_as_asked_in_one_write(lab: Lab, reach: Reach) -> None:
    lines = await lab.inject("node-1", Fault(xid=31, repeat=1000))
    assert len(lines) == 1000
    assert (await reach.output("node-1", "dmesg")).count("Xid (PCI:0000:86:00): 31,") == 1000


async def test_every_known_code_prints_its_own_line(lab: Lab, reach: Reach) -> None:
    expected = []
    for xid in EFFECTS:
        lines = await lab.inject("node-1", Fault(xid=xid))
        assert lines[0].startswith(f"NVRM: Xid (PCI:0000:86:00): {xid}, ")
        expected += lines
    printed = (await reach.output("node-1", f"dmesg | tail -n {len(expected)}")).splitlines()
    assert [line.split("] ", 1)[1] for line in printed] == expected
