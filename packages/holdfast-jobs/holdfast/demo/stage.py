"""The story as a live picture, drawn with rich. Imported only where rich is installed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.box import ROUNDED, SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from holdfast.demo.app import NAMES
from holdfast.demo.scene import ODD, Bar, Hand, Scene, detail_of
from holdfast.demo.verdict import Verdict
from holdfast.demo.view import PROMISE, TITLE, since_first
from holdfast.demo.waits import length
from holdfast.store import Row

WIDTH = 88
# What the columns beside the bars need.
BESIDE_BARS = 66
# A bar is at least so long in all, so that a wait of 10 ms does not look like the end of the world.
SHORTEST_SCALE = 0.5
ODD_LINES = 6
FEED_LINES = 5
ORDINARY = ("job.started", "job.succeeded")
COLOURS = {
    "job.enqueued": "bright_black",
    "job.started": "cyan",
    "job.succeeded": "green",
    "job.failed": "yellow",
    "job.retried": "yellow",
    "job.deadlettered": "bold red",
    "job.lease_lost": "magenta",
}


class Stage:
    """Tenants, workers and the audit in one picture that changes in place."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console()
        self.width = min(WIDTH, self.console.width)
        self._live: Live | None = None

    @contextmanager
    def showing(self, scene: Scene) -> Iterator[None]:
        with Live(
            self.picture(scene), console=self.console, refresh_per_second=12, transient=False
        ) as self._live:
            yield
            self._live.update(self.picture(scene), refresh=True)
        self._live = None

    def say(self, scene: Scene) -> None:
        self.look(scene)

    def look(self, scene: Scene) -> None:
        if self._live is not None:
            self._live.update(self.picture(scene))

    def picture(self, scene: Scene) -> RenderableType:
        """The scene as it stands."""
        title = Text.assemble(("Holdfast", "bold"), f"  {TITLE}")
        return Panel(
            Group(
                Padding(Text(scene.caption or "Opening the database.", style="bold"), (0, 1, 1, 1)),
                self._tenants(scene),
                Text(),
                self._workers(scene),
                Text(),
                self._feed(scene),
            ),
            title=title,
            subtitle=f"{scene.seconds:.1f} s",
            box=ROUNDED,
            width=self.width,
            padding=(1, 1),
        )

    def _tenants(self, scene: Scene) -> RenderableType:
        table = Table(box=None, padding=(0, 1), expand=True, header_style="bright_black")
        table.add_column("", width=22, no_wrap=True)
        for title in ("waiting", "done"):
            table.add_column(title, width=7, justify="right")
        table.add_column("wait", ratio=1, no_wrap=True)
        for title in ("last", "worst"):
            table.add_column(title, width=7, justify="right")
        # One scale for all of them: that is the whole point.
        scale = max(SHORTEST_SCALE, *(bar.worst_wait for bar in scene.bars.values()))
        for bar in scene.bars.values():
            colour = "yellow" if bar is scene.flood else "green"
            table.add_row(
                bar.name,
                f"{bar.waiting:,}",
                f"{bar.done:,}",
                _wait_bar(bar, scale, colour, self.width - BESIDE_BARS),
                length(bar.last_wait),
                length(bar.worst_wait),
            )
        return table

    def _workers(self, scene: Scene) -> RenderableType:
        table = Table.grid(padding=(0, 2))
        for _ in range(3):
            table.add_column()
        for hand in scene.workers:
            table.add_row(f" worker {hand.name}", f"pid {hand.process.pid}", _state_of(hand))
        return table

    def _feed(self, scene: Scene) -> RenderableType:
        # What went wrong stays in sight for a while, told once; the rest flows by below it.
        odd = Counter(_event_cells(event) for event in scene.news if event["name"] in ODD)
        rest = [_event_cells(event) for event in scene.news if event["name"] in ORDINARY]
        told = [*list(odd.items())[-ODD_LINES:], *((line, 1) for line in rest[-FEED_LINES:])]
        table = Table.grid(padding=(0, 1))
        for width in (17, 13, 21, 6):
            table.add_column(width=width, no_wrap=True)
        table.add_column(no_wrap=True)
        for (name, job_type, firm, actor, detail), times in told:
            colour = COLOURS.get(name, "white")
            table.add_row(
                Text(f" {name}", style=colour),
                job_type,
                firm,
                Text(actor, style="bright_black"),
                Text(f"{detail} ({times})" if times > 1 else detail, style=colour),
            )
        for _ in range(ODD_LINES + FEED_LINES - len(told)):
            table.add_row("")
        return table

    def timeline(self, title: str, events: Sequence[Row]) -> None:
        table = Table.grid(padding=(0, 2))
        for seconds, event in since_first(events):
            table.add_row(
                f"{f'+{seconds:.1f} s':>8}",
                Text(event["name"], style=COLOURS.get(event["name"], "white")),
                f"attempt {event['attempt']}",
                detail_of(event),
            )
        self.console.print(Text(f"\n{title}: {events[0]['job_type']}", style="bold"))
        self.console.print(table)

    def verdict(self, verdict: Verdict) -> None:
        table = Table(box=SIMPLE_HEAD, show_header=False, width=self.width)
        table.add_column(style="bold")
        table.add_column(justify="right")
        table.add_column(style="bright_black")
        for what, count, meaning in verdict.lines:
            calm = what not in ("lost", "doubled", "tampered") or count == 0
            style = "green" if calm else "bold red"
            table.add_row(what, Text(f"{count:,}", style=style), meaning)
        self.console.print(Text("\nWhat the database says", style="bold"))
        self.console.print(table)
        self._waits(verdict)
        for problem in verdict.problems:
            self.console.print(Text(f"NOT TRUE: {problem}", style="bold red"))
        self.console.print(Text(PROMISE, style="italic"), width=self.width)

    def _waits(self, verdict: Verdict) -> None:
        table = Table(box=SIMPLE_HEAD, width=self.width, header_style="bright_black")
        table.add_column("", style="bold")
        for title in ("jobs", "median", "worst"):
            table.add_column(title, justify="right")
        for firm, waits in verdict.fairness.by_firm:
            table.add_row(firm.name, f"{waits.jobs:,}", length(waits.median), length(waits.worst))
        self.console.print(Text("How long each tenant's jobs waited for a worker", style="bold"))
        self.console.print(table)
        style = "green" if verdict.fairness.holds else "bold red"
        self.console.print(Text(verdict.fairness.sentence + "\n", style=style), width=self.width)


def _event_cells(event: Row) -> tuple[str, str, str, str, str]:
    firm = NAMES[event["org_id"]]
    return event["name"], event["job_type"], firm, event["actor_id"], detail_of(event)


def _wait_bar(bar: Bar, scale: float, colour: str, cells: int) -> Text:
    """The last wait in full cells, and up to the worst in light ones."""
    if not bar.worst_wait:
        return Text()
    last, worst = (round(cells * wait / scale) for wait in (bar.last_wait, bar.worst_wait))
    # What was measured is seen, however short.
    return Text.assemble(("█" * last or "▏", colour), ("░" * (worst - max(last, 1)), colour))


def _state_of(hand: Hand) -> Text:
    if hand.held_at_death is None:
        return Text.assemble(("● ", "green"), f"running, {hand.held} jobs in hand")
    if hand.held:
        return Text.assemble(
            ("✗ killed -9", "bold white on red"), f"  {hand.held} jobs wait for its leases to end"
        )
    return Text.assemble(
        ("✗ killed -9", "bold red"), f"  its {hand.held_at_death} jobs were brought back"
    )
