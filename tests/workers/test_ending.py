"""The one safe way to end a process that has used the Temporal SDK."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TREE = Path(__file__).resolve().parents[2]


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], cwd=TREE, capture_output=True, text=True, check=False)


def test_everything_written_arrives_and_the_status_is_kept() -> None:
    ended = run(
        "import sys; from workers.launch.ending import end_process\n"
        "print('x' * 100_000); print('y' * 100_000, file=sys.stderr); end_process(3)"
    )
    assert ended.returncode == 3
    assert len(ended.stdout) == len(ended.stderr) == 100_001


def test_a_reader_that_is_gone_is_no_success() -> None:
    ended = run(
        "import os, sys; from workers.launch.ending import end_process\n"
        "read, write = os.pipe(); os.close(read); os.dup2(write, 1)\n"
        "sys.stdout = open(1, 'w', closefd=False); print('x'); end_process(0)"
    )
    assert ended.returncode == 74


def test_the_tree_can_be_run_from_any_folder_beside_another_package_named_workflows(tmp_path: Path) -> None:
    other = tmp_path / "workflows"
    other.mkdir()
    (other / "__init__.py").write_text("raise RuntimeError('the wrong package')")
    ended = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.append({str(TREE)!r}); from workers.launch import main; main()", "--help"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "doctor" in ended.stdout
