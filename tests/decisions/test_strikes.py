"""Strikes lose their weight with time, and a host with too many, or with a banned GPU, is not repaired in place."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities.gpu_records import KEPT_STRIKES, Strike
from activities.host_memory import ClosedIncident, HostRecord, RungAttempt
from checks.model import Action
from tests.decisions.situations import NOW, facts, out
from workflows.decisions.facts import StepKind
from workflows.decisions.ladder import DISRUPTIVE, rungs_for
from workflows.decisions.policy import next_step
from workflows.decisions.replayed import rebuild, recorded
from workflows.decisions.settings import Mode, PolicySettings
from workflows.decisions.strikes import host_weight, weight

ACT = PolicySettings(mode=Mode.ACT)


def struck(*days_ago: float) -> HostRecord:
    strikes = [Strike(at=NOW - timedelta(days=days), incident=f"run-{days}") for days in days_ago]
    return HostRecord(instance_id="i-1", strikes=len(strikes), struck=strikes)


@pytest.mark.parametrize(("days", "left"), [(0, 1.0), (28, 0.5), (56, 0.25), (280, 0.5**10), (-1, 1.0)])
def test_a_strike_weighs_half_after_each_half_life(days: float, left: float) -> None:
    assert weight(struck(days).struck, NOW, 28.0) == pytest.approx(left)


@given(st.lists(st.floats(0, 4000), max_size=KEPT_STRIKES), st.floats(0.1, 400))
def test_weight_only_falls_while_nothing_happens(days: list[float], half_life: float) -> None:
    strikes = struck(*days).struck
    weights = [weight(strikes, NOW + timedelta(days=later), half_life) for later in (0, 1, 30, 365)]
    assert weights == sorted(weights, reverse=True)
    assert 0.0 <= weights[-1] <= weights[0] <= len(days)


def test_strikes_that_were_counted_before_they_were_dated_are_as_old_as_the_last_incident() -> None:
    old = HostRecord(instance_id="i-1", strikes=2, last_incident_closed_at=NOW - timedelta(days=28))
    assert host_weight(old, NOW, 28.0) == pytest.approx(1.0)
    mixed = old.model_copy(update={"strikes": 3, "struck": struck(0).struck, "last_incident_closed_at": NOW})
    assert host_weight(mixed, NOW, 28.0) == pytest.approx(3.0)


def test_strikes_that_made_room_for_newer_ones_weigh_nothing() -> None:
    full = struck(*[1000.0] * KEPT_STRIKES).model_copy(update={"strikes": 500, "last_incident_closed_at": NOW})
    assert host_weight(full, NOW, 28.0) < 0.001


def test_a_host_with_too_many_strikes_is_replaced_and_not_restarted_again() -> None:
    rungs = rungs_for(facts(record=struck(0, 0, 0)), ACT)
    assert rungs.left == (Action.REPLACE_NODE,)
    assert "REBOOT_NODE: its strikes weigh 3.0, the limit is 3 (each counts half after 28 days)" in rungs.refused


def test_the_same_strikes_a_season_later_leave_the_whole_ladder() -> None:
    assert rungs_for(facts(record=struck(90, 90, 90)), ACT).left[0] is Action.REBOOT_NODE
    never = ACT.model_copy(update={"strikes_at_most": 1e9})
    assert rungs_for(facts(record=struck(0, 0, 0)), never).left[0] is Action.REBOOT_NODE


def test_a_banned_gpu_leaves_no_rung_in_place() -> None:
    seen = facts().examination
    assert seen is not None
    known = facts(examination=seen.model_copy(update={"known_bad": ["GPU 1653 is known bad since 2026-05-01: burnt (ann)"]}))
    rungs = rungs_for(known, ACT)
    assert not set(rungs.left) & set(DISRUPTIVE)
    assert "GPU 1653 is known bad since 2026-05-01: burnt (ann)" in rungs.refused[0]


def test_what_was_tried_on_the_boards_under_another_instance_counts() -> None:
    seen = facts().examination
    assert seen is not None
    tried = RungAttempt(rung=Action.REBOOT_NODE, at=NOW - timedelta(hours=1), fault_class="gpu_lost")
    known = facts(examination=seen.model_copy(update={"elsewhere": [tried]}))
    assert "REBOOT_NODE: the same fault came back" in rungs_for(known, ACT).refused[0]


@pytest.mark.parametrize("kind", ["strikes", "ban", "elsewhere"])
def test_a_replayed_decision_knows_what_was_known_of_host_and_boards(kind: str) -> None:
    start = out(record=struck(0, 0, 0)) if kind == "strikes" else out()
    seen = start.examination
    assert seen is not None
    of_kind: dict[str, dict[str, object]] = {
        "strikes": {},
        "ban": {"known_bad": ["GPU 1653 is known bad"]},
        "elsewhere": {"elsewhere": [RungAttempt(rung=Action.REBOOT_NODE, at=NOW, fault_class="gpu_lost")]},
    }
    known = start.model_copy(update={"examination": seen.model_copy(update=of_kind[kind]), "evidence_taken": True})
    step = next_step(known, ACT)
    assert step.rung is not Action.REBOOT_NODE
    assert next_step(out(evidence_taken=True), ACT).rung is Action.REBOOT_NODE
    closed = ClosedIncident(
        incident=known.incident,
        run_id=known.run,
        cluster=known.cluster,
        instance_id="i-1",
        opened_at=NOW,
        closed_at=NOW,
        fault_class="gpu_lost",
        outcome="resolved",
    )
    again = next_step(rebuild(recorded(known, step), closed).facts, ACT)
    assert (again.kind, again.rung, again.because) == (step.kind, step.rung, step.because)
    assert again.kind is not StepKind.CLOSE
