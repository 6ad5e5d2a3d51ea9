"""The whole loop with host memory in DynamoDB, at the lab's endpoint: it is shared by processes, and outlives the worker."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from temporalio.service import RPCError, RPCStatusCode

from activities import names
from activities.host_ledger import mark_gpu
from activities.spare_records import records_of
from infra.lab.faults import Cure, Fault
from infra.lab.lab import Lab
from infra.lab.options import LabOptions
from workers.demo.screen import Screen
from workers.demo.stage import Stage, at_work
from workers.demo.stories import Injection
from workers.demo.worker_process import WorkerProcess
from workflows.messages import IncidentReport


async def ended(stage: Stage, node: str) -> IncidentReport:
    """The report of a node's incident, once the watcher has begun it and it has ended."""
    workflow_id = names.incident_id(stage.desk.settings.name, stage.lab.nodes[node].instance_id)
    handle = stage.desk.client.get_workflow_handle(workflow_id, result_type=IncidentReport)
    while True:
        try:
            report: IncidentReport = await handle.result()
            return report
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            await asyncio.sleep(0.1)


def serial_of(stage: Stage, node: str, gpu: int) -> str:
    """The serial number of a GPU of a lab node."""
    return str(stage.lab.nodes[node].gpu_state()["gpus"][gpu]["serial"])


async def bans_of(stage: Stage, node: str) -> list[str]:
    """Why a spare is refused, once a test has read its boards."""
    spare = stage.desk.wiring.inventory.resolve(stage.desk.settings.name, node)
    while True:
        (record,) = records_of(stage.desk.wiring.memory, [spare])
        if record.bans:
            return record.bans
        await asyncio.sleep(0.1)


async def test_a_ban_in_dynamodb_is_kept_and_obeyed_by_the_next_worker_process(tmp_path: Path) -> None:
    options = LabOptions(folder=tmp_path / "lab", nodes=4, spares=2, memory="dynamodb")
    async with Lab(options) as lab, at_work(lab, Screen()) as stage:
        memory = stage.desk.wiring.memory
        assert not list(lab.folder.glob("*.sqlite3"))
        await stage.put_in_pool("spare-1")
        accused = serial_of(stage, "node-3", 3)
        await stage.inject(Injection("node-3", Fault(xid=64, gpu=3, cure=Cure.NEVER.value)))
        first = await ended(stage, "node-3")
        assert (first.outcome, first.fate) == ("resolved", "retired")
        assert {gpu.serial for gpu in memory.gpus() if gpu.known_bad} == {accused}

        await stage.worker.kill()
        banned = serial_of(stage, "spare-2", 5)
        mark_gpu(memory, banned, bad=True, by="ann", why="RMA 4711")
        await stage.put_in_pool("spare-2")
        async with WorkerProcess(lab.folder / "second.log"):
            await stage.inject(Injection("node-2", Fault(xid=79, cure=Cure.REBOOT.value)))
            second = await ended(stage, "node-2")
            assert (second.outcome, second.fate) == ("resolved", "back in service")
            # Its own test or the incident's meets the ban, whichever comes first; it serves in neither case, and why is known.
            assert {gpu.serial for gpu in memory.gpus() if gpu.known_bad} == {accused, banned}
            (why,) = await bans_of(stage, "spare-2")
            assert "known bad" in why
            assert "RMA 4711" in why
            assert "spare-2" not in lab.job.status()["nodes"]
        decided = [json.loads(text) for closed in memory.incidents() for text in closed.decisions]
        assert decided
        assert not [call for call in lab.endpoint.calls if call.service == "dynamodb"]
