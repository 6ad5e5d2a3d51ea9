"""`hotspare spares` as a person uses it: the plan for so many nodes and for the cluster, its picture, and what is wrong usage."""

from __future__ import annotations

import importlib.util
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from activities.clients.sqlite_memory import SqliteMemory
from activities.host_memory import ClosedIncident
from tests.workers.fakes import FakeInventory, node
from workers.cli import spares_needs
from workers.cli.app import app, exit_status
from workers.settings_text import commented_file

NOW = datetime.now(UTC)


def type_in(*words: str) -> tuple[int, str, str]:
    answer = CliRunner().invoke(app, ["spares", *words], catch_exceptions=False)
    return answer.exit_code, answer.stdout, answer.stderr


def document(*words: str) -> dict[str, Any]:
    _, said, _ = type_in(*words, "--json")
    found = json.loads(said)
    assert isinstance(found, dict)
    return found


class FleetWiring:
    """What the plan sees of the clients: host memory and the inventory."""

    def __init__(self, memory: SqliteMemory, inventory: FakeInventory) -> None:
        self.memory = memory
        self.inventory = inventory

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SqliteMemory:
    """A cluster of 64 p5 nodes and two spares, in a folder with a settings file."""
    file = tmp_path / "hotspare.toml"
    file.write_text(commented_file({"cluster": {"name": "lab"}, "store": {"host_memory": "memory.db"}}))
    monkeypatch.setenv("HOTSPARE_CONFIG", str(file))
    about = {"instance_type": "p5.48xlarge", "zone": "us-east-1a", "gpus": 8}
    working = [node(number).model_copy(update={**about, "spine": f"r{number % 4}"}) for number in range(1, 65)]
    pool = [node(number, role="spare").model_copy(update=about) for number in (70, 71)]
    kept = SqliteMemory(tmp_path / "memory.db")
    inventory = FakeInventory(*working, *pool, node(80, role="head"))
    monkeypatch.setattr(spares_needs, "Wiring", lambda settings: FleetWiring(kept, inventory))
    return kept


def remember(memory: SqliteMemory, count: int) -> None:
    for number in range(count):
        at = NOW - timedelta(days=number)
        memory.save_incident(
            ClosedIncident(
                incident=f"incident/lab/i-{number:03}",
                run_id=f"run-{number}",
                cluster="lab",
                instance_id=f"i-{number % 64 + 1:03}",
                opened_at=at - timedelta(hours=1),
                closed_at=at,
                fault_class="gpu_lost",
                outcome="resolved",
            )
        )


def test_a_plan_needs_no_cluster_and_names_its_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOTSPARE_CONFIG", raising=False)
    status, said, _ = type_in("plan", "--nodes", "2048", "--rate", "llama-3", "--cost", "50")
    assert status == 0
    for part in ("p5.48xlarge", "2048", "arXiv:2407.21783", "5 + 1 + 3 + 1", "500.00", "opt-175b"):
        assert part in said
    found = document("plan", "--nodes", "2048", "--rate", "rsc-1", "--nodes-per-event", "1", "--restock", "6", "--repair", "6")
    assert found["pools"][0]["formula"] == 8
    assert found["pools"][0]["need"]["rate"]["source"].startswith("Meta RSC-1")
    assert len(found["with_published_rates"]) == 5


def test_the_cluster_is_planned_with_its_own_rate_once_enough_was_seen(memory: SqliteMemory) -> None:
    remember(memory, 4)
    few = document("plan")["pools"][0]
    assert (few["need"]["rate"]["name"], few["need"]["nodes"], few["need"]["spares"]) == ("rsc-1", 64, 2)
    assert "4 faults seen here, 10 are needed" in few["need"]["rate"]["source"]
    remember(memory, 30)
    seen = document("plan")["pools"][0]
    assert seen["need"]["rate"]["name"] == "observed"
    assert seen["need"]["rate"]["faults"] == 30
    assert 0.5 < seen["failures_per_day"] < 1.5


def test_a_pool_that_is_too_small_ends_with_a_warning_and_says_what_the_next_failure_meets(memory: SqliteMemory) -> None:
    remember(memory, 60)
    status, said, _ = type_in("plan", "--survive", "rack")
    assert status == 1
    assert "spares too few; with the 2 that there are one is free with" in said
    assert "more to make good the loss of rack r0" in said
    assert type_in("plan", "--rate", "0.0001")[0] == 0


def test_the_picture_is_drawn_into_the_file(tmp_path: Path) -> None:
    for name in ("pool.png", "pool.svg"):
        file = tmp_path / name
        assert exit_status(["spares", "plan", "--nodes", "2048", "--plot", str(file)]) == 0
        assert file.stat().st_size > 10_000
    assert b"rsc-1" in (tmp_path / "pool.svg").read_bytes() or b"<path" in (tmp_path / "pool.svg").read_bytes()


def test_without_matplotlib_the_line_to_type_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    status, _, told = type_in("plan", "--nodes", "8", "--plot", str(tmp_path / "pool.png"))
    assert status == 64
    assert "pip install 'hotspare[plots]'" in told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--nodes", "8", "--rate", "lama"), "known are llama-3"),
        (("--nodes", "8", "--restock", "24/6"), "at most the 90th centile"),
        (("--nodes", "8", "--restock", "soon"), "such as 6/24"),
        (("--nodes", "8", "--probability", "1.5"), "probability"),
        (("--nodes", "8", "--survive", "rack"), "give the number of nodes"),
        (("--nodes", "8", "--plot", "pool.txt"), "must end with .png"),
    ],
)
def test_what_cannot_be_planned_with_is_wrong_usage_and_said(words: tuple[str, ...], told: str) -> None:
    status, _, error = type_in("plan", *words)
    assert status == 64
    assert told in error
