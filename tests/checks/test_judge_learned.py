"""What clean runs teach the judge: a median with its spread, a floor that never undercuts the fixed one, drift in words."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checks.judges.floors import Floor
from checks.judges.learned import Learned, LearnedRules, learned_from, with_learned
from checks.judges.nccl_output import read
from checks.judges.nccl_software import Software, nccl_version, software_of
from checks.judges.nccl_tests import judge
from checks.model import Verdict
from tests.checks.judging import text_of

CLEAN = [470.0 + step for step in (-3, -2, -2, -1, 0, 0, 1, 1, 2, 3, 4, 5)]
PAIR = text_of("nccl_04")
"""A healthy pair of H100 nodes at 472.70 GB/s, over a shipped floor of 435."""


def test_few_clean_runs_teach_nothing() -> None:
    assert learned_from(CLEAN[:9]) is None
    assert learned_from(CLEAN[:9], LearnedRules(least_runs=9)) is not None


def test_the_median_and_spread_are_not_moved_by_one_odd_run() -> None:
    learned = learned_from([*CLEAN, 90.0])
    assert learned is not None
    assert (learned.median, learned.mad) == (470.0, 2.0)


def test_a_floor_is_far_below_by_share_and_by_spread() -> None:
    steady, wide = learned_from(CLEAN), learned_from([400.0, 430.0, 440.0, 460.0, 470.0, 470.0, 480.0, 500.0, 510.0, 540.0])
    assert steady is not None
    assert steady.floor.fail_gbs == pytest.approx(0.90 * steady.median, abs=0.01)
    assert wide is not None
    assert wide.mad == 30.0
    assert wide.floor.fail_gbs == pytest.approx(470.0 - 5 * 30.0), "a wide spread of healthy runs accuses nobody at 10 %"


@given(st.lists(st.floats(1, 1000), min_size=10, max_size=64), st.floats(1, 1000))
def test_what_was_learned_never_lowers_the_fixed_floor(values: list[float], fail_gbs: float) -> None:
    fixed = Floor(fail_gbs, fail_gbs * 1.05, "settings")
    floor = with_learned(fixed, learned_from(values))
    assert floor is not None
    assert floor.fail_gbs >= fixed.fail_gbs
    assert floor.warn_gbs >= fixed.warn_gbs
    assert floor.fail_gbs <= max(fixed.fail_gbs, 0.90 * statistics.median(values) + 0.01)


def test_a_run_above_the_shipped_floor_fails_by_what_was_learned_and_says_how_far_it_is_off() -> None:
    better = learned_from([one * 1.2 for one in CLEAN])
    judgement = judge(PAIR, "p5.48xlarge", learned=lambda *_: better)
    assert (judgement.verdict, judgement.cause) == (Verdict.CRITICAL, "low_bandwidth")
    assert judgement.drift == "16% under the median of 12 clean runs, 32.6 MAD"
    assert judgement.drift in judgement.evidence
    assert judgement.floor_source.startswith("learned: median 564.6 of 12 clean runs")


def test_a_run_is_asked_for_by_its_software_ranks_and_size() -> None:
    asked: list[tuple[Software, int, int]] = []

    def by(software: Software, ranks: int, size_bytes: int) -> Learned | None:
        asked.append((software, ranks, size_bytes))
        return None

    assert judge(PAIR, "p5.48xlarge", learned=by).verdict is Verdict.OK
    assert asked == [(Software(nccl="2.23.4"), 16, 1 << 34)]


def test_a_type_without_any_fixed_floor_is_judged_by_what_was_learned() -> None:
    learned = learned_from(CLEAN)
    text = PAIR.replace("NVIDIA H100 80GB HBM3", "NVIDIA L40S")
    assert judge(text, "g6e.48xlarge").verdict is Verdict.UNKNOWN
    judgement = judge(text, "g6e.48xlarge", learned=lambda *_: learned)
    assert (judgement.verdict, judgement.floor_gbs) == (Verdict.OK, learned.floor.fail_gbs if learned else None)


def test_corruption_is_corruption_whatever_was_learned() -> None:
    judgement = judge(text_of("nccl_10"), learned=lambda *_: learned_from([1.0] * 20))
    assert (judgement.verdict, judgement.cause, judgement.drift) == (Verdict.CRITICAL, "data_corruption", "")


def test_versions_are_read_from_each_place_that_tells_them() -> None:
    assert read(text_of("nccl_24"))[0].software == Software(nccl="2.30.7")
    assert nccl_version(22809) == "2.28.9"
    header = "# nccl-tests version 2.17.6 nccl-headers=22803 nccl-library=22809"
    plugin = "node-1:41000:41210 [0] NCCL INFO NET/OFI Initializing aws-ofi-nccl 1.16.2"
    assert software_of([header, plugin]) == Software("2.28.9", "1.16.2")
    assert software_of(["# nThread 1 nGpus 1"]) == Software()


def test_a_run_over_one_rail_is_measured_and_has_no_floor() -> None:
    lines = [line for line in PAIR.splitlines() if "device" not in line or "device  0" in line or "device  3" in line]
    kept, seen = [], set[str]()
    for line in lines:
        host = line.split(" on ")[1].split()[0] if line.startswith("#  Rank") else ""
        if not host or host not in seen:
            kept.append(line)
            seen.add(host)
    text = "\n".join(kept)
    assert judge(text, "p5.48xlarge").cause == "could_not_run", "by the ordinary rules, GPUs are missing"
    judgement = judge(text, "p5.48xlarge", 2, one_rail=True)
    assert (judgement.verdict, judgement.cause) == (Verdict.UNKNOWN, "measured")
    assert judgement.busbw_gbs == pytest.approx(472.70, abs=0.01)
