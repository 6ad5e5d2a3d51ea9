"""The quarantine on Kubernetes: a cordon, a taint and an annotation that says whose, written and taken away in one change."""

from __future__ import annotations

import logging

from activities.errors import NotOurs, ProviderBusy
from activities.inventory import Inventory, Node
from activities.kubernetes import Object, annotations_of
from activities.kubernetes_nodes import KubernetesNodes, gpus, inventory_names, is_ready
from activities.kubernetes_taints import (
    free_spare,
    is_cordoned,
    keeps_work_off,
    kept_out_by_others,
    taint_value,
    with_taint,
    without_taints,
)
from activities.names import KUBE_QUARANTINE, ROLE_SPARE
from activities.quarantine import Mark

logger = logging.getLogger(__name__)


class KubernetesMarks:
    """`LauncherMarks` on Kubernetes: spec.unschedulable, the taint KUBE_QUARANTINE, and the mark as JSON in an annotation.

    A cordon without our annotation is somebody else's. Tolerations of DaemonSets and static pods let theirs go on.
    """

    place = "cordon"

    def __init__(self, nodes: KubernetesNodes, inventory: Inventory, gpu_resource: str) -> None:
        self._nodes = nodes
        self._inventory = inventory
        self._gpu_resource = gpu_resource

    def read(self, node: Node) -> Mark | None:
        found = self._nodes.find(node)
        return None if found is None else mark_on(found, node.name)

    def write(self, node: Node, mark: Mark) -> None:
        def quarantined(found: Object) -> Object | None:
            if mark_on(found, node.name) is not None:
                return None
            return {
                "metadata": {"annotations": {KUBE_QUARANTINE: mark.model_dump_json()}},
                "spec": {"unschedulable": True, "taints": with_taint(found, KUBE_QUARANTINE)},
            }

        self._nodes.change(node, quarantined)

    def remove(self, node: Node) -> str | None:
        left = ""
        if self._nodes.find(node) is None:
            raise ProviderBusy(f"{node.name} has not joined Kubernetes yet, so no work can be let onto it")

        def lifted(found: Object) -> Object | None:
            nonlocal left
            if KUBE_QUARANTINE not in annotations_of(found) and taint_value(found, KUBE_QUARANTINE) is None:
                return None
            self._refuse_unfit(found, node)
            left = kept_out_by_others(found)
            taints = without_taints(found, KUBE_QUARANTINE)
            if node.role == ROLE_SPARE:
                taints = free_spare(taints)
            spec: Object = {"taints": taints or None}
            return {
                "metadata": {"annotations": {KUBE_QUARANTINE: None}},
                "spec": spec if left else {**spec, "unschedulable": None},
            }

        self._nodes.change(node, lifted)
        if not left:
            return None
        said = f"our quarantine of {node.name} is lifted; it stays out of service for others, who lift that themselves: {left}"
        logger.warning("%s", said)
        return said

    def marked(self) -> set[str]:
        out = [one for one in self._nodes.all() if keeps_work_off(one)]
        return {node.name for node in inventory_names(out, self._inventory).values()} if out else set()

    def _refuse_unfit(self, found: Object, node: Node) -> None:
        """Raise while pods with GPUs could not run there anyway: what waits for the node would be sent to it in vain."""
        name = found["metadata"]["name"]
        if not is_ready(found):
            raise ProviderBusy(f"{node.name} is not Ready yet, so it stays cordoned; see: kubectl describe node {name}")
        wanted = node.gpus or gpus(found, self._gpu_resource, "capacity")
        usable = gpus(found, self._gpu_resource)
        if usable < wanted:
            raise ProviderBusy(
                f"{node.name} has {usable} of {wanted} {self._gpu_resource} allocatable, so it stays cordoned; the device plugin "
                "counts them, and after a repair its pod there may have to be deleted: "
                f"kubectl get pods -A --field-selector spec.nodeName={name}"
            )


def mark_on(found: Object, name: str) -> Mark | None:
    """Return our mark on a Node, None where nothing keeps work off it. Raises NotOurs for the cordon or taint of another."""
    text = annotations_of(found).get(KUBE_QUARANTINE)
    if text is not None:
        try:
            return Mark.model_validate_json(text)
        except ValueError as error:
            raise NotOurs(f"the annotation {KUBE_QUARANTINE} of {name} was not written by Hotspare: {text[:200]!r}") from error
    words = _who_else(found)
    if words:
        raise NotOurs(f"{name} {words}")
    return None


def _who_else(found: Object) -> str:
    """Say who else keeps work off a Node, and what to do about it; empty where nobody does."""
    others, name = kept_out_by_others(found), found["metadata"]["name"]
    if others:
        return f"is kept out of service by another: {others}; let them end, or ask them: kubectl describe node {name}"
    if is_cordoned(found):
        return f"was cordoned by somebody else (no annotation {KUBE_QUARANTINE}); if nobody needs that: kubectl uncordon {name}"
    if taint_value(found, KUBE_QUARANTINE) is not None:
        without = f"kubectl taint node {name} {KUBE_QUARANTINE}-"
        return f"has the taint {KUBE_QUARANTINE} without our annotation; if nobody needs it: {without}"
    return ""
