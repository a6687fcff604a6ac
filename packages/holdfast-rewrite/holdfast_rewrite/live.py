"""Changes of rewrites for frontends: what a person may know of them, from the database.

The sender sees the status, the recipient sees that a rewrite arrived. Attempts, batches, routes and
errors are in neither, and ``batch_submitted`` is shown as ``processing``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from holdfast.clock import read_instant, write_instant
from holdfast.document import encode
from holdfast.operate.changes import Change
from holdfast.store import Row, Statements, Store
from holdfast_rewrite.enums import JOB_TYPE

SQL = Statements("holdfast_rewrite", "live.sql")

# Rewrites whose last state a stream remembers.
MOST_KNOWN = 1_000


@dataclass(frozen=True, slots=True)
class RewriteChange:
    """A rewrite that changed, as one person may see it."""

    rewrite_request_id: str
    role: str
    """``sent`` for the sender, ``received`` for the recipient."""
    status: str
    has_failed: bool
    completed_at: datetime | None
    sender_reveal_at: datetime | None

    def document(self) -> dict[str, Any]:
        """The change as clients see it."""
        return {
            "rewrite_request_id": self.rewrite_request_id,
            "role": self.role,
            "status": self.status,
            "has_failed": self.has_failed,
            "completed_at": _text(self.completed_at),
            "sender_reveal_at": _text(self.sender_reveal_at),
        }


@dataclass(slots=True)
class PersonalChanges:
    """The changes of one person's rewrites in one home."""

    store: Store
    home_id: str
    user_id: str
    _known: dict[tuple[str, str], RewriteChange] = field(default_factory=dict)

    def find(self, changes: Sequence[Change]) -> list[RewriteChange]:
        """What *changes* mean for this person; nothing that they have seen already."""
        asked = [
            {"request_id": found[0], "job_id": found[1]}
            for found in dict.fromkeys(_ids(one) for one in changes)
            if any(found)
        ]
        if not asked:
            return []
        rows = self.store.many(
            SQL.list_changed,
            changed=asked,
            org_id=self.home_id,
            user_id=self.user_id,
            # A message has one recipient, so its snapshot is a list of one.
            named=encode([self.user_id]),
        )
        return [found for row in rows if self._is_new(found := _change(row))]

    def _is_new(self, found: RewriteChange) -> bool:
        key = (found.rewrite_request_id, found.role)
        if self._known.get(key) == found:
            return False
        if len(self._known) >= MOST_KNOWN:
            del self._known[next(iter(self._known))]
        self._known[key] = found
        return True


def _ids(change: Change) -> tuple[str | None, str | None]:
    """The request or the job of a rewrite that a change is about."""
    if change.subject.startswith("rewrite:"):
        return change.subject.removeprefix("rewrite:"), None
    return None, change.job_id if change.job_type == JOB_TYPE else None


def _change(row: Row) -> RewriteChange:
    return RewriteChange(
        str(row["rewrite_request_id"]),
        row["role"],
        row["status"],
        bool(row["has_failed"]),
        _instant(row["completed_at"]),
        _instant(row["sender_reveal_at"]),
    )


def _instant(value: Any) -> datetime | None:
    return None if value is None else read_instant(value)


def _text(value: datetime | None) -> str | None:
    return None if value is None else write_instant(value)
