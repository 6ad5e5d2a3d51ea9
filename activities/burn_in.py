"""One all-reduce run over a group of nodes: start it detached, poll it, judge its output, kill it on cancel."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from temporalio import activity
from temporalio.exceptions import CancelledError

from activities.active_tests import WHAT_TO_DO, ActiveTestGate, only_in_use
from activities.clock import Clock, SystemClock, beat, waited_before
from activities.effects import refuse_if_late
from activities.errors import CapabilityMissing, as_application_error
from activities.inventory import Node
from activities.learned_bandwidth import LearnedFloors, LearnedLookUp
from activities.leftovers import WHAT_TO_DO as END_THEM
from activities.leftovers import Leftovers, cleared
from activities.message import Message
from activities.node_access import LOST, DetachedRun
from activities.settings_burn_in import BurnInSettings
from checks.judges.nccl_log import read_log
from checks.judges.nccl_tests import judge
from checks.model import Verdict
from checks.probes.leftovers import LEFTOVER_PROCESSES

KILL_GRACE_S = 15.0
"""Seconds past its deadline after which a run that the node should have ended is ended from here. Hotspare default."""

EVIDENCE_LIMIT = 2000
"""Characters of evidence that enter history. Hotspare default: a few lines; the whole output stays on the launch host."""


class GroupTest(Message):
    """Run the all-reduce over `nodes` as one group. `run_id` makes it resumable: the same id is never run twice.

    Without `deadline_s` the setting burn_in.deadline_s holds. With `rail` one GPU of each node takes part, that with this local
    index, so that only its network adapter carries the traffic between nodes.
    """

    cluster: str
    run_id: str
    nodes: list[Node]
    deadline_s: float | None = None
    rail: int | None = None


class GroupTestResult(Message):
    """Judgement of a group run. `cause` is a word of the judges: healthy, low_bandwidth, data_corruption, hang, could_not_run...

    `culprits` is what the output itself blames ("host node-3"), or the nodes that kept the run from being started; `next` is what
    to do about it. `drift` says how far the run is from clean ones of its kind, which are remembered under `kind`; both are empty
    where it can be compared with none. `transport` is what NCCL's log says of the way to the network ("efa", "sockets"),
    empty where it is silent; `log` has a few of its lines where a run did not pass.
    """

    verdict: Verdict
    cause: str
    busbw_gbs: float | None = None
    floor_gbs: float | None = None
    floor_source: str = ""
    wrong: int | None = None
    evidence: str = ""
    culprits: list[str] = []
    next: str = ""
    kind: str = ""
    drift: str = ""
    transport: str = ""
    log: list[str] = []


class BurnInLauncher(Protocol):
    """Starts `all_reduce_perf` over a group of nodes. Raises NodeUnreachable (of the launch host), CapabilityMissing.

    `nodes` are those of the run, in the same order; launchers that keep runs in one place do without them.
    """

    def start(self, run_id: str, nodes: list[Node], deadline_s: float) -> None: ...

    def poll(self, run_id: str, nodes: Sequence[Node] = ()) -> DetachedRun: ...

    def kill(self, run_id: str, nodes: Sequence[Node] = ()) -> None: ...


@runtime_checkable
class RailLauncher(Protocol):
    """A launcher that can also take one GPU of each node, that with a given local index, so that one rail carries all traffic."""

    def start_over(self, rail: int, run_id: str, nodes: list[Node], deadline_s: float) -> None: ...


class BurnInActivities:
    """Group runs of the all-reduce, judged. None is started on a node that is not free and ours."""

    def __init__(
        self,
        launcher: BurnInLauncher,
        gate: ActiveTestGate,
        settings: BurnInSettings,
        clock: Clock | None = None,
        learned: LearnedFloors | None = None,
    ) -> None:
        self._learned = learned
        self._leftovers = Leftovers(gate.access_to, settings.python)
        self._launcher = launcher
        self._gate = gate
        self._settings = settings
        self._clock = clock or SystemClock()

    @activity.defn
    def group_test(self, request: GroupTest) -> GroupTestResult:
        """Run the all-reduce over a group and judge it; a run that an earlier attempt started is taken up again."""
        with as_application_error():
            deadline_s = self._settings.deadline_s if request.deadline_s is None else request.deadline_s
            group = GroupRuns(self._launcher, self._leftovers, request.nodes)
            if not group.poll(request.run_id).known:
                if refusal := self._refusal(request):
                    return refusal
                refuse_if_late()
                self._start(request, deadline_s)
            run = await_run(group, request.run_id, deadline_s, self._settings.poll_s, self._clock)
            learned = self._learned.of(request.cluster, request.nodes) if self._learned else None
            one_rail = request.rail is not None
            return judged(run, request.nodes, self._settings.floors_gbs, learned, one_rail=one_rail, ranks=self._asked(request))

    def _asked(self, request: GroupTest) -> int:
        """How many ranks the launcher was asked for."""
        if request.rail is not None:
            return len(request.nodes)
        return sum(node.gpus or self._settings.gpus_per_node for node in request.nodes)

    def _refusal(self, request: GroupTest) -> GroupTestResult | None:
        """Say why the run must not start, None where it may; what our own earlier runs have left is ended first."""
        look, nodes = self._gate.look, request.nodes
        uses, hindered = cleared(self._leftovers, self._goes_on, look, nodes, request.run_id)
        refusals = self._gate.refusals(nodes, uses)
        if not refusals and not hindered:
            return None
        reasons = [*sum(refusals.values(), list[str]()), *sum(hindered.values(), list[str]())]
        by_others = only_in_use(sum(refusals.values(), list[str]()))
        return GroupTestResult(
            verdict=Verdict.UNKNOWN,
            cause=LEFTOVER_PROCESSES if by_others else "could_not_run",
            evidence=f"not started: {'; '.join(reasons)}"[:EVIDENCE_LIMIT],
            culprits=[f"host {name}" for name in dict.fromkeys([*refusals, *hindered])],
            next=END_THEM if by_others else WHAT_TO_DO,
        )

    def _goes_on(self, run_id: str, node: Node) -> bool:
        run = self._launcher.poll(run_id, [node])
        return run.known and run.exit_status is None

    def _start(self, request: GroupTest, deadline_s: float) -> None:
        if request.rail is None:
            self._launcher.start(request.run_id, request.nodes, deadline_s)
        elif isinstance(self._launcher, RailLauncher):
            self._launcher.start_over(request.rail, request.run_id, request.nodes, deadline_s)
        else:
            raise CapabilityMissing(f'burn_in.launcher = "{self._settings.launcher}" runs no single rail')


class Runs(Protocol):
    """What `await_run` needs of a launcher or a node access."""

    def poll(self, run_id: str) -> DetachedRun: ...

    def kill(self, run_id: str) -> None: ...


class GroupRuns:
    """A launcher as `Runs` of one group. After a kill nothing of the run is left on its nodes, whatever the launcher did."""

    def __init__(self, launcher: BurnInLauncher, leftovers: Leftovers, nodes: list[Node]) -> None:
        self._launcher, self._leftovers, self._nodes = launcher, leftovers, nodes

    def poll(self, run_id: str) -> DetachedRun:
        return self._launcher.poll(run_id, self._nodes)

    def kill(self, run_id: str) -> None:
        try:
            self._launcher.kill(run_id, self._nodes)
        finally:
            failed = self._leftovers.end(run_id, self._nodes)
        for name, why in failed.items():
            activity.logger.warning("what run %s has left on %s could not be ended: %s", run_id, name, why)


def await_run(runs: Runs, run_id: str, deadline_s: float, poll_s: float, clock: Clock) -> DetachedRun:
    """Poll a detached run to its end, or end it at the deadline (`exit_status` None then).

    A cancelled wait ends the run; a worker that shuts down leaves it running for the next attempt.
    """
    before, since = waited_before(), clock.now()
    try:
        while True:
            run = runs.poll(run_id)
            waited = before + clock.now() - since
            if run.exit_status is not None or not run.known:
                return run
            if waited >= deadline_s + KILL_GRACE_S:
                runs.kill(run_id)
                return run
            beat(waited)
            clock.wait(poll_s)
    except CancelledError:
        if _nobody_waits():
            with activity.shield_thread_cancel_exception():
                runs.kill(run_id)
        raise


def _nobody_waits() -> bool:
    """Tell a cancelled or closed workflow from a shutdown, time-out, pause or reset, after which the run is taken up again."""
    why = activity.cancellation_details()
    return why is not None and (why.cancel_requested or why.not_found) and not why.worker_shutdown


def judged(
    run: DetachedRun,
    nodes: list[Node],
    floors_gbs: dict[str, float],
    learned: LearnedLookUp | None = None,
    *,
    one_rail: bool = False,
    ranks: int | None = None,
) -> GroupTestResult:
    """Judge the output of an all-reduce run over `nodes`."""
    if not run.known:
        return GroupTestResult(
            verdict=Verdict.UNKNOWN, cause="could_not_run", evidence=f"run {run.run_id} is not known on the launch host"
        )
    if run.exit_status == LOST:
        why = f"run {run.run_id} ended without a status: its host restarted, or it was killed"
        return GroupTestResult(verdict=Verdict.UNKNOWN, cause="could_not_run", evidence=why)
    seen = judge(run.output, nodes[0].instance_type, len(nodes), run.exit_status, floors_gbs, learned, one_rail, ranks)
    log = read_log(run.output)
    passed = seen.verdict is Verdict.OK
    evidence = seen.evidence if passed or log.warning is None else f"{seen.evidence}; {log.warning}"
    return GroupTestResult(
        verdict=seen.verdict,
        cause=seen.cause,
        busbw_gbs=seen.busbw_gbs,
        floor_gbs=seen.floor_gbs,
        floor_source=seen.floor_source,
        wrong=seen.wrong,
        evidence=_with_names(evidence, nodes)[:EVIDENCE_LIMIT],
        culprits=[_with_names(one, nodes, "{name}") for one in seen.culprits],
        next=seen.next,
        kind=learned.key if learned else "",
        drift=seen.drift,
        transport=log.transport,
        log=[] if passed else list(log.kept),
    )


def _with_names(text: str, nodes: list[Node], form: str = "{name} ({ip})") -> str:
    """Name the nodes of which a launcher tells the address alone: ssh speaks of hosts as its configuration resolves them."""
    for node in nodes:
        if node.ip and node.ip in text:
            alone = rf"(?<![\w.]){re.escape(node.ip)}(?!\w|\.\d)"
            text = re.sub(alone, form.format(name=node.name, ip=node.ip), text)
    return text
