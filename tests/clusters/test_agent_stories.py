"""The stories of the demonstration where nothing logs in anywhere: agents report, pods check and burn in, EC2 restarts."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from unittest import mock

import pytest
from rich.console import Console

from activities.names import KUBE_MANAGED_BY
from infra.lab.kube.cluster import NAMESPACE, KubernetesCluster
from workers.demo.play import play_one
from workers.demo.screen import Screen
from workers.demo.stage import Stage, set_stage
from workers.demo.stories import Setting, choose

pytestmark = pytest.mark.timeout(1500)

BY_AGENT = Setting(orchestrator="kubernetes", job_kind="JobSet", access="agent")


async def test_the_three_stories_end_as_they_must_and_nobody_logs_in(tmp_path: Path) -> None:
    shown = io.StringIO()
    screen = Screen(Console(file=shown))
    with mock.patch.dict(os.environ):  # what the lab sets is taken back
        async with set_stage(tmp_path / "lab", screen, BY_AGENT) as stage:
            for story in choose([], BY_AGENT):
                assert await play_one(story, stage, screen), shown.getvalue() + stage.worker.tail()
            assert {name: stage.lab.ssh.count(name, "") for name in stage.lab.nodes} == dict.fromkeys(stage.lab.nodes, 0)
            groups = await group_runs(stage)
            assert groups
            assert [run for run in groups if "/server-" in run] == []
            assert await secrets(stage) == ["hotspare-intake"]


async def group_runs(stage: Stage) -> list[str]:
    """Ids of the runs that proved nodes in a group, as far as their Jobs are still there."""
    label = f"{KUBE_MANAGED_BY}-group"
    found = json.loads(await kubectl(stage, "get", "jobs", "--selector", label, "-o", "json"))
    return [one["metadata"]["annotations"][f"{KUBE_MANAGED_BY}-run"] for one in found["items"]]


async def secrets(stage: Stage) -> list[str]:
    """Names of what is kept secret in Hotspare's namespace; the keys of a group run go with it."""
    found = json.loads(await kubectl(stage, "get", "secrets", "-o", "json"))
    return [one["metadata"]["name"] for one in found["items"]]


async def kubectl(stage: Stage, *arguments: str) -> str:
    orchestrator = stage.lab.orchestrator
    assert isinstance(orchestrator, KubernetesCluster)
    return await orchestrator.plane.kubectl("--namespace", NAMESPACE, *arguments)
