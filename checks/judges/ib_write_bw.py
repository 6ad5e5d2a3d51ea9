"""Judges one run of ib_write_bw: the link carries what it should, or why not."""

from __future__ import annotations

import re
from typing import Optional

from checks.judges import judgement as causes
from checks.judges.floors import FAIL_SHARE, WARN_SHARE, Floor, OwnFloors, own_floor
from checks.judges.ib_write_bw_output import IbOutput, read, read_json, split_runs
from checks.judges.judgement import GBIT_PER_S, KILLED_STATUSES, Judgement, unknown, unreadable, worst
from checks.judges.text import first_line, json_documents, last_line
from checks.model import Verdict

SMALLEST_BYTES = 65536
"""Messages below this do not fill a link, so a low rate says nothing. Source: the default size of ib_write_bw."""

ABOVE_LINK = 1.02
"""Measured above this share of the link, the link's rate was told wrong. Hotspare default: no link carries more than its rate."""

_NETWORK_ERROR = re.compile(
    r"Completion with error|Failed status \d+|Port number \d+ state is (?!Active)|Failed to complete run_iter|transport retry",
    re.IGNORECASE,
)
_COULD_NOT_RUN = re.compile(
    r"Couldn't connect|Unable to (?:init|open|find|create|connect)|Connection (?:refused|reset|timed out)|No route to host"
    r"|command not found|No such file or directory|error while loading|Permission denied|device .{0,80}not found"
    r"|not detect devices|No IB devices|Unable to perform|Failed to (?:create|modify|allocate|exchange)"
    r"|Couldn't (?:allocate|create|get|resolve|bind|read)"
    r"|versions? (?:mismatch|differ)|Parser function exited",
    re.IGNORECASE,
)
_PEER = re.compile(r"connect to (\S+?)(?::\d+)?(?:\s|$)")


def judge(
    text: str, link_gbits: Optional[float] = None, floors: Optional[OwnFloors] = None, exit_status: Optional[int] = None
) -> Judgement:
    """Judge the output of ib_write_bw, plain and without prefixes; the worst run where it has several.

    `link_gbits` is the rate of one port; without it, or an own floor, nothing is OK. Floor: 0.90 of the link fails, 0.95 warns.
    """
    try:
        documents = [one for one in json_documents(text) if "test_info" in one]
        runs = [read_json(one) for one in documents] or [read(part) for part in split_runs(text)]
    except ValueError as error:
        return unreadable("ib_write_bw", f"the JSON is cut or of another shape: {error}")
    judged = [
        (f"device {run.device}" if run.device else "", _judge_run(run, link_gbits, floors or {}, exit_status)) for run in runs
    ]
    return worst(judged)


def _judge_run(output: IbOutput, link_gbits: Optional[float], floors: OwnFloors, exit_status: Optional[int]) -> Judgement:
    broken = first_line(_NETWORK_ERROR, output.lines)
    if broken:
        advice = "look at the port's state and error counters at both ends, then at cable and switch port"
        return Judgement(
            Verdict.CRITICAL, causes.NETWORK_ERROR, unit=GBIT_PER_S, culprits=_device(output), next=advice,
            evidence=broken.strip(), line=broken.strip(),
        )  # fmt: skip
    row = output.largest
    launch = first_line(_COULD_NOT_RUN, output.lines)
    if output.damaged and row is None:
        return unreadable("ib_write_bw", f"no bandwidth could be read: {output.damaged}")
    if row is None or not output.complete:
        return _not_finished(output, launch, exit_status)
    if output.damaged:
        return unreadable("ib_write_bw", f"a row has no bandwidth: {output.damaged}")
    if exit_status not in (None, 0):
        evidence = f"the table is complete, yet the exit status is {exit_status}: {launch or last_line(output.lines)}"
        return unknown(causes.COULD_NOT_RUN, evidence, "run again and look at its end")
    return _against_link(output, link_gbits, floors)


def _not_finished(output: IbOutput, launch: str, exit_status: Optional[int]) -> Judgement:
    if launch:
        peers = tuple(f"peer {peer}" for line in output.lines for peer in _PEER.findall(line[:400]))
        advice = "start the server side first, check name, port and firewall, then run again"
        return unknown(causes.COULD_NOT_RUN, launch.strip(), advice, peers, launch.strip())
    if output.connected:
        ended = "was ended" if exit_status in KILLED_STATUSES else "stops"
        where = f"after messages of {output.rows[-1].size_bytes} bytes" if output.rows else "before the first row"
        evidence = f"the output {ended} {where}, without its end"
        line = last_line(output.lines)
        return Judgement(
            Verdict.CRITICAL, causes.HANG, unit=GBIT_PER_S, culprits=_device(output),
            next="look at the port's state and counters at both ends", evidence=evidence, line=line,
        )  # fmt: skip
    if output.headed or exit_status not in (None, 0) or not last_line(output.lines):
        what = f"the two sides never met: {last_line(output.lines) or 'nothing was printed'}"
        return unknown(causes.COULD_NOT_RUN, what, "start the server side first, then the client")
    return unreadable("ib_write_bw", f"this is not the output of ib_write_bw: {last_line(output.lines)}")


def _against_link(output: IbOutput, link_gbits: Optional[float], floors: OwnFloors) -> Judgement:
    row = output.largest
    assert row is not None
    lanes = output.directions * output.ports
    measured = f"{row.gbits:.2f} Gb/s with messages of {row.size_bytes} bytes" + (
        f", {lanes} streams at once" if lanes > 1 else ""
    )
    floor = _floor(link_gbits, floors, lanes)
    if floor is None:
        advice = "say the rate of the link: --link-gbits 400"
        return _told(
            output, Verdict.UNKNOWN, causes.CONFIGURATION, None, advice, f"{measured}; the floor of the link is not known"
        )
    if link_gbits and row.gbits > ABOVE_LINK * link_gbits * lanes:
        advice = "say the true rate of the link (ibstat, or /sys/class/infiniband/*/ports/*/rate)"
        evidence = f"{measured} is more than a link of {link_gbits:g} Gb/s can carry"
        return _told(output, Verdict.UNKNOWN, causes.CONFIGURATION, floor, advice, evidence)
    if row.gbits >= floor.warn_gbs:
        return _told(output, Verdict.OK, causes.HEALTHY, floor, "", measured)
    if row.size_bytes < SMALLEST_BYTES:
        evidence = f"{measured}: too small to fill the link"
        return _told(output, Verdict.UNKNOWN, causes.CONFIGURATION, floor, f"run it with -s {SMALLEST_BYTES} or -a", evidence)
    verdict = Verdict.CRITICAL if row.gbits < floor.fail_gbs else Verdict.WARN
    advice = "repeat the run; if it stays there, compare PCIe width, NUMA node and relaxed ordering with a healthy port"
    if verdict is Verdict.CRITICAL:
        advice = "check width and speed of the link and of the adapter's PCIe slot against a healthy port"
    return _told(output, verdict, causes.LOW_BANDWIDTH, floor, advice, measured + _share(row.gbits, link_gbits, lanes))


def _floor(link_gbits: Optional[float], floors: OwnFloors, lanes: int) -> Optional[Floor]:
    if not link_gbits:
        return None
    key = f"ib_write_bw/{link_gbits:g}"
    if key in floors:
        mine = own_floor(floors, key)
        return Floor(mine.fail_gbs * lanes, mine.warn_gbs * lanes, mine.source)
    rate = link_gbits * lanes
    source = f"{FAIL_SHARE:.0%} of {rate:g} Gb/s (healthy: 97 %)"
    return Floor(round(FAIL_SHARE * rate, 2), round(WARN_SHARE * rate, 2), source)


def _share(gbits: float, link_gbits: Optional[float], lanes: int) -> str:
    if not link_gbits:
        return ""
    share = gbits / (link_gbits * lanes)
    reduced = next((f", as at 1/{part} of its width or speed" for part in (2, 4, 8) if 0.9 <= share * part <= 1.02), "")
    return f", {share:.0%} of the link{reduced}"


def _told(output: IbOutput, verdict: Verdict, cause: str, floor: Optional[Floor], advice: str, evidence: str) -> Judgement:
    row = output.largest
    return Judgement(
        verdict,
        cause,
        round(row.gbits, 2) if row else None,
        floor.fail_gbs if floor else None,
        GBIT_PER_S,
        floor.source if floor else "",
        culprits=_device(output) if verdict in (Verdict.WARN, Verdict.CRITICAL) else (),
        next=advice,
        evidence=evidence,
        line=row.line if row else "",
    )


def _device(output: IbOutput) -> tuple[str, ...]:
    return (f"device {output.device}",) if output.device else ()
