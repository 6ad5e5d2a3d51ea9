"""A test event: it goes the whole way of an alert, is observed once under a name of its own, and touches no node and no pager."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from activities.names import TEST_EVENT
from activities.node import Report
from workers.intake.alerts import TEST_LABEL, Alert
from workers.intake.aws_events import TEST_KIND

SOURCE = "hotspare.doctor"


def alias_of(test_id: str) -> str:
    """The name under which a test is observed. No node has it."""
    return f"{TEST_EVENT}{test_id}"


def alert_of(test_id: str) -> Alert:
    """The alert that stands for the test."""
    return Alert(alias_of(test_id), Report(source="doctor", key=test_id, what="a test of the way that alerts take"))


def alertmanager_message(test_id: str) -> dict[str, Any]:
    """The test as Alertmanager would post it."""
    labels = {"alertname": "HotspareDoctorTest", TEST_LABEL: test_id}
    now = datetime.now(UTC).isoformat()
    alert = {"status": "firing", "labels": labels, "annotations": {}, "startsAt": now, "fingerprint": test_id}
    return {"version": "4", "status": "firing", "receiver": "hotspare", "alerts": [alert]}


def queue_message(test_id: str) -> str:
    """The test as EventBridge would put it into the queue."""
    now = datetime.now(UTC).isoformat()
    return json.dumps({"id": test_id, "source": SOURCE, "detail-type": TEST_KIND, "time": now, "detail": {"test": test_id}})
