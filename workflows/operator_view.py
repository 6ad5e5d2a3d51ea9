"""What an operator reads of a workflow: the story so far, the stage table, the search attributes."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from temporalio import workflow
from temporalio.common import SearchAttributeKey, SearchAttributeUpdate

with workflow.unsafe.imports_passed_through():
    from activities.message import Message

TEXT_LIMIT = 300
"""Characters of one line of the story. Hotspare default: an operator reads lines, raw output stays in the evidence bundle."""


class Line(Message):
    """One line of the story."""

    at: datetime
    phase: str
    text: str


class OperatorView:
    """Collects the story and shows it; healing never depends on any of it."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.attributes_on = False
        self._shown: dict[str, str | bool | list[str]] = {}

    def tell(self, phase: str, text: str) -> None:
        """Add a line, and show the table anew."""
        self.lines.append(
            Line(at=workflow.now(), phase=phase, text=text if len(text) <= TEXT_LIMIT else f"{text[: TEXT_LIMIT - 1]}…")
        )
        workflow.set_current_details(self.table())

    def table(self) -> str:
        """Return the story as a Markdown table."""
        rows = "\n".join(f"| {line.at:%H:%M:%S} | **{line.phase}** | {_cell(line.text)} |" for line in self.lines)
        return f"| time (UTC) | step | what and why |\n|---|---|---|\n{rows}"

    def attributes(self, **values: str | bool | list[str]) -> None:
        """Set search attributes that changed, in one event."""
        changed = {name: value for name, value in values.items() if self._shown.get(name) != value}
        self._shown.update(changed)
        if changed and self.attributes_on:
            workflow.upsert_search_attributes([_update(f"Hotspare{name}", value) for name, value in changed.items()])


def _cell(text: str) -> str:
    for sign in "|[]":  # a column, and a link that would hide half of the text
        text = text.replace(sign, f"\\{sign}")
    return text.replace("\n", " ")


def _update(name: str, value: str | bool | list[str]) -> SearchAttributeUpdate[Any]:
    if isinstance(value, bool):
        return SearchAttributeKey.for_bool(name).value_set(value)
    if isinstance(value, list):
        return SearchAttributeKey.for_keyword_list(name).value_set(value)
    return SearchAttributeKey.for_keyword(name).value_set(value)
