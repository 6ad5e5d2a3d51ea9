"""The part of ProvisionSpare for a node that its owner replaces: it is given back, and what the owner launches is found.

Nobody is left with two nodes in the place of one: what the owner began by itself is taken as it is, and nothing is launched here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime

from temporalio import workflow
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from activities.briefing import Briefing
    from activities.errors import DeadlinePassed, UnknownNode
    from activities.giving_up import AwaitGone, GivingUpActivities
    from activities.healers import HealerActivities, ReleaseHealers
    from activities.owner_slots import AwaitSuccessor, GiveUpSlot, LookAtOwner, OwnerSeen, OwnerSlotActivities
    from activities.owners import Owner
    from workflows import options
    from workflows.decisions.provisioning import LaunchPlan
    from workflows.failures import cause_of, kind_of, stop_if_cancelled
    from workflows.operator_view import OperatorView
    from workflows.tokens import Tokens

PageOut = Callable[[str, list[str]], Awaitable[None]]
"""Tells people an outcome, and why."""

ASK_IT = {
    Owner.GROUP: "aws autoscaling describe-scaling-activities --auto-scaling-group-name {keeper}",
    Owner.NODE_GROUP: "aws autoscaling describe-scaling-activities --auto-scaling-group-name {keeper}",
    Owner.KARPENTER: "kubectl describe nodeclaims -l karpenter.sh/nodepool={keeper}",
}
"""Where an owner says why it launches nothing."""


@dataclass(frozen=True)
class OwnerReplaces:
    """One slot that goes back to its owner, for `incident`, whose quarantine the node has since `since` or later."""

    bad: Briefing
    incident: str
    since: datetime
    plan: LaunchPlan
    view: OperatorView
    tokens: Tokens
    page: PageOut

    async def successor(self) -> str:
        """Give the slot back, once, and return the instance that came in its place; empty where the owner needs none."""
        owner = await self._look()
        if not owner.going:
            await self._end_stand_back()
            stop_if_cancelled()
            await self._give_up(owner)
            stop_if_cancelled()
        else:
            self.view.tell("going", f"{owner.keeper} replaces {self.bad.node.name} by itself already: nothing is ended here")
        await self._gone(owner)
        return "" if self.plan.decrements else await self._launched(owner)

    async def _look(self) -> OwnerSeen:
        node = self.bad.node
        return await workflow.execute_activity_method(
            OwnerSlotActivities.look_at_owner,
            LookAtOwner(node=node, owned_by=self.bad.owned_by),
            summary=f"who keeps the number of {node.name}",
            **options.LOOK_UP,
        )

    async def _end_stand_back(self) -> None:
        """A member in Standby is not in its group's number: it goes back into it, so that one is missing when it ends."""
        node = self.bad.node
        try:
            said = await workflow.execute_activity_method(
                HealerActivities.release_healers,
                ReleaseHealers(node=node, incident=self.incident),
                summary=f"{node.name} is its owner's again",
                **options.STAND_BACK,
            )
        except ActivityError as error:
            if kind_of(error) != UnknownNode.__name__:
                raise
            return
        self.view.tell("released", said.said)

    async def _give_up(self, owner: OwnerSeen) -> None:
        node = self.bad.node
        request = GiveUpSlot(
            node=node,
            owned_by=self.bad.owned_by,
            quarantined_by=self.incident,
            decrement=self.plan.decrements,
            token=self.tokens.next(),
        )
        done = await workflow.execute_activity_method(
            OwnerSlotActivities.give_up_slot, request, summary=f"give {node.name} back to {owner.keeper}", **options.DISRUPT
        )
        how = "now" if done.made_now else "its owner had ended it before"
        self.view.tell("given up", f"{node.name} ({node.instance_id}) to {self.bad.owned_by.value} {owner.keeper}: {how}")

    async def _gone(self, owner: OwnerSeen) -> None:
        """See the instance gone. One that its owner takes long to end is told, and its successor is waited for all the same."""
        node = self.bad.node
        request = AwaitGone(node=node, deadline_s=self.plan.gone_deadline_s, look=self._ask(owner))
        try:
            seen = await workflow.execute_activity_method(
                GivingUpActivities.await_gone,
                request,
                summary=f"the instance of {node.name} is terminated",
                **options.until_gone(self.plan.gone_deadline_s),
            )
            self.view.tell("gone", seen.said)
        except ActivityError as error:
            if kind_of(error) != DeadlinePassed.__name__:
                raise
            self.view.tell("still there", cause_of(error))
            await self.page("still there", [cause_of(error)])

    async def _launched(self, owner: OwnerSeen) -> str:
        """Wait for the successor; people are told when it takes long, and Karpenter launches only what pods need."""
        try:
            return await self._await(owner, self.plan.successor_page_s)
        except ActivityError as error:
            if kind_of(error) != DeadlinePassed.__name__:
                raise
            why = cause_of(error)
        if self.bad.owned_by is Owner.KARPENTER:
            self.view.tell("none needed", f"{why}: it launches another when a pod needs one")
            return ""
        self.view.tell("no capacity", why)
        await self.page("waits for its owner", [why, f"where it says why: {self._ask(owner)}"])
        return await self._await(owner, self.plan.wait_s)

    async def _await(self, owner: OwnerSeen, deadline_s: float) -> str:
        node = self.bad.node
        request = AwaitSuccessor(
            node=node,
            owned_by=self.bad.owned_by,
            keeper=owner.keeper,
            known=owner.members,
            since=self.since if owner.going else None,
            deadline_s=deadline_s,
        )
        found = await workflow.execute_activity_method(
            OwnerSlotActivities.await_successor,
            request,
            summary=f"{owner.keeper} launches another in place of {node.name}",
            **options.until_gone(deadline_s),
        )
        self.view.tell("launched", f"{found.instance_id}, by {self.bad.owned_by.value} {owner.keeper}")
        return found.instance_id

    def _ask(self, owner: OwnerSeen) -> str:
        return ASK_IT.get(self.bad.owned_by, "").format(keeper=owner.keeper)
