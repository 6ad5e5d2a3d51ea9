"""Doctor's line on the spare pool: who counts, who does not and why, and what to type."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from activities.clients.fake_memory import FakeMemory
from activities.errors import ProviderBusy
from activities.host_records import HostRecord, SpareTest
from activities.inventory import Node
from checks.model import Verdict
from tests.workers.fakes import node
from workers.cli.health import Line
from workers.cli.health_spares import check_pool
from workers.settings import Settings
from workflows.decisions.settings import Mode, PolicySettings

NOW = datetime.now(UTC)
ACTS = Settings(policy=PolicySettings(mode=Mode.ACT))
NODES = [*(node(number) for number in range(1, 9)), node(20, "spare"), node(21, "spare")]


class Memory:
    """What doctor sees of the clients."""

    def __init__(self) -> None:
        self.memory = FakeMemory()

    def passed(self, one: Node, hours: float) -> None:
        at = NOW - timedelta(hours=hours)
        test = SpareTest(at=at, verdict=Verdict.OK, boot_id="b")
        self.memory.save(HostRecord(instance_id=one.instance_id, spare_test=test, qualified_at=at))


async def line(wiring: Memory, settings: Settings = ACTS, nodes: list[Node] = NODES) -> Line:
    (only,) = await check_pool(settings, wiring, nodes)  # type: ignore[arg-type]
    return only


async def test_a_pool_of_which_every_spare_passed_is_well() -> None:
    wiring = Memory()
    for spare in NODES[-2:]:
        wiring.passed(spare, 2)
    told = await line(wiring)
    assert (told.verdict, told.do) == (Verdict.OK, "")
    assert told.text == "2 of 2 spares count, 3 are planned for"


@pytest.mark.parametrize(("hours", "verdict"), [(2.0, Verdict.OK), (100.0, Verdict.WARN)])
async def test_a_spare_that_does_not_count_is_named_with_the_reason_and_only_a_pool_of_such_is_a_warning(
    hours: float, verdict: Verdict
) -> None:
    wiring = Memory()
    wiring.passed(NODES[-1], hours)
    told = await line(wiring)
    assert told.verdict is verdict
    assert "node-20: was never tested" in told.text
    assert "hotspare spares test NODE" in told.do


async def test_a_pool_that_is_new_is_no_warning_the_sweep_tests_it() -> None:
    told = await line(Memory())
    assert told.verdict is Verdict.OK
    assert "node-20: was never tested; node-21: was never tested" in told.text
    assert "the sweep tests them" in told.do


async def test_a_cluster_that_is_only_observed_is_not_told_to_test() -> None:
    told = await line(Memory(), Settings())
    assert told.verdict is Verdict.OK
    assert "only observed" in told.text
    assert not told.do


async def test_an_empty_pool_has_no_line_of_its_own_and_a_memory_that_is_away_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await check_pool(ACTS, Memory(), NODES[:4]) == []  # type: ignore[arg-type]
    wiring = Memory()

    def away(**_: object) -> None:
        raise ProviderBusy("the store does not answer")

    monkeypatch.setattr(wiring.memory, "incidents", away)
    told = await line(wiring)
    assert (told.verdict, "does not answer" in told.text) == (Verdict.UNKNOWN, True)
