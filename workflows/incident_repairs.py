"""The steps of an incident that work on the node itself: reset, reboot, power cycle, re-test, burn-in, back in service."""

from __future__ import annotations

from temporalio import workflow
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from activities import names
    from activities.draining import DrainActivities, DrainNode
    from activities.ec2 import AwaitBoot, Disrupted, DisruptNode, Ec2Activities
    from activities.errors import NoCapacity, NotOurs
    from activities.host_memory import RungAttempt
    from activities.incidents import NodeIn
    from activities.node import DeepTest, Gpu, NodeActivities, ResetGpu
    from checks.model import Action, Verdict
    from workflows import options
    from workflows.cluster_messages import AskKind
    from workflows.decisions.facts import RungOutcome, RungTaken, Step
    from workflows.failures import cause_of, kind_of
    from workflows.incident import Incident
    from workflows.incident_gate import may_disrupt
    from workflows.incident_people import page
    from workflows.incident_steps import answer_job, lift_quarantine


async def drain(incident: Incident, step: Step) -> None:
    """Move the pods off the node. One that a budget holds there past the deadline is a person's: the node is not restarted."""
    if not await may_disrupt(incident, "the drain"):
        return
    try:
        drained = await workflow.execute_activity_method(
            DrainActivities.drain_node,
            DrainNode(node=incident.node, incident=incident.known.incident, reason=step.because[0]),
            summary=f"drain {incident.node.name}",
            **options.DRAIN,
        )
    finally:
        await incident.talk.give_back(AskKind.REPAIR_SLOT)
    incident.learn(drained=True)
    incident.tell("drained", drained.said)


async def disrupt(incident: Incident, step: Step) -> None:
    """Take one rung on the node itself and wait for its new boot."""
    rung = step.rung or Action.NONE
    if not await may_disrupt(incident, rung.value):
        return
    try:
        done = await _act(incident, rung)
    except ActivityError as error:
        await incident.talk.give_back(AskKind.REPAIR_SLOT)
        if kind_of(error) == NotOurs.__name__:
            raise  # somebody else's node now: a person sorts it out
        if kind_of(error) == NoCapacity.__name__:
            await _no_capacity(incident, cause_of(error))
            return
        _take(incident, rung, RungOutcome.REFUSED, cause_of(error))
        return
    await came_up(incident, rung, step, done)


async def came_up(incident: Incident, rung: Action, step: Step, done: Disrupted) -> None:
    """A rung was taken: wait for the node's new boot, and have it tested."""
    incident.tell(rung.value, f"{done.said}; {step.because[0]}")
    incident.learn(disrupted=True, fault_gone=False, retest=None, burn_in=None)
    incident.view.attributes(Phase=rung.value.lower())
    if rung is Action.RESET_GPU:
        incident.handled_until = workflow.now()  # a reset does not clear the kernel log
    if await _await_boot(incident, rung, step):
        incident.learn(rung_in_test=rung.value)
    else:
        incident.learn(retest=Verdict.CRITICAL)


async def _no_capacity(incident: Incident, why: str) -> None:
    """The node is stopped and does not start: that is a wait, of which people are told at once."""
    incident.learn(no_capacity=why, no_capacity_since=workflow.now(), disrupted=True, fault_gone=False, retest=None, burn_in=None)
    incident.tell("no capacity", why)
    await page(incident, f"{incident.node.name} is stopped, and EC2 has no capacity to start it: {why}", "waits for capacity")


async def _act(incident: Incident, rung: Action) -> Disrupted:
    node, boot, token = incident.node, incident.last_boot_id, incident.tokens.next()
    attempt = _attempt(incident, rung)
    request = DisruptNode(node=node, boot_id=boot, token=token, attempt=attempt, quarantined_by=incident.known.incident)
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
    if rung is Action.SOFT_REBOOT:
        return await workflow.execute_activity_method(
            Ec2Activities.soft_reboot_node, request, summary=f"{node.name} reboots itself", **options.DISRUPT
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
            **options.watch(step.deadline_s),
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
        incident=incident.known.run,
    )


async def retest(incident: Incident, step: Step) -> None:
    """Test the node deep. UNKNOWN stays unknown: a test that could not run proves nothing."""
    request = DeepTest(
        node=incident.node,
        run_id=incident.tokens.next_name(),
        deadline_s=step.deadline_s,
        settling_s=step.settling_s,
        handled_until=incident.handled_until,
        job=incident.known.job,
        in_place_of=incident.node.instance_id,
        incident=incident.tokens.run,
        left_host=_left_host(incident),
    )
    verdict, because = Verdict.UNKNOWN, ["the re-test could not run"]
    try:
        result = await workflow.execute_activity_method(
            NodeActivities.deep_test, request, summary=f"deep re-test of {incident.node.name}", **options.watch(step.deadline_s)
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


def _left_host(incident: Incident) -> list[str]:
    """The GPU serials of the host that a stop and start was to leave: what was seen before it, else what is remembered."""
    if incident.known.rung_in_test != Action.POWER_CYCLE.value:
        return []
    seen = incident.known.examination
    return (seen.gpu_serials if seen else []) or incident.known.record.gpu_serials


async def back_in_service(incident: Incident, step: Step) -> None:
    """Lift the quarantine of a node that passed its tests, and give it to the job that waits for it."""
    if not await lift_quarantine(incident):
        incident.learn(retest=Verdict.UNKNOWN)
        return
    incident.learn(back_in_service=True)
    incident.fate = names.FATE_IN_SERVICE
    incident.tell("back in service", f"{step.because[0]}; {step.because[-1]}")
    await incident.talk.give_back(AskKind.NODE_OUT, AskKind.REPAIR_SLOT, healed=True)
    if incident.known.job and incident.known.job_told and not incident.known.job_answered:
        node_in = NodeIn(
            incident=incident.known.incident,
            instance_id=incident.node.instance_id,
            node_name=incident.node.name,
            replaces=incident.node.instance_id,
            proof="; ".join(step.because) if incident.known.job_controller else "",
        )
        await answer_job(incident, node_in)


def _take(incident: Incident, rung: Action, outcome: RungOutcome, detail: str) -> None:
    incident.learn(taken=[*incident.known.taken, RungTaken(rung=rung, outcome=outcome, detail=detail)])
    if outcome is not RungOutcome.HELPED:
        incident.tell(rung.value, f"{outcome.value}: {detail}")
