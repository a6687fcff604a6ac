"""The story as a live picture, drawn with rich. Imported only where rich is installed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.box import ROUNDED, SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from holdfast.demo.app import NAMES
from holdfast.demo.scene import Hand, Scene, detail_of
from holdfast.demo.verdict import Verdict
from holdfast.demo.view import PROMISE, since_first
from holdfast.store import Row

WIDTH = 88
ODD_LINES = 6
FEED_LINES = 5
ODD = ("job.failed", "job.retried", "job.deadlettered", "job.lease_lost")
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

    def __init__(self) -> None:
        self.console = Console()
        self.width = min(WIDTH, self.console.width)
        self._live: Live | None = None

    @contextmanager
    def showing(self, scene: Scene) -> Iterator[None]:
        with Live(
            self._picture(scene), console=self.console, refresh_per_second=12, transient=False
        ) as self._live:
            yield
            self._live.update(self._picture(scene), refresh=True)
        self._live = None

    def say(self, scene: Scene) -> None:
        self.look(scene)

    def look(self, scene: Scene) -> None:
        if self._live is not None:
            self._live.update(self._picture(scene))

    def _picture(self, scene: Scene) -> RenderableType:
        title = Text.assemble(
            ("Holdfast", "bold"), "  three tenants, two processes, one SQLite file"
        )
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
        table = Table.grid(padding=(0, 1), expand=True)
        table.add_column(width=22)
        table.add_column(ratio=1)
        table.add_column(width=7, justify="right")
        table.add_column(width=14)
        for bar in scene.bars.values():
            ended = bar.done + bar.dead
            running = Text(f"{bar.running} running", style="cyan") if bar.running else Text()
            if bar.dead and not bar.running:
                running = Text("1 dead letter", style="red")
            table.add_row(
                f" {bar.name}",
                ProgressBar(total=bar.planned, completed=ended, complete_style="green"),
                f"{ended}/{bar.planned}",
                running,
            )
        return table

    def _workers(self, scene: Scene) -> RenderableType:
        table = Table.grid(padding=(0, 2))
        for _ in range(3):
            table.add_column()
        for hand in scene.hands:
            table.add_row(f" worker {hand.name}", f"pid {hand.process.pid}", _state_of(hand))
        return table

    def _feed(self, scene: Scene) -> RenderableType:
        # What went wrong stays in sight for a while; the rest flows by below it.
        odd = [event for event in scene.news if event["name"] in ODD][-ODD_LINES:]
        rest = [event for event in scene.news if event["name"] in ORDINARY][-FEED_LINES:]
        told = [*odd, *rest]
        table = Table.grid(padding=(0, 1))
        for width in (17, 12, 21, 6):
            table.add_column(width=width, no_wrap=True)
        table.add_column(no_wrap=True)
        for event in told:
            colour = COLOURS.get(event["name"], "white")
            table.add_row(
                Text(f" {event['name']}", style=colour),
                event["job_type"],
                NAMES.get(event["org_id"], event["org_id"]),
                Text(event["actor_id"], style="bright_black"),
                Text(detail_of(event), style=colour),
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
            calm = what not in ("lost", "doubled", "tampered") or count == "0"
            table.add_row(what, Text(count, style="green" if calm else "bold red"), meaning)
        self.console.print(Text("\nWhat the database says", style="bold"))
        self.console.print(table)
        for problem in verdict.problems:
            self.console.print(Text(f"NOT TRUE: {problem}", style="bold red"))
        self.console.print(Text(PROMISE, style="italic"), width=self.width)


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
