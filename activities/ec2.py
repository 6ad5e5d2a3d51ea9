"""EC2: look at an instance, reboot it, stop and start it, wait for its new boot, tag it.

Reboot and power cycle take the boot id that they are to end, and check it just before the call.
"""

from __future__ import annotations

from typing import Protocol

from activities.inventory import Node
from activities.message import Message


class InstanceView(Message):
    """What EC2 says of an instance. `state` is EC2's word: pending, running, stopping, stopped, shutting-down, terminated."""

    instance_id: str
    state: str
    instance_type: str = ""
    zone: str = ""
    private_ip: str = ""
    private_dns: str = ""
    tags: dict[str, str] = {}
    console_host_keys: list[str] = []


class DisruptNode(Message):
    """Reboot or power-cycle a node. `token` identifies the effect over attempts and resets; `boot_id` is the boot to end.

    `node` is the inventory entry, through which the boot id is read just before the call.
    """

    node: Node
    boot_id: str
    token: str


class Disrupted(Message):
    """What a reboot or power cycle did. `made_now` is False when an earlier attempt had already made it."""

    made_now: bool
    said: str


class AwaitBoot(Message):
    """Wait until the node answers with another boot id than `old_boot_id`."""

    node: Node
    old_boot_id: str
    deadline_s: float


class BootSeen(Message):
    """A new boot was observed."""

    boot_id: str
    waited_s: float


class TagNode(Message):
    """Set and remove tags of ours on an instance."""

    instance_id: str
    set: dict[str, str] = {}
    remove: list[str] = []


class Ec2Client(Protocol):
    """The EC2 calls that Hotspare makes. Errors: PreconditionFailed (wrong state), ProviderBusy, UnknownNode."""

    def describe(self, instance_id: str) -> InstanceView: ...

    def describe_cluster(self, cluster: str) -> list[InstanceView]: ...

    def reboot(self, instance_id: str) -> None: ...

    def stop(self, instance_id: str) -> None: ...

    def start(self, instance_id: str) -> None: ...

    def set_tags(self, instance_id: str, tags: dict[str, str]) -> None: ...

    def remove_tags(self, instance_id: str, keys: list[str]) -> None: ...

    def console_output(self, instance_id: str) -> str: ...
