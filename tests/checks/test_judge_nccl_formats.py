"""The judge of nccl-tests against other shapes of its output than the samples have: columns, torn rows, several runs, errors."""

from __future__ import annotations

import json
from typing import Any

import pytest

from checks.judges.floors import Floor
from checks.judges.nccl_tests import judge
from checks.model import Verdict
from tests.checks.judging import text_of

OK, WARN, CRITICAL, UNKNOWN = Verdict.OK, Verdict.WARN, Verdict.CRITICAL, Verdict.UNKNOWN
NODE, PAIR = text_of("nccl_03"), text_of("nccl_04")


def third(rows: str, program: str = "all_reduce_perf", gpu: str = "NVIDIA H100 80GB HBM3", average: str = "460.1 ") -> str:
    """A run of 8 ranks as the third generation prints it."""
    devices = "".join(
        f"#  Rank {rank:2d} Group  0 Pid {700 + rank:6d} on   node-1 device {rank:2d} [0000:{16 + rank:02x}:00] {gpu}\n"
        for rank in range(8)
    )
    return (
        "# nccl-tests version 2.19.6 nccl-headers=23007 nccl-library=23007\n"
        f"# Collective test starting: {program}\n"
        "# nThread 1 nGpus 1 minBytes 1073741824 maxBytes 8589934592 step: 2(factor) warmup iters: 1 iters: 20 agg iters: 1 "
        f"validation: 1 graph: 0 unalign: 0\n#\n# Using devices\n{devices}#\n{rows}"
        f"# Out of bounds values : 0 OK\n# Avg bus bandwidth    : {average}\n#\n# Collective test concluded: {program}\n"
    )


def row(busbw: str = "478.10", wrong: str = "0", tail: str = "", size: int = 8589934592, operation: str = "sum") -> str:
    start = f"{size:12d}  {size // 4:12d}     float  {operation:>6}      -1"
    return f"{start}    31335  274.14  470.00       0    31400  273.50  {busbw}  {wrong:>6}{tail}\n"


def test_the_third_generation_is_read() -> None:
    judgement = judge(third(row()), "p5.48xlarge", 1, 0)
    assert (judgement.verdict, judgement.measured, judgement.wrong) == (OK, 478.1, 0)


def test_a_timestamp_after_each_row_changes_nothing() -> None:
    judgement = judge(third(row(tail="  2026-04-03 06:20:28")))
    assert (judgement.verdict, judgement.measured, judgement.wrong) == (OK, 478.1, 0)


def test_columns_of_single_iterations_do_not_shift_the_bandwidth() -> None:
    side = "  31335  274.14  470.00       0    31000    32000    31900      1.2"
    rows = f"  8589934592    2147483648     float     sum      -1{side}{side.replace('470.00', '300.00')}\n"
    judgement = judge(third(rows), "p5.48xlarge", 1, 0)
    assert (judgement.verdict, judgement.measured) == (CRITICAL, 300.0)


def test_a_row_torn_apart_by_log_lines_is_put_together() -> None:
    torn = row().replace(
        "      -1", "      -1node-1:700:812 [0] NCCL INFO Channel 00/24 : 0 1\nnode-1:700:812 [0] NCCL INFO done\n", 1
    )
    assert judge(third(torn)).measured == 478.1


def test_a_largest_row_whose_numbers_are_lost_is_unreadable_not_replaced_by_a_smaller_one() -> None:
    lost = row().replace("    31335  274.14  470.00       0    31400  273.50  478.10       0", " node-1:700:812 [0] NCCL INFO x")
    judgement = judge(third(row(size=1073741824) + lost), "p5.48xlarge", 1, 0)
    assert (judgement.verdict, judgement.cause) == (UNKNOWN, "unreadable")
    assert "8589934592" in judgement.evidence


@pytest.mark.parametrize("word", ["nan", "-nan", "inf"])
def test_a_bandwidth_that_is_no_number_is_unreadable(word: str) -> None:
    assert judge(third(row(size=1073741824) + row(busbw=word))).cause == "unreadable"


@pytest.mark.parametrize("wrong", ["1", "65536", "1.2855e+06"])
def test_wrong_results_are_counted_in_every_notation(wrong: str) -> None:
    judgement = judge(third(row(wrong=wrong)), "p5.48xlarge", 1, 0)
    assert (judgement.verdict, judgement.cause, judgement.wrong) == (CRITICAL, "data_corruption", int(float(wrong)))
    assert "478.10" in judgement.line


def test_a_run_without_validation_says_so() -> None:
    text = third(row(wrong="N/A")).replace("470.00       0", "470.00     N/A")
    judgement = judge(text, "p5.48xlarge", 1, 0)
    assert (judgement.verdict, judgement.wrong) == (OK, None)
    assert "not validated" in judgement.evidence


def test_the_average_over_a_sweep_is_not_what_is_judged() -> None:
    assert judge(third(row(), average="68.2 ")).verdict is OK
    assert judge(third(row(busbw="200.00"), average="479.0 ")).verdict is CRITICAL


def test_of_repeated_rows_the_median_counts() -> None:
    assert judge(third(row() + row() + row(busbw="120.00"))).verdict is OK
    assert judge(third(row() + row(busbw="120.00") + row(busbw="121.00"))).measured == 121.0


def test_small_messages_on_a_healthy_pair_do_not_warn() -> None:
    small = "\n".join(line for line in PAIR.splitlines() if not line.lstrip()[:9].isdigit())
    small = small.replace(
        "# Out of",
        "   134217728      33554432     float     sum      -1    890.1  150.7  287.00  0  880.1  152.5  289.00  0\n# Out of",
    )
    judgement = judge(small, "p5.48xlarge", 2, 0)
    assert (judgement.verdict, judgement.measured) == (UNKNOWN, 289.0)


def test_a_b200_node_at_half_its_nvlink_fails() -> None:
    b200 = third(row(busbw="440.00"), gpu="NVIDIA B200")
    assert (judge(b200).verdict, judge(b200).floor) == (CRITICAL, 755.0)
    assert judge(third(row(busbw="842.00"), gpu="NVIDIA B200"), "p6-b200.48xlarge").verdict is OK


def test_cards_with_other_links_between_gpus_have_no_shipped_floor() -> None:
    for gpu in ("NVIDIA H100 PCIe", "NVIDIA H100 NVL", "NVIDIA H200 NVL", "NVIDIA L40S"):
        judgement = judge(third(row(busbw="90.00"), gpu=gpu))
        assert (judgement.verdict, judgement.cause) == (UNKNOWN, "configuration")
        assert gpu in judgement.evidence


@pytest.mark.parametrize("operation", ["none", "sum"])
def test_another_collective_is_not_held_to_the_floors_of_all_reduce(operation: str) -> None:
    program = "all_gather_perf" if operation == "none" else "reduce_scatter_perf"
    judgement = judge(third(row(busbw="360.00", operation=operation), program), "p5.48xlarge", 1, 0)
    assert (judgement.verdict, judgement.cause) == (UNKNOWN, "configuration")
    second = NODE.replace("     sum      -1", "    none      -1")
    assert judge(second, "p5.48xlarge", 1, 0).verdict is UNKNOWN


def test_the_tools_own_missed_minimum_is_not_a_pass() -> None:
    judgement = judge(third(row(), average="300.0 FAILED"), "p5.48xlarge", 1, 1)
    assert (judgement.verdict, judgement.cause) == (WARN, "low_bandwidth")


def test_of_several_runs_in_one_output_the_worst_counts() -> None:
    slow = third(row(busbw="200.00"))
    for text in (third(row()) + slow, slow + third(row()), third(row()) + third(row()) + slow):
        judgement = judge(text, "p5.48xlarge", 1, 0)
        assert (judgement.verdict, judgement.measured) == (CRITICAL, 200.0)
    assert judge(third(row()) * 3, "p5.48xlarge", 1, 0).verdict is OK


def test_a_run_that_hung_before_a_good_one_is_still_a_hang() -> None:
    hung = third(row()).split("# Out of bounds")[0]
    assert judge(hung + third(row()), "p5.48xlarge", 1, 0).cause == "hang"
    assert judge(third(row()) + hung, "p5.48xlarge", 1, 0).cause == "hang"


def test_processes_that_ran_each_for_itself_are_not_a_group() -> None:
    alone = text_of("nccl_22")
    other = alone.replace("gpu-node-a", "gpu-node-b")
    one_after_another = alone + other
    at_once = "\n".join(line for pair in zip(alone.splitlines(), other.splitlines(), strict=True) for line in pair)
    for text in (one_after_another, at_once):
        assert judge(text, "p5.48xlarge", 2, 0).verdict is UNKNOWN


def test_seven_of_eight_gpus_are_not_a_pass_even_with_an_own_floor() -> None:
    seven = "\n".join(line for line in third(row()).splitlines() if "Rank  7" not in line)
    judgement = judge(seven, "p5.48xlarge", 1, 0, {"p5.48xlarge/1": 100.0})
    assert (judgement.verdict, judgement.cause) == (UNKNOWN, "could_not_run")


def test_output_of_another_gpu_than_the_type_has_is_not_judged() -> None:
    judgement = judge(NODE, "p4d.24xlarge", 1, 0)
    assert (judgement.verdict, judgement.cause) == (UNKNOWN, "configuration")
    assert "p4d.24xlarge has A100" in judgement.evidence


def test_own_floors_come_before_shipped_ones_for_their_message_size() -> None:
    own: dict[str, Any] = {"p5.48xlarge/2@16G": Floor(437.4, 461.7, "ours"), "p5.48xlarge/2@1G": Floor(396.0, 418.0, "ours")}
    assert (judge(PAIR, "p5.48xlarge", 2, 0, own).floor, judge(PAIR, "p5.48xlarge", 2, 0, own).verdict) == (437.4, OK)
    small = "\n".join(line for line in PAIR.splitlines() if not line.lstrip().startswith(("4294", "8589", "1717")))
    assert judge(small, "p5.48xlarge", 2, 0, own).floor == 396.0
    assert judge(PAIR, "p5.48xlarge", 2, 0, {"H100/2": 480.0}).verdict is CRITICAL


def json_run(change: dict[str, Any]) -> str:
    document = json.loads(text_of("nccl_24"))
    for path, value in change.items():
        at, *keys = [document, *path.split(".")]
        for key in keys[:-1]:
            at = at[key]
        at[keys[-1]] = value
    return json.dumps(document)


def test_truth_values_written_as_words_are_read() -> None:
    words = {"out_of_bounds.okay": "true", "average_bus_bandwidth.okay": "true"}
    assert judge(json_run(words), "p5.48xlarge", 2, 0).verdict is OK
    failed = judge(json_run({"out_of_bounds.okay": "false", "out_of_bounds.count": 2}), "p5.48xlarge", 2, 0)
    assert (failed.verdict, failed.cause, failed.wrong) == (CRITICAL, "data_corruption", 2)
    assert judge(json_run({"average_bus_bandwidth.okay": "false"}), "p5.48xlarge", 2, 1).verdict is WARN


def test_json_without_its_end_time_is_a_hang_or_its_error() -> None:
    assert judge(json_run({"end_time": ""}), "p5.48xlarge", 2, None).cause == "hang"
    error = "node-b:7:8 [3] NCCL WARN Cuda failure 719 'unspecified launch failure'"
    judgement = judge(json_run({"end_time": "", "errors": [error]}), "p5.48xlarge", 2, None)
    assert (judgement.cause, judgement.culprits) == ("gpu_error", ("host node-b",))


def test_json_that_lists_one_gpu_of_each_process_counts_them_all() -> None:
    document = json.loads(text_of("nccl_24"))
    document["devices"] = [document["devices"][0], document["devices"][8]]
    document["devices"][0]["pid"], document["devices"][1]["pid"] = 1, 2
    document["config"]["ngpus"] = 8
    assert judge(json.dumps(document), "p5.48xlarge", 2, 0).verdict is OK


NOTICED = "mpirun noticed that process rank 3 with PID 0 on node node-2 exited on signal"


def hung(error: str) -> str:
    return third(row()).split("# Out of bounds")[0] + error + "\n"


@pytest.mark.parametrize(
    ("error", "verdict", "cause", "culprits"),
    [
        ("node-2: Test CUDA failure common.cu:291 'out of memory'", UNKNOWN, "could_not_run", ("host node-2",)),
        ("node-2: Test CUDA failure common.cu:291 'system not yet initialized'", UNKNOWN, "could_not_run", ("host node-2",)),
        (
            "node-2: Test CUDA failure common.cu:894 'system has unsupported display driver / cuda driver combination'",
            UNKNOWN, "could_not_run", ("host node-2",),
        ),
        (
            "node-2:5:6 [0] NCCL WARN Mismatched NCCL version detected : rank 0 version 22304 rank 8 version 21805",
            UNKNOWN, "could_not_run", ("host node-2",),
        ),
        ("node-2: Test CUDA failure common.cu:295 'uncorrectable ECC error'", CRITICAL, "gpu_error", ("host node-2",)),
        ("node-2: Test NCCL failure common.cu:958 'unhandled cuda error'", CRITICAL, "gpu_error", ("host node-2",)),
        (
            "node-2:5:6 [1] socket.cc:483 NCCL WARN socketStartConnect: Connect to 192.0.2.9<4711> failed : Connection refused",
            CRITICAL, "network_error", ("peer 192.0.2.9", "host node-2"),
        ),
        (f"{NOTICED} 11.", UNKNOWN, "could_not_run", ("host node-2",)),
        (f"{NOTICED} 9 (Killed).", CRITICAL, "hang", ("host node-2",)),
        (f"{NOTICED} 15 (Terminated).", CRITICAL, "hang", ()),
        ("slurmstepd: error: *** STEP 7.0 ON node-1 CANCELLED DUE TO TIME LIMIT ***", CRITICAL, "hang", ()),
        ("node-1: Test timeout (30s) common.cu:300", CRITICAL, "tool_timeout", ()),
    ],
)  # fmt: skip
def test_an_error_before_the_footer_tells_the_cause(error: str, verdict: Verdict, cause: str, culprits: tuple[str, ...]) -> None:
    judgement = judge(hung(error), "p5.48xlarge", 1, 1)
    assert (judgement.verdict, judgement.cause, judgement.culprits) == (verdict, cause, culprits)
    assert error[:60] in judgement.line


def test_an_error_that_was_overcome_does_not_spoil_a_complete_run() -> None:
    warned = third(row()).replace("# Out of", "node-1:5:6 [1] NCCL WARN NET/IB : retry, Connection reset by peer\n# Out of")
    assert judge(warned, "p5.48xlarge", 1, 0).verdict is OK


def test_sockets_on_a_type_without_a_floor_are_still_the_wrong_transport() -> None:
    text = text_of("nccl_17").replace("NVIDIA H100 80GB HBM3", "NVIDIA B200")
    judgement = judge(text, "p6-b200.48xlarge", 2, 0)
    assert (judgement.verdict, judgement.cause) == (CRITICAL, "wrong_transport")
    assert "none is to be replaced" in judgement.next


def test_a_warning_of_open_mpi_that_it_overcame_is_not_taken_for_what_kept_the_run_from_starting() -> None:
    warning = "[head:12223] plm:rsh: Warning: setpgid(12436,12436) failed in parent with errno=Permission denied(13)\n"
    judgement = judge(warning + "ssh: connect to host node-3 port 22: No route to host\n", "p5.48xlarge", 2, 255)
    assert (judgement.cause, judgement.culprits) == ("could_not_run", ("host node-3",))
    assert "No route to host" in judgement.line


def test_launch_errors_of_several_hosts_name_them_all() -> None:
    text = "".join(f"ssh: connect to host node-{at} port 22: No route to host\n" for at in (3, 5))
    judgement = judge(text, "p5.48xlarge", 4, 255)
    assert (judgement.verdict, judgement.cause, judgement.culprits) == (UNKNOWN, "could_not_run", ("host node-3", "host node-5"))


PLUGIN = "node-1:5:6 [0] NCCL INFO NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.\n"
EFA = "node-1:5:6 [0] NCCL INFO NET/OFI Selected provider is efa, fabric is efa (found 32 nics)\n"


def slow_pair(log: str) -> str:
    """A pair of H100 nodes far below its floor, with log lines before the table."""
    return text_of("nccl_17").replace("Using network Socket", "x").replace("Selected Provider is tcp;ofi_rxm\n", f"x\n{log}")


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        ("node-1:5:6 [0] NCCL INFO Initialized NET plugin Socket\n", "wrong_transport"),
        ("node-1:5:6 [0] NCCL INFO Assigned NET plugin Socket to comm\n", "wrong_transport"),
        ("node-1:5:6 [0] NCCL INFO Channel 00/0 : 8[0] -> 0[0] [receive] via NET/Socket/0\n", "wrong_transport"),
        ("node-1:5:6 [0] NCCL INFO NET/OFI Selected provider is tcp, fabric is 10.0.0.0/24\n", "wrong_transport"),
        (PLUGIN, "wrong_transport"),
        ("node-1:5:6 [0] NCCL INFO NET/Plugin : Plugin load (libnccl-net.so) returned 2\n", "wrong_transport"),
        (PLUGIN + EFA, "low_bandwidth"),
        (EFA, "low_bandwidth"),
    ],
)
def test_each_way_to_say_that_efa_was_not_used_is_the_wrong_transport(log: str, cause: str) -> None:
    judgement = judge(slow_pair(log), "p5.48xlarge", 2, 0)
    assert (judgement.verdict, judgement.cause) == (CRITICAL, cause)


def test_errors_listed_in_json_are_judged_although_the_run_came_to_its_end() -> None:
    document = json.loads(text_of("nccl_24"))
    document["errors"] = ["node-2: Test CUDA failure common.cu:1 'unspecified launch failure'"]
    judgement = judge(json.dumps(document), "p5.48xlarge", 2, 0)
    assert (judgement.verdict, judgement.cause, judgement.culprits) == (CRITICAL, "gpu_error", ("host node-2",))


@pytest.mark.parametrize(
    "words",
    [
        "PRTE has lost communication with a remote daemon.",
        'Error from server (NotFound): pods "nccl-launcher" not found',
        "It looks like MPI_INIT failed for some reason; your parallel process is likely to abort.",
        "srun: error: Unable to allocate resources: Requested node configuration is not available",
    ],
)
def test_a_launcher_that_started_nothing_says_nothing_of_the_hardware(words: str) -> None:
    judgement = judge(words + "\n", "p5.48xlarge", 2)
    assert (judgement.verdict, judgement.cause) == (UNKNOWN, "could_not_run")


@pytest.mark.parametrize(
    ("log", "verdict", "cause"),
    [
        ("NVLS multicast support is not available on dev 0", WARN, "configuration"),
        ("NCCL_NVLS_ENABLE set by environment to 0.", WARN, "configuration"),
        ("24 coll channels, 24 collnet channels, 0 nvls channels, 32 p2p channels", WARN, "configuration"),
        ("NCCL_ALGO set by environment to Ring", WARN, "configuration"),
        ("24 coll channels, 24 collnet channels, 16 nvls channels, 32 p2p channels", CRITICAL, "low_bandwidth"),
        ("NVLS multicast support is available on dev 0", CRITICAL, "low_bandwidth"),
    ],
)
def test_the_rate_of_the_ring_is_a_setting_only_where_nvls_was_not_used(log: str, verdict: Verdict, cause: str) -> None:
    judgement = judge(f"node-1:5:6 [0] NCCL INFO {log}\n{text_of('nccl_19')}", "p5.48xlarge", 1, 0)
    assert (judgement.verdict, judgement.cause) == (verdict, cause)
