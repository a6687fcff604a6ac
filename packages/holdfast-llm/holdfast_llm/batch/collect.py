"""Collect: bring the answers of provider batches back to their jobs.

    lease → poll → survey → read → prove → close → delete files

Every pass may run anywhere, any number at once, twice. A batch is one worker's at a time; another
one that comes later reads it from the beginning and passes over what is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from functools import partial

from holdfast.document import encode
from holdfast.engine.classify import safe_name
from holdfast.engine.errand import Assignment
from holdfast.engine.job import Actor, ActorType
from holdfast.engine.ledger import RunCounts
from holdfast.errors import StoreBusy, StoreDown
from holdfast.event import BatchChange, BatchTrouble
from holdfast_llm.batch.cleanup import delete_files
from holdfast_llm.batch.completeness import Mention, Silence, failure_of, silence_of
from holdfast_llm.batch.ingest import HELD, CrossWired, Found, Ingest
from holdfast_llm.batch.lane import BatchLane
from holdfast_llm.batch.leased import (
    SQL,
    BatchLost,
    Leased,
    hold,
    lease_next,
    put_off,
    quarantine,
    write,
)
from holdfast_llm.batch.point import Point
from holdfast_llm.batch.poll import GROWTH, end_batch, poll_batch, wait_for_account
from holdfast_llm.batch.price import Prices
from holdfast_llm.batch.reach import reach
from holdfast_llm.batch.read import Doubts, parse_line, reading, survey
from holdfast_llm.batch.release import UNKNOWN_TYPE
from holdfast_llm.batch.verdict import BATCH_FAILED, MISSING, safe_code
from holdfast_llm.batch.writer import Writer
from holdfast_llm.provider.account import Account
from holdfast_llm.provider.adapter import Seen
from holdfast_llm.provider.reply import (
    Failure,
    FailureKind,
    ItemAnswer,
    ProviderRefused,
    ProviderUnsure,
)

GROUP_ITEMS = 500
GROUP_BYTES = 2 * 1024 * 1024
NO_LIMIT = 1_000_000_000
# So long a batch waits for an application that knows its jobs; then a person decides.
UNKNOWN_TYPE_PATIENCE = timedelta(days=7)
# Why a batch is read again whose answers the application could not take.
NOT_TAKEN = "not_taken"
# Why a batch is read again, and at last held, whose results show fewer answers than it counts.
INCOMPLETE = "results_incomplete"


@dataclass(slots=True)
class Collected:
    """What one pass did."""

    looked_at: int = 0
    ended: int = 0
    collected: int = 0
    deleted: int = 0
    # What became of the jobs, in the words of the run ledger.
    counts: RunCounts = field(default_factory=RunCounts)


@dataclass(slots=True)
class Pass:
    """One pass under way: for whom it works, how long it may, and what it has done."""

    lane: BatchLane
    worker_id: str
    goes_on: Callable[[], bool]
    left: Callable[[], int]
    prices: Prices
    done: Collected
    # Batches that only another process can collect further.
    passed_over: set[str] = field(default_factory=set)

    @property
    def may_go_on(self) -> bool:
        return self.goes_on() and self.left() > 0


def run_once(
    lane: BatchLane,
    *,
    worker_id: str,
    goes_on: Callable[[], bool] = lambda: True,
    left: Callable[[], int] = lambda: NO_LIMIT,
    counts: RunCounts | None = None,
    only_id: str | None = None,
) -> Collected:
    """Look at every batch that is due, and bring back what has been answered.

    *goes_on* and *left* are asked between two groups of answers: whether there is time for another,
    and for how many. *counts* is counted up as it goes.
    """
    done = Collected(counts=counts if counts is not None else RunCounts())
    passing = Pass(lane, worker_id, goes_on, left, Prices(lane.settings.prices), done)
    while passing.may_go_on:
        batch = lease_next(lane, worker_id=worker_id, only_id=only_id, without=passing.passed_over)
        if batch is None:
            break
        try:
            if not _is_ours(lane, batch):
                passing.passed_over.add(batch.id)
                _pass_over(lane, batch)
                continue
            done.looked_at += 1
            _serve(passing, batch)
        except BatchLost:
            continue
        except (StoreDown, StoreBusy):
            raise
        except Exception as exc:
            # Whatever is wrong with this batch, it is not wrong with the next one.
            lane.events.emit(batch.alert(BatchTrouble.UNCOLLECTED, safe_name(type(exc).__name__)))
            with suppress(BatchLost):
                put_off(lane, batch, lane.settings.batch.max_poll_seconds, is_round=True)
    return done


def collect_once(lane: BatchLane, assignment: Assignment) -> Collected:
    """The same as a run: for as long and for as many jobs as it may."""
    return run_once(
        lane,
        worker_id=assignment.run_id,
        goes_on=lambda: assignment.goes_on,
        left=lambda: assignment.left,
        counts=assignment.counts,
    )


def _is_ours(lane: BatchLane, batch: Leased) -> bool:
    """Whether a job type that still waits for the batch is declared here, or none waits."""
    if batch.state not in ("submitted", "ended"):
        return True
    known = [{"job_type": name} for name in lane.registry.handlers]
    row = lane.store.read(lambda tx: tx.one(SQL.has_known, batch_id=batch.id, known=known))
    return bool(row["items"]) or not _has_open(lane, batch)


def _pass_over(lane: BatchLane, batch: Leased) -> None:
    """Leave the batch to the application that knows its jobs: its answers are paid for."""
    waits = batch.now - batch.next_at
    if waits >= UNKNOWN_TYPE_PATIENCE:
        quarantine(lane, batch, UNKNOWN_TYPE)
        return
    if waits >= timedelta(seconds=lane.settings.unknown_type_patience_seconds):
        lane.events.emit(batch.alert(BatchTrouble.UNCOLLECTED, UNKNOWN_TYPE))
    write(lane, "pass_over", batch)


def _serve(passing: Pass, batch: Leased) -> None:
    lane = passing.lane
    account = reach(lane, batch.account, batch.id, batch.provider_batch_id)
    if account is None:
        wait_for_account(lane, batch)
        return
    found: Leased | None = batch
    if batch.state == "submitted":
        found = poll_batch(lane, batch, account)
        passing.done.ended += found is not None
    if found is not None and found.state == "ended":
        found = collect_batch(passing, found, account)
        passing.done.collected += found is not None
    if found is not None:
        passing.done.deleted += delete_files(lane, found, account)


def collect_batch(passing: Pass, batch: Leased, account: Account) -> Leased | None:
    """Read an ended batch and end its items. None: not all of them yet."""
    lane = passing.lane
    actor = Actor(ActorType.SYSTEM, passing.worker_id)
    ingest = Ingest(lane, batch, actor, passing.prices, passing.done.counts)
    if not _has_open(lane, batch):
        return close_batch(lane, batch, ingest, lines=None)
    try:
        seen = survey(account, batch.result_files, partial(hold, lane, batch))
        lane.reached(Point.READING)
        is_read = _read(passing, batch, account, ingest, seen.doubted)
    except (ProviderRefused, ProviderUnsure) as exc:
        _unread(lane, batch, exc)
        return None
    except CrossWired:
        return None
    if not is_read:
        put_off(lane, batch, 0.0)
        return None
    lane.reached(Point.READ)
    _tell_strange(lane, batch, ingest)
    if seen.lines and not ingest.tally.known:
        # Not one line is ours: this is somebody else's batch, and ours is somewhere else.
        quarantine(lane, batch, "foreign_results")
        return None
    if _has_open(lane, batch) and not _end_open(passing, batch, account, ingest):
        return None
    if ingest.tally.unserved:
        # Its other jobs are another application's, which need not wait for us.
        passing.passed_over.add(batch.id)
        put_off(lane, batch, 0.0, is_round=True)
        return None
    if ingest.waiting and ingest.waiting <= ingest.held:
        lane.events.emit(batch.alert(BatchTrouble.ANSWERS_HELD, count=len(ingest.held)))
        quarantine(lane, batch, HELD)
        return None
    if ingest.waiting:
        _wait_for_takers(lane, batch, ingest)
        return None
    return close_batch(lane, batch, ingest, lines=seen.lines)


def _has_open(lane: BatchLane, batch: Leased) -> bool:
    row = lane.store.read(lambda tx: tx.one(SQL.has_open, batch_id=batch.id))
    return bool(row["items"])


def _read(
    passing: Pass, batch: Leased, account: Account, ingest: Ingest, doubted: set[str]
) -> bool:
    """Take every answer, in groups. False: the time of the pass was over before."""
    doubts = Doubts(doubted)
    beside = not passing.lane.store.is_embedded
    with Writer(ingest.finish, beside=beside) as writer:
        with closing(_sure(batch, account, ingest, doubts)) as answers:
            if not _take(passing, ingest, writer, answers):
                return False
        if not _take(passing, ingest, writer, ((answer, 0) for answer in doubts.answers)):
            return False
        if doubts.unkept:
            with closing(_again(batch, account, doubts.unkept)) as answers:
                if not _take(passing, ingest, writer, answers):
                    return False
    ingest.tally.conflicting += doubts.contradicted
    return True


Answers = Generator[tuple[ItemAnswer, int], None, None]
"""Answers and how long their lines are."""


def _take(
    passing: Pass, ingest: Ingest, writer: Writer, answers: Iterable[tuple[ItemAnswer, int]]
) -> bool:
    group: list[ItemAnswer] = []
    size = 0
    for answer, length in answers:
        group.append(answer)
        size += length
        if len(group) >= min(GROUP_ITEMS, passing.left()) or size >= GROUP_BYTES:
            writer.write(ingest.weigh(group))
            group, size = [], 0
            if not passing.may_go_on:
                return False
    writer.write(ingest.weigh(group))
    return True


def _sure(batch: Leased, account: Account, ingest: Ingest, doubts: Doubts) -> Answers:
    """The answers of items that have one line; those of others are put together."""
    with reading(account, batch.result_files) as lines:
        for line in lines:
            answer = parse_line(account.adapter, line)
            if answer is None or not isinstance(line, bytes):
                ingest.tally.unreadable += 1
            elif answer.custom_id in doubts.names:
                doubts.add(answer, len(line))
            else:
                yield answer, len(line)


def _again(batch: Leased, account: Account, names: Collection[str]) -> Answers:
    """The answers of these items, each once."""
    left = set(names)
    with reading(account, batch.result_files) as lines:
        for line in lines:
            answer = parse_line(account.adapter, line)
            if answer is not None and isinstance(line, bytes) and answer.custom_id in left:
                left.discard(answer.custom_id)
                yield answer, len(line)


def _unread(lane: BatchLane, batch: Leased, exc: ProviderRefused | ProviderUnsure) -> None:
    """What could not be read to its end is read again later; what was taken stays taken."""
    code = safe_code(exc.reason if isinstance(exc, ProviderUnsure) else exc.failure.code)
    _read_later(lane, batch, code)


def _wait_for_takers(lane: BatchLane, batch: Leased, ingest: Ingest) -> None:
    """Answers that could not be taken stay at the provider; nothing is asked for again."""
    lane.events.emit(batch.alert(BatchTrouble.UNCOLLECTED, NOT_TAKEN, len(ingest.waiting)))
    _read_later(lane, batch, NOT_TAKEN)


def _read_later(lane: BatchLane, batch: Leased, code: str) -> None:
    """Once more, later and later; what never works is a person's."""
    patience = timedelta(seconds=lane.settings.batch.give_up_seconds)
    if batch.ended_at is not None and batch.now - batch.ended_at >= patience:
        quarantine(lane, batch, code)
        return
    # That answers are missing has been reported; another error in between must not hide it.
    kept = None if batch.error_code == INCOMPLETE else code
    put_off(lane, batch, _pause(lane, batch), is_round=True, error_code=kept)


def _pause(lane: BatchLane, batch: Leased) -> float:
    settings = lane.settings.batch
    return min(settings.poll_seconds * GROWTH ** min(batch.rounds, 64), settings.max_poll_seconds)


def _tell_strange(lane: BatchLane, batch: Leased, ingest: Ingest) -> None:
    if batch.error_code == INCOMPLETE:
        # Read again for what is missing: the rest was reported the first time.
        return
    tally = ingest.tally
    for what, count in (
        (BatchTrouble.UNKNOWN_ITEM, tally.unknown),
        (BatchTrouble.MALFORMED_LINE, tally.unreadable),
        (BatchTrouble.CONFLICTING_RESULT, tally.conflicting),
    ):
        if count:
            lane.events.emit(batch.alert(what, count=count))


# -- items that no line speaks of


def _end_open(passing: Pass, batch: Leased, account: Account, ingest: Ingest) -> bool:
    """End the items without a line, once it is proven that there is none. False: not yet."""
    lane = passing.lane
    proven = _prove(lane, batch, account, ingest)
    if proven is None:
        return False
    seen, silence = proven
    failure = failure_of(seen, silence)
    named = _find_named(lane, batch, seen) if failure.code == BATCH_FAILED else frozenset()
    if named and batch.items == 1:
        # It was alone, and the provider calls it wrong: nobody else can be meant.
        failure = Failure(FailureKind.INVALID, seen.failure.code if seen.failure else BATCH_FAILED)
    ended = 0
    after = -1
    while True:
        items = _list_open(lane, batch, after)
        if not items:
            break
        if not passing.may_go_on:
            put_off(lane, batch, 0.0)
            return False
        silent = [item for item in items if item.place not in ingest.waiting]
        ingest.finish(ingest.weigh_silence(silent, failure, named))
        ended += len(silent)
        after = items[-1].place
    if ended and failure.code == MISSING and batch.error_code != INCOMPLETE:
        lane.events.emit(batch.alert(BatchTrouble.MISSING_RESULT, count=ended))
    return True


def _list_open(lane: BatchLane, batch: Leased, after: int) -> list[Found]:
    rows = lane.store.read(
        lambda tx: tx.values(SQL.list_open, batch_id=batch.id, after=after, limit=GROUP_ITEMS)
    )
    return [Found.of(row) for row in rows]


def _find_named(lane: BatchLane, batch: Leased, seen: Seen) -> frozenset[int]:
    """The places of the items that the provider calls the reason why the whole batch failed."""
    lines = [{"line": line} for line in seen.named_lines if line <= batch.items]
    if not lines:
        return frozenset()
    rows = lane.store.read(lambda tx: tx.values(SQL.find_lines, batch_id=batch.id, named=lines))
    return frozenset(row[0] for row in rows)


def _prove(
    lane: BatchLane, batch: Leased, account: Account, ingest: Ingest
) -> tuple[Seen, Silence] | None:
    """Ask once more, after reading: is it over, were these all its files, all its answers?"""
    assert batch.provider_batch_id is not None
    try:
        seen = account.adapter.get(account.wire, batch.provider_batch_id)
    except (ProviderRefused, ProviderUnsure) as exc:
        _unread(lane, batch, exc)
        return None
    if not seen.phase.is_over:
        put_off(lane, batch, _pause(lane, batch), is_round=True, seen=seen)
        return None
    if set(seen.result_files) != set(batch.result_files):
        put_off(lane, end_batch(lane, batch, seen), _pause(lane, batch), is_round=True)
        return None
    silence = silence_of(seen, ingest.mentions, unreadable=ingest.tally.unreadable)
    if silence is Silence.UNPROVEN:
        _hold_unproven(lane, batch, seen, ingest)
        return None
    return seen, silence


def _hold_unproven(lane: BatchLane, batch: Leased, seen: Seen, ingest: Ingest) -> None:
    """Read the results again: the file may not be whole yet. At last an operator decides.

    The provider counts answers that its results do not show. Sending their items again would pay
    for them twice, and ending them would give up an answer that is paid for.
    """
    if batch.error_code != INCOMPLETE:
        count = ingest.mentions.count(Mention.NONE)
        lane.events.emit(batch.alert(BatchTrouble.MISSING_RESULT, safe_code(seen.status), count))
    if batch.rounds < lane.settings.batch.max_rounds:
        pause = _pause(lane, batch)
        put_off(lane, batch, pause, is_round=True, seen=seen, error_code=INCOMPLETE)
        return
    quarantine(lane, batch, INCOMPLETE)


def close_batch(lane: BatchLane, batch: Leased, ingest: Ingest, *, lines: int | None) -> Leased:
    """Write down that every item of the batch has its end."""
    found = {"lines": lines} if lines is not None else {}
    strange = {name: count for name, count in asdict(ingest.tally).items() if count}
    write(lane, "close_batch", batch, counts=encode({**batch.counts, **found, **strange}))
    lane.reached(Point.COLLECT_RECORDED)
    lane.events.emit(batch.changed(BatchChange.COLLECTED))
    return replace(batch, state="collected")
