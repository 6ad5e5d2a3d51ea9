"""The steps of an incident around the node: ask leave, quarantine, save evidence, talk to the job."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from activities import names
    from activities.errors import NotOurs
    from activities.evidence import EvidenceActivities
    from activities.incidents import IncidentActivities, JoinJob, JoinStorm, NodeGivenUp, NodeIn, NodeOut, StormMember
    from activities.node_messages import CollectEvidence
    from activities.quarantine import LiftQuarantine, QuarantineActivities, QuarantineNode
    from checks.model import NO_NVML_AFTER, Action
    from workflows import options
    from workflows.cluster_messages import Alone, AskKind
    from workflows.decisions.facts import Spare, Step
    from workflows.failures import cause_of, kind_of
    from workflows.incident import Incident
    from workflows.incident_gate import may_disrupt
    from workflows.incident_people import page
    from workflows.post import post


LAST_WORD = timedelta(seconds=2)
"""How long what an ended recovery said may be under way. Hotspare default: the server has it before the recovery can end."""

RESTART_ONLY = (Action.RESTART_JOB, Action.RUN_DIAGNOSTICS)
"""Actions after which the node stays in the job's node set: the burn-in before the restart says whether it may."""


async def ask_alone(incident: Incident, step: Step) -> None:
    """Ask Cluster whether other nodes show the fault too. A keeper that does not answer holds up no recovery of a job."""
    ask = incident.ask(AskKind.ALONE)
    answer = await incident.talk.ask(ask)
    if answer.queued:
        answer = await incident.talk.stand_in_queue(ask, options.CLUSTER_ANSWER, incident.interrupted)
    if answer.alone is Alone.STORM:
        incident.learn(storm=answer.reason, storm_id=answer.storm_id, storm_joined=answer.storm_known)
        return
    if not answer.granted:
        await incident.talk.withdraw(ask)
    incident.learn(alone=True)


async def join_storm(incident: Incident, step: Step) -> None:
    """Hand the answer over to the storm, which acts once for all of its nodes."""
    opinion = incident.known.opinion
    member = StormMember(
        incident=incident.known.incident,
        instance_id=incident.node.instance_id,
        node_name=incident.node.name,
        fault_class=opinion.fault_class if opinion else "",
        code=opinion.code if opinion else None,
        job=incident.known.job,
        reason=incident.known.storm,
        token=incident.tokens.next(),
    )
    await workflow.execute_activity_method(
        IncidentActivities.join_storm,
        JoinStorm(cluster=incident.cluster, storm_id=incident.known.storm_id, member=member),
        summary=f"{incident.node.name} belongs to {incident.known.storm_id}",
        **options.MESSENGER,
    )
    incident.learn(storm_joined=True)
    incident.tell("storm", f"{incident.known.storm}; {incident.known.storm_id} answers for it")


async def ask_leave(incident: Incident, step: Step) -> None:
    """Ask Cluster whether the fault is alone and whether there is room for one more node out."""
    ask = incident.ask(AskKind.NODE_OUT)
    answer = await incident.talk.ask(ask)
    if answer.queued:
        incident.tell("waiting", answer.reason)
        answer = await incident.talk.stand_in_queue(ask, options.CLUSTER_QUEUE, incident.interrupted)
    if answer.granted:
        incident.learn(quarantine_room=True)
        if not answer.spare_free:
            incident.learn(spare=Spare.NONE_SEEN, spare_reason="Cluster sees no free spare")
    elif answer.alone is Alone.STORM and incident.known.job_told:
        incident.learn(refused=answer.reason)  # too late to leave it to the storm, and asking again gets the same answer
    elif answer.alone is Alone.STORM:
        incident.learn(storm=answer.reason, storm_id=answer.storm_id, storm_joined=answer.storm_known)
    elif answer.unanswered:
        await incident.talk.withdraw(ask)
        incident.learn(stuck=f"{answer.reason}: is it wedged? look at cluster/{incident.cluster} in the Temporal UI")
    elif answer.queued:
        await incident.talk.withdraw(ask)  # Cluster tells people what waits; the ask is made anew
    else:
        incident.learn(refused=answer.reason)


async def quarantine(incident: Incident, step: Step) -> None:
    """Take the node out of service: no new work, nothing evicted."""
    try:
        await workflow.execute_activity_method(
            QuarantineActivities.quarantine_node,
            QuarantineNode(node=incident.node, incident=incident.known.incident, reason=step.because[0]),
            summary=f"quarantine {incident.node.name}: {step.because[0]}",
            **options.MARK,
        )
    except ActivityError as error:
        if kind_of(error) != NotOurs.__name__:
            raise  # it may be written or not: the step is tried again, and its leave is kept
        await incident.talk.give_back(AskKind.NODE_OUT)
        incident.learn(quarantine_room=False, refused=f"the quarantine was refused: {cause_of(error)}")
        return
    incident.learn(quarantined=True)
    incident.tell("quarantined", "no new work on it, nothing evicted")


async def lift_quarantine(incident: Incident) -> bool:
    """Put the node back into service; returns False, having said so, when the quarantine is not ours to lift."""
    try:
        await workflow.execute_activity_method(
            QuarantineActivities.lift_quarantine,
            LiftQuarantine(node=incident.node, incident=incident.known.incident),
            summary=f"lift the quarantine of {incident.node.name}",
            **options.MARK,
        )
    except ActivityError as error:
        if kind_of(error) != NotOurs.__name__:
            raise
        incident.tell("left alone", cause_of(error))
        await page(incident, f"the quarantine is not ours to lift: {cause_of(error)}", "quarantine of others")
        return False
    incident.learn(quarantined=False, quarantine_room=False)
    return True


async def collect_evidence(incident: Incident, step: Step) -> None:
    """Save what a reboot would destroy. A bundle with holes, or none in time, is told and does not hold up the repair."""
    codes = [incident.known.opinion.code if incident.known.opinion else None, *(report.xid for report in incident.read)]
    request = CollectEvidence(
        node=incident.node,
        incident=incident.known.incident,
        token=incident.tokens.next(),
        no_nvml=any(code in NO_NVML_AFTER for code in codes),
        deadline_s=step.deadline_s,
        opinion=incident.known.opinion,
        reports=incident.read,
        opened_at=incident.opened_at,
    )
    try:
        bundle = await workflow.execute_activity_method(
            EvidenceActivities.collect_evidence, request, summary=f"save the evidence of {incident.node.name}", **options.EVIDENCE
        )
        incident.learn(evidence_uri=bundle.uri)
        incident.tell("evidence", f"{bundle.uri} ({bundle.size_bytes} bytes): {bundle.summary}")
    except ActivityError as error:
        incident.tell("evidence", f"no bundle: {cause_of(error)}")
    incident.learn(evidence_taken=True)


async def tell_job(incident: Incident, step: Step) -> None:
    """Start the recovery of the job that holds the node, or join the one that runs."""
    job, controller = incident.known.job, incident.known.job_controller
    if incident.known.job_running and not await may_disrupt(incident, f"the {'restart' if controller else 'stop'} of {job}"):
        return
    opinion, owned = incident.known.opinion, bool(incident.known.others.owns)
    restart_only = owned or (opinion is not None and opinion.action in RESTART_ONLY)
    out = NodeOut(
        incident=incident.known.incident,
        instance_id=incident.node.instance_id,
        node_name=incident.node.name,
        reason=step.because[0],
        restart_only=restart_only,
        token=incident.tokens.next(),
    )
    joined = await workflow.execute_activity_method(
        IncidentActivities.join_job,
        JoinJob(cluster=incident.cluster, job=job, node_out=out),
        summary=f"{'watch' if controller else 'restart' if restart_only else 'hold'} {job}",
        **options.MESSENGER,
    )
    await incident.talk.give_back(AskKind.REPAIR_SLOT)
    incident.learn(job_told=True)
    incident.tell("job told", f"{joined.workflow_id} {_what_it_does(incident, restart_only)}")


def _what_it_does(incident: Incident, restart_only: bool) -> str:
    if incident.known.job_controller:
        return f"watches {incident.known.job_controller} restart it"
    return "restarts it" if restart_only else "holds it and waits for a node"


async def answer_job(incident: Incident, message: NodeIn | NodeGivenUp) -> None:
    """Give the job the one answer that it waits for."""
    signal = "node_in" if isinstance(message, NodeIn) else "node_given_up"
    told = await post(names.job_id(incident.cluster, incident.known.job), signal, message)
    if not told:
        await _last_word_of_the_job(incident)
    if told or incident.job_resumed is not None:  # a recovery that has ended has said how
        incident.learn(job_answered=True)
        return
    words = f"not resumed: the recovery of {incident.known.job} is gone; resume it by hand"
    incident.learn(job_answered=True, job_done=True, job_outcome=words)
    await page(incident, words, "job recovery gone")


async def _last_word_of_the_job(incident: Incident) -> None:
    """A letter whose answer was lost may have been read: what the recovery said before it ended is on its way then."""
    with suppress(TimeoutError):
        await workflow.wait_condition(
            lambda: incident.job_resumed is not None,
            timeout=LAST_WORD,
            timeout_summary=f"the last word of the recovery of {incident.known.job}",
        )


async def give_up_node(incident: Incident, step: Step) -> None:
    """Tell the job that nothing comes in place of the node."""
    reason = step.because[0]
    incident.tell("given up", reason)
    if incident.replace_child is not None and incident.known.spare is Spare.READY:
        incident.replace_child.cancel()  # a spare that was made ready and may not be used goes back
    await answer_job(
        incident, NodeGivenUp(incident=incident.known.incident, instance_id=incident.node.instance_id, reason=reason)
    )


async def await_job(incident: Incident, step: Step) -> None:
    """Wait for the job to resume, or for it to say that what we gave it failed the burn-in."""
    incident.view.attributes(Phase="awaiting job")
    try:
        await workflow.wait_condition(
            lambda: bool(incident.job_resumed or incident.failed_burn_in or incident.interrupted() or incident.accused()),
            timeout=timedelta(seconds=step.deadline_s),
            timeout_summary=f"{incident.known.job} resumes",
        )
    except TimeoutError:
        words = f"not resumed: {incident.known.job} did not say so within {step.deadline_s / 60:.0f} minutes"
        incident.learn(job_done=True, job_outcome=words)
        await page(incident, words, "job not resumed")
