"""Tests against real clusters: run by `make test-clusters`, where what is missing is a failure, and skipped elsewhere."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from infra.lab.kube.control_plane import ControlPlane

ASKED_FOR = "HOTSPARE_REAL_CLUSTERS"
"""Set to 1 by `make test-clusters`. It alone decides: these tests take minutes, also where all programs are there."""

_HERE = Path(__file__).parent
_LEFT = pytest.StashKey[int]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip the tests of this folder unless they were asked for."""
    if os.environ.get(ASKED_FOR) == "1":
        return
    here = [item for item in items if _HERE in item.path.parents]
    for item in here:
        item.add_marker(pytest.mark.skip(reason="real clusters: run make test-clusters"))
    config.stash[_LEFT] = len(here)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say in one line what was skipped here, and how to run it."""
    if left := config.stash.get(_LEFT, 0):
        terminalreporter.write_line(f"{left} tests against a real Kubernetes, Slurm and MPI skipped: run make test-clusters")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def control_plane(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ControlPlane]:
    """A control plane for the tests of one file. They need `pytestmark = pytest.mark.asyncio(loop_scope="module")`."""
    plane = ControlPlane(tmp_path_factory.mktemp("control-plane"))
    plane.add_user("hotspare")
    async with plane:
        yield plane
