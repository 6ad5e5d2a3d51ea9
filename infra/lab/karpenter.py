"""Karpenter of the lab: NodeClaims whose node is drained and replaced when they are deleted, over any Kubernetes API.

A claim that is deleted has its node tainted, its pods evicted as budgets and karpenter.sh/do-not-disrupt allow, its instance
ended, and its finalizer removed; a static node pool launches another at once. A claim goes with its instance that stops or goes.
From 1.15 on the gate NodeRepair deletes the claim of a node that was not ready for too long, unless the node says do-not-repair.
Sources: https://karpenter.sh/docs/concepts/disruption/, https://karpenter.sh/docs/concepts/nodeclaims/ and
https://karpenter.sh/docs/concepts/nodepools/ (replicas). Left out: consolidation, drift, expiry, budgets of node pools.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from activities.karpenter import DISRUPTED, LABEL
from activities.karpenter_claims import NODE_CLAIM, instance_of
from activities.kubernetes import NODE, POD, KubernetesApi, Object, annotations_of, labels_of

FINALIZER = "karpenter.sh/termination"
DO_NOT_REPAIR, DO_NOT_DISRUPT = "karpenter.sh/do-not-repair", "karpenter.sh/do-not-disrupt"
LOOK_S = 0.05
"""Seconds between looks. A lab value: Karpenter watches."""

GONE = ("stopping", "stopped", "shutting-down", "terminated")


class LabKarpenter:
    """Static node pools over instances. `launch` starts one for a pool, `end` ends one, `state` is EC2's word for its state.

    `repairs`: the feature gate NodeRepair is on. `launched` and `ended` are instance ids, in order.
    """

    def __init__(
        self,
        api: KubernetesApi,
        launch: Callable[[str], str],
        end: Callable[[str], None],
        state: Callable[[str], str],
        *,
        repairs: bool = False,
    ) -> None:
        self._api, self._launch, self._end, self._state = api, launch, end, state
        self.repairs = repairs
        self.replicas: dict[str, int] = {}
        self.launched: list[str] = []
        self.ended: list[str] = []
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._count = 0

    def start(self) -> None:
        """Look after the pools from now on, in a thread."""
        self._thread = threading.Thread(target=self._run, daemon=True, name="karpenter")
        self._thread.start()

    def stop(self) -> None:
        """Look after nothing any more."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def own(self, pool: str, nodes: dict[str, str]) -> None:
        """Make a static node pool of Nodes that are there, by name and instance id."""
        for name, instance_id in nodes.items():
            self._claim(pool, instance_id, name)
            self._api.patch(NODE, name, {"metadata": {"labels": {LABEL: pool}}})
        self.replicas[pool] = self.replicas.get(pool, 0) + len(nodes)

    def look(self) -> None:
        """One look at every claim: end what is to go, repair what is ill, launch what a pool lacks."""
        with self._lock:
            for claim in self._api.list(NODE_CLAIM):
                if claim["metadata"].get("deletionTimestamp"):
                    self._terminate(claim)
                elif self._state(instance_of(claim)) in GONE or (self.repairs and self._is_ill(claim)):
                    self._api.delete(NODE_CLAIM, claim["metadata"]["name"], uid=claim["metadata"]["uid"])
            for pool, wanted in self.replicas.items():
                for _ in range(wanted - len(self._claims(pool))):
                    self._provision(pool)

    def _claims(self, pool: str) -> list[Object]:
        """Claims that count for a pool: one that is being deleted does not, so another is launched beside it."""
        claims = self._api.list(NODE_CLAIM, labels=f"{LABEL}={pool}")
        return [one for one in claims if not one["metadata"].get("deletionTimestamp")]

    def _claim(self, pool: str, instance_id: str, node: str) -> None:
        self._count += 1
        name = f"{pool}-{self._count:05d}"
        meta = {"name": name, "labels": {LABEL: pool}, "finalizers": [FINALIZER]}
        self._api.create(NODE_CLAIM, {"metadata": meta, "spec": {}})
        status = {"providerID": f"aws:///us-east-1a/{instance_id}", "nodeName": node}
        self._api.patch(NODE_CLAIM, name, {"status": status}, subresource="status")

    def _provision(self, pool: str) -> None:
        instance_id = self._launch(pool)
        self.launched.append(instance_id)
        name = f"ip-{instance_id[-8:]}"
        body: dict[str, Any] = {"metadata": {"name": name, "labels": {LABEL: pool}}}
        self._api.create(NODE, {**body, "spec": {"providerID": f"aws:///us-east-1a/{instance_id}"}})
        ready = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"nvidia.com/gpu": "8"}}
        self._api.patch(NODE, name, {"status": ready}, subresource="status")
        self._claim(pool, instance_id, name)

    def _terminate(self, claim: Object) -> None:
        name, instance_id = claim["status"].get("nodeName", ""), instance_of(claim)
        node = self._api.get(NODE, name)
        if node is not None and self._state(instance_id) not in GONE and not self._drained(node):
            return
        if instance_id not in self.ended:
            self.ended.append(instance_id)
            if self._state(instance_id) not in ("shutting-down", "terminated"):
                self._end(instance_id)
        self._api.delete(NODE, name)
        self._api.patch(NODE_CLAIM, claim["metadata"]["name"], {"metadata": {"finalizers": None}})

    def _drained(self, node: Object) -> bool:
        """Taint the node and evict its pods; whether none is left but those of DaemonSets."""
        taints = node["spec"].get("taints") or []
        if DISRUPTED not in [taint.get("key") for taint in taints]:
            wanted = [*taints, {"key": DISRUPTED, "effect": "NoSchedule"}]
            self._api.patch(NODE, node["metadata"]["name"], {"spec": {"taints": wanted}})
        left = [pod for pod in self._api.list(POD, fields=f"spec.nodeName={node['metadata']['name']}") if not _stays(pod)]
        for pod in left:
            if annotations_of(pod).get(DO_NOT_DISRUPT) != "true":
                self._api.evict(pod["metadata"]["name"], pod["metadata"]["namespace"])
        return not left

    def _is_ill(self, claim: Object) -> bool:
        node = self._api.get(NODE, claim["status"].get("nodeName", ""))
        if node is None or annotations_of(node).get(DO_NOT_REPAIR) == "true" or LABEL not in labels_of(node):
            return False
        ready: Object = next((one for one in node["status"].get("conditions", []) if one["type"] == "Ready"), {})
        return ready.get("status") in ("False", "Unknown")

    def _run(self) -> None:
        while not self._stopped.wait(LOOK_S):
            self.look()


def _stays(pod: Object) -> bool:
    """Whether a drain leaves a pod: those of DaemonSets, and those that have ended."""
    owners = [one.get("kind") for one in pod["metadata"].get("ownerReferences", [])]
    return "DaemonSet" in owners or pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
