"""The door to Temporal with named points: each letter and each start can be disturbed like any other call."""

from __future__ import annotations

from typing import Any

from activities.clients.temporal_gateway import TemporalGateway
from activities.incidents import Joined, JoinJob, JoinStorm, StartIncident, WorkflowGateway
from tests.chaos.points import ChaosPoints


class PointedGateway:
    """A `WorkflowGateway` of one worker, whose calls pass the points "gateway.<what>"."""

    def __init__(self, inner: TemporalGateway, points: ChaosPoints, worker: int) -> None:
        self._inner: WorkflowGateway = inner
        self._points, self._worker = points, worker

    async def report_fault(self, start: StartIncident, instance_id: str) -> Joined:
        return await self._points.carry_out_async(
            "gateway.report_fault", instance_id, self._worker, lambda: self._inner.report_fault(start, instance_id)
        )

    async def join_job(self, request: JoinJob) -> Joined:
        return await self._points.carry_out_async(
            "gateway.join_job", request.job, self._worker, lambda: self._inner.join_job(request)
        )

    async def join_storm(self, request: JoinStorm) -> Joined:
        return await self._points.carry_out_async(
            "gateway.join_storm", request.storm_id, self._worker, lambda: self._inner.join_storm(request)
        )

    async def ensure_cluster(self, cluster: str) -> Joined:
        return await self._points.carry_out_async(
            "gateway.ensure_cluster", "", self._worker, lambda: self._inner.ensure_cluster(cluster)
        )

    async def signal(self, workflow_id: str, signal: str, payload: dict[str, Any]) -> bool:
        return await self._points.carry_out_async(
            f"gateway.{signal}", workflow_id, self._worker, lambda: self._inner.signal(workflow_id, signal, payload)
        )

    async def signal_cluster(self, cluster: str, signal: str, payload: dict[str, Any]) -> Joined:
        return await self._points.carry_out_async(
            f"gateway.{signal}", "cluster", self._worker, lambda: self._inner.signal_cluster(cluster, signal, payload)
        )

    async def open_among(self, workflow_ids: list[str]) -> list[str]:
        return await self._points.carry_out_async(
            "gateway.survey", "", self._worker, lambda: self._inner.open_among(workflow_ids)
        )
