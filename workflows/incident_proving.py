"""The steps of an incident that prove a node before anything uses it: alone, or in a small group with idle nodes."""

from __future__ import annotations

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.incidents import IncidentActivities, NodeIn, OpenIncident
    from activities.inventory import Node
    from activities.node_messages import Report
    from checks.model import Verdict
    from workflows import options
    from workflows.burning_in import burn_in_child
    from workflows.cluster_messages import Answer, AskKind
    from workflows.decisions.facts import Step
    from workflows.incident import Incident
    from workflows.incident_steps import answer_job
    from workflows.messages import BurnInReport, NodeVerdict, StartBurnIn

PARTNERS = 2
"""Idle nodes beside the one to be proven. Hotspare default: with two it shows which of the three is to blame."""


async def burn_in(incident: Incident, step: Step) -> None:
    """Burn the node in here: no job will, or its controller starts ranks on it as soon as it serves."""
    if incident.known.job_controller:
        verdict, because = await _in_a_small_group(incident, incident.node)
        incident.learn(burn_in=verdict, proof_because=because)
        return
    start = StartBurnIn(cluster=incident.cluster, nodes=[incident.node.instance_id], reason="after a repair, no job holds it")
    report = await burn_in_child(start, incident.node.name, f"burn-in of {incident.node.name}", incident.tokens)
    incident.learn(burn_in=report.verdict)
    incident.tell("burn-in", f"{report.verdict.value}: {'; '.join(report.because)}")


async def prove_spare(incident: Incident, step: Step) -> None:
    """Pair the spare with an idle node. One that fails is handed back, and another is asked for."""
    assert incident.replacement is not None
    spare = incident.replacement.spare
    assert spare is not None
    verdict, because = await _in_a_small_group(incident, spare)
    if verdict is not Verdict.CRITICAL:
        incident.learn(proof=verdict, proof_because=because)
        return
    incident.hand_back_spare(spare.instance_id, "; ".join(because))


async def bring_in(incident: Incident, step: Step) -> None:
    """Tell the job's recovery that the proven spare may be used."""
    assert incident.replacement is not None
    spare = incident.replacement.spare
    assert spare is not None
    await answer_job(
        incident,
        NodeIn(
            incident=incident.known.incident,
            instance_id=spare.instance_id,
            node_name=spare.name,
            replaces=incident.node.instance_id,
            proof="; ".join(step.because),
        ),
    )


async def _in_a_small_group(incident: Incident, node: Node) -> tuple[Verdict, list[str]]:
    """Burn a node in with idle nodes, which nobody else gets meanwhile; returns the verdict on that node alone.

    Without a partner it stays UNKNOWN.
    """
    lent = await _partners(incident, node)
    if not lent.partners:
        because = [f"no idle node is free to pair {node.name} with: {lent.reason}"]
        incident.tell("not proven", because[0])
        return Verdict.UNKNOWN, because
    try:
        return await _together(incident, node, lent.partners)
    finally:
        await incident.talk.give_back(AskKind.PARTNER)


async def _together(incident: Incident, node: Node, partners: list[Node]) -> tuple[Verdict, list[str]]:
    group = [node, *partners]
    start = StartBurnIn(
        cluster=incident.cluster,
        nodes=[one.instance_id for one in group],
        reason=f"{incident.known.job_controller} starts ranks on {node.name} next",
    )
    named = ", ".join(one.name for one in group)
    report = await burn_in_child(start, f"{incident.node.name}/proof", f"burn-in of {named}", incident.tokens)
    verdict = _verdict_on(node, report)
    others = ", ".join(one.name for one in partners)
    incident.tell("burn-in", f"{node.name} with {others}: {verdict.value}: {'; '.join(report.because)}")
    await _report_bad_partners(incident, node, report)
    return verdict, [f"burn-in with {others}: {report.verdict.value}", *report.because][:5]


def _verdict_on(node: Node, report: BurnInReport) -> Verdict:
    """The group's verdict where it passed; else the node's own, where the runs tell it apart from its partners."""
    if report.verdict is not Verdict.CRITICAL:
        return report.verdict
    own = next((one.verdict for one in report.nodes if one.instance_id == node.instance_id), Verdict.UNKNOWN)
    return own if any(one.verdict is Verdict.CRITICAL for one in report.nodes) else Verdict.UNKNOWN


async def _partners(incident: Incident, node: Node) -> Answer:
    """Have Cluster lend spares: as long as they are lent nobody leases them."""
    place = {"zone": node.zone, "spine": node.spine, "placement_group": node.placement_group, "nvlink_domain": node.nvlink_domain}
    unwanted = [node.instance_id, incident.node.instance_id, *incident.unwanted_spares]
    ask = incident.ask(AskKind.PARTNER).model_copy(update={**place, "partners": PARTNERS, "unwanted": unwanted})
    answer = await incident.talk.ask(ask)
    if answer.queued:
        incident.tell("waiting", f"a partner for {node.name}: {answer.reason}")
        answer = await incident.talk.stand_in_queue(ask, options.CLUSTER_QUEUE, incident.interrupted)
    if answer.unanswered or answer.queued:
        await incident.talk.withdraw(ask)
    return answer


async def _report_bad_partners(incident: Incident, node: Node, report: BurnInReport) -> None:
    for bad in report.nodes:
        if bad.verdict is Verdict.CRITICAL and bad.instance_id not in (node.instance_id, incident.node.instance_id):
            incident.unwanted_spares.append(bad.instance_id)
            await _report_partner(incident, bad)


async def _report_partner(incident: Incident, bad: NodeVerdict) -> None:
    report = Report(
        source=workflow.info().workflow_id,
        key=incident.tokens.next(),
        what=f"{bad.node_name} failed a burn-in as a partner: {bad.evidence}",
        burn_in_failed=True,
        seen_at=workflow.now(),
    )
    await workflow.execute_activity_method(
        IncidentActivities.open_incident,
        OpenIncident(cluster=incident.cluster, instance_id=bad.instance_id, report=report),
        summary=f"incident for {bad.node_name}, which failed as a partner",
        **options.MESSENGER,
    )
