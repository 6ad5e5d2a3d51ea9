"""`hotspare demo` as a program: its exit status is the judgement of the stories."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from workers.cli.app import exit_status
from workers.demo import play as playing
from workers.demo.screen import Screen
from workers.demo.stories import Setting, Story
from workers.demo.worker_process import WorkerFailed

TREE = Path(__file__).resolve().parents[2]


def told_to_end(monkeypatch: pytest.MonkeyPatch, healed: bool | WorkerFailed) -> None:
    """Let the stories end this way without playing them."""

    async def play(stories: tuple[Story, ...], folder: Path, screen: Screen, setting: Setting) -> bool:
        if isinstance(healed, WorkerFailed):
            raise healed
        return healed

    monkeypatch.setattr(playing, "play", play)


@pytest.mark.parametrize(("healed", "status"), [(True, 0), (False, 2), (WorkerFailed("hotspare run ended"), 2)])
def test_the_exit_status_is_zero_only_when_every_story_ended_as_it_must(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, healed: bool | WorkerFailed, status: int
) -> None:
    told_to_end(monkeypatch, healed)
    assert exit_status(["demo", "--keep", str(tmp_path / "kept")]) == status


def test_a_fault_without_a_story_is_wrong_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    told_to_end(monkeypatch, True)
    assert exit_status(["demo", "31"]) == 64


def test_a_folder_that_exists_is_not_written_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told_to_end(monkeypatch, True)
    assert exit_status(["demo", "--keep", str(tmp_path)]) == 64


@pytest.mark.timeout(600)
def test_three_faults_are_healed_one_after_the_other_on_a_lab_cluster(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "workers.launch", "demo", "--keep", str(tmp_path / "kept")],
        cwd=TREE,
        env={**os.environ, "PYTHONPATH": str(TREE)},
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-4000:]
    assert done.stdout.count("healed in") == 3
    assert "NOT SO" not in done.stdout
