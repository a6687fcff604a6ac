"""Opening a SQLite file: its connections, and the lock files beside it."""

from __future__ import annotations

import os
import sqlite3
from typing import TypeVar
from urllib.parse import unquote

from holdfast.errors import ConfigError, StoreDown
from holdfast.store import digest
from holdfast.store.guards import LentConnection

C = TypeVar("C", bound=sqlite3.Connection)

_PRAGMAS = (
    "journal_mode = WAL",
    # NORMAL may lose the last commits on power loss; FULL keeps every acknowledged commit.
    "synchronous = FULL",
    "foreign_keys = ON",
    # Otherwise INSERT OR REPLACE deletes without firing triggers, including those of the audit.
    "recursive_triggers = ON",
    "wal_autocheckpoint = 0",
    # With 1,000,000 queued jobs a drain keeps its rate with 64 MB and loses 16 % with 16. With 64,
    # collecting 50,000 answers takes 101 MiB, and must take less than 100.
    "cache_size = -56000",
    "temp_store = MEMORY",
)


def connect(path: str | None, url: str, kind: type[C]) -> C:
    """Open a connection to the file, or to a new in-memory database."""
    try:
        connection = sqlite3.connect(
            path or ":memory:",
            timeout=5.0,
            # After a handler's transaction has ended, its writes fail: sqlite3 would first begin
            # another transaction, and that is refused.
            isolation_level="DEFERRED" if path and kind is LentConnection else None,
            check_same_thread=False,
            cached_statements=256,
            factory=kind,
        )
        for pragma in _PRAGMAS:
            connection.execute("PRAGMA " + pragma)
        digest.register(connection)
    except sqlite3.Error as exc:
        then = "Check the path and its permissions."
        if getattr(exc, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY:
            then = (
                "Another transaction holds it, perhaps one of this process: create the tables"
                " before it begins, with holdfast migrate."
            )
        raise StoreDown(f"Cannot open {url}: {exc}. {then}") from exc
    return connection


def open_lock(path: str, url: str) -> int:
    """Open a lock file and return its descriptor."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as exc:
        raise StoreDown(
            f"Cannot open {url}: {exc.strerror} for {path}. Check the path and its permissions."
        ) from exc


def path_of(url: str) -> str | None:
    """Return the file of a URL; None for memory."""
    rest = url.removeprefix("sqlite:")
    if rest in ("", "//", ":memory:", "///:memory:"):
        return None
    if not rest.startswith("///") or rest == "///":
        raise ConfigError(f"{url!r}: write sqlite:///relative.db or sqlite:////absolute/path.db.")
    return os.path.abspath(unquote(rest[3:]))
