"""QualifySpare: one spare tested while it waits, so that a failed node finds one that is known to be well.

The spare is lent by Cluster for the time of the test: nobody leases it meanwhile, and who wants it waits for the end. It stays
in the pool throughout.
"""

from __future__ import annotations

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

with workflow.unsafe.imports_passed_through():
    from activities import names
    from activities.host_records import SpareTest
    from activities.incidents import IncidentActivities, OpenIncident
    from activities.inventory import InventoryActivities, Node, ResolveNode
    from activities.node import DeepTest, DeepTestResult, NodeActivities, Report
    from activities.notify import NotifyActivities, Page
    from activities.spare_records import NoteSpareTest, SpareActivities
    from checks.model import Verdict
    from workflows import options
    from workflows.cluster_messages import Answer, Ask, AskKind, SayHolding
    from workflows.cluster_talk import ClusterTalk
    from workflows.decide import bearings
    from workflows.failures import cause_of
    from workflows.messages import Qualification, StartQualification
    from workflows.operator_view import Line, OperatorView
    from workflows.spare_tests import still_at_work
    from workflows.tokens import Tokens

NOT_ITS_FAULT = frozenset({"", "could_not_run", "configuration", "same_host"})
"""Causes of a failed test that no load test found: the spare's own incident sees what they are by looking."""

KEPT_REASONS = 5
"""Reasons of a test that are remembered. Hotspare default: what an operator reads."""


@workflow.defn
class QualifySpare:
    """Borrow, test, note, give back."""

    @workflow.init
    def __init__(self, start: StartQualification) -> None:
        self._start = start
        self._tokens = Tokens()
        self._talk = ClusterTalk(self._tokens)
        self._view = OperatorView()

    @workflow.run
    async def run(self, start: StartQualification) -> Qualification:
        """Test one spare of the pool, and write down how it ended. One that fails gets an incident of its own."""
        known = await bearings()
        cluster = start.cluster or known.cluster
        self._view.attributes_on = known.attributes
        self._talk.serve(cluster)
        spare = await self._identify(cluster)
        self._view.attributes(Cluster=cluster, Node=spare.name, Phase="testing")
        try:
            lent = await self._borrow(spare)
            if not lent.granted:
                return self._left_alone(spare, lent.reason)
            if known.spares_work and (why := await still_at_work(spare, self._view)):
                return self._left_alone(spare, why)
            result = await self._test(spare)
            untold = await self._note(spare, result)
            if result.verdict is Verdict.CRITICAL and (why := await self._report(cluster, spare, result)):
                await self._page(spare, result, [why, *untold])
        finally:
            await self._give_back()
        self._view.attributes(Phase="closed", Outcome=result.verdict.value)
        return Qualification(spare=spare.name, verdict=result.verdict, because=result.because[:KEPT_REASONS])

    async def _borrow(self, spare: Node) -> Answer:
        ask = self._ask(spare)
        try:
            return await self._talk.ask(ask)
        except ActivityError as error:
            why = f"Cluster could not be asked: {cause_of(error)}"
            return Answer(request_id=ask.request_id, kind=ask.kind, granted=False, reason=why)

    async def _give_back(self) -> None:
        """What cannot be given back is found by Cluster, which asks the holders of its grants: the test's result stands."""
        try:
            await self._talk.withdraw_all()
            await self._talk.give_back(AskKind.PARTNER)
        except ActivityError as error:
            self._view.tell("not given back", cause_of(error))

    async def _identify(self, cluster: str) -> Node:
        node = await workflow.execute_activity_method(
            InventoryActivities.resolve_node,
            ResolveNode(cluster=cluster, alias=self._start.node),
            summary=f"who is {self._start.node}",
            **options.LOOK_UP,
        )
        right_id = names.qualify_id(cluster, node.instance_id)
        if workflow.info().workflow_id != right_id:
            message = f"the test of {node.name} has the id {right_id}: start it under that id, so that there is one at a time"
            raise ApplicationError(message, type="BadInput", non_retryable=True)
        return node

    def _ask(self, spare: Node) -> Ask:
        return Ask(
            request_id=self._tokens.next(),
            asker=workflow.info().workflow_id,
            kind=AskKind.PARTNER,
            instance_id=spare.instance_id,
            node_name=spare.name,
            zone=spare.zone,
            spine=spare.spine,
            nvlink_domain=spare.nvlink_domain,
            partners=1,
            only=spare.instance_id,
        )

    def _left_alone(self, spare: Node, why: str) -> Qualification:
        self._view.tell("not tested", why)
        self._view.attributes(Phase="closed", Outcome="not tested")
        return Qualification(spare=spare.name, verdict=Verdict.UNKNOWN, because=[f"not tested: {why}"])

    async def _test(self, spare: Node) -> DeepTestResult:
        """The deep test, with the fleet's set-up as the measure. What cannot run is UNKNOWN."""
        self._view.tell("testing", self._start.reason)
        test = DeepTest(node=spare, run_id=self._tokens.next_name(), joins=True)
        try:
            result = await workflow.execute_activity_method(
                NodeActivities.deep_test, test, summary=f"test {spare.name} while it waits", **options.WATCH
            )
        except ActivityError as error:
            result = DeepTestResult(verdict=Verdict.UNKNOWN, cause="could_not_run", because=[cause_of(error)])
        self._view.tell("tested", f"{result.verdict.value}: {'; '.join(result.because)}")
        return result

    async def _note(self, spare: Node, result: DeepTestResult) -> list[str]:
        """Remember how the test ended; returns why it could not be, nothing when it was. Without a note it is tested again."""
        test = SpareTest(at=workflow.now(), verdict=result.verdict, because=result.because[:KEPT_REASONS], boot_id=result.boot_id)
        try:
            await workflow.execute_activity_method(
                SpareActivities.note_spare_test,
                NoteSpareTest(instance_id=spare.instance_id, test=test),
                summary=f"remember: {spare.name} {result.verdict.value}",
                **options.LOOK_UP,
            )
        except ActivityError as error:
            self._view.tell("not remembered", cause_of(error))
            return [f"its test could not be remembered: {cause_of(error)}"]
        return []

    async def _report(self, cluster: str, spare: Node, result: DeepTestResult) -> str:
        """Open an incident of the spare's own; returns why that could not be, empty when it was."""
        report = Report(
            source=workflow.info().workflow_id,
            key=self._tokens.next(),
            what=f"{spare.name} failed its test in the pool: {'; '.join(result.because)}"[:300],
            burn_in_failed=result.cause not in NOT_ITS_FAULT,
            seen_at=workflow.now(),
        )
        try:
            await workflow.execute_activity_method(
                IncidentActivities.open_incident,
                OpenIncident(cluster=cluster, instance_id=spare.instance_id, report=report),
                summary=f"incident for {spare.name}, which failed its test",
                **options.MESSENGER,
            )
        except ActivityError as error:
            return f"no incident could be opened for it: {cause_of(error)}"
        return ""

    async def _page(self, spare: Node, result: DeepTestResult, why: list[str]) -> None:
        """Tell people of a spare that failed, where its own incident cannot."""
        page = Page(
            key=f"{self._tokens.run}/failed",
            incident=workflow.info().workflow_id,
            node=spare.name,
            title=f"{spare.name} failed its test in the pool",
            why=["; ".join(result.because)[:300], *why],
            next_commands=[f"hotspare diagnose {spare.name}"],
        )
        try:
            await workflow.execute_activity_method(
                NotifyActivities.page, page, summary=f"page: {spare.name} failed its test", **options.PAGE
            )
        except ActivityError as error:
            self._view.tell("page failed", cause_of(error))

    @workflow.signal(description="Cluster answers an ask")
    def cluster_answer(self, answer: Answer) -> None:
        self._talk.take(answer)

    @workflow.signal(description="A recovering Cluster asks what is held")
    async def say_holding(self, asked: SayHolding) -> None:
        await self._talk.say_holding()

    @workflow.query(description="The story so far")
    def story(self) -> list[Line]:
        return self._view.lines
