"""`hotspare ledger` as a person uses it: the table, the past of a host and of a GPU, and the ban of a GPU."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from activities.bandwidth_records import BandwidthRecord, CleanRun
from activities.clients.sqlite_memory import SqliteMemory
from activities.gpu_records import GpuRecord, HostGpu, Strike
from activities.host_ledger import with_home
from activities.host_memory import ClosedIncident, HostMemory, HostRecord, RungAttempt
from activities.inventory import Node
from checks.model import Action
from tests.activities.dynamo_server import DynamoServer
from workers.cli.app import app, exit_status
from workers.settings import load_settings
from workers.wiring import Wiring

NOW = datetime.now(UTC)
LONG_AGO = NOW - timedelta(days=56)
NODE = Node(instance_id="i-0aaa", name="node-1", zone="us-east-1a")
BEFORE = Node(instance_id="i-0old", name="node-7", zone="us-east-1b")


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HostMemory:
    """A host memory and the settings file that names it."""
    config = tmp_path / "hotspare.toml"
    config.write_text('[cluster]\nname = "lab"\n[store]\nhost_memory = "memory.db"\n')
    monkeypatch.setenv("HOTSPARE_CONFIG", str(config))
    monkeypatch.setenv("COLUMNS", "220")
    return SqliteMemory(tmp_path / "memory.db")


def fill(memory: HostMemory) -> None:
    """A host with a past, one without, and a GPU of the first that was in another instance before."""
    strikes = [Strike(at=at, fault_class="gpu_lost", incident=f"run-{at:%j}", gpu_serial="1653") for at in (LONG_AGO, NOW)]
    tried = RungAttempt(rung=Action.REBOOT_NODE, at=NOW, fault_class="gpu_lost", gpu_serial="1653", helped=False)
    memory.save(
        HostRecord(
            instance_id="i-0aaa",
            name="node-1",
            zone="us-east-1a",
            reservation="cr-1",
            instance_type="p5.48xlarge",
            seen_at=NOW,
            gpu_serials=["1652", "1653"],
            gpus=[HostGpu(serial="1652"), HostGpu(serial="1653")],
            fate="probation",
            strikes=2,
            struck=strikes,
            attempts=[tried],
            last_incident_closed_at=NOW,
        )
    )
    earlier = tried.model_copy(update={"at": LONG_AGO, "rung": Action.POWER_CYCLE, "helped": True})
    memory.save(HostRecord(instance_id="i-0old", name="node-7", zone="us-east-1b", attempts=[earlier]))
    gpu = with_home(with_home(GpuRecord(serial="1653"), BEFORE, "GPU-3", LONG_AGO), NODE, "GPU-3", NOW)
    memory.save_gpu(gpu.model_copy(update={"strikes": strikes}))
    memory.save_incident(
        ClosedIncident(
            incident="incident/lab/i-0aaa",
            run_id="run-1",
            cluster="lab",
            instance_id="i-0aaa",
            opened_at=NOW,
            closed_at=NOW,
            fault_class="gpu_lost",
            outcome="resolved",
            decisions=["{}"],
            decisions_made=9,
        )
    )


def type_in(*words: str) -> tuple[int, str]:
    answer = CliRunner().invoke(app, ["ledger", *words], catch_exceptions=False)
    return answer.exit_code, answer.stdout + answer.stderr


def document(*words: str) -> Any:
    status, said = type_in(*words, "--json")
    assert status == 0, said
    return json.loads(said)


def test_an_empty_ledger_says_so(memory: HostMemory) -> None:
    assert type_in() == (0, "nothing is remembered yet: the first sweep writes the ledger\n")


def test_the_table_has_the_weightiest_host_first_with_its_last_incident(memory: HostMemory) -> None:
    fill(memory)
    found = document()
    assert [host["name"] for host in found["hosts"]] == ["node-1", "node-7"]
    first = found["hosts"][0]
    assert (first["strikes"], first["fate"], first["last"]["outcome"]) == (2, "probation", "resolved")
    assert first["weight"] == pytest.approx(1.25, abs=0.01)
    status, said = type_in()
    assert status == 0
    assert "node-1 (i-0aaa)" in said
    assert "gpu_lost: resolved" in said
    assert "1653" in said


def test_the_half_life_is_a_setting(memory: HostMemory, tmp_path: Path) -> None:
    fill(memory)
    with (tmp_path / "hotspare.toml").open("a") as config:
        config.write("[policy]\nstrike_half_life_days = 56\n")
    assert document()["hosts"][0]["weight"] == pytest.approx(1.5, abs=0.01)


@pytest.mark.parametrize("name", ["node-1", "I-0AAA", "i-0aaa"])
def test_the_past_of_a_host_has_what_its_boards_went_through_elsewhere(memory: HostMemory, name: str) -> None:
    fill(memory)
    past = document(name)
    assert past["host"]["reservation"] == "cr-1"
    assert [one["rung"] for one in past["elsewhere"]] == ["POWER_CYCLE"]
    assert [one["outcome"] for one in past["incidents"]] == ["resolved"]
    said = type_in(name)[1]
    assert "steps taken on its GPUs under other instance ids" in said
    assert "strikes: 2, weighing 1.2 now" in said
    assert "9 decisions" in said


@pytest.mark.parametrize("name", ["1653", "gpu-3"])
def test_the_past_of_a_gpu_goes_over_instances(memory: HostMemory, name: str) -> None:
    fill(memory)
    past = document(name)
    assert [home["instance_id"] for home in past["record"]["homes"]] == ["i-0old", "i-0aaa"]
    assert [one["rung"] for one in past["attempts"]] == ["POWER_CYCLE", "REBOOT_NODE"]
    said = type_in(name)[1]
    assert "in node-7 (i-0old, us-east-1b)" in said
    assert "POWER_CYCLE for gpu_lost: helped" in said


def test_a_name_that_nothing_has_is_answered_with_the_nearest(memory: HostMemory) -> None:
    fill(memory)
    status, said = type_in("node-2")
    assert status == 64
    assert "did you mean node-" in said


def test_a_ban_and_its_end_keep_who_and_why(memory: HostMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(memory)
    monkeypatch.setattr("getpass.getuser", lambda: "ann")
    status, said = type_in("1653", "--ban", "--why", "RMA 4711")
    assert status == 0
    assert "last seen in node-1 (i-0aaa)" in said
    found = document()
    assert found["hosts"][0]["banned"] == ["1653"]
    assert [(gpu["serial"], gpu["known_bad"], gpu["by"], gpu["why"]) for gpu in found["gpus"]] == [
        ("1653", True, "ann", "RMA 4711")
    ]
    assert type_in("1653", "--ban", "--why", "again")[0] == 64
    monkeypatch.setattr("getpass.getuser", lambda: "ben")
    assert type_in("1653", "--clear", "--why", "another board")[0] == 0
    [gpu] = memory.gpus()
    assert [(mark.by, mark.bad) for mark in gpu.marks] == [("ann", True), ("ben", False)]
    assert document()["hosts"][0]["banned"] == []
    assert type_in("1653", "--clear", "--why", "again")[0] == 64


def test_a_gpu_that_was_never_seen_may_be_banned_but_not_cleared(memory: HostMemory) -> None:
    status, said = type_in("9999", "--ban", "--why", "came back from repair")
    assert status == 0
    assert "never seen here: check the number" in said
    assert type_in("8888", "--clear", "--why", "x")[0] == 64
    assert [gpu.serial for gpu in memory.gpus()] == ["9999"]


@pytest.mark.parametrize(
    "words",
    [
        ["1653", "--ban", "--clear", "--why", "x"],
        ["--ban", "--why", "x"],
        ["1653", "--ban"],
        ["1653", "--why", "x"],
        ["--create-table"],
        ["1653", "--create-table"],
    ],
)
def test_wrong_usage_is_64_and_writes_nothing(memory: HostMemory, words: list[str]) -> None:
    fill(memory)
    assert exit_status(["ledger", *words]) == 64
    assert all(not gpu.marks for gpu in memory.gpus())


@pytest.fixture
def dynamo(monkeypatch: pytest.MonkeyPatch) -> Iterator[DynamoServer]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    server = DynamoServer()
    yield server
    server.stop()


def test_the_table_is_made_by_hand_and_then_holds_the_ledger(
    dynamo: DynamoServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "hotspare.toml"
    table = f"ledger-{id(dynamo):x}"
    config.write_text(
        f'[cluster]\nname = "lab"\n[aws]\nregion = "us-east-1"\nendpoint_url = "{dynamo.aws.endpoint_url}"\n'
        f'[store]\nmemory = "dynamodb"\ntable = "{table}"\n'
    )
    monkeypatch.setenv("HOTSPARE_CONFIG", str(config))
    monkeypatch.setenv("COLUMNS", "220")
    status, said = type_in()
    assert status == 64
    assert "hotspare ledger --create-table" in said
    assert type_in("--create-table")[0] == 0
    status, said = type_in("--create-table")
    assert status == 64
    assert "there already" in said
    fill(Wiring(load_settings()).memory)
    assert document()["hosts"][0]["name"] == "node-1"
    assert "node-7" in type_in("1653")[1]


def test_what_clean_runs_gave_is_shown_with_its_floor_and_its_drift(memory: HostMemory) -> None:
    assert "no clean group run" in CliRunner().invoke(app, ["ledger", "--bandwidth"]).stdout
    for key, count, slope in (("lab p5.48xlarge x4", 12, -1.0), ("lab p5.48xlarge x2", 3, 0.0)):
        at = [NOW + timedelta(minutes=number) for number in range(count)]
        runs = [CleanRun(run_id=f"r{number}", at=when, busbw_gbs=470.0 + slope * number) for number, when in enumerate(at)]
        memory.save_bandwidth(BandwidthRecord(key=key, seen=count, runs=runs))
    seen = json.loads(CliRunner().invoke(app, ["ledger", "--bandwidth", "--json"]).stdout)
    assert [(line["kind"], line["runs"]) for line in seen] == [("lab p5.48xlarge x4", 12), ("lab p5.48xlarge x2", 3)]
    assert (seen[0]["median_gbs"], seen[0]["mad_gbs"], seen[0]["drift"]) == (464.5, 3.0, -0.015)
    assert seen[0]["floor_gbs"] == pytest.approx(0.9 * 464.5, abs=0.01)
    assert seen[1]["floor_gbs"] is None
    table = CliRunner().invoke(app, ["ledger", "--bandwidth"]).stdout
    assert "-1.5%" in table
    assert "from 10 runs on" in table
    refused = CliRunner().invoke(app, ["ledger", "node-1", "--bandwidth"])
    assert refused.exit_code != 0
