"""Group runs: started once, taken up again, judged, and ended when nobody waits for them any more."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from temporalio.activity import ActivityCancellationDetails
from temporalio.exceptions import CancelledError
from temporalio.testing import ActivityEnvironment

from activities import names
from activities.burn_in import KILL_GRACE_S, BurnInActivities, GroupTest, judged
from activities.clients.fake_fleet import FakeFleet
from activities.clients.fake_machine import FakeFault
from activities.clients.fake_text import mpirun_unreachable_text
from activities.clients.mpirun_launcher import MpirunLauncher, group_command
from activities.errors import NodeUnreachable
from activities.node_access import LOST, DetachedRun
from activities.probing import Probe
from activities.settings_burn_in import BurnInSettings
from checks.model import Verdict
from tests.activities.conftest import attempt


@pytest.fixture
def busy(fleet: FakeFleet, probe: Probe) -> BurnInActivities:
    """The activities, while the job runs on its nodes."""
    return BurnInActivities(fleet, fleet.gate(probe), BurnInSettings(), fleet.clock)


@pytest.fixture
def activities(fleet: FakeFleet, busy: BurnInActivities) -> BurnInActivities:
    """The activities, with the job held."""
    fleet.job.hold("train", "burn-in")
    return busy


def group(fleet: FakeFleet, *members: str, run_id: str = "burn/1") -> GroupTest:
    chosen = members or ("node-1", "node-2", "node-3", "node-4")
    return GroupTest(cluster="lab", run_id=run_id, nodes=[fleet.node(name) for name in chosen])


def test_a_healthy_group_is_ok_with_bandwidth_and_the_source_of_its_floor(
    fleet: FakeFleet, activities: BurnInActivities, surroundings: ActivityEnvironment
) -> None:
    result = surroundings.run(activities.group_test, group(fleet))
    assert (result.verdict, result.cause, result.busbw_gbs, result.wrong) == (Verdict.OK, "healthy", 470.0, 0)
    assert result.floor_gbs is not None
    assert result.floor_source


def test_a_run_of_fewer_ranks_than_were_asked_for_passes_nobody(
    fleet: FakeFleet, activities: BurnInActivities, surroundings: ActivityEnvironment
) -> None:
    """A launch command that starts too few leaves GPUs untested, also where the catalog does not know how many there are."""
    known = group(fleet)
    larger = known.model_copy(update={"nodes": [node.model_copy(update={"gpus": 16}) for node in known.nodes]})
    result = surroundings.run(activities.group_test, larger)
    assert (result.verdict, result.cause) == (Verdict.UNKNOWN, "could_not_run")
    assert "32 ranks ran where 64 were asked for" in result.evidence


def test_one_slow_member_slows_its_group_and_no_other(
    fleet: FakeFleet, activities: BurnInActivities, surroundings: ActivityEnvironment
) -> None:
    fleet.inject("node-3", FakeFault(slow=0.5))
    slow = surroundings.run(activities.group_test, group(fleet, "node-3", "node-4"))
    assert (slow.verdict, slow.cause, slow.busbw_gbs) == (Verdict.CRITICAL, "low_bandwidth", 235.0)
    assert surroundings.run(activities.group_test, group(fleet, "node-1", "node-2", run_id="burn/2")).verdict is Verdict.OK


def test_wrong_results_are_corruption_whatever_the_bandwidth(
    fleet: FakeFleet, activities: BurnInActivities, surroundings: ActivityEnvironment
) -> None:
    fleet.inject("node-3", FakeFault(wrong=2))
    result = surroundings.run(activities.group_test, group(fleet))
    assert (result.verdict, result.cause) == (Verdict.CRITICAL, "data_corruption")
    assert result.wrong


def test_the_nodes_of_a_running_job_are_not_burned_in(
    fleet: FakeFleet, busy: BurnInActivities, surroundings: ActivityEnvironment
) -> None:
    result = surroundings.run(busy.group_test, group(fleet, "node-1", "node-2", "spare-1"))
    assert (result.verdict, result.cause) == (Verdict.UNKNOWN, "could_not_run")
    assert "job train is running on node-1" in result.evidence
    assert "8 processes hold GPUs of node-2" in result.evidence
    assert result.culprits == ["host node-1", "host node-2"]
    assert "hold the job" in result.next
    assert fleet.count("group.start") == 0


def test_a_job_that_is_held_and_a_leased_spare_are_burned_in_together(
    fleet: FakeFleet, activities: BurnInActivities, surroundings: ActivityEnvironment
) -> None:
    lease = {names.TAG_LEASE: names.replace_id("lab", "i-1"), names.TAG_ROLE: names.ROLE_WORKER}
    fleet.ec2.set_tags(fleet.node("spare-1").instance_id, lease)
    result = surroundings.run(activities.group_test, group(fleet, "node-1", "node-2", "spare-1"))
    assert result.verdict is Verdict.OK


def test_a_group_with_a_silent_member_could_not_run_and_the_member_is_named(
    fleet: FakeFleet, activities: BurnInActivities, surroundings: ActivityEnvironment
) -> None:
    fleet.inject("node-3", FakeFault(unreachable=True))
    result = surroundings.run(activities.group_test, group(fleet))
    assert (result.verdict, result.cause, result.culprits) == (Verdict.UNKNOWN, "could_not_run", ["host node-3"])
    assert fleet.count("group.start") == 0


def test_a_member_that_falls_silent_while_the_run_starts_is_named_by_the_launcher(
    fleet: FakeFleet, activities: BurnInActivities, surroundings: ActivityEnvironment
) -> None:
    fleet.inject("node-3", FakeFault(unreachable=True))
    fleet.start("burn/1", group(fleet).nodes, 600.0)
    result = surroundings.run(activities.group_test, group(fleet))
    assert (result.verdict, result.cause, result.culprits) == (Verdict.UNKNOWN, "could_not_run", ["host node-3"])


def test_a_run_has_the_time_of_its_message_or_else_of_the_settings(
    fleet: FakeFleet, activities: BurnInActivities, surroundings: ActivityEnvironment
) -> None:
    fleet.looks_per_run = 1_000_000
    for deadline_s, ends_s in ((None, 600.0), (60.0, 60.0)):
        before, run_id = fleet.clock.now(), f"burn/{ends_s:.0f}"
        request = group(fleet, run_id=run_id).model_copy(update={"deadline_s": deadline_s})
        surroundings.run(activities.group_test, request)
        assert ends_s <= fleet.clock.now() - before < ends_s + KILL_GRACE_S + BurnInSettings().poll_s


def test_the_same_run_is_not_started_again_by_the_next_attempt(
    fleet: FakeFleet, activities: BurnInActivities, surroundings: ActivityEnvironment
) -> None:
    fleet.looks_per_run = 3
    fleet.start("burn/1", group(fleet).nodes, 600.0)
    fleet.machine("node-1").gpu_processes = 8  # those of the run itself
    assert attempt(2).run(activities.group_test, group(fleet)).verdict is Verdict.OK
    assert len(fleet.group_run_nodes) == 1


def test_a_run_that_never_ends_is_ended_and_is_not_ok(
    fleet: FakeFleet, activities: BurnInActivities, surroundings: ActivityEnvironment
) -> None:
    fleet.looks_per_run = 1_000_000
    result = surroundings.run(activities.group_test, group(fleet))
    assert result.verdict is not Verdict.OK
    assert fleet.poll("burn/1").exit_status == LOST


def test_a_run_whose_host_restarted_says_nothing_of_the_hardware(
    fleet: FakeFleet, activities: BurnInActivities, surroundings: ActivityEnvironment
) -> None:
    fleet.looks_per_run = 5
    fleet.start("burn/1", group(fleet).nodes, 600.0)
    fleet.group_runs["burn/1"].lose()
    result = surroundings.run(activities.group_test, group(fleet))
    assert (result.verdict, result.cause) == (Verdict.UNKNOWN, "could_not_run")


def test_a_launch_host_that_is_silent_is_tried_again(
    fleet: FakeFleet, activities: BurnInActivities, surroundings: ActivityEnvironment
) -> None:
    fleet.fail_next("group.start", NodeUnreachable("head: no answer"))
    with pytest.raises(Exception, match="head: no answer"):
        surroundings.run(activities.group_test, group(fleet))
    assert surroundings.run(activities.group_test, group(fleet)).verdict is Verdict.OK


@pytest.mark.parametrize(
    ("why", "ended"),
    [
        (ActivityCancellationDetails(cancel_requested=True), True),
        (ActivityCancellationDetails(not_found=True), True),
        (ActivityCancellationDetails(worker_shutdown=True), False),
        (ActivityCancellationDetails(timed_out=True), False),
        (ActivityCancellationDetails(paused=True), False),
    ],
    ids=["cancelled", "workflow gone", "worker shutdown", "timed out", "paused"],
)
async def test_a_run_is_ended_when_nobody_waits_for_it_and_left_when_somebody_will_take_it_up(
    fleet: FakeFleet, activities: BurnInActivities, why: ActivityCancellationDetails, ended: bool
) -> None:
    fleet.looks_per_run = 1_000_000
    surroundings = attempt()
    waiting = asyncio.Event()
    loop = asyncio.get_running_loop()

    def beat(*details: Any) -> None:
        if "burn/1" in fleet.group_runs:
            loop.call_soon_threadsafe(waiting.set)

    surroundings.on_heartbeat = beat
    request = group(fleet).model_copy(update={"deadline_s": 1e12})
    task = asyncio.create_task(asyncio.to_thread(surroundings.run, activities.group_test, request))
    await waiting.wait()
    surroundings.cancel(why)
    with pytest.raises(CancelledError):
        await task
    assert (fleet.poll("burn/1").exit_status == LOST) is ended


def test_the_launch_command_names_ranks_and_slots_of_each_node(fleet: FakeFleet) -> None:
    command = group_command(BurnInSettings(), group(fleet, "node-1", "spare-1").nodes, "burn/1")
    assert command[5:11] == ["mpirun", "-np", "16", "--host", "node-1:8,spare-1:8", "{environment}"]


def test_the_launcher_runs_detached_on_the_launch_host(fleet: FakeFleet) -> None:
    launcher = MpirunLauncher(lambda: fleet.access_to(fleet.node("head")), BurnInSettings(command=["all_reduce_perf"]))
    launcher.start("burn/1", group(fleet).nodes, 600.0)
    launcher.start("burn/1", group(fleet).nodes, 600.0)
    assert launcher.poll("burn/1").exit_status == 0
    launcher.kill("burn/1")
    assert not launcher.poll("burn/2").known


def test_a_run_that_did_not_pass_keeps_its_transport_and_its_first_warning(fleet: FakeFleet) -> None:
    log = "node-3:77:78 [2] NCCL INFO Using network Socket\nnode-3:77:78 [2] net.cc:9 NCCL WARN Connect to node-4<400> failed\n"
    header = (
        "# nThread 1 nGpus 1 minBytes 8 maxBytes 8\n#  Rank 18 Group  0 Pid     77 on     node-3 device  2 [0x53] NVIDIA H100\n"
    )
    run = DetachedRun(run_id="burn/1", known=True, exit_status=143, output=header + log)
    result = judged(run, group(fleet).nodes, {})
    assert (result.verdict, result.transport) == (Verdict.CRITICAL, "sockets")
    assert "first warning of NCCL, by rank 18 on node-3: Connect to node-4<400> failed" in result.evidence
    assert len(result.log) == 2


def test_a_host_that_the_launcher_tells_by_its_address_is_named(fleet: FakeFleet) -> None:
    nodes = [node.model_copy(update={"ip": f"10.0.0.{at}1"}) for at, node in enumerate(group(fleet, "node-1", "node-2").nodes)]
    run = DetachedRun(run_id="burn/1", known=True, exit_status=1, output=mpirun_unreachable_text("10.0.0.11"))
    result = judged(run, nodes, {})
    assert result.culprits == ["host node-2"]
    assert "node-2 (10.0.0.11)" in result.evidence
    other = run.model_copy(update={"output": mpirun_unreachable_text("10.0.0.111")})
    assert judged(other, nodes, {}).culprits == ["host 10.0.0.111"]


def test_what_a_run_of_ours_that_is_over_has_left_is_ended_and_the_run_goes_ahead(
    fleet: FakeFleet, activities: BurnInActivities, surroundings: ActivityEnvironment
) -> None:
    fleet.machine("node-2").left_behind = {4711: ("all_reduce_perf", "burn/0")}
    assert surroundings.run(activities.group_test, group(fleet)).verdict is Verdict.OK
    assert fleet.machine("node-2").left_behind == {}


def test_what_somebody_else_left_is_named_with_its_pid_and_never_touched(
    fleet: FakeFleet, activities: BurnInActivities, surroundings: ActivityEnvironment
) -> None:
    fleet.machine("node-2").left_behind = {4711: ("all_reduce_perf", ""), 4712: ("python3", "")}
    result = surroundings.run(activities.group_test, group(fleet))
    assert (result.verdict, result.cause, result.culprits) == (Verdict.UNKNOWN, "leftover_processes", ["host node-2"])
    assert "2 processes hold GPUs of node-2 (pid 4711 all_reduce_perf, pid 4712 python3)" in result.evidence
    assert "sudo kill" in result.next
    assert set(fleet.machine("node-2").left_behind) == {4711, 4712}
    assert fleet.count("group.start") == 0


def test_a_run_of_ours_that_is_still_at_work_is_not_ended_by_another(
    fleet: FakeFleet, activities: BurnInActivities, surroundings: ActivityEnvironment
) -> None:
    fleet.looks_per_run = 1_000_000
    fleet.start("burn/0", group(fleet, "node-2").nodes, 600.0)
    fleet.machine("node-2").left_behind = {4711: ("all_reduce_perf", "burn/0")}
    result = surroundings.run(activities.group_test, group(fleet))
    assert result.verdict is Verdict.UNKNOWN
    assert "our own run burn/0 is still at work on node-2" in result.evidence
    assert set(fleet.machine("node-2").left_behind) == {4711}


def test_what_an_earlier_try_of_this_very_run_has_started_is_no_hindrance(
    fleet: FakeFleet, activities: BurnInActivities, surroundings: ActivityEnvironment
) -> None:
    fleet.machine("node-2").left_behind = {4711: ("torch_all_reduce.py", "burn/1")}
    assert surroundings.run(activities.group_test, group(fleet)).verdict is Verdict.OK
    assert set(fleet.machine("node-2").left_behind) == {4711}


def test_leftovers_on_a_node_that_falls_silent_keep_the_run_from_starting(
    fleet: FakeFleet, activities: BurnInActivities, surroundings: ActivityEnvironment
) -> None:
    fleet.machine("node-2").left_behind = {4711: ("all_reduce_perf", "burn/0")}
    fleet.fail_next("run.end_run", NodeUnreachable("node-2: no answer"), node="node-2")
    result = surroundings.run(activities.group_test, group(fleet))
    assert (result.verdict, fleet.count("group.start")) == (Verdict.UNKNOWN, 0)
    assert "could not be ended: node-2: no answer" in result.evidence


def test_a_run_that_is_ended_at_its_deadline_leaves_nothing_on_its_nodes(
    fleet: FakeFleet, activities: BurnInActivities, surroundings: ActivityEnvironment
) -> None:
    fleet.looks_per_run = 1_000_000
    fleet.start("burn/1", group(fleet).nodes, 600.0)
    fleet.machine("node-3").left_behind = {4711: ("all_reduce_perf", "burn/1"), 4712: ("all_reduce_perf", "")}
    surroundings.run(activities.group_test, group(fleet))
    assert set(fleet.machine("node-3").left_behind) == {4712}


def test_what_a_run_of_ours_left_under_another_login_is_named(
    fleet: FakeFleet, activities: BurnInActivities, surroundings: ActivityEnvironment
) -> None:
    fleet.machine("node-2").left_behind = {4711: ("all_reduce_perf", "burn/0")}
    fleet.machine("node-2").ends_nothing = True
    result = surroundings.run(activities.group_test, group(fleet))
    assert result.verdict is Verdict.UNKNOWN
    assert "pid 4711 of run burn/0 is still on node-2: another login's" in result.evidence
