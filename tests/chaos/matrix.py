"""The kill-anywhere matrix: every step of every story, with every kind of failure; printed, and written into docs/.

python -m tests.chaos.matrix [--story 79] [--kind "fails once"] [--step reboot] [--jobs 2] [--write docs/kill-anywhere.md]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TextIO

from temporalio.testing import TimeSkipper

from tests.chaos.arena import Arena, Limbo, arena, ground
from tests.chaos.begun import begin, check_begun
from tests.chaos.checker import Ending, check
from tests.chaos.points import LOOK_KINDS, Disturbance, Kind, StepKey, is_look
from tests.chaos.rows import rows_of
from tests.chaos.stories import STORIES, ChaosStory
from tests.chaos.table import page_of, table_of
from workers.launch.ending import end_process

NEVER_PLAYED = "never played"

STORIES_ON_ONE_SERVER = 40
"""Played before a new server is begun: it keeps everything in memory."""

TREE = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Case:
    """One cell of the matrix."""

    story: str
    step: StepKey
    kind: Kind

    def __str__(self) -> str:
        return f"story {self.story}, {self.step}, {self.kind}"


@dataclass(frozen=True)
class Result:
    """What was seen in a cell."""

    case: Case
    end: str
    broken: tuple[str, ...] = ()


async def steps_of(env: TimeSkipper, story: ChaosStory) -> list[StepKey]:
    """Play a story undisturbed and return its steps in order. Raises AssertionError when even that breaks a promise."""
    with tempfile.TemporaryDirectory() as folder:
        async with arena(env, Path(folder), story=story) as one:
            ending = await play(one, story)
            assert not ending.broken, f"story {story.key} undisturbed: {'; '.join(ending.broken)}"
            assert sum(one.fleet.count("reboot", name) for name in one.fleet.machines) == story.reboots
            return rows_of(one.points.steps)


async def all_steps(stories: list[ChaosStory]) -> dict[str, list[StepKey]]:
    """The steps of each story."""
    found = {}
    for story in stories:
        async with ground() as env:
            found[story.key] = await steps_of(env, story)
    return found


async def run_case(env: TimeSkipper, case: Case, cluster: str = "lab") -> Result:
    """Play a story with one step disturbed, and judge the end."""
    story = next(one for one in STORIES if one.key == case.story)
    disturbance = Disturbance(case.step, case.kind)
    with tempfile.TemporaryDirectory() as folder:
        try:
            async with arena(env, Path(folder), story=story, cluster=cluster, disturbance=disturbance) as one:
                ending = await play(one, story)
        except Limbo as limbo:
            return Result(case, "LIMBO", (str(limbo),))
        except Exception:  # one cell that cannot be played must not hide the others
            return Result(case, "ERROR", (" / ".join(traceback.format_exc().splitlines()[-3:]),))
    if not disturbance.reached:
        ending.broken.append("the step was never reached")
    return Result(case, ending.words, tuple(ending.broken))


async def play(one: Arena, story: ChaosStory) -> Ending:
    """Break the node of a story, let the story play, and judge the world afterwards."""
    for name, fault in story.hidden:
        one.fleet.inject(name, fault)
    if story.begins:
        await begin(one, story)
        await one.play()
        return await check_begun(one, story)
    one.fleet.inject(story.node, story.fault)
    await one.report(story.node, xid=story.xid)
    await one.play()
    return await check(one, story)


def cases_of(story: ChaosStory, steps: Iterable[StepKey], kinds: Iterable[Kind]) -> list[Case]:
    """Every kind of failure at each step."""
    wanted = list(kinds)
    return [Case(story.key, step, kind) for step in steps for kind in wanted if kind in LOOK_KINDS or not is_look(step.point)]


def part_main(cases_file: Path, out: Path) -> None:
    """Play the cases of a file one after the other; each result is one line."""
    cases = [_case(json.loads(line)) for line in cases_file.read_text().splitlines()]
    with out.open("w") as lines:
        for at in range(0, len(cases), STORIES_ON_ONE_SERVER):
            asyncio.run(_play_some(cases[at : at + STORIES_ON_ONE_SERVER], lines))


async def _play_some(cases: list[Case], lines: TextIO) -> None:
    async with ground() as env:
        for number, case in enumerate(cases):
            result = await run_case(env, case, f"lab{number}")
            lines.write(json.dumps({"case": _plain(case), "end": result.end, "broken": result.broken}) + "\n")
            lines.flush()
            print(f"{'ok ' if not result.broken else 'BAD'} {case}: {result.end} {'; '.join(result.broken)}", flush=True)


def _plain(case: Case) -> dict[str, object]:
    return {"story": case.story, "step": asdict(case.step), "kind": case.kind.value}


def _case(plain: dict[str, object]) -> Case:
    return Case(str(plain["story"]), StepKey(**plain["step"]), Kind(plain["kind"]))  # type: ignore[arg-type]


def play_all(cases: list[Case], jobs: int, folder: Path) -> list[Result]:
    """Play the cases in `jobs` processes side by side, but those whose result lies in the folder already.

    What changes something comes first.
    """
    known = _results_in(folder)
    missing = sorted((case for case in cases if case not in known), key=_urgency)
    parts = []
    for number in range(jobs if missing else 0):
        mine, out = folder / f"cases-{number}", folder / f"results-{os.getpid()}-{number}"
        mine.write_text("".join(json.dumps(_plain(case)) + "\n" for case in missing[number::jobs]))
        command = [sys.executable, "-m", "tests.chaos.matrix", "--part", str(mine), str(out)]
        parts.append(subprocess.Popen(command, cwd=TREE, env={**os.environ, "PYTHONPATH": str(TREE)}))
    for part in parts:
        part.wait()
    known = _results_in(folder)
    return [known.get(case) or Result(case, NEVER_PLAYED, ("its process ended",)) for case in cases]


def _urgency(case: Case) -> tuple[bool, bool]:
    return is_look(case.step.point), case.kind is Kind.KILLED_BEFORE


def _results_in(folder: Path) -> dict[Case, Result]:
    known = {}
    for out in sorted(folder.glob("results-*")):
        for seen in map(json.loads, out.read_text().splitlines()):
            result = Result(_case(seen["case"]), seen["end"], tuple(seen["broken"]))
            known[result.case] = result
    return known


def _wanted(given: argparse.Namespace, step: StepKey) -> bool:
    return (not given.step or any(part in str(step) for part in given.step)) and not (given.effects and is_look(step.point))


def main() -> int:
    """Discover, play, print, write. Status 0 when no promise was broken, 2 otherwise."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--story", choices=[story.key for story in STORIES], action="append")
    parser.add_argument("--kind", choices=[kind.value for kind in Kind], action="append")
    parser.add_argument("--step", action="append", help="only steps whose text contains this")
    parser.add_argument("--effects", action="store_true", help="only calls that change something")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2)))
    parser.add_argument("--write", type=Path)
    parser.add_argument("--keep", type=Path, help="folder of results: what lies there is not played again")
    parser.add_argument("--known", action="store_true", help="play nothing: print and write what --keep holds")
    parser.add_argument("--part", type=Path, nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    logging.getLogger("temporalio").setLevel(logging.CRITICAL + 1)
    if given.part:
        part_main(*given.part)
        return 0
    stories = [story for story in STORIES if not given.story or story.key in given.story]
    fits: Callable[[StepKey], bool] = lambda step: _wanted(given, step)  # noqa: E731
    steps = {key: [step for step in found if fits(step)] for key, found in asyncio.run(all_steps(stories)).items()}
    kinds = [Kind(kind) for kind in given.kind or list(Kind)]
    cases = [case for story in stories for case in cases_of(story, steps[story.key], kinds)]
    print(f"{len(cases)} cases: {', '.join(f'story {key}: {len(found)} steps' for key, found in steps.items())}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        if given.keep:
            given.keep.mkdir(parents=True, exist_ok=True)
        results = play_all(cases, 0 if given.known else given.jobs, given.keep or Path(folder))
    if given.known:
        results = [result for result in results if result.end != NEVER_PLAYED]
    cells = {(result.case.story, result.case.step, result.case.kind): result for result in results}
    for story in stories:
        print(table_of(story, steps[story.key], kinds, cells))
    broken = [result for result in results if result.broken]
    for result in broken:
        print(f"BROKEN {result.case}: {'; '.join(result.broken)}")
    if given.write:
        given.write.write_text(page_of(stories, steps, kinds, cells))
    return 2 if broken else 0


if __name__ == "__main__":
    end_process(main())
