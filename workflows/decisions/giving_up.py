"""Whether a node that nothing mends is given up by a drain, where that has its cluster replace it. Pure.

There a drain counts as REPLACE_NODE: what the mode, the ladder or a person says of that rung holds for the drain too.
"""

from __future__ import annotations

from checks.model import Action
from workflows.decisions.facts import Facts, Step, StepKind
from workflows.decisions.gates import gate
from workflows.decisions.ladder import Rungs
from workflows.decisions.settings import PolicySettings


def replace_by_drain(facts: Facts, policy: PolicySettings, rungs: Rungs) -> Step | None:
    """Have the cluster replace the node: the last thing done to it, after its job has another or is with a person."""
    if not facts.drain_replaces or facts.back_in_service or (facts.job and not facts.job_answered):
        return None
    if why_not_drained(facts, rungs):
        return None
    because = [
        "nothing that can be done from here mends it",
        f"drained and idle, {facts.node.name} is terminated by its cluster, which launches another in its place",
        f"its evidence is kept: {facts.evidence_uri}",
        *rungs.refused,
    ]
    asked = gate(Action.REPLACE_NODE, facts, policy)
    if asked is not None:
        return asked.model_copy(update={"because": [*asked.because, *because[:3]]})
    return Step(kind=StepKind.REPLACE_BY_DRAIN, because=because, deadline_s=policy.gone_deadline_s)


def why_not_drained(facts: Facts, rungs: Rungs) -> str:
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
    return ""


def plan_of_drain(facts: Facts) -> list[str]:
    """Return what a person who approves a swap of nodes should know of the node that is swapped out."""
    if not facts.drain_replaces:
        return []
    return [f"where nothing mends {facts.node.name} it is drained afterwards, and its cluster terminates and replaces it"]
