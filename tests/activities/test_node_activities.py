"""Looking at nodes and testing them: what cannot be read is unknown, and a broken monitor is no broken node."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.clients.fake_fleet import FakeFleet
from activities.clients.fake_machine import Cure, FakeFault
from activities.errors import AccessRefused, NodeUnreachable
from activities.names import TAG_QUARANTINE, incident_id
from activities.node import DeepTest, Examine, Gpu, NodeActivities, Report, ResetGpu
from activities.node_access import CommandResult, NodeAccess
from activities.probing import Probe
from activities.settings_access import AccessSettings
from activities.settings_burn_in import BurnInSettings
from checks.model import Action, Confidence, Verdict
from tests.activities.conftest import attempt


def made(fleet: FakeFleet, probe: Probe, folder: Path, access_to: Callable[[Any], NodeAccess] | None = None) -> NodeActivities:
    return NodeActivities(
        access_to or fleet.access_to,
        probe,
        fleet.gate(probe),
        AccessSettings(),
        BurnInSettings(),
        fleet.memory,
        fleet.clock,
    )


@pytest.fixture
def activities(fleet: FakeFleet, probe: Probe, tmp_path: Path) -> NodeActivities:
    return made(fleet, probe, tmp_path)


def failure(call: Callable[[], Any]) -> ApplicationError:
    with pytest.raises(ApplicationError) as raised:
        call()
    return raised.value


def test_a_healthy_node_is_ok_and_nothing_is_held_against_it(
    fleet: FakeFleet, activities: NodeActivities, surroundings: ActivityEnvironment
) -> None:
    seen = surroundings.run(activities.examine, Examine(node=fleet.node("node-1")))
    assert (seen.reachable, seen.verdict, seen.opinion.fault_class) == (True, Verdict.OK, "none")
    assert (len(seen.gpu_serials), seen.gpu_processes) == (8, 8)
    assert seen.boot_id == fleet.machine("node-1").boot_id


def test_the_checks_are_copied_once_however_often_a_node_is_examined(
    fleet: FakeFleet, activities: NodeActivities, surroundings: ActivityEnvironment
) -> None:
    for _ in range(3):
        surroundings.run(activities.examine, Examine(node=fleet.node("node-1")))
    assert fleet.count("put", "node-1") == 1


def test_a_kernel_line_and_a_reading_that_agree_are_a_confident_diagnosis(
    fleet: FakeFleet, activities: NodeActivities, surroundings: ActivityEnvironment
) -> None:
    fleet.inject("node-1", FakeFault(xid=79, gpu=5))
    report = Report(source="watcher", xid=79)
    seen = surroundings.run(activities.examine, Examine(node=fleet.node("node-1"), reports=[report]))
    opinion = seen.opinion
    assert (opinion.fault_class, opinion.action, opinion.confidence, opinion.code) == (
        "gpu_lost",
        Action.REBOOT_NODE,
        Confidence.HIGH,
        79,
    )
    assert any("watcher reported XID 79: confirmed" in reason for reason in opinion.because)
    assert seen.verdict is Verdict.CRITICAL


def test_a_report_that_nothing_on_the_node_confirms_accuses_nobody(
    fleet: FakeFleet, activities: NodeActivities, surroundings: ActivityEnvironment
) -> None:
    report = Report(source="alertmanager", xid=79, seen_at=datetime.now(UTC))
    seen = surroundings.run(activities.examine, Examine(node=fleet.node("node-1"), reports=[report]))
    assert (seen.verdict, seen.opinion.fault_class) == (Verdict.OK, "none")
    assert any("not confirmed" in reason for reason in seen.opinion.because)


def test_a_line_that_was_dealt_with_before_is_history(
    fleet: FakeFleet, activities: NodeActivities, surroundings: ActivityEnvironment
) -> None:
    fleet.inject("node-1", FakeFault(xid=94))
    look = Examine(node=fleet.node("node-1"))
    assert surroundings.run(activities.examine, look).opinion.fault_class == "memory_contained"
    later = look.model_copy(update={"handled_until": datetime.now(UTC) + timedelta(seconds=1)})
    assert surroundings.run(activities.examine, later).opinion.fault_class == "none"


@pytest.mark.parametrize("fault", [FakeFault(unreachable=True), FakeFault(cure=Cure.HANG)], ids=["silent", "hung"])
def test_a_node_that_does_not_answer_is_unknown_and_unreachable(
    fleet: FakeFleet, activities: NodeActivities, surroundings: ActivityEnvironment, fault: FakeFault
) -> None:
    fleet.inject("node-1", fault)
    seen = surroundings.run(activities.examine, Examine(node=fleet.node("node-1")))
    assert (seen.reachable, seen.verdict, seen.opinion.fault_class) == (False, Verdict.UNKNOWN, "unreachable")
    assert seen.why_unreachable


def test_one_lost_connection_is_not_an_unreachable_node(
    fleet: FakeFleet, activities: NodeActivities, surroundings: ActivityEnvironment
) -> None:
    fleet.fail_next("run.probe", NodeUnreachable("reset by peer"))
    assert surroundings.run(activities.examine, Examine(node=fleet.node("node-1"))).verdict is Verdict.OK


def test_a_refused_login_is_unknown_and_nothing_is_recommended(
    fleet: FakeFleet, activities: NodeActivities, surroundings: ActivityEnvironment
) -> None:
    fleet.fail_next("run.probe", AccessRefused("the host key is not known"))
    seen = surroundings.run(activities.examine, Examine(node=fleet.node("node-1")))
    assert (seen.reachable, seen.verdict, seen.opinion.fault_class, seen.opinion.action) == (
        True,
        Verdict.UNKNOWN,
        "none",
        Action.NONE,
    )
    assert "host key" in seen.opinion.because[0]


@pytest.mark.parametrize(
    "printed", ["", "Traceback (most recent call last): ...", '{"schema": 1, "verdict": "OK"', '{"schema": 9}', "{}", "[]"]
)
def test_a_probe_that_crashes_on_a_node_that_answers_is_unknown_and_never_ok(
    fleet: FakeFleet, probe: Probe, tmp_path: Path, surroundings: ActivityEnvironment, printed: str
) -> None:
    class Crashing:
        """FakeFleet's access, but the probe prints something else."""

        def __init__(self, real: NodeAccess) -> None:
            self._real = real

        def __getattr__(self, name: str) -> Any:
            return getattr(self._real, name)

        def run(self, command: list[str], deadline_s: float, output_limit: int | None = None) -> CommandResult:
            if any(part.endswith("run_checks.py") for part in command):
                return CommandResult(exit_status=0, stdout=printed, stderr="")
            return self._real.run(command, deadline_s, output_limit)

    activities = made(fleet, probe, tmp_path, lambda node: Crashing(fleet.access_to(node)))
    seen = surroundings.run(activities.examine, Examine(node=fleet.node("node-1")))
    assert (seen.reachable, seen.verdict, seen.opinion.fault_class) == (True, Verdict.UNKNOWN, "none")


def test_what_enters_history_is_short_however_much_is_found(
    fleet: FakeFleet, activities: NodeActivities, surroundings: ActivityEnvironment
) -> None:
    for gpu in range(8):
        for xid in (31, 48, 63, 64, 74, 94, 95, 119):
            fleet.inject("node-1", FakeFault(xid=xid, gpu=gpu))
    seen = surroundings.run(activities.examine, Examine(node=fleet.node("node-1")))
    assert len(seen.model_dump_json()) < 16_000
    assert seen.findings[0].verdict is Verdict.CRITICAL


def test_a_healthy_idle_node_passes_its_deep_test(
    fleet: FakeFleet, activities: NodeActivities, surroundings: ActivityEnvironment
) -> None:
    result = surroundings.run(activities.deep_test, DeepTest(node=fleet.node("spare-1"), run_id="deep/1"))
    assert (result.verdict, result.cause, result.busbw_gbs, result.floor_gbs) == (Verdict.OK, "healthy", 480.0, 430.0)


def test_a_node_on_which_somebody_computes_is_not_tested(
    fleet: FakeFleet, activities: NodeActivities, surroundings: ActivityEnvironment
) -> None:
    result = surroundings.run(activities.deep_test, DeepTest(node=fleet.node("node-1"), run_id="deep/1"))
    assert (result.verdict, result.cause) == (Verdict.UNKNOWN, "could_not_run")
    assert "job train is running on node-1" in result.because
    assert "8 processes hold GPUs of node-1" in result.because
    assert fleet.count("start", "node-1") == 0


def test_an_idle_node_that_is_not_ours_is_not_tested_until_an_incident_has_quarantined_it(
    fleet: FakeFleet, activities: NodeActivities, surroundings: ActivityEnvironment
) -> None:
    fleet.job.nodes = ["node-2", "node-3", "node-4"]
    node, test = fleet.node("node-1"), DeepTest(node=fleet.node("node-1"), run_id="deep/1")
    fleet.machine("node-1").gpu_processes = 0
    result = surroundings.run(activities.deep_test, test)
    assert (result.verdict, result.cause) == (Verdict.UNKNOWN, "could_not_run")
    assert "node-1 is not ours to test" in result.because[0]
    assert fleet.count("start", "node-1") == 0
    fleet.ec2.set_tags(node.instance_id, {TAG_QUARANTINE: incident_id("lab", node.instance_id)})
    assert surroundings.run(activities.deep_test, test).verdict is Verdict.OK


@pytest.mark.parametrize(("said", "ends_s"), [(None, 600.0), (77.0, 77.0)])
def test_a_test_has_the_time_of_its_message_or_else_of_the_settings(
    fleet: FakeFleet, probe: Probe, tmp_path: Path, surroundings: ActivityEnvironment, said: float | None, ends_s: float
) -> None:
    started: list[float] = []

    class Noting:
        """FakeFleet's access, which notes the time that a run is given."""

        def __init__(self, real: NodeAccess) -> None:
            self._real = real

        def __getattr__(self, name: str) -> Any:
            return getattr(self._real, name)

        def start(self, run_id: str, command: list[str], deadline_s: float) -> None:
            started.append(deadline_s)
            self._real.start(run_id, command, deadline_s)

    activities = made(fleet, probe, tmp_path, lambda node: Noting(fleet.access_to(node)))
    surroundings.run(activities.deep_test, DeepTest(node=fleet.node("spare-1"), run_id="deep/1", deadline_s=said))
    assert started == [ends_s]


def test_a_node_that_is_ill_is_not_put_under_load(
    fleet: FakeFleet, activities: NodeActivities, surroundings: ActivityEnvironment
) -> None:
    fleet.inject("spare-1", FakeFault(xid=64))
    result = surroundings.run(activities.deep_test, DeepTest(node=fleet.node("spare-1"), run_id="deep/1"))
    assert result.verdict is Verdict.CRITICAL
    assert fleet.count("start", "spare-1") == 0


def test_a_node_that_is_slow_by_itself_fails_its_deep_test(
    fleet: FakeFleet, activities: NodeActivities, surroundings: ActivityEnvironment
) -> None:
    fleet.inject("spare-1", FakeFault(slow=0.5, slow_kind="intra"))
    result = surroundings.run(activities.deep_test, DeepTest(node=fleet.node("spare-1"), run_id="deep/1"))
    assert (result.verdict, result.busbw_gbs) == (Verdict.CRITICAL, 240.0)


def test_a_node_that_does_not_answer_is_not_passed(
    fleet: FakeFleet, activities: NodeActivities, surroundings: ActivityEnvironment
) -> None:
    fleet.inject("spare-1", FakeFault(unreachable=True))
    error = failure(lambda: surroundings.run(activities.deep_test, DeepTest(node=fleet.node("spare-1"), run_id="deep/1")))
    assert (error.type, error.non_retryable) == ("NodeUnreachable", False)


def test_a_deep_test_that_another_worker_takes_up_is_not_started_again(
    fleet: FakeFleet, activities: NodeActivities, surroundings: ActivityEnvironment
) -> None:
    fleet.looks_per_node_run = 3
    fleet.access_to(fleet.node("spare-1")).start("deep/1", ["all_reduce_perf"], 900.0)
    fleet.machine("spare-1").gpu_processes = 8
    result = attempt(2).run(activities.deep_test, DeepTest(node=fleet.node("spare-1"), run_id="deep/1"))
    assert result.verdict is Verdict.OK
    assert fleet.count("start", "spare-1") == 1


def test_a_node_that_restarts_during_its_deep_test_has_no_result(
    fleet: FakeFleet, activities: NodeActivities, surroundings: ActivityEnvironment
) -> None:
    fleet.looks_per_node_run = 3
    fleet.access_to(fleet.node("spare-1")).start("deep/1", ["all_reduce_perf"], 900.0)
    fleet.machine("spare-1").reboot()
    fleet.machine("spare-1").looks_until_up = 0
    result = surroundings.run(activities.deep_test, DeepTest(node=fleet.node("spare-1"), run_id="deep/1"))
    assert result.verdict is Verdict.UNKNOWN


def reset(fleet: FakeFleet, alias: str = "spare-1", **changes: Any) -> ResetGpu:
    request = ResetGpu(node=fleet.node(alias), gpu=Gpu(index=3), token="t1", boot_id=fleet.machine(alias).boot_id)
    return request.model_copy(update=changes)


def test_a_gpu_that_nobody_uses_is_reset(fleet: FakeFleet, activities: NodeActivities, surroundings: ActivityEnvironment) -> None:
    fleet.inject("spare-1", FakeFault(xid=95, gpu=3, cure=Cure.RESET))
    assert surroundings.run(activities.reset_gpu, reset(fleet)).made_now
    assert fleet.machine("spare-1").faults == []


def test_a_gpu_is_not_reset_under_a_job_nor_after_a_restart_nor_when_it_is_not_known(
    fleet: FakeFleet, activities: NodeActivities, surroundings: ActivityEnvironment
) -> None:
    for request, kind in (
        (reset(fleet, "node-1"), "PreconditionFailed"),
        (reset(fleet, boot_id="an earlier boot"), "PreconditionFailed"),
        (reset(fleet, gpu=Gpu()), "BadInput"),
    ):
        assert failure(lambda request=request: surroundings.run(activities.reset_gpu, request)).type == kind  # type: ignore[misc]
    assert fleet.count("run.reset") == 0


def test_a_reset_that_does_not_work_is_final_and_no_verdict_on_the_hardware(
    fleet: FakeFleet, activities: NodeActivities, surroundings: ActivityEnvironment
) -> None:
    fleet.inject("spare-1", FakeFault(xid=79, gpu=3))
    error = failure(lambda: surroundings.run(activities.reset_gpu, reset(fleet)))
    assert (error.type, error.non_retryable) == ("PreconditionFailed", True)
