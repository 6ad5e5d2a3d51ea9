"""What is seen of a burn-in while it runs: each group as soon as it has ended, though others of its round still run."""

from __future__ import annotations

from activities import names
from checks.model import Verdict
from tests.workflows.healing import Healing
from workflows.messages import BurnInReport, GroupRun, StartBurnIn


async def test_a_group_is_seen_to_have_passed_while_another_of_its_round_runs(cluster: Healing) -> None:
    fleet = cluster.fleet
    fleet.job.hold("train", "burn-in by hand")
    hold = fleet.hold("run.probe", "node-3")
    start = StartBurnIn(nodes=["node-1", "node-2", "node-3", "node-4"], fresh=["node-3", "node-4"])
    handle = await cluster.client.start_workflow(
        names.WORKFLOW_BURN_IN,
        start,
        id=names.burn_in_id("lab", "by-hand"),
        task_queue=names.QUEUE_WORKFLOWS,
        result_type=BurnInReport,
    )
    await hold.reached()
    seen: list[GroupRun] = []

    async def one_has_ended() -> bool:
        seen[:] = await handle.query("runs", result_type=list[GroupRun])
        return any(run.verdict is not None for run in seen)

    await cluster.until(one_has_ended)
    assert [(run.round, run.nodes, run.verdict) for run in seen] == [
        (1, ["node-3", "node-1"], None),
        (1, ["node-4", "node-2"], Verdict.OK),
    ]
    hold.release()
    assert (await handle.result()).verdict is Verdict.OK
    ended = await handle.query("runs", result_type=list[GroupRun])
    assert [run.verdict for run in ended] == [Verdict.OK] * 3
    assert ended[-1].nodes == start.nodes
