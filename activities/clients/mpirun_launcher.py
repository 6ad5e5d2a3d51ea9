"""Launches group runs of all_reduce_perf with mpirun on one host, detached, over that host's node access."""

from __future__ import annotations

from collections.abc import Callable

from activities.errors import CapabilityMissing
from activities.inventory import Node
from activities.node_access import DetachedRun, NodeAccess
from activities.settings import BurnInSettings


class MpirunLauncher:
    """`BurnInLauncher` by the configured command. `access_to_host` gives the access to the launch host at each call."""

    def __init__(self, access_to_host: Callable[[], NodeAccess], settings: BurnInSettings) -> None:
        self._access_to_host = access_to_host
        self._settings = settings

    def start(self, run_id: str, nodes: list[Node], deadline_s: float) -> None:
        self._access_to_host().start(run_id, group_command(self._settings, nodes), deadline_s)

    def poll(self, run_id: str) -> DetachedRun:
        return self._access_to_host().poll(run_id)

    def kill(self, run_id: str) -> None:
        self._access_to_host().kill(run_id)


def group_command(settings: BurnInSettings, nodes: list[Node]) -> list[str]:
    """Fill the ranks and hosts into the configured command. Hosts are named as the launch host knows them: by node name."""
    if not nodes:
        raise CapabilityMissing("a group run needs at least one node")
    slots = [(node.name, node.gpus or settings.gpus_per_node) for node in nodes]
    words = {
        "{ranks}": str(sum(count for _, count in slots)),
        "{hosts}": ",".join(f"{name}:{count}" for name, count in slots),
    }
    return [words.get(part, part) for part in settings.command]
