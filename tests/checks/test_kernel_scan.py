"""Scanning a big log by blocks finds every fault line that reading line by line finds, in any block size and any line length."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checks.kernel_log import read_lines, read_stream, scan
from checks.kernel_log.host_lines import PATTERNS
from checks.kernel_log.scan import ALL_WORDS, NVIDIA_ALONE

SAMPLES = [json.loads(line)["raw"] for line in (Path(__file__).parent / "data/kernel_lines.jsonl").read_text().splitlines()]
FOREIGN = ["[    1.000000] usb 1-1: new device", "", "Nov 29 10:00:00 node kubelet[1]: volume mounted", "\x00\x01\ufffd", "Xid"]
LOST = "[   99.000001] NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus."


def stream(*lines: str) -> io.BytesIO:
    return io.BytesIO("\n".join(lines).encode())


@pytest.mark.parametrize("raw", SAMPLES)
@pytest.mark.parametrize("nvidia_alone", [True, False])
def test_the_search_for_bytes_loses_no_known_line(raw: str, nvidia_alone: bool) -> None:
    lines = [*FOREIGN, raw, *FOREIGN]
    assert list(read_stream(stream(*lines), nvidia_alone)) == list(read_lines(lines))


@settings(deadline=None, derandomize=True, max_examples=60)
@given(st.data(), st.sampled_from(sorted(PATTERNS)))
def test_the_search_for_bytes_loses_no_line_of_the_host(data: st.DataObject, signal: str) -> None:
    line = data.draw(st.from_regex(PATTERNS[signal].regex, fullmatch=True).filter(lambda text: "\n" not in text))
    found = list(scan.scan(stream("foreign", line, "foreign"), ALL_WORDS))
    assert found[0] == line.encode()


@settings(deadline=None, derandomize=True, max_examples=100)
@given(
    st.integers(0, 999_999),
    st.integers(0, 0xFFFFFFFF),
    st.sampled_from(["NVRM: Xid", "nvidia-nvswitch3: SXid"]),
    st.text(max_size=80),
)
def test_the_nvidia_search_finds_any_code_at_any_address(code: int, address: int, word: str, text: str) -> None:
    pci = f"{address >> 16:04x}:{address >> 8 & 0xFF:02x}:{address & 0xFF:02x}"
    line = f"{word} (PCI:{pci}): {code}, " + text.replace("\n", " ").replace("\r", " ")
    assert list(scan.scan(stream("foreign", line), NVIDIA_ALONE)) == [line.encode()]


def test_a_message_that_is_a_list_of_numbers_is_found_in_either_spelling() -> None:
    document = {"MESSAGE": list(LOST.encode()), "__MONOTONIC_TIMESTAMP": "2000000"}
    for line in (json.dumps(document), json.dumps(document, separators=(",", ":"))):
        assert [event.code for event in read_stream(stream("foreign", line, "foreign"), nvidia_alone=True)] == [79]


@settings(deadline=None, derandomize=True, max_examples=150)
@given(st.lists(st.sampled_from([*SAMPLES, *FOREIGN, *FOREIGN]), max_size=40), st.integers(1, 700))
def test_any_block_size_gives_the_same_events(lines: list[str], block: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan, "BLOCK", block)
        assert list(read_stream(stream(*lines))) == list(read_lines(lines))


def test_the_lines_after_a_hit_come_along_even_into_the_next_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "BLOCK", 64)
    lines = [
        "[   5.0] NVRM: Xid (PCI:0000:9a:00): 31, pid=4, name=python3, channel 0x00000002, intr 00000000.",
        "[   5.0] MMU Fault: ENGINE GRAPHICS GPC0 faulted @ 0x182400_0030198d.",
        "[   5.0] Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ",
        *["[   6.0] foreign"] * 20,
    ]
    (event,) = read_stream(stream(*lines), nvidia_alone=True)
    assert "FAULT_PDE" in event.text


@pytest.mark.parametrize("before", [0, 3_000_000, 1_048_560, *range(1_044_000, 1_045_100, 37), 1_310_000])
def test_a_line_of_megabytes_is_read_in_pieces_and_once(before: int) -> None:
    log = io.BytesIO(b"x" * before + b" " + LOST.encode() + b" " + b"\x00" * 3_000_000)
    assert [(event.code, event.monotonic_s) for event in read_stream(log)] == [(79, 99.000001)]


def test_a_log_without_a_last_line_end_is_read_to_its_end() -> None:
    assert [event.code for event in read_stream(stream("foreign", LOST))] == [79]


def test_windows_line_ends_and_bytes_that_are_no_text_do_no_harm() -> None:
    log = io.BytesIO(b"\xff\xfe\x80\r\n" + LOST.encode() + b"\r\n\x00\x00\xc3\r\n")
    (event,) = read_stream(log)
    assert event.text == "GPU has fallen off the bus."
