"""The calls of a job inside ``job.transaction()`` are part of it."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from typing import Any

import psycopg
import pytest

from holdfast import Context, Holdfast, SystemClock
from holdfast.errors import RuleViolated
from holdfast.store import Store
from tests.engine.domain import count, ended, make_domain, run_one, titles
from tests.story import ORG, look, make_holdfast, timeline

# Only this limit detects a call that waits for itself.
LATE = 60


@pytest.fixture
def shop(hf: Holdfast) -> Holdfast:
    """An application with a table of its own that its handlers may write."""
    make_domain(hf.store)
    return hf


def add(connection: Any, number: int, title: str = "made") -> None:
    connection.execute(f"INSERT INTO run_sheet VALUES ({number}, '{title}')")


def numbers(store: Store) -> list[int]:
    return [row["id"] for row in look(store, "SELECT id FROM run_sheet ORDER BY id")]


def saved_of(store: Store, job_id: str) -> list[Any]:
    return look(store, "SELECT checkpoint, progress FROM holdfast.job_stage WHERE job_id = :id",
                id=job_id)  # fmt: skip


@pytest.mark.timeout(LATE)
def test_what_a_job_says_inside_its_transaction_commits_with_it(shop: Holdfast) -> None:
    @shop.job("sheet.make")
    def make(job: Context, payload: object) -> Any:
        with job.transaction() as connection:
            add(connection, 2)
            job.progress(1, 2, "half")
            job.checkpoint({"page": 7})
            stored = job.artifacts.put(b"bytes", name="sheet.txt")
            add(connection, 3)
        return stored

    made = run_one(shop, "sheet.make", {})

    (saved,) = saved_of(shop.store, made.id)
    (artifact,) = shop.artifacts.list(ORG, job_id=made.id)
    assert ended(shop, made) == ("completed", None)
    assert numbers(shop.store) == [1, 2, 3]
    assert '"page"' in saved["checkpoint"]
    assert '"half"' in saved["progress"]
    assert shop.artifacts.open(artifact.id, org_id=ORG).read() == b"bytes"
    assert timeline(shop, made).count("artifact.stored") == 1


@pytest.mark.timeout(LATE)
def test_what_a_job_says_inside_its_transaction_goes_with_it(shop: Holdfast) -> None:
    @shop.job("sheet.make")
    def make(job: Context, payload: object) -> None:
        with job.transaction() as connection:
            add(connection, 2)
            job.progress(1, 2)
            job.checkpoint({"page": 7})
            job.artifacts.put(b"bytes", name="sheet.txt")
            raise KeyError("half-way")

    made = run_one(shop, "sheet.make", {})

    assert ended(shop, made) == ("failed", "DEFECT")
    assert numbers(shop.store) == [1]
    assert saved_of(shop.store, made.id) == []
    assert shop.artifacts.list(ORG, job_id=made.id) == []


@pytest.mark.timeout(LATE)
def test_a_job_in_its_transaction_takes_no_neighbour_along(url: str, tmp_path: Any) -> None:
    """Real threads: every handler runs once, the one with the transaction included."""
    ran: list[str] = []
    with make_holdfast(url, SystemClock(), lease_seconds=2.0) as hf:  # type: ignore[arg-type]
        make_domain(hf.store)

        @hf.job("sheet.make")
        def make(job: Context, payload: dict[str, int]) -> None:
            ran.append(job.id)
            with job.transaction() as connection:
                add(connection, payload["n"])
                for step in range(20):
                    job.progress(step, 20)
                job.checkpoint({"n": payload["n"]})

        jobs = hf.enqueue_many("sheet.make", [{"n": n} for n in range(2, 14)], org_id=ORG)
        counts = hf.worker(concurrency=6).run(until_idle=True)

        assert counts.outcomes == {"completed": 12}
        assert sorted(ran) == sorted(job.id for job in jobs)
        assert numbers(hf.store) == list(range(1, 14))


@pytest.mark.timeout(LATE)
def test_a_transaction_within_a_transaction_is_a_savepoint(shop: Holdfast) -> None:
    @shop.job("sheet.make")
    def make(job: Context, payload: object) -> None:
        with job.transaction() as outer:
            add(outer, 2)
            with job.transaction() as inner:
                assert inner is outer
                add(inner, 3)
                with job.transaction():
                    add(inner, 4)
                job.checkpoint({"kept": True})
            with contextlib.suppress(LookupError), job.transaction():
                add(outer, 5)
                job.checkpoint({"kept": False})
                raise LookupError("this part only")
            with contextlib.suppress(Exception), job.transaction():
                add(outer, 1)
            add(outer, 6)

    made = run_one(shop, "sheet.make", {})

    (saved,) = saved_of(shop.store, made.id)
    assert ended(shop, made) == ("completed", None)
    assert numbers(shop.store) == [1, 2, 3, 4, 6]
    assert "true" in saved["checkpoint"]


@pytest.mark.timeout(LATE)
def test_a_call_that_fails_leaves_the_handlers_writes_alone(shop: Holdfast) -> None:
    @shop.job("sheet.make")
    def make(job: Context, payload: object) -> None:
        with job.transaction() as connection:
            add(connection, 2)
            with contextlib.suppress(Exception):
                job.artifacts.put(b"bytes", name="../../etc/passwd")
            with contextlib.suppress(Exception):
                job.artifacts.put(iter([b"bytes", "text"]), name="mixed.txt")  # type: ignore[list-item]
            with contextlib.suppress(Exception):
                job.checkpoint(object())
            add(connection, 3)

    made = run_one(shop, "sheet.make", {})

    assert ended(shop, made) == ("completed", None)
    assert numbers(shop.store) == [1, 2, 3]
    assert shop.artifacts.list(ORG, job_id=made.id) == []


@pytest.mark.timeout(LATE)
def test_what_a_handler_sets_for_itself_does_not_meet_the_engine(shop: Holdfast) -> None:
    def as_dict(cursor: Any, row: Any) -> dict[str, Any]:
        return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}

    @shop.job("sheet.make")
    def make(job: Context, payload: object) -> None:
        with job.transaction() as connection:
            if isinstance(connection, sqlite3.Connection):
                connection.row_factory = as_dict
                connection.text_factory = bytes
            else:
                connection.row_factory = psycopg.rows.dict_row
                connection.execute("CREATE TEMP TABLE job_stage (id integer) ON COMMIT DROP")
                connection.execute("SET LOCAL search_path = pg_temp, public")
            job.progress(1, 2)
            assert connection.execute("SELECT 7 AS seven").fetchone() == {"seven": 7}

    for _ in range(3):
        made = run_one(shop, "sheet.make", {})
        assert ended(shop, made) == ("completed", None)
        assert len(saved_of(shop.store, made.id)) == 1


@pytest.mark.timeout(LATE)
def test_another_thread_of_the_handler_is_refused_at_once(shop: Holdfast) -> None:
    said: list[BaseException] = []

    @shop.job("sheet.make")
    def make(job: Context, payload: object) -> None:
        def beside() -> None:
            for call in (lambda: job.progress(1), lambda: job.checkpoint(1), job.transaction):
                try:
                    opened = call()
                    if opened is not None:
                        opened.__enter__()
                except RuleViolated as exc:
                    said.append(exc)

        with job.transaction() as connection:
            add(connection, 2)
            thread = threading.Thread(target=beside)
            thread.start()
            thread.join(LATE)
        job.progress(2)

    made = run_one(shop, "sheet.make", {})

    assert ended(shop, made) == ("completed", None)
    assert numbers(shop.store) == [1, 2]
    assert ["thread" in str(exc) for exc in said] == [True, True, True]


@pytest.mark.timeout(LATE)
def test_another_task_of_the_handler_is_refused_too(shop: Holdfast) -> None:
    said: list[str] = []

    @shop.job("sheet.make")
    async def make(job: Context, payload: object) -> None:
        async def beside() -> None:
            try:
                job.progress(1)
            except RuleViolated as exc:
                said.append(str(exc))

        with job.transaction() as connection:
            add(connection, 2)
            await asyncio.create_task(beside())
            job.progress(2)

    made = run_one(shop, "sheet.make", {})

    assert ended(shop, made) == ("completed", None)
    assert numbers(shop.store) == [1, 2]
    assert len(said) == 1


@pytest.mark.timeout(LATE)
def test_an_enqueue_past_the_open_transaction_is_an_error_or_goes_its_own_way(
    shop: Holdfast,
) -> None:
    shop.job("child.work")(lambda job, payload: None)

    @shop.job("sheet.make")
    def make(job: Context, payload: object) -> None:
        with job.transaction() as connection:
            add(connection, 2)
            assert shop.get(job.id, org_id=ORG).stage == "run"
            with contextlib.suppress(Exception):
                shop.enqueue("child.work", {}, idempotency_key="past")
            shop.enqueue("child.work", {}, idempotency_key="inside", conn=connection)

    made = run_one(shop, "sheet.make", {})

    assert ended(shop, made) == ("completed", None)
    assert shop.find_key("child.work", "inside", org_id=ORG) is not None


@pytest.mark.timeout(LATE)
def test_an_enrichment_may_report_progress_and_writes_only_the_audit(
    shop: Holdfast,
) -> None:
    if shop.store.dialect.name == "sqlite":
        shop.store.audit_tables = ["run_sheet_audit"]

    @shop.job("sheet.enrich", category="audit_enrichment")
    def enrich(job: Context, payload: dict[str, bool]) -> None:
        with job.transaction() as connection:
            connection.execute("INSERT INTO run_sheet_audit VALUES (1, 'looked')")
            job.progress(1, 2)
            job.audit.append("sheet.compared", subject="run_sheet:1")
            if payload["strays"]:
                with contextlib.suppress(Exception):
                    connection.execute("UPDATE run_sheet SET title = 'taken'")

    good = run_one(shop, "sheet.enrich", {"strays": False})
    bad = run_one(shop, "sheet.enrich", {"strays": True})

    assert ended(shop, good) == ("completed", None)
    assert timeline(shop, good).count("sheet.compared") == 1
    assert ended(shop, bad) == ("failed", "RULE_VIOLATED")
    assert count(shop.store, "run_sheet_audit") == 1
    assert titles(shop.store) == ["as it was"]


@pytest.mark.timeout(LATE)
def test_a_plan_may_report_progress_while_it_reads(shop: Holdfast) -> None:
    @shop.job("sheet.plan", category="planning")
    def plan(job: Context, payload: object) -> Any:
        with job.transaction() as connection:
            assert connection.execute("SELECT count(*) FROM run_sheet").fetchone() == (1,)
            job.progress(1, 2)
            return job.artifacts.put(b"plan", name="plan.txt")

    planned = run_one(shop, "sheet.plan", {})

    assert ended(shop, planned) == ("completed", None)
    assert len(saved_of(shop.store, planned.id)) == 1
