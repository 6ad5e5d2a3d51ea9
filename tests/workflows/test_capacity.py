"""EC2's capacity in an incident: a slot that is not given up, one that a person risks, and a stopped node that waits to start."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.client import WorkflowFailureError, WorkflowHandle

from activities import names
from activities.capacity import Reservation
from activities.clients.fake_machine import Cure, FakeFault
from activities.errors import AccessRefused, NoCapacity, ProviderBusy
from tests.workflows.healing import Healing
from workflows.messages import IncidentReport, Word

POWER_CYCLE = FakeFault(xid=79, cure=Cure.POWER_CYCLE)
NONE_LEFT = NoCapacity("EC2: start: InsufficientInstanceCapacity: no p5.48xlarge in us-east-1a")
NODES = ("node-1", "node-2", "node-3", "node-4")


def lines(report: IncidentReport, phase: str) -> list[str]:
    return [line for line in report.story if f" {phase}: " in line]


async def pause(cluster: Healing, handle: WorkflowHandle[Any, Any], number: int) -> None:
    """Wait until an incident pauses for the so-many-th time before it tries to start its node again, and let that pass."""
    seconds = cluster.policy.capacity_try_s

    async def pausing() -> bool:
        events = [event async for event in handle.fetch_history_events()]
        timers = [event.timer_started_event_attributes.start_to_fire_timeout.seconds for event in events]
        return timers.count(int(seconds)) >= number

    await cluster.until(pausing)
    await cluster.env.fast_forward(handle, seconds + 1)


async def waits(cluster: Healing, handle: WorkflowHandle[Any, Any]) -> None:
    await cluster.told(handle, "no capacity")


async def test_the_capacity_is_looked_at_before_a_stop_and_told(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    fleet.reserve(Reservation(reservation_id="cr-1", total=6), *NODES)
    fleet.inject("node-2", POWER_CYCLE)
    report = await (await no_spares.report("node-2", xid=79)).result()
    assert report.outcome == "resolved"
    assert (fleet.count("stop"), fleet.count("start_instance"), fleet.count("reservation")) == (1, 1, 1)
    [told] = lines(report, "slot")
    assert "targeted reservation cr-1: 6 slots, 2 free; usable ones besides this: 5" in told


@pytest.mark.parametrize(
    ("reservation", "nodes", "words"),
    [
        (Reservation(reservation_id="cr-1", total=1), ("node-2",), "the last usable slot of cr-1"),
        (
            Reservation(reservation_id="cr-1", total=4, kind="capacity-block", ends_at=datetime.now(UTC) + timedelta(minutes=10)),
            NODES,
            "Capacity Block cr-1 ends at",
        ),
    ],
)
async def test_a_slot_that_would_be_lost_is_not_given_up(
    no_spares: Healing, reservation: Reservation, nodes: tuple[str, ...], words: str
) -> None:
    fleet = no_spares.fleet
    fleet.reserve(reservation, *nodes)
    fleet.inject("node-2", POWER_CYCLE)
    report = await (await no_spares.report("node-2", xid=79)).result()
    assert (report.outcome, report.fate) == ("escalated", "retired")
    assert (fleet.count("reboot"), fleet.count("stop")) == (1, 0)
    assert any("POWER_CYCLE" in line and words in line for line in report.story)


async def test_a_stop_inside_an_open_reservation_waits_for_a_persons_word(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    fleet.reserve(Reservation(reservation_id="cr-1", total=6, match="open"), *NODES)
    fleet.inject("node-2", POWER_CYCLE)
    handle = await no_spares.report("node-2", xid=79)
    await no_spares.told(handle, "asks a person")
    await no_spares.paged("cr-1 is open: any matching instance")
    assert fleet.count("stop") == 0
    await handle.execute_update("approve", Word(by="ann"))
    report = await handle.result()
    assert (report.outcome, fleet.count("stop"), fleet.count("start_instance")) == ("resolved", 1, 1)


async def test_a_reservation_that_may_not_be_read_is_unknown_and_a_person_is_asked(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    fleet.reserve(Reservation(reservation_id="cr-1", total=6), *NODES)
    fleet.inject("node-2", POWER_CYCLE)
    fleet.fail_next("reservation", AccessRefused("ec2:DescribeCapacityReservations"))
    handle = await no_spares.report("node-2", xid=79)
    await no_spares.told(handle, "asks a person")
    await no_spares.paged("DescribeCapacityReservations")
    await handle.execute_update("approve", Word(by="ann"))
    assert (await handle.result()).outcome == "resolved"


async def test_a_stopped_node_waits_for_capacity_and_is_healed_when_there_is_some(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    fleet.inject("node-2", POWER_CYCLE)
    fleet.fail_next("start_instance", NONE_LEFT, times=3)
    handle = await no_spares.report("node-2", xid=79)
    await waits(no_spares, handle)
    assert fleet.machine("node-2").state == "stopped"
    for tries in (1, 2, 3):
        await pause(no_spares, handle, tries)
    report = await handle.result()
    assert (report.outcome, report.fate) == ("resolved", "back in service")
    assert (fleet.count("stop"), fleet.count("start_instance"), len(fleet.job.resumes)) == (1, 1, 1)
    assert [page for page in fleet.pages if "waits for capacity" in page.title]


async def test_a_start_whose_answer_is_lost_is_made_once_though_the_worker_is_another_by_then(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    fleet.inject("node-2", POWER_CYCLE)
    fleet.fail_next("start_instance", NONE_LEFT)
    handle = await no_spares.report("node-2", xid=79)
    await waits(no_spares, handle)
    fleet.points.lose_answer("start_instance", ProviderBusy("no clear answer"))
    await no_spares.restart_worker()
    await pause(no_spares, handle, 1)
    report = await handle.result()
    assert (report.outcome, fleet.count("start_instance"), fleet.count("stop")) == ("resolved", 1, 1)


async def test_a_node_that_somebody_starts_meanwhile_is_taken_as_it_is(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    fleet.inject("node-2", POWER_CYCLE)
    fleet.fail_next("start_instance", NONE_LEFT)
    handle = await no_spares.report("node-2", xid=79)
    await waits(no_spares, handle)
    fleet.machine("node-2").power_on()
    await pause(no_spares, handle, 1)
    report = await handle.result()
    assert (report.outcome, fleet.count("start_instance"), fleet.count("stop")) == ("resolved", 0, 1)


async def test_a_wait_for_capacity_that_is_over_ends_with_a_person_and_the_node_stopped(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    no_spares.policy = no_spares.policy.model_copy(update={"capacity_wait_s": 60.0})
    await no_spares.restart_worker()
    fleet.inject("node-2", POWER_CYCLE)
    fleet.fail_next("start_instance", NONE_LEFT, times=50)
    handle = await no_spares.report("node-2", xid=79)
    await pause(no_spares, handle, 1)
    report = await handle.result()
    assert (report.outcome, report.fate, fleet.machine("node-2").state) == ("escalated", "retired", "stopped")
    assert any("the instance is stopped, and EC2 has no capacity to start it" in line for line in report.story)


async def test_a_node_that_waits_for_capacity_can_be_cancelled_and_stays_quarantined(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    fleet.inject("node-2", POWER_CYCLE)
    fleet.fail_next("start_instance", NONE_LEFT, times=50)
    handle = await no_spares.report("node-2", xid=79)
    await waits(no_spares, handle)
    await handle.cancel()
    with pytest.raises(WorkflowFailureError):
        await handle.result()
    assert fleet.machine("node-2").state == "stopped"
    assert no_spares.tags("node-2")[names.TAG_QUARANTINE] == handle.id
    assert (await no_spares.overview()).state.grants == []
