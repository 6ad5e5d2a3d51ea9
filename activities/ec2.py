"""EC2: look at an instance, reboot it, stop and start it, wait for its new boot, tag it.

Reboot and power cycle take the boot id that they are to end, and check it just before the call.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from temporalio import activity

from activities import names
from activities.clock import Clock, SystemClock, beat, waited_before
from activities.ec2_messages import (
    AwaitBoot,
    BootSeen,
    Disrupted,
    DisruptNode,
    Ec2Client,
    InspectInstance,
    InstanceStatus,
    InstanceView,
    TagNode,
)
from activities.effects import act_once, refuse_if_late
from activities.errors import BadInput, DeadlinePassed, NodeUnreachable, NotOurs, PreconditionFailed, as_application_error
from activities.host_memory import HostMemory, remember_attempt
from activities.inventory import Node
from activities.node_access import AccessTo
from activities.settings import EffectSettings

__all__ = [
    "AwaitBoot",
    "BootSeen",
    "DisruptNode",
    "Disrupted",
    "Ec2Activities",
    "Ec2Client",
    "InspectInstance",
    "InstanceStatus",
    "InstanceView",
    "TagNode",
]

TAG_SETTLE_S = 30.0
"""How long tags that may have been written are watched for. Hotspare default: EC2 shows new tags within seconds."""

BOOT_ID_DEADLINE_S = 10.0
"""Seconds for one look at the boot id. Hotspare default: it is one small file; a node that needs longer counts as no answer."""

SOFT_REBOOT_DEADLINE_S = 20.0
"""Seconds for the command that reboots a node from inside. Hotspare default: it only begins the shutdown."""


class Ec2Activities:
    """Effects on instances, each made once and proved by looking."""

    def __init__(
        self,
        ec2: Ec2Client,
        access_to: AccessTo,
        memory: HostMemory,
        settings: EffectSettings,
        clock: Clock | None = None,
    ) -> None:
        self._ec2 = ec2
        self._access_to = access_to
        self._memory = memory
        self._settings = settings
        self._clock = clock or SystemClock()

    @activity.defn
    def instance_status(self, request: InspectInstance) -> InstanceStatus:
        """Say what EC2's own checks say of a node's instance: a second opinion on a node that does not answer."""
        with as_application_error():
            return self._ec2.status(request.node.instance_id)

    @activity.defn
    def reboot_node(self, request: DisruptNode) -> Disrupted:
        """Reboot an instance through EC2, unless the boot that it is to end has ended already."""
        with as_application_error():
            made = self._restart_once(request, lambda: self._ec2.reboot(request.node.instance_id))
            return _disrupted(made, f"EC2 reboot of {request.node.name} ({request.node.instance_id})")

    @activity.defn
    def soft_reboot_node(self, request: DisruptNode) -> Disrupted:
        """Have the node's own system reboot it, unless the boot that it is to end has ended already."""
        with as_application_error():
            made = self._restart_once(request, lambda: self._ask_to_reboot(request.node))
            return _disrupted(made, f"reboot of {request.node.name} by its own system")

    @activity.defn
    def power_cycle_node(self, request: DisruptNode) -> Disrupted:
        """Stop an instance, wait until it is stopped, and start it: it comes up on other hardware where EC2 has some."""
        with as_application_error():
            node = request.node
            stopped = self._stop_once(node, request)
            if not stopped and self._ec2.describe(node.instance_id).state in ("pending", "running"):
                return _disrupted(False, f"stop and start of {node.name} ({node.instance_id})")
            self._await_state(node, "stopped", self._settings.stop_deadline_s)
            started = act_once(
                _start_token(request),
                f"start of {node.name}",
                self._memory,
                happened=lambda: self._ec2.describe(node.instance_id).state in ("pending", "running"),
                act=lambda: self._ec2.start(node.instance_id),
                settle_s=self._settings.settle_s,
                clock=self._clock,
            )
            return _disrupted(stopped or started, f"stop and start of {node.name} ({node.instance_id})")

    @activity.defn
    def await_boot(self, request: AwaitBoot) -> BootSeen:
        """Wait until the node answers with another boot id; DeadlinePassed when it does not in time."""
        with as_application_error():
            node = request.node
            before, since = waited_before(), self._clock.now()
            while True:
                waited = before + self._clock.now() - since
                boot_id = self._boot_id(node)
                if boot_id is not None and boot_id != request.old_boot_id:
                    return BootSeen(boot_id=boot_id, waited_s=round(waited, 1))
                if waited >= request.deadline_s:
                    raise DeadlinePassed(_no_boot(node, boot_id, request.deadline_s))
                beat(waited)
                self._clock.wait(self._settings.boot_poll_s)

    @activity.defn
    def tag_node(self, request: TagNode) -> None:
        """Set and remove tags of ours on an instance."""
        with as_application_error():
            _refuse_foreign_tags(request)
            tags = self._ec2.describe(request.instance_id).tags
            _refuse_unexpected_tags(request, tags)
            missing = {key: value for key, value in request.set.items() if tags.get(key) != value}
            if missing:
                self._set_tags_once(request, missing)
            refuse_if_late()
            if gone := [key for key in request.remove if key in tags]:
                self._ec2.remove_tags(request.instance_id, gone)

    def _restart_once(self, request: DisruptNode, restart: Callable[[], None]) -> bool:
        node = request.node

        def act() -> None:
            self._refuse_foreign_quarantine(request)
            self._remember(request)
            restart()

        return act_once(
            request.token,
            f"reboot of {node.name}",
            self._memory,
            happened=lambda: self._boot_ended(node, request.boot_id),
            act=act,
            settle_s=self._settings.settle_s,
            in_doubt=lambda: self._boot_id(node) is None,
            clock=self._clock,
        )

    def _ask_to_reboot(self, node: Node) -> None:
        """A node that goes down at once gives no answer: whether it boots anew is seen by whoever waits for the boot."""
        with suppress(NodeUnreachable, DeadlinePassed):
            answer = self._access_to(node).run(["sudo", "-n", "reboot"], SOFT_REBOOT_DEADLINE_S)
            if answer.exit_status not in (0, None):
                raise PreconditionFailed(f"{node.name} refuses to reboot itself: {answer.stderr.strip()[-200:]}")

    def _stop(self, request: DisruptNode) -> None:
        self._refuse_foreign_quarantine(request)
        self._remember(request)
        self._ec2.stop(request.node.instance_id)

    def _refuse_foreign_quarantine(self, request: DisruptNode) -> None:
        """Look at the owner of the quarantine just before the call: a node that is not ours is not ours to restart."""
        owner = self._ec2.describe(request.node.instance_id).tags.get(names.TAG_QUARANTINE, "")
        if request.quarantined_by and owner != request.quarantined_by:
            held = f"quarantined by {owner}" if owner else "no longer quarantined"
            raise NotOurs(f"{request.node.name} is {held}, not by {request.quarantined_by}; it was not restarted")

    def _remember(self, request: DisruptNode) -> None:
        if request.attempt is not None:
            remember_attempt(self._memory, request.node.instance_id, request.attempt)

    def _set_tags_once(self, request: TagNode, tags: dict[str, str]) -> None:
        if not request.token:
            refuse_if_late()
            self._ec2.set_tags(request.instance_id, tags)
            return

        def tagged() -> bool:
            seen = self._ec2.describe(request.instance_id).tags
            return all(seen.get(key) == value for key, value in tags.items())

        act_once(
            request.token,
            f"tags {', '.join(sorted(tags))} of {request.instance_id}",
            self._memory,
            happened=tagged,
            act=lambda: self._ec2.set_tags(request.instance_id, tags),
            settle_s=min(self._settings.settle_s, TAG_SETTLE_S),
            clock=self._clock,
        )

    def _stop_once(self, node: Node, request: DisruptNode) -> bool:
        """Stop the instance unless it is stopping, stopped or past the boot that was to end; return whether this call did."""

        def ended() -> bool:
            return self._ec2.describe(node.instance_id).state in ("stopping", "stopped") or self._boot_ended(
                node, request.boot_id
            )

        return act_once(
            request.token,
            f"stop of {node.name}",
            self._memory,
            happened=ended,
            act=lambda: self._stop(request),
            settle_s=self._settings.settle_s,
            in_doubt=lambda: self._memory.intent_age_s(_start_token(request)) is not None,
            clock=self._clock,
        )

    def _await_state(self, node: Node, state: str, deadline_s: float) -> None:
        deadline = self._clock.now() + deadline_s
        while (seen := self._ec2.describe(node.instance_id).state) != state:
            if self._clock.now() >= deadline:
                raise DeadlinePassed(
                    f"{node.name} ({node.instance_id}) is {seen}, not {state}, after {deadline_s:.0f} s; "
                    f"look at it: aws ec2 describe-instances --instance-ids {node.instance_id}"
                )
            beat(f"{node.name} is {seen}, waiting for {state}")
            self._clock.wait(self._settings.boot_poll_s)

    def _boot_id(self, node: Node) -> str | None:
        """Return the boot id, or None when the node does not answer: unknown, not ended."""
        try:
            return self._access_to(node).boot_id(BOOT_ID_DEADLINE_S)
        except (NodeUnreachable, DeadlinePassed):
            return None

    def _boot_ended(self, node: Node, boot_id: str) -> bool:
        """Say whether the boot that was to end has ended. A node that does not answer has not shown that."""
        seen = self._boot_id(node)
        if seen is None or seen == boot_id:
            return False
        if not boot_id and activity.info().attempt == 1:
            raise PreconditionFailed(
                f"{node.name} was to be restarted because it did not answer, and now it answers; examine it again"
            )
        return True


def _start_token(request: DisruptNode) -> str:
    """Token of the second half of a power cycle; once it is noted, the instance has been stopped."""
    return f"{request.token}/start"


def _disrupted(made: bool, what: str) -> Disrupted:
    if made:
        return Disrupted(made_now=True, said=f"{what}: done now")
    return Disrupted(
        made_now=False, said=f"{what}: not made again, the boot has ended or an earlier attempt is still taking effect"
    )


def _no_boot(node: Node, boot_id: str | None, deadline_s: float) -> str:
    seen = "does not answer" if boot_id is None else f"still runs boot {boot_id}"
    return f"no new boot of {node.name} ({node.instance_id}) within {deadline_s:.0f} s: it {seen}"


def _refuse_foreign_tags(request: TagNode) -> None:
    ours = f"{names.PREFIX}:"
    if foreign := [key for key in [*request.set, *request.remove] if not key.startswith(ours)]:
        raise BadInput(f"{request.instance_id}: tags {foreign} are not ours to write; ours begin with {ours}")


def _refuse_unexpected_tags(request: TagNode, tags: dict[str, str]) -> None:
    for key, value in request.expect.items():
        if key in request.remove and key not in tags:
            continue  # an earlier attempt has removed it
        if tags.get(key, "") not in (value, request.set.get(key, value)):
            raise NotOurs(f"{request.instance_id}: tag {key} is {tags.get(key, '')!r}, not {value!r}; it was left alone")
