"""What every launcher of group runs must do, whatever it launches with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from activities.burn_in import BurnInLauncher, judged
from activities.inventory import Node
from activities.node_access import DetachedRun
from checks.model import Verdict

LONG = 10_000_000
"""Iterations of a run that does not end by itself."""

PATIENCE_S = 60.0


class LauncherWorld(Protocol):
    """Where a launcher is tried: two nodes that are free, and a look at what works on them."""

    nodes: list[Node]

    def launcher(self, *, program: str = "", iterations: int = 20) -> BurnInLauncher:
        """Make a launcher of the usual test, or of another program, or of a run with other iterations."""
        ...

    def working(self) -> set[str]:
        """Names of the nodes on which something of a run works."""
        ...


async def until(true: Callable[[], bool]) -> None:
    """Wait for a condition, in a thread because it may ask somebody."""
    async with asyncio.timeout(PATIENCE_S):
        while not await asyncio.to_thread(true):  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def ended(launcher: BurnInLauncher, run_id: str, nodes: Sequence[Node] = ()) -> DetachedRun:
    """Poll a run to its end."""
    async with asyncio.timeout(PATIENCE_S):
        while (run := await asyncio.to_thread(launcher.poll, run_id, nodes)).exit_status is None:
            assert run.known
            await asyncio.sleep(0.05)
    return run


class LauncherContract:
    """Take these tests over into a class with a fixture `world`."""

    def run(self, name: str) -> str:
        """Return the id of a run; two launchers may keep their runs in one place."""
        return f"{type(self).__name__}/{name}"

    async def test_a_run_is_started_once_and_its_whole_output_is_judged(self, world: LauncherWorld) -> None:
        launcher = world.launcher()
        for _ in range(2):
            await asyncio.to_thread(launcher.start, self.run("once"), world.nodes, 60.0)
        run = await ended(launcher, self.run("once"), world.nodes)
        result = judged(run, world.nodes, {})
        assert (result.verdict, result.cause) == (Verdict.OK, "healthy"), run.output
        assert run.output.count("# Out of bounds values") == 1
        await until(lambda: not world.working())
        assert (await asyncio.to_thread(launcher.poll, self.run("once"), world.nodes)).output == run.output

    async def test_what_was_never_started_is_not_known_and_its_end_is_no_error(self, world: LauncherWorld) -> None:
        launcher = world.launcher()
        await asyncio.to_thread(launcher.kill, self.run("never"), world.nodes)
        assert not (await asyncio.to_thread(launcher.poll, self.run("never"), world.nodes)).known

    async def test_after_a_kill_nothing_works_on_any_node(self, world: LauncherWorld) -> None:
        launcher = world.launcher(iterations=LONG)
        await asyncio.to_thread(launcher.start, self.run("killed"), world.nodes, 600.0)
        await until(lambda: world.working() == {node.name for node in world.nodes})
        await asyncio.to_thread(launcher.kill, self.run("killed"), world.nodes)
        await until(lambda: not world.working())
        run = await ended(launcher, self.run("killed"), world.nodes)
        assert run.exit_status != 0
        assert judged(run, world.nodes, {}).verdict is not Verdict.OK

    async def test_a_program_that_is_not_there_could_not_run_and_accuses_no_node(self, world: LauncherWorld) -> None:
        launcher = world.launcher(program="no_such_test")
        await asyncio.to_thread(launcher.start, self.run("absent"), world.nodes, 60.0)
        result = judged(await ended(launcher, self.run("absent"), world.nodes), world.nodes, {})
        assert (result.verdict, result.cause, result.culprits) == (Verdict.UNKNOWN, "could_not_run", [])
