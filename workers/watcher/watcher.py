"""The watcher process: one follower for each node of the inventory, all reporting through one Temporal client."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
from collections.abc import Callable, Mapping

from activities.errors import HotspareError, ProviderBusy, TransientError
from activities.incidents import StartIncident
from activities.inventory import Inventory, Node
from activities.names import ROLE_HEAD
from activities.node_access import AccessTo
from checks.catalog import Override
from workers.forwarding import Boot, Forwarder
from workers.reporting import TakesReports
from workers.sections import SpoolSettings, WatcherSettings
from workers.spool import Held, Spool
from workers.watcher.cursors import CursorFile
from workers.watcher.follow import Follower

logger = logging.getLogger(__name__)


class Watcher:
    """Watches one cluster. Head nodes have no GPUs and are left out.

    With a spool, what Temporal does not take waits on disk; without one, and where the disk takes it neither, in the node's log.
    """

    def __init__(
        self,
        cluster: str,
        inventory: Inventory,
        access_to: AccessTo,
        gateway: TakesReports,
        settings: WatcherSettings,
        overrides: Mapping[str, Override] | None = None,
        spool: SpoolSettings | None = None,
    ) -> None:
        self._cluster = cluster
        self._inventory = inventory
        self._access_to = access_to
        self._gateway = gateway
        self._settings = settings
        self._overrides = overrides
        self._cursors = CursorFile(settings.cursors)
        self._followers: dict[str, Follower] = {}
        self._spool = Spool(spool.folder / "watcher", spool) if spool else None
        self._forwarder = self._forwarding(self._spool, spool) if self._spool and spool else None
        self._stop = threading.Event()

    async def run(self, stop: asyncio.Event, ready: Callable[[int], None] = lambda count: None) -> None:
        """Watch until `stop` is set; `ready` is called with the number of nodes after the first look at the inventory."""
        loop = asyncio.get_running_loop()
        announced = False
        forwarding = asyncio.ensure_future(self._forwarder.run(stop)) if self._forwarder else None
        try:
            while not stop.is_set():
                found = await self._refresh(loop)
                if found and not announced:
                    ready(len(self._followers))
                    announced = True
                wait = self._settings.refresh_s if found else self._settings.reconnect_min_s
                await _wait(stop, wait)
        finally:
            self._stop.set()
            await asyncio.to_thread(self._join)
            if forwarding:
                stop.set()
                await forwarding

    def connected(self) -> list[str]:
        """Names of the nodes whose log is being read."""
        return sorted(follower.node.name for follower in self._followers.values() if follower.connected)

    async def _refresh(self, loop: asyncio.AbstractEventLoop) -> bool:
        try:
            listed = await asyncio.to_thread(self._inventory.list, self._cluster)
        except HotspareError as error:
            logger.warning("the inventory does not answer, going on with %d nodes: %s", len(self._followers), error)
            return False
        nodes = {node.instance_id: node for node in listed if node.role != ROLE_HEAD}
        for instance_id, follower in list(self._followers.items()):
            node = nodes.get(instance_id)
            if node is None or _address(node) != _address(follower.node):
                logger.info("%s has left the cluster or has a new address", follower.node.name)
                self._followers.pop(instance_id).leave()
        for instance_id, node in nodes.items():
            if instance_id not in self._followers:
                self._start(node, loop)
        return True

    def _start(self, node: Node, loop: asyncio.AbstractEventLoop) -> None:
        def send(held: Held) -> None:
            self._send_or_hold(held, loop)

        follower = Follower(node, self._access_to, send, self._cursors, self._settings, self._stop, overrides=self._overrides)
        self._followers[node.instance_id] = follower
        follower.start()

    def _forwarding(self, spool: Spool, settings: SpoolSettings) -> Forwarder:
        return Forwarder(
            self._cluster,
            spool,
            self._gateway,
            self._present_boot,
            settings.max_age_s,
            self._settings.confirm_timeout_s,
            settings.retry_max_s,
        )

    def _present_boot(self, node: Node) -> Boot | None:
        """The boot whose log is being read; of a node that is not followed just now, nothing is known."""
        follower = self._followers.get(node.instance_id)
        return follower.boot if follower else None

    def _send_or_hold(self, held: Held, loop: asyncio.AbstractEventLoop) -> None:
        """Called in a follower's thread; returns when the server or the disk has the report. Raises TransientError otherwise."""
        if self._stop.is_set():
            raise ProviderBusy("the watcher is stopping")
        if self._spool is None:
            self._send(held, loop)
            return
        if not self._spool.holds(held.node.instance_id):
            try:
                self._send(held, loop)
                return
            except TransientError as error:
                if self._stop.is_set():
                    raise  # it is reported from the node's log after the start
                logger.warning("%s: kept on disk until Temporal answers: %s", held.node.name, error)
        self._spool.hold(held)

    def _send(self, held: Held, loop: asyncio.AbstractEventLoop) -> None:
        """Report and wait for the server's word. Raises TransientError when it does not come."""
        start = StartIncident(node=held.node.name, cluster=self._cluster, report=held.report)
        future = asyncio.run_coroutine_threadsafe(self._gateway.report_fault(start, held.node.instance_id), loop)
        try:
            future.result(self._settings.confirm_timeout_s)
        except concurrent.futures.TimeoutError as error:
            future.cancel()
            raise ProviderBusy(f"no confirmation within {self._settings.confirm_timeout_s:g} s") from error
        except concurrent.futures.CancelledError as error:
            raise ProviderBusy("the watcher is stopping") from error

    def _join(self) -> None:
        for follower in self._followers.values():
            follower.join(timeout=5)


def _address(node: Node) -> tuple[str, str, str]:
    return node.name, node.host, node.ip


async def _wait(stop: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(stop.wait(), seconds)
    except TimeoutError:
        return
