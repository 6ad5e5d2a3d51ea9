"""Effects are made once, though attempts die, hang, come late or lose their answer."""

from __future__ import annotations

import contextvars
import dataclasses
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from temporalio.testing import ActivityEnvironment

from activities import clock
from activities.clients.fake_memory import FakeMemory
from activities.effects import act_once, refuse_if_late
from activities.errors import ProviderBusy, Throttled, TooLate
from tests.activities.conftest import attempt


class StepClock:
    """Time that passes by waiting alone, and lets something happen at a moment of it."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return self.seconds

    def wait(self, seconds: float) -> None:
        self.seconds += seconds


@dataclass
class World:
    """An effect that can be observed, made, and shows some seconds after it was made."""

    store: FakeMemory = field(default_factory=FakeMemory)
    clock: StepClock = field(default_factory=StepClock)
    made: int = 0
    shows_at: float | None = None
    shows_after_s: float = 0.0
    error: Exception | None = None
    doubtful: bool = False

    def happened(self) -> bool:
        return self.shows_at is not None and self.clock.now() >= self.shows_at

    def act(self) -> None:
        if self.error:
            raise self.error
        self.made += 1
        self.shows_at = self.clock.now() + self.shows_after_s

    def try_once(self, surroundings: ActivityEnvironment, settle_s: float = 60.0) -> bool:
        return surroundings.run(
            lambda: act_once(
                "token",
                "an effect",
                self.store,
                happened=self.happened,
                act=self.act,
                settle_s=settle_s,
                in_doubt=lambda: self.doubtful,
                clock=self.clock,
            )
        )


def test_an_effect_that_has_not_happened_is_made(surroundings: ActivityEnvironment) -> None:
    world = World()
    assert world.try_once(surroundings)
    assert world.made == 1


def test_an_effect_that_has_happened_is_left_alone(surroundings: ActivityEnvironment) -> None:
    world = World(shows_at=0.0)
    assert not world.try_once(surroundings)
    assert world.made == 0


def test_a_second_attempt_waits_for_an_effect_that_shows_late(surroundings: ActivityEnvironment) -> None:
    world = World(shows_after_s=30.0)
    assert world.try_once(surroundings)
    assert not world.try_once(attempt(2))
    assert world.made == 1


def test_a_second_attempt_makes_an_effect_that_never_shows(surroundings: ActivityEnvironment) -> None:
    world = World(store=FakeMemory())
    world.store.note_intent("token", "the first attempt died before it acted")
    assert world.try_once(surroundings)
    assert world.made == 1


def test_where_the_world_shows_neither_the_effect_nor_its_absence_it_is_not_made_again(
    surroundings: ActivityEnvironment,
) -> None:
    world = World(doubtful=True)
    world.store.note_intent("token", "the first attempt may have acted")
    assert not world.try_once(surroundings)
    assert world.made == 0


def test_doubt_alone_does_not_keep_the_first_attempt_from_acting(surroundings: ActivityEnvironment) -> None:
    world = World(doubtful=True)
    assert world.try_once(surroundings)
    assert world.made == 1


def test_an_attempt_whose_time_is_nearly_up_does_not_act() -> None:
    world = World()
    with pytest.raises(TooLate):
        world.try_once(attempt(1, left=timedelta(seconds=4)))
    assert world.made == 0


def test_an_attempt_that_was_silent_for_too_long_does_not_act_because_another_may_be_at_work(
    surroundings: ActivityEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    surroundings.info = dataclasses.replace(surroundings.info, heartbeat_timeout=timedelta(seconds=30))
    monkeypatch.setattr("activities.effects.silent_s", lambda: 26.0)
    with pytest.raises(TooLate):
        world.try_once(surroundings)
    assert world.made == 0


def test_an_attempt_that_ends_before_its_watch_leaves_the_rest_of_it_to_the_next() -> None:
    world = World()
    world.store.note_intent("token", "the first attempt may have acted")
    with pytest.raises(TooLate):
        world.try_once(attempt(2, left=timedelta(seconds=4)), settle_s=3600.0)
    age = world.store.intent_age_s("token/watch")
    assert age is not None
    assert world.made == 0


def test_a_refused_call_was_not_made_so_the_next_attempt_makes_it_at_once(surroundings: ActivityEnvironment) -> None:
    world = World(error=Throttled("RequestLimitExceeded"))
    with pytest.raises(Throttled):
        world.try_once(surroundings)
    world.error = None
    assert world.try_once(attempt(2))
    assert world.clock.seconds == 0.0
    assert world.made == 1


def test_a_call_without_a_clear_answer_may_have_been_made_so_the_next_attempt_watches_first(
    surroundings: ActivityEnvironment,
) -> None:
    world = World(error=ProviderBusy("read timed out"))
    with pytest.raises(ProviderBusy):
        world.try_once(surroundings)
    world.error = None
    assert world.try_once(attempt(2))
    assert world.clock.seconds >= 59.0


def test_a_thread_that_beat_for_an_earlier_activity_has_not_been_silent_for_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = [1000.0]
    monkeypatch.setattr("activities.clock.time.monotonic", lambda: seconds[0])

    earlier, later = attempt(), attempt()
    for environment, token in ((earlier, b"earlier"), (later, b"later")):
        changed = {"task_token": token, "heartbeat_timeout": timedelta(seconds=30)}
        environment.info = dataclasses.replace(environment.info, **changed)  # type: ignore[arg-type]

    def one_thread() -> None:
        earlier.run(clock.beat)
        seconds[0] += 600
        later.run(refuse_if_late)

    contextvars.copy_context().run(one_thread)
