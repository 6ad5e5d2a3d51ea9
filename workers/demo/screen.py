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

from workers.demo.ending import Check, JobView
from workers.demo.following import BURN_IN, Told
from workers.demo.stories import Story
from workers.demo.summary import Row, offset

PLAIN_WIDTH = 132
"""Columns where no terminal says how many there are."""

TEXT_LIMIT = 190
"""Characters shown of one line, two rows of a usual terminal. The whole text is in the Temporal UI and in `hotspare why`."""

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

    def opening(self, stories: tuple[Story, ...], ui_url: str, protocols: str = "EC2, SSH, Temporal") -> None:
        """Say what will be shown and where the Temporal UI is."""
        self._console.print(Rule("Hotspare: from a fault line to a job that trains again", style="bold"))
        many = "One story" if len(stories) == 1 else f"{len(stories)} stories"
        self._console.print(f"{many} on a lab cluster that speaks the real protocols: {protocols}. Nothing needs typing.")
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
        """Show one line of a workflow's story. A burn-in's verdict is left to the job, which tells it again."""
        if told.who == BURN_IN and told.line.phase == "verdict":
            return
        self._row(offset(told, since), told.who, told.line.phase, short(told.line.text), style_of(told.line.phase))

    def end(self, story: Story, checks: list[Check], rows: list[Row], took_s: float) -> None:
        """Show how a story ended: the summary, and each promise with what was seen."""
        table = Table.grid(padding=(0, 2))
        table.add_column(style="bold", no_wrap=True)
        table.add_column()
        for row in rows:
            table.add_row(row.label, Text(short(row.text)))
        proof = Table.grid(padding=(0, 1))
        for check in checks:
            mark = Text("ok", style="bold green") if check.kept else Text("NOT SO", style="bold red")
            proof.add_row(mark, check.promise, Text(check.seen, style="dim"))
        kept = all(check.kept for check in checks)
        verdict = f"XID {story.key}: healed in {took_s:.0f} s" if kept else f"XID {story.key}: this did not end as it must"
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


def short(text: str, limit: int = TEXT_LIMIT) -> str:
    """Return the text, cut at a word where it is longer than `limit`."""
    return text if len(text) <= limit else text[:limit].rsplit(" ", 1)[0] + " ..."
