"""Fixtures of the activity tests: a loopback node, an activity's surroundings, a fleet."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from temporalio.testing import ActivityEnvironment

from activities.clients.fake_fleet import FakeFleet
from activities.probing import ChecksArchive, Probe
from activities.settings import AccessSettings
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
