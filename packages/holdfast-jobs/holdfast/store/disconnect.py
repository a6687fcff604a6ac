"""Which errors of database clients mean that the connection is lost. Pure.

Clients are recognized by class names and error attributes, so none of them has to be installed:
psycopg, psycopg2, asyncpg, pg8000, SQLAlchemy, Django, sqlite3.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from enum import Enum

# Maximum number of errors followed in a chain.
LINKS = 12

# SQLSTATE classes: 08 connection, 53 resources, 57 operator intervention, 58 system error.
LOST_CLASSES = ("08", "53", "57", "58")
LOST_STATES = (
    # The server closed a connection whose transaction was idle or open for too long.
    "25P03",
    "25P04",
    # A write on a standby: the connection reaches a server that was demoted in a failover.
    "25006",
)
RACE_CLASSES = ("40",)
RACE_STATES = ("55P03",)
# The transaction had already failed; the cause may be elsewhere in the chain.
ALREADY_FAILED = "25P02"

# Messages of clients about a lost connection, for errors whose class is not specific.
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
    # asyncpg removes a lost connection from its pool and raises this at the next statement.
    "connection has been released back to the pool",
    # SQLAlchemy
    "can't reconnect until invalid",
    # pg8000
    "network error",
)


class Reading(Enum):
    """The state of the connection after a client error."""

    LOST = "lost"
    RACE = "race"
    OTHER = "other"


def links_of(
    exc: BaseException,
    following: Callable[[BaseException], Iterable[object]] | None = None,
    limit: int = LINKS,
) -> Iterator[BaseException]:
    """Yield *exc* and the errors *following* it, nearest first, at most *limit* of them."""
    seen: set[int] = set()
    waiting: deque[BaseException] = deque([exc])
    while waiting and len(seen) < limit:
        link = waiting.popleft()
        if id(link) in seen:
            continue
        seen.add(id(link))
        yield link
        found = (following or _causes)(link)
        waiting.extend(one for one in found if isinstance(one, BaseException))


def _causes(link: BaseException) -> Iterator[object]:
    # SQLAlchemy keeps the client's error in orig.
    yield getattr(link, "orig", None)
    yield link.__cause__
    yield None if link.__suppress_context__ else link.__context__


def read_client_error(exc: BaseException) -> Reading | None:
    """Classify *exc* alone; None if it is not a database client error, or is inconclusive."""
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
    """Return the SQLSTATE from the server, if any."""
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
    """Classify by class and message: a connection lost mid-statement has no SQLSTATE."""
    kind = type(exc)
    client = kind.__module__.partition(".")[0]
    names = {base.__name__ for base in kind.__mro__}
    # psycopg and psycopg2: the SQLSTATE attribute is empty. An error straight from libpq has no
    # class of its own.
    if hasattr(exc, "sqlstate") or hasattr(exc, "pgcode"):
        if "PipelineAborted" in names:
            return Reading.OTHER
        if "OperationalError" in names or kind.__name__ == "DatabaseError":
            return Reading.LOST
    # SQLAlchemy's pool timed out.
    if client == "sqlalchemy" and kind.__name__ == "TimeoutError":
        return Reading.LOST
    if names & {"OperationalError", "InterfaceError", "PendingRollbackError"}:
        said = str(exc).lower()
        if any(words in said for words in LOST_WORDS):
            return Reading.LOST
    return None
