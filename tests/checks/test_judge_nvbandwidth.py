"""The judge of nvbandwidth: every copy meets its floor, the slow GPU or pair is named, nothing unmeasured passes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from checks.judges.floors import Floor
from checks.judges.judgement import Judgement
from checks.judges.tools import judge
from checks.model import Verdict
from tests.checks.judging import text_of

OK, WARN, CRITICAL, UNKNOWN = Verdict.OK, Verdict.WARN, Verdict.CRITICAL, Verdict.UNKNOWN
GOOD = text_of("nvbandwidth_h100_ok")

HOST = ("host_to_device_memcpy_ce", "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)")
PAIRS = ("device_to_device_memcpy_read_ce", "memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)")
BOTH_WAYS = ("host_to_device_bidirectional_memcpy_ce", "memcpy CE CPU(row) <-> GPU(column) bandwidth (GB/s)")
LATENCY = ("host_device_latency_sm", "memory latency SM CPU(row) <-> GPU(column) (ns)")


def judged(text: str, **options: Any) -> Judgement:
    return judge("nvbandwidth", text, **options)


def block(test: tuple[str, str], cells: list[list[str]]) -> str:
    head = "           " + "         ".join(str(column) for column in range(len(cells[0])))
    rows = "\n".join(f" {row}    " + "    ".join(values) for row, values in enumerate(cells))
    return f"Running {test[0]}.\n{test[1]}\n{head}\n{rows}\n\nSUM {test[0]} 1000.00\n\n"


def run_of(*blocks: str, gpu: str = "NVIDIA H100 80GB HBM3", end: bool = True) -> str:
    head = f"nvbandwidth Version: v0.8\nBuilt from Git version: v0.8\n\nDevice 0: {gpu} (00000000:10:00)\n\n"
    foot = "NOTE: The reported results may not reflect the full capabilities of the platform.\n" if end else ""
    return head + "".join(blocks) + foot


def as_json(text: str) -> str:
    """The same run as nvbandwidth writes it with -j."""
    cases = []
    for part in text.split("Running ")[1:]:
        lines = part.splitlines()
        rows = [line.split()[1:] for line in lines[3:] if line.strip() and line.split()[0].isdigit()]
        cases.append({"name": lines[0][:-1], "status": "Passed", "bandwidth_description": lines[1], "bandwidth_matrix": rows})
    gpus = [f"0: {text.split('Device 0: ')[1].splitlines()[0]}"]
    return json.dumps({"nvbandwidth": {"GPU Device list": gpus, "version": "v0.8", "testcases": cases}})


def pairs(slow: Callable[[int, int], bool], gpus: int = 8, diagonal: str = "N/A") -> str:
    """A matrix of pairs in which some are slow."""
    cells = [
        [diagonal if row == column else "120.10" if slow(row, column) else "275.90" for column in range(gpus)]
        for row in range(gpus)
    ]
    return block(PAIRS, cells)


@pytest.fixture(params=[str, as_json], ids=["text", "JSON"])
def form(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """The two forms of output."""
    chosen: Callable[[str], str] = request.param
    return chosen


@pytest.mark.parametrize("diagonal", ["N/A", "0.00"])
def test_the_diagonal_of_a_matrix_of_pairs_is_no_copy(form: Callable[[str], str], diagonal: str) -> None:
    assert judged(form(run_of(pairs(lambda row, column: False, diagonal=diagonal)))).verdict is OK


def test_a_gpu_that_is_slow_to_all_others_is_blamed_and_they_are_not(form: Callable[[str], str]) -> None:
    judgement = judged(form(run_of(pairs(lambda row, column: 5 in (row, column)))))
    assert (judgement.verdict, judgement.cause, judgement.culprits) == (CRITICAL, "low_bandwidth", ("GPU 5",))
    assert "NVLink" in judgement.next


def test_one_slow_pair_is_named_with_its_direction(form: Callable[[str], str]) -> None:
    judgement = judged(form(run_of(pairs(lambda row, column: (row, column) == (1, 6)))))
    assert judgement.culprits == ("GPU 1 -> GPU 6",)


def test_a_slow_gpu_and_a_slow_pair_are_told_apart(form: Callable[[str], str]) -> None:
    judgement = judged(form(run_of(pairs(lambda row, column: 2 in (row, column) or (row, column) == (4, 7)))))
    assert judgement.culprits == ("GPU 2", "GPU 4 -> GPU 7")


def test_a_copy_just_below_its_reference_warns(form: Callable[[str], str]) -> None:
    judgement = judged(form(run_of(block(HOST, [["55.3", "51.0", "55.2", "55.4"]]))))
    assert (judgement.verdict, judgement.cause, judgement.culprits, judgement.measured) == (
        WARN, "low_bandwidth", ("GPU 1",), 51.0,
    )  # fmt: skip


def test_all_copies_equally_slow_do_not_hide_behind_one_another(form: Callable[[str], str]) -> None:
    judgement = judged(form(run_of(block(HOST, [["26.1"] * 8]))))
    assert (judgement.verdict, len(judgement.culprits)) == (CRITICAL, 8)


def test_a_gpu_of_no_known_floor_is_unknown_and_names_the_missing_floor(form: Callable[[str], str]) -> None:
    judgement = judged(form(run_of(block(HOST, [["25.0"] * 4]), gpu="NVIDIA L40S")))
    assert (judgement.verdict, judgement.cause) == (UNKNOWN, "configuration")
    assert "NVIDIA L40S/host_to_device_memcpy_ce" in judgement.next


def test_without_a_floor_an_outlier_among_its_peers_warns(form: Callable[[str], str]) -> None:
    judgement = judged(form(run_of(block(HOST, [["25.0", "25.1", "12.4", "25.2"]]), gpu="NVIDIA L40S")))
    assert (judgement.verdict, judgement.culprits) == (WARN, ("GPU 2",))
    assert "no floor is known" in judgement.floor_source


def test_a_test_without_a_floor_rides_along_and_is_named() -> None:
    judgement = judged(run_of(block(HOST, [["55.0"] * 8]), block(BOTH_WAYS, [["41.0"] * 8]), block(LATENCY, [["800.0", "10.0"]])))
    assert judgement.verdict is OK
    assert "host_to_device_bidirectional_memcpy_ce" in judgement.evidence


def test_own_floors_hold_before_shipped_ones_by_type_or_family() -> None:
    text = run_of(block(HOST, [["55.0"] * 8]))
    for key in ("p5.48xlarge/host_to_device_memcpy_ce", "H100/host_to_device_memcpy_ce"):
        assert judged(text, instance_type="p5.48xlarge", floors={key: 60.0}).verdict is CRITICAL
    own = judged(text, floors={"H100/host_to_device_memcpy_ce": Floor(49.68, 52.44, "as measured here")})
    assert (own.verdict, own.floor_source) == (OK, "as measured here")


def test_waived_and_unknown_tests_alone_are_not_a_pass() -> None:
    judgement = judged(run_of("Running device_to_device_memcpy_read_ce.\nWaived: \n\n"))
    assert (judgement.verdict, judgement.cause) == (UNKNOWN, "could_not_run")
    cases = [{"name": "a", "status": "Waived"}, {"name": "b", "status": "Not Found"}]
    assert judged(json.dumps({"nvbandwidth": {"testcases": cases}})).cause == "could_not_run"
    assert judged(json.dumps({"nvbandwidth": {"testcases": []}})).cause == "could_not_run"


def test_a_waived_test_beside_measured_ones_passes() -> None:
    assert (
        judged(run_of(block(HOST, [["55.0"] * 8]), "Running multinode_device_to_device_memcpy_read_ce.\nWaived: \n\n")).verdict
        is OK
    )


def test_fewer_gpus_than_the_node_has_are_not_a_pass(form: Callable[[str], str]) -> None:
    text = form(run_of(block(HOST, [["55.0"] * 7])))
    assert judged(text).verdict is OK
    assert judged(text, instance_type="p5.48xlarge").cause == "could_not_run"


def test_a_pair_without_peer_access_among_others_with_it_is_configuration() -> None:
    text = run_of(pairs(lambda row, column: False)).replace("\n 0    N/A    275.90", "\n 0    N/A    N/A")
    judgement = judged(text)
    assert (judgement.verdict, judgement.cause, judgement.culprits) == (WARN, "configuration", ("GPU 0 -> GPU 1",))


def test_a_slow_copy_counts_beside_one_that_is_not_possible() -> None:
    text = run_of(pairs(lambda row, column: (row, column) == (3, 4))).replace("\n 0    N/A    275.90", "\n 0    N/A    N/A")
    assert judged(text).culprits == ("GPU 3 -> GPU 4",)


def test_a_run_that_stops_inside_a_test_hangs_there() -> None:
    judgement = judged(
        run_of(block(HOST, [["55.0"] * 8]), "Running device_to_device_memcpy_read_ce.\n", end=False), exit_status=124
    )
    assert (judgement.verdict, judgement.cause) == (CRITICAL, "hang")
    assert "device_to_device_memcpy_read_ce" in judgement.evidence


def test_a_slow_copy_counts_although_the_run_hung_afterwards() -> None:
    judgement = judged(run_of(block(HOST, [["55.0"] * 7 + ["12.0"]]), "Running device_local_copy.\n", end=False))
    assert (judgement.cause, judgement.culprits) == ("low_bandwidth", ("GPU 7",))


@pytest.mark.parametrize(
    ("error", "verdict", "cause"),
    [
        ("[CUDA_ERROR_ECC_UNCORRECTABLE] uncorrectable ECC error encountered in expression cuMemAlloc", CRITICAL, "gpu_error"),
        ("[CUDA_ERROR_LAUNCH_FAILED] unspecified launch failure in expression cuStreamSynchronize", CRITICAL, "gpu_error"),
        ("[CUDA_ERROR_OUT_OF_MEMORY] out of memory in expression cuMemAlloc", UNKNOWN, "could_not_run"),
        ("[CUDA_ERROR_SYSTEM_NOT_READY] system not yet initialized in expression cuInit", UNKNOWN, "could_not_run"),
    ],
)
def test_errors_of_the_gpu_and_of_the_set_up_are_told_apart(error: str, verdict: Verdict, cause: str) -> None:
    text = judged(run_of(f"Running host_to_device_memcpy_ce.\n{error}\n", end=False), exit_status=1)
    assert (text.verdict, text.cause) == (verdict, cause)
    whole = judged(json.dumps({"nvbandwidth": {"error": error, "testcases": []}}))
    assert (whole.verdict, whole.cause) == (verdict, cause)


@pytest.mark.parametrize("cell", ["nan", "inf", "-3.0"])
def test_a_bandwidth_that_is_no_number_is_unreadable(form: Callable[[str], str], cell: str) -> None:
    judgement = judged(form(run_of(block(HOST, [["55.0", "55.1", cell]]))))
    assert (judgement.verdict, judgement.cause) == (UNKNOWN, "unreadable")


def test_a_matrix_that_is_not_whole_is_unreadable() -> None:
    whole = run_of(pairs(lambda row, column: False), block(HOST, [["55.0"] * 8]))
    lost = "\n".join(line for line in whole.split("\n") if not line.startswith(" 4 "))
    other_locale = run_of(block(HOST, [["55,0"] * 8]))
    for text in (lost, other_locale, whole.replace("275.90", "", 1)):
        judgement = judged(text)
        assert (judgement.verdict, judgement.cause) == (UNKNOWN, "unreadable")


def test_the_output_of_another_gpu_than_the_type_has_is_not_judged() -> None:
    judgement = judged(GOOD, instance_type="p4d.24xlarge")
    assert (judgement.verdict, judgement.cause) == (UNKNOWN, "configuration")
