"""Network namespaces of nodes with a switch between them, under one random name; the kernel's own shapers slow their links."""

from __future__ import annotations

import contextlib
import ipaddress
import random
import secrets
from collections.abc import Sequence

from infra.lab.namespaces.tools import NotHere, tell

PREFIX = "hslab"
"""What the names of all namespaces and of the link on this machine's side begin with."""

SWITCH = "switch"
NETWORKS = list(ipaddress.IPv4Network("198.18.0.0/15").subnets(new_prefix=24))
"""Addresses of the nodes are of one of these: the range that RFC 2544 keeps for measurements, so nothing real has them."""

SHAPE_BURST = "32kb"
SHAPE_LATENCY = "400ms"

# $1 is the prefix of the namespaces' names. A process would keep its namespace alive, so processes go first.
REMOVAL = """for one in $(ip netns list | cut -d' ' -f1 | grep "^$1-"); do
  for pid in $(ip netns pids "$one"); do kill -9 "$pid" 2>/dev/null; done
  ip netns delete "$one"
done
"""


class Network:
    """A namespace for each node and one for the switch. This machine is on the switch too, to reach the nodes."""

    def __init__(self, nodes: Sequence[str]) -> None:
        self.name = f"{PREFIX}{secrets.token_hex(3)}"
        self.nodes = list(nodes)
        self.subnet = random.choice(NETWORKS)
        hosts = list(self.subnet.hosts())
        self.address = {node: str(host) for node, host in zip(self.nodes, hosts, strict=False)}
        self._outside = f"{hosts[-1]}/{self.subnet.prefixlen}"

    def namespace(self, node: str) -> str:
        """The name of a node's namespace, or of the switch's."""
        return f"{self.name}-{node}"

    async def make(self) -> None:
        """Make namespaces and links. Raises NotHere where the kernel refuses."""
        if str(self.subnet) in await tell("ip", "-4", "route", "list"):
            raise NotHere(f"{self.subnet} is in use on this machine; try again")
        await self._namespace(SWITCH)
        await self._in(SWITCH, "link", "add", "bridge", "type", "bridge")
        await self._in(SWITCH, "link", "set", "bridge", "up")
        for node in self.nodes:
            await self._namespace(node)
            port = self._port(node)
            await self._in(SWITCH, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", self.namespace(node))
            await self._in(SWITCH, "link", "set", port, "master", "bridge", "up")
            await self._in(node, "address", "add", f"{self.address[node]}/{self.subnet.prefixlen}", "dev", "eth0")
            await self._in(node, "link", "set", "eth0", "up")
        await tell("ip", "link", "add", self.name, "type", "veth", "peer", "name", "outside", "netns", self.namespace(SWITCH))
        await self._in(SWITCH, "link", "set", "outside", "master", "bridge", "up")
        await tell("ip", "address", "add", self._outside, "dev", self.name)
        await tell("ip", "link", "set", self.name, "up")

    async def remove(self) -> None:
        """End every process in the namespaces and delete them; the links go with them."""
        await tell("sh", "-c", REMOVAL, "sh", self.name)

    async def processes(self, node: str) -> list[int]:
        """Ids of the processes in a node's namespace."""
        return [int(word) for word in (await tell("ip", "netns", "pids", self.namespace(node))).split()]

    async def slow_node(self, node: str, mbits: float) -> None:
        """Let a node's link carry so many Mbit/s in either direction."""
        rate = ("root", "tbf", "rate", f"{mbits}mbit", "burst", SHAPE_BURST, "latency", SHAPE_LATENCY)
        await self._shape(node, "qdisc", "replace", "dev", "eth0", *rate)
        await self._shape(SWITCH, "qdisc", "replace", "dev", self._port(node), *rate)

    async def slow_path(self, one: str, other: str, mbits: float) -> None:
        """Let two nodes send each other so many Mbit/s; what they send to others keeps its rate."""
        for here, there in ((one, other), (other, one)):
            to = f"{self.address[there]}/32"
            await self._shape(here, "qdisc", "replace", "dev", "eth0", "root", "handle", "1:", "htb")
            await self._shape(
                here, "class", "add", "dev", "eth0", "parent", "1:", "classid", "1:1", "htb", "rate", f"{mbits}mbit"
            )
            await self._shape(
                here,
                *("filter", "add", "dev", "eth0", "parent", "1:", "protocol", "ip"),
                *("u32", "match", "ip", "dst", to, "flowid", "1:1"),
            )

    async def delay_node(self, node: str, mbits: float, delay_ms: float) -> None:
        """Let what a node sends be late and slow. Raises NotHere where the kernel has no netem."""
        await self._shape(
            node, "qdisc", "replace", "dev", "eth0", "root", "netem", "delay", f"{delay_ms}ms", "rate", f"{mbits}mbit"
        )

    async def mend(self) -> None:
        """Give every link its full rate again."""
        for node in self.nodes:
            for where, device in ((node, "eth0"), (SWITCH, self._port(node))):
                with contextlib.suppress(NotHere):  # it was not shaped
                    await self._shape(where, "qdisc", "delete", "dev", device, "root")

    def _port(self, node: str) -> str:
        """The switch's end of a node's link; a link's name has at most 15 characters."""
        return f"port{self.nodes.index(node)}"

    async def _namespace(self, node: str) -> None:
        await tell("ip", "netns", "add", self.namespace(node))
        await self._in(node, "link", "set", "lo", "up")

    async def _in(self, node: str, *words: str) -> str:
        return await tell("ip", "-n", self.namespace(node), *words)

    async def _shape(self, node: str, *words: str) -> str:
        return await tell("tc", "-n", self.namespace(node), *words)
