"""A word is remembered with who said it and when; a cancel says beforehand what it does, a take-over what to type next."""

from __future__ import annotations

import json

import pytest

from activities import names
from activities.clients.fake_machine import Cure, FakeFault
from activities.host_memory import ClosedIncident
from tests.workers.test_cli import Shell, shell
from workers.cli import cancel, words
from workflows.decisions.replayed import replay
from workflows.decisions.settings import Mode, PolicySettings

__all__ = ["shell"]


@pytest.fixture(autouse=True)
def ann(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (words, cancel):
        monkeypatch.setattr(module, "person", lambda: "ann")


async def asked_about(shell: Shell, node: str) -> None:
    """Have a fault on a node that its incident asks a person about."""
    shell.healing.fleet.inject(node, FakeFault(xid=79, cure=Cure.NEVER))
    await shell.ask("report", node, "--xid", "79")
    await shell.waits_for_person(node)


async def ended(shell: Shell, node: str) -> ClosedIncident:
    """Wait until the node's incident is remembered as closed."""
    instance_id = shell.healing.fleet.node(node).instance_id

    async def closed() -> bool:
        return bool(shell.healing.fleet.memory.incidents(instance_id))

    await shell.until(closed)
    return shell.healing.fleet.memory.incidents(instance_id)[0]


async def test_a_cancel_says_beforehand_what_it_does_and_leaves_and_then_does_that(shell: Shell) -> None:
    await asked_about(shell, "node-2")
    before = await shell.ask("cancel", "node-2", "--dry-run")
    assert before["plan"]["node"] == "the node stays quarantined, for a person"
    assert before["now"].startswith("asks a person")
    status, out, _ = await shell.type("cancel", "node-2", "--dry-run")
    assert status == 0
    assert "hotspare report node-2" in out
    assert len((await shell.ask("status"))["incidents"]) == 1

    await shell.ask("cancel", "node-2", "-r", "the wrong node")
    closed = await ended(shell, "node-2")
    assert closed.outcome == "cancelled"
    assert before["plan"]["node"] in closed.summary[-1]
    assert shell.healing.tags("node-2")[names.TAG_QUARANTINE] == closed.incident
    assert shell.healing.fleet.count("reboot", "node-2") == 0


async def test_every_word_is_remembered_with_who_said_it_when_and_about_which_step(shell: Shell) -> None:
    await asked_about(shell, "node-2")
    await shell.ask("take-over", "node-2", "-r", "mine")
    await shell.ask("hand-back", "node-2")
    await shell.ask("cancel", "node-2", "-r", "the wrong node")
    closed = await ended(shell, "node-2")
    assert [(one.verb, one.by, one.reason) for one in closed.said] == [
        ("take over", "ann", "mine"),
        ("hand back", "ann", ""),
        ("cancel", "ann", "the wrong node"),
    ]
    assert closed.said[0].step == "REBOOT_NODE"
    assert all(closed.opened_at <= one.at <= closed.closed_at for one in closed.said)


async def test_a_take_over_says_how_to_log_in_what_to_test_and_how_to_hand_back(shell: Shell) -> None:
    await asked_about(shell, "node-2")
    following = (await shell.ask("take-over", "node-2"))["next"]
    node = shell.healing.fleet.node("node-2")
    assert following[0].startswith("ssh -F ")
    assert following[0].endswith(node.host or node.ip)
    assert "hotspare hand-back node-2" in following
    _, out, _ = await shell.type("take-over", "node-2")
    assert "hotspare burn-in node-2" in out


async def test_a_dry_run_without_an_incident_says_so(shell: Shell) -> None:
    status, _, err = await shell.type("cancel", "node-1", "--dry-run")
    assert status == 1
    assert "no incident of node-1 is open" in err


async def test_what_an_incident_decided_is_decided_again_from_host_memory_alone(shell: Shell) -> None:
    await asked_about(shell, "node-2")
    await shell.ask("cancel", "node-2")
    closed = await ended(shell, "node-2")
    asking = PolicySettings(mode=Mode.APPROVE)
    same = replay([closed], asking, asking)
    assert same.decisions == closed.decisions_made == len(closed.decisions)
    assert (same.differences, same.not_rebuilt, same.assumed) == ([], [], 0)
    acting = replay([closed], PolicySettings(mode=Mode.ACT), asking)
    assert {json.loads(text)["step"]["kind"] for text in closed.decisions} >= {"examine", "quarantine", "ask a person"}
    assert acting.differences[0].was.page == "approve REBOOT_NODE"
