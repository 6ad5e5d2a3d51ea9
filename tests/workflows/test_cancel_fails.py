"""A cancel that cannot undo everything: what can be undone is, a person hears of the rest, and the incident ends all the same."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowExecutionStatus, WorkflowFailureError
from temporalio.common import RetryPolicy

from activities import names
from activities.clients.fake_machine import Cure, FakeFault
from activities.clients.temporal_gateway import TemporalGateway
from activities.errors import ProviderBusy
from activities.incidents import Joined
from tests.workflows.healing import Healing, healing
from workflows import options
from workflows.decisions.settings import Mode, PolicySettings

ONCE = RetryPolicy(maximum_attempts=1)
ALWAYS = 10_000


@pytest.fixture
async def asking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Healing]:
    """A cluster in which a person is asked before each repair, and nothing that fails is tried for half an hour."""
    async with healing(tmp_path, spares=0, policy=PolicySettings(mode=Mode.APPROVE)) as one:
        one.fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
        handle = await one.report("node-2", xid=79)
        await one.told(handle, "asks a person")
        for given in (options.LOOK_UP, options.LETTER):
            monkeypatch.setitem(given, "retry_policy", ONCE)
        yield one


async def cancelled(cluster: Healing) -> str:
    """Cancel the incident of node-2, wait for its end; returns what people were told of it."""
    handle = cluster.incident_of("node-2")
    await handle.cancel(reason="ann: the wrong node")
    with pytest.raises(WorkflowFailureError):
        await handle.result()
    assert (await handle.describe()).status is WorkflowExecutionStatus.CANCELED
    pages = [page for page in cluster.fleet.pages if page.title == "node-2: cancelled, not all undone"]
    assert all(page.next_commands for page in pages)
    return "; ".join(page.why[0] for page in pages)


def remembered(cluster: Healing) -> list[str]:
    """How the incidents of node-2 ended, as host memory has it."""
    return [one.outcome for one in cluster.fleet.memory.incidents(cluster.fleet.node("node-2").instance_id)]


async def job_told(cluster: Healing) -> bool:
    """Whether the recovery of the job has ended and told people that the job is theirs."""
    job = cluster.client.get_workflow_handle(names.job_id(cluster.fleet.cluster, "train"))
    return (await job.describe()).status is WorkflowExecutionStatus.COMPLETED


async def test_a_cancel_that_host_memory_does_not_take_gives_all_back_and_is_told(asking: Healing) -> None:
    asking.fleet.fail_next("memory.incident", ProviderBusy("the store does not answer"), times=ALWAYS)
    told = await cancelled(asking)
    assert "host memory does not know of this incident" in told
    assert "the store does not answer" in told
    assert remembered(asking) == []
    assert not (await asking.overview()).state.grants
    await asking.until(lambda: job_told(asking))


async def test_a_job_that_cannot_be_told_of_a_cancel_is_named_and_the_rest_is_done(
    asking: Healing, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound = TemporalGateway.signal

    async def busy(self: TemporalGateway, workflow_id: str, signal: str, payload: dict[str, Any]) -> bool:
        if signal == "node_given_up":
            raise ProviderBusy("Temporal did not confirm")
        return await sound(self, workflow_id, signal, payload)

    monkeypatch.setattr(TemporalGateway, "signal", busy)
    told = await cancelled(asking)
    assert "the recovery of train was not told" in told
    assert remembered(asking) == ["cancelled"]
    assert not (await asking.overview()).state.grants


async def test_a_cluster_that_cannot_be_told_of_a_cancel_is_named_and_the_rest_is_done(
    asking: Healing, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound = TemporalGateway.signal_cluster

    async def busy(self: TemporalGateway, cluster: str, signal: str, payload: dict[str, Any]) -> Joined:
        if signal == "give_back":
            raise ProviderBusy("Temporal did not confirm")
        return await sound(self, cluster, signal, payload)

    monkeypatch.setattr(TemporalGateway, "signal_cluster", busy)
    told = await cancelled(asking)
    assert "what Cluster has granted was not given back" in told
    assert remembered(asking) == ["cancelled"]
    await asking.until(lambda: job_told(asking))
    keeper = asking.client.get_workflow_handle(names.cluster_id(asking.fleet.cluster))
    await asking.env.fast_forward(keeper, 1300)

    async def booked_off() -> bool:
        return not (await asking.overview()).state.grants

    await asking.until(booked_off)


async def test_a_quarantine_that_cannot_be_lifted_stays_with_a_person(asking: Healing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(options.MARK, "retry_policy", ONCE)
    fleet = asking.fleet
    fleet.machine("node-2").reboot()
    fleet.machine("node-2").looks_until_up = 0
    testing = fleet.hold("start", "node-2")
    await asking.report("node-2", xid=79, resolved=True, key="resolved")
    await testing.reached()
    fleet.fail_next("run.quarantine_remove", ProviderBusy("the head node does not answer"), times=ALWAYS)
    handle = asking.incident_of("node-2")
    await handle.cancel(reason="ann: it is well")
    testing.release()
    told = await cancelled(asking)
    assert "the quarantine was not lifted" in told
    assert remembered(asking) == ["cancelled"]
    assert fleet.memory.recall(fleet.node("node-2").instance_id).fate == names.FATE_WITH_PERSON
