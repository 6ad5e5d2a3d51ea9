"""Looks for stuck workflows all the time and tells people of each one once, with the cause and the command to type."""

from __future__ import annotations

import asyncio
import logging
from urllib.parse import quote

from temporalio.client import Client

from activities.errors import HotspareError
from activities.host_memory import HostMemory
from activities.names import cluster_id
from activities.notify import Notifier, Page
from workers.sections import WorkerSettings
from workers.wedged import Wedged, find_wedged

logger = logging.getLogger(__name__)


class WedgeWatch:
    """One look after the other. It runs beside the worker and needs no workflow: a wedge is where those do not work."""

    def __init__(
        self, cluster: str, client: Client, notifier: Notifier, memory: HostMemory, settings: WorkerSettings, ui_url: str = ""
    ) -> None:
        self._cluster = cluster
        self._client = client
        self._notifier = notifier
        self._memory = memory
        self._settings = settings
        self._ui_url = ui_url.rstrip("/")
        self._told: set[str] = set()
        self._trouble = ""

    async def run(self, stop: asyncio.Event) -> None:
        """Look until `stop` is set. What goes wrong with a look is logged, and the next look is made."""
        while not stop.is_set():
            try:
                await self.look()
                self._trouble = ""
            except HotspareError as error:
                self._say_once(str(error))
            except Exception:
                logger.exception("stuck workflows could not be looked for")
            try:
                await asyncio.wait_for(stop.wait(), self._settings.wedged_look_s)
            except TimeoutError:
                continue

    async def look(self) -> list[Wedged]:
        """Look once, and page for each stuck workflow that nobody was told of. Raises TemporalAway."""
        found = await find_wedged(self._client, self._cluster, self._settings.wedged_attempts)
        for wedged in found:
            key = f"wedged/{wedged.workflow_id}/{wedged.run_id}"
            if key not in self._told and await asyncio.to_thread(self._tell, key, wedged):
                self._told.add(key)
        return found

    def _tell(self, key: str, wedged: Wedged) -> bool:
        """Page unless some worker has; returns whether people know. Remembered only once the page was taken."""
        try:
            if self._memory.intent_age_s(key) is not None:
                return True
            logger.error("%s is stuck on its own code: %s: %s", wedged.workflow_id, wedged.cause, wedged.says)
            self._notifier.send(self._page(key, wedged))
            self._memory.note_intent(key, f"page: {wedged.workflow_id} is stuck")
        except HotspareError as error:
            logger.warning("the page about %s was not delivered, it is tried again: %s", wedged.workflow_id, error)
            return False
        return True

    def _page(self, key: str, wedged: Wedged) -> Page:
        name = wedged.node or wedged.workflow_id
        since = f" since {wedged.since:%Y-%m-%d %H:%M} UTC" if wedged.since else ""
        keeper = wedged.workflow_id == cluster_id(self._cluster)
        meant = "no node is quarantined, repaired or replaced" if keeper else "nothing more is done by it"
        link = f"{self._ui_url}/namespaces/{self._client.namespace}/workflows/{quote(wedged.workflow_id, safe='')}"
        return Page(
            key=key,
            incident=wedged.workflow_id,
            node=wedged.node,
            title=f"{wedged.workflow_id} is stuck on an error in Hotspare's own code",
            why=[
                f"its workflow task has failed {wedged.attempts - 1} times{since}: {wedged.cause}: {wedged.says}",
                f"until this is mended {meant}; what it holds stays held, and reports that come in wait for it",
            ],
            next_commands=[
                "put the release that it worked with back, or one that has the mend, and restart the workers",
                f"hotspare unwedge {name} --dry-run",
                f"hotspare unwedge {name}",
            ],
            ui_link=link if self._ui_url else "",
        )

    def _say_once(self, trouble: str) -> None:
        if trouble != self._trouble:
            logger.warning("stuck workflows cannot be looked for: %s", trouble)
        self._trouble = trouble
