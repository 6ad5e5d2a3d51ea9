"""XID 79 on a real Slurm whose nodes are reached by Run Command: people log in to the head node alone, and so do we."""

from __future__ import annotations

import io
import os
from pathlib import Path
from unittest import mock

import pytest
from rich.console import Console

from infra.lab.fleet import HEAD
from tests.clusters.slurm_lab import needs_slurm
from workers.demo.play import play_one
from workers.demo.screen import Screen
from workers.demo.stage import set_stage
from workers.demo.stories import Setting, choose

pytestmark = pytest.mark.timeout(900)

ON_SLURM = Setting(orchestrator="slurm", access="ssm")


async def test_the_job_trains_again_and_only_the_head_node_saw_a_login(tmp_path: Path) -> None:
    needs_slurm()
    shown = io.StringIO()
    screen = Screen(Console(file=shown))
    with mock.patch.dict(os.environ):  # what the lab sets is taken back
        async with set_stage(tmp_path / "lab", screen, ON_SLURM) as stage:
            (story,) = choose(["79"], ON_SLURM)
            assert await play_one(story, stage, screen), shown.getvalue() + stage.worker.tail()
            logins = {name: stage.lab.ssh.count(name, "") for name in stage.lab.nodes if name != HEAD}
            assert logins == dict.fromkeys(logins, 0)
            assert stage.lab.run_command.count("node-2") > 0
            assert stage.lab.run_command.count(HEAD) == 0
