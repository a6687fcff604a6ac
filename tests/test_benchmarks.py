"""The comparison with other job systems: its tables, and Holdfast as a contender."""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path

import pytest

from bench.peers.contender import Contender, Failed, SqliteStore
from bench.peers.environments import adapter_environment
from bench.peers.goals import FIGURES, GOALS
from bench.peers.measures import (
    GRAPHILE,
    HOLDFAST,
    PGQUEUER,
    POSTGRES,
    SQLITE,
    Selection,
    entries,
)
from bench.peers.report import (
    Facts,
    Record,
    Row,
    figure_table,
    goal_table,
    heading,
    load,
    save,
    write_section,
)

FACTS = Facts("2026-01-02", "2 cores", "python -m bench.peers turns", {"PgQueuer": "1.6.0"})


def drained(contender: str, *rates: float, measure: str = "drain_1") -> list[Record]:
    return [
        Record(POSTGRES, measure, contender, number, {"rate": rate, "wal": 1_000, "foreign": 0.1})
        for number, rate in enumerate(rates)
    ]


RECORDED = [
    *drained(HOLDFAST, 9_000, 10_000, 15_000),
    *drained(PGQUEUER, 9_000, 8_000, 10_000),
    *drained(GRAPHILE, 36_000, 40_000),
    *drained(HOLDFAST, 18_000, 15_000, 15_000, measure="drain_2"),
]


@pytest.fixture
def holdfast(tmp_path: Path) -> Contender:
    store = SqliteStore(tmp_path, "bench")
    return Contender("holdfast", adapter_environment("holdfast", sys.executable), store, tmp_path)


def test_ratios_are_taken_round_by_round_between_neighbours() -> None:
    rows = {goal.what: goal.row(RECORDED) for goal in GOALS[POSTGRES]}

    assert rows["drain, 1 process, to PgQueuer"].rounds == [1.0, 1.25, 1.5]
    assert rows["drain, 1 process, to Graphile Worker"].rounds == [0.25, 0.25]
    assert rows["drain, 2 processes, to one process"].rounds == [2.0, 1.5, 1.0]
    assert rows["WAL of a drained job, to 3,900 B"].median == pytest.approx(1_000 / 3_900)


def test_the_table_says_what_is_required_and_whether_it_is_met() -> None:
    lines = goal_table("PostgreSQL, ratio", [goal.row(RECORDED) for goal in GOALS[POSTGRES]])

    assert lines[0] == "| PostgreSQL, ratio | median | required | stretch | rounds |"
    assert (
        "| drain, 1 process, to PgQueuer | **1.25** | ≥ 1.2, met |  | 1.00, 1.25, 1.50 |" in lines
    )
    assert (
        "| drain, 1 process, to Graphile Worker | **0.25** |  | ≥ 1, missed | 0.25, 0.25 |" in lines
    )
    assert not any("pick-up" in line for line in lines)


def test_a_figure_that_must_be_small_is_missed_when_it_is_large() -> None:
    (line,) = goal_table("", [Row("claim p99, ms", [12.34], 10, at_most=True, digits=1)])[2:]

    assert line == "| claim p99, ms | **12.3** | ≤ 10, missed |  | 12.3 |"


def test_the_figures_have_a_column_for_each_contender() -> None:
    lines = figure_table(POSTGRES, FIGURES, RECORDED)

    assert lines[0] == "| PostgreSQL | Holdfast | PgQueuer | Graphile Worker |"
    assert "| drain, 1 process, jobs/s | 10,000 | 9,000 | 38,000 |" in lines
    assert "| drain, 2 processes, jobs/s | 15,000 |  |  |" in lines


def test_a_section_is_replaced_and_the_text_around_it_stays(tmp_path: Path) -> None:
    page = tmp_path / "RESULTS.md"
    page.write_text("before\n<!-- generated: turns -->\nold\n<!-- end: turns -->\nafter\n")

    for text in ("first", "second"):
        write_section("turns", [text], page)

    assert page.read_text() == (
        "before\n<!-- generated: turns -->\n\nsecond\n\n<!-- end: turns -->\nafter\n"
    )
    with pytest.raises(ValueError, match="no section <!-- generated: deep -->"):
        write_section("deep", ["text"], page)


def test_kept_figures_make_the_same_section_again(tmp_path: Path) -> None:
    save(tmp_path / "turns.json", FACTS, RECORDED)

    facts, records = load(tmp_path / "turns.json")

    assert (facts, records) == (FACTS, RECORDED)
    assert heading(facts, records) == (
        "2026-01-02, 2 cores. PgQueuer 1.6.0. `python -m bench.peers turns`. Other programs used"
        " 10% of the machine at the median of the drains, 10% at most."
    )


def test_a_part_of_the_run_always_has_holdfast_in_it() -> None:
    wanted = Selection.read("postgresql,drain-1,pgqueuer")

    chosen = [entry for entry in entries(None) if wanted.admits(entry)]

    assert [entry.name for entry in chosen] == [HOLDFAST, PGQUEUER]
    assert {name for entry in chosen for name in wanted.measures_of(entry)} == {"drain_1"}
    with pytest.raises(ValueError, match="unknown name 'drain'"):
        Selection.read("drain")


def test_holdfast_drains_the_benchmark_in_processes_of_its_own(holdfast: Contender) -> None:
    holdfast.fresh()
    holdfast.fill(30)

    measured = holdfast.drain(2, 30)

    assert measured["rate"] > 0
    assert holdfast.filled == 0
    with sqlite3.connect(holdfast.store.url.removeprefix("sqlite:///")) as database:
        states = database.execute("SELECT DISTINCT state FROM holdfast_job").fetchall()
    assert states == [("completed",)]
    holdfast.discard()
    assert holdfast.store.size() == 0


def test_a_contender_that_cannot_start_says_which_and_why(tmp_path: Path) -> None:
    environment = adapter_environment("absent", sys.executable)
    contender = Contender("absent", environment, SqliteStore(tmp_path, "bench"), tmp_path)

    with pytest.raises(Failed, match=r"(?s)absent prepare: exit code 1: .*No module named"):
        contender.fresh()


def test_every_goal_names_a_measure_of_its_database() -> None:
    measures = {
        database: {name for entry in entries("HEAD") for name in entry.measures()}
        for database in (POSTGRES, SQLITE)
    }

    assert all(
        goal.measure in measures[database] for database, goals in GOALS.items() for goal in goals
    )
