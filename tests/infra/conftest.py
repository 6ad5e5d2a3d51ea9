"""Says in one line each what was not checked here because a tool is not on this machine, so that nobody takes it for proved."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

_HERE = Path(__file__).parent.name


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name each reason once, with the number of tests."""
    reasons: Counter[str] = Counter()
    for report in terminalreporter.stats.get("skipped", []):
        if Path(report.nodeid.split("::")[0]).parent.name == _HERE and isinstance(report.longrepr, tuple):
            reasons[report.longrepr[2].removeprefix("Skipped: ")] += 1
    for reason, count in reasons.items():
        terminalreporter.write_line(f"{count} tests of infra/ skipped: {reason}")
