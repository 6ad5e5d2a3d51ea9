"""`hotspare job` as a person uses it: by a node, by the job's name, as JSON, with an exit status that judges."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from activities.clients.fake_fleet import FakeFleet
from activities.jobs.none import NoJobAdapter
from activities.jobs.protocol import RestartedBy
from workers.cli import job as command
from workers.cli.app import app

SETTINGS = """
[cluster]
name = "lab"

[job]
adapter = "command"
head = "head"
find = ["trainctl"]
status = ["trainctl"]
hold = ["trainctl"]
resume = ["trainctl"]
"""


class FleetWiring:
    """What the command sees of the clients, over a fleet in memory."""

    def __init__(self, fleet: FakeFleet, jobs: Any = None) -> None:
        self.inventory = fleet.inventory
        self.jobs = jobs or fleet.job

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeFleet:
    fleet = FakeFleet()
    (tmp_path / "hotspare.toml").write_text(SETTINGS)
    monkeypatch.setenv("HOTSPARE_CONFIG", str(tmp_path / "hotspare.toml"))
    monkeypatch.setattr(command, "Wiring", lambda settings: FleetWiring(fleet))
    return fleet


def type_in(*words: str) -> tuple[int, str, str]:
    """Run the command; returns exit status, stdout and stderr."""
    answer = CliRunner().invoke(app, ["job", *words], catch_exceptions=False)
    return answer.exit_code, answer.stdout, answer.stderr


def test_the_job_of_a_node_is_shown(fleet: FakeFleet) -> None:
    fleet.job.restarted_by, fleet.job.restarts_left = RestartedBy.CONTROLLER, 5
    status, out, _ = type_in("node-2")
    assert status == 0
    for words in ("OK  train is RUNNING", "node-1", "step 10", "restarts left: 5", "its controller"):
        assert words in out, out


def test_a_job_by_its_name_is_judged_and_says_why(fleet: FakeFleet) -> None:
    fleet.job.warnings = ["the JobSet restarts it 0 times; set spec.failurePolicy.maxRestarts=10"]
    status, out, _ = type_in("train")
    assert status == 1
    assert "set spec.failurePolicy.maxRestarts=10" in out
    fleet.job.stop()
    status, out, _ = type_in("train", "--json")
    assert status == 2
    document = json.loads(out)
    assert (document["verdict"], document["job"]["state"], document["adapter"]) == ("CRITICAL", "STOPPED", "command")
    assert document["because"][0].startswith("no rank of it runs")
    assert document["checkpoint_steps_behind"] == document["job"]["step"] - document["job"]["checkpoint_step"]


def test_a_node_without_a_job_is_no_fault(fleet: FakeFleet) -> None:
    status, out, _ = type_in("spare-1")
    assert status == 0
    assert "no job has spare-1" in out
    assert json.loads(type_in("spare-1", "--json")[1])["job"] is None


def test_a_word_that_is_neither_says_both(fleet: FakeFleet) -> None:
    status, _, err = type_in("nod-2")
    assert status == 64
    assert "neither a job nor a node" in err
    assert "node-2" in err


def test_without_an_adapter_the_setting_is_named(fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "Wiring", lambda settings: FleetWiring(fleet, NoJobAdapter()))
    status, _, err = type_in("train")
    assert status == 64
    assert "[job] adapter" in err
