"""Reads what an agent on a node posts to /v1/reports. Pure: no look-up, nothing sent.

{"version": 1, "node": "ip-10-1-2-3.ec2.internal", "boot_id": "...", "sent_at": 1764500000.1, "reports": [{a Report}, ...]}
"""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from activities.errors import BadInput
from activities.node import Report
from workers.intake.alerts import Alert, Notification, Unreadable

SOURCE = "agent"


def read_agent_reports(body: Any) -> Notification:
    """Read one message. Raises BadInput when it is none of an agent; a single bad report only is `unreadable`."""
    if not isinstance(body, dict) or body.get("version") != 1:
        raise BadInput('no message of an agent: it is a JSON object with "version": 1')
    node, reports = body.get("node"), body.get("reports")
    if not isinstance(node, str) or not node.strip():
        raise BadInput("the message names no `node`")
    if not isinstance(reports, list):
        raise BadInput("the message has no list `reports`")
    boot_id = body.get("boot_id")
    readable: list[Alert] = []
    unreadable: list[Unreadable] = []
    for index, report in enumerate(reports):
        try:
            told = Report.model_validate(report)
            # Who reports is not for the sender to say: a person's word, or a burn-in's, weighs more than a log line's.
            told = told.model_copy(update={"source": SOURCE, "burn_in_failed": False, "resolved": False})
            readable.append(Alert(node.strip(), told, boot_id if isinstance(boot_id, str) else ""))
        except ValidationError as error:
            where = "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors()[:3])
            unreadable.append(Unreadable(index, f"is no report: {where}"))
    return Notification(readable, unreadable, 0)
