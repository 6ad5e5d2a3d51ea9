"""What doctor says of host memory: read, written, banned GPUs, and what to do where it cannot be."""

from __future__ import annotations

import pytest

from activities.clients.fake_memory import FakeMemory
from activities.clients.fake_points import Points
from activities.errors import AccessRefused, HotspareError, ProviderBusy
from activities.host_ledger import mark_gpu
from activities.host_memory import HostMemory, HostRecord
from checks.model import Verdict
from workers.cli.health import check_store


class Wired:
    """A wiring of which only host memory is asked for."""

    def __init__(self, memory: HostMemory) -> None:
        self.memory = memory


async def test_a_store_that_works_is_told_with_its_hosts_and_bans() -> None:
    memory = FakeMemory()
    memory.save(HostRecord(instance_id="i-1"))
    for serial in ("1650", "1651"):
        mark_gpu(memory, serial, bad=True, by="ann", why="burnt")
    mark_gpu(memory, "1651", bad=False, by="ben", why="another board")
    (line,) = await check_store(Wired(memory))  # type: ignore[arg-type]
    assert (line.verdict, line.text) == (Verdict.OK, "1 host remembered, 1 GPU banned; it can be written")


async def test_what_doctor_writes_is_gone_again() -> None:
    memory = FakeMemory()
    await check_store(Wired(memory))  # type: ignore[arg-type]
    assert memory._intents == {}


@pytest.mark.parametrize("error", [ProviderBusy("the disk is full"), AccessRefused("not authorized: dynamodb:PutItem")])
async def test_a_store_that_cannot_be_written_is_critical_and_says_where_to_mend(error: HotspareError) -> None:
    points = Points()
    points.fail_next("memory.intent", error)
    (line,) = await check_store(Wired(FakeMemory(points)))  # type: ignore[arg-type]
    assert (line.verdict, line.text) == (Verdict.CRITICAL, str(error))
    assert "docs/ledger.md" in line.do
