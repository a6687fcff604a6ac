"""Ingest: turn answers into outcomes, in groups of one transaction each.

A group of any size takes a fixed number of statements: the items, their ledger rows, and those of
settle. An answer belongs to exactly one job, and an item ends once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from holdfast.clock import ms
from holdfast.engine.classify import fault_of
from holdfast.engine.job import Actor, Canceled, Claimed, Dead, Fault
from holdfast.engine.run_log import RunCounts
from holdfast.engine.settle import Settled, settle_in, verb_of
from holdfast.engine.worker.settle_buffer import events_of
from holdfast.errors import RowInvalid, StoreBusy, StoreDown, StoreError
from holdfast.event import BatchTrouble
from holdfast.store import Statements, Tx
from holdfast_llm.batch.circuit import open_circuit
from holdfast_llm.batch.completeness import Mentions
from holdfast_llm.batch.cost import CallEntry, Recorded, instant_text, record_calls
from holdfast_llm.batch.failure import is_defect
from holdfast_llm.batch.group import place_in
from holdfast_llm.batch.item_outcome import (
    CROSS_WIRED,
    NO_CODE,
    ItemOutcome,
    ItemState,
    OutcomeRules,
    error_of,
    is_retryable,
    safe_code,
)
from holdfast_llm.batch.lease import BatchLease, BatchLeases, BatchLost
from holdfast_llm.batch.load import ItemLoader, Loaded
from holdfast_llm.batch.price import Prices
from holdfast_llm.batch.raw_answer import pack
from holdfast_llm.batch.resources import BatchResources
from holdfast_llm.provider.reply import Answer, Failure, ItemAnswer, Reply

SQL = Statements("holdfast_llm.batch", "collect.sql")

# The columns of find_items and list_open before those of the job.
_ITEM_COLUMNS = 12
JOB_ENDED = "job_ended"
# Why an item stays open although its answer is kept: the application's code failed on it.
HELD = "accept_failed"


def _answered(items: Sequence[Found], asked: Mapping[str, ItemAnswer]) -> Iterator[Claimed]:
    """The jobs whose answers are passed to the application."""
    for item in items:
        is_shown = item.state == ItemState.OPEN and isinstance(asked[item.custom_id].answer, Reply)
        if item.job is not None and is_shown:
            yield item.job


class CrossWired(Exception):
    """An answer belongs to another item: the batch was held for an operator."""


# Not frozen: there is one for every answer.
@dataclass(slots=True)
class Found:
    """An item as stored, and its job if that still waits for it."""

    place: int
    custom_id: str
    state: str
    result_hash: str | None
    echo: str
    schema_hash: str | None
    org_id: str
    job_id: str
    job_type: str
    attempt: int
    group_key: str
    error_code: str | None
    job: Claimed | None

    @classmethod
    def from_row(cls, row: tuple[Any, ...]) -> Found:
        item, job = row[:_ITEM_COLUMNS], row[_ITEM_COLUMNS:]
        return cls(*(*item, None if job[0] is None else Claimed(*job)))


# Not frozen: there is one for every answer.
@dataclass(slots=True)
class End:
    """An item, its answer, and the outcome of its job if it still waits."""

    item: Found
    answer: Answer
    digest: str | None
    item_outcome: ItemOutcome
    line: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class Held:
    """A paid answer whose result cannot be committed now: its item, its line, and the reason."""

    item: Found
    line: bytes = field(repr=False)
    error_class: str
    # Whether the application's code must change; otherwise it is retried automatically.
    is_defect: bool


@dataclass(slots=True)
class Ingest:
    """Processes the answers of one batch."""

    resources: BatchResources
    leases: BatchLeases
    loader: ItemLoader
    outcomes: OutcomeRules
    batch: BatchLease
    actor: Actor
    prices: Prices
    counts: RunCounts
    # Result lines by status: known, unknown, unreadable, again, conflicting; dropped if the job was
    # canceled; unserved if the job type is not declared in this process.
    lines: Counter[str] = field(default_factory=Counter)
    # The places of items that are answered but cannot be processed here now.
    waiting: set[int] = field(default_factory=set)
    # Those of them that wait for a code change of the application.
    held: set[int] = field(default_factory=set)
    # Whether held answers are passed to the application again.
    retries_held: bool = False
    mentions: Mentions = field(init=False)

    def __post_init__(self) -> None:
        self.mentions = Mentions(self.batch.items)

    def weigh(self, answers: Sequence[ItemAnswer]) -> list[End]:
        """Evaluate a group of answers; items that have ended already are not changed."""
        if not answers:
            return []
        asked = {answer.custom_id: answer for answer in answers}
        # The place is part of the id, so that finding an item needs no index of ids.
        places = ((place_in(name), name) for name in asked)
        names = [{"place": place, "custom_id": name} for place, name in places if place is not None]
        rows = self.resources.store.values(SQL.find_items, batch_id=self.batch.id, answers=names)
        self.lines["unknown"] += len(asked) - len(rows)
        self.lines["again"] += len(answers) - len(asked)
        ends: list[End] = []
        differing: list[int] = []
        kept: list[Held] = []
        items = list(map(Found.from_row, rows))
        loaded = self.loader.load(_answered(items, asked))
        for item in items:
            answer = asked[item.custom_id]
            self.lines["known"] += 1
            self.mentions.add(item.place, answer.answer)
            if item.state != ItemState.OPEN:
                self.lines["again"] += 1
                if item.result_hash != answer.digest and item.state != ItemState.CONFLICT:
                    differing.append(item.place)
                continue
            if item.error_code == HELD and not self.retries_held and item.job is not None:
                self.waiting.add(item.place)
                self.held.add(item.place)
                continue
            item_outcome: ItemOutcome | None
            if (job := self._served_job(item)) is not None:
                item_outcome = self._answered(item, answer.answer, loaded, job)
            else:
                item_outcome = self._unserved(item, answer.answer)
            if item_outcome is None:
                self.waiting.add(item.place)
            elif item_outcome.may_wait or item_outcome.is_held:
                why = item_outcome.error_class or NO_CODE
                kept.append(Held(item, answer.line, why, item_outcome.is_held))
            else:
                ends.append(End(item, answer.answer, answer.digest, item_outcome, answer.line))
        if differing:
            self._mark(differing)
        if kept:
            self._hold(kept)
        return self._taken(ends)

    def weigh_silence(
        self, items: Sequence[Found], failure: Failure, named: Collection[int] = ()
    ) -> list[End]:
        """Evaluate items without an answer.

        *named* are the places of those that the provider names as the cause of the batch failure.
        """
        ends = []
        for item in items:
            is_named = item.place in named if named else None
            item_outcome: ItemOutcome | None
            if (job := self._served_job(item)) is not None:
                item_outcome = self.outcomes.of_batch_failure(
                    job, failure, items=self.batch.items, is_named=is_named
                )
            else:
                item_outcome = self._unserved(item, failure)
            if item_outcome is not None:
                ends.append(End(item, failure, None, item_outcome))
        return self._taken(ends)

    def _answered(self, item: Found, answer: Answer, loaded: Loaded, job: Claimed) -> ItemOutcome:
        return self.outcomes.of_answer(
            job, answer, echo=item.echo, asked_hash=item.schema_hash, loaded=loaded
        )

    def _taken(self, ends: list[End]) -> list[End]:
        self.counts.claimed += sum(end.item.job is not None for end in ends)
        return ends

    def _served_job(self, item: Found) -> Claimed | None:
        """The job that waits for the item, if this process can evaluate its answer."""
        job = item.job
        return job if job is not None and job.job_type in self.resources.registry else None

    def _unserved(self, item: Found, answer: Answer) -> ItemOutcome | None:
        """The outcome of an answer that no job waits for; None if another process has its type."""
        if item.job is None:
            self.lines["dropped"] += 1
            return _dropped(answer)
        self.lines["unserved"] += 1
        return None

    def _mark(self, places: Sequence[int]) -> None:
        """Mark items whose results have changed. The recorded outcome stays."""

        def work(tx: Tx) -> None:
            self.leases.hold_in(tx, self.batch)
            ends = [{"batch": self.batch.id, "place": place} for place in places]
            tx.many(SQL.mark_conflicts, ends=ends)

        self.resources.store.write(work)
        self.lines["conflicting"] += len(places)

    def _hold(self, kept: Sequence[Held]) -> None:
        """Keep paid answers that cannot be committed now, so that they are not requested again."""
        batch, settings = self.batch, self.resources.settings
        rows = [_kept_row(batch, one, settings.batch.key) for one in kept if one.line]
        marks = [_held_row(batch, one) for one in kept if one.is_defect]

        def work(tx: Tx) -> None:
            self.leases.hold_in(tx, batch)
            keep_ms = ms(settings.batch.keep_answer_seconds)
            if rows:
                tx.affected(SQL.keep_answers, kept=rows, keep_ms=keep_ms)
            if marks:
                tx.affected(SQL.mark_held, held=marks)

        self.resources.store.write(work)
        self.waiting.update(one.item.place for one in kept)
        self.held.update(one.item.place for one in kept if one.is_defect)

    # -- storing

    def finish(self, ends: Sequence[End]) -> None:
        """Store a group. If an answer belongs to another item, store only the correct ones."""
        crossed = [end for end in ends if end.item_outcome.is_cross_wired]
        if crossed:
            self._write(crossed, is_crossed=True)
            self.resources.events.emit(
                self.batch.alert(BatchTrouble.CROSS_WIRED, count=len(crossed))
            )
            self.leases.report_quarantined(self.batch, CROSS_WIRED)
            raise CrossWired
        if ends:
            self._write_apart(ends)

    def _write_apart(self, ends: Sequence[End]) -> None:
        """Store a group; an item that the database or the application refuses is isolated."""
        try:
            self._write(ends)
        except (StoreDown, StoreBusy, BatchLost):
            raise
        except Exception as exc:
            if len(ends) > 1:
                half = len(ends) // 2
                self._write_apart(ends[:half])
                self._write_apart(ends[half:])
                return
            if ends[0].item.job is None:
                raise
            self._refused(ends[0], ends[0].item.job, exc)

    def _refused(self, end: End, job: Claimed, exc: Exception) -> None:
        """Handle an outcome that cannot be stored: hold the answer, unless it is rejected."""
        said: Exception = exc
        if isinstance(exc, StoreError):
            said = RowInvalid(refused=verb_of(end.item_outcome.outcome))
        fault = fault_of(said, stage=job.stage, attempt=job.attempt)
        is_refused = not isinstance(exc, StoreError) and not is_defect(exc)
        if is_refused or not end.line:
            self._write([_dead(end, fault)])
            return
        if not is_retryable(exc):
            # The data of the answer may be gone in the meantime, such as an erased text.
            again = self._answered(end.item, end.answer, self.loader.load([job]), job)
            if isinstance(again.outcome, Dead) and not again.is_held and not again.may_wait:
                self._write([replace(end, item_outcome=again)])
                return
        self.counts.claimed -= 1
        self._hold([Held(end.item, end.line, fault.error_class, is_defect=not is_retryable(exc))])

    def _write(self, ends: Sequence[End], *, is_crossed: bool = False) -> None:
        settled, recorded, stopped = self.resources.store.write(
            partial(self._write_in, ends=ends, is_crossed=is_crossed)
        )
        self._emit(settled, recorded, stopped)

    def _write_in(
        self, tx: Tx, *, ends: Sequence[End], is_crossed: bool
    ) -> tuple[list[Settled], Recorded, Failure | None]:
        batch, settings = self.batch, self.resources.settings
        self.leases.hold_in(tx, batch)
        rows = tx.values(SQL.record_items, ends=[_row(batch, end) for end in ends])
        fresh = {row[0] for row in rows}
        written = [end for end in ends if end.item.place in fresh]
        recorded = record_calls(tx, self.prices, [self._call(end) for end in written])
        stopped = next(
            (end.item_outcome.stops_account for end in written if end.item_outcome.stops_account),
            None,
        )
        if stopped is not None and not open_circuit(
            tx, settings.batch, batch.account, batch.provider, stopped
        ):
            stopped = None
        waiting = [(end.item.job, end.item_outcome.outcome) for end in written if end.item.job]
        stores = self.resources.registry.stores_of
        settled = settle_in(tx, waiting, actor=self.actor, stores=stores)
        if is_crossed:
            self.leases.quarantine_in(tx, batch, CROSS_WIRED)
        return settled, recorded, stopped

    def _call(self, end: End) -> CallEntry:
        item, batch = end.item, self.batch
        return CallEntry.from_answer(
            end.answer,
            org_id=item.org_id,
            batch_id=batch.id,
            batch_item_index=item.place,
            provider_batch_id=batch.provider_batch_id or "",
            account=batch.account,
            group_key=item.group_key,
            job_id=item.job_id,
            job_type=item.job_type,
            attempt=item.attempt,
        )

    def _emit(
        self, settled: Sequence[Settled], recorded: Recorded, stopped: Failure | None
    ) -> None:
        """After the commit: update the counts of the run and emit events."""
        batch, events = self.batch, self.resources.events
        for one in settled:
            if not one.lease_held:
                self.lines["dropped"] += 1
                continue
            self.counts.outcomes["canceled" if one.canceled_instead else verb_of(one.outcome)] += 1
            self.counts.models[f"{batch.provider}/{batch.model}"] += 1
            if error_class := error_of(one.outcome):
                self.counts.errors[error_class] += 1
            if events.subscribers:
                for event in events_of(one):
                    events.emit(event)
        for used in recorded.used:
            events.emit(used)
        for provider, model in sorted(recorded.unpriced):
            events.emit(batch.alert(BatchTrouble.UNPRICED, safe_code(f"{provider}/{model}")))
        if stopped is not None:
            events.emit(batch.alert(BatchTrouble.CIRCUIT_OPENED, safe_code(stopped.code)))


def _dropped(answer: Answer) -> ItemOutcome:
    """The outcome of an answer that no job waits for: recorded and billed, not kept."""
    if isinstance(answer, Reply):
        state = ItemState.SUCCEEDED
    else:
        state = ItemState.NOT_RUN if answer.usage is None else ItemState.FAILED
    return ItemOutcome(Canceled(), state, error_code=JOB_ENDED)


def _dead(end: End, fault: Fault) -> End:
    item_outcome = ItemOutcome(Dead(fault), ItemState.FAILED, fault.error_class, NO_CODE)
    return replace(end, item_outcome=item_outcome)


def _kept_row(batch: BatchLease, held: Held, key: str) -> dict[str, Any]:
    item = held.item
    return {
        "batch": batch.id,
        "place": item.place,
        "org_id": item.org_id,
        "job_id": item.job_id,
        "job_type": item.job_type,
        "line": pack(held.line, key),
        "error_class": held.error_class,
    }


def _held_row(batch: BatchLease, held: Held) -> dict[str, Any]:
    return {
        "batch": batch.id,
        "place": held.item.place,
        "error_class": held.error_class,
        "error_code": HELD,
    }


def _row(batch: BatchLease, end: End) -> dict[str, Any]:
    finished = end.answer.finished_at
    return {
        "batch": batch.id,
        "place": end.item.place,
        "state": end.item_outcome.state,
        "result_hash": end.digest,
        "error_class": end.item_outcome.error_class,
        "error_code": end.item_outcome.error_code,
        "provider_request_id": (end.answer.provider_request_id or "")[:200] or None,
        # As the provider reports it per item; missing values stay missing.
        "finished_at": None if finished is None else instant_text(finished),
    }
