"""The log of the days before: what of it is handed on, by which reader, and what is said where it does not go back so far."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from activities.probing import read_past
from checks import past_faults as past
from checks.host import Host
from checks.node_commands import command_line, named
from tests.checks.node import TestNode

NOW = datetime(2026, 3, 8, 12, tzinfo=UTC).timestamp()
XID = "NVRM: Xid (PCI:0000:a3:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


def stamp(seconds_ago: float) -> str:
    """A time as journalctl prints it."""
    return datetime.fromtimestamp(NOW - seconds_ago, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f+00:00")


def journal(node: TestNode, *lines: tuple[float, str]) -> None:
    """Let journalctl print these lines, whatever it is asked."""
    text = "".join(f"{stamp(ago)} host-1 kernel: {line}\n" for ago, line in lines)
    node.write("journal", text)
    node.command("journalctl", f"cat {node.root}/journal")


def host_of(node: TestNode) -> Host:
    """The node, with its own commands alone."""
    return Host(str(node.root), node.environment)


def test_of_a_long_log_only_what_may_be_a_fault_is_handed_on_with_its_time(node: TestNode) -> None:
    noise = [(5000.0 - n, f"eth0: link up, run {n}") for n in range(500)]
    journal(node, (90000.0, "Linux version 6.8.0 (gcc)"), *noise, (100.0, XID), (50.0, "audit: nothing"))
    found = past.past_faults(host_of(node), NOW - 7 * 86400, lambda: NOW)
    assert found["source"] == "journal"
    assert found["lines"][0] == [NOW - 100, XID]
    assert len(found["lines"]) <= 3
    assert found["boots"] == [NOW - 90000]
    assert found["begins"] == NOW - 90000
    assert read_past(json.dumps(found)).lines[0] == (NOW - 100, XID)


def test_of_too_many_faults_the_newest_are_handed_on_and_the_others_counted(
    node: TestNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past, "MOST_LINES", 10)
    journal(node, *((1000.0 - n, XID) for n in range(25)))
    found = past.past_faults(host_of(node), NOW - 86400, lambda: NOW)
    assert (len(found["lines"]), found["left_out"]) == (10, 15)
    assert found["lines"][-1][0] == NOW - 976


def test_without_a_journal_the_ring_buffer_tells_of_this_boot(node: TestNode) -> None:
    node.command("journalctl", "echo 'No journal files were found.' >&2; exit 1")
    node.write("proc/uptime", "5000.00 4000.00")
    node.command("dmesg", f'echo "[  4000.500000] {XID}"')
    found = past.past_faults(host_of(node), NOW - 86400, lambda: NOW)
    assert (found["source"], found["begins"], found["lines"]) == ("dmesg", NOW - 5000, [[NOW - 999.5, XID]])


def test_a_node_without_any_log_says_what_was_tried_and_is_no_healthy_node(tmp_path: Path) -> None:
    found = past.past_faults(Host(str(tmp_path), {"PATH": str(tmp_path)}), NOW - 86400, lambda: NOW)
    assert "journalctl _TRANSPORT=kernel" in found["error"]
    with pytest.raises(ValueError, match="journalctl"):
        read_past(json.dumps(found))


def test_the_look_has_a_name_where_nothing_but_names_is_sent() -> None:
    command = ["/usr/bin/python3", ".cache/hotspare/abc/run_checks.py", "past", "--since", "1764500000"]
    found = named(command)
    assert found == ("past-faults", ["--since", "1764500000"])
    assert command_line(*found, Host("/"))[-3:] == command[-3:]
    assert named([*command, "; id"]) is None
