"""Test events by webhook and by queue: observed once under a name of their own, no node looked at, nobody paged."""

from __future__ import annotations

import json
from typing import Any

import pytest

from activities.errors import BadInput, ProviderBusy
from activities.names import unresolved_id
from tests.workers.fakes import FakeGateway, FakeInventory, FakePager, node
from tests.workers.test_intake_alerts import alert
from workers.intake.alerts import TEST_LABEL, read_notification
from workers.intake.aws_events import read_event
from workers.intake.delivery import Delivery
from workers.intake.queue import EventReader
from workers.intake.trial import alertmanager_message, alias_of, queue_message
from workers.intake.unknown import UnknownNodePager
from workers.sections import IntakeMapping, IntakeSettings

ID = "0123456789ab"


class World:
    """The intake's delivery over stand-ins."""

    def __init__(self) -> None:
        self.inventory, self.gateway, self.pager = FakeInventory(node(1)), FakeGateway(), FakePager()
        pager = UnknownNodePager("lab", self.pager, 3600)
        self.delivery = Delivery("lab", self.inventory, self.gateway, self.gateway, pager, IntakeSettings())

    def nothing_was_done(self) -> bool:
        return not (self.gateway.reports or self.pager.pages or self.inventory.resolved)


async def test_a_test_alert_is_observed_once_however_often_it_comes() -> None:
    world = World()
    message = read_notification(alertmanager_message(ID), IntakeMapping())
    first, second = await world.delivery.deliver(message), await world.delivery.deliver(message)
    assert first.tests == second.tests == [unresolved_id("lab", alias_of(ID))]
    assert world.gateway.calls == {"observe": 1}
    assert world.nothing_was_done()
    assert (first.taken, first.unknown_nodes) == (0, [])


async def test_a_test_in_the_queue_goes_the_same_way() -> None:
    world = World()
    reader = EventReader("lab", None, world.inventory, world.delivery, world.pager)  # type: ignore[arg-type]
    await reader.handle(queue_message(ID))
    assert world.gateway.calls == {"observe": 1}
    assert world.nothing_was_done()


async def test_a_test_that_temporal_does_not_take_is_an_error_to_who_sent_it(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()

    async def away(*_: object) -> None:
        raise ProviderBusy("Temporal does not answer")

    monkeypatch.setattr(world.gateway, "observe", away)
    with pytest.raises(ProviderBusy):
        await world.delivery.deliver(read_notification(alertmanager_message(ID), IntakeMapping()))


async def test_alerts_beside_a_test_are_taken_as_ever() -> None:
    world = World()
    body = alertmanager_message(ID)
    body["alerts"].append(alert({"Hostname": "node-1", "xid": "79"}))
    summary = await world.delivery.deliver(read_notification(body, IntakeMapping()))
    assert (summary.taken, len(summary.tests)) == (1, 1)


@pytest.mark.parametrize("test_id", ["", "short", "../../incident", "UPPERCASE-IS-NONE", "x" * 65, 7, None])
def test_an_id_that_could_be_something_else_is_no_test_and_no_alert(test_id: Any) -> None:
    message = read_notification({"version": "4", "alerts": [alert({TEST_LABEL: test_id, "Hostname": "node-1"})]}, IntakeMapping())
    assert (message.tests, message.alerts, len(message.unreadable)) == ([], [], 1)
    with pytest.raises(BadInput):
        read_event(json.dumps({"source": "x", "detail-type": "Hotspare Test", "detail": {"test": test_id}}))
