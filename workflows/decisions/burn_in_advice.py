"""What a person does next about a burn-in, by what its runs showed: wrong results, a hang and a slow group are three things."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from checks.judges import judgement as causes
from checks.probes.leftovers import LEFTOVER_PROCESSES
from workflows.decisions.burn_in_runs import NOT_ABOUT_NODES, RunDone, passed

ADVICE = {
    causes.DATA_CORRUPTION: "numbers came out wrong, and so may be what was trained on these nodes: choose the checkpoint to go "
    "on from, the last one before the first sign of it",
    causes.HANG: "a group stood still: see in the run's output on the launch host which rank fell behind, then its kernel log",
    causes.GPU_ERROR: "a GPU failed under load: hotspare diagnose NODE for each node that the output names",
    causes.NETWORK_ERROR: "a connection broke: look at the adapter and the peer that the output names, then at their switch",
    causes.LOW_BANDWIDTH: "a group is slow: hotspare burn-in NODE... --diagnose tries each pair and draws which are slow",
    LEFTOVER_PROCESSES: "processes hold GPUs although no job has the nodes: find out whose they are, end them, and burn in again",
    causes.WRONG_TRANSPORT: "NCCL does not use EFA: mend the plug-in, its libraries or FI_PROVIDER on these nodes; no node is at "
    "fault, none is to be replaced",
    causes.CONFIGURATION: "the run has no measure, or the nodes are not set up alike: do what its evidence names; none is to be "
    "replaced",
    causes.COULD_NOT_RUN: "the test did not start: mend the launcher or the host that its last line names, then burn in again; "
    "it says nothing about the hardware",
    causes.UNREADABLE: "the output could not be read: see it on the launch host, then burn in again",
}
"""Next steps by cause."""

BAD_NODES = "bad_nodes"
"""How a burn-in ends that found which nodes or paths are bad."""

BAD_NODE, BAD_PATH = "bad node", "bad path"
"""What a node is left out for: its own fault, or the path between it and another node that is good too."""

ABOUT_SLOW_ONES = (
    "what is named is slow, and the rest passed: look at its adapters, cables and switch ports, then burn it in again before a "
    "job uses it"
)

BAD_RAILS = "bad_rails"
"""How a burn-in ends that found a rail slow everywhere."""

ABOUT_RAILS = "one rail is slow for all: have its switch and cables looked at, then burn in again; no node is to be replaced"

SAME_AS = {causes.TOOL_TIMEOUT: causes.HANG}
"""The test's own time limit is a hang that the tool noticed itself."""

WORST_FIRST = (
    causes.DATA_CORRUPTION,
    causes.GPU_ERROR,
    causes.HANG,
    causes.TOOL_TIMEOUT,
    causes.NETWORK_ERROR,
    causes.LOW_BANDWIDTH,
)
"""Where groups failed in several ways, the first of these is what a person must hear of."""


def worst_failure(runs: Iterable[RunDone]) -> str:
    """The cause that matters most among the runs that failed, empty where none did."""
    seen = {run.cause for run in runs if not passed(run) and run.cause not in NOT_ABOUT_NODES}
    return next((cause for cause in WORST_FIRST if cause in seen), "")


def advice(cause: str, runs: Sequence[RunDone]) -> str:
    """What to do next about a burn-in that ended with this cause; empty where all is well."""
    if cause == BAD_RAILS:
        return ABOUT_RAILS
    about = cause if cause in ADVICE or cause in SAME_AS else worst_failure(runs)
    if cause == BAD_NODES and about == causes.LOW_BANDWIDTH:
        return ABOUT_SLOW_ONES
    return ADVICE.get(SAME_AS.get(about, about), "")


def with_wrong_results(bad: Iterable[str], runs: Sequence[RunDone]) -> list[str]:
    """Which of the bad nodes took part in a run with wrong results: the others of that run passed elsewhere."""
    wrong = {node for run in runs if run.cause == causes.DATA_CORRUPTION and not passed(run) for node in run.nodes}
    return [node for node in bad if node in wrong]
