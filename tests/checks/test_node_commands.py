"""What may be run on a node by name: the names of what Hotspare itself runs, and the words that none of them takes."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from activities.evidence_parts import node_parts
from activities.settings import EvidenceSettings
from activities.settings_burn_in import BurnInSettings
from checks.host import Host
from checks.node_commands import NODE_COMMANDS, NotInTable, command_line, named
from checks.node_scripts import TAILS

EVIDENCE = EvidenceSettings(nccl_logs=["/var/log/nccl/{node}.*.log"])


def test_every_part_of_the_evidence_is_a_command_of_the_table() -> None:
    parts = node_parts(EVIDENCE, "python3", datetime(2026, 5, 1, tzinfo=UTC), {"node": "node-1", "job": "j"})
    without = [part.name for part in parts if named(part.command) is None]
    assert without == []
    assert {NODE_COMMANDS[found[0]].changes for part in parts if (found := named(part.command))} == {False}


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (
            ["/usr/bin/python3.9", ".cache/hotspare/abc/run_checks.py", "probe", "--depth", "deep", "--thresholds", '{"a": 1}'],
            "probe",
        ),
        ([part.replace("{gpus}", "8") for part in BurnInSettings().node_command], "load-test"),
        (["nvidia-smi", "--gpu-reset", "-i", "00000000:53:00.0"], "gpu-reset"),
        (["reboot"], "reboot"),
    ],
)
def test_what_is_run_on_a_node_has_a_name(command: list[str], name: str) -> None:
    found = named(command)
    assert found is not None
    assert found[0] == name
    assert command_line(name, found[1], Host("/"))[-len(found[1]) :] == (found[1] or ["reboot"])


@pytest.mark.parametrize(
    "command",
    [
        ["sh", "-c", "id"],
        ["python3", "-c", "print(1)"],
        ["python3", "/tmp/run_checks.py", "other"],
        ["cat", "/etc/shadow"],
        ["dmesg", "--clear"],
        ["reboot", "--force"],
        ["nvidia-smi", "--gpu-reset", "-i", "0; id"],
        ["all_reduce_perf", "-J", "/etc/cron.d/x"],
        ["python3", "-I", "-c", TAILS + "\n", "1", "1", "/var/log/x"],
        [],
    ],
)
def test_anything_else_has_none(command: list[str]) -> None:
    assert named(command) is None


@pytest.mark.parametrize(
    "path",
    [
        "/etc/shadow",
        "/var/log/../../etc/shadow",
        "/var/log/a/../../x",
        "/var/log/..",
        "var/log/x",
        "/var/logs/x",
        "/sys/fs/pstore",
    ],
)
def test_the_node_reads_no_file_but_logs(path: str) -> None:
    with pytest.raises(NotInTable, match="may not follow log-files"):
        command_line("log-files", ["100", "20", path], Host("/"))


@pytest.mark.parametrize("path", ["/var/log/syslog", "/var/log/nvidia-dcgm/*", "/sys/fs/pstore/*", "/var/log/a..b/c"])
def test_it_does_read_logs(path: str) -> None:
    assert command_line("log-files", ["100", "20", path], Host("/"))[-1] == path


def test_a_file_of_the_node_is_looked_for_in_its_root(tmp_path: Path) -> None:
    assert command_line("boot-id", [], Host(str(tmp_path))) == ["cat", f"{tmp_path}/proc/sys/kernel/random/boot_id"]


def test_a_name_that_the_node_does_not_know_is_refused_with_those_it_knows() -> None:
    with pytest.raises(NotInTable, match=r"no command called shell; it knows boot-id, probe, .*, reboot"):
        command_line("shell", [], Host("/"))


def test_too_many_words_are_refused() -> None:
    with pytest.raises(NotInTable):
        command_line("load-test", ["-b"] * 65, Host("/"))
