"""Learns what a node's log lines may depend on: time since boot, driver version, GPU family."""

from __future__ import annotations

from collections.abc import Mapping

from activities.errors import HotspareError
from activities.inventory import Node
from activities.node_access import NodeAccess
from checks.catalog import Machine, Override, gpu_family
from checks.model import KernelEvent
from checks.probes.software import driver_version_in

UPTIME = ["sh", "-c", 'cat "${HOTSPARE_HOST_ROOT:-}/proc/uptime"']
DRIVER = ["sh", "-c", 'cat "${HOTSPARE_HOST_ROOT:-}/proc/driver/nvidia/version"']

DRIVER_DECIDES = range(144, 151)
"""XIDs whose registers mean another thing from driver R575 on. Source: NVIDIA XID catalog 2025-09-30."""


def uptime_of(access: NodeAccess, deadline_s: float) -> float | None:
    """Seconds since boot, None where the node does not tell: then every line counts as fresh, and the examination decides."""
    try:
        return float(access.run(UPTIME, deadline_s).stdout.split()[0])
    except (HotspareError, ValueError, IndexError):
        return None


def machine_of(access: NodeAccess, node: Node, overrides: Mapping[str, Override], deadline_s: float) -> Machine:
    """What the meaning of a line may depend on. A driver that is not loaded, or does not say its version, leaves it empty."""
    try:
        version = driver_version_in(access.run(DRIVER, deadline_s).stdout)
    except HotspareError:
        version = ""
    return Machine(version, gpu_family(node.instance_type), overrides)


def reservation(event: KernelEvent, machine: Machine) -> str:
    """Say what could not be known when a line was read, empty where nothing depends on it."""
    if event.kind != "xid" or event.code not in DRIVER_DECIDES or machine.driver_branch:
        return ""
    return "the node's driver version is not known, so the registers were read as before and from R575"
