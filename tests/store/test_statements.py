"""Every statement: its tenant, one text for both databases, and the documented number of them."""

from __future__ import annotations

import functools
import re
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.config.extensions import installed
from holdfast.engine.claim import ClaimRequest, claim_queue, find_backlogs
from holdfast.engine.job import (
    SYSTEM,
    Advanced,
    Canceled,
    Completed,
    Dead,
    Fault,
    Outcome,
    Released,
    Retry,
    Snoozed,
    State,
)
from holdfast.engine.lease import renew_leases
from holdfast.engine.limits import read_rules
from holdfast.engine.maintenance import rescue_jobs
from holdfast.engine.settle import settle
from holdfast.extension import components_of
from holdfast.store import Statement, Statements, Tx, digest, open_store
from holdfast.store.dialect import POSTGRES, SQLITE
from holdfast.store.query import BULK_SIZES, Bulk
from tests.story import ORG, OTHER_ORG, claim

ROOTS = [
    Path(str(resources.files(name)))
    for name in ("holdfast", "holdfast_llm", "holdfast_rewrite", "holdfast_review")
]
# Statements for one database, catalog.sqlite.sql, are read with the file that they belong to.
FILES = sorted(
    {
        (root, path.with_name(re.sub(r"\.(sqlite|postgres)\.sql$", ".sql", path.name)))
        for root in ROOTS
        for path in root.rglob("*.sql")
        if path.parent.name != "migrations"
    }
)
_HEADER = re.compile(r"^-- (\w+) :(\w+)", re.MULTILINE)


@pytest.mark.parametrize("rows", [1, 49, 50, 100, 101, 250, 500, 501, 1_000, 1_001])
def test_sqlite_reads_the_same_rows_from_values_as_from_json(
    shop: Holdfast, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    text = (
        "SELECT r.n, r.t, r.b, r.f, CAST(:said AS text) AS said, a.word, {now} AS now"
        " FROM {rows r: n integer, t text, b boolean, f float8} LEFT JOIN {rows a: word text}"
        " ON TRUE ORDER BY r.n"
    )
    texts = [None, "", "it's :said, ?1 and ü \\ \"", "7", State.COMPLETED]
    given = [
        {"n": n, "t": texts[n % len(texts)], "b": n % 2 == 0, "f": n / 4, "not": "read"}
        for n in range(rows)
    ]

    def read(tx: Tx) -> list[Any]:
        return [
            tx.many(Statement("look", "many", "", text, frozenset("ra"), is_bulk=is_bulk), **params)
            for is_bulk in (True, False)
        ]

    params = {"r": given, "a": [{"word": "once"}], "said": "?"}
    as_values, as_json = shop.store.read(read)

    assert len(as_values) == rows
    strip = [{**row, "now": None} for row in as_values]
    assert strip == [{**row, "now": None} for row in as_json]


def test_sqlite_reads_other_columns_of_the_same_rows_in_each_place_of_a_statement(
    shop: Holdfast,
) -> None:
    text = (
        "SELECT r.n, (SELECT max(r.t) FROM {rows r: t text}) AS last,"
        " (SELECT count(*) FROM {rows r: b integer, n integer} WHERE r.b = r.n) AS same"
        " FROM {rows r: n integer, f float8} ORDER BY r.n"
    )
    given = [{"n": n, "t": f"{n:03}", "b": n % 7, "f": n / 4} for n in range(60)]

    as_values, as_json = (
        shop.store.many(
            Statement("look", "many", "", text, frozenset("r"), is_bulk=is_bulk), r=given
        )
        for is_bulk in (True, False)
    )

    assert as_values == as_json
    assert as_values[0] == {"n": 0, "last": "059", "same": 7}


def test_rows_that_are_sent_as_values_never_make_sqlite_read_a_table_whole(tmp_path: Path) -> None:
    """With statistics of a large table, SQLite once built a Bloom filter from all of its rows."""
    components = components_of(installed().values())
    open_store(f"sqlite:///{tmp_path}/large.db", components=components).close()
    with closing(sqlite3.connect(tmp_path / "large.db")) as connection:
        digest.register(connection)
        connection.execute("ANALYZE")
        connection.execute("DELETE FROM sqlite_stat1")
        indexes = connection.execute(
            "SELECT tbl_name, name FROM sqlite_schema WHERE type = 'index'"
        )
        for table, index in indexes.fetchall():
            columns = connection.execute(f"PRAGMA index_info({index})").fetchall()
            stat = " ".join(["20000", *["50"] * (len(columns) - 1), "1"])
            connection.execute("INSERT INTO sqlite_stat1 VALUES (?, ?, ?)", (table, index, stat))
        connection.execute("ANALYZE sqlite_schema")
        read_whole = {
            f"{name}: {detail}"
            for name, found in every().items()
            if found.is_bulk
            for row_set in found.row_sets
            for size in BULK_SIZES
            for detail in _plan(connection, found.bulk(SQLITE, row_set, size))
            if "BLOOM" in detail or re.search(r"SCAN (job|item|batch)\b", detail)
        }

    assert read_whole == set()


def _plan(connection: sqlite3.Connection, bulk: Bulk | None) -> list[str]:
    assert bulk is not None
    count = sum(len(columns) * bulk.rows or 1 for _, columns in bulk.slots)
    rows = connection.execute(f"EXPLAIN QUERY PLAN {bulk.text}", [None] * count)
    return [row[3] for row in rows]


def test_the_first_column_of_rows_that_are_sent_as_values_is_never_null() -> None:
    first = {
        column
        for found in every().values()
        if found.is_bulk
        for column in re.findall(r"\{rows \w+: (\w+)", found.raw)
    }

    # Keys of the tables that the rows belong to, and the position of a row.
    assert first <= {"org_id", "batch", "batch_id", "place", "queue", "shared", "frame"}


def statements(root: Path, path: Path) -> Statements:
    package = ".".join((root.name, *path.relative_to(root).parent.parts))
    return Statements(package, path.name)


@functools.cache
def every() -> dict[str, Any]:
    """Every statement, by its file and name."""
    return {
        f"{root.name}/{path.relative_to(root)}: {found.name}": found
        for root, path in FILES
        for found in statements(root, path).by_name.values()
    }


def test_there_are_statements() -> None:
    assert len(FILES) >= 50
    assert len(every()) >= 500


@pytest.mark.req("X-06", "X-09")
def test_every_statement_names_the_tenant_or_says_that_it_crosses_tenants() -> None:
    assert [
        name
        for name, statement in every().items()
        if ":org_id" not in statement.raw
        and not re.search(r"\{rows \w+:[^}]*\borg_id uuid", statement.raw)
        and "crosses tenants" not in statement.why
    ] == []


def test_every_statement_is_one_text_for_both_databases() -> None:
    for name, statement in every().items():
        assert not re.search(r"::|%|\?|\$\d", statement.raw), name
        assert statement.why, f"the header of {name} does not say why it is there"
        for dialect in (SQLITE, POSTGRES):
            for lone in (False, True):
                text = statement.render(dialect, lone=lone).text
                assert not re.search(r"[{}]", text), f"{name}\n{text}"


def test_a_name_is_used_once_in_a_file() -> None:
    for root, path in FILES:
        texts = [
            found.read_text() for found in (path, path.with_suffix(".sqlite.sql")) if found.exists()
        ]
        headers = _HEADER.findall("\n".join(texts))
        names = Counter(name for name, _ in headers)

        assert {name: times for name, times in names.items() if times > 1} == {}, path
        run = {name for name, shape in headers if shape != "fragment"}
        assert run == set(statements(root, path).by_name), path


class Count:
    """The number of statements of an operation."""

    def __init__(self) -> None:
        self.statements = 0

    def of(self, work: Any) -> int:
        self.statements = 0
        work()
        return self.statements


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> Iterator[Count]:
    counting = Count()
    ready = Tx._ready

    def counted(self: Tx, *args: Any) -> Any:
        counting.statements += 1
        return ready(self, *args)

    monkeypatch.setattr(Tx, "_ready", counted)
    yield counting
    assert counting.statements


@pytest.fixture
def shop(hf: Holdfast) -> Holdfast:
    hf.job("order.ship")(lambda job, payload: payload)
    return hf


def test_enqueueing_takes_as_many_statements_for_500_jobs_as_for_one(
    shop: Holdfast, count: Count
) -> None:
    def enqueue(many: int) -> None:
        shop.enqueue_many("order.ship", [{"n": n} for n in range(many)], org_id=ORG)

    def enqueue_again(many: int) -> None:
        for _ in range(2):
            shop.enqueue_many(
                "order.ship", [{"n": n} for n in range(many)], org_id=ORG, idempotency_key="same"
            )

    assert count.of(lambda: enqueue(1)) == count.of(lambda: enqueue(500)) == 1
    assert count.of(lambda: enqueue_again(2)) == count.of(lambda: enqueue_again(500))


@pytest.mark.req("C-03")
def test_claiming_takes_as_many_statements_for_500_jobs_as_for_one(
    shop: Holdfast, count: Count
) -> None:
    for org_id in (ORG, OTHER_ORG):
        shop.enqueue_many("order.ship", [{"n": n} for n in range(300)], org_id=org_id)
    claimed: list[Any] = []

    rules = read_rules(shop.store)
    lanes = find_backlogs(shop.store, {"q:default": [""]}, served={}, wanted=500)

    def take(limit: int) -> None:
        ask = ClaimRequest("q:default", "w1", limit, 60_000, backlogs=lanes["q:default"])
        claimed.extend(claim_queue(shop.store, rules, ask))

    one = count.of(lambda: take(1))
    many = count.of(lambda: take(500))
    renewed = [count.of(lambda: renew_leases(shop.store, claimed[:1], lease_ms=1))]
    renewed += [count.of(lambda: renew_leases(shop.store, claimed, lease_ms=1))]

    assert len(claimed) == 501
    # SQLite has no INSERT in WITH: it finds the jobs and then inserts their claims.
    assert one == many == (1 if shop.store.dialect.name == "postgres" else 2)
    # Renewing, and reading which of the claims shall be canceled.
    assert renewed == [2, 2]


FAULT = Fault("GONE", "it is gone", retryable=False)
MIXED: list[Outcome] = [
    Completed('{"n":1}'),
    Retry(FAULT, 5_000),
    Dead(FAULT),
    Advanced('{"n":1}', "wrap", 5),
    Released("drain"),
    Snoozed(5_000),
    Canceled(),
]


@pytest.mark.parametrize("outcome", MIXED, ids=lambda outcome: type(outcome).__name__.lower())
def test_settling_takes_as_many_statements_for_500_jobs_as_for_one(
    shop: Holdfast, count: Count, outcome: Outcome
) -> None:
    shop.enqueue_many("order.ship", [{"n": n} for n in range(501)], org_id=ORG)
    jobs = claim(shop, limit=501)

    one = count.of(lambda: settle(shop.store, [(jobs[0], outcome)], actor=SYSTEM))
    group = [(job, outcome) for job in jobs[1:]]
    settled: list[Any] = []
    many = count.of(lambda: settled.extend(settle(shop.store, group, actor=SYSTEM)))

    assert all(item.lease_held for item in settled)
    assert one == many <= 4


def test_settling_a_group_of_all_outcomes_takes_a_fixed_number_of_statements(
    shop: Holdfast, count: Count
) -> None:
    shop.enqueue_many("order.ship", [{"n": n} for n in range(567)], org_id=ORG)
    jobs = claim(shop, limit=567)
    pairs = [(job, MIXED[number % len(MIXED)]) for number, job in enumerate(jobs)]
    settled: list[Any] = []

    few = count.of(lambda: settled.extend(settle(shop.store, pairs[:7], actor=SYSTEM)))
    many = count.of(lambda: settled.extend(settle(shop.store, pairs[7:], actor=SYSTEM)))

    assert len(settled) == 567
    assert all(item.lease_held for item in settled)
    # The claims, and one for each table: outcomes, attempts, cancel requests, stages, dead letters,
    # the audit.
    assert few == many == 9


def test_rescuing_takes_as_many_statements_for_500_jobs_as_for_one(
    shop: Holdfast, count: Count, clock: Any
) -> None:
    shop.enqueue_many("order.ship", [{"n": n} for n in range(501)], org_id=ORG)
    claim(shop, limit=501)
    clock.advance(seconds=61)
    rescued: list[Any] = []

    one = count.of(lambda: rescued.extend(rescue_jobs(shop.store, limit=1)))
    many = count.of(lambda: rescued.extend(rescue_jobs(shop.store, limit=500)))

    assert len(rescued) == 501
    assert one == many == 4


def test_a_single_statement_reads_or_commits_by_itself(shop: Holdfast) -> None:
    ids = shop.enqueue_many("order.ship", [{"n": 1}, {"n": 2}], org_id=ORG)
    store, sql = shop.store, Statements("holdfast.engine", "job.sql")
    flow = Statements("holdfast.engine", "flow.sql")

    before = store.one(flow.read_revision)["revision"]
    touched = store.execute(flow.raise_revision)

    assert touched == 1
    assert store.values(flow.read_revision) == [(before + 1,)]
    assert [row["id"] for row in store.many(sql.list_events, org_id=ORG, job_id=ids[0].id)]
    assert store.maybe(sql.find_dead_letter, org_id=ORG, job_id=ids[0].id) is None
    assert flow.raise_revision.writes
    assert not flow.read_revision.writes
    # A statement that locks rows needs a transaction that may write.
    assert sql.check_lease.writes


# Words for one database inside a text for both. The number only falls: a statement without a common
# text goes into name.sqlite.sql and name.postgres.sql.
# Eight of them claim the oldest jobs of several queues in one statement: SQLite has no LATERAL.
ONLY_BLOCKS = 24


def blocks_for_one_database() -> Iterator[tuple[str, str]]:
    """Every statement or table with such words: where it is, and its text."""
    for path in sorted(path for root in ROOTS for path in root.rglob("*.sql")):
        is_migration = path.parent.name == "migrations"
        parts = re.split(r"\n\n" if is_migration else r"(?m)(?=^-- \w+ :\w+)", path.read_text())
        yield from ((path.name, part) for part in parts if "{only " in part)


def test_words_for_one_database_become_fewer() -> None:
    found = sum(part.count("{only ") for _, part in blocks_for_one_database())

    assert found <= ONLY_BLOCKS, "find a common text, or a token of the dialect"
    assert found == ONLY_BLOCKS, f"there are fewer now: set ONLY_BLOCKS to {found}"


def test_words_for_one_database_say_why() -> None:
    reason = re.compile(r"^\s*-- .*(SQLite|PostgreSQL)", re.MULTILINE)

    assert [
        (name, part[:60]) for name, part in blocks_for_one_database() if not reason.search(part)
    ] == []


def test_a_statement_without_a_common_text_has_one_for_each_database() -> None:
    found = Statements("holdfast.store", "grants.sql").find_schema

    assert "pg_" in found.render(POSTGRES).text
    assert "pg_" not in found.render(SQLITE).text
