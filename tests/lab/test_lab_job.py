"""The lab's training job steps together, stops as a whole, and goes on from its last complete checkpoint."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from infra.lab.faults import Fault
from infra.lab.job import QUARANTINED, Refused
from infra.lab.lab import Lab
from tests.lab.conftest import Reach


async def trainctl(reach: Reach, words: str) -> Any:
    return json.loads(await reach.output("head", f"trainctl {words}"))


async def test_the_job_steps_and_writes_checkpoints_of_every_rank(lab: Lab) -> None:
    await lab.job.start()
    await lab.job.wait_for_checkpoint()
    folder = lab.folder / "shared" / "checkpoints" / f"step-{lab.job.checkpoint_step}"
    assert sorted(path.name for path in folder.iterdir()) == ["COMPLETE", "rank-0.json", "rank-1.json"]


@pytest.mark.parametrize("xid", [79, 64, 94, 95, 48])
async def test_a_fault_that_kills_the_work_on_one_node_stops_the_whole_job(lab: Lab, xid: int) -> None:
    await lab.job.start()
    await lab.job.wait_for_step(1)
    await lab.inject("node-2", Fault(xid=xid))
    await lab.job.wait_for_state("STOPPED")
    assert all(not node.gpu_state()["processes"] for node in lab.nodes.values())


async def test_a_node_that_hangs_stalls_the_job_and_a_hold_still_stops_it(lab: Lab) -> None:
    await lab.job.start()
    (rank,) = lab.nodes["node-2"].gpu_state()["processes"]
    await lab.inject("node-2", Fault(hang=True))
    stopped = await asyncio.to_thread(os.waitid, os.P_PID, rank["pid"], os.WSTOPPED | os.WNOWAIT)
    assert stopped is not None
    assert stopped.si_code == os.CLD_STOPPED
    assert lab.job.status()["state"] == "RUNNING"
    await lab.job.hold()
    assert not Path(f"/proc/{rank['pid']}").exists()


async def test_a_fault_that_leaves_the_work_alone_does_not_stop_the_job(lab: Lab) -> None:
    await lab.job.start()
    await lab.inject("node-2", Fault(xid=63))
    await lab.job.wait_for_step(lab.job.step + 2)
    assert lab.job.status()["state"] == "RUNNING"


async def test_a_job_goes_on_from_its_last_complete_checkpoint_on_other_nodes(lab: Lab, reach: Reach) -> None:
    await lab.job.start()
    await lab.job.wait_for_checkpoint()
    await lab.nodes["node-2"].reboot()
    await lab.job.wait_for_state("STOPPED")
    (lab.folder / "shared" / "checkpoints" / "step-9999").mkdir()
    resumed = await trainctl(reach, "resume train --nodes node-1,spare-1 --token first")
    assert resumed["nodes"] == ["node-1", "spare-1"]
    assert resumed["run_token"] == "first"
    assert 0 < resumed["checkpoint_step"] <= resumed["step"] < 9999
    await lab.job.wait_for_step(resumed["checkpoint_step"] + 1)
    assert (await trainctl(reach, "find --node spare-1"))["state"] == "RUNNING"
    assert await trainctl(reach, "find --node node-2") is None


async def test_a_token_starts_the_job_once_however_often_it_is_used(lab: Lab, reach: Reach) -> None:
    await lab.job.start()
    held = await trainctl(reach, "hold train")
    assert held["state"] == "HELD"
    for _ in range(3):
        await trainctl(reach, "resume train --nodes node-1,node-2 --token once")
    assert lab.job.resumes == [{"token": "once", "nodes": ["node-1", "node-2"]}]
    await trainctl(reach, "hold train")
    assert (await trainctl(reach, "resume train --nodes node-1,node-2 --token once"))["state"] == "HELD"


async def test_the_launcher_refuses_nodes_that_cannot_or_must_not_work(lab: Lab, reach: Reach) -> None:
    quarantined = lab.nodes["head"].root / QUARANTINED
    await reach.output("head", f'mkdir -p "$HOTSPARE_HOST_ROOT/{QUARANTINED}"; touch "$HOTSPARE_HOST_ROOT/{QUARANTINED}/node-1"')
    assert (quarantined / "node-1").exists()
    refused = await reach.run("head", "trainctl resume train --nodes node-1,node-2 --token a")
    assert refused.exit_status == 1
    assert "node-1 is quarantined" in str(refused.stderr)
    await lab.nodes["node-2"].stop()
    with pytest.raises(Refused, match="node-2: no answer"):
        await lab.job.resume(["node-2", "spare-1"], "b")
    with pytest.raises(Refused, match="no node is called node-9"):
        await lab.job.resume(["node-9"], "c")
    assert lab.job.resumes == []


async def test_a_running_job_is_not_started_twice(lab: Lab, reach: Reach) -> None:
    await lab.job.start()
    refused = await reach.run("head", "trainctl resume train --nodes node-1,node-2 --token other")
    assert refused.exit_status == 1
    assert "hold it first" in str(refused.stderr)


async def test_a_job_of_one_node_trains_too(lab: Lab) -> None:
    await lab.job.resume(["spare-1"], "alone")
    await lab.job.wait_for_checkpoint()
    assert lab.job.status()["nodes"] == ["spare-1"]
