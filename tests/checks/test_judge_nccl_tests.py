"""The judge of nccl-tests against output of three generations: right verdict, right cause, never OK without proof."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checks.judges.judgement import CAUSES
from checks.judges.nccl_tests import judge
from checks.model import Verdict

DATA = Path(__file__).parent / "data"
OK, WARN, CRITICAL, UNKNOWN = Verdict.OK, Verdict.WARN, Verdict.CRITICAL, Verdict.UNKNOWN


def text_of(name: str) -> str:
    return next(DATA.glob(f"{name}*")).read_text()


PAIR = text_of("nccl_04")
NODE = text_of("nccl_03")


@pytest.mark.parametrize(
    ("fixture", "verdict", "cause", "busbw", "floor"),
    [
        ("nccl_01", OK, "healthy", 235.72, 210.0),
        ("nccl_02", OK, "healthy", 229.90, 210.0),
        ("nccl_03", OK, "healthy", 480.03, 430.0),
        ("nccl_04", OK, "healthy", 472.70, 435.0),
        ("nccl_06", OK, "healthy", 78.15, 70.0),
        ("nccl_10", CRITICAL, "data_corruption", 12.87, None),
        ("nccl_12", CRITICAL, "hang", 1.00, None),
        ("nccl_13", CRITICAL, "hang", None, None),
        ("nccl_15", CRITICAL, "network_error", None, None),
        ("nccl_17", CRITICAL, "wrong_transport", 11.20, 390.0),
        ("nccl_19", WARN, "configuration", 363.26, 430.0),
        ("nccl_21", UNKNOWN, "could_not_run", None, None),
        ("nccl_22", OK, "healthy", 0.0, None),
        ("nccl_24", OK, "healthy", 473.31, 435.0),
    ],
)
def test_each_recorded_run_gets_its_verdict(
    fixture: str, verdict: Verdict, cause: str, busbw: float | None, floor: float | None
) -> None:
    judgement = judge(text_of(fixture))
    assert (judgement.verdict, judgement.cause, judgement.floor_gbs) == (verdict, cause, floor)
    assert judgement.busbw_gbs == (pytest.approx(busbw, abs=0.01) if busbw is not None else None)
    assert judgement.evidence
    assert judgement.next or judgement.verdict is OK


def test_a_network_error_blames_the_peer_and_its_adapter_before_the_reporter() -> None:
    assert judge(text_of("nccl_15")).culprits == ("peer 192.0.2.12", "hca mlx5_10", "host gpu-node-a")


@pytest.mark.parametrize("prefix", ["0: ", "[1,0]<stdout>:", "[1,0]<stdout>: ", "2026-04-03T06:20:28.545191Z "])
def test_a_launchers_prefix_on_every_line_changes_nothing(prefix: str) -> None:
    prefixed = "\n".join(prefix + line for line in PAIR.splitlines())
    assert judge(prefixed) == judge(PAIR)


def test_a_pair_is_held_to_the_floor_of_its_message_size() -> None:
    small = "\n".join(line for line in PAIR.splitlines() if not line.lstrip().startswith(("2147", "4294", "8589", "1717")))
    judgement = judge(small, "p5.48xlarge", 2, 0)
    assert (judgement.verdict, judgement.floor_gbs) == (OK, 390.0)
    assert "1 GB" in judgement.floor_source


def slowed(text: str, factor: float) -> str:
    """Scale the in-place bus bandwidth of every row, as a slow node does."""
    lines = []
    for line in text.splitlines():
        words = line.split()
        if len(words) == 13 and words[0].isdigit():
            words[11] = f"{float(words[11]) * factor:.2f}"
            line = "  ".join(words)
        lines.append(line)
    return "\n".join(lines)


def test_a_slow_pair_fails_and_a_nearly_slow_one_warns() -> None:
    slow, nearly = judge(slowed(PAIR, 0.5), "p5.48xlarge", 2, 0), judge(slowed(PAIR, 0.95), "p5.48xlarge", 2, 0)
    assert (slow.verdict, slow.cause) == (CRITICAL, "low_bandwidth")
    assert (nearly.verdict, nearly.cause) == (WARN, "low_bandwidth")


def test_four_nodes_without_a_floor_of_their_own_borrow_the_pairs_and_say_so() -> None:
    four = PAIR
    for letter in "cd":
        rows = [line for line in PAIR.splitlines() if "on gpu-node-a" in line]
        base = 16 if letter == "c" else 24
        extra = "\n".join(
            line.replace("gpu-node-a", f"gpu-node-{letter}").replace(f"Rank {number:2d}", f"Rank {base + number:2d}")
            for number, line in enumerate(rows)
        )
        four = four.replace("NCCL version", extra + "\nNCCL version", 1)
    judgement = judge(four, "p5.48xlarge", 4, 0)
    assert (judgement.verdict, judgement.floor_gbs) == (OK, 435.0)
    assert "no floor for 4 nodes" in judgement.floor_source


def test_own_floors_come_before_shipped_ones() -> None:
    judgement = judge(PAIR, "p5.48xlarge", 2, 0, {"p5.48xlarge/2": 480.0, "p5.48xlarge/1": 1.0})
    assert (judgement.verdict, judgement.cause, judgement.floor_gbs) == (CRITICAL, "low_bandwidth", 480.0)
    assert "settings" in judgement.floor_source


def test_a_type_without_a_floor_is_unknown_and_names_the_missing_floor() -> None:
    judgement = judge(PAIR.replace("H100 80GB HBM3", "B200"), "p6-b200.48xlarge", 2, 0)
    assert (judgement.verdict, judgement.busbw_gbs) == (UNKNOWN, 472.70)
    assert "p6-b200.48xlarge/2" in judgement.next


def test_messages_too_small_for_any_floor_are_not_judged() -> None:
    small = "\n".join(line for line in NODE.splitlines() if not line.lstrip()[:10].isdigit() or int(line.split()[0]) < 1 << 27)
    assert judge(small, "p5.48xlarge", 1, 0).verdict is UNKNOWN


def test_hosts_that_did_not_take_part_make_the_result_unknown() -> None:
    judgement = judge(PAIR, "p5.48xlarge", 4, 0)
    assert (judgement.verdict, judgement.cause) == (UNKNOWN, "could_not_run")
    assert "2 of 4 hosts" in judgement.evidence


def test_a_bandwidth_that_one_rank_cannot_have_means_that_ranks_are_missing_from_the_output() -> None:
    text = "".join(line for line in text_of("nccl_03").splitlines(keepends=True) if not re.match(r"#\s+Rank\s+[1-9]", line))
    judgement = judge(text)
    assert (judgement.verdict, judgement.cause) == (UNKNOWN, "unreadable")


def test_one_rank_on_an_eight_gpu_node_is_not_a_pass() -> None:
    judgement = judge(text_of("nccl_22"), "p5.48xlarge", 1, 0)
    assert (judgement.verdict, judgement.cause) == (UNKNOWN, "could_not_run")


def test_a_wrong_result_is_corruption_even_where_the_run_hung_afterwards() -> None:
    lines = [line for line in text_of("nccl_10").splitlines() if not line.startswith("# ")]
    judgement = judge("\n".join(lines))
    assert (judgement.verdict, judgement.cause) == (CRITICAL, "data_corruption")
    assert judgement.wrong == 1285504


def test_a_failed_bounds_line_of_the_first_generation_is_corruption() -> None:
    judgement = judge(text_of("nccl_01").replace("values : 0 OK", "values : 3 FAILED"))
    assert (judgement.verdict, judgement.cause, judgement.wrong) == (CRITICAL, "data_corruption", 3)


def test_the_tools_own_time_limit_is_named() -> None:
    judgement = judge(text_of("nccl_12") + "\ngpu-node-a: Test timeout (60s) common.cu:300\n", exit_status=3)
    assert (judgement.verdict, judgement.cause) == (CRITICAL, "tool_timeout")


def test_a_cuda_error_is_a_gpu_error_of_the_host_that_reports_it() -> None:
    error = "\ngpu-node-a: Test CUDA failure common.cu:291 'an illegal memory access; CUDA error'\n"
    judgement = judge(text_of("nccl_12") + error, exit_status=2)
    assert (judgement.verdict, judgement.cause, judgement.culprits) == (CRITICAL, "gpu_error", ("host gpu-node-a",))


def test_an_unreachable_host_could_not_run_and_is_named() -> None:
    text = "ssh: connect to host node-3 port 22: Connection refused\nORTE was unable to reliably start one or more daemons.\n"
    judgement = judge(text, "p5.48xlarge", 4, 255)
    assert (judgement.verdict, judgement.cause, judgement.culprits) == (UNKNOWN, "could_not_run", ("host node-3",))


def test_a_complete_table_with_a_failing_launcher_is_unknown() -> None:
    judgement = judge(PAIR, "p5.48xlarge", 2, 1)
    assert (judgement.verdict, judgement.cause) == (UNKNOWN, "could_not_run")


def test_a_killed_run_without_footer_is_a_hang() -> None:
    judgement = judge(text_of("nccl_13"), "p5.48xlarge", 2, 124)
    assert (judgement.verdict, judgement.cause) == (CRITICAL, "hang")


def test_cut_or_foreign_json_is_unreadable() -> None:
    whole = text_of("nccl_24")
    for text in (whole[:3000], "{}", '{"devices": 3, "results": []}', json.dumps({"DCGM Diagnostic": {}})):
        judgement = judge(text)
        assert (judgement.verdict, judgement.cause) == (UNKNOWN, "unreadable")


def test_a_bandwidth_that_is_no_number_is_not_a_pass() -> None:
    document = json.loads(text_of("nccl_24"))
    for result in document["results"]:
        result["in_place"]["bus_bw"] = float("nan")
    assert judge(json.dumps(document)).verdict is UNKNOWN


@settings(deadline=None, derandomize=True, max_examples=200)
@given(st.text(max_size=2000), st.integers(0, 4000), st.sampled_from(sorted(path.name for path in DATA.glob("nccl_*"))))
def test_garbage_and_cut_output_never_pass(garbage: str, cut: int, fixture: str) -> None:
    assert judge(garbage).verdict is not OK
    text = text_of(fixture)
    judgement = judge(garbage + text[: min(cut, len(text) // 2)], "p5.48xlarge", 2, 0)
    assert judgement.verdict is not OK
    assert judgement.cause in CAUSES
