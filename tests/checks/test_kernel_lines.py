"""The kernel log reader against lines as drivers print them, in every wrapping that is met."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from checks.catalog import assess
from checks.kernel_log import parse_all, parse_line, read_lines, read_stream
from checks.kernel_log.host_lines import PATTERNS
from checks.kernel_log.nvidia_lines import parse_gpu_address
from checks.model import Action

SAMPLES = [json.loads(line) for line in (Path(__file__).parent / "data/kernel_lines.jsonl").read_text().splitlines()]
LOST = "NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: f"line-{sample['id']}")
def test_every_sample_line_reads_as_expected(sample: dict[str, Any]) -> None:
    expect = dict(sample["expect"])
    event = parse_line(sample["raw"])
    if expect.pop("none", False) or expect.pop("companion_map", False):
        assert event is None
        return
    assert event is not None
    assert event.kind == ("sxid" if "sxid" in expect else "xid")
    assert event.code == expect.pop("sxid", None) or event.code == expect.pop("code", None)
    registers = expect.pop("intr", "")
    assert registers in event.text
    if "regs" in expect:
        assert event.text.count("0x") == expect.pop("regs")
    names = {"gi": "gpu_instance", "ci": "compute_instance", "link74": "link"}
    assert {str(name): getattr(event, names.get(name, str(name))) for name in expect} == expect
    absent = {"pid": "", "name": "", "recovery_from": None, "recovery_to": None, "caused_by": None, "companion": False}
    assert all(getattr(event, name) == value for name, value in absent.items() if name not in expect)


@pytest.mark.parametrize(
    ("wrapped", "monotonic_s"),
    [
        (LOST, None),
        (f"[ 1234.567890] {LOST}", 1234.56789),
        (f"[  130.456250] [ T1946] {LOST}", 130.45625),
        (f"[Fri Aug 30 11:43:09 2024] {LOST}", None),
        (f"Dec  2 10:43:35 node-1 kernel: [240314.528856] {LOST}", 240314.528856),
        (f"Aug 10 15:36:05 node-1 kernel: {LOST}", None),
        (f"2026-04-03T06:20:28.545191+00:00 node-1 kernel: {LOST}", None),
        (f"kern  :err   : 2025-01-25T10:34:54,859532+00:00 {LOST}", None),
        (f"<3>[   12.5] {LOST}", 12.5),
        (f"3,52011,223456789,-;{LOST}", 223.456789),
        (f"> {LOST}", None),
        (json.dumps({"MESSAGE": LOST, "_SOURCE_MONOTONIC_TIMESTAMP": "12345678", "_HOSTNAME": "node-1"}), 12.345678),
        (json.dumps({"MESSAGE": list(LOST.encode()), "__MONOTONIC_TIMESTAMP": "2000000"}), 2.0),
        (json.dumps({"log": f"[   7.000001] {LOST}\n", "stream": "stdout"}), 7.000001),
        (json.dumps({"log": LOST})[:-3], None),
        (f"\x00\x00[   99.000001] {LOST}\x00\r\n", 99.000001),
    ],
)
def test_a_line_reads_the_same_in_every_wrapping(wrapped: str, monotonic_s: float | None) -> None:
    event = parse_line(wrapped)
    assert event is not None
    assert (event.code, event.pci, event.pid, event.name) == (79, "0000:1b:00", "", "")
    assert event.monotonic_s == (pytest.approx(monotonic_s) if monotonic_s is not None else None)


def test_a_process_name_may_hold_colons_brackets_and_spaces() -> None:
    event = parse_line("NVRM: Xid (PCI:0000:1b:00): 31, pid=7, name=a b: [x].c, channel 0x00000002, intr 00000000.")
    assert event is not None
    assert (event.pid, event.name, event.text) == ("7", "a b: [x].c", "channel 0x00000002, intr 00000000.")


def test_a_gpu_lost_before_driver_start_is_told_by_three_plain_lines() -> None:
    events = list(
        read_lines(
            [
                "[   10.000001] NVRM: The NVIDIA GPU 0000:b3:00.0",
                "[   10.000002] NVRM: (PCI ID: 10de:2330) installed in this system has",
                "[   10.000003] NVRM: fallen off the bus and is not responding to commands.",
            ]
        )
    )
    assert [(event.kind, event.signal, event.pci) for event in events] == [("host", "gpu_lost_at_probe", "0000:b3:00.0")]
    assert assess(events[0]).action is Action.REBOOT_NODE


@pytest.mark.parametrize(
    ("line", "signal", "fault_class"),
    [
        ("NVRM: GPU 0000:1b:00.0: RmInitAdapter failed! (0x62:0x40:2477)", "driver_start_failed", "reboot_needed"),
        ("NVRM: _kgspBootGspRm: unexpected WPR2 already up, cannot proceed with booting GSP", "wpr2_latched", "gpu_lost"),
        ("NVRM: API mismatch: the client has the version 580.95.05", "driver_mismatch", "configuration"),
        ("{1}[Hardware Error]: event severity: fatal", "machine_check_uncorrected", "hardware"),
        ("mce: [Hardware Error]: Machine check events logged", "machine_check", "unknown_code"),
        ("EDAC MC0: 1 UE memory read error on CPU_SrcID#0", "memory_uncorrected", "hardware"),
        ("Out of memory: Killed process 4242 (python3) total-vm:1kB", "out_of_memory", "application"),
        ("INFO: task kworker/0:1:77 blocked for more than 120 seconds.", "hung_task", "none"),
        ("watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [python:99]", "lockup", "host"),
        ("EXT4-fs error (device nvme0n1p1): ext4_find_entry: inode #2", "storage_lost", "host"),
    ],
)
def test_the_hosts_own_fault_lines_are_recognised(line: str, signal: str, fault_class: str) -> None:
    event = parse_line(f"[  100.000000] {line}")
    assert event is not None
    assert (event.kind, event.signal, event.monotonic_s) == ("host", signal, 100.0)
    assert assess(event).fault_class == fault_class


@settings(deadline=None, derandomize=True, max_examples=40)
@given(st.data(), st.sampled_from(sorted(PATTERNS)))
def test_the_quick_search_before_the_patterns_loses_no_line(data: st.DataObject, signal: str) -> None:
    line = data.draw(st.from_regex(PATTERNS[signal].regex, fullmatch=True))
    assert any(word in line for word in PATTERNS[signal].words)


def test_a_killed_process_is_named() -> None:
    event = parse_line("[  100.0] Out of memory: Killed process 4242 (python3) total-vm:1kB")
    assert event is not None
    assert (event.pid, event.name) == ("4242", "python3")


def test_the_drivers_address_line_gives_a_uuid_and_is_no_fault() -> None:
    line = "[    2.8] NVRM: GPU at PCI:0000:55:00: GPU-00000000-0000-0000-0000-000000000000"
    assert parse_line(line) is None
    assert parse_gpu_address(line) == ("0000:55:00", "GPU-00000000-0000-0000-0000-000000000000")


@pytest.mark.parametrize(
    "line", ["", "[   1.0] usb 1-1: new device", "NVRM: Xid : 32, pid=1", "NVRM: Xid (PCI:0000:1b:00)", "Xid"]
)
def test_other_lines_are_no_faults(line: str) -> None:
    assert parse_line(line) is None


@settings(deadline=None, derandomize=True, max_examples=300)
@given(st.text(max_size=300), st.text(max_size=300), st.sampled_from([sample["raw"] for sample in SAMPLES]), st.integers(0, 200))
def test_noise_around_and_inside_a_line_never_stops_the_reader(before: str, after: str, line: str, cut: int) -> None:
    for text in (before, before + line, line + after, line[:cut] + after, '{"a":' + line):
        for event in read_lines([text]):
            assert event.kind in ("xid", "sxid", "host")
            assert event.code is None or event.code >= 0


@settings(deadline=None, derandomize=True, max_examples=200)
@given(st.integers(0, 999_999), st.integers(0, 0xFFFF), st.integers(0, 0xFF), st.integers(0, 0x1F))
def test_any_code_at_any_address_is_read_and_never_called_harmless_without_the_catalog(
    code: int, domain: int, bus: int, device: int
) -> None:
    event = parse_line(f"NVRM: Xid (PCI:{domain:04x}:{bus:02x}:{device:02x}): {code}, text")
    assert event is not None
    assert (event.code, event.pci) == (code, f"{domain:04x}:{bus:02x}:{device:02x}")
    if code > 178:
        assert assess(event).action is Action.CONTACT_SUPPORT


NAMES = st.text(st.characters(min_codepoint=33, exclude_categories=("Cs", "Cc", "Z", "Cf")), min_size=1, max_size=15)
TEXTS = (
    "GPU has fallen off the bus.",
    "Ch 00000008",
    "channel 0x0b00000a",
    "Row Remapper: New row (0x0000000018f31d80) marked for remapping, reset gpu to activate.",
    "NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x021425c6 0x00000000)",
    "GDDR, Uncorrectable DRAM error in FBPA 3",
)
WRAPPINGS: tuple[Callable[[str], str], ...] = (
    lambda line: f"[  12.000001] {line}",
    lambda line: f"Aug 10 15:36:05 node-1 kernel: {line}",
    lambda line: json.dumps({"log": line, "stream": "stdout"}),
    lambda line: json.dumps({"MESSAGE": line, "_HOSTNAME": "node-1"}, ensure_ascii=False),
    lambda line: f"2026-04-03T06:20:28.5Z stdout F {json.dumps({'a': json.dumps({'MESSAGE': line})})}",
)


@settings(deadline=None, derandomize=True, max_examples=400)
@given(NAMES, st.integers(0, 99_999_999), st.integers(1, 178), st.sampled_from(TEXTS), st.sampled_from(WRAPPINGS))
def test_whatever_a_process_is_called_the_line_reads_as_it_was_printed(
    name: str, pid: int, code: int, text: str, wrapping: Callable[[str], str]
) -> None:
    assume(name[0] not in "'\"" and "\\" not in name and name != "<unknown>")
    line = f"NVRM: Xid (PCI:0000:1b:00): {code}, pid={pid}, name={name}, {text}"
    (event,) = parse_all(wrapping(line))
    assert (event.code, event.pid, event.name, event.text) == (code, str(pid), name, text)


@settings(deadline=None, derandomize=True, max_examples=150)
@given(st.binary(max_size=400), st.sampled_from(SAMPLES), st.integers(0, 200), st.binary(max_size=100))
def test_bytes_of_any_kind_around_and_inside_a_line_never_stop_the_reader(
    before: bytes, sample: dict[str, Any], cut: int, after: bytes
) -> None:
    line = sample["raw"].encode()
    whole, torn = before + b"\n" + line + b"\n" + after, before + line[:cut] + after + line[cut:]
    for log in (whole, torn, sample["raw"][:cut].encode("utf-16") + after):
        found = list(read_stream(io.BytesIO(log)))
        alone = list(read_stream(io.BytesIO(log), nvidia_alone=True))
        assert [event for event in alone if event.kind != "host"] == [event for event in found if event.kind != "host"]
        assert all(assess(event).because for event in found)


def test_a_line_of_a_megabyte_is_read_at_its_beginning() -> None:
    event = parse_line(f"[   1.000000] {LOST}" + "x" * 1_000_000)
    assert event is not None
    assert event.code == 79
    assert len(event.raw) < 10_000
