"""Named points of FakeFleet at which a test can count calls, hold one, or make one fail. Safe for many threads."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TypeVar

from activities.clock import beat

T = TypeVar("T")

LOOK_S = 0.02
"""Seconds between looks of who waits for a held call: a cancellation reaches a thread only between byte-codes."""

PATIENCE_S = 60.0
"""Seconds after which a hold that nobody released is an error of the test."""


@dataclass
class Hold:
    """A call that is stopped: it has arrived, is not yet carried out, and its caller gets no answer until `release`."""

    point: str
    node: str = ""
    _arrived: threading.Event = field(default_factory=threading.Event)
    _released: threading.Event = field(default_factory=threading.Event)

    async def reached(self, patience_s: float = PATIENCE_S) -> None:
        """Return when a call has arrived at the point."""
        if not await asyncio.to_thread(self._arrived.wait, patience_s):
            raise TimeoutError(f"nothing arrived at {self.point} {self.node} within {patience_s:.0f} s")

    @property
    def holding(self) -> bool:
        """Whether a call is stopped here now."""
        return self._arrived.is_set() and not self._released.is_set()

    def release(self) -> None:
        """Let the held call, and all later ones, go on."""
        self._released.set()

    def pass_through(self) -> None:
        """Called by the fake: stop here until released."""
        self._arrived.set()
        if not self._released.wait(PATIENCE_S):
            raise RuntimeError(f"the hold at {self.point} {self.node} was never released")


@dataclass
class _Failure:
    point: str
    node: str
    error: Exception
    left: int
    made: bool = False


class Points:
    """Counts calls by (point, node), and applies the holds and failures that a test has placed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()
        self._holds: list[Hold] = []
        self._failures: list[_Failure] = []

    def hold(self, point: str, node: str = "") -> Hold:
        """Stop the next calls at a point (of one node, if named) until the hold is released."""
        hold = Hold(point, node)
        with self._lock:
            self._holds.append(hold)
        return hold

    def fail_next(self, point: str, error: Exception, times: int = 1, node: str = "") -> None:
        """Make the next calls at a point raise; they are counted as failed, under "<point>!", and do nothing."""
        with self._lock:
            self._failures.append(_Failure(point, node, error, times))

    def forgive(self, point: str) -> None:
        """Let calls at a point succeed again."""
        with self._lock:
            self._failures = [failure for failure in self._failures if failure.point != point]

    def lose_answer(self, point: str, error: Exception, times: int = 1, node: str = "") -> None:
        """Make the next calls at a point happen, and their callers see only `error`: the answer was lost on its way."""
        with self._lock:
            self._failures.append(_Failure(point, node, error, times, made=True))

    def count(self, point: str, node: str = "") -> int:
        """Return how many calls were carried out at a point, of one node or of all."""
        with self._lock:
            return sum(number for (at, of), number in self._counts.items() if at == point and node in ("", of))

    @property
    def holding(self) -> bool:
        """Whether any call is held now."""
        with self._lock:
            return any(hold.holding for hold in self._holds)

    def carry_out(self, point: str, node: str, effect: Callable[[], T]) -> T:
        """Called by the fake: fail, hold or make one call.

        A held call is carried out at its release even if its caller is gone by then, as a request that has reached a server is.
        """
        failure = self._due_failure(point, node)
        if failure is not None:
            self._add(point if failure.made else f"{point}!", node)
            if failure.made:
                effect()
            raise failure.error
        holds = self._holds_at(point, node)
        if not holds:
            self._add(point, node)
            return effect()
        return _answer_of(lambda: self._carry_out_held(point, node, holds, effect))

    def _carry_out_held(self, point: str, node: str, holds: list[Hold], effect: Callable[[], T]) -> T:
        for hold in holds:
            hold.pass_through()
        self._add(point, node)
        return effect()

    def _add(self, point: str, node: str) -> None:
        with self._lock:
            self._counts[point, node] += 1

    def _due_failure(self, point: str, node: str) -> _Failure | None:
        with self._lock:
            for failure in self._failures:
                if failure.point == point and failure.node in ("", node) and failure.left > 0:
                    failure.left -= 1
                    return failure
        return None

    def _holds_at(self, point: str, node: str) -> list[Hold]:
        with self._lock:
            return [hold for hold in self._holds if hold.point == point and hold.node in ("", node)]


def _answer_of(call: Callable[[], T]) -> T:
    """Run a call in a thread of its own, which outlives its caller, and return its answer."""
    answer: Future[T] = Future()

    def run() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:  # the caller must see whatever it was
            answer.set_exception(error)

    threading.Thread(target=run, daemon=True, name="held call").start()
    while True:
        try:
            return answer.result(LOOK_S)
        except TimeoutError:
            if answer.done():
                raise
            beat()
