"""`hotspare replay` as a person uses it: a changed settings file, tried on what host memory has of past incidents."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from activities.clients.sqlite_memory import SqliteMemory
from activities.gpu_records import Strike
from activities.host_memory import ClosedIncident, HostRecord
from tests.decisions.situations import facts, opinion, out
from workers.cli.app import app, exit_status
from workflows.decisions.facts import Facts
from workflows.decisions.policy import next_step
from workflows.decisions.replayed import recorded
from workflows.decisions.settings import Mode, PolicySettings

ASKING = PolicySettings(mode=Mode.APPROVE)


class Past:
    """A settings file in mode approve, and the host memory that it names."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.memory = SqliteMemory(folder / "memory.db")
        self.number = 0

    def closed(self, *decided: Facts, days_ago: float = 1.0, policy: PolicySettings = ASKING, **more: Any) -> ClosedIncident:
        """An incident that was closed so many days ago."""
        self.number += 1
        at = datetime.now(UTC) - timedelta(days=days_ago)
        texts = [recorded(one, next_step(one, policy)) for one in decided]
        start: dict[str, Any] = {
            "incident": "incident/lab/i-1",
            "run_id": f"incident/lab/i-1@run-{self.number}",
            "cluster": "lab",
            "instance_id": "i-1",
            "opened_at": at - timedelta(hours=1),
            "closed_at": at,
            "fault_class": "gpu_lost",
            "outcome": "resolved",
            "decisions": texts,
            "decisions_made": len(texts),
        }
        closed = ClosedIncident.model_validate({**start, **more})
        self.memory.save_incident(closed)
        return closed

    def policy(self, text: str) -> str:
        """Write the settings file that is tried."""
        file = self.folder / "new.toml"
        file.write_text(text)
        return str(file)


@pytest.fixture
def past(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Past:
    config = tmp_path / "hotspare.toml"
    config.write_text('[cluster]\nname = "lab"\n[policy]\nmode = "approve"\n[store]\nhost_memory = "memory.db"\n')
    monkeypatch.setenv("HOTSPARE_CONFIG", str(config))
    return Past(tmp_path)


def type_in(*words: str) -> tuple[int, str, str]:
    answer = CliRunner().invoke(app, ["replay", *words], catch_exceptions=False)
    return answer.exit_code, answer.stdout, answer.stderr


ACT = '[policy]\nmode = "act"\n'


def test_the_same_policy_differs_in_nothing_and_ends_with_0(past: Past) -> None:
    past.closed(facts(), out())
    status, said, _ = type_in("--policy", past.policy('[policy]\nmode = "approve"\n'))
    assert status == 0
    assert "2 decisions of 1 incident" in said
    assert "no decision would differ" in said


def test_each_decision_that_differs_is_told_with_both_reasons_and_ends_with_1(past: Past) -> None:
    past.closed(facts(), out())
    status, said, _ = type_in("--policy", past.policy(ACT))
    assert status == 1
    assert "node-1" in said
    assert "was      ask a person: approve REBOOT_NODE" in said
    assert "this rung needs a person's approval" in said
    assert "would be disrupt: REBOOT_NODE" in said
    assert "1 decision would differ, in 1 incident" in said


def test_programs_get_facts_free_json(past: Past) -> None:
    past.closed(out())
    status, said, _ = type_in("--policy", past.policy(ACT), "--json")
    document = json.loads(said)
    [difference] = document["replay"]["differences"]
    assert status == 1
    assert (difference["was"]["kind"], difference["would_be"]["kind"]) == ("ask a person", "disrupt")
    assert difference["was"]["because"]
    assert difference["incident"] == "incident/lab/i-1"


def test_only_incidents_of_the_period_and_of_this_cluster_count(past: Past) -> None:
    past.closed(out(), days_ago=40)
    past.closed(out(), cluster="other")
    past.closed(out(opinion("gsp_hang", code=119)), days_ago=3)
    new = past.policy(ACT)
    assert "1 decision of 1 incident" in type_in("--policy", new)[1]
    assert "2 decisions of 2 incidents" in type_in("--policy", new, "--since", "9w")[1]
    assert type_in("--policy", new, "--since", "12h")[0] == 0


def test_what_cannot_be_made_again_is_counted_and_said(past: Past) -> None:
    past.closed(out(), decisions_made=25)
    past.closed(decisions=["torn"], decisions_made=1)
    status, said, _ = type_in("--policy", past.policy(ACT))
    assert status == 1
    assert "24 decisions could not be made again: only the last 1 decisions" in said
    assert "1 decision could not be made again: the record is not a decision" in said


def test_where_nothing_can_be_made_again_nothing_is_said_to_be_the_same(past: Past) -> None:
    past.closed(decisions=["torn"], decisions_made=1)
    assert type_in("--policy", past.policy(ACT))[0] == 3


def test_a_pool_has_its_own_policy_in_a_replay(past: Past) -> None:
    past.closed(out())
    of_pool = '[policy]\nmode = "approve"\n[policy.pools."p5.48xlarge"]\nmode = "act"\n'
    assert type_in("--policy", past.policy(of_pool))[0] == 1
    assert type_in("--policy", past.policy(of_pool.replace("p5", "p4d")))[0] == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[policy]\nmod = 1\n", "did you mean"),
        ("[limits]\nmax_nodes_out = 1\n", "no [policy] table"),
        ("[policy", "not valid TOML"),
    ],
)
def test_a_file_that_cannot_be_tried_is_refused_with_the_place(past: Past, text: str, said: str) -> None:
    status, _, error = type_in("--policy", past.policy(text))
    assert (status, said in error) == (64, True), error


def test_a_file_that_is_not_there_and_a_period_that_is_none_are_refused(past: Past) -> None:
    status, _, error = type_in("--policy", str(past.folder / "missing.toml"))
    assert (status, "no such file" in error) == (64, True)
    status, _, error = type_in("--policy", past.policy(ACT), "--since", "a month")
    assert (status, "write 30d" in error) == (64, True)
    assert exit_status(["replay"]) == 64


def test_a_smaller_limit_of_strikes_is_tried_on_what_was_remembered_then(past: Past) -> None:
    at = datetime(2026, 10, 31, 3, tzinfo=UTC)
    struck = HostRecord(instance_id="i-1", strikes=1, struck=[Strike(at=at, fault_class="gpu_lost", incident="run-0")])
    past.closed(out(record=struck), policy=PolicySettings(mode=Mode.ACT))
    same = past.policy('[policy]\nmode = "act"\n')
    assert type_in("--policy", same)[0] == 0
    status, said, _ = type_in("--policy", past.policy('[policy]\nmode = "act"\nstrikes_at_most = 0.9\n'))
    assert status == 1
    assert "its strikes weigh 1.0, the limit is 0.9" in said
    assert "REBOOT_NODE" in said
