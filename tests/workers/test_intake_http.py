"""The intake over HTTP, on its own socket: who is let in, what is answered, and that 2xx means recorded."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from activities.errors import BadInput
from tests.workers.fakes import FakeGateway, FakeInventory, FakePager, node
from tests.workers.test_intake_alerts import alert
from workers.intake.app import Intake
from workers.intake.delivery import Delivery
from workers.intake.server import bind, serve_intake
from workers.intake.token import TokenFile, write_token
from workers.intake.unknown import UnknownNodePager
from workers.sections import IntakeSettings
from workers.spool import Spool


class Door:
    """A running intake and what stands behind it."""

    def __init__(self, token_file: Path, **settings: Any) -> None:
        self.settings = IntakeSettings(port=0, token_file=token_file, **settings)
        self.inventory = FakeInventory(node(1), node(2))
        self.gateway = FakeGateway()
        self.pager = FakePager()
        pager = UnknownNodePager("lab", self.pager, self.settings.unknown_page_again_s)
        self.delivery = Delivery("lab", self.inventory, self.gateway, self.gateway, pager, self.settings)
        self.token_file = token_file
        self.spool: Spool | None = None
        self.url = ""

    async def post(self, body: Any, token: str | None = None, **more: Any) -> httpx.Response:
        shown = self.token_file.read_text().strip() if token is None else token
        async with httpx.AsyncClient(verify=False) as client:
            kind = {"content": body} if isinstance(body, bytes) else {"json": body}
            return await client.post(self.url, headers={"Authorization": f"Bearer {shown}"} if shown else {}, **kind, **more)

    async def get(self, path: str) -> httpx.Response:
        async with httpx.AsyncClient(verify=False) as client:
            return await client.get(self.url.replace("/v1/alertmanager", path))


@asynccontextmanager
async def opened(door: Door) -> AsyncIterator[Door]:
    """Serve the door while the block runs."""
    stop = asyncio.Event()
    up: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    listening = bind(door.settings)
    intake = Intake(door.delivery, TokenFile(door.token_file), door.settings, door.spool)
    serving = asyncio.ensure_future(serve_intake(intake, listening, stop, up.set_result))
    try:
        door.url = await up
        yield door
    finally:
        stop.set()
        await serving
        listening.close()


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Door]:
    token_file = tmp_path / "intake.token"
    write_token(token_file)
    async with opened(Door(token_file)) as running:
        yield running


def message(*alerts: Any, **more: Any) -> dict[str, Any]:
    return {"version": "4", "status": "firing", "alerts": list(alerts), **more}


async def test_an_alert_is_recorded_before_it_is_answered_with_200(door: Door) -> None:
    answer = await door.post(message(alert({"xid": "79"})))
    assert answer.status_code == 200
    assert answer.json()["incidents"] == ["incident/lab/i-001"]
    [(instance_id, start)] = door.gateway.reports
    assert (instance_id, start.node, start.cluster) == ("i-001", "node-1", "lab")
    assert start.report is not None
    assert start.report.xid == 79


async def test_all_aliases_of_a_node_lead_to_its_one_incident(door: Door) -> None:
    for alias in ("node-1", "i-001", "10.0.0.1:9400", "NODE-1"):
        answer = await door.post(message(alert({"instance_id": alias, "alertname": alias}, annotations={})))
        assert answer.json()["incidents"] == ["incident/lab/i-001"]
    assert len(door.gateway.reports) == 4


async def test_a_hundred_equal_alerts_at_once_are_one_signal(door: Door) -> None:
    door.gateway.open_door.clear()
    aliases = ["node-1", "i-001", "10.0.0.1:9400"]
    posts = [asyncio.ensure_future(door.post(message(alert({"instance_id": aliases[n % 3]})), timeout=30)) for n in range(100)]
    await door.gateway.arrived.wait()
    door.gateway.open_door.set()
    answers = await asyncio.gather(*posts)
    assert {answer.status_code for answer in answers} == {200}
    assert sum(answer.json()["taken"] for answer in answers) == 1
    assert sum(answer.json()["repeated"] for answer in answers) == 99
    assert door.gateway.calls["report_fault"] == 1


async def test_while_temporal_is_away_the_answer_is_503_and_the_next_try_is_recorded(door: Door) -> None:
    door.gateway.away = True
    answer = await door.post(message(alert()))
    assert answer.status_code == 503
    assert "Temporal does not answer" in answer.json()["error"]
    door.gateway.away = False
    assert (await door.post(message(alert()))).status_code == 200
    assert len(door.gateway.reports) == 1


async def test_a_server_that_does_not_confirm_in_time_is_a_503(tmp_path: Path) -> None:
    write_token(tmp_path / "token")
    async with opened(Door(tmp_path / "token", confirm_timeout_s=0.05)) as slow:
        slow.gateway.open_door.clear()
        assert (await slow.post(message(alert()))).status_code == 503


async def test_an_inventory_that_is_away_is_a_503(door: Door) -> None:
    door.inventory.away = True
    assert (await door.post(message(alert()))).status_code == 503


async def test_one_unreadable_alert_does_not_keep_the_others_out(door: Door) -> None:
    answer = await door.post(message(alert(), {"labels": {}}, alert({"Hostname": "node-2"})))
    assert answer.status_code == 200
    assert answer.json()["taken"] == 2
    assert answer.json()["unreadable"] == [{"index": 1, "why": "status is 'None', not firing or resolved"}]


async def test_an_unknown_node_is_observed_and_told_once_to_a_person_and_the_rest_is_taken(door: Door) -> None:
    for _ in range(3):
        answer = await door.post(message(alert({"Hostname": "node-9"}), alert()))
        assert answer.status_code == 200
        assert answer.json()["unknown_nodes"][0]["observed"] == "unresolved/lab/node-9"
    assert door.gateway.calls["observe"] == 1
    assert [page.node for page in door.pager.pages] == ["node-9"]
    assert "did you mean" in door.pager.pages[0].why[0]
    assert [instance_id for instance_id, _ in door.gateway.reports] == ["i-001"]


async def test_a_resolved_alert_is_handed_on_as_resolved(door: Door) -> None:
    await door.post(message(alert()))
    await door.post(message(alert(status="resolved"), status="resolved"))
    assert [start.report.resolved for _, start in door.gateway.reports if start.report] == [False, True]


@pytest.mark.parametrize(
    "body", [b"", b"nonsense", b"[]", b'{"version": "3"}', b"[" * 100_000, b'{"version": "4", "alerts": 3}', b"\xff"]
)
async def test_what_is_no_message_is_a_400_that_says_why(door: Door, body: bytes) -> None:
    answer = await door.post(body)
    assert answer.status_code == 400
    assert answer.json()["error"]


async def test_a_body_over_the_limit_is_a_413(door: Door) -> None:
    assert (await door.post(b"x" * 1_000_001)).status_code == 413


async def test_without_a_token_401_with_a_wrong_one_403_and_nothing_is_recorded(door: Door) -> None:
    assert (await door.post(message(alert()), token="")).status_code == 401
    assert (await door.post(message(alert()), token="wrong")).status_code == 403
    assert door.gateway.calls["report_fault"] == 0


async def test_a_new_token_in_the_file_counts_at_once(door: Door) -> None:
    old = door.token_file.read_text().strip()
    door.token_file.write_text("a-new-token-that-is-long-enough\n")
    assert (await door.post(message(alert()), token=old)).status_code == 403
    assert (await door.post(message(alert()))).status_code == 200


async def test_a_token_file_that_is_gone_asks_the_sender_to_try_again(door: Door) -> None:
    door.token_file.unlink()
    assert (await door.post(message(alert()), token="x")).status_code == 503


async def test_health_and_metrics_need_no_token_and_count(door: Door) -> None:
    assert (await door.get("/healthz")).json() == {"status": "ok"}
    await door.post(message(alert(), alert({"Hostname": "nobody"})))
    text = (await door.get("/metrics")).text
    assert 'hotspare_intake_requests_total{status="200"} 1.0' in text
    assert 'hotspare_intake_alerts_total{result="taken"} 1.0' in text
    assert 'hotspare_intake_alerts_total{result="unknown_node"} 1.0' in text


async def test_a_taken_port_is_an_error_that_names_the_settings(door: Door) -> None:
    port = httpx.URL(door.url).port
    assert port is not None
    with pytest.raises(BadInput, match=r"intake\.port"):
        bind(IntakeSettings(port=port))


def test_the_written_token_is_ours_alone_and_is_never_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "state" / "token"
    assert write_token(file)
    assert file.stat().st_mode & 0o777 == 0o600
    content = file.read_text()
    assert len(content.strip()) >= 32
    assert not write_token(file)
    assert file.read_text() == content
    TokenFile(file).check_usable()


def test_an_unusable_token_is_found_before_the_first_alert(tmp_path: Path) -> None:
    file = tmp_path / "token"
    with pytest.raises(BadInput, match="hotspare init"):
        TokenFile(file).check_usable()
    file.write_text("short")
    os.chmod(file, 0o600)
    with pytest.raises(BadInput, match="shorter"):
        TokenFile(file).check_usable()


async def test_a_flood_of_one_unknown_name_asks_the_inventory_once(door: Door) -> None:
    await door.post(message(alert({"Hostname": "node-9"})))
    await door.post(message(*[alert({"Hostname": "node-9", "gpu": str(n)}, fingerprint=str(n)) for n in range(20)]))
    assert door.inventory.resolved["node-9"] == 1


async def test_a_nodes_name_cannot_break_the_lines_of_a_log(door: Door) -> None:
    answer = await door.post(message(alert({"Hostname": "a\nb\x1b[2J"})))
    assert answer.json()["unknown_nodes"][0]["node"] == "a b [2J"
