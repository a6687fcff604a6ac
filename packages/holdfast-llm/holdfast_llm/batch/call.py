"""A call of its own: one job, one request, one answer, judged like a line of a batch.

    write the intent → call once → judge → end the item with the job

The intent is there before anything is sent, so whoever finds it without an end knows that a call
may have been made and paid for. Such a call is recorded as unknown; the job is tried again within
its own budget of attempts. Nothing here is retried behind it.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from holdfast.clock import Clock, ms
from holdfast.document import canonical
from holdfast.engine.context import Context
from holdfast.engine.job import Claimed, Completed, Dead, Outcome, Released, Retry
from holdfast.errors import (
    ConfigError,
    JobCanceled,
    LeaseLost,
    RuleBroken,
    SchemaInvalid,
    WriteConflict,
)
from holdfast.event import BatchAlert, BatchTrouble
from holdfast.store import Tx
from holdfast_llm.batch.asked import ask_for
from holdfast_llm.batch.budget import BUDGET_REASONS, Want, alert_of, hold_over_budget
from holdfast_llm.batch.call_end import SQL, Called, end_unknown, rows_of, tell_unknown
from holdfast_llm.batch.circuit import PROBE_PAUSE, Passage, find_passage, stop_account
from holdfast_llm.batch.cost import CallEntry, CallKind, used_by
from holdfast_llm.batch.lane import BatchLane
from holdfast_llm.batch.load import item_of, load
from holdfast_llm.batch.micro import Gatherer, Group, Member, places
from holdfast_llm.batch.point import Point
from holdfast_llm.batch.price import Prices
from holdfast_llm.batch.release import CIRCUIT_OPEN
from holdfast_llm.batch.unusable import Unusable
from holdfast_llm.batch.verdict import ItemState, Verdict, failure_verdict, reuse, verdict_of
from holdfast_llm.provider.reply import (
    FOREIGN_REPLY,
    Answer,
    Failure,
    FailureKind,
    ProviderRefused,
    ProviderUnsure,
)
from holdfast_llm.provider.route import ExecutionMode, Route

# How long the application may need, in seconds, until it can take an answer that it has.
TAKE_PAUSES = (0.5, 2.0, 5.0)


class Caller:
    """Performs jobs whose route says that each is a call of its own."""

    def __init__(self, lane: Callable[[], BatchLane]) -> None:
        self._lane = lane
        self._gatherer = Gatherer()

    def perform(self, job: Context, payload: Mapping[str, Any]) -> Outcome:
        """The stage of every job type of the lane; a worker calls it with one job."""
        with self._gatherer.arriving() as arrive:
            lane = self._lane()
            member = _member_of(lane, job.job)
            if not isinstance(member, Member):
                return member
            job.raise_if_canceled()
            group = self._gatherer.join(
                member,
                arrive=arrive,
                max_items=lane.settings.batch.micro_items,
                max_seconds=lane.settings.batch.micro_seconds,
                write=lambda group: write_intents(lane, group),
            )
        if isinstance(member.refused, JobCanceled):
            job.token.set()
        if isinstance(member.refused, BaseException):
            raise member.refused
        if member.refused is not None:
            return member.refused
        lane.reached(Point.CALL_RECORDED)
        called = _call(lane, group, member)
        lane.reached(Point.CALLED)
        return _with_rows(called, lane.store.clock)


def _member_of(lane: BatchLane, job: Claimed) -> Member | Outcome:
    """The request of a job, ready to be sent; or what becomes of the job if it must not be."""
    if job.routing_decision is None:
        # Whoever enqueued it in SQL could not choose a route, and nobody may guess one.
        raise SchemaInvalid("The job has no route: enqueue it here.", missing="routing_decision")
    loaded = load(lane, [job])
    item = item_of(job, loaded)
    if item.route.execution_mode is not ExecutionMode.ASYNC:
        raise SchemaInvalid(
            "The job's route is for the batch lane, and a worker has it.",
            field="routing_decision.execution_mode",
        )
    if (known := reuse(lane, job, item)) is not None:
        return known
    try:
        account = lane.accounts.of(item.route)
    except ConfigError as exc:
        unusable = Unusable()
        waits = unusable.give_back(lane, item.route.provider, exc)
        unusable.tell(lane)
        return waits
    asked = ask_for(lane, item, account)
    size = len(canonical(asked.body).encode())
    if size > account.limits.max_line_bytes:
        too_large = Failure(FailureKind.INVALID, "request_too_large")
        return failure_verdict(lane, job, too_large).outcome
    prices = Prices(lane.settings.prices)
    reserve = prices.reserve(item.route, asked.request, lane.store.clock.now().date())
    return Member(job, item.route, account, asked, size, reserve, loaded)


# -- before the call


def write_intents(lane: BatchLane, group: Group) -> None:
    """Write down a group before anything is sent; who must not be called is told why."""
    batch_id = lane.ids.new()

    def work(tx: Tx) -> Counter[str]:
        held = [_held(member) for member in group.members]
        ours = {row["id"]: row for row in tx.many(SQL.find_held, held=held)}
        for member in group.members:
            found = ours.get(member.job.id)
            member.refused = LeaseLost(member.job.id) if found is None else None
            if found is not None and found["cancel_requested_at"] is not None:
                member.refused = JobCanceled()
        _hold_back(tx, lane, group.members)
        called = places(group.members)
        # Twice on its way is once too often: what an earlier claim left has an end before this one.
        left = end_unknown(tx, lane, tx.many(SQL.list_left, held=held))
        if called:
            tx.affected(SQL.add_group, **_group_row(batch_id, called))
            tx.affected(SQL.add_items, items=[_item_row(batch_id, member) for member in called])
        return left

    try:
        left = lane.store.write(work)
    except RuleBroken as exc:
        if not exc.rule.startswith("batch_item"):
            raise
        # Another job of the same execution unit is on its way.
        raise WriteConflict(rule=exc.rule) from exc
    group.batch_id = batch_id
    tell_unknown(lane, left)
    held = Counter(
        (member.account.key, member.route.model, member.refused.reason)
        for member in group.members
        if isinstance(member.refused, Released) and member.refused.reason in BUDGET_REASONS
    )
    for (account, model, reason), jobs in held.items():
        lane.events.emit(alert_of(account, model, reason, jobs))


def _hold_back(tx: Tx, lane: BatchLane, members: Sequence[Member]) -> None:
    """Give back, at no attempt, what the account's circuit or a tenant's budget does not allow."""
    own = lane.settings.batch
    callable_ones = [member for member in members if member.refused is None]
    passage = find_passage(tx, own, members[0].account.key) if callable_ones else Passage.FREE
    if passage is not Passage.FREE:
        pause = own.circuit_seconds if passage is Passage.SHUT else PROBE_PAUSE
        for member in callable_ones[1 if passage is Passage.PROBE else 0 :]:
            member.refused = Released(CIRCUIT_OPEN, ms(pause))
    wants = [
        Want(member.job.id, member.job.org_id, member.reserve_pico)
        for member in members
        if member.refused is None
    ]
    now = tx.clock.now()
    holds = hold_over_budget(tx, lane.settings, wants)
    for member in members:
        if (hold := holds.get(member.job.id)) is not None:
            member.refused = Released(hold.reason, max(1, ms(hold.until - now)))


def _held(member: Member) -> dict[str, Any]:
    job = member.job
    return {"org_id": job.org_id, "id": job.id, "lease_token": job.lease_token}


def _group_row(batch_id: str, members: Sequence[Member]) -> dict[str, Any]:
    first = members[0]
    return {
        "id": batch_id,
        "account": first.account.key,
        "provider": first.route.provider,
        "adapter_kind": first.route.adapter_kind,
        "model": first.route.model,
        "group_key": first.route.group_key,
        "items": len(members),
        "bytes": sum(member.size for member in members),
        "input_tokens": sum(member.asked.request.input_tokens for member in members),
    }


def _item_row(batch_id: str, member: Member) -> dict[str, Any]:
    job = member.job
    return {
        "batch_id": batch_id,
        "batch_item_index": member.place,
        "org_id": job.org_id,
        "job_id": job.id,
        "job_type": job.job_type,
        "unit": job.unit_key or job.id,
        "attempt": job.attempt,
        "lease_token": job.lease_token,
        # Nothing of ours goes with a call: its answer comes on the same connection.
        "custom_id": f"call_{member.place}",
        "echo": member.asked.echo,
        "group_key": member.route.group_key,
        "input_tokens": member.asked.request.input_tokens,
        "reserve_pico": member.reserve_pico,
    }


# -- the call


def _call(lane: BatchLane, group: Group, member: Member) -> Called:
    """Ask once, and judge what comes back."""
    if group.stopped_by is not None:
        # Another of the group has heard it: nothing is sent, so nothing is paid.
        return _called(lane, group, member, group.stopped_by, state=ItemState.RELEASED)
    account = member.account
    try:
        answer: Answer = account.adapter.call(account.wire, member.route, member.asked.body)
    except ProviderRefused as exc:
        answer = exc.failure
    except ProviderUnsure as exc:
        # What the provider says of a 500 is no proof that it did nothing.
        failure = exc.failure or Failure(
            FailureKind.TRANSIENT, exc.reason, retry_after=exc.retry_after
        )
        if exc.is_wrong_address:
            failure = Failure(FailureKind.ACCOUNT, FOREIGN_REPLY)
            group.stopped_by = failure
            stop_account(lane, account.key, account.provider, failure)
        tell_unknown(lane, Counter([account.key]), exc.reason)
        return _called(lane, group, member, failure, state=ItemState.UNKNOWN)
    called = _called(lane, group, member, answer)
    if called.verdict.stops_account is not None:
        group.stopped_by = called.verdict.stops_account
        stop_account(lane, account.key, account.provider, group.stopped_by)
    if called.verdict.is_cross_wired:
        lane.events.emit(BatchAlert(group.batch_id, account.key, BatchTrouble.CROSS_WIRED))
    return called


def _take(lane: BatchLane, member: Member, answer: Answer) -> Verdict:
    """Judge an answer. There is no second one: what may pass is waited for as long as we can."""
    take = partial(verdict_of, lane, member.job, answer, echo=member.asked.echo)
    verdict = take(loaded=member.loaded)
    for pause in TAKE_PAUSES:
        if not verdict.may_wait:
            break
        lane.store.clock.wait(threading.Event(), pause)
        verdict = take(loaded=member.loaded)
    return verdict


def _called(
    lane: BatchLane,
    group: Group,
    member: Member,
    answer: Answer,
    *,
    state: ItemState | None = None,
) -> Called:
    job = member.job
    verdict = _take(lane, member, answer)
    if state is not None:
        verdict = replace(verdict, state=state)
    assert member.place is not None
    entry = CallEntry.of(
        answer,
        org_id=job.org_id,
        batch_id=group.batch_id,
        batch_item_index=member.place,
        provider_batch_id="",
        account=member.account.key,
        group_key=member.route.group_key,
        job_id=job.id,
        job_type=job.job_type,
        attempt=job.attempt,
        at_most_pico=member.reserve_pico,
    )
    if state is ItemState.UNKNOWN:
        entry = replace(entry, kind=CallKind.UNKNOWN)
    if entry.occurred_at is None:
        entry = replace(entry, occurred_at=lane.store.clock.now())
    prices = Prices(lane.settings.prices)
    _tell_unpriced(lane, group.batch_id, member.route, entry, prices)
    lane.events.emit(used_by(prices, entry, lane.store.clock.now()))
    return Called(group.batch_id, member.place, verdict, entry, prices)


def _with_rows(called: Called, clock: Clock) -> Outcome:
    """The outcome, with the rows that record the end of the call in the same transaction."""
    outcome = called.verdict.outcome
    assert isinstance(outcome, (Completed, Retry, Dead, Released))
    return replace(outcome, kept={**(outcome.kept or {}), **rows_of(called, clock)})


def _tell_unpriced(
    lane: BatchLane, batch_id: str, route: Route, entry: CallEntry, prices: Prices
) -> None:
    if entry.usage is None or entry.occurred_at is None:
        return
    models = (entry.model_billed, route.model)
    day = entry.occurred_at.date()
    charge = prices.charge(route.provider, models, ExecutionMode.ASYNC, entry.usage, day)
    if charge.cost is None:
        lane.events.emit(BatchAlert(batch_id, entry.account, BatchTrouble.UNPRICED, route.model))
