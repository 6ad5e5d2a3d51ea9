"""Reconcile: a scheduled look for what dead incidents and replacements left behind. It adopts it, or tells a person, in one page.

find traces → who is open → find them again → what is still nobody's → adopt, complete, return → one page
"""

from __future__ import annotations

from temporalio import workflow
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from activities import names
    from activities.ec2 import Ec2Activities, TagNode
    from activities.incidents import IncidentActivities, OpenIncident, SurveyHolders
    from activities.inventory import Node
    from activities.jobs.activities import JobActivities
    from activities.jobs.messages import SupplyOfNode
    from activities.message import Message
    from activities.node import Report
    from activities.notify import NotifyActivities, Page
    from activities.quarantine import QuarantineActivities, QuarantineNode
    from activities.reconcile import FindTraces, ReconcileActivities, Traces
    from workflows import options
    from workflows.decide import DecideActivities, bearings, decided
    from workflows.decisions.orphans import LeftBehind, Orphan, OrphanPlan, Remedy
    from workflows.failures import cause_of
    from workflows.messages import StartReconcile

PAGE_LINES = 20
"""Pieces that a page names. Hotspare default: what a person reads; the workflow's result has all."""


class ReconcileReport(Message):
    """What was found and done. `told` are the keys of what people know of: the next run pages only for what is new."""

    settled: list[str] = []
    failed: list[str] = []
    left_to_people: list[str] = []
    told: list[str] = []
    marks_unread: str = ""


@workflow.defn
class Reconcile:
    """Leave nothing behind."""

    @workflow.run
    async def run(self, start: StartReconcile) -> ReconcileReport:
        """Look twice, so that what an incident is just tidying up is not taken for left behind; act; page once."""
        self._takes_back = workflow.patched("a spare is taken back from its job's controller")
        known = await bearings()
        cluster = start.cluster or known.cluster
        before = workflow.get_last_completion_result(ReconcileReport) if workflow.has_last_completion_result() else None
        told_before = before.told if before else []
        traces, running = await self._left_behind(cluster)
        plan = await decided(
            DecideActivities.plan_orphans,
            LeftBehind(cluster=cluster, traces=traces, open_ids=running, now=workflow.now(), told_before=told_before),
            f"what of {len(traces.nodes)} nodes with traces is nobody's",
        )
        settled, failed = await self._settle(cluster, traces, plan)
        told = [orphan for orphan in plan.orphans if Remedy.TELL in orphan.remedies]
        news = [orphan.because for orphan in plan.news] + failed
        if news and not await self._page(cluster, plan, [*news, *settled], known.ui_url):
            told = [orphan for orphan in told if orphan not in plan.news]
        return ReconcileReport(
            settled=settled,
            failed=failed,
            left_to_people=[orphan.because for orphan in told],
            told=[orphan.key for orphan in told],
            marks_unread=traces.marks_unread,
        )

    async def _left_behind(self, cluster: str) -> tuple[Traces, list[str]]:
        """Return the traces as they are after their owners were seen to be closed, and who is open."""
        first = await self._find(cluster, [])
        running = await self._open(cluster, first)
        if not first.nodes:
            return first, running
        again = await self._find(cluster, [trace.node.instance_id for trace in first.nodes])
        return again, [*running, *await self._open(cluster, again)]

    async def _find(self, cluster: str, only: list[str]) -> Traces:
        return await workflow.execute_activity_method(
            ReconcileActivities.find_traces,
            FindTraces(cluster=cluster, only=only),
            summary="what is marked on nodes" if not only else "what is still marked, now that it is known who is open",
            **options.MARK,
        )

    async def _open(self, cluster: str, traces: Traces) -> list[str]:
        ids = {trace.node.instance_id for trace in traces.nodes}
        ids |= {trace.node.lease.rsplit("/", 1)[-1] for trace in traces.nodes if names.is_replacement(trace.node.lease)}
        if not ids:
            return []
        seen = await workflow.execute_activity_method(
            IncidentActivities.survey_holders,
            SurveyHolders(cluster=cluster, instance_ids=sorted(ids)),
            summary=f"which incidents and replacements of {len(ids)} nodes are open",
            **options.MESSENGER,
        )
        return seen.workflow_ids

    async def _settle(self, cluster: str, traces: Traces, plan: OrphanPlan) -> tuple[list[str], list[str]]:
        """Carry the remedies out; one that fails stops neither the others nor the run."""
        nodes = {trace.node.instance_id: trace.node for trace in traces.nodes}
        settled, failed = [], []
        for orphan in plan.orphans:
            remedies = [remedy for remedy in orphan.remedies if remedy is not Remedy.TELL]
            try:
                for remedy in remedies:
                    await self._apply(remedy, cluster, orphan, nodes[orphan.instance_id])
            except ActivityError as error:
                failed.append(f"{orphan.because}; this failed: {cause_of(error)}")
                continue
            if remedies:
                settled.append(f"{orphan.because} ({', '.join(remedy.value for remedy in remedies)})")
        return settled, failed

    async def _apply(self, remedy: Remedy, cluster: str, orphan: Orphan, node: Node) -> None:
        leased = {names.TAG_LEASE: orphan.owner}
        if remedy is Remedy.MARK_AGAIN:
            await self._mark(orphan, node)
        elif remedy is Remedy.RETURN_SPARE:
            if self._takes_back:
                await self._take_back(node)
            back = {names.TAG_ROLE: names.ROLE_SPARE}
            # The lease is what proves the spare to be the dead replacement's, so it goes last.
            await self._tag(TagNode(instance_id=node.instance_id, set=back, expect=leased), f"{node.name}: a spare again")
            rest = [names.TAG_LEASE, names.TAG_REPLACES]
            await self._tag(TagNode(instance_id=node.instance_id, remove=rest, expect=leased), f"{node.name}: no lease any more")
        elif remedy is Remedy.HAND_OVER:
            ended = TagNode(instance_id=node.instance_id, remove=[names.TAG_LEASE], expect=leased)
            await self._tag(ended, f"{node.name}: a node like any other")
        elif remedy is Remedy.FORGET:
            record = TagNode(instance_id=node.instance_id, remove=[names.TAG_REPLACES], expect={names.TAG_LEASE: ""})
            await self._tag(record, f"{node.name}: stands in for nobody")
        elif remedy is Remedy.ADOPT:
            await self._adopt(cluster, orphan, node)

    async def _mark(self, orphan: Orphan, node: Node) -> None:
        await workflow.execute_activity_method(
            QuarantineActivities.quarantine_node,
            QuarantineNode(node=node, incident=orphan.owner, reason=orphan.because),
            summary=f"{node.name}: complete the quarantine",
            **options.MARK,
        )

    async def _take_back(self, node: Node) -> None:
        """A dead replacement may have supplied the spare to a job, whose ranks could start there while it is a free spare."""
        await workflow.execute_activity_method(
            JobActivities.take_back_node,
            SupplyOfNode(job="", node=node),
            summary=f"{node.name} is no job's any more",
            **options.JOB,
        )

    async def _tag(self, request: TagNode, why: str) -> None:
        await workflow.execute_activity_method(Ec2Activities.tag_node, request, summary=why, **options.LOOK_UP)

    async def _adopt(self, cluster: str, orphan: Orphan, node: Node) -> None:
        report = Report(source="reconcile", key=f"reconcile/{orphan.key}/{workflow.info().run_id}", what=orphan.because)
        await workflow.execute_activity_method(
            IncidentActivities.open_incident,
            OpenIncident(cluster=cluster, instance_id=node.instance_id, report=report),
            summary=f"have {node.name} looked at: {orphan.kind}",
            **options.MESSENGER,
        )

    async def _page(self, cluster: str, plan: OrphanPlan, why: list[str], ui_url: str) -> bool:
        info = workflow.info()
        commands = dict.fromkeys(orphan.next_command for orphan in plan.news if orphan.next_command)
        page = Page(
            key=f"reconcile/{cluster}/{plan.page_key}",
            incident=info.workflow_id,
            node="",
            title=f"{len(why)} things were left behind in {cluster}",
            why=why[:PAGE_LINES],
            next_commands=[*list(commands)[:PAGE_LINES], "hotspare status"],
            ui_link=f"{ui_url}/namespaces/{info.namespace}/workflows/{info.workflow_id}" if ui_url else "",
        )
        try:
            await workflow.execute_activity_method(NotifyActivities.page, page, summary=f"page: {page.title}", **options.PAGE)
        except ActivityError as error:
            workflow.logger.error("page failed: %s", cause_of(error))
            return False
        return True
