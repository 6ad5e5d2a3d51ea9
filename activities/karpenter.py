"""Karpenter as another healer: from 1.15 an annotation on the Node vetoes its repair; before that nothing does.

Sources: kubernetes-sigs/karpenter, pkg/controllers/node/health/controller.go and pkg/apis/v1/labels.go;
https://karpenter.sh/preview/concepts/disruption/#node-auto-repair
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass

from activities.clock import Clock, SystemClock
from activities.errors import AccessRefused, CapabilityMissing, NotOurs
from activities.healers import Healer
from activities.inventory import Node
from activities.kubernetes import Kind, KubernetesApi, Object, labels_of
from activities.kubernetes_healers import NodeObjects, NodeSwitches, Switch
from activities.settings import HealerSettings
from activities.stood_back import StoodBack

KIND = "Karpenter"
LABEL = "karpenter.sh/nodepool"
DISRUPTED = "karpenter.sh/disrupted"

SWITCHES = (
    Switch("annotations", "karpenter.sh/do-not-repair", "true"),
    Switch("annotations", "karpenter.sh/do-not-disrupt", "true"),
)
"""The veto on repair, and the one on consolidation, which would remove a node that we have emptied."""

OBEYS_FROM = (1, 15)
"""First release that knows do-not-repair. Before it, a repair is a forced deletion that nothing on the node holds back."""

DEPLOYMENT = Kind("apps/v1", "deployments", "Deployment")
SELECTOR = "app.kubernetes.io/name=karpenter"
"""Label of Karpenter's Deployment in its Helm chart, which also tells its version."""

CACHE_S = 60.0
"""How long what was read of Karpenter is believed. Hotspare default: it is upgraded in minutes."""


@dataclass(frozen=True)
class Controller:
    """What the Deployment says: the version, () if it does not, and whether the feature gate NodeRepair is on."""

    version: tuple[int, ...]
    repairs: bool

    @property
    def words(self) -> str:
        return f"Karpenter {'.'.join(map(str, self.version)) or 'of a version that its Deployment does not tell'}"


class KarpenterHealers:
    """`Healers` of the nodes that Karpenter has launched."""

    kind = KIND

    def __init__(
        self, api: KubernetesApi, nodes: NodeObjects, record: StoodBack, settings: HealerSettings, clock: Clock | None = None
    ) -> None:
        self._api = api
        self._nodes = nodes
        self._switches = NodeSwitches(api, nodes, record, KIND, "karpenter")
        self._settings = settings
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._read: tuple[float, Controller] | None = None

    def found(self, node: Node) -> list[Healer]:
        """Return the node pool of the node."""
        item = self._nodes.seen(node)
        pool = labels_of(item).get(LABEL) if item else None
        return [Healer(kind=KIND, name=f"node pool {pool}")] if pool else []

    def stand_back(self, node: Node, incident: str) -> str:
        """Annotate the Node. CapabilityMissing where this Karpenter would repair it nevertheless, or that cannot be known."""
        item = self._nodes.fresh(node)
        if item is None or LABEL not in labels_of(item):
            return ""
        refuse_taken(node, item)
        how = self._how_it_obeys()
        self._switches.set(node, incident, SWITCHES, lambda now: refuse_taken(node, now))
        return f"Karpenter neither repairs nor consolidates {node.name} ({how})"

    def release(self, node: Node, incident: str) -> str:
        """Take our annotations away, or put the earlier values back."""
        return f"Karpenter looks after {node.name} again" if self._switches.restore(node, incident, SWITCHES) else ""

    def _how_it_obeys(self) -> str:
        """Say why the annotations are enough. Raises CapabilityMissing where they are not."""
        said = self._settings.karpenter
        if said == "no-repair":
            return "healers.karpenter says that its node repair is off"
        if said == "obeys":
            return "healers.karpenter says that it obeys do-not-repair"
        controller = self._controller()
        if not controller.repairs:
            return f"{controller.words}, feature gate NodeRepair off"
        if controller.version >= OBEYS_FROM:
            return controller.words
        raise CapabilityMissing(
            f"{controller.words} has the feature gate NodeRepair on and knows no annotation against it (1.15 does): it would "
            "delete the node in the middle of the repair; upgrade Karpenter, or turn NodeRepair off"
        )

    def _controller(self) -> Controller:
        with self._lock:
            if self._read is None or self._clock.now() - self._read[0] >= CACHE_S:
                self._read = (self._clock.now(), self._look())
            return self._read[1]

    def _look(self) -> Controller:
        do = 'set healers.karpenter = "obeys" or "no-repair" in the settings, whichever is so'
        try:
            seen = self._api.list(DEPLOYMENT, labels=SELECTOR)
        except AccessRefused as error:
            raise CapabilityMissing(
                f"whether Karpenter obeys do-not-repair may not be read: {error}; allow it, or {do}"
            ) from error
        if not seen:
            raise CapabilityMissing(
                f"no Deployment has the label {SELECTOR}, so whether Karpenter repairs nodes is unknown; {do}"
            )
        known = [_controller_of(item) for item in seen]
        return Controller(min(one.version for one in known), any(one.repairs for one in known))


def refuse_taken(node: Node, item: Object) -> None:
    """Raise NotOurs where Karpenter has taken the node: it drains and terminates it."""
    taints = [taint.get("key") for taint in item.get("spec", {}).get("taints") or []]
    if DISRUPTED in taints:
        raise NotOurs(f"Karpenter has taken {node.name} (taint {DISRUPTED}) and replaces it; it is left alone")
    if item["metadata"].get("deletionTimestamp"):
        raise NotOurs(f"the Node of {node.name} is being deleted: Karpenter terminates the instance; it is left alone")


def _controller_of(item: Object) -> Controller:
    containers = item.get("spec", {}).get("template", {}).get("spec", {}).get("containers") or []
    gates = [
        one.get("value", "")
        for container in containers
        for one in container.get("env") or []
        if one.get("name") == "FEATURE_GATES"
    ]
    images = [container.get("image", "").partition("@")[0].rpartition(":")[2] for container in containers]
    tells = [labels_of(item).get("app.kubernetes.io/version", ""), *images]
    version: tuple[int, ...] = ()
    for text in tells:
        if match := re.fullmatch(r"v?(\d+)\.(\d+)(?:\.(\d+))?.*", text):
            version = tuple(int(part) for part in match.groups() if part)
            break
    repairs = any(gate.replace(" ", "").lower() == "noderepair=true" for text in gates for gate in text.split(","))
    return Controller(version, repairs)
