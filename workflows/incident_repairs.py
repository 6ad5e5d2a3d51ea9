"""The steps of an incident that disturb the node or use a spare: reset, reboot, power cycle, re-test, replace, back in service.

Each begins the same way: look again, ask for a repair slot, and at once the step.
"""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError, ChildWorkflowError, WorkflowAlreadyStartedError
from temporalio.workflow import ChildWorkflowCancellationType, ParentClosePolicy

with workflow.unsafe.imports_passed_through():
    from activities import names
    from activities.ec2 import AwaitBoot, Disrupted, DisruptNode, Ec2Activities
    from activities.host_memory import RungAttempt
    from activities.incidents import NodeIn
    from activities.node import DeepTest, Gpu, NodeActivities, ResetGpu
    from checks.model import Action, Verdict
    from workflows import options
    from workflows.decisions.facts import RungOutcome, RungTaken, Spare, Step
    from workflows.failures import cause_of
    from workflows.incident import Incident
    from workflows.incident_people import page
    from workflows.incident_steps import answer_job, lift_quarantine, look, opinion_of
    from workflows.messages import AskKind, BurnInReport, Replacement, StartBurnIn, StartReplacement


async def may_disrupt(incident: Incident, what: str) -> bool:
    """Look again and get a repair slot. False when the evidence or a person says otherwise: the policy decides anew."""
    seen = await look(incident, f"before {what}")
    opinion = opinion_of(incident, seen)
    unread = incident.known.unreadable_probes + 1 if seen.verdict is Verdict.UNKNOWN else 0
    incident.learn(examination=seen, unreadable_probes=unread)
    incident.last_boot_id = seen.boot_id or incident.last_boot_id
    if seen.reachable and seen.verdict is Verdict.UNKNOWN:
        incident.tell("looked again", "the evidence could not be read: not acting on it")
        return False
    if opinion.action is Action.NONE:
        incident.learn(fault_gone=True)
        incident.tell("looked again", "the fault no longer shows")
        return False
    incident.learn(opinion=opinion)
    return await _repair_slot(incident, what)


async def _repair_slot(incident: Incident, what: str) -> bool:
    ask = incident.ask(AskKind.REPAIR_SLOT)
    answer = await incident.talk.ask(ask)
    if answer.queued:
        incident.tell("waiting", f"{what}: {answer.reason}")
        answer = await incident.talk.stand_in_queue(ask, options.CLUSTER_QUEUE, incident.interrupted)
        await incident.talk.withdraw(ask)  # a grant is good for one step within a minute: ask again after looking again
        if not answer.granted and not incident.interrupted():
            await page(incident, f"{what} waits: {answer.reason}", "waiting for a repair slot")
        return False
    if not answer.granted:
        await incident.talk.withdraw(ask)
        incident.learn(stuck=f"{what}: no repair slot: {answer.reason}")
        return False
    if incident.interrupted():
        await incident.talk.give_back(AskKind.REPAIR_SLOT)
        return False
    return True


async def disrupt(incident: Incident, step: Step) -> None:
    """Take one rung on the node itself and wait for its new boot."""
    rung = step.rung or Action.NONE
    if not await may_disrupt(incident, rung.value):
        return
    try:
        done = await _act(incident, rung)
    except ActivityError as error:
        await incident.talk.give_back(AskKind.REPAIR_SLOT)
        _take(incident, rung, RungOutcome.REFUSED, cause_of(error))
        return
    incident.tell(rung.value, f"{done.said}; {step.because[0]}")
    incident.learn(disrupted=True, fault_gone=False, retest=None, burn_in_passed=None)
    incident.view.attributes(Phase=rung.value.lower())
    if await _await_boot(incident, rung, step):
        incident.learn(rung_in_test=rung.value)
    else:
        incident.learn(retest=Verdict.CRITICAL)


async def _act(incident: Incident, rung: Action) -> Disrupted:
    node, boot, token = incident.node, incident.last_boot_id, incident.tokens.next()
    attempt = _attempt(incident, rung)
    request = DisruptNode(node=node, boot_id=boot, token=token, attempt=attempt)
    if rung is Action.RESET_GPU:
        gpu = incident.known.opinion.gpu if incident.known.opinion else Gpu()
        return await workflow.execute_activity_method(
            NodeActivities.reset_gpu,
            ResetGpu(node=node, gpu=gpu, token=token, boot_id=boot, attempt=attempt),
            summary=f"reset the GPU on {node.name}",
            **options.RESET,
        )
    if rung is Action.POWER_CYCLE:
        return await workflow.execute_activity_method(
            Ec2Activities.power_cycle_node, request, summary=f"stop and start {node.name}", **options.POWER_CYCLE
        )
    return await workflow.execute_activity_method(
        Ec2Activities.reboot_node, request, summary=f"reboot {node.name}", **options.DISRUPT
    )


async def _await_boot(incident: Incident, rung: Action, step: Step) -> bool:
    if rung is Action.RESET_GPU:
        return True
    try:
        boot = await workflow.execute_activity_method(
            Ec2Activities.await_boot,
            AwaitBoot(node=incident.node, old_boot_id=incident.last_boot_id, deadline_s=step.deadline_s),
            summary=f"{incident.node.name} answers with a new boot id",
            **options.WATCH,
        )
    except ActivityError as error:
        _take(incident, rung, RungOutcome.FAILED, cause_of(error))
        return False
    incident.last_boot_id = boot.boot_id
    incident.booted_at = workflow.now().isoformat()
    incident.tell("booted", f"new boot id {boot.boot_id[:8]} after {boot.waited_s:.0f} s")
    return True


def _attempt(incident: Incident, rung: Action) -> RungAttempt:
    opinion = incident.known.opinion
    return RungAttempt(
        rung=rung,
        at=workflow.now(),
        fault_class=opinion.fault_class if opinion else "",
        code=opinion.code if opinion else None,
        gpu_serial=opinion.gpu.serial if opinion else "",
        incident=incident.tokens.run,
    )


async def retest(incident: Incident, step: Step) -> None:
    """Test the node deep. UNKNOWN stays unknown: a test that could not run proves nothing."""
    request = DeepTest(
        node=incident.node, run_id=_run_id(incident.tokens.next()), deadline_s=step.deadline_s, settling_s=step.settling_s
    )
    verdict, because = Verdict.UNKNOWN, ["the re-test could not run"]
    try:
        result = await workflow.execute_activity_method(
            NodeActivities.deep_test, request, summary=f"deep re-test of {incident.node.name}", **options.WATCH
        )
        verdict, because = result.verdict, result.because
    except ActivityError as error:
        because = [f"the re-test could not run: {cause_of(error)}"]
    incident.learn(retest=verdict, retest_because=because[:5])
    incident.tell("re-tested", f"{verdict.value}: {'; '.join(because)}")
    if incident.known.rung_in_test:
        outcome = RungOutcome.HELPED if verdict is Verdict.OK else RungOutcome.DID_NOT_HELP
        _take(incident, Action(incident.known.rung_in_test), outcome, "; ".join(because)[:200])
        incident.learn(rung_in_test="")


async def burn_in(incident: Incident, step: Step) -> None:
    """Burn the node in here, because no job will: only where no job holds it."""
    start = StartBurnIn(cluster=incident.cluster, nodes=[incident.node.instance_id], reason="after a repair, no job holds it")
    try:
        report: BurnInReport = await workflow.execute_child_workflow(
            names.WORKFLOW_BURN_IN,
            start,
            id=names.burn_in_id(incident.cluster, f"{incident.node.name}/{_run_id(incident.tokens.next())}"),
            parent_close_policy=ParentClosePolicy.REQUEST_CANCEL,
            cancellation_type=ChildWorkflowCancellationType.WAIT_CANCELLATION_COMPLETED,
            result_type=BurnInReport,
            static_summary=f"burn-in of {incident.node.name}",
        )
        passed, because = report.verdict is Verdict.OK, "; ".join(report.because)
    except ChildWorkflowError as error:
        passed, because = False, cause_of(error)
    incident.learn(burn_in_passed=passed)
    incident.tell("burn-in", because)


async def replace(incident: Incident, step: Step) -> None:
    """Get a spare in place of the node, and give it to the job."""
    if not await may_disrupt(incident, "the replacement"):
        return
    outcome = await _replacement(incident, step)
    await incident.talk.give_back(AskKind.REPAIR_SLOT)
    if not outcome.ready or outcome.spare is None:
        incident.learn(spare=Spare.NONE_FREE, spare_reason=outcome.reason)
        incident.tell("no spare", outcome.reason)
        return
    incident.supplied_id = outcome.spare.instance_id
    incident.learn(spare=Spare.READY, spare_name=outcome.spare.name, spare_reason=outcome.reason)
    incident.tell("replaced", f"{outcome.spare.name} stands in for {incident.node.name}: {outcome.reason}")
    await answer_job(
        incident,
        NodeIn(
            incident=incident.known.incident,
            instance_id=outcome.spare.instance_id,
            node_name=outcome.spare.name,
            replaces=incident.node.instance_id,
        ),
    )


async def _replacement(incident: Incident, step: Step) -> Replacement:
    start = StartReplacement(
        node=incident.node.instance_id,
        cluster=incident.cluster,
        incident=incident.known.incident,
        job=incident.known.job,
        reason=step.because[0],
        unwanted=incident.unwanted_spares,
    )
    replace_id = names.replace_id(incident.cluster, incident.node.instance_id)
    await _earlier_replacement_ends(incident, step)
    incident.replacement = None
    try:
        child = await workflow.start_child_workflow(
            names.WORKFLOW_REPLACE_NODE,
            start,
            id=replace_id,
            parent_close_policy=ParentClosePolicy.ABANDON,
            result_type=Replacement,
            static_summary=f"a spare in place of {incident.node.name}",
        )
    except WorkflowAlreadyStartedError:
        return Replacement(replaced=incident.node.instance_id, reason=f"{replace_id} is already at work on this node")
    incident.replace_child = child
    try:
        await workflow.wait_condition(
            lambda: incident.replacement is not None or child.done(),
            timeout=timedelta(seconds=step.deadline_s),
            timeout_summary=f"a spare for {incident.node.name} passes its checks",
        )
    except TimeoutError:
        child.cancel()
        return Replacement(
            replaced=incident.node.instance_id, reason=f"no spare was ready within {step.deadline_s / 60:.0f} minutes"
        )
    if incident.replacement is not None:
        return incident.replacement
    try:
        result: Replacement = await child
        return result
    except ChildWorkflowError as error:
        return Replacement(replaced=incident.node.instance_id, reason=cause_of(error))


async def _earlier_replacement_ends(incident: Incident, step: Step) -> None:
    """Wait until a replacement that was cancelled has undone itself: the id is free only then."""
    child = incident.replace_child
    if child is None or child.done():
        return
    try:
        await workflow.wait_condition(
            child.done, timeout=timedelta(seconds=step.deadline_s), timeout_summary="the earlier replacement is undone"
        )
    except TimeoutError:
        incident.tell("replacement", "the earlier replacement has not ended")


async def back_in_service(incident: Incident, step: Step) -> None:
    """Lift the quarantine of a node that passed its tests, and give it to the job that waits for it."""
    if not await lift_quarantine(incident):
        incident.learn(retest=Verdict.UNKNOWN)
        return
    incident.learn(back_in_service=True)
    incident.fate = names.FATE_IN_SERVICE
    incident.tell("back in service", f"{step.because[0]}; {step.because[-1]}")
    await incident.talk.give_back(AskKind.NODE_OUT, AskKind.REPAIR_SLOT)
    if incident.known.job and incident.known.job_told and not incident.known.job_answered:
        node_in = NodeIn(
            incident=incident.known.incident,
            instance_id=incident.node.instance_id,
            node_name=incident.node.name,
            replaces=incident.node.instance_id,
        )
        await answer_job(incident, node_in)


def _take(incident: Incident, rung: Action, outcome: RungOutcome, detail: str) -> None:
    incident.learn(taken=[*incident.known.taken, RungTaken(rung=rung, outcome=outcome, detail=detail)])
    if outcome is not RungOutcome.HELPED:
        incident.tell(rung.value, f"{outcome.value}: {detail}")


def _run_id(token: str) -> str:
    """Return a token in characters that a folder name on a node may have."""
    return "".join(sign if sign.isalnum() else "-" for sign in token)
