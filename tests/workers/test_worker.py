"""The worker process: serves what its roles ask for, with search attributes or without, and stops when told to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from temporalio.client import Client

from activities.clients.fake_fleet import FakeFleet, activities_of
from activities.clients.temporal_gateway import TemporalGateway
from activities.incidents import StartIncident
from activities.names import incident_id
from tests.workers.conftest import dev_server
from workers import worker
from workers.attributes import register_attributes
from workers.settings import Settings, parse_settings
from workers.wiring import Activity
from workers.worker import QUEUES, Role, run_until, serve
from workflows.decide import DecideActivities
from workflows.messages import IncidentReport


class FleetWiring:
    """The activities over a fleet in memory, on every queue."""

    def __init__(self, fleet: FakeFleet, told: list[bool], settings: Settings, client: Client) -> None:
        self._fleet, self._told, self._settings = fleet, told, settings
        self._gateway = TemporalGateway(client)

    def activities(self, *, attributes: bool) -> dict[str, list[Activity]]:
        self._told.append(attributes)
        decide = DecideActivities(self._settings.policy, self._settings.limits, self._settings.name, attributes=attributes)
        every = [*self._fleet.activities(self._gateway, self._settings.file.parent), *activities_of(decide)]
        return {queue: every for queues in QUEUES.values() for queue in queues}

    def close(self) -> None:
        """Nothing is open."""


@asynccontextmanager
async def serving(settings: Settings, client: Client, roles: Sequence[Role] = tuple(Role)) -> AsyncIterator[list[str]]:
    """A running worker; gives its task queues."""
    stop = asyncio.Event()
    up: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
    running = asyncio.ensure_future(serve(settings, client, stop, roles, up.set_result))
    try:
        yield await up
    finally:
        stop.set()
        await running


@pytest.mark.parametrize("registered", [False, True])
async def test_an_incident_heals_with_search_attributes_and_without(
    registered: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fleet, told = FakeFleet(), list[bool]()
    monkeypatch.setattr(worker, "Wiring", partial(FleetWiring, fleet, told))
    settings = parse_settings({"policy": {"mode": "act"}}, tmp_path / "hotspare.toml")
    node = fleet.node("node-1")
    async with dev_server() as env:
        if registered:
            await register_attributes(env.client)
        async with serving(settings, env.client):
            await TemporalGateway(env.client).report_fault(StartIncident(node=node.name, cluster="lab"), node.instance_id)
            handle = env.client.get_workflow_handle(incident_id("lab", node.instance_id), result_type=IncidentReport)
            assert (await handle.result()).outcome == "nothing found"
        pairs = (await handle.describe()).typed_search_attributes.search_attributes
    assert told == [registered]
    assert any(pair.key.name.startswith("Hotspare") for pair in pairs) is registered
    assert ("hotspare init" in caplog.text) is not registered


async def test_a_worker_serves_only_the_queues_of_its_roles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, client: Client
) -> None:
    monkeypatch.setattr(worker, "Wiring", partial(FleetWiring, FakeFleet(), []))
    settings = parse_settings({}, tmp_path / "hotspare.toml")
    async with serving(settings, client, [Role.AWS, Role.NOTIFY]) as queues:
        assert queues == ["hotspare-aws", "hotspare-notify"]


async def test_when_one_part_fails_the_others_are_shut_down_and_the_failure_is_told() -> None:
    down = asyncio.Event()

    async def works() -> None:
        await down.wait()

    async def fails() -> None:
        raise PermissionError("the namespace is gone")

    async def shut_down() -> None:
        down.set()

    with pytest.raises(PermissionError):
        await run_until(asyncio.Event(), [works, fails], [shut_down])
    assert down.is_set()
