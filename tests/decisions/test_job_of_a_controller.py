"""The policy for a job that its controller restarts: what is proven before it serves, and where a repaired node goes."""

from __future__ import annotations

from typing import Any

from checks.model import Action, Verdict
from tests.decisions.situations import ACTING, out
from workflows.decisions.facts import Facts, Spare, StepKind
from workflows.decisions.policy import next_step

JOB: dict[str, Any] = {"job": "train", "job_controller": "JobSet train", "job_told": True}
REPAIRED: dict[str, Any] = {**JOB, "disrupted": True, "retest": Verdict.OK}


def swapped(**changes: Any) -> Facts:
    """A node for which spare-1 was brought in; it was repaired since."""
    return out(**{**REPAIRED, "job_answered": True, "job_done": True, "spare": Spare.READY, "spare_name": "spare-1", **changes})


def test_a_spare_is_proven_before_it_is_brought_in() -> None:
    ready = out(**JOB, spare=Spare.READY, spare_name="spare-1")
    assert next_step(ready, ACTING).kind is StepKind.PROVE_SPARE
    proven = ready.model_copy(update={"proof": Verdict.OK})
    assert next_step(proven, ACTING).kind is StepKind.BRING_IN
    unproven = next_step(ready.model_copy(update={"proof": Verdict.UNKNOWN}), ACTING)
    assert (unproven.kind, unproven.rung) == (StepKind.ASK_PERSON, Action.RESTART_JOB)


def test_a_repaired_node_joins_the_pool_when_the_job_trains_on_the_spare() -> None:
    assert next_step(swapped(job_outcome="resumed at step 12"), ACTING).kind is StepKind.RETURN_TO_POOL


def test_a_repaired_node_stays_the_job_s_when_its_controller_has_not_managed_with_the_spare() -> None:
    failed = swapped(job_outcome="not resumed: no rank ever started")
    assert next_step(failed, ACTING).kind is StepKind.BURN_IN
    paired = failed.model_copy(update={"burn_in": Verdict.OK})
    back = next_step(paired, ACTING)
    assert back.kind is StepKind.BACK_IN_SERVICE
    assert "train was not brought back with another node" in back.because
    closed = next_step(paired.model_copy(update={"back_in_service": True, "quarantined": False}), ACTING)
    assert (closed.kind, closed.outcome) == (StepKind.CLOSE, "escalated")


def test_a_repaired_node_that_fails_in_its_pair_goes_up_the_ladder_and_does_not_serve() -> None:
    failed = swapped(job_outcome="not resumed: no rank ever started", burn_in=Verdict.CRITICAL)
    assert next_step(failed, ACTING).kind is StepKind.DISRUPT
