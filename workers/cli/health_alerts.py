"""Whether an alert gets through: `doctor` sends a test event the way of an alert, one the way of AWS' events, and looks for them.

A test event is observed once, under a name of its own; no node is looked at for it and nobody is paged (`workers.intake.trial`).
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import ssl
import time
import uuid
from datetime import UTC, datetime
from urllib.parse import urlsplit

import httpx
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from activities.errors import AccessRefused, HotspareError
from activities.names import unresolved_id
from activities.permissions import QueueSeen
from checks.model import Verdict
from workers.cli.health import Line
from workers.cli.health_aws import clock_line
from workers.cli.health_open import is_loopback
from workers.connection import RPC_TIMEOUT
from workers.intake.server import PATH
from workers.intake.token import TokenFile
from workers.intake.trial import alertmanager_message, alias_of, queue_message
from workers.settings import Settings
from workers.wiring import Wiring

ALERTS, EVENTS = "alerts", "AWS events"

ARRIVES_S = 15.0
"""How long a test event in the queue may take to Temporal. Hotspare default: the intake takes messages as they come."""

LOOK_S = 0.25
"""Between looks for it. Hotspare default."""

MANY_WAIT = 100
"""Messages in the queue from which nobody seems to take them off. Hotspare default: the intake takes ten at a time."""


async def check_alerts(settings: Settings, client: Client | None, *, may_try: bool) -> list[Line]:
    """Post a test alert to the intake, where that may be tried."""
    try:
        token = TokenFile(settings.intake.token_file)
        token.check_usable()
    except HotspareError as error:
        return [Line(ALERTS, Verdict.CRITICAL, str(error), "hotspare init")]
    url = intake_url(settings)
    if not url:
        text = "the intake takes a free port at each start (intake.port = 0), so its address is not known here"
        return [Line(ALERTS, Verdict.UNKNOWN, text, "set intake.port, or intake.url", can_tell=False)]
    if client is None or not may_try:
        why, how = (
            ("--no-test-event", "leave it out") if client is not None else ("Temporal does not answer", "mend Temporal first")
        )
        return [Line(ALERTS, Verdict.UNKNOWN, f"not tried: {why}", how, can_tell=False)]
    test_id = uuid.uuid4().hex[:12]
    sent_at = datetime.now(UTC)
    refused = await _post(settings, url, test_id)
    if refused is not None:
        return [refused]
    started_at = await _arrived(client, settings.name, test_id, RPC_TIMEOUT.total_seconds())
    if started_at is None:
        text = f"{url} took a test event that is not in Temporal's namespace {client.namespace} as one of cluster {settings.name}"
        how = "that intake belongs to another cluster or namespace: set intake.url, or its settings, right"
        return [Line(ALERTS, Verdict.CRITICAL, text, how)]
    skew_s = (sent_at - started_at).total_seconds()
    name = unresolved_id(settings.name, alias_of(test_id))
    return [Line(ALERTS, Verdict.OK, f"a test event came through {url}: {name}"), clock_line("Temporal", skew_s)]


def intake_url(settings: Settings) -> str:
    """The address of the intake as senders have it, empty where only the running intake knows it."""
    intake = settings.intake
    if intake.url:
        return intake.url.rstrip("/").removesuffix(PATH)
    if not intake.port:
        return ""
    host = "127.0.0.1" if intake.host in ("0.0.0.0", "::", "") else intake.host
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if intake.tls_cert else 'http'}://{shown}:{intake.port}"


async def _post(settings: Settings, url: str, test_id: str) -> Line | None:
    """Post the test, signed, so that the token itself does not travel; returns what went wrong."""
    body = json.dumps(alertmanager_message(test_id)).encode()
    headers = {"Content-Type": "application/json", "X-Hotspare-Signature": _signature(settings, body)}
    near = is_loopback(urlsplit(url).hostname or "")
    try:
        async with httpx.AsyncClient(timeout=RPC_TIMEOUT.total_seconds(), verify=_trust(settings), trust_env=not near) as sender:
            answer = await sender.post(url + PATH, content=body, headers=headers)
    except (httpx.HTTPError, ssl.SSLError, OSError) as error:
        text = f"no intake answers at {url}: {str(error) or type(error).__name__}"
        return Line(
            ALERTS, Verdict.CRITICAL, text, "start one: hotspare intake (or hotspare run); where it is elsewhere, set intake.url"
        )
    said = _words(answer)
    if answer.status_code in (401, 403):
        how = f"intake and doctor must read the same token: {settings.intake.token_file}, and their clocks must agree"
        return Line(ALERTS, Verdict.CRITICAL, f"the intake at {url} refuses us: {said}", how)
    if answer.status_code == 503:
        return Line(ALERTS, Verdict.CRITICAL, f"the intake at {url} could not hand it on: {said}", "see the intake's log")
    if answer.status_code != 200 or '"tests"' not in answer.text:
        text = f"what answers at {url} is no intake of this release: status {answer.status_code}: {said}"
        return Line(ALERTS, Verdict.CRITICAL, text, "set intake.url right, or restart the intake with this release")
    return None


async def _arrived(client: Client, cluster: str, test_id: str, within_s: float) -> datetime | None:
    """When Temporal started the observation of a test event, None if it did not in time."""
    handle = client.get_workflow_handle(unresolved_id(cluster, alias_of(test_id)))
    until = time.monotonic() + within_s
    while True:
        try:
            return (await handle.describe(rpc_timeout=RPC_TIMEOUT)).start_time
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND or time.monotonic() > until:
                return None
        await asyncio.sleep(LOOK_S)


async def check_events(settings: Settings, wiring: Wiring, client: Client | None, *, may_try: bool) -> list[Line]:
    """Look at the queue of AWS' events, and send a test event through it where we may."""
    url = settings.intake.event_queue
    if not url:
        how = "make the queue with the Terraform module and set intake.event_queue (docs/deploy.md)"
        text = "no queue is read: what AWS announces (maintenance, retirement, ends of Capacity Blocks) is not heard"
        return [Line(EVENTS, Verdict.WARN, text, how)]
    try:
        look = wiring.queue_look(url)
        seen = await asyncio.to_thread(look.look)
    except AccessRefused as error:
        how = "allow who runs doctor sqs:GetQueueAttributes (DIR/iam/people/doctor.json of hotspare manifests DIR)"
        return [Line(EVENTS, Verdict.UNKNOWN, str(error), how, can_tell=False)]
    except HotspareError as error:
        return [Line(EVENTS, Verdict.CRITICAL, str(error), "set intake.event_queue to the queue's URL, as Terraform prints it")]
    lines = [_rules(url, seen)]
    if client is None or not may_try:
        return lines
    test_id = uuid.uuid4().hex[:12]
    try:
        await asyncio.to_thread(look.send, queue_message(test_id))
    except HotspareError as error:
        how = "allow who runs doctor sqs:SendMessage on it (DIR/iam/people/doctor.json of hotspare manifests DIR)"
        text = f"whether events come through is not tried: {error}"
        return [*lines, Line(EVENTS, Verdict.UNKNOWN, text, how, can_tell=False)]
    if await _arrived(client, settings.name, test_id, ARRIVES_S) is None:
        text = f"a test event was put into the queue and did not come out within {ARRIVES_S:g} s"
        how = "is an intake running with these settings? hotspare intake (or hotspare run), and see its log"
        return [*lines, Line(EVENTS, Verdict.CRITICAL, text, how)]
    name = unresolved_id(settings.name, alias_of(test_id))
    return [*lines, Line(EVENTS, Verdict.OK, f"a test event came through the queue: {name}")]


def _rules(url: str, seen: QueueSeen) -> Line:
    name = url.rpartition("/")[2]
    how = "apply the Terraform module, which makes them (docs/deploy.md)"
    if seen.rules_unknown:
        text = f"queue {name} is there; which rules fill it is not told: {seen.rules_unknown}"
        do = "allow who runs doctor to list and describe rules (DIR/iam/people/doctor.json of hotspare manifests DIR)"
        return Line(EVENTS, Verdict.UNKNOWN, text, do, can_tell=False)
    if not seen.rules:
        return Line(EVENTS, Verdict.CRITICAL, f"queue {name} is there, and no EventBridge rule fills it", how)
    if seen.off:
        enable = "; ".join(f"aws events enable-rule --name {rule}" for rule in seen.off[:3])
        return Line(EVENTS, Verdict.CRITICAL, f"rules of queue {name} are off: {', '.join(seen.off)}", enable)
    if seen.waiting >= MANY_WAIT:
        return Line(EVENTS, Verdict.WARN, f"{seen.waiting} messages wait in queue {name}", "is an intake running? see its log")
    return Line(EVENTS, Verdict.OK, f"queue {name}, filled by {', '.join(seen.rules)}")


def _signature(settings: Settings, body: bytes) -> str:
    token = settings.intake.token_file.read_text(encoding="utf-8").strip()
    stamp = str(int(time.time()))
    return f"t={stamp},v1={hmac.new(token.encode(), f'{stamp}.'.encode() + body, hashlib.sha256).hexdigest()}"


def _trust(settings: Settings) -> ssl.SSLContext:
    """The usual authorities, and the intake's own certificate where it lies here: it may be signed by nobody else."""
    trust = ssl.create_default_context()
    if settings.intake.tls_cert is not None and settings.intake.tls_cert.is_file():
        trust.load_verify_locations(settings.intake.tls_cert)
    return trust


def _words(answer: httpx.Response) -> str:
    try:
        said = answer.json()
    except ValueError:
        said = None
    return str(said["error"]) if isinstance(said, dict) and "error" in said else " ".join(answer.text.split())[:200]
