"""Direct calls: one job, one request, one answer, handled like a line of a batch.

    store the intent → call once → evaluate → end the item with the job

The batch row is stored before the request is sent. A row without an end therefore means that a call
may have been made and paid for. Such a call is recorded as unknown, and the job is retried within
its attempt budget. There are no hidden retries.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
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
from holdfast_llm.batch.budget import BUDGET_REASONS, Hold, Want, alert_of, hold_over_budget
from holdfast_llm.batch.circuit import PROBE_PAUSE, AccountCircuits, Passage, find_passage
from holdfast_llm.batch.cost import CallEntry, CallKind, used_by
from holdfast_llm.batch.failure import StepBudgetExceeded
from holdfast_llm.batch.finish_call import SQL, CallEndings, FinishedCall, rows_of
from holdfast_llm.batch.item_outcome import ItemOutcome, ItemState, OutcomeRules
from holdfast_llm.batch.load import ItemLoader, item_of
from holdfast_llm.batch.micro_batch import Batcher, Group, Slot, places
from holdfast_llm.batch.missing_accounts import MissingAccounts
from holdfast_llm.batch.price import Prices
from holdfast_llm.batch.release import CIRCUIT_OPEN
from holdfast_llm.batch.rendered_request import RequestRenderer
from holdfast_llm.batch.resources import BatchResources
from holdfast_llm.batch.step_budget import refuse_over_step_budget
from holdfast_llm.provider.reply import (
    FOREIGN_REPLY,
    Answer,
    Failure,
    FailureKind,
    ProviderRefused,
    ProviderUnsure,
)
from holdfast_llm.provider.route import ExecutionMode, Route

# Pauses in seconds while the application cannot process an answer that has arrived.
TAKE_PAUSES = (0.5, 2.0, 5.0)


class DirectCalls:
    """Makes direct calls: one job, one request, one answer."""

    def __init__(
        self,
        resources: BatchResources,
        loader: ItemLoader,
        requests: RequestRenderer,
        outcomes: OutcomeRules,
        circuits: AccountCircuits,
        endings: CallEndings,
    ) -> None:
        self.resources = resources
        self.store = resources.store
        self.settings = resources.settings
        self.ids = resources.ids
        self.accounts = resources.accounts
        self.events = resources.events
        self.loader = loader
        self.requests = requests
        self.outcomes = outcomes
        self.circuits = circuits
        self.endings = endings

    def perform(self, batcher: Batcher, job: Context) -> Outcome:
        """Run the only stage of a job type with direct calls: make the call of one job."""
        with batcher.arriving() as arrive:
            slot = self._slot_of(job.job)
            if not isinstance(slot, Slot):
                return slot
            job.raise_if_canceled()
            group = batcher.join(
                slot,
                arrive=arrive,
                max_items=self.settings.batch.micro_items,
                max_seconds=self.settings.batch.micro_seconds,
                write=self.write_intents,
            )
        if isinstance(slot.refused, JobCanceled):
            job.token.set()
        if isinstance(slot.refused, BaseException):
            raise slot.refused
        if slot.refused is not None:
            return slot.refused
        called = self._call(group, slot)
        return _with_rows(called, self.store.clock)

    def _slot_of(self, job: Claimed) -> Slot | Outcome:
        """The request of a job, ready to be sent; or the outcome of a job that must not be sent."""
        if job.routing_decision is None:
            # A job enqueued in SQL has no route, and no default is assumed.
            raise SchemaInvalid(
                "The job has no route. Enqueue it from Python, not in SQL.",
                missing="routing_decision",
            )
        loaded = self.loader.load([job])
        item = item_of(job, loaded)
        if item.route.execution_mode is not ExecutionMode.ASYNC:
            raise SchemaInvalid(
                "The job's route is for batch processing; a worker cannot call the model directly.",
                field="routing_decision.execution_mode",
            )
        if (known := self.outcomes.of_reuse(job, item)) is not None:
            return known
        try:
            account = self.accounts.for_route(item.route)
        except ConfigError as exc:
            missing = MissingAccounts()
            waits = missing.release(item.route.provider, exc, self.resources.overflow_ms)
            missing.report(self.events)
            return waits
        rendered = self.requests.render(item, account)
        size = len(canonical(rendered.body).encode())
        if size > account.limits.max_line_bytes:
            too_large = Failure(FailureKind.INVALID, "request_too_large")
            return self.outcomes.of_failure(job, too_large).outcome
        prices = self.resources.prices
        reserve = prices.reserve(item.route, rendered.request, self.store.clock.now().date())
        return Slot(job, item.route, account, rendered, size, reserve, loaded)

    # -- before the call

    def write_intents(self, group: Group) -> None:
        """Store a group before anything is sent; set the reason for slots that must not be sent."""
        batch_id = self.ids.new()

        def work(tx: Tx) -> Counter[str]:
            held = [_held(slot) for slot in group.slots]
            ours = {row["id"]: row for row in tx.many(SQL.find_held, held=held)}
            for slot in group.slots:
                found = ours.get(slot.job.id)
                slot.refused = LeaseLost(slot.job.id) if found is None else None
                if found is not None and found["cancel_requested_at"] is not None:
                    slot.refused = JobCanceled()
            self._hold_back(tx, group.slots)
            called = places(group.slots)
            # An earlier claim may have left a call open. It is ended before this one begins.
            left = self.endings.end_unknown(tx, tx.many(SQL.list_left, held=held))
            if called:
                tx.affected(SQL.add_group, **_group_row(batch_id, called))
                tx.affected(SQL.add_items, items=[_item_row(batch_id, slot) for slot in called])
            return left

        try:
            left = self.store.write(work)
        except RuleBroken as exc:
            if not exc.rule.startswith("batch_item"):
                raise
            # Another job of the same execution unit is in flight.
            raise WriteConflict(rule=exc.rule) from exc
        group.batch_id = batch_id
        self.endings.report_unknown(left)
        held = Counter(
            (slot.account.key, slot.route.model, slot.refused.reason)
            for slot in group.slots
            if isinstance(slot.refused, Released) and slot.refused.reason in BUDGET_REASONS
        )
        for (account, model, reason), jobs in held.items():
            self.events.emit(alert_of(account, model, reason, jobs))

    def _hold_back(self, tx: Tx, slots: Sequence[Slot]) -> None:
        """Release, without an attempt, jobs that an open circuit or a spent budget blocks."""
        own = self.settings.batch
        callable_ones = [slot for slot in slots if slot.refused is None]
        passage = find_passage(tx, own, slots[0].account.key) if callable_ones else Passage.FREE
        if passage is not Passage.FREE:
            pause = own.circuit_seconds if passage is Passage.SHUT else PROBE_PAUSE
            for slot in callable_ones[1 if passage is Passage.PROBE else 0 :]:
                slot.refused = Released(CIRCUIT_OPEN, ms(pause))
        wants = [
            Want(slot.job.id, slot.job.org_id, slot.reserve_pico, slot.job.replay_of)
            for slot in slots
            if slot.refused is None
        ]
        now = tx.clock.now()
        holds = hold_over_budget(tx, self.settings, wants)
        rest = [want for want in wants if want.job_id not in holds]
        refused = {**holds, **refuse_over_step_budget(tx, rest)}
        for slot in slots:
            match refused.get(slot.job.id):
                case Hold() as hold:
                    slot.refused = Released(hold.reason, max(1, ms(hold.until - now)))
                case StepBudgetExceeded() as exceeded:
                    slot.refused = exceeded

    # -- the call

    def _call(self, group: Group, slot: Slot) -> FinishedCall:
        """Make the call once, and evaluate the answer."""
        if group.stopped_by is not None:
            # Another slot of the group hit an account error: nothing is sent, so nothing is paid.
            return self._called(group, slot, group.stopped_by, state=ItemState.RELEASED)
        account = slot.account
        try:
            answer: Answer = account.adapter.call(account.client, slot.route, slot.rendered.body)
        except ProviderRefused as exc:
            answer = exc.failure
        except ProviderUnsure as exc:
            # A 500 does not prove that the provider did nothing.
            failure = exc.failure or Failure(
                FailureKind.TRANSIENT, exc.reason, retry_after=exc.retry_after
            )
            if exc.is_wrong_address:
                failure = Failure(FailureKind.ACCOUNT, FOREIGN_REPLY)
                group.stopped_by = failure
                self.circuits.stop_account(account.key, account.provider, failure)
            self.endings.report_unknown(Counter([account.key]), exc.reason)
            return self._called(group, slot, failure, state=ItemState.UNKNOWN)
        called = self._called(group, slot, answer)
        if called.item_outcome.stops_account is not None:
            group.stopped_by = called.item_outcome.stops_account
            self.circuits.stop_account(account.key, account.provider, group.stopped_by)
        if called.item_outcome.is_cross_wired:
            self.events.emit(BatchAlert(group.batch_id, account.key, BatchTrouble.CROSS_WIRED))
        return called

    def _take(self, slot: Slot, answer: Answer) -> ItemOutcome:
        """Evaluate the only answer. A transient error of the application is retried briefly."""
        take = partial(self.outcomes.of_answer, slot.job, answer, echo=slot.rendered.echo)
        item_outcome = take(loaded=slot.loaded)
        for pause in TAKE_PAUSES:
            if not item_outcome.may_wait:
                break
            self.store.clock.wait(threading.Event(), pause)
            item_outcome = take(loaded=slot.loaded)
        return item_outcome

    def _called(
        self,
        group: Group,
        slot: Slot,
        answer: Answer,
        *,
        state: ItemState | None = None,
    ) -> FinishedCall:
        job = slot.job
        item_outcome = self._take(slot, answer)
        if state is not None:
            item_outcome = replace(item_outcome, state=state)
        assert slot.place is not None
        entry = CallEntry.from_answer(
            answer,
            org_id=job.org_id,
            batch_id=group.batch_id,
            batch_item_index=slot.place,
            provider_batch_id="",
            account=slot.account.key,
            group_key=slot.route.group_key,
            job_id=job.id,
            job_type=job.job_type,
            attempt=job.attempt,
            at_most_pico=slot.reserve_pico,
        )
        if state is ItemState.UNKNOWN:
            entry = replace(entry, kind=CallKind.UNKNOWN)
        if entry.occurred_at is None:
            entry = replace(entry, occurred_at=self.store.clock.now())
        prices = self.resources.prices
        self._tell_unpriced(group.batch_id, slot.route, entry, prices)
        self.events.emit(used_by(prices, entry, self.store.clock.now()))
        return FinishedCall(group.batch_id, slot.place, item_outcome, entry, prices)

    def _tell_unpriced(self, batch_id: str, route: Route, entry: CallEntry, prices: Prices) -> None:
        if entry.usage is None or entry.occurred_at is None:
            return
        models = (entry.model_billed, route.model)
        day = entry.occurred_at.date()
        charge = prices.charge(route.provider, models, ExecutionMode.ASYNC, entry.usage, day)
        if charge.cost is None:
            self.events.emit(
                BatchAlert(batch_id, entry.account, BatchTrouble.UNPRICED, route.model)
            )


def _held(slot: Slot) -> dict[str, Any]:
    job = slot.job
    return {"org_id": job.org_id, "id": job.id, "lease_token": job.lease_token}


def _group_row(batch_id: str, slots: Sequence[Slot]) -> dict[str, Any]:
    first = slots[0]
    return {
        "id": batch_id,
        "account": first.account.key,
        "provider": first.route.provider,
        "adapter_kind": first.route.adapter_kind,
        "model": first.route.model,
        "group_key": first.route.group_key,
        "items": len(slots),
        "bytes": sum(slot.size for slot in slots),
        "input_tokens": sum(slot.rendered.request.input_tokens for slot in slots),
    }


def _item_row(batch_id: str, slot: Slot) -> dict[str, Any]:
    job = slot.job
    return {
        "batch_id": batch_id,
        "batch_item_index": slot.place,
        "org_id": job.org_id,
        "job_id": job.id,
        "job_type": job.job_type,
        "unit": job.unit_key or job.id,
        "attempt": job.attempt,
        "lease_token": job.lease_token,
        # The id is not sent: the answer arrives on the same connection.
        "custom_id": f"call_{slot.place}",
        "echo": slot.rendered.echo,
        "group_key": slot.route.group_key,
        "input_tokens": slot.rendered.request.input_tokens,
        "reserve_pico": slot.reserve_pico,
    }


def _with_rows(called: FinishedCall, clock: Clock) -> Outcome:
    """The outcome, with the rows that record the end of the call in the same transaction."""
    outcome = called.item_outcome.outcome
    assert isinstance(outcome, (Completed, Retry, Dead, Released))
    return replace(outcome, rows={**(outcome.rows or {}), **rows_of(called, clock)})
