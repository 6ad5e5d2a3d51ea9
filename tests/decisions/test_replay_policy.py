"""A changed policy is tried on past incidents: what was recorded suffices to decide again, and what does not is counted."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from activities.host_memory import ClosedIncident, HostRecord, RungAttempt
from checks.model import Action, Verdict
from tests.decisions.situations import ACTING, NODE, NOW, examination, facts, opinion, out
from workflows.decisions.facts import Facts, RungOutcome, RungTaken, Spare, StepKind
from workflows.decisions.policy import next_step
from workflows.decisions.replayed import in_words, rebuild, recorded, repeats, replay, same
from workflows.decisions.settings import Mode, PolicySettings

HEALTHY = opinion("none", Action.NONE, None)
UNREAD = examination(HEALTHY, verdict=Verdict.UNKNOWN)
AWAY = examination(opinion("unreachable", code=None), reachable=False)
ATTEMPT = RungAttempt(rung=Action.REBOOT_NODE, at=NOW - timedelta(hours=2), fault_class="gpu_lost", incident="earlier")
TRIED = HostRecord(instance_id="i-1", attempts=[ATTEMPT])
SPENT = HostRecord(instance_id="i-1", attempts=[ATTEMPT.model_copy(update={"incident": f"run-{n}"}) for n in range(3)])

SITUATIONS = {
    "not looked at": facts(examination=None, opinion=None),
    "nothing wrong": facts(HEALTHY, examination=examination(HEALTHY, verdict=Verdict.OK)),
    "unread": facts(HEALTHY, examination=UNREAD, unreadable_probes=1),
    "monitor failed": facts(HEALTHY, examination=UNREAD, unreadable_probes=3),
    "away for us alone": facts(opinion("unreachable", code=None), examination=AWAY, unreadable_probes=3),
    "asks leave": facts(),
    "opted out": facts(node=NODE.model_copy(update={"opt_out": "a benchmark runs"})),
    "tells the job": out(job="train"),
    "reboots": out(),
    "came back": out(record=TRIED),
    "its budget is spent": out(record=SPENT),
    "resets": out(opinion("reset_needed", Action.RESET_GPU)),
    "replaces": out(job="train", job_told=True),
    "one rung was in vain": out(taken=[RungTaken(rung=Action.REBOOT_NODE, outcome=RungOutcome.DID_NOT_HELP)], disrupted=True),
    "re-tests": out(disrupted=True),
    "no spare": out(job="train", job_told=True, spare=Spare.NONE_FREE, spare_reason="none is free"),
    "waits for the boundary": facts(opinion(at := "memory_exhausted", Action.REPLACE_NODE)).model_copy(
        update={
            "opinion": opinion(at, Action.REPLACE_NODE).model_copy(update={"at_boundary": True}),
            "job": "train",
            "job_running": True,
        }
    ),
}
POLICIES = {
    "acting": ACTING,
    "observing": PolicySettings(),
    "asking": PolicySettings(mode=Mode.APPROVE),
    "resets known": PolicySettings(mode=Mode.ACT, reset_capable_types=["p5.48xlarge"]),
    "soft": PolicySettings(mode=Mode.ACT, soft_reboot=True),
    "of a pool": PolicySettings(pools={"p5.48xlarge": {"mode": "act"}}),
}


def closed(*decided: Facts, policy: PolicySettings = ACTING, **more: object) -> ClosedIncident:
    """An incident that decided so under a policy."""
    texts = [recorded(one, next_step(one, policy)) for one in decided]
    start = ClosedIncident(
        incident="incident/lab/i-1",
        run_id="incident/lab/i-1@run-1",
        cluster="lab",
        instance_id="i-1",
        opened_at=NOW,
        closed_at=NOW + timedelta(hours=1),
        fault_class="gpu_lost",
        outcome="resolved",
        decisions=texts,
        decisions_made=len(texts),
    )
    return start.model_copy(update=more)


def as_older(text: str) -> str:
    """The decision as it was recorded before node, attempts and probe went with it."""
    document = json.loads(text)
    for part in ("node", "attempts", "seen", "run"):
        document["facts"].pop(part, None)
    return json.dumps(document)


@pytest.mark.parametrize("under", POLICIES)
@pytest.mark.parametrize("situation", SITUATIONS)
def test_a_recorded_decision_is_made_again_to_the_word_under_every_policy(situation: str, under: str) -> None:
    known, policy = SITUATIONS[situation], POLICIES[under]
    step = next_step(known, policy)
    again = rebuild(recorded(known, step), closed())
    assert (again.step, again.assumed) == (step, "")
    for other in POLICIES.values():
        assert next_step(again.facts, other) == next_step(known, other)


@pytest.mark.parametrize("under", POLICIES)
def test_the_policy_that_decided_differs_in_nothing(under: str) -> None:
    policy = POLICIES[under]
    outcome = replay([closed(*SITUATIONS.values(), policy=policy)], policy, policy)
    assert outcome.decisions == len(SITUATIONS)
    assert (outcome.differences, outcome.not_rebuilt) == ([], [])


def test_a_promoted_rung_differs_where_it_was_asked_for_and_says_why() -> None:
    asking = PolicySettings(mode=Mode.APPROVE)
    promoted = asking.model_copy(update={"mode_by_class": {"gpu_lost": {Action.REBOOT_NODE: Mode.ACT}}})
    incident = closed(out(), out(opinion("gsp_hang", code=119)), policy=asking)
    [difference] = replay([incident], promoted, asking).differences
    assert (difference.was.kind, difference.would_be.kind) == (StepKind.ASK_PERSON, StepKind.DISRUPT)
    assert (difference.node, difference.at, difference.first, difference.already) == ("node-1", NOW, True, False)
    assert "needs a person's approval" in difference.was.because[0]
    assert difference.would_be.because == ["XID 79"]
    assert in_words(difference.would_be) == "disrupt: REBOOT_NODE (within 1800 s, settling 120 s)"


def test_what_follows_an_incidents_first_difference_rests_on_the_course_that_was_taken() -> None:
    differences = replay([closed(facts(), out())], PolicySettings(), ACTING).differences
    assert differences[0].first
    assert not any(one.first for one in differences[1:])


def test_a_change_that_was_made_before_is_told_from_the_one_that_is_tried() -> None:
    [difference] = replay([closed(out(), policy=PolicySettings(mode=Mode.APPROVE))], ACTING, ACTING).differences
    assert difference.already


def test_another_deadline_is_another_decision_and_other_words_are_not() -> None:
    step = next_step(out(), ACTING)
    assert same(step, step.model_copy(update={"because": ["otherwise said"], "policy_hash": "x"}))
    [difference] = replay([closed(out())], ACTING.model_copy(update={"boot_deadline_s": 600.0}), ACTING).differences
    assert (difference.was.deadline_s, difference.would_be.deadline_s) == (1800.0, 600.0)


def test_past_attempts_count_in_a_replay() -> None:
    patient = ACTING.model_copy(update={"repeat_window_h": 1.0})
    [difference] = replay([closed(out(record=TRIED))], patient, ACTING).differences
    assert (difference.was.rung, difference.would_be.rung) == (Action.POWER_CYCLE, Action.REBOOT_NODE)


def test_what_cannot_be_rebuilt_is_counted_with_the_reason() -> None:
    broken = closed(out(), decisions=["not JSON", '{"facts": {}}', recorded(out(), next_step(out(), ACTING))], decisions_made=30)
    outcome = replay([broken], ACTING, ACTING)
    assert (outcome.decisions, outcome.unknown) == (1, 29)
    assert any("only the last 3 decisions" in one.why for one in outcome.not_rebuilt)
    assert sum("not a decision" in one.why for one in outcome.not_rebuilt) == 2


def test_an_older_record_counts_only_where_what_is_missing_does_not_matter() -> None:
    plain = as_older(recorded(out(), next_step(out(), ACTING)))
    rests_on_attempts = as_older(recorded(out(record=TRIED), next_step(out(record=TRIED), ACTING)))
    older = closed(decisions=[plain, rests_on_attempts], decisions_made=0)
    outcome = replay([older], ACTING, ACTING)
    assert (outcome.decisions, outcome.assumed, outcome.unknown) == (1, 1, 1)
    assert "older record" in outcome.not_rebuilt[0].why
    assert replay([older], PolicySettings(mode=Mode.APPROVE), ACTING).differences[0].assumed


def test_a_record_is_small_and_holds_no_finding() -> None:
    known = out(record=HostRecord(instance_id="i-1", attempts=[ATTEMPT] * 50))
    text = recorded(known, next_step(known, ACTING))
    assert "findings" not in text
    assert len(text) < 5000


def test_asking_again_for_the_same_reason_is_one_decision() -> None:
    asking = PolicySettings(mode=Mode.APPROVE)
    first = recorded(out(), next_step(out(), asking))
    later = out(now=NOW + timedelta(hours=1), asked_since=NOW, asked_rung="REBOOT_NODE")
    assert repeats(first, recorded(later, next_step(later, asking)))
    assert not repeats(first, recorded(out(), next_step(out(), ACTING)))
