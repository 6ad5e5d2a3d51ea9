"""A slot of Karpenter: its NodeClaim is deleted, so Karpenter drains the node, terminates it and launches what pods need.

Sources: https://karpenter.sh/docs/concepts/nodeclaims/ and https://karpenter.sh/docs/concepts/disruption/#manual-methods
"""

from __future__ import annotations

from activities.ec2_messages import InstanceView
from activities.errors import PreconditionFailed
from activities.inventory import Node
from activities.karpenter import LABEL
from activities.kubernetes import Kind, KubernetesApi, Object, labels_of
from activities.owner_slots import OwnerSeen
from activities.provisioning import GONE

NODE_CLAIM = Kind("karpenter.sh/v1", "nodeclaims", "NodeClaim", namespaced=False)


class KarpenterClaims:
    """`SlotOwner` of the nodes that Karpenter has launched. A claim is found by its instance, and deleted by its uid."""

    def __init__(self, api: KubernetesApi) -> None:
        self._api = api

    def look(self, view: InstanceView) -> OwnerSeen | None:
        """Return the node pool of the claim. An instance that is gone, and its claim with it, has its node pool in a tag."""
        claims = self._api.list(NODE_CLAIM)
        mine = next((one for one in claims if instance_of(one) == view.instance_id), None)
        pool = labels_of(mine).get(LABEL, "") if mine else view.tags.get(LABEL, "")
        if not pool or (mine is None and view.state not in GONE):
            return None
        members = [instance_of(one) for one in claims if labels_of(one).get(LABEL, "") == pool]
        return OwnerSeen(keeper=pool, members=sorted(filter(None, members)), going=mine is None or _is_leaving(mine))

    def give_up(self, node: Node, *, decrement: bool) -> None:
        """Delete the claim. Karpenter keeps no number that could be lowered: it launches what pods, or its static pool, need."""
        if decrement:
            raise PreconditionFailed(f"{node.name}: Karpenter keeps no number that falls by one; its claim was not deleted")
        mine = next((one for one in self._api.list(NODE_CLAIM) if instance_of(one) == node.instance_id), None)
        if mine is None:
            raise PreconditionFailed(f"{node.name}: no NodeClaim has {node.instance_id} any more; nothing was deleted")
        self._api.delete(NODE_CLAIM, mine["metadata"]["name"], uid=mine["metadata"]["uid"])

    def launched(self, keeper: str) -> list[str]:
        """Return the instances of a node pool whose claims are not being deleted."""
        claims = self._api.list(NODE_CLAIM, labels=f"{LABEL}={keeper}")
        return [found for one in claims if not _is_leaving(one) and (found := instance_of(one))]


def instance_of(claim: Object) -> str:
    """Return the instance of a claim, empty while it has none: status.providerID is "aws:///us-east-1a/i-0abc"."""
    return str(claim.get("status", {}).get("providerID") or "").rpartition("/")[2]


def _is_leaving(claim: Object) -> bool:
    return bool(claim["metadata"].get("deletionTimestamp"))
