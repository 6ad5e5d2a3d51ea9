"""The demonstration is honest: a story that ends other than promised is judged so, whichever promise was broken."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest

from tests.demo.endings import BEFORE, good_ending
from workers.demo.ending import judge
from workers.demo.following import that_counts
from workers.demo.job_watch import JobWatch
from workers.demo.stories import STORIES, Setting, Story, choose
from workflows.messages import IncidentReport

RESOLVED = "every incident ended, resolved"
TRAINS = "the job trains again, resumed once from its checkpoint"


def broken(story: Story, **changes: object) -> list[str]:
    """The promises that the changed ending breaks."""
    ending = replace(good_ending(story), **changes)  # type: ignore[arg-type]
    return [check.promise for check in judge(ending, story.expected) if not check.kept]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: f"xid-{story.key}")
def test_a_story_that_keeps_its_promises_is_judged_good(story: Story) -> None:
    assert broken(story) == []


@pytest.mark.parametrize("story", STORIES, ids=lambda story: f"xid-{story.key}")
@pytest.mark.parametrize(
    ("changes", "promise"),
    [
        ({"reports": {}}, RESOLVED),
        ({"reports": {"node-2": IncidentReport(outcome="escalated")}}, RESOLVED),
        ({"still_open": ("job/lab/llama",)}, RESOLVED),
        ({"resumed_from": None}, TRAINS),
        ({"resumed_from": 80}, TRAINS),
        (
            {"job_after": replace(BEFORE, state="HELD", resumes=1, step=80)},
            "the job trains again, resumed once from its checkpoint",
        ),
        ({"job_after": replace(BEFORE, resumes=2, step=80)}, TRAINS),
        ({"job_after": replace(BEFORE, resumes=0, step=80)}, TRAINS),
    ],
)
def test_no_story_is_good_with_an_open_incident_or_a_job_that_does_not_train(
    story: Story, changes: dict[str, object], promise: str
) -> None:
    assert promise in broken(story, **changes)


def test_a_controller_may_restart_the_job_more_than_once_and_hotspare_never() -> None:
    story = choose(["64"], Setting("kubernetes", "JobSet"))[0]
    assert story.controlled
    ending = good_ending(story)

    def kept(**job: object) -> bool:
        after = replace(ending.job_after, **job)  # type: ignore[arg-type]
        return all(check.kept for check in judge(replace(ending, job_after=after), story.expected, controlled=True))

    assert kept(resumes=2)
    assert not kept(resumes=2, by_us=1)
    assert not kept(resumes=0)
    assert not kept(state="HELD")


def test_a_second_reboot_is_not_the_once_that_was_promised() -> None:
    assert broken(choose(["79"])[0], reboots={"node-2": 2}) == ["node-2 is rebooted once"]


def test_a_reboot_of_a_node_that_no_reboot_can_mend_is_noticed() -> None:
    assert broken(choose(["64"])[0], reboots={"node-3": 1}) == ["node-3 is not rebooted"]


def test_a_bad_node_left_in_the_job_or_in_service_is_noticed() -> None:
    story = choose(["94"])[0]
    assert broken(story, quarantined=frozenset()) == ["node-4 stays out of service"]
    still_there = replace(good_ending(story).job_after, nodes=BEFORE.nodes)
    assert broken(story, job_after=still_there) == ["it trains with node-1, spare-2 and without node-4"]


def test_a_job_that_shrank_is_no_good_ending() -> None:
    story = choose(["64"])[0]
    smaller = replace(good_ending(story).job_after, nodes=("node-1", "node-2", "spare-1"))
    assert broken(story, job_after=smaller) == ["it trains with spare-1 and without node-3"]


def test_stories_are_chosen_by_their_code_however_it_is_written() -> None:
    assert [story.key for story in choose(["XID64", "79"])] == ["64", "79"]
    assert choose([]) == STORIES


def test_a_fault_without_a_story_is_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError, match="no story for 31; there is one for XID 79, 64, 94"):
        choose(["31"])


def test_no_two_stories_use_the_same_node_or_spare() -> None:
    used = [name for story in STORIES for name in {story.fault.node, *(hidden.node for hidden in story.hidden), *story.spares}]
    assert len(used) == len(set(used))


def test_the_job_counts_as_training_again_only_past_the_checkpoint_that_it_came_back_from() -> None:
    watch, seconds = JobWatch(BEFORE), count(1)
    looks = [
        replace(BEFORE, step=62),
        replace(BEFORE, state="STOPPED", step=63),
        replace(BEFORE, state="RUNNING", step=50, resumes=1),
        replace(BEFORE, state="RUNNING", step=53, resumes=1),
    ]
    for look in looks:
        watch.see(look, float(next(seconds)))
    assert (watch.stopped_at, watch.stopped_s, watch.resumed_from, watch.again_s) == (63, 2.0, 50, 4.0)


@pytest.mark.parametrize("later", [None, IncidentReport(outcome="nothing found")])
def test_a_report_that_comes_late_and_finds_nothing_takes_no_result_away(later: IncidentReport | None) -> None:
    healed, worse = IncidentReport(outcome="resolved"), IncidentReport(outcome="escalated")
    assert that_counts(healed, later) is healed
    assert that_counts(None, later) is later
    assert that_counts(healed, worse) is worse
