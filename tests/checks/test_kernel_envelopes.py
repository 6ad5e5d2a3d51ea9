"""A kernel line reads the same whatever it travelled in: container logs, shippers, escapes, colours, JSON inside JSON."""

from __future__ import annotations

import json

import pytest

from checks.kernel_log import parse_all, parse_line, read_lines

LOST = "NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
STAMPED = f"[ 1234.567890] {LOST}"
JOURNAL = {"MESSAGE": LOST, "_SOURCE_MONOTONIC_TIMESTAMP": "1234567890", "_HOSTNAME": "node-7", "_BOOT_ID": "b" * 32}


def docker(text: str) -> str:
    return json.dumps({"log": text + "\n", "stream": "stdout", "time": "2026-11-29T10:00:00.123456789Z"})


@pytest.mark.parametrize(
    "wrapped",
    [
        f"2026-11-29T10:00:00.123456789Z stdout F {STAMPED}",
        f"2026-11-29T10:00:00.123456789Z stderr P {STAMPED}",
        docker(STAMPED),
        docker(STAMPED).replace("<", "\\u003c").replace(">", "\\u003e").replace("'", "\\u0027"),
        docker(json.dumps(JOURNAL)),
        f"2026-11-29T10:00:00.1Z stdout F {json.dumps(JOURNAL)}",
        f"Nov 29 10:00:00 node-7 fluent-bit[33]: {docker(STAMPED)}",
        json.dumps({"kubernetes": {"pod": "x"}, "records": [{"message": docker(STAMPED)}]}),
        json.dumps({"level": "warn", "msg": f"caught: {json.dumps({'m': STAMPED})}"}),
        docker(STAMPED)[:-4],
        f"\x1b[32m[ 1234.567890] \x1b[0m\x1b[33mNVRM: \x1b[0m\x1b[31m{LOST[6:]}\x1b[0m",
        f"[ 1234.567890][ T1946] {LOST}",
        f"[ 1234.567890 <    0.000012>] {LOST}",
        f"kern  :err   : [ 1234.567890] {LOST}",
        f"<3>[ 1234.567890] {LOST}",
        f"[ 1234.567890] node-7 kernel: {LOST}",
        "[ 1234.567890] " + LOST.replace("<", "&lt;").replace(">", "&gt;").replace("'", "&#39;"),
        f"[ 1234.567890] {LOST}\\n",
        f"[ 1234.567890] {LOST}#012",
        "\x00" * 300_000 + STAMPED,
        "x" * 900_000 + f" {STAMPED} " + "\x00" * 100_000,
    ],
)
def test_a_line_reads_the_same_in_every_wrapping(wrapped: str) -> None:
    event = parse_line(wrapped)
    assert event is not None
    assert (event.code, event.pci, event.pid, event.name) == (79, "0000:1b:00", "", "")
    assert event.monotonic_s == pytest.approx(1234.56789)
    assert event.text.startswith("GPU has fallen off the bus.")
    assert "stream" not in event.text


@pytest.mark.parametrize(
    ("line", "node", "boot_id"),
    [
        (f"Dec  2 10:43:35 node-7 kernel: [240314.528856] {LOST}", "node-7", ""),
        (f"2026-04-03T06:20:28.545191+00:00 ip-10-0-0-1.ec2.internal kernel: {LOST}", "ip-10-0-0-1.ec2.internal", ""),
        (f"<3>1 2026-04-03T06:20:28.545191Z node-7 kernel - - - {LOST}", "node-7", ""),
        (f"Fri 2026-08-30 11:43:09 UTC node-7 kernel: {LOST}", "node-7", ""),
        (f"[ 1234.567890] node-7 kernel: {LOST}", "node-7", ""),
        (json.dumps(JOURNAL), "node-7", "b" * 32),
        (json.dumps({"host": "node-7", "log": LOST}), "node-7", ""),
        (f"kernel: {LOST}", "", ""),
        (f"Aug 10 15:36:05 kernel: {LOST}", "", ""),
        (STAMPED, "", ""),
        (f"kern  :err   : 2025-01-25T10:34:54,859532+00:00 {LOST}", "", ""),
    ],
)
def test_the_node_and_the_boot_come_from_the_envelope(line: str, node: str, boot_id: str) -> None:
    event = parse_line(line)
    assert event is not None
    assert (event.node, event.boot_id) == (node, boot_id)


@pytest.mark.parametrize(
    ("process", "pid", "name"),
    [
        ("pid=7, name=python3, ", "7", "python3"),
        ("pid='7', name='python3', ", "7", "python3"),
        ('pid="7", name="python3", ', "7", "python3"),
        ("pid=7, ", "7", ""),
        ("name=python3, ", "", "python3"),
        ("pid=<unknown>, name=<unknown>, ", "", ""),
        ("pid='<unknown>', name='<unknown>', ", "", ""),
        ("pid=7, name=ray::Worker[3], ", "7", "ray::Worker[3]"),
        ("pid=7, name=(a) {b}: c.d, ", "7", "(a) {b}: c.d"),
        ("pid=7, name=, ", "7", ""),
        ("pid=7, name=a, b, ", "7", "a, b"),
        ("pid=7, name=a,b, ", "7", "a,b"),
        ("pid=7, name='a, b', ", "7", "a, b"),
        ('pid=7, name={"x":1}, ', "7", '{"x":1}'),
        ('pid=7, name=it"s, ', "7", 'it"s'),
        ("pid=7, name=don't, ", "7", "don't"),
        ("pid=7, name=Xid (a, ", "7", "Xid (a"),
        ("pid=7, name=pid=3, ", "7", "pid=3"),
        ("pid=7, name=50% done;, ", "7", "50% done;"),
        ("pid=7, name=\u00e9\u4e2d, ", "7", "\u00e9\u4e2d"),
        ("", "", ""),
    ],
)
def test_pid_and_name_may_be_absent_quoted_or_odd(process: str, pid: str, name: str) -> None:
    line = f"NVRM: Xid (PCI:0000:1b:00): 31, {process}Ch 00000030, intr 00000000."
    of_kmsg = "".join(letter if letter.isascii() else "".join(f"\\x{byte:02x}" for byte in letter.encode()) for letter in line)
    for wrapped in (line, json.dumps({"log": line}), json.dumps({"m": json.dumps({"log": line})}), f"3,5,1000000,-;{of_kmsg}"):
        event = parse_line(wrapped)
        assert event is not None
        assert (event.pid, event.name, event.text) == (pid, name, "Ch 00000030, intr 00000000.")


@pytest.mark.parametrize(
    ("address", "gpu_instance", "compute_instance"),
    [
        ("PCI:0000:3b:00 GPU-I:01 GPU-CI:02", 1, 2),
        ("PCI:0000:3b:00 GPU-I:07", 7, None),
        ("PCI:0018:01:00.0 GPU-I:01", 1, None),
        ("PCI:00010000:3b:00", None, None),
        ("0000:3b:00", None, None),
    ],
)
def test_addresses_of_slices_domains_and_old_drivers_are_read(
    address: str, gpu_instance: int | None, compute_instance: int | None
) -> None:
    event = parse_line(f"NVRM: Xid ({address}): 13, Graphics Exception")
    assert event is not None
    assert (event.code, event.gpu_instance, event.compute_instance) == (13, gpu_instance, compute_instance)


def test_two_lines_written_into_each_other_are_two_events() -> None:
    events = parse_all(
        "[ 10.000001] NVRM: Xid (PCI:0000:1b:00): 79, pid=1, name=a, GPU has fal"
        "[ 10.000002] NVRM: Xid (PCI:0000:1c:00): 45, pid=2, name=b, Ch 00000001 caused by previous Xid 79"
    )
    assert [(event.code, event.pci, event.pid, event.text, event.monotonic_s) for event in events] == [
        (79, "0000:1b:00", "1", "GPU has fal", 10.000001),
        (45, "0000:1c:00", "2", "Ch 00000001 caused by previous Xid 79", 10.000002),
    ]
    assert events[1].caused_by == 79


def test_a_line_that_lost_its_beginning_still_counts() -> None:
    event = parse_line("VRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.")
    assert event is not None
    assert event.code == 79


def test_an_mmu_fault_takes_its_next_two_lines_along() -> None:
    head = "NVRM: Xid (PCI:0000:9a:00): 31, pid=4, name=python3, channel 0x00000002, intr 00000000."
    events = list(
        read_lines(
            [
                f"[   5.000001] {head}",
                "[   5.000001] MMU Fault: ENGINE GRAPHICS GPC0 faulted @ 0x182400_0030198d.",
                "[   5.000001] Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ",
                "[   6.000001] MMU Fault: of something else",
                "[   7.000001] NVRM: Xid (PCI:0000:9a:00): 43, pid=4, name=python3, Ch 00000002",
            ]
        )
    )
    assert [event.code for event in events] == [31, 43]
    assert "FAULT_PDE" in events[0].text


def test_an_mmu_fault_that_says_all_in_one_line_is_not_taken_for_the_rest_of_another() -> None:
    line = (
        "NVRM: Xid (PCI:0000:{}:00): 31, pid=4, name=python, Ch 00000030, intr 00000000. MMU Fault: ENGINE HOST0 faulted @ 0x10"
    )
    events = list(read_lines([line.format("1b"), line.format("1c"), line.format("1b")]))
    assert [event.pci for event in events] == ["0000:1b:00", "0000:1c:00", "0000:1b:00"]


def test_fabric_managers_own_log_tells_the_switch_fault() -> None:
    event = parse_line(
        "[Aug 10 2026 15:36:05] [ERROR] [tid 12] detected NVSwitch fatal error 20034 on fid 0 on NVSwitch pci bus id "
        "00000000:06:00.0 physical id 8 port 48"
    )
    assert event is not None
    assert (event.kind, event.code, event.severity, event.link) == ("sxid", 20034, "Fatal", 48)


@pytest.mark.parametrize("junk", ['{"' * 200_000, "[" * 500_000, '\\"' * 300_000, "\\u0000" * 150_000, " " * 1_000_000])
def test_a_fault_behind_a_megabyte_of_noise_is_read(junk: str) -> None:
    for text in (f"{junk} {STAMPED}", f'{{"log": "{STAMPED}", "more": "{junk}'):
        assert [event.code for event in parse_all(text)] == [79]


def test_a_megabyte_of_beginnings_is_no_fault() -> None:
    assert parse_all("NVRM: Xid (PCI:0000:1b:00): " * 40_000) == []
