"""Partners of a proof: lent by Cluster while the burn-in runs, nobody else's meanwhile, and free again however the proof ends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from temporalio.client import WorkflowExecutionStatus

from activities import names
from activities.clients.fake_machine import Cure, FakeFault
from activities.clients.fake_points import Hold
from activities.jobs.protocol import RestartedBy
from tests.workflows.healing import Healing, healing
from workflows.cluster_messages import AskKind
from workflows.decisions.settings import ClusterSettings

TWO_OUT = ClusterSettings(max_nodes_out=3, max_percent_out=50.0)


@pytest.fixture
async def controlled(tmp_path: Path) -> AsyncIterator[Healing]:
    """Four workers whose job a controller restarts, and two spares."""
    async with healing(tmp_path, spares=2, limits=TWO_OUT) as one:
        one.fleet.job.restarted_by = RestartedBy.CONTROLLER
        yield one


async def proving(cluster: Healing, alias: str = "node-3") -> tuple[Hold, object]:
    """An incident in the middle of its spare's proof: spare-1 is leased, spare-2 its partner."""
    cluster.fleet.inject(alias, FakeFault(xid=64, cure=Cure.NEVER))
    running = cluster.fleet.hold("group.start")
    handle = await cluster.report(alias, xid=64)
    await running.reached()
    assert await lent(cluster) == ["spare-2"]
    return running, handle


async def lent(cluster: Healing) -> list[str]:
    """Names of the spares that the books have lent to a burn-in."""
    grants = (await cluster.overview()).state.grants
    return [cluster.fleet.node(one).name for grant in grants for one in grant.partners]


async def spare_wanted(cluster: Healing) -> bool:
    """Whether somebody waits in the queue for a spare."""
    return [ask.kind for ask in (await cluster.overview()).state.queue] == [AskKind.SPARE]


async def given_back(cluster: Healing) -> None:
    async def is_back() -> bool:
        return not await lent(cluster)

    await cluster.until(is_back)


async def test_a_partner_goes_back_when_the_proof_is_over(controlled: Healing) -> None:
    running, handle = await proving(controlled)
    supplying = controlled.fleet.hold("job.supply")
    running.release()
    await supplying.reached()
    assert await lent(controlled) == []
    supplying.release()
    assert (await handle.result()).outcome == "resolved"  # type: ignore[attr-defined]


async def test_another_incident_waits_for_a_partner_and_gets_it_afterwards(controlled: Healing) -> None:
    fleet = controlled.fleet
    running, first = await proving(controlled)
    fleet.inject("node-2", FakeFault(xid=64, cure=Cure.NEVER))
    second = await controlled.report("node-2", xid=64)
    replacement = controlled.client.get_workflow_handle(names.replace_id(fleet.cluster, fleet.node("node-2").instance_id))
    await controlled.until(lambda: spare_wanted(controlled))
    running.release()
    await controlled.told(replacement, "attached")
    assert controlled.tags("spare-2")[names.TAG_LEASE] == replacement.id
    await controlled.told(second, "asks a person")  # no spare is left to prove spare-2 with
    assert "spare-2" not in fleet.job.supplied
    await first.cancel()  # type: ignore[attr-defined]


async def test_who_is_called_away_from_that_wait_gets_no_spare_later(controlled: Healing) -> None:
    fleet = controlled.fleet
    running, first = await proving(controlled)
    fleet.inject("node-2", FakeFault(xid=64, cure=Cure.NEVER))
    second = await controlled.report("node-2", xid=64)
    replacement = controlled.client.get_workflow_handle(names.replace_id(fleet.cluster, fleet.node("node-2").instance_id))
    await controlled.until(lambda: spare_wanted(controlled))
    await replacement.cancel()

    async def nobody_waits() -> bool:
        return not (await controlled.overview()).state.queue

    await controlled.until(nobody_waits)
    await second.cancel()
    running.release()
    await first.result()  # type: ignore[attr-defined]
    assert names.TAG_LEASE not in controlled.tags("spare-2")
    booked = [grant.spare_id for grant in (await controlled.overview()).state.grants]
    assert fleet.node("spare-2").instance_id not in booked


async def test_a_cancelled_proof_stops_its_burn_in_and_gives_the_partner_back(controlled: Healing) -> None:
    running, handle = await proving(controlled)
    await handle.cancel()  # type: ignore[attr-defined]
    running.release()
    await given_back(controlled)

    async def ended() -> bool:
        return (await handle.describe()).status is WorkflowExecutionStatus.CANCELED  # type: ignore[attr-defined]

    await controlled.until(ended)
    assert controlled.fleet.job.supplied == []


async def test_the_partner_of_an_incident_that_was_terminated_is_free_again(controlled: Healing) -> None:
    running, handle = await proving(controlled)
    await handle.terminate("by mistake")  # type: ignore[attr-defined]
    running.release()
    keeper = controlled.client.get_workflow_handle(names.cluster_id(controlled.fleet.cluster))
    await controlled.env.fast_forward(keeper, 1300)
    await given_back(controlled)


async def test_a_keeper_that_lost_its_books_hears_of_the_partner(controlled: Healing) -> None:
    running, handle = await proving(controlled)
    keeper = controlled.client.get_workflow_handle(names.cluster_id(controlled.fleet.cluster))
    await keeper.terminate("by mistake")
    await controlled.gateway.ensure_cluster(controlled.fleet.cluster)

    async def known_again() -> bool:
        overview = await controlled.overview()
        return not overview.recovering and await lent(controlled) == ["spare-2"]

    await controlled.until(known_again)
    running.release()
    assert (await handle.result()).outcome == "resolved"  # type: ignore[attr-defined]
    await given_back(controlled)
