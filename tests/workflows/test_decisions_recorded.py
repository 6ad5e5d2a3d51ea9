"""Whatever an incident decided can be decided again from host memory alone: the same policy differs in nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from activities.clients.fake_machine import Cure, FakeFault
from activities.host_memory import ClosedIncident
from tests.workflows.healing import Healing, healing
from workflows.decisions.replayed import replay
from workflows.decisions.settings import Mode, PolicySettings

ACTING = PolicySettings(mode=Mode.ACT)

STORIES = {
    "healed by a reboot, no spare": (FakeFault(xid=79, cure=Cure.REBOOT), 0),
    "healed by a power cycle, a spare first": (FakeFault(xid=79, cure=Cure.POWER_CYCLE), 1),
    "never healed, no spare": (FakeFault(xid=79, cure=Cure.NEVER), 0),
    "for a replacement": (FakeFault(xid=64, cure=Cure.NEVER), 1),
}


async def closed_by(cluster: Healing, fault: FakeFault) -> list[ClosedIncident]:
    """Have a node of the job fall ill, and return what is remembered once its incident has ended."""
    cluster.fleet.inject("node-2", fault)
    await (await cluster.report("node-2", xid=fault.xid)).result()
    return cluster.fleet.memory.incidents()


@pytest.mark.parametrize("story", STORIES)
async def test_every_decision_of_a_whole_incident_can_be_made_again(tmp_path: Path, story: str) -> None:
    fault, spares = STORIES[story]
    async with healing(tmp_path, spares=spares, policy=ACTING) as cluster:
        closed = await closed_by(cluster, fault)
        again = replay(closed, ACTING, ACTING)
        assert again.decisions == sum(one.decisions_made for one in closed) > 5
        assert (again.differences, again.not_rebuilt, again.assumed) == ([], [], 0)
        assert replay(closed, PolicySettings(), ACTING).differences
