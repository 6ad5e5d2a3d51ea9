"""The judge of gpu-burn: every GPU named as good, and no death, wrong result or idle GPU before."""

from __future__ import annotations

import re

import pytest

from checks.judges.judgement import Judgement
from checks.judges.tools import judge
from checks.model import Verdict
from tests.checks.judging import text_of

OK, WARN, CRITICAL, UNKNOWN = Verdict.OK, Verdict.WARN, Verdict.CRITICAL, Verdict.UNKNOWN
GOOD = text_of("gpuburn_ok")


def judged(text: str, instance_type: str = "", exit_status: int | None = 0) -> Judgement:
    return judge("gpu-burn", text, instance_type=instance_type, exit_status=exit_status)


def run_of(gflops: list[list[int]], words: list[str] | None = None, errors: str = "", end: bool = True) -> str:
    """A run as gpu-burn prints it: one list of speeds a report; `errors` replaces the counts of the last report."""
    gpus = len(gflops[0])
    text = "Burning for 60 seconds.\n"
    for number, speeds in enumerate(gflops, 1):
        work = " - ".join(f"{number * 900 if speed >= 0 else -1} ({max(speed, 0)} Gflop/s)" for speed in speeds)
        counts = errors if errors and number == len(gflops) else "- ".join(["0 "] * gpus)
        temperatures = "- ".join(["60 C "] * gpus)
        text += f"\r{100 * number / len(gflops):.1f}%  proc'd: {work}   errors: {counts}  temps: {temperatures}"
    if end:
        text += f"\nKilling processes with SIGTERM (soft kill)\ndone\n\nTested {gpus} GPUs:\n"
        text += "".join(f"\tGPU {gpu}: {word}\n" for gpu, word in enumerate(words or ["OK"] * gpus))
    return text


@pytest.mark.parametrize("gpus", [1, 2, 4, 8, 16])
def test_any_number_of_gpus_can_pass(gpus: int) -> None:
    assert judged(run_of([[49000] * gpus] * 5)).verdict is OK


def test_each_faulty_gpu_of_the_summary_is_named() -> None:
    judgement = judged(run_of([[49000] * 4] * 3, ["OK", "FAULTY", "OK", "FAULTY"]))
    assert (judgement.verdict, judgement.cause, judgement.culprits) == (CRITICAL, "gpu_error", ("GPU 1", "GPU 3"))


def test_a_gpu_that_died_is_faulty_whatever_the_summary_says() -> None:
    judgement = judged(run_of([[49000] * 4, [49000, 49000, -1, 49000]]))
    assert (judgement.verdict, judgement.culprits) == (CRITICAL, ("GPU 2",))
    assert "died" in judgement.evidence


def test_errors_of_a_report_count_whatever_the_summary_says() -> None:
    judgement = judged(run_of([[49000] * 3] * 2, errors="0 - 0 - 17  (WARNING!)"))
    assert (judgement.verdict, judgement.culprits, judgement.wrong) == (CRITICAL, ("GPU 2",), 17)


def test_a_gpu_that_never_computed_is_not_a_pass() -> None:
    idle = run_of([[49000] * 4] * 4).replace("3600 (49000 Gflop/s)   errors", "0 (0 Gflop/s)   errors")
    judgement = judged(idle)
    assert (judgement.verdict, judgement.culprits) == (CRITICAL, ("GPU 3",))


def test_a_gpu_well_below_its_peers_warns() -> None:
    judgement = judged(run_of([[49000, 49100, 38000, 48800]] * 5))
    assert (judgement.verdict, judgement.culprits, judgement.measured) == (WARN, ("GPU 2",), 38000.0)


def test_a_slow_first_report_alone_does_not_warn() -> None:
    assert judged(run_of([[20000, 49000, 49000, 49000], *[[49000] * 4] * 6])).verdict is OK


def test_lost_carriage_returns_change_nothing() -> None:
    assert judged(GOOD.replace("\r", "")).verdict is OK
    faulty = text_of("gpuburn_gpu3_faulty").replace("\r", "")
    assert judged(faulty).culprits == ("GPU 3",)


def test_a_run_without_summary_is_a_hang_and_says_how_far_it_came() -> None:
    judgement = judged(run_of([[49000] * 4] * 4, end=False), exit_status=124)
    assert (judgement.verdict, judgement.cause) == (CRITICAL, "hang")
    assert "100 %" in judgement.evidence


def test_a_summary_that_names_fewer_gpus_than_it_announces_is_cut() -> None:
    judgement = judged(GOOD.replace("\tGPU 7: OK\n", ""))
    assert (judgement.verdict, judgement.cause) == (UNKNOWN, "unreadable")


def test_a_gpu_that_the_summary_names_twice_is_no_stand_in_for_another() -> None:
    judgement = judged(GOOD.replace("\tGPU 6: OK\n", "\tGPU 2: OK\n"))
    assert (judgement.verdict, judgement.cause) == (UNKNOWN, "unreadable")


def test_fewer_gpus_than_the_node_has_are_not_a_pass() -> None:
    seven = run_of([[49000] * 7] * 3)
    assert judged(seven, "p5.48xlarge").cause == "could_not_run"
    listed = "".join(line for line in GOOD.splitlines(keepends=True) if re.match(r"GPU \d: NVIDIA", line))
    assert judged(listed + seven).cause == "could_not_run"


@pytest.mark.parametrize(
    "words",
    [
        "No CUDA devices\n",
        "Couldn't init CUDA: Error (gpu_burn-drv.cpp:200): system not yet initialized\nNo CUDA devices\n",
        "Burning for 60 seconds.\nCouldn't init a GPU test: couldn't find compare kernel: compare.ptx (gpu_burn-drv.cpp:1)\n",
        'Failure during compute: Error in "cuInit": no CUDA-capable device is detected\n',
        "bash: ./gpu_burn: No such file or directory\n",
    ],
)
def test_a_run_that_could_not_start_is_no_verdict_on_hardware(words: str) -> None:
    judgement = judged(words, exit_status=1)
    assert (judgement.verdict, judgement.cause) == (UNKNOWN, "could_not_run")


def test_a_failure_while_computing_is_an_error_of_the_gpu() -> None:
    text = (
        run_of([[49000] * 2] * 2, end=False) + "\nFailure during compute: Error in SGEMM (a.cpp:1): unspecified launch failure\n"
    )
    judgement = judged(text, exit_status=1)
    assert (judgement.verdict, judgement.cause) == (CRITICAL, "gpu_error")
