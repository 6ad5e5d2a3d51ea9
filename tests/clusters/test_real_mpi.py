"""The burn-in on real nodes: Open MPI over OpenSSH between network namespaces, links that the kernel slows, our own plan."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from temporalio.client import WorkflowFailureError

from checks.model import Verdict
from infra.lab.namespaces.tools import NotHere, tell
from tests.clusters.mpi_rig import FLOOR_GBS, SLOW_MBITS, RealMpi, needs_namespaces, real_mpi, until
from tests.workers.conftest import dev_server
from workflows.messages import BurnInReport, GroupRun

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]

NODES = 6

STOPPED_MBITS = 0.05
"""Rate of a path on which a run does not end by itself. It is a path, so that the launcher still reaches every node."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plant() -> AsyncIterator[RealMpi]:
    needs_namespaces()
    async with dev_server() as env, real_mpi(NODES, env) as rig:
        yield rig


@pytest_asyncio.fixture(loop_scope="module")
async def mpi(plant: RealMpi) -> AsyncIterator[RealMpi]:
    """The nodes with links of full rate, and so again afterwards."""
    yield plant
    await plant.links.mend()


def accused(report: BurnInReport) -> list[str]:
    return [node.node_name for node in report.nodes if node.verdict is Verdict.CRITICAL]


async def test_nodes_with_full_links_pass_as_one_group(mpi: RealMpi) -> None:
    report, runs = await mpi.burn_in(mpi.cluster.names)
    assert report.verdict in (Verdict.OK, Verdict.WARN), (report, runs)
    assert [run.nodes for run in runs] == [mpi.cluster.names]
    assert report.busbw_gbs is not None
    assert report.busbw_gbs > FLOOR_GBS
    assert await mpi.cluster.running("all_reduce_perf") == {}


async def test_a_link_of_100_mbits_leaves_a_fifth_of_the_bandwidth_or_less(mpi: RealMpi) -> None:
    pair = mpi.cluster.names[:2]
    full = await mpi.busbw(pair)
    await mpi.links.slow_node("node-2", 100)
    assert await mpi.busbw(pair) <= full / 5


async def test_the_slow_node_is_found_and_nobody_else_is_accused(mpi: RealMpi) -> None:
    await mpi.links.slow_node("node-5", SLOW_MBITS)
    report, runs = await mpi.burn_in(mpi.cluster.names)
    assert (report.cause, accused(report), report.bad_paths) == ("bad_nodes", ["node-5"], []), runs
    assert set(runs[-1].nodes) == set(mpi.cluster.names) - {"node-5"}
    assert runs[-1].verdict in (Verdict.OK, Verdict.WARN)


async def test_two_slow_nodes_are_found_in_one_search(mpi: RealMpi) -> None:
    await mpi.links.slow_node("node-3", SLOW_MBITS)
    await mpi.links.slow_node("node-4", SLOW_MBITS)
    report, runs = await mpi.burn_in(mpi.cluster.names)
    assert (report.cause, accused(report), report.bad_paths) == ("bad_nodes", ["node-3", "node-4"], []), runs


@pytest.mark.parametrize("pair", [("node-3", "node-4"), ("node-4", "node-5")], ids=["in one piece", "across two pieces"])
async def test_the_slow_path_between_two_good_nodes_is_found(mpi: RealMpi, pair: tuple[str, str]) -> None:
    await mpi.links.slow_path(*pair, SLOW_MBITS)
    report, runs = await mpi.burn_in(mpi.cluster.names)
    assert (report.cause, report.bad_paths) == ("bad_nodes", [list(pair)]), runs
    assert accused(report) == [pair[1]]
    assert set(runs[-1].nodes) == set(mpi.cluster.names) - {pair[1]}


async def test_a_slow_path_that_the_ring_does_not_use_is_found_where_every_pair_is_asked_for(mpi: RealMpi) -> None:
    four = mpi.cluster.names[:4]
    await mpi.links.slow_path("node-1", "node-3", SLOW_MBITS)
    report, runs = await mpi.burn_in(four, every_pair=True)
    assert runs[0].verdict in (Verdict.OK, Verdict.WARN), runs[0]
    assert (report.cause, report.bad_paths) == ("bad_nodes", [["node-1", "node-3"]]), runs


async def test_a_late_link_is_found_as_a_slow_one_is(mpi: RealMpi) -> None:
    try:
        await mpi.links.delay_node("node-2", SLOW_MBITS, 20)
    except NotHere as error:
        pytest.skip(f"this kernel has no netem: {error}")
    report, runs = await mpi.burn_in(mpi.cluster.names[:4])
    assert accused(report) == ["node-2"], runs


async def test_a_node_that_nobody_can_log_in_to_is_no_bad_node(mpi: RealMpi) -> None:
    await mpi.cluster.end_server("node-2")
    try:
        report, runs = await mpi.burn_in(mpi.cluster.names[:4])
    finally:
        await mpi.cluster.start_server("node-2")
    assert (report.verdict, report.cause, accused(report)) == (Verdict.UNKNOWN, "could_not_run", []), runs
    assert "node-2" in runs[-1].evidence


async def test_a_cancelled_burn_in_leaves_no_process_on_any_node(mpi: RealMpi) -> None:
    four = mpi.cluster.names[:4]
    await mpi.links.slow_path("node-1", "node-2", STOPPED_MBITS)
    handle = await mpi.start(four)

    async def runs_everywhere() -> bool:
        return set(await mpi.cluster.running("all_reduce_perf")) == set(four)

    async def runs_nowhere() -> bool:
        left = [await mpi.cluster.running(program) for program in ("all_reduce_perf", "orted", "mpirun")]
        return not any(left)

    await until(runs_everywhere)
    await handle.cancel()
    with pytest.raises(WorkflowFailureError):
        await handle.result()
    await mpi.links.mend()
    await until(runs_nowhere)


async def test_a_rank_that_is_killed_ends_its_run_without_a_pass_and_is_named(mpi: RealMpi) -> None:
    pair = mpi.cluster.names[:2]
    await mpi.links.slow_path("node-1", "node-2", STOPPED_MBITS)
    handle = await mpi.start(pair)
    before = mpi.outputs()
    seen: list[GroupRun] = []

    async def has_begun() -> bool:
        return any("Using devices" in text for file, text in mpi.outputs().items() if file not in before)

    async def has_ended() -> bool:
        seen[:] = await handle.query("runs", result_type=list[GroupRun])
        return seen[0].verdict is not None

    await until(has_begun)
    os.kill((await mpi.cluster.running("all_reduce_perf"))["node-2"][0], signal.SIGKILL)
    await until(has_ended)
    await handle.cancel()
    assert seen[0].verdict in (Verdict.CRITICAL, Verdict.UNKNOWN), seen[0]
    assert "node-2" in seen[0].evidence


_OWNER = """
import asyncio
from infra.lab.namespaces.cluster import Namespaces
async def own():
    async with Namespaces(2) as cluster:
        print(cluster.network.name, cluster.folder, flush=True)
        await asyncio.Event().wait()
asyncio.run(own())
"""


async def test_what_an_owner_that_was_killed_has_made_is_removed() -> None:
    needs_namespaces()
    root = str(Path(__file__).parents[2])
    owner = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _OWNER, cwd=root, env={**os.environ, "PYTHONPATH": root}, stdout=asyncio.subprocess.PIPE
    )
    assert owner.stdout is not None
    name, folder = (await owner.stdout.readline()).decode().split()
    assert f"{name}-node-1" in await tell("ip", "netns", "list")
    owner.send_signal(signal.SIGKILL)
    await owner.wait()

    async def all_gone() -> bool:
        seen = [await tell("ip", kind, "list") for kind in ("netns", "link")]
        return not any(name in said for said in seen) and not Path(folder).exists()

    await until(all_gone)
