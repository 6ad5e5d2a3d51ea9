"""Instances launched and terminated: a new spare from a launch template into a slot, and a retired node given up for it.

The launch template has the image, subnet, placement group and EFA interfaces; a reservation can be named at the launch. Sources:
Amazon EC2 User Guide, "Launch templates"; Amazon EC2 API reference, "Ensuring idempotency" (client tokens).
"""

from __future__ import annotations

import hashlib
from typing import Protocol

from temporalio import activity

from activities import names
from activities.clock import Clock, SystemClock, beat, waited_before
from activities.ec2_messages import Ec2Client
from activities.effects import act_once, refuse_if_late
from activities.errors import CapabilityMissing, DeadlinePassed, NotOurs, PreconditionFailed, UnknownNode, as_application_error
from activities.host_memory import HostMemory
from activities.inventory import Node
from activities.message import Message
from activities.settings import EffectSettings, ProvisionSettings

GONE = ("shutting-down", "terminated")
"""States of an instance that is given up for good. Source: Amazon EC2 User Guide, "Instance state changes"."""

VISIBLE_S = 120.0
"""How long a launched instance may be unknown to DescribeInstances. Hotspare default: EC2 becomes consistent in seconds."""


class Launch(Message):
    """What is launched: the template, its version, the reservation (empty: as the template says), and the tags."""

    template: str
    version: str = "$Default"
    instance_type: str = ""
    reservation: str = ""
    capacity_block: bool = False
    tags: dict[str, str] = {}


class LaunchSpare(Message):
    """Launch one instance for the pool of a cluster. It is no spare yet: its role is new until it has passed its tests."""

    cluster: str
    instance_type: str
    zone: str = ""
    reservation: str = ""
    capacity_block: bool = False
    token: str


class Launched(Message):
    """The instance that was launched for this token, now or by an earlier attempt."""

    instance_id: str


class AwaitRunning(Message):
    """Wait until an instance runs."""

    instance_id: str
    deadline_s: float


class Running(Message):
    """It runs."""

    state: str
    waited_s: float


class TerminateNode(Message):
    """Terminate the instance of a node that is retired. Refused unless `quarantined_by` owns its quarantine."""

    node: Node
    quarantined_by: str
    token: str


class Terminated(Message):
    """The instance goes. `made_now` is False where it went before."""

    made_now: bool


class ProvisionClient(Protocol):
    """The calls of EC2 that make and end instances. Errors as for `Ec2Client`; NoCapacity where there is none to give."""

    def launch(self, wanted: Launch, token: str) -> str:
        """Launch one instance and return its id; the same token gives the same instance."""
        ...

    def terminate(self, instance_id: str) -> None: ...


class ProvisioningActivities:
    """Makes and ends instances."""

    def __init__(
        self,
        client: ProvisionClient,
        ec2: Ec2Client,
        memory: HostMemory,
        settings: ProvisionSettings,
        effects: EffectSettings,
        clock: Clock | None = None,
    ) -> None:
        self._client = client
        self._ec2 = ec2
        self._memory = memory
        self._settings = settings
        self._effects = effects
        self._clock = clock or SystemClock()

    @activity.defn
    def launch_spare(self, request: LaunchSpare) -> Launched:
        """Launch one instance, once however often this is called with the token."""
        with as_application_error():
            template = template_for(self._settings, request.instance_type, request.zone)
            tags = {names.TAG_CLUSTER: request.cluster, names.TAG_ROLE: names.ROLE_NEW, names.TAG_TOKEN: request.token[-255:]}
            wanted = Launch(
                template=template,
                version=self._settings.version,
                instance_type=request.instance_type,
                reservation=request.reservation,
                capacity_block=request.capacity_block,
                tags=tags,
            )
            refuse_if_late()
            return Launched(instance_id=self._client.launch(wanted, client_token(request.token)))

    @activity.defn
    def await_running(self, request: AwaitRunning) -> Running:
        """Wait until the instance runs. One that DescribeInstances does not know yet may have been launched a moment ago."""
        with as_application_error():
            before, since = waited_before(), self._clock.now()
            while True:
                waited = before + self._clock.now() - since
                state = self._state(request.instance_id, waited)
                if state == "running":
                    return Running(state=state, waited_s=round(waited, 1))
                if state in GONE:
                    raise PreconditionFailed(f"{request.instance_id} was launched and is {state}: EC2 took it back")
                if waited >= request.deadline_s:
                    raise DeadlinePassed(f"{request.instance_id} is {state} {waited / 60:.0f} minutes after its launch")
                beat(waited)
                self._clock.wait(self._effects.boot_poll_s)

    @activity.defn
    def terminate_node(self, request: TerminateNode) -> Terminated:
        """Terminate the instance of a retired node. Its quarantine and its fate are looked at just before the call."""
        with as_application_error():
            node = request.node
            made = act_once(
                request.token,
                f"terminate {node.name}",
                self._memory,
                happened=lambda: self._state(node.instance_id, VISIBLE_S) in GONE,
                act=lambda: self._terminate(request),
                settle_s=self._effects.settle_s,
                clock=self._clock,
            )
            return Terminated(made_now=made)

    def _terminate(self, request: TerminateNode) -> None:
        node, tags = request.node, self._ec2.describe(request.node.instance_id).tags
        owner = tags.get(names.TAG_QUARANTINE, "")
        if owner != request.quarantined_by:
            raise NotOurs(f"{node.name} is quarantined by {owner or 'nobody'}, not by {request.quarantined_by}; it stays")
        if tags.get(names.TAG_FATE) != names.FATE_RETIRED:
            raise PreconditionFailed(f"{node.name} is not retired; it stays")
        self._client.terminate(node.instance_id)

    def _state(self, instance_id: str, waited_s: float) -> str:
        try:
            return self._ec2.describe(instance_id).state
        except UnknownNode:
            return "not visible yet" if waited_s < VISIBLE_S else GONE[-1]


def template_for(settings: ProvisionSettings, instance_type: str, zone: str) -> str:
    """Return the launch template of a type in a zone. CapabilityMissing names the setting where there is none."""
    found = settings.templates.get(f"{instance_type}/{zone}") or settings.templates.get(instance_type)
    if not found:
        key = f'"{instance_type}/{zone}"' if zone else f'"{instance_type}"'
        raise CapabilityMissing(f"no launch template for {instance_type} in {zone or 'any zone'}; set provision.templates.{key}")
    return found


def client_token(token: str) -> str:
    """Return RunInstances' token of an effect: at most 64 characters. Source: EC2 API reference, RunInstances, ClientToken."""
    return f"hotspare-{hashlib.sha256(token.encode()).hexdigest()[:40]}"
