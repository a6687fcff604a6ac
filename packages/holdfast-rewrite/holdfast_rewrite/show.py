"""Show: what the sender, the recipient and an operator may see of a rewrite.

The sender sees how it stands, and the rewrite once its time has come; never the original again. The
recipient sees the rewrite and nothing else. An operator sees everything that is on record, and no
text.
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
        "language_pair",
        "policy",
        "routing_decision",
        "topics",
    }
)


@dataclass(frozen=True, slots=True)
class Sent:
    """A rewrite as its sender sees it. *status* is queued, processing or how it ended."""

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
    """How a rewrite stands, for its sender. Raises RewriteNotFound for everybody else."""
    ids = _read_ids(rewrite_request_id=rewrite_request_id, home_id=home_id, user_id=user_id)
    found = {"id": ids["rewrite_request_id"], "org_id": ids["home_id"], "user_id": ids["user_id"]}
    row = store.read(lambda tx: tx.maybe(SQL.find_sent, **found))
    if row is None:
        raise RewriteNotFound(ids["rewrite_request_id"])
    return _sent(row)


def list_sent(
    store: Store, *, home_id: str, user_id: str, limit: int = 50, before: str = NEWEST
) -> list[Sent]:
    """What somebody sent in a home, newest first; *before* an id is the next page."""
    ids = _read_page(limit, home_id=home_id, user_id=user_id, before=before)
    params = {"org_id": ids["home_id"], "user_id": ids["user_id"], "before": ids["before"]}
    return [
        _sent(row) for row in store.read(lambda tx: tx.many(SQL.list_sent, limit=limit, **params))
    ]


def list_received(
    store: Store, *, home_id: str, user_id: str, limit: int = 50, before: str = NEWEST
) -> list[Received]:
    """The rewrites for somebody of a home, newest first; *before* an id is the next page.

    Who is meant was fixed when the message came: whoever joins later reads nothing of before.
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
    """Everything on record of a rewrite, with its events and without any text. For operators.

    It begins with the job record, field by field as the contract of the queue names them.
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
    # Without a bound one database would send everything, and the other an error.
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
