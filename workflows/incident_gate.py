"""What every disruption passes just before it is made: the evidence looked at again, and a repair slot."""

from __future__ import annotations

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from checks.model import Action, Verdict
    from workflows import options
    from workflows.cluster_messages import Ask, AskKind
    from workflows.incident import Incident
    from workflows.incident_looking import look, opinion_of
    from workflows.incident_people import page


async def may_disrupt(incident: Incident, what: str) -> bool:
    """Look again and get a repair slot. False when the evidence or a person says otherwise: the policy decides anew."""
    if not await _evidence_stands(incident, what):
        return False
    ask = incident.ask(AskKind.REPAIR_SLOT)
    answer = await incident.talk.ask(ask)
    if answer.granted and not incident.interrupted():
        return _still_granted(incident, ask, what)
    if answer.queued:
        incident.tell("waiting", f"{what}: {answer.reason}")
        answer = await incident.talk.stand_in_queue(ask, options.CLUSTER_QUEUE, incident.interrupted)
        # The wait was long enough for the evidence to grow old.
        if answer.granted and not incident.interrupted() and await _evidence_stands(incident, what):
            return _still_granted(incident, ask, what)
    await incident.talk.withdraw(ask)
    if not answer.granted and not incident.interrupted():
        why = f"{what}: no repair slot: {answer.reason}"
        incident.learn(stuck="" if answer.queued else why)
        if not answer.queued:  # of a queue Cluster tells people, once for all who wait
            await page(incident, why, "no repair slot")
    return False


def _still_granted(incident: Incident, ask: Ask, what: str) -> bool:
    """A grant may have been taken back since, as by a freeze: stop before the step and say so."""
    if AskKind.REPAIR_SLOT in incident.talk.held:
        return True
    incident.tell("stopped", f"{what}: the repair slot was taken back: {incident.talk.last_answer(ask).reason}")
    return False


async def _evidence_stands(incident: Incident, what: str) -> bool:
    """Look again just before a disruption. A deep test or burn-in that failed in this boot is evidence too."""
    seen = await look(incident, f"before {what}")
    opinion = opinion_of(incident, seen)
    unread = incident.known.unreadable_probes + 1 if seen.verdict is Verdict.UNKNOWN else 0
    incident.learn(examination=seen, unreadable_probes=unread)
    incident.last_boot_id = seen.boot_id or incident.last_boot_id
    if seen.reachable and seen.verdict is Verdict.UNKNOWN:
        incident.tell("looked again", "the evidence could not be read: not acting on it")
        return False
    if opinion.action is not Action.NONE:
        incident.learn(opinion=opinion)
        return True
    if Verdict.CRITICAL in (incident.known.retest, incident.known.burn_in):
        return True
    incident.learn(fault_gone=True)
    incident.tell("looked again", "the fault no longer shows")
    return False
