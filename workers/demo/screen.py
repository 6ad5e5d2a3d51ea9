"""What a person sees of the demonstration: a live timeline with the job under it, and a summary; plain text off a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.rule import Rule
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from workers.demo.ending import Check, Ending, JobView
from workers.demo.following import Told
from workers.demo.stories import Story

PLAIN_WIDTH = 132
"""Columns where no terminal says how many there are."""

STYLES = (
    (("quarantine", "failed", "given up", "waiting", "no spare", "person"), "yellow"),
    (("reboot", "power", "reset", "retire", "escalat"), "red"),
    (("replace", "spare", "lease"), "magenta"),
    (("burn-in", "re-test", "isolat"), "blue"),
    (("resum", "back in service", "pool", "progress", "close"), "green"),
    (("report", "diagnos", "look"), "cyan"),
)
"""Colour of a step, by the words in its name."""


class Screen:
    """Writes the demonstration to standard output."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False, emoji=False)
        if not self._console.is_terminal:
            self._console.width = PLAIN_WIDTH
        self._live: Live | None = None
        self._status = Text()

    def opening(self, stories: tuple[Story, ...], ui_url: str) -> None:
        """Say what will be shown and where the Temporal UI is."""
        self._console.print(Rule("Hotspare: from a fault line to a job that trains again", style="bold"))
        self._console.print(
            f"{len(stories)} of them, on a lab cluster with the real protocols: EC2, SSH, Temporal. Nothing needs typing."
        )
        self._console.print(Text.assemble("Temporal UI   ", (ui_url, "bold underline")), soft_wrap=True)

    def say(self, text: str) -> None:
        """Write one line about the preparations."""
        self._console.print(Text(text, style="dim"))

    def begin(self, number: int, of: int, story: Story) -> None:
        """Open a story."""
        self._console.print()
        self._console.print(Rule(f"Story {number} of {of}: {story.title}", align="left", style="bold"))
        self._console.print(Text(story.scene))

    @contextmanager
    def live(self) -> Iterator[None]:
        """Show the job's state under the timeline while the block runs, where there is a terminal."""
        if not self._console.is_terminal:
            yield
            return
        with Live(Spinner("dots", self._status), console=self._console, transient=True, refresh_per_second=8) as self._live:
            yield
        self._live = None

    def job(self, job: JobView, elapsed_s: float) -> None:
        """Renew the line under the timeline."""
        style = "green" if job.state == "RUNNING" else "yellow"
        self._status = Text.assemble(
            (f"+{elapsed_s:.0f} s  ", "dim"),
            f"{job.name}: ",
            (job.state, style),
            f" at step {job.step}, checkpoint {job.checkpoint_step}, on {', '.join(job.nodes) or 'no node'}",
        )
        if self._live is not None:
            self._live.update(Spinner("dots", self._status))

    def injected(self, node: str, line: str) -> None:
        """Show the kernel line that begins the story."""
        self._row("+0.0 s", node, "kernel log", line, "bold red")

    def told(self, told: Told, since: datetime) -> None:
        """Show one line of a workflow's story."""
        elapsed = f"+{(told.line.at - since).total_seconds():.1f} s"
        self._row(elapsed, told.who, told.line.phase, told.line.text, style_of(told.line.phase))

    def end(self, story: Story, ending: Ending, checks: list[Check], took_s: float) -> None:
        """Show how a story ended: what was wrong, what was done, what it cost, where the node is, and whether that was right."""
        table = Table.grid(padding=(0, 2))
        table.add_column(style="bold", no_wrap=True)
        table.add_column()
        for label, text in summary(story, ending):
            table.add_row(label, text)
        proof = Table.grid(padding=(0, 1))
        for check in checks:
            mark = Text("ok", style="bold green") if check.kept else Text("NOT SO", style="bold red")
            proof.add_row(mark, check.promise, Text(check.seen, style="dim"))
        kept = all(check.kept for check in checks)
        verdict = f"healed in {took_s:.0f} s" if kept else "this did not end as it must"
        self._console.print()
        self._console.print(self._framed(Group(table, Text(), proof), verdict, "green" if kept else "red"))

    def closing(self, results: list[tuple[Story, bool, float]], whole_s: float) -> None:
        """Show the last word."""
        self._console.print()
        table = Table(box=box.SIMPLE if self._console.is_terminal else None, show_header=False, padding=(0, 2))
        for story, kept, took_s in results:
            table.add_row(
                f"XID {story.key}", story.title, Text("healed", "green") if kept else Text("FAILED", "red"), f"{took_s:.0f} s"
            )
        self._console.print(table)
        self._console.print(f"{whole_s:.0f} s in all. To break it yourself: make lab")

    def failed(self, what: str, log: str) -> None:
        """Say that the demonstration itself failed, with the end of the worker's log."""
        self._console.print(Text(what, style="bold red"))
        if log:
            self._console.print(self._framed(Text(log), "the end of the worker's log", "red"))

    def _row(self, elapsed: str, who: str, phase: str, text: str, style: str) -> None:
        table = Table.grid(padding=(0, 1))
        table.add_column(width=8, justify="right", style="dim")
        table.add_column(width=12)
        table.add_column(width=17, style=style)
        table.add_column(overflow="fold")
        table.add_row(elapsed, who, phase, Text(text))
        self._console.print(table)

    def _framed(self, content: Group | Text, title: str, style: str) -> Panel | Group:
        if self._console.is_terminal:
            return Panel(content, title=title, title_align="left", border_style=style, padding=(1, 2))
        return Group(Text(f"{title}:"), content)


def style_of(phase: str) -> str:
    """Return the colour for a step."""
    return next((style for words, style in STYLES if any(word in phase.lower() for word in words)), "white")


def summary(story: Story, ending: Ending) -> list[tuple[str, str]]:
    """Return the summary of a story as (label, text): from the incidents' own results, so that it says what they know."""
    rows: list[tuple[str, str]] = []
    own_first = sorted(ending.reports.items(), key=lambda item: item[0] != story.fault.node)
    for node, report in own_first:
        rows.append((node, ""))
        rows.append(("  what was wrong", report.fault or "nothing was found"))
        rows.append(("  what was done", "\n".join(report.story)))
        rows.append(("  where it is now", report.fate or "no fate was recorded"))
        if report.lost_minutes is not None:
            rows.append(("  training lost", f"{report.lost_minutes:.1f} minutes"))
    rows.append((ending.job_after.name, _job_in_words(ending)))
    return rows


def _job_in_words(ending: Ending) -> str:
    parts = []
    if ending.stopped_at is not None and ending.stopped_s is not None:
        parts.append(f"stopped at step {ending.stopped_at} after {ending.stopped_s:.1f} s")
    if ending.resumed_from is not None:
        parts.append(f"went back to the checkpoint of step {ending.resumed_from}")
    if ending.again_s is not None:
        parts.append(f"trained past it after {ending.again_s:.1f} s")
    return ", ".join(parts) or "was not seen to stop"
