"""What the intake does with alerts: find the node, hand the report to Temporal once, keep what names no node."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from activities.errors import BadInput, TransientError, UnknownNode
from activities.incidents import Joined, StartIncident
from activities.inventory import Inventory, Node
from activities.node import Report
from workers.intake.alerts import Alert, Notification
from workers.intake.trial import alert_of
from workers.intake.unknown import Observer, UnknownNodePager
from workers.repeats import Repeats
from workers.reporting import TakesReports
from workers.sections import IntakeSettings
from workers.spool import Held, Spool

UNKNOWN_KEPT_S = 10.0
"""Seconds for which a name stays unknown. Hotspare default: as long as an inventory answer is kept."""

logger = logging.getLogger(__name__)


@dataclass
class Summary:
    """The answer to one message. `held` alerts are on disk and not yet with Temporal."""

    taken: int = 0
    held: int = 0
    repeated: int = 0
    truncated: int = 0
    incidents: list[str] = field(default_factory=list)
    unknown_nodes: list[dict[str, str]] = field(default_factory=list)
    unreadable: list[dict[str, object]] = field(default_factory=list)
    tests: list[str] = field(default_factory=list)


class Delivery:
    """Delivers alerts of one cluster. Everything it calls that blocks runs in threads."""

    def __init__(
        self,
        cluster: str,
        inventory: Inventory,
        gateway: TakesReports,
        observer: Observer,
        pager: UnknownNodePager,
        settings: IntakeSettings,
        clock: Callable[[], float] = time.monotonic,
        spool: Spool | None = None,
    ) -> None:
        self._cluster = cluster
        self._inventory = inventory
        self._gateway = gateway
        self._observer = observer
        self._pager = pager
        self._settings = settings
        self._repeats = Repeats(settings.repeat_s, clock)
        self._clock = clock
        self._spool = spool
        self._unknown: dict[str, tuple[float, str]] = {}

    async def deliver(self, message: Notification) -> Summary:
        """Hand every readable alert on, to the disk where Temporal is away. Raises TransientError when neither has an alert."""
        summary = Summary(truncated=message.truncated)
        for bad in message.unreadable:
            logger.warning("alert %d of a message is left out: it %s", bad.index, bad.why)
            summary.unreadable.append({"index": bad.index, "why": bad.why})
        if message.truncated:
            logger.warning("the sender cut %d alerts off; set max_alerts: 0 in its webhook_configs", message.truncated)
        work = [self._deliver(alert, summary) for alert in message.alerts]
        work += [self._observe_test(test, summary) for test in message.tests]
        outcomes = await asyncio.gather(*work, return_exceptions=True)
        # All are tried before the message is refused, so that one slow alert does not hold the others back.
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        return summary

    async def _deliver(self, alert: Alert, summary: Summary) -> None:
        node = await self._find(alert.alias)
        if isinstance(node, str):
            await self._observe_unknown(alert, node, summary)
            return
        if self._spool is not None and self._spool.holds(node.instance_id):
            await self._hold(self._spool, node, alert, summary)
            return
        try:
            joined, sent = await self._repeats.once(_key(node, alert.report), lambda: self._send(node, alert.report))
        except (TransientError, TimeoutError) as error:
            if self._spool is None:
                raise
            logger.warning("%s: kept on disk until Temporal answers: %s", node.name, str(error) or "no confirmation in time")
            await self._hold(self._spool, node, alert, summary)
            return
        if sent:
            summary.taken += 1
        else:
            summary.repeated += 1
        if joined.workflow_id not in summary.incidents:
            summary.incidents.append(joined.workflow_id)

    async def _hold(self, spool: Spool, node: Node, alert: Alert, summary: Summary) -> None:
        """Return when the alert is on disk. Raises SpoolFailed, so that the sender keeps it."""
        report, boot_id = alert.report, alert.boot_id
        fault = f"xid:{report.xid}" if report.xid is not None else report.what
        held = Held(
            identity=_key(node, report), node=node, report=report, fault=fault, held_at=datetime.now(UTC), boot_id=boot_id
        )
        await asyncio.to_thread(spool.hold, held)
        summary.held += 1

    async def _find(self, alias: str) -> Node | str:
        """The node, or why there is none. A flood of one unknown name asks the cloud provider once in a while."""
        seen = self._unknown.get(alias)
        if seen and self._clock() - seen[0] < UNKNOWN_KEPT_S:
            return seen[1]
        try:
            return await asyncio.to_thread(self._inventory.resolve, self._cluster, alias)
        except (UnknownNode, BadInput) as error:
            self._unknown = {one: kept for one, kept in self._unknown.items() if self._clock() - kept[0] < UNKNOWN_KEPT_S}
            self._unknown[alias] = (self._clock(), str(error))
            return str(error)

    async def _send(self, node: Node, report: Report) -> Joined:
        start = StartIncident(node=node.name, cluster=self._cluster, report=report)
        joined = await self._in_time(self._gateway.report_fault(start, node.instance_id))
        logger.info("%s: %s -> %s", node.name, report.what, joined.workflow_id)
        return joined

    async def _observe_unknown(self, alert: Alert, why: str, summary: Summary) -> None:
        """A name that no node has must not disrupt anything, and must not pass unseen."""
        key = f"unknown|{alert.alias}|{alert.report.key}"
        observed, _ = await self._repeats.once(key, lambda: self._in_time(self._observer.observe(self._cluster, alert)))
        logger.warning("an alert names no node of cluster %s: %s", self._cluster, why)
        summary.unknown_nodes.append(
            {"node": alert.alias, "what": alert.report.what, "why": why, "observed": observed.workflow_id}
        )
        await self._pager.tell(alert, why)

    async def _observe_test(self, test_id: str, summary: Summary) -> None:
        """A test event is observed as an alert without a node would be, and no person is told of it."""
        alert = alert_of(test_id)
        observed, _ = await self._repeats.once(
            f"test|{test_id}", lambda: self._in_time(self._observer.observe(self._cluster, alert))
        )
        logger.info("a test event: %s", observed.workflow_id)
        summary.tests.append(observed.workflow_id)

    async def _in_time(self, confirmation: Awaitable[Joined]) -> Joined:
        return await asyncio.wait_for(confirmation, timeout=self._settings.confirm_timeout_s)


def _key(node: Node, report: Report) -> str:
    """What makes two alerts the same: node, fault, GPU, when it began, firing or resolved; not the name the sender used."""
    gpu = report.gpu.uuid or report.gpu.pci or report.gpu.index
    fault = report.xid if report.xid is not None else report.what
    began = report.seen_at.isoformat() if report.seen_at else ""
    return f"{node.instance_id}|{fault}|{gpu}|{began}|{report.resolved}"
