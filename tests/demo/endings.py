"""Endings that keep every promise of their story, for tests to break."""

from __future__ import annotations

from dataclasses import replace

from workers.demo.ending import Ending, JobView
from workers.demo.stories import Story
from workflows.messages import IncidentReport

BEFORE = JobView("llama", "RUNNING", ("node-1", "node-2", "node-3", "node-4"), step=60, checkpoint_step=50, resumes=0)
RESOLVED = IncidentReport(outcome="resolved", node="node-2", fault="gpu_lost", fate="back in service")


def good_ending(story: Story) -> Ending:
    """An ending that keeps every promise of the story."""
    nodes = {
        "79": BEFORE.nodes,
        "64": ("node-1", "node-2", "spare-1", "node-4"),
        "94": ("node-1", "node-2", "node-3", "spare-2"),
    }[story.key]
    return Ending(
        job_before=BEFORE,
        job_after=replace(BEFORE, nodes=nodes, step=80, checkpoint_step=75, resumes=1),
        reports={story.fault.node: RESOLVED},
        reboots={"node-2": 1} if story.key == "79" else {},
        quarantined=frozenset({"64": ["node-3"], "94": ["node-4"]}.get(story.key, [])),
        stopped_at=61,
        resumed_from=50,
    )
