"""Whether another instance takes the place of a node that was retired: launched by Hotspare, or by the node's owner. Pure.

It counts as REPLACE_NODE: what the mode or a person says of that rung holds here too.
"""

from __future__ import annotations

from checks.model import Action
from workflows.decisions.capacity import slot_question, slot_refusal
from workflows.decisions.facts import Facts, Step, StepKind
from workflows.decisions.gates import ask, class_of, gate, mode_of, see_slot
from workflows.decisions.ladder import Rungs
from workflows.decisions.owners import OWNER_LAUNCHES, OWNERS, GiveUp
from workflows.decisions.settings import Mode, PolicySettings


def renew(facts: Facts, policy: PolicySettings, rungs: Rungs) -> Step | None:
    """Have a retired node given up and a new spare made in its place, by Hotspare or by the owner."""
    if not (policy.renew_retired and facts.retired and facts.settled) or facts.renewed:
        return None
    way = OWNERS[facts.owned_by].give_up
    if way not in (GiveUp.TERMINATE, *OWNER_LAUNCHES) or not facts.evidence_uri:
        return None
    if Action.REPLACE_NODE.value in facts.skipped_steps:
        return None
    if mode_of(Action.REPLACE_NODE, policy, class_of(facts)) is Mode.OBSERVE:
        return None
    if (look := see_slot("a launch in its place", facts, policy)) is not None:
        return look
    if slot_refusal(facts.slot, facts.now, policy) and not _has_room(facts):
        return None
    asked = gate(Action.REPLACE_NODE, facts, policy)
    free = Action.REPLACE_NODE in facts.approved or _has_room(facts)
    if asked is None and not free and (risk := slot_question(facts.slot)):
        why = f"the end of {facts.node.name}: {risk}"
        asked = ask(facts, policy, why, "approve the launch in its place", Action.REPLACE_NODE)
    if asked is not None:
        return asked
    because = [f"{facts.node.name} is retired: another is launched in its place, and it is terminated for that"]
    if way in OWNER_LAUNCHES:
        because = [f"{facts.node.name} is retired, a node of {facts.owned_by.value}: {way.value}"]
    return Step(kind=StepKind.RENEW, because=[*because, f"its evidence is kept: {facts.evidence_uri}"])


def _has_room(facts: Facts) -> bool:
    """Whether its reservation has a free slot: then nothing is given up before the new one has passed."""
    held = facts.slot.reservation if facts.slot else None
    return held is not None and held.available > 0
