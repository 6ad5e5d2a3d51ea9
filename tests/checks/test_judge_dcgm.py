"""The judge of `dcgmi diag -j`: status, severity and category of every entity, and never a replacement for a setting."""

from __future__ import annotations

import json
from typing import Any

import pytest

from checks.judges.judgement import Judgement
from checks.judges.tools import judge
from checks.model import Verdict
from tests.checks.judging import text_of

OK, WARN, CRITICAL, UNKNOWN = Verdict.OK, Verdict.WARN, Verdict.CRITICAL, Verdict.UNKNOWN


def judged(document: Any, **options: Any) -> Judgement:
    return judge("dcgm", document if isinstance(document, str) else json.dumps(document), **options)


def passing() -> Any:
    """A run of level 3 over eight GPUs in which all passes."""
    return json.loads(text_of("dcgm4_r3_pass"))


def by_name(document: Any) -> dict[str, Any]:
    return {test["name"]: test for group in document["DCGM Diagnostic"]["test_categories"] for test in group["tests"]}


def with_result(test: str, gpu: int, status: str, severity: int | None = None, category: int = 10, error: int = 52) -> Any:
    """The passing run with another result for one GPU."""
    document = passing()
    result = by_name(document)[test]["results"][gpu]
    result["status"] = status
    if severity is not None:
        result["warnings"] = [
            {"warning": f"trouble with GPU {gpu}", "error_severity": severity, "error_category": category, "error_id": error}
        ]
    return document


@pytest.mark.parametrize("severity", [0, 1, 2, 3, 4, 6])
def test_a_failed_test_is_critical_at_every_severity_but_configuration(severity: int) -> None:
    judgement = judged(with_result("memory", 5, "Fail", severity))
    assert (judgement.verdict, judgement.cause, judgement.culprits) == (CRITICAL, "gpu_error", ("GPU 5",))
    assert f"severity {severity}" in judgement.evidence


@pytest.mark.parametrize(("category", "error"), [(3, 29), (8, 29), (10, 52), (13, 30)])
def test_a_result_of_severity_configuration_never_replaces_a_node(category: int, error: int) -> None:
    judgement = judged(with_result("software", 2, "Fail", 5, category, error))
    assert (judgement.verdict, judgement.cause) == (WARN, "configuration")
    assert "never replaced" in judgement.next


def test_a_failing_gpu_is_found_behind_a_passing_first_one() -> None:
    for gpu in range(8):
        assert judged(with_result("diagnostic", gpu, "Fail", 2)).culprits == (f"GPU {gpu}",)


def test_broken_hardware_shows_through_a_wrong_setting_and_is_blamed_alone() -> None:
    document = json.loads(text_of("dcgm4_r1_fail_persistence_mode_config_only"))
    document["DCGM Diagnostic"]["test_categories"][0]["tests"][0]["results"][6]["warnings"].append(
        {"warning": "GPU 6 fell off the bus", "error_severity": 2, "error_category": 13, "error_id": 120}
    )
    judgement = judged(document)
    assert (judgement.verdict, judgement.cause, judgement.culprits) == (CRITICAL, "gpu_error", ("GPU 6",))
    assert "besides" in judgement.evidence


def test_the_gravest_of_several_faults_decides_what_to_do() -> None:
    document = with_result("targeted_stress", 1, "Fail", 1, 9, 42)
    by_name(document)["memory"]["results"][4] = with_result("memory", 4, "Fail", 6, 10, 80)["DCGM Diagnostic"]["test_categories"][
        2
    ]["tests"][0]["results"][4]
    judgement = judged(document)
    assert "replace the node" in judgement.next
    assert set(judgement.culprits) == {"GPU 1", "GPU 4"}


def test_a_skipped_test_of_one_gpu_is_not_a_pass_of_the_run() -> None:
    judgement = judged(with_result("pcie", 3, "Skip"))
    assert (judgement.verdict, judgement.cause, judgement.culprits) == (UNKNOWN, "could_not_run", ("GPU 3",))


@pytest.mark.parametrize("status", ["Not Run", "Not run", "", "Aborted", "PASS-ish"])
def test_a_status_that_is_not_known_is_not_a_pass(status: str) -> None:
    assert judged(with_result("pcie", 3, status)).verdict is UNKNOWN


def test_tests_skipped_because_of_a_setting_leave_the_setting_as_the_cause() -> None:
    document = with_result("software", 0, "Fail", 5)
    for result in by_name(document)["memory"]["results"]:
        result["status"] = "Skip"
    judgement = judged(document)
    assert (judgement.verdict, judgement.cause) == (WARN, "configuration")
    assert "skipped" in judgement.evidence


def test_a_fault_of_the_tool_or_a_library_says_nothing_of_the_gpu() -> None:
    for category, error in ((4, 40), (16, 50), (15, 130)):
        judgement = judged(with_result("diagnostic", 3, "Fail", 4, category, error))
        assert (judgement.verdict, judgement.cause) == (UNKNOWN, "could_not_run")


def test_a_failed_summary_over_passing_results_is_not_a_pass() -> None:
    document = passing()
    by_name(document)["nvbandwidth"]["test_summary"]["status"] = "Fail"
    assert judged(document).verdict is CRITICAL


def test_a_run_without_any_test_is_not_a_pass() -> None:
    for categories in ([], [{"category": "Deployment", "tests": []}], None):
        judgement = judged({"DCGM Diagnostic": {"test_categories": categories}})
        assert (judgement.verdict, judgement.cause) == (UNKNOWN, "could_not_run")


def test_a_newer_document_under_an_unknown_key_is_not_a_pass() -> None:
    document = passing()
    document["DCGM 5 Diagnostic"] = document.pop("DCGM Diagnostic")
    judgement = judged(document)
    assert (judgement.verdict, judgement.cause) == (UNKNOWN, "unreadable")


def test_a_gpu_that_no_test_names_is_missed() -> None:
    document = passing()
    for test in by_name(document).values():
        del test["results"][7]
    judgement = judged(document)
    assert (judgement.verdict, judgement.culprits) == (UNKNOWN, ("GPU 7",))
    del document["entity_groups"]
    assert judged(document).verdict is OK
    assert judged(document, instance_type="p5.48xlarge").verdict is UNKNOWN


def test_a_gpu_that_one_test_leaves_out_is_missed() -> None:
    document = passing()
    del by_name(document)["pcie"]["results"][2]
    judgement = judged(document)
    assert (judgement.verdict, judgement.cause, judgement.culprits) == (UNKNOWN, "could_not_run", ("GPU 2",))


def test_the_measured_bandwidth_and_dcgms_own_minimum_are_told() -> None:
    judgement = judged(text_of("dcgm4_r2_fail_pcie"))
    assert (judgement.measured, judgement.floor, judgement.floor_source) == (24.61, 40.0, "DCGM's own minimum")


def test_an_xid_leads_to_its_explanation() -> None:
    assert "hotspare explain 79" in judged(text_of("dcgm4_r3_fail_xid")).next


def old(results: list[dict[str, Any]], test: str = "PCIe") -> Any:
    return {"DCGM GPU Diagnostic": {"test_categories": [{"category": "Any", "tests": [{"name": test, "results": results}]}]}}


def test_the_third_release_is_read_per_gpu_too() -> None:
    results: list[dict[str, Any]] = [
        {"gpu_id": "0", "status": "Pass"},
        {"gpu_id": "1", "status": "Fail", "warnings": "GPU 1: bad"},
    ]
    assert judged(old(results)).culprits == ("GPU 1",)
    results = [{"gpu_ids": "0,1,2", "status": "Pass"}, {"gpu_ids": "3, 5", "status": "Fail", "warnings": ["bad"]}]
    assert judged(old(results)).culprits == ("GPU 3", "GPU 5")
    results = [{"gpu_ids": [0, 1], "status": "Pass", "info": ["Allocated 1 byte"]}]
    assert judged(old(results)).verdict is OK


def test_a_deployment_test_of_the_third_release_without_severity_is_configuration() -> None:
    judgement = judged(old([{"gpu_ids": "0,1", "status": "Fail", "warnings": "Persistence mode is off"}], "Persistence Mode"))
    assert (judgement.verdict, judgement.cause) == (WARN, "configuration")


def test_a_diagnostic_that_broke_off_after_a_fault_still_tells_the_fault() -> None:
    document = with_result("memory", 1, "Fail", 2)
    document["DCGM Diagnostic"]["runtime_error"] = "the host engine went away"
    assert judged(document).culprits == ("GPU 1",)
    document = passing()
    document["DCGM Diagnostic"]["runtime_error"] = "the host engine went away"
    assert judged(document).cause == "could_not_run"


def test_words_instead_of_json_say_what_is_missing() -> None:
    refused = judged("Error: unable to establish a connection to the specified host: localhost\n")
    assert (refused.verdict, refused.cause) == (UNKNOWN, "could_not_run")
    table = judged("Successfully ran diagnostic for group.\n| Diagnostic | Result |\n| pcie | Pass - All |\n")
    assert (table.verdict, table.cause) == (UNKNOWN, "unreadable")
    assert "-j" in table.evidence


def test_the_worst_of_two_documents_counts() -> None:
    both = text_of("dcgm4_r3_pass") + text_of("dcgm4_r1_fail_row_remap")
    assert (judged(both).verdict, judged(both).culprits[0]) == (CRITICAL, "GPU 3")
    cut = text_of("dcgm4_r3_pass") + text_of("dcgm4_r1_fail_row_remap")[:900]
    assert judged(cut).verdict is UNKNOWN
