"""The measures, the job systems of each, and the order in which they take turns."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.peers.contender import Contender, Failed, PostgresStore, SqliteStore, Store, Values
from bench.peers.environments import (
    Environment,
    Unavailable,
    earlier_holdfast,
    holdfast_environment,
    node_environment,
    python_environment,
)
from bench.peers.host import Server
from bench.peers.report import Record

POSTGRES, SQLITE = "PostgreSQL", "SQLite"
HOLDFAST = "Holdfast"
EARLIER = "Holdfast before"
OBSERVED = "Holdfast observed"
PGQUEUER, GRAPHILE = "PgQueuer", "Graphile Worker"
PROCRASTINATE, HUEY = "Procrastinate", "Huey"

# One call each is slower by far than bulk.
MOST_SINGLE = 2_000


def _bulk(contender: Contender, jobs: int) -> Values:
    return contender.enqueue("bulk", jobs)


def _single(contender: Contender, jobs: int) -> Values:
    measured = contender.enqueue("one", min(jobs, MOST_SINGLE))
    contender.discard()
    return measured


def _pick_up(contender: Contender, jobs: int) -> Values:
    measured = contender.pick_up()
    contender.discard()
    return measured


def _drain(processes: int) -> Callable[[Contender, int], Values]:
    def drain(contender: Contender, jobs: int) -> Values:
        # The jobs of the bulk enqueue before it are drained, if it was measured.
        if contender.filled != jobs:
            contender.fresh()
            contender.fill(jobs)
        measured = contender.drain(processes, jobs)
        contender.discard()
        return measured

    return drain


MEASURES: dict[str, Callable[[Contender, int], Values]] = {
    "bulk": _bulk,
    "drain_1": _drain(1),
    "drain_2": _drain(2),
    "drain_4": _drain(4),
    "single": _single,
    "pick_up": _pick_up,
}
OF_DATABASE = {
    POSTGRES: ("bulk", "drain_1", "drain_2", "single", "pick_up"),
    SQLITE: ("bulk", "drain_1", "drain_4"),
}


@dataclass(frozen=True, slots=True)
class Entry:
    """A job system that takes part on one database."""

    name: str
    database: str
    install: Callable[[], Environment]
    # Slow job systems get fewer jobs, so that a round stays short.
    most_jobs: int = sys.maxsize
    only: tuple[str, ...] = ()
    extra: tuple[tuple[str, str], ...] = ()

    def measures(self) -> tuple[str, ...]:
        return self.only or OF_DATABASE[self.database]


def entries(earlier: str | None) -> list[Entry]:
    """Every job system; *earlier* is a revision of Holdfast to compare with."""
    found = []
    for database in (POSTGRES, SQLITE):
        found.append(Entry(HOLDFAST, database, holdfast_environment))
        observed = (("BENCH_OBSERVED", "1"),)
        found.append(
            Entry(OBSERVED, database, holdfast_environment, only=("drain_1",), extra=observed)
        )
        if earlier:
            found.append(Entry(EARLIER, database, lambda: earlier_holdfast(earlier)))
    return [
        *found,
        Entry(PGQUEUER, POSTGRES, lambda: python_environment("pgqueuer")),
        Entry(GRAPHILE, POSTGRES, node_environment),
        Entry(PROCRASTINATE, POSTGRES, lambda: python_environment("procrastinate"), 3_000),
        Entry(HUEY, SQLITE, lambda: python_environment("huey"), 5_000),
    ]


@dataclass(frozen=True, slots=True)
class Selection:
    """The databases, measures and contenders of a run; an empty set is all of them."""

    databases: frozenset[str] = frozenset()
    measures: frozenset[str] = frozenset()
    contenders: frozenset[str] = frozenset()

    @staticmethod
    def read(words: str) -> Selection:
        """Read names separated by commas. Raises ValueError for an unknown one."""
        known = {name.lower().replace(" ", "-"): name for name in (POSTGRES, SQLITE)}
        peers = (PGQUEUER, GRAPHILE, PROCRASTINATE, HUEY, OBSERVED, EARLIER)
        systems = {name.lower().replace(" ", "-"): name for name in peers}
        measures = {name.replace("_", "-"): name for name in MEASURES}
        found: dict[str, set[str]] = {"databases": set(), "measures": set(), "contenders": set()}
        for word in filter(None, words.lower().split(",")):
            for kind, names in (
                ("databases", known),
                ("measures", measures),
                ("contenders", systems),
            ):
                if word in names:
                    found[kind].add(names[word])
                    break
            else:
                options = ", ".join((*known, *measures, *systems))
                raise ValueError(f"unknown name {word!r}; choose from {options}")
        return Selection(**{kind: frozenset(names) for kind, names in found.items()})

    def admits(self, entry: Entry) -> bool:
        if self.databases and entry.database not in self.databases:
            return False
        return entry.name == HOLDFAST or not self.contenders or entry.name in self.contenders

    def measures_of(self, entry: Entry) -> tuple[str, ...]:
        return tuple(
            name for name in entry.measures() if not self.measures or name in self.measures
        )


@contextmanager
def opened(
    chosen: Sequence[Entry], folder: Path, server: Server | None
) -> Iterator[dict[Entry, Contender]]:
    """Install each job system, or record why it is left out; drop the databases afterwards."""
    with ExitStack() as stack:
        found: dict[Entry, Contender] = {}
        for entry in chosen:
            try:
                environment = entry.install()
            except Unavailable as error:
                print(f"{entry.name} is left out: {error}", file=sys.stderr, flush=True)
                continue
            name = f"{entry.name}_{entry.database}".lower().replace(" ", "_")
            store: Store
            if entry.database == POSTGRES:
                assert server is not None
                store = PostgresStore(server, name)
            else:
                store = SqliteStore(folder, name)
            found[entry] = Contender(name, environment, store, folder, dict(entry.extra))
            stack.callback(found[entry].discard)
        yield found


def measure_rounds(
    contenders: dict[Entry, Contender], wanted: Selection, rounds: int, jobs: int, seconds: float
) -> Iterator[Record]:
    """Measure round by round; no round begins that would probably end after *seconds*."""
    began = time.monotonic()
    for number in range(rounds):
        passed = time.monotonic() - began
        if number and passed * (number + 1) / number > seconds:
            print(f"ended after {number} rounds: the time is over", file=sys.stderr, flush=True)
            return
        for database, measures in OF_DATABASE.items():
            own = [entry for entry in contenders if entry.database == database]
            # Each round begins with another one, because the machine's speed varies.
            order = own[number % len(own) :] + own[: number % len(own)] if own else []
            for measure in measures:
                for entry in order:
                    if measure in wanted.measures_of(entry):
                        yield from _measured(entry, contenders[entry], measure, number, jobs)


def _measured(
    entry: Entry, contender: Contender, measure: str, number: int, jobs: int
) -> Iterator[Record]:
    try:
        values = MEASURES[measure](contender, min(jobs, entry.most_jobs))
    except Failed as error:
        print(f"{entry.name} {measure}: {error}", file=sys.stderr, flush=True)
        contender.discard()
        return
    yield Record(entry.database, measure, entry.name, number, values)
