"""A spare pool played out event by event, to check the sizing against: failures, turnarounds and tests, drawn at random."""

from __future__ import annotations

import math
import random
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

import simpy

from workflows.decisions.spares_pool import Z90
from workflows.decisions.spares_settings import SpareSettings

WARM_UP = 20.0
"""Turnarounds that pass before anything is counted: the pool begins full."""


@dataclass
class Played:
    """What was seen: failures, those that found a spare at once, and for how many hours nobody waited, or one was free."""

    failures: int = 0
    found: int = 0
    covered_h: float = 0.0
    free_h: float = 0.0
    hours: float = 0.0
    bad: int = 0

    @property
    def finds_one(self) -> float:
        """Share of the failures that found a spare."""
        return self.found / self.failures

    @property
    def covered(self) -> float:
        """Share of the time in which every failed node had a stand-in."""
        return self.covered_h / self.hours

    @property
    def free(self) -> float:
        """Share of the time in which a spare was free."""
        return self.free_h / self.hours


@dataclass
class Pool:
    """`size` spares for `failures_per_h`. A failed node, or a bad spare, is away for its turnaround and comes back as a spare."""

    size: int
    failures_per_h: float
    settings: SpareSettings
    seed: int
    played: Played = field(default_factory=Played)

    def __post_init__(self) -> None:
        self._env = simpy.Environment()
        self._random = random.Random(self.seed)
        self._free = self.size
        self._waiting = 0
        self._counts_from = 0.0
        self._since = 0.0

    def play(self, failures: int) -> Played:
        """Play until so many failures were counted."""
        self._env.process(self._fail(failures))
        self._env.run()
        return self.played

    def _fail(self, failures: int) -> Generator[simpy.Event, Any, None]:
        events_per_h = self.failures_per_h / self.settings.nodes_per_event
        warm_up = WARM_UP * max(self.settings.restock_p90_h, self.settings.repair_p90_h)
        self._counts_from = self._since = warm_up
        while self.played.failures < failures:
            yield self._env.timeout(self._random.expovariate(events_per_h))
            for _ in range(self._size_of_event()):
                self._one_fails()
        self._note()

    def _size_of_event(self) -> int:
        size = 1
        while self._random.random() > 1 / self.settings.nodes_per_event:
            size += 1
        return size

    def _one_fails(self) -> None:
        self._note()
        counted = self._env.now >= self._counts_from
        self.played.failures += counted
        self._away()
        if self._take():
            self.played.found += counted
        else:
            self._waiting += 1

    def _take(self) -> bool:
        """Take spare after spare until one is good. Bad ones are away like failed nodes."""
        while self._free:
            self._free -= 1
            if self._random.random() >= self.settings.bad_on_arrival:
                return True
            self.played.bad += 1
            self._away()
        return False

    def _away(self) -> None:
        self._env.process(self._comes_back())

    def _comes_back(self) -> Generator[simpy.Event, Any, None]:
        mended = self._random.random() < self.settings.mended_share
        times = self.settings
        p50, p90 = (times.repair_p50_h, times.repair_p90_h) if mended else (times.restock_p50_h, times.restock_p90_h)
        yield self._env.timeout(self._random.lognormvariate(math.log(p50), math.log(p90 / p50) / Z90))
        self._note()
        self._free += 1
        if self._waiting and self._take():
            self._waiting -= 1

    def _note(self) -> None:
        """Count the time since the last event."""
        now = self._env.now
        if now > self._since:
            self.played.hours += now - self._since
            self.played.covered_h += (now - self._since) * (self._waiting == 0)
            self.played.free_h += (now - self._since) * (self._free > 0)
            self._since = now
