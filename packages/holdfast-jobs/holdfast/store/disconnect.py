"""Which errors of database clients mean that the connection is gone. Pure.

Clients are told apart by the names of their classes and by what their errors carry, so that none of
them has to be installed: psycopg, psycopg2, asyncpg, pg8000, SQLAlchemy, Django, sqlite3.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from enum import Enum

# How far a chain of errors is followed.
LINKS = 12

# SQLSTATE classes: 08 connection, 53 resources, 57 operator intervention, 58 system error.
LOST_CLASSES = ("08", "53", "57", "58")
LOST_STATES = (
    # The server ended a transaction that was idle or open for too long, and the connection with it.
    "25P03",
    "25P04",
    # A write on a standby: the connection reaches a server that has lost its role in a failover.
    "25006",
)
RACE_CLASSES = ("40",)
RACE_STATES = ("55P03",)
# The transaction had failed before: what made it fail is elsewhere in the chain, if anywhere.
ALREADY_FAILED = "25P02"

# What clients say about a connection that is gone, where the class of the error says less.
LOST_WORDS = (
    # libpq and psycopg2
    "terminating connection",
    "closed the connection",
    "connection already closed",
    "connection not open",
    "could not receive data from server",
    "could not send data to server",
    # psycopg and asyncpg
    "the connection is lost",
    "connection is closed",
    "connection was closed",
    # asyncpg takes a lost connection out of its pool and says this at the next statement.
    "connection has been released back to the pool",
    # SQLAlchemy
    "can't reconnect until invalid",
    # pg8000
    "network error",
)


class Reading(Enum):
    """What one error of a client says about its connection."""

    LOST = "lost"
    RACE = "race"
    OTHER = "other"


def links_of(exc: BaseException) -> Iterator[BaseException]:
    """*exc* and what it was raised from, nearest first, at most LINKS of them."""
    seen: set[int] = set()
    waiting: deque[BaseException] = deque([exc])
    while waiting and len(seen) < LINKS:
        link = waiting.popleft()
        if id(link) in seen:
            continue
        seen.add(id(link))
        yield link
        context = None if link.__suppress_context__ else link.__context__
        # SQLAlchemy keeps the client's own error in orig.
        for following in (getattr(link, "orig", None), link.__cause__, context):
            if isinstance(following, BaseException):
                waiting.append(following)


def read_client_error(exc: BaseException) -> Reading | None:
    """What *exc* itself says; None if it is no error of a database client, or says nothing."""
    sqlstate = sqlstate_of(exc)
    if sqlstate is not None:
        return _read_sqlstate(sqlstate)
    if getattr(exc, "connection_invalidated", False) is True:
        return Reading.LOST
    sqlite = getattr(exc, "sqlite_errorname", None)
    if isinstance(sqlite, str):
        is_race = sqlite.startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))
        return Reading.RACE if is_race else Reading.OTHER
    return _read_class(exc)


def sqlstate_of(exc: BaseException) -> str | None:
    """The SQLSTATE that the server gave, if it gave one."""
    found = getattr(exc, "sqlstate", None) or getattr(exc, "pgcode", None)
    return found if isinstance(found, str) else None


def _read_sqlstate(sqlstate: str) -> Reading | None:
    if sqlstate == ALREADY_FAILED:
        return None
    if sqlstate.startswith(LOST_CLASSES) or sqlstate in LOST_STATES:
        return Reading.LOST
    if sqlstate.startswith(RACE_CLASSES) or sqlstate in RACE_STATES:
        return Reading.RACE
    return Reading.OTHER


def _read_class(exc: BaseException) -> Reading | None:
    """By class and words: a connection that broke in mid-statement has no SQLSTATE."""
    kind = type(exc)
    client = kind.__module__.partition(".")[0]
    names = {base.__name__ for base in kind.__mro__}
    # psycopg and psycopg2: an attribute for the SQLSTATE, and nothing in it. Straight from libpq an
    # error has no class of its own.
    if hasattr(exc, "sqlstate") or hasattr(exc, "pgcode"):
        if "PipelineAborted" in names:
            return Reading.OTHER
        if "OperationalError" in names or kind.__name__ == "DatabaseError":
            return Reading.LOST
    # SQLAlchemy's pool had no connection in time.
    if client == "sqlalchemy" and kind.__name__ == "TimeoutError":
        return Reading.LOST
    if names & {"OperationalError", "InterfaceError", "PendingRollbackError"}:
        said = str(exc).lower()
        if any(words in said for words in LOST_WORDS):
            return Reading.LOST
    return None
