"""One failure of each kind in each story of the demonstration; some where a controller restarts the job, or of spares.

Judged by the checker of the whole matrix (`make chaos`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from activities import names
from tests.chaos.arena import arena, ground
from tests.chaos.checker import check
from tests.chaos.matrix import Case, play, run_case
from tests.chaos.points import Kind, StepKey
from tests.chaos.stories import STORIES

REBOOT = StepKey("incident node-2", "reboot_node", 1, "reboot", "node-2", 1)
BOOT_LOOK = StepKey("incident node-2", "await_boot", 1, "boot_id", "node-2", 1)
ATTACH = StepKey("replace node-3", "tag_node", 1, "set_tags", "spare-1", 1)
SPARE_TEST = StepKey("replace node-3", "deep_test", 1, "start", "spare-1", 1)
RESUME = StepKey("job train", "resume_job", 1, "job.resume", "train", 1)
GROUP_TEST = StepKey("burn-in", "group_test", 1, "group.start", "", 1)
QUARANTINE_SLOW = StepKey("incident node-4", "quarantine_node", 1, "set_tags", "node-4", 1)
LETTER = StepKey("incident node-1", "join_job", 1, "gateway.join_job", "train", 1)

SELECTION = (
    Case("79", REBOOT, Kind.KILLED_BEFORE),
    Case("79", REBOOT, Kind.KILLED_AFTER),
    Case("79", REBOOT, Kind.ANSWER_LOST),
    Case("79", BOOT_LOOK, Kind.FAILS_ONCE),
    Case("79", RESUME, Kind.FAILS_FOR_GOOD),
    Case("79", REBOOT, Kind.HANGS),
    Case("64", ATTACH, Kind.KILLED_BEFORE),
    Case("64", RESUME, Kind.KILLED_AFTER),
    Case("64", ATTACH, Kind.ANSWER_LOST),
    Case("64", SPARE_TEST, Kind.FAILS_ONCE),
    Case("64", ATTACH, Kind.FAILS_FOR_GOOD),
    Case("64", RESUME, Kind.HANGS),
    Case("94", GROUP_TEST, Kind.KILLED_BEFORE),
    Case("94", QUARANTINE_SLOW, Kind.KILLED_AFTER),
    Case("94", RESUME, Kind.ANSWER_LOST),
    Case("94", LETTER, Kind.FAILS_ONCE),
    Case("94", QUARANTINE_SLOW, Kind.FAILS_FOR_GOOD),
    Case("94", GROUP_TEST, Kind.HANGS),
    Case("79", REBOOT, Kind.CANCELLED),
    Case("64", ATTACH, Kind.CANCELLED),
    Case("94", LETTER, Kind.CANCELLED),
)

SUPPLY = StepKey("job train", "await_controller", 1, "job.supply", "spare-1", 1)
PROOF = StepKey("burn-in", "group_test", 1, "group.start", "", 1)
DRAIN = StepKey("incident node-2", "drain_node", 1, "drain", "node-2", 1)
TAKE_OVER = StepKey("job train", "hold_job", 2, "job.hold", "train", 1)

OF_A_CONTROLLER = (
    Case("proven", SUPPLY, Kind.KILLED_AFTER),
    Case("proven", PROOF, Kind.CANCELLED),
    Case("paired", DRAIN, Kind.KILLED_BEFORE),
    Case("taken-over", TAKE_OVER, Kind.ANSWER_LOST),
)


LAUNCH = StepKey("spare by-hand", "launch_spare", 1, "launch", "", 1)
TERMINATE = StepKey("spare by-hand", "terminate_node", 1, "terminate", "", 1)
SPARE_NOTED = StepKey("qualify spare-1", "note_spare_test", 1, "memory.save", "spare-1", 1)
THIRD_RUN = StepKey("burn-in", "group_test", 3, "group.start", "", 1)

OF_SPARES = (
    Case("renewed", LAUNCH, Kind.KILLED_AFTER),
    Case("renewed", LAUNCH, Kind.CANCELLED),
    Case("renewed", TERMINATE, Kind.ANSWER_LOST),
    Case("spare-fails", SPARE_NOTED, Kind.FAILS_FOR_GOOD),
    Case("by-hand", THIRD_RUN, Kind.KILLED_BEFORE),
)


async def test_what_is_done_about_spares_and_a_burn_in_by_hand_end_well_or_with_a_person_too() -> None:
    await none_broken(OF_SPARES)


async def test_a_job_of_a_controller_ends_well_or_with_a_person_too() -> None:
    await none_broken(OF_A_CONTROLLER)


@pytest.mark.parametrize("kind", list(Kind), ids=lambda kind: kind.value.replace(" ", "-").replace(",", ""))
async def test_each_story_ends_well_or_with_a_person_whatever_goes_wrong_at_one_call(kind: Kind) -> None:
    """The three stories are played side by side: most of their time they wait for the server to give a lost attempt up."""
    cases = [case for case in SELECTION if case.kind is kind]
    assert len(cases) == 3
    await none_broken(cases)


async def none_broken(cases: Sequence[Case]) -> None:
    """Play cases side by side, each on a server of its own."""
    async with AsyncExitStack() as stack:
        grounds = [await stack.enter_async_context(ground()) for _ in cases]
        results = await asyncio.gather(*(run_case(env, case) for env, case in zip(grounds, cases, strict=True)))
    assert [f"{result.case}: {'; '.join(result.broken)}" for result in results if result.broken] == []


FOUND = (
    Case("79", StepKey("incident node-2", "brief", 1, "inventory", "", 1), Kind.FAILS_FOR_GOOD),
    Case("79", StepKey("incident node-2", "post_to_cluster", 3, "gateway.give_back", "cluster", 1), Kind.FAILS_FOR_GOOD),
    Case("79", StepKey("job train", "post", 1, "gateway.job_resumed", "incident node-2", 1), Kind.FAILS_FOR_GOOD),
    Case("64", StepKey("replace node-3", "tag_node", 2, "remove_tags", "spare-1", 1), Kind.FAILS_FOR_GOOD),
)
"""Cells of the matrix that once were broken: an incident or a recovery that died unheard, a spare in use that was given away."""


async def test_what_fails_for_good_where_it_once_ended_badly_ends_with_a_person() -> None:
    await none_broken(FOUND)


async def test_the_checker_sees_harm_of_each_kind(tmp_path: Path) -> None:
    story = STORIES[1]
    async with ground() as env, arena(env, tmp_path, story=story) as one:
        assert (await play(one, story)).broken == []
        fleet = one.fleet
        spare = fleet.node("spare-1").instance_id
        fleet.job.resumes.append(("again", ["node-1", "node-3"]))
        fleet.ec2.tags[spare] |= {names.TAG_LEASE: "replace/lab/i-other", names.TAG_QUARANTINE: "incident/lab/i-other"}
        for _ in range(2):
            fleet.points.carry_out("reboot", "node-1", lambda: None)
        fleet.pages.clear()
        harm = "; ".join((await check(one, story)).broken)
    for words in (
        "the job was resumed 2 times",
        "never burned in together",
        "spare-1 is still leased to replace/lab/i-other",
        "spare-1 is quarantined by incident/lab/i-other",
        "the job runs on spare-1, which is quarantined",
        "reboot of node-1: 2 times",
        "node-1 was restarted more often than host memory knows",
    ):
        assert words in harm
