"""Short ids: unique prefixes of ids.

People read and type the beginning of a UUID. Commands print the shortest unique prefix and accept
any unique prefix. Other callers of the operator API use whole ids.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from holdfast.errors import NotFound
from holdfast.ids import read_uuid
from holdfast.operate.authorization import Action, OperatorContext
from holdfast.operate.refusal import InvalidAction
from holdfast.store import Statement, Statements

SQL = Statements("holdfast.operate", "short_ids.sql")

# Shorter prefixes would be guesses. UUIDv7 ids begin with a timestamp: 13 characters are one
# millisecond.
SHORTEST = 4
SHOWN = 13
# The number of candidates that an error lists.
CANDIDATES = 5

_WHOLE = "00000000-0000-0000-0000-000000000000"
_PREFIX = re.compile(r"[0-9a-f-]+")


@dataclass(frozen=True, slots=True)
class IdSpace:
    """The ids of one kind of row. *beside* is omitted if no index is in order of ids."""

    what: str
    find: Statement
    beside: Statement | None = None


JOBS = IdSpace("job", SQL.find_jobs, SQL.find_jobs_beside)
DELIVERIES = IdSpace("delivery", SQL.find_deliveries)
RUNS = IdSpace("run", SQL.find_runs, SQL.find_runs_beside)
TENANTS = IdSpace("tenant", SQL.find_tenants, SQL.find_tenants_beside)


class UnknownPrefix(NotFound):
    """No id begins with this prefix."""


def resolve_id(context: OperatorContext, space: IdSpace, text: str) -> str:
    """Return the only id that begins with *text*. Raises UnknownPrefix or InvalidAction."""
    prefix = text.lower()
    named = _named_tenant(context, text) if space is TENANTS else None
    if named is not None:
        return named
    hint = ", or a name such as name:acme" if space is TENANTS else ""
    if not _is_prefix(prefix):
        raise InvalidAction(
            {"id": f"must be an id, or a prefix of at least {SHORTEST} characters{hint}"}
        )
    if len(prefix) == len(_WHOLE):
        return prefix
    # Candidates may belong to any tenant.
    context.check(Action.LOOK, org_id=None, subject=f"{space.what}:{prefix}")
    rows = context.store.many(
        space.find,
        low=prefix + _WHOLE[len(prefix) :],
        high=prefix + _WHOLE[len(prefix) :].replace("0", "f"),
        limit=CANDIDATES + 1,
    )
    found = [str(row["id"]) for row in rows]
    if not found:
        says = f"No {space.what} has an id that starts with {prefix}."
        raise UnknownPrefix(f"{says} A name begins with name:" if hint else says)
    if len(found) > 1:
        listed = ", ".join(found[:CANDIDATES])
        more = " and more" if len(found) > CANDIDATES else ""
        raise InvalidAction({"id": f"{prefix} is ambiguous: {listed}{more}"})
    return found[0]


def _named_tenant(context: OperatorContext, text: str) -> str | None:
    """The tenant that is known by the name *text*: listings show names without ``name:``."""
    try:
        found = read_uuid(f"name:{text}")
    except ValueError:
        return None
    return found if found in names_of(context, [found]) else None


def _is_prefix(text: str) -> bool:
    return (
        SHORTEST <= len(text) <= len(_WHOLE)
        and _PREFIX.fullmatch(text) is not None
        and all((letter == "-") == (_WHOLE[at] == "-") for at, letter in enumerate(text))
    )


def names_of(context: OperatorContext, ids: Iterable[str | None]) -> dict[str, str]:
    """Return the names of tenants and projects among *ids* that were given by name."""
    rows = [{"id": one} for one in sorted({one for one in ids if one is not None})]
    found = context.store.many(SQL.find_names, ids=rows) if rows else []
    return {str(row["id"]): row["name"] for row in found}


def short_ids(context: OperatorContext, space: IdSpace, ids: Iterable[str]) -> dict[str, str]:
    """Return the shortest unique prefix of each of *ids*, with at least its timestamp.

    A tenant that was given by name has its name instead.
    """
    listed = sorted(set(ids))
    if not listed:
        return {}
    longest = dict.fromkeys(listed, SHOWN)
    pairs = list(pairwise(listed))
    if space.beside is not None:
        for row in context.store.many(space.beside, ids=[{"id": found} for found in listed]):
            pairs += [
                (str(row["id"]), str(row[side]))
                for side in ("below", "above")
                if row[side] is not None
            ]
    for one, other in pairs:
        needed = _shared(one, other) + 1
        for found in (one, other):
            if found in longest:
                longest[found] = max(longest[found], needed)
    names = names_of(context, listed) if space is TENANTS else {}
    return {found: found[:length] for found, length in longest.items()} | names


def _shared(one: str, other: str) -> int:
    """Return the length of the common prefix."""
    return next((at for at, letter in enumerate(one) if letter != other[at]), len(one))
