"""What the launchers of group runs have in common: the command with its words filled in, its environment, wrapper and output."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from activities.clients import group_run
from activities.errors import BadInput
from activities.inventory import Node
from activities.node_access import DetachedRun, NodeAccess
from activities.settings_burn_in import BurnInSettings
from checks.catalog.nccl_environment import Variable, nccl_environment
from checks.model import RUN_VARIABLE

ONLY_GPU = "CUDA_VISIBLE_DEVICES"
"""Limits a rank to one GPU, by its local index. Source: CUDA C++ Programming Guide, CUDA environment variables."""


def slots(settings: BurnInSettings, nodes: Sequence[Node]) -> list[int]:
    """How many ranks run on each node."""
    if not nodes:
        raise BadInput("a group run needs at least one node")
    return [node.gpus or settings.gpus_per_node for node in nodes]


def words_of(settings: BurnInSettings, nodes: Sequence[Node], names: Sequence[str] | None = None) -> dict[str, str]:
    """What the words in braces of a launch command stand for. `names` are the launcher's own names of the nodes."""
    counts = slots(settings, nodes)
    called = list(names or (node.name for node in nodes))
    return {
        "{ranks}": str(sum(counts)),
        "{hosts}": ",".join(f"{name}:{count}" for name, count in zip(called, counts, strict=True)),
        "{names}": ",".join(called),
        "{nodes}": str(len(nodes)),
        "{gpus}": str(counts[0]),
    }


def over_rail(nodes: Sequence[Node], rail: int) -> tuple[list[Node], dict[str, str]]:
    """The group with one rank a node, and the variable that gives it the rail's GPU: NCCL takes the adapter nearest to it."""
    return [node.model_copy(update={"gpus": 1}) for node in nodes], {ONLY_GPU: str(rail)}


def filled(command: Sequence[str], words: Mapping[str, str]) -> list[str]:
    """Fill words into a command; each stays within its argument, and no shell ever sees it."""
    found = []
    for part in command:
        for word, value in words.items():
            part = part.replace(word, value)
        found.append(part)
    return found


def around(
    settings: BurnInSettings, command: list[str], run_id: str, nodes: Sequence[Node], more: Mapping[str, str] | None = None
) -> list[str]:
    """Put the wrapper around a launch command: it gives the group's environment, and `more`, and shortens NCCL's log."""
    variables = nccl_environment(nodes[0].instance_type, settings.environment)
    spec = {
        "environment": {RUN_VARIABLE: run_id} | {one.name: one.value for one in variables} | dict(more or {}),
        "files": _files(variables),
        "alike": settings.log_alike,
        "log_lines": settings.log_lines,
    }
    return [settings.python, "-I", "-c", Path(group_run.__file__).read_text(), json.dumps(spec, sort_keys=True), *command]


def _files(variables: Sequence[Variable]) -> list[str]:
    return [one.name for one in variables if one.is_file]


def run_with_output(access: NodeAccess, run_id: str, settings: BurnInSettings) -> DetachedRun:
    """Look at a run; of one that has ended, fetch all of its output: the list of ranks stands at its beginning."""
    run = access.poll(run_id)
    return run if run.exit_status is None else access.poll(run_id, settings.output_limit)
