"""`hotspare job` on labs with their real job systems: a running job by its node and by its name, and a free node."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from infra.lab.lab import Lab
from infra.lab.options import LabOptions
from tests.clusters.slurm_lab import needs_slurm
from workers.cli.app import app

pytestmark = pytest.mark.timeout(300)


async def shown(what: str) -> tuple[int, dict[str, Any]]:
    """Run the command as a person of this lab does; returns its exit status and its document."""
    answer = await asyncio.to_thread(CliRunner().invoke, app, ["job", what, "--json"])
    assert answer.stdout, (answer.stderr, answer.exception)
    return answer.exit_code, json.loads(answer.stdout)


@pytest.mark.parametrize(
    ("orchestrator", "restarted_by"), [("command", "hotspare"), ("kubernetes", "controller"), ("slurm", "hotspare")]
)
async def test_a_job_is_shown_by_node_and_by_name(
    orchestrator: str, restarted_by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if orchestrator == "slurm":
        needs_slurm()
    sizes: dict[str, Any] = {"nodes": 2, "spares": 1, "temporal": False, "step_s": 0.05, "checkpoint_every": 5}
    async with Lab(LabOptions(folder=tmp_path / "lab", orchestrator=orchestrator, **sizes)) as lab:
        for name, value in lab.environment().items():
            monkeypatch.setenv(name, value)
        await lab.job.start()
        async with asyncio.timeout(120):
            await lab.job.wait_for_checkpoint(5)
        status, document = await shown("node-1")
        found = document["job"]
        assert (status, document["verdict"], document["because"]) == (0, "OK", [])
        assert (found["state"], found["restarted_by"]) == ("RUNNING", restarted_by)
        assert sorted(found["nodes"]) == ["node-1", "node-2"]
        assert found["checkpoint_step"] >= 5
        assert document["checkpoint_steps_behind"] is not None
        again, by_name = await shown(found["job"])
        assert again == 0
        assert by_name["job"]["job"] == found["job"]
        free, nothing = await shown("spare-1")
        assert (free, nothing["job"], nothing["verdict"]) == (0, None, "OK")
        wrong, said = await shown("nobody/job/absent")
        assert wrong in (3, 64)
        assert said["error"]
