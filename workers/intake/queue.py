"""Takes events off AWS' queue: finds the nodes, hands reports on, pages, and only then lets the message go.

A message that cannot be read, or delivered, stays: the queue shows it again, and in the end puts it where a person looks. Most
events are of instances that are not of this cluster, as EventBridge cannot match tags; they are let go without a word.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from activities.errors import BadInput, FinalError, HotspareError, TransientError, UnknownNode
from activities.event_queue import EventQueue, QueuedEvent
from activities.inventory import Inventory, Node
from activities.node_messages import Report
from activities.notify import Notifier, Page
from workers.intake.alerts import Alert, Notification
from workers.intake.aws_events import AwsEvent, read_event
from workers.intake.delivery import Summary

logger = logging.getLogger(__name__)

AGAIN_S = 10.0
"""Seconds between tries while the queue does not answer. Hotspare default: events keep for days."""
PAGED_AGAIN_S = 86_400.0
"""The same event of the same node pages once within so many seconds: the queue delivers at least once, Health repeats itself.
Hotspare default: a day."""


class Delivers(Protocol):
    """What hands reports to Temporal: `Delivery`."""

    async def deliver(self, message: Notification) -> Summary: ...


class EventReader:
    """Reads the queue of one cluster until it is told to stop."""

    def __init__(
        self,
        cluster: str,
        queue: EventQueue,
        inventory: Inventory,
        delivery: Delivers,
        notifier: Notifier,
        clock: Callable[[], float] = time.monotonic,
        again_s: float = AGAIN_S,
    ) -> None:
        self._cluster, self._queue, self._inventory = cluster, queue, inventory
        self._delivery, self._notifier = delivery, notifier
        self._clock, self._again_s = clock, again_s
        self._paged: dict[str, float] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Read until `stop` is set. A queue that does not answer is tried again for ever, and said once."""
        said = ""
        while not stop.is_set():
            try:
                received = await asyncio.to_thread(self._queue.receive)
                said = ""
            except HotspareError as error:
                if str(error) != said:
                    logger.warning("what AWS tells about instances is not heard just now: %s", error)
                said = str(error)
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), self._again_s)
                continue
            await asyncio.gather(*(self._take(event) for event in received))

    async def _take(self, event: QueuedEvent) -> None:
        try:
            await self.handle(event.body)
            await asyncio.to_thread(self._queue.done, event)
        except BadInput as error:
            logger.warning("a message of the queue stays there: it %s", error)
        except (TransientError, FinalError, TimeoutError) as error:
            logger.warning("a message of the queue stays there until it can be handled: %s", error)
        except Exception:  # a mistake of ours in one message must not make us deaf for all others
            logger.exception("a message of the queue stays there")

    async def handle(self, body: str) -> None:
        """Do what one message asks for. Raises BadInput for what is no event, other errors when it has to come again."""
        event = read_event(body)
        if event.test:
            await self._delivery.deliver(Notification([], [], 0, [event.test]))
            return
        nodes = await asyncio.to_thread(self._nodes_of, event)
        if not nodes:
            logger.debug("no node of cluster %s: %s", self._cluster, event.what)
            return
        logger.info("%s: %s", ", ".join(node.name for node in nodes), event.what)
        if event.report:
            alerts = [Alert(node.instance_id, self._report(event, node)) for node in nodes]
            await self._delivery.deliver(Notification(alerts, [], 0))
        if event.page:
            for node in nodes[:1] if event.reservation else nodes:
                if not (event.unless_ours and node.quarantine):
                    await self._tell(event, node)

    def _nodes_of(self, event: AwsEvent) -> list[Node]:
        if event.reservation:
            return [node for node in self._inventory.list(self._cluster) if node.reservation == event.reservation]
        found = []
        for instance_id in event.instances:
            with suppress(UnknownNode):
                found.append(self._inventory.resolve(self._cluster, instance_id))
        return found

    def _report(self, event: AwsEvent, node: Node) -> Report:
        return Report(source="eventbridge", key=f"{event.key}/{node.instance_id}"[:200], what=event.what, seen_at=event.seen_at)

    async def _tell(self, event: AwsEvent, node: Node) -> None:
        """Page. A pager that is away makes the message come again."""
        about = event.reservation or node.instance_id
        key = f"aws-event/{self._cluster}/{about}/{event.what}"[:200]
        now = self._clock()
        self._paged = {old: at for old, at in self._paged.items() if now - at < PAGED_AGAIN_S}
        if key in self._paged:
            return
        name = event.reservation or node.name
        page = Page(
            key=key,
            incident="",
            node="" if event.reservation else node.name,
            title=f"{name}: {event.what}",
            why=[*event.because, "Nothing was done to any node for this alone."],
            next_commands=["hotspare status" if event.reservation else f"hotspare why {node.name}"],
        )
        await asyncio.to_thread(self._notifier.send, page)
        self._paged[key] = now
