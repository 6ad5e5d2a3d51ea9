"""ReplaceNode: one spare in place of one node. It owns the spare it uses until a rank of the job runs on it, or all is undone.

Retiring or returning the node that was replaced is not its business: that stays with RemediateNode.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, FailureError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from activities import names
    from activities.briefing import BriefingActivities
    from activities.ec2 import Ec2Activities, TagNode
    from activities.errors import NotOurs
    from activities.incidents import IncidentActivities, OpenIncident
    from activities.inventory import Node, ResolveNode
    from activities.jobs.activities import JobActivities
    from activities.jobs.messages import AwaitRank, FindJob, SupplyOfNode
    from activities.jobs.protocol import JobState
    from activities.node import DeepTest, DeepTestResult, NodeActivities, Report
    from checks.model import Verdict
    from workflows import options
    from workflows.cluster_messages import Answer, Ask, AskKind, SayHolding
    from workflows.cluster_talk import ClusterTalk
    from workflows.decide import Bearings, bearings
    from workflows.failures import cause_of, kind_of, stop_if_cancelled
    from workflows.messages import Replacement, StartReplacement
    from workflows.operator_view import Line, OperatorView
    from workflows.post import post
    from workflows.spare_tests import still_at_work
    from workflows.tokens import Tokens


@workflow.defn
class ReplaceNode:
    """Lease, test, attach, hand over."""

    @workflow.init
    def __init__(self, start: StartReplacement) -> None:
        self._start = start
        self._tokens = Tokens()
        self._talk = ClusterTalk(self._tokens)
        self._view = OperatorView()
        self._cluster = start.cluster
        self._known: Bearings
        self._attached: Node | None = None
        self._ready: Replacement | None = None

    @workflow.run
    async def run(self, start: StartReplacement) -> Replacement:
        """Find a spare that passes, attach it, say so, and stay until it is in use."""
        replaced = await self._identify()
        try:
            outcome = await self._attached_spare(replaced)
            if outcome.spare is None:
                return await self._end_without(outcome)
            stop_if_cancelled()
            self._ready = outcome
            if not await self._say_ready(outcome):
                await self._undo("nobody waits for the spare any more")
                return outcome.model_copy(update={"ready": False, "reason": "undone: nobody waits for the spare any more"})
            await self._hand_over(outcome.spare)
            return outcome
        except (asyncio.CancelledError, FailureError) as error:
            await self._undo("cancelled" if is_cancelled_exception(error) else f"a step failed: {error}")
            raise

    async def _identify(self) -> Node:
        self._known = known = await bearings()
        self._cluster = self._start.cluster or known.cluster
        self._view.attributes_on = known.attributes
        self._talk.serve(self._cluster)
        briefing = await workflow.execute_activity_method(
            BriefingActivities.brief,
            ResolveNode(cluster=self._cluster, alias=self._start.node),
            summary=f"who is {self._start.node}",
            **options.LOOK_UP,
        )
        right_id = names.replace_id(self._cluster, briefing.node.instance_id)
        if workflow.info().workflow_id != right_id:
            message = (
                f"the replacement of {briefing.node.name} has the id {right_id}: start it under that id, so that it happens once"
            )
            raise ApplicationError(message, type="BadInput", non_retryable=True)
        self._view.attributes(Cluster=self._cluster, Node=briefing.node.name, Job=self._start.job, Phase="replacing")
        return briefing.node

    async def _attached_spare(self, replaced: Node) -> Replacement:
        unwanted = list(self._start.unwanted)
        reason = "no spare was asked for"
        refusals: list[str] = []
        for _ in range(self._known.spares_tried):
            answer = await self._leave(self._ask(replaced, unwanted))
            reason = answer.reason
            if not answer.granted or answer.spare is None:
                break
            spare = answer.spare
            self._view.tell("leased", reason)
            refusal = await self._refusal(replaced, spare)
            if not refusal:
                return Replacement(replaced=replaced.instance_id, spare=spare, ready=True, reason=reason)
            reason = refusal
            refusals.append(refusal)
            self._view.tell("refused", reason)
            unwanted.append(spare.instance_id)
            await self._talk.give_back(AskKind.SPARE)
            await self._report_spare(spare, reason)
        reasons = dict.fromkeys([reason, *refusals])
        return Replacement(replaced=replaced.instance_id, reason="; ".join(reasons))

    async def _leave(self, ask: Ask) -> Answer:
        """Ask for a spare; one that is lent is waited for, and one that may come back where nothing else can be done."""
        answer = await self._talk.ask(ask)
        if answer.queued:
            self._view.tell("waiting", answer.reason)
            patience = timedelta(seconds=self._start.wait_s) if ask.waits else options.CLUSTER_QUEUE
            answer = await self._talk.stand_in_queue(ask, patience, lambda: False)
        if answer.queued:
            await self._talk.withdraw(ask)
        return answer

    async def _refusal(self, replaced: Node, spare: Node) -> str:
        """Test a spare and attach it; returns why it cannot be used, empty when it is attached."""
        if self._known.spares_work and (why := await still_at_work(spare, self._view)):
            return why
        result = await self._test(replaced, spare)
        if result.verdict is not Verdict.OK:
            return f"{spare.name} did not pass ({result.verdict.value}): {'; '.join(result.because)}"
        self._view.tell("passed", f"{spare.name}: {'; '.join(result.because)}")
        try:
            await self._attach(replaced, spare)
        except ActivityError as error:
            words = cause_of(error)
            if kind_of(error) != NotOurs.__name__:
                raise
            self._attached = None
            return f"{spare.name} belongs to somebody else now: {words}"
        return ""

    def _ask(self, replaced: Node, unwanted: list[str]) -> Ask:
        return Ask(
            request_id=self._tokens.next(),
            asker=workflow.info().workflow_id,
            kind=AskKind.SPARE,
            instance_id=replaced.instance_id,
            node_name=replaced.name,
            job=self._start.job,
            zone=replaced.zone,
            spine=replaced.spine,
            nvlink_domain=replaced.nvlink_domain,
            instance_type=replaced.instance_type,
            unwanted=unwanted,
            impact=self._start.impact,
            waits=self._start.wait_s > 0,
        )

    async def _test(self, replaced: Node, spare: Node) -> DeepTestResult:
        """Test a spare; one that is set up otherwise than the job's other nodes does not pass."""
        test = DeepTest(
            node=spare,
            run_id=self._tokens.next_name(),
            job=self._start.job,
            in_place_of=replaced.instance_id,
            joins=True,
            trust_h=self._known.trust_h if self._start.job else 0.0,  # without a job no burn-in of a group follows
        )
        try:
            return await workflow.execute_activity_method(
                NodeActivities.deep_test,
                test,
                summary=f"test {spare.name} before it joins",
                **options.WATCH,
            )
        except ActivityError as error:
            return DeepTestResult(verdict=Verdict.UNKNOWN, because=[cause_of(error)])

    async def _attach(self, replaced: Node, spare: Node) -> None:
        """Write on the spare whose it is, and refuse if somebody else has."""
        tags = {
            names.TAG_LEASE: workflow.info().workflow_id,
            names.TAG_REPLACES: replaced.instance_id,
            names.TAG_ROLE: names.ROLE_WORKER,
        }
        self._attached = spare
        request = TagNode(
            instance_id=spare.instance_id,
            set=tags,
            expect={names.TAG_LEASE: "", names.TAG_QUARANTINE: ""},
            token=self._tokens.next(),
        )
        await workflow.execute_activity_method(
            Ec2Activities.tag_node, request, summary=f"attach {spare.name} in place of {replaced.name}", **options.LOOK_UP
        )
        self._view.tell("attached", f"{spare.name} stands in for {replaced.name}")

    async def _end_without(self, outcome: Replacement) -> Replacement:
        if self._start.incident:
            await post(self._start.incident, "replacement_ready", outcome)
        self._view.attributes(Phase="closed", Outcome="no spare")
        return outcome

    async def _say_ready(self, outcome: Replacement) -> bool:
        return not self._start.incident or await post(self._start.incident, "replacement_ready", outcome)

    async def _hand_over(self, spare: Node) -> None:
        """Stay until a rank runs on the spare; then it is no spare any more."""
        if self._start.job:
            await workflow.execute_activity_method(
                JobActivities.await_rank,
                AwaitRank(job=self._start.job, node_name=spare.name, deadline_s=self._known.hand_over_s),
                summary=f"a rank of {self._start.job} runs on {spare.name}",
                **options.WATCH,
            )
            self._attached = None  # it is in use: nothing that fails from here on takes it back into the pool
        try:
            await self._tag(spare, {}, [names.TAG_LEASE], "handed over")
        except ActivityError as error:
            if self._attached is not None:
                raise
            self._view.tell("lease left", f"the lease tag of {spare.name} could not be removed: {cause_of(error)}")
        await self._talk.give_back(AskKind.SPARE)
        self._view.tell("handed over", f"{spare.name} is a node like any other now")
        self._view.attributes(Phase="closed", Outcome="handed over")

    async def _undo(self, why: str) -> None:
        """Put the spare back into the pool, through a look by its own incident. One that the job trains on stays where it is."""
        try:
            if self._attached is not None:
                await self._keep_if_in_use(self._attached)
            if self._attached is not None:
                await self._detach(self._attached)
        finally:
            await self._talk.leave_queue()
            await self._talk.give_back(AskKind.SPARE)
        self._view.tell("undone", why)
        self._view.attributes(Phase="closed", Outcome="undone")

    async def _keep_if_in_use(self, spare: Node) -> None:
        """A letter whose answer was lost may have been read: then the incident has ended, and the job runs on the spare."""
        if not self._start.job:
            return
        try:
            found = await workflow.execute_activity_method(
                JobActivities.find_job,
                FindJob(cluster=self._cluster, node=spare),
                summary=f"does {self._start.job} run on {spare.name}",
                **options.JOB,
            )
            if found.status is None or found.status.state is not JobState.RUNNING or spare.name not in found.status.nodes:
                return
            self._attached = None
            await self._tag(spare, {}, [names.TAG_LEASE], "in use")
        except ActivityError as error:
            self._view.tell("not sure", f"whether {spare.name} is in use: {cause_of(error)}")
            return
        self._view.tell("in use", f"{self._start.job} runs on {spare.name}: it stays")

    async def _detach(self, spare: Node) -> None:
        if self._start.supplies:
            await self._take_back(spare)
        back = {names.TAG_ROLE: names.ROLE_SPARE}
        try:
            await self._tag(spare, back, [names.TAG_LEASE, names.TAG_REPLACES], "not used after all: back into the pool")
        except ActivityError as error:
            self._view.tell("left alone", f"{spare.name} was never attached by us: {cause_of(error)}")
            return
        await self._report_spare(spare, "came back from a replacement that was undone: look at it before it is leased again")

    async def _take_back(self, spare: Node) -> None:
        await workflow.execute_activity_method(
            JobActivities.take_back_node,
            SupplyOfNode(job=self._start.job, node=spare),
            summary=f"{spare.name} is not {self._start.job}'s any more",
            **options.JOB,
        )

    async def _tag(self, spare: Node, tags: dict[str, str], remove: list[str], why: str) -> None:
        request = TagNode(
            instance_id=spare.instance_id,
            set=tags,
            remove=remove,
            expect={names.TAG_LEASE: workflow.info().workflow_id},
            token=self._tokens.next(),
        )
        await workflow.execute_activity_method(Ec2Activities.tag_node, request, summary=f"{spare.name}: {why}", **options.LOOK_UP)

    async def _report_spare(self, spare: Node, why: str) -> None:
        report = Report(source=workflow.info().workflow_id, key=self._tokens.next(), what=why)
        await workflow.execute_activity_method(
            IncidentActivities.open_incident,
            OpenIncident(cluster=self._cluster, instance_id=spare.instance_id, report=report),
            summary=f"have {spare.name} looked at",
            **options.MESSENGER,
        )

    @workflow.signal(description="Cluster answers an ask")
    def cluster_answer(self, answer: Answer) -> None:
        self._talk.take(answer)

    @workflow.signal(description="A recovering Cluster asks what is held")
    async def say_holding(self, asked: SayHolding) -> None:
        await self._talk.say_holding()

    @workflow.signal(description="An incident that was begun anew asks what has come of this replacement")
    async def say_ready(self, asked: SayHolding) -> None:
        if self._ready is not None:
            await workflow.get_external_workflow_handle(self._start.incident).signal("replacement_ready", self._ready)

    @workflow.query(description="The story so far")
    def story(self) -> list[Line]:
        return self._view.lines
