"""Reconcile: pick up unclear or abandoned deliveries, and prove the marked ones.

Unfinished attempts are decided like any other delivery; decide.py looks them up first. A delivery
that is marked although no channel accepted it violates the order of send and mark. The channel is
queried for it, and if it does not know the message, the message is sent again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from holdfast.channel.channel import Channel, Found, Lookup, LookupFailed, LookupResult, NotFound
from holdfast.clock import ms
from holdfast.engine.audit import record_actions
from holdfast.engine.job import SYSTEM
from holdfast.engine.pass_counts import PassCounts
from holdfast.engine.periodic_task import RunBudget
from holdfast.event import DeliveryChange, DeliveryTrouble
from holdfast.outbox.circuit import KEPT, count_waiting, find_changed, read_circuits
from holdfast.outbox.circuit import SQL as CIRCUITS
from holdfast.outbox.delivery import Delivery
from holdfast.outbox.delivery_lease import (
    DeliveryLease,
    DeliveryState,
    Key,
    lease_deliveries,
    lease_ms,
)
from holdfast.outbox.lookup import LookupQuestion, look_up
from holdfast.outbox.send import PAGE, deliver_page, find_circuits
from holdfast.outbox.wait import awaiting, wake_jobs
from holdfast.store import Row, Statements, Tx

if TYPE_CHECKING:
    from holdfast.outbox.outbox import Outbox

SQL = Statements("holdfast.outbox", "delivery.sql")

RUN = "outbox_reconciler"
# Proven deliveries need no call, so a pass handles more of them.
MOST_PROVEN = 5_000
# A marked delivery can wait while its channel cannot be queried.
ASK_AGAIN = timedelta(minutes=5)


def reconcile_once(outbox: Outbox, *, limit: int = PAGE, worker_id: str = "") -> PassCounts:
    """Handle one page of due deliveries, and one page of deliveries marked without proof."""
    limit = min(limit, PAGE)
    counts = _hear(outbox)
    circuits = find_circuits(outbox)
    marked = lease_deliveries(outbox, lambda tx: _take_marked(outbox, tx, limit, worker_id))
    if marked is not None:
        counts.add(_prove(marked))
    page = lease_deliveries(outbox, lambda tx: _take_due(outbox, tx, limit, worker_id), circuits)
    if page is not None:
        counts.add(deliver_page(page, worker_id=worker_id))
    if outbox.brings_back is not None:
        counts.done["brought_back"] += outbox.brings_back.run(limit)
    return counts


def _hear(outbox: Outbox) -> PassCounts:
    """Apply acceptances that arrived after the decision: they prove marks, and set them."""

    def work(tx: Tx) -> tuple[list[DeliveryState], list[str]]:
        tx.affected(SQL.prove_marked, limit=MOST_PROVEN)
        tx.affected(CIRCUITS.prune_circuits, age_ms=-ms(KEPT))
        rows = tx.many(SQL.believe_late)
        cases = [DeliveryState(Delivery.from_row(row), (), ()) for row in rows]
        detail = {"reason": "late_answer"}
        record_actions(
            tx, [one.delivery.deed(SYSTEM, DeliveryChange.BACKFILLED, detail) for one in cases]
        )
        return cases, wake_jobs(tx, awaiting(rows))

    counts = PassCounts()
    cases, queues = outbox.store.write(work)
    outbox.store.announce(queues)
    for case in cases:
        outbox.app.events.emit(case.delivery.changed(DeliveryChange.BACKFILLED, "late_answer"))
        counts.done[DeliveryChange.BACKFILLED] += 1
    return counts


def _take_due(outbox: Outbox, tx: Tx, limit: int, worker_id: str) -> list[Row]:
    grace = -ms(outbox.settings.outbox.grace_seconds)
    return tx.many(
        SQL.take_due, limit=limit, grace_ms=grace, owner=worker_id, lease_ms=lease_ms(outbox)
    )


def _take_marked(outbox: Outbox, tx: Tx, limit: int, worker_id: str) -> list[Row]:
    return tx.many(SQL.take_marked, limit=limit, owner=worker_id, lease_ms=lease_ms(outbox))


@dataclass(frozen=True, slots=True)
class _Kept:
    """A marked delivery that stays marked: proven, unprovable, or to be looked up later."""

    case: DeliveryState
    proof: str
    delay: timedelta | None = None


def _prove(lease: DeliveryLease) -> PassCounts:
    """Look up every marked delivery that can be looked up, and report the rest."""
    questions: list[LookupQuestion] = []
    kept: list[_Kept] = []
    for case in lease.cases:
        channel = lease.channel(case)
        left = _why_not(case, channel, lease.now)
        if left is not None:
            kept.append(left)
        else:
            assert channel is not None
            questions.append(LookupQuestion(case, channel, case.delivery.notification_id))
    answers = look_up(lease, questions)
    cleared: list[DeliveryState] = []
    for one in questions:
        if one.case.key in answers:
            answer = answers[one.case.key]
            # A fuzzy lookup that finds nothing proves nothing; a resend could duplicate the
            # message.
            is_vague = one.channel.capabilities.lookup is Lookup.FUZZY
            if isinstance(answer, NotFound) and not is_vague:
                cleared.append(one.case)
            else:
                kept.append(_keep(one.case, answer))
    return _write(lease, cleared, kept, asked=len(questions))


def _why_not(case: DeliveryState, channel: Channel | None, now: datetime) -> _Kept | None:
    """Why a marked delivery is not looked up now; None if it is."""
    if channel is None:
        return _Kept(case, "none", ASK_AGAIN)
    can, one = channel.capabilities, case.delivery
    is_nameless = can.lookup is Lookup.BY_PROVIDER_ID and one.notification_id is None
    assert one.notified_at is not None
    age = (now - one.notified_at).total_seconds()
    is_forgotten = can.retention_seconds is not None and age >= can.retention_seconds
    if can.lookup is Lookup.NONE or is_nameless or is_forgotten:
        return _Kept(case, "unknowable")
    if age < can.settle_seconds:
        return _Kept(case, "none", timedelta(seconds=can.settle_seconds - age))
    return None


def _keep(case: DeliveryState, answer: LookupResult) -> _Kept:
    match answer:
        case Found():
            return _Kept(case, "seen")
        case LookupFailed():
            return _Kept(case, "none", ASK_AGAIN)
        case _:
            return _Kept(case, "unknowable")


def _write(
    lease: DeliveryLease, cleared: Sequence[DeliveryState], kept: Sequence[_Kept], *, asked: int
) -> PassCounts:
    outbox = lease.outbox
    words = [_kept_row(one) for one in kept]

    def work(tx: Tx) -> set[Key]:
        if words:
            tx.many(SQL.keep_marks, kept=words)
        if not cleared:
            return set()
        rows = tx.many(SQL.clear_marks, cleared=[case.named for case in cleared])
        done = {(str(row["org_id"]), str(row["id"])) for row in rows}
        deeds = [
            case.delivery.deed(SYSTEM, DeliveryChange.REQUEUED, {"channel": case.delivery.channel})
            for case in cleared
            if case.key in done
        ]
        record_actions(tx, deeds)
        return done

    done = outbox.store.write(work)
    counts = PassCounts(now=lease.now)
    counts.done["asked"] += asked
    counts.done[DeliveryChange.REQUEUED] += len(done)
    for case in cleared:
        if case.key in done:
            _tell(outbox, case, "not_found", is_requeued=True)
    for one in kept:
        counts.done[one.proof] += 1
        if one.proof == "unknowable":
            _tell(outbox, one.case, "unknowable")
    return counts


def _kept_row(one: _Kept) -> dict[str, Any]:
    delay = None if one.delay is None else ms(one.delay)
    return {**one.case.named, "word": one.proof, "delay_ms": delay}


def _tell(outbox: Outbox, case: DeliveryState, detail: str, *, is_requeued: bool = False) -> None:
    one = case.delivery
    if is_requeued:
        outbox.app.events.emit(one.changed(DeliveryChange.REQUEUED, detail))
    outbox.app.events.emit(one.alert(DeliveryTrouble.MARKED_UNSENT, detail))


class ReconcileTask:
    """The periodic task of the reconciler."""

    eligible_statuses: Sequence[str] = ("pending", "sent")

    def __init__(self, outbox: Outbox) -> None:
        self.outbox = outbox

    def count_pending(self, budget: RunBudget) -> int:
        grace = -ms(self.outbox.settings.outbox.grace_seconds)
        most = budget.profile.max_jobs_per_run

        def look(tx: Tx) -> int:
            found = tx.one(SQL.count_due, most=most, grace_ms=grace)
            # Deliveries that wait for a channel with a changed credential are due at once.
            changed = find_changed(self.outbox, read_circuits(tx))
            return int(found["deliveries"]) + count_waiting(tx, changed, most=most)

        due = self.outbox.store.read(look)
        if self.outbox.brings_back is not None:
            due += self.outbox.brings_back.count(most)
        return due

    def perform(self, budget: RunBudget) -> None:
        run = budget.counts
        while budget.may_continue and budget.left > 0:
            counts = reconcile_once(self.outbox, limit=budget.left, worker_id=budget.run_id)
            taken = counts["taken"] + counts["none"] + counts["unknowable"] + counts["seen"]
            run.claimed += taken + counts["requeued"]
            run.outcomes["completed"] += counts["sent"] + counts["backfilled"] + counts["seen"]
            run.outcomes["dead"] += counts["failed"]
            run.outcomes["snoozed"] += counts["deferred"] + counts["requeued"] + counts["none"]
            if taken + counts["requeued"] + counts["brought_back"] == 0:
                return
