"""Launches group runs with torchrun on every node, over each node's own access: no MPI, no SSH from node to node, no nccl-tests.

Node 0 is started last and prints the table, so a run is known when all of it is. While it runs, the others are looked at in turn:
a torchrun that ended early would leave the rest waiting for it until the deadline.
"""

from __future__ import annotations

import hashlib
import itertools
import zlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from activities.clients import torch_all_reduce
from activities.clients.launching import around, filled, over_rail, run_with_output, words_of
from activities.errors import BadInput, HotspareError
from activities.inventory import Node
from activities.node_access import LOST, AccessTo, DetachedRun
from activities.settings_burn_in import BurnInSettings

AT_ONCE = 16
"""Nodes spoken to side by side. Hotspare default: as many as are probed side by side."""

OTHERS_PER_LOOK = 8
"""Nodes beside the first that one look at a run takes in. Hotspare default: 256 nodes are seen in a minute."""


class TorchrunLauncher:
    """`BurnInLauncher` by the configured command on each node."""

    def __init__(self, access_to: AccessTo, settings: BurnInSettings) -> None:
        self._access_to, self._settings = access_to, settings
        self._program = Path(torch_all_reduce.__file__)
        self._digest = hashlib.sha256(self._program.read_bytes()).hexdigest()
        self._turn = itertools.count()

    def start(self, run_id: str, nodes: list[Node], deadline_s: float) -> None:
        self._start(run_id, nodes, deadline_s, {})

    def start_over(self, rail: int, run_id: str, nodes: list[Node], deadline_s: float) -> None:
        single, only = over_rail(nodes, rail)
        self._start(run_id, single, deadline_s, only)

    def _start(self, run_id: str, nodes: list[Node], deadline_s: float, more: Mapping[str, str]) -> None:
        lines = {node.name: self._command(run_id, nodes, place, more) for place, node in enumerate(nodes)}

        def start(node: Node) -> None:
            access = self._access_to(node)
            program = access.put(self._program, self._digest)
            access.start(run_id, [word.replace("{program}", program) for word in lines[node.name]], deadline_s)

        self._each(start, nodes[1:])
        start(nodes[0])

    def poll(self, run_id: str, nodes: Sequence[Node] = ()) -> DetachedRun:
        first = _first(nodes)
        run = run_with_output(self._access_to(first), run_id, self._settings)
        if run.known and run.exit_status is None and (ended := self._ended_early(run_id, nodes)):
            self.kill(run_id, nodes)
            return ended
        return run

    def kill(self, run_id: str, nodes: Sequence[Node] = ()) -> None:
        _first(nodes)
        self._each(lambda node: self._access_to(node).kill(run_id), nodes)

    def _command(self, run_id: str, nodes: list[Node], place: int, more: Mapping[str, str]) -> list[str]:
        words = words_of(self._settings, nodes) | {
            "{gpus}": str(nodes[place].gpus or self._settings.gpus_per_node),
            "{rank}": str(place),
            "{master}": nodes[0].ip or nodes[0].name,
            "{port}": str(self._settings.torch_port + zlib.crc32(run_id.encode()) % 1000),
        }
        return around(self._settings, filled(self._settings.torch_command, words), run_id, nodes, more)

    def _ended_early(self, run_id: str, nodes: Sequence[Node]) -> DetachedRun | None:
        """Return the run of another node that has failed already, with what it said."""
        others = list(nodes[1:])
        for _ in range(min(OTHERS_PER_LOOK, len(others))):
            node = others[next(self._turn) % len(others)]
            run = self._access_to(node).poll(run_id)
            if run.exit_status not in (None, 0):
                said = f"{run.output}\nthe part of the run on {node.name} ended with status {run.exit_status}\n"
                return run.model_copy(update={"output": said, "exit_status": _could_not_run(run)})
        return None

    def _each(self, act: Callable[[Node], None], nodes: Sequence[Node]) -> None:
        """Do something on all nodes side by side; the first failure is raised when all are through."""
        if not nodes:
            return
        with ThreadPoolExecutor(min(AT_ONCE, len(nodes)), thread_name_prefix="torchrun") as pool:
            done = [pool.submit(act, node) for node in nodes]
        failed = [error for one in done if (error := one.exception()) is not None]
        if failed:
            raise next((error for error in failed if isinstance(error, HotspareError)), failed[0])


def _first(nodes: Sequence[Node]) -> Node:
    if not nodes:
        raise BadInput("a run by torchrun is known by its nodes: none was named")
    return nodes[0]


def _could_not_run(run: DetachedRun) -> int | None:
    """A part that was lost says nothing of the whole: its status must not read as a host that restarted under it."""
    return 1 if run.exit_status == LOST else run.exit_status
