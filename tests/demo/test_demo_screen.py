"""The demonstration reads well in a pipe too: plain lines, no colour codes, no boxes."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta

from rich.console import Console

from tests.demo.endings import good_ending
from workers.demo.ending import judge
from workers.demo.following import Told
from workers.demo.screen import Screen, style_of
from workers.demo.stories import choose
from workers.demo.summary import summary
from workflows.messages import IncidentReport
from workflows.operator_view import Line

SINCE = datetime(2026, 1, 1, tzinfo=UTC)


def shown(terminal: bool) -> str:
    """The screen after one whole story."""
    out = io.StringIO()
    screen = Screen(Console(file=out, force_terminal=terminal, width=132, highlight=False, emoji=False))
    story = choose(["79"])[0]
    screen.opening((story,), "http://127.0.0.1:8233")
    screen.begin(1, 1, story)
    told = [
        Told("node-2", Line(at=SINCE + timedelta(seconds=1.0), phase="diagnosed", text="gpu_lost: GPU 3 has left the PCIe bus")),
        Told("node-2", Line(at=SINCE + timedelta(seconds=1.5), phase="quarantined", text="no new work on it")),
        Told("train", Line(at=SINCE + timedelta(seconds=2.0), phase="held", text="holds no GPU"), by_incident=False),
    ]
    screen.injected("node-2", "NVRM: Xid (PCI:0000:53:00): 79, GPU has fallen off the bus.")
    with screen.live():
        screen.job(good_ending(story).job_before, 0.1)
        for one in told:
            screen.told(one, SINCE)
    ending = good_ending(story)
    report = IncidentReport(outcome="resolved", fault="gpu_lost", story=["rebooted"], lost_minutes=0.4, fate="back in service")
    ending.reports["node-2"] = report
    screen.end(story, judge(ending, story.expected), summary(story, ending, told, SINCE), 21.0)
    screen.closing([(story, True, 21.0)], 30.0)
    return out.getvalue()


def test_a_pipe_gets_plain_text() -> None:
    text = shown(terminal=False)
    assert "\x1b" not in text
    assert not set("╭╮╰╯│") & set(text)


def test_a_story_shows_its_fault_its_steps_with_times_its_cost_and_where_the_node_is() -> None:
    text = shown(terminal=False)
    for part in (
        "79, GPU has fallen off the bus",
        "+1.5 s",
        "quarantined",
        "http://127.0.0.1:8233",
        "0.4 minutes (24 s) of training lost",
        "back in service",
    ):
        assert part in text


def test_a_broken_promise_stands_out() -> None:
    story = choose(["79"])[0]
    out = io.StringIO()
    ending = good_ending(story)
    ending.reboots["node-2"] = 2
    Screen(Console(file=out)).end(story, judge(ending, story.expected), summary(story, ending, [], SINCE), 21.0)
    assert "NOT SO" in out.getvalue()
    assert "this did not end as it must" in out.getvalue()


def test_the_address_of_the_ui_is_never_broken_over_lines() -> None:
    out = io.StringIO()
    Screen(Console(file=out, force_terminal=True, width=40)).opening((), "http://127.0.0.1:54321/namespaces/default/workflows")
    assert "http://127.0.0.1:54321/namespaces/default/workflows" in out.getvalue().replace("\x1b[1;4m", "").replace("\x1b[0m", "")


def test_steps_that_disrupt_look_different_from_steps_that_look() -> None:
    assert style_of("REBOOT_NODE") != style_of("diagnosed")
