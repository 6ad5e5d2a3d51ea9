"""The all-reduce of the lab prints what nccl-tests prints, and its bandwidth shows the faults that real ones would show."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from checks.judges.judgement import Judgement
from checks.judges.nccl_tests import judge
from checks.model import Verdict
from infra.lab.faults import Fault
from infra.lab.lab import Lab
from infra.lab.node import LabNode
from infra.lab.options import LabOptions
from tests.lab.conftest import Reach

LONG_RUN = "mpirun -np 16 --host node-1:8,node-2:8 all_reduce_perf -b 1G -e 16G -f 4 -g 1"
ONE_NODE = "all_reduce_perf -b 1G -e 16G -f 4 -g 8 -n 20"


def works(node: LabNode) -> bool:
    """Whether a process uses the GPUs of a node."""
    return bool(node.gpu_state()["processes"])


async def judged(reach: Reach, node: str, command: str, nodes: int) -> Judgement:
    """Run a test and judge its output as Hotspare does."""
    done = await reach.run(node, command + " 2>&1")
    return judge(str(done.stdout), "p5.48xlarge", nodes, done.exit_status, {})


async def group(reach: Reach, *names: str) -> Judgement:
    hosts = ",".join(f"{name}:8" for name in names)
    command = f"mpirun -np {8 * len(names)} --host {hosts} all_reduce_perf -b 1G -e 16G -f 4 -g 1 -n 20"
    return await judged(reach, "head", command, len(names))


async def test_healthy_nodes_pass_alone_and_together(lab: Lab, reach: Reach) -> None:
    alone = await judged(reach, "node-1", ONE_NODE, 1)
    together = await group(reach, "node-1", "node-2", "spare-1")
    assert (alone.verdict, together.verdict) == (Verdict.OK, Verdict.OK)
    assert alone.busbw_gbs == pytest.approx(480, rel=0.02)
    assert together.busbw_gbs == pytest.approx(487, rel=0.02)


async def test_a_node_with_a_slow_network_passes_alone_and_fails_in_a_group(lab: Lab, reach: Reach) -> None:
    await lab.inject("node-2", Fault(slow=0.5, slow_kind="inter"))
    assert (await judged(reach, "node-2", ONE_NODE, 1)).verdict is Verdict.OK
    failed = await group(reach, "node-1", "node-2")
    assert (failed.verdict, failed.cause) == (Verdict.CRITICAL, "low_bandwidth")
    assert (await group(reach, "node-1", "spare-1")).verdict is Verdict.OK


async def test_a_node_with_slow_links_inside_fails_alone(lab: Lab, reach: Reach) -> None:
    await lab.inject("node-2", Fault(slow=0.6, slow_kind="intra"))
    assert (await judged(reach, "node-2", ONE_NODE, 1)).cause == "low_bandwidth"


async def test_a_bad_pair_fails_only_together(lab: Lab, reach: Reach) -> None:
    await lab.inject("node-1", Fault(slow=0.4, slow_kind="pair", peer="node-2"))
    assert (await group(reach, "node-1", "spare-1")).verdict is Verdict.OK
    assert (await group(reach, "node-2", "spare-1")).verdict is Verdict.OK
    assert (await group(reach, "node-1", "node-2")).cause == "low_bandwidth"


async def test_wrong_results_are_data_corruption_whatever_the_bandwidth(lab: Lab, reach: Reach) -> None:
    await lab.inject("node-1", Fault(wrong=4096))
    corrupt = await group(reach, "node-1", "node-2")
    assert (corrupt.verdict, corrupt.cause) == (Verdict.CRITICAL, "data_corruption")
    assert (await judged(reach, "node-1", ONE_NODE, 1)).cause == "data_corruption"


async def test_a_group_with_an_unreachable_or_unknown_node_could_not_run(lab: Lab, reach: Reach) -> None:
    await lab.nodes["node-2"].stop()
    for name in ("node-2", "node-77"):
        result = await group(reach, "node-1", name)
        assert (result.verdict, result.cause) == (Verdict.UNKNOWN, "could_not_run")


async def test_a_lost_gpu_fails_the_run_as_cuda_would(lab: Lab, reach: Reach) -> None:
    await lab.inject("node-2", Fault(xid=79))
    together = await reach.run("head", "mpirun -np 16 --host node-1:8,node-2:8 all_reduce_perf -b 1G -e 1G -g 1")
    assert together.exit_status == 2
    assert "node-2: Test CUDA failure" in str(together.stdout)
    alone = await reach.run("node-2", ONE_NODE)
    assert alone.exit_status == 1
    assert "8 requested but only 7 were found" in str(alone.stdout)


async def test_more_ranks_than_slots_are_refused_as_mpirun_does(reach: Reach) -> None:
    refused = await reach.run("head", "mpirun -np 17 --host node-1:8,node-2:8 all_reduce_perf -b 1G -e 1G -g 1")
    assert refused.exit_status == 1
    assert "not enough slots" in str(refused.stderr)


@pytest.fixture
async def slow_lab(lab_options: LabOptions) -> AsyncIterator[Lab]:
    """A lab whose group tests end only when something ends them."""
    async with Lab(replace(lab_options, group_test_s=3600.0)) as lab:
        yield lab


async def test_a_node_that_dies_during_the_run_ends_it_and_leaves_no_process(slow_lab: Lab) -> None:
    reach, node = Reach(slow_lab), slow_lab.nodes["node-2"]
    run = asyncio.ensure_future(reach.run("head", LONG_RUN))
    await node.wait_until(works)
    await node.reboot()
    done = await run
    assert done.exit_status == 137
    assert "on node node-2 exited on signal 9" in str(done.stderr)
    assert not any(works(seen) for seen in slow_lab.nodes.values())


async def test_a_launcher_that_goes_away_takes_its_ranks_with_it(slow_lab: Lab) -> None:
    connection = await Reach(slow_lab).connect("head")
    await connection.create_process(LONG_RUN)
    await slow_lab.nodes["node-2"].wait_until(works)
    connection.abort()
    for node in slow_lab.nodes.values():
        await node.wait_until(lambda seen: not works(seen))
    await connection.wait_closed()
