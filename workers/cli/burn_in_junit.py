"""JUnit XML of a burn-in, for whoever runs it from a pipeline: a test case for the group, each node and each bad path."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as Xml

from activities.errors import BadInput
from checks.model import Verdict
from workflows.decisions.burn_in_advice import BAD_PATH
from workflows.messages import BurnInReport

CLASS = "hotspare.burn_in"


def check_junit(file: Path) -> None:
    """Refuse before the burn-in what cannot be written after it."""
    if not file.absolute().parent.is_dir():
        raise BadInput(f"--junit {file}: there is no folder {file.absolute().parent}")


def write_junit(name: str, report: BurnInReport, file: Path) -> None:
    """Write the report. CRITICAL is a failure, UNKNOWN an error, WARN passes and says so."""
    suite = Xml.Element("testsuite", name=name)
    properties = Xml.SubElement(suite, "properties")
    for key, value in (("rounds", report.rounds), ("runs", report.runs), ("busbw_gbs", report.busbw_gbs)):
        if value is not None:
            Xml.SubElement(properties, "property", name=key, value=str(value))
    _case(suite, "the group", report.verdict, report.cause, "; ".join(report.because))
    for one in report.nodes:
        _case(suite, one.node_name, one.verdict, one.cause, one.evidence)
    for path in report.bad_paths:
        _case(suite, f"path {' - '.join(path)}", Verdict.CRITICAL, BAD_PATH, "both pass with others and fail together")
    _write(suite, file)


def write_junit_error(name: str, why: str, file: Path) -> None:
    """Write that there is no verdict."""
    suite = Xml.Element("testsuite", name=name)
    _case(suite, "the group", Verdict.UNKNOWN, "no verdict", why)
    _write(suite, file)


def _case(suite: Xml.Element, name: str, verdict: Verdict, cause: str, evidence: str) -> None:
    case = Xml.SubElement(suite, "testcase", classname=CLASS, name=name)
    kind = {Verdict.CRITICAL: "failure", Verdict.UNKNOWN: "error"}.get(verdict)
    said = _printable(evidence or cause)
    if kind:
        Xml.SubElement(case, kind, type=cause, message=said).text = said
    elif verdict is Verdict.WARN:
        Xml.SubElement(case, "system-out").text = f"WARN {cause}: {said}"


def _write(suite: Xml.Element, file: Path) -> None:
    cases = suite.findall("testcase")
    counts = {
        "tests": str(len(cases)),
        "failures": str(len(suite.findall("testcase/failure"))),
        "errors": str(len(suite.findall("testcase/error"))),
    }
    for one in (suite, root := Xml.Element("testsuites", name="hotspare burn-in")):
        for key, value in counts.items():
            one.set(key, value)
    root.append(suite)
    Xml.indent(root)
    try:
        Xml.ElementTree(root).write(file, encoding="utf-8", xml_declaration=True)
    except OSError as error:
        raise BadInput(f"--junit {file}: cannot be written ({error.strerror})") from error


def _printable(words: str) -> str:
    """Leave out what XML 1.0 cannot carry: evidence comes from the output of tools."""
    return "".join(letter if letter.isprintable() or letter in "\t\n" else "?" for letter in words)
