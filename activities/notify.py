"""Pages for people: one JSON document posted to each configured URL and written to a log."""

from __future__ import annotations

from typing import Protocol

from temporalio import activity

from activities.errors import as_application_error
from activities.message import Message


class Page(Message):
    """What a person needs at three in the morning: what, where, why, and the next command to type."""

    key: str
    incident: str
    node: str
    title: str
    why: list[str] = []
    next_commands: list[str] = []
    ui_link: str = ""


class Notifier(Protocol):
    """Delivers pages. Raises TransientError when no configured URL took it; the log always has it."""

    def send(self, page: Page) -> None: ...


class NotifyActivities:
    """Pages sent by workflows."""

    def __init__(self, notifier: Notifier) -> None:
        self._notifier = notifier

    @activity.defn
    def page(self, request: Page) -> None:
        """Tell a person. The receiver drops repeats by the page's `key`."""
        with as_application_error():
            self._notifier.send(request)
