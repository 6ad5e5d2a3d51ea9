"""Doctor on a Temporal server on which nothing is prepared yet, and on nodes: how many at once, and their clocks."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from google.protobuf.duration_pb2 import Duration
from temporalio.api.namespace.v1 import NamespaceConfig
from temporalio.api.workflowservice.v1 import UpdateNamespaceRequest

from activities.errors import NodeUnreachable
from activities.inventory import Node
from activities.node import Examination, Examine, Opinion
from activities.node_access import CommandResult
from checks.model import Action, Verdict
from tests.workers.conftest import dev_server
from tests.workers.fakes import node
from workers.cli import health_nodes
from workers.cli.health import Line
from workers.cli.health_nodes import AT_ONCE, check_node, check_nodes, side_by_side
from workers.cli.health_temporal import check_temporal
from workers.settings import Settings


async def test_a_server_on_which_nothing_is_prepared_says_line_by_line_what_to_type() -> None:
    async with dev_server() as env:
        lines = {line.part: line for line in await check_temporal(Settings(), env.client)}
        short = NamespaceConfig(workflow_execution_retention_ttl=Duration(seconds=3600))
        await env.client.workflow_service.update_namespace(UpdateNamespaceRequest(namespace="default", config=short))
        [retention] = [line for line in await check_temporal(Settings(), env.client) if line.part == "retention"]
    told = {part: (line.verdict, line.do) for part, line in lines.items() if line.verdict is not Verdict.OK}
    assert told["workers"] == (Verdict.CRITICAL, "start one: hotspare worker (or hotspare run)")
    assert told["Cluster"] == (Verdict.CRITICAL, "start it: hotspare init")
    assert told["sweep"] == (Verdict.WARN, "schedule it: hotspare init")
    assert told["search attributes"][0] is Verdict.WARN
    assert told.keys() == {"workers", "Cluster", "sweep", "search attributes"}
    assert retention.verdict is Verdict.WARN
    assert "retention" in retention.do


async def test_many_nodes_are_looked_at_side_by_side_and_never_more_than_so_many() -> None:
    together = threading.Barrier(AT_ONCE)
    lock, now, most = threading.Lock(), 0, 0

    def look(one: Node) -> str:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        together.wait(60)  # goes on only when so many are here
        with lock:
            now -= 1
        return one.name

    nodes = [node(n) for n in range(AT_ONCE * 3)]
    assert await side_by_side(nodes, look) == [one.name for one in nodes]
    assert most == AT_ONCE


class Wired:
    """A wiring over one kind of node: how it answers, and what its clock says."""

    def __init__(self, *, ahead_s: float = 0.0, why: str = "") -> None:
        self._ahead_s, self._why = ahead_s, why
        self.node_activities = SimpleNamespace(examine=self._examine)

    def access_to(self, one: Node) -> SimpleNamespace:
        def run(command: list[str], deadline_s: float) -> CommandResult:
            if self._why:
                raise NodeUnreachable(self._why)
            return CommandResult(exit_status=0, stdout=f"{time.time() + self._ahead_s:.0f}\n", stderr="")

        return SimpleNamespace(run=run)

    def _examine(self, asked: Examine) -> Examination:
        opinion = Opinion(fault_class="none", action=Action.NONE)
        verdict = Verdict.UNKNOWN if self._why else Verdict.OK
        now = datetime.now(UTC) - timedelta(seconds=1)
        return Examination(
            reachable=not self._why, verdict=verdict, opinion=opinion, taken_at=now, why_unreachable=self._why, gpu_serials=["1"]
        )


def told(wiring: Wired, settings: Settings | None = None) -> list[Line]:
    """What is said of a node."""
    return check_node(settings or Settings(), wiring, node(1))  # type: ignore[arg-type]


@pytest.mark.parametrize(("ahead_s", "words"), [(0.0, ""), (400.0, "ahead of"), (-90.0, "behind")])
def test_a_node_whose_clock_is_off_is_told_beside_its_health(ahead_s: float, words: str) -> None:
    first, *more = told(Wired(ahead_s=ahead_s))
    assert (first.part, first.verdict) == ("node node-1", Verdict.OK)
    assert [line.part for line in more] == (["clock"] if words else [])
    assert all(words in line.text and "node-1" in line.do for line in more)


@pytest.mark.parametrize(
    ("why", "mend"),
    [
        ("node-1: no connection to 10.0.0.1 port 22", "ssh -F"),
        ("node-1: the host key of 10.0.0.1 is not known", "hotspare trust node-1"),
    ],
)
def test_the_mend_fits_what_is_wrong_with_the_way(why: str, mend: str) -> None:
    [line] = told(Wired(why=why))
    assert (line.verdict, line.text) == (Verdict.UNKNOWN, why)
    assert mend in line.do


async def test_a_head_node_is_not_probed_and_a_stopped_one_not_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_nodes, "_clock", lambda *_: [])
    nodes = [node(1), node(2).model_copy(update={"state": "stopped"}), node(3, "head")]
    lines = await check_nodes(Settings(), Wired(), nodes)  # type: ignore[arg-type]
    assert [(line.part, line.verdict) for line in lines] == [("node node-1", Verdict.OK), ("node node-2", Verdict.WARN)]
    assert "start i-002" in lines[1].do
