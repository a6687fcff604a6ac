"""Store messages with their snapshots before they are processed.

One transaction stores any number of messages. A submission that validation rejects is stored as a
failed request with its audit events, without its text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from holdfast.actor import Actor, ActorType
from holdfast.clock import ms, read_instant, write_instant
from holdfast.document import canonical, decode
from holdfast.engine.audit import Deed, record_actions
from holdfast.ids import IdSource
from holdfast.store import Row, Statements, Store, Tx
from holdfast_rewrite.decide import Captured, StoredSubmission
from holdfast_rewrite.enums import FailureCode, HomeRole, Step, Surface
from holdfast_rewrite.validation import Given

SQL = Statements("holdfast_rewrite", "orchestrate.sql")

# A message that crashes every orchestrator must not be retried forever.
GIVEN_UP = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Received:
    """A validated submission with its ids."""

    given: Given
    captured: Captured | None
    failure: FailureCode | None
    rewrite_request_id: str
    recipient_snapshot_id: str
    recipient_preference_snapshot_id: str

    @property
    def request_id(self) -> str:
        return self.given.request_id or self.rewrite_request_id

    @property
    def correlation_id(self) -> str:
        return self.given.correlation_id or self.request_id


def receive(
    given: Sequence[tuple[Given, Captured | None, FailureCode | None]], ids: IdSource
) -> list[Received]:
    """Assign the ids once: a repeated transaction writes the same rows."""
    taken = iter(ids.take(3 * len(given)))
    return [
        Received(submission, captured, failure, next(taken), next(taken), next(taken))
        for submission, captured, failure in given
    ]


def store_messages(store: Store, received: Sequence[Received]) -> list[StoredSubmission]:
    """Write requests, messages, snapshots and audit; return the accepted ones in order."""
    admitted = [item for item in received if item.failure is None]

    def work(tx: Tx) -> dict[str, Any]:
        rows = tx.many(SQL.insert_requests, requests=[_request_row(item) for item in received])
        if not rows:
            # A first execution already wrote everything.
            asked = [_key(item) for item in received]
            rows = tx.many(SQL.find_created, asked=asked)
        else:
            _insert_admitted(tx, admitted)
            record_actions(tx, [deed for item in received for deed in _deeds(item)])
        return {str(row["rewrite_request_id"]): row["created_at"] for row in rows}

    created = store.write(work)
    return [_intake(item, created[item.rewrite_request_id]) for item in admitted]


def take_unfinished(
    store: Store, *, abandoned: timedelta, limit: int, lease: timedelta
) -> list[tuple[StoredSubmission, FailureCode | None]]:
    """Claim abandoned requests; return them as stored, and why some cannot continue.

    Other runs cannot claim them until the lease ends.
    """

    def work(tx: Tx) -> list[Row]:
        taken = tx.many(
            SQL.take_unfinished, abandoned_ms=ms(abandoned), lease_ms=ms(lease), limit=limit
        )
        given_up_ms = ms(max(abandoned, GIVEN_UP))
        return tx.many(SQL.list_unfinished, taken=taken, given_up_ms=given_up_ms) if taken else []

    return [_unfinished(row) for row in store.write(work)]


def count_unfinished(store: Store, *, abandoned: timedelta, most: int) -> int:
    """Count them, up to *most*."""
    counted = store.read(
        lambda tx: tx.one(SQL.count_unfinished, abandoned_ms=ms(abandoned), most=most)
    )
    return int(counted["requests"])


def deed_of(
    item: Received | StoredSubmission, actor: Actor, step: Step, detail: dict[str, Any]
) -> Deed:
    """Return the audit entry of one step: ids and codes, in the request's home."""
    home_id = item.given.home_id if isinstance(item, Received) else item.home_id
    return Deed(
        actor,
        home_id,
        f"rewrite:{item.rewrite_request_id}",
        step.event,
        detail,
        item.request_id,
        item.correlation_id,
    )


def sender_of(item: Received | StoredSubmission) -> Actor:
    """Return the sender as the actor of a request."""
    given = item.given if isinstance(item, Received) else item
    return Actor(ActorType.USER, given.sender_user_id)


# -- writing


def _insert_admitted(tx: Tx, admitted: Sequence[Received]) -> None:
    if not admitted:
        return
    tx.affected(
        SQL.insert_messages,
        messages=[
            {
                **_key(item),
                "original_text": item.given.sender_message,
                "emotion_context": item.given.emotion_context,
            }
            for item in admitted
        ],
    )
    tx.affected(
        SQL.insert_snapshots,
        snapshots=[
            {
                **_key(item),
                "recipient_snapshot_id": item.recipient_snapshot_id,
                "recipient_user_ids": canonical([item.given.recipient_user_id]),
            }
            for item in admitted
        ],
    )
    tx.affected(
        SQL.insert_preference_snapshots,
        snapshots=[
            {
                **_key(item),
                "recipient_preference_snapshot_id": item.recipient_preference_snapshot_id,
                "recipient_user_id": item.given.recipient_user_id,
                "preference_payload": canonical(dict(_captured(item).answers)),
            }
            for item in admitted
        ],
    )


def _key(item: Received) -> dict[str, str]:
    return {"org_id": item.given.home_id, "rewrite_request_id": item.rewrite_request_id}


def _request_row(item: Received) -> dict[str, Any]:
    given, captured = item.given, item.captured
    row: dict[str, Any] = {
        **_key(item),
        "sender_user_id": given.sender_user_id,
        "recipient_user_id": given.recipient_user_id,
        "surface": given.surface,
        "iso_week_year": given.iso_week_year,
        "iso_week": given.iso_week,
        "failure_code": item.failure,
        "request_id": item.request_id,
        "correlation_id": item.correlation_id,
        "recipient_snapshot_id": None,
        "recipient_preference_snapshot_id": None,
        "sender_role": None,
        "recipient_role": None,
        "sender_locale": None,
        "recipient_locale": None,
    }
    if item.failure is None and captured is not None:
        row |= {
            "recipient_snapshot_id": item.recipient_snapshot_id,
            "recipient_preference_snapshot_id": item.recipient_preference_snapshot_id,
            "sender_role": captured.sender_role,
            "recipient_role": captured.recipient_role,
            "sender_locale": captured.sender_locale,
            "recipient_locale": captured.recipient_locale,
        }
    return row


def _deeds(item: Received) -> list[Deed]:
    actor = sender_of(item)
    received = deed_of(item, actor, Step.RECEIVED, {"surface": item.given.surface})
    if item.failure is not None:
        return [received, deed_of(item, actor, Step.FAILED, {"failure_code": item.failure})]
    snapshots = {
        "recipient_snapshot_id": item.recipient_snapshot_id,
        "recipient_preference_snapshot_id": item.recipient_preference_snapshot_id,
    }
    return [received, deed_of(item, actor, Step.QUEUED, snapshots)]


# -- reading


def _captured(item: Received) -> Captured:
    assert item.captured is not None, "a valid submission has been looked up"
    return item.captured


def _intake(item: Received, created_at: Any) -> StoredSubmission:
    given = item.given
    assert given.surface is not None, "a valid submission has a surface"
    return StoredSubmission(
        rewrite_request_id=item.rewrite_request_id,
        home_id=given.home_id,
        sender_user_id=given.sender_user_id,
        recipient_user_id=given.recipient_user_id,
        recipient_snapshot_id=item.recipient_snapshot_id,
        recipient_preference_snapshot_id=item.recipient_preference_snapshot_id,
        surface=given.surface,
        iso_week_year=given.iso_week_year,
        iso_week=given.iso_week,
        request_id=item.request_id,
        correlation_id=item.correlation_id,
        created_at=write_instant(read_instant(created_at)),
        captured=_captured(item),
        original_text=given.sender_message,
    )


# A placeholder for unreadable data; no request is built from it.
_NOBODY = Captured(HomeRole.HOUSEMATE, HomeRole.HOUSEMATE, None, None, {})


def _unfinished(row: Row) -> tuple[StoredSubmission, FailureCode | None]:
    text, payload = row["original_text"], row["preference_payload"]
    is_lost = text is None or payload is None or row["is_given_up"]
    surface, captured = Surface.OTHER, _NOBODY
    try:
        surface, captured = Surface(row["surface"]), _captured_then(row)
    except ValueError:
        # Unreadable data, for example edited by hand, must not block the other requests.
        is_lost = True
    intake = StoredSubmission(
        rewrite_request_id=str(row["rewrite_request_id"]),
        home_id=str(row["org_id"]),
        sender_user_id=str(row["sender_user_id"]),
        recipient_user_id=str(row["recipient_user_id"]),
        recipient_snapshot_id=str(row["recipient_snapshot_id"]),
        recipient_preference_snapshot_id=str(row["recipient_preference_snapshot_id"]),
        surface=surface,
        iso_week_year=row["iso_week_year"],
        iso_week=row["iso_week"],
        request_id=row["request_id"],
        correlation_id=row["correlation_id"],
        created_at=write_instant(read_instant(row["created_at"])),
        captured=captured,
        original_text=text or "",
    )
    return intake, FailureCode.ABANDONED if is_lost else None


def _captured_then(row: Row) -> Captured:
    payload = row["preference_payload"]
    return Captured(
        HomeRole(row["sender_role"]),
        HomeRole(row["recipient_role"]),
        row["sender_locale"],
        row["recipient_locale"],
        {} if payload is None else decode(payload),
    )
