"""What AWS tells about instances: read as its pages show it, turned into a look at a node or a page, let go only when done."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from activities.errors import BadInput, ProviderBusy
from activities.event_queue import QueuedEvent
from activities.inventory import Node
from infra.lab.kube.components import wait_for
from tests.workers.fakes import FakeGateway, FakeInventory, FakePager, node
from workers.intake.aws_events import read_event
from workers.intake.delivery import Delivery
from workers.intake.queue import EventReader
from workers.intake.unknown import UnknownNodePager
from workers.sections import IntakeSettings


def event(kind: str, detail: dict[str, Any], source: str = "aws.ec2", **more: Any) -> str:
    envelope = {"version": "0", "id": "6f1c3e0a", "account": "123456789012", "region": "us-west-2", "resources": []}
    return json.dumps(
        {**envelope, "time": "2026-08-22T10:01:00Z", "source": source, "detail-type": kind, "detail": detail, **more}
    )


def state(word: str, instance: str = "i-001") -> str:
    return event("EC2 Instance State-change Notification", {"instance-id": instance, "state": word})


def health(*instances: str, **more: Any) -> str:
    detail = {
        "service": "EC2",
        "eventTypeCode": "AWS_EC2_PERSISTENT_INSTANCE_RETIREMENT_SCHEDULED",
        "eventTypeCategory": "scheduledChange",
        "eventScopeCode": "ACCOUNT_SPECIFIC",
        "communicationId": "1234abc",
        "startTime": "Sat, 05 Sep 2026 15:00:00 GMT",
        "statusCode": "upcoming",
        "eventDescription": [{"language": "en_US", "latestDescription": "Your instance is scheduled to be stopped."}],
        "affectedEntities": [{"entityValue": one, "status": "PENDING"} for one in instances],
        "page": "1",
    }
    return event("AWS Health Event", {**detail, **more}, "aws.health")


SPOT = event("EC2 Spot Instance Interruption Warning", {"instance-id": "i-001", "instance-action": "terminate"})
BLOCK = {"capacity-reservation-id": "cr-1", "end-date": "2026-08-22T11:30:00Z"}
UNHEALTHY = {"HealthStatus": "Unhealthy", "HealthStatusReason": "NvidiaErrorTerminate", "RepairAction": "None"}


class FakeQueue:
    """Messages that stay until they are done. `away` makes it fail."""

    def __init__(self, *bodies: str) -> None:
        self.waiting = [QueuedEvent(body, f"receipt-{number}") for number, body in enumerate(bodies)]
        self.receptions = 0
        self.away = False

    def receive(self) -> list[QueuedEvent]:
        self.receptions += 1
        if self.away:
            raise ProviderBusy("SQS does not answer")
        return list(self.waiting)

    def done(self, event: QueuedEvent) -> None:
        self.waiting.remove(event)


class World:
    """The reader of the queue, and three nodes: the first serves, the second is quarantined, the third is in a Capacity Block."""

    def __init__(self, *bodies: str) -> None:
        first, second, third = node(1), node(2), node(3)
        nodes: list[Node] = [
            first,
            second.model_copy(update={"quarantine": "incident/lab/i-002"}),
            third.model_copy(update={"reservation": "cr-1"}),
        ]
        self.queue = FakeQueue(*bodies)
        self.gateway, self.pager, self.inventory = FakeGateway(), FakePager(), FakeInventory(*nodes)
        settings = IntakeSettings()
        unknown = UnknownNodePager("lab", self.pager, settings.unknown_page_again_s)
        delivery = Delivery("lab", self.inventory, self.gateway, self.gateway, unknown, settings)
        self.reader = EventReader("lab", self.queue, self.inventory, delivery, self.pager, again_s=0.0)

    @property
    def reported(self) -> list[str]:
        return [instance_id for instance_id, _ in self.gateway.reports]

    @property
    def paged(self) -> list[str]:
        return [page.title for page in self.pager.pages]


@pytest.mark.parametrize(
    ("body", "reported", "paged"),
    [
        (health("i-001", "i-999"), ["i-001"], ["node-1: AWS Health: AWS_EC2_PERSISTENT_INSTANCE_RETIREMENT_SCHEDULED, from Sat"]),
        (health("i-001", eventScopeCode="PUBLIC"), [], []),
        (health("i-001", statusCode="closed"), [], []),
        (health("i-001", eventTypeCategory="accountNotification"), [], []),
        (state("stopped"), [], ["node-1: EC2 says that the instance is stopped"]),
        (state("stopped", "i-002"), [], []),  # quarantined: it is we who stop it
        (state("stopped", "i-999"), [], []),
        (state("terminated"), [], []),
        (SPOT, [], ["node-1: EC2 Spot Instance Interruption Warning: AWS will terminate the instance within minutes"]),
        (event("Capacity Block Reservation Expiration Warning", BLOCK), [], ["cr-1: Capacity Block Reservation Expiration"]),
        (event("Capacity Block Expiration Warning", {**BLOCK, "capacity-reservation-id": "cr-2"}), [], []),
        (
            event("SageMaker HyperPod Cluster Node Health Event", {"InstanceId": "i-001", "HealthSummary": UNHEALTHY}),
            ["i-001"],
            [],
        ),
        (
            event(
                "SageMaker HyperPod Cluster Node Health Event",
                {"InstanceId": "i-001", "HealthSummary": {"HealthStatus": "Healthy"}},
            ),
            [],
            [],
        ),
        (event("EC2 Instance Terminate Successful", {"EC2InstanceId": "i-001", "AutoScalingGroupName": "gpus"}), [], []),
        (event("Something New", {"instance-id": "i-001"}), [], []),
    ],
)
async def test_an_event_becomes_a_look_a_page_or_nothing(body: str, reported: list[str], paged: list[str]) -> None:
    world = World()
    await world.reader.handle(body)
    assert world.reported == reported
    assert [title.startswith(begin) for title, begin in zip(world.paged, paged, strict=True)] == [True] * len(paged)


async def test_the_report_says_what_aws_says_and_when() -> None:
    world = World()
    await world.reader.handle(health("i-001"))
    ((_, start),) = world.gateway.reports
    assert start.report is not None
    assert (start.report.source, start.report.key) == ("eventbridge", "1234abc/1/i-001")
    assert start.report.what.startswith("AWS Health: AWS_EC2_PERSISTENT_INSTANCE_RETIREMENT_SCHEDULED")
    assert start.report.seen_at is not None
    assert world.pager.pages[0].why[0] == "Your instance is scheduled to be stopped."


async def test_the_same_event_again_is_one_report_and_one_page() -> None:
    world = World()
    for _ in range(3):
        await world.reader.handle(health("i-001"))
    assert (len(world.reported), len(world.paged)) == (1, 1)


async def test_an_event_through_sns_is_unwrapped() -> None:
    wrapped = json.dumps(
        {"Type": "Notification", "TopicArn": "arn:aws:sns:us-west-2:123456789012:x", "Message": state("stopped")}
    )
    assert read_event(wrapped) == read_event(state("stopped"))


@pytest.mark.parametrize(
    "body", ["", "[]", "null", "{}", '{"source": "aws.ec2"}', '{"source": 1, "detail-type": "x", "detail": {}}', "[" * 5000]
)
def test_what_is_no_event_is_said_to_be_none(body: str) -> None:
    with pytest.raises(BadInput, match="is no"):
        read_event(body)


@pytest.mark.parametrize(
    "kind", ["AWS Health Event", "SageMaker HyperPod Cluster Node Health Event", "Capacity Block Expiration Warning"]
)
@pytest.mark.parametrize("junk", [None, 7, "x", [], [None], {"x": [1]}])
def test_a_field_of_another_kind_than_expected_ends_nothing(kind: str, junk: Any) -> None:
    fields = (
        "affectedEntities",
        "eventDescription",
        "HealthSummary",
        "InstanceId",
        "capacity-reservation-id",
        "eventTypeCode",
        "page",
    )
    assert read_event(event(kind, dict.fromkeys(fields, junk), time=junk)).instances == ()


async def run_until(world: World, happened: Any) -> None:
    """Read the queue until something has happened."""
    stop = asyncio.Event()
    running = asyncio.ensure_future(world.reader.run(stop))

    async def look() -> bool:
        return bool(happened())

    try:
        await wait_for("the reader of the queue", look)
    finally:
        stop.set()
        await running


async def test_a_message_goes_when_it_is_handled_and_one_of_another_cluster_at_once() -> None:
    world = World(health("i-001"), state("stopped", "i-999"))
    await run_until(world, lambda: not world.queue.waiting)
    assert world.reported == ["i-001"]


async def test_a_message_that_cannot_be_read_stays_and_holds_up_no_other() -> None:
    world = World("nonsense", health("i-001"))
    await run_until(world, lambda: len(world.queue.waiting) == 1)
    assert world.queue.waiting[0].body == "nonsense"
    assert world.reported == ["i-001"]


async def test_a_message_stays_until_temporal_has_its_report() -> None:
    world = World(health("i-001"))
    world.gateway.away = True
    await run_until(world, lambda: world.gateway.calls["report_fault"] >= 2)
    assert len(world.queue.waiting) == 1
    world.gateway.away = False
    await run_until(world, lambda: not world.queue.waiting)
    assert world.reported == ["i-001"]


async def test_a_message_stays_while_nobody_knows_whose_instance_it_is() -> None:
    world = World(health("i-001"))
    world.inventory.away = True
    await run_until(world, lambda: world.inventory.resolved["i-001"] >= 2)
    assert len(world.queue.waiting) == 1


async def test_a_mistake_of_ours_in_one_message_costs_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(health("i-002"), health("i-001"))
    resolve = world.inventory.resolve

    def mistaken(cluster: str, alias: str) -> Node:
        if alias == "i-002":
            raise KeyError(alias)
        return resolve(cluster, alias)

    monkeypatch.setattr(world.inventory, "resolve", mistaken)
    await run_until(world, lambda: len(world.queue.waiting) == 1)
    assert world.reported == ["i-001"]


async def test_a_queue_that_does_not_answer_is_said_once_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    world = World(health("i-001"))
    world.queue.away = True
    await run_until(world, lambda: world.queue.receptions >= 3)
    assert caplog.text.count("SQS does not answer") == 1
    world.queue.away = False
    await run_until(world, lambda: not world.queue.waiting)
