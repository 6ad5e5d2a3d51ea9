"""Stand-ins for the inventory, the gateway and the pager of the processes' tests."""

from __future__ import annotations

import asyncio
from collections import Counter

from activities.clients.aliases import KnownNode, resolve_alias
from activities.errors import ProviderBusy
from activities.incidents import Joined, StartIncident
from activities.inventory import Node
from activities.names import incident_id, unresolved_id
from activities.notify import Page
from workers.intake.alerts import Alert


def node(number: int, role: str = "worker") -> Node:
    """A node with an instance id, a name and an address."""
    return Node(instance_id=f"i-{number:03}", name=f"node-{number}", ip=f"10.0.0.{number}", host=f"node-{number}", role=role)


class FakeInventory:
    """A fixed list of nodes, with the product's own alias rules."""

    def __init__(self, *nodes: Node) -> None:
        self.nodes = list(nodes)
        self.away = False
        self.resolved: Counter[str] = Counter()

    def resolve(self, cluster: str, alias: str) -> Node:
        self.resolved[alias] += 1
        self._answer()
        return resolve_alias([KnownNode(node) for node in self.nodes], alias, f"cluster {cluster}")

    def list(self, cluster: str) -> list[Node]:
        self._answer()
        return list(self.nodes)

    def _answer(self) -> None:
        if self.away:
            raise ProviderBusy("EC2 does not answer")


class FakeGateway:
    """Remembers what was reported. `away` makes it fail; clearing `open_door` makes it wait."""

    def __init__(self) -> None:
        self.reports: list[tuple[str, StartIncident]] = []
        self.calls: Counter[str] = Counter()
        self.away = False
        self.open_door = asyncio.Event()
        self.open_door.set()
        self.arrived = asyncio.Event()

    async def report_fault(self, start: StartIncident, instance_id: str) -> Joined:
        self.calls["report_fault"] += 1
        self.arrived.set()
        await self.open_door.wait()
        if self.away:
            raise ProviderBusy("Temporal does not answer")
        self.reports.append((instance_id, start))
        return Joined(workflow_id=incident_id(start.cluster, instance_id))

    async def observe(self, cluster: str, alert: Alert) -> Joined:
        self.calls["observe"] += 1
        return Joined(workflow_id=unresolved_id(cluster, alert.alias))


class FakePager:
    """Keeps pages."""

    def __init__(self) -> None:
        self.pages: list[Page] = []

    def send(self, page: Page) -> None:
        self.pages.append(page)
