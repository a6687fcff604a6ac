"""Send: take deliveries under a lease, decide, ask where asking helps, try, and mark.

The order is the contract. The try is committed before the call, the mark after it; whoever dies in
between leaves a try without an outcome, and decide.py says what may follow that.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, assert_never

from holdfast.channel.channel import (
    Accepted,
    Capabilities,
    Channel,
    Rejected,
    Sent,
    Throttled,
    Unsure,
)
from holdfast.channel.message import Message
from holdfast.clock import read_instant
from holdfast.engine.retry import RETRY_AFTER_CEILING, RetryPolicy
from holdfast.event import DeliveryAlert, DeliveryTrouble
from holdfast.outbox.ask import Question, ask
from holdfast.outbox.decide import Ask, Decision, Done, Drop, Policy, Send, Wait, decide
from holdfast.outbox.delivery import Attempt, Reason
from holdfast.outbox.intend import read_content
from holdfast.outbox.mark import Ending, mark
from holdfast.outbox.page import (
    Case,
    Grip,
    Key,
    Page,
    each,
    holding,
    lease_ms,
    name_at,
    read_again,
    take_page,
    word,
)
from holdfast.outbox.point import Point
from holdfast.outbox.tally import Tally
from holdfast.store import Row, Statements, Tx

if TYPE_CHECKING:
    from holdfast.outbox.outbox import Outbox

SQL = Statements("holdfast.outbox", "delivery.sql")

_log = logging.getLogger("holdfast.outbox")

# A try with its end, and how long its channel wants to be left alone.
Answer = tuple[Attempt, timedelta | None]

# One lease holds so many: with four calls at once they are through long before it ends.
PAGE = 50
# Notifications wait up to half an hour between two tries.
RETRY = RetryPolicy(longest=timedelta(minutes=30))
# A channel that is not configured here may be elsewhere, for example during a deployment.
UNKNOWN_CHANNEL = timedelta(minutes=5)


def deliver_once(outbox: Outbox, ids: Sequence[tuple[str, str]], *, worker_id: str = "") -> Tally:
    """Do what may be done for these deliveries, given as tenant and id, that are due and free."""
    tally = Tally()
    wanted = list(dict.fromkeys(ids))
    for at in range(0, len(wanted), PAGE):
        named = [{"home": org_id, "delivery_id": one} for org_id, one in wanted[at : at + PAGE]]

        def take(tx: Tx, named: list[dict[str, str]] = named) -> list[Row]:
            return tx.many(SQL.take_named, named=named, owner=worker_id, lease_ms=lease_ms(outbox))

        page = take_page(outbox, take)
        if page is not None:
            tally.add(deliver_page(page, worker_id=worker_id))
    return tally


def deliver_page(page: Page, *, worker_id: str) -> Tally:
    """Decide on every delivery of a page, and do it."""
    tally = Tally(now=page.taken_at)
    tally.counts["taken"] += len(page.cases)
    ends: list[Ending] = []
    sends: list[_Try] = []
    questions: list[Question] = []
    for case in page.cases:
        channel = page.channel(case)
        if channel is None:
            ends.append(_leave(page, case))
            continue
        decision = page.decide(case, channel)
        if isinstance(decision, Ask):
            questions.append(Question(case, channel, decision.provider_id))
        else:
            _sort(case, channel, decision, sends, ends)
    tally.counts["asked"] += len(questions)
    _resolve(page, questions, sends, ends, tally)
    tally.add(mark(page, ends))
    tally.add(_send(page, sends, worker_id))
    return tally


@dataclass(frozen=True, slots=True)
class _Try:
    """A delivery that is handed over now, and why."""

    case: Case
    channel: Channel
    reason: Reason


@dataclass(frozen=True, slots=True)
class _Begun:
    """A try that is on record."""

    wanted: _Try
    case: Case
    attempt: Attempt
    message: Message | None


def _sort(
    case: Case, channel: Channel, decision: Decision, sends: list[_Try], ends: list[Ending]
) -> None:
    match decision:
        case Send():
            sends.append(_Try(case, channel, decision.reason))
        case _:
            ends.append(Ending(case, decision))


def _leave(page: Page, case: Case) -> Ending:
    if not case.attempts:
        # What was never tried can be given up without its channel.
        about = (case.delivery, (), case.evidence, Capabilities(), Policy(), page.now)
        decision = decide(*about, canceled_at=case.canceled_at)
        if isinstance(decision, Drop):
            return Ending(case, decision)
    name = case.delivery.channel
    detail = "cannot_be_opened" if page.outbox.channels.knows(name) else "not_configured"
    page.outbox.app.events.emit(
        DeliveryAlert(name, DeliveryTrouble.CHANNEL_UNUSABLE, detail=detail)
    )
    return Ending(case, Wait(page.now + UNKNOWN_CHANNEL, "channel_not_configured"))


def _resolve(
    page: Page,
    questions: Sequence[Question],
    sends: list[_Try],
    ends: list[Ending],
    tally: Tally,
) -> None:
    """Ask the channels, and decide again with what they said."""
    answers = ask(page, questions)
    asked = [one for one in questions if one.case.key in answers]
    tally.counts["lost"] += len(questions) - len(asked)
    if not asked:
        return
    cases = [one.case for one in asked]
    known = page.outbox.store.read(lambda tx: read_again(tx, cases))
    for one in asked:
        case = known[one.case.key]
        decision = page.decide(case, one.channel)
        if isinstance(decision, Ask):
            # It could not be asked. How often that happened says how long to leave it alone.
            times = sum(said.verdict == "unreachable" for said in case.evidence)
            delay = RETRY.delay(max(times, 1), page.outbox.rng)
            ends.append(Ending(case, decision, delay=max(delay, timedelta(seconds=1))))
        else:
            _sort(case, one.channel, decision, sends, ends)


# -- trying


def _send(page: Page, sends: Sequence[_Try], worker_id: str) -> Tally:
    """Write the tries, make them, and mark what became of them."""
    if not sends:
        return Tally()
    outbox = page.outbox
    with holding(page, [one.case for one in sends]) as grip:
        begun = _begin(page, sends, worker_id)
        outbox.reached(Point.AFTER_ATTEMPT)
        ended = each(
            outbox,
            begun,
            lambda one: one.case.delivery.channel,
            lambda one: _hand_over(page, one, grip),
        )
    ends = [_end(page, one, *answer) for one, answer in zip(begun, ended, strict=True)]
    tally = Tally()
    tally.counts["tried"] += len(begun)
    tally.counts["lost"] += len(sends) - len(begun)
    tally.add(mark(page, ends))
    return tally


def _begin(page: Page, sends: Sequence[_Try], worker_id: str) -> list[_Begun]:
    outbox = page.outbox

    def work(tx: Tx) -> tuple[list[Row], dict[Key, _Try]]:
        still = _decide_again(tx, page, sends)
        tries = [
            {**one.case.named, "nth": one.case.delivery.attempts + 1} for one in still.values()
        ]
        if not tries:
            return [], still
        rows = tx.many(SQL.begin_attempts, tries=tries, lease_ms=lease_ms(outbox))
        if rows:
            tx.affected(
                SQL.insert_attempts,
                tries=[_attempt_row(row, still) for row in rows],
                worker_id=worker_id,
            )
        return rows, still

    rows, still = outbox.store.write(work)
    begun = []
    for row in rows:
        one = still[str(row["org_id"]), str(row["id"])]
        now = read_instant(row["now"])
        delivery = replace(
            one.case.delivery,
            attempts=row["attempts"],
            first_sent_at=read_instant(row["first_sent_at"]),
        )
        attempt = Attempt(
            row["attempts"], one.reason, now, body_hash=one.case.delivery.content_hash
        )
        case = replace(one.case, delivery=delivery)
        begun.append(_Begun(one, case, attempt, _message(row, case, one.channel)))
        if one.reason is Reason.POLICY_RESEND:
            outbox.app.events.emit(
                DeliveryAlert(
                    delivery.channel, DeliveryTrouble.MAYBE_TWICE, delivery.id, delivery.org_id
                )
            )
    return begun


def _decide_again(tx: Tx, page: Page, sends: Sequence[_Try]) -> dict[Key, _Try]:
    """Those that are still to be sent. While others were asked about, somebody may have answered.

    What is not keeps its lease, and is decided by whoever comes for it after that.
    """
    known = read_again(tx, [one.case for one in sends])
    still = {}
    for one in sends:
        case = known[one.case.key]
        decision = page.decide(case, one.channel)
        if isinstance(decision, Send):
            still[case.key] = _Try(case, one.channel, decision.reason)
    return still


def _attempt_row(row: Row, by_key: dict[Key, _Try]) -> dict[str, str | int]:
    one = by_key[str(row["org_id"]), str(row["id"])]
    return {
        "org_id": one.case.delivery.org_id,
        "delivery_id": one.case.delivery.id,
        "number": row["attempts"],
        "reason": str(one.reason),
        "fence": one.case.delivery.fence,
        "body_hash": one.case.delivery.content_hash,
    }


def _message(row: Row, case: Case, channel: Channel) -> Message | None:
    """What is handed over; None if what was frozen is not there, or is not what was frozen."""
    try:
        content = read_content(row["content"])
        is_frozen = content.hash == case.delivery.content_hash
    except Exception:
        # A tenant's own hand wrote it. The others of this page have nothing to do with it.
        return None
    if not is_frozen:
        return None
    return Message(
        token=case.delivery.token[: channel.capabilities.longest_token],
        address=row["address"],
        subject=content.subject,
        text=content.text,
        html=content.html,
        data=content.data,
        # The time of the first try, so that a later one is the same to the byte.
        at=case.delivery.first_sent_at,
    )


def _hand_over(page: Page, one: _Begun, grip: Grip) -> Answer:
    """One call. What it raises is no answer, and neither is what nobody can read."""
    outbox, wanted = page.outbox, one.wanted
    if one.message is None:
        return _ended(one, Rejected("content_gone", is_permanent=True))
    # It may have waited for its turn: somebody else may have it by now, or its reason be over.
    is_ours = grip.holds(one.case, outbox.app.clock.monotonic())
    if not is_ours or page.decide(wanted.case, wanted.channel) != Send(wanted.reason):
        return _ended(one, Rejected("not_begun", is_permanent=False))
    try:
        answer = _ended(one, wanted.channel.send(one.message))
    except Exception as exc:
        # Its words may be the message's: the kind of error is all that is told.
        _log.warning("channel %s broke: %s", wanted.channel.name, type(exc).__name__)
        answer = _ended(one, Unsure("error"))
    outbox.reached(Point.AFTER_SEND)
    return answer


def _end(page: Page, one: _Begun, attempt: Attempt, retry_after: timedelta | None) -> Ending:
    """What follows from an answer: the same decision that anybody would make who finds it."""
    case = replace(one.case, attempts=(*one.case.attempts, attempt))
    decision = page.decide(case, one.wanted.channel)
    delay = timedelta(0)
    if isinstance(decision, Send | Ask | Wait | Done):
        delay = RETRY.delay(attempt.number, page.outbox.rng, retry_after)
    return Ending(case, decision, attempt, delay)


def _ended(one: _Begun, sent: Sent) -> Answer:
    """The try with its end, in words that can be kept. Raises if the answer is none."""
    attempt = one.attempt
    match sent:
        case Accepted():
            name = name_at(sent.provider_id) or one.case.delivery.token
            return replace(attempt, outcome="accepted", provider_id=name), None
        case Rejected():
            outcome = "refused" if sent.is_permanent else "rejected"
            return replace(attempt, outcome=outcome, code=word(sent.code)), None
        case Throttled():
            longest = RETRY_AFTER_CEILING.total_seconds()
            wait = None if sent.retry_after is None else min(sent.retry_after, longest)
            after = None if wait is None else timedelta(seconds=wait)
            return replace(attempt, outcome="throttled", code=word(sent.code)), after
        case Unsure():
            told = replace(attempt, outcome="unsure", code=word(sent.reason))
            return replace(told, provider_id=name_at(sent.provider_id)), None
        case _:
            assert_never(sent)
