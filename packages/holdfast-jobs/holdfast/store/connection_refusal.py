"""Why PostgreSQL refused a connection or a statement, and what to type. Pure.

The server's messages are in its own language; others than English get the general message.
"""

from __future__ import annotations

import re

from holdfast.errors import StoreDown

# Part of the server's message → what happened and what to type. \\1 is the name in the message.
_REFUSALS = (
    (
        r'database "([^"]+)" does not exist',
        'The database "\\1" does not exist. Create it: createdb \\1; then: holdfast migrate.',
    ),
    (
        r'role "([^"]+)" does not exist',
        'PostgreSQL has no role "\\1". Create it: createuser \\1; or name another user in the URL.',
    ),
    (
        r'password authentication failed for user "([^"]+)"',
        'PostgreSQL refused the password of "\\1". Correct it in the URL, PGPASSWORD or ~/.pgpass.',
    ),
    (
        r"no password supplied",
        "PostgreSQL requires a password. Give it in the URL, PGPASSWORD or ~/.pgpass.",
    ),
    (
        r'permission denied for database "?([^"\n]+)"?',
        "The role may not connect. As the owner: GRANT CONNECT ON DATABASE \\1 TO your_login;",
    ),
    (
        r'role "([^"]+)" is not permitted to log in',
        'The role "\\1" may not log in. As an administrator: ALTER ROLE "\\1" LOGIN;',
    ),
    (
        r"no pg_hba\.conf entry",
        "pg_hba.conf does not allow this host, user and database. Add a line and reload it.",
    ),
    (
        r"could not translate host name|Name or service not known|name resolution",
        "The host of the database URL is unknown here. Correct it: --db URL or HOLDFAST_DB.",
    ),
)
_DENIED = re.compile(r"permission denied for (schema|table|sequence|function|view) (\S+)")
_DENIED_CREATE = re.compile(r"permission denied for database (\S+)")
# A name server may answer later; the other refusals last until the server is changed.
_LAST = len(_REFUSALS) - 1


def connection_refusal(exc: BaseException) -> StoreDown | None:
    """The error for a connection that a repetition would not open; None for any other error."""
    if type(exc).__name__ != "OperationalError" or getattr(exc, "sqlstate", None) is not None:
        return None
    said = str(exc)
    for place, (pattern, says) in enumerate(_REFUSALS):
        match = re.search(pattern, said)
        if match is not None:
            error = StoreDown(match.expand(says))
            error.is_permanent = place != _LAST
            return error
    return None


def grant_hint(said: str) -> str:
    """What to type after a refused privilege; empty for a row that a policy refuses."""
    database = _DENIED_CREATE.search(said)
    if database is not None:
        return (
            ". To create the schema, as the owner of the database: GRANT CREATE ON DATABASE"
            f" {database[1]} TO your_login;"
        )
    if _DENIED.search(said):
        return (
            ". For workers and the command line, as an administrator: GRANT holdfast_engine TO"
            " your_login; for an application of one tenant: GRANT holdfast_tenant TO your_login;"
        )
    return ""
