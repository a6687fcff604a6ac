"""The test database of an application: opens it, and refuses any other database."""

from __future__ import annotations

import os
import re
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

from holdfast.clock import Clock, read_instant
from holdfast.errors import ConfigError
from holdfast.store import Statements, Store, open_store
from holdfast.store.caller_connection import family_of
from holdfast.store.caller_database import SQL as DATABASE
from holdfast.store.connection_store import ConnectionStore
from holdfast.store.sqlite_connect import path_of

SQL = Statements("holdfast.engine", "testing.sql")

_TEST_WORD = re.compile(r"(?:^|[^a-z])(?:py)?tests?(?:[^a-z]|$)")
_ALIVE = timedelta(minutes=2)
# Databases that had no jobs when this process first used them.
_OURS: set[str] = set()


def database_of(found: Any) -> str | None:
    """The URL of a SQLAlchemy engine or a URL itself; None for a connection.

    An engine on a database in memory has one connection, which is used instead.
    """
    if isinstance(found, str):
        return found
    if family_of(found) != "sqlalchemy" or not hasattr(found, "url") or hasattr(found, "run_sync"):
        return None
    url = found.url
    if url.get_backend_name() == "sqlite":
        return None if url.database in (None, "", ":memory:") else f"sqlite:///{url.database}"
    plain = url.set(drivername="postgresql")
    return cast(str, plain.render_as_string(hide_password=False))


def connection_of(found: Any) -> Any:
    """The connection to use: that of an engine in memory, or the given one."""
    is_engine = family_of(found) == "sqlalchemy" and hasattr(found, "connect")
    return found.connect() if is_engine and hasattr(found, "url") else found


def check_is_for_tests(store: Store) -> None:
    """Raise ConfigError unless *store* is a database for tests that no worker uses."""
    name: str = store.one(DATABASE.identify)["name"]
    if not is_test_name(name):
        raise ConfigError(
            f"{name} does not look like a test database, so the test refuses to run on it: tests"
            " write with a fake clock, which damages a real audit trail. Use a file in a temporary"
            " folder, or a database with the word test in its name, such as test_shop."
        )
    if name in _OURS or says_test(name) or not store.one(SQL.has_jobs)["found"]:
        _OURS.add(name)
    else:
        raise ConfigError(
            f"{name} has jobs that this test run did not create, so the test does not touch it:"
            " tests write with a fake clock, which damages a real audit trail. Use a new file, or"
            " a database with the word test in its name, such as test_shop.db."
        )
    now = datetime.now(UTC)
    for row in store.many(SQL.list_workers):
        if abs(now - read_instant(row["seen_at"])) < _ALIVE:
            raise ConfigError(
                f"Worker {row['worker_id']} on {row['host']} uses {name}, so the test refuses to"
                " run on it. Stop the worker, or use another test database."
            )


def is_test_name(name: str) -> bool:
    """Whether a database may be one for tests: by its name, or a file in a temporary folder."""
    temporary = Path(tempfile.gettempdir()).resolve()
    return says_test(name) or (os.sep in name and Path(name).resolve().is_relative_to(temporary))


def says_test(name: str) -> bool:
    """Whether a database name or the path of a file says that it is for tests."""
    if not name:
        return True
    if os.sep not in name:
        return _TEST_WORD.search(name.lower()) is not None
    path = Path(name).resolve()
    return any(_TEST_WORD.search(part.lower()) for part in (path.name, path.parent.name)) or any(
        part.startswith("pytest-") for part in path.parts
    )


def open_for_tests(database: Any, clock: Clock) -> Store:
    """Open a database of the application under test. Raises ConfigError for any other."""
    url = database_of(database)
    if url is None:
        store: Store = ConnectionStore(connection_of(database), clock)
        check_name_and_schema(store)
        return store
    if url.startswith("sqlite:") and not is_test_name(path_of(url) or ""):
        # Before the file is opened, which would create it.
        raise ConfigError(
            f"{path_of(url)} does not look like a test database, so the test refuses to run on it."
            " Use a file in a temporary folder, or one with the word test in its name."
        )
    store = open_store(url, clock=clock, check=False)
    try:
        check_name_and_schema(store)
    except BaseException:
        store.close()
        raise
    return store


def check_name_and_schema(store: Store) -> None:
    """Check that a database is for tests; then create missing tables."""
    name: str = store.one(DATABASE.identify)["name"]
    if is_test_name(name) and not store.component_versions():
        if not isinstance(store, ConnectionStore):
            store.migrate()
        store.check_schema()
    check_is_for_tests(store)
    store.check_schema()
