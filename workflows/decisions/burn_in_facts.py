"""What is asked of the burn-in's plan, and what it answers."""

from __future__ import annotations

from activities.message import Message
from checks.model import Verdict
from workflows.decisions.burn_in_runs import RunDone


class BurnInFacts(Message):
    """The node set in the order of the ring, all runs so far, and what is known of the nodes.

    `fresh` are nodes new to the job, tried beside others before the group. `switches` says which network switch a node hangs on.
    `every_pair`: do not stop at a group that passes, but try each node beside each other. `rails` is how many rails can be run
    one by one; 0 where the nodes are not alike, or cannot be run so. `by_hand`: no recovery of a job needs it.
    """

    nodes: list[str]
    runs: list[RunDone] = []
    fresh: list[str] = []
    switches: dict[str, str] = {}
    elapsed_s: float = 0.0
    every_pair: bool = False
    rails: int = 0
    by_hand: bool = False


class BurnInNext(Message):
    """The next round's disjoint groups; or, when `done`, the verdict and the nodes to leave out, each with the reason.

    `bad_paths` are pairs of nodes that pass with others and fail together; one end of each is in `bad`, so that the rest can run.
    `corrupt` are the bad nodes whose runs gave wrong results; `next` is what a person does about it all. `rails` says over which
    rail each group runs, empty where all run over all of them; `bad_rails` are those that are slow whatever the nodes.
    """

    groups: list[list[str]] = []
    rails: list[int] = []
    done: bool = False
    verdict: Verdict = Verdict.UNKNOWN
    cause: str = ""
    because: list[str] = []
    bad: dict[str, str] = {}
    bad_paths: list[list[str]] = []
    bad_rails: list[int] = []
    corrupt: list[str] = []
    next: str = ""


def only_observed(cluster: str) -> BurnInNext:
    """The end of a burn-in by hand where nothing may be done to any node: a test puts load on them, whoever asks for it."""
    return BurnInNext(
        done=True,
        cause="only_observed",
        because=[f"the cluster {cluster} is only observed, and a burn-in puts load on nodes: nothing was started"],
        next='set policy.mode = "approve", or what may be done to one class of faults with hotspare promote',
    )
