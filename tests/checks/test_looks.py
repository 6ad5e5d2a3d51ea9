"""Counters are remembered from look to look: how fast they rise, what a reset is, and that no file can do harm."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checks.host import Host
from checks.probes.looks import (
    COUNTERS_LIMIT,
    MIN_SPAN_S,
    Looks,
    Sample,
    judge_looks,
    looks_file,
    read_looks,
    save_looks,
)

BOOT, OTHER_BOOT = "boot-1", "boot-2"
NOW = 1_000_000_000.0
DAY = 86400.0


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(str(tmp_path), {"HOME": str(tmp_path / "home")})


def look(host: Host, at: float, boot_id: str = BOOT, across_boots: bool = False, **counters: float) -> None:
    looks = read_looks(host, boot_id, at)
    for name, value in counters.items():
        looks.note(name, value, across_boots=across_boots)
    assert save_looks(host, looks) == ""


def rise(host: Host, value: float, window_s: float, at: float = NOW, boot_id: str = BOOT, across: bool = False) -> object:
    found = read_looks(host, boot_id, at).rise("errors", value, window_s, across_boots=across)
    return found and (found.amount, found.seconds)


def test_a_rise_is_told_against_the_sample_nearest_to_the_window(host: Host) -> None:
    for age, value in ((3000, 1), (620, 5), (70, 9)):
        look(host, NOW - age, errors=value)
    assert rise(host, 10, 60) == (1, 70)
    assert rise(host, 10, 600) == (5, 620)
    assert rise(host, 10, 3600) == (9, 3000)


def test_the_first_look_knows_no_rise(host: Host) -> None:
    assert rise(host, 10, 60) is None


def test_two_looks_in_a_moment_give_no_rate(host: Host) -> None:
    look(host, NOW - MIN_SPAN_S + 1, errors=0)
    assert rise(host, 1000, 60) is None


def test_a_sample_from_long_ago_says_nothing_of_the_last_minute(host: Host) -> None:
    look(host, NOW - DAY, errors=0)
    assert rise(host, 1000, 60) is None
    assert rise(host, 1000, DAY) == (1000, DAY)


def test_a_counter_that_went_back_was_reset_and_did_not_rise(host: Host) -> None:
    look(host, NOW - 600, errors=500)
    assert rise(host, 3, 600) is None


def test_a_reset_between_two_looks_is_seen_even_if_the_counter_is_higher_again(host: Host) -> None:
    look(host, NOW - 600, errors=5)
    look(host, NOW - 300, errors=0)
    assert rise(host, 9, 600) == (9, 300)


def test_another_boot_starts_anew(host: Host) -> None:
    look(host, NOW - 600, errors=5)
    assert rise(host, 9, 600, boot_id=OTHER_BOOT) is None


def test_a_node_without_a_boot_id_has_no_earlier_looks(host: Host) -> None:
    look(host, NOW - 600, boot_id="", errors=5)
    assert rise(host, 9, 600, boot_id="") is None


def test_a_counter_that_outlives_reboots_is_told_over_a_month(host: Host) -> None:
    for day in range(35, 0, -1):
        look(host, NOW - day * DAY, boot_id=f"boot-{day // 4}", across_boots=True, errors=35 - day)
    found = read_looks(host, BOOT, NOW).rise("errors", 40, 30 * DAY, across_boots=True)
    assert found is not None
    assert 27 * DAY <= found.seconds <= 33 * DAY
    assert found.amount == 40 - (35 - found.seconds / DAY)


def test_a_look_that_did_not_read_a_counter_does_not_forget_it(host: Host) -> None:
    look(host, NOW - 600, errors=5)
    look(host, NOW - 300, other=1)
    assert rise(host, 9, 600) == (4, 600)


def test_a_counter_that_stood_still_is_known_at_every_moment_between(host: Host) -> None:
    for age in range(7200, 0, -300):
        look(host, NOW - age, errors=0)
    look(host, NOW - 40, errors=7)
    samples = read_looks(host, BOOT, NOW).earlier["errors"]
    assert len(samples) == 3
    assert rise(host, 7, 3600) == (7, 3600)


def test_samples_from_the_future_are_left_out(host: Host) -> None:
    look(host, NOW + 600, errors=5)
    assert rise(host, 9, 600) is None
    look(host, NOW, errors=1)
    assert [one.at for one in read_looks(host, BOOT, NOW + 1000).earlier["errors"]] == [NOW]


def test_the_file_lies_where_the_environment_says(tmp_path: Path) -> None:
    assert looks_file(Host("/", {"HOME": "/home/me"})) == "/home/me/.cache/hotspare/looks.json"
    assert looks_file(Host("/", {"HOME": "/home/me", "HOTSPARE_STATE": "/var/lib/looks.json"})) == "/var/lib/looks.json"
    nowhere = Host(str(tmp_path), {})
    looks = read_looks(nowhere, BOOT, NOW)
    looks.note("errors", 1)
    (finding,) = judge_looks(save_looks(nowhere, looks), NOW)
    assert (finding.check, finding.verdict.value) == ("looks", "OK")
    assert "HOME" in finding.evidence


def test_a_place_that_cannot_be_written_is_said_and_leaves_nothing_behind(tmp_path: Path) -> None:
    place = tmp_path / "taken"
    place.mkdir()
    host = Host("/", {"HOTSPARE_STATE": str(place)})
    looks = read_looks(host, BOOT, NOW)
    assert looks.problem
    looks.note("errors", 1)
    assert str(place) in save_looks(host, looks)
    assert os.listdir(tmp_path) == ["taken"]


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "null", "7", '"x"', "{}", '{"schema":2}', "[" * 100_000, "\x00\xff"),
        '{"schema":1,"boots":[],"looks":[[1,0]],"counters":{}}',
        '{"schema":1,"boots":["b"],"looks":[[1,0]],"counters":{"errors":[[1,5]]}}',
        '{"schema":1,"boots":["b"],"looks":[[1,0]],"counters":{"errors":[[0,"5"]]}}',
        '{"schema":1,"boots":["b"],"looks":[[1,0]],"counters":{"errors":[[0,NaN]]}}',
        '{"schema":1,"boots":["b"],"looks":[[1,0]],"counters":{"errors":5}}',
        '{"schema":1,"boots":["b"],"looks":"x","counters":[]}',
        '{"schema":1,"boots":["b"],"looks":[[1,0]],"counters":{"errors":[[0,' + "9" * 400 + "]]}}",
    ],
)
def test_a_broken_file_is_no_earlier_looks_and_is_written_anew(host: Host, text: str) -> None:
    place = Path(looks_file(host))
    place.parent.mkdir(parents=True)
    place.write_text(text, errors="surrogateescape")
    looks = read_looks(host, BOOT, NOW)
    assert looks.problem
    assert looks.earlier == {}
    look(host, NOW, errors=5)
    assert rise(host, 6, 60, at=NOW + 60) == (1, 60)


def test_the_file_is_for_its_owner_alone(host: Host) -> None:
    look(host, NOW, errors=5)
    assert os.stat(looks_file(host)).st_mode & 0o777 == 0o600


def test_the_file_stays_small_however_many_counters_there_are(host: Host) -> None:
    looks = Looks(BOOT, NOW)
    for number in range(COUNTERS_LIMIT + 500):
        looks.note(f"ib/rdmap{number}/1/retrans_timeout_events", 1 << 40)
    save_looks(host, looks)
    assert len(read_looks(host, BOOT, NOW + 60).earlier) == COUNTERS_LIMIT
    assert os.path.getsize(looks_file(host)) < 512 << 10


def test_a_month_of_rising_counters_is_a_few_samples(host: Host) -> None:
    looks = Looks(BOOT, NOW)
    for minute in range(0, 60 * 24 * 40, 5):
        looks = Looks(BOOT, NOW + 60 * minute, looks.samples())
        looks.note("errors", minute, across_boots=True)
    assert len(looks.samples()["errors"]) < 50
    end = Looks(BOOT, looks.now + 60, looks.samples())
    for window in (600.0, 3600.0, DAY, 30 * DAY):
        found = end.rise("errors", minute + 1, window, across_boots=True)
        assert found is not None
        assert 0.6 * window <= found.seconds <= 1.5 * window
        assert found.amount == pytest.approx(found.seconds / 60)


HISTORIES = st.lists(
    st.tuples(st.floats(1, 3 * DAY), st.integers(0, 50), st.sampled_from([BOOT, OTHER_BOOT]), st.booleans()), max_size=60
)


@settings(deadline=None, derandomize=True, max_examples=150)
@given(HISTORIES, st.integers(0, 50), st.floats(1, 40 * DAY), st.booleans())
def test_no_history_gives_a_negative_rise_or_one_that_was_not_seen(
    history: list[tuple[float, int, str, bool]], value: int, window: float, across: bool
) -> None:
    """Whatever is remembered, a rise is never negative, never from nothing, never shorter than the least span."""
    now, looks, seen = NOW, Looks(BOOT, NOW), []
    for passed, count, boot_id, is_read in history:
        now += passed
        looks = Looks(boot_id, now, looks.samples())
        if is_read:
            looks.note("errors", count, across_boots=across)
            seen.append(Sample(now, count, boot_id))
    final = Looks(BOOT, now + 60, looks.samples())
    found = final.rise("errors", value, window, across_boots=across)
    assert all(len(samples) <= 64 for samples in final.earlier.values())
    of_use = [one for one in seen if across or one.boot_id == BOOT]
    if found is None:
        return
    assert found.amount >= 0
    assert found.seconds >= MIN_SPAN_S
    assert value - found.amount in {one.value for one in of_use}


@settings(deadline=None, derandomize=True, max_examples=60)
@given(
    st.recursive(
        st.none() | st.integers() | st.text() | st.floats(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_any_json_can_stand_in_the_file(document: object) -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "looks.json")
        host = Host("/", {"HOTSPARE_STATE": str(place)})
        for content in (document, {"schema": 1, "boots": ["b"], "looks": [[1, 0]], "counters": {"a": document}}):
            place.write_text(json.dumps(content))
            looks = read_looks(host, BOOT, NOW)
            looks.note("errors", 1)
            assert save_looks(host, looks) == ""
