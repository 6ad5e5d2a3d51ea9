"""Gives the slot of a retired node back to its owner, such as an Auto Scaling group, and takes on what the owner launches.

Which instance came in the place of which is fenced in host memory, so that of several given up at once none is taken on twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Protocol

from temporalio import activity

from activities import names
from activities.clock import Clock, SystemClock, beat, waited_before
from activities.ec2_messages import Ec2Client, InstanceView
from activities.effects import act_once
from activities.errors import (
    CapabilityMissing,
    DeadlinePassed,
    FinalError,
    NotOurs,
    PreconditionFailed,
    UnknownNode,
    as_application_error,
)
from activities.host_memory import HostMemory, HostRecord, remember
from activities.inventory import Node
from activities.message import Message
from activities.owners import Owner
from activities.provisioning import GONE
from activities.settings import EffectSettings


class LookAtOwner(Message):
    """Ask for the owner of a node by name, and which instances it has now."""

    node: Node
    owned_by: Owner


class OwnerSeen(Message):
    """An owner and its instances. `keeper` is its name: of the group, or the node pool. `going`: this one ends, or has ended."""

    keeper: str
    members: list[str] = []
    going: bool = False


class GiveUpSlot(Message):
    """Give the slot of a retired node back to its owner. Refused unless `quarantined_by` owns its quarantine.

    `decrement`: the number that the owner keeps falls by one, and nothing comes in its place.
    """

    node: Node
    owned_by: Owner
    quarantined_by: str
    decrement: bool = False
    token: str


class SlotGivenUp(Message):
    """The instance goes. `made_now` is False where its owner, or an earlier attempt, had ended it."""

    made_now: bool


class AwaitSuccessor(Message):
    """Wait until `keeper` has launched an instance in the place of `node`: one that is not among `known`.

    `since`: the owner had ended the node by itself, so one that was launched after this may be there already.
    """

    node: Node
    owned_by: Owner
    keeper: str
    known: list[str]
    since: datetime | None = None
    deadline_s: float


class Successor(Message):
    """The instance that came in the place of a node."""

    instance_id: str


class SlotOwner(Protocol):
    """One kind of owner. Errors as for `Ec2Client`; PreconditionFailed where it would launch no other, with what to change."""

    def look(self, view: InstanceView) -> OwnerSeen | None:
        """Return the owner of an instance, None where the instance runs and its owner does not know it any more."""
        ...

    def give_up(self, node: Node, *, decrement: bool) -> None:
        """Have the instance ended."""
        ...

    def launched(self, keeper: str) -> list[str]:
        """Return the instances of an owner that are not on their way out."""
        ...


class OwnerSlotActivities:
    """Gives slots back, and takes on what comes in their place."""

    def __init__(
        self,
        owners: Mapping[Owner, SlotOwner],
        ec2: Ec2Client,
        memory: HostMemory,
        settings: EffectSettings,
        clock: Clock | None = None,
    ) -> None:
        self._owners = owners
        self._ec2 = ec2
        self._memory = memory
        self._settings = settings
        self._clock = clock or SystemClock()

    @activity.defn
    def look_at_owner(self, request: LookAtOwner) -> OwnerSeen:
        """See who keeps the node's number, before its slot is given up."""
        with as_application_error():
            view = self._ec2.describe(request.node.instance_id)
            if request.node.group:  # a member that was terminated may have lost the tag
                view = view.model_copy(update={"tags": {names.AWS_TAG_GROUP: request.node.group, **view.tags}})
            seen = self._owner(request.owned_by).look(view)
            if seen is None:
                raise PreconditionFailed(f"{request.node.name} runs, and no {request.owned_by.value} has it any more; it stays")
            return seen

    @activity.defn
    def give_up_slot(self, request: GiveUpSlot) -> SlotGivenUp:
        """Have the owner end the instance, once. Its quarantine and its fate are looked at just before the call."""
        with as_application_error():
            node, owner = request.node, self._owner(request.owned_by)
            by_itself: list[bool] = []
            made = act_once(
                request.token,
                f"give the slot of {node.name} back to its {request.owned_by.value}",
                self._memory,
                happened=lambda: self._going(node, owner),
                act=lambda: by_itself.append(self._give_up(request, owner)),
                settle_s=self._settings.settle_s,
                clock=self._clock,
            )
            return SlotGivenUp(made_now=made and not any(by_itself))

    @activity.defn
    def await_successor(self, request: AwaitSuccessor) -> Successor:
        """Wait for the instance that the owner launches; DeadlinePassed when there is none in time."""
        with as_application_error():
            owner = self._owner(request.owned_by)
            before, since = waited_before(), self._clock.now()
            while True:
                for instance_id in sorted(owner.launched(request.keeper)):
                    beat()
                    if self._came_after(instance_id, request) and self._taken_on(instance_id, request.node):
                        return Successor(instance_id=instance_id)
                waited = before + self._clock.now() - since
                if waited >= request.deadline_s:
                    raise DeadlinePassed(
                        f"{request.owned_by.value} {request.keeper} has launched nothing in place of {request.node.name} in "
                        f"{waited / 60:.0f} minutes"
                    )
                beat(waited)
                self._clock.wait(self._settings.boot_poll_s)

    def _owner(self, owned_by: Owner) -> SlotOwner:
        owner = self._owners.get(owned_by)
        if owner is None:
            raise CapabilityMissing(f"a slot of {owned_by.value} cannot be given back from here")
        return owner

    def _going(self, node: Node, owner: SlotOwner) -> bool:
        view = self._view(node.instance_id)
        if view is None or view.state in GONE:
            return True
        seen = owner.look(view)
        return seen is not None and seen.going

    def _give_up(self, request: GiveUpSlot, owner: SlotOwner) -> bool:
        """Make the call. Returns whether the owner had ended the instance by itself a moment before, and so refused."""
        node, tags = request.node, self._ec2.describe(request.node.instance_id).tags
        held = tags.get(names.TAG_QUARANTINE, "")
        if held != request.quarantined_by:
            raise NotOurs(f"{node.name} is quarantined by {held or 'nobody'}, not by {request.quarantined_by}; it stays")
        if tags.get(names.TAG_FATE) != names.FATE_RETIRED:
            raise PreconditionFailed(f"{node.name} is not retired; it stays")
        try:
            owner.give_up(node, decrement=request.decrement)
        except FinalError:
            if not self._going(node, owner):
                raise
            return True
        return False

    def _came_after(self, instance_id: str, request: AwaitSuccessor) -> bool:
        """Whether an instance can be what was launched for this node: new here, and running or on its way.

        Somebody may have leased it already: then it is the one all the same, and theirs.
        """
        view = self._view(instance_id)
        if view is None or view.state in GONE:  # not visible yet, or taken back again
            return False
        if instance_id in request.known:
            early = request.since is not None and view.launched_at is not None and view.launched_at >= request.since
            return early and instance_id != request.node.instance_id
        return True

    def _taken_on(self, instance_id: str, node: Node) -> bool:
        """Write down that it came in this node's place, unless it came in another's."""

        def take(record: HostRecord) -> HostRecord:
            return record if record.succeeds else record.model_copy(update={"succeeds": node.instance_id})

        return remember(self._memory, instance_id, take).succeeds == node.instance_id

    def _view(self, instance_id: str) -> InstanceView | None:
        try:
            return self._ec2.describe(instance_id)
        except UnknownNode:
            return None
