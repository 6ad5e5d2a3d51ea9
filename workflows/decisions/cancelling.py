"""What a cancel does to an incident and what it leaves: `hotspare cancel --dry-run` says it, and the cancel goes by it."""

from __future__ import annotations

from activities.message import Message
from workflows.decisions.facts import Facts, Spare


class CancelPlan(Message):
    """A cancel at one moment. `node` is the state in which the node is left, `does` and `leaves` are for people, in order."""

    give_up_job: bool = False
    lift_quarantine: bool = False
    node: str
    does: list[str] = []
    leaves: list[str] = []


def cancel_plan(facts: Facts | None) -> CancelPlan:
    """Plan the cancel of an incident: undo what is ours and safe to undo. None: the node has not been identified yet."""
    if facts is None:
        return CancelPlan(node="nothing was done to the node yet", does=["end the incident"])
    give_up_job = facts.job_told and not facts.job_answered
    lift = facts.quarantined and facts.fault_gone and not facts.disrupted
    does = ["give back the repair slot and the place among the nodes out, and withdraw what is asked of Cluster"]
    if give_up_job:
        does.append(f"tell the recovery of {facts.job} that nothing comes in place of {facts.node.name}, which pages")
    if lift:
        does.append("lift the quarantine")
    if facts.others.asked and (lift or not facts.quarantined):
        does.append(f"let {' and '.join(facts.others.found)} look after {facts.node.name} again")
    does.append("end the incident as cancelled, and remember its decisions")
    return CancelPlan(
        give_up_job=give_up_job, lift_quarantine=lift, node=_node(facts, lift=lift), does=does, leaves=_leaves(facts, lift=lift)
    )


def _node(facts: Facts, *, lift: bool) -> str:
    if lift:
        return "the quarantine was lifted: the fault no longer shows"
    if facts.quarantined:
        return "the node stays quarantined, for a person"
    if facts.settled or facts.back_in_service:
        return "the node is back in service or in the pool: it passed its tests"
    return "the node was in service all along"


def _leaves(facts: Facts, *, lift: bool) -> list[str]:
    leaves: list[str] = []
    if facts.quarantined and not lift:
        leaves.append(f"{facts.node.name} quarantined: hotspare report {facts.node.name} has it re-tested and returned")
        leaves.append("a reset, reboot, stop or drain, where one was asked for already: it is not taken back, no other follows")
    if facts.others.asked and facts.quarantined and not lift:
        leaves.append(f"{' and '.join(facts.others.found)} standing back, until {facts.node.name} serves again")
    if facts.job and facts.job_told and facts.job_answered:
        leaves.append(f"{facts.job} with what it was given: its recovery goes on by itself")
    if facts.spare is Spare.READY:
        leaves.append(f"{facts.spare_name} in place of {facts.node.name}")
    elif facts.job_told and not facts.job_answered:
        leaves.append("a replacement, where one is under way: nobody waits for it, and its spare goes back through a look at it")
    if facts.evidence_taken:
        leaves.append(f"the evidence bundle: hotspare evidence {facts.node.name}")
    return leaves
