"""What users of other systems complain about, where the policy or the books of Cluster answer it: see docs/user-pain.md."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from activities.host_memory import Freeze, HostRecord, RungAttempt
from activities.inventory import Node
from checks.model import Action
from tests.decisions.situations import ACTING, NOW, facts, opinion, out
from tests.decisions.test_guards import answers, ask, books, judge, limits
from workflows.cluster_messages import Alone, AskKind, Breaker, BreakerState, ClusterState
from workflows.decisions import cluster_entries as entries
from workflows.decisions.cluster_book import judge_asks
from workflows.decisions.facts import StepKind
from workflows.decisions.fleet_view import fleet_view
from workflows.decisions.ladder import DISRUPTIVE
from workflows.decisions.policy import next_step
from workflows.decisions.settings import DEFAULT_LADDERS, ClusterSettings, Mode, PolicySettings
from workflows.decisions.windows import Window

OPEN = Breaker(state=BreakerState.OPEN, since=NOW, reason="a burst")
SPARE = Node(instance_id="i-s1", name="spare-1", role="spare", zone="us-east-1a", spine="r1")


def test_no_question_waits_without_a_page_and_an_end() -> None:
    """https://github.com/NVIDIA/NVSentinel/issues/1416, https://github.com/NVIDIA/NVSentinel/issues/1808"""
    careful = PolicySettings(mode=Mode.APPROVE)
    for asking in (out(), out(person_owns=True), out(stuck="EC2 refused the call")):
        asked = next_step(asking, careful)
        assert (asked.kind, bool(asked.page), asked.deadline_s > 0) == (StepKind.ASK_PERSON, True, True)
        late = asking.model_copy(update={"asked_since": NOW - timedelta(seconds=careful.person_deadline_s + 1)})
        end = next_step(late, careful)
        assert (end.kind, end.outcome, bool(end.page)) == (StepKind.CLOSE, "escalated", True)


def test_an_open_breaker_lets_healthy_nodes_back_and_spares_out() -> None:
    """https://github.com/NVIDIA/NVSentinel/pull/1852"""
    state = judge(books(), ask("i-1"), ask("i-1", AskKind.REPAIR_SLOT), under=limits()).state.model_copy(update={"breaker": OPEN})
    back = entries.give_back(state, ["i-1/node_out", "i-1/repair_slot"], healed=True)
    assert back.grants == []
    leased = judge_asks(back, [ask("i-2", AskKind.SPARE)], [SPARE], limits(), NOW.isoformat(), "lab")
    assert [grant.spare_id for grant in leased.state.grants] == ["i-s1"]
    assert leased.state.breaker.state is BreakerState.OPEN


def test_a_fault_that_is_back_every_day_is_not_treated_for_ever() -> None:
    """https://github.com/NVIDIA/NVSentinel/issues/1543, https://github.com/NVIDIA/NVSentinel/issues/1640,
    https://github.com/pfnet-research/node-operation-controller/issues/31,
    https://github.com/aws/aws-node-termination-handler/issues/141
    """
    record, treated = HostRecord(instance_id="i-1"), 0
    for day in range(7):
        now = NOW + timedelta(days=day)
        step = next_step(out(record=record, now=now, run=f"run-{day}"), ACTING)
        if step.kind is not StepKind.DISRUPT:
            break
        assert step.rung in DISRUPTIVE
        treated += 1
        attempt = RungAttempt(rung=step.rung, at=now, fault_class="gpu_lost", incident=f"run-{day}")
        record = record.model_copy(update={"attempts": [*record.attempts, attempt]})
    assert treated == PolicySettings().attempts_per_node
    assert step.kind is StepKind.RETIRE
    assert any("3 disruptive attempts" in line for line in step.because)


@pytest.mark.parametrize(
    "bad", [{"fate": "retired"}, {"quarantine": "incident/lab/i-s1"}, {"lease": "replace/lab/i-9"}, {"state": "stopped"}]
)
def test_a_node_that_was_given_up_never_comes_back_as_a_replacement(bad: dict[str, str]) -> None:
    """https://github.com/intelligent-machine-learning/dlrover/pull/1736"""
    judged = judge_asks(books(), [ask("i-1", AskKind.SPARE)], [SPARE.model_copy(update=bad)], limits(), NOW.isoformat(), "lab")
    assert not answers(judged)["i-1"].granted
    again = ask("i-1", AskKind.SPARE, unwanted=["i-s1"])
    refused = answers(judge_asks(books(), [again], [SPARE], limits(), NOW.isoformat(), "lab"))["i-1"]
    assert (refused.granted, "did not pass for this node before" in refused.reason) == (False, True)


def test_what_still_trickles_in_after_a_storm_belongs_to_it_and_disrupts_nothing() -> None:
    """https://github.com/medik8s/node-healthcheck-operator/pull/238, https://github.com/medik8s/node-healthcheck-operator/pull/378"""
    under = limits(storm_nodes=4, alone_wait_s=0.0)
    state = judge(books(8), *(ask(f"i-{number}", fault_class="link") for number in range(4)), under=under).state
    for number in range(4, 8):
        at = NOW + timedelta(minutes=2 * (number - 3))
        judged = judge(state, ask(f"i-{number}", fault_class="link"), under=under, at=at)
        assert answers(judged)[f"i-{number}"].alone is Alone.STORM
        state = judged.state
    assert state.grants == []


@pytest.mark.parametrize(("fleet", "out_at_once"), [(1, 1), (3, 1), (9, 1), (10, 2), (100, 2), (10_000, 2)])
def test_number_and_share_both_bind_and_the_smallest_cluster_can_heal(fleet: int, out_at_once: int) -> None:
    """https://github.com/NVIDIA/NVSentinel/issues/1686, https://github.com/NVIDIA/NVSentinel/pull/1713,
    https://github.com/kubernetes-sigs/karpenter/pull/2739, https://github.com/kubernetes-sigs/karpenter/issues/2134
    """
    asks = [ask(f"i-{number}", spine="", zone="", pool="") for number in range(min(fleet, 4))]
    judged = judge(ClusterState(fleet=fleet), *asks, under=ClusterSettings(breaker_nodes=1000))
    assert len(judged.state.grants) == out_at_once
    waiting = [one.waits_for for one in judged.state.queue]
    assert all("the limit is" in why and f"of {fleet}" in why for why in waiting)


def test_machines_that_run_no_training_are_not_in_the_denominator() -> None:
    """https://github.com/NVIDIA/NVSentinel/issues/1482"""
    workers = [Node(instance_id=f"i-{number}", name=f"node-{number}", gpus=8) for number in range(10)]
    others = [Node(instance_id=f"i-c{number}", name=f"head-{number}", role="head") for number in range(90)]
    view = fleet_view([*workers, *others])
    assert view.nodes == 10
    state = ClusterState(fleet=view.nodes, view=view)
    judged = judge(state, *(ask(f"i-{number}") for number in range(3)), under=limits(max_percent_out=20))
    assert len(judged.state.grants) == 2


def test_a_component_that_calls_every_node_sick_has_none_of_them_disrupted() -> None:
    """https://github.com/kubernetes-sigs/karpenter/issues/2811"""
    judged = judge(books(40), *(ask(f"i-{number}", fault_class="host") for number in range(40)), under=ClusterSettings())
    assert {answer.alone for _, answer in judged.answers} == {Alone.STORM}
    assert (judged.state.grants, judged.state.queue) == ([], [])


@pytest.mark.parametrize("fault_class", sorted(DEFAULT_LADDERS))
def test_a_slot_is_given_up_only_after_what_keeps_it_was_tried(fault_class: str) -> None:
    """https://github.com/kubernetes-sigs/karpenter/issues/2905, https://github.com/aws/karpenter-provider-aws/issues/8935"""
    rungs = DEFAULT_LADDERS[fault_class]
    keeps = [rung for rung in rungs if rung in (Action.RESET_GPU, Action.REBOOT_NODE)]
    gives_up = [rung for rung in rungs if rung in (Action.POWER_CYCLE, Action.REPLACE_NODE)]
    assert [rung for rung in rungs if rung in (*keeps, *gives_up)] == [*keeps, *gives_up]


GUARDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "the breaker is open: a burst": ({"breaker": OPEN}, {}),
    "rack:r1 is frozen until": (
        {"freezes": [Freeze(scope="rack:r1", until=NOW + timedelta(hours=9), who="ann", why="")]},
        {},
    ),
    "outside the maintenance windows of cluster": (
        {},
        {"windows": [Window.model_validate({"days": ["Sat"], "begins": "01:00", "ends": "02:00"})]},
    ),
    "0 nodes are under repair, the limit is 0": ({}, {"max_repairs": 0}),
}
"""A guard's words, the books and the limits in which it stands."""


@pytest.mark.parametrize("words", sorted(GUARDS))
def test_whichever_guard_holds_a_node_back_its_words_are_in_the_books(words: str) -> None:
    """https://github.com/openshift/machine-api-operator/pull/902, https://github.com/kubernetes-sigs/cluster-api/issues/5451"""
    kept, changed = GUARDS[words]
    judged = judge(books(**kept), ask("i-1", AskKind.REPAIR_SLOT), under=limits(**changed), at=NOW)
    assert words in judged.state.queue[0].waits_for
    assert words in answers(judged)["i-1"].reason


def test_each_code_can_be_switched_by_itself() -> None:
    """https://github.com/oracle-quickstart/oci-gpu-scanner/issues/21, https://github.com/NVIDIA/NVSentinel/issues/390"""
    policy = PolicySettings(mode=Mode.ACT, ladders_by_code={"xid:79": []})
    assert next_step(facts(), policy).outcome == "escalated"
    other = facts(opinion("gsp_hang", Action.REBOOT_NODE, 119))
    assert next_step(other, policy).kind is StepKind.ASK_LEAVE
    shadow = PolicySettings(mode=Mode.ACT, mode_by_class={"gpu_lost": dict.fromkeys(DEFAULT_LADDERS["gpu_lost"], Mode.OBSERVE)})
    assert next_step(facts(), shadow).outcome == "observed"
    assert next_step(other, shadow).kind is StepKind.ASK_LEAVE
