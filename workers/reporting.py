"""What watcher and intake need of the way to Temporal: that it takes reports."""

from __future__ import annotations

from typing import Protocol

from activities.incidents import Joined, StartIncident


class TakesReports(Protocol):
    """The part of `WorkflowGateway` through which machines report."""

    async def report_fault(self, start: StartIncident, instance_id: str) -> Joined:
        """Return when the server has the report. Raises ProviderBusy otherwise."""
        ...
