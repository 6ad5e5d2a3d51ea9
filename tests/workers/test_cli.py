"""The commands of a person, over a fleet in memory and the real workflows on a real server."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment
from typer.testing import CliRunner

from activities import names
from activities.clients.fake_fleet import FakeFleet
from activities.clients.fake_kubernetes import FakeKubernetes
from activities.clients.fake_machine import Cure, FakeFault
from activities.clients.fake_permissions import FakePermissions
from activities.clients.temporal_gateway import TemporalGateway
from activities.errors import AccessRefused
from activities.node import NodeActivities
from activities.nvsentinel import REBOOT_NODE
from tests.workers.conftest import dev_server
from tests.workflows.healing import Healing
from workers.cli import common, doctor, init, looking
from workers.cli.app import app, exit_status
from workers.settings import Settings, load_settings
from workflows.decisions.settings import Mode, PolicySettings


class FleetWiring:
    """What commands see of the clients, over a fleet in memory."""

    def __init__(self, fleet: FakeFleet, settings: Settings, client: Client | None = None) -> None:
        self.inventory, self.memory, self.access_to = fleet.inventory, fleet.memory, fleet.access_to
        self.healers, self.ec2, self.kubernetes = fleet.healers, fleet.ec2, fleet.kubernetes
        self.permissions = lambda credentials: FakePermissions()
        self.gateway = cast(TemporalGateway, TemporalGateway(client) if client else None)
        methods = fleet.activities(self.gateway, settings.file.parent)
        holder = next(one.__self__ for one in methods if inspect.ismethod(one) and one.__name__ == "examine")
        self.node_activities = cast(NodeActivities, holder)
        self.gate = self.node_activities._gate

    def close(self) -> None:
        """Nothing is open."""


@dataclass
class Shell:
    """A shell from which commands are typed, and the cluster they are about."""

    healing: Healing
    config: Path

    async def type(self, *words: str) -> tuple[int, str, str]:
        """Run a command; returns exit status, stdout and stderr."""
        answer = await asyncio.to_thread(partial(CliRunner().invoke, app, list(words), catch_exceptions=False))
        return answer.exit_code, answer.stdout, answer.stderr

    async def ask(self, *words: str) -> Any:
        """Run a command with --json that must succeed, and return what it answers."""
        status, out, err = await self.type(*words, "--json")
        assert status == 0, (out, err)
        return json.loads(out)

    async def until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        await self.healing.until(condition)

    async def waits_for_person(self, node: str) -> None:
        """Wait until the node's incident has asked a person."""

        async def asked() -> bool:
            return any(page.node == node for page in self.healing.fleet.pages)

        await self.until(asked)


@pytest.fixture
async def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Shell]:
    """Four nodes and a spare in mode approve, under a running worker."""
    config = tmp_path / "hotspare.toml"
    config.write_text(
        '[cluster]\nname = "lab"\n[policy]\nmode = "approve"\n[temporal]\nui_url = "http://ui.example/"\n[intake]\nport = 0\n'
    )
    async with dev_server() as env:
        fleet = FakeFleet()
        healing = Healing(fleet, env.client, tmp_path, env, PolicySettings(mode=Mode.APPROVE))
        for module in (common, doctor, init):
            monkeypatch.setattr(module, "Wiring", partial(FleetWiring, fleet))
        monkeypatch.setenv("HOTSPARE_CONFIG", str(config))
        monkeypatch.setenv("TEMPORAL_ADDRESS", env.client.service_client.config.target_host)
        monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(tmp_path / "none.toml"))
        await healing.start_worker()
        try:
            yield Shell(healing, config)
        finally:
            await healing.stop_worker()


async def test_a_report_by_any_alias_opens_the_nodes_one_incident(shell: Shell) -> None:
    node = shell.healing.fleet.node("node-2")
    for alias in ("node-2", node.instance_id, f"{node.ip}:9100"):
        answer = await shell.ask("report", alias, "--xid", "79", "--gpu", "3")
        assert answer["incident"] == names.incident_id("lab", node.instance_id)
        assert answer["ui"].startswith("http://ui.example/namespaces/default/workflows/incident%2Flab%2F")


async def test_a_report_about_an_unknown_node_is_refused_with_the_nearest_names(shell: Shell) -> None:
    status, out, err = await shell.type("report", "node-22", "--json")
    assert status == 64
    assert "did you mean node-2" in err
    assert json.loads(out)["kind"] == "UnknownNode"


async def test_an_incident_that_waits_is_shown_approved_and_heals(shell: Shell) -> None:
    fleet = shell.healing.fleet
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
    await shell.ask("report", "node-2", "--xid", "79")
    await shell.waits_for_person("node-2")
    seen = await shell.ask("status")
    assert [one["instance_id"] for one in seen["incidents"]] == [fleet.node("node-2").instance_id]
    why = await shell.ask("why", "node-2")
    assert any("79" in line["text"] for line in why["incident"]["story"])
    assert (await shell.ask("approve", "node-2", "-r", "go on"))["word"] == "approve"

    async def approved() -> bool:
        story = (await shell.ask("why", "node-2"))["incident"]["story"]
        return any(line["phase"] == "approve" and "go on" in line["text"] for line in story)

    await shell.until(approved)


async def test_status_names_a_node_that_is_not_set_up_like_its_peers(shell: Shell) -> None:
    shell.healing.fleet.machine("node-2").kernel = "6.5.0-1020-aws"
    assert (await shell.ask("status"))["configuration"] == {"differing": [], "undecided": []}
    await shell.healing.client.execute_workflow(names.WORKFLOW_SWEEP, {}, id="sweep-1", task_queue=names.QUEUE_WORKFLOWS)
    words = "kernel 6.5.0-1020-aws here, 6.8.0-1029-aws on all 4 of its peers"
    assert [one["differences"] for one in (await shell.ask("status"))["configuration"]["differing"]] == [[words]]
    assert f"node-2 is not set up like its peers: {words}" in (await shell.type("status"))[1]


async def test_a_person_takes_a_node_over_hands_it_back_and_cancels(shell: Shell) -> None:
    fleet = shell.healing.fleet
    fleet.inject("node-3", FakeFault(xid=79, cure=Cure.NEVER))
    await shell.ask("report", "node-3", "--xid", "79")
    await shell.waits_for_person("node-3")
    await shell.ask("take-over", "node-3", "-r", "mine")
    await shell.ask("hand-back", "node-3")
    await shell.ask("cancel", "node-3")

    async def closed() -> bool:
        return not (await shell.ask("status"))["incidents"]

    await shell.until(closed)
    assert fleet.count("reboot", "node-3") == 0
    why = await shell.ask("why", "node-3")
    assert why["incident"]["state"] == "CANCELED"
    assert why["last_closed"][0]["outcome"] == "cancelled"


async def test_a_word_to_a_node_without_an_incident_says_so(shell: Shell) -> None:
    for word in ("approve", "skip", "escalate", "take-over", "hand-back", "cancel"):
        status, _, err = await shell.type(word, "node-1")
        assert status == 1, word
        assert "no incident of node-1 is open" in err


async def test_a_freeze_is_shown_until_it_is_thawed(shell: Shell) -> None:
    instance_id = shell.healing.fleet.node("node-1").instance_id
    await shell.ask("freeze", "--scope", "node:node-1", "--minutes", "5", "-r", "cable work")
    freezes = (await shell.ask("status"))["books"]["state"]["freezes"]
    assert [(one["scope"], one["why"]) for one in freezes] == [(f"node:{instance_id}", "cable work")]
    await shell.ask("thaw", "--scope", "node:node-1")
    assert (await shell.ask("status"))["books"]["state"]["freezes"] == []


async def test_a_wrong_scope_is_refused_with_the_right_ones(shell: Shell) -> None:
    status, _, err = await shell.type("freeze", "--scope", "rack-7")
    assert status == 64
    assert '"domain:NAME"' in err


async def test_without_a_worker_status_and_why_say_what_is_missing(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "QUERY_TIMEOUT", timedelta(milliseconds=200))
    await shell.healing.stop_worker()
    await shell.ask("report", "node-1")
    seen = await shell.ask("status")
    assert "hotspare worker" in seen["incidents"][0]["trouble"]
    status, out, _ = await shell.type("why", "node-1")
    assert status == 0
    assert "hotspare worker" in out


async def test_a_closed_incident_is_told_from_host_memory_when_temporal_has_forgotten_it(
    shell: Shell, server: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shell.ask("report", "node-1")

    async def closed() -> bool:
        return bool((await shell.ask("why", "node-1"))["last_closed"])

    await shell.until(closed)
    monkeypatch.setenv("TEMPORAL_ADDRESS", server.client.service_client.config.target_host)
    status, out, _ = await shell.type("why", "node-1")
    assert status == 0
    assert "nothing found" in out


async def test_init_twice_writes_once_prepares_everything_and_shows_the_nodes(shell: Shell, tmp_path: Path) -> None:
    config = tmp_path / "new" / "hotspare.toml"
    first = await shell.ask("init", "--config", str(config), "--yes", "--cluster", "lab")
    written = config.read_text()
    again = await shell.ask("init", "--config", str(config), "--yes")
    assert config.read_text() == written
    assert first["verdict"] == again["verdict"] == "OK"
    parts = {line["part"]: line["text"] for line in again["lines"]}
    assert parts["Cluster"] == "cluster/lab runs"
    assert parts["sweep"] == "scheduled before, now every 300 s"
    assert "registered and proven" in parts["search attributes"]
    assert parts["inventory"] == "5 nodes, of which 1 spare"
    assert {"worker node-1", "spare spare-1", "head head"} <= parts.keys()
    assert (config.parent / "intake.token").stat().st_mode & 0o777 == 0o600


async def test_doctor_finds_a_healthy_cluster_well_apart_from_what_is_not_set_up(shell: Shell) -> None:
    await shell.type("init", "--yes")
    status, out, _ = await shell.type("doctor", "--json")
    lines = {line["part"]: line for line in json.loads(out)["lines"]}
    assert status == 1
    assert {part for part, line in lines.items() if line["verdict"] != "OK"} == {
        "pages",
        "job",
        "AWS events",
        "alerts",
    }
    assert all(line["do"] for line in lines.values() if line["verdict"] != "OK")
    assert {f"node node-{n}" for n in (1, 2, 3, 4)} <= lines.keys()


async def test_doctor_names_the_broken_node_and_what_to_do_with_it(shell: Shell) -> None:
    shell.healing.fleet.inject("node-2", FakeFault(xid=79, cure=Cure.NEVER))
    status, out, _ = await shell.type("doctor", "--json")
    [line] = [line for line in json.loads(out)["lines"] if line["part"] == "node node-2"]
    assert status == 2
    assert line["verdict"] == "CRITICAL"
    assert line["text"].startswith("gpu_lost")
    assert "hotspare report node-2" in line["do"]


async def test_doctor_shows_what_another_healer_does_about_a_code_and_when_beside_our_ladder(shell: Shell) -> None:
    fleet = shell.healing.fleet
    fleet.kubernetes = api = FakeKubernetes()
    api.missing.add(REBOOT_NODE)
    gpus, ready = 8, True
    for name in ("node-1", "node-2"):
        pool = {"karpenter.sh/nodepool": "gpus"}
        api.add_node(name, fleet.node(name).instance_id, gpus=gpus, ready=ready, **pool)
    _, out, _ = await shell.type("doctor", "--json")
    told = json.loads(out)
    texts = [line["text"] for line in told["lines"] if line["part"] == "other healers"]
    assert any(text.startswith("Karpenter node pool gpus: 2 nodes") for text in texts)
    assert {one["healer"] for one in told["healers"]} == {"Karpenter"}
    lost = next(one for one in told["healers"] if one["signal"] == "xid:79")
    assert (lost["action"], lost["minutes"], lost["ours"][0], lost["in_the_middle"]) == ("replace", 10, "reboot", True)
    assert lost["source"].startswith("https://karpenter.sh/")
    _, out, _ = await shell.type("doctor", "--all")
    assert all(name in out for name in ("NVSentinel:", "EKS node auto repair:", "EKS Auto Mode:", "SageMaker HyperPod:"))
    api.down = True
    _, out, _ = await shell.type("doctor", "--json")
    [line] = [line for line in json.loads(out)["lines"] if line["part"] == "other healers" and line["verdict"] == "UNKNOWN"]
    assert "no node is restarted" in line["do"]
    assert "the Kubernetes API server does not answer" in line["text"]


async def test_doctor_says_that_it_cannot_tell_whether_another_healer_is_installed(shell: Shell) -> None:
    fleet = shell.healing.fleet
    fleet.kubernetes = api = FakeKubernetes()
    api.add_node("node-1", fleet.node("node-1").instance_id)
    api.points.fail_next("list rebootnodes", AccessRefused("may not list rebootnodes"), times=99)
    _, out, _ = await shell.type("doctor", "--json")
    [line] = [line for line in json.loads(out)["lines"] if line["part"] == "other healers" and line["verdict"] == "UNKNOWN"]
    assert line["text"] == "cannot tell whether NVSentinel is installed: may not list rebootnodes"
    assert "as if it were there" in line["do"]


async def test_doctor_looks_at_the_nodes_though_temporal_is_away(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
    status, out, _ = await shell.type("doctor")
    assert status == 2
    assert "no Temporal server answers at 127.0.0.1:1" in out
    assert "reached and probed, 8 GPUs" in out


async def test_init_writes_the_settings_though_temporal_is_away_and_says_to_run_it_again(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
    config = tmp_path / "new.toml"
    monkeypatch.setenv("HOTSPARE_CONFIG", str(config))
    status, out, _ = await shell.type("init", "--yes", "--region", "us-west-2", "--head", "login-1")
    assert status == 2
    assert "run hotspare init again" in out
    settings = load_settings(config)
    assert (settings.aws.region, settings.job.head, settings.policy.mode) == ("us-west-2", "login-1", Mode.OBSERVE)


async def test_a_server_that_is_away_is_unknown_and_says_where_it_was_looked_for(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
    status, _, err = await shell.type("status")
    assert status == 3
    assert "127.0.0.1:1" in err


def test_wrong_usage_is_64(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOTSPARE_CONFIG", raising=False)
    assert exit_status(["report"]) == 64
    assert exit_status(["no-such-command"]) == 64
    assert exit_status(["status", "--config", str(tmp_path / "none.toml")]) == 64
    assert exit_status(["worker", "--role", "cook"]) == 64
    assert exit_status(["--help"]) == 0
