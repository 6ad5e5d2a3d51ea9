"""Storm: one event that shows on many nodes, such as a job that crashed or a switch. It acts once, pages once, disrupts no node.

gather who shows it → decide → restart each crashed job once → one page → wait until it is quiet → look at the nodes again
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from activities.incidents import (
        FailedBurnIn,
        IncidentActivities,
        JobResumed,
        JoinJob,
        NodeOut,
        OpenIncident,
        StormMember,
    )
    from activities.inventory import Node
    from activities.jobs.activities import JobActivities
    from activities.jobs.messages import FindJob
    from activities.jobs.protocol import JobState
    from activities.node import Examine, NodeActivities, Report
    from activities.notify import NotifyActivities, Page
    from checks.model import Action
    from workflows import options
    from workflows.decide import DecideActivities, bearings, decided
    from workflows.decisions.storm_plan import StormFacts, StormPlan
    from workflows.failures import cause_of
    from workflows.messages import StartStorm, StormReport
    from workflows.operator_view import Line, OperatorView
    from workflows.tokens import Tokens

GATHER = timedelta(seconds=10)
"""Quiet after which the first page goes out. Hotspare default: lines of one event reach all watchers within seconds."""

GATHER_LIMIT = timedelta(seconds=60)
"""Longest wait for that quiet. Hotspare default: a person should hear within a minute."""

QUIET = timedelta(minutes=5)
"""Without a new node for so long the storm is over. Source: arXiv:2410.21680, attribution up to 5 min after a job's end."""

JOB_DEADLINE = timedelta(hours=2)
"""How long a restarted job is waited for. Hotspare default: as for an incident's job."""

LOOKS_AT_ONCE = 8
"""Nodes looked at again at once. Hotspare default, as for sweeps."""


@workflow.defn
class Storm:
    """One event, answered once."""

    @workflow.init
    def __init__(self, start: StartStorm) -> None:
        self._cluster = start.cluster
        self._tokens = Tokens()
        self._view = OperatorView()
        self._members: dict[str, StormMember] = {}
        self._resumed: dict[str, JobResumed] = {}
        self._left_alone: list[str] = []
        if start.member is not None:
            self._take(start.member)

    @workflow.run
    async def run(self, start: StartStorm) -> StormReport:
        """Gather, act once, page once, and see that the nodes are well afterwards."""
        known = await bearings()
        self._cluster = start.cluster or known.cluster
        self._view.attributes_on = known.attributes
        self._view.attributes(Cluster=self._cluster, Phase="storm")
        await self._quiet_for(GATHER, GATHER_LIMIT)
        plan = await self._decide()
        await self._restart(plan)
        await self._page(plan, known.ui_url)
        await self._quiet_for(QUIET, None)
        await self._jobs_resume(plan)
        ill = await self._look_again() if plan.look_again else []
        await workflow.wait_condition(workflow.all_handlers_finished)
        self._view.attributes(Phase="closed", Outcome="storm over")
        return StormReport(
            nodes=sorted(member.node_name for member in self._members.values()),
            jobs=plan.restart_jobs,
            story=[f"{line.at:%H:%M:%S} {line.phase}: {line.text}" for line in self._view.lines],
            still_ill=ill,
        )

    async def _quiet_for(self, quiet: timedelta, limit: timedelta | None) -> None:
        """Wait until no node has joined for `quiet`, at most `limit`."""
        begun = workflow.now()
        while limit is None or workflow.now() - begun < limit:
            try:
                await self._one_more(quiet)
            except TimeoutError:
                return

    async def _one_more(self, patience: timedelta) -> None:
        seen = len(self._members)
        await workflow.wait_condition(
            lambda: len(self._members) > seen, timeout=patience, timeout_summary="whether other nodes show it too"
        )

    async def _decide(self) -> StormPlan:
        members = list(self._members.values())
        plan = await decided(
            DecideActivities.plan_storm,
            StormFacts(members=members, reason=members[0].reason if members else ""),
            f"decide about {len(members)} nodes",
        )
        self._view.tell("decided", "; ".join([plan.title, *plan.why]))
        return plan

    async def _restart(self, plan: StormPlan) -> None:
        for job in plan.restart_jobs:
            member = next(one for one in self._members.values() if one.job == job)
            running = await self._why_not_stopped(member)
            if running:
                self._resumed[job] = JobResumed(job=job, resumed=False, reason=running)
                self._left_alone.append(running)
                self._view.tell("left alone", running)
                continue
            out = NodeOut(
                incident=workflow.info().workflow_id,
                instance_id=member.instance_id,
                node_name=member.node_name,
                reason=plan.title,
                restart_only=True,
                token=self._tokens.next(),
            )
            try:
                await workflow.execute_activity_method(
                    IncidentActivities.join_job,
                    JoinJob(cluster=self._cluster, job=job, node_out=out),
                    summary=f"restart {job}, once",
                    **options.MESSENGER,
                )
                self._view.tell("job told", f"{job} restarts after a burn-in")
            except ActivityError as error:
                self._resumed[job] = JobResumed(job=job, resumed=False, reason=cause_of(error))
                self._view.tell("job not told", cause_of(error))

    async def _why_not_stopped(self, member: StormMember) -> str:
        """Return why the job is left alone, empty when it was seen to have stopped. What cannot be seen has not stopped."""
        node = Node(instance_id=member.instance_id, name=member.node_name)
        try:
            found = await workflow.execute_activity_method(
                JobActivities.find_job,
                FindJob(cluster=self._cluster, node=node),
                summary=f"does {member.job} still run",
                **options.JOB,
            )
        except ActivityError as error:
            return f"{member.job} is not restarted: whether it still runs could not be seen ({cause_of(error)})"
        if found.status is None:
            return f"{member.job} is not restarted: it is not on {member.node_name} any more"
        if found.status.state in (JobState.STOPPED, JobState.HELD):
            return ""
        return f"{member.job} is not restarted: it is {found.status.state.value}, and a storm stops no running job"

    async def _page(self, plan: StormPlan, ui_url: str) -> None:
        info = workflow.info()
        page = Page(
            key=f"{self._tokens.run}/storm",
            incident=info.workflow_id,
            node=next((member.node_name for member in self._members.values()), ""),
            title=plan.title,
            why=[*plan.why, *self._left_alone],
            next_commands=plan.next_commands,
            ui_link=f"{ui_url}/namespaces/{info.namespace}/workflows/{info.workflow_id}" if ui_url else "",
        )
        try:
            await workflow.execute_activity_method(NotifyActivities.page, page, summary=f"page: {plan.title}", **options.PAGE)
        except ActivityError as error:
            self._view.tell("page failed", cause_of(error))

    async def _jobs_resume(self, plan: StormPlan) -> None:
        """See how the restarted jobs ended; the recovery itself pages where one did not."""
        with suppress(TimeoutError):
            await workflow.wait_condition(
                lambda: all(job in self._resumed for job in plan.restart_jobs),
                timeout=JOB_DEADLINE,
                timeout_summary="the restarted jobs train again",
            )
        for job in plan.restart_jobs:
            end = self._resumed.get(job)
            said = "did not say how it ended" if end is None else "trains again" if end.resumed else end.reason
            self._view.tell("job", f"{job}: {said}")

    async def _look_again(self) -> list[str]:
        """Look at every node once it is quiet: a fault that is the node's own becomes an incident of its own."""
        room = asyncio.Semaphore(LOOKS_AT_ONCE)
        results = await asyncio.gather(*(self._look(member, room) for member in self._members.values()))
        ill = sorted(name for name in results if name)
        self._view.tell("looked again", f"{len(results)} nodes; with a fault of their own: {', '.join(ill) or 'none'}")
        return ill

    async def _look(self, member: StormMember, room: asyncio.Semaphore) -> str:
        async with room:
            try:
                seen = await workflow.execute_activity_method(
                    NodeActivities.examine,
                    Examine(node=Node(instance_id=member.instance_id, name=member.node_name)),
                    summary=f"probe {member.node_name} after the storm",
                    **options.SWEEP_LOOK,
                )
                if seen.opinion.action in (Action.NONE, Action.RESTART_JOB):
                    return ""
                await self._report(member, "; ".join(seen.opinion.because)[:300], seen.opinion.code)
            except ActivityError as error:
                workflow.logger.warning("could not look at %s: %s", member.node_name, cause_of(error))
                return ""
        return member.node_name

    async def _report(self, member: StormMember, what: str, code: int | None) -> None:
        report = Report(
            source=workflow.info().workflow_id,
            key=f"{self._tokens.run}/{member.instance_id}",
            xid=code,
            what=what,
            seen_at=workflow.now(),
        )
        await workflow.execute_activity_method(
            IncidentActivities.open_incident,
            OpenIncident(cluster=self._cluster, instance_id=member.instance_id, report=report),
            summary=f"report {member.node_name}: still ill after the storm",
            **options.MESSENGER,
        )

    def _take(self, member: StormMember) -> None:
        if member.instance_id not in self._members:
            self._members[member.instance_id] = member

    @workflow.signal(description="One more node shows the event")
    def member(self, member: StormMember) -> None:
        self._take(member)

    @workflow.signal(description="A restarted job has resumed, or a person owns it")
    def job_resumed(self, end: JobResumed) -> None:
        self._resumed[end.job] = end

    @workflow.signal(description="A node failed the burn-in before the restart; it has an incident of its own")
    def failed_burn_in(self, failed: FailedBurnIn) -> None:
        self._view.tell("failed burn-in", failed.evidence)

    @workflow.query(description="The story so far")
    def story(self) -> list[Line]:
        return self._view.lines
