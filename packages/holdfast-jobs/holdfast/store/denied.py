"""Permission denied: which object a driver's error is about. Pure.

The server's message is never kept. Only the object name is read from it, and only from errors that
the server raises in its own permission checks: these messages contain nothing else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

INSUFFICIENT_PRIVILEGE = "42501"
# Server functions that check permissions; the last four are for sequences. Row-level security
# policies, SET ROLE and user functions raise the same SQLSTATE elsewhere.
_CHECKS_RIGHTS = frozenset(
    (
        "aclcheck_error",
        "aclcheck_error_col",
        "nextval_internal",
        "currval_oid",
        "lastval",
        "do_setval",
    )
)
_ENGLISH = re.compile(
    r"permission denied for (materialized view|foreign table|foreign server|[a-z-]+) (\S.*)",
    re.DOTALL,
)
_QUOTES = '"«»„“”「」'
_NAME = re.compile(r"[^\W\d][\w$]{0,62}")
_OWNERSHIP = "must be owner of "
TABLES = ("table", "view", "relation", "materialized view", "foreign table")


@dataclass(frozen=True, slots=True)
class Denied:
    """An object that a role may not use; *kind* is empty if it is unknown."""

    kind: str
    name: str

    @property
    def has_plain_name(self) -> bool:
        """Whether the name is an identifier that needs no quotes."""
        return _NAME.fullmatch(self.name) is not None


def denied_object(exc: BaseException) -> Denied | None:
    """Return the object that a statement may not use, if that is why it failed."""
    # SQLAlchemy and Django wrap the driver's error.
    for link in (exc, getattr(exc, "orig", None), exc.__cause__):
        found = _of_driver(link)
        if found is not None:
            return found
    return None


def _of_driver(exc: object) -> Denied | None:
    sqlstate = getattr(exc, "sqlstate", None) or getattr(exc, "pgcode", None)
    if sqlstate != INSUFFICIENT_PRIVILEGE:
        return None
    # psycopg has diag; asyncpg has the same fields as attributes of the error.
    diagnosis = getattr(exc, "diag", None)
    source = getattr(diagnosis, "source_function", None) or getattr(
        exc, "server_source_function", None
    )
    message = getattr(diagnosis, "message_primary", None) or getattr(exc, "message", None)
    if source not in _CHECKS_RIGHTS or not isinstance(message, str):
        return None
    if message.startswith(_OWNERSHIP):
        return None
    english = _ENGLISH.fullmatch(message)
    if english is not None:
        return Denied(english[1], english[2])
    # In most other server languages the name is the last word.
    words = [word.strip(_QUOTES) for word in message.split()]
    return Denied("", next(filter(None, reversed(words)), ""))
