"""The demo as lines: for a pipe, a log, or a terminal without rich."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import click

from holdfast.clock import read_instant
from holdfast.demo.acts import Count
from holdfast.demo.state import DemoState, detail_of
from holdfast.demo.summary import Summary
from holdfast.demo.waits import length
from holdfast.store import Row

PROGRESS_SECONDS = 1.0
CONSOLE = "Start the console at http://127.0.0.1:8321 and follow the link that it prints:"
TITLE = "one noisy tenant, four quiet ones, two workers, one SQLite file"
PROMISE = (
    "Jobs run at least once and record at most one outcome. External effects are deduplicated when"
    " the provider supports it (idempotency key or lookup); otherwise the delivery is held for an"
    " operator."
)


class View(Protocol):
    """Shows the demo while it runs, and its counts at the end."""

    @contextmanager
    def showing(self, state: DemoState) -> Iterator[None]: ...

    def say(self, state: DemoState) -> None:
        """Show the new caption of *state*."""
        ...

    def say_act(self, state: DemoState, title: str, caption: str) -> None:
        """Show a new caption of an act."""
        ...

    def look(self, state: DemoState) -> None:
        """Show the new counts of *state*."""
        ...

    def timeline(self, title: str, events: Sequence[Row]) -> None: ...

    def summary(self, summary: Summary) -> None: ...

    def commands(self, folder: str, commands: Sequence[str], console: str) -> None:
        """Print where the databases are, commands to look at them, and how to open the console."""
        ...


class Lines:
    """Prints lines."""

    def __init__(self) -> None:
        self._progress_at = 0.0
        self._met_workers = False

    @contextmanager
    def showing(self, state: DemoState) -> Iterator[None]:
        click.echo(f"Holdfast: {TITLE}.\n")
        yield

    def say(self, state: DemoState) -> None:
        if state.workers and not self._met_workers:
            self._met_workers = True
            for worker in state.workers:
                self._line(state, f"Worker {worker.name} is process {worker.process.pid}.")
        self._line(state, state.caption)

    def say_act(self, state: DemoState, title: str, caption: str) -> None:
        self._line(state, f"{title}: {caption}")

    def look(self, state: DemoState) -> None:
        flood, quiet = state.flood, state.quiet
        is_running = flood.done and (flood.waiting or flood.running)
        if not is_running or state.seconds < self._progress_at + PROGRESS_SECONDS:
            return
        self._progress_at = state.seconds
        self._line(
            state,
            f"{flood.name}: {flood.waiting:,} waiting, {flood.done:,} done,"
            f" the last waited {length(flood.last_wait)}"
            f"  ·  {len(quiet)} quiet tenants: {sum(bar.waiting for bar in quiet)} waiting,"
            f" {sum(bar.done for bar in quiet)} done,"
            f" the worst waited {length(max(bar.worst_wait for bar in quiet))}",
        )

    def _line(self, state: DemoState, text: str) -> None:
        click.echo(f"{state.seconds:5.1f}s  {text}")

    def timeline(self, title: str, events: Sequence[Row]) -> None:
        click.echo(f"\n{title}: {events[0]['job_type']}")
        for seconds, event in since_first(events):
            extra = detail_of(event)
            line = (
                f"{f'+{seconds:.1f}s':>8}  {event['name']:17} attempt {event['attempt']}  {extra}"
            )
            click.echo(line.rstrip())

    def summary(self, summary: Summary) -> None:
        self._counts("Jobs, counted in the database", summary.lines)
        for act in summary.acts:
            if act.counts:
                self._counts(f"{act.title}, counted in the database and the simulator", act.counts)
        click.echo("\nHow long the jobs of each tenant waited for a worker:")
        for firm, waits in summary.fairness.by_firm:
            click.echo(
                f"  {firm.name:22} {waits.jobs:>5,} jobs"
                f"   {length(waits.median):>7} median   {length(waits.worst):>7} maximum"
            )
        click.echo(f"\n{summary.fairness.sentence}\n\n{PROMISE}\n")
        for problem in summary.problems:
            click.echo(f"  FAILED: {problem}")
        click.echo(f"In total: {summary.totals}")

    def _counts(self, title: str, counts: Sequence[Count]) -> None:
        click.echo(f"\n{title}:")
        for count in counts:
            click.echo(f"  {count.name:14} {count.count:>5,}   {count.meaning}")

    def commands(self, folder: str, commands: Sequence[str], console: str) -> None:
        click.echo(f"\nThe databases are in {folder}. To look at the jobs:")
        for command in commands:
            click.echo(f"  {command}")
        click.echo(f"\n{CONSOLE}\n  {console}")


def since_first(events: Sequence[Row]) -> list[tuple[float, Row]]:
    """Events with the seconds since the first of them."""
    first = read_instant(events[0]["at"])
    return [((read_instant(event["at"]) - first).total_seconds(), event) for event in events]
