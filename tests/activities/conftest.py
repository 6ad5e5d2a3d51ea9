"""Fixtures of the activity tests: a loopback node, an activity's surroundings, a fleet."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from temporalio.testing import ActivityEnvironment

from activities.clients.fake_fleet import FakeFleet
from activities.clients.fake_memory import FakeMemory
from activities.clients.sqlite_memory import SqliteMemory
from activities.host_memory import HostMemory
from activities.probing import ChecksArchive, Probe
from activities.settings_access import AccessSettings
from tests.activities.dynamo_server import DynamoServer
from tests.activities.loopback_node import LoopbackNode


@pytest.fixture
def loopback(tmp_path: Path) -> Iterator[LoopbackNode]:
    """A node that answers on loopback."""
    node = LoopbackNode(tmp_path / "node")
    node.up()
    yield node
    node.close()


@pytest.fixture
def fleet() -> FakeFleet:
    """Four nodes, a spare and a head."""
    return FakeFleet()


@pytest.fixture(scope="session")
def dynamo_server() -> Iterator[DynamoServer]:
    """One DynamoDB for all tests; each makes a table of its own."""
    server = DynamoServer()
    yield server
    server.stop()


@pytest.fixture
def dynamo(dynamo_server: DynamoServer, monkeypatch: pytest.MonkeyPatch) -> DynamoServer:
    """That DynamoDB, with credentials, and nothing left to fail."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    dynamo_server.failing.clear()
    return dynamo_server


@pytest.fixture(params=["fake", "sqlite", "dynamodb"])
def memory(request: pytest.FixtureRequest, tmp_path: Path) -> HostMemory:
    """Each store of host memory in turn."""
    if request.param == "fake":
        return FakeMemory()
    if request.param == "sqlite":
        return SqliteMemory(tmp_path / "folder" / "memory.sqlite3")
    server: DynamoServer = request.getfixturevalue("dynamo")
    return server.memory()


@pytest.fixture
def probe(tmp_path: Path) -> Probe:
    """The probe, with an archive that FakeFleet does not unpack."""
    archive = tmp_path / "checks.tar.gz"
    archive.write_bytes(b"not unpacked by FakeFleet")
    return Probe(ChecksArchive(archive, "d1"), AccessSettings())


@pytest.fixture
def surroundings() -> ActivityEnvironment:
    """An attempt that has just begun and has an hour."""
    return attempt()


def attempt(number: int = 1, left: timedelta = timedelta(hours=1)) -> ActivityEnvironment:
    """The surroundings of an activity's attempt that has so much time left."""
    environment = ActivityEnvironment()
    environment.info = dataclasses.replace(
        environment.info, attempt=number, started_time=datetime.now(UTC), start_to_close_timeout=left, heartbeat_details=[]
    )
    return environment
