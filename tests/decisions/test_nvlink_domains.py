"""UltraServers: trays of one NVLink domain fail together, are replaced within it, and are only observed until somebody tried."""

from __future__ import annotations

from activities.inventory import Node
from tests.decisions.situations import ACTING, NODE, NOW, facts, opinion
from workflows.cluster_messages import Alone, Ask, AskKind, ClusterState, FleetView
from workflows.decisions.cluster_book import Judgement, judge_asks
from workflows.decisions.facts import StepKind
from workflows.decisions.ladder import rungs_for
from workflows.decisions.policy import next_step
from workflows.decisions.settings import ClusterSettings
from workflows.decisions.spares_groups import groups_of
from workflows.decisions.spares_rates import PUBLISHED

TYPE = "p6e-gb200.36xlarge"
FLEET = FleetView(nodes=72, domains={"nvlink:us-1": 18, "nvlink:us-2": 18, "zone:a": 72})
LIMITS = ClusterSettings(alone_wait_s=0)


def tray(number: int, domain: str = "us-1", role: str = "worker") -> Node:
    known = {"instance_id": f"i-{number}", "name": f"tray-{number}", "instance_type": TYPE, "zone": "a"}
    return Node.model_validate({**known, "role": role, "nvlink_domain": domain})


def ask(node: Node, kind: AskKind = AskKind.NODE_OUT, fault: str = "link", number: int = 1) -> Ask:
    return Ask(
        request_id=f"{node.instance_id}/{kind.value}/{number}",
        asker=f"incident/{node.instance_id}",
        kind=kind,
        instance_id=node.instance_id,
        fault_class=fault,
        zone=node.zone,
        nvlink_domain=node.nvlink_domain,
        instance_type=node.instance_type,
    )


def judge(asks: list[Ask], spares: list[Node] | None = None) -> Judgement:
    state = ClusterState(fleet=72, view=FLEET)
    return judge_asks(state, asks, spares or [], LIMITS, NOW.isoformat(), "lab")


def test_two_trays_of_one_domain_with_link_faults_are_one_incident_and_none_is_taken_out() -> None:
    judged = judge([ask(tray(1)), ask(tray(2))])
    told = [answer for _, answer in judged.answers]
    assert {answer.alone for answer in told} == {Alone.STORM}
    assert len({answer.storm_id for answer in told}) == 1
    assert "2 of 18 nodes of nvlink:us-1 show link" in told[0].reason
    assert not judged.state.grants


def test_a_tray_of_another_domain_and_a_fault_of_the_trays_own_are_incidents_of_their_own() -> None:
    apart = judge([ask(tray(1)), ask(tray(20, "us-2"))])
    assert all(answer.granted for _, answer in apart.answers)
    own = judge([ask(tray(1), fault="gpu_lost"), ask(tray(2), fault="gpu_lost")])
    assert all(answer.granted for _, answer in own.answers)


def test_a_spare_stands_in_only_within_its_nvlink_domain_and_the_refusal_names_both() -> None:
    far, near = tray(90, "us-2", "spare"), tray(91, "us-1", "spare")
    ((_, answer),) = judge([ask(tray(1), AskKind.SPARE)], [far, near]).answers
    assert answer.spare is not None
    assert answer.spare.name == "tray-91"
    ((_, refused),) = judge([ask(tray(1), AskKind.SPARE)], [far, tray(92, "", "spare")]).answers
    assert not refused.granted
    assert "tray-90: is in another NVLink domain (us-2), the node's is us-1" in refused.reason
    assert "none that is known" in refused.reason


def test_a_node_that_is_in_no_nvlink_domain_takes_any_spare() -> None:
    plain = tray(1, "").model_copy(update={"instance_type": ""})
    ((_, answer),) = judge([ask(plain, AskKind.SPARE)], [tray(90, "us-2", "spare")]).answers
    assert answer.granted


def test_spares_are_planned_for_each_nvlink_domain() -> None:
    nodes = [tray(number, f"us-{1 + number // 18}") for number in range(36)] + [tray(90, "us-2", "spare")]
    groups = groups_of(nodes, lambda kind: PUBLISHED["rsc-1"], {})
    assert [(group.place, group.nodes, group.spares) for group in groups] == [("us-1", 18, 0), ("us-2", 18, 1)]


def test_a_type_that_nobody_tried_is_only_observed_though_the_cluster_acts_and_the_setting_ends_that() -> None:
    known = facts(opinion(), node=NODE.model_copy(update={"instance_type": TYPE}))
    step = next_step(known, ACTING)
    assert (step.kind, step.outcome) == (StepKind.CLOSE, "observed")
    assert "would quarantine" in step.because[0]
    refused = rungs_for(known, ACTING.for_type(TYPE)).refused
    assert any("p6e-gb200.36xlarge is only observed, nobody has tried it" in reason for reason in refused)
    tried = ACTING.model_copy(update={"observe_only_types": []})
    assert next_step(known, tried).kind is StepKind.ASK_LEAVE
