"""The command that runs on a node: `run_checks.py probe` prints one JSON document and exits with its verdict's status.

`run_checks.py past` prints what the node's log of the days before says, and exits with 0, or 3 where there is no log to be read.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Optional

from checks.callers_clock import callers_clock
from checks.catalog import BadOverride
from checks.catalog.overrides import overrides_from_json
from checks.host import Host
from checks.model import Verdict
from checks.past_faults import past_faults
from checks.probes.probe import ProbeOptions, probe
from checks.thresholds import BadThreshold, read_thresholds

WRONG_USAGE = 64
"""Exit status for a wrong command line, as sysexits.h has it; 2 would read as CRITICAL."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        self.print_usage(sys.stderr)
        self.exit(WRONG_USAGE, f"{self.prog}: {message}\n")


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run one check and return its exit status: 0 OK, 1 WARN, 2 CRITICAL, 3 UNKNOWN, 64 wrong usage."""
    given = _parser().parse_args(arguments)
    if given.command == "past":
        return _past(given.since)
    try:
        thresholds = read_thresholds(given.thresholds)
        overrides = overrides_from_json(given.overrides)
    except (BadThreshold, BadOverride) as error:
        sys.stderr.write(f"run_checks.py: {error}\n")
        return WRONG_USAGE
    options = ProbeOptions(
        deep=given.depth == "deep",
        settling_s=given.settling_s,
        handled_until=given.handled_until,
        no_nvml=given.no_nvml,
        leftovers=given.leftovers,
        instance_type=given.instance_type,
        thresholds=thresholds,
        overrides=overrides,
    )
    report = probe(Host(), options, clock=callers_clock(given.asked_at))
    # Not `dump`: that encodes in Python, `dumps` in C.
    sys.stdout.write(json.dumps(report.to_json(), separators=(",", ":")) + "\n")
    return report.verdict.exit_status


def _past(since: float) -> int:
    found = past_faults(Host(), since)
    sys.stdout.write(json.dumps(found, separators=(",", ":")) + "\n")
    return Verdict.UNKNOWN.exit_status if found["error"] else 0


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="run_checks.py", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    command = commands.add_parser("probe", help="look at this node once and print what is seen as one JSON document")
    command.add_argument("--depth", choices=("quick", "deep"), default="quick", help="deep adds every reading to the document")
    command.add_argument(
        "--settling-s", type=float, default=0.0, help="link training lines of so many seconds after boot do not count"
    )
    command.add_argument(
        "--handled-until", type=float, metavar="UNIX", help="kernel lines up to this time were dealt with before"
    )
    command.add_argument(
        "--asked-at", type=float, metavar="UNIX", help="the caller's time now, which counts where this node's clock is wrong"
    )
    command.add_argument("--no-nvml", action="store_true", help="do not touch NVML")
    command.add_argument("--leftovers", action="store_true", help="look for what group runs have left: programs, daemons")
    command.add_argument("--instance-type", default="", help="EC2 instance type, where the node itself does not say it")
    command.add_argument("--thresholds", default="", metavar="JSON", help="overrides of thresholds, as a JSON object")
    command.add_argument("--overrides", default="", metavar="JSON", help="own meanings of single codes, as a JSON object")
    past = commands.add_parser("past", help="print the fault lines of the node's log since a time as one JSON document")
    past.add_argument("--since", type=float, required=True, metavar="UNIX", help="lines from this time on")
    return parser


if __name__ == "__main__":
    sys.exit(main())
