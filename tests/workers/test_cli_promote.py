"""`hotspare promote` as a person uses it: the record first, then one line in the settings file, and nothing else touched."""

from __future__ import annotations

import json
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from activities.clients.sqlite_memory import SqliteMemory
from activities.healers import Healer
from activities.host_memory import HostRecord, RungAttempt, Said
from activities.inventory import Node
from checks.model import Action
from tests.decisions.situations import facts, opinion, out
from tests.workers.fakes import FakeInventory, node
from tests.workers.test_cli_replay import Past
from workers.cli import promote, replay
from workers.cli.app import app
from workers.cli.promoting import with_promotion
from workers.settings import load_settings
from workers.settings_text import commented_file
from workflows.decisions.gates import mode_of
from workflows.decisions.settings import Mode, PolicySettings

NOW = datetime.now(UTC)


class FakeHealers:
    """An Auto Scaling group has the first node; where `owned` is set, EKS Auto Mode the second."""

    owned = False

    def found(self, node: Node) -> list[Healer]:
        if node.name == "node-2" and self.owned:
            return [Healer(kind="EKS Auto Mode", name="", owns="EKS Auto Mode owns it and lets nobody restart it")]
        return [Healer(kind="Auto Scaling group", name="gpu-asg")] if node.name == "node-1" else []


class FleetWiring:
    """What the command sees of the clients."""

    def __init__(self, memory: SqliteMemory, inventory: FakeInventory) -> None:
        self.memory = memory
        self.inventory = inventory
        self.healers = FakeHealers()

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def inventory() -> FakeInventory:
    return FakeInventory(node(1), node(2), node(3, role="head"))


@pytest.fixture
def config(tmp_path: Path) -> Path:
    given: dict[str, dict[str, Any]] = {
        "cluster": {"name": "lab"},
        "policy": {"mode": "observe"},
        "store": {"host_memory": "memory.db"},
    }
    file = tmp_path / "hotspare.toml"
    file.write_text(commented_file(given))
    file.chmod(0o640)
    return file


@pytest.fixture
def past(tmp_path: Path, config: Path, inventory: FakeInventory, monkeypatch: pytest.MonkeyPatch) -> Past:
    monkeypatch.setenv("HOTSPARE_CONFIG", str(config))
    here = Past(tmp_path)
    for module in (promote, replay):
        monkeypatch.setattr(module, "Wiring", lambda settings: FleetWiring(here.memory, inventory))
    return here


def type_in(*words: str, stdin: str = "") -> tuple[int, str, str]:
    answer = CliRunner().invoke(app, ["promote", *words], input=stdin, catch_exceptions=False)
    return answer.exit_code, answer.stdout, answer.stderr


REBOOT = ("--class", "gpu_lost", "--rung", "reboot", "--to", "approve")


def mode_in(file: Path, fault_class: str = "gpu_lost", rung: Action = Action.REBOOT_NODE) -> Mode:
    return mode_of(rung, load_settings(file).policy, fault_class)


def test_after_a_yes_one_line_is_written_where_its_comment_was_and_all_else_stays(past: Past, config: Path) -> None:
    before = config.read_text().splitlines()
    status, said, _ = type_in(*REBOOT, stdin="y\n")
    after = config.read_text().splitlines()
    assert status == 0
    changed = [(one, other) for one, other in zip(before, after, strict=True) if one != other]
    assert changed == [("# mode_by_class = {}", 'mode_by_class = {gpu_lost = {REBOOT_NODE = "approve"}}')]
    assert config.stat().st_mode & 0o777 == 0o640
    assert mode_in(config) is Mode.APPROVE
    assert mode_in(config, rung=Action.POWER_CYCLE) is Mode.OBSERVE
    assert "workers take it up when they are started again" in said


@pytest.mark.parametrize("stdin", ["n\n", "", "\n"])
def test_without_a_yes_nothing_is_written_and_the_status_says_so(past: Past, config: Path, stdin: str) -> None:
    before = config.read_bytes()
    status, said, _ = type_in(*REBOOT, stdin=stdin)
    assert status == 1
    assert "left as it was" in said
    assert config.read_bytes() == before
    assert type_in(*REBOOT, "--json")[0] == 1
    assert config.read_bytes() == before


def test_a_rung_goes_up_step_by_step_and_back_and_saying_so_twice_writes_once(past: Past, config: Path) -> None:
    for mode in ("approve", "act", "observe"):
        assert type_in(*REBOOT[:-1], mode, "--yes")[0] == 0
        assert mode_in(config) is Mode(mode)
    written = config.stat().st_mtime_ns
    status, said, _ = type_in(*REBOOT[:-1], "observe", "--yes")
    assert (status, "says so already" in said) == (0, True)
    assert config.stat().st_mtime_ns == written


@pytest.mark.parametrize("name", ["reboot", "REBOOT_NODE", "Reboot"])
def test_a_rung_is_named_as_people_and_as_the_settings_name_it(past: Past, name: str) -> None:
    assert type_in("--class", "gpu_lost", "--rung", name, "--to", "act", "--yes")[0] == 0


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (("--class", "gpu_los", "--rung", "reboot"), "did you mean gpu_lost?"),
        (("--class", "gpu_lost", "--rung", "kick"), "rungs are reset, soft-reboot, reboot, power-cycle"),
        (("--class", "slow_node", "--rung", "reboot"), "the ladder of slow_node has no REBOOT_NODE; it has REPLACE_NODE"),
        (("--class", "configuration", "--rung", "reboot"), "it is for people"),
    ],
)
def test_what_could_never_matter_is_refused(past: Past, config: Path, changed: tuple[str, ...], said: str) -> None:
    before = config.read_bytes()
    status, _, error = type_in(*changed, "--to", "act", "--yes")
    assert (status, said in error) == (64, True), error
    assert config.read_bytes() == before


def test_the_record_has_what_was_decided_what_came_of_it_and_what_people_did_otherwise(past: Past) -> None:
    asking = PolicySettings(mode=Mode.APPROVE)
    skipped = Said(at=NOW, verb="skip", by="ann", reason="a bad cable", step="REBOOT_NODE")
    approved = Said(at=NOW, verb="approve", by="bob", step="REBOOT_NODE")
    past.closed(facts(), policy=PolicySettings(), outcome="observed", days_ago=20)
    past.closed(out(), policy=asking, said=[skipped], outcome="escalated")
    past.closed(out(), policy=asking, said=[approved])
    past.closed(out(), policy=asking)
    past.closed(out(), policy=PolicySettings(mode=Mode.ACT))
    past.closed(out(opinion("gsp_hang", code=119)), policy=asking, fault_class="gsp_hang")
    tries = [(Action.REBOOT_NODE, True), (Action.REBOOT_NODE, False), (Action.POWER_CYCLE, True)]
    attempts = [RungAttempt(rung=rung, at=NOW, fault_class="gpu_lost", helped=helped) for rung, helped in tries]
    past.memory.save(HostRecord(instance_id="i-1", attempts=attempts))

    record = json.loads(type_in(*REBOOT, "--json")[1])["record"]
    assert record["outcomes"] == {"resolved": 3, "observed": 1, "escalated": 1}
    numbers = {key: record[key] for key in ("incidents", "observed", "asked", "approved", "unanswered", "taken")}
    assert numbers == {"incidents": 5, "observed": 1, "asked": 3, "approved": 1, "unanswered": 1, "taken": 1}
    assert (record["helped"], record["did_not_help"]) == (1, 1)
    assert [(one["by"], one["verb"], one["reason"]) for one in record["otherwise"]] == [("ann", "skip", "a bad cable")]
    said = type_in(*REBOOT)[1]
    assert "ann said skip REBOOT_NODE: a bad cable" in said
    assert "5 incidents since" in said


def test_the_past_is_decided_again_in_the_new_mode(past: Past) -> None:
    past.closed(facts(), policy=PolicySettings(), outcome="observed")
    said = type_in(*REBOOT)[1]
    assert "in mode approve, 1 incident of 1 would have gone otherwise" in said
    assert "close: observed -> ask leave to quarantine" in said


def test_without_any_record_that_is_said(past: Past) -> None:
    assert "no incident of gpu_lost is remembered" in type_in(*REBOOT)[1]


def test_other_healers_are_named_and_those_that_cannot_be_asked_too(past: Past, inventory: FakeInventory) -> None:
    answer = json.loads(type_in(*REBOOT, "--json")[1])
    assert answer["healers"] == {"Auto Scaling group gpu-asg": 1}
    assert "Karpenter" in answer["not_asked"]
    inventory.away = True
    said = type_in(*REBOOT)[1]
    assert "who else repairs these nodes is not known: EC2 does not answer" in said


def test_nodes_that_have_no_such_rung_are_counted_with_the_reason(past: Past, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeHealers, "owned", True)
    said = type_in(*REBOOT)[1]
    assert "also repaired by Auto Scaling group gpu-asg: 1 node; it is told to stand back" in said
    assert "not for 1 node: EKS Auto Mode owns it and lets nobody restart it" in said


def test_with_kubernetes_nobody_is_left_unasked(past: Past, config: Path) -> None:
    assert "without [kubernetes] in the settings nobody asks for Karpenter" in type_in(*REBOOT)[1]
    config.write_text(config.read_text().replace("[kubernetes]\n", '[kubernetes]\nsource = "kubeconfig"\n'))
    assert json.loads(type_in(*REBOOT, "--json")[1])["not_asked"] == ""


def test_a_pool_that_keeps_a_mode_of_its_own_is_told(past: Past, config: Path) -> None:
    with config.open("a") as file:
        file.write('\n[policy.pools.big]\nmode_by_class = {gpu_lost = {REBOOT_NODE = "act"}}\n')
    said = type_in(*REBOOT, "--yes")[1]
    assert "pool big keeps act" in said
    assert mode_in(config) is Mode.APPROVE


def test_the_use_of_credentials_that_can_write_is_told(past: Past, config: Path) -> None:
    config.write_text(config.read_text() + '\n[aws.roles.observe]\nprofile = "reader"\n')
    assert "credentials of their own roles" in type_in(*REBOOT, "--yes")[1]
    assert "credentials of their own roles" not in type_in(*REBOOT[:-1], "act", "--yes")[1]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[limits]\nmax_nodes_out = 1 # few\n",
        '[policy] # ours\nmode = "approve" # ask\n\n# next\n[limits]\nmax_nodes_out = 1\n',
        '[policy.mode_by_class.gpu_lost] # ours\nPOWER_CYCLE = "act" # tried\n[limits]\nmax_nodes_out = 1\n',
        '[policy]\nmode_by_class = { gpu_lost = { POWER_CYCLE = "act" }, host = { REBOOT_NODE = "act" } } # ours\n',
        '[policy]\nmode_by_class.gpu_lost.POWER_CYCLE = "act" # ours\n[sweep]\nparallel = 2\n',
        'policy.mode = "act" # ours\n',
        '[policy]\nladders = {link = [\n  "REPLACE_NODE", # only\n]}\n[policy.pools.x]\nmode = "act"\n',
    ],
)
def test_every_way_to_write_the_table_is_kept_with_its_comments(text: str) -> None:
    after = with_promotion(text, "gpu_lost", Action.REBOOT_NODE, Mode.ACT)
    document, before = tomllib.loads(after), tomllib.loads(text)
    assert document["policy"]["mode_by_class"]["gpu_lost"].pop("REBOOT_NODE") == "act"
    for line in text.splitlines():
        for part in line.split("#")[1:]:
            assert part in after
    for table, values in before.items():
        for key, value in values.items():
            if key != "mode_by_class":
                assert document[table][key] == value
    assert (
        before.get("policy", {}).get("mode_by_class", {}).get("gpu_lost", {}) == document["policy"]["mode_by_class"]["gpu_lost"]
    )


def test_a_file_that_cannot_be_written_stays_as_it_was(past: Past, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object, **more: object) -> Any:
        raise OSError(28, "No space left on device")

    before = config.read_bytes()
    monkeypatch.setattr("workers.cli.promoting.shutil.copymode", full)
    status, _, error = type_in(*REBOOT, "--yes")
    assert (status, "No space left on device" in error) == (64, True), error
    assert config.read_bytes() == before
    assert [one.name for one in config.parent.glob(".hotspare*")] == []
