"""Giving a node up where a drain is its replacement: the cluster's own daemon terminates the instance and launches another."""

from __future__ import annotations

from typing import Protocol

from temporalio import activity

from activities import names
from activities.clock import Clock, SystemClock, beat, waited_before
from activities.ec2 import Ec2Client
from activities.effects import refuse_if_late
from activities.errors import CapabilityMissing, DeadlinePassed, NotOurs, PreconditionFailed, UnknownNode, as_application_error
from activities.inventory import Node
from activities.message import Message
from activities.settings import EffectSettings

GONE = ("shutting-down", "terminated")
"""States of an instance that is given up for good. Source: Amazon EC2 User Guide, "Instance state changes"."""


class DrainForReplacement(Message):
    """Have the cluster replace a node that `incident` has quarantined. `evidence`: where its bundle is kept."""

    node: Node
    incident: str
    evidence: str


class AwaitGone(Message):
    """Wait until the instance of a node is terminated. `look`: where it says why it is not, empty for clustermgtd's log."""

    node: Node
    deadline_s: float
    look: str = ""


class GivenUp(Message):
    """What was done, or seen, in words."""

    said: str


class Replacer(Protocol):
    """Whoever runs the cluster, as one who replaces drained nodes."""

    drain_replaces: bool
    """Whether a drained node is replaced."""

    def replace_by_drain(self, node: Node, owner: str) -> None:
        """Drain a node. PreconditionFailed unless it has this owner's mark and no job, NotOurs for another's mark."""
        ...


class NoReplacer:
    """For a cluster where a drain replaces nothing."""

    drain_replaces = False

    def replace_by_drain(self, node: Node, owner: str) -> None:
        raise CapabilityMissing(f"{node.name}: nobody here replaces a node that is drained (slurm.flavour)")


class GivingUpActivities:
    """Gives nodes up. The drain itself refuses what has no evidence bundle and no quarantine of the incident."""

    def __init__(self, replacer: Replacer, ec2: Ec2Client, settings: EffectSettings, clock: Clock | None = None) -> None:
        self._replacer = replacer
        self._ec2 = ec2
        self._settings = settings
        self._clock = clock or SystemClock()

    @activity.defn
    def drain_for_replacement(self, request: DrainForReplacement) -> GivenUp:
        """Drain a node, so that its cluster replaces it. One whose instance has gone already is not looked for in the cluster."""
        with as_application_error():
            node = request.node
            if not request.evidence:
                raise PreconditionFailed(f"{node.name}: its evidence is not saved, and a replaced instance takes it along")
            seen = self._ec2.describe(node.instance_id)
            if seen.state in GONE:
                return GivenUp(said=f"{node.instance_id} is {seen.state} already")
            owner = seen.tags.get(names.TAG_QUARANTINE, "")
            if owner != request.incident:
                raise NotOurs(f"{node.name} is quarantined by {owner or 'nobody'}, not by {request.incident}; it was not drained")
            refuse_if_late()
            self._replacer.replace_by_drain(node, request.incident)
            return GivenUp(said=f"{node.name} ({node.instance_id}) is drained: its cluster terminates it and launches another")

    @activity.defn
    def await_gone(self, request: AwaitGone) -> GivenUp:
        """Wait until the instance is terminated; DeadlinePassed when it is not in time."""
        with as_application_error():
            node = request.node
            before, began = waited_before(), self._clock.now()
            while (state := self._state(node)) not in GONE:
                waited = before + self._clock.now() - began
                if waited >= request.deadline_s:
                    since = f"{node.instance_id} is still {state} {request.deadline_s / 60:.0f} minutes after"
                    raise DeadlinePassed(
                        f"{since} {node.name} was given up; look: {request.look}"
                        if request.look
                        else f"{since} the drain of {node.name}; is clustermgtd at work on the head node? See "
                        "/var/log/parallelcluster/clustermgtd"
                    )
                beat(waited)
                self._clock.wait(self._settings.boot_poll_s)
            return GivenUp(said=f"{node.instance_id} is {state}")

    def _state(self, node: Node) -> str:
        try:
            return self._ec2.describe(node.instance_id).state
        except UnknownNode:
            return GONE[-1]  # EC2 forgets a terminated instance within an hour
