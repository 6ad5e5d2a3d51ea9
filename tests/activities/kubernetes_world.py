"""A small world in Kubernetes for tests, made through the API's own verbs, so that it is the same in memory and in earnest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from activities.clients.fake_kubernetes import FakeKubernetes
from activities.inventory import Node
from activities.kubernetes import DISRUPTION_BUDGET, NODE, POD, KubernetesApi, Object

NAMESPACE = "default"
GPU = "nvidia.com/gpu"


@dataclass
class World:
    """Nodes, pods and budgets behind `api`. `settled` waits until a budget counts; `made` are what `clear` removes."""

    api: KubernetesApi
    settled: Callable[[str], None] = lambda budget: None
    nodes: list[str] = field(default_factory=list)

    def node(self, name: str, *, gpus: int = 8, ready: bool = True) -> Node:
        """Make a Node, and return the inventory's node of the same instance, which has another name."""
        instance = f"i-{name.replace('-', '')}"
        self.api.create(NODE, {"metadata": {"name": f"ip-{name}"}, "spec": {"providerID": f"aws:///us-east-1a/{instance}"}})
        self.nodes.append(f"ip-{name}")
        self.status(f"ip-{name}", gpus=gpus, ready=ready)
        return Node(instance_id=instance, name=name, gpus=8)

    def status(self, kube_name: str, *, gpus: int = 8, ready: bool = True) -> None:
        """Set what the kubelet says of a node."""
        at = "2026-01-01T00:00:00Z"
        condition = {"type": "Ready", "status": "True" if ready else "False", "lastHeartbeatTime": at, "lastTransitionTime": at}
        body = {"status": {"capacity": {GPU: "8"}, "allocatable": {GPU: str(gpus)}, "conditions": [condition]}}
        self.api.patch(NODE, kube_name, body, subresource="status")

    def pod(
        self, name: str, node: str, *, daemon: bool = False, phase: str = "Running", labels: dict[str, str] | None = None
    ) -> Object:
        """Make a pod that is bound to a node and runs there; a real one is there until `kubelets_end`."""
        meta: Object = {"name": name, "labels": labels or {}}
        if (
            daemon
        ):  # of a group that is not served: the garbage collector removes what an apps/v1 owner that is not there has left
            meta["ownerReferences"] = [
                {
                    "apiVersion": "agents.example.dev/v1",
                    "kind": "DaemonSet",
                    "name": "agent",
                    "uid": "00000000-0000-0000-0000-000000000001",
                    "controller": True,
                }
            ]
        spec = {
            "nodeName": node,
            "containers": [{"name": "rank", "image": "train"}],
            "tolerations": [{"operator": "Exists"}],
            "automountServiceAccountToken": False,
        }
        if isinstance(self.api, FakeKubernetes):
            self.api.lingering.add(name)
        self.api.create(POD, {"metadata": meta, "spec": spec}, NAMESPACE)
        ready = {"type": "Ready", "status": "True" if phase == "Running" else "False"}
        return self.api.patch(POD, name, {"status": {"phase": phase, "conditions": [ready]}}, NAMESPACE, subresource="status")

    def budget(self, name: str, labels: dict[str, str], max_unavailable: int | None = None) -> None:
        """Make a disruption budget that already counts: one pod must stay, or so many may be away (of pods with a controller)."""
        allows = {"minAvailable": 1} if max_unavailable is None else {"maxUnavailable": max_unavailable}
        spec = {**allows, "selector": {"matchLabels": labels}}
        self.api.create(DISRUPTION_BUDGET, {"metadata": {"name": name}, "spec": spec}, NAMESPACE)
        self.settled(name)

    def kubelets_end(self) -> None:
        """Let every pod that is being deleted end, as its kubelet would."""
        for pod in self.api.list(POD, NAMESPACE):
            if pod["metadata"].get("deletionTimestamp"):
                self.api.delete(POD, pod["metadata"]["name"], NAMESPACE, grace_s=0)

    def pods(self) -> list[str]:
        """Names of all pods."""
        return [pod["metadata"]["name"] for pod in self.api.list(POD, NAMESPACE)]

    def clear(self) -> None:
        """Remove everything."""
        for pod in self.api.list(POD, NAMESPACE):
            self.api.delete(POD, pod["metadata"]["name"], NAMESPACE, grace_s=0)
        for budget in self.api.list(DISRUPTION_BUDGET, NAMESPACE):
            self.api.delete(DISRUPTION_BUDGET, budget["metadata"]["name"], NAMESPACE)
        for name in self.nodes:
            self.api.delete(NODE, name)


class ListedNodes:
    """An inventory of given nodes."""

    def __init__(self, *nodes: Node) -> None:
        self._nodes = list(nodes)

    def resolve(self, cluster: str, alias: str) -> Node:
        return next(node for node in self._nodes if alias in (node.name, node.instance_id))

    def list(self, cluster: str) -> list[Node]:
        return self._nodes


class KubeletClock:
    """Time in which kubelets work: waiting lets pods that are being deleted end, where `alive`, and passes at once."""

    def __init__(self, world: World, alive: bool = True) -> None:
        self._world, self._alive = world, alive
        self.at = 0.0
        self.meanwhile: Callable[[], None] = lambda: None

    def now(self) -> float:
        return self.at

    def wait(self, seconds: float) -> None:
        self.at += seconds
        self.meanwhile()
        if self._alive:
            self._world.kubelets_end()
