"""Follows one node's kernel log in its own thread: connect, read, report, and begin again wherever the connection ends."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

from activities.errors import HotspareError, TransientError
from activities.inventory import Node
from activities.node import Gpu, Report
from activities.node_access import AccessTo, NodeAccess
from checks.catalog import Machine, Override
from checks.model import KernelEvent
from workers.forwarding import Boot
from workers.sections import WatcherSettings
from workers.spool import Held
from workers.watcher.cursors import CursorFile
from workers.watcher.machine import machine_of, reservation, uptime_of
from workers.watcher.node_log import Batch, NodeLog, Start

logger = logging.getLogger(__name__)

RAW_LIMIT = 500
"""Characters of the kernel line that a report carries. Hotspare default: over the longest line that a driver prints."""

WHAT_LIMIT = 200
"""Characters of the words in a report. Hotspare default: one line of an incident's story."""

PROGRESS_S = 30.0
"""Seconds between notes of progress through lines that say nothing. Hotspare default: after a crash so much is read again."""

SendReport = Callable[[Held], None]
"""Hands a report over; returns when the server has it, or the disk. Raises TransientError otherwise."""


class Follower(threading.Thread):
    """Follows one node until `stop` is set."""

    def __init__(
        self,
        node: Node,
        access_to: AccessTo,
        send: SendReport,
        cursors: CursorFile,
        settings: WatcherSettings,
        stop: threading.Event,
        clock: Callable[[], float] = time.monotonic,
        overrides: Mapping[str, Override] | None = None,
    ) -> None:
        super().__init__(name=f"watch-{node.name}", daemon=True)
        self.node = node
        self.boot: Boot | None = None
        self._access_to = access_to
        self._send = send
        self._cursors = cursors
        self._settings = settings
        self._stop_all = stop
        self._leave = threading.Event()
        self._clock = clock
        self._overrides = overrides or {}
        self._last_trouble = ""

    @property
    def connected(self) -> bool:
        """Whether the log is being read."""
        return self.boot is not None

    def leave(self) -> None:
        """Stop following: the node is no longer in the inventory."""
        self._leave.set()

    def run(self) -> None:
        """Follow over one connection after the other, waiting longer after each failure."""
        wait = self._settings.reconnect_min_s
        while not self._stopped():
            began = self._clock()
            try:
                self._follow()
            except HotspareError as error:
                self._say_once(str(error))
            except Exception:
                # One node's trouble must not end the watch of this node for ever.
                logger.exception("%s: following the kernel log failed; beginning again", self.node.name)
            self.boot = None
            if self._clock() - began > self._settings.reconnect_max_s:
                wait = self._settings.reconnect_min_s
            if self._stop_all.wait(wait):
                return
            wait = min(2 * wait, self._settings.reconnect_max_s)

    def _stopped(self) -> bool:
        return self._stop_all.is_set() or self._leave.is_set()

    def _say_once(self, trouble: str) -> None:
        """A node that is away says the same at every try; one line in the log is enough."""
        if trouble != self._last_trouble:
            logger.warning("%s: kernel log not followed: %s", self.node.name, trouble)
        self._last_trouble = trouble

    def _follow(self) -> None:
        access = self._access_to(self.node)
        try:
            opened = self._open(access)
            self._last_trouble = ""
            self.boot = Boot(opened.boot_id)
            session = _Session(self.node, opened, self._send, self._settings, self._clock, self._keep)
            for line in access.follow_kernel_log():
                session.take(line)
                if self._stopped():
                    break
            session.keep_place()
        finally:
            access.close()

    def _open(self, access: NodeAccess) -> Start:
        deadline_s = self._settings.confirm_timeout_s
        return Start(
            boot_id=access.boot_id(deadline_s),
            uptime_s=uptime_of(access, deadline_s),
            cursor=self._cursors.of(self.node.instance_id),
            first_connect_max_age_s=self._settings.first_connect_max_age_s,
            repeat_s=self._settings.repeat_s,
            machine=machine_of(access, self.node, self._overrides, deadline_s),
        )

    def _keep(self, log: NodeLog) -> None:
        self._cursors.move(self.node.instance_id, log.cursor)


class _Session:
    """One connection: feeds the log, sends what is due, keeps the place."""

    def __init__(
        self,
        node: Node,
        opened: Start,
        send: SendReport,
        settings: WatcherSettings,
        clock: Callable[[], float],
        keep: Callable[[NodeLog], None],
    ) -> None:
        self._node = node
        self._opened = opened
        self._send = send
        self._settings = settings
        self._clock = clock
        self._keep = keep
        self._log = NodeLog(opened)
        self._booted_at = datetime.now(UTC) - timedelta(seconds=opened.uptime_s) if opened.uptime_s is not None else None
        self._not_before = 0.0
        self._failures = 0
        self._kept_at = clock()

    def take(self, line: str) -> None:
        if line:
            self._log.take(line)
        now = self._clock()
        if now >= self._not_before:
            for batch in self._log.due(now):
                if not self._report(batch):
                    break
        if now - self._kept_at >= PROGRESS_S:
            self.keep_place()

    def keep_place(self) -> None:
        self._kept_at = self._clock()
        self._keep(self._log)

    def _report(self, batch: Batch) -> bool:
        boot_id = self._opened.boot_id
        report = report_of(batch, boot_id, self._booted_at, self._opened.machine)
        try:
            self._send(
                Held(
                    identity=f"{self._node.instance_id}|{report.key}",
                    node=self._node,
                    report=report,
                    fault=batch.fault_class,
                    held_at=datetime.now(UTC),
                    boot_id=boot_id,
                )
            )
        except TransientError as error:
            self._failures += 1
            wait = min(self._settings.reconnect_min_s * 2**self._failures, self._settings.reconnect_max_s)
            self._not_before = self._clock() + wait
            logger.warning("%s: %s not reported yet, again in %.1f s: %s", self._node.name, report.key, wait, error)
            return False
        self._failures = 0
        self._log.confirmed(batch, self._clock())
        self.keep_place()
        logger.info("%s: reported %s: %s", self._node.name, _name(batch.event), report.what)
        return True


def report_of(batch: Batch, boot_id: str, booted_at: datetime | None, machine: Machine) -> Report:
    """The report of a batch. Its key is the same however often the fault is reported in one boot."""
    event = batch.event
    seen_at = datetime.now(UTC)
    if booted_at is not None and event.monotonic_s is not None:
        seen_at = booted_at + timedelta(seconds=event.monotonic_s)
    times = f" ({batch.count} lines)" if batch.count > 1 else ""
    doubt = reservation(event, machine)
    return Report(
        source="watcher",
        key=f"{boot_id}/{_name(event)}/{event.pci}",
        xid=event.code if event.kind == "xid" else None,
        sxid=event.code if event.kind == "sxid" else None,
        what=f"{event.text[:WHAT_LIMIT]}{times}" + (f"; {doubt}" if doubt else ""),
        gpu=Gpu(pci=event.pci) if event.kind == "xid" else Gpu(),
        seen_at=seen_at,
        raw=event.raw[:RAW_LIMIT],
    )


def _name(event: KernelEvent) -> str:
    if event.kind == "host":
        return event.signal.replace("_", " ") or "host fault"
    return f"{'XID' if event.kind == 'xid' else 'SXid'} {event.code}"
