"""Look messages up at their channels, outside any transaction, and store the results."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, assert_never

from holdfast.channel.channel import (
    Ambiguous,
    Channel,
    Found,
    LookupFailed,
    LookupKey,
    LookupResult,
    NotFound,
)
from holdfast.event import DeliveryAlert, DeliveryTrouble
from holdfast.outbox.delivery_lease import (
    DeliveryLease,
    DeliveryState,
    Key,
    each,
    get_code,
    lease_ms,
    name_at,
)
from holdfast.store import Statements, Tx

SQL = Statements("holdfast.outbox", "delivery.sql")

_log = logging.getLogger("holdfast.outbox")


@dataclass(frozen=True, slots=True)
class LookupQuestion:
    """A lookup of one delivery at one channel."""

    case: DeliveryState
    channel: Channel
    provider_id: str | None = None


def look_up(lease: DeliveryLease, questions: Sequence[LookupQuestion]) -> dict[Key, LookupResult]:
    """Look up deliveries, and store the results as evidence while the lease is held.

    An exception of a channel becomes LookupFailed.
    """
    if not questions:
        return {}
    outbox = lease.outbox
    keys = [
        {"home": one.case.delivery.org_id, "delivery_id": one.case.delivery.id} for one in questions
    ]
    rows = outbox.store.many(SQL.list_addresses, named=keys)
    addresses = {(str(row["org_id"]), str(row["id"])): row["address"] for row in rows}
    # A recipient may have been erased in the meantime.
    questions = [one for one in questions if one.case.key in addresses]
    if not questions:
        return {}
    seen = each(
        outbox,
        questions,
        lambda one: one.case.delivery.channel,
        lambda one: _look_up(one, addresses[one.case.key]),
    )
    answers = {one.case.key: answer for one, answer in zip(questions, seen, strict=True)}

    def work(tx: Tx) -> set[Key]:
        held = tx.many(
            SQL.hold_deliveries,
            held=[one.case.named for one in questions],
            lease_ms=lease_ms(outbox),
        )
        kept = {(str(row["org_id"]), str(row["id"])) for row in held}
        said = [_said(one.case, answers[one.case.key]) for one in questions if one.case.key in kept]
        if said:
            tx.affected(SQL.insert_evidence, said=said)
        return kept

    kept = outbox.store.write(work)
    down = {
        one.case.delivery.channel: answer.reason
        for one in questions
        if isinstance(answer := answers[one.case.key], LookupFailed)
    }
    for name, reason in down.items():
        outbox.app.events.emit(DeliveryAlert(name, DeliveryTrouble.LOOKUP_DOWN, detail=reason))
    return {key: answer for key, answer in answers.items() if key in kept}


def _look_up(question: LookupQuestion, address: str) -> LookupResult:
    one, channel = question.case.delivery, question.channel
    asked = LookupKey(
        one.token[: channel.capabilities.longest_token],
        address,
        one.content_hash,
        _since(question.case),
        question.provider_id,
    )
    try:
        return _plain(channel.lookup(asked), one.token)
    except Exception as exc:
        # The text may quote the message, so only the exception type is logged.
        _log.warning("lookup at channel %s failed: %s", channel.name, type(exc).__name__)
        return LookupFailed("error")


def _plain(answer: LookupResult, token: str) -> LookupResult:
    """Return the result with codes that can be stored. Raises if it is no LookupResult."""
    match answer:
        case Found():
            return replace(answer, provider_id=name_at(answer.provider_id) or token)
        case LookupFailed():
            return LookupFailed(get_code(answer.reason))
        case NotFound() | Ambiguous():
            return answer
        case _:
            assert_never(answer)


def _since(case: DeliveryState) -> datetime:
    return case.delivery.first_sent_at or case.delivery.created_at


def _said(case: DeliveryState, answer: LookupResult) -> dict[str, Any]:
    provider_id, code = None, None
    match answer:
        case Found(is_delivered=True):
            verdict, provider_id = "taken", answer.provider_id
        case Found():
            verdict, provider_id = "undelivered", answer.provider_id
        case NotFound():
            verdict = "not_found"
        case Ambiguous():
            verdict, code = "several", get_code(str(answer.count))
        case LookupFailed():
            verdict, code = "unreachable", answer.reason
        case _:
            assert_never(answer)
    return {
        "org_id": case.delivery.org_id,
        "delivery_id": case.delivery.id,
        "source": "lookup",
        "verdict": verdict,
        "provider_id": provider_id,
        "code": code,
        "after_attempt": case.delivery.attempts,
    }
