"""Lab nodes as Node objects: registered, kept Ready by leases and statuses while they answer, deleted when their instance is."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from activities.names import KUBE_SPARE, ROLE_HEAD, ROLE_SPARE
from infra.lab.kube.api import STRATEGIC_MERGE, KubeApi, Object, Refused
from infra.lab.node import LabNode, NodeState
from infra.lab.options import REGION

GPU = "nvidia.com/gpu"
ZONE = f"{REGION}a"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
LEASE_S = 40
"""Validity that a lease claims, as the kubelet's default; the controller manager looks at the renewals."""

_BEAT_S = 0.5
_STATUS_EVERY = 4
"""Beats between statuses that say nothing new: after a late beat the controller manager may have put Unknown for Ready."""

log = logging.getLogger("hotspare.lab.kube")


def kube_name(node: LabNode) -> str:
    """Return the name of a lab node's Node object, which on EKS is the instance's private DNS name."""
    return node.dns


def answers(node: LabNode) -> bool:
    """Tell whether a kubelet on the node would be at work."""
    return node.state is NodeState.UP and not node.hangs


def gpu_counts(node: LabNode) -> tuple[int, int]:
    """Return how many GPUs the node's driver lists, and how many of them the device plugin offers: those that are not lost."""
    gpus = node.gpu_state()["gpus"]
    return len(gpus), sum(1 for gpu in gpus if not gpu.get("lost"))


class KubeNodes:
    """Keeps one Node object and one Lease for each lab node but the head."""

    def __init__(self, api: KubeApi, nodes: Mapping[str, LabNode], version: str, shared: Mapping[str, Path]) -> None:
        """`version` is what the kubelets call themselves; `shared` are the file systems that every node mounts, by path."""
        self._api = api
        self._shared = shared
        self._nodes = nodes
        self._version = version
        self._told: dict[str, object] = {}
        self._beats: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Register the nodes there are, and go on with those that come."""
        await asyncio.gather(*(self._register(node) for node in self._members()))
        self._tasks.add(asyncio.ensure_future(self._run()))

    async def close(self) -> None:
        """Renew nothing any more."""
        tasks = [*self._tasks, *self._beats.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def by_kube_name(self, name: str) -> LabNode | None:
        """Return the lab node of a Node object; None for one that is not the lab's."""
        return next((node for node in self._members() if kube_name(node) == name), None)

    def _members(self) -> list[LabNode]:
        return [node for node in self._nodes.values() if node.role != ROLE_HEAD]

    async def _run(self) -> None:
        while True:
            for node in self._members():
                if node.name not in self._beats:
                    self._beats[node.name] = asyncio.ensure_future(self._keep(node))
            await asyncio.sleep(_BEAT_S)

    async def _keep(self, node: LabNode) -> None:
        """One kubelet's heartbeat, until the instance is gone; then what a cloud controller does."""
        beats = 0
        while node.state is not NodeState.TERMINATED:
            beats += 1
            if answers(node):
                with contextlib.suppress(Refused):  # somebody else wrote at the same moment: the next beat comes soon
                    await self._beat(node, again=beats % _STATUS_EVERY == 0)
            else:
                self._told.pop(node.name, None)
            await asyncio.sleep(_BEAT_S)
        await self._api.insist("DELETE", f"/api/v1/nodes/{kube_name(node)}")
        await self._api.insist("DELETE", f"{LEASES}/{kube_name(node)}")

    async def _beat(self, node: LabNode, *, again: bool = False) -> None:
        name = kube_name(node)
        status = self._status(node)
        known = {key: value for key, value in status.items() if key != "conditions"}
        if self._told.get(node.name) != known or again:
            if (
                await self._api.insist("PATCH", f"/api/v1/nodes/{name}/status", {"status": status}, content_type=STRATEGIC_MERGE)
                is None
            ):
                await self._register(node)
                return
            self._told[node.name] = known
        await self._renew(name)

    async def _register(self, node: LabNode) -> None:
        name = kube_name(node)
        for path, folder in self._shared.items():
            mount = node.root / path.strip("/")
            if not mount.is_symlink():
                mount.symlink_to(folder)
        taints = [{"key": KUBE_SPARE, "effect": "NoSchedule"}] if node.role == ROLE_SPARE else []
        labels = {
            "kubernetes.io/hostname": name,
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/os": "linux",
            "node.kubernetes.io/instance-type": node.instance_type,
            "topology.kubernetes.io/region": REGION,
            "topology.kubernetes.io/zone": ZONE,
            "nvidia.com/gpu.present": "true",
        }
        body = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "spec": {"providerID": f"aws:///{ZONE}/{node.instance_id}", "taints": taints},
            "status": self._status(node),
        }
        await self._api.insist("POST", "/api/v1/nodes", body)
        await self._renew(name)
        await self._api.insist(
            "PATCH", f"/api/v1/nodes/{name}/status", {"status": self._status(node)}, content_type=STRATEGIC_MERGE
        )

    def _status(self, node: LabNode) -> Object:
        now = _now(timespec="seconds")
        listed, offered = gpu_counts(node)
        sizes = {"cpu": "192", "memory": "2097152Mi", "pods": "110", "ephemeral-storage": "500Gi"}
        return {
            "capacity": {**sizes, GPU: str(listed)},
            "allocatable": {**sizes, GPU: str(offered)},
            "addresses": [
                {"type": "InternalIP", "address": node.ip},
                {"type": "InternalDNS", "address": node.dns},
                {"type": "Hostname", "address": node.dns},
            ],
            "nodeInfo": self._info(node),
            "conditions": [
                _condition("Ready", "True", "KubeletReady", now),
                *(
                    _condition(kind, "False", "KubeletHasNo" + kind, now)
                    for kind in ("MemoryPressure", "DiskPressure", "PIDPressure")
                ),
            ],
        }

    def _info(self, node: LabNode) -> dict[str, str]:
        identity = node.instance_id.removeprefix("i-").rjust(32, "0")[:32]
        return {
            "architecture": "amd64",
            "operatingSystem": "linux",
            "bootID": node.boot_id,
            "machineID": identity,
            "systemUUID": f"ec2{identity[3:8]}-{identity[8:12]}-{identity[12:16]}-{identity[16:20]}-{identity[20:]}",
            "kernelVersion": "6.8.0-1035-aws",
            "osImage": "Ubuntu 22.04.5 LTS",
            "containerRuntimeVersion": "lab://1",
            "kubeletVersion": self._version,
            "kubeProxyVersion": "",
        }

    async def _renew(self, name: str) -> None:
        spec = {"holderIdentity": name, "leaseDurationSeconds": LEASE_S, "renewTime": _now()}
        renewed = await self._api.insist("PATCH", f"{LEASES}/{name}", {"spec": spec}, content_type=STRATEGIC_MERGE)
        if renewed is None:
            body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": spec}
            with contextlib.suppress(Refused):
                await self._api.insist("POST", LEASES, body)


def _condition(kind: str, status: str, reason: str, now: str) -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": reason, "message": reason, "lastHeartbeatTime": now}


def _now(timespec: str = "microseconds") -> str:
    return datetime.now(UTC).isoformat(timespec=timespec).replace("+00:00", "Z")
