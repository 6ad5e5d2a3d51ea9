"""Host memory: one contract for the SQLite file, the DynamoDB table and the fake, and what the activities do with it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from temporalio.testing import ActivityEnvironment

from activities.bandwidth_records import KEPT_RUNS, BandwidthRecord, CleanRun, with_runs
from activities.clients.sqlite_memory import KEPT_BANDWIDTH_DAYS, SqliteMemory
from activities.errors import PreconditionFailed, ProviderBusy
from activities.host_memory import (
    ClosedIncident,
    CloseHostIncident,
    Freeze,
    HostMemory,
    HostMemoryActivities,
    HostRecord,
    LoadFreezes,
    RungAttempt,
    SaveFreezes,
    SeenConfiguration,
    remember_attempt,
    remember_bandwidth,
)
from checks.model import Action

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def closed(incident: str = "incident/lab/i-1", at: datetime = NOON, instance_id: str = "i-1") -> ClosedIncident:
    return ClosedIncident(
        incident=incident,
        run_id="r1",
        cluster="lab",
        instance_id=instance_id,
        opened_at=at - timedelta(minutes=5),
        closed_at=at,
        fault_class="gpu_lost",
        outcome="resolved",
        decisions=["{}"],
    )


def test_a_host_that_nobody_saw_has_an_empty_record_of_version_0(memory: HostMemory) -> None:
    assert memory.recall("i-1") == HostRecord(instance_id="i-1")


def test_a_record_is_stored_if_nobody_was_quicker(memory: HostMemory) -> None:
    saved = memory.save(HostRecord(instance_id="i-1", strikes=1))
    assert saved.version == 1
    assert memory.recall("i-1") == saved
    with pytest.raises(PreconditionFailed):
        memory.save(HostRecord(instance_id="i-1", strikes=7))
    again = memory.save(saved.model_copy(update={"strikes": 2}))
    with pytest.raises(PreconditionFailed):
        memory.save(saved.model_copy(update={"strikes": 9}))
    assert memory.recall("i-1") == again
    assert [record.strikes for record in memory.records()] == [2]


def test_an_intent_is_new_once_until_it_is_withdrawn(memory: HostMemory) -> None:
    assert memory.intent_age_s("t") is None
    assert memory.note_intent("t", "reboot")
    assert not memory.note_intent("t", "reboot")
    age = memory.intent_age_s("t")
    assert age is not None
    assert 0.0 <= age < 3600.0
    memory.withdraw_intent("t")
    assert memory.note_intent("t", "reboot")


def test_closed_incidents_come_newest_first_of_one_host_or_of_all(memory: HostMemory) -> None:
    memory.save_incident(closed("incident/lab/i-1", NOON))
    memory.save_incident(closed("incident/lab/i-2", NOON + timedelta(hours=1), "i-2"))
    memory.save_incident(closed("incident/lab/i-2", NOON + timedelta(hours=1), "i-2"))
    assert [one.instance_id for one in memory.incidents()] == ["i-2", "i-1"]
    assert [one.closed_at for one in memory.incidents("i-1")] == [NOON]
    assert [one.instance_id for one in memory.incidents(limit=1)] == ["i-2"]


def test_an_incident_that_is_stored_again_replaces_itself(memory: HostMemory) -> None:
    memory.save_incident(closed())
    memory.save_incident(closed(at=NOON + timedelta(minutes=9)))
    assert [one.closed_at for one in memory.incidents()] == [NOON + timedelta(minutes=9)]
    assert len(memory.incidents("i-1")) == 1


def test_records_come_by_their_names_and_each_once(memory: HostMemory) -> None:
    for instance_id in ("i-2", "i-1"):
        memory.save(memory.save(HostRecord(instance_id=instance_id)))
    assert [record.instance_id for record in memory.records()] == ["i-1", "i-2"]
    assert [record.version for record in memory.records()] == [2, 2]


def test_clean_runs_are_kept_by_kind_each_once_and_the_newest_alone(memory: HostMemory) -> None:
    today = datetime.now(UTC)
    runs = [
        CleanRun(run_id=f"r{number}", at=today + timedelta(seconds=number), busbw_gbs=470.0) for number in range(KEPT_RUNS + 6)
    ]
    assert memory.bandwidths(["lab p5.48xlarge x4"]) == []
    for part in (runs[:40], runs[:40], runs[40:]):
        record = remember_bandwidth(memory, "lab p5.48xlarge x4", partial(with_runs, new=part))
    remember_bandwidth(memory, "lab p5.48xlarge x2", lambda record: with_runs(record, runs[:1]))
    assert memory.bandwidths(["lab p5.48xlarge x4", "unknown"]) == [record]
    assert (record.seen, record.runs) == (KEPT_RUNS + 6, runs[6:])
    assert [one.key for one in memory.bandwidths()] == ["lab p5.48xlarge x2", "lab p5.48xlarge x4"]


def test_clean_runs_are_stored_if_nobody_was_quicker(memory: HostMemory) -> None:
    run = CleanRun(run_id="r1", at=datetime.now(UTC), busbw_gbs=470.0)
    saved = memory.save_bandwidth(BandwidthRecord(key="k", runs=[run], seen=1))
    assert saved.version == 1
    with pytest.raises(PreconditionFailed):
        memory.save_bandwidth(BandwidthRecord(key="k", seen=9))
    assert memory.bandwidths(["k"]) == [saved]


def test_clean_runs_of_software_that_nobody_uses_any_more_are_forgotten(tmp_path: Path) -> None:
    memory = SqliteMemory(tmp_path / "memory.sqlite3")
    for key, days in (("old", KEPT_BANDWIDTH_DAYS + 1), ("new", 1)):
        at = datetime.now(UTC) - timedelta(days=days)
        memory.save_bandwidth(BandwidthRecord(key=key, runs=[CleanRun(run_id="r", at=at, busbw_gbs=1.0)], seen=1))
    assert [one.key for one in memory.bandwidths()] == ["new"]


def test_freezes_are_kept_by_cluster(memory: HostMemory) -> None:
    freeze = Freeze(scope="cluster", until=NOON, who="ops", why="maintenance")
    memory.save_freezes("lab", [freeze])
    assert memory.freezes("lab") == [freeze]
    assert memory.freezes("other") == []


def test_what_was_stored_is_there_for_another_process(tmp_path: Path) -> None:
    file = tmp_path / "memory.sqlite3"
    SqliteMemory(file).save(HostRecord(instance_id="i-1", gpu_serials=["s1"]))
    SqliteMemory(file).note_intent("t", "reboot")
    other = SqliteMemory(file)
    assert other.recall("i-1").gpu_serials == ["s1"]
    assert not other.note_intent("t", "reboot")


def test_of_many_writers_at_once_each_change_is_kept(memory: HostMemory) -> None:
    def append(number: int) -> Callable[[], None]:
        attempt = RungAttempt(rung=Action.REBOOT_NODE, at=NOON + timedelta(seconds=number), fault_class="gpu_lost")

        def run() -> None:
            while True:
                try:
                    remember_attempt(memory, "i-1", attempt)
                except ProviderBusy:
                    continue
                return

        return run

    threads = [threading.Thread(target=append(number)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(memory.recall("i-1").attempts) == 8


def test_of_many_who_note_one_intent_exactly_one_is_the_first(tmp_path: Path) -> None:
    file = tmp_path / "memory.sqlite3"
    SqliteMemory(file)
    firsts: list[bool] = []
    threads = [threading.Thread(target=lambda: firsts.append(SqliteMemory(file).note_intent("t", "x"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(firsts) == [False] * 7 + [True]


def test_the_same_attempt_is_recorded_once(memory: HostMemory) -> None:
    attempt = RungAttempt(rung=Action.REBOOT_NODE, at=NOON, fault_class="gpu_lost", incident="incident/lab/i-1")
    for _ in range(2):
        remember_attempt(memory, "i-1", attempt)
    assert memory.recall("i-1").attempts == [attempt]


def test_closing_an_incident_twice_counts_one_strike(memory: HostMemory, surroundings: ActivityEnvironment) -> None:
    activities = HostMemoryActivities(memory)
    attempt = RungAttempt(rung=Action.REBOOT_NODE, at=NOON, fault_class="gpu_lost", incident=closed().run_id)
    remember_attempt(memory, "i-1", attempt)
    request = CloseHostIncident(closed=closed(), fate="probation", strike=True, last_rung_helped=True, qualified_at=NOON)
    for _ in range(2):
        record = surroundings.run(activities.close_host_incident, request)
    assert (record.strikes, record.fate, record.qualified_at) == (1, "probation", NOON)
    assert record.attempts[-1].helped is True
    assert len(memory.incidents("i-1")) == 1


def test_freezes_go_through_the_activities(memory: HostMemory, surroundings: ActivityEnvironment) -> None:
    activities = HostMemoryActivities(memory)
    freeze = Freeze(scope="node:i-1", until=NOON, who="ops", why="maintenance")
    surroundings.run(activities.save_freezes, SaveFreezes(cluster="lab", freezes=[freeze]))
    assert surroundings.run(activities.load_freezes, LoadFreezes(cluster="lab")).freezes == [freeze]


def test_a_store_that_cannot_be_read_says_so_and_is_not_taken_for_empty(tmp_path: Path) -> None:
    memory = SqliteMemory(tmp_path / "memory.sqlite3")
    (tmp_path / "memory.sqlite3").unlink()
    (tmp_path / "memory.sqlite3").mkdir()
    with pytest.raises(ProviderBusy, match=r"memory\.sqlite3"):
        memory.freezes("lab")


def test_how_nodes_were_set_up_is_remembered_by_node_the_last_look_alone(memory: HostMemory) -> None:
    for kernel in ("6.5", "6.8"):
        seen = SeenConfiguration(instance_id="i-1", taken_at=NOON, document={"values": {"kernel": kernel}})
        memory.save_configuration(seen)
    assert memory.configurations(["i-1", "i-2"]) == [seen]
    assert memory.configurations([]) == []
