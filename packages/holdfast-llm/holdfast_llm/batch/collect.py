"""Collect: return the answers of provider batches to their jobs.

    lease → poll → survey → read → prove → close → delete files

Every pass may run anywhere, concurrently and repeatedly. A batch is leased by one worker at a time.
A later worker reads it from the beginning and skips recorded items.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Any

from holdfast.document import encode
from holdfast.engine.classify import safe_name
from holdfast.engine.job import Actor, ActorType
from holdfast.engine.pass_counts import PassCounts
from holdfast.engine.periodic_task import RunBudget
from holdfast.engine.run_log import RunCounts
from holdfast.errors import StoreBusy, StoreDown
from holdfast.event import BatchChange, BatchTrouble
from holdfast.store import Statements, Tx
from holdfast_llm.batch.beside import Beside
from holdfast_llm.batch.cleanup import FileCleaner
from holdfast_llm.batch.completeness import Mention, Silence, failure_of, silence_of
from holdfast_llm.batch.ingest import HELD, CrossWired, Found, Ingest
from holdfast_llm.batch.item_outcome import BATCH_FAILED, MISSING, OutcomeRules, safe_code
from holdfast_llm.batch.lease import BatchLease, BatchLeases, BatchLost
from holdfast_llm.batch.load import ItemLoader
from holdfast_llm.batch.poll import GROWTH, BatchPoller
from holdfast_llm.batch.price import Prices
from holdfast_llm.batch.read import Doubts, parse_line, reading, survey
from holdfast_llm.batch.release import UNKNOWN_TYPE
from holdfast_llm.batch.resources import BatchResources
from holdfast_llm.provider.account import Account
from holdfast_llm.provider.adapter import ProviderBatch
from holdfast_llm.provider.reply import (
    Failure,
    FailureKind,
    ItemAnswer,
    ProviderRefused,
    ProviderUnsure,
)

SQL = Statements("holdfast_llm.batch", "collect.sql")

GROUP_ITEMS = 500
GROUP_BYTES = 2 * 1024 * 1024
NO_LIMIT = 1_000_000_000
# How long a batch waits for an application that knows its jobs; then an operator decides.
UNKNOWN_TYPE_PATIENCE = timedelta(days=7)
# Reread because the application could not process some answers.
NOT_TAKEN = "not_taken"
# Reread, and finally held, because the results have fewer answers than the provider counts.
INCOMPLETE = "results_incomplete"


@dataclass(slots=True)
class Pass:
    """The state of one pass: owner, time limit and counts."""

    worker_id: str
    may_continue: Callable[[], bool]
    left: Callable[[], int]
    prices: Prices
    done: PassCounts
    counts: RunCounts
    # Batches that only another process can collect further.
    passed_over: set[str] = field(default_factory=set)

    @property
    def may_go_on(self) -> bool:
        return self.may_continue() and self.left() > 0


class BatchCollector:
    """Polls, reads and closes batches."""

    def __init__(
        self,
        resources: BatchResources,
        leases: BatchLeases,
        loader: ItemLoader,
        outcomes: OutcomeRules,
        poller: BatchPoller,
        files: FileCleaner,
    ) -> None:
        self.resources = resources
        self.store = resources.store
        self.settings = resources.settings
        self.registry = resources.registry
        self.events = resources.events
        self.leases = leases
        self.loader = loader
        self.outcomes = outcomes
        self.poller = poller
        self.files = files

    def run_once(
        self,
        *,
        worker_id: str,
        may_continue: Callable[[], bool] = lambda: True,
        left: Callable[[], int] = lambda: NO_LIMIT,
        counts: RunCounts | None = None,
        only_id: str | None = None,
    ) -> PassCounts:
        """Collect every batch that is due.

        Between two groups of answers, *may_continue* says whether there is time for another, and
        *left* how many answers are allowed. *counts* is updated during the pass.
        """
        counts = counts if counts is not None else RunCounts()
        done = PassCounts(outcomes=counts.outcomes, errors=counts.errors)
        passing = Pass(worker_id, may_continue, left, self.resources.prices, done, counts)
        while passing.may_go_on:
            batch = self.leases.take_to_collect(
                worker_id, only_id=only_id, without=passing.passed_over
            )
            if batch is None:
                break
            try:
                if not self._is_ours(batch):
                    passing.passed_over.add(batch.id)
                    self._pass_over(batch)
                    continue
                done.done["looked_at"] += 1
                self._serve(passing, batch)
            except BatchLost:
                continue
            except (StoreDown, StoreBusy):
                raise
            except Exception as exc:
                # An error in one batch does not affect the others.
                self.events.emit(
                    batch.alert(BatchTrouble.UNCOLLECTED, safe_name(type(exc).__name__))
                )
                with suppress(BatchLost):
                    self.leases.put_off(batch, self.settings.batch.max_poll_seconds, is_round=True)
        return done

    def collect_once(self, budget: RunBudget) -> PassCounts:
        """Run one pass within the time and job limits of *budget*."""
        return self.run_once(
            worker_id=budget.run_id,
            may_continue=lambda: budget.may_continue,
            left=lambda: budget.left,
            counts=budget.counts,
        )

    def _is_ours(self, batch: BatchLease) -> bool:
        """Whether a job type that waits for the batch is declared here, or none waits."""
        if batch.state not in ("submitted", "ended"):
            return True
        known = [{"job_type": name} for name in self.registry.handlers]
        row = self.store.one(SQL.has_known, batch_id=batch.id, known=known)
        return bool(row["items"]) or not self._has_open(batch)

    def _pass_over(self, batch: BatchLease) -> None:
        """Leave the batch to an application that knows its jobs: its answers are paid for."""
        waits = batch.now - batch.next_at
        if waits >= UNKNOWN_TYPE_PATIENCE:
            self.leases.quarantine(batch, UNKNOWN_TYPE)
            return
        if waits >= timedelta(seconds=self.settings.unknown_type_patience_seconds):
            self.events.emit(batch.alert(BatchTrouble.UNCOLLECTED, UNKNOWN_TYPE))
        self.leases.give_up(batch)

    def _ingest(self, passing: Pass, batch: BatchLease) -> Ingest:
        return Ingest(
            self.resources,
            self.leases,
            self.loader,
            self.outcomes,
            batch,
            Actor(ActorType.SYSTEM, passing.worker_id),
            passing.prices,
            passing.counts,
        )

    def _hold(self, batch: BatchLease) -> None:
        self.leases.hold(batch)

    def _has_open(self, batch: BatchLease) -> bool:
        row = self.store.one(SQL.has_open, batch_id=batch.id)
        return bool(row["items"])

    def _unread(self, batch: BatchLease, exc: ProviderRefused | ProviderUnsure) -> None:
        """Read an incomplete batch again later. Recorded answers stay."""
        code = safe_code(exc.reason if isinstance(exc, ProviderUnsure) else exc.failure.code)
        self._read_later(batch, code)

    def _wait_for_takers(self, batch: BatchLease, ingest: Ingest) -> None:
        """Keep unprocessed answers at the provider and read them again later."""
        self.events.emit(batch.alert(BatchTrouble.UNCOLLECTED, NOT_TAKEN, len(ingest.waiting)))
        self._read_later(batch, NOT_TAKEN)

    def _read_later(self, batch: BatchLease, code: str) -> None:
        """Read the batch again with growing pauses; finally an operator decides."""
        patience = timedelta(seconds=self.settings.batch.give_up_seconds)
        if batch.ended_at is not None and batch.now - batch.ended_at >= patience:
            self.leases.quarantine(batch, code)
            return
        # Missing answers have been reported; another error must not hide that.
        kept = None if batch.error_code == INCOMPLETE else code
        self.leases.put_off(batch, self._pause(batch), is_round=True, error_code=kept)

    def _pause(self, batch: BatchLease) -> float:
        settings = self.settings.batch
        return min(
            settings.poll_seconds * GROWTH ** min(batch.rounds, 64), settings.max_poll_seconds
        )

    def _tell_strange(self, batch: BatchLease, ingest: Ingest) -> None:
        if batch.error_code == INCOMPLETE:
            # This rereads the missing answers; the rest was reported the first time.
            return
        for what, count in (
            (BatchTrouble.UNKNOWN_ITEM, ingest.lines["unknown"]),
            (BatchTrouble.MALFORMED_LINE, ingest.lines["unreadable"]),
            (BatchTrouble.CONFLICTING_RESULT, ingest.lines["conflicting"]),
        ):
            if count:
                self.events.emit(batch.alert(what, count=count))

    def _list_open(self, batch: BatchLease, after: int) -> list[Found]:
        def page(tx: Tx) -> list[tuple[Any, ...]]:
            tx.read_in_order()
            return tx.values(SQL.list_open, batch_id=batch.id, after=after, limit=GROUP_ITEMS)

        return [Found.from_row(row) for row in self.store.read(page)]

    def _find_named(self, batch: BatchLease, seen: ProviderBatch) -> frozenset[int]:
        """The places of the items that the provider names as the cause of the batch failure."""
        lines = [{"line": line} for line in seen.named_lines if line <= batch.items]
        if not lines:
            return frozenset()
        rows = self.store.values(SQL.find_lines, batch_id=batch.id, named=lines)
        return frozenset(row[0] for row in rows)

    def _prove(
        self, batch: BatchLease, account: Account, ingest: Ingest
    ) -> tuple[ProviderBatch, Silence] | None:
        """Poll again after reading: has it ended, and are all files and answers read?"""
        assert batch.provider_batch_id is not None
        try:
            seen = account.adapter.get(account.client, batch.provider_batch_id)
        except (ProviderRefused, ProviderUnsure) as exc:
            self._unread(batch, exc)
            return None
        if not seen.phase.is_over:
            self.leases.put_off(batch, self._pause(batch), is_round=True, seen=seen)
            return None
        if set(seen.result_files) != set(batch.result_files):
            self.leases.put_off(
                self.poller.end_batch(batch, seen), self._pause(batch), is_round=True
            )
            return None
        silence = silence_of(seen, ingest.mentions, unreadable=ingest.lines["unreadable"])
        if silence is Silence.UNPROVEN:
            self._hold_unproven(batch, seen, ingest)
            return None
        return seen, silence

    def _hold_unproven(self, batch: BatchLease, seen: ProviderBatch, ingest: Ingest) -> None:
        """Read the results again, since the file may be incomplete. Finally an operator decides.

        The provider counts answers that its results do not show. Sending the items again would pay
        twice; ending them would lose paid answers.
        """
        if batch.error_code != INCOMPLETE:
            count = ingest.mentions.count(Mention.NONE)
            self.events.emit(
                batch.alert(BatchTrouble.MISSING_RESULT, safe_code(seen.status), count)
            )
        if batch.rounds < self.settings.batch.max_rounds:
            pause = self._pause(batch)
            self.leases.put_off(batch, pause, is_round=True, seen=seen, error_code=INCOMPLETE)
            return
        self.leases.quarantine(batch, INCOMPLETE)

    def close_batch(self, batch: BatchLease, ingest: Ingest, *, lines: int | None) -> BatchLease:
        """Record that every item of the batch has ended."""
        found = {"lines": lines} if lines is not None else {}
        strange = {name: count for name, count in ingest.lines.items() if count}
        self.leases.write(
            SQL.close_batch, batch, counts=encode({**batch.counts, **found, **strange})
        )
        self.events.emit(batch.changed(BatchChange.COLLECTED))
        return replace(batch, state="collected")

    def _serve(self, passing: Pass, batch: BatchLease) -> None:
        account = self.resources.resolve_account(batch.account, batch.id, batch.provider_batch_id)
        if account is None:
            self.poller.wait_for_account(batch)
            return
        found: BatchLease | None = batch
        if batch.state == "submitted":
            found = self.poller.poll_batch(batch, account)
            passing.done.done["ended"] += found is not None
        if found is not None and found.state == "ended":
            found = self.collect_batch(passing, found, account)
            passing.done.done["collected"] += found is not None
        if found is not None:
            passing.done.done["deleted"] += self.files.delete_files(found, account)

    def collect_batch(
        self, passing: Pass, batch: BatchLease, account: Account
    ) -> BatchLease | None:
        """Read an ended batch and end its items. None if some are still open."""
        ingest = self._ingest(passing, batch)
        if not self._has_open(batch):
            return self.close_batch(batch, ingest, lines=None)
        try:
            seen = survey(account, batch.result_files, lambda: self._hold(batch))
            is_read = self._read(passing, batch, account, ingest, seen.doubted)
        except (ProviderRefused, ProviderUnsure) as exc:
            self._unread(batch, exc)
            return None
        except CrossWired:
            return None
        if not is_read:
            self.leases.put_off(batch, 0.0)
            return None
        self._tell_strange(batch, ingest)
        if seen.lines and not ingest.lines["known"]:
            # No line is ours: this is another account's batch.
            self.leases.quarantine(batch, "foreign_results")
            return None
        if self._has_open(batch) and not self._end_open(passing, batch, account, ingest):
            return None
        if ingest.lines["unserved"]:
            # The remaining jobs belong to another application, which can continue now.
            passing.passed_over.add(batch.id)
            self.leases.put_off(batch, 0.0, is_round=True)
            return None
        if ingest.waiting and ingest.waiting <= ingest.held:
            self.events.emit(batch.alert(BatchTrouble.ANSWERS_HELD, count=len(ingest.held)))
            self.leases.quarantine(batch, HELD)
            return None
        if ingest.waiting:
            self._wait_for_takers(batch, ingest)
            return None
        return self.close_batch(batch, ingest, lines=seen.lines)

    def _read(
        self, passing: Pass, batch: BatchLease, account: Account, ingest: Ingest, doubted: set[str]
    ) -> bool:
        """Process all answers in groups. False if the time limit of the pass was reached."""
        doubts = Doubts(doubted)
        with Beside(self.store, "collector") as writer:
            with closing(_sure(batch, account, ingest, doubts)) as answers:
                if not _take(passing, ingest, writer, answers):
                    return False
            if not _take(passing, ingest, writer, ((answer, 0) for answer in doubts.answers)):
                return False
            if doubts.unkept:
                with closing(_again(batch, account, doubts.unkept)) as answers:
                    if not _take(passing, ingest, writer, answers):
                        return False
        ingest.lines["conflicting"] += doubts.contradicted
        return True

    def _end_open(self, passing: Pass, batch: BatchLease, account: Account, ingest: Ingest) -> bool:
        """End the items that certainly have no line. False if that is not proven yet."""
        proven = self._prove(batch, account, ingest)
        if proven is None:
            return False
        seen, silence = proven
        failure = failure_of(seen, silence)
        named = self._find_named(batch, seen) if failure.code == BATCH_FAILED else frozenset()
        if named and batch.items == 1:
            # It was the only item, and the provider rejects it, so it is the cause.
            failure = Failure(
                FailureKind.INVALID, seen.failure.code if seen.failure else BATCH_FAILED
            )
        ended = 0
        after = -1
        while True:
            items = self._list_open(batch, after)
            if not items:
                break
            if not passing.may_go_on:
                self.leases.put_off(batch, 0.0)
                return False
            silent = [item for item in items if item.place not in ingest.waiting]
            ingest.finish(ingest.weigh_silence(silent, failure, named))
            ended += len(silent)
            after = items[-1].place
        if ended and failure.code == MISSING and batch.error_code != INCOMPLETE:
            self.events.emit(batch.alert(BatchTrouble.MISSING_RESULT, count=ended))
        return True


Answers = Generator[tuple[ItemAnswer, int], None, None]
"""Answers with the total length of their lines."""


def _take(
    passing: Pass, ingest: Ingest, writer: Beside, answers: Iterable[tuple[ItemAnswer, int]]
) -> bool:
    group: list[ItemAnswer] = []
    size = 0
    for answer, length in answers:
        group.append(answer)
        size += length
        if len(group) >= min(GROUP_ITEMS, passing.left()) or size >= GROUP_BYTES:
            writer.start(partial(ingest.finish, ingest.weigh(group)))
            group, size = [], 0
            if not passing.may_go_on:
                return False
    writer.start(partial(ingest.finish, ingest.weigh(group)))
    return True


def _sure(batch: BatchLease, account: Account, ingest: Ingest, doubts: Doubts) -> Answers:
    """The answers of items with one line; those of other items are collected separately."""
    with reading(account, batch.result_files) as lines:
        for line in lines:
            answer = parse_line(account.adapter, line)
            if answer is None or not isinstance(line, bytes):
                ingest.lines["unreadable"] += 1
            elif answer.custom_id in doubts.names:
                doubts.add(answer, len(line))
            else:
                yield answer, len(line)


def _again(batch: BatchLease, account: Account, names: Collection[str]) -> Answers:
    """The answers of these items, once each."""
    left = set(names)
    with reading(account, batch.result_files) as lines:
        for line in lines:
            answer = parse_line(account.adapter, line)
            if answer is not None and isinstance(line, bytes) and answer.custom_id in left:
                left.discard(answer.custom_id)
                yield answer, len(line)


# -- items without a line
