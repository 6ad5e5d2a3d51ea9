"""The wiring: what workflows call is served on the queue on which they call it."""

from __future__ import annotations

import ast
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from temporalio.client import Client

import workflows
from workers.settings import parse_settings
from workers.wiring import Activity, Wiring
from workers.worker import QUEUES
from workflows import options

LIST = {"inventory": {"source": "list", "nodes": [{"instance_id": "i-1", "name": "node-1"}]}, "aws": {"region": "us-east-1"}}


def calls() -> set[tuple[str, str]]:
    """Every (activity, task queue) that workflow code names, read from its source."""
    found = set()
    for file in Path(workflows.__path__[0]).glob("*.py"):
        for call in ast.walk(ast.parse(file.read_text())):
            if (
                isinstance(call, ast.Call)
                and isinstance(call.func, ast.Attribute)
                and call.func.attr == "execute_activity_method"
            ):
                named = [word.value.attr for word in call.keywords if word.arg is None and isinstance(word.value, ast.Attribute)]
                assert isinstance(call.args[0], ast.Attribute), f"{file.name}:{call.lineno}"
                found |= {(call.args[0].attr, getattr(options, name)["task_queue"]) for name in named}
    return found


@pytest.fixture
async def served(tmp_path: Path, client: Client) -> AsyncIterator[dict[str, list[Activity]]]:
    wiring = Wiring(parse_settings(LIST, tmp_path / "hotspare.toml"), client)
    yield wiring.activities(attributes=True)
    wiring.close()


async def test_every_activity_that_workflows_call_is_served_on_the_queue_they_call_it_on(
    served: dict[str, list[Activity]],
) -> None:
    wanted = calls()
    assert len(wanted) >= 15
    registered = {(method.__name__, queue) for queue, methods in served.items() for method in methods}
    assert wanted - registered == set()


async def test_every_queue_belongs_to_one_role(served: dict[str, list[Activity]]) -> None:
    queues = [queue for queues in QUEUES.values() for queue in queues]
    assert sorted(queues) == sorted(served)


async def test_building_the_activities_reaches_for_nothing_outside(served: dict[str, list[Activity]], tmp_path: Path) -> None:
    assert {file.name for file in tmp_path.iterdir()} <= {
        "host-memory.sqlite3",
        "host-memory.sqlite3-wal",
        "host-memory.sqlite3-shm",
    }
