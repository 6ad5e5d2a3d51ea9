"""A cancel does what its dry run said: the state of the node that was told beforehand is the one that is left."""

from __future__ import annotations

from pathlib import Path

import pytest
from temporalio.client import WorkflowFailureError

from activities import names
from activities.clients.fake_machine import Cure, FakeFault
from tests.workflows.healing import Healing, healing
from workflows.decisions.cancelling import CancelPlan, cancel_plan
from workflows.decisions.facts import Facts
from workflows.decisions.settings import Mode, PolicySettings
from workflows.incident import WORDS_KEPT
from workflows.messages import Word

ASKING = PolicySettings(mode=Mode.APPROVE)


async def cancelled(cluster: Healing, fault: FakeFault, phase: str) -> tuple[CancelPlan, list[str]]:
    """Cancel the incident of node-2 in a phase; returns what was said beforehand, and the story as it is remembered."""
    cluster.fleet.inject("node-2", fault)
    handle = await cluster.report("node-2", xid=fault.xid)
    await cluster.told(handle, phase)
    known = await handle.query("facts")
    plan = cancel_plan(Facts.model_validate(known))
    await handle.cancel(reason="ann: the wrong node")
    with pytest.raises(WorkflowFailureError):
        await handle.result()
    [closed] = cluster.fleet.memory.incidents(cluster.fleet.node("node-2").instance_id)
    assert closed.outcome == "cancelled"
    assert [(one.verb, one.by, one.reason) for one in closed.said] == [("cancel", "ann", "the wrong node")]
    assert plan.node in closed.summary[-1]
    assert not (await cluster.overview()).state.grants
    return plan, closed.summary


async def test_a_cancel_while_a_person_is_asked_leaves_the_quarantine_and_tells_the_job(tmp_path: Path) -> None:
    async with healing(tmp_path, spares=0, policy=ASKING) as cluster:
        plan, story = await cancelled(cluster, FakeFault(xid=79, cure=Cure.REBOOT), "asks a person")
        assert not plan.lift_quarantine
        assert names.TAG_QUARANTINE in cluster.tags("node-2")
        assert plan.give_up_job == any("given up" in line for line in story)
        assert cluster.fleet.count("reboot") == 0


async def test_a_cancel_before_the_quarantine_leaves_the_node_in_service(tmp_path: Path) -> None:
    async with healing(tmp_path, spares=0, policy=ASKING) as cluster:
        plan, story = await cancelled(cluster, FakeFault(xid=94), "asks a person")  # its job alone is restarted
        assert "in service all along" in plan.node
        assert names.TAG_QUARANTINE not in cluster.tags("node-2")
        assert not any("given up" in line for line in story)


async def test_who_cancels_without_a_word_is_told_so(tmp_path: Path) -> None:
    async with healing(tmp_path, spares=0, policy=ASKING) as cluster:
        cluster.fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
        handle = await cluster.report("node-2", xid=79)
        await cluster.told(handle, "asks a person")
        await handle.cancel()
        with pytest.raises(WorkflowFailureError):
            await handle.result()
        [closed] = cluster.fleet.memory.incidents(cluster.fleet.node("node-2").instance_id)
        assert [(one.verb, one.by) for one in closed.said] == [("cancel", "")]
        assert any("did not say who" in line for line in closed.summary)


async def test_a_sender_that_runs_wild_fills_no_record(tmp_path: Path) -> None:
    async with healing(tmp_path, spares=0, policy=ASKING) as cluster:
        cluster.fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
        handle = await cluster.report("node-2", xid=79)
        await cluster.told(handle, "asks a person")
        for number in range(WORDS_KEPT + 10):
            await handle.execute_update("take_over", Word(by=f"bot-{number}", reason="x" * 10_000))
        await handle.cancel(reason="ann: enough")
        with pytest.raises(WorkflowFailureError):
            await handle.result()
        [closed] = cluster.fleet.memory.incidents(cluster.fleet.node("node-2").instance_id)
        assert (len(closed.said), closed.said[-1].by) == (WORDS_KEPT, "ann")
        assert len(closed.model_dump_json()) < 100_000
