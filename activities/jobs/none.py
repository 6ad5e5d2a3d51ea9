"""The job adapter `none`: nodes are healed, and no job is known, held or resumed."""

from __future__ import annotations

from typing import NoReturn

from activities.errors import CapabilityMissing
from activities.inventory import Node
from activities.jobs.protocol import JobStatus


class NoJobAdapter:
    """Stands where no job system is configured."""

    def find_on(self, node: Node) -> JobStatus | None:
        return None

    def status(self, job: str) -> JobStatus:
        self._refuse(job)

    def hold(self, job: str, reason: str) -> JobStatus:
        self._refuse(job)

    def resume(self, job: str, nodes: list[str], token: str) -> None:
        self._refuse(job)

    def settle(self, job: str, nodes: list[str]) -> None:
        self._refuse(job)

    def supply(self, job: str, node: Node) -> None:
        self._refuse(job)

    def take_back(self, job: str, node: Node) -> None:
        """Nothing was supplied, so nothing is to be undone."""

    def leave(self, job: str, node: Node) -> None:
        self._refuse(job)

    def _refuse(self, job: str) -> NoReturn:
        raise CapabilityMissing(f"job {job}: no job adapter is configured; set [job] adapter in the settings file")
