"""Looking at the node of an incident: the examination, the job that holds the node, and what may be concluded."""

from __future__ import annotations

import asyncio

from temporalio import workflow
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from activities.ec2 import Ec2Activities, InspectInstance
    from activities.inventory import Node
    from activities.jobs.activities import JobActivities
    from activities.jobs.messages import AwaitBoundary, FindJob, FoundJob
    from activities.jobs.protocol import JobState, JobStatus
    from activities.node import Examination, Examine, NodeActivities, Opinion
    from checks.model import Action, Confidence, Verdict
    from workflows import options
    from workflows.decisions.facts import Step
    from workflows.failures import cause_of
    from workflows.incident import Incident


async def examine(incident: Incident, step: Step) -> None:
    """Look at the node, and at the first look find the job that holds it."""
    if step.deadline_s:
        await workflow.sleep(step.deadline_s, summary=f"before {incident.node.name} is looked at again")
    first = incident.known.opinion is None
    looking = look(incident, "confirm what was reported")
    if first:
        found, seen = await asyncio.gather(_find_job(incident), looking)
        if found.status is not None:
            incident.learn(**_stakes(found.status, incident.node))
        if incident.known.job and seen.opinion.awaits_job:
            seen = await look(incident, f"it was there before: is {incident.known.job} another job")
    else:
        seen = await looking
    if not seen.reachable:
        incident.learn(second_signal=await _second_signal(incident))
    opinion = opinion_of(incident, seen)
    unread = incident.known.unreadable_probes + 1 if seen.verdict is Verdict.UNKNOWN else 0
    before = incident.known.opinion
    if seen.verdict is Verdict.UNKNOWN and before is not None and before.action is not Action.NONE:
        opinion = before  # what cannot be read clears nobody
    well_again = opinion.action is Action.NONE and incident.known.quarantined
    incident.learn(examination=seen, opinion=opinion, unreadable_probes=unread, fault_gone=well_again)
    incident.last_boot_id = seen.boot_id or incident.last_boot_id
    incident.tell("diagnosed", f"{opinion.fault_class} → {opinion.action.value}: {'; '.join(opinion.because)}")
    codes = [f"xid:{report.xid}" for report in incident.read if report.xid is not None]
    incident.view.attributes(Fault=opinion.fault_class, Job=incident.known.job, Codes=codes, Phase="diagnosed")


def _stakes(job: JobStatus, node: Node) -> dict[str, object]:
    """What the job that holds the node has at stake: GPUs that wait, and GPU-hours since its last checkpoint."""
    gpus = len(job.nodes) * node.gpus
    steps = (job.step or 0) - (job.checkpoint_step or 0)
    running = job.state is JobState.RUNNING
    hours = gpus * steps * (job.seconds_per_step or 0.0) / 3600.0 if running else 0.0
    return {
        "job": job.job,
        "job_running": running,
        "job_controller": "" if job.ours else job.controller or f"the {job.restarted_by.value} of {job.job}",
        "gpus_waiting": gpus,
        "gpu_hours_at_stake": round(hours, 3),
        "job_checkpoint_step": job.checkpoint_step,
    }


async def await_boundary(incident: Incident, step: Step) -> None:
    """Let the job run to its next checkpoint or end; a word or a new report ends the wait, and the policy decides anew."""
    known = incident.known
    incident.tell("waiting", step.because[0])
    handle = workflow.start_activity_method(
        JobActivities.await_boundary,
        AwaitBoundary(
            job=known.job,
            node_name=incident.node.name,
            checkpoint_step=known.job_checkpoint_step,
            deadline_s=step.deadline_s,
        ),
        summary=f"{known.job} reaches a checkpoint or its end",
        **options.watch(step.deadline_s),
    )
    await workflow.wait_condition(lambda: handle.done() or incident.interrupted() or bool(incident.unread))
    if not handle.done():
        handle.cancel()
        return
    try:
        status = await handle
    except ActivityError as error:  # no checkpoint in time, or the job cannot be seen: the fault does not wait for ever
        incident.tell("boundary", cause_of(error))
        incident.learn(boundary_reached=True, examination=None)
        return
    left = incident.node.name not in status.nodes
    incident.tell("boundary", f"{status.job} is {status.state.value}, checkpoint {status.checkpoint_step}")
    incident.learn(
        boundary_reached=True, examination=None, **({"job": "", "job_running": False} if left else _stakes(status, incident.node))
    )


async def look(incident: Incident, why: str) -> Examination:
    """Examine the node now. The reports are weighed with what is seen; what was dealt with before is history."""
    return await workflow.execute_activity_method(
        NodeActivities.examine,
        Examine(
            node=incident.node,
            job=incident.known.job,
            incident=incident.tokens.run,
            reports=incident.read[:5],
            handled_until=incident.handled_until,
        ),
        summary=f"{why}: probe {incident.node.name}",
        **options.EXAMINE,
    )


def opinion_of(incident: Incident, seen: Examination) -> Opinion:
    """Return the diagnosis: the node's own, or, when it finds nothing, that of a burn-in which the node failed in a group."""
    failed = next((report for report in incident.read if report.burn_in_failed), None)
    if seen.opinion.action is not Action.NONE or failed is None:
        return seen.opinion
    return Opinion(
        fault_class="slow_node",
        action=Action.REPLACE_NODE,
        confidence=Confidence.HIGH,
        because=[failed.what or "it failed the burn-in of its group", "its own checks pass: only a group run shows this fault"],
    )


async def _second_signal(incident: Incident) -> str:
    """Ask EC2 and the job about a node that does not answer us; returns what else says that it is ill, empty if nothing does."""
    try:
        status = await workflow.execute_activity_method(
            Ec2Activities.instance_status,
            InspectInstance(node=incident.node),
            summary=f"what EC2 says of {incident.node.name}",
            **options.LOOK_UP,
        )
    except ActivityError as error:
        incident.tell("second signal", f"EC2 cannot tell: {cause_of(error)}")
        return ""
    if status.state != "running":
        return f"EC2 says {status.state}"
    if "impaired" in (status.system, status.instance):
        return f"EC2 status checks: system {status.system}, instance {status.instance}"
    if incident.known.job and not incident.known.job_running:
        return f"{incident.known.job}, which has it in its node set, has stopped"
    return ""


async def _find_job(incident: Incident) -> FoundJob:
    return await workflow.execute_activity_method(
        JobActivities.find_job,
        FindJob(cluster=incident.cluster, node=incident.node),
        summary=f"which job has {incident.node.name}",
        **options.JOB,
    )
