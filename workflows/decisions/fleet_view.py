"""What the limits must know of the fleet, counted from the inventory."""

from __future__ import annotations

from collections import Counter

from activities.inventory import Node
from activities.names import FATE_RETIRED, FATE_WITH_PERSON, ROLE_HEAD
from workflows.cluster_messages import FleetView


def fleet_view(nodes: list[Node]) -> FleetView:
    """Count nodes per failure domain, usable ones per pool, and list who opted out.

    Head nodes run no rank: they are in no denominator. Usable is what runs and nobody has given up. A node in quarantine counts
    as usable in its pool here and is listed: whoever reads it leaves it out once, though it may be out by a grant too.
    """
    nodes = [node for node in nodes if node.role != ROLE_HEAD]
    usable = [node for node in nodes if node.state == "running" and node.fate not in (FATE_RETIRED, FATE_WITH_PERSON)]
    return FleetView(
        nodes=len(nodes),
        domains=dict(Counter(place for node in nodes for place in node.domains())),
        pools=dict(Counter(node.pool_name() for node in usable)),
        quarantined={node.instance_id: node.pool_name() for node in usable if node.quarantine},
        opted_out={node.instance_id: node.opt_out for node in nodes if node.opt_out},
    )
