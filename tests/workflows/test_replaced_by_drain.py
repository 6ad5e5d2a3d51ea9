"""Where a drained node is replaced, an incident drains last: after the evidence, with a repair slot, once, and sees it gone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from activities import names
from activities.clients.fake_machine import Cure, FakeFault
from activities.errors import CommandFailed, PreconditionFailed
from tests.workflows.healing import Healing, healing
from workflows.cluster_messages import AskKind, ClusterState, FreezeRequest, ThawRequest
from workflows.messages import Word

DRAIN = "drain_for_replacement"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Healing]:
    """Four nodes with a job and one spare, under a daemon that replaces drained nodes."""
    async with healing(tmp_path) as one:
        one.fleet.drain_replaces = True
        yield one


async def broken(cluster: Healing) -> Any:
    """Report a node that nothing mends; return its incident."""
    cluster.fleet.inject("node-3", FakeFault(xid=64, cure=Cure.NEVER))
    return await cluster.report("node-3", xid=64)


async def books(cluster: Healing) -> ClusterState:
    """What Cluster has granted and what waits."""
    return (await cluster.overview()).state


async def phases(handle: Any) -> list[str]:
    """The phases of an incident's story, in order."""
    return [line["phase"] for line in await handle.query("story")]


def state(cluster: Healing) -> str:
    """State of the node's instance in EC2."""
    return cluster.fleet.machines["node-3"].state


async def test_a_spare_runs_the_job_and_the_evidence_is_kept_before_the_node_is_drained(cluster: Healing) -> None:
    fleet = cluster.fleet
    draining = fleet.hold(DRAIN, "node-3")
    handle = await broken(cluster)
    await draining.reached()
    (bundle,) = (cluster.folder / "evidence").glob("*.tar.gz")
    assert fleet.job.status("train").nodes == ["node-1", "node-2", "spare-1", "node-4"]
    slots = [one.instance_id for one in (await books(cluster)).grants if one.kind is AskKind.REPAIR_SLOT]
    assert slots == [fleet.entries[2].instance_id]
    assert state(cluster) == "running"
    draining.release()
    report = await handle.result()
    assert (report.outcome, report.fate) == ("resolved", names.FATE_REPLACED)
    assert (state(cluster), fleet.count(DRAIN)) == ("terminated", 1)
    told = await phases(handle)
    assert told.index("evidence") < told.index("drained") < told.index("given up")
    assert any("given up" in line and bundle.name in line for line in report.story)
    assert [one.kind for one in (await books(cluster)).grants if one.asker == handle.id] == []
    assert fleet.memory.recall(fleet.entries[2].instance_id).fate == names.FATE_REPLACED


async def test_a_freeze_holds_the_drain_up_and_not_the_job(cluster: Healing) -> None:
    fleet = cluster.fleet
    resuming = fleet.hold("job.resume")
    handle = await broken(cluster)
    await resuming.reached()
    keeper = cluster.client.get_workflow_handle(names.cluster_id(fleet.cluster))
    await keeper.execute_update("freeze", FreezeRequest(who="ann", why="the last epoch", minutes=60))
    resuming.release()
    await cluster.told(handle, "waiting")
    assert [(ask.kind, ask.asker) for ask in (await books(cluster)).queue] == [(AskKind.REPAIR_SLOT, handle.id)]
    assert (fleet.count(DRAIN), state(cluster)) == (0, "running")
    assert fleet.job.status("train").nodes == ["node-1", "node-2", "spare-1", "node-4"]
    await keeper.execute_update("thaw", ThawRequest(who="ann"))
    assert (await handle.result()).fate == names.FATE_REPLACED
    assert fleet.count(DRAIN) == 1


async def test_a_node_without_an_evidence_bundle_is_retired_and_not_drained(cluster: Healing) -> None:
    (cluster.folder / "evidence").write_text("no folder, so nothing can be kept here")
    handle = await broken(cluster)
    report = await handle.result()
    assert report.fate == names.FATE_RETIRED
    assert any("evidence is not saved" in line for line in report.story)
    assert (cluster.fleet.count(DRAIN), state(cluster)) == (0, "running")


async def test_a_drain_that_is_refused_leaves_the_node_quarantined_and_a_person_hears_why(cluster: Healing) -> None:
    cluster.fleet.fail_next(DRAIN, PreconditionFailed("node-3 is MIXED: a job is still there; hold it first"))
    report = await (await broken(cluster)).result()
    assert (report.outcome, report.fate, state(cluster)) == ("resolved", names.FATE_RETIRED, "running")
    assert cluster.tags("node-3")[names.TAG_QUARANTINE]
    assert any("a job is still there" in line for page in cluster.fleet.pages for line in page.why)


async def test_a_drain_whose_answer_is_lost_is_looked_for_and_not_made_again(cluster: Healing) -> None:
    fleet = cluster.fleet
    real = fleet.replace_by_drain
    tries = []

    def lost(node: Any, owner: str) -> None:
        tries.append(node.name)
        real(node, owner)
        raise CommandFailed("the connection to the head node broke")

    fleet.replace_by_drain = lost  # type: ignore[method-assign]
    report = await (await broken(cluster)).result()
    assert (report.fate, tries, state(cluster)) == (names.FATE_REPLACED, ["node-3"], "terminated")


async def test_a_drained_node_that_nobody_replaces_is_a_persons(cluster: Healing) -> None:
    fleet = cluster.fleet
    fleet.replace_by_drain = lambda node, owner: None  # type: ignore[method-assign]
    report = await (await broken(cluster)).result()
    assert (report.outcome, report.fate) == ("resolved", names.FATE_RETIRED)
    assert any("clustermgtd" in line for page in fleet.pages for line in page.why)
    assert cluster.tags("node-3")[names.TAG_QUARANTINE]


async def test_a_node_that_a_person_takes_over_before_the_drain_is_left_to_them(cluster: Healing) -> None:
    fleet = cluster.fleet
    resuming = fleet.hold("job.resume")
    handle = await broken(cluster)
    await resuming.reached()
    await handle.execute_update("take_over", Word(by="dana", reason="the maker wants to see it"))
    resuming.release()
    await cluster.told(handle, "asks a person")
    assert (fleet.count(DRAIN), state(cluster)) == (0, "running")
