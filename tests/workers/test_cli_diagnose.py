"""`hotspare diagnose` on real lines: JSON lines for programs, tables for people, an exit status for scripts."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from checks.model import Action
from tests.checks.judging import DATA
from workers.cli.app import app, exit_status

SAMPLES = [json.loads(line) for line in (DATA / "kernel_lines.jsonl").read_text().splitlines()]
LOST = "NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
ILLEGAL = "NVRM: Xid (PCI:0000:1c:00): 31, pid=9, name=python, Ch 00000030, intr 00000000. MMU Fault"
FIELDS = ("kind", "code", "pci", "pid", "name", "severity", "link", "recovery_from", "recovery_to", "action", "because", "node")


def type_in(*words: str, given: str | bytes = "") -> tuple[int, str, str]:
    """Run the command; returns exit status, stdout and stderr."""
    answer = CliRunner().invoke(app, ["diagnose", *words], input=given, catch_exceptions=False)
    return answer.exit_code, answer.stdout, answer.stderr


def ask(*words: str, given: str | bytes = "") -> tuple[int, list[dict[str, Any]]]:
    status, out, _ = type_in(*words, "--json", given=given)
    return status, [json.loads(line) for line in out.splitlines()]


def of_type(documents: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [document for document in documents if document["type"] == kind]


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: f"line-{sample['id']}")
def test_every_sample_line_is_an_event_with_what_it_says_and_null_for_the_rest(sample: dict[str, Any]) -> None:
    status, documents = ask("-", given=sample["raw"] + "\n")
    expect: dict[str, Any] = dict(sample["expect"])
    events, (recommendation,) = of_type(documents, "event"), of_type(documents, "recommendation")
    assert status == ("OK", "WARN", "CRITICAL", "UNKNOWN").index(recommendation["verdict"])
    if expect.pop("none", False) or expect.pop("companion_map", False):
        assert events == []
        return
    (event,) = events
    assert set(FIELDS) <= set(event)
    assert event["kind"] == ("sxid" if "sxid" in expect else "xid")
    assert event["code"] == expect.pop("sxid", None) or event["code"] == expect.pop("code", None)
    assert expect.pop("intr", "") in (event["text"] or "")
    expect.pop("regs", None)
    names: dict[str, str] = {"gi": "gpu_instance", "ci": "compute_instance", "link74": "link"}
    assert {name: event[names.get(name, name)] for name in expect} == expect
    said = {names.get(name, name) for name in expect}
    assert all(event[name] is None for name in ("pid", "name", "recovery_from", "recovery_to") if name not in said)
    assert event["action"] in Action.__members__
    assert event["because"]


def test_logs_of_many_nodes_give_a_recommendation_each_and_one_storm(tmp_path: Path) -> None:
    for node in range(6):
        (tmp_path / f"n{node}.log").write_text(f"Aug 10 15:36:0{node} node-{node} kernel: {ILLEGAL}\n")
    status, documents = ask(*(str(path) for path in sorted(tmp_path.iterdir())))
    (storm,) = of_type(documents, "storm")
    assert (status, storm["kind"], storm["suspect"], storm["action"]) == (1, "application", "node-0", "RESTART_JOB")
    assert storm["nodes"] == [f"node-{node}" for node in range(6)]
    found = of_type(documents, "recommendation")
    assert {(one["node"], one["action"]) for one in found} == {(f"node-{node}", "RESTART_JOB") for node in range(6)}
    assert all(one["because"] and one["confidence"] for one in found)


def test_events_come_first_then_recommendations_then_storms() -> None:
    lines = "".join(f"Aug 10 15:36:0{node} node-{node} kernel: {ILLEGAL}\n" for node in range(3))
    _, documents = ask("-", given=lines)
    assert [document["type"] for document in documents] == ["event"] * 3 + ["recommendation"] * 3 + ["storm"]


def test_a_line_without_a_host_is_of_the_node_that_the_file_is_named_after(tmp_path: Path) -> None:
    log = tmp_path / "node-4.dmesg"
    log.write_text(f"[ 1234.567890] {LOST}\n")
    status, documents = ask(str(log))
    assert (status, [document["node"] for document in documents]) == (2, ["node-4.dmesg"] * 2)
    assert documents[1]["fault_class"] == "gpu_lost"


def test_files_of_one_name_in_two_folders_are_two_nodes(tmp_path: Path) -> None:
    logs = [tmp_path / node / "dmesg" for node in ("node-1", "node-2")]
    for log in logs:
        log.parent.mkdir()
        log.write_text(f"[ 1234.567890] {LOST}\n")
    _, documents = ask(*map(str, logs))
    assert [one["node"] for one in of_type(documents, "recommendation")] == [str(log) for log in logs]


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        ("[    1.000000] usb 1-1: new device\n", 0),
        (f"[ 1234.5] {ILLEGAL}\n", 1),
        (f"[ 1234.5] {ILLEGAL}\n[ 1299.5] {LOST}\n", 2),
        ("", 3),
        ("this is no log\n", 3),
    ],
)
def test_the_exit_status_is_that_of_the_worst_recommendation(lines: str, status: int) -> None:
    assert type_in("-", given=lines)[0] == status
    assert ask("-", given=lines)[0] == status


def test_the_driver_version_decides_what_registers_mean() -> None:
    line = next(sample["raw"] for sample in SAMPLES if sample["id"] == 66)
    because = [
        of_type(ask("-", "--driver-version", version, given=line)[1], "event")[0]["because"] for version in ("570.1", "580.1")
    ]
    assert "counted per link" in because[0]
    assert "RLW_SRC_TRACK" in because[1]


def test_overrides_of_a_named_settings_file_hold(tmp_path: Path) -> None:
    config = tmp_path / "hotspare.toml"
    config.write_text('[cluster]\nname = "lab"\n[checks.overrides]\n"xid:79" = { action = "REPLACE_NODE", why = "dead slots" }\n')
    _, documents = ask("-", "--config", str(config), given=f"[ 1234.5] {LOST}\n")
    assert [document["action"] for document in documents] == ["REPLACE_NODE", "REPLACE_NODE"]


def test_rotated_logs_are_read_as_they_are_packed_and_a_cut_one_is_an_error(tmp_path: Path) -> None:
    log = tmp_path / "kern.log.2.gz"
    log.write_bytes(gzip.compress(f"Aug 10 15:36:05 node-1 kernel: {LOST}\n".encode()))
    assert of_type(ask(str(log))[1], "recommendation")[0]["action"] == "REBOOT_NODE"
    log.write_bytes(log.read_bytes()[:-12])
    status, _, err = type_in(str(log))
    assert status == 64
    assert "to its end" in err


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_packed_logs_are_read_from_standard_input_too(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    log = tmp_path / "kern.log"
    log.write_bytes(pack(f"Aug 10 15:36:05 node-1 kernel: {LOST}\n".encode()))
    for status, documents in (ask(str(log)), ask("-", given=log.read_bytes())):
        assert (status, of_type(documents, "recommendation")[0]["action"]) == (2, "REBOOT_NODE")


@pytest.mark.parametrize(("begin", "command"), [(b"\x28\xb5\x2f\xfd", "zstdcat"), (b"LPKSHHRH", "journalctl --file")])
def test_what_another_program_has_to_read_is_refused_with_its_command(begin: bytes, command: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(begin + b"\x00" * 100)
    status, out, err = type_in(str(log))
    assert (status, out) == (64, "")
    assert command in err


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_logs_of_other_systems_tools_are_read(encoding: str) -> None:
    status, documents = ask("-", given=f"[ 1234.5] {LOST}\r\n".encode(encoding))
    assert (status, of_type(documents, "event")[0]["monotonic_s"]) == (2, 1234.5)


def test_a_pipe_is_read_whole(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(f"[ 1234.5] {LOST}\n",))
    writer.start()
    status, documents = ask(str(pipe))
    writer.join()
    assert (status, len(of_type(documents, "event"))) == (2, 1)


def test_people_get_tables_with_repeats_counted() -> None:
    status, out, _ = type_in("-", given=f"[ 1234.5] {LOST}\n" * 40)
    assert status == 2
    assert "XID 79 on 0000:1b:00" in out
    assert " 40 " in out
    assert "REBOOT_NODE" in out
    assert "CRITICAL" in out


@pytest.mark.parametrize("words", [[], ["/nowhere/kern.log"], [str(DATA)], ["-", "--config", "/nowhere/hotspare.toml"]])
def test_wrong_usage_and_unreadable_files_are_64_before_anything_is_answered(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_status(["diagnose", *words]) == 64
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.strip()


def test_what_a_log_holds_cannot_steer_the_terminal() -> None:
    hostile = b"Aug 10 15:36:05 no\x1b[2Jde kernel: NVRM: Xid (PCI:0000:1b:00): 79, \x07\x9b31m [red]x[/red]\n"
    status, out, _ = type_in("-", given=hostile)
    assert status == 2
    assert all(letter.isprintable() or letter == "\n" for letter in out)


def test_a_driver_version_that_is_none_is_refused() -> None:
    status, out, err = type_in("-", "--driver-version", "newest", given=LOST + "\n")
    assert (status, out) == (64, "")
    assert "no driver version" in err
    assert type_in("-", "--driver-version", "580", given=LOST + "\n")[0] == 2
