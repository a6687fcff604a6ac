"""What a handler's own statements may do to SQLite, which has no roles.

An authorizer is asked while a statement is prepared, so that what is refused never runs. It holds
against SQL, whatever the SQL is made of. It does not hold against Python: a handler lives in the
worker's process and may take it off again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from holdfast.errors import RuleViolated, Signal
from holdfast.store.store import Access

OWN_PREFIX = "holdfast_"
AUDIT_NOTES = "holdfast_audit_note"
# Where a key that was asked for again is remembered as seen.
_KEYED = ("holdfast_job", "holdfast_job_history")

_READING = frozenset(
    {
        sqlite3.SQLITE_SELECT,
        sqlite3.SQLITE_READ,
        sqlite3.SQLITE_RECURSIVE,
        sqlite3.SQLITE_SAVEPOINT,
    }
)
_CHANGING = frozenset({sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE})


class Authorizer:
    """Says yes or no to each part of a statement, and remembers the first no."""

    def __init__(self, access: Access, audit_tables: Collection[str]) -> None:
        self.access = access
        # Names compare without case in SQLite.
        self.tables = frozenset(name.lower() for name in audit_tables)
        self.refused: str | None = None

    def __call__(
        self, action: int, name: str | None, detail: str | None, _: str | None, inside: str | None
    ) -> int:
        if self._allows(action, (name or "").lower(), (detail or "").lower(), inside):
            return sqlite3.SQLITE_OK
        self.refused = self.refused or (name or detail or "a statement")
        return sqlite3.SQLITE_DENY

    def _allows(self, action: int, name: str, detail: str, inside: str | None) -> bool:
        if action in _READING:
            return True
        if action == sqlite3.SQLITE_FUNCTION:
            return detail != "load_extension"
        if action == sqlite3.SQLITE_UPDATE and name in ("sqlite_master", "sqlite_temp_master"):
            # SQLite asks this of itself when a table-valued function such as json_each is first
            # used; a statement that tries it needs a pragma that is refused.
            return True
        if self.access is Access.AUDIT:
            # An own table may hold records that can be enriched in place; nothing leaves an audit.
            return (action == sqlite3.SQLITE_INSERT and name in {AUDIT_NOTES, *self.tables}) or (
                action == sqlite3.SQLITE_UPDATE and name in self.tables
            )
        if self.access is Access.DOMAIN and action in _CHANGING:
            # A job may be enqueued; its audit and whatever else belongs to it come by triggers.
            return (
                not name.startswith(("sqlite_", OWN_PREFIX))
                or inside is not None
                or (name == "holdfast_job" and action == sqlite3.SQLITE_INSERT)
                or (name in _KEYED and detail == "key_last_seen_at")
            )
        return False


@contextmanager
def confined(
    connection: sqlite3.Connection, access: Access, audit_tables: Collection[str]
) -> Iterator[None]:
    """Let the statements of the block do what *access* allows; another one undoes the block."""
    if access is Access.WRITE:
        yield
        return
    authorizer = Authorizer(access, audit_tables)
    connection.set_authorizer(authorizer)
    try:
        yield
    except (Exception, Signal) as exc:
        if authorizer.refused is None:
            raise
        raise refusal(access, authorizer.refused) from exc
    finally:
        connection.set_authorizer(None)
    # The handler may have swallowed the refusal.
    if authorizer.refused is not None:
        raise refusal(access, authorizer.refused)


def refusal(access: Access, what: str) -> RuleViolated:
    """The failure of a handler that reached for more than its duty allows."""
    return RuleViolated(
        f"This job's transaction may {access.says}; it tried to touch {what}.",
        access=access,
        touched=what,
    )
