"""Quarantine: no new work on a node, nothing evicted. It has an owner (an incident), and only that owner lifts it.

Without Kubernetes the mark is an EC2 tag plus a file on the head node that the job launcher honours.
"""

from __future__ import annotations

from datetime import datetime

from activities.inventory import Node
from activities.message import Message


class QuarantineNode(Message):
    """Take a node out of service for `incident`."""

    node: Node
    incident: str
    reason: str


class LiftQuarantine(Message):
    """Put a node back into service; refused (NotOurs) unless `incident` owns the quarantine."""

    node: Node
    incident: str


class QuarantineState(Message):
    """Who holds the node out, empty if nobody; and since when where known."""

    owner: str = ""
    reason: str = ""
    since: datetime | None = None
