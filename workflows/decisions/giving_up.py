"""Whether a node that nothing mends is given up by a drain, where that has its cluster replace it. Pure.

There a drain counts as REPLACE_NODE: what the mode, the ladder or a person says of that rung holds for the drain too. It gives
the slot of the instance up, as a stop does.
"""

from __future__ import annotations

from activities.owners import Owner
from checks.model import Action
from workflows.decisions.capacity import slot_question, slot_refusal
from workflows.decisions.facts import Facts, Step, StepKind
from workflows.decisions.gates import ask, gate, see_slot
from workflows.decisions.ladder import Rungs
from workflows.decisions.owners import OWNERS
from workflows.decisions.settings import PolicySettings


def replace_by_drain(facts: Facts, policy: PolicySettings, rungs: Rungs) -> Step | None:
    """Have the cluster replace the node: the last thing done to it, after its job has another or is with a person."""
    if not facts.drain_replaces or facts.back_in_service or (facts.job and not facts.job_answered):
        return None
    if why_not_drained(facts, policy, rungs):
        return None
    if (look := see_slot("a drain that has a node replaced", facts, policy)) is not None:
        return look
    because = [
        "nothing that can be done from here mends it",
        _how(facts),
        f"its evidence is kept: {facts.evidence_uri}",
        *rungs.refused,
    ]
    asked = gate(Action.REPLACE_NODE, facts, policy)
    if asked is None and Action.REPLACE_NODE not in facts.approved and (risk := slot_question(facts.slot)):
        asked = ask(facts, policy, f"the drain of {facts.node.name}: {risk}", "approve the drain", Action.REPLACE_NODE)
    if asked is not None:
        return asked.model_copy(update={"because": [*asked.because, *because[:3]]})
    return Step(kind=StepKind.REPLACE_BY_DRAIN, because=because, deadline_s=policy.gone_deadline_s)


def _how(facts: Facts) -> str:
    if facts.owned_by is Owner.HYPERPOD:
        return f"{facts.node.name} is given up by {OWNERS[facts.owned_by].give_up.value}; its volumes are lost"
    return f"drained and idle, {facts.node.name} is terminated by its cluster, which launches another in its place"


def why_not_drained(facts: Facts, policy: PolicySettings, rungs: Rungs) -> str:
    """Return why the node is retired instead, empty where it is drained, or where no drain would replace it."""
    if not facts.drain_replaces:
        return ""
    if facts.not_drained:
        return facts.not_drained
    if Action.REPLACE_NODE not in rungs.left:
        said = f"{Action.REPLACE_NODE.value}: "
        told = (one.removeprefix(said) for one in rungs.refused if one.startswith(said))
        return f"a drain would have it replaced: {next(told, f'{Action.REPLACE_NODE.value} is not on the ladder of this fault')}"
    if not facts.evidence_uri:
        return "a drain would have it replaced, and its evidence is not saved: the instance would take it along"
    kept = slot_refusal(facts.slot, facts.now, policy)
    return f"a drain would have it replaced: {kept}" if kept else ""


def plan_of_drain(facts: Facts) -> list[str]:
    """Return what a person who approves a swap of nodes should know of the node that is swapped out."""
    if not facts.drain_replaces:
        return []
    return [f"where nothing mends {facts.node.name} it is drained afterwards, and its cluster terminates and replaces it"]
