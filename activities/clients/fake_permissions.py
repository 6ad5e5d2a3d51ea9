"""Permissions in memory, for tests: everything is permitted but for what a test refuses."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from activities.errors import AccessRefused
from activities.permissions import Identity, Permitted, Tried

ROLE = "arn:aws:sts::123456789012:assumed-role/hotspare/test"


class FakePermissions:
    """`Permissions` without AWS. `refused` are actions; `simulates` is None where IAM does not answer us."""

    def __init__(self) -> None:
        self.arn = ROLE
        self.skew_s = 0.0
        self.no_credentials = False
        self.refused: set[str] = set()
        self.simulates: set[str] | None = None
        self.asked: list[tuple[str, str]] = []

    def identity(self) -> Identity:
        if self.no_credentials:
            raise AccessRefused("AWS does not say who we are: no credentials")
        now = datetime.now(UTC)
        return Identity(self.arn, "us-east-1", now - timedelta(seconds=self.skew_s), now)

    def try_dry(self, action: str, instance_id: str, tag: str = "", template: str = "") -> Tried:
        self.asked.append((action, instance_id))
        return self._judged(action)

    def read(self, action: str, name: str = "") -> Tried:
        if ":Describe" not in action:
            return Tried(action, Permitted.UNKNOWN, "the call does not only read")
        return self._judged(action)

    def simulate(self, action: str, resource: str, context: Mapping[str, str]) -> Tried:
        if self.simulates is None:
            return Tried(action, Permitted.UNKNOWN, "IAM does not simulate it: AccessDenied")
        self.asked.append((action, resource))
        return Tried(action, Permitted.YES if action in self.simulates else Permitted.NO)

    def _judged(self, action: str) -> Tried:
        return Tried(action, Permitted.NO if action in self.refused else Permitted.YES)
