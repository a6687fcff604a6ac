"""Views of a rewrite for the sender, the recipient and operators.

The sender sees the status and, once revealed, the rewrite; never the original again. The recipient
sees only the rewrite. Operators see all records without text.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from holdfast.clock import read_instant, write_instant
from holdfast.document import decode, encode
from holdfast.engine.audit import subject_id
from holdfast.ids import read_uuid
from holdfast.operate.authorization import Action, OperatorContext
from holdfast.store import Row, Statements, Store
from holdfast_rewrite.failure import InvalidRewrite, RewriteNotFound

SQL = Statements("holdfast_rewrite", "show.sql")

NEWEST = "ffffffff-ffff-ffff-ffff-ffffffffffff"
LONGEST_PAGE = 1_000
_DOCUMENTS = frozenset(
    {
        "classifier_result",
        "detail",
        "eval_result",
        "findings",
        "language_pair",
        "policy",
        "routing_decision",
        "topics",
    }
)


@dataclass(frozen=True, slots=True)
class Sent:
    """A rewrite as its sender sees it. *status* is queued, processing or a final status."""

    rewrite_request_id: str
    status: str
    created_at: datetime
    completed_at: datetime | None
    sender_reveal_at: datetime | None
    has_failed: bool
    rewritten_text: str | None = field(repr=False)
    output_language: str | None


@dataclass(frozen=True, slots=True)
class Received:
    """A rewrite as its recipient sees it."""

    rewrite_request_id: str
    rewritten_text: str = field(repr=False)
    output_language: str


def find_sent(store: Store, rewrite_request_id: str, *, home_id: str, user_id: str) -> Sent:
    """Return the status of a rewrite for its sender. Raises RewriteNotFound for other people."""
    ids = _read_ids(rewrite_request_id=rewrite_request_id, home_id=home_id, user_id=user_id)
    found = {"id": ids["rewrite_request_id"], "org_id": ids["home_id"], "user_id": ids["user_id"]}
    row = store.read(lambda tx: tx.maybe(SQL.find_sent, **found))
    if row is None:
        raise RewriteNotFound(ids["rewrite_request_id"])
    return _sent(row)


def list_sent(
    store: Store, *, home_id: str, user_id: str, limit: int = 50, before: str = NEWEST
) -> list[Sent]:
    """List what a person sent in a home, newest first; pass *before* an id for the next page."""
    ids = _read_page(limit, home_id=home_id, user_id=user_id, before=before)
    params = {"org_id": ids["home_id"], "user_id": ids["user_id"], "before": ids["before"]}
    return [
        _sent(row) for row in store.read(lambda tx: tx.many(SQL.list_sent, limit=limit, **params))
    ]


def list_received(
    store: Store, *, home_id: str, user_id: str, limit: int = 50, before: str = NEWEST
) -> list[Received]:
    """List the rewrites for a member of a home, newest first; *before* an id is the next page.

    The recipient was fixed when the message arrived: later members do not see it.
    """
    ids = _read_page(limit, home_id=home_id, user_id=user_id, before=before)
    params = {
        "org_id": ids["home_id"],
        "user_id": ids["user_id"],
        # A message has one recipient, so its snapshot is a list of one.
        "named": encode([ids["user_id"]]),
        "before": ids["before"],
    }
    rows = store.read(lambda tx: tx.many(SQL.list_received, limit=limit, **params))
    return [
        Received(row["rewrite_request_id"], row["rewritten_text"], row["output_language"])
        for row in rows
    ]


def find_record(context: OperatorContext, rewrite_request_id: str) -> dict[str, Any]:
    """Return all records of a rewrite with its events and without text. For operators.

    It begins with the job record, with the field names of the queue's contract.
    """
    request_id = _read_ids(rewrite_request_id=rewrite_request_id)["rewrite_request_id"]
    subject = f"rewrite:{request_id}"
    row = context.store.read(
        lambda tx: tx.maybe(SQL.find_record, id=request_id, org_id=context.org_id)
    )
    context.check(
        Action.READ_AUDIT, org_id=context.org_id if row is None else row["home_id"], subject=subject
    )
    if row is None:
        raise RewriteNotFound(request_id)
    told = context.store.read(
        lambda tx: tx.many(SQL.list_told, subject_id=subject_id(subject), org_id=row["home_id"])
    )
    return {**_plain(row), "events": [_plain(event) for event in told]}


def _sent(row: Row) -> Sent:
    return Sent(
        row["rewrite_request_id"],
        row["status"],
        read_instant(row["created_at"]),
        _instant(row["completed_at"]),
        _instant(row["sender_reveal_at"]),
        bool(row["has_failed"]),
        row["rewritten_text"],
        row["output_language"],
    )


def _instant(value: Any) -> datetime | None:
    return None if value is None else read_instant(value)


def _plain(row: Row) -> dict[str, Any]:
    return {name: _value(name, value) for name, value in row.items()}


def _value(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name in _DOCUMENTS:
        return decode(value)
    return write_instant(read_instant(value)) if name == "at" or name.endswith("_at") else value


def _read_page(limit: int, **given: str) -> dict[str, str]:
    # Without a bound, one database would return everything and the other an error.
    if type(limit) is not int or not 1 <= limit <= LONGEST_PAGE:
        raise InvalidRewrite({"limit": f"must be from 1 to {LONGEST_PAGE}"})
    return _read_ids(**given)


def _read_ids(**given: str) -> dict[str, str]:
    bad: dict[str, str] = {}
    found: dict[str, str] = {}
    for name, value in given.items():
        try:
            found[name] = read_uuid(value)
        except ValueError:
            bad[name] = "must be a UUID"
    if bad:
        raise InvalidRewrite(bad)
    return found
