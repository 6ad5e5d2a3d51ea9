"""The policy's answers in the situations that matter: the wrong reboot, the lost spare, the job resumed on a bad node."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities.host_memory import HostRecord, RungAttempt
from checks.model import Action, Verdict
from tests.decisions.situations import ACTING, NOW, examination, facts, opinion, out
from workflows.decisions.facts import Facts, RungOutcome, RungTaken, Spare, StepKind
from workflows.decisions.policy import next_step, policy_hash
from workflows.decisions.settings import Mode, PolicySettings

HEALTHY = opinion("none", Action.NONE, None)


def test_a_report_alone_never_disrupts_the_node_is_looked_at_first() -> None:
    step = next_step(facts(examination=None), ACTING)
    assert step.kind is StepKind.EXAMINE


def test_a_healthy_node_is_left_alone() -> None:
    step = next_step(facts(HEALTHY, examination=examination(HEALTHY, verdict=Verdict.OK)), ACTING)
    assert (step.kind, step.outcome) == (StepKind.CLOSE, "nothing found")


def test_a_monitor_that_fails_is_not_a_node_that_fails() -> None:
    unread = examination(HEALTHY, verdict=Verdict.UNKNOWN)
    assert next_step(facts(HEALTHY, examination=unread, unreadable_probes=1), ACTING).kind is StepKind.EXAMINE
    step = next_step(facts(HEALTHY, examination=unread, unreadable_probes=3), ACTING)
    assert (step.kind, step.outcome) == (StepKind.CLOSE, "monitor failed")
    assert step.page


def test_the_order_before_disruption_is_leave_quarantine_evidence_then_the_job() -> None:
    assert next_step(facts(), ACTING).kind is StepKind.ASK_LEAVE
    assert next_step(facts(quarantine_room=True), ACTING).kind is StepKind.QUARANTINE
    assert next_step(facts(quarantine_room=True, quarantined=True), ACTING).kind is StepKind.COLLECT_EVIDENCE
    assert next_step(out(job="train"), ACTING).kind is StepKind.TELL_JOB


def test_with_a_waiting_job_a_spare_comes_first_and_the_repair_later() -> None:
    assert next_step(out(job="train", job_told=True), ACTING).kind is StepKind.REPLACE
    swapped = out(job="train", job_told=True, job_answered=True, spare=Spare.READY)
    assert next_step(swapped, ACTING).kind is StepKind.AWAIT_JOB
    later = next_step(swapped.model_copy(update={"job_done": True, "job_outcome": "resumed at step 9"}), ACTING)
    assert (later.kind, later.rung) == (StepKind.DISRUPT, Action.REBOOT_NODE)


def test_without_a_spare_the_node_is_repaired_in_place() -> None:
    step = next_step(out(job="train", job_told=True, spare=Spare.NONE_FREE, spare_reason="the pool has no spare"), ACTING)
    assert (step.kind, step.rung) == (StepKind.DISRUPT, Action.REBOOT_NODE)
    assert "the pool has no spare" in step.because[0]


def test_a_reboot_is_no_repair_until_the_deep_test_passed() -> None:
    rebooted = out(job="train", job_told=True, spare=Spare.NONE_FREE, disrupted=True)
    assert next_step(rebooted, ACTING).kind is StepKind.RETEST
    assert next_step(rebooted.model_copy(update={"retest": Verdict.OK}), ACTING).kind is StepKind.BACK_IN_SERVICE


def test_a_test_that_could_not_run_proves_nothing_and_reboots_nothing() -> None:
    unknown = out(job="train", job_told=True, spare=Spare.NONE_SEEN, disrupted=True, retest=Verdict.UNKNOWN)
    assert next_step(unknown, ACTING).kind is StepKind.REPLACE
    alone = unknown.model_copy(update={"spare": Spare.NONE_FREE})
    assert next_step(alone, ACTING).kind is StepKind.ASK_PERSON


def test_a_burn_in_without_a_result_says_nothing_about_the_node() -> None:
    tested = out(disrupted=True, retest=Verdict.OK)
    assert next_step(tested, ACTING).kind is StepKind.BURN_IN
    assert next_step(tested.model_copy(update={"burn_in": Verdict.UNKNOWN}), ACTING).kind is StepKind.ASK_PERSON
    assert next_step(tested.model_copy(update={"burn_in": Verdict.WARN}), ACTING).kind is StepKind.BACK_IN_SERVICE
    assert next_step(tested.model_copy(update={"burn_in": Verdict.CRITICAL}), ACTING).kind is StepKind.DISRUPT


def test_a_job_that_still_runs_is_not_stopped_without_approval() -> None:
    policy = PolicySettings(mode=Mode.APPROVE)
    assert next_step(out(job="train", job_running=True), policy).kind is StepKind.ASK_PERSON
    assert next_step(out(job="train", job_running=False), policy).kind is StepKind.TELL_JOB


def test_the_mode_of_a_rung_counts_whatever_the_mode_of_the_cluster() -> None:
    reboots = PolicySettings(mode=Mode.OBSERVE, mode_by_rung={Action.REBOOT_NODE: Mode.ACT})
    assert next_step(out(), reboots).rung is Action.REBOOT_NODE
    assert next_step(facts(), reboots).kind is StepKind.ASK_LEAVE
    watched = PolicySettings(mode=Mode.ACT, mode_by_rung={Action.REBOOT_NODE: Mode.OBSERVE})
    step = next_step(out(approved=[Action.REBOOT_NODE]), watched)
    assert step.rung is Action.POWER_CYCLE
    assert any("observe" in line for line in step.because)


def test_each_rung_is_taken_once_and_then_the_next() -> None:
    failed = RungTaken(rung=Action.REBOOT_NODE, outcome=RungOutcome.DID_NOT_HELP)
    step = next_step(out(disrupted=True, retest=Verdict.CRITICAL, taken=[failed]), ACTING)
    assert (step.kind, step.rung) == (StepKind.DISRUPT, Action.POWER_CYCLE)
    assert any("REBOOT_NODE" in line and "tried" in line for line in step.because)


def test_a_memory_fault_without_spare_rows_is_never_rebooted() -> None:
    exhausted = opinion("memory_exhausted", Action.REPLACE_NODE, 64)
    assert next_step(out(exhausted, job="train", job_told=True), ACTING).kind is StepKind.REPLACE
    alone = next_step(out(exhausted), ACTING)
    assert alone.kind is StepKind.RETIRE


def test_without_spare_and_without_rung_the_job_is_told_and_the_node_retired() -> None:
    exhausted = opinion("memory_exhausted", Action.REPLACE_NODE, 64)
    stuck = out(exhausted, job="train", job_told=True, spare=Spare.NONE_FREE)
    assert next_step(stuck, ACTING).kind is StepKind.GIVE_UP_NODE
    told = stuck.model_copy(update={"job_answered": True, "job_done": True, "job_outcome": "not resumed: no node"})
    assert next_step(told, ACTING).kind is StepKind.RETIRE
    assert next_step(told.model_copy(update={"settled": True}), ACTING).outcome == "escalated"


def test_a_job_restart_fault_quarantines_nothing() -> None:
    contained = opinion("memory_contained", Action.RESTART_JOB, 94)
    assert next_step(facts(contained, job="train"), ACTING).kind is StepKind.TELL_JOB
    assert next_step(facts(contained, job="train", job_told=True), ACTING).kind is StepKind.AWAIT_JOB
    assert next_step(facts(contained), ACTING).outcome == "nothing to restart"


def test_an_unknown_code_goes_to_a_person_and_touches_nothing() -> None:
    step = next_step(facts(opinion("unknown_code", Action.CONTACT_SUPPORT, 51)), ACTING)
    assert (step.kind, step.outcome) == (StepKind.CLOSE, "escalated")
    assert step.page


def test_a_soft_reboot_comes_before_the_reboot_where_it_is_switched_on_and_never_for_a_node_that_does_not_answer() -> None:
    soft = PolicySettings(mode=Mode.ACT, soft_reboot=True)
    assert next_step(out(), soft).rung is Action.SOFT_REBOOT
    assert next_step(out(), ACTING).rung is Action.REBOOT_NODE
    gone = examination(opinion("unreachable", code=None), reachable=False)
    assert next_step(out(examination=gone, second_signal="EC2 says impaired"), soft).rung is Action.REBOOT_NODE


def test_a_job_that_died_does_not_wait_for_a_persons_diagnostics() -> None:
    again = opinion("unknown_code", Action.RUN_DIAGNOSTICS, 31)
    assert next_step(facts(again, job="train"), ACTING).kind is StepKind.TELL_JOB
    assert next_step(facts(again, job="train", job_told=True), ACTING).kind is StepKind.AWAIT_JOB
    ended = next_step(facts(again, job="train", job_told=True, job_done=True, job_outcome="resumed at step 9"), ACTING)
    assert (ended.kind, ended.outcome) == (StepKind.CLOSE, "escalated")
    assert "diagnostics" in ended.page
    runs = next_step(facts(again, job="train", job_running=True), ACTING)
    assert (runs.kind, runs.outcome) == (StepKind.CLOSE, "escalated")
    assert next_step(facts(again, job="train"), PolicySettings()).kind is StepKind.CLOSE


def test_each_rung_has_its_deadline_and_a_switchs_code_its_own_ladder() -> None:
    soft = PolicySettings(mode=Mode.ACT, soft_reboot=True)
    assert next_step(out(), soft).deadline_s < next_step(out(), ACTING).deadline_s
    own = PolicySettings(mode=Mode.ACT, ladders_by_code={"sxid:20034": [Action.POWER_CYCLE], "xid:79": [Action.REPLACE_NODE]})
    assert next_step(out(opinion("fabric", Action.REBOOT_NODE, 20034)), own).rung is Action.POWER_CYCLE
    assert next_step(out(), own).kind is StepKind.RETIRE


def test_a_pool_and_a_class_may_have_modes_of_their_own() -> None:
    careful = PolicySettings(
        mode=Mode.ACT, pools={"p5.48xlarge": {"mode": "approve"}}, mode_by_class={"gpu_lost": {Action.REBOOT_NODE: Mode.ACT}}
    )
    assert next_step(out(), careful).kind is StepKind.DISRUPT
    asked = next_step(out(opinion("reboot_needed", Action.REBOOT_NODE, 151)), careful)
    assert (asked.kind, asked.rung) == (StepKind.ASK_PERSON, Action.REBOOT_NODE)
    assert any(line.startswith("plan: REBOOT_NODE, and where it does not help POWER_CYCLE") for line in asked.because)


def test_a_running_job_with_much_at_stake_is_stopped_only_with_approval() -> None:
    dear = PolicySettings(mode=Mode.ACT, ask_above_gpu_hours=100)
    runs: dict[str, Any] = {"job": "train", "job_running": True}
    assert next_step(out(gpu_hours_at_stake=340.0, **runs), dear).kind is StepKind.ASK_PERSON
    assert next_step(out(gpu_hours_at_stake=34.0, **runs), dear).kind is StepKind.TELL_JOB


def test_a_storm_disrupts_no_node() -> None:
    step = next_step(facts(storm="300 nodes show application"), ACTING)
    assert (step.kind, step.outcome) == (StepKind.CLOSE, "part of a storm")
    assert step.page


def test_observe_says_what_it_would_do_and_does_nothing() -> None:
    step = next_step(facts(), PolicySettings())
    assert (step.kind, step.outcome) == (StepKind.CLOSE, "observed")
    assert "REBOOT_NODE" in step.because[0]


def test_approve_holds_the_quarantine_and_asks_before_the_reboot() -> None:
    policy = PolicySettings(mode=Mode.APPROVE)
    asked = next_step(out(), policy)
    assert (asked.kind, asked.rung) == (StepKind.ASK_PERSON, Action.REBOOT_NODE)
    assert next_step(out(approved=[Action.REBOOT_NODE]), policy).kind is StepKind.DISRUPT


def test_an_approval_of_one_rung_is_not_one_of_the_next() -> None:
    policy = PolicySettings(mode=Mode.APPROVE)
    failed = RungTaken(rung=Action.REBOOT_NODE, outcome=RungOutcome.DID_NOT_HELP)
    step = next_step(out(approved=[Action.REBOOT_NODE], disrupted=True, retest=Verdict.CRITICAL, taken=[failed]), policy)
    assert (step.kind, step.rung) == (StepKind.ASK_PERSON, Action.POWER_CYCLE)


def test_a_question_that_nobody_answers_ends_with_a_person_and_the_quarantine() -> None:
    late = out(asked_since=NOW - timedelta(days=8), now=NOW)
    step = next_step(late, PolicySettings(mode=Mode.APPROVE))
    assert (step.kind, step.outcome) == (StepKind.CLOSE, "escalated")


def test_a_fault_that_came_back_within_a_day_starts_one_rung_up() -> None:
    past = RungAttempt(rung=Action.REBOOT_NODE, at=NOW - timedelta(hours=5), fault_class="gpu_lost", incident="earlier")
    step = next_step(out(record=HostRecord(instance_id="i-1", attempts=[past])), ACTING)
    assert (step.kind, step.rung) == (StepKind.DISRUPT, Action.POWER_CYCLE)


def test_the_attempt_budget_of_a_node_ends_reboots() -> None:
    attempts = [
        RungAttempt(rung=Action.REBOOT_NODE, at=NOW - timedelta(days=day), fault_class="link", incident=f"earlier-{day}")
        for day in (2, 3, 4)
    ]
    step = next_step(out(record=HostRecord(instance_id="i-1", attempts=attempts)), ACTING)
    assert step.kind is StepKind.RETIRE
    assert any("3 disruptive attempts" in line for line in step.because)


def test_a_person_who_took_over_owns_every_next_step() -> None:
    assert next_step(out(person_owns=True), ACTING).kind is StepKind.ASK_PERSON


def test_machines_do_not_reopen_a_node_that_is_with_a_person_but_people_do() -> None:
    left = facts(HEALTHY, examination=examination(HEALTHY, verdict=Verdict.OK), left_by_earlier=True, quarantined=True)
    assert next_step(left, ACTING).outcome == "still with a person"
    by_hand = left.model_copy(update={"asked_by_hand": True, "fault_gone": True, "evidence_taken": True})
    assert next_step(by_hand, ACTING).kind is StepKind.RETEST


def test_reset_is_passed_over_until_it_is_known_to_work() -> None:
    memory = opinion("memory_uncorrectable", Action.RESET_GPU, 95)
    assert next_step(out(memory), ACTING).rung is Action.REBOOT_NODE
    able = PolicySettings(mode=Mode.ACT, reset_capable_types=["p5.48xlarge"])
    assert next_step(out(memory), able).rung is Action.RESET_GPU


def test_every_decision_names_its_policy() -> None:
    changed = PolicySettings(mode=Mode.ACT, attempts_per_node=9)
    assert next_step(out(), ACTING).policy_hash == policy_hash(ACTING) != policy_hash(changed)


def what_was_tried() -> list[RungTaken]:
    """Each rung with each outcome."""
    rungs = [Action.REBOOT_NODE, Action.POWER_CYCLE, Action.REPLACE_NODE]
    return [RungTaken(rung=rung, outcome=outcome) for rung in rungs for outcome in RungOutcome]


@st.composite
def any_facts(draw: st.DrawFn) -> Facts:
    """Any mixture of what can have happened, sensible or not."""
    what = draw(
        st.sampled_from(
            [
                opinion(),
                HEALTHY,
                opinion("memory_exhausted", Action.REPLACE_NODE, 64),
                opinion("memory_contained", Action.RESTART_JOB, 94),
                opinion("unknown_code", Action.CONTACT_SUPPORT, 51),
            ]
        )
    )
    flags = [
        "disrupted",
        "fault_gone",
        "quarantine_room",
        "quarantined",
        "evidence_taken",
        "job_told",
        "job_answered",
        "job_done",
    ]
    changes: dict[str, object] = {flag: draw(st.booleans()) for flag in flags}
    changes["job"] = draw(st.sampled_from(["", "train"]))
    changes["spare"] = draw(st.sampled_from(list(Spare)))
    changes["retest"] = draw(st.sampled_from([None, *Verdict]))
    changes["burn_in"] = draw(st.sampled_from([None, *Verdict]))
    changes["job_running"] = draw(st.booleans())
    rungs = draw(st.lists(st.sampled_from(what_was_tried()), max_size=3, unique_by=lambda taken: taken.rung))
    changes["taken"] = rungs
    changes["examination"] = draw(st.sampled_from([None, examination(what), examination(what, verdict=Verdict.UNKNOWN)]))
    return facts(what, **changes)


@given(any_facts())
def test_no_mixture_of_facts_disrupts_a_node_that_is_not_quarantined_with_its_evidence_saved(some: Facts) -> None:
    step = next_step(some, ACTING)
    if step.kind in (StepKind.DISRUPT, StepKind.REPLACE, StepKind.RETIRE):
        assert some.quarantined
        assert some.evidence_taken
    if step.kind is StepKind.BACK_IN_SERVICE:
        assert some.retest is Verdict.OK


@given(any_facts())
def test_a_node_whose_fate_is_settled_is_never_touched_again(some: Facts) -> None:
    settled = some.model_copy(update={"settled": True, "job_done": True})
    assert next_step(settled, ACTING).kind is StepKind.CLOSE


@given(any_facts())
def test_observe_never_disrupts_a_node_it_has_not_quarantined(some: Facts) -> None:
    if some.quarantined or some.disrupted:
        return
    step = next_step(some, PolicySettings())
    assert step.kind in (StepKind.EXAMINE, StepKind.CLOSE)


@pytest.mark.parametrize("fault_class", sorted(ACTING.ladders))
def test_every_fault_class_has_a_next_step(fault_class: str) -> None:
    assert next_step(facts(opinion(fault_class, Action.REBOOT_NODE, None)), ACTING).because
