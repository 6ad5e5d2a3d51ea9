"""The matrix as Markdown: rows are steps, columns kinds of failure, cells how the story ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from tests.chaos.points import LOOK_KINDS, Kind, StepKey, is_look
from tests.chaos.stories import ChaosStory


class Cell(Protocol):
    """What was seen of one case."""

    @property
    def end(self) -> str: ...

    @property
    def broken(self) -> tuple[str, ...]: ...


Cells = Mapping[tuple[str, StepKey, Kind], Cell]


def table_of(story: ChaosStory, steps: Iterable[StepKey], kinds: list[Kind], cells: Cells) -> str:
    """One story's table."""
    lines = [f"## {f'XID {story.xid}: {story.title}' if story.xid else story.title.capitalize()}", ""]
    lines.append(f"| step | {' | '.join(kind.value for kind in kinds)} |")
    lines.append("|---" * (len(kinds) + 1) + "|")
    for step in steps:
        shown = [_shown(step, kind, cells.get((story.key, step, kind))) for kind in kinds]
        lines.append(f"| {step} | {' | '.join(shown)} |")
    return "\n".join([*lines, ""])


def _shown(step: StepKey, kind: Kind, cell: Cell | None) -> str:
    if cell is None:
        return "-" if is_look(step.point) and kind not in LOOK_KINDS else "..."
    return f"**BROKEN** {cell.end}" if cell.broken else cell.end


HEAD = """# Kill-anywhere matrix

Written by `make chaos`; do not edit. Each row is one call that a story makes to the outside, found by recording an
undisturbed run: the three stories of the demonstration, three of a job that its controller restarts, and four that no fault
begins: a spare's test, a launch, a launch in a retired node's place, a burn-in by hand. Each column is what goes wrong at that
call. A cell says how the story ended. Every cell passed one checker (`tests/chaos/checker.py`): each incident
is resolved, or with a person who was paged with the next command, or cancelled and remembered as such; each reboot, attachment
and resume happened at most once, and each page under one key; no tag, lease or booking is left without an owner; the job was
resumed at most once, on nodes that had passed their burn-in and of which none is quarantined; and what a controller was given
had passed a burn-in too. Of the last four: a spare that fails is never remembered as one that passed; one instance is launched at
most, and it is in the pool and proven, or a person was told that it runs; a retired node was ended once, only for a spare that is
in the pool, and not after a person had cancelled; a burn-in accuses the slow node or nobody, and leaves no run behind.

A look changes nothing, so two columns do not apply to it (-). Looks at nodes that only stand by (the job's other nodes in a
comparison), and parts of the evidence bundle that are read in the same way, are tried at one of them.

A cell "..." was not played when this page was written; `python -m tests.chaos.matrix --keep FOLDER` goes on where it stopped. A
page written with `--effects` has only the calls that change something.

"trains" means that the job runs again and steps; "job with a person" that it stays held and a person was told why. Nodes that
are ill for good are quarantined for a person in every story and are not named in the cells.

"""


def page_of(stories: Iterable[ChaosStory], steps: dict[str, list[StepKey]], kinds: list[Kind], cells: Cells) -> str:
    """The whole page."""
    return HEAD + "\n".join(table_of(story, steps[story.key], kinds, cells) for story in stories)
