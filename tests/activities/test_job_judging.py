"""The verdict on a job: each thing that is wrong with one is said, and the worst of them decides."""

from __future__ import annotations

from typing import Any

import pytest

from activities.jobs.judging import judge_job, steps_behind
from activities.jobs.protocol import JobState, JobStatus, RestartedBy
from checks.model import Verdict


def status(**changes: Any) -> JobStatus:
    well = {"job": "train", "state": JobState.RUNNING, "nodes": ["n1", "n2"], "ranks_on": ["n1", "n2"], "step": 120}
    return JobStatus(**{**well, "restarted_by": RestartedBy.CONTROLLER, "controller": "JobSet train", **changes})


def test_a_job_that_trains_is_ok_without_a_word() -> None:
    assert judge_job(status()).verdict is Verdict.OK
    assert judge_job(status()).because == ()


@pytest.mark.parametrize(
    ("changes", "verdict", "words"),
    [
        ({"state": JobState.STOPPED, "ranks_on": [], "waits_for": "2 pods wait"}, Verdict.CRITICAL, "no rank of it runs: 2 pods"),
        (
            {"ended": "failed: BackoffLimitExceeded", "state": JobState.STOPPED},
            Verdict.CRITICAL,
            "JobSet train starts it no more",
        ),
        ({"ended": "complete: done", "state": JobState.STOPPED}, Verdict.OK, "complete: done"),
        ({"state": JobState.UNKNOWN}, Verdict.UNKNOWN, "does not answer"),
        ({"state": JobState.HELD, "held_for": "n1 is repaired"}, Verdict.WARN, "it is held: n1 is repaired"),
        ({"starting_on": ["n2"]}, Verdict.WARN, "crashes and is started again, on n2"),
        ({"ranks_on": ["n1"]}, Verdict.WARN, "no rank is on n2"),
        ({"waits_for": "1 pod cannot be scheduled"}, Verdict.WARN, "1 pod cannot be scheduled"),
        ({"restarts_left": 0}, Verdict.WARN, "no restart left"),
        ({"warnings": ["set maxRestarts"]}, Verdict.WARN, "set maxRestarts"),
        ({"step": None}, Verdict.WARN, "no step counter is told"),
    ],
)
def test_what_is_wrong_is_said(changes: dict[str, Any], verdict: Verdict, words: str) -> None:
    judgement = judge_job(status(**changes))
    assert judgement.verdict is verdict
    assert len(judgement.because) == 1
    assert words in judgement.because[0]


def test_the_worst_is_said_first() -> None:
    judgement = judge_job(status(state=JobState.STOPPED, ranks_on=[], warnings=["set maxRestarts"], restarts_left=0))
    assert judgement.verdict is Verdict.CRITICAL
    assert [words.split()[0] for words in judgement.because] == ["no", "JobSet", "set"]


def test_a_job_of_ours_has_no_budget_to_run_out_of() -> None:
    assert judge_job(status(restarted_by=RestartedBy.HOTSPARE, restarts_left=0)).verdict is Verdict.OK


@pytest.mark.parametrize(
    ("changes", "behind"),
    [
        ({}, (None, None)),
        ({"checkpoint_step": 100}, (20, None)),
        ({"checkpoint_step": 100, "seconds_per_step": 2.5}, (20, 50.0)),
        ({"checkpoint_step": 130, "seconds_per_step": 2.5}, (0, 0.0)),
    ],
)
def test_the_age_of_the_checkpoint_is_told_as_far_as_it_is_known(changes: dict[str, Any], behind: tuple[Any, Any]) -> None:
    assert steps_behind(status(**changes)) == behind
