"""A storm that breaks out while a job is held for one node: that job's recovery goes on, and nobody asks for ever."""

from __future__ import annotations

import asyncio
from pathlib import Path

from activities.clients.fake_machine import Cure, FakeFault
from activities.names import TAG_QUARANTINE
from tests.workflows.healing import Healing, healing
from workflows.cluster_messages import Ask, AskKind
from workflows.decisions.settings import ClusterSettings

LIMITS = ClusterSettings(storm_nodes=3, storm_percent=10)


async def others_show_it(cluster: Healing) -> None:
    """Two nodes more ask about the same fault: with the one that is out they are a storm."""
    for number in (1, 2):
        ask = Ask(
            request_id=f"other-{number}",
            asker=f"incident/{cluster.fleet.cluster}/i-other-{number}",
            kind=AskKind.ALONE,
            instance_id=f"i-other-{number}",
            fault_class="gpu_lost",
        )
        await cluster.gateway.signal_cluster(cluster.fleet.cluster, "ask", ask.model_dump(mode="json"))

    async def is_open() -> bool:
        return bool((await cluster.overview()).state.storms)

    await cluster.until(is_open)


async def test_a_repaired_node_that_fails_its_jobs_burn_in_is_taken_out_again_whatever_storm_there_is(tmp_path: Path) -> None:
    async with healing(tmp_path, spares=0, limits=LIMITS) as cluster:
        fleet = cluster.fleet
        fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
        fleet.inject("node-2", FakeFault(slow=0.4, slow_kind="inter", cure=Cure.NEVER))
        rebooting = fleet.hold("reboot", "node-2")
        incident = await cluster.report("node-2", xid=79)
        await rebooting.reached()
        await others_show_it(cluster)
        rebooting.release()
        report = await asyncio.wait_for(incident.result(), 60)
        assert report.outcome == "escalated"
        assert any("failed burn-in" in line for line in report.story)
        assert cluster.tags("node-2")[TAG_QUARANTINE]
        assert len(fleet.job.resumes) == 0
