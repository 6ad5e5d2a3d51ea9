"""Nodes without machines: kwok keeps bare Node objects Ready, so that a thousand of them cost one process."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from infra.lab.kube.assets import binary, manifests
from infra.lab.kube.components import ComponentFailed

if TYPE_CHECKING:
    from infra.lab.kube.control_plane import ControlPlane

_MARK = "kwok.x-k8s.io/node"
# kwok's own stages, without the one that completes a pod of a Job as soon as it runs.
_STAGES = ("node/node-initialize.yaml", "pod/pod-ready.yaml", "pod/pod-delete.yaml")
_CAPACITY = {"cpu": "192", "memory": "2Ti", "pods": "110", "nvidia.com/gpu": "8"}
_AT_ONCE = 16
_POLL_S = 0.5
_DEADLINE_S = 300.0


class Kwok:
    """kwok against a control plane. It touches only the nodes that were added here, and the pods on them."""

    def __init__(self, control_plane: ControlPlane) -> None:
        self._control_plane = control_plane
        self._started = False

    async def start(self) -> None:
        """Start it; a second time does nothing."""
        if self._started:
            return
        plane = self._control_plane
        lease_s = max(2, int(2 * plane.node_grace_s))  # it renews after a quarter of that, twice within the grace
        command: list[str | Path] = [
            binary("kwok"),
            f"--kubeconfig={plane.kubeconfig()}",
            f"--manage-nodes-with-annotation-selector={_MARK}=fake",
        ]
        stages = [f"--config={manifests('kwok') / stage}" for stage in _STAGES]
        await plane.components.start("kwok", [*command, f"--node-lease-duration-seconds={lease_s}", *stages])
        self._started = True

    async def add_nodes(self, count: int, *, prefix: str = "kwok", taint: bool = True) -> list[str]:
        """Add nodes named `<prefix>-<number>` with eight GPUs each and wait until all are Ready.

        With `taint` only pods that tolerate `kwok.x-k8s.io/node` are put there. ComponentFailed when they do not turn Ready.
        """
        await self.start()
        names = [f"{prefix}-{number}" for number in range(count)]
        gate = asyncio.Semaphore(_AT_ONCE)

        async def add(name: str) -> None:
            async with gate:
                await self._control_plane.request("POST", "/api/v1/nodes", _node(name, taint))

        async with asyncio.TaskGroup() as adding:
            for name in names:
                adding.create_task(add(name))
        deadline = asyncio.get_running_loop().time() + _DEADLINE_S
        while left := set(names) - await self._ready():
            if asyncio.get_running_loop().time() > deadline:
                raise ComponentFailed(f"{len(left)} of {count} nodes are not Ready after {_DEADLINE_S:.0f} s, e.g. {min(left)}")
            await asyncio.sleep(_POLL_S)
        return names

    async def _ready(self) -> set[str]:
        listed = await self._control_plane.request("GET", "/api/v1/nodes?labelSelector=type%3Dkwok&resourceVersion=0")
        return {node["metadata"]["name"] for node in listed["items"] if _is_ready(node["status"])}


def _is_ready(status: dict[str, list[dict[str, str]]]) -> bool:
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in status.get("conditions", []))


def _node(name: str, taint: bool) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"type": "kwok", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux"},
            "annotations": {_MARK: "fake"},
        },
        "spec": {"taints": [{"key": _MARK, "value": "fake", "effect": "NoSchedule"}] if taint else []},
        "status": {"capacity": _CAPACITY, "allocatable": _CAPACITY},
    }
