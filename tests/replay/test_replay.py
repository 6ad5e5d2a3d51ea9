"""Histories of every release replay on today's workflow code: an open incident survives the upgrade."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

import pytest
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from tests.replay.record import HISTORIES
from workers.connection import PLUGIN
from workflows.registry import WORKFLOWS

FILES = sorted(HISTORIES.rglob("*.json"))


def test_there_are_histories_of_closed_and_of_open_incidents() -> None:
    stories = {file.parent.name for file in FILES}
    assert {"repaired-in-place", "replaced", "slow-node-found", "waiting-for-a-person"} <= stories


def test_there_are_histories_of_jobs_that_a_controller_restarts() -> None:
    stories = {file.parent.name for file in FILES}
    assert {"spare-proven", "paired-in-place", "taken-over", "cancelled-in-its-proof"} <= stories


def test_there_are_histories_of_spares_and_of_burn_ins_by_hand() -> None:
    stories = {file.parent.name for file in FILES}
    assert {"spare-fails-its-test", "spare-launched", "slot-renewed", "burned-in-by-hand", "slow-rail-found"} <= stories


@pytest.mark.parametrize("file", FILES, ids=lambda file: "/".join(file.relative_to(HISTORIES).parts))
async def test_a_stored_history_replays(file: Path) -> None:
    history = WorkflowHistory.from_json(unquote(file.stem), file.read_text())
    await Replayer(workflows=WORKFLOWS, plugins=[PLUGIN]).replay_workflow(history)
