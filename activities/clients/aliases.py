"""Finds the one node behind an alias: instance id, name, host, private DNS name (full or short), IP; a port is ignored."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from activities.errors import BadInput, UnknownNode
from activities.inventory import Node

_HYPERPOD = re.compile(r"^hyperpod-(?P<instance>i-[0-9a-f]{8,17})$")
"""How HyperPod calls its nodes in Kubernetes."""
_PORT = re.compile(r"^(?P<host>[^:\[\]]+|\[[^\]]+\]):\d{1,5}$")


@dataclass(frozen=True)
class KnownNode:
    """A node with the names that its inventory entry does not carry, such as its private DNS name."""

    node: Node
    more_names: Sequence[str] = field(default_factory=tuple)

    def aliases(self) -> set[str]:
        """Every alias, in lower case. A DNS name counts in its short form too; an IP address has none."""
        node = self.node
        full = {
            name.strip().lower() for name in (node.instance_id, node.name, node.host, node.ip, *self.more_names) if name.strip()
        }
        return full | {name.split(".", 1)[0] for name in full if not _is_ip(name) and not name.startswith(".")}


def resolve_alias(known: Iterable[KnownNode], alias: str, place: str) -> Node:
    """Return the one node with this alias, in any case; `place` says in the error where was looked.

    A node whose instance id or name it is comes before nodes for which it is only a host name or address.
    """
    wanted = _without_port(alias.strip().lower())
    everybody = list(known)
    owners = [entry.node for entry in everybody if wanted in (entry.node.instance_id.lower(), entry.node.name.lower())]
    owners = owners or [entry.node for entry in everybody if wanted in entry.aliases()]
    if len(owners) == 1:
        return owners[0]
    if owners:
        which = ", ".join(sorted(f"{node.name} ({node.instance_id})" for node in owners))
        raise BadInput(f"{alias!r} means more than one node of {place}: {which}; use the instance id")
    raise UnknownNode(f"no node of {place} is called {alias!r}{_nearest(everybody, wanted)}")


def _without_port(alias: str) -> str:
    match = _PORT.match(alias)
    host = match.group("host").strip("[]") if match else alias
    hyperpod = _HYPERPOD.match(host)
    return hyperpod.group("instance") if hyperpod else host


def _is_ip(name: str) -> bool:
    return bool(re.fullmatch(r"[\d.]+", name)) or ":" in name


def _nearest(known: Sequence[KnownNode], wanted: str) -> str:
    names = sorted({alias for entry in known for alias in entry.aliases()})
    near = difflib.get_close_matches(wanted, names, n=3, cutoff=0.5)
    if near:
        return f"; did you mean {', '.join(near)}?"
    some = ", ".join(sorted(entry.node.name for entry in known)[:5])
    return f"; it has {some or 'no nodes at all'}"
