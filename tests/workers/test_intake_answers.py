"""Answers by webhook: who is let in, which incident hears them, what it says to them, and that they are remembered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from activities.clients.fake_fleet import FakeFleet
from activities.clients.fake_machine import Cure, FakeFault
from activities.inventory import Inventory
from tests.workers.fakes import FakeGateway, FakeInventory, FakePager, node
from tests.workflows.healing import Healing, healing
from workers.connection import TemporalAway
from workers.intake.answers import Answers, Say
from workers.intake.app import Intake
from workers.intake.delivery import Delivery
from workers.intake.server import bind, serve_intake
from workers.intake.token import TokenFile, write_token
from workers.intake.unknown import UnknownNodePager
from workers.saying import NotOpen, Refused, say
from workers.sections import IntakeSettings
from workflows.decisions.settings import Mode, PolicySettings
from workflows.messages import Word


class Ear:
    """Hears what is said to incidents; `error` is raised in place of an answer."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str, Word, str]] = []
        self.error: Exception | None = None
        self.open = asyncio.Event()
        self.open.set()

    async def say(self, workflow_id: str, word: str, said: Word, not_open: str, update_id: str) -> str:
        await self.open.wait()
        if self.error is not None:
            raise self.error
        self.heard.append((workflow_id, word, said, update_id))
        return f"{word}: heard"


class Door:
    """A running intake that takes answers."""

    def __init__(self, url: str, token: str) -> None:
        self.url = url
        self.token = token

    async def post(self, body: Any, token: str | None = None) -> httpx.Response:
        shown = self.token if token is None else token
        headers = {"Authorization": f"Bearer {shown}"} if shown else {}
        async with httpx.AsyncClient(timeout=60) as client:
            kind = {"content": body} if isinstance(body, bytes) else {"json": body}
            return await client.post(self.url, headers=headers, **kind)


@asynccontextmanager
async def opened(
    folder: Path, inventory: Inventory, to_say: Say, timeout_s: float = 30.0, own_token: Path | None = None
) -> AsyncIterator[Door]:
    """Serve an intake whose answers go to `to_say` while the block runs."""
    token_file = folder / "intake.token"
    write_token(token_file)
    settings = IntakeSettings(port=0, token_file=token_file)
    gateway = FakeGateway()
    pager = UnknownNodePager("lab", FakePager(), settings.unknown_page_again_s)
    delivery = Delivery("lab", inventory, gateway, gateway, pager, settings)
    answers = Answers("lab", inventory, to_say, timeout_s)
    answers_token = TokenFile(own_token) if own_token else None
    intake = Intake(delivery, TokenFile(token_file), settings, answers=answers, answers_token=answers_token)
    stop = asyncio.Event()
    up: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    listening = bind(settings)
    serving = asyncio.ensure_future(serve_intake(intake, listening, stop, up.set_result))
    try:
        url = (await up).replace("/v1/alertmanager", "/v1/answers")
        yield Door(url, token_file.read_text().strip())
    finally:
        stop.set()
        await serving
        listening.close()


@pytest.fixture
def ear() -> Ear:
    return Ear()


@pytest.fixture
def inventory() -> FakeInventory:
    return FakeInventory(node(1), node(2))


@pytest.fixture
async def door(tmp_path: Path, inventory: FakeInventory, ear: Ear) -> AsyncIterator[Door]:
    async with opened(tmp_path, inventory, ear.say) as running:
        yield running


APPROVE = {"node": "node-1", "answer": "approve", "by": "ann", "reason": "go on", "step": "REBOOT_NODE"}


async def test_an_answer_reaches_the_nodes_incident_with_who_said_it_and_comes_back(door: Door, ear: Ear) -> None:
    answer = await door.post(APPROVE)
    assert answer.status_code == 200
    assert answer.json() == {
        "node": "node-1",
        "incident": "incident/lab/i-001",
        "answer": "approve",
        "by": "ann",
        "said": "approve: heard",
    }
    assert ear.heard == [("incident/lab/i-001", "approve", Word(by="ann", reason="go on", step="REBOOT_NODE"), "")]


@pytest.mark.parametrize("word", ["approve", "skip", "escalate", "take-over", "take_over", "hand back", "cancel"])
async def test_every_word_of_a_person_is_taken_by_any_name_of_the_node(door: Door, ear: Ear, word: str) -> None:
    named = [{"node": "10.0.0.2:9400"}, {"node": "i-002"}, {"incident": "incident/lab/i-002"}]
    for one in named:
        assert (await door.post({**one, "answer": word, "by": "ann"})).status_code == 200
    assert [workflow_id for workflow_id, *_ in ear.heard] == ["incident/lab/i-002"] * len(named)


async def test_nobody_answers_without_the_token(door: Door, ear: Ear) -> None:
    assert (await door.post(APPROVE, token="")).status_code == 401
    assert (await door.post(APPROVE, token="guessed")).status_code == 403
    assert ear.heard == []


async def test_with_a_token_of_their_own_answers_are_not_for_who_sends_alerts(
    tmp_path: Path, inventory: FakeInventory, ear: Ear
) -> None:
    own = tmp_path / "answers.token"
    write_token(own)
    async with opened(tmp_path, inventory, ear.say, own_token=own) as door:
        assert (await door.post(APPROVE)).status_code == 403
        assert (await door.post(APPROVE, token=own.read_text().strip())).status_code == 200


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"by": ""}, "by: "),
        ({"by": "  "}, "by: "),
        ({"answer": "reboot it"}, "what can be said: approve"),
        ({"node": ""}, "name the node"),
        ({"incident": "incident/lab/i-002"}, "name one of the two"),
        ({"nodes": ["node-1"]}, "nodes: "),
        ({"reason": "x" * 1001}, "reason: "),
    ],
)
async def test_what_cannot_be_acted_on_is_a_400_that_says_why(door: Door, ear: Ear, changed: dict[str, Any], said: str) -> None:
    answer = await door.post({**APPROVE, **changed})
    assert answer.status_code == 400
    assert said in answer.json()["error"]
    assert ear.heard == []


@pytest.mark.parametrize("body", [b"approve", b"[]", b"", b"\xff", b"[" * 100_000])
async def test_a_body_that_is_no_answer_is_a_400(door: Door, body: bytes) -> None:
    assert (await door.post(body)).status_code == 400


async def test_an_unknown_node_is_a_404_with_the_nearest_names(door: Door) -> None:
    answer = await door.post({**APPROVE, "node": "node-11"})
    assert answer.status_code == 404
    assert "did you mean node-1" in answer.json()["error"]
    foreign = await door.post({"incident": "incident/other/i-001", "answer": "approve", "by": "ann"})
    assert foreign.status_code == 404
    assert "no incident of cluster lab" in foreign.json()["error"]


async def test_a_node_without_an_incident_is_a_404(door: Door, ear: Ear) -> None:
    ear.error = NotOpen("no incident of node-1 is open; see: hotspare status")
    answer = await door.post(APPROVE)
    assert (answer.status_code, "no incident of node-1" in answer.json()["error"]) == (404, True)


async def test_a_word_that_the_incident_refuses_is_a_409_with_the_words(door: Door, ear: Ear) -> None:
    ear.error = Refused("approve was refused: nothing is asked at the moment; name the step that you mean")
    answer = await door.post(APPROVE)
    assert answer.status_code == 409
    assert "nothing is asked at the moment" in answer.json()["error"]
    assert "take-over (the node is yours" in answer.json()["error"]


async def test_what_was_not_heard_is_a_503_so_that_the_sender_tries_again(
    tmp_path: Path, inventory: FakeInventory, ear: Ear
) -> None:
    async with opened(tmp_path, inventory, ear.say, timeout_s=0.05) as door:
        ear.error = TemporalAway("no worker answers")
        assert (await door.post(APPROVE)).status_code == 503
        ear.error = None
        ear.open.clear()
        assert (await door.post(APPROVE)).status_code == 503
        ear.open.set()
        inventory.away = True
        assert (await door.post(APPROVE)).status_code == 503


@pytest.fixture
async def asking(tmp_path: Path) -> AsyncIterator[tuple[Healing, Door]]:
    """A cluster in mode approve, and the door to it."""
    async with (
        healing(tmp_path, spares=0, policy=PolicySettings(mode=Mode.APPROVE)) as cluster,
        opened(tmp_path, cluster.fleet.inventory, partial(say, cluster.client)) as door,
    ):
        yield cluster, door


async def test_an_answer_by_webhook_lets_the_incident_go_on_and_is_remembered(asking: tuple[Healing, Door]) -> None:
    cluster, door = asking
    fleet: FakeFleet = cluster.fleet
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
    handle = await cluster.report("node-2", xid=79)
    await cluster.told(handle, "asks a person")
    nothing = await door.post({"node": "node-2", "answer": "skip", "by": "ann", "step": "JUMP"})
    assert nothing.status_code == 409
    assert "the steps are" in nothing.json()["error"]
    given = {"incident": handle.id, "answer": "approve", "by": "ann@example.org", "reason": "go on", "id": "m-1"}
    for _ in range(2):  # the sender's own second try counts once
        answer = await door.post(given)
        assert (answer.status_code, answer.json()["answer"]) == (200, "approve")
    assert (await handle.result()).outcome == "resolved"
    assert fleet.count("reboot", "node-2") == 1
    [closed] = fleet.memory.incidents(fleet.node("node-2").instance_id)
    assert [(one.verb, one.by, one.reason) for one in closed.said] == [("approve", "ann@example.org", "go on")]
    assert any("approve: ann@example.org: go on" in line for line in closed.summary)
    assert (await door.post(given)).status_code == 200  # it was heard, whatever has become of the incident
    assert (await door.post({**given, "id": ""})).status_code == 404
