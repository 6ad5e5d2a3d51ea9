"""Preemptible work on a spare: evicted once it is there, waited for, and never taken to be gone."""

from __future__ import annotations

from pathlib import Path

import pytest
from temporalio.exceptions import ApplicationError

from activities.clients.fake_fleet import FakeFleet
from activities.errors import CommandFailed
from activities.node_access import CommandResult
from activities.probing import ChecksArchive, Probe
from activities.settings_access import AccessSettings
from activities.spare_work import Cleared, ClearSpare, CommandSpareWork, PreemptibleSettings, SpareWorkActivities
from tests.activities.conftest import attempt

SETTINGS = PreemptibleSettings(evict=["evict", "{node}"], idle_deadline_s=60)


class Stubborn:
    """Work that takes so many looks to leave; None: it never does."""

    def __init__(self, fleet: FakeFleet, looks: int | None) -> None:
        self.fleet, self.looks, self.told = fleet, looks, 0

    def evict(self, node: object) -> None:
        self.told += 1


@pytest.fixture
def fleet() -> FakeFleet:
    return FakeFleet()


def activities(fleet: FakeFleet, folder: Path, work: object = None) -> SpareWorkActivities:
    archive = folder / "checks.tar.gz"
    archive.write_bytes(b"")
    gate = fleet.gate(Probe(ChecksArchive(archive, "fake"), AccessSettings()))
    return SpareWorkActivities(work or fleet, gate, SETTINGS, fleet.clock)  # type: ignore[arg-type]


def clear(held: SpareWorkActivities, fleet: FakeFleet) -> Cleared:
    answer: Cleared = attempt().run(held.clear_spare, ClearSpare(node=fleet.node("spare-1")))
    return answer


def test_an_idle_spare_is_left_as_it_is(fleet: FakeFleet, tmp_path: Path) -> None:
    cleared = clear(activities(fleet, tmp_path), fleet)
    assert (cleared.evicted, cleared.said) == (False, "spare-1 is idle")
    assert fleet.count("evict") == 0


def test_work_on_a_spare_is_evicted_once_and_the_node_is_seen_to_be_idle(fleet: FakeFleet, tmp_path: Path) -> None:
    fleet.machine("spare-1").gpu_processes = 8
    assert clear(activities(fleet, tmp_path), fleet).evicted
    assert fleet.count("evict", "spare-1") == 1
    assert fleet.machine("spare-1").gpu_processes == 0


def test_work_that_does_not_leave_is_named_when_the_deadline_has_passed(fleet: FakeFleet, tmp_path: Path) -> None:
    fleet.machine("spare-1").gpu_processes = 3
    work = Stubborn(fleet, None)
    with pytest.raises(ApplicationError, match="not idle 60 s after its work was evicted: 3 processes hold GPUs"):
        clear(activities(fleet, tmp_path, work), fleet)
    assert work.told == 1


class Head:
    """The head node's access: remembers what was run."""

    def __init__(self, exit_status: int) -> None:
        self.ran: list[list[str]] = []
        self._exit_status = exit_status

    def run(self, command: list[str], deadline_s: float) -> CommandResult:
        self.ran.append(command)
        return CommandResult(exit_status=self._exit_status, stdout="", stderr="no such partition")


def test_the_command_of_the_settings_is_run_on_the_head_node_for_the_one_spare(fleet: FakeFleet) -> None:
    head = Head(0)
    CommandSpareWork(lambda: head, SETTINGS).evict(fleet.node("spare-1"))  # type: ignore[arg-type,return-value]
    assert head.ran == [["evict", "spare-1"]]
    with pytest.raises(CommandFailed, match=r"preemptible\.evict for spare-1 ended with status 2: no such partition"):
        CommandSpareWork(lambda: Head(2), SETTINGS).evict(fleet.node("spare-1"))  # type: ignore[arg-type,return-value]


def test_a_spare_of_which_nothing_can_be_seen_is_not_idle(fleet: FakeFleet, tmp_path: Path) -> None:
    fleet.machine("spare-1").looks_until_up = 10_000
    with pytest.raises(ApplicationError, match="not known"):
        clear(activities(fleet, tmp_path, Stubborn(fleet, None)), fleet)
