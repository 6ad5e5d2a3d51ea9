"""Lines that a container engine parted, that stand many to a line, or in another encoding, read as they were printed."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checks.kernel_log import parse_all, parse_line, read_stream, scan
from checks.model import KernelEvent

LOST = "[ 1234.567890] NVRM: Xid (PCI:0000:1b:00): 79, pid=4242, name=python3, GPU has fallen off the bus."
CRI = "2026-04-03T06:20:28.545191123Z"


def read(text: str, nvidia_alone: bool = False) -> list[KernelEvent]:
    return list(read_stream(io.BytesIO(text.encode()), nvidia_alone))


def cri(text: str, mark: str, output: str = "stdout") -> str:
    return f"{CRI} {output} {mark} {text}\n"


def docker(text: str, output: str = "stdout") -> str:
    return json.dumps({"log": text, "stream": output, "time": CRI}, separators=(",", ":")) + "\n"


def said(event: KernelEvent) -> tuple[object, ...]:
    return event.code, event.pci, event.pid, event.name, event.text, event.monotonic_s


@pytest.mark.parametrize("cut", range(1, len(LOST)))
@pytest.mark.parametrize("nvidia_alone", [True, False])
def test_a_parted_line_reads_as_a_whole_one_wherever_it_was_parted(cut: int, nvidia_alone: bool) -> None:
    whole = parse_line(LOST)
    assert whole is not None
    for log in (
        cri(LOST[:cut], "P") + cri(LOST[cut:], "F"),
        cri(LOST[:cut], "P") + cri("foreign", "F", "stderr") + cri(LOST[cut:], "F"),
        cri(LOST[: cut // 2], "P") + cri(LOST[cut // 2 : cut], "P") + cri(LOST[cut:], "F"),
        docker(LOST[:cut]) + docker(LOST[cut:] + "\n"),
        docker(LOST[:cut]) + docker("foreign\n", "stderr") + docker(LOST[cut:] + "\n"),
    ):
        (event,) = read(log, nvidia_alone)
        assert said(event) == said(whole)


@settings(deadline=None, derandomize=True, max_examples=80)
@given(st.integers(1, 400), st.integers(1, len(LOST) - 1), st.sampled_from(["cri", "docker"]))
def test_a_line_parted_over_two_blocks_reads_as_a_whole_one(block: int, cut: int, engine: str) -> None:
    parted = {
        "cri": cri("foreign", "F") + cri(LOST[:cut], "P") + cri(LOST[cut:], "F") + cri("foreign", "F"),
        "docker": docker("foreign\n") + docker(LOST[:cut]) + docker(LOST[cut:] + "\n") + docker("foreign\n"),
    }[engine]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan, "BLOCK", block)
        assert [event.code for event in read(parted)] == [79]


def test_the_beginning_of_a_line_that_never_went_on_still_counts() -> None:
    assert [event.code for event in read(cri(LOST, "P"))] == [79]
    assert [event.code for event in read(docker(LOST))] == [79]
    assert [event.code for event in read(cri(LOST, "P") + cri("other", "F", "stderr"))] == [79]


@pytest.mark.timeout(60)
def test_records_that_go_on_for_ever_are_read_in_pieces_and_cost_little() -> None:
    assert [event.code for event in read(cri("x", "P") * 40_000 + cri(LOST, "F"))] == [79]
    assert [event.code for event in read(docker("x") * 40_000 + docker(LOST + "\n"))] == [79]


def test_two_lines_without_ends_are_two_events() -> None:
    other = LOST.replace("1b:00", "1c:00")
    assert [event.pci for event in read(docker(LOST) + docker(other))] == ["0000:1b:00", "0000:1c:00"]


@pytest.mark.parametrize("between", ["", ", ", " ", "\t"])
def test_each_document_of_a_line_has_its_own_node(between: str) -> None:
    entries = [json.dumps({"MESSAGE": LOST.replace("1b:", f"1{node}:"), "_HOSTNAME": f"node-{node}"}) for node in range(9)]
    events = parse_all(f"[{between.join(entries)}]")
    assert [(event.node, event.pci) for event in events] == [(f"node-{node}", f"0000:1{node}:00") for node in range(9)]


def test_every_entry_of_a_log_stores_answer_is_an_event() -> None:
    lines = [f"NVRM: Xid (PCI:0000:1b:00): 45, pid=7, name=python3, Ch {channel:08x}" for channel in range(64)]
    answer = json.dumps({"events": [{"message": line} for line in lines]})
    assert [event.text for event in parse_all(answer)] == [line[-11:] for line in lines]


def test_a_document_that_retells_a_line_is_one_event() -> None:
    for document in (
        {"log": LOST, "message": LOST},
        {"log": LOST, "short": LOST[:80]},
        {"a": json.dumps({"log": LOST}), "b": LOST},
    ):
        assert [event.code for event in parse_all(json.dumps(document))] == [79]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig"])
@pytest.mark.parametrize("nvidia_alone", [True, False])
def test_logs_of_other_encodings_are_read(encoding: str, nvidia_alone: bool) -> None:
    log = io.BytesIO(f"{LOST}\r\nforeign\r\n{LOST}\r\n".encode(encoding))
    assert [(event.code, event.monotonic_s) for event in read_stream(log, nvidia_alone)] == [(79, 1234.56789)] * 2


@pytest.mark.parametrize(
    "line",
    [
        " irq/123-nvidia-4567    [012] d.h1. 12345.678901: nvidia_dev_xid: Xid (PCI:0000:b3:00.0): 79, pid=1, name=a, lost",
        "irq/123-nvidia  4567 [012] 12345.678901: nvidia:nvidia_dev_xid: Xid (PCI:0000:b3:00.0): 79, pid=1, name=a, lost",
    ],
)
def test_a_tracepoint_reads_as_the_kernel_log_with_the_traces_time(line: str) -> None:
    event = parse_line(line)
    assert event is not None
    assert said(event) == (79, "0000:b3:00.0", "1", "a", "lost", 12345.678901)
    switch = parse_line(
        line.replace("nvidia_dev_xid: Xid", "nvswitch_dev_sxid: SXid").replace("79, pid=1, name=a", "20034, Fatal")
    )
    assert switch is not None
    assert (switch.kind, switch.code, switch.severity, switch.monotonic_s) == ("sxid", 20034, "Fatal", 12345.678901)
