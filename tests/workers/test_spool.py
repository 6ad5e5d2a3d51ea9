"""Reports on disk: whole or not at all, for their owner alone, bounded, and never the newest lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from activities.node import Report
from tests.workers.fakes import node
from workers.forwarding import Boot, no_longer_true
from workers.sections import SpoolSettings
from workers.spool import Held, Spool, SpoolFailed

TREE = Path(__file__).resolve().parents[2]
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
KILLED_WRITER = """
import sys
from pathlib import Path
from tests.workers.test_spool import held
from workers.sections import SpoolSettings
from workers.spool import Spool
spool = Spool(Path(sys.argv[1]), SpoolSettings())
for number in range(1_000_000):
    spool.hold(held(number % 7 + 1, key=str(number)))
    print(number, flush=True)
"""


def held(number: int = 1, **more: Any) -> Held:
    """A report of a node that waits."""
    key = more.pop("key", "boot-1/XID 79/")
    fault = more.pop("fault", "gpu_lost")
    at = more.pop("at", NOON)
    boot_id = more.pop("boot_id", "")
    report = Report(**{"source": "watcher", "xid": 79, "key": key, "what": f"fault {key}", **more})
    of = node(number)
    return Held(identity=f"{of.instance_id}|{key}", node=of, report=report, fault=fault, held_at=at, boot_id=boot_id)


def opened(folder: Path, **limits: Any) -> Spool:
    return Spool(folder / "spool", SpoolSettings(**limits))


def keys(spool: Spool) -> list[tuple[str, str]]:
    """Node and key of all that waits, in order over the nodes."""
    names = sorted((name, one) for waiting in spool.waiting().values() for name, one in waiting)
    return [(one.node.name, one.report.key) for _, one in names]


def test_what_is_held_is_there_for_the_next_process_in_the_same_order(tmp_path: Path) -> None:
    first = opened(tmp_path)
    for number, key in ((1, "a"), (2, "b"), (1, "c")):
        first.hold(held(number, key=key))
    later = opened(tmp_path)
    assert keys(later) == [("node-1", "a"), ("node-2", "b"), ("node-1", "c")]
    assert later.waiting() == first.waiting()
    assert later.holds("i-001")
    assert not later.holds("i-003")


def test_what_is_released_is_gone_for_good(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    spool.hold(held(1))
    [(name, _)] = spool.waiting()["i-001"]
    spool.release(name)
    assert spool.state.reports == 0
    assert opened(tmp_path).state.reports == 0


def test_nobody_else_can_read_what_waits(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        opened(tmp_path).hold(held(1))
    finally:
        os.umask(old)
    folder = tmp_path / "spool"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert [file.stat().st_mode & 0o777 for file in folder.iterdir()] == [0o600]


def test_the_same_fault_a_hundred_times_is_one_file_with_its_newest_words(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    for number in range(100):
        spool.hold(held(1, raw=str(number), at=NOON + timedelta(seconds=number)))
    [(_, one)] = spool.waiting()["i-001"]
    assert one.report.raw == "99"
    assert len(list((tmp_path / "spool").iterdir())) == 1


def test_older_reports_of_the_same_node_and_fault_give_way_first_and_are_counted(tmp_path: Path) -> None:
    spool = opened(tmp_path, max_reports=3)
    spool.hold(held(2, key="other node"))
    for key in ("1", "2", "3", "4", "5"):
        spool.hold(held(1, key=key))
    assert keys(spool) == [("node-2", "other node"), ("node-1", "4"), ("node-1", "5")]
    assert sum(one.folded for _, one in spool.waiting()["i-001"]) == 3
    assert spool.state.lost == 0
    assert spool.state.full
    assert opened(tmp_path, max_reports=3).waiting() == spool.waiting()


def test_when_nothing_can_be_folded_the_oldest_is_lost_and_the_log_names_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spool = opened(tmp_path, max_reports=2)
    for number in (1, 2, 3):
        spool.hold(held(number))
    assert [name for name, _ in keys(spool)] == ["node-2", "node-3"]
    assert spool.state.lost == 1
    assert "is full" in caplog.text
    assert "lost the oldest report: node-1: XID 79" in caplog.text


def test_bytes_are_bounded_too_and_one_report_is_kept_however_large(tmp_path: Path) -> None:
    spool = opened(tmp_path, max_bytes=10_000)
    for number in range(1, 60):
        spool.hold(held(number, raw="x" * 500))
    assert 5 < spool.state.reports < 20
    assert spool.state.size <= 10_000
    spool.hold(held(99, raw="x" * 20_000))
    assert keys(spool)[-1][0] == "node-99"


def test_a_spool_is_no_longer_full_once_it_is_empty(tmp_path: Path) -> None:
    spool = opened(tmp_path, max_reports=1)
    spool.hold(held(1))
    spool.hold(held(2))
    assert spool.state.full
    spool.release(spool.waiting()["i-002"][0][0])
    assert not spool.state.full


def test_half_written_and_damaged_files_do_not_keep_the_others_away(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    spool.hold(held(1, key="a"))
    spool.hold(held(2, key="b"))
    folder = tmp_path / "spool"
    (folder / "000000000007.json.new").write_text("{")
    (folder / "000000000009.json").write_text('{"identity": ')
    later = opened(tmp_path)
    assert keys(later) == [("node-1", "a"), ("node-2", "b")]
    later.hold(held(3, key="c"))
    names = sorted(file.name for file in folder.iterdir())
    assert names == ["000000000001.json", "000000000002.json", "000000000009.json.damaged", "000000000010.json"]


def test_a_process_killed_between_the_newer_and_the_removal_of_the_older_leaves_the_newer(tmp_path: Path) -> None:
    opened(tmp_path).hold(held(1, raw="older"))
    folder = tmp_path / "spool"
    (folder / "000000000002.json").write_text(held(1, raw="newer").model_dump_json())
    [(_, one)] = opened(tmp_path).waiting()["i-001"]
    assert one.report.raw == "newer"
    assert len(list(folder.iterdir())) == 1


def test_a_disk_that_takes_nothing_is_said_and_leaves_no_half_file(tmp_path: Path) -> None:
    (tmp_path / "spool").write_text("a file where the folder should be")
    spool = opened(tmp_path)
    with pytest.raises(SpoolFailed, match="cannot be kept on disk"):
        spool.hold(held(1))
    assert spool.state.reports == 0


def test_a_process_that_is_killed_at_any_moment_loses_nothing_that_it_said_was_kept(tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    words = [sys.executable, "-c", KILLED_WRITER, str(folder)]
    with subprocess.Popen(words, cwd=TREE, env={"PYTHONPATH": "."}, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        kept = [int(writer.stdout.readline()) for _ in range(40)][-1]
        os.kill(writer.pid, signal.SIGKILL)
        kept = max([kept, *(int(line) for line in writer.stdout if line.strip())])
    there = {int(key) for _, key in keys(opened(tmp_path))}
    assert set(range(kept + 1)) <= there


@settings(deadline=None, derandomize=True, max_examples=60)
@given(
    st.lists(st.tuples(st.integers(1, 4), st.sampled_from("abcd"), st.sampled_from(["gpu_lost", "link"])), max_size=30),
    st.integers(1, 5),
)
def test_whatever_is_held_the_newest_is_there_the_bound_holds_and_order_is_kept(
    tmp_path_factory: pytest.TempPathFactory, said: list[tuple[int, str, str]], limit: int
) -> None:
    folder = tmp_path_factory.mktemp("any")
    spool = opened(folder, max_reports=limit)
    for place, (number, key, fault) in enumerate(said):
        spool.hold(held(number, key=key, fault=fault, raw=str(place)))
        waiting = [one for rest in spool.waiting().values() for _, one in rest]
        assert len(waiting) <= limit
        assert str(place) in [one.report.raw for one in waiting]
        for rest in spool.waiting().values():
            places = [int(one.report.raw) for _, one in rest]
            assert places == sorted(places)
    assert opened(folder, max_reports=limit).waiting() == spool.waiting()


@pytest.mark.parametrize(
    ("report", "boot", "says"),
    [
        (held(at=NOON - timedelta(hours=2)), None, "2.0 h ago"),
        (held(at=NOON - timedelta(minutes=50)), None, ""),
        (held(at=NOON, boot_id="b1"), Boot("b1"), ""),
        (held(at=NOON, boot_id="b1"), Boot("b2"), "has restarted since"),
        (held(at=NOON, boot_id="b1"), None, ""),
        (held(at=NOON - timedelta(minutes=9)), Boot("b2", NOON - timedelta(minutes=5)), "has restarted since"),
        (held(at=NOON - timedelta(minutes=4)), Boot("b2", NOON - timedelta(minutes=5)), ""),
        (held(at=NOON, seen_at=NOON - timedelta(days=9)), Boot("b2", NOON - timedelta(days=1)), ""),
        (held(at=NOON, seen_at=NOON + timedelta(hours=5)), None, ""),
        (held(at=NOON + timedelta(hours=5)), Boot("b2"), ""),
    ],
)
def test_a_report_is_history_when_it_is_too_old_or_of_an_earlier_boot_and_kept_when_that_is_not_known(
    report: Held, boot: Boot | None, says: str
) -> None:
    why = no_longer_true(report, boot, NOON, 3600.0)
    assert (says in why) if says else why == ""
