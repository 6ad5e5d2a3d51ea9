"""The last steps of an incident: the fate of its node, and what is remembered of it."""

from __future__ import annotations

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities import names
    from activities.ec2 import Ec2Activities, TagNode
    from activities.host_memory import ClosedIncident, CloseHostIncident, HostMemoryActivities
    from checks.model import Verdict
    from workflows import options
    from workflows.cluster_messages import AskKind
    from workflows.decisions.facts import Step
    from workflows.decisions.owners import give_up_by_hand
    from workflows.incident import Incident
    from workflows.incident_healers import release
    from workflows.incident_people import page, pages_are_out
    from workflows.incident_steps import lift_quarantine


async def return_to_pool(incident: Incident, step: Step) -> None:
    """Make the repaired node a spare, on probation: another node has taken its place."""
    await _tag(
        incident,
        {names.TAG_ROLE: names.ROLE_SPARE, names.TAG_FATE: names.FATE_PROBATION},
        [names.TAG_LEASE, names.TAG_REPLACES],
        "into the pool, on probation",
    )
    incident.learn(node=incident.node.model_copy(update={"role": names.ROLE_SPARE}))
    await lift_quarantine(incident)
    await incident.talk.give_back(AskKind.NODE_OUT, AskKind.REPAIR_SLOT, healed=True)
    incident.fate = names.FATE_PROBATION
    incident.learn(settled=True)
    incident.tell("in the pool", "repaired and re-tested: a spare again, on probation")


async def retire(incident: Incident, step: Step) -> None:
    """Leave the node quarantined for a person: nothing here can mend it."""
    await _tag(incident, {names.TAG_FATE: names.FATE_RETIRED}, [], "retired")
    tried_in_vain = False if incident.known.disrupted else None
    await incident.talk.give_back(AskKind.NODE_OUT, AskKind.REPAIR_SLOT, healed=tried_in_vain)
    incident.fate = names.FATE_RETIRED
    incident.strike = True
    incident.learn(settled=True, retired=True)
    incident.tell("retired", f"quarantined for a person: {'; '.join(step.because)}")
    words = f"{incident.node.name} is retired: open a support case, replace the instance"
    if by_hand := give_up_by_hand(incident.known.owned_by, incident.node):
        words += f" ({by_hand})"
    if incident.known.not_drained:
        words += f"; {incident.known.not_drained}"
    if incident.known.others.told:
        words += f"; {' and '.join(incident.known.others.found)} stands back from it until a person ends that"
    await page(incident, words, "retired")


async def _tag(incident: Incident, tags: dict[str, str], remove: list[str], why: str) -> None:
    await workflow.execute_activity_method(
        Ec2Activities.tag_node,
        TagNode(instance_id=incident.node.instance_id, set=tags, remove=remove),
        summary=f"{incident.node.name}: {why}",
        **options.LOOK_UP,
    )


async def close_out(incident: Incident, step: Step) -> None:
    """Give back what is held and write the incident into host memory."""
    if step.page:
        await page(incident, step.page, step.outcome)
    await tell_end(incident, step)
    await give_all_back(incident)
    await remember(incident, step)
    await pages_are_out(incident)


async def tell_end(incident: Incident, step: Step) -> None:
    """Write the end into the story, and let other healers look after a node that serves."""
    incident.tell(step.outcome, "; ".join(step.because))
    await release(incident)


async def give_all_back(incident: Incident) -> None:
    """Give back what Cluster has granted."""
    await incident.talk.give_back(AskKind.NODE_OUT, AskKind.REPAIR_SLOT, AskKind.PARTNER)


async def remember(incident: Incident, step: Step) -> None:
    """Write the incident and its node's fate into host memory."""
    if incident.known.quarantined and not incident.fate:
        incident.fate = names.FATE_WITH_PERSON
    opinion = incident.known.opinion
    closed = ClosedIncident(
        incident=incident.known.incident,
        run_id=incident.known.run,
        cluster=incident.cluster,
        instance_id=incident.node.instance_id,
        opened_at=incident.opened_at,
        closed_at=workflow.now(),
        fault_class=opinion.fault_class if opinion else "",
        outcome=step.outcome,
        summary=[f"{line.at:%H:%M:%S} {line.phase}: {line.text}" for line in incident.view.lines][:40],
        decisions=incident.decisions,
        decisions_made=incident.decisions_made,
        said=incident.said,
    )
    helped = None if not incident.known.disrupted else incident.known.retest is Verdict.OK
    seen = incident.known.examination
    request = CloseHostIncident(
        closed=closed,
        fate=incident.fate,
        strike=incident.strike or bool(incident.known.disrupted),
        last_rung_helped=helped,
        handled=step.outcome == "resolved",
        job=incident.known.job,
        gpu_serial=opinion.gpu.serial if opinion else "",
        gpu_serials=seen.gpu_serials if seen else [],
        qualified_at=workflow.now() if incident.fate == names.FATE_PROBATION else None,
    )
    await workflow.execute_activity_method(
        HostMemoryActivities.close_host_incident, request, summary=f"remember: {step.outcome}", **options.LOOK_UP
    )
