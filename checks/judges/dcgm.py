"""Judges `dcgmi diag -j` by status, severity and category per entity: a setting is never taken for broken hardware."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Optional

from checks.catalog import expected_gpus
from checks.judges import dcgm_output as dcgm
from checks.judges import judgement as causes
from checks.judges.dcgm_output import DiagError, Diagnostic, NotReadable, Result
from checks.judges.judgement import Judgement, unknown, unreadable, worst
from checks.judges.text import CutJson, json_documents, last_line
from checks.model import Verdict

_DEPLOYMENT = re.compile(
    r"denylist|nvml library|cuda (?:main|toolkit) library|permission|persistence|environment|graphics process|fabric manager",
    re.IGNORECASE,
)
"""Tests of DCGM 3 that look at the node's set-up, for releases that print no severity."""

_BANDWIDTH_ID, _RETEST_ID = 30, 130
_REMAP_FAILURE_IDS, _FALLEN_OFF_ID, _RECOVERY_IDS = {80, 132}, 120, {125, 126, 127, 128}
"""Error ids that decide by themselves. Source: dcgm_errors.h of DCGM 4."""

_BELOW = re.compile(r"(\d+(?:\.\d+)?) did not (?:exceed|meet) (?:the )?minimum (?:required )?\w+ of (\d+(?:\.\d+)?)")
_COULD_NOT_RUN = re.compile(
    r"unable to (?:establish|connect)|command not found|error while loading|host engine|Permission denied", re.I
)


@dataclass(frozen=True)
class _Problem:
    verdict: Verdict
    cause: str
    result: Result
    error: DiagError
    advice: str

    @property
    def rank(self) -> tuple[int, int]:
        """Order of telling: the worst verdict first, then the gravest severity."""
        order = (Verdict.CRITICAL, Verdict.WARN, Verdict.UNKNOWN).index(self.verdict)
        if self.cause == causes.CONFIGURATION:
            return order, len(_GRAVEST_FIRST)
        return order, _GRAVEST_FIRST.index(self.error.severity) if self.error.severity in _GRAVEST_FIRST else 0


_GRAVEST_FIRST = (dcgm.ISOLATE, dcgm.RESET, dcgm.TRIAGE, dcgm.UNKNOWN, None, dcgm.MONITOR, dcgm.NONE)


def judge(text: str, instance_type: str = "", exit_status: Optional[int] = None) -> Judgement:
    """Judge the JSON of one or several diagnostics, also among log lines, plain and without prefixes.

    Never OK unless every test of every GPU passed: a skipped test is not a pass, a diagnostic that did not run says nothing.
    """
    try:
        documents = [one for one in json_documents(text) if {dcgm.KEY_3, dcgm.KEY_4} & set(one) or "runtime_error" in one]
        diagnostics = [dcgm.read(one if {dcgm.KEY_3, dcgm.KEY_4} & set(one) else {dcgm.KEY_4: one}) for one in documents]
    except CutJson as error:
        return unreadable("dcgmi diag", f"the JSON is cut: {error}")
    except NotReadable as error:
        return unreadable("dcgmi diag", str(error))
    if diagnostics:
        judged = [_judge_one(one, instance_type, exit_status) for one in diagnostics]
        return worst([(f"diagnostic {number}", one) for number, one in enumerate(judged, 1)])
    last = last_line(text.split("\n"))
    if not last or _COULD_NOT_RUN.search(text[:20000]):
        what = (last or "nothing was printed") + ("" if exit_status is None else f" (exit status {exit_status})")
        return unknown(causes.COULD_NOT_RUN, what, "check that nv-hostengine runs on the node, then run again", line=last)
    return unreadable("dcgmi diag", "there is no JSON of a DCGM diagnostic; run dcgmi diag with -j")


def _judge_one(diagnostic: Diagnostic, instance_type: str, exit_status: Optional[int]) -> Judgement:
    problems = sorted((one for result in diagnostic.results for one in _problems(result)), key=lambda one: one.rank)
    if problems:
        return _told(problems)
    if diagnostic.runtime_error:
        advice = "check nv-hostengine and its driver on the node, then run again; this says nothing of the hardware"
        return unknown(causes.COULD_NOT_RUN, diagnostic.runtime_error, advice, line=diagnostic.runtime_error)
    if not diagnostic.tested:
        return unknown(causes.COULD_NOT_RUN, "no test says anything of a GPU", "run the diagnostic again, on all GPUs")
    expected = max(expected_gpus(instance_type) or 0, len(set(diagnostic.gpus)))
    if len(diagnostic.tested) < expected:
        missing = tuple(sorted(set(diagnostic.gpus) - diagnostic.tested))
        evidence = f"{len(diagnostic.tested)} of {expected} GPUs were tested"
        return unknown(causes.COULD_NOT_RUN, evidence, "find out why the others were not tested", missing)
    for test, gpus in diagnostic.left_out.items():
        evidence = f"{test} says nothing of {', '.join(sorted(gpus))}"
        return unknown(causes.COULD_NOT_RUN, evidence, "find out why they were not tested", tuple(sorted(gpus)))
    if exit_status not in (None, 0):
        evidence = f"every test passed, yet the exit status is {exit_status}"
        return unknown(causes.COULD_NOT_RUN, evidence, "run the diagnostic again and keep its error output")
    tests = len({result.test for result in diagnostic.results})
    evidence = f"{tests} tests passed on {len(diagnostic.tested)} GPUs"
    return Judgement(Verdict.OK, causes.HEALTHY, evidence=evidence)


def _problems(result: Result) -> Iterable[_Problem]:
    errors = result.errors or (DiagError(""),)
    if result.status == "pass":
        # A pass with a remark of a serious kind is a remark; most say how much was measured.
        serious = [error for error in result.errors if error.severity in (dcgm.ISOLATE, dcgm.TRIAGE, dcgm.RESET)]
        return [_Problem(Verdict.WARN, causes.GPU_ERROR, result, error, _advice(error)) for error in serious]
    if result.status == "fail":
        return [_failed(result, error) for error in errors]
    if result.status == "warn":
        return [_warned(result, error) for error in errors]
    what = DiagError(errors[0].text or {"skip": "skipped"}.get(result.status, result.status))
    advice = "find out why it was skipped (MIG mode, a virtual machine, a missing plug-in); a skipped test is not a pass"
    return [_Problem(Verdict.UNKNOWN, causes.COULD_NOT_RUN, result, what, advice)]


def _failed(result: Result, error: DiagError) -> _Problem:
    if _is_configuration(result, error):
        return _Problem(Verdict.WARN, causes.CONFIGURATION, result, error, _CONFIGURE)
    grave = error.severity in (dcgm.ISOLATE, dcgm.RESET)
    if error.error_id == _RETEST_ID or (error.category in (dcgm.LIBRARY, dcgm.INTERNAL) and not grave):
        advice = "run the diagnostic again; the fault is in the test or its libraries, not in the GPU"
        return _Problem(Verdict.UNKNOWN, causes.COULD_NOT_RUN, result, error, advice)
    slow = error.error_id == _BANDWIDTH_ID or error.category in dcgm.PERFORMANCE
    return _Problem(Verdict.CRITICAL, causes.LOW_BANDWIDTH if slow else causes.GPU_ERROR, result, error, _advice(error))


def _warned(result: Result, error: DiagError) -> _Problem:
    configuration = _is_configuration(result, error)
    advice = _CONFIGURE if configuration else _advice(error)
    return _Problem(Verdict.WARN, causes.CONFIGURATION if configuration else causes.GPU_ERROR, result, error, advice)


_CONFIGURE = "mend the setting that the test names; the node does not join until then, and is never replaced for it"


def _is_configuration(result: Result, error: DiagError) -> bool:
    if error.severity == dcgm.CONFIG:
        return True
    if error.severity is None:
        return bool(_DEPLOYMENT.search(result.test))
    return error.category == dcgm.SOFTWARE_CONFIG and error.severity not in (dcgm.ISOLATE, dcgm.RESET)


def _advice(error: DiagError) -> str:
    xid = re.search(r"XID (\d{1,4})", error.text)
    if error.error_id in _REMAP_FAILURE_IDS:
        return "replace the node: the memory cannot be repaired any more"
    if error.error_id == _FALLEN_OFF_ID:
        return "reboot the node; if the GPU stays away or falls off again, replace the node"
    if error.error_id in _RECOVERY_IDS:
        return "do what the GPU's recovery action says (nvidia-smi -q), then run the diagnostic again"
    if xid:
        return f"follow the XID's runbook: hotspare explain {xid.group(1)}"
    if error.category == dcgm.THERMAL:
        return "look at cooling, power and clocks of the GPU, then run the test again"
    return _BY_SEVERITY.get(error.severity, "probe the GPU, and run the diagnostic again at level 3")


_BY_SEVERITY: dict[Optional[int], str] = {
    dcgm.ISOLATE: "take the node out of use; if it fails again after a reboot, replace it",
    dcgm.RESET: "reset the GPU or reboot the node, then run the diagnostic again",
    dcgm.TRIAGE: "take the node out of use and run the diagnostic at level 3 or above to find the part",
    dcgm.MONITOR: "run the test again; if it stays, take the node out of use",
}


def _told(problems: list[_Problem]) -> Judgement:
    """Tell the worst problem, and whom all problems that are as bad are about."""
    first = problems[0]
    alike = [one for one in problems if one.verdict is first.verdict]
    below = _BELOW.search(first.error.text)
    others = [one for one in problems if one.verdict is not first.verdict]
    evidence = "; ".join(dict.fromkeys(_words(one) for one in alike[:8]))
    if others:
        evidence += f"; besides, {len(others)} other results: {_words(others[0])}"
    return Judgement(
        first.verdict,
        first.cause,
        float(below.group(1)) if below else None,
        float(below.group(2)) if below else None,
        floor_source="DCGM's own minimum" if below else "",
        culprits=tuple(dict.fromkeys(entity for one in alike for entity in one.result.entities)),
        next=first.advice,
        evidence=evidence,
        line=first.error.text,
    )


def _words(problem: _Problem) -> str:
    numbers = (("severity", problem.error.severity), ("category", problem.error.category), ("error", problem.error.error_id))
    known = ", ".join(f"{name} {number}" for name, number in numbers if number is not None)
    about = f"{problem.result.test} {problem.result.status}"
    return f"{about}: {problem.error.text or ', '.join(problem.result.entities)}{f' ({known})' if known else ''}"
