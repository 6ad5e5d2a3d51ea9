"""The ledger: what is known of a host and its GPUs goes with the boards, over instance ids, and bans what is known bad."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from temporalio.testing import ActivityEnvironment

from activities.clients.fake_fleet import FakeFleet
from activities.clients.fake_machine import FakeFault
from activities.clients.fake_memory import FakeMemory
from activities.errors import BadInput, PreconditionFailed, ProviderBusy
from activities.fault_history import Weighed, weigh_with_past
from activities.gpu_records import GpuRecord, Strike, banned, same_host, with_strike
from activities.host_ledger import SEEN_AGAIN, boards_of, mark_gpu, with_sight
from activities.host_memory import (
    ClosedIncident,
    CloseHostIncident,
    HostMemory,
    HostMemoryActivities,
    HostRecord,
    RungAttempt,
    remember_attempt,
)
from activities.inventory import Node
from activities.names import FATE_RETIRED
from activities.node import DeepTest, DeepTestResult, Examine
from activities.probing import ProbeAnswer
from checks.kernel_log import read_lines
from checks.model import Action, Confidence, Diagnosis, Finding, GpuRef, Verdict

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
OLD = Node(instance_id="i-old", name="node-1", instance_type="p5.48xlarge", zone="us-east-1a", reservation="cr-1")
NEW = Node(instance_id="i-new", name="node-9", instance_type="p5.48xlarge", zone="us-east-1b")
GPUS = tuple(GpuRef(index=n, uuid=f"GPU-{n}", pci=f"0000:1{n}:00", serial=f"165{n}") for n in range(8))
LOST = "[ 4900.000000] NVRM: Xid (PCI:0000:13:00): 79, GPU has fallen off the bus."


def look(
    memory: HostMemory, node: Node, *lines: str, gpus: tuple[GpuRef, ...] = GPUS, at: datetime = NOW, uptime_s: float = 5000.0
) -> Weighed:
    """Look at a node as the activity does."""
    nothing = Diagnosis("none", Action.NONE, Confidence.LOW)
    fine = (Finding("nvml", Verdict.OK, "GPUs answer"),)
    events = tuple(read_lines(lines))
    seen = ProbeAnswer(Verdict.OK, f"boot of {node.name}", uptime_s, at, "p5.48xlarge", gpus, 0, fine, events, nothing)
    return weigh_with_past(memory, seen, Examine(node=node, incident=f"incident/lab/{node.instance_id}@run"), {})


def closing(fate: str = FATE_RETIRED, fault_class: str = "gpu_lost", serial: str = "1653", run: str = "run") -> CloseHostIncident:
    closed = ClosedIncident(
        incident="incident/lab/i-old",
        run_id=run,
        cluster="lab",
        instance_id="i-old",
        opened_at=NOW,
        closed_at=NOW + timedelta(hours=1),
        fault_class=fault_class,
        outcome="retired",
    )
    return CloseHostIncident(closed=closed, fate=fate, strike=True, gpu_serial=serial)


def test_a_look_writes_down_host_and_boards_once(memory: HostMemory) -> None:
    for minutes in range(3):
        look(memory, OLD, at=NOW + timedelta(minutes=minutes))
    record = memory.recall("i-old")
    assert (record.version, record.name, record.zone, record.reservation) == (1, "node-1", "us-east-1a", "cr-1")
    assert [gpu.serial for gpu in record.gpus] == [gpu.serial for gpu in GPUS]
    [gpu] = memory.gpus(["1653"])
    assert (gpu.version, gpu.uuid) == (1, "GPU-3")
    assert gpu.home is not None
    assert gpu.home.instance_id == "i-old"


def test_what_has_not_changed_is_written_down_again_a_day_later(memory: HostMemory) -> None:
    look(memory, OLD)
    look(memory, OLD, at=NOW + SEEN_AGAIN)
    [gpu] = memory.gpus(["1653"])
    assert [(home.first_seen, home.last_seen) for home in gpu.homes] == [(NOW, NOW + SEEN_AGAIN)]
    assert memory.recall("i-old").seen_at == NOW + SEEN_AGAIN


def test_a_gpu_that_fell_off_the_bus_is_known_by_its_address_and_stays_the_hosts(memory: HostMemory) -> None:
    look(memory, OLD)
    seven = tuple(gpu for gpu in GPUS if gpu.index != 3)
    found = look(memory, OLD, LOST, gpus=seven, at=NOW + timedelta(hours=1))
    assert found.diagnosis.gpu is not None
    assert found.diagnosis.gpu.serial == "1653"
    assert len(memory.recall("i-old").gpus) == 8
    assert memory.recall("i-old").faults[0].gpu_serial == "1653"


@pytest.mark.parametrize(
    ("uptime_s", "launched", "known"),
    [
        (90_000.0, None, True),
        (600.0, None, False),
        (600.0, NOW - timedelta(days=9), True),
        (600.0, NOW + timedelta(days=1), False),
    ],
)
def test_where_no_gpu_may_be_asked_the_host_is_that_of_before_if_it_was_not_started_since(
    uptime_s: float, launched: datetime | None, known: bool
) -> None:
    memory = FakeMemory()
    look(memory, OLD)
    lost = f"[ {uptime_s - 100:.6f}] NVRM: Xid (PCI:0000:13:00): 79, GPU has fallen off the bus."
    node = OLD.model_copy(update={"launched_at": launched})
    found = look(memory, node, lost, gpus=(), at=NOW + timedelta(days=1, hours=1), uptime_s=uptime_s)
    assert found.diagnosis.gpu is not None
    assert found.diagnosis.gpu.serial == ("1653" if known else "")
    assert len(memory.recall("i-old").gpus) == 8


def test_on_another_host_an_address_names_no_remembered_gpu(memory: HostMemory) -> None:
    look(memory, OLD)
    others = tuple(GpuRef(gpu.index, f"{gpu.uuid}b", gpu.pci, f"9{gpu.serial}") for gpu in GPUS if gpu.index != 3)
    found = look(memory, OLD, LOST, gpus=others, at=NOW + timedelta(hours=1))
    assert found.diagnosis.gpu is not None
    assert found.diagnosis.gpu.serial == ""
    assert [gpu.serial for gpu in memory.recall("i-old").gpus] == sorted(gpu.serial for gpu in others)


def test_the_past_of_a_host_is_found_under_its_new_instance_id(memory: HostMemory) -> None:
    look(memory, OLD, LOST)
    tried = RungAttempt(rung=Action.REBOOT_NODE, at=NOW + timedelta(minutes=5), fault_class="gpu_lost", gpu_serial="1653")
    remember_attempt(memory, "i-old", tried)
    first = look(memory, NEW, LOST, at=NOW + timedelta(days=6))
    assert first.elsewhere == (tried,)
    assert first.diagnosis.action is Action.REPLACE_NODE
    assert "second XID 79 on GPU serial 1653" in first.diagnosis.because[0]
    faults = memory.recall("i-new").faults
    assert [(fault.gpu_serial, fault.incident) for fault in faults] == [
        ("1653", "incident/lab/i-old@run"),
        ("1653", "incident/lab/i-new@run"),
    ]
    look(memory, NEW, LOST, at=NOW + timedelta(days=6, seconds=0.01))
    assert memory.recall("i-new").faults == faults


def test_a_step_on_the_old_instance_after_its_boards_had_left_is_not_theirs(memory: HostMemory) -> None:
    look(memory, OLD)
    later = RungAttempt(rung=Action.REBOOT_NODE, at=NOW + timedelta(days=5), fault_class="gpu_lost")
    remember_attempt(memory, "i-old", later)
    assert boards_of(memory, "i-new", GPUS).attempts() == []


def test_a_host_given_up_for_a_gpu_bans_it_wherever_it_shows_up(memory: HostMemory, surroundings: ActivityEnvironment) -> None:
    look(memory, OLD)
    for _ in range(2):
        surroundings.run(HostMemoryActivities(memory).close_host_incident, closing())
    [gpu] = memory.gpus(["1653"])
    assert [(strike.incident, strike.fault_class) for strike in gpu.strikes] == [("run", "gpu_lost")]
    assert len(gpu.marks) == 1
    found = look(memory, NEW, at=NOW + timedelta(days=1))
    assert (found.diagnosis.fault_class, found.diagnosis.action) == ("hardware", Action.REPLACE_NODE)
    assert "GPU 1653 is known bad since 2026-05-01: gpu_lost on i-old was not mended" in found.banned[0]


@pytest.mark.parametrize(
    ("fate", "fault_class"),
    [("back in service", "gpu_lost"), ("probation", "gpu_lost"), (FATE_RETIRED, "host"), (FATE_RETIRED, "configuration")],
)
def test_what_came_back_or_was_not_the_boards_fault_bans_nothing(fate: str, fault_class: str) -> None:
    memory = FakeMemory()
    ActivityEnvironment().run(HostMemoryActivities(memory).close_host_incident, closing(fate, fault_class))
    [gpu] = memory.gpus()
    assert gpu.known_bad is None
    assert len(gpu.strikes) == 1


def test_a_person_bans_a_gpu_and_lifts_the_ban_and_both_words_stay(memory: HostMemory) -> None:
    mark_gpu(memory, "1653", bad=True, by="ann", why="smells burnt", now=NOW)
    assert banned(memory.gpus()) == ["GPU 1653 is known bad since 2026-05-01: smells burnt (ann)"]
    mark_gpu(memory, "1653", bad=False, by="ben", why="board exchanged", now=NOW + timedelta(days=2))
    [gpu] = memory.gpus()
    assert gpu.known_bad is None
    assert [(mark.by, mark.bad) for mark in gpu.marks] == [("ann", True), ("ben", False)]
    with pytest.raises(BadInput, match="--why"):
        mark_gpu(memory, "1653", bad=True, by="ann", why=" ")


def test_of_two_writers_of_one_gpu_the_slower_reads_again(memory: HostMemory) -> None:
    saved = memory.save_gpu(GpuRecord(serial="1653"))
    with pytest.raises(PreconditionFailed):
        memory.save_gpu(GpuRecord(serial="1653"))
    assert memory.save_gpu(saved.model_copy(update={"uuid": "GPU-3"})).version == 2
    with pytest.raises(PreconditionFailed):
        memory.save_gpu(saved)
    assert [gpu.uuid for gpu in memory.gpus(["1653", "unknown"])] == ["GPU-3"]
    assert memory.gpus([]) == []


def test_a_gpu_that_two_looks_write_down_at_once_is_in_both_words() -> None:
    class Slow(FakeMemory):
        """Somebody bans the GPU between the look's read and its write."""

        def save_gpu(self, record: GpuRecord) -> GpuRecord:
            if record.serial == "1653" and not record.marks:
                mark_gpu(super(), "1653", bad=True, by="ann", why="burnt", now=NOW)  # type: ignore[arg-type]
            return super().save_gpu(record)

    memory = Slow()
    look(memory, OLD)
    [gpu] = memory.gpus(["1653"])
    assert gpu.known_bad is not None
    assert gpu.home is not None


def test_a_ledger_that_does_not_answer_is_said_and_no_ban_is_made_up() -> None:
    class Away(FakeMemory):
        def gpus(self, serials: object = None) -> list[GpuRecord]:
            raise ProviderBusy("the table is throttled")

    found = look(Away(), OLD, LOST)
    assert found.diagnosis.action is Action.REBOOT_NODE
    assert "not known: the table is throttled" in found.diagnosis.because[-1]
    assert found.banned == ()


def test_boards_without_a_serial_number_are_nobodys(memory: HostMemory) -> None:
    nameless = tuple(GpuRef(index=n, serial=serial) for n, serial in enumerate(("", "0", "N/A")))
    look(memory, OLD, gpus=nameless)
    assert memory.gpus() == []
    assert memory.recall("i-old").gpus == []


def test_a_look_that_finds_no_gpu_at_all_takes_none_from_the_host() -> None:
    known = with_sight(HostRecord(instance_id="i-old"), OLD, GPUS, NOW)
    assert with_sight(known, OLD, (), NOW + timedelta(hours=1)) == known


def test_same_host_is_any_serial_in_common() -> None:
    assert same_host(["a", "b"], ["b", "c"]) == ["b"]
    assert same_host(["a"], ["b"]) == []


def test_an_incident_strikes_once_and_old_strikes_make_room() -> None:
    strikes: list[Strike] = []
    for number in (1, 1, *range(2, 80)):
        strikes = with_strike(strikes, Strike(at=NOW, incident=f"run-{number}"))
    assert len(strikes) == 50
    assert strikes[-1].incident == "run-79"


class Nodes:
    """The node activities over a fleet."""

    def __init__(self, fleet: FakeFleet, folder: Path) -> None:
        gateway: object = None
        made = fleet.activities(gateway, folder)  # type: ignore[arg-type]
        self.by_name = {activity.__name__: activity for activity in made}

    def deep_test(self, request: DeepTest) -> DeepTestResult:
        result: DeepTestResult = ActivityEnvironment().run(self.by_name["deep_test"], request)
        return result


def test_a_spare_with_a_banned_gpu_is_refused_before_any_load(tmp_path: Path) -> None:
    fleet = FakeFleet(nodes=2, spares=1)
    serial = fleet.machines["spare-1"].serial_of(5)
    mark_gpu(fleet.memory, serial, bad=True, by="ann", why="RMA 123", now=NOW)
    result = Nodes(fleet, tmp_path).deep_test(DeepTest(node=fleet.node("spare-1"), run_id="r", joins=True, job="train"))
    assert result.verdict is Verdict.CRITICAL
    assert f"GPU {serial} is known bad" in result.because[0]
    assert fleet.count("start", "spare-1") == 0


def test_a_node_back_on_the_host_that_it_was_to_leave_does_not_pass(tmp_path: Path) -> None:
    fleet = FakeFleet(nodes=2, spares=1)
    left = [fleet.machines["node-1"].serial_of(gpu) for gpu in range(8)]
    result = Nodes(fleet, tmp_path).deep_test(DeepTest(node=fleet.node("node-1"), run_id="r", left_host=left))
    assert (result.verdict, result.cause) == (Verdict.CRITICAL, "same_host")
    assert "the same host as before it was stopped" in result.because[0]
    assert fleet.count("start", "node-1") == 0


def test_a_start_moves_a_fleets_machine_unless_it_is_told_to_stay() -> None:
    fleet = FakeFleet(nodes=2, spares=0)
    moved, stays = fleet.machines["node-1"], fleet.machines["node-2"]
    stays.stays_on_host = True
    before = moved.serial_of(0), stays.serial_of(0)
    for machine in (moved, stays):
        machine.inject(FakeFault(unreachable=True))
        machine.power_on()
    assert moved.serial_of(0) != before[0]
    assert stays.serial_of(0) == before[1]
