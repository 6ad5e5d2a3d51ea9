"""The judge of ib_write_bw: the link's own rate is the reference, in every unit and shape of the table."""

from __future__ import annotations

import json
from typing import Any

import pytest

from checks.judges.judgement import Judgement
from checks.judges.tools import judge
from checks.model import Verdict
from tests.checks.judging import text_of

OK, WARN, CRITICAL, UNKNOWN = Verdict.OK, Verdict.WARN, Verdict.CRITICAL, Verdict.UNKNOWN
RULE = "-" * 87 + "\n"


def judged(text: str, link: float | None = 400, **options: Any) -> Judgement:
    return judge("ib_write_bw", text, link_gbits=link, **options)


def run_of(
    *rows: tuple[int, float], unit: str = "Gb/sec", title: str = "RDMA_Write BW Test", device: str = "mlx5_0",
    dual: str = "OFF", end: bool = True,
) -> str:  # fmt: skip
    table = "".join(f" {size:<10} 5000             {rate + 1:.2f}             {rate:.2f} \t\t   0.7\n" for size, rate in rows)
    return (
        f"{RULE}                    {title}\n Dual-port       : {dual}\t\tDevice         : {device}\n{RULE}"
        " local address: LID 0x0c QPN 0x012f PSN 0x10a0b0\n remote address: LID 0x0d QPN 0x012e PSN 0x10a0b1\n"
        f"{RULE} #bytes     #iterations    BW peak[{unit}]    BW average[{unit}]   MsgRate[Mpps]\n{table}" + (RULE if end else "")
    )


@pytest.mark.parametrize(
    ("rate", "verdict", "cause"),
    [
        (391.4, OK, "healthy"),
        (388.8, OK, "healthy"),
        (369.0, WARN, "low_bandwidth"),
        (325.0, CRITICAL, "low_bandwidth"),
        (98.0, CRITICAL, "low_bandwidth"),
        (0.0, CRITICAL, "low_bandwidth"),
    ],
)
def test_a_rate_is_held_against_its_link(rate: float, verdict: Verdict, cause: str) -> None:
    judgement = judged(run_of((65536, rate)))
    assert (judgement.verdict, judgement.cause, judgement.measured, judgement.floor) == (verdict, cause, rate, 360.0)


@pytest.mark.parametrize("link", [100.0, 200.0, 800.0])
def test_links_of_any_rate_are_judged_alike(link: float) -> None:
    assert judged(run_of((65536, 0.97 * link)), link).verdict is OK
    assert judged(run_of((65536, 0.93 * link)), link).verdict is WARN
    assert judged(run_of((65536, 0.5 * link)), link).verdict is CRITICAL


@pytest.mark.parametrize("unit", ["MiB/sec", "MB/sec"])
def test_bytes_a_second_are_converted(unit: str) -> None:
    judgement = judged(run_of((65536, 46600.0), unit=unit))
    assert (judgement.verdict, judgement.unit) == (OK, "Gb/s")
    assert judgement.measured == pytest.approx(390.91, abs=0.01)
    assert judged(run_of((65536, 23300.0), unit=unit)).verdict is CRITICAL


def test_an_unknown_unit_is_unreadable() -> None:
    judgement = judged(run_of((65536, 390.0), unit="furlong/sec"))
    assert (judgement.verdict, judgement.cause) == (UNKNOWN, "unreadable")


def test_half_width_is_recognised() -> None:
    assert "1/2" in judged(text_of("ib_write_bw_ndr400_half_width")).evidence


def test_all_sizes_are_judged_by_the_largest() -> None:
    sweep = [(2 << power, min(391.0, 0.04 * (2 << power))) for power in range(22)]
    assert judged(run_of(*sweep)).verdict is OK
    assert judged(run_of(*sweep[:-1], (8388608, 200.0))).verdict is CRITICAL


def test_a_sweep_that_stops_in_the_middle_hangs() -> None:
    judgement = judged(run_of((65536, 391.0), (131072, 391.0), end=False), exit_status=124)
    assert (judgement.verdict, judgement.cause, judgement.culprits) == (CRITICAL, "hang", ("device mlx5_0",))


def test_messages_too_small_to_fill_the_link_say_nothing_against_it() -> None:
    judgement = judged(run_of((4096, 120.0)))
    assert (judgement.verdict, judgement.cause) == (UNKNOWN, "configuration")


def test_both_directions_and_both_ports_must_carry_the_sum() -> None:
    both = "RDMA_Write Bidirectional BW Test"
    assert judged(run_of((65536, 770.0), title=both)).verdict is OK
    assert judged(run_of((65536, 391.0), title=both)).verdict is CRITICAL
    assert judged(run_of((65536, 780.0), dual="ON")).verdict is OK
    assert judged(run_of((65536, 391.0), dual="ON")).verdict is CRITICAL


def test_more_than_the_link_can_carry_means_that_its_rate_was_told_wrong() -> None:
    judgement = judged(run_of((65536, 391.0)), 200)
    assert (judgement.verdict, judgement.cause) == (UNKNOWN, "configuration")


def test_without_the_rate_of_the_link_nothing_passes() -> None:
    judgement = judged(run_of((65536, 391.0)), None)
    assert (judgement.verdict, judgement.measured) == (UNKNOWN, 391.0)
    assert "--link-gbits" in judgement.next


def test_an_own_floor_of_the_link_holds_first() -> None:
    assert judged(run_of((65536, 369.0)), floors={"ib_write_bw/400": 330.0}).verdict is OK
    assert judged(run_of((65536, 391.0)), floors={"ib_write_bw/400": 395.0}).verdict is CRITICAL


def test_of_several_adapters_in_one_output_the_slow_ones_are_named() -> None:
    text = "".join(run_of((65536, 196.0 if at in (2, 5) else 391.0), device=f"mlx5_{at}") for at in range(8))
    judgement = judged(text)
    assert (judgement.verdict, judgement.culprits) == (CRITICAL, ("device mlx5_2", "device mlx5_5"))


def test_an_error_completion_is_a_fault_of_the_network() -> None:
    error = " Completion with error at client\n Failed status 12: wr_id 0 syndrom 0x81\nscnt=128, ccnt=0\n"
    judgement = judged(run_of(end=False) + error, exit_status=1)
    assert (judgement.verdict, judgement.cause, judgement.culprits) == (CRITICAL, "network_error", ("device mlx5_0",))


def test_a_port_that_is_down_is_a_fault_of_the_network() -> None:
    judgement = judged(" Port number 1 state is Down\n Couldn't set the link layer\n Couldn't get context for the device\n")
    assert (judgement.verdict, judgement.cause) == (CRITICAL, "network_error")


@pytest.mark.parametrize(
    "words",
    [
        "IB device mlx5_9 not found\n Unable to find the Infiniband/RoCE device\n",
        "Couldn't connect to node-2:18515\nUnable to open file descriptor for socket connection",
        "bash: ib_write_bw: command not found\n",
        "\n************************************\n* Waiting for client to connect... *\n************************************\n",
    ],
)
def test_a_test_whose_sides_never_met_is_no_verdict_on_the_link(words: str) -> None:
    judgement = judged(words, exit_status=1)
    assert (judgement.verdict, judgement.cause) == (UNKNOWN, "could_not_run")


def test_an_average_that_is_no_number_is_unreadable() -> None:
    for word in ("nan", "inf", "-1.00", "err"):
        judgement = judged(run_of((65536, 391.0)).replace("391.00", word))
        assert (judgement.verdict, judgement.cause) == (UNKNOWN, "unreadable")


def json_of(rate: float, messages: float, size: int = 65536, test: str = "RDMA_Write BW Test", dual: str = "OFF") -> str:
    """What --out_json writes."""
    results = {"MsgSize": size, "n_iterations": 5000, "BW_peak": rate, "BW_average": rate, "MsgRate": messages}
    return json.dumps({"test_info": {"test": test, "Dual_port": dual, "Device": "mlx5_3"}, "results": results}, indent=1)


def test_the_unit_of_json_is_told_by_the_rate_of_messages() -> None:
    for rate in (391.44, 46663.5):
        judgement = judged(json_of(rate, 0.746613))
        assert judgement.verdict is OK
        assert judgement.measured == pytest.approx(391.44, abs=0.01)
    judgement = judged(json_of(196.88, 0.375519))
    assert (judgement.verdict, judgement.cause, judgement.culprits) == (CRITICAL, "low_bandwidth", ("device mlx5_3",))
    assert judged(json_of(391.44, 0.746613, test="RDMA_Write Bidirectional BW Test")).cause == "low_bandwidth"
    assert judged(json_of(391.44, 0.746613, dual="ON")).cause == "low_bandwidth"


@pytest.mark.parametrize(
    "text", [json_of(391.44, 0.3), json_of(391.44, 0.0), json_of(391.44, 0.746613)[:150], '{"test_info": 3, "results": {}}']
)
def test_json_that_is_cut_or_contradicts_itself_is_unreadable(text: str) -> None:
    judgement = judged(text)
    assert (judgement.verdict, judgement.cause) == (UNKNOWN, "unreadable")


def test_a_server_that_waits_for_ever_never_met_its_client() -> None:
    stars = "*" * 36
    assert judged(f"\n{stars}\n* Waiting for client to connect... *\n{stars}\n").cause == "could_not_run"
