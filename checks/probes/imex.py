"""Which IMEX domain the node is in: on racks that are one NVLink domain, the nodes that share memory over NVLink by its file.

A node whose list differs from its peers', or does not name the node itself, cannot take part in a job over NVLink with them.
"""

from __future__ import annotations

import hashlib
import re
from typing import Optional

from checks.catalog import nvlink_kind
from checks.host import Host
from checks.parity.configuration import Fact, known, not_applicable, unreadable
from checks.probes.services import IMEX_PEERS

FIB_TRIE = "/proc/net/fib_trie"
"""Routes of the kernel; an address of the node itself is a /32 that is LOCAL. Source: net/ipv4/fib_trie.c of Linux."""

_LOCAL = re.compile(r"\|-- (\d+\.\d+\.\d+\.\d+)\n\s+/32 host LOCAL")


def imex_domain(host: Host, instance_type: str) -> Fact:
    """Return how many nodes the domain has, a short digest of which, and whether this node is among them."""
    if nvlink_kind(instance_type) != "rack":
        return not_applicable("only where a rack is one NVLink domain")
    text = host.read_text(IMEX_PEERS)
    if text is None:
        return unreadable(f"{IMEX_PEERS} could not be read; on Kubernetes the list is inside a container")
    peers = sorted({line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")})
    digest = hashlib.sha256("\n".join(peers).encode()).hexdigest()[:8]
    return known(f"{len(peers)} nodes ({digest}){_membership(own_addresses(host), peers)}")


def own_addresses(host: Host) -> Optional[frozenset[str]]:
    """Return the node's IPv4 addresses, None where they could not be read."""
    text = host.read_text(FIB_TRIE)
    return frozenset(_LOCAL.findall(text)) if text else None


def _membership(own: Optional[frozenset[str]], peers: list[str]) -> str:
    """Names are not resolved here: where the file has names, nothing is said."""
    if own is None or not all(re.fullmatch(r"[0-9.]+", peer) for peer in peers):
        return ""
    return "" if own & set(peers) else ", without this node"
