"""An all-reduce over several lab nodes: a process on each while it runs, nccl-tests' output, mpirun's failures."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from infra.lab.commands import nccl_output
from infra.lab.commands.sshd import FOLDER
from infra.lab.desk import Reply
from infra.lab.hardware import Hardware
from infra.lab.node import LabNode, NodeState

RULE = "-" * 74 + "\n"


class Fabric(Protocol):
    """What the test needs to know of the lab."""

    @property
    def nodes(self) -> Mapping[str, LabNode]: ...


def group_busbw(nodes: list[LabNode], hardware: Hardware) -> Callable[[int], float]:
    """Bus bandwidth of the group by message size: the slowest member or pair sets the pace of all."""
    states = {node.name: node.gpu_state()["left"] for node in nodes}
    intra = min(left["intra"] for left in states.values())
    if len(nodes) == 1:
        return lambda size: hardware.node_rate.busbw(size) * intra
    pairs = [left["pairs"][peer] for left in states.values() for peer in left["pairs"] if peer in states]
    between = min([left["inter"] for left in states.values()] + pairs)
    return lambda size: min(hardware.group_rate.busbw(size) * between, hardware.node_rate.busbw(size) * intra * 1.05)


def lets_in(node: LabNode, door: dict[str, Any]) -> bool:
    """Whether the node's sshd on the port that mpirun was told has the keys of its run. Without a port: the node's own."""
    if not door:
        return True
    try:
        seen = json.loads((node.root / FOLDER / f"{door['port']}.json").read_text())
        os.kill(seen["pid"], 0)
    except (OSError, ValueError):
        return False
    return bool(door["keys"]) and seen["keys"] == door["keys"]


class GroupTest:
    """Runs what mpirun asks for."""

    def __init__(self, fabric: Fabric, hardware: Hardware, test_s: float) -> None:
        self._fabric = fabric
        self._hardware = hardware
        self._test_s = test_s

    async def run(self, asker: str, fields: dict[str, Any], reply: Reply) -> int:
        """Carry out one mpirun call and return its exit status."""
        program = fields["program"]
        if not program or program[0].rsplit("/", 1)[-1] != "all_reduce_perf":
            name = program[0] if program else ""
            await reply.err(RULE + f"mpirun was unable to find the specified executable file: {name}\n" + RULE)
            return 134
        hosts = [(name, slots) for name, slots in fields["hosts"]] or [(asker, 1)]
        if fields["ranks"] > sum(slots for _, slots in hosts):
            await reply.err(_not_enough_slots(fields["ranks"], program[0]))
            return 1
        try:
            options = nccl_output.arguments(program[1:])
        except SystemExit:
            await reply.err("all_reduce_perf: invalid arguments\n")
            return 1
        for name, _ in hosts:
            if not await self._reach(name, {} if name == asker else fields.get("door", {}), asker, reply):
                return 1
        nodes = [self._fabric.nodes[name] for name, _ in hosts]
        ranks = list(
            itertools.islice(
                ((node, device) for node, (_, slots) in zip(nodes, hosts, strict=True) for device in range(slots)),
                fields["ranks"],
            )
        )
        return await self._run(nodes, ranks, options, fields.get("environment") or {}, reply)

    async def _reach(self, name: str, door: dict[str, Any], asker: str, reply: Reply) -> bool:
        node = self._fabric.nodes.get(name)
        if node is not None and node.state is NodeState.UP and lets_in(node, door):
            if node.hangs:
                await node.wait_until(lambda seen: seen.state is not NodeState.UP)
            else:
                return True
        refused = f"connect to host {name} port {door.get('port', 22)}: Connection refused"
        unknown = f"Could not resolve hostname {name}"
        why = refused if node else f"{unknown}: Name or service not known"
        await reply.err(
            f"ssh: {why}\n" + RULE + "ORTE was unable to reliably start one or more daemons.\n"
            f"  Local host:  {asker}\n  Remote host: {name}\n" + RULE
        )
        return False

    async def _run(
        self, nodes: list[LabNode], ranks: list[tuple[LabNode, int]], options: Any, environment: Mapping[str, str], reply: Reply
    ) -> int:
        started: list[tuple[LabNode, asyncio.subprocess.Process]] = []
        try:
            for node in nodes:
                started.append((node, await node.start_work("all_reduce_perf", ["sleep", "infinity"], more=environment)))
            pids = {node.name: process.pid for node, process in started}
            gpus = await self._devices(ranks, pids, reply)
            if gpus is None:
                return 2
            names = [node.name for node, _ in ranks]
            header = [
                (name, pids[name] + gpu["index"], gpu["index"], gpu["pci"], gpu["name"])
                for name, gpu in zip(names, gpus, strict=True)
            ]
            await reply.out(nccl_output.header(options, header))
            if environment.get("NCCL_DEBUG") == "INFO" and len(nodes) > 1:
                await reply.out(nccl_output.log(header))
            return await self._rows(nodes, len(ranks), options, started, reply)
        finally:
            for node, process in started:
                node.end_work(process)
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(*(process.wait() for _, process in started))

    async def _devices(self, ranks: list[tuple[LabNode, int]], pids: dict[str, int], reply: Reply) -> list[dict[str, Any]] | None:
        """Return the GPU of each rank, or print the failure of the first that has none: CUDA does not count a lost GPU."""
        found = []
        for number, (node, device) in enumerate(ranks):
            usable = [gpu for gpu in node.gpu_state()["gpus"] if not gpu["lost"]]
            if device >= len(usable) or usable[device]["hung"]:
                word = "unknown error" if device < len(usable) else "invalid device ordinal"
                where = f" .. {node.name} pid {pids[node.name]}: Test failure common.cu:901"
                await reply.out(f"{node.name}: Test CUDA failure common.cu:1028 '{word}'\n{where}\n")
                await reply.err(_exited(number, 2))
                return None
            found.append(usable[device])
        return found

    async def _rows(
        self,
        nodes: list[LabNode],
        ranks: int,
        options: Any,
        started: list[tuple[LabNode, asyncio.subprocess.Process]],
        reply: Reply,
    ) -> int:
        wrong = sum(node.gpu_state()["left"]["wrong"] for node in nodes)
        table = nccl_output.Table(ranks, group_busbw(nodes, self._hardware), wrong, ",".join(node.name for node in nodes))
        ends = {asyncio.ensure_future(process.wait()): node for node, process in started}
        steps = nccl_output.sizes(options)
        wait_s = self._test_s / len(steps) * nccl_output.longer(options)
        try:
            for size in steps:
                done, _ = await asyncio.wait(ends, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
                if done:
                    lost = ends[done.pop()]
                    await reply.err(_killed(nodes.index(lost), lost.name))
                    return 137
                await reply.out(table.row(size))
        finally:
            for end in ends:
                end.cancel()
        await reply.out(table.footer())
        if table.failed:
            await reply.err(_exited(0, 1))
        return 1 if table.failed else 0


def _not_enough_slots(ranks: int, program: str) -> str:
    return (
        RULE + f"There are not enough slots available in the system to satisfy the {ranks}\n"
        f"slots that were requested by the application:\n\n  {program}\n\n"
        "Either request fewer slots for your application, or make more slots\navailable for use.\n" + RULE
    )


def _exited(rank: int, status: int) -> str:
    return (
        RULE + "mpirun detected that one or more processes exited with non-zero status, thus causing\n"
        f"the job to be terminated. The first process to do so was:\n\n"
        f"  Process name: [[10001,1],{rank}]\n  Exit code:    {status}\n" + RULE
    )


def _killed(rank: int, node: str) -> str:
    return RULE + f"mpirun noticed that process rank {rank} with PID 0 on node {node} exited on signal 9 (Killed).\n" + RULE
