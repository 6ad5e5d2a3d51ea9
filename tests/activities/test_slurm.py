"""Slurm's answers of every release, its names for nodes, its refusals, and what a mark looks like in a reason."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from activities.clock import SystemClock
from activities.errors import BadInput, CapabilityMissing, CommandFailed, NodeUnreachable, NotOurs, PreconditionFailed
from activities.inventory import Node
from activities.jobs.protocol import JobState, RestartedBy
from activities.jobs.slurm import SlurmJobs
from activities.quarantine import Mark
from activities.settings_jobs import SlurmSettings
from activities.slurm import NodeNames, SlurmNode
from activities.slurm_marks import REASON_LIMIT, SlurmMarks, mark_in, reason_of
from tests.activities.slurm_head import JOB, NODES, Head, job_row, maybe, node_row, slurm_of

MARK = Mark(owner="incident/lab/i-0123456789abcdef0", reason="XID 79 on GPU 3", since=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))


def adapter(head: Head, **more: Any) -> SlurmJobs:
    """The adapter on a head node that never makes anybody wait."""
    return SlurmJobs(slurm_of(head), JOB, SlurmSettings(hold_deadline_s=0.0, **more), SystemClock())


def marks(head: Head, flavour: Any = "plain") -> SlurmMarks:
    """The marks on a head node."""
    chosen = SlurmSettings(flavour=flavour)
    return SlurmMarks(slurm_of(head, chosen), chosen)


def test_jobs_of_22_05_are_read_with_the_states_that_it_had() -> None:
    jobs = adapter(Head.recorded())
    running, failed, held = (jobs.status(job) for job in ("3", "job-4", "5"))
    assert (running.state, running.nodes, running.ranks_on) == (JobState.RUNNING, ["node-1", "node-3"], ["node-1", "node-3"])
    assert (failed.state, failed.nodes, failed.ranks_on) == (JobState.STOPPED, ["node-2"], [])
    assert held.state is JobState.HELD
    assert {status.restarted_by for status in (running, failed, held)} == {RestartedBy.HOTSPARE}


def test_the_job_on_a_node_is_the_one_that_runs_or_waits_for_it_before_one_that_failed() -> None:
    jobs = adapter(Head.recorded())
    found = {node.name: jobs.find_on(node) for node in NODES}
    assert {name: status.job if status else None for name, status in found.items()} == {
        "node-1": "job-3",
        "node-2": "job-5",
        "node-3": "job-3",
        "spare-1": None,
    }


@pytest.mark.parametrize(
    ("row", "state"),
    [
        ({"job_state": ["RUNNING"]}, JobState.RUNNING),
        ({"job_state": ["RUNNING", "COMPLETING"]}, JobState.RUNNING),
        ({"job_state": ["PENDING", "COMPLETING", "REQUEUE_HOLD"]}, JobState.RUNNING),
        ({"job_state": ["PENDING", "REQUEUE_HOLD"]}, JobState.HELD),
        ({"job_state": ["PENDING", "SPECIAL_EXIT"]}, JobState.HELD),
        ({"job_state": ["PENDING"], "hold": True}, JobState.HELD),
        ({"job_state": ["PENDING"], "state_reason": "JobHeldAdmin"}, JobState.HELD),
        ({"job_state": ["PENDING"], "state_reason": "Resources"}, JobState.STOPPED),
        ({"job_state": ["PENDING", "REQUEUED"], "state_reason": "BeginTime"}, JobState.STOPPED),
        ({"job_state": ["SUSPENDED"]}, JobState.RUNNING),
        ({"job_state": ["NODE_FAIL"]}, JobState.STOPPED),
        ({"job_state": ["SOMETHING_NEW"]}, JobState.UNKNOWN),
        ({"job_state": "COMPLETING"}, JobState.RUNNING),
    ],
)
def test_a_job_is_stopped_only_where_no_rank_can_be_left(row: dict[str, Any], state: JobState) -> None:
    seen = adapter(Head.newer([job_row(**row)], [node_row(at, ["IDLE"]) for at in (1, 2, 3)])).status("7")
    assert (seen.state, seen.nodes) == (state, ["node-1", "node-2", "node-3"])


def test_a_release_names_every_node_and_leaves_out_the_others() -> None:
    head = Head.newer(
        [job_row(job_state=["PENDING", "REQUEUE_HOLD"], nodes="", required_nodes="p5-st-1,p5-st-2", restart_cnt=4)],
        [node_row(at, ["IDLE"]) for at in (1, 2, 3, 4)],
    )
    adapter(head).resume("job-7", ["node-1", "spare-1"], "token-9")
    update, release, now = head.changes
    assert update[:3] == ["scontrol", "update", "jobid=7"]
    assert {"ReqNodeList=p5-st-1,p5-st-4", "ExcNodeList=p5-st-2", "NumNodes=2"} <= set(update)
    note = next(word for word in update if word.startswith("AdminComment="))
    assert json.loads(note.split("hotspare ", 1)[1])["token"] == "token-9"
    assert (release, now[3]) == (["scontrol", "release", "7"], "StartTime=now")


@pytest.mark.parametrize(
    ("row", "changes"),
    [
        ({"job_state": ["RUNNING"], "restart_cnt": 4}, 0),
        ({"job_state": ["PENDING", "REQUEUE_HOLD"], "restart_cnt": 5}, 0),
        ({"job_state": ["PENDING", "REQUEUE_HOLD"], "restart_cnt": 4}, 3),
    ],
)
def test_a_token_releases_once_and_again_only_where_the_first_try_broke_off(row: dict[str, Any], changes: int) -> None:
    note = 'site data | hotspare {"token":"token-9","restarts":4,"nodes":["p5-st-1"],"excluded":["p5-st-2"]}'
    head = Head.newer([job_row(admin_comment=note, nodes="", **row)], [node_row(at, ["IDLE"]) for at in (1, 2, 3)])
    adapter(head).resume("7", ["node-1"], "token-9")
    assert len(head.changes) == changes
    for change in head.changes[:1]:
        assert any(word.startswith('AdminComment=site data | hotspare {"token":"token-9"') for word in change)


def test_a_node_that_the_owner_of_the_job_excludes_is_not_forced_on_it() -> None:
    row = job_row(job_state=["PENDING"], hold=True, nodes="", excluded_nodes="p5-st-3")
    head = Head.newer([row], [node_row(at, ["IDLE"]) for at in (1, 2, 3)])
    with pytest.raises(PreconditionFailed, match="excludes p5-st-3"):
        adapter(head).resume("7", ["node-1", "node-3"], "t")
    assert head.changes == []


def test_a_job_that_waits_is_held_and_one_that_runs_is_requeued_held_with_its_nodes_noted_first() -> None:
    for row, verb in (({"job_state": ["PENDING"], "required_nodes": "p5-st-1"}, "hold"), ({}, "requeuehold")):
        head = Head.newer([job_row(**row)], [node_row(at, ["IDLE"]) for at in (1, 2, 3)])
        stopped = json.dumps({"jobs": [job_row(job_state=["PENDING"], hold=True, nodes="")], "errors": []})

        def stop(words: list[str], head: Head = head, stopped: str = stopped, verb: str = verb) -> None:
            head.jobs = stopped if words[0] == verb else head.jobs

        head.on_change = stop
        assert adapter(head).hold("job-7", "test").state is JobState.HELD
        assert [change[1] for change in head.changes] == ["update", verb]


def held_with_nodes(**more: Any) -> dict[str, Any]:
    """A held job as Slurm 22.05 leaves it where a node of its last run went DOWN while the job completed."""
    return job_row(job_state=["PENDING"], hold=True, **more)


def test_a_held_job_that_still_has_the_nodes_of_its_last_run_is_cancelled_and_requeued_before_it_counts_as_held() -> None:
    head = Head.newer([held_with_nodes()], [node_row(at, ["IDLE"]) for at in (1, 2, 3)])

    def clear(words: list[str]) -> None:
        if words[0] == "requeuehold":
            head.jobs = json.dumps({"jobs": [held_with_nodes(nodes="", restart_cnt=1)], "errors": []})

    head.on_change = clear
    assert adapter(head).hold("7", "test").state is JobState.HELD
    assert [change[:2] for change in head.changes] == [["scontrol", "update"], ["scancel", "7"], ["scontrol", "requeuehold"]]
    assert '"cleared":0' in head.changes[0][3]
    assert '"nodes":["p5-st-1","p5-st-2","p5-st-3"]' in head.changes[0][3]


def test_a_job_that_cannot_be_cleared_is_not_said_to_be_held() -> None:
    head = Head.newer([held_with_nodes()], [node_row(1, ["IDLE"])])
    with pytest.raises(CommandFailed, match="scancel 7; scontrol requeuehold 7"):
        adapter(head).hold("7", "test")


@pytest.mark.parametrize("dependency", ["afterany:7(unfulfilled)", "afterok:70:7+5", "afterok:3(failed),afternotok:7"])
def test_a_job_that_others_depend_on_is_not_cancelled_and_a_person_gets_the_commands(dependency: str) -> None:
    waiting = job_row(job_id=8, job_state=["PENDING"], nodes="", dependency=dependency)
    head = Head.newer([held_with_nodes(), waiting], [node_row(1, ["IDLE"])])
    with pytest.raises(PreconditionFailed, match=r"depend on it go on or fail: 8.*scancel 7; scontrol requeuehold 7"):
        adapter(head).hold("7", "test")
    assert head.changes == []


@pytest.mark.parametrize(("dependency", "state"), [("afterany:70", "PENDING"), ("", "PENDING"), ("afterany:7", "RUNNING")])
def test_other_jobs_stop_no_clearing(dependency: str, state: str) -> None:
    other = job_row(job_id=8, job_state=[state], nodes="", dependency=dependency)
    head = Head.newer([held_with_nodes(), other], [node_row(1, ["IDLE"])])
    with pytest.raises(CommandFailed):  # nothing plays slurmctld here
        adapter(head).hold("7", "test")
    assert ["scancel", "7"] in head.changes


def test_a_cancelled_job_is_brought_back_only_where_the_cancellation_was_ours() -> None:
    ours = 'hotspare {"nodes":["p5-st-1"],"cleared":2}'
    for comment, restarts, requeued in ((ours, 2, True), (ours, 3, False), ("", 2, False)):
        row = job_row(job_state=["CANCELLED"], admin_comment=comment, restart_cnt=restarts)
        head = Head.newer([row], [node_row(1, ["IDLE"])])
        stopped = json.dumps({"jobs": [{**row, "job_state": ["PENDING"], "hold": True, "nodes": ""}], "errors": []})

        def stop(words: list[str], head: Head = head, stopped: str = stopped) -> None:
            head.jobs = stopped if words[0] == "requeuehold" else head.jobs

        head.on_change = stop
        if requeued:
            assert adapter(head).hold("7", "test").state is JobState.HELD
            continue
        with pytest.raises(PreconditionFailed, match=r"cancelled.*scontrol requeuehold 7"):
            adapter(head).hold("7", "test")
        assert head.changes == []


def test_a_hold_that_does_not_stop_the_job_in_time_says_what_to_look_at() -> None:
    head = Head.newer([job_row(job_state=["RUNNING", "COMPLETING"])], [node_row(1, ["IDLE"])])
    with pytest.raises(CommandFailed, match=r"COMPLETING.*scontrol show job 7"):
        adapter(head).hold("7", "test")


@pytest.mark.parametrize(("row", "word"), [({"batch_flag": False}, "sbatch"), ({"requeue": False}, "Requeue=1")])
def test_a_job_that_would_not_come_back_is_not_stopped(row: dict[str, Any], word: str) -> None:
    head = Head.newer([job_row(**row)], [node_row(1, ["IDLE"])])
    jobs = adapter(head)
    assert any(word in warning for warning in jobs.status("7").warnings)
    with pytest.raises(CapabilityMissing, match=word):
        jobs.hold("7", "test")
    assert head.changes == []


def test_no_node_is_supplied_or_left_one_by_one() -> None:
    jobs = adapter(Head.recorded())
    for step in (jobs.supply, jobs.leave):
        with pytest.raises(CapabilityMissing):
            step("3", NODES[0])


def test_the_users_missing_right_is_said_with_the_setting_that_mends_it() -> None:
    head = Head.newer([], [node_row(2, ["IDLE"])])
    head.refusals["update"] = "slurm_update error: Access/permission denied"
    with pytest.raises(PreconditionFailed, match=r"\[slurm\] sudo"):
        marks(head).write(NODES[1], MARK)


def test_marks_of_22_05_are_read_and_others_are_not_ours() -> None:
    kept = marks(Head.recorded())
    assert kept.read(NODES[0]) is None
    assert kept.read(NODES[1]) == MARK
    with pytest.raises(NotOurs, match="NHC: check_fs"):
        kept.read(NODES[3])
    assert kept.marked() == {"node-2", "spare-1"}


@pytest.mark.parametrize("reason", ["Action:Reboot", "Action:Replace"])
def test_an_order_to_hyperpod_is_somebody_elses_and_ours_never_looks_like_one(reason: str) -> None:
    head = Head.newer([], [node_row(2, ["IDLE", "FAIL"], reason)])
    kept = marks(head, "hyperpod")
    kept.write(NODES[1], MARK.model_copy(update={"reason": reason}))
    assert head.changes == []
    with pytest.raises(NotOurs, match=reason):
        kept.remove(NODES[1])
    assert reason_of(MARK.model_copy(update={"reason": reason})) != reason


@pytest.mark.parametrize(
    ("flavour", "state"), [("plain", "drain"), ("pcs", "drain"), ("hyperpod", "drain"), ("parallelcluster", "fail")]
)
def test_only_on_parallelcluster_the_mark_is_no_drain(flavour: Any, state: str) -> None:
    head = Head.newer([], [node_row(2, ["IDLE"])])
    kept = marks(head, flavour)
    kept.write(NODES[1], MARK)
    assert head.changes == [["scontrol", "update", "nodename=p5-st-2", f"state={state}", f"reason={reason_of(MARK)}"]]
    assert kept.drain_replaces is (flavour == "parallelcluster")


@pytest.mark.parametrize(
    "states", [["DOWN", "DRAIN", "NOT_RESPONDING"], ["IDLE", "DRAIN", "NOT_RESPONDING"], ["IDLE", "DRAIN", "INVALID_REG"]]
)
def test_a_node_that_slurm_would_not_use_stays_drained(states: list[str]) -> None:
    head = Head.newer([], [node_row(2, states, reason_of(MARK))])
    with pytest.raises(NodeUnreachable):
        marks(head).remove(NODES[1])
    assert head.changes == []


def test_a_node_that_a_person_has_set_down_is_theirs_and_one_that_fell_silent_is_nobodys() -> None:
    rows = [
        node_row(1, ["DOWN"], "memory test until Monday"),
        node_row(2, ["DOWN", "NOT_RESPONDING"], "Not responding"),
        node_row(3, ["IDLE", "DRAIN", "INVALID_REG"], "gres/gpu count reported lower than configured (7 < 8)"),
    ]
    head = Head.newer([], rows)
    kept = marks(head)
    for node in NODES[:3]:
        kept.write(node, MARK)
    assert [change[2] for change in head.changes] == ["nodename=p5-st-2", "nodename=p5-st-3"]
    with pytest.raises(NotOurs, match="memory test"):
        kept.read(NODES[0])
    assert kept.marked() == {"node-1"}


def test_a_node_that_our_reboot_has_left_down_is_resumed_once_it_answers() -> None:
    head = Head.newer([], [node_row(2, ["DOWN", "DRAIN"], reason_of(MARK))])
    marks(head).remove(NODES[1])
    assert head.changes == [["scontrol", "update", "nodename=p5-st-2", "state=resume"]]


def test_a_node_that_slurm_does_not_know_is_not_silently_left_in_service() -> None:
    with pytest.raises(BadInput, match="no node for node-9"):
        marks(Head.recorded()).write(Node(instance_id="i-0000000000000009", name="node-9"), MARK)


def test_a_slurm_name_goes_over_to_the_instance_that_is_behind_it_now() -> None:
    old = Node(instance_id="i-00000000000000a1", name="p5-st-1", ip="10.0.0.1")
    new = Node(instance_id="i-00000000000000a2", name="Compute", ip="10.0.0.9")
    by_address = NodeNames([SlurmNode(name="p5-st-1", hostname="p5-st-1", address="10.0.0.9")], [old, new])
    assert by_address.inventory_name("p5-st-1") == "Compute"
    assert by_address.slurm(old) is None
    by_host = NodeNames([SlurmNode(name="p5-st-1", hostname="ip-10-0-0-9.ec2.internal", address="127.0.0.1")], [old, new])
    assert by_host.inventory_name("p5-st-1") == "Compute"
    by_id = NodeNames([SlurmNode(name="p5-st-1", address="10.0.0.9", instance_id=old.instance_id)], [old, new])
    assert by_id.slurm_name("p5-st-1") == "p5-st-1"


@settings(deadline=None, derandomize=True)
@given(
    owner=st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1),
    reason=st.text(max_size=2000),
    zone=st.integers(-12, 14),
    microseconds=st.integers(946_684_800_000_000, 4_102_444_800_000_000),
)
def test_every_mark_reads_back_from_its_reason(owner: str, reason: str, zone: int, microseconds: int) -> None:
    since = datetime.fromtimestamp(0, timezone(timedelta(hours=zone))) + timedelta(microseconds=microseconds)
    mark = Mark(owner=owner, reason=reason, since=since)
    back = mark_in(reason_of(mark))
    assert back is not None
    assert (back.owner, back.since) == (mark.owner, mark.since)
    assert back.reason == " ".join(reason.split())[:REASON_LIMIT].strip()


@pytest.mark.parametrize("reason", ["", "hotspare", "hotspare 2 is broken", "NHC: hotspare x 2026-01-01: y", "Not responding"])
def test_what_is_no_mark_is_not_taken_for_one(reason: str) -> None:
    assert mark_in(reason) is None


def test_numbers_that_are_not_set_are_no_numbers() -> None:
    head = Head.newer([job_row(node_count=maybe(None), restart_cnt=maybe(2))], [node_row(1, ["ALLOCATED"])])
    assert adapter(head).status("7").state is JobState.RUNNING
