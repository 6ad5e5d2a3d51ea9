"""Temporal away, then back: watcher and intake keep reports on disk, deliver them in order, and drop what is no longer true."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from activities.errors import ProviderBusy
from activities.incidents import Joined, StartIncident
from tests.workers.fakes import FakeGateway
from tests.workers.test_intake_alerts import alert
from tests.workers.test_intake_http import Door, message, opened
from tests.workers.test_spool import NOON, held
from tests.workers.test_watcher import Scene, until
from tests.workers.test_watcher_node_log import xid
from workers.forwarding import Boot, Forwarder
from workers.intake.delivery import Delivery
from workers.intake.token import write_token
from workers.intake.unknown import UnknownNodePager
from workers.sections import SpoolSettings
from workers.spool import Spool
from workers.watcher.cursors import CursorFile
from workers.watcher.watcher import Watcher

GSP = "Timeout waiting for RPC from GSP!"


def forwarder(spool: Spool, gateway: Any, boots: dict[str, Boot] | None = None, now: datetime = NOON) -> Forwarder:
    known = boots or {}
    return Forwarder(
        "lab", spool, gateway, lambda of: known.get(of.instance_id), 3600.0, 1.0, 0.01, clock=lambda: now.timestamp()
    )


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path / "spool", SpoolSettings())


async def test_what_waits_is_delivered_in_order_and_then_gone(spool: Spool, tmp_path: Path) -> None:
    for number, key in ((1, "a"), (2, "b"), (1, "c"), (3, "d"), (1, "e")):
        spool.hold(held(number, key=key))
    gateway = FakeGateway()
    assert await forwarder(spool, gateway).deliver()
    said = [(instance_id, start.report.key) for instance_id, start in gateway.reports if start.report]
    assert [key for instance_id, key in said if instance_id == "i-001"] == ["a", "c", "e"]
    assert sorted(said) == [("i-001", "a"), ("i-001", "c"), ("i-001", "e"), ("i-002", "b"), ("i-003", "d")]
    assert Spool(tmp_path / "spool", SpoolSettings()).state.reports == 0


async def test_while_temporal_is_away_everything_stays_and_only_one_node_is_tried_each_time(spool: Spool) -> None:
    gateway = FakeGateway()
    gateway.away = True
    for number in range(1, 20):
        spool.hold(held(number))
    forwarding = forwarder(spool, gateway)
    assert not await forwarding.deliver()
    assert not await forwarding.deliver()
    assert (gateway.calls["report_fault"], spool.state.reports) == (2, 19)


async def test_a_report_that_the_server_never_takes_does_not_keep_the_other_nodes_waiting(spool: Spool) -> None:
    class Picky(FakeGateway):
        async def report_fault(self, start: StartIncident, instance_id: str) -> Joined:
            if instance_id == "i-001":
                raise ProviderBusy("payload too large")
            return await super().report_fault(start, instance_id)

    gateway = Picky()
    for number in (1, 2, 3):
        spool.hold(held(number))
    forwarding = forwarder(spool, gateway)
    for _ in range(3):
        await forwarding.deliver()
    assert sorted(instance_id for instance_id, _ in gateway.reports) == ["i-002", "i-003"]
    assert spool.holds("i-001")


async def test_what_is_no_longer_true_is_dropped_and_the_log_says_what_and_why(
    spool: Spool, caplog: pytest.LogCaptureFixture
) -> None:
    spool.hold(held(1, at=NOON - timedelta(hours=3)))
    spool.hold(held(2, boot_id="boot-1"))
    spool.hold(held(3, boot_id="boot-1"))
    gateway = FakeGateway()
    assert await forwarder(spool, gateway, {"i-002": Boot("boot-2"), "i-003": Boot("boot-1")}).deliver()
    assert [instance_id for instance_id, _ in gateway.reports] == ["i-003"]
    assert spool.state.reports == 0
    dropped = [record.getMessage() for record in caplog.records if "dropped" in record.getMessage()]
    assert len(dropped) == 2
    assert any("node-1: XID 79" in line and "3.0 h ago" in line for line in dropped)
    assert any("node-2: XID 79" in line and "restarted since (boot boot-2)" in line for line in dropped)


async def test_an_answer_that_is_lost_delivers_twice_and_loses_nothing(spool: Spool) -> None:
    class Forgetful(FakeGateway):
        async def report_fault(self, start: StartIncident, instance_id: str) -> Joined:
            joined = await super().report_fault(start, instance_id)
            if len(self.reports) == 1:
                raise ProviderBusy("connection reset by peer")
            return joined

    gateway = Forgetful()
    spool.hold(held(1))
    forwarding = forwarder(spool, gateway)
    assert not await forwarding.deliver()
    assert await forwarding.deliver()
    assert len({start.report.key for _, start in gateway.reports if start.report}) == 1


@asynccontextmanager
async def watched(scene: Scene, folder: Path) -> AsyncIterator[Watcher]:
    """A watcher that keeps on disk what the server does not take."""
    stop = asyncio.Event()
    kept = SpoolSettings(folder=folder, retry_max_s=0.02)
    watcher = Watcher("lab", scene.inventory, scene.access_to, scene.gateway, scene.settings, spool=kept)
    running = asyncio.ensure_future(watcher.run(stop))
    try:
        yield watcher
    finally:
        stop.set()
        await running


def on_disk(folder: Path) -> int:
    return len(list(folder.rglob("*.json")))


async def test_the_watcher_keeps_faults_on_disk_and_delivers_them_in_order_when_temporal_is_back(tmp_path: Path) -> None:
    scene, folder = Scene(tmp_path), tmp_path / "spool"
    scene.gateway.away = True
    async with watched(scene, folder):
        scene.machines["i-001"].print(xid(79, 995.0))
        await until(lambda: on_disk(folder) == 1)
        scene.machines["i-001"].print(xid(119, 1200.0, pci="0000:2a:00", text=GSP))
        scene.machines["i-002"].print(xid(79, 996.0))
        await until(lambda: on_disk(folder) == 3)
        await until(lambda: CursorFile(scene.settings.cursors).of("i-001") is not None)
        scene.gateway.away = False
        await until(lambda: len(scene.gateway.reports) == 3)
        await until(lambda: on_disk(folder) == 0)
    assert [code for instance_id, code in scene.reports() if instance_id == "i-001"] == [79, 119]


async def test_a_fault_is_delivered_though_watcher_and_node_both_end_before_temporal_is_back(tmp_path: Path) -> None:
    scene, folder = Scene(tmp_path), tmp_path / "spool"
    scene.gateway.away = True
    async with watched(scene, folder):
        scene.machines["i-001"].print(xid(79, 995.0))
        await until(lambda: on_disk(folder) == 1)
    scene.machines["i-001"].away = True
    scene.gateway.away = False
    async with watched(scene, folder):
        await until(lambda: bool(scene.gateway.reports))
    assert scene.reports() == [("i-001", 79)]


async def test_a_fault_of_a_boot_that_has_ended_meanwhile_is_not_delivered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    scene, folder = Scene(tmp_path), tmp_path / "spool"
    scene.gateway.away = True
    async with watched(scene, folder) as watcher:
        scene.machines["i-001"].print(xid(79, 995.0))
        await until(lambda: on_disk(folder) == 1)
        scene.machines["i-001"].reboot()
        await until(lambda: scene.machines["i-001"].connections == 2)
        await until(lambda: watcher.connected() == ["node-1", "node-2"])
        scene.gateway.away = False
        await until(lambda: on_disk(folder) == 0)
    assert scene.reports() == []
    assert "dropped, not true any more: node-1: XID 79" in caplog.text


async def test_where_the_disk_takes_nothing_the_node_s_own_log_still_holds_the_fault(tmp_path: Path) -> None:
    scene, folder = Scene(tmp_path), tmp_path / "spool"
    folder.write_text("no folder")
    scene.gateway.away = True
    async with watched(scene, folder):
        scene.machines["i-001"].print(xid(79, 995.0))
        await until(lambda: scene.gateway.calls["report_fault"] >= 3)
        assert CursorFile(scene.settings.cursors).of("i-001") is None
        scene.gateway.away = False
        await until(lambda: bool(scene.gateway.reports))
    assert scene.reports() == [("i-001", 79)]


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Door]:
    """An intake that keeps on disk what the server does not take."""
    write_token(tmp_path / "token")
    one = Door(tmp_path / "token", confirm_timeout_s=1.0)
    one.spool = Spool(tmp_path / "spool", SpoolSettings())
    pager = UnknownNodePager("lab", one.pager, 60.0)
    one.delivery = Delivery("lab", one.inventory, one.gateway, one.gateway, pager, one.settings, spool=one.spool)
    async with opened(one) as running:
        yield running


async def test_an_alert_is_accepted_with_202_once_it_is_on_disk(door: Door, tmp_path: Path) -> None:
    door.gateway.away = True
    answer = await door.post(message(alert({"xid": "79"})))
    assert (answer.status_code, answer.json()["held"], answer.json()["taken"]) == (202, 1, 0)
    assert on_disk(tmp_path / "spool") == 1
    health = (await door.get("/healthz")).json()
    assert (health["status"], health["held"]) == ("ok", 1)
    assert "hotspare_intake_held 1.0" in (await door.get("/metrics")).text


async def test_when_the_disk_fails_too_the_sender_is_asked_to_send_again(door: Door, tmp_path: Path) -> None:
    (tmp_path / "spool").write_text("no folder")
    door.gateway.away = True
    answer = await door.post(message(alert({"xid": "79"})))
    assert answer.status_code == 503
    assert "cannot be kept on disk" in answer.json()["error"]


async def test_a_new_alert_waits_behind_the_one_of_the_same_node_and_both_arrive_in_order(door: Door) -> None:
    assert door.spool is not None
    door.gateway.away = True
    await door.post(message(alert({"xid": "79"})))
    door.gateway.away = False
    answer = await door.post(message(alert({"xid": "79"}, status="resolved"), status="resolved"))
    assert answer.status_code == 202
    await forwarder(door.spool, door.gateway, now=datetime.now(UTC)).deliver()
    assert [start.report.resolved for _, start in door.gateway.reports if start.report] == [False, True]
    assert (await door.post(message(alert({"xid": "63"})))).status_code == 200


async def test_a_hundred_equal_alerts_while_temporal_is_away_are_one_file(door: Door, tmp_path: Path) -> None:
    door.gateway.away = True
    answers = await asyncio.gather(*(door.post(message(alert({"xid": "79"})), timeout=30) for _ in range(100)))
    assert {answer.status_code for answer in answers} == {202}
    assert on_disk(tmp_path / "spool") == 1


async def test_a_full_spool_is_said_by_the_health_page(tmp_path: Path) -> None:
    write_token(tmp_path / "token")
    one = Door(tmp_path / "token")
    one.spool = Spool(tmp_path / "spool", SpoolSettings(max_reports=1))
    pager = UnknownNodePager("lab", one.pager, 60.0)
    one.delivery = Delivery("lab", one.inventory, one.gateway, one.gateway, pager, one.settings, spool=one.spool)
    one.gateway.away = True
    async with opened(one):
        await one.post(message(alert({"xid": "79"}), alert({"Hostname": "node-2"})))
        health = (await one.get("/healthz")).json()
    assert (health["status"], health["held"], health["lost"]) == ("spool full", 1, 1)
