"""What group runs have left on nodes: ours, of a run that is over, is ended; somebody else's is named and never touched."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait

from temporalio import activity

from activities.active_tests import GpuUse
from activities.clock import beat
from activities.errors import FinalError, TransientError
from activities.inventory import Node
from activities.node_access import AccessTo
from checks.node_scripts import END_RUN

AT_ONCE = 16
"""Nodes spoken to side by side. Hotspare default: as many as are probed side by side."""

END_S = 15.0
"""Seconds that a node has to end what is left of a run: it is asked for 5, and made to in 5 more."""

SWEEP_S = 30.0
"""Seconds for all nodes after a run was cancelled; what is not reached by then is found before the next run. Hotspare default."""

BEAT_S = 0.5

WHAT_TO_DO = "find out whose these processes are, end them on their node (sudo kill PID), and burn in again"


class Leftovers:
    """Ends processes of group runs on nodes. `python` is the nodes' Python."""

    def __init__(self, access_to: AccessTo, python: str = "python3") -> None:
        self._access_to, self._python = access_to, python

    def end(self, run_id: str, nodes: Sequence[Node], limit_s: float = SWEEP_S) -> dict[str, str]:
        """End what is left of a run on these nodes; returns why it could not be done, by the node's name."""
        pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="end of a group run")
        try:
            asked = {pool.submit(self._end_on, node, run_id): node.name for node in nodes}
            left, waited = set(asked), 0.0
            while left and waited < limit_s:
                left = set(wait(left, BEAT_S).not_done)
                waited += BEAT_S
                beat()
            failed = {asked[one]: one.result() for one in asked if one not in left}
            late = {asked[one]: f"no answer within {limit_s:.0f} s" for one in left}
            return {name: why for name, why in (failed | late).items() if why}
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _end_on(self, node: Node, run_id: str) -> str:
        try:
            done = self._access_to(node).run([self._python, "-I", "-c", END_RUN, run_id], END_S)
            told = json.loads(done.stdout)
        except (TransientError, FinalError, ValueError) as error:
            return str(error)[:300] or type(error).__name__
        if told["left"]:
            return f"pid {', '.join(map(str, told['left']))} cannot be ended: root's, or stuck in the kernel"
        return ""


def runs_left(uses: Mapping[str, GpuUse], run_id: str) -> dict[str, list[str]]:
    """Which of our runs other than `run_id` have left something, and on which nodes."""
    found: dict[str, list[str]] = {}
    for name, use in uses.items():
        for run in dict.fromkeys(one.run for one in use.left if one.run and one.run != run_id):
            found.setdefault(run, []).append(name)
    return found


def without_run(use: GpuUse, run_id: str) -> GpuUse:
    """Leave out what this very run has started already: an earlier try got so far."""
    mine = [one for one in use.left if one.run == run_id]
    if not mine or use.processes is None:
        return use
    held = sum(len(one.gpus) for one in mine)
    return GpuUse(max(0, use.processes - held), use.why, tuple(one for one in use.left if one.run != run_id))


def cleared(
    leftovers: Leftovers,
    goes_on: Callable[[str, Node], bool],
    look: Callable[[Sequence[Node]], dict[str, GpuUse]],
    nodes: Sequence[Node],
    run_id: str,
) -> tuple[dict[str, GpuUse], dict[str, list[str]]]:
    """Look at the nodes, and end what runs of ours that are over have left there.

    Returns the use of each node's GPUs afterwards, and what stands in the way by the node's name. `goes_on` says whether a run is
    still at work, as far as its launcher knows.
    """
    uses, by_name = look(nodes), {node.name: node for node in nodes}
    hindered: dict[str, list[str]] = {}
    for run, names in runs_left(uses, run_id).items():
        over = [by_name[name] for name in names if not goes_on(run, by_name[name])]
        for name in names:
            if by_name[name] not in over:
                hindered.setdefault(name, []).append(f"our own run {run} is still at work on {name}; cancel its burn-in first")
        for name, why in leftovers.end(run, over).items():
            hindered.setdefault(name, []).append(f"what run {run} has left on {name} could not be ended: {why}")
        if over:
            uses |= look(over)
        for name in (node.name for node in over):
            still = [one.pid for one in uses[name].left if one.run == run]
            if still and name not in hindered:
                why = f"pid {', '.join(map(str, still))} of run {run} is still on {name}: another login's, which ours cannot end"
                hindered.setdefault(name, []).append(why)
            elif not still:
                activity.logger.info("ended what run %s had left on %s", run, name)
    return {name: without_run(use, run_id) for name, use in uses.items()}, hindered
