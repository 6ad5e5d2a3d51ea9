"""A report reads as one line that says each thing once."""

from __future__ import annotations

import pytest

from activities.node_messages import Gpu, Report
from workflows.report_words import describe


@pytest.mark.parametrize(
    ("report", "words"),
    [
        (Report(source="agent", xid=79, what="GPU has fallen off the bus."), "agent: XID 79 GPU has fallen off the bus."),
        (
            Report(source="sweep", xid=79, gpu=Gpu(pci="0000:86:00"), what="XID 79 (lost) [GPU at 0000:86:00]"),
            "sweep: XID 79 (lost) [GPU at 0000:86:00]",
        ),
        (Report(source="webhook", resolved=True, what="DiskFull"), "webhook: resolved: DiskFull"),
        (Report(source="manual", gpu=Gpu(index=3)), "manual: GPU 3"),
        (Report(source="manual"), "manual: look at this node"),
    ],
)
def test_a_report_says_each_thing_once(report: Report, words: str) -> None:
    assert describe(report) == words
