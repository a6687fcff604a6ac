"""In-app notifications: a channel that writes to feeds in Holdfast's own database.

It supports lookup by token, so the outcome of a send is known as soon as the database is back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from holdfast.arguments import anything, checked, each, identifier, uuid
from holdfast.channel.channel import (
    Accepted,
    Capabilities,
    Found,
    Lookup,
    LookupFailed,
    LookupKey,
    LookupResult,
    NotFound,
    Rejected,
    Sent,
    Unsure,
)
from holdfast.channel.message import Message
from holdfast.clock import read_instant
from holdfast.config.channel import IN_APP
from holdfast.document import canonical, decode
from holdfast.errors import RuleBroken, StoreError
from holdfast.ids import IdSource, read_uuid
from holdfast.outbox.failure import InvalidDelivery
from holdfast.store import Row, Statements, Store, Tx

SQL = Statements("holdfast.outbox", "in_app.sql")

CHANNEL = IN_APP
NEWEST = "ffffffff-ffff-ffff-ffff-ffffffffffff"
LONGEST_PAGE = 200
# A send is one small write to the database. More parallel writes would only wait for each other.
AT_ONCE = 4
# An unread badge does not need larger numbers.
MOST_UNREAD = 1_000


class InAppChannel:
    """Writes messages to the feeds of their recipients. A token is accepted once, forever."""

    name = CHANNEL
    capabilities = Capabilities(lookup=Lookup.BY_OUR_TOKEN)

    def __init__(self, store: Callable[[], Store], ids: IdSource) -> None:
        self._store = store
        self._ids = ids

    def send(self, message: Message) -> Sent:
        """Write the message to the feed of the delivery's recipient."""
        row = {
            "id": self._ids.new(),
            "token": message.token,
            "subject": message.subject,
            "text": message.text,
            "html": message.html,
            "data": canonical(dict(message.data)),
        }

        def work(tx: Tx) -> Row | None:
            tx.affected(SQL.take_in_app, message=[row], channel=CHANNEL)
            return _find(tx, message.token)

        try:
            found = self._store().write(work)
        except RuleBroken as exc:
            return Rejected(exc.rule, is_permanent=True)
        except StoreError as exc:
            return Unsure(type(exc).__name__)
        if found is None:
            return Rejected("no_such_delivery", is_permanent=True)
        return Accepted(str(found["id"]))

    def lookup(self, key: LookupKey) -> LookupResult:
        """Look in the feeds for a message that may have been written."""
        try:
            found = self._store().read(lambda tx: _find(tx, key.token))
        except StoreError as exc:
            return LookupFailed(type(exc).__name__)
        if found is None:
            return NotFound()
        return Found(str(found["id"]), read_instant(found["created_at"]))


def _find(tx: Tx, token: str) -> Row | None:
    return tx.maybe(SQL.find_in_app, token=token, channel=CHANNEL)


@dataclass(frozen=True, slots=True)
class Notice:
    """One entry of a feed. It contains message text."""

    id: str
    recipient: str = field(repr=False)
    subject: str = field(repr=False)
    text: str = field(repr=False)
    html: str | None = field(repr=False)
    data: Mapping[str, Any] = field(repr=False)
    created_at: datetime
    read_at: datetime | None

    @classmethod
    def from_row(cls, row: Row) -> Notice:
        data, read_at = row["data"], row["read_at"]
        return cls(
            id=str(row["id"]),
            recipient=row["recipient"],
            subject=row["subject"],
            text=row["text"],
            html=row["html"],
            data=decode(data) if isinstance(data, str) else data,
            created_at=read_instant(row["created_at"]),
            read_at=None if read_at is None else read_instant(read_at),
        )


@checked(
    InvalidDelivery,
    checks={
        "ids": each(identifier),
        "limit": anything,
        "recipient": anything,
        "upto": uuid,
    },
)
class Feed:
    """The feeds of an application, one per recipient."""

    def __init__(self, store: Callable[[], Store]) -> None:
        self._store = store

    def list(
        self,
        recipient: str,
        *,
        org_id: str,
        is_unread: bool = False,
        limit: int = 50,
        before: str = NEWEST,
    ) -> list[Notice]:
        """Return a page of a feed, newest first. Pass the last id as *before* for the next page."""
        if type(limit) is not int or not 1 <= limit <= LONGEST_PAGE:
            raise InvalidDelivery({"limit": f"must be a whole number from 1 to {LONGEST_PAGE}"})
        params = {
            **_whose(org_id, recipient),
            "is_unread": int(bool(is_unread)),
            "limit": limit,
            "before": read_id("before", before),
        }
        rows = self._store().many(SQL.list_in_app, **params)
        return [Notice.from_row(row) for row in rows]

    def count_unread(self, recipient: str, *, org_id: str) -> int:
        """Return the number of unread entries, counted up to 1,000."""
        whose = _whose(org_id, recipient)
        row = self._store().one(SQL.count_unread, **whose, most=MOST_UNREAD)
        return int(row["unread"])

    def read(self, recipient: str, ids: Sequence[str], *, org_id: str) -> int:
        """Mark entries of a feed as read; return how many were unread."""
        whose = _whose(org_id, recipient)
        wanted = [{"id": read_id("ids", each)} for each in ids]
        if not wanted:
            return 0
        return self._store().execute(SQL.read_in_app, **whose, wanted=wanted)

    def read_all(self, recipient: str, *, org_id: str, upto: str = NEWEST) -> int:
        """Mark all entries up to *upto* as read; return how many were unread."""
        params = {**_whose(org_id, recipient), "upto": read_id("upto", upto)}
        return self._store().execute(SQL.read_all_in_app, **params)


def _whose(org_id: str, recipient: str) -> dict[str, str]:
    if not isinstance(recipient, str) or not recipient.isprintable():
        raise InvalidDelivery({"recipient": "must be one line of text"})
    return {"org_id": read_id("org_id", org_id), "recipient": recipient}


def read_id(name: str, value: object) -> str:
    """Return the id *value*. Raises InvalidDelivery for the field *name* if it is invalid."""
    try:
        return read_uuid(value)
    except ValueError as exc:
        raise InvalidDelivery({name: str(exc)}) from None


def job_like(value: Any) -> Any:
    """Return *value* if it has the ids of a job. Raises InvalidDelivery."""
    if not all(isinstance(getattr(value, part, None), str) for part in ("org_id", "id")):
        raise InvalidDelivery({"job": "must be a job: something with org_id and id"})
    return value
