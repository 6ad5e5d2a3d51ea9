"""The wiring: what workflows call is served on the queue on which they call it."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from temporalio.client import Client

import workflows
from activities import names
from workers.credentials import credentials_in_use
from workers.settings import Settings, parse_settings
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


def cluster(folder: Path, text: str) -> Settings:
    return parse_settings({**LIST, **tomllib.loads(text)}, folder / "hotspare.toml")


ROLES = """
[aws]
region = "us-east-1"
roles = { ssh = { profile = "s" }, observe = { profile = "o" }, watcher = { profile = "w" } }
"""


@pytest.mark.parametrize(
    ("policy", "used"),
    [
        ("", ["observe"]),
        ("mode = 'observe'\nmode_by_rung = { REBOOT_NODE = 'observe' }", ["observe"]),
        ("mode = 'approve'", ["", "ssh", "watcher"]),
        ("mode = 'act'", ["", "ssh", "watcher"]),
        ("mode_by_rung = { REBOOT_NODE = 'approve' }", ["", "ssh", "watcher"]),
        ("mode_by_class = { gpu_lost = { REBOOT_NODE = 'act' } }", ["", "ssh", "watcher"]),
        ("pools = { canary = { mode = 'act' } }", ["", "ssh", "watcher"]),
    ],
)
def test_who_cannot_write_is_used_until_something_may_be_done(tmp_path: Path, policy: str, used: list[str]) -> None:
    assert credentials_in_use(cluster(tmp_path, f"{ROLES}[policy]\n{policy}\n")) == used


async def test_each_role_has_the_clients_of_its_own_credentials(
    tmp_path: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    profiles = "".join(f"[{name}]\naws_access_key_id = {name}\naws_secret_access_key = x\n" for name in "sow")
    (tmp_path / "credentials").write_text(profiles)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "own")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    wiring = Wiring(cluster(tmp_path, f"{ROLES}[policy]\nmode = 'act'\n"), client)
    try:
        served = wiring.activities(attributes=True)
        assert sorted(served) == sorted(queue for queues in QUEUES.values() for queue in queues)
        holders = {name: next(m for m in served[queue] if m.__name__ == name).__self__ for name, queue in OF_ROLES.items()}  # type: ignore[attr-defined]
        assert holders["brief"]._inventory is wiring.inventory
        assert holders["find_job"]._inventory is not wiring.inventory
        assert holders["find_job"]._inventory is holders["await_progress"]._inventory
    finally:
        wiring.close()


OF_ROLES = {"brief": names.QUEUE_AWS, "find_job": names.QUEUE_SSH, "await_progress": names.QUEUE_SSH_SLOW}
