"""Mark: store the outcomes of deliveries. This happens after the send, never before it.

A page is one transaction: it completes the attempts, sets state and marks in one write, and writes
the audit. A delivery that another worker has leased in the meantime is not marked; the id that the
channel gave is kept as evidence for the next decision.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, assert_never

from holdfast.clock import ms
from holdfast.engine.audit import Deed, record_actions
from holdfast.engine.job import SYSTEM
from holdfast.engine.pass_counts import PassCounts
from holdfast.event import DeliveryChange, DeliveryTrouble
from holdfast.outbox.circuit import OPEN, Circuit, tell_opened
from holdfast.outbox.decide import (
    Backfill,
    Decision,
    Done,
    Drop,
    Fail,
    Hold,
    LookupFirst,
    Send,
    Wait,
)
from holdfast.outbox.delivery import Attempt, State
from holdfast.outbox.delivery_lease import DeliveryLease, DeliveryState, Key
from holdfast.outbox.wait import awaiting, wake_jobs
from holdfast.store import Statements, Tx

if TYPE_CHECKING:
    from holdfast.outbox.outbox import Outbox

SQL = Statements("holdfast.outbox", "delivery.sql")


@dataclass(frozen=True, slots=True)
class Ending:
    """The outcome of one delivery of a page.

    *attempt* is the completed attempt; None if nothing was sent. *delay* is the pause for decisions
    that set no time.
    """

    case: DeliveryState
    decision: Decision
    attempt: Attempt | None = None
    delay: timedelta = timedelta(0)

    @property
    def change(self) -> DeliveryChange:
        match self.decision:
            case Backfill():
                is_own = self.attempt is not None and self.attempt.outcome == "accepted"
                return DeliveryChange.SENT if is_own else DeliveryChange.BACKFILLED
            case Hold():
                return DeliveryChange.HELD
            case Drop():
                return DeliveryChange.DROPPED
            case Fail():
                return DeliveryChange.FAILED
            case Send() | LookupFirst() | Wait() | Done():
                return DeliveryChange.DEFERRED
            case _:
                assert_never(self.decision)


_STATES = {
    DeliveryChange.SENT: State.SENT,
    DeliveryChange.BACKFILLED: State.SENT,
    DeliveryChange.HELD: State.HELD,
    DeliveryChange.DROPPED: State.DROPPED,
    DeliveryChange.FAILED: State.FAILED,
    DeliveryChange.DEFERRED: State.PENDING,
}


def mark(lease: DeliveryLease, endings: Sequence[Ending]) -> PassCounts:
    """Store the outcomes of a page; deliveries that another worker has leased count as lost."""
    outbox, news = lease.outbox, lease.circuits.take_news()
    if not endings and not news:
        return PassCounts()
    marks = [_mark_row(lease, ending) for ending in endings]
    ended = [_attempt_row(ending) for ending in endings if ending.attempt is not None]

    def work(tx: Tx) -> tuple[set[Key], list[Circuit], list[str]]:
        if ended:
            tx.affected(SQL.end_attempts, ends=ended)
        # Before the marks: deliveries that start to wait for a circuit now must not be released.
        opened, waiting = news.write(tx)
        rows = tx.many(SQL.mark_deliveries, marks=marks) if marks else []
        kept = {(str(row["org_id"]), str(row["id"])) for row in rows}
        late = [_late_row(one) for one in endings if one.case.key not in kept and _was_taken(one)]
        if late:
            tx.affected(SQL.insert_evidence, said=late)
        deeds = [_deed(one) for one in endings if one.case.key in kept and _is_told(one)]
        record_actions(tx, deeds)
        waiting += awaiting(row for row in rows if row["state"] != State.PENDING)
        return kept, opened, wake_jobs(tx, waiting)

    kept, opened, queues = outbox.store.write(work)
    outbox.store.announce(queues)
    tell_opened(outbox, opened)
    counts = PassCounts(now=lease.now)
    for ending in endings:
        if ending.case.key in kept:
            counts.done[ending.change] += 1
            _tell(outbox, ending)
        else:
            counts.done["lost"] += 1
    return counts


def _mark_row(lease: DeliveryLease, ending: Ending) -> dict[str, Any]:
    state, decision = _STATES[ending.change], ending.decision
    delay: timedelta | None = None
    if state is State.PENDING:
        delay = ending.delay
        if isinstance(decision, Wait):
            delay = max(delay, decision.until - lease.now)
    return {
        **ending.case.named,
        "word": str(state),
        "why": _reason(decision),
        "given_id": decision.provider_id if isinstance(decision, Backfill) else None,
        "is_found": int(ending.change is DeliveryChange.BACKFILLED),
        "delay_ms": None if delay is None else ms(delay),
    }


def _reason(decision: Decision) -> str | None:
    match decision:
        case Hold(reason) | Drop(reason) | Fail(reason):
            return reason
        case Wait(why=why) if why == OPEN:
            return why
        case _:
            return None


def _attempt_row(ending: Ending) -> dict[str, Any]:
    attempt = ending.attempt
    assert attempt is not None
    return {
        "home": ending.case.delivery.org_id,
        "of_delivery": ending.case.delivery.id,
        "nth": attempt.number,
        "word": attempt.outcome,
        "what": attempt.code,
        "given_id": attempt.provider_id,
    }


def _was_taken(ending: Ending) -> bool:
    return ending.attempt is not None and ending.attempt.outcome == "accepted"


def _late_row(ending: Ending) -> dict[str, Any]:
    assert ending.attempt is not None
    one = ending.case.delivery
    return {
        "org_id": one.org_id,
        "delivery_id": one.id,
        "source": "late_answer",
        "verdict": "taken",
        "provider_id": ending.attempt.provider_id,
        "code": None,
        "after_attempt": ending.attempt.number,
    }


def _is_told(ending: Ending) -> bool:
    return ending.change is not DeliveryChange.DEFERRED


def _deed(ending: Ending) -> Deed:
    one, attempt = ending.case.delivery, ending.attempt
    decision = ending.decision
    detail: dict[str, Any] = {
        "channel": one.channel,
        "attempt": one.attempts if attempt is None else attempt.number,
    }
    if isinstance(decision, Hold | Drop | Fail):
        detail["reason"] = decision.reason
    if attempt is not None:
        detail["sent_because"] = attempt.reason
    return one.deed(SYSTEM, ending.change, detail)


def _tell(outbox: Outbox, ending: Ending) -> None:
    one, attempt, decision = ending.case.delivery, ending.attempt, ending.decision
    reason: str | None = None
    if isinstance(decision, Hold | Drop | Fail):
        reason = decision.reason
    elif attempt is not None:
        reason = attempt.reason
    number = None if attempt is None else attempt.number
    outbox.app.events.emit(one.changed(ending.change, reason, number))
    alert = _alert_of(decision)
    if alert is not None:
        outbox.app.events.emit(one.alert(alert, reason or ""))


def _alert_of(decision: Decision) -> DeliveryTrouble | None:
    match decision:
        case Hold(reason="several_found"):
            return DeliveryTrouble.SEVERAL_MATCHES
        case Hold():
            return DeliveryTrouble.HELD
        # The cancellation was requested, so it raises no alert.
        case Drop(reason="canceled"):
            return None
        case Drop():
            return DeliveryTrouble.MAYBE_LOST
        case Fail():
            return DeliveryTrouble.FAILED
        case _:
            return None
