"""NVSentinel as another healer: a label on the Node takes it out of its care; a node that it has quarantined is its own.

Sources: https://github.com/NVIDIA/NVSentinel, docs/INTEGRATIONS.md, docs/cancelling-breakfix.md and commons/pkg/statemanager.
"""

from __future__ import annotations

import threading

from activities.clock import Clock, SystemClock
from activities.errors import AccessRefused, CapabilityMissing, NotOurs
from activities.healers import Healer
from activities.inventory import Node
from activities.kubernetes import Kind, KubernetesApi, Object, annotations_of, labels_of
from activities.kubernetes_healers import NodeObjects, NodeSwitches, Switch
from activities.stood_back import StoodBack

KIND = "NVSentinel"
STATE = "dgxc.nvidia.com/nvsentinel-state"
OPT_OUT = Switch("labels", "k8saas.nvidia.com/ManagedByNVSentinel", "false")
CORDONED_BY = "k8saas.nvidia.com/cordon-by"
EVENT = "quarantineHealthEvent"
PREFIX = "nvsentinel.dgxc.nvidia.com/"
"""Labels that its labeler keeps on GPU nodes, such as dcgm.version and driver.installed."""

REBOOT_NODE = Kind("janitor.dgxc.nvidia.com/v1alpha1", "rebootnodes", "RebootNode", namespaced=False)
"""Its order to reboot a node: where the API knows this kind, NVSentinel is installed."""

CACHE_S = 60.0
"""How long the answer whether it is installed is believed. Hotspare default."""


class NvSentinelHealers:
    """`Healers` where NVSentinel is installed."""

    kind = KIND

    def __init__(self, api: KubernetesApi, nodes: NodeObjects, record: StoodBack, clock: Clock | None = None) -> None:
        self._api = api
        self._nodes = nodes
        self._switches = NodeSwitches(api, nodes, record, KIND, "nvsentinel")
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._read: tuple[float, bool] | None = None

    def found(self, node: Node) -> list[Healer]:
        """Return NVSentinel by its labels on the Node, or where its kinds are known. What may not be read counts as there."""
        item = self._nodes.seen(node)
        return [Healer(kind=KIND, name="")] if item and self._minds(item) else []

    def stand_back(self, node: Node, incident: str) -> str:
        """Set the opt-out label. NotOurs where it is at work on the node already."""
        item = self._nodes.fresh(node)
        if item is None or not self._minds(item):
            return ""
        self._switches.set(node, incident, (OPT_OUT,), lambda now: refuse_quarantined(node, now))
        return f"NVSentinel leaves {node.name} alone (label {OPT_OUT.key})"

    def release(self, node: Node, incident: str) -> str:
        """Put the label back to what it was."""
        return f"NVSentinel looks after {node.name} again" if self._switches.restore(node, incident, (OPT_OUT,)) else ""

    def _minds(self, item: Object) -> bool:
        marks = {*labels_of(item), *annotations_of(item)}
        known = {STATE, OPT_OUT.key, CORDONED_BY, EVENT}
        return bool(marks & known) or any(mark.startswith(PREFIX) for mark in marks) or self._installed()

    def _installed(self) -> bool:
        with self._lock:
            if self._read is None or self._clock.now() - self._read[0] >= CACHE_S:
                self._read = (self._clock.now(), self._look())
            return self._read[1]

    def _look(self) -> bool:
        try:
            self._api.list(REBOOT_NODE)
        except CapabilityMissing:
            return False
        except AccessRefused:
            return True  # the label does no harm where nobody reads it
        return True


def refuse_quarantined(node: Node, item: Object) -> None:
    """Raise NotOurs where NVSentinel has the node in its own quarantine."""
    labels, annotations = labels_of(item), annotations_of(item)
    state = labels.get(STATE)
    if state:
        why = f"label {STATE} is {state}"
    elif annotations.get(EVENT):
        why = f"annotation {EVENT} is set"
    elif labels.get(CORDONED_BY, "").lower().startswith("nvsentinel") and item.get("spec", {}).get("unschedulable"):
        why = f"it has cordoned it ({labels.get('k8saas.nvidia.com/cordon-reason', 'without a reason')})"
    else:
        return
    raise NotOurs(
        f"NVSentinel has {node.name} in its own quarantine ({why}) and repairs it; it is left alone. To have Hotspare repair it, "
        "let NVSentinel finish or cancel there (docs/cancelling-breakfix.md of NVSentinel), then: hotspare report "
        f"{node.name}"
    )
