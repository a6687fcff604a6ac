"""The demo as a live picture, drawn with rich. Imported only where rich is installed."""

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

from holdfast.demo.acts import TOTALS, Count
from holdfast.demo.app import NAMES
from holdfast.demo.state import ODD, Bar, DemoState, WorkerProcess, detail_of
from holdfast.demo.summary import Summary
from holdfast.demo.view import CONSOLE, PROMISE, TITLE, since_first
from holdfast.demo.waits import length
from holdfast.store import Row

WIDTH = 88
# What the columns beside the bars need.
BESIDE_BARS = 66
# The scale covers at least so many seconds, so that a wait of 10 ms is a short bar.
SHORTEST_SCALE = 0.5
# The lines of the picture with all lines of the audit and the acts.
TALL = 34
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
    """Tenants, workers, audit events and acts in one picture that is updated in place."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console()
        self.width = min(WIDTH, self.console.width)
        is_tall = self.console.height >= TALL
        self.odd_lines, self.feed_lines, self.act_lines = (6, 5, 3) if is_tall else (2, 1, 2)
        self._live: Live | None = None

    @contextmanager
    def showing(self, state: DemoState) -> Iterator[None]:
        with Live(
            self.picture(state), console=self.console, refresh_per_second=12, transient=False
        ) as self._live:
            yield
            self._live.update(self.picture(state), refresh=True)
        self._live = None

    def say(self, state: DemoState) -> None:
        self.look(state)

    def say_act(self, state: DemoState, title: str, caption: str) -> None:
        self.look(state)

    def look(self, state: DemoState) -> None:
        if self._live is not None:
            self._live.update(self.picture(state))

    def picture(self, state: DemoState) -> RenderableType:
        """The picture of *state*."""
        title = Text.assemble(("Holdfast", "bold"), f"  {TITLE}")
        return Panel(
            Group(
                Padding(Text(state.caption or "Opening the database.", style="bold"), (0, 1, 1, 1)),
                self._tenants(state),
                Text(),
                self._workers(state),
                Text(),
                self._feed(state),
                *self._acts(state),
            ),
            title=title,
            subtitle=f"{state.seconds:.1f} s",
            box=ROUNDED,
            width=self.width,
            padding=(1, 1),
        )

    def _tenants(self, state: DemoState) -> RenderableType:
        table = Table(box=None, padding=(0, 1), expand=True, header_style="bright_black")
        table.add_column("", width=22, no_wrap=True)
        for title in ("waiting", "done"):
            table.add_column(title, width=7, justify="right")
        table.add_column("wait", ratio=1, no_wrap=True)
        for title in ("last", "worst"):
            table.add_column(title, width=7, justify="right")
        # All bars have the same scale.
        scale = max(SHORTEST_SCALE, *(bar.worst_wait for bar in state.bars.values()))
        for bar in state.bars.values():
            colour = "yellow" if bar is state.flood else "green"
            table.add_row(
                bar.name,
                f"{bar.waiting:,}",
                f"{bar.done:,}",
                _wait_bar(bar, scale, colour, self.width - BESIDE_BARS),
                length(bar.last_wait),
                length(bar.worst_wait),
            )
        return table

    def _workers(self, state: DemoState) -> RenderableType:
        table = Table.grid(padding=(0, 2))
        for _ in range(3):
            table.add_column()
        for worker in state.workers:
            table.add_row(f" worker {worker.name}", f"pid {worker.process.pid}", _state_of(worker))
        return table

    def _feed(self, state: DemoState) -> RenderableType:
        # Failures stay visible, each once with a count; the ordinary events scroll below them.
        odd = Counter(_event_cells(event) for event in state.news if event["name"] in ODD)
        rest = [_event_cells(event) for event in state.news if event["name"] in ORDINARY]
        shown = [
            *list(odd.items())[-self.odd_lines :],
            *((line, 1) for line in rest[-self.feed_lines :]),
        ]
        table = Table.grid(padding=(0, 1))
        for width in (17, 13, 21, 6):
            table.add_column(width=width, no_wrap=True)
        table.add_column(no_wrap=True)
        for (name, job_type, firm, actor, detail), times in shown:
            colour = COLOURS.get(name, "white")
            table.add_row(
                Text(f" {name}", style=colour),
                job_type,
                firm,
                Text(actor, style="bright_black"),
                Text(f"{detail} ({times})" if times > 1 else detail, style=colour),
            )
        for _ in range(self.odd_lines + self.feed_lines - len(shown)):
            table.add_row("")
        return table

    def _acts(self, state: DemoState) -> list[RenderableType]:
        """The last captions of every act, in a fixed number of lines."""
        if not state.acts:
            return []
        table = Table.grid(padding=(0, 1))
        table.add_column(width=13, no_wrap=True)
        table.add_column(ratio=1)
        for act in state.acts.values():
            captions = act.captions[-self.act_lines :]
            lines = [*captions, *[""] * (self.act_lines - len(captions))]
            for number, caption in enumerate(lines):
                title = f" {act.title}" if number == 0 else ""
                table.add_row(
                    Text(title, style="bold"),
                    Text(caption, no_wrap=True, overflow="ellipsis"),
                )
        return [Text(), table]

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

    def summary(self, summary: Summary) -> None:
        self._counts("Jobs, counted in the database", [*summary.lines])
        for act in summary.acts:
            if act.counts:
                self._counts(f"{act.title}, counted in the database and the simulator", act.counts)
        self._waits(summary)
        self.console.print(Text(PROMISE + "\n", style="italic"), width=self.width)
        for problem in summary.problems:
            self.console.print(Text(f"FAILED: {problem}", style="bold red"))
        style = "bold red" if summary.problems else "bold green"
        self.console.print(Text(f"In total: {summary.totals}", style=style))

    def _counts(self, title: str, counts: Sequence[Count]) -> None:
        table = Table(box=SIMPLE_HEAD, show_header=False, width=self.width)
        table.add_column(style="bold", width=14)
        table.add_column(justify="right", width=6)
        table.add_column(style="bright_black", ratio=1)
        for count in counts:
            is_fine = count.name not in (*TOTALS, "tampered") or count.count == 0
            style = "green" if is_fine else "bold red"
            table.add_row(count.name, Text(f"{count.count:,}", style=style), count.meaning)
        self.console.print(Text(f"\n{title}", style="bold"))
        self.console.print(table)

    def commands(self, folder: str, commands: Sequence[str], console: str) -> None:
        # Printed as they are: a wrapped command cannot be copied.
        for line in (
            f"\nThe databases are in {folder}. To look at the jobs:",
            *(f"  {command}" for command in commands),
            f"\n{CONSOLE}",
            f"  {console}",
        ):
            self.console.print(line, soft_wrap=True, markup=False, highlight=False)

    def _waits(self, summary: Summary) -> None:
        table = Table(box=SIMPLE_HEAD, width=self.width, header_style="bright_black")
        table.add_column("", style="bold")
        for title in ("jobs", "median", "maximum"):
            table.add_column(title, justify="right")
        for firm, waits in summary.fairness.by_firm:
            table.add_row(firm.name, f"{waits.jobs:,}", length(waits.median), length(waits.worst))
        self.console.print(
            Text("How long the jobs of each tenant waited for a worker", style="bold")
        )
        self.console.print(table)
        style = "green" if summary.fairness.holds else "bold red"
        self.console.print(Text(summary.fairness.sentence + "\n", style=style), width=self.width)


def _event_cells(event: Row) -> tuple[str, str, str, str, str]:
    firm = NAMES[event["org_id"]]
    return event["name"], event["job_type"], firm, event["actor_id"], detail_of(event)


def _wait_bar(bar: Bar, scale: float, colour: str, cells: int) -> Text:
    """The last wait in full cells, and up to the worst in light ones."""
    if not bar.worst_wait:
        return Text()
    last, worst = (round(cells * wait / scale) for wait in (bar.last_wait, bar.worst_wait))
    # A short wait is drawn, too.
    return Text.assemble(("█" * last or "▏", colour), ("░" * (worst - max(last, 1)), colour))


def _state_of(worker: WorkerProcess) -> Text:
    if worker.held_at_death is None:
        return Text.assemble(("● ", "green"), f"running {worker.held} jobs")
    if worker.held:
        return Text.assemble(
            ("✗ kill -9", "bold white on red"), f"  the leases of {worker.held} jobs run out"
        )
    return Text.assemble(
        ("✗ kill -9", "bold red"), f"  its {worker.held_at_death} jobs were rescued"
    )
