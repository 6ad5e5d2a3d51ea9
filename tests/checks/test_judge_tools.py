"""All judges through their one door: every sample gets its verdict however it was captured, and garbage never passes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checks.judges.judgement import CAUSES, KILLED_STATUSES
from checks.judges.text import streams
from checks.judges.tools import TOOLS, judge
from checks.model import Verdict
from tests.checks.judging import CAPTURES, SAMPLES, TOOL_OF, judged, text_of

OK, WARN, CRITICAL, UNKNOWN = Verdict.OK, Verdict.WARN, Verdict.CRITICAL, Verdict.UNKNOWN

EXPECTED = {
    "nccl_01": (OK, "healthy"),
    "nccl_02": (OK, "healthy"),
    "nccl_03": (OK, "healthy"),
    "nccl_04": (OK, "healthy"),
    "nccl_06": (OK, "healthy"),
    "nccl_10": (CRITICAL, "data_corruption"),
    "nccl_12": (CRITICAL, "hang"),
    "nccl_13": (CRITICAL, "hang"),
    "nccl_15": (CRITICAL, "network_error"),
    "nccl_17": (CRITICAL, "wrong_transport"),
    "nccl_19": (WARN, "configuration"),
    "nccl_21": (UNKNOWN, "could_not_run"),
    "nccl_22": (OK, "healthy"),
    "nccl_24": (OK, "healthy"),
    "dcgm3_r1_warn_env": (WARN, "configuration"),
    "dcgm3_r2_fail_row_remap_pending": (CRITICAL, "gpu_error"),
    "dcgm3_r2_pass": (OK, "healthy"),
    "dcgm4_r1_fail_persistence_mode_config_only": (WARN, "configuration"),
    "dcgm4_r1_fail_row_remap_pending_reset": (CRITICAL, "gpu_error"),
    "dcgm4_r2_fail_pcie_low_bandwidth_triage": (CRITICAL, "low_bandwidth"),
    "dcgm4_r2_skip_mig_or_vm": (UNKNOWN, "could_not_run"),
    "dcgm4_r3_fail_targeted_power_temp": (CRITICAL, "gpu_error"),
    "dcgm4_r3_fail_xid_and_two_gpus": (CRITICAL, "gpu_error"),
    "dcgm4_r3_pass": (OK, "healthy"),
    "dcgm4_r3_warn_row_remap_history": (WARN, "gpu_error"),
    "dcgm4_runtime_error": (UNKNOWN, "could_not_run"),
    "gpuburn_all_dead": (CRITICAL, "gpu_error"),
    "gpuburn_gpu3_faulty": (CRITICAL, "gpu_error"),
    "gpuburn_ok": (OK, "healthy"),
    "ib_write_bw_connect_refused": (UNKNOWN, "could_not_run"),
    "ib_write_bw_ndr400_half_width": (CRITICAL, "low_bandwidth"),
    "ib_write_bw_ndr400_ok": (OK, "healthy"),
    "nvbandwidth_h100.json": (OK, "healthy"),
    "nvbandwidth_h100_gpu6_pcie_slow": (CRITICAL, "low_bandwidth"),
    "nvbandwidth_h100_ok": (OK, "healthy"),
}


def test_every_sample_is_in_the_table() -> None:
    named = [[key for key in EXPECTED if sample.startswith(key)] for sample in SAMPLES]
    assert all(len(keys) == 1 for keys in named)
    assert len(SAMPLES) == len(EXPECTED)


@pytest.mark.parametrize("capture", CAPTURES)
@pytest.mark.parametrize("sample", EXPECTED)
def test_every_sample_gets_its_verdict_however_it_was_captured(sample: str, capture: str) -> None:
    judgement = judged(sample, CAPTURES[capture](text_of(sample)))
    assert (judgement.verdict, judgement.cause) == EXPECTED[sample]
    assert judgement.culprits == judged(sample).culprits
    assert judgement.measured == judged(sample).measured
    assert judgement.evidence
    assert bool(judgement.next) == (judgement.verdict is not OK)


@pytest.mark.parametrize("sample", [name for name, (verdict, _) in EXPECTED.items() if verdict is OK])
def test_a_perfect_output_of_a_tool_that_failed_does_not_pass(sample: str) -> None:
    for status in (1, 255, *KILLED_STATUSES):
        assert judge(TOOL_OF[sample[:4]], text_of(sample), link_gbits=400, exit_status=status).verdict is not OK


@pytest.mark.parametrize("tool", TOOLS)
def test_output_of_another_tool_does_not_pass(tool: str) -> None:
    for sample in SAMPLES:
        if TOOL_OF[sample[:4]] != tool:
            assert judge(tool, text_of(sample), link_gbits=400).verdict in (UNKNOWN, CRITICAL)


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize(
    "text", ["", "\n\n", "OK\n", "{}", "[]", "null", "{" * 5000, "[" * 100_000, '{"a":' * 3000, "\x1b]" * 999]
)
def test_what_says_nothing_is_unknown(tool: str, text: str) -> None:
    judgement = judge(tool, text)
    assert judgement.verdict is UNKNOWN
    assert judgement.cause in ("unreadable", "could_not_run")


@pytest.mark.parametrize("sample", [name for name in SAMPLES if name.endswith(".json")])
def test_json_that_is_cut_is_unreadable_wherever_it_is_cut(sample: str) -> None:
    text = text_of(sample).rstrip()
    for cut in range(1, len(text), max(1, len(text) // 40)):
        judgement = judged(sample, text[:cut])
        assert (judgement.verdict, judgement.cause) == (UNKNOWN, "unreadable")


@pytest.mark.parametrize("sample", [name for name in SAMPLES if name.endswith(".json")])
def test_json_among_log_lines_reads_as_alone(sample: str) -> None:
    log = 'INFO {"not": "ours"} starting\n{"level": "info", "msg": "structured"}\n'
    assert judged(sample, f"{log}{text_of(sample)}\nINFO done\n") == judged(sample)


@pytest.mark.parametrize("sample", [name for name in SAMPLES if name.endswith(".json")])
def test_json_that_begins_within_a_line_or_is_indented_reads_as_alone(sample: str) -> None:
    assert judged(sample, f"stdout: {text_of(sample)}") == judged(sample)
    assert judged(sample, text_of(sample).replace("\n", "\n    ").replace("{", "    {", 1)) == judged(sample)


@pytest.mark.parametrize("sample", [name for name in SAMPLES if name.endswith(".json")])
def test_json_on_one_line_reads_as_on_many(sample: str) -> None:
    assert judged(sample, json.dumps(json.loads(text_of(sample)))).verdict is judged(sample).verdict


@pytest.mark.parametrize("good", ["dcgm4_r3_pass", "gpuburn_ok", "nvbandwidth_h100_ok", "ib_write_bw_ndr400_ok"])
def test_of_two_hosts_in_one_capture_the_sick_one_is_named(good: str) -> None:
    bad = {
        "dcgm": "dcgm4_r3_fail_xid",
        "gpub": "gpuburn_gpu3",
        "nvba": "nvbandwidth_h100_gpu6",
        "ib_w": "ib_write_bw_ndr400_half",
    }
    lines = [f"node-1: {line}" for line in text_of(good).replace("\r", "\n").split("\n")]
    sick = [f"node-2: {line}" for line in text_of(bad[good[:4]]).replace("\r", "\n").split("\n")]
    both = "\n".join(line for pair in zip(lines, sick, strict=False) for line in pair)
    both += "\n" + "\n".join(lines[len(sick) :] + sick[len(lines) :])
    judgement = judged(good, both)
    assert judgement.verdict is CRITICAL
    assert "host node-2" in judgement.culprits
    assert "host node-1" not in judgement.culprits
    assert set(judged(bad[good[:4]]).culprits) < set(judgement.culprits)


def test_lines_of_the_launcher_belong_to_every_task() -> None:
    assert streams("srun: step 1\n0: a\n1: b\n0: c") == [("task 0", "srun: step 1\na\nc"), ("task 1", "srun: step 1\nb")]


ODD = {
    "blanks": " " * 1_000_000,
    "carriage returns": "\r" * 1_000_000,
    "one digit": "1" * 1_000_000,
    "digits and blanks": "1 " * 500_000,
    "open braces": "{\n" * 500_000,
    "open keys": '{"a":' * 200_000,
    "labels of tasks": "".join(f"{task}: x\n" for task in range(100_000)),
    "labels of hosts": "".join(f"h{host}: x\n" for host in range(100_000)),
    "one row for ever": "8 2 float sum -1 " * 60_000,
    "progress without end": "1% proc'd:" + " " * 1_000_000,
    "terminal codes": "\x1b]" * 500_000,
}


@pytest.mark.timeout(240)
@pytest.mark.parametrize("text", ODD.values(), ids=ODD.keys())
@pytest.mark.parametrize("tool", TOOLS)
def test_a_megabyte_of_odd_text_is_judged_and_does_not_pass(tool: str, text: str) -> None:
    assert judge(tool, text, link_gbits=400).verdict is not OK


def test_an_unknown_tool_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="nccl-tests, dcgm"):
        judge("memtest", "")


LINES = st.sampled_from(sorted({line for sample in SAMPLES for line in text_of(sample).replace("\r", "\n").split("\n")}))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)


@settings(deadline=None, derandomize=True, max_examples=300)
@given(st.sampled_from(TOOLS), st.text(max_size=600) | st.binary(max_size=600).map(lambda data: data.decode("latin-1")))
def test_garbage_never_passes(tool: str, garbage: str) -> None:
    judgement = judge(tool, garbage, instance_type="p5.48xlarge", nodes=2, link_gbits=400, exit_status=0)
    assert judgement.verdict is UNKNOWN
    assert judgement.cause in CAUSES


@settings(deadline=None, derandomize=True, max_examples=300)
@given(st.sampled_from(TOOLS), st.lists(LINES, max_size=30))
def test_shuffled_lines_of_real_outputs_always_have_a_judgement(tool: str, lines: list[str]) -> None:
    judgement = judge(tool, "\n".join(lines), link_gbits=400)
    assert judgement.cause in CAUSES
    assert judgement.evidence
    json.dumps(judgement.document(), allow_nan=False)


@settings(deadline=None, derandomize=True, max_examples=200)
@given(st.sampled_from([name for name in SAMPLES if not name.endswith(".json")]), st.floats(0, 0.9), st.text(max_size=80))
def test_text_that_is_cut_never_passes(sample: str, share: float, garbage: str) -> None:
    text = text_of(sample)
    cut = text[: int(len(text) * share)]
    assert judged(sample, cut).verdict is not OK
    assert judged(sample, f"{cut}\n{garbage}").verdict is not OK


@settings(deadline=None, derandomize=True, max_examples=300)
@given(st.sampled_from([name for name in SAMPLES if name.endswith(".json")]), st.data(), JSON)
def test_any_change_inside_json_has_a_judgement(sample: str, data: st.DataObject, value: object) -> None:
    document = json.loads(text_of(sample))
    at = document
    while isinstance(at, (dict, list)) and at:
        key = data.draw(st.sampled_from(list(at) if isinstance(at, dict) else list(range(len(at)))))
        if not isinstance(at[key], (dict, list)) or not at[key] or data.draw(st.booleans()):
            at[key] = value
            break
        at = at[key]
    judgement = judged(sample, json.dumps(document))
    assert judgement.cause in CAUSES
    json.dumps(judgement.document(), allow_nan=False)
