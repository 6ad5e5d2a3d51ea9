"""Which recorded steps become rows: each that differs. What one piece of code does to several things alike is one row."""

from __future__ import annotations

from collections.abc import Iterable

from tests.chaos.points import StepKey, is_look

STANDS_FOR_ALL = frozenset({"run.dmesg", "run.probe", "run.uptime"})
"""Parts of the evidence bundle that are tried: the kernel log, the probe, and a plain command for every other plain command."""


def rows_of(steps: Iterable[StepKey]) -> list[StepKey]:
    """Return the steps to disturb, in order."""
    rows: dict[tuple[str, str, int, str, str, int], StepKey] = {}
    for step in steps:
        if step.activity == "collect_evidence" and is_look(step.point) and step.point not in STANDS_FOR_ALL:
            continue
        rows.setdefault(_kind_of(step), step)
    return list(rows.values())


def _kind_of(step: StepKey) -> tuple[str, str, int, str, str, int]:
    """What makes a step another than one before it."""
    own = step.node in ("", "head", "cluster", "train") or step.node in step.workflow or step.node.startswith("spare")
    node = step.node if own or not is_stand_by(step) else "a node that stands by"
    node = "a GPU" if step.point == "memory.save_gpu" else node
    seldom_differs = step.workflow == "burn-in" or step.point in ("inventory", "put") or step.point.startswith("memory.")
    same_each_time = (is_look(step.point) or step.point.startswith("memory.")) and seldom_differs
    return step.workflow, step.activity, 0 if same_each_time else step.nth, step.point, node, step.call


def is_stand_by(step: StepKey) -> bool:
    """Whether the step only looks at a node, or remembers its set-up: nothing is done to that node."""
    return is_look(step.point) or step.point in ("put", "memory.configuration")
