"""A slow rail in the workflow: groups over one GPU a node are run, compared and told, and no node is touched for it."""

from __future__ import annotations

from activities import names
from activities.clients.fake_fleet import SLOW_RAIL
from tests.workflows.healing import Healing
from workflows.messages import StartBurnIn

NODES = ["node-1", "node-2", "node-3", "node-4"]


async def test_a_slow_rail_is_told_and_no_node_is_blamed(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    fleet.slow_rails.add(6)
    fleet.job.hold("train", "burn-in by hand")
    handle = await no_spares.client.start_workflow(
        names.WORKFLOW_BURN_IN, StartBurnIn(nodes=NODES), id=names.burn_in_id("lab", "rail"), task_queue=names.QUEUE_WORKFLOWS
    )
    report = await handle.result()
    assert (report["verdict"], report["cause"]) == ("CRITICAL", "bad_rails")
    assert {node["verdict"] for node in report["nodes"]} == {"UNKNOWN"}
    assert "rail 6 is slow whatever the nodes (21.1 GB/s in 2 groups, where a rail carries 47)" in report["because"][0]
    assert "switch" in report["next"]
    assert sorted(rail for rail, _ in fleet.rail_runs) == [0, 1, 2, 3, 4, 5, 6, 6, 7]
    story = [line["text"] for line in await handle.query("story")]
    assert any("over rail 6: UNKNOWN measured, 21 GB/s" in line for line in story)
    assert SLOW_RAIL < 0.9
