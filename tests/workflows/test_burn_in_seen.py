"""A burn-in by hand: each group is seen as soon as it has ended, and nothing runs where a cluster is only observed."""

from __future__ import annotations

from temporalio.testing import ActivityEnvironment

from activities import names
from checks.model import Verdict
from tests.workflows.healing import Healing
from workflows.decide import DecideActivities
from workflows.decisions.burn_in_facts import BurnInFacts
from workflows.decisions.settings import ClusterSettings, Mode, PolicySettings
from workflows.decisions.spares_tests import acts
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


async def test_a_burn_in_by_hand_puts_no_load_on_a_cluster_that_is_only_observed(cluster: Healing) -> None:
    await cluster.restart_worker(PolicySettings(mode=Mode.OBSERVE))
    cluster.fleet.job.hold("train", "burn-in by hand")
    report: BurnInReport = await cluster.client.execute_workflow(
        names.WORKFLOW_BURN_IN,
        StartBurnIn(nodes=["node-1", "node-2"]),
        id=names.burn_in_id("lab", "observed"),
        task_queue=names.QUEUE_WORKFLOWS,
        result_type=BurnInReport,
    )
    assert (report.verdict, report.cause, report.runs) == (Verdict.UNKNOWN, "only_observed", 0)
    assert "hotspare promote" in report.next
    assert cluster.fleet.group_run_nodes == []


def test_the_burn_in_of_a_held_job_goes_on_where_somebody_switches_to_observing_meanwhile() -> None:
    observing = DecideActivities(PolicySettings(mode=Mode.OBSERVE), ClusterSettings(), "lab")
    plan = ActivityEnvironment().run(observing.plan_burn_in, BurnInFacts(nodes=["node-1", "node-2"]))
    assert (plan.done, plan.groups) == (False, [["node-1", "node-2"]])


def test_a_cluster_of_which_one_pool_may_be_healed_is_not_only_observed() -> None:
    policy = PolicySettings(mode=Mode.OBSERVE, pools={"b200": {"mode": "approve"}})
    assert acts(policy)
    assert not acts(PolicySettings(mode=Mode.OBSERVE, pools={"b200": {"boot_deadline_s": 60}}))
