"""Notices when an incident goes in circles: the same step again and again, and nothing that it has changed."""

from __future__ import annotations

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from workflows.decisions.facts import Facts, Step, StepKind

CIRCLES = 3
"""How often a step may change nothing before a person is asked. Hotspare default: twice can be bad luck."""

CIRCLES_WAIT_S = 1800.0
"""Seconds until a step that changed nothing is tried again unasked. Hotspare default: as an unanswered question."""

WAITS = (
    *(StepKind.ASK_PERSON, StepKind.AWAIT_JOB, StepKind.AWAIT_BOUNDARY),
    *(StepKind.EXAMINE, StepKind.ASK_LEAVE, StepKind.CLOSE, StepKind.AWAIT_CAPACITY),
)
"""Steps that wait for the world outside, and so may come again with nothing changed."""


class Circles:
    """Remembers the last step and the facts that it was taken on."""

    def __init__(self) -> None:
        self._last = ""
        self._times = 0

    def closes(self, step: Step, facts: Facts) -> bool:
        """Return whether this step has now been taken often enough on unchanged facts."""
        known = facts.model_dump_json(exclude={"now", "examination", "unreadable_probes"})
        mark = f"{step.kind}/{step.rung}/{known}"
        self._times = self._times + 1 if mark == self._last else 0
        self._last = mark
        if step.kind in WAITS or self._times < CIRCLES:
            return False
        self._times = 0
        return True
