"""Launches group runs of all_reduce_perf with mpirun on one host, detached, over that host's node access."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from activities.clients.launching import around, filled, over_rail, run_with_output, words_of
from activities.inventory import Node
from activities.node_access import DetachedRun, NodeAccess
from activities.settings_burn_in import BurnInSettings


class MpirunLauncher:
    """`BurnInLauncher` by the configured command. `access_to_host` gives the access to the launch host at each call."""

    def __init__(self, access_to_host: Callable[[], NodeAccess], settings: BurnInSettings) -> None:
        self._access_to_host = access_to_host
        self._settings = settings

    def start(self, run_id: str, nodes: list[Node], deadline_s: float) -> None:
        self._access_to_host().start(run_id, group_command(self._settings, nodes, run_id), deadline_s)

    def start_over(self, rail: int, run_id: str, nodes: list[Node], deadline_s: float) -> None:
        self._access_to_host().start(run_id, rail_command(self._settings, rail, nodes, run_id), deadline_s)

    def poll(self, run_id: str, nodes: Sequence[Node] = ()) -> DetachedRun:
        return run_with_output(self._access_to_host(), run_id, self._settings)

    def kill(self, run_id: str, nodes: Sequence[Node] = ()) -> None:
        self._access_to_host().kill(run_id)


def group_command(settings: BurnInSettings, nodes: list[Node], run_id: str) -> list[str]:
    """Fill the ranks and hosts into the configured command. Hosts are named as the launch host knows them: by node name."""
    return around(settings, filled(settings.command, words_of(settings, nodes)), run_id, nodes)


def rail_command(settings: BurnInSettings, rail: int, nodes: list[Node], run_id: str) -> list[str]:
    """The same over one rail: one rank a node."""
    single, only = over_rail(nodes, rail)
    return around(settings, filled(settings.command, words_of(settings, single)), run_id, single, only)
