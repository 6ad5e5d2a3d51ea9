"""What is asked of EC2 and what it answers: the messages of `activities.ec2`, and the client that it is given."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from activities.host_memory import RungAttempt
from activities.inventory import Node
from activities.message import Message


class InstanceView(Message):
    """What EC2 says of an instance. `state` is EC2's word: pending, running, stopping, stopped, shutting-down, terminated.

    `operator` is the service of AWS that alone may change it, where there is one; `lifecycle` spot or capacity-block, else empty;
    `account` the AWS account that it runs in.
    """

    instance_id: str
    state: str
    instance_type: str = ""
    zone: str = ""
    placement_group: str = ""
    image_id: str = ""
    capacity_reservation: str = ""
    private_ip: str = ""
    private_dns: str = ""
    tags: dict[str, str] = {}
    console_host_keys: list[str] = []
    launched_at: datetime | None = None
    operator: str = ""
    lifecycle: str = ""
    account: str = ""


class InspectInstance(Message):
    """Ask for EC2's status checks of a node's instance."""

    node: Node


class InstanceStatus(Message):
    """EC2's own checks of an instance, a signal that does not pass through the node's access.

    `state` is as in `InstanceView`. `system` is about the hardware under the instance, `instance` about its operating system
    and network: ok, impaired, insufficient-data, not-applicable (not running) or initializing. EC2 checks once a minute, and
    takes several failed checks to say impaired, so "ok" right after a fault proves little. Source: EC2 User Guide, "Status
    checks for Amazon EC2 instances".
    """

    state: str
    system: str
    instance: str


class DisruptNode(Message):
    """Reboot or power-cycle a node. `token` identifies the effect over attempts and resets; `boot_id` is the boot to end.

    `node` is the inventory entry, through which the boot id is read just before the call. `attempt` is what is remembered of it.
    With `quarantined_by` it is refused unless that incident owns the node's quarantine.
    """

    node: Node
    boot_id: str
    token: str
    attempt: RungAttempt | None = None
    quarantined_by: str = ""


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
    """Set and remove tags of ours on an instance.

    `expect` is the precondition: tags that must have these values before ("" means absent) or already have the new ones;
    otherwise NotOurs, and nothing is written. With a `token` the tags are written once however often the call is retried.
    """

    instance_id: str
    set: dict[str, str] = {}
    remove: list[str] = []
    expect: dict[str, str] = {}
    token: str = ""


class Ec2Client(Protocol):
    """The EC2 calls that Hotspare makes. Errors: PreconditionFailed (wrong state), ProviderBusy, UnknownNode."""

    def describe(self, instance_id: str) -> InstanceView: ...

    def describe_cluster(self, cluster: str) -> list[InstanceView]: ...

    def status(self, instance_id: str) -> InstanceStatus:
        """Return the status checks, of a stopped instance too. Needs the permission ec2:DescribeInstanceStatus."""
        ...

    def reboot(self, instance_id: str) -> None: ...

    def stop(self, instance_id: str) -> None: ...

    def start(self, instance_id: str) -> None: ...

    def set_tags(self, instance_id: str, tags: dict[str, str]) -> None: ...

    def remove_tags(self, instance_id: str, keys: list[str]) -> None: ...

    def console_output(self, instance_id: str, *, latest: bool = False) -> str:
        """Return the console as EC2 kept it after the last boot; with `latest`, as it is now (PreconditionFailed off Nitro)."""
        ...
