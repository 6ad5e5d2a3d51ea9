"""What may go wrong with spares and repaired nodes, played in the lab: the same bad host, a broken probation, too few spares."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle

from activities import names
from infra.lab.faults import Cure, Fault
from infra.lab.lab import Lab
from infra.lab.options import LabOptions
from tests.lab.conftest import Reach
from tests.lab.test_every_trigger import part, run
from workers.connection import connect
from workers.demo.worker_process import command
from workflows.messages import IncidentReport, Qualification, StartSweep


@dataclass
class Scene:
    """A lab with a worker process that acts."""

    lab: Lab
    client: Client

    def incident(self, node: str) -> WorkflowHandle[Any, IncidentReport]:
        """The incident of a node."""
        workflow_id = names.incident_id("lab", self.lab.nodes[node].instance_id)
        return self.client.get_workflow_handle(workflow_id, result_type=IncidentReport)

    async def report(self, node: str, xid: int) -> None:
        """Report a fault by hand."""
        await run(*command("report", node, "--xid", str(xid), "--json"))

    async def healed(self, node: str, xid: int) -> IncidentReport:
        """Report a fault, and wait for the end of the incident."""
        await self.report(node, xid)
        return await self.incident(node).result()

    def calls(self, node: str) -> tuple[int, int]:
        """How often a node was rebooted, and stopped."""
        instance_id, count = self.lab.nodes[node].instance_id, self.lab.endpoint.count
        return count("RebootInstances", instance_id), count("StopInstances", instance_id)

    def pages(self) -> str:
        """Everything that people were told."""
        file = self.lab.folder / "pages.jsonl"
        return file.read_text() if file.exists() else ""


async def scene(folder: Path, patch: pytest.MonkeyPatch, *, nodes: int, spares: int, **changed: str) -> AsyncIterator[Scene]:
    """Bring one up. `changed` are lines of the settings file: what stands there -> what is to."""
    async with Lab(LabOptions(folder=folder / "lab", nodes=nodes, spares=spares, boot_s=1.0)) as lab:
        for name, value in lab.environment().items():
            patch.setenv(name, value)
        file = Path(lab.environment()["HOTSPARE_CONFIG"])
        text = file.read_text()
        for before, after in changed.items():
            assert before in text
            text = text.replace(before, after)
        file.write_text(text)
        await run(*command("init", "--yes", "--json"))
        async with part(folder / "worker.log", "worker"):
            yield Scene(lab, await connect())


@pytest.fixture
async def two_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    """Two workers, no spare."""
    async for one in scene(tmp_path, monkeypatch, nodes=2, spares=0):
        yield one


@pytest.fixture
async def one_spare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    """Four workers and one spare; three may be out at once, and nobody waits long for a spare."""
    rooms = "max_nodes_out_per_job = 3\nmax_nodes_out_per_domain = 3\nmax_percent_out_per_domain = 100.0\nstorm_nodes = 9\n"
    changed = {
        "max_percent_out = 50.0\n": f"max_percent_out = 100.0\n{rooms}",
        "replace_deadline_s = 120.0": "replace_deadline_s = 30.0",
    }
    async for one in scene(tmp_path, monkeypatch, nodes=4, spares=1, **changed):
        yield one


async def test_a_node_that_comes_back_on_the_same_bad_host_has_not_been_helped(two_nodes: Scene) -> None:
    """Its GPUs have the serial numbers that they had before the stop."""
    node = two_nodes.lab.nodes["node-2"]
    node.stays_on_host = True
    well = await two_nodes.healed("node-2", 79)  # a look while all is well: after XID 79 no GPU may be asked
    assert well.fate == ""
    await two_nodes.lab.inject("node-2", Fault(xid=79, cure=Cure.POWER_CYCLE.value))
    report = await two_nodes.healed("node-2", 79)
    assert report.fate == "retired"
    assert any("POWER_CYCLE: did not help: it is on the same host" in line for line in report.story), report.story
    assert two_nodes.calls("node-2") == (1, 1)


async def test_a_fault_that_comes_back_on_probation_starts_one_rung_up(two_nodes: Scene) -> None:
    """XID 169: its repeats have no rule of their own."""
    await two_nodes.lab.inject("node-2", Fault(xid=169, text="SEC2 halted", cure=Cure.REBOOT.value))
    assert (await two_nodes.healed("node-2", 169)).fate == "back in service"
    assert two_nodes.calls("node-2") == (1, 0)
    await two_nodes.lab.inject("node-2", Fault(xid=169, text="SEC2 halted", cure=Cure.POWER_CYCLE.value))
    report = await two_nodes.healed("node-2", 169)
    assert report.fate == "back in service"
    assert two_nodes.calls("node-2") == (1, 1)


@pytest.fixture
async def short_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    """Two workers and a spare, whose pass is good for a third of a second."""
    passes = "\n[spares]\nqualified_h = 0.0001\ntrust_h = 0.0\n\n[sweep]"
    async for one in scene(tmp_path, monkeypatch, nodes=2, spares=1, **{"\n[sweep]": passes}):
        yield one


async def test_a_spare_whose_pass_is_too_old_is_tested_whole_before_it_joins(short_passes: Scene) -> None:
    lab, client = short_passes.lab, short_passes.client
    start, queue = StartSweep(cluster="lab"), names.QUEUE_WORKFLOWS
    await client.execute_workflow(names.WORKFLOW_SWEEP, start, id="sweep-by-hand", task_queue=queue)
    tested = client.get_workflow_handle(names.qualify_id("lab", lab.nodes["spare-1"].instance_id), result_type=Qualification)
    assert (await tested.result()).verdict.value == "OK"
    await lab.inject("node-2", Fault(xid=64, cure=Cure.NEVER.value))
    report = await short_passes.healed("node-2", 64)
    assert (report.outcome, "spare-1" in lab.job.node_names) == ("resolved", True)
    replacement = client.get_workflow_handle(names.replace_id("lab", lab.nodes["node-2"].instance_id))
    story = {line["phase"]: line["text"] for line in await replacement.query("story")}
    assert "its qualification has expired" in story["leased"]
    assert "GB/s" in story["passed"]


async def test_three_nodes_at_once_and_one_spare_one_gets_it_and_the_others_say_that_there_is_none(one_spare: Scene) -> None:
    ill = ("node-1", "node-2", "node-3")
    for name in ill:
        await one_spare.lab.inject(name, Fault(xid=64, cure=Cure.NEVER.value))
    await asyncio.gather(*(one_spare.report(name, 64) for name in ill))

    while "train stays held" not in one_spare.pages():  # noqa: ASYNC110  (the pager has no event to wait for)
        await asyncio.sleep(0.05)
    spare = one_spare.lab.nodes["spare-1"].instance_id
    seen = await Reach(one_spare.lab).ec2("describe_instances", InstanceIds=[spare])
    tags = {tag["Key"]: tag["Value"] for tag in seen["Reservations"][0]["Instances"][0]["Tags"]}
    assert tags[names.TAG_LEASE] in {names.replace_id("lab", one_spare.lab.nodes[name].instance_id) for name in ill}
    told = one_spare.pages()
    assert sum(f"nothing comes in place of {name}: " in told for name in ill) == 2
    assert "no spare is free (spare-1: leased)" in told or "the pool has no spare" in told
