"""What was left behind is adopted, completed, returned or told; what is settled, in use or somebody else's is left alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities import names
from activities.inventory import Node
from activities.reconcile import StrayMark, Trace, Traces
from checks.model import Action
from workflows.decisions.orphans import LeftBehind, Orphan, Remedy, plan_orphans
from workflows.decisions.settings import Mode, PolicySettings

NOW = datetime(2026, 11, 1, 3, 0, tzinfo=UTC)
OURS, OTHER = "incident/lab/i-1", "incident/lab/i-2"
LEASE = "replace/lab/i-2"
ACTING = PolicySettings(mode=Mode.ACT)


def trace(mark: str = "", job: str | None = "", remembered: str = "", foreign: bool = False, **node: object) -> Trace:
    one = Node(instance_id="i-1", name="node-1").model_copy(update=node)
    return Trace(node=one, mark=mark, job=job, remembered=remembered, foreign_mark=foreign)


def plan(*nodes: Trace, policy: PolicySettings = ACTING, **facts: object) -> list[Orphan]:
    left = LeftBehind(cluster="lab", traces=Traces(nodes=list(nodes)), now=NOW).model_copy(update=facts)
    return plan_orphans(left, policy).orphans


def remedies(*nodes: Trace, **facts: object) -> list[list[Remedy]]:
    return [orphan.remedies for orphan in plan(*nodes, **facts)]  # type: ignore[arg-type]


def test_a_quarantine_whose_incident_is_open_is_nobody_elses_business() -> None:
    for one in (trace(OURS, quarantine=OURS), trace(quarantine=OURS), trace(OURS)):
        assert plan(one, open_ids=[OURS]) == []


def test_a_quarantine_whose_incident_died_is_adopted() -> None:
    assert remedies(trace(OURS, quarantine=OURS)) == [[Remedy.ADOPT]]


@pytest.mark.parametrize("settled", [{"fate": "retired"}, {"remembered": "with a person"}, {"remembered": "retired"}])
def test_a_node_that_was_left_to_a_person_stays_with_that_person(settled: dict[str, str]) -> None:
    assert plan(trace(OURS, quarantine=OURS, **settled)) == []  # type: ignore[arg-type]


def test_a_file_without_its_tag_and_a_tag_without_its_file_are_completed_before_the_node_is_tested() -> None:
    assert remedies(trace(OURS)) == [[Remedy.MARK_AGAIN, Remedy.ADOPT]]
    [orphan] = plan(trace(quarantine=OURS))
    assert orphan.remedies == [Remedy.MARK_AGAIN, Remedy.ADOPT]
    assert "a job could start on it" in orphan.because


def test_the_missing_file_of_a_retired_node_is_written_again_and_the_node_is_not_tested() -> None:
    assert remedies(trace(quarantine=OURS, fate="retired")) == [[Remedy.MARK_AGAIN]]


def test_where_files_cannot_be_read_or_are_not_used_none_is_missed() -> None:
    for traces in (
        Traces(nodes=[trace(quarantine=OURS)], has_marks=False),
        Traces(nodes=[trace(quarantine=OURS)], marks_unread="head: no answer"),
    ):
        assert remedies(traces=traces) == [[Remedy.ADOPT]]


def test_the_quarantine_of_another_node_s_incident_is_told_and_never_lifted() -> None:
    assert remedies(trace(quarantine=OTHER)) == [[Remedy.TELL]]
    [orphan] = plan(trace(OTHER))
    assert (orphan.remedies, "sudo rm" in orphan.next_command) == ([Remedy.TELL], True)


def test_two_owners_are_told_of_and_neither_is_acted_for() -> None:
    assert remedies(trace(OTHER, quarantine=OURS)) == [[Remedy.TELL]]


def test_what_others_have_marked_is_left_alone() -> None:
    theirs = [trace(quarantine="ops/ticket-17"), trace(foreign=True), trace(lease="somebody"), trace(OURS, quarantine="ops")]
    assert plan(*theirs) == []


def test_a_file_for_a_name_that_no_node_has_is_told() -> None:
    traces = Traces(strays=[StrayMark(node_name="gone", owner=OTHER), StrayMark(node_name="x", owner="ana")])
    [orphan] = plan(traces=traces)
    assert (orphan.node_name, orphan.remedies) == ("gone", [Remedy.TELL])


def test_a_lease_goes_by_what_the_job_says() -> None:
    leased = {"lease": LEASE, "replaces": "i-2", "role": "worker"}
    assert plan(trace(**leased), open_ids=[LEASE]) == []  # type: ignore[arg-type]
    assert remedies(trace(job="train", **leased)) == [[Remedy.HAND_OVER]]  # type: ignore[arg-type]
    assert remedies(trace(job="", **leased)) == [[Remedy.RETURN_SPARE, Remedy.ADOPT]]  # type: ignore[arg-type]
    assert plan(trace(job=None, **leased)) == []  # type: ignore[arg-type]
    assert remedies(trace(lease="replace/other/i-2")) == [[Remedy.TELL]]


def test_only_a_spare_without_a_lease_has_a_record_that_is_over() -> None:
    assert remedies(trace(replaces="i-2", role="spare")) == [[Remedy.FORGET]]
    assert plan(trace(replaces="i-2", role="worker")) == []


def test_healers_that_stand_back_for_nobody_are_released_through_a_look_at_the_node() -> None:
    stood = f"{OURS} Auto Scaling group"
    assert remedies(trace(stood_back=stood)) == [[Remedy.ADOPT]]
    assert plan(trace(stood_back=stood), open_ids=[OURS]) == []
    assert plan(trace(OURS, quarantine=OURS, stood_back=stood, fate="retired")) == []
    assert remedies(trace(stood_back=f"{OTHER} Auto Scaling group")) == [[Remedy.TELL]]


def test_an_instance_that_stays_pending_is_told_after_half_an_hour() -> None:
    young, old = NOW - timedelta(minutes=29), NOW - timedelta(minutes=31)
    assert plan(trace(state="pending", launched_at=young), trace(state="running", launched_at=old)) == []
    [orphan] = plan(trace(state="pending", launched_at=old))
    assert (orphan.remedies, "31 minutes" in orphan.because) == ([Remedy.TELL], True)


def test_where_nothing_may_be_done_to_nodes_it_is_said_what_would_be() -> None:
    [orphan] = plan(trace(OURS), policy=PolicySettings())
    assert orphan.remedies == [Remedy.TELL]
    assert "observe mode: would complete the quarantine, then adopt" in orphan.because
    partly = PolicySettings(mode_by_class={"gpu_lost": {Action.REBOOT_NODE: Mode.APPROVE}})
    assert remedies(trace(OURS), policy=partly) == [[Remedy.MARK_AGAIN, Remedy.ADOPT]]


def test_a_node_that_has_opted_out_is_told_of_and_not_touched() -> None:
    assert remedies(trace(OURS, quarantine=OURS, opt_out="Ana measures")) == [[Remedy.TELL]]


def test_people_are_told_once_of_the_same_piece() -> None:
    left = LeftBehind(cluster="lab", traces=Traces(nodes=[trace(quarantine=OTHER)]), now=NOW)
    first = plan_orphans(left, ACTING)
    again = plan_orphans(left.model_copy(update={"told_before": [orphan.key for orphan in first.news]}), ACTING)
    assert ([len(first.news), len(again.news)], first.page_key) == ([1, 0], again.page_key)


OWNERS = st.sampled_from(["", OURS, OTHER, "ops/ticket-17"])


@given(
    mark=OWNERS,
    quarantine=OWNERS,
    foreign=st.booleans(),
    lease=st.sampled_from(["", LEASE, "somebody"]),
    fate=st.sampled_from(["", "retired", "probation"]),
    job=st.sampled_from(["", "train", None]),
    running=st.lists(st.sampled_from([OURS, LEASE])),
)
def test_nothing_is_done_about_what_is_not_ours_or_is_in_use(
    mark: str, quarantine: str, foreign: bool, lease: str, fate: str, job: str | None, running: list[str]
) -> None:
    one = trace(mark, job, foreign=foreign, quarantine=quarantine, lease=lease, fate=fate)
    for orphan in plan(one, open_ids=running):
        if orphan.remedies != [Remedy.TELL]:
            assert orphan.owner not in running
            assert orphan.owner in (OURS, LEASE)
        if orphan.kind == "quarantine":
            assert {quarantine, mark} <= {"", OURS}
            assert not foreign
        if Remedy.RETURN_SPARE in orphan.remedies:
            assert job == ""
        assert names.is_incident(orphan.owner) or names.is_replacement(orphan.owner)
        assert orphan.because
