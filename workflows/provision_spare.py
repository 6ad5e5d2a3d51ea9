"""ProvisionSpare: one new node for the pool: launch, boot, test, known-bad check, into the pool. A retired node may go for it.

Where slots allow, the retired node is held until the new one has passed; in a full reservation it goes first. One that its
owner replaces goes back to that owner, and what the owner launches is tested and becomes the spare.
"""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, FailureError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from activities import names
    from activities.briefing import Briefing, BriefingActivities
    from activities.capacity import CapacityActivities, LookAtSlot, Slot
    from activities.errors import NoCapacity, NotOurs, UnknownNode
    from activities.host_records import HostRecord
    from activities.inventory import Node, ResolveNode
    from activities.node import DeepTestResult
    from activities.notify import NotifyActivities, Page
    from activities.owners import Owner
    from activities.provisioning import LaunchSpare, ProvisioningActivities, TerminateNode
    from checks.model import Verdict
    from workflows import options
    from workflows.decide import DecideActivities, bearings, decided
    from workflows.decisions.provisioning import LaunchPlan, Order, ProvisionFacts
    from workflows.failures import cause_of, kind_of, stop_if_cancelled
    from workflows.messages import Provisioned, StartProvision
    from workflows.new_spare import NewSpare
    from workflows.operator_view import Line, OperatorView
    from workflows.owner_replaces import OwnerReplaces
    from workflows.tokens import Tokens


@workflow.defn
class ProvisionSpare:
    """Launch, boot, qualify, into the pool."""

    @workflow.init
    def __init__(self, start: StartProvision) -> None:
        self._start = start
        self._tokens = Tokens()
        self._view = OperatorView()
        self._cluster = start.cluster
        self._new = NewSpare(self._view, self._tokens)
        self._unclear = False

    @workflow.run
    async def run(self, start: StartProvision) -> Provisioned:
        """Make one spare. Whatever does not go through ends with a page that says what is left, and where."""
        known = await bearings()
        self._cluster = start.cluster or known.cluster
        self._new.cluster = self._cluster
        self._view.attributes_on = known.attributes
        self._view.attributes(Cluster=self._cluster, Phase="provisioning")
        try:
            return await self._provision()
        except (asyncio.CancelledError, FailureError) as error:
            cancelled = is_cancelled_exception(error)
            why = "cancelled by a person" if cancelled else cause_of(error)
            ended = await self._end("cancelled" if cancelled else "with a person", [why])
            if cancelled:
                raise
            return ended

    async def _provision(self) -> Provisioned:
        bad = await self._given_up()
        instance_type = self._start.instance_type or (bad.node.instance_type if bad else "")
        if not instance_type:
            raise ApplicationError("name an instance_type, or a node in whose place", type="BadInput", non_retryable=True)
        plan = await self._planned(instance_type, bad)
        self._view.tell(plan.order.value, "; ".join(plan.because))
        if plan.order is Order.REFUSED:
            return await self._end("refused", plan.because)
        if bad is not None and plan.order is Order.OWNER_LAUNCHES:
            return await self._by_its_owner(bad, plan)
        if bad is not None and plan.order is Order.TERMINATE_THEN_LAUNCH:
            await self._terminate(bad.node)
        stop_if_cancelled()
        if not await self._launch(instance_type, bad, plan):
            return await self._end("no capacity", ["EC2 had no capacity for it; start it again, or launch one by hand"])
        stop_if_cancelled()
        spare = await self._new.listed(plan)
        await self._new.booted(spare, plan)
        result = await self._new.test(spare, bad, plan)
        if result.verdict is not Verdict.OK:
            return await self._did_not_pass(spare, result)
        await self._new.into_pool(spare, result)
        stop_if_cancelled()
        if bad is not None and plan.order is Order.LAUNCH_THEN_TERMINATE:
            await self._terminate(bad.node)
        self._view.attributes(Node=spare.name, Phase="closed", Outcome="in the pool")
        return Provisioned(outcome="in the pool", spare=spare.instance_id, because=plan.because)

    async def _by_its_owner(self, bad: Briefing, plan: LaunchPlan) -> Provisioned:
        """Give the node back to its owner, and make a spare of what that launches: tested like a launch of ours."""
        since = self._start.since or workflow.info().start_time
        slot = OwnerReplaces(bad, self._start.incident, since, plan, self._view, self._tokens, self._page)
        self._new.instance_id = await slot.successor()
        if not self._new.instance_id:
            self._view.attributes(Phase="closed", Outcome="given up")
            return Provisioned(outcome="given up", because=plan.because)
        spare = await self._new.listed(plan)
        was, untested = spare.role, {names.TAG_ROLE: names.ROLE_NEW}
        try:
            await self._new.tag(spare, untested, "in no pool until it is tested", {names.TAG_LEASE: ""})
        except ActivityError as error:
            if kind_of(error) != NotOurs.__name__:
                raise
            self._view.tell("in use", f"{spare.name} is somebody else's already, who tests it too: {cause_of(error)}")
            self._view.attributes(Node=spare.name, Phase="closed", Outcome="in use")
            return Provisioned(outcome="in use", spare=spare.instance_id, because=plan.because)
        stop_if_cancelled()
        await self._new.booted(spare, plan)
        result = await self._new.test(spare, bad, plan)
        if result.verdict is Verdict.UNKNOWN:  # a job of its owner's may have it by now: it stays what it was launched as
            await self._new.tag(spare, {names.TAG_ROLE: was}, f"not tested: {was}, as its owner launched it")
            self._new.stands = f"runs as {was}, as its owner launched it"
            return await self._end("not tested", [f"{spare.name}: {result.verdict.value}", *result.because[:5]])
        if result.verdict is not Verdict.OK:
            return await self._did_not_pass(spare, result)
        await self._new.into_pool(spare, result)
        self._view.attributes(Node=spare.name, Phase="closed", Outcome="in the pool")
        return Provisioned(outcome="in the pool", spare=spare.instance_id, because=plan.because)

    async def _did_not_pass(self, spare: Node, result: DeepTestResult) -> Provisioned:
        await self._new.tag(spare, {names.TAG_FATE: names.FATE_RETIRED}, "did not pass: for a person")
        return await self._end("did not pass", [f"{spare.name}: {result.verdict.value}", *result.because[:5]])

    async def _given_up(self) -> Briefing | None:
        if not self._start.in_place_of:
            return None
        try:
            return await workflow.execute_activity_method(
                BriefingActivities.brief,
                ResolveNode(cluster=self._cluster, alias=self._start.in_place_of),
                summary=f"who is {self._start.in_place_of}",
                **options.LOOK_UP,
            )
        except ActivityError as error:
            node = self._start.node
            if node is None or kind_of(error) != UnknownNode.__name__:
                raise
            self._view.tell("gone", f"{node.name} is in the inventory no more: {node.instance_id} was ended meanwhile")
            return Briefing(node=node, record=HostRecord(instance_id=node.instance_id), owned_by=self._start.owned_by)

    async def _planned(self, instance_type: str, bad: Briefing | None) -> LaunchPlan:
        slot: Slot | None = None
        if bad is not None:
            slot = await workflow.execute_activity_method(
                CapacityActivities.look_at_slot,
                LookAtSlot(cluster=self._cluster, node=bad.node),
                summary=f"the capacity that {bad.node.name} runs in",
                **options.LOOK_UP,
            )
        facts = ProvisionFacts(
            instance_type=instance_type,
            gives_up=bad.node.name if bad else "",
            slot=slot,
            approved=self._start.approved,
            owned_by=bad.owned_by if bad else Owner.EC2,
            pool=bad.node.pool_name() if bad else "",
            fault_class=self._start.fault_class,
            now=workflow.now(),
        )
        return await decided(DecideActivities.plan_launch, facts, "launch or termination first")

    async def _terminate(self, node: Node) -> None:
        done = await workflow.execute_activity_method(
            ProvisioningActivities.terminate_node,
            TerminateNode(node=node, quarantined_by=self._start.incident, token=self._tokens.next()),
            summary=f"terminate {node.name} ({node.instance_id}): its slot is given up",
            **options.DISRUPT,
        )
        self._view.tell("terminated", f"{node.name} ({node.instance_id}): {'now' if done.made_now else 'it had gone before'}")

    async def _launch(self, instance_type: str, bad: Briefing | None, plan: LaunchPlan) -> bool:
        """Launch; without capacity wait and try again, of which people are told at once. False when the wait is over."""
        request = LaunchSpare(
            cluster=self._cluster,
            instance_type=instance_type,
            zone=self._start.zone or (bad.node.zone if bad else ""),
            reservation=plan.reservation,
            capacity_block=plan.capacity_block,
            token=self._tokens.next(),
        )
        until: datetime | None = None
        while True:
            try:
                launched = await workflow.execute_activity_method(
                    ProvisioningActivities.launch_spare, request, summary=f"launch a {instance_type}", **options.DISRUPT
                )
                break
            except ActivityError as error:
                if kind_of(error) != NoCapacity.__name__:
                    self._unclear = True
                    raise
                why = cause_of(error)
            if until is None:
                until = workflow.now() + timedelta(seconds=plan.wait_s)
                self._view.tell("no capacity", why)
                await self._page("waits for capacity", [why])
            if workflow.now() >= until:
                return False
            await workflow.sleep(plan.pause_s, summary=f"waits for capacity: {why[:150]}")
        self._new.instance_id = launched.instance_id
        self._view.tell("launched", self._new.instance_id)
        return True

    async def _end(self, outcome: str, because: list[str]) -> Provisioned:
        """Say to people what came of it, and which instance is left."""
        self._view.tell(outcome, "; ".join(because))
        await self._page(outcome, because)
        self._view.attributes(Phase="closed", Outcome=outcome)
        return Provisioned(outcome=outcome, spare=self._new.instance_id, because=because)

    async def _page(self, outcome: str, because: list[str]) -> None:
        launched = self._new.instance_id
        left = [f"{launched} {self._new.stands}"] if launched else []
        look = f"aws ec2 describe-instances --instance-ids {launched}" if launched else "hotspare spares plan"
        if self._unclear and not launched:
            left = [
                f"the launch may have been made all the same: look for an instance whose tag {names.TAG_ROLE} is {names.ROLE_NEW}"
            ]
            of_cluster = f"Name=tag:{names.TAG_CLUSTER},Values={self._cluster}"
            look = f"aws ec2 describe-instances --filters {of_cluster} Name=tag:{names.TAG_ROLE},Values={names.ROLE_NEW}"
        page = Page(
            key=f"{self._tokens.run}/{outcome}",
            incident=workflow.info().workflow_id,
            node=launched or self._start.in_place_of,
            title=f"new spare for {self._cluster}: {outcome}",
            why=[*because, *left],
            next_commands=[look],
        )
        try:
            await workflow.execute_activity_method(NotifyActivities.page, page, summary=f"page: {outcome}", **options.PAGE)
        except ActivityError as error:
            self._view.tell("page failed", cause_of(error))

    @workflow.query(description="The story so far")
    def story(self) -> list[Line]:
        return self._view.lines
