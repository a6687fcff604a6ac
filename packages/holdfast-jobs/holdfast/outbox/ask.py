"""Ask: put the question to the channel, outside any transaction, and write down the answer."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, assert_never

from holdfast.channel.channel import (
    Asked,
    Channel,
    Found,
    LookupDown,
    NotFound,
    Seen,
    Several,
)
from holdfast.event import DeliveryAlert, DeliveryTrouble
from holdfast.outbox.page import Case, Key, Page, each, lease_ms, name_at, word
from holdfast.store import Statements, Tx

SQL = Statements("holdfast.outbox", "delivery.sql")

_log = logging.getLogger("holdfast.outbox")


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of which channel about which delivery."""

    case: Case
    channel: Channel
    provider_id: str | None = None


def ask(page: Page, questions: Sequence[Question]) -> dict[Key, Seen]:
    """Ask, and keep the answers as evidence where the delivery is still ours.

    Raises nothing that a channel raises: a question that breaks was not answered.
    """
    if not questions:
        return {}
    outbox = page.outbox
    keys = [
        {"home": one.case.delivery.org_id, "delivery_id": one.case.delivery.id} for one in questions
    ]
    rows = outbox.store.many(SQL.list_addresses, named=keys)
    addresses = {(str(row["org_id"]), str(row["id"])): row["address"] for row in rows}
    # Somebody may have been erased since, with all that they were told.
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
        if isinstance(answer := answers[one.case.key], LookupDown)
    }
    for name, reason in down.items():
        outbox.app.events.emit(DeliveryAlert(name, DeliveryTrouble.LOOKUP_DOWN, detail=reason))
    return {key: answer for key, answer in answers.items() if key in kept}


def _look_up(question: Question, address: str) -> Seen:
    one, channel = question.case.delivery, question.channel
    asked = Asked(
        one.token[: channel.capabilities.longest_token],
        address,
        one.content_hash,
        _since(question.case),
        question.provider_id,
    )
    try:
        return _plain(channel.lookup(asked), one.token)
    except Exception as exc:
        # Its words may be the message's: the kind of error is all that is told.
        _log.warning("channel %s could not be asked: %s", channel.name, type(exc).__name__)
        return LookupDown("error")


def _plain(answer: Seen, token: str) -> Seen:
    """The answer in words that can be kept. Raises if it is none."""
    match answer:
        case Found():
            return replace(answer, provider_id=name_at(answer.provider_id) or token)
        case LookupDown():
            return LookupDown(word(answer.reason))
        case NotFound() | Several():
            return answer
        case _:
            assert_never(answer)


def _since(case: Case) -> datetime:
    return case.delivery.first_sent_at or case.delivery.created_at


def _said(case: Case, answer: Seen) -> dict[str, Any]:
    provider_id, code = None, None
    match answer:
        case Found(is_delivered=True):
            verdict, provider_id = "taken", answer.provider_id
        case Found():
            verdict, provider_id = "undelivered", answer.provider_id
        case NotFound():
            verdict = "not_found"
        case Several():
            verdict, code = "several", word(str(answer.count))
        case LookupDown():
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
