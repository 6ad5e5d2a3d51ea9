"""ProvisionSpare: a launch becomes a spare only when it has passed; a retired node goes for it in the order that slots allow."""

from __future__ import annotations

from typing import Any

import pytest
from temporalio.client import WorkflowFailureError, WorkflowHandle

from activities import names
from activities.capacity import Reservation
from activities.clients.fake_machine import Cure, FakeFault
from activities.errors import NoCapacity, ProviderBusy, UnknownNode
from activities.inventory import Node
from tests.workflows.healing import Healing
from workflows.decisions.settings import PolicySettings
from workflows.messages import Provisioned, StartProvision

NODES = ("node-1", "node-2", "node-3", "node-4")


async def start(cluster: Healing, token: str = "t", **more: Any) -> WorkflowHandle[Any, Provisioned]:
    given = StartProvision(cluster="lab", **{"instance_type": "p5.48xlarge", **more})
    handle: WorkflowHandle[Any, Provisioned] = await cluster.client.start_workflow(
        names.WORKFLOW_PROVISION_SPARE,
        given,
        id=names.provision_id("lab", token),
        task_queue=names.QUEUE_WORKFLOWS,
        result_type=Provisioned,
    )
    return handle


async def retired(cluster: Healing, alias: str) -> str:
    """Have an incident retire a node; returns the incident."""
    cluster.fleet.inject(alias, FakeFault(xid=79, cure=Cure.NEVER))
    handle = await cluster.report(alias, xid=79)
    assert (await handle.result()).fate == "retired"
    return handle.id


async def test_a_launch_is_tested_and_joins_the_pool_once(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    testing = fleet.hold("start", "new-6")
    handle = await start(no_spares)
    await testing.reached()
    assert no_spares.tags("new-6")[names.TAG_ROLE] == names.ROLE_NEW  # no spare yet
    testing.release()
    done = await handle.result()
    assert (done.outcome, done.spare) == ("in the pool", fleet.node("new-6").instance_id)
    assert no_spares.tags("new-6")[names.TAG_ROLE] == names.ROLE_SPARE
    assert fleet.memory.recall(done.spare).qualified_at is not None
    assert (fleet.count("launch"), fleet.count("terminate")) == (1, 0)


async def test_a_launch_whose_answer_is_lost_is_made_once(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    fleet.points.lose_answer("launch", ProviderBusy("no clear answer"))
    done = await (await start(no_spares)).result()
    assert done.outcome == "in the pool"
    assert len(fleet.provision.launches) == 1
    assert [node.name for node in fleet.inventory.list("lab") if node.name.startswith("new")] == ["new-6"]


async def test_an_instance_that_is_not_visible_at_once_is_waited_for(no_spares: Healing) -> None:
    no_spares.fleet.fail_next("describe", UnknownNode("InvalidInstanceID.NotFound"), times=3)
    assert (await (await start(no_spares)).result()).outcome == "in the pool"


async def test_one_that_fails_its_test_joins_no_pool_and_a_person_is_told(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    booting = fleet.hold("boot_id", "new-6")
    handle = await start(no_spares)
    await booting.reached()
    fleet.inject("new-6", FakeFault(slow=0.3, slow_kind="intra", cure=Cure.NEVER))
    booting.release()
    done = await handle.result()
    assert done.outcome == "did not pass"
    tags = no_spares.tags("new-6")
    assert (tags[names.TAG_ROLE], tags[names.TAG_FATE]) == (names.ROLE_NEW, names.FATE_RETIRED)
    assert any("in no pool: test it, or terminate it" in why for page in fleet.pages for why in page.why)


async def test_a_retired_node_is_held_until_the_new_one_has_passed_where_slots_allow(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    fleet.reserve(Reservation(reservation_id="cr-1", total=5), *NODES)
    incident, bad = await retired(no_spares, "node-2"), fleet.node("node-2").instance_id
    testing = fleet.hold("start", "new-6")
    handle = await start(no_spares, in_place_of="node-2", incident=incident)
    await testing.reached()
    assert fleet.machines["node-2"].state == "running"
    testing.release()
    done = await handle.result()
    assert done.outcome == "in the pool"
    assert fleet.machines["node-2"].state == "terminated"
    assert fleet.ec2.reserved[done.spare] == fleet.ec2.reserved[bad] == "cr-1"


async def test_in_a_full_reservation_the_retired_node_goes_first(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    fleet.reserve(Reservation(reservation_id="cr-1", total=4), *NODES)
    incident = await retired(no_spares, "node-2")
    launching = fleet.hold("launch")
    handle = await start(no_spares, in_place_of="node-2", incident=incident)
    await launching.reached()
    assert fleet.machines["node-2"].state == "terminated"
    launching.release()
    assert (await handle.result()).outcome == "in the pool"
    assert (fleet.count("launch"), fleet.count("terminate")) == (1, 1)


@pytest.mark.parametrize(
    ("reservation", "nodes", "words"),
    [
        (Reservation(reservation_id="cr-1", total=1), ("node-2",), "the last usable slot"),
        (Reservation(reservation_id="cr-1", total=4, match="open"), NODES, "a person has not approved that"),
    ],
)
async def test_a_slot_that_may_be_lost_is_kept(
    no_spares: Healing, reservation: Reservation, nodes: tuple[str, ...], words: str
) -> None:
    fleet = no_spares.fleet
    incident = await retired(no_spares, "node-2")
    fleet.reserve(reservation, *nodes)
    done = await (await start(no_spares, in_place_of="node-2", incident=incident)).result()
    assert done.outcome == "refused"
    assert words in done.because[0]
    assert (fleet.count("launch"), fleet.count("terminate")) == (0, 0)


async def test_only_a_retired_node_of_the_incident_is_terminated(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    fleet.reserve(Reservation(reservation_id="cr-1", total=4), *NODES)
    done = await (await start(no_spares, in_place_of="node-2", incident="incident/lab/i-9")).result()
    assert done.outcome == "with a person"
    assert (fleet.count("launch"), fleet.count("terminate")) == (0, 0)
    assert fleet.machines["node-2"].state == "running"


async def test_in_observe_mode_nothing_is_launched_or_terminated_by_hand_either(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    incident = await retired(no_spares, "node-2")
    await no_spares.restart_worker(PolicySettings())
    for token, more in (("one-more", {}), ("in-place", {"in_place_of": "node-2", "incident": incident, "approved": True})):
        done = await (await start(no_spares, token, **more)).result()
        assert done.outcome == "refused"
        assert "REPLACE_NODE is only observed here" in done.because[0]
    assert (fleet.count("launch"), fleet.count("terminate"), fleet.machines["node-2"].state) == (0, 0, "running")


async def test_a_launch_that_the_inventory_never_shows_ends_with_a_person(no_spares: Healing) -> None:
    policy = no_spares.policy.model_copy(update={"listed_deadline_s": 40.0, "listed_try_s": 20.0})
    await no_spares.restart_worker(policy)
    no_spares.fleet.inventory.resolve = lambda cluster, alias: unknown(alias)  # type: ignore[method-assign]
    handle = await start(no_spares)
    for number in (1, 2):
        await no_spares.until(lambda number=number: paused(handle, 20.0, number))  # type: ignore[misc]
        await no_spares.env.fast_forward(handle, 21.0)
    done = await handle.result()
    assert done.outcome == "with a person"
    assert names.TAG_CLUSTER in done.because[0]


def unknown(alias: str) -> Node:
    raise UnknownNode(f"no node is called {alias}")


async def test_no_capacity_is_a_wait_with_the_reason_until_there_is_some(no_spares: Healing) -> None:
    fleet, seconds = no_spares.fleet, no_spares.policy.capacity_try_s
    fleet.fail_next("launch", NoCapacity("InsufficientInstanceCapacity"), times=2)
    handle = await start(no_spares)
    for number in (1, 2):
        await no_spares.until(lambda number=number: paused(handle, seconds, number))  # type: ignore[misc]
        await no_spares.env.fast_forward(handle, seconds + 1)
    assert (await handle.result()).outcome == "in the pool"
    told = [page.why[0] for page in fleet.pages if "waits for capacity" in page.title]
    assert told == ["NoCapacity: InsufficientInstanceCapacity"]


async def paused(handle: WorkflowHandle[Any, Any], seconds: float, number: int) -> bool:
    events = [event async for event in handle.fetch_history_events()]
    timers = [event.timer_started_event_attributes.start_to_fire_timeout.seconds for event in events]
    return timers.count(int(seconds)) >= number


async def test_a_cancel_says_which_instance_is_left(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    testing = fleet.hold("start", "new-6")
    handle = await start(no_spares)
    await testing.reached()
    await handle.cancel()
    testing.release()
    with pytest.raises(WorkflowFailureError):
        await handle.result()
    left = fleet.node("new-6").instance_id
    assert any(left in why for page in fleet.pages if "cancelled" in page.title for why in page.why)
    assert no_spares.tags("new-6")[names.TAG_ROLE] == names.ROLE_NEW


async def test_an_incident_that_retires_its_node_has_another_launched_where_settings_want_it(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    await no_spares.restart_worker(no_spares.policy.model_copy(update={"renew_retired": True}))
    fleet.reserve(Reservation(reservation_id="cr-1", total=4), *NODES)
    bad = fleet.node("node-2").instance_id
    await retired(no_spares, "node-2")
    handle = no_spares.client.get_workflow_handle(names.provision_id("lab", bad), result_type=Provisioned)
    done = await handle.result()
    assert done.outcome == "in the pool"
    assert (fleet.count("launch"), fleet.count("terminate")) == (1, 1)
    assert fleet.machines["node-2"].state == "terminated"
    assert fleet.machines["node-1"].state == "running"
