"""A group test whose ranks are started one by one, by srun or torchrun: it begins when all are there, and rank 0 prints it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

from infra.lab.desk import Reply
from infra.lab.group_test import GroupTest


class _World:
    def __init__(self, size: int) -> None:
        self.size = size
        self.nodes: dict[int, str] = {}
        self.complete = asyncio.Event()
        self.ended = asyncio.Event()
        self.status = 1


class GatheredTest:
    """Brings the members of a run together. `lab_name` turns the name by which a member knows its node into the lab's."""

    def __init__(self, group_test: GroupTest, lab_name: Callable[[str], str] = lambda name: name) -> None:
        self._group_test, self._lab_name = group_test, lab_name
        self._worlds: dict[str, _World] = {}

    async def join(self, asker: str, fields: dict[str, Any], reply: Reply) -> int:
        """Be one member (`rank` of `world`, with `slots` ranks of the test) until the run is over; its status is everybody's."""
        run, rank = str(fields["run"]), int(fields["rank"])
        world = self._worlds.setdefault(run, _World(int(fields["world"])))
        world.nodes[rank] = self._lab_name(asker)
        if len(world.nodes) == world.size:
            world.complete.set()
        if rank:
            await world.ended.wait()
            return world.status
        try:
            await world.complete.wait()
            counts = Counter(world.nodes[number] for number in sorted(world.nodes))
            slots = int(fields.get("slots", 1))
            hosts = [(name, count * slots) for name, count in counts.items()]
            test = {"program": fields["program"], "hosts": hosts, "ranks": sum(count for _, count in hosts)}
            test["environment"] = fields.get("environment", {})
            world.status = await self._group_test.run(world.nodes[0], test, reply)
            return world.status
        finally:
            self._worlds.pop(run, None)
            world.ended.set()
