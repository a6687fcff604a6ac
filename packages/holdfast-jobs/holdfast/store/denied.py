"""Permission denied: which object a driver's error is about. Pure.

The server's message is never kept. Of it only the name of the object is read, and only from errors
that the server raises in its own check of rights: such a message holds nothing but that name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

INSUFFICIENT_PRIVILEGE = "42501"
# The functions of the server that refuse a right, the last four that on a sequence. A policy of
# row-level security, a SET ROLE and a function of the user's own raise the same SQLSTATE elsewhere.
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
    """An object that a role has no right to use; *kind* is empty where it cannot be read."""

    kind: str
    name: str

    @property
    def has_plain_name(self) -> bool:
        """Whether the name is an identifier that needs no quotes."""
        return _NAME.fullmatch(self.name) is not None


def denied_object(exc: BaseException) -> Denied | None:
    """What a statement had no right to use, if that is why it failed."""
    # SQLAlchemy and Django keep the driver's own error.
    for link in (exc, getattr(exc, "orig", None), exc.__cause__):
        found = _of_driver(link)
        if found is not None:
            return found
    return None


def _of_driver(exc: object) -> Denied | None:
    sqlstate = getattr(exc, "sqlstate", None) or getattr(exc, "pgcode", None)
    if sqlstate != INSUFFICIENT_PRIVILEGE:
        return None
    # psycopg has a diagnosis, asyncpg has the same as attributes of the error.
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
    # Where the server speaks another language, the name is the last word in most of them.
    words = [word.strip(_QUOTES) for word in message.split()]
    return Denied("", next(filter(None, reversed(words)), ""))
