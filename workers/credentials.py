"""Whose AWS credentials each worker role uses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from activities import names
from workers.settings import Settings
from workflows.decisions.settings import Mode, PolicySettings

ROLE_OF_QUEUE = {
    names.QUEUE_WORKFLOWS: "control",
    names.QUEUE_AWS: "aws",
    names.QUEUE_K8S: "k8s",
    names.QUEUE_SSH: "ssh",
    names.QUEUE_SSH_SLOW: "ssh",
    names.QUEUE_NOTIFY: "notify",
}
"""The worker role that serves each task queue."""


def credentials_in_use(settings: Settings) -> list[str]:
    """Every entry of aws.roles that a process or command of this cluster uses, and empty for the process's own."""
    return sorted({credentials_of(settings, role) for role in ("", *ROLE_OF_QUEUE.values(), "watcher", "intake")})


def credentials_of(settings: Settings, role: str) -> str:
    """Return the entry of aws.roles that a role uses, empty for the process's own credentials.

    While nothing may be done to nodes, all use those of `observe` where there are any: what cannot write is not asked to behave.
    """
    if "observe" in settings.aws.roles and observes(settings.policy):
        return "observe"
    return role if role in settings.aws.roles else ""


def observes(policy: PolicySettings) -> bool:
    """Whether no rung of any fault class may disrupt a node of any pool."""
    modes = policy.model_dump(mode="json", include={"mode", "mode_by_rung", "mode_by_class", "pools"})
    return not set(_words(modes)) & {Mode.APPROVE.value, Mode.ACT.value}


def _words(data: Any) -> Iterator[str]:
    """Every text in a table of tables."""
    for value in data.values():
        if isinstance(value, dict):
            yield from _words(value)
        elif isinstance(value, str):
            yield value
