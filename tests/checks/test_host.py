"""The door to the machine: files under a root, commands that end in time, missing told apart from failing."""

from __future__ import annotations

import os
import select
import sys
from pathlib import Path

from checks.host import OUTPUT_LIMIT_BYTES, Host


def ended(pid: int) -> bool:
    """Wait for the end of a process that is not ours; a zombie has ended."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([process], [], [], 60)[0])
    finally:
        os.close(process)


def test_files_are_read_under_the_root(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/uptime").write_text("12.5 3\n")
    host = Host(environment={"HOTSPARE_HOST_ROOT": str(tmp_path)})
    assert host.read_text("/proc/uptime") == "12.5 3"
    assert host.exists("/proc/uptime")
    assert host.list("/proc") == ["uptime"]


def test_what_is_not_there_is_none_and_not_empty(tmp_path: Path) -> None:
    host = Host(str(tmp_path))
    assert host.read_text("/proc/uptime") is None
    assert host.read_bytes("/proc") is None
    assert host.list("/proc") is None
    assert not host.exists("/proc")


def test_a_missing_command_is_told_apart_from_a_failing_one() -> None:
    host = Host()
    assert host.run(["no-such-command-here"], 5).missing
    failing = host.run([sys.executable, "-c", "import sys; sys.stderr.write('why'); sys.exit(3)"], 30)
    assert (failing.exit_status, failing.stderr, failing.missing, failing.ok) == (3, "why", False, False)


def test_a_command_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    script = f"sleep 1000 & echo $! > {pid_file}; echo begun; wait"
    output = Host().run(["sh", "-c", script], 3)
    assert (output.exit_status, output.timed_out) == (None, True)
    assert ended(int(pid_file.read_text()))


def test_a_command_that_closed_its_output_but_never_ends_is_killed() -> None:
    assert Host().run(["sh", "-c", "exec >/dev/null 2>&1; sleep 1000"], 0.3).timed_out


def test_endless_output_is_bounded_and_keeps_its_end() -> None:
    script = f"import sys; sys.stdout.write('x' * {2 * OUTPUT_LIMIT_BYTES + (1 << 20)} + 'end')"
    output = Host().run([sys.executable, "-c", script], 60)
    assert output.truncated
    assert output.stdout.endswith("end")
    assert len(output.stdout) <= 2 * OUTPUT_LIMIT_BYTES


def test_the_default_root_is_the_machine_itself() -> None:
    assert Host(environment={"PATH": os.environ["PATH"]}).root == "/"
