"""Reads EventBridge's JSON into what it means for nodes. Pure: no look-up, nothing sent.

An event is a hint. What makes Hotspare look at a node is a report like any other; what only a person can use is a page; the rest,
such as a launch that succeeded, is logged. A stopped instance is never reported: who stopped it may have meant it.

Source of the shapes: EventBridge events reference; AWS Health User Guide, "Health events EventBridge schema"; EC2 User Guide,
"State change events", "Spot Instance interruption notices", "Monitor Capacity Blocks using EventBridge"; SageMaker Developer
Guide, "HyperPod cluster events".
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from activities.errors import BadInput
from workers.intake.alerts import is_test_id

TEST_KIND = "Hotspare Test"
"""The detail-type of a test event."""

TEXT_LIMIT = 500
"""Characters of an event's words. Hotspare default: history stays small."""


@dataclass(frozen=True)
class AwsEvent:
    """One event. It is about `instances`, or about the nodes in `reservation`.

    `report`: the nodes are looked at. `page`: a person is told, with `unless_ours` not of a quarantined node:
    then it was us. `test` is the id of a test event, which is about no instance.
    """

    key: str
    what: str
    instances: tuple[str, ...] = ()
    reservation: str = ""
    report: bool = False
    page: bool = False
    unless_ours: bool = False
    seen_at: datetime | None = None
    because: list[str] = field(default_factory=list)
    test: str = ""


def read_event(body: str) -> AwsEvent:
    """Read one message of the queue. Raises BadInput when it is no event of EventBridge."""
    event = _object(body)
    if "Message" in event and "TopicArn" in event:  # came through SNS, which wraps it once more
        event = _object(event["Message"])
    source, detail = event.get("source"), event.get("detail")
    kind = event.get("detail-type") or event.get("detail_type")  # AWS' pages spell it both ways
    if not isinstance(source, str) or not isinstance(kind, str) or not isinstance(detail, dict):
        raise BadInput("is no event of EventBridge: source, detail-type or detail is missing")
    found = _READERS.get(kind, _other)(detail, kind)
    return AwsEvent(**{**found, "key": found.get("key") or str(event.get("id", "")), "seen_at": _time(event.get("time"))})


def _object(text: Any) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInput(f"is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise BadInput("is not a JSON object")
    return value


def _state(detail: dict[str, Any], kind: str) -> dict[str, Any]:
    state = _text(detail.get("state"))
    return {
        "what": f"EC2 says that the instance is {state}",
        "instances": _ids(detail.get("instance-id")),
        "page": state == "stopped",
        "unless_ours": True,
        "because": ["Hotspare starts nothing that it did not stop: who stopped it may have meant it."],
    }


def _interruption(detail: dict[str, Any], kind: str) -> dict[str, Any]:
    action = _text(detail.get("instance-action")) or "take back"
    return {
        "what": f"{kind}: AWS will {action} the instance within minutes",
        "instances": _ids(detail.get("instance-id")),
        "page": True,
        "because": ["Nothing can be repaired there; a checkpoint that is written now is kept."],
    }


def _block(detail: dict[str, Any], kind: str) -> dict[str, Any]:
    reservation, end = _text(detail.get("capacity-reservation-id")), _text(detail.get("end-date"))
    return {
        "what": f"{kind}: {reservation} ends at {end}",
        "reservation": reservation,
        "page": True,
        "because": [
            "Its instances begin to be terminated 30 minutes before that; nothing is launched or stopped there any more."
        ],
    }


def _health(detail: dict[str, Any], kind: str) -> dict[str, Any]:
    code, category = _text(detail.get("eventTypeCode")), _text(detail.get("eventTypeCategory"))
    matters = (
        detail.get("eventScopeCode") != "PUBLIC"
        and category in ("issue", "scheduledChange")
        and detail.get("statusCode") != "closed"
    )
    begins = _text(detail.get("startTime"))
    entities = detail.get("affectedEntities")
    affected = entities if isinstance(entities, list) else []
    words = detail.get("eventDescription")
    said = [_text(one.get("latestDescription")) for one in words if isinstance(one, dict)] if isinstance(words, list) else []
    message = _text(detail.get("communicationId"))
    return {
        "key": f"{message}/{_text(detail.get('page'))}" if message else "",
        "what": f"AWS Health: {code}" + (f", from {begins}" if begins else ""),
        "instances": _ids(*(one.get("entityValue") for one in affected if isinstance(one, dict))),
        "report": matters,
        "page": matters,
        "because": said[:1],
    }


def _hyperpod(detail: dict[str, Any], kind: str) -> dict[str, Any]:
    summary = detail.get("HealthSummary")
    health = summary if isinstance(summary, dict) else {}
    reason = _text(health.get("HealthStatusReason"))
    return {
        "what": f"HyperPod calls the node {_text(health.get('HealthStatus'))}" + (f": {reason}" if reason else ""),
        "instances": _ids(detail.get("InstanceId")),
        "report": _text(health.get("HealthStatus")).lower() == "unhealthy",
    }


def _group(detail: dict[str, Any], kind: str) -> dict[str, Any]:
    cause = _text(detail.get("Cause")) or _text(detail.get("StatusMessage"))
    words = f"{kind} in {_text(detail.get('AutoScalingGroupName'))}: {cause}"
    return {"what": words[:TEXT_LIMIT], "instances": _ids(detail.get("EC2InstanceId"))}


def _test(detail: dict[str, Any], kind: str) -> dict[str, Any]:
    test = detail.get("test")
    if not is_test_id(test):
        raise BadInput("is a test event without the id of a test")
    return {"what": f"{kind} {test}", "test": test}


def _other(detail: dict[str, Any], kind: str) -> dict[str, Any]:
    return {"what": kind[:TEXT_LIMIT], "instances": _ids(detail.get("instance-id"), detail.get("InstanceId"))}


_READERS: dict[str, Callable[[dict[str, Any], str], dict[str, Any]]] = {
    "EC2 Instance State-change Notification": _state,
    "EC2 Spot Instance Interruption Warning": _interruption,
    "EC2 Capacity Reservation Instance Interruption Warning": _interruption,
    "Capacity Block Expiration Warning": _block,
    "Capacity Block Reservation Expiration Warning": _block,
    "AWS Health Event": _health,
    "SageMaker HyperPod Cluster Node Health Event": _hyperpod,
    "EC2 Instance Launch Unsuccessful": _group,
    "EC2 Instance Terminate Successful": _group,
    "EC2 Instance Terminate Unsuccessful": _group,
    TEST_KIND: _test,
}


def _text(value: Any) -> str:
    """Printable words: they go to logs and terminals."""
    text = value if isinstance(value, str) else ""
    return "".join(letter if letter.isprintable() else " " for letter in text).strip()[:TEXT_LIMIT]


def _ids(*values: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(value for value in values if isinstance(value, str) and value.startswith("i-")))


def _time(text: Any) -> datetime | None:
    try:
        seen = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return seen if seen.tzinfo else None
