"""Spares that are tested while they wait: lent for it, noted, refused when they fail; and who wants one meanwhile waits."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from temporalio.client import WorkflowHandle

from activities import names
from activities.clients.fake_machine import Cure, FakeFault
from activities.errors import PreconditionFailed
from activities.gpu_records import GpuRecord, Mark
from activities.host_records import HostRecord
from checks.model import Verdict
from tests.workflows.healing import Healing, healing
from workflows.cluster_messages import AskKind
from workflows.decisions.settings import ClusterSettings, PolicySettings
from workflows.messages import Qualification, StartQualification


async def swept(cluster: Healing, name: str) -> list[str]:
    """Sweep by hand; returns the spares whose test it began."""
    done: dict[str, Any] = await cluster.client.execute_workflow(
        names.WORKFLOW_SWEEP, {}, id=f"sweep-{name}", task_queue=names.QUEUE_WORKFLOWS
    )
    testing: list[str] = done["testing"]
    return testing


def trial_of(cluster: Healing, spare: str) -> WorkflowHandle[Any, Qualification]:
    """The test of a spare."""
    workflow_id = names.qualify_id(cluster.fleet.cluster, cluster.fleet.node(spare).instance_id)
    return cluster.client.get_workflow_handle(workflow_id, result_type=Qualification)


async def begin(cluster: Healing, spare: str) -> WorkflowHandle[Any, Qualification]:
    """Begin the test of a spare by hand."""
    node = cluster.fleet.node(spare)
    return await cluster.client.start_workflow(
        names.WORKFLOW_QUALIFY_SPARE,
        StartQualification(node=spare),
        id=names.qualify_id(cluster.fleet.cluster, node.instance_id),
        task_queue=names.QUEUE_WORKFLOWS,
        result_type=Qualification,
    )


def remembered(cluster: Healing, spare: str) -> HostRecord:
    return cluster.fleet.memory.recall(cluster.fleet.node(spare).instance_id)


async def lent(cluster: Healing) -> list[str]:
    """Instance ids of the spares that are lent now."""
    books = (await cluster.overview()).state
    return [partner for grant in books.grants for partner in grant.partners]


async def nothing_lent(cluster: Healing) -> bool:
    return not await lent(cluster)


async def test_a_sweep_has_one_spare_tested_at_a_time_and_none_again_that_was_tested_not_long_ago(tmp_path: Path) -> None:
    async with healing(tmp_path, spares=2) as cluster:
        assert await swept(cluster, "1") == ["spare-1"]
        first = await trial_of(cluster, "spare-1").result()
        assert first.verdict is Verdict.OK
        assert remembered(cluster, "spare-1").qualified_at is not None
        assert await swept(cluster, "2") == ["spare-2"]
        await trial_of(cluster, "spare-2").result()
        assert await swept(cluster, "3") == []
        assert [cluster.fleet.count("start", f"spare-{number}") for number in (1, 2)] == [1, 1]
        await cluster.until(lambda: nothing_lent(cluster))
        assert cluster.tags("spare-1")[names.TAG_ROLE] == names.ROLE_SPARE


async def test_no_spare_is_put_under_load_in_a_cluster_that_is_only_observed(tmp_path: Path) -> None:
    async with healing(tmp_path, policy=PolicySettings()) as cluster:
        assert await swept(cluster, "1") == []
        assert cluster.fleet.count("start", "spare-1") == 0


async def test_the_qualified_spare_is_taken_and_the_reason_says_when_it_passed(tmp_path: Path) -> None:
    async with healing(tmp_path, spares=2) as cluster:
        await (await begin(cluster, "spare-2")).result()
        cluster.fleet.inject("node-3", FakeFault(xid=64, cure=Cure.NEVER))
        report = await (await cluster.report("node-3", xid=64)).result()
        assert cluster.fleet.job.status("train").nodes == ["node-1", "node-2", "spare-2", "node-4"]
        assert any("spare-2 is the nearest free spare" in line and "passed" in line for line in report.story)


async def test_a_qualified_spare_is_only_looked_at_before_it_joins_and_one_that_has_restarted_is_tested_whole(
    tmp_path: Path,
) -> None:
    async with healing(tmp_path, spares=2) as cluster:
        fleet = cluster.fleet
        for spare in ("spare-1", "spare-2"):
            await (await begin(cluster, spare)).result()
        fleet.machine("spare-2").reboot()
        fleet.machine("spare-2").looks_until_up = 0
        fleet.inject("node-3", FakeFault(xid=64, cure=Cure.NEVER))
        await (await cluster.report("node-3", xid=64)).result()
        assert (fleet.count("start", "spare-1"), "spare-1" in fleet.job.status("train").nodes) == (1, True)
        fleet.inject("node-4", FakeFault(xid=64, cure=Cure.NEVER))
        await (await cluster.report("node-4", xid=64)).result()
        assert (fleet.count("start", "spare-2"), "spare-2" in fleet.job.status("train").nodes) == (2, True)


async def test_a_spare_that_fails_its_test_has_an_incident_and_is_leased_to_nobody(tmp_path: Path) -> None:
    async with healing(tmp_path) as cluster:
        cluster.fleet.inject("spare-1", FakeFault(slow=0.5, slow_kind="intra", cure=Cure.NEVER))
        tested = await (await begin(cluster, "spare-1")).result()
        assert tested.verdict is Verdict.CRITICAL
        spare = await cluster.incident_of("spare-1").result()
        assert spare.fate == "retired"
        cluster.fleet.inject("node-3", FakeFault(xid=79, cure=Cure.REBOOT))
        report = await (await cluster.report("node-3", xid=79)).result()
        assert report.fate == "back in service"
        assert cluster.fleet.count("start", "spare-1") == 1


async def test_a_banned_gpu_keeps_a_spare_out_of_every_lease(tmp_path: Path) -> None:
    async with healing(tmp_path, spares=2) as cluster:
        fleet, at = cluster.fleet, datetime.now(UTC)
        known = remembered(cluster, "spare-1").model_copy(update={"gpu_serials": ["165123"]})
        fleet.memory.save(known)
        fleet.memory.save_gpu(GpuRecord(serial="165123", marks=[Mark(at=at, bad=True, by="ann", why="XID 64 twice")]))
        fleet.inject("node-3", FakeFault(xid=64, cure=Cure.NEVER))
        await (await cluster.report("node-3", xid=64)).result()
        assert fleet.job.status("train").nodes == ["node-1", "node-2", "spare-2", "node-4"]
        assert fleet.count("start", "spare-1") == 0


async def test_a_node_that_fails_while_the_only_spare_is_tested_gets_it_after_the_test(tmp_path: Path) -> None:
    async with healing(tmp_path) as cluster:
        held = cluster.fleet.hold("start", "spare-1")
        testing = await begin(cluster, "spare-1")
        await held.reached()
        assert await lent(cluster) == [cluster.fleet.node("spare-1").instance_id]
        cluster.fleet.inject("node-3", FakeFault(xid=64, cure=Cure.NEVER))
        incident = await cluster.report("node-3", xid=64)

        async def waits() -> bool:
            return any(ask.kind is AskKind.SPARE for ask in (await cluster.overview()).state.queue)

        await cluster.until(waits)
        assert "lent to a burn-in or a test" in (await cluster.overview()).state.queue[0].waits_for
        held.release()
        assert (await testing.result()).verdict is Verdict.OK
        assert (await incident.result()).outcome == "resolved"
        assert "spare-1" in cluster.fleet.job.status("train").nodes


async def test_a_test_that_is_cancelled_gives_the_spare_back_and_qualifies_nobody(tmp_path: Path) -> None:
    async with healing(tmp_path) as cluster:
        held = cluster.fleet.hold("start", "spare-1")
        testing = await begin(cluster, "spare-1")
        await held.reached()
        await testing.cancel()
        held.release()
        await cluster.until(lambda: nothing_lent(cluster))
        assert remembered(cluster, "spare-1").qualified_at is None


async def test_a_new_keeper_of_the_books_hears_which_spare_is_under_test(tmp_path: Path) -> None:
    async with healing(tmp_path) as cluster:
        held = cluster.fleet.hold("start", "spare-1")
        testing = await begin(cluster, "spare-1")
        await held.reached()
        await cluster.client.get_workflow_handle(names.cluster_id("lab")).terminate("lost")
        await cluster.gateway.ensure_cluster("lab")

        async def recovered() -> bool:
            return not (await cluster.overview()).recovering

        await cluster.until(recovered)
        assert await lent(cluster) == [cluster.fleet.node("spare-1").instance_id]
        held.release()
        await testing.result()
        await cluster.until(lambda: nothing_lent(cluster))


async def test_three_nodes_and_one_spare_what_is_repaired_first_stands_in_for_the_next(tmp_path: Path) -> None:
    limits = ClusterSettings(max_nodes_out=3, max_percent_out=100, max_nodes_out_per_job=3, max_nodes_out_per_domain=3)
    limits = limits.model_copy(update={"max_percent_out_per_domain": 100.0, "max_repairs": 3})
    async with healing(tmp_path, limits=limits) as cluster:
        fleet = cluster.fleet
        booting = fleet.hold("reboot", "node-1")
        fleet.inject("node-1", FakeFault(xid=79, cure=Cure.REBOOT))
        first = await cluster.report("node-1", xid=79)
        await booting.reached()  # the spare is gone, and the first node is being repaired
        for name in ("node-2", "node-3"):
            fleet.inject(name, FakeFault(xid=64, cure=Cure.NEVER))
        for name in ("node-2", "node-3"):
            await cluster.report(name, xid=64)

        async def both_wait() -> bool:
            queue = (await cluster.overview()).state.queue
            return sum(1 for ask in queue if ask.kind is AskKind.SPARE) == 2

        await cluster.until(both_wait)
        booting.release()
        assert (await first.result()).fate == "probation"
        keeper = cluster.client.get_workflow_handle(names.cluster_id("lab"))
        await cluster.env.fast_forward(keeper, timedelta(seconds=31))
        await cluster.until(lambda: one_left(cluster))


async def one_left(cluster: Healing) -> bool:
    queue = (await cluster.overview()).state.queue
    return sum(1 for ask in queue if ask.kind is AskKind.SPARE) == 1


async def test_preemptible_work_leaves_a_spare_before_it_is_tested_and_before_it_joins(tmp_path: Path) -> None:
    async with healing(tmp_path, spares_work=True) as cluster:
        fleet = cluster.fleet
        fleet.machine("spare-1").gpu_processes = 8
        tested = await (await begin(cluster, "spare-1")).result()
        assert (tested.verdict, fleet.count("evict", "spare-1")) == (Verdict.OK, 1)
        fleet.machine("spare-1").gpu_processes = 8
        fleet.inject("node-3", FakeFault(xid=64, cure=Cure.NEVER))
        report = await (await cluster.report("node-3", xid=64)).result()
        assert report.outcome == "resolved"
        assert "spare-1" in fleet.job.status("train").nodes
        assert fleet.count("evict", "spare-1") == 2


async def test_a_spare_whose_work_cannot_be_evicted_is_passed_over_for_the_next(tmp_path: Path) -> None:
    async with healing(tmp_path, spares=2, spares_work=True) as cluster:
        fleet = cluster.fleet
        fleet.machine("spare-1").gpu_processes = 8
        fleet.fail_next("evict", PreconditionFailed("the scheduler refuses"), node="spare-1")
        fleet.inject("node-3", FakeFault(xid=64, cure=Cure.NEVER))
        report = await (await cluster.report("node-3", xid=64)).result()
        assert report.outcome == "resolved"
        assert "spare-2" in fleet.job.status("train").nodes
        assert fleet.count("start", "spare-1") == 0
        assert fleet.machine("spare-1").gpu_processes == 8


async def test_a_spare_at_work_is_refused_by_its_test_where_nothing_is_set_up_to_evict_it(tmp_path: Path) -> None:
    async with healing(tmp_path) as cluster:
        cluster.fleet.machine("spare-1").gpu_processes = 8
        tested = await (await begin(cluster, "spare-1")).result()
        assert (tested.verdict, cluster.fleet.count("evict")) == (Verdict.UNKNOWN, 0)
        assert cluster.fleet.machine("spare-1").gpu_processes == 8
