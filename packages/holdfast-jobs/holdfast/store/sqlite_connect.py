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
    # NORMAL may lose the last commits when the power goes; what was acknowledged stays.
    "synchronous = FULL",
    "foreign_keys = ON",
    # INSERT OR REPLACE deletes without its triggers otherwise, the audit's included.
    "recursive_triggers = ON",
    "wal_autocheckpoint = 0",
    # 64 MiB: with 1,000,000 queued a drain keeps its pace; with 16 MiB it lost 16 %.
    "cache_size = -64000",
    "temp_store = MEMORY",
)


def connect(path: str | None, url: str, kind: type[C]) -> C:
    """A connection to the file, or to a new database in memory."""
    try:
        connection = sqlite3.connect(
            path or ":memory:",
            timeout=5.0,
            # A handler whose transaction is gone writes nothing: sqlite3 would begin another first,
            # and that is refused.
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
                "Somebody's transaction holds it, perhaps this process's own: make the tables"
                " before it begins, with holdfast migrate."
            )
        raise StoreDown(f"Cannot open {url}: {exc}. {then}") from exc
    return connection


def open_lock(path: str, url: str) -> int:
    """The descriptor of a lock file."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as exc:
        raise StoreDown(
            f"Cannot open {url}: {exc.strerror} for {path}. Check the path and its permissions."
        ) from exc


def path_of(url: str) -> str | None:
    """The file a URL names; None for memory."""
    rest = url.removeprefix("sqlite:")
    if rest in ("", "//", ":memory:", "///:memory:"):
        return None
    if not rest.startswith("///") or rest == "///":
        raise ConfigError(f"{url!r}: write sqlite:///relative.db or sqlite:////absolute/path.db.")
    return os.path.abspath(unquote(rest[3:]))
