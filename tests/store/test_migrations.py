"""Migrations run once, by one process at a time; another schema version is refused with advice."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from holdfast.errors import SchemaMismatch
from holdfast.store import Store, migrate, open_store
from holdfast.store.dialect import POSTGRES, SQLITE, Dialect
from tests.conftest import COMPONENTS
from tests.postgres_server import PostgresServer
from tests.story import by_hand, look


@pytest.fixture
def empty_postgres_url(postgres: PostgresServer) -> Iterator[str]:
    with psycopg.connect(postgres.dsn(), autocommit=True) as admin:
        admin.execute("CREATE DATABASE not_migrated")
    yield postgres.dsn("not_migrated")
    with psycopg.connect(postgres.dsn(), autocommit=True) as admin:
        admin.execute("DROP DATABASE not_migrated WITH (FORCE)")


@pytest.fixture(params=["sqlite", "postgres"])
def empty_url(request: pytest.FixtureRequest) -> str:
    name = "sqlite_url" if request.param == "sqlite" else "empty_postgres_url"
    found: str = request.getfixturevalue(name)
    return found


def schema_of(store: Store) -> list[dict[str, Any]]:
    """All objects that migrations create, as the database describes them."""
    if store.dialect.name == "sqlite":
        return [dict(row) for row in look(store, "SELECT * FROM sqlite_schema ORDER BY name")]
    return [
        dict(row)
        for text in (
            (
                "SELECT table_name, column_name, data_type, is_nullable, column_default"
                " FROM information_schema.columns WHERE table_schema = 'holdfast' ORDER BY 1, 2"
            ),
            "SELECT indexdef FROM pg_indexes WHERE schemaname = 'holdfast' ORDER BY 1",
            (
                "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint"
                " WHERE connamespace = 'holdfast'::regnamespace ORDER BY 1"
            ),
            "SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal ORDER BY 1",
            (
                "SELECT pg_get_functiondef(oid) FROM pg_proc"
                " WHERE pronamespace = 'holdfast'::regnamespace ORDER BY 1"
            ),
            "SELECT tablename, policyname, qual, with_check FROM pg_policies ORDER BY 1, 2",
            (
                "SELECT relname, relacl::text, reloptions::text FROM pg_class"
                " WHERE relnamespace = 'holdfast'::regnamespace ORDER BY 1"
            ),
        )
        for row in look(store, text)
    ]


def test_migrating_again_changes_nothing(empty_url: str) -> None:
    store = open_store(empty_url, check=False)

    first = store.migrate()
    made = schema_of(store)
    second = store.migrate()

    assert first == [str(found) for found in migrate.migrations(store.dialect)]
    assert second == []
    assert schema_of(store) == made
    store.check_schema()
    store.close()


def test_two_that_migrate_at_once_migrate_once(empty_url: str) -> None:
    stores = [open_store(empty_url, check=False) for _ in range(4)]
    gate, applied, errors = threading.Barrier(4), [], []

    def run(store: Store) -> None:
        gate.wait(10)
        try:
            applied.append(store.migrate())
        except BaseException as exc:
            errors.append(exc)

    threads = [threading.Thread(target=run, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    for store in stores:
        store.close()

    assert errors == []
    assert sorted(len(done) for done in applied)[:3] == [0, 0, 0]
    assert max(applied, key=len)


def test_an_empty_postgresql_is_not_touched_before_migrate(
    empty_postgres_url: str,
) -> None:
    with pytest.raises(SchemaMismatch, match=r"No Holdfast schema in .* Run 'holdfast migrate'"):
        open_store(empty_postgres_url)

    with psycopg.connect(empty_postgres_url) as connection:
        row = connection.execute("SELECT to_regnamespace('holdfast')").fetchone()
    assert row == (None,)


def test_postgresql_knows_that_new_tables_are_empty(empty_postgres_url: str) -> None:
    store = open_store(empty_postgres_url, check=False)
    store.migrate()
    store.close()

    with psycopg.connect(empty_postgres_url) as connection:
        unknown = connection.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'holdfast'::regnamespace"
            " AND relkind = 'r' AND reltuples < 0"
        ).fetchall()
    assert unknown == []


def test_an_empty_sqlite_file_migrates_itself(sqlite_url: str) -> None:
    store = open_store(sqlite_url)

    assert look(store, "SELECT count(*) AS jobs FROM holdfast.job") == [{"jobs": 0}]
    store.close()


def set_version(url: str, change: str) -> None:
    store = open_store(url)
    by_hand(store, change)
    store.close()


def test_a_schema_that_is_refused_leaves_no_connection_open(
    empty_postgres_url: str, postgres: PostgresServer
) -> None:
    before = threading.active_count()

    with pytest.raises(SchemaMismatch):
        open_store(empty_postgres_url)

    open_sessions = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = 'not_migrated' AND application_name = 'holdfast'"
    )
    with psycopg.connect(postgres.dsn(), autocommit=True) as admin:
        deadline = time.monotonic() + 10
        while admin.execute(open_sessions).fetchone() != (0,):
            assert time.monotonic() < deadline
    assert threading.active_count() == before


def test_an_older_schema_is_refused_with_advice(url: str) -> None:
    set_version(
        url,
        "DELETE FROM holdfast.migration"
        " WHERE version = (SELECT max(version) FROM holdfast.migration)",
    )

    with pytest.raises(SchemaMismatch, match=r"this code needs \d+\. Run 'holdfast migrate'\."):
        open_store(url)


def test_a_newer_schema_is_refused_with_advice(url: str) -> None:
    set_version(url, "INSERT INTO holdfast.migration (version, name) VALUES (9999, 'tomorrow')")

    with pytest.raises(
        SchemaMismatch, match=r"newer than this code .*Upgrade the holdfast package"
    ):
        open_store(url)


def test_a_migration_that_fails_leaves_nothing_behind(
    empty_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(empty_url, check=False)
    whole = migrate.migrations(store.dialect)
    broken = migrate.Migration(9999, "broken", "CREATE TABLE holdfast_half (id int);\nNONSENSE;\n")
    monkeypatch.setattr(migrate, "migrations", lambda dialect, component: [*whole, broken])

    with pytest.raises(Exception, match="NONSENSE"):
        store.migrate()
    monkeypatch.undo()

    assert len(store.migrate()) == len(whole)
    store.close()


@pytest.mark.parametrize("dialect", [SQLITE, POSTGRES], ids=lambda dialect: dialect.name)
def test_migrations_are_numbered_without_repetition(dialect: Dialect) -> None:
    versions = [found.version for found in migrate.migrations(dialect)]

    assert versions == sorted(set(versions))
    assert all("{" not in found.text.replace("'{", "") for found in migrate.migrations(SQLITE))


def test_both_databases_hold_the_same_tables_and_columns(
    sqlite_url: str, postgres_url: str
) -> None:
    def columns(store: Store) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        if store.dialect.name == "sqlite":
            tables = look(
                store,
                "SELECT name FROM sqlite_schema"
                " WHERE type IN ('table', 'view') AND name LIKE 'holdfast_%'",
            )
            for row in tables:
                name = row["name"]
                described = look(store, f"SELECT name FROM pragma_table_info('{name}')")
                found[name.removeprefix("holdfast_")] = sorted(item["name"] for item in described)
        else:
            for row in look(
                store,
                "SELECT table_name, column_name FROM information_schema.columns"
                " WHERE table_schema = 'holdfast'",
            ):
                found.setdefault(row["table_name"], []).append(row["column_name"])
        return {name: sorted(names) for name, names in found.items()}

    stores = [open_store(url, components=COMPONENTS) for url in (sqlite_url, postgres_url)]
    found = [columns(store) for store in stores]
    for store in stores:
        store.close()

    # SQLite has no logins whose transactions could be bound to a tenant.
    del found[1]["handler_transaction"]
    assert found[0] == found[1]


def test_both_databases_hold_the_same_rules(sqlite_url: str, postgres_url: str) -> None:
    stores = [open_store(url, components=COMPONENTS) for url in (sqlite_url, postgres_url)]
    one = look(stores[0], "SELECT name FROM sqlite_schema WHERE type = 'trigger'")
    two = look(
        stores[1],
        "SELECT tgname AS name FROM pg_trigger WHERE NOT tgisinternal"
        " AND tgname NOT LIKE '%never_truncated'",
    )
    for store in stores:
        store.close()

    names = [{row["name"] for row in rows} for rows in (one, two)]
    # A place changes only with its job. PostgreSQL refuses other changes once per statement, SQLite
    # per row and per kind of change.
    assert {name for name in names[0] ^ names[1] if not name.startswith("job_")} == set()
    assert names[0] - names[1] == {
        "job_canceled",  # PostgreSQL: a branch of job_ended
        "job_succeeded",  # the same
        "job_attempt_follows",  # PostgreSQL: a part of job_attempt_ended
        # Only SQLite has REPLACE.
        "job_cancel_never_replaced",
        "job_envelope_never_replaced",
        "job_event_never_replaced",
        "job_remainder_never_replaced",
        "job_ready_leaves",
        "job_ready_write_once",
        "job_running_leaves",
        "job_submitted_leaves",
        "job_submitted_write_once",
        "job_waiting_leaves",
    }
    assert names[1] - names[0] == {"job_submitted_follows"}
