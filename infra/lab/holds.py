"""Stopping a named call at the moment it arrives, until a test has done what it wants to do meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

CallT = TypeVar("CallT")


class Hold:
    """One call that is stopped when it arrives. It has not been carried out, and its caller waits.

    At `release` it is carried out, even if the caller is gone by then. A hold stops one call and is used up.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, what: str) -> None:
        self.what = what
        self._loop = loop
        self._reached = asyncio.Event()
        self._ended = asyncio.Event()
        self._ended_for_threads = threading.Event()
        self._carry_out = True

    async def reached(self) -> None:
        """Wait until the call has arrived and is being held."""
        await self._reached.wait()

    def release(self) -> None:
        """Let the call be carried out."""
        self._end(carry_out=True)

    def drop(self) -> None:
        """Let the call fail without being carried out: its caller gets an error."""
        self._end(carry_out=False)

    def _end(self, carry_out: bool) -> None:
        if self._ended_for_threads.is_set():
            return
        self._carry_out = carry_out
        self._ended_for_threads.set()
        self._loop.call_soon_threadsafe(self._ended.set)

    def stop_thread_here(self) -> bool:
        """Hold the calling thread. Return whether the call is to be carried out."""
        self._loop.call_soon_threadsafe(self._reached.set)
        self._ended_for_threads.wait()
        return self._carry_out

    async def stop_here(self) -> bool:
        """Hold the calling task. Return whether the call is to be carried out."""
        self._reached.set()
        await self._ended.wait()
        return self._carry_out


class Holds(Generic[CallT]):
    """The holds of one server: each waits for the first call that fits it. Safe to use from the server's threads."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lock = threading.Lock()
        self._waiting: list[tuple[Callable[[CallT], bool], Hold]] = []
        self._all: list[Hold] = []

    def add(self, what: str, fits: Callable[[CallT], bool]) -> Hold:
        """Hold the next call for which `fits` is true."""
        hold = Hold(self._loop, what)
        with self._lock:
            self._waiting.append((fits, hold))
            self._all.append(hold)
        return hold

    def take(self, call: CallT) -> Hold | None:
        """Return the hold that this call falls into, if any; it then waits for no other call."""
        with self._lock:
            for number, (fits, hold) in enumerate(self._waiting):
                if fits(call):
                    del self._waiting[number]
                    return hold
        return None

    def drop_all(self) -> None:
        """End every hold without carrying the calls out: the lab goes down."""
        with self._lock:
            self._waiting.clear()
            for hold in self._all:
                hold.drop()
