"""Instances, groups and documents as moto keeps them, and the states that AWS shows. The one place that reaches into moto."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from moto import backends
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.ec2.models import ec2_backends

from infra.lab.options import REGION

SERVICES = ("ec2", "autoscaling", "eks", "sqs", "sts", "iam", "ssm", "s3")
_STATE_CODES = {"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48, "stopping": 64, "stopped": 80}


@dataclass(frozen=True)
class InstanceIdentity:
    """An instance as its node needs to know it."""

    instance_id: str
    instance_type: str
    ip: str
    dns: str
    tags: dict[str, str]


@dataclass(frozen=True)
class LabGroup:
    """An Auto Scaling group: its sizes, the lifecycle state of each member by instance id, the processes that are suspended."""

    name: str
    smallest: int
    largest: int
    desired: int
    members: dict[str, str]
    suspended: tuple[str, ...] = ()


def groups() -> list[LabGroup]:
    """Return the Auto Scaling groups as they are now."""
    backend: Any = backends.get_backend("autoscaling")
    found = list(backend[DEFAULT_ACCOUNT_ID][REGION].autoscaling_groups.values())
    return [
        LabGroup(
            str(one.name),
            int(one.min_size or 0),
            int(one.max_size or 0),
            int(one.desired_capacity or 0),
            {str(state.instance.id): str(state.lifecycle_state) for state in list(one.instance_states)},
            tuple(str(process["ProcessName"]) for process in one.suspended_processes),
        )
        for one in found
    ]


def let_launch(group: str, may: bool) -> None:
    """Have a group launch what its desired capacity lacks, or launch nothing; moto knows only the first."""
    backend: Any = backends.get_backend("autoscaling")
    one = backend[DEFAULT_ACCOUNT_ID][REGION].autoscaling_groups[group]

    def launch_nothing(wanted: int | None) -> None:
        one.desired_capacity = one.min_size if wanted is None else wanted

    if not may:
        one.set_desired_capacity = launch_nothing
    elif vars(one).pop("set_desired_capacity", None) is not None:
        one.set_desired_capacity(one.desired_capacity)


def forget_everything() -> None:
    """Empty the services that a lab offers; moto's state belongs to the process and outlives a lab."""
    for service in SERVICES:
        backend: Any = backends.get_backend(service)  # type: ignore[call-overload]
        backend[DEFAULT_ACCOUNT_ID].reset()


def document(name: str) -> str | None:
    """Return the content of a document of Systems Manager, None if there is no such document."""
    backend: Any = backends.get_backend("ssm")
    documents = backend[DEFAULT_ACCOUNT_ID][REGION]._documents
    return str(documents[name].get_default_version().content) if name in documents else None


def identity_of(instance_id: str) -> InstanceIdentity:
    """Return what an instance is called and is. KeyError if there is no such instance."""
    instance = _instance(instance_id)
    if instance is None:
        raise KeyError(instance_id)
    return InstanceIdentity(
        instance_id,
        str(instance.instance_type),
        str(instance.private_ip),
        str(instance.private_dns_name),
        {tag["key"]: tag["value"] for tag in instance.get_tags()},
    )


def state_of(instance_id: str) -> str | None:
    """Return EC2's word for an instance's state, None if there is no such instance."""
    instance = _instance(instance_id)
    return None if instance is None else str(instance._state.name)


def set_state(instance_id: str, state: str) -> None:
    """Show an instance in a state: its node has got there, or is on the way."""
    instance = _instance(instance_id)
    if instance is not None:
        instance._state.name, instance._state.code = state, _STATE_CODES[state]


def _instance(instance_id: str) -> Any:
    return ec2_backends[DEFAULT_ACCOUNT_ID][REGION].get_instance_by_id(instance_id)
