"""The story as lines: for a pipe, a log, or a terminal without rich."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import click

from holdfast.clock import read_instant
from holdfast.demo.scene import Scene, detail_of
from holdfast.demo.verdict import Verdict
from holdfast.demo.waits import length
from holdfast.store import Row

PROGRESS_SECONDS = 1.0
TITLE = "one noisy tenant, four quiet ones, two workers, one SQLite file"
PROMISE = (
    "At-least-once execution; at most one recorded outcome; no second external effect where the "
    "channel can tell us, and where it cannot, the work is held and says so."
)


class View(Protocol):
    """Shows the story as it goes on."""

    @contextmanager
    def showing(self, scene: Scene) -> Iterator[None]: ...

    def say(self, scene: Scene) -> None:
        """Something worth a sentence happened: the scene's caption."""
        ...

    def look(self, scene: Scene) -> None:
        """Time went by."""
        ...

    def timeline(self, title: str, events: Sequence[Row]) -> None: ...

    def verdict(self, verdict: Verdict) -> None: ...


class Lines:
    """One calm line after the other."""

    def __init__(self) -> None:
        self._progress_at = 0.0
        self._met_workers = False

    @contextmanager
    def showing(self, scene: Scene) -> Iterator[None]:
        click.echo(f"Holdfast: {TITLE}.\n")
        yield

    def say(self, scene: Scene) -> None:
        if scene.workers and not self._met_workers:
            self._met_workers = True
            for hand in scene.workers:
                self._line(scene, f"Worker {hand.name} is process {hand.process.pid}.")
        self._line(scene, scene.caption)

    def look(self, scene: Scene) -> None:
        flood, quiet = scene.flood, scene.quiet
        if not flood.done or scene.seconds < self._progress_at + PROGRESS_SECONDS:
            return
        self._progress_at = scene.seconds
        self._line(
            scene,
            f"{flood.name}: {flood.waiting:,} waiting, {flood.done:,} done,"
            f" the last waited {length(flood.last_wait)}"
            f"  ·  {len(quiet)} quiet tenants: {sum(bar.waiting for bar in quiet)} waiting,"
            f" {sum(bar.done for bar in quiet)} done,"
            f" the worst waited {length(max(bar.worst_wait for bar in quiet))}",
        )

    def _line(self, scene: Scene, text: str) -> None:
        click.echo(f"{scene.seconds:5.1f}s  {text}")

    def timeline(self, title: str, events: Sequence[Row]) -> None:
        click.echo(f"\n{title}: {events[0]['job_type']}")
        for seconds, event in since_first(events):
            extra = detail_of(event)
            line = (
                f"{f'+{seconds:.1f}s':>8}  {event['name']:17} attempt {event['attempt']}  {extra}"
            )
            click.echo(line.rstrip())

    def verdict(self, verdict: Verdict) -> None:
        click.echo("\nWhat the database says:")
        for what, count, meaning in verdict.lines:
            click.echo(f"  {what:14} {count:>5,}   {meaning}")
        click.echo("\nHow long each tenant's jobs waited for a worker:")
        for firm, waits in verdict.fairness.by_firm:
            click.echo(
                f"  {firm.name:22} {waits.jobs:>5,} jobs"
                f"   {length(waits.median):>7} at the median   {length(waits.worst):>7} at worst"
            )
        click.echo(f"\n{verdict.fairness.sentence}")
        for problem in verdict.problems:
            click.echo(f"  NOT TRUE: {problem}")
        click.echo(f"\n{PROMISE}")


def since_first(events: Sequence[Row]) -> list[tuple[float, Row]]:
    """Events with the seconds since the first of them."""
    first = read_instant(events[0]["at"])
    return [((read_instant(event["at"]) - first).total_seconds(), event) for event in events]
