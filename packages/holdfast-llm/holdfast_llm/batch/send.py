"""Send: one batch on its way out. Upload, write down that a create begins, create, write its name.

    prepared → (upload) → uploaded → creating → (create) → submitted

What is uploaded costs nothing. What is created is paid for, and no provider takes a key that would
make a second create harmless: so ``creating`` is committed before a byte is sent, there is one
create to a commit, and an answer that is not the provider's own refusal leaves everything as it is
for recover.py.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import Any

from holdfast.clock import ms, write_instant
from holdfast.engine.job import Actor
from holdfast.engine.settle import STRETCH, Settled, submit_jobs
from holdfast.event import BatchChange, BatchTrouble
from holdfast.store import Tx
from holdfast_llm.batch import circuit
from holdfast_llm.batch.content import ContentChanged, Measured, measure
from holdfast_llm.batch.intent import SQL, Intent, hold, hold_in, put_off, write, write_in
from holdfast_llm.batch.lane import BatchLane
from holdfast_llm.batch.leased import lease_ms
from holdfast_llm.batch.point import Point
from holdfast_llm.batch.release import (
    CIRCUIT_OPEN,
    NO_ACCOUNT,
    OVERFLOW,
    Tally,
    because,
    give_back,
    release_in,
    tell,
)
from holdfast_llm.provider.account import Account
from holdfast_llm.provider.adapter import Lookup, Seen
from holdfast_llm.provider.reply import (
    FOREIGN_REPLY,
    INPUT_NOT_FOUND,
    NO_ENDPOINT,
    Failure,
    FailureKind,
    ProviderRefused,
    ProviderUnsure,
)
from holdfast_llm.provider.route import Route

# A process that slept between its commit and its create must not send it any more: by then somebody
# else may have made up his mind about it.
SEND_WITHIN_SECONDS = 30.0
# What a provider takes beyond the time it names.
GRACE = timedelta(hours=1)
# The pauses after an upload or a create that may be tried again as it is.
FIRST_PAUSE_SECONDS = 60.0
LONGEST_PAUSE_SECONDS = 900.0
REBUILDS = 3


@dataclass(frozen=True, slots=True)
class Create:
    """One create: its number, when its commit began, and what it sends."""

    attempt: int
    began: float
    measured: Measured
    route: Route


class _Begun(StrEnum):
    """What the commit before a create said."""

    BEGUN = "begun"
    # Another create of the account has no answer yet, and here only one may be under way.
    BUSY = "busy"
    # Jobs were taken from the batch: what was uploaded is not what it holds.
    CHANGED = "changed"


def send(lane: BatchLane, intent: Intent, *, actor: Actor) -> Tally:
    """Take a batch as far as it goes. Raises BatchLost if somebody else has it."""
    tally = Tally()
    account = lane.accounts.by_key(intent.account)
    if account is None:
        # Its credential is not here; whoever has it sends the batch.
        lane.events.emit(intent.alert(BatchTrouble.ACCOUNT_UNUSABLE, NO_ACCOUNT, intent.items))
        if (intent.now - intent.created_at).total_seconds() > lane.settings.batch.give_up_seconds:
            _give_back(lane, intent, because(NO_ACCOUNT), actor, tally)
        else:
            put_off(lane, intent, lane.settings.batch.max_poll_seconds)
            tally.batches["put_off"] += 1
        return tally
    if account.key in lane.store.read(circuit.find_open_circuits):
        stopped = Failure(FailureKind.ACCOUNT, CIRCUIT_OPEN)
        _give_back(lane, intent, stopped, actor, tally)
        return tally
    try:
        _send(lane, intent, account, actor, tally)
    except ProviderRefused as exc:
        # Only an upload comes here: nothing of the batch exists.
        _give_back(lane, intent, exc.failure, actor, tally)
    except ProviderUnsure as exc:
        _try_again(lane, intent, exc, actor, tally)
    return tally


def _send(lane: BatchLane, intent: Intent, account: Account, actor: Actor, tally: Tally) -> None:
    """Build, upload and create; if the batch is not what it was when it was built, once more."""
    changed: Failure | None = None
    for _ in range(REBUILDS):
        measured = measure(lane, intent, account)
        if intent.state == "uploaded" and not _is_uploaded(intent, measured):
            write(lane, "step_back", intent, lease_ms=lease_ms(lane))
            _drop_file(intent, account)
            intent = hold(lane, intent.id, intent.fence)
        _drop(lane, intent, measured, actor, tally)
        if measured.route is None:
            _give_back(lane, intent, because(OVERFLOW), actor, tally)
            return
        if account.capabilities.has_input_file and intent.state == "prepared":
            intent = _upload(lane, intent, account, measured)
        began = lane.store.clock.monotonic()
        match lane.store.write(partial(_begin, lane, intent, account, measured)):
            case _Begun.BEGUN:
                lane.reached(Point.CREATING_RECORDED)
                create = Create(intent.create_attempt + 1, began, measured, measured.route)
                try:
                    _create(lane, intent, account, create, actor, tally)
                    return
                except ContentChanged:
                    # It was broken off before its end: nothing was created.
                    write(lane, "step_back", intent, lease_ms=lease_ms(lane))
                    intent = hold(lane, intent.id, intent.fence)
                    changed = Failure(FailureKind.TRANSIENT, "content_changed")
            case _Begun.BUSY:
                _give_back(lane, intent, because(OVERFLOW), actor, tally)
                return
            case _Begun.CHANGED:
                _drop_file(intent, account)
                intent = hold(lane, intent.id, intent.fence)
    if changed is not None:
        # A request that is another one each time ends as its job's own failure.
        _give_back(lane, intent, changed, actor, tally)
        return
    put_off(lane, intent, FIRST_PAUSE_SECONDS)
    tally.batches["put_off"] += 1


def _is_uploaded(intent: Intent, measured: Measured) -> bool:
    """Whether what lies at the provider is what we would send."""
    return not measured.dropped and measured.content.sha256 == intent.content_hash


def _drop(lane: BatchLane, intent: Intent, measured: Measured, actor: Actor, tally: Tally) -> None:
    """What cannot go leaves the batch, each with an outcome of its own."""
    if not measured.dropped:
        return

    def work(tx: Tx) -> list[Settled]:
        hold_in(tx, lane, intent.id, intent.fence)
        ends = [(one.entry, one.outcome) for one in measured.dropped]
        return release_in(tx, intent, ends, code="not_sent", actor=actor)

    tally.add(tell(lane, lane.store.write(work)))


# -- upload


def _upload(lane: BatchLane, intent: Intent, account: Account, measured: Measured) -> Intent:
    """Send the input and write down where it lies. A crash in between leaves a file, no cost."""
    name = intent.name(lane, intent.create_attempt + 1)
    if intent.fence > 1 and account.capabilities.can_delete_file:
        # Whoever had the batch before us may have sent it, and may have been cut off.
        left = account.adapter.find_file(account.wire, name)
        if left is not None:
            account.adapter.delete_file(account.wire, left)
    content = measured.content
    file_id = account.adapter.upload(account.wire, name, content)
    lane.reached(Point.UPLOADED)
    write(
        lane,
        "record_upload",
        intent,
        file_id=file_id,
        content_hash=content.sha256,
        bytes=content.size,
        lease_ms=lease_ms(lane),
    )
    lane.reached(Point.UPLOAD_RECORDED)
    return replace(intent, state="uploaded", input_file_id=file_id)


def _drop_file(intent: Intent, account: Account) -> None:
    """Delete an input that nobody needs; what stays expires by itself."""
    if intent.input_file_id is not None:
        with suppress(ProviderRefused, ProviderUnsure):
            account.adapter.delete_file(account.wire, intent.input_file_id)


def _try_again(
    lane: BatchLane, intent: Intent, unsure: ProviderUnsure, actor: Actor, tally: Tally
) -> None:
    """An upload without an answer costs nothing: once more, and after some rounds the jobs' own.

    Where something else than the provider answers, it is the account's trouble and no job's.
    """
    is_over = intent.rounds + 1 >= lane.settings.batch.max_rounds
    if is_over or unsure.is_wrong_address:
        failure = Failure(FailureKind.TRANSIENT, unsure.reason, retry_after=unsure.retry_after)
        if unsure.is_foreign:
            failure = replace(failure, kind=FailureKind.ACCOUNT, code=FOREIGN_REPLY)
        _give_back(lane, intent, failure, actor, tally)
        return
    put_off(lane, intent, _pause(intent.rounds, unsure.retry_after), is_round=True)
    tally.batches["put_off"] += 1


def _pause(rounds: int, retry_after: float | None) -> float:
    grown = FIRST_PAUSE_SECONDS * 2.0 ** min(rounds, 10)
    return max(min(grown, LONGEST_PAUSE_SECONDS), min(retry_after or 0.0, 3600.0))


# -- create


def is_alone(account: Account) -> bool:
    """Whether only one create may be under way: what has no name of ours is told by its count."""
    return account.capabilities.lookup is Lookup.COUNT


def _begin(lane: BatchLane, intent: Intent, account: Account, measured: Measured, tx: Tx) -> _Begun:
    """Commit that a create begins, if every item's job is still this batch's to send."""
    hold_in(tx, lane, intent.id, intent.fence)
    if is_alone(account):
        tx.lock_units([f"create:{account.key}"])
        if tx.maybe(SQL.find_creating, account=account.key, id=intent.id) is not None:
            return _Begun.BUSY
    # Whatever took a job from under the batch: what another batch may send is not sent by this one.
    if tx.affected(SQL.release_unheld, batch_id=intent.id):
        write_in(tx, "step_back", intent, lease_ms=lease_ms(lane))
        return _Begun.CHANGED
    write_in(
        tx,
        "begin_create",
        intent,
        attempt=intent.create_attempt + 1,
        content_hash=measured.content.sha256,
        bytes=measured.content.size,
        lease_ms=lease_ms(lane),
    )
    return _Begun.BEGUN


def _create(
    lane: BatchLane, intent: Intent, account: Account, create: Create, actor: Actor, tally: Tally
) -> None:
    intent = replace(intent, state="creating", create_attempt=create.attempt)
    try:
        seen = _post(lane, intent, account, create)
    except ProviderRefused as exc:
        _refused(lane, intent, exc.failure, actor, tally)
        return
    except ContentChanged:
        raise
    except ProviderUnsure as exc:
        # It may have happened, or may yet. Recovery looks.
        was_answered = exc.failure is not None
        if exc.is_wrong_address:
            failure = Failure(FailureKind.ACCOUNT, FOREIGN_REPLY)
            circuit.stop_account(lane, intent.account, intent.provider, failure, intent.id)
        put_off(lane, intent, _pause(0, exc.retry_after), was_answered=was_answered)
        tally.batches["unsure"] += 1
        return
    lane.reached(Point.CREATED)
    tally.add(record_created(lane, intent, seen, account, actor=actor))
    lane.reached(Point.CREATE_RECORDED)


def _post(lane: BatchLane, intent: Intent, account: Account, create: Create) -> Seen:
    """The one request of this try. A process that slept finds the batch lost, or itself late."""
    hold(lane, intent.id, intent.fence)
    if lane.store.clock.monotonic() - create.began > SEND_WITHIN_SECONDS:
        raise ProviderUnsure("late")
    return account.adapter.create(
        account.wire,
        create.route,
        intent.name(lane, create.attempt),
        intent.input_file_id,
        create.measured.content,
    )


def _refused(lane: BatchLane, intent: Intent, failure: Failure, actor: Actor, tally: Tally) -> None:
    """The provider said no to the create: nothing exists."""
    if _may_not_see_it_yet(lane, intent, failure):
        write(lane, "keep_upload", intent, delay_ms=ms(_pause(intent.rounds, failure.retry_after)))
        tally.batches["put_off"] += 1
        return
    if failure.code == INPUT_NOT_FOUND:
        # The file was uploaded and is not found for long: the address is wrong, and no job.
        failure = replace(failure, kind=FailureKind.ACCOUNT, code=NO_ENDPOINT)
    _give_back(lane, intent, failure, actor, tally)


def _may_not_see_it_yet(lane: BatchLane, intent: Intent, failure: Failure) -> bool:
    """Whether what was uploaded a moment ago may not be found everywhere yet.

    Some say so, others call the whole request wrong: that is asked once more.
    """
    if intent.input_file_id is None:
        return False
    if failure.code == INPUT_NOT_FOUND:
        return intent.rounds + 1 < lane.settings.batch.max_rounds
    is_called_wrong = failure.kind is FailureKind.INVALID and failure.status == 400
    return is_called_wrong and intent.rounds == 0


def _give_back(
    lane: BatchLane, intent: Intent, failure: Failure, actor: Actor, tally: Tally
) -> None:
    if failure.kind is FailureKind.ACCOUNT and failure.code != CIRCUIT_OPEN:
        circuit.stop_account(lane, intent.account, intent.provider, failure, intent.id)
    tally.add(give_back(lane, intent, failure, actor=actor))


# -- it exists


def record_created(
    lane: BatchLane, intent: Intent, seen: Seen, account: Account, *, actor: Actor
) -> Tally:
    """Write down what our own create made. True also for one whose lease is over.

    While this try is the last one and has no other answer, what we know is the answer. Otherwise
    somebody has given this try up, and what it made must not run.
    """
    for state in ("creating", "quarantined"):
        stands = replace(intent, state=state)
        recorded = record_submitted(lane, stands, seen, fence=None, actor=actor)
        if recorded is not None:
            return recorded
    row = lane.store.read(lambda tx: tx.maybe(SQL.find_batch, id=intent.id))
    tally = Tally()
    if row is None or row["provider_batch_id"] != seen.provider_batch_id:
        with suppress(ProviderRefused, ProviderUnsure):
            account.adapter.cancel(account.wire, seen.provider_batch_id)
        lane.events.emit(intent.alert(BatchTrouble.ZOMBIE_BATCH, "late_create"))
        tally.batches["zombies"] += 1
    return tally


def record_submitted(
    lane: BatchLane,
    intent: Intent,
    seen: Seen,
    *,
    fence: int | None,
    actor: Actor,
    was_scanned: bool = False,
    decided: Callable[[Tx], None] | None = None,
) -> Tally | None:
    """Write down that a batch exists, with all its jobs and their audit, in one transaction.

    None if the row does not stand as *intent* says. Whoever names a *fence* needs it to hold.
    *decided* writes down which person says so.
    """
    settings = lane.settings.batch

    def work(tx: Tx) -> tuple[int, list[Settled]] | None:
        params: dict[str, Any] = {
            "id": intent.id,
            "was": intent.state,
            "attempt": intent.create_attempt,
            "fence": fence,
            "provider_batch_id": seen.provider_batch_id,
            "provider_status": seen.status[:100],
            "deadline_at": _deadline(seen),
            "deadline_ms": ms(settings.deadline_seconds),
            "poll_ms": ms(settings.poll_seconds),
            "was_scanned": int(was_scanned),
        }
        if not tx.affected(SQL.submit_batch, **params):
            return None
        if decided is not None:
            decided(tx)
        tx.affected(SQL.clear_held, batch_id=intent.id)
        if intent.provider_batch_id is not None:
            # Its jobs have been waiting for it all along.
            return 0, []
        jobs = submit_jobs(
            tx,
            batch_id=intent.id,
            items=intent.items,
            provider_batch_id=seen.provider_batch_id,
            actor=actor,
        )
        for first in range(0, intent.items, STRETCH):
            tx.affected(SQL.stamp_items, batch_id=intent.id, first=first, after=first + STRETCH)
        circuit.close_circuit(tx, intent.account)
        return jobs.jobs, list(jobs.stopped)

    done = lane.store.write(work)
    if done is None:
        return None
    jobs, stopped = done
    tally = tell(lane, stopped)
    tally.outcomes["submitted"] += jobs - len(stopped)
    tally.batches["adopted" if was_scanned else "submitted"] += 1
    change = BatchChange.ADOPTED if was_scanned else BatchChange.SUBMITTED
    lane.events.emit(intent.changed(change))
    return tally


def _deadline(seen: Seen) -> str | None:
    return None if seen.expires_at is None else write_instant(seen.expires_at + GRACE)
