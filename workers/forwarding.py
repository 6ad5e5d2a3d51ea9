"""Delivers what waits in a spool once Temporal answers, in each node's order; drops what is no longer true, and says so."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from activities.errors import HotspareError, TransientError
from activities.incidents import StartIncident
from activities.inventory import Node
from activities.node_access import AccessTo
from workers.reporting import TakesReports
from workers.spool import Held, Spool, words_of
from workers.watcher.machine import uptime_of

logger = logging.getLogger(__name__)

AT_ONCE = 16
"""Nodes whose reports are delivered side by side. Hotspare default: a storm of 500 is delivered in seconds."""

FIRST_WAIT_S = 1.0
"""Seconds between looks at the spool while Temporal answers. Hotspare default."""

BOOT_DEADLINE_S = 5.0
"""Seconds in which a node must say which boot it is in. Hotspare default: one small file; else its reports count as true."""

CLOCK_STEP = timedelta(seconds=60)
"""How far our own clock may have been stepped since a report was kept. Hotspare default: more than NTP steps."""


@dataclass(frozen=True)
class Boot:
    """The boot that a node is in: its id, and when it began by our clock, where known."""

    boot_id: str
    began_at: datetime | None = None


PresentBoot = Callable[[Node], Boot | None]
"""Says which boot a node is in now; None where that cannot be known. May block."""


def no_longer_true(held: Held, boot: Boot | None, now: datetime, max_age_s: float) -> str:
    """Say why a report is history by now, empty when it may still hold. What cannot be known keeps it.

    A report counts from when it was last said, not from when the fault began: an alert may have been firing for a week.
    """
    age_s = (now - held.held_at).total_seconds()
    if age_s > max_age_s:
        return f"it was said {age_s / 3600:.1f} h ago, the limit is {max_age_s / 3600:.1f} h (spool.max_age_s)"
    if boot is None:
        return ""
    if held.boot_id and boot.boot_id:
        return f"the node has restarted since (boot {boot.boot_id[:8]})" if held.boot_id != boot.boot_id else ""
    if boot.began_at is not None and held.held_at < boot.began_at - CLOCK_STEP:
        return f"the node has restarted since, at {boot.began_at:%Y-%m-%d %H:%M:%S} UTC"
    return ""


def boot_over(access_to: AccessTo) -> PresentBoot:
    """Ask the node itself, over an access that is closed again."""

    def present_boot(node: Node) -> Boot | None:
        try:
            access = access_to(node)
            try:
                boot_id = access.boot_id(BOOT_DEADLINE_S)
                # Over an access that cannot follow a log, a pod would have to be started for the time since boot.
                prompt = "follow" in access.capabilities()
                uptime_s = uptime_of(access, BOOT_DEADLINE_S) if prompt else None
            finally:
                access.close()
        except HotspareError:
            return None
        return Boot(boot_id, datetime.now(UTC) - timedelta(seconds=uptime_s) if uptime_s is not None else None)

    return present_boot


class Forwarder:
    """Empties one spool into Temporal. `clock` is wall time in seconds."""

    def __init__(
        self,
        cluster: str,
        spool: Spool,
        gateway: TakesReports,
        present_boot: PresentBoot,
        max_age_s: float,
        confirm_timeout_s: float,
        retry_max_s: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._cluster = cluster
        self._spool = spool
        self._gateway = gateway
        self._present_boot = present_boot
        self._max_age_s = max_age_s
        self._confirm_timeout_s = confirm_timeout_s
        self._retry_max_s = retry_max_s
        self._clock = clock
        self._turn = 0
        self._away = False

    async def run(self, stop: asyncio.Event) -> None:
        """Deliver until `stop` is set, trying less often while Temporal does not answer."""
        wait = FIRST_WAIT_S
        while not stop.is_set():
            try:
                delivered = await self.deliver()
            except Exception:
                # Whatever it was, what waits is on disk; the next try may be luckier.
                logger.exception("reports that wait could not be delivered")
                delivered = False
            wait = FIRST_WAIT_S if delivered else min(2 * wait, self._retry_max_s)
            await _pause(stop, min(wait, self._retry_max_s))

    async def deliver(self) -> bool:
        """Deliver all that waits; returns False when something still waits because Temporal did not take it.

        One node is tried first, another one each time: while Temporal is away, nobody else is asked anything.
        """
        nodes = list(self._spool.waiting().items())
        if not nodes:
            return True
        self._turn += 1
        first = nodes.pop(self._turn % len(nodes))
        if not await self._deliver_node(*first):
            self._note(away=True)
            return False
        self._note(away=False)
        gate = asyncio.Semaphore(AT_ONCE)

        async def one(instance_id: str, waiting: list[tuple[str, Held]]) -> bool:
            async with gate:
                return await self._deliver_node(instance_id, waiting)

        return all(await asyncio.gather(*(one(*node) for node in nodes)))

    async def _deliver_node(self, instance_id: str, waiting: list[tuple[str, Held]]) -> bool:
        boot = await asyncio.to_thread(self._present_boot, waiting[0][1].node)
        for name, held in waiting:
            why = no_longer_true(held, boot, datetime.fromtimestamp(self._clock(), UTC), self._max_age_s)
            if why:
                logger.warning("dropped, not true any more: %s: %s", words_of(held), why)
                await asyncio.to_thread(self._spool.release, name)
                continue
            start = StartIncident(node=held.node.name, cluster=self._cluster, report=held.report)
            try:
                joined = await asyncio.wait_for(self._gateway.report_fault(start, instance_id), self._confirm_timeout_s)
            except (TransientError, TimeoutError) as error:
                logger.debug("%s still waits: %s", words_of(held), error)
                return False
            logger.info("delivered, after it waited: %s -> %s", words_of(held), joined.workflow_id)
            await asyncio.to_thread(self._spool.release, name)
        return True

    def _note(self, *, away: bool) -> None:
        """Say it once when Temporal goes and once when it is back, not at every try."""
        if away and not self._away:
            logger.warning("Temporal does not take reports; %d wait on disk", self._spool.state.reports)
        if self._away and not away:
            logger.info("Temporal takes reports again")
        self._away = away


async def _pause(stop: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(stop.wait(), seconds)
    except TimeoutError:
        return
