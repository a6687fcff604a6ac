"""Only a proven commit counts: a block of ``job.transaction()`` that ended otherwise has failed."""

from __future__ import annotations

import contextlib
import os
import socket
import sqlite3
from typing import Any

import psycopg
import pytest

from holdfast import Context, Holdfast
from holdfast.errors import RuleViolated, StoreDown
from tests.engine.domain import ended, make_domain, run_one
from tests.engine.test_transaction import LATE, add, numbers
from tests.engine.test_transaction import shop as shop
from tests.story import ORG, make_holdfast, timeline


@pytest.mark.req("E-04", "I-18")
@pytest.mark.timeout(LATE)
@pytest.mark.parametrize("method", ["close", "commit", "rollback", "__enter__"])
def test_a_handler_cannot_close_or_end_what_it_was_lent(shop: Holdfast, method: str) -> None:
    said: list[str] = []

    @shop.job("sheet.make")
    def make(job: Context, payload: dict[str, bool]) -> None:
        with job.transaction() as connection:
            add(connection, 2 + payload["swallows"])
            try:
                getattr(connection, method)()
            except RuleViolated as exc:
                said.append(str(exc))
                if not payload["swallows"]:
                    raise

    loud = run_one(shop, "sheet.make", {"swallows": False})
    quiet = run_one(shop, "sheet.make", {"swallows": True})

    assert ended(shop, loud) == ("failed", "RULE_VIOLATED")
    assert ended(shop, quiet) == ("completed", None)
    assert numbers(shop.store) == [1, 3]
    assert all("job.transaction()" in sentence for sentence in said)


@pytest.mark.req("E-04")
@pytest.mark.timeout(LATE)
@pytest.mark.parametrize(
    "text", ["COMMIT", "ROLLBACK", "COMMIT; BEGIN", "ROLLBACK; BEGIN", "END", "ABORT"]
)
@pytest.mark.parametrize("swallows", [True, False])
def test_a_handler_that_ends_its_transaction_by_sql_has_failed(
    shop: Holdfast, text: str, swallows: bool
) -> None:
    if shop.store.dialect.name == "sqlite" and text == "ABORT":
        text = "END TRANSACTION"
    parts = text.split("; ") if shop.store.dialect.name == "sqlite" else [text]

    @shop.job("sheet.make")
    def make(job: Context, payload: object) -> str:
        with job.transaction() as connection:
            for part in parts:
                try:
                    connection.execute(part)
                except Exception:
                    if not swallows:
                        raise
        return "done"

    made = run_one(shop, "sheet.make", {})
    after = run_one(shop, "sheet.make", {"again": True})

    assert ended(shop, made) == ("failed", "RULE_VIOLATED")
    assert ended(shop, after) == ("failed", "RULE_VIOLATED")
    assert timeline(shop, made).count("job.succeeded") == 0


@pytest.mark.req("E-04")
@pytest.mark.timeout(LATE)
def test_a_statement_that_failed_and_was_swallowed_does_not_complete_the_job(
    shop: Holdfast,
) -> None:
    @shop.job("sheet.make")
    def make(job: Context, payload: object) -> str:
        with job.transaction() as connection:
            add(connection, 2)
            # On SQLite one statement is undone and the others are kept, unless the conflict clause
            # differs.
            harder = "OR ROLLBACK " if shop.store.dialect.name == "sqlite" else ""
            for _ in range(2):
                with contextlib.suppress(Exception):
                    connection.execute(f"INSERT {harder}INTO run_sheet VALUES (1, 'twice')")
            for number in (3, 4, 4):
                with contextlib.suppress(Exception):
                    add(connection, number)
        return "done"

    made = run_one(shop, "sheet.make", {})

    assert ended(shop, made) == ("failed", "RULE_VIOLATED")
    assert numbers(shop.store) == [1]


@pytest.mark.timeout(LATE)
def test_an_error_that_sqlite_undoes_alone_is_the_handlers_to_swallow(sqlite_url: str) -> None:
    with make_holdfast(sqlite_url) as hf:
        make_domain(hf.store)

        @hf.job("sheet.make")
        def make(job: Context, payload: object) -> None:
            with job.transaction() as connection:
                add(connection, 2)
                with contextlib.suppress(sqlite3.IntegrityError):
                    add(connection, 1)

        assert ended(hf, run_one(hf, "sheet.make", {})) == ("completed", None)
        assert numbers(hf.store) == [1, 2]


@pytest.mark.req("E-04", "I-18", "R-12")
@pytest.mark.timeout(LATE)
@pytest.mark.parametrize("how", ["terminated", "finished", "shut down"])
def test_a_lost_connection_that_was_swallowed_is_tried_again(postgres_url: str, how: str) -> None:
    with make_holdfast(postgres_url) as hf:
        make_domain(hf.store)

        @hf.job("sheet.make", max_attempts=2)
        def make(job: Context, payload: object) -> str:
            with job.transaction() as connection:
                add(connection, 1 + job.attempt)
                if job.attempt == 1:
                    strike(connection)
                with contextlib.suppress(Exception):
                    connection.execute("SELECT 1")
            return "done"

        def strike(connection: psycopg.Connection[Any]) -> None:
            if how == "finished":
                connection.pgconn.finish()
            elif how == "shut down":
                with socket.socket(fileno=os.dup(connection.fileno())) as end:
                    end.shutdown(socket.SHUT_RDWR)
            else:
                with psycopg.connect(postgres_url, autocommit=True) as other:
                    pid = connection.info.backend_pid
                    other.execute("SELECT pg_terminate_backend(%s, 30000)", (pid,))

        made = hf.enqueue("sheet.make", {}, org_id=ORG)
        hf.worker().run_once()
        first = ended(hf, made)
        hf.clock.advance(minutes=10)  # type: ignore[attr-defined]
        hf.worker().run_once()

        assert first == ("queued", "STORE_UNAVAILABLE")
        assert ended(hf, made)[0] == "completed"
        assert numbers(hf.store) == [1, 3]


@pytest.mark.timeout(LATE)
def test_a_connection_lost_in_the_commit_is_no_success(postgres_url: str) -> None:
    with make_holdfast(postgres_url) as hf:
        make_domain(hf.store)
        pids: list[int] = []

        def end_it(tx: Any) -> None:
            with psycopg.connect(postgres_url, autocommit=True) as other:
                other.execute("SELECT pg_terminate_backend(%s, 30000)", (pids[0],))

        def write() -> None:
            with hf.store.handler_transaction(
                ORG, None, guard=lambda tx: None, finish=end_it
            ) as opened:
                pids.append(opened.connection.info.backend_pid)
                add(opened.connection, 2)

        with pytest.raises(StoreDown):
            write()
        assert numbers(hf.store) == [1]


@pytest.mark.timeout(LATE)
def test_a_handler_that_closes_everything_it_can_reach_does_not_stop_the_store(
    sqlite_url: str,
) -> None:
    with make_holdfast(sqlite_url) as hf:
        make_domain(hf.store)

        @hf.job("sheet.make")
        def make(job: Context, payload: object) -> str:
            with job.transaction() as connection:
                add(connection, 2)
                sqlite3.Connection.close(connection)
            return "done"

        @hf.job("store.break")
        def break_it(job: Context, payload: object) -> str:
            sqlite3.Connection.close(job.store._writer)  # type: ignore[attr-defined]
            return "done"

        made = run_one(hf, "sheet.make", {})
        broken = run_one(hf, "store.break", {})

        assert ended(hf, made)[0] != "completed"
        assert ended(hf, broken) == ("completed", None)
        assert numbers(hf.store) == [1]


@pytest.mark.timeout(LATE)
def test_a_script_would_commit_and_is_refused(sqlite_url: str) -> None:
    with make_holdfast(sqlite_url) as hf:
        make_domain(hf.store)

        @hf.job("sheet.make")
        def make(job: Context, payload: object) -> None:
            with job.transaction() as connection:
                add(connection, 2)
                connection.executescript("INSERT INTO run_sheet VALUES (3, 'script')")

        assert ended(hf, run_one(hf, "sheet.make", {})) == ("failed", "RULE_VIOLATED")
        assert numbers(hf.store) == [1]


@pytest.mark.timeout(LATE)
def test_a_connection_that_a_handler_kept_is_of_no_use_after_its_block(shop: Holdfast) -> None:
    kept: list[Any] = []

    @shop.job("sheet.make")
    def make(job: Context, payload: object) -> None:
        with job.transaction() as connection:
            kept.append(connection if payload else connection.cursor())
        with contextlib.suppress(Exception):
            kept[-1].execute("INSERT INTO run_sheet VALUES (7, 'late')")

    run_one(shop, "sheet.make", {})
    if shop.store.dialect.name == "postgres":
        run_one(shop, "sheet.make", {"connection": True})

    assert numbers(shop.store) == [1]
