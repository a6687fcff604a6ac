"""Process kept answers again, after the application's code was fixed.

The answers are paid for, so the provider is not called. One page of answers is in memory at a time.
An answer on which the code still fails stays kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field

from holdfast.engine.job import Actor
from holdfast.engine.run_log import RunCounts
from holdfast.store import Row, Statements
from holdfast_llm.batch.ingest import CrossWired, Ingest
from holdfast_llm.batch.item_outcome import OutcomeRules
from holdfast_llm.batch.lease import BatchLease, BatchLeases, BatchLost
from holdfast_llm.batch.load import ItemLoader
from holdfast_llm.batch.raw_answer import AnswerUnreadable, unpack
from holdfast_llm.batch.read import parse_line
from holdfast_llm.batch.resources import BatchResources
from holdfast_llm.provider.account import Account
from holdfast_llm.provider.adapter import Adapter
from holdfast_llm.provider.reply import ItemAnswer

SQL = Statements("holdfast_llm.batch", "collect.sql")

PAGE_BATCHES = 100
# A line has at most 10 MiB, and typically 2 KB.
PAGE_ANSWERS = 50
_FIRST = "00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True, slots=True)
class AnswerFilter:
    """A filter of kept answers; None matches all."""

    batch_id: str | None = None
    job_id: str | None = None
    org_id: str | None = None
    job_type: str | None = None
    error_class: str | None = None
    provider: str | None = None


@dataclass(frozen=True, slots=True)
class KeptCount:
    """The number of kept answers of a job type with one error class."""

    job_type: str
    error_class: str
    answers: int
    batches: int


@dataclass(slots=True)
class Accepted:
    """The counts of one pass over kept answers."""

    # Answers that are no longer kept: their jobs have an outcome.
    accepted: int = 0
    # Answers on which the code still fails, or whose job type is not declared here.
    held: int = 0
    # Lines that cannot be read: they are damaged, or were encrypted with another key.
    unreadable: int = 0
    # Batches that another worker has leased, or whose account is not configured here.
    skipped_batches: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)


class KeptAnswers:
    """Passes kept answers to the application again."""

    def __init__(
        self,
        resources: BatchResources,
        leases: BatchLeases,
        loader: ItemLoader,
        outcomes: OutcomeRules,
    ) -> None:
        self.resources = resources
        self.store = resources.store
        self.settings = resources.settings
        self.accounts = resources.accounts
        self.leases = leases
        self.loader = loader
        self.outcomes = outcomes

    def count_kept(self, where: AnswerFilter) -> tuple[KeptCount, ...]:
        """Count the kept answers that match the filter, by job type and error class."""
        rows = self.store.many(SQL.count_kept, **asdict(where))
        return tuple(
            KeptCount(row["job_type"], row["error_class"], row["answers"], row["batches"])
            for row in rows
        )

    def list_batches(self, where: AnswerFilter) -> Iterator[str]:
        """The batches with answers that match the filter."""
        after, given = _FIRST, asdict(where)
        while True:
            found = self._read_page(given, after)
            yield from found
            if len(found) < PAGE_BATCHES:
                return
            after = found[-1]

    def _read_page(self, given: dict[str, str | None], after: str) -> list[str]:
        rows = self.store.many(SQL.list_kept_batches, after=after, limit=PAGE_BATCHES, **given)
        return [str(row["batch_id"]) for row in rows]

    def accept_batch(
        self, batch_id: str, where: AnswerFilter, done: Accepted, *, actor: Actor
    ) -> int:
        """Process the kept answers of one batch; return how many have an outcome now."""
        owner = f"{actor.type}:{actor.id}"[:100]
        batch = self.leases.take_kept(owner, batch_id)
        account = None if batch is None else self._account_of(batch)
        if batch is None or account is None:
            done.skipped_batches += 1
            self._leave(batch)
            return 0
        counts = RunCounts()
        ingest = Ingest(
            self.resources,
            self.leases,
            self.loader,
            self.outcomes,
            batch,
            actor,
            self.resources.prices,
            counts,
            retries_held=True,
        )
        before = done.accepted
        try:
            for answers in self._pages(batch, where, account.adapter, done):
                ends = ingest.weigh(answers)
                ingest.finish(ends)
                left = sum(end.item.place in ingest.waiting for end in ends)
                done.accepted += len(ends) - left
        except (BatchLost, CrossWired):
            # Another worker owns the batch, or an answer belongs to another item. Recorded items
            # stay.
            done.skipped_batches += 1
        finally:
            self._leave(batch)
        done.held += len(ingest.waiting)
        for outcome, count in counts.outcomes.items():
            done.outcomes[outcome] = done.outcomes.get(outcome, 0) + count
        return done.accepted - before

    def _account_of(self, batch: BatchLease) -> Account | None:
        """An account with the adapter of the batch, to parse its lines. No call is made."""
        accounts = self.accounts
        return accounts.by_key(batch.account) or accounts.in_place_of(batch.account)

    def _leave(self, batch: BatchLease | None) -> None:
        if batch is not None:
            with suppress(BatchLost):
                self.leases.write(SQL.leave_held, batch)

    def _pages(
        self, batch: BatchLease, where: AnswerFilter, adapter: Adapter, done: Accepted
    ) -> Iterator[list[ItemAnswer]]:
        given = asdict(where)
        given = {name: given[name] for name in ("job_id", "org_id", "job_type", "error_class")}
        place = -1
        while True:
            rows = self._list_kept(batch, place, given)
            if not rows:
                return
            place = rows[-1]["batch_item_index"]
            answers = []
            for row in rows:
                answer = self._read(adapter, row["line"])
                if answer is None:
                    done.unreadable += 1
                else:
                    answers.append(answer)
            yield answers

    def _list_kept(self, batch: BatchLease, place: int, given: dict[str, str | None]) -> list[Row]:
        page = {"id": batch.id, "place": place, "limit": PAGE_ANSWERS, **given}
        return self.store.many(SQL.list_kept, **page)

    def _read(self, adapter: Adapter, stored: str) -> ItemAnswer | None:
        try:
            return parse_line(adapter, unpack(stored, self.settings.batch.key))
        except AnswerUnreadable:
            return None
