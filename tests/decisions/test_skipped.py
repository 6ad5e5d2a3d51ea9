"""What a person said to skip is not done, and not asked again; a job that runs is not stopped for nothing."""

from __future__ import annotations

from checks.model import Action
from tests.decisions.situations import ACTING, facts, opinion, out
from workflows.decisions.facts import StepKind
from workflows.decisions.policy import next_step
from workflows.decisions.settings import Mode, PolicySettings

RUNGS = [Action.REBOOT_NODE, Action.POWER_CYCLE, Action.REPLACE_NODE]


def test_a_job_that_still_runs_is_not_stopped_when_a_person_has_skipped_every_rung() -> None:
    asking = PolicySettings(mode=Mode.APPROVE)
    running = out(job="train", job_running=True)
    assert next_step(running, asking).kind is StepKind.ASK_PERSON
    skipped = running.model_copy(update={"skipped_steps": [rung.value for rung in RUNGS]})
    for policy in (asking, ACTING):
        step = next_step(skipped, policy)
        assert (step.kind, step.outcome) == (StepKind.CLOSE, "escalated")
        assert "train still runs" in step.page
    died = skipped.model_copy(update={"job_running": False})
    assert next_step(died, ACTING).kind is StepKind.TELL_JOB


def test_a_restart_that_a_person_has_skipped_is_not_asked_again() -> None:
    for action, fault in ((Action.RESTART_JOB, "application"), (Action.RUN_DIAGNOSTICS, "unknown_code")):
        crashed = facts(opinion(fault, action, None), job="train", alone=True)
        asked = next_step(crashed, PolicySettings(mode=Mode.APPROVE))
        assert (asked.kind, asked.rung) == (StepKind.ASK_PERSON, Action.RESTART_JOB)
        skipped = crashed.model_copy(update={"skipped_steps": [Action.RESTART_JOB.value]})
        step = next_step(skipped, PolicySettings(mode=Mode.APPROVE))
        assert (step.kind, step.outcome) == (StepKind.CLOSE, "escalated")
