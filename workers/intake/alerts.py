"""Reads Alertmanager's webhook JSON (version 4) into fault reports. Pure: no look-up, nothing sent.

Only each alert's own labels count: group and common labels are those of whatever happened to be in the same message.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from activities.errors import BadInput
from activities.node import Gpu, Report
from workers.sections import IntakeMapping

TEST_LABEL = "hotspare_test"
"""Label of an alert that makes it a test event; its value is the test's id. What else such an alert says is not looked at."""

_TEST_ID = re.compile(r"[a-z0-9-]{8,64}")

RAW_LIMIT = 500
"""Characters of an alert's labels that a report carries. Hotspare default: history stays small."""


@dataclass(frozen=True)
class Alert:
    """One alert: the name of the node as the sender knows it, and the report; of which boot, where the sender says it."""

    alias: str
    report: Report
    boot_id: str = ""


@dataclass(frozen=True)
class Unreadable:
    """One alert of a message that cannot be taken, by its place in the list, and why."""

    index: int
    why: str


@dataclass(frozen=True)
class Notification:
    """One message: what could be read of it, what could not, and how many alerts the sender cut off.

    `tests` are the ids of test events in it, which concern no node.
    """

    alerts: list[Alert]
    unreadable: list[Unreadable]
    truncated: int
    tests: list[str] = field(default_factory=list)


def is_test_id(text: object) -> bool:
    """Whether this can be the id of a test event: it becomes part of a workflow id."""
    return isinstance(text, str) and _TEST_ID.fullmatch(text) is not None


def read_notification(body: Any, mapping: IntakeMapping) -> Notification:
    """Read a webhook body. Raises BadInput when it is no Alertmanager message at all; a single bad alert only is `unreadable`."""
    if not isinstance(body, dict):
        raise BadInput("the body is not a JSON object; this address takes Alertmanager webhook messages")
    if body.get("version") != "4":
        raise BadInput(
            f'no Alertmanager message of version "4" (version is {str(body.get("version"))[:20]!r}); '
            "leave `payload:` out of the receiver's webhook_configs"
        )
    alerts = body.get("alerts")
    if not isinstance(alerts, list):
        raise BadInput("the message has no list `alerts`")
    readable: list[Alert] = []
    unreadable: list[Unreadable] = []
    tests: list[str] = []
    for index, alert in enumerate(alerts):
        try:
            if (test := _test_in(alert)) is not None:
                tests.append(test)
                continue
            readable.append(read_alert(alert, mapping))
        except BadInput as error:
            unreadable.append(Unreadable(index, str(error)))
    truncated = body.get("truncatedAlerts")
    return Notification(readable, unreadable, truncated if isinstance(truncated, int) else 0, tests)


def _test_in(alert: Any) -> str | None:
    """The id of the test that an alert is, None for any other."""
    labels = alert.get("labels") if isinstance(alert, dict) else None
    if not isinstance(labels, dict) or TEST_LABEL not in labels:
        return None
    test = labels[TEST_LABEL]
    if not is_test_id(test):
        raise BadInput(f"{TEST_LABEL} is no id of a test: 8 to 64 lower-case letters, digits and hyphens")
    return str(test)


def read_alert(alert: Any, mapping: IntakeMapping) -> Alert:
    """Read one alert. Raises BadInput with the reason when it names no node or is no alert."""
    if not isinstance(alert, dict):
        raise BadInput("is not a JSON object")
    labels, annotations = _texts(alert, "labels"), _texts(alert, "annotations")
    status = alert.get("status")
    if status not in ("firing", "resolved"):
        raise BadInput(f"status is {str(status)[:20]!r}, not firing or resolved")
    alias = _first(mapping.node, labels, annotations)
    if not alias:
        raise BadInput("names no node: none of the labels " + ", ".join(mapping.node))
    code = _first(mapping.xid, labels, annotations)
    xid, misread = _code(code)
    name = labels.get("alertname", "")
    what = _first(mapping.what, {**annotations, **labels}) or name or "alert without a name"
    if misread:
        what += f" ({misread})"
    return Alert(
        alias=alias,
        report=Report(
            source="alertmanager",
            key=f"{alert.get('fingerprint') or name or what}/{alert.get('startsAt') or ''}"[:200],
            xid=xid,
            what=what[:RAW_LIMIT],
            gpu=_gpu(mapping, labels, annotations),
            seen_at=_time(alert.get("startsAt")),
            raw=" ".join(f"{key}={value}" for key, value in sorted(labels.items()))[:RAW_LIMIT],
            resolved=status == "resolved",
        ),
    )


def _texts(alert: dict[str, Any], key: str) -> dict[str, str]:
    """An object of strings; what is missing is empty, what is something else is a mistake of the sender."""
    value = alert.get(key) or {}
    if not isinstance(value, dict):
        raise BadInput(f"{key} is not a JSON object")
    return {str(name): text for name, text in value.items() if isinstance(text, str)}


def _first(names: list[str], *places: dict[str, str]) -> str:
    for place in places:
        for name in names:
            # These words go to logs and terminals.
            text = "".join(letter if letter.isprintable() else " " for letter in place.get(name, "")).strip()
            if text:
                return text
    return ""


def _code(text: str) -> tuple[int | None, str]:
    """An XID as a number. 0 is the exporter's word for "none so far"; words instead of a number are kept as a remark."""
    if not text:
        return None, ""
    try:
        number = float(text)
    except ValueError:
        return None, f"its code {text[:20]!r} is not a number"
    if not number.is_integer() or not 0 <= number < 100_000:
        return None, f"its code {text[:20]!r} is no XID"
    return int(number) or None, ""


def _gpu(mapping: IntakeMapping, labels: dict[str, str], annotations: dict[str, str]) -> Gpu:
    index = _first(mapping.gpu_index, labels, annotations)
    return Gpu(
        index=int(index) if index.isascii() and index.isdigit() and len(index) < 4 else None,
        uuid=_first(mapping.gpu_uuid, labels, annotations)[:64],
        pci=_first(mapping.gpu_pci, labels, annotations)[:32],
    )


def _time(text: Any) -> datetime | None:
    """RFC 3339; Alertmanager's zero time, year 1, means that it does not know."""
    if not isinstance(text, str):
        return None
    try:
        seen = datetime.fromisoformat(text)
    except ValueError:
        return None
    return seen if seen.tzinfo and seen.year > 1 else None
