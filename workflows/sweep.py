"""Sweep: a scheduled look at every node that serves; what needs an action becomes a report like any other."""

from __future__ import annotations

import asyncio

from temporalio import workflow
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from activities.incidents import IncidentActivities, OpenIncident
    from activities.inventory import InventoryActivities, ListNodes, Node
    from activities.message import Message
    from activities.node import Examination, Examine, NodeActivities, Report, Seen
    from checks.model import Action, Verdict
    from workflows import options
    from workflows.decide import DecideActivities, bearings
    from workflows.failures import cause_of
    from workflows.fleet_parity import compare_configurations
    from workflows.messages import StartSweep
    from workflows.spare_tests import begin_spare_tests


class SweepReport(Message):
    """What a sweep saw. `differing`: nodes that are not set up right; `undecided`: where the peers themselves are at odds.

    `testing` are the spares whose test it began.
    """

    looked_at: int = 0
    healthy: int = 0
    reported: list[str] = []
    unreadable: list[str] = []
    left_alone: list[str] = []
    differing: list[str] = []
    undecided: list[str] = []
    testing: list[str] = []


@workflow.defn
class Sweep:
    """Look at every node, a bounded number at once."""

    def __init__(self) -> None:
        self._misconfigured: dict[str, list[Seen]] = {}

    @workflow.run
    async def run(self, start: StartSweep) -> SweepReport:
        """Examine the nodes and report what is wrong. An unreachable node is reported too: its incident looks again."""
        known = await bearings()
        cluster = start.cluster or known.cluster
        plan = await workflow.execute_local_activity_method(
            DecideActivities.plan_sweep, start_to_close_timeout=options.DECIDE_TIMEOUT, summary="how many at once"
        )
        seen = await workflow.execute_activity_method(
            InventoryActivities.list_nodes, ListNodes(cluster=cluster, spares=True), summary="every node", **options.LOOK_UP
        )
        report = SweepReport(left_alone=[node.name for node in seen.nodes if node.quarantine])
        serving = [node for node in seen.nodes if not node.quarantine and node.state == "running"]
        room = asyncio.Semaphore(plan.parallel)
        results = await asyncio.gather(*(self._look(cluster, node, room) for node in serving))
        report = report.model_copy(
            update={
                "looked_at": len(serving),
                "healthy": results.count("healthy"),
                "reported": [node.name for node, result in zip(serving, results, strict=True) if result == "reported"],
                "unreadable": [node.name for node, result in zip(serving, results, strict=True) if result == "unreadable"],
            }
        )
        if not workflow.patched("parity"):
            return report
        well = [node for node, result in zip(serving, results, strict=True) if result == "healthy"]
        found = await compare_configurations(cluster, well, self._misconfigured, known.ui_url)
        report = report.model_copy(
            update={
                "differing": [f"{one.node_name}: {'; '.join(one.differences)}" for one in found.differing],
                "undecided": found.undecided,
            }
        )
        if not workflow.patched("spares"):
            return report
        return report.model_copy(update={"testing": await begin_spare_tests(cluster, seen, well)})

    async def _look(self, cluster: str, node: Node, room: asyncio.Semaphore) -> str:
        async with room:
            try:
                seen = await workflow.execute_activity_method(
                    NodeActivities.examine,
                    Examine(node=node),
                    summary=f"probe {node.name}",
                    **options.SWEEP_LOOK,
                )
            except ActivityError as error:
                workflow.logger.warning("could not examine %s: %s", node.name, cause_of(error))
                return "unreadable"
        if seen.reachable and seen.opinion.action is Action.NONE:
            if seen.opinion.fault_class == "configuration":
                self._misconfigured[node.instance_id] = seen.findings
            return "unreadable" if seen.verdict is Verdict.UNKNOWN else "healthy"
        await self._report(cluster, node, seen)
        return "reported" if seen.reachable else "unreadable"

    async def _report(self, cluster: str, node: Node, seen: Examination) -> None:
        opinion = seen.opinion
        report = Report(
            source="sweep",
            key=f"sweep/{opinion.fault_class}/{seen.boot_id}",
            xid=opinion.code,
            what="; ".join(opinion.because)[:300] or seen.why_unreachable[:300],
            gpu=opinion.gpu,
            seen_at=seen.taken_at,
        )
        await workflow.execute_activity_method(
            IncidentActivities.open_incident,
            OpenIncident(cluster=cluster, instance_id=node.instance_id, report=report),
            summary=f"report {node.name}: {opinion.fault_class}",
            **options.MESSENGER,
        )
