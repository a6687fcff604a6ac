"""Run Holdfast and other job systems in turns, and write bench/RESULTS.md.

    python -m bench.peers turns  [--rounds 5] [--jobs 20000] [--minutes 25] [--before REVISION]
                                 [--only postgresql,drain-1,pgqueuer] [--ratios]
    python -m bench.peers deep   [--rows 1000000] [--jobs 20000] [--rounds 5] [--only sqlite]
    python -m bench.peers held   [--seconds 300] [--rate 800]
    python -m bench.peers report turns|deep|held

turns   bulk and single enqueue, drain, pick-up, WAL and disk on PostgreSQL; enqueue and drain on
        SQLite. `--before` adds Holdfast of another revision.
deep    drain beside a million queued jobs and beside a million finished ones.
held    a constant rate while another session holds a snapshot; an hour is `--seconds 3600`.
report  write the section of the last run again.

A run with --only prints its tables and writes nothing. `bench/fairness.py --only wait` measures a
quiet tenant beside a flood, `bench/telemetry.py` the processor time of metrics, and `make bench`
the bare database. Everything is on loopback, below build/peers and a temporary folder.
"""

from __future__ import annotations

import argparse
import signal
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from bench.peers.contender import Contender, Failed
from bench.peers.deep import ALONE, depth_rows, measure_depth
from bench.peers.environments import BUILD, Unavailable, short_revision
from bench.peers.goals import FIGURES, GOALS
from bench.peers.held import held_rows, measure_held
from bench.peers.host import Server, describe_machine
from bench.peers.measures import (
    EARLIER,
    HOLDFAST,
    OBSERVED,
    POSTGRES,
    SQLITE,
    Entry,
    Selection,
    entries,
    measure_rounds,
    opened,
)
from bench.peers.report import (
    Facts,
    Record,
    figure_table,
    goal_table,
    heading,
    load,
    save,
    write_section,
)


def turns(given: argparse.Namespace) -> None:
    wanted = given.wanted
    chosen = [
        one for one in entries(given.before) if wanted.admits(one) and wanted.measures_of(one)
    ]
    with running(chosen, given) as (contenders, facts):
        if any(entry.name == EARLIER for entry in contenders):
            facts.versions[EARLIER] = short_revision(given.before)
        records = []
        for record in measure_rounds(
            contenders, wanted, given.rounds, given.jobs, given.minutes * 60 - 60
        ):
            records.append(record)
            announce(record)
    finish("turns", facts, records, given)


def deep(given: argparse.Namespace) -> None:
    wanted = given.wanted
    chosen = [one for one in entries(None) if one.name == HOLDFAST and wanted.admits(one)]
    records = []
    with running([*chosen, *_alone(chosen)], given) as (contenders, facts):
        for entry in chosen:
            empty = next(
                contender
                for one, contender in contenders.items()
                if one != entry and one.database == entry.database
            )
            for record in measure_depth(
                entry.database, contenders[entry], empty, given.rows, given.jobs, given.rounds
            ):
                records.append(record)
                announce(record)
            contenders[entry].discard()
            empty.discard()
    finish("deep", facts, records, given)


def _alone(chosen: Sequence[Entry]) -> list[Entry]:
    return [Entry(ALONE, one.database, one.install) for one in chosen]


def held(given: argparse.Namespace) -> None:
    chosen = [one for one in entries(None) if one.name == HOLDFAST and one.database == POSTGRES]
    records = []
    with running(chosen, given) as (contenders, facts):
        (contender,) = contenders.values()
        for record in measure_held(contender, given.rate, given.seconds):
            records.append(record)
            announce(record)
    finish("held", facts, records, given)


@contextmanager
def running(
    chosen: Sequence[Entry], given: argparse.Namespace
) -> Iterator[tuple[dict[Entry, Contender], Facts]]:
    """Start the server, install the contenders, and collect what identifies the run."""
    BUILD.mkdir(parents=True, exist_ok=True)
    server = Server() if any(one.database == POSTGRES for one in chosen) else None
    try:
        with (
            tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name,
            opened(chosen, Path(name), server) as contenders,
        ):
            versions = {"PostgreSQL": server.version} if server else {}
            if any(one.database == SQLITE for one in chosen):
                versions["SQLite"] = sqlite3.sqlite_version
            for entry, contender in contenders.items():
                if entry.name not in (EARLIER, OBSERVED, ALONE):
                    versions[entry.name] = str(contender.describe()["version"])
            yield contenders, facts_of_run(Path(name), versions, given)
    finally:
        if server is not None:
            server.close()


def facts_of_run(folder: Path, versions: dict[str, str], given: argparse.Namespace) -> Facts:
    command = " ".join(["python -m bench.peers", *sys.argv[1:]])
    date = datetime.now(UTC).date().isoformat()
    options = {name: value for name, value in vars(given).items() if isinstance(value, int | float)}
    return Facts(date, describe_machine(folder), command, versions, options)


def announce(record: Record) -> None:
    values = ", ".join(f"{name} {value:,.4g}" for name, value in record.values.items())
    print(
        f"{time.strftime('%X')} {record.number + 1} {record.database} {record.measure}"
        f" {record.contender}: {values}",
        flush=True,
    )


def finish(name: str, facts: Facts, records: list[Record], given: argparse.Namespace) -> None:
    """Print the tables; keep the figures and write the section unless the run was a part."""
    lines = section(name, facts, records, ratios_only=given.ratios)
    print("\n" + "\n".join(lines))
    if given.only:
        return
    save(BUILD / f"{name}.json", facts, records)
    write_section(name, lines)


def section(name: str, facts: Facts, records: list[Record], *, ratios_only: bool) -> list[str]:
    """The lines of a generated section."""
    lines = [heading(facts, records)]
    match name:
        case "turns":
            for database, goals in GOALS.items():
                rows = [goal.row(records) for goal in goals]
                if any(row.rounds for row in rows):
                    lines += ["", *goal_table(f"{database}, ratio", rows)]
                if not ratios_only and any(one.database == database for one in records):
                    lines += ["", *figure_table(database, FIGURES, records)]
        case "deep":
            rows = [
                row
                for database in (POSTGRES, SQLITE)
                for row in depth_rows(records, database, int(facts.options["rows"]))
            ]
            lines += ["", *goal_table("drain", rows)]
        case "held":
            lines += [
                "",
                *goal_table("beside a held snapshot", held_rows(records, facts.options["rate"])),
            ]
        case _:
            raise ValueError(f"no section {name!r}")
    return lines


def report(given: argparse.Namespace) -> None:
    facts, records = load(BUILD / f"{given.section}.json")
    write_section(given.section, section(given.section, facts, records, ratios_only=given.ratios))


def main() -> None:
    # Ends as by Ctrl-C, so that processes and databases are removed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    given = parse(sys.argv[1:])
    commands = {"turns": turns, "deep": deep, "held": held, "report": report}
    try:
        commands[given.command](given)
    except KeyboardInterrupt:
        raise SystemExit("interrupted; processes and databases are removed") from None
    except (Failed, Unavailable) as error:
        raise SystemExit(f"error: {error}") from error


def parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.peers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    parsers = {name: commands.add_parser(name) for name in ("turns", "deep", "held", "report")}
    for name in ("turns", "deep"):
        parsers[name].add_argument("--rounds", type=int, default=5)
        parsers[name].add_argument("--jobs", type=int, default=20_000)
        parsers[name].add_argument("--only", default="", metavar="NAMES")
    parsers["turns"].add_argument("--minutes", type=float, default=25.0)
    parsers["turns"].add_argument("--before", metavar="REVISION")
    parsers["deep"].add_argument("--rows", type=int, default=1_000_000)
    parsers["held"].add_argument("--seconds", type=float, default=300.0)
    parsers["held"].add_argument("--rate", type=float, default=800.0)
    parsers["held"].set_defaults(only="")
    parsers["report"].add_argument("section", choices=["turns", "deep", "held"])
    for one in parsers.values():
        one.add_argument("--ratios", action="store_true", help="write no absolute figures")
    given = parser.parse_args(words)
    try:
        given.wanted = Selection.read(getattr(given, "only", ""))
    except ValueError as error:
        parser.error(str(error))
    return given


if __name__ == "__main__":
    main()
