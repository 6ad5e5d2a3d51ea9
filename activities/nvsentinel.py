"""NVSentinel as another healer: a label on the Node takes it out of its care; a node that it has quarantined is its own.

Sources: https://github.com/NVIDIA/NVSentinel, docs/INTEGRATIONS.md, docs/cancelling-breakfix.md and commons/pkg/statemanager.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

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


@dataclass(frozen=True)
class Presence:
    """Whether NVSentinel is there, or why that cannot be told; the label does no harm where nobody reads it."""

    there: bool
    doubt: str = ""


class NvSentinelHealers:
    """`Healers` where NVSentinel is installed."""

    kind = KIND

    def __init__(self, api: KubernetesApi, nodes: NodeObjects, record: StoodBack, clock: Clock | None = None) -> None:
        self._api = api
        self._nodes = nodes
        self._switches = NodeSwitches(api, nodes, record, KIND, "nvsentinel")
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._read: tuple[float, Presence] | None = None

    def found(self, node: Node) -> list[Healer]:
        """Return NVSentinel by its labels on the Node, or where its kinds are known; with a doubt where they may not be read."""
        item = self._nodes.seen(node)
        presence = self._presence(item) if item else Presence(there=False)
        if presence.doubt:
            return [Healer(kind=KIND, name="(if it is there)", doubt=presence.doubt)]
        return [Healer(kind=KIND, name="")] if presence.there else []

    def stand_back(self, node: Node, incident: str) -> str:
        """Set the opt-out label, also where it is in doubt whether anybody reads it. NotOurs where it is at work on the node."""
        item = self._nodes.fresh(node)
        presence = self._presence(item) if item else Presence(there=False)
        if not presence.there and not presence.doubt:
            return ""
        try:
            self._switches.set(node, incident, (OPT_OUT,), lambda now: refuse_quarantined(node, now))
        except AccessRefused as error:
            if not presence.doubt:
                raise
            raise AccessRefused(f"{presence.doubt}; and its opt-out label may not be set: {error}; allow one of them") from error
        if presence.doubt:
            return f"{presence.doubt}; if it is, it leaves {node.name} alone (label {OPT_OUT.key})"
        return f"NVSentinel leaves {node.name} alone (label {OPT_OUT.key})"

    def release(self, node: Node, incident: str) -> str:
        """Put the label back to what it was."""
        return f"NVSentinel looks after {node.name} again" if self._switches.restore(node, incident, (OPT_OUT,)) else ""

    def _presence(self, item: Object) -> Presence:
        marks = {*labels_of(item), *annotations_of(item)}
        known = {STATE, OPT_OUT.key, CORDONED_BY, EVENT}
        if marks & known or any(mark.startswith(PREFIX) for mark in marks):
            return Presence(there=True)
        with self._lock:
            if self._read is None or self._clock.now() - self._read[0] >= CACHE_S:
                self._read = (self._clock.now(), self._look())
            return self._read[1]

    def _look(self) -> Presence:
        try:
            self._api.list(REBOOT_NODE)
        except CapabilityMissing:
            return Presence(there=False)
        except AccessRefused as error:
            return Presence(there=False, doubt=f"cannot tell whether NVSentinel is installed: {error}")
        return Presence(there=True)


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
