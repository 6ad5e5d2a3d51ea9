"""The part of ProvisionSpare from an instance that was launched to a spare of the pool, whoever launched it."""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

with workflow.unsafe.imports_passed_through():
    from activities import names
    from activities.briefing import Briefing
    from activities.ec2 import AwaitBoot, Ec2Activities, TagNode
    from activities.errors import UnknownNode
    from activities.host_records import SpareTest
    from activities.inventory import InventoryActivities, Node, ResolveNode
    from activities.node import DeepTest, DeepTestResult, NodeActivities
    from activities.provisioning import AwaitRunning, ProvisioningActivities
    from activities.spare_records import NoteSpareTest, SpareActivities
    from checks.model import Verdict
    from workflows import options
    from workflows.decisions.provisioning import LaunchPlan
    from workflows.failures import cause_of, kind_of
    from workflows.operator_view import OperatorView
    from workflows.tokens import Tokens


class NewSpare:
    """One instance on its way into the pool. `stands` says where it is, for people who find it left."""

    def __init__(self, view: OperatorView, tokens: Tokens) -> None:
        self._view = view
        self._tokens = tokens
        self.cluster = ""
        self.instance_id = ""
        self.stands = "runs, in no pool: test it, or terminate it"

    async def listed(self, plan: LaunchPlan) -> Node:
        """Wait until the instance runs and is in the inventory."""
        await workflow.execute_activity_method(
            ProvisioningActivities.await_running,
            AwaitRunning(instance_id=self.instance_id, deadline_s=plan.boot_deadline_s),
            summary=f"{self.instance_id} runs",
            **options.until_gone(plan.boot_deadline_s),
        )
        until = workflow.now() + timedelta(seconds=plan.listed_s)
        while True:
            try:
                return await workflow.execute_activity_method(
                    InventoryActivities.resolve_node,
                    ResolveNode(cluster=self.cluster, alias=self.instance_id),
                    summary=f"who is {self.instance_id}",
                    **options.LOOK_UP,
                )
            except ActivityError as error:
                if kind_of(error) != UnknownNode.__name__:
                    raise
            if workflow.now() >= until:
                break
            await workflow.sleep(plan.listed_try_s, summary=f"{self.instance_id} is not in the inventory yet")
        message = f"{self.instance_id} runs and is not in the inventory of {self.cluster}; has it the tag {names.TAG_CLUSTER}?"
        raise ApplicationError(message, type="UnknownNode", non_retryable=True)

    async def booted(self, node: Node, plan: LaunchPlan) -> None:
        """Wait until it answers."""
        boot = await workflow.execute_activity_method(
            Ec2Activities.await_boot,
            AwaitBoot(node=node, old_boot_id="", deadline_s=plan.boot_deadline_s),
            summary=f"{node.name} answers",
            **options.watch(plan.boot_deadline_s),
        )
        self._view.tell("booted", f"{node.name}: boot id {boot.boot_id[:8]} after {boot.waited_s:.0f} s")

    async def test(self, spare: Node, bad: Briefing | None, plan: LaunchPlan) -> DeepTestResult:
        """Test it deep. GPUs that are known bad do not pass, nor does the host that was given up."""
        request = DeepTest(
            node=spare,
            run_id=self._tokens.next_name(),
            deadline_s=plan.test_deadline_s,
            settling_s=plan.settling_s,
            joins=True,
            left_host=bad.record.gpu_serials if bad else [],
        )
        try:
            result = await workflow.execute_activity_method(
                NodeActivities.deep_test, request, summary=f"test {spare.name}", **options.watch(plan.test_deadline_s)
            )
        except ActivityError as error:
            result = DeepTestResult(verdict=Verdict.UNKNOWN, cause="could_not_run", because=[cause_of(error)])
        self._view.tell("tested", f"{spare.name}: {result.verdict.value}: {'; '.join(result.because)}")
        return result

    async def into_pool(self, spare: Node, result: DeepTestResult) -> None:
        """Remember that it has passed, and make it a spare."""
        test = SpareTest(at=workflow.now(), verdict=result.verdict, because=result.because[:5], boot_id=result.boot_id)
        await workflow.execute_activity_method(
            SpareActivities.note_spare_test,
            NoteSpareTest(instance_id=spare.instance_id, test=test),
            summary=f"remember: {spare.name} {result.verdict.value}",
            **options.LOOK_UP,
        )
        await self.tag(spare, {names.TAG_ROLE: names.ROLE_SPARE}, "into the pool")
        self.stands = "is in the pool"
        self._view.tell("in the pool", spare.name)

    async def tag(self, spare: Node, tags: dict[str, str], why: str, expect: dict[str, str] | None = None) -> None:
        """Write tags on it, unless it is quarantined, or a tag is not as expected."""
        free = {names.TAG_QUARANTINE: "", **(expect or {})}
        request = TagNode(instance_id=spare.instance_id, set=tags, expect=free, token=self._tokens.next())
        await workflow.execute_activity_method(Ec2Activities.tag_node, request, summary=f"{spare.name}: {why}", **options.LOOK_UP)
