"""Group runs by srun on a real Slurm: as jobs of their own, also on nodes that we have drained, and on nobody else's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Literal

import pytest
import pytest_asyncio

from activities.burn_in import BurnInLauncher, judged
from activities.clients.srun_launcher import SrunLauncher, job_name
from activities.errors import BadInput, CapabilityMissing, NotOurs
from activities.inventory import Node
from activities.names import TAG_QUARANTINE, incident_id
from activities.quarantine import Mark
from activities.settings_burn_in import BurnInSettings
from activities.settings_jobs import SlurmSettings
from activities.slurm_marks import SlurmMarks
from checks.model import Verdict
from tests.activities.launcher_contract import LONG, LauncherContract, ended, until
from tests.clusters.slurm_lab import SlurmLab, needs_slurm, slurm_lab

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]
NAMES = ("node-1", "node-2")
Flavour = Literal["plain", "parallelcluster"]


class SrunWorld:
    """Two nodes that no job has."""

    def __init__(self, cluster: SlurmLab, nodes: list[Node]) -> None:
        self.cluster, self.nodes = cluster, nodes

    def launcher(
        self, *, program: str = "", iterations: int = 20, flavour: Flavour = "plain", start_s: float = 20.0
    ) -> BurnInLauncher:
        # Debian's Slurm has no PMIx, and the lab's test needs none.
        usual = [word for word in BurnInSettings().srun_command if word != "--mpi=pmix"]
        command = [program or "all_reduce_perf" if word == "all_reduce_perf" else word for word in usual[:-1]]
        settings = BurnInSettings(srun_command=[*command, str(iterations)], slurm_start_s=start_s)
        wiring = self.cluster.wiring
        marks = SlurmMarks(wiring.slurm, SlurmSettings(flavour=flavour))
        return SrunLauncher(lambda: wiring._access_to_alias("head"), wiring.slurm, marks, settings)

    def working(self) -> set[str]:
        return {name for name, node in self.cluster.lab.nodes.items() if node.gpu_state()["processes"]}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SrunWorld]:
    """A lab whose job is held, so that its nodes are free."""
    needs_slurm()
    with pytest.MonkeyPatch.context() as patch:
        async with slurm_lab(tmp_path_factory.mktemp("slurm"), patch, nodes=2, spares=0, group_test_s=0.1) as cluster:
            await cluster.lab.job.hold()
            for name in NAMES:
                await cluster.until(name, lambda states: states == {"IDLE"})
            yield SrunWorld(cluster, [await cluster.node(name) for name in NAMES])


class TestSrun(LauncherContract):
    pass


async def states(world: SrunWorld) -> list[set[str]]:
    return [(await world.cluster.row(name))[0] for name in NAMES]


async def test_nodes_that_we_have_drained_are_tested_and_stay_drained_with_their_reason(world: SrunWorld) -> None:
    owner = incident_id("lab", world.nodes[0].instance_id)
    mark = Mark(owner=owner, reason="XID 79 on GPU 3", since=datetime(2026, 1, 2, tzinfo=UTC))
    marks = world.cluster.marks
    await asyncio.to_thread(marks.write, world.nodes[0], mark)
    launcher = world.launcher()
    try:
        await asyncio.to_thread(launcher.start, "drained/1", world.nodes, 60.0)
        assert await asyncio.to_thread(marks.read, world.nodes[0]) == mark
        assert await asyncio.to_thread(marks.read, world.nodes[1]) is None
        result = judged(await ended(launcher, "drained/1"), world.nodes, {})
        assert (result.verdict, result.cause) == (Verdict.OK, "healthy")
        assert await asyncio.to_thread(marks.read, world.nodes[0]) == mark
        await until(lambda: job_name("drained/1") not in world.cluster.wiring.slurm.reservations())
    finally:
        await asyncio.to_thread(marks.remove, world.nodes[0])


async def test_a_quarantine_that_was_lifted_meanwhile_is_not_put_back(world: SrunWorld) -> None:
    owner = incident_id("lab", world.nodes[0].instance_id)
    as_known_before = [world.nodes[0].model_copy(update={"quarantine": owner}), *world.nodes[1:]]
    launcher = world.launcher()
    await asyncio.to_thread(launcher.start, "lifted/1", as_known_before, 60.0)
    await ended(launcher, "lifted/1")
    assert await asyncio.to_thread(world.cluster.marks.read, world.nodes[0]) is None


async def test_a_killed_run_on_a_drained_node_leaves_the_mark_and_no_reservation(world: SrunWorld) -> None:
    owner = incident_id("lab", world.nodes[1].instance_id)
    mark = Mark(owner=owner, reason="slow", since=datetime(2026, 1, 2, tzinfo=UTC))
    marks = world.cluster.marks
    await asyncio.to_thread(marks.write, world.nodes[1], mark)
    launcher = world.launcher(iterations=LONG)
    try:
        await asyncio.to_thread(launcher.start, "drained/2", world.nodes, 600.0)
        await until(lambda: world.working() == set(NAMES))
        await asyncio.to_thread(launcher.kill, "drained/2")
        await until(lambda: not world.working())
        assert await asyncio.to_thread(marks.read, world.nodes[1]) == mark
        await ended(launcher, "drained/2")
        await until(lambda: _nothing_is_left(world, launcher, "drained/2"))
    finally:
        await asyncio.to_thread(marks.remove, world.nodes[1])


def _nothing_is_left(world: SrunWorld, launcher: BurnInLauncher, run_id: str) -> bool:
    launcher.poll(run_id)
    slurm = world.cluster.wiring.slurm
    return not slurm.states_named(job_name(run_id)) and job_name(run_id) not in slurm.reservations()


async def test_a_try_that_broke_off_while_a_node_was_undrained_is_taken_up_with_its_mark(world: SrunWorld) -> None:
    owner = incident_id("lab", world.nodes[0].instance_id)
    node = world.nodes[0].model_copy(update={"quarantine": owner})
    launcher, marks = world.launcher(), world.cluster.marks
    assert isinstance(launcher, SrunLauncher)
    await asyncio.to_thread(launcher._reserve, job_name("broken/1"), list(NAMES))
    try:
        await asyncio.to_thread(launcher.start, "broken/1", [node, world.nodes[1]], 60.0)
        found = await asyncio.to_thread(marks.read, node)
        assert found is not None
        assert found.owner == owner
        assert (await ended(launcher, "broken/1")).exit_status == 0
    finally:
        await asyncio.to_thread(marks.remove, node)


async def test_a_start_that_died_once_its_run_had_begun_leaves_no_node_open_when_the_run_is_over(world: SrunWorld) -> None:
    node, job = world.nodes[0], job_name("died/1")
    owner = incident_id("lab", node.instance_id)
    wiring, marks = world.cluster.wiring, world.cluster.marks
    wiring.ec2.set_tags(node.instance_id, {TAG_QUARANTINE: owner})
    await until(lambda: any(one.quarantine == owner for one in wiring.inventory.list("")))
    await asyncio.to_thread(marks.write, node, Mark(owner=owner, reason="slow", since=datetime(2026, 1, 2, tzinfo=UTC)))
    launcher = world.launcher()
    try:
        await asyncio.to_thread(launcher.start, "died/1", world.nodes, 60.0)
        await asyncio.to_thread(marks.remove, node)
        await world.cluster.scontrol("update", f"reservationname={job}", "duration=infinite")
        assert set(await asyncio.to_thread(wiring.slurm.endless_on, job)) == set(NAMES)
        await ended(launcher, "died/1")
        found = await asyncio.to_thread(marks.read, node)
        assert found is not None
        assert found.owner == owner
        await until(lambda: _nothing_is_left(world, launcher, "died/1"))
    finally:
        wiring.ec2.set_tags(node.instance_id, {TAG_QUARANTINE: ""})
        await asyncio.to_thread(marks.remove, node)


async def test_a_node_that_somebody_else_drained_is_refused_and_left_alone(world: SrunWorld) -> None:
    await world.cluster.scontrol("update", "nodename=node-2", "state=drain", "reason=cable swap, bob")
    try:
        with pytest.raises(NotOurs, match="cable swap"):
            await asyncio.to_thread(world.launcher().start, "theirs/1", world.nodes, 60.0)
        assert await world.cluster.row("node-2") == ({"IDLE", "DRAIN"}, "cable swap, bob")
    finally:
        await world.cluster.scontrol("update", "nodename=node-2", "state=resume")


async def test_nodes_that_are_taken_could_not_be_tested_and_accuse_nobody(world: SrunWorld) -> None:
    keeper = world.launcher(iterations=LONG)
    await asyncio.to_thread(keeper.start, "taken/1", world.nodes, 600.0)
    await until(lambda: world.working() == set(NAMES))
    try:
        other = world.launcher(start_s=2.0)
        await asyncio.to_thread(other.start, "taken/2", world.nodes, 60.0)
        result = judged(await ended(other, "taken/2"), world.nodes, {})
        assert (result.verdict, result.cause, result.culprits) == (Verdict.UNKNOWN, "could_not_run", [])
    finally:
        await asyncio.to_thread(keeper.kill, "taken/1")
        await until(lambda: not world.working())


async def test_on_parallelcluster_a_quarantined_node_is_not_taken_out_of_fail(world: SrunWorld) -> None:
    owner = incident_id("lab", world.nodes[0].instance_id)
    launcher = world.launcher(flavour="parallelcluster")
    marks = SlurmMarks(world.cluster.wiring.slurm, SlurmSettings(flavour="parallelcluster"))
    await asyncio.to_thread(marks.write, world.nodes[0], Mark(owner=owner, reason="x", since=datetime.now(UTC)))
    try:
        with pytest.raises(CapabilityMissing, match="mpirun"):
            await asyncio.to_thread(launcher.start, "fail/1", world.nodes, 60.0)
    finally:
        await asyncio.to_thread(marks.remove, world.nodes[0])


async def test_a_node_that_slurm_does_not_know_is_named(world: SrunWorld) -> None:
    stranger = Node(instance_id="i-stranger", name="stranger", gpus=8)
    with pytest.raises(BadInput, match="stranger"):
        await asyncio.to_thread(world.launcher().start, "stranger/1", [stranger], 60.0)
