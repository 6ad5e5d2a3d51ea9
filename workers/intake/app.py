"""The intake's HTTP surface: POST /v1/alertmanager, POST /v1/reports, POST /v1/answers, GET /healthz, GET /metrics.

Answers 200 only when the server has every report, 202 when some are on disk because the server is away. 5xx makes Alertmanager
send again; any 4xx loses the message, so it is given only for what no second try can mend.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, generate_latest
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from activities.errors import BadInput, TransientError
from workers.intake.agent_reports import read_agent_reports
from workers.intake.alerts import Notification, read_notification
from workers.intake.answers import Answers
from workers.intake.delivery import Delivery, Summary
from workers.intake.proof import Proof, Refused
from workers.intake.token import TokenFile
from workers.sections import IntakeSettings
from workers.spool import Spool

logger = logging.getLogger(__name__)


class Intake:
    """The handlers, and what they count."""

    def __init__(
        self,
        delivery: Delivery,
        token: TokenFile,
        settings: IntakeSettings,
        spool: Spool | None = None,
        answers: Answers | None = None,
        answers_token: TokenFile | None = None,
    ) -> None:
        self._delivery = delivery
        self._answers = answers
        self._proof = Proof(token, settings)
        self._proof_of_answers = Proof(answers_token, settings) if answers_token else self._proof
        self._settings = settings
        self._spool = spool
        self._registry = CollectorRegistry()
        self._requests = Counter("hotspare_intake_requests", "Requests by answer", ["status"], registry=self._registry)
        self._alerts = Counter("hotspare_intake_alerts", "Alerts by what became of them", ["result"], registry=self._registry)
        if spool is not None:
            waiting = Gauge("hotspare_intake_held", "Alerts that wait on disk for Temporal", registry=self._registry)
            waiting.set_function(lambda: spool.state.reports)
            lost = Gauge(
                "hotspare_intake_lost", "Alerts lost since the start because the disk had no more room", registry=self._registry
            )
            lost.set_function(lambda: spool.state.lost)

    def app(self) -> Starlette:
        """Return the ASGI application."""
        routes = [
            Route("/v1/alertmanager", self.alertmanager, methods=["POST"]),
            Route("/v1/reports", self.reports, methods=["POST"]),
            Route("/healthz", self.healthz),
            Route("/metrics", self.metrics),
        ]
        if self._answers is not None:
            routes.append(Route("/v1/answers", self.answers, methods=["POST"]))
        return Starlette(routes=routes)

    async def alertmanager(self, request: Request) -> Response:
        """Take one webhook message."""

        return await self._delivered(request, lambda body: read_notification(body, self._settings.mapping))

    async def reports(self, request: Request) -> Response:
        """Take what the agent of a node reports."""
        return await self._delivered(request, read_agent_reports)

    async def _delivered(self, request: Request, read: Callable[[Any], Notification]) -> Response:
        async def take(body: bytes) -> Response:
            summary = await self._deliver(body, read)
            return JSONResponse(asdict(summary), 202 if summary.held else 200)

        return await self._answered(request, self._proof, take)

    async def answers(self, request: Request) -> Response:
        """Hand a person's answer to an incident, and return what the incident says to it."""

        async def take(body: bytes) -> Response:
            assert self._answers is not None
            return JSONResponse(await self._answers.give(body))

        return await self._answered(request, self._proof_of_answers, take)

    async def _answered(self, request: Request, proof: Proof, take: Callable[[bytes], Awaitable[Response]]) -> Response:
        try:
            answer = await self._take(request, proof, take)
        except Refused as refused:
            logger.warning("a message from %s is refused with %d: %s", _sender(request), refused.status, refused.why)
            headers = {"WWW-Authenticate": "Bearer"} if refused.status == 401 else None
            answer = JSONResponse({"error": refused.why}, refused.status, headers)
        self._requests.labels(str(answer.status_code)).inc()
        return answer

    async def _take(self, request: Request, proof: Proof, take: Callable[[bytes], Awaitable[Response]]) -> Response:
        proof.before_body(request.headers)
        body = await self._body(request)
        not_taken = proof.of_body(request.headers, body)
        try:
            return await take(body)
        except BaseException:
            not_taken()
            raise

    async def _deliver(self, body: bytes, read: Callable[[Any], Notification]) -> Summary:
        try:
            message = read(json.loads(body))
        except (ValueError, RecursionError) as error:
            raise Refused(400, f"the body is not JSON: {error}") from error
        except BadInput as error:
            raise Refused(400, str(error)) from error
        try:
            summary = await self._delivery.deliver(message)
        except (TransientError, TimeoutError) as error:
            raise Refused(503, f"not recorded, send again: {str(error) or 'no confirmation in time'}") from error
        self._count(summary)
        return summary

    async def _body(self, request: Request) -> bytes:
        limit = self._settings.max_body_bytes
        body = bytearray()
        try:
            async for chunk in request.stream():
                body += chunk
                if len(body) > limit:
                    raise Refused(413, f"the body is over {limit} bytes; group alerts by node in the route")
        except ClientDisconnect as error:
            raise Refused(400, "the sender hung up in mid-message") from error
        return bytes(body)

    def _count(self, summary: Summary) -> None:
        self._alerts.labels("taken").inc(summary.taken)
        self._alerts.labels("held").inc(summary.held)
        self._alerts.labels("repeated").inc(summary.repeated)
        self._alerts.labels("unknown_node").inc(len(summary.unknown_nodes))
        self._alerts.labels("unreadable").inc(len(summary.unreadable))

    async def healthz(self, _request: Request) -> Response:
        """Say that the process answers, and what waits on disk. Temporal's absence is no reason to restart it."""
        state = self._spool.state if self._spool else None
        if state is None or not (state.reports or state.lost):
            return JSONResponse({"status": "ok"})
        status = "spool full" if state.full else "ok"
        return JSONResponse({"status": status, "held": state.reports, "held_bytes": state.size, "lost": state.lost})

    async def metrics(self, _request: Request) -> Response:
        """Counters in Prometheus' text format."""
        return Response(generate_latest(self._registry), media_type=CONTENT_TYPE_LATEST)


def _sender(request: Request) -> str:
    return request.client.host if request.client else "?"
