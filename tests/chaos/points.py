"""Points of FakeFleet at which one step of a story is disturbed: every call is recorded, and one chosen call goes wrong.

A step is named by who makes the call and which call it is, never by a time: the workflow, the activity and its number in that
workflow, the point, the node, and the number of the call in the activity.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from temporalio import activity

from activities.clients.fake_points import Points
from activities.errors import CommandFailed, HotspareError, NodeUnreachable, ProviderBusy

T = TypeVar("T")

PATIENCE_S = 120.0
"""Seconds after which a call that nobody lets go is an error of the harness."""


class Kind(StrEnum):
    """What goes wrong at the chosen call."""

    KILLED_BEFORE = "worker killed before it"
    KILLED_AFTER = "worker killed after it"
    FAILS_ONCE = "fails once"
    FAILS_FOR_GOOD = "fails for good"
    HANGS = "hangs, is made late"
    ANSWER_LOST = "answer lost"
    CANCELLED = "incident cancelled at it"


@dataclass(frozen=True)
class StepKey:
    """One call of one story, the same in every run of it."""

    workflow: str
    activity: str
    nth: int
    point: str
    node: str
    call: int

    def __str__(self) -> str:
        number = f" #{self.nth}" if self.nth > 1 else ""
        again = f" ({self.call})" if self.call > 1 else ""
        return f"{self.workflow}: {self.activity}{number}: {self.point} {self.node}".rstrip() + again


@dataclass(frozen=True)
class Caller:
    """The attempt that makes a call. `worker` is the number of the worker's generation."""

    workflow_id: str
    run_id: str
    activity_id: str
    attempt: int
    worker: int


@dataclass(frozen=True)
class Made:
    """A call that was carried out, in the order of all."""

    point: str
    node: str
    activity: str


class KilledWorker(BaseException):
    """Ends the thread of an activity whose worker is dead: a dead process makes no further call."""


LOOKS = frozenset(
    {"describe", "describe_cluster", "status", "boot_id", "poll", "put", "group.poll", "job.find", "job.status", "inventory"}
    | {"console", "memory.recall", "memory.gpus", "memory.freezes", "memory.bandwidths", "gateway.survey"}
)
"""Points that change nothing. Of one activity's repeated looks at the same thing the first stands for all."""

SAID_AGAIN = frozenset({"job.supply", "job.leave"})
"""Points at which an activity says the same with every look: the first stands for all."""

WAITS_FOR_OTHERS = frozenset({"await_rank"})
"""Activities that wait for what another workflow does, and so are no sign of work in their own."""

LOOK_KINDS = (Kind.KILLED_BEFORE, Kind.FAILS_ONCE, Kind.FAILS_FOR_GOOD, Kind.HANGS, Kind.CANCELLED)
"""What can go wrong with a look: where nothing is changed, a lost answer is a failure, and killed is killed."""

CHANGING_COMMANDS = frozenset({"quarantine_write", "quarantine_remove", "reset", "reboot"})


def is_look(point: str) -> bool:
    """Whether a call at the point changes nothing."""
    return point in LOOKS or (point.startswith("run.") and point.removeprefix("run.") not in CHANGING_COMMANDS)


def error_of(point: str) -> HotspareError:
    """The typed error with which a client tells that this call did not get through."""
    if point.startswith("job."):
        return CommandFailed(f"{point}: exit status 255: the head node closed the connection")
    over_ssh = point.startswith(("run.", "group.")) or point in {"boot_id", "put", "start", "poll", "kill"}
    return NodeUnreachable(f"{point}: connection timed out") if over_ssh else ProviderBusy(f"{point}: connection reset by peer")


class Disturbance:
    """One kind of failure at one step. The harness sees when it is `reached`, and lets a stopped call `go`."""

    def __init__(self, key: StepKey, kind: Kind) -> None:
        self.key, self.kind = key, kind
        self.victim: Caller | None = None
        self.taken_over = False
        self.ended = False
        self._go = threading.Event()
        self._lock = threading.Lock()

    @property
    def reached(self) -> bool:
        """Whether the chosen call has arrived."""
        return self.victim is not None

    @property
    def stopped(self) -> bool:
        """Whether the chosen call stands still now."""
        return stands_still(self) and self.reached and not self._go.is_set()

    def claim(self, caller: Caller) -> bool:
        """Take the first call that fits."""
        with self._lock:
            if self.victim is not None:
                return False
            self.victim = caller
            return True

    def note(self, caller: Caller) -> None:
        """See whether another attempt has taken the stopped one's place."""
        victim = self.victim
        if victim is None or caller == victim:
            return
        if (caller.workflow_id, caller.run_id, caller.activity_id) == (victim.workflow_id, victim.run_id, victim.activity_id):
            self.taken_over = True

    def go(self) -> None:
        """Let the stopped call go on."""
        self._go.set()

    def wait(self) -> None:
        """Stand still, without a sign of life, until told to go."""
        if not self._go.wait(PATIENCE_S):
            raise RuntimeError(f"nobody let {self.key} go on")

    async def wait_in_loop(self) -> None:
        """The same for a call that is made on the event loop."""
        until = time.monotonic() + PATIENCE_S
        while not self._go.is_set():
            if time.monotonic() > until:
                raise RuntimeError(f"nobody let {self.key} go on")
            await asyncio.sleep(0.01)


def stands_still(disturbance: Disturbance | None) -> bool:
    """Whether the call of a disturbance is one that stands still for a while."""
    stops = (Kind.HANGS, Kind.KILLED_BEFORE, Kind.KILLED_AFTER, Kind.CANCELLED)
    return disturbance is not None and disturbance.kind in stops


def is_lost_letter(disturbance: Disturbance | None) -> bool:
    """Whether letters to a workflow fail for good: what tries them again is a local activity, for which no time is skipped."""
    if disturbance is None or disturbance.kind is not Kind.FAILS_FOR_GOOD:
        return False
    return disturbance.key.activity in ("post", "post_to_cluster")


class ChaosPoints(Points):
    """Records every call that an activity makes, and disturbs one. `label` gives a workflow id its name in steps."""

    def __init__(self, label: Callable[[str], str], name_of: Callable[[str], str]) -> None:
        super().__init__()
        self.steps: list[StepKey] = []
        self.made: list[Made] = []
        self.workflows: set[str] = set()
        self.dead: set[int] = set()
        self.worker = 1
        self.disturbance: Disturbance | None = None
        self.last_call = 0.0
        self._label, self._name_of = label, name_of
        self._seen: set[StepKey] = set()
        self._activities: dict[tuple[str, str], dict[tuple[str, str], int]] = {}
        self._calls: Counter[tuple[Caller, str, str]] = Counter()
        self._book = threading.Lock()

    @property
    def holding(self) -> bool:
        """Whether a call is held now: clocks of activities stand still meanwhile."""
        return super().holding or (self.disturbance is not None and self.disturbance.stopped)

    @property
    def different(self) -> int:
        """How many different calls there were: one that is tried again is no other."""
        return len(self._seen)

    def carry_out(self, point: str, node: str, effect: Callable[[], T]) -> T:
        """Make one call of an activity's thread, or have it go wrong."""
        if not activity.in_activity():
            return super().carry_out(point, node, effect)
        worker = self._worker()
        caller, key = self._enter(point, node, worker)
        kind = self._disturb(caller, key)

        def make() -> T:
            return super(ChaosPoints, self).carry_out(point, node, self._noted(point, node, effect))

        if kind is None:
            answer = make()
            self._refuse_dead(worker)
            return answer
        disturbance = self._disturbing()
        if kind is Kind.KILLED_AFTER:
            make()
        if kind in (Kind.KILLED_BEFORE, Kind.KILLED_AFTER):
            disturbance.wait()
            raise KilledWorker
        if kind in (Kind.HANGS, Kind.CANCELLED):
            disturbance.wait()
            return make()
        if kind is Kind.ANSWER_LOST:
            make()
        raise error_of(point)

    async def carry_out_async(self, point: str, node: str, worker: int, effect: Callable[[], Awaitable[T]]) -> T:
        """The same for a call that is made on the event loop."""
        if not activity.in_activity():
            return await effect()
        caller, key = self._enter(point, node, worker)
        kind = self._disturb(caller, key)

        async def make() -> T:
            answer = await effect()
            self._note_made(point, node)
            return answer

        if kind is None:
            answer = await make()
            self._refuse_dead(worker)
            return answer
        disturbance = self._disturbing()
        if kind is Kind.KILLED_AFTER:
            await make()
        if kind in (Kind.KILLED_BEFORE, Kind.KILLED_AFTER):
            await disturbance.wait_in_loop()
            raise asyncio.CancelledError
        if kind in (Kind.HANGS, Kind.CANCELLED):
            return await asyncio.shield(asyncio.ensure_future(self._late(disturbance, make)))
        if kind is Kind.ANSWER_LOST:
            await make()
        raise error_of(point)

    @staticmethod
    async def _late(disturbance: Disturbance, make: Callable[[], Awaitable[T]]) -> T:
        await disturbance.wait_in_loop()
        return await make()

    def _disturbing(self) -> Disturbance:
        assert self.disturbance is not None
        return self.disturbance

    def _noted(self, point: str, node: str, effect: Callable[[], T]) -> Callable[[], T]:
        def noted() -> T:
            answer = effect()
            self._note_made(point, node)
            return answer

        return noted

    def _note_made(self, point: str, node: str) -> None:
        with self._book:
            self.made.append(Made(point, self._name_of(node), activity.info().activity_type if activity.in_activity() else ""))

    def _worker(self) -> int:
        """Number of the worker whose thread this is; helpers of an activity count as the present one's."""
        name = threading.current_thread().name
        return int(name.removeprefix("worker-").split("_")[0]) if name.startswith("worker-") else self.worker

    def _refuse_dead(self, worker: int) -> None:
        if worker in self.dead:
            raise KilledWorker

    def _enter(self, point: str, node: str, worker: int) -> tuple[Caller, StepKey]:
        self._refuse_dead(worker)
        info = activity.info()
        if info.activity_type not in WAITS_FOR_OTHERS:
            self.last_call = time.monotonic()
        workflow_id, run_id = info.workflow_id or "", info.workflow_run_id or ""
        caller = Caller(workflow_id, run_id, info.activity_id, info.attempt, worker)
        label = self._label(workflow_id)
        with self._book:
            self.workflows.add(workflow_id)
            numbers = self._activities.setdefault((label, info.activity_type), {})
            nth = numbers.setdefault((run_id, info.activity_id), len(numbers) + 1)
            self._calls[caller, point, node] += 1
            call = self._calls[caller, point, node]
            first = is_look(point) or point in SAID_AGAIN
            key = StepKey(label, info.activity_type, nth, point, self._name_of(node), 1 if first else call)
            if key not in self._seen:
                self._seen.add(key)
                self.steps.append(key)
        return caller, key

    def _disturb(self, caller: Caller, key: StepKey) -> Kind | None:
        disturbance = self.disturbance
        if disturbance is None:
            return None
        disturbance.note(caller)
        of_target = (key.point, key.node) == (disturbance.key.point, disturbance.key.node)
        if key == disturbance.key and disturbance.claim(caller):
            return disturbance.kind
        lasts = disturbance.kind is Kind.FAILS_FOR_GOOD and disturbance.reached and not disturbance.ended
        return Kind.FAILS_FOR_GOOD if lasts and of_target else None
