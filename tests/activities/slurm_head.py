"""A head node for tests that answers as Slurm's commands do: of 22.05 (recorded), or of later releases (after their schema)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from activities.inventory import Node
from activities.node_access import CommandResult, DetachedRun
from activities.settings_jobs import JobSettings, SlurmSettings
from activities.slurm import Slurm

RECORDED = Path(__file__).with_name("data") / "slurm"
NODES = [
    Node(instance_id=f"i-000000000000000{at}", name=name, ip=f"10.0.0.{at}")
    for at, name in enumerate(("node-1", "node-2", "node-3", "spare-1"), 1)
]


def maybe(number: int | None) -> dict[str, Any]:
    """An optional number as releases since 23.02 print it."""
    return {"set": number is not None, "infinite": False, "number": number or 0}


def job_row(**more: Any) -> dict[str, Any]:
    """A running batch job in the shape of 23.11 and later."""
    return {
        "job_id": 7,
        "job_state": ["RUNNING"],
        "nodes": "p5-st-[1-3]",
        "required_nodes": "",
        "excluded_nodes": "",
        "restart_cnt": 0,
        "requeue": True,
        "batch_flag": True,
        "node_count": maybe(3),
        "state_reason": "None",
        "admin_comment": "",
        "hold": False,
        "priority": maybe(100),
        **more,
    }


def node_row(at: int, state: list[str], reason: str = "", **more: Any) -> dict[str, Any]:
    """A node in the shape of 23.02 and later."""
    return {"name": f"p5-st-{at}", "hostname": f"p5-st-{at}", "address": f"10.0.0.{at}", "state": state, "reason": reason, **more}


class Head:
    """Answers by program; keeps the commands that changed something."""

    def __init__(self, jobs: str, nodes: str, *, scontrol_json: bool) -> None:
        self.jobs, self.nodes, self._scontrol_json = jobs, nodes, scontrol_json
        self.changes: list[list[str]] = []
        self.refusals: dict[str, str] = {}
        self.user = "hotspare"
        self.config = {"ClusterName": "lab", "SLURM_VERSION": "22.05.8", "SlurmUser": "slurm(64030)", "MinJobAge": "3600 sec"}
        self.on_change: Callable[[list[str]], None] = lambda words: None

    @classmethod
    def recorded(cls) -> Head:
        """Slurm 22.05.8 as it answered."""
        jobs, nodes = ((RECORDED / f"{name}_22.05.8.json").read_text() for name in ("squeue", "sinfo"))
        return cls(jobs, nodes, scontrol_json=False)

    @classmethod
    def newer(cls, jobs: list[dict[str, Any]], nodes: list[dict[str, Any]]) -> Head:
        """A release since 23.11."""
        return cls(json.dumps({"jobs": jobs, "errors": []}), json.dumps({"nodes": nodes, "errors": []}), scontrol_json=True)

    def run(self, command: list[str], deadline_s: float, output_limit: int | None = None) -> CommandResult:
        program, *words = [word for word in command if word not in ("sudo", "-n")]
        program = program.rsplit("/", 1)[-1]
        if program == "squeue":
            return _said("" if "--steps" in words else self.jobs)
        if program == "sinfo":
            return _said(self.nodes)
        if program == "id":
            return _said(f"{self.user}\n")
        if words == ["show", "config"]:
            return _said("\n".join(f"{name:<24}= {value}" for name, value in self.config.items()))
        if words == ["--version"]:
            return _refused("sudo: a password is required") if program in self.refusals else _said("slurm-wlm 22.05.8")
        if words[:2] == ["show", "hostnames"]:
            head, _, tail = words[2].partition("[")
            ranges = [part.split("-") for part in tail.rstrip("]").split(",")]
            return _said("".join(f"{head}{at}\n" for ends in ranges for at in range(int(ends[0]), int(ends[-1]) + 1)))
        if words[:2] == ["show", "nodes"]:
            return _said(self.nodes) if self._scontrol_json else _refused("scontrol: unrecognized option '--json'")
        if words[0] in self.refusals:
            return _refused(self.refusals[words[0]])
        self.changes.append(command)
        self.on_change(words)
        return _said("")

    def start(self, run_id: str, command: list[str], deadline_s: float) -> None:
        raise NotImplementedError

    def poll(self, run_id: str, output_limit: int | None = None) -> DetachedRun:
        raise NotImplementedError

    def kill(self, run_id: str) -> None:
        raise NotImplementedError

    def put(self, file: Path, digest: str) -> str:
        raise NotImplementedError

    def follow_kernel_log(self) -> Iterator[str]:
        raise NotImplementedError

    def boot_id(self, deadline_s: float) -> str:
        raise NotImplementedError

    def capabilities(self) -> frozenset[str]:
        return frozenset({"run"})

    def close(self) -> None:
        """Nothing is open."""


def _said(text: str) -> CommandResult:
    return CommandResult(exit_status=0, stdout=text, stderr="")


def _refused(text: str) -> CommandResult:
    return CommandResult(exit_status=1, stdout="", stderr=text)


class Listed:
    """An inventory of these nodes."""

    def __init__(self, nodes: list[Node]) -> None:
        self._nodes = nodes

    def resolve(self, cluster: str, alias: str) -> Node:
        return next(node for node in self._nodes if alias in (node.name, node.instance_id))

    def list(self, cluster: str) -> list[Node]:
        return list(self._nodes)


def slurm_of(head: Head, settings: SlurmSettings | None = None, nodes: list[Node] | None = None) -> Slurm:
    """Slurm behind a head node."""
    return Slurm(lambda: head, Listed(NODES if nodes is None else nodes), settings or SlurmSettings())


JOB = JobSettings(adapter="slurm", head="head")
