"""What a cancel would do is said beforehand, and is what the cancel goes by."""

from __future__ import annotations

from tests.decisions.situations import facts, out
from workflows.decisions.cancelling import cancel_plan
from workflows.decisions.facts import OtherHealers, Spare


def test_before_the_node_is_known_there_is_nothing_to_undo() -> None:
    plan = cancel_plan(None)
    assert (plan.give_up_job, plan.lift_quarantine, plan.leaves) == (False, False, [])


def test_a_node_that_was_only_looked_at_was_in_service_all_along() -> None:
    plan = cancel_plan(facts())
    assert "in service all along" in plan.node
    assert plan.leaves == []


def test_a_quarantined_node_stays_so_with_the_command_that_returns_it() -> None:
    plan = cancel_plan(out())
    assert not plan.lift_quarantine
    assert plan.node == "the node stays quarantined, for a person"
    assert any("hotspare report node-1" in left for left in plan.leaves)


def test_the_quarantine_is_lifted_only_where_the_fault_went_away_by_itself() -> None:
    assert cancel_plan(out(fault_gone=True)).lift_quarantine
    assert not cancel_plan(out(fault_gone=True, disrupted=True)).lift_quarantine


def test_a_job_that_waits_for_a_node_is_told_and_one_that_was_answered_is_not() -> None:
    waiting = cancel_plan(out(job="train", job_told=True))
    assert waiting.give_up_job
    assert any("tell the recovery of train" in deed for deed in waiting.does)
    swapped = out(job="train", job_told=True, job_answered=True, spare=Spare.READY, spare_name="spare-1")
    assert not cancel_plan(swapped).give_up_job
    assert "spare-1 in place of node-1" in cancel_plan(swapped).leaves


def test_a_node_that_serves_again_is_left_serving() -> None:
    assert "back in service" in cancel_plan(out(quarantined=False, back_in_service=True, disrupted=True)).node


def test_other_healers_are_let_go_only_where_the_node_serves() -> None:
    group = OtherHealers(found=["Auto Scaling group gpu"], asked=True, told=True)
    assert any("let Auto Scaling group gpu look after" in deed for deed in cancel_plan(out(fault_gone=True, others=group)).does)
    kept = cancel_plan(out(others=group))
    assert not any("Auto Scaling" in deed for deed in kept.does)
    assert any("Auto Scaling group gpu standing back" in left for left in kept.leaves)
