"""Logs of one node or many: which node a line is of, which boot, when it was written, and how little memory it takes."""

from __future__ import annotations

import io
import json
import tracemalloc
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import BinaryIO, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checks.diagnosis import FleetLogs, Hardware, Recommendation, Storm
from checks.diagnosis.wall_clock import written_at
from checks.model import Action, Verdict

NOW = datetime(2026, 11, 29, tzinfo=UTC).timestamp()
BOOT = "[    0.000000] Linux version 6.8.0-1021-aws (buildd@lcy02) #23-Ubuntu SMP"


def xid(code: int, text: str = "text", bus: str = "1b") -> str:
    return f"NVRM: Xid (PCI:0000:{bus}:00): {code}, {text}"


def read(**logs: list[str]) -> tuple[dict[str, Recommendation], list[Storm]]:
    fleet = FleetLogs(Hardware(), NOW)
    for name, lines in logs.items():
        for _ in fleet.read(io.BytesIO("\n".join(lines).encode() + b"\n"), name):
            pass
    recommendations, storms = fleet.conclude()
    return {one.node: one for one in recommendations}, storms


def alone(*lines: str) -> Recommendation:
    recommendations, _ = read(log=list(lines))
    assert len(recommendations) == 1
    return next(iter(recommendations.values()))


@pytest.mark.parametrize(
    ("line", "when"),
    [
        ("2026-04-03T06:20:28.5+00:00 node-1 kernel: x", "2026-04-03T06:20:28.5+00:00"),
        ("2026-04-03T06:20:28+0200 node-1 kernel: x", "2026-04-03T04:20:28+00:00"),
        ("kern  :err   : 2025-01-25T10:34:54,859532+00:00 x", "2025-01-25T10:34:54.859532+00:00"),
        ("[Fri Aug 30 11:43:09 2024] x", "2024-08-30T11:43:09+00:00"),
        ("Aug 10 15:36:05 node-1 kernel: x", "2026-08-10T15:36:05+00:00"),
        ("<4>Dec  2 10:43:35 node-1 kernel: [240314.528856] x", "2025-12-02T10:43:35+00:00"),
        (json.dumps({"__REALTIME_TIMESTAMP": "1775197228000000", "MESSAGE": "x"}), "2026-04-03T06:20:28+00:00"),
    ],
)
def test_the_time_of_day_is_read_in_every_form(line: str, when: str) -> None:
    at = written_at(line, NOW)
    assert at is not None
    assert datetime.fromtimestamp(at, UTC) == datetime.fromisoformat(when)


@pytest.mark.parametrize(
    "line", ["[   12.5] x", "2026-13-45T99:00:00Z x", "[Fri Feb 31 11:43:09 2024] x", "", "Feb 30 01:02:03 n x"]
)
def test_a_line_without_a_possible_time_has_none(line: str) -> None:
    assert written_at(line, NOW) is None


def test_the_node_is_the_host_that_the_line_names_else_the_file() -> None:
    found, _ = read(
        central=[f"Aug 10 15:36:05 node-1 kernel: {xid(79)}", f"Aug 10 15:36:05 node-2 kernel: {xid(13)}"],
        other=[f"[ 5000.000000] {xid(64, 'All reserved rows for bank are remapped')}"],
    )
    assert {name: one.diagnosis.action for name, one in found.items()} == {
        "node-1": Action.REBOOT_NODE,
        "node-2": Action.RESTART_JOB,
        "other": Action.REPLACE_NODE,
    }


def test_a_quiet_log_is_ok_for_the_node_that_it_names_and_says_that_the_log_alone_was_read() -> None:
    found, _ = read(quiet=["Aug 10 15:36:05 node-7 kernel: eth0: link up"])
    assert (found["node-7"].verdict, found["node-7"].diagnosis.fault_class) == (Verdict.OK, "none")
    assert "the log alone was read" in " ".join(found["node-7"].diagnosis.because)


def test_a_node_without_a_fault_is_well_beside_one_that_has_one() -> None:
    found, _ = read(both=[f"Aug 10 15:36:05 node-7 kernel: {xid(79)}", "Aug 10 15:36:06 node-8 kernel: eth0: link up"])
    assert {name: one.verdict for name, one in found.items()} == {"node-7": Verdict.CRITICAL, "node-8": Verdict.OK}


@pytest.mark.parametrize("lines", [[], [""], ["hello"], ["\x00\x01\x7f" * 100], ["Dear Sir,", "all is well"]])
def test_what_is_no_kernel_log_is_unknown(lines: list[str]) -> None:
    assert alone(*lines).verdict is Verdict.UNKNOWN


def test_faults_before_the_last_boot_are_history_but_for_what_a_boot_does_not_mend() -> None:
    lost = [BOOT, f"[ 5000.000000] {xid(79)}", BOOT, "[    9.000000] eth0: link up"]
    assert alone(*lost).verdict is Verdict.OK
    assert "history" in " ".join(alone(*lost).diagnosis.because)
    worn = [BOOT, f"[ 5000.000000] {xid(64, 'All reserved rows for bank are remapped')}", BOOT]
    assert alone(*worn).diagnosis.action is Action.REPLACE_NODE
    assert alone(*lost, f"[   70.000000] {xid(79)}").diagnosis.action is Action.REBOOT_NODE


def test_rotated_logs_may_be_given_newest_first() -> None:
    older = [f"Aug 10 15:36:05 node-1 kernel: {xid(79)}"]
    newer = [f"Aug 11 08:00:00 node-1 kernel: {BOOT}", f"Aug 11 09:00:00 node-1 kernel: {xid(13)}"]
    for order in ({"a": older, "b": newer}, {"a": newer, "b": older}):
        found, _ = read(**order)
        assert found["node-1"].diagnosis.action is Action.RESTART_JOB


def test_a_new_boot_id_is_a_boot() -> None:
    lines = [json.dumps({"_BOOT_ID": boot, "_HOSTNAME": "n", "MESSAGE": xid(code)}) for boot, code in (("a", 79), ("b", 13))]
    assert alone(*lines).diagnosis.action is Action.RESTART_JOB


def test_a_job_crash_on_77_nodes_disrupts_none_of_them() -> None:
    lines = [f"Aug 10 15:36:{node % 50 + 5:02d} node-{node} kernel: {xid(45)}" for node in range(77)]
    found, storms = read(central=[f"Aug 10 15:36:01 node-3 kernel: {xid(31)}", *lines])
    assert [(storm.kind, len(storm.nodes), storm.suspect) for storm in storms] == [("application", 77, "node-3")]
    assert {one.diagnosis.action for one in found.values()} <= {Action.NONE, Action.RESTART_JOB}


def test_a_switch_fault_on_all_nodes_calls_a_person_once_and_reboots_no_node() -> None:
    fault = "nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 48 LTSSM Fault Up"
    found, storms = read(central=[f"Aug 10 15:36:0{node} node-{node} kernel: {fault}" for node in range(6)])
    assert [storm.kind for storm in storms] == ["fabric"]
    assert {(one.diagnosis.action, one.verdict) for one in found.values()} == {(Action.CONTACT_SUPPORT, Verdict.WARN)}
    assert all("alone it would be REBOOT_NODE" in " ".join(one.diagnosis.because) for one in found.values())


def test_a_node_with_a_fault_of_its_own_is_repaired_whatever_storm_it_is_in() -> None:
    lines = [f"Aug 10 15:36:0{node} node-{node} kernel: {xid(45)}" for node in range(5)]
    found, storms = read(central=[f"Aug 10 15:35:50 node-2 kernel: {xid(79)}", *lines])
    assert (storms[0].suspect, found["node-2"].diagnosis.action) == ("node-2", Action.REBOOT_NODE)
    assert found["node-2"].verdict is Verdict.CRITICAL
    assert {found[f"node-{node}"].verdict for node in (0, 1, 3, 4)} == {Verdict.OK}


def test_a_roll_out_that_breaks_every_fresh_node_is_one_incident() -> None:
    logs = {f"node-{node}": [BOOT, f"[   38.000000] {xid(79)}"] for node in range(8)}
    found, storms = read(**logs)
    assert [storm.kind for storm in storms] == ["rollout"]
    assert {one.diagnosis.action for one in found.values()} == {Action.CONTACT_SUPPORT}


class Endless(io.RawIOBase):
    """A log of a given number of lines that is made while it is read."""

    def __init__(self, lines: Iterator[bytes]) -> None:
        self._lines = lines

    def read(self, size: int = -1) -> bytes:
        block = b""
        while len(block) < 1 << 16:
            line = next(self._lines, b"")
            if not line:
                break
            block += line
        return block


def test_thousands_of_lines_of_few_different_faults_take_little_memory_and_are_one_accusation() -> None:
    text = "Uncontained: LTC TAG (0x2, 0x1). RST: Yes, D-RST: No"
    lines = (f"[{5000 + number / 1000:12.6f}] {xid(95, text, f'{number % 29:02x}')}\n".encode() for number in range(20_000))
    fleet = FleetLogs(Hardware(), NOW)
    tracemalloc.start()
    events = len([None for _ in fleet.read(cast("BinaryIO", Endless(lines)), "node-1")])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    (found,), _ = fleet.conclude()
    assert (events, found.lines, found.diagnosis.fault_class) == (20_000, 20_000, "memory_uncorrectable")
    assert "20000 lines, of which 29 tell something new" in found.diagnosis.because
    assert peak < 8 * 2**20


def test_a_flood_of_lesser_faults_does_not_hide_a_graver_one() -> None:
    flood = [f"[ 5000.000000] {xid(13, bus=f'{bus:02x}')}" for bus in range(256)] * 2
    many = [line.replace("0000:", f"{domain:04x}:") for domain in range(3) for line in flood]
    assert alone(*many, f"[ 5001.000000] {xid(79)}").diagnosis.action is Action.REBOOT_NODE


PIECES = st.sampled_from(
    ["Aug 10 15:36:05 ", "node-1 kernel: ", BOOT, xid(79), xid(45), xid(31), "\n", '{"MESSAGE": "', '"}', "\x00"]
)


@settings(deadline=None, derandomize=True, max_examples=150)
@given(st.lists(PIECES | st.text(max_size=8), max_size=30))
def test_any_text_gives_a_recommendation_with_reasons(pieces: list[str]) -> None:
    found, _ = read(log=["".join(pieces)])
    assert found
    assert all(one.diagnosis.because for one in found.values())
