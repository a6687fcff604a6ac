"""Send an outgoing batch: upload, record the start of a create, create, record its id.

    prepared → (upload) → uploaded → creating → (create) → submitted

An upload costs nothing. A created batch is paid for, and no provider has an idempotency key for
creates. Therefore ``creating`` is committed before a byte is sent, each commit allows one create,
and any answer other than the provider's own refusal is left to recover.py.
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
from holdfast.engine.pass_counts import PassCounts
from holdfast.engine.settle import Settled
from holdfast.event import BatchChange, BatchTrouble
from holdfast.store import Statements, Tx
from holdfast_llm.batch import circuit
from holdfast_llm.batch.circuit import AccountCircuits
from holdfast_llm.batch.content import ContentBuilder, ContentChanged, Measured
from holdfast_llm.batch.lease import BatchLease, BatchLeases, write_in
from holdfast_llm.batch.release import (
    CIRCUIT_OPEN,
    NO_ACCOUNT,
    OVERFLOW,
    BatchReleaser,
    internal_failure,
    release_in,
)
from holdfast_llm.batch.resources import BatchResources
from holdfast_llm.batch.submitted import STRETCH, submit_jobs
from holdfast_llm.provider.account import Account
from holdfast_llm.provider.adapter import Lookup, ProviderBatch
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

SQL = Statements("holdfast_llm.batch", "submit.sql")

# A process that was suspended between its commit and its create must not send it: recovery may have
# decided about it by then.
SEND_WITHIN_SECONDS = 30.0
# The tolerance beyond the time that a provider states.
GRACE = timedelta(hours=1)
# The pauses after an upload or a create that may be repeated.
FIRST_PAUSE_SECONDS = 60.0
LONGEST_PAUSE_SECONDS = 900.0
REBUILDS = 3


@dataclass(frozen=True, slots=True)
class Create:
    """One create: its number, the start of its commit, and its content."""

    attempt: int
    began: float
    measured: Measured
    route: Route


class _CreateStart(StrEnum):
    """The result of the transaction before a create."""

    BEGUN = "begun"
    # Another create of the account has no answer yet, and only one may be in flight here.
    BUSY = "busy"
    # Jobs have left the batch: the upload no longer matches.
    CHANGED = "changed"


class BatchSender:
    """Uploads and creates batches."""

    def __init__(
        self,
        resources: BatchResources,
        leases: BatchLeases,
        content: ContentBuilder,
        circuits: AccountCircuits,
        releaser: BatchReleaser,
    ) -> None:
        self.resources = resources
        self.store = resources.store
        self.settings = resources.settings
        self.accounts = resources.accounts
        self.events = resources.events
        self.leases = leases
        self.content = content
        self.circuits = circuits
        self.releaser = releaser

    def send(self, batch: BatchLease, *, actor: Actor) -> PassCounts:
        """Advance a batch as far as possible. Raises BatchLost if another worker owns it."""
        counts = PassCounts()
        account = self.accounts.by_key(batch.account)
        if account is None:
            # Its credential is missing here; a process that has it sends the batch.
            self.events.emit(batch.alert(BatchTrouble.ACCOUNT_UNUSABLE, NO_ACCOUNT, batch.items))
            if (batch.now - batch.created_at).total_seconds() > self.settings.batch.give_up_seconds:
                self._release(batch, internal_failure(NO_ACCOUNT), actor, counts)
            else:
                self.leases.put_off(batch, self.settings.batch.max_poll_seconds)
                counts.done["put_off"] += 1
            return counts
        if account.key in self.store.read(circuit.find_open_circuits):
            stopped = Failure(FailureKind.ACCOUNT, CIRCUIT_OPEN)
            self._release(batch, stopped, actor, counts)
            return counts
        try:
            self._send(batch, account, actor, counts)
        except ProviderRefused as exc:
            # Only an upload raises this: nothing of the batch exists.
            self._release(batch, exc.failure, actor, counts)
        except ProviderUnsure as exc:
            self._try_again(batch, exc, actor, counts)
        return counts

    def _send(self, batch: BatchLease, account: Account, actor: Actor, counts: PassCounts) -> None:
        """Build, upload and create. Build again if the batch has changed in between."""
        changed: Failure | None = None
        for _ in range(REBUILDS):
            measured = self.content.measure(batch, account)
            if batch.state == "uploaded" and not _is_uploaded(batch, measured):
                self.leases.write(SQL.step_back, batch, lease_ms=self.leases.lease_ms)
                _drop_file(batch, account)
                batch = self.leases.hold(batch)
            self._drop(batch, measured, actor, counts)
            if measured.route is None:
                self._release(batch, internal_failure(OVERFLOW), actor, counts)
                return
            if account.capabilities.has_input_file and batch.state == "prepared":
                batch = self._upload(batch, account, measured)
            began = self.store.clock.monotonic()
            match self.store.write(partial(self._begin, batch, account, measured)):
                case _CreateStart.BEGUN:
                    create = Create(batch.create_attempt + 1, began, measured, measured.route)
                    try:
                        self._create(batch, account, create, actor, counts)
                        return
                    except ContentChanged:
                        # The request was aborted before its end: nothing was created.
                        self.leases.write(SQL.step_back, batch, lease_ms=self.leases.lease_ms)
                        batch = self.leases.hold(batch)
                        changed = Failure(FailureKind.TRANSIENT, "content_changed")
                case _CreateStart.BUSY:
                    self._release(batch, internal_failure(OVERFLOW), actor, counts)
                    return
                case _CreateStart.CHANGED:
                    _drop_file(batch, account)
                    batch = self.leases.hold(batch)
        if changed is not None:
            # A request that is different each time fails its own job.
            self._release(batch, changed, actor, counts)
            return
        self.leases.put_off(batch, FIRST_PAUSE_SECONDS)
        counts.done["put_off"] += 1

    def _drop(
        self, batch: BatchLease, measured: Measured, actor: Actor, counts: PassCounts
    ) -> None:
        """Remove items that cannot be sent, each with its own outcome."""
        if not measured.dropped:
            return

        def work(tx: Tx) -> list[Settled]:
            self.leases.hold_in(tx, batch)
            ends = [(one.entry, one.outcome) for one in measured.dropped]
            return release_in(tx, batch, ends, code="not_sent", actor=actor)

        counts.add(self.releaser.report(self.store.write(work)))

    # -- upload

    def _upload(self, batch: BatchLease, account: Account, measured: Measured) -> BatchLease:
        """Upload the input and record its id. A crash in between leaves a file and no cost."""
        name = batch.name(self.settings.batch.environment, batch.create_attempt + 1)
        if batch.fence > 1 and account.capabilities.can_delete_file:
            # A previous worker may have uploaded it before it was interrupted.
            left = account.adapter.find_file(account.client, name)
            if left is not None:
                account.adapter.delete_file(account.client, left)
        content = measured.content
        file_id = account.adapter.upload(account.client, name, content)
        self.leases.write(
            SQL.record_upload,
            batch,
            file_id=file_id,
            content_hash=content.sha256,
            bytes=content.size,
            lease_ms=self.leases.lease_ms,
        )
        return replace(batch, state="uploaded", input_file_id=file_id)

    def _try_again(
        self, batch: BatchLease, unsure: ProviderUnsure, actor: Actor, counts: PassCounts
    ) -> None:
        """Retry an upload without an answer: it costs nothing. After max_rounds the jobs fail.

        A reply that is not the provider's is an error of the account, not of a job.
        """
        is_over = batch.rounds + 1 >= self.settings.batch.max_rounds
        if is_over or unsure.is_wrong_address:
            failure = Failure(FailureKind.TRANSIENT, unsure.reason, retry_after=unsure.retry_after)
            if unsure.is_foreign:
                failure = replace(failure, kind=FailureKind.ACCOUNT, code=FOREIGN_REPLY)
            self._release(batch, failure, actor, counts)
            return
        self.leases.put_off(batch, _pause(batch.rounds, unsure.retry_after), is_round=True)
        counts.done["put_off"] += 1

    def _begin(
        self, batch: BatchLease, account: Account, measured: Measured, tx: Tx
    ) -> _CreateStart:
        """Commit that a create begins, if every item's job is still this batch's to send."""
        if is_alone(account):
            tx.lock_units([f"create:{account.key}"])
            if tx.maybe(SQL.find_creating, account=account.key, id=batch.id) is not None:
                return _CreateStart.BUSY
        # A job that has left this batch may be in another one: it is not sent here.
        if tx.affected(SQL.release_unheld, batch_id=batch.id):
            write_in(tx, SQL.step_back, batch, lease_ms=self.leases.lease_ms)
            return _CreateStart.CHANGED
        write_in(
            tx,
            SQL.begin_create,
            batch,
            attempt=batch.create_attempt + 1,
            content_hash=measured.content.sha256,
            bytes=measured.content.size,
            lease_ms=self.leases.lease_ms,
        )
        return _CreateStart.BEGUN

    def _create(
        self, batch: BatchLease, account: Account, create: Create, actor: Actor, counts: PassCounts
    ) -> None:
        batch = replace(batch, state="creating", create_attempt=create.attempt)
        try:
            seen = self._post(batch, account, create)
        except ProviderRefused as exc:
            self._refused(batch, exc.failure, actor, counts)
            return
        except ContentChanged:
            raise
        except ProviderUnsure as exc:
            # The create may have happened, or may still happen. Recovery determines it.
            was_answered = exc.failure is not None
            if exc.is_wrong_address:
                failure = Failure(FailureKind.ACCOUNT, FOREIGN_REPLY)
                self.circuits.stop_account(batch.account, batch.provider, failure, batch.id)
            self.leases.put_off(batch, _pause(0, exc.retry_after), was_answered=was_answered)
            counts.done["unsure"] += 1
            return
        counts.add(self.record_created(batch, seen, account, actor=actor))

    def _post(self, batch: BatchLease, account: Account, create: Create) -> ProviderBatch:
        """Send the only create of this attempt, unless the lease or its time has expired."""
        self.leases.hold(batch)
        if self.store.clock.monotonic() - create.began > SEND_WITHIN_SECONDS:
            raise ProviderUnsure("late")
        return account.adapter.create(
            account.client,
            create.route,
            batch.name(self.settings.batch.environment, create.attempt),
            batch.input_file_id,
            create.measured.content,
        )

    def _refused(
        self, batch: BatchLease, failure: Failure, actor: Actor, counts: PassCounts
    ) -> None:
        """Handle a refused create: nothing exists."""
        if self._may_not_see_it_yet(batch, failure):
            self.leases.write(
                SQL.keep_upload, batch, delay_ms=ms(_pause(batch.rounds, failure.retry_after))
            )
            counts.done["put_off"] += 1
            return
        if failure.code == INPUT_NOT_FOUND:
            # The uploaded file is not found for long: the URL is wrong, which is no job's fault.
            failure = replace(failure, kind=FailureKind.ACCOUNT, code=NO_ENDPOINT)
        self._release(batch, failure, actor, counts)

    def _may_not_see_it_yet(self, batch: BatchLease, failure: Failure) -> bool:
        """Whether a fresh upload may not be visible everywhere yet.

        Some providers say so, others reject the whole request; that is repeated once.
        """
        if batch.input_file_id is None:
            return False
        if failure.code == INPUT_NOT_FOUND:
            return batch.rounds + 1 < self.settings.batch.max_rounds
        is_called_wrong = failure.kind is FailureKind.INVALID and failure.status == 400
        return is_called_wrong and batch.rounds == 0

    def _release(
        self, batch: BatchLease, failure: Failure, actor: Actor, counts: PassCounts
    ) -> None:
        if failure.kind is FailureKind.ACCOUNT and failure.code != CIRCUIT_OPEN:
            self.circuits.stop_account(batch.account, batch.provider, failure, batch.id)
        counts.add(self.releaser.release(batch, failure, actor=actor))

    # -- created batches

    def record_created(
        self, batch: BatchLease, seen: ProviderBatch, account: Account, *, actor: Actor
    ) -> PassCounts:
        """Record the result of our own create, even if the lease has expired.

        It is recorded while this attempt is the last one and has no other answer. Otherwise another
        worker has abandoned the attempt, and the batch is canceled.
        """
        for state in ("creating", "quarantined"):
            stands = replace(batch, state=state)
            recorded = self.record_submitted(stands, seen, fence=None, actor=actor)
            if recorded is not None:
                return recorded
        row = self.store.maybe(SQL.find_batch, id=batch.id)
        counts = PassCounts()
        if row is None or row["provider_batch_id"] != seen.provider_batch_id:
            with suppress(ProviderRefused, ProviderUnsure):
                account.adapter.cancel(account.client, seen.provider_batch_id)
            self.events.emit(batch.alert(BatchTrouble.ZOMBIE_BATCH, "late_create"))
            counts.done["zombies"] += 1
        return counts

    def record_submitted(
        self,
        batch: BatchLease,
        seen: ProviderBatch,
        *,
        fence: int | None,
        actor: Actor,
        was_scanned: bool = False,
        decided: Callable[[Tx], None] | None = None,
    ) -> PassCounts | None:
        """Record that a batch exists, with all its jobs and their audit, in one transaction.

        None if the row differs from *batch*. With *fence*, the fence must match. *decided* writes
        the audit entry of an operator.
        """
        settings = self.settings.batch

        def work(tx: Tx) -> tuple[int, list[Settled]] | None:
            params: dict[str, Any] = {
                "id": batch.id,
                "was": batch.state,
                "attempt": batch.create_attempt,
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
            if batch.provider_batch_id is not None:
                # Its jobs still wait for it.
                tx.affected(SQL.clear_held, batch_id=batch.id)
                return 0, []
            jobs = submit_jobs(
                tx,
                batch_id=batch.id,
                items=batch.items,
                provider_batch_id=seen.provider_batch_id,
                actor=actor,
            )
            for first in range(0, batch.items, STRETCH):
                tx.affected(SQL.stamp_items, batch_id=batch.id, first=first, after=first + STRETCH)
            circuit.close_circuit(tx, batch.account)
            return jobs.jobs, list(jobs.stopped)

        done = self.store.write(work)
        if done is None:
            return None
        jobs, stopped = done
        counts = self.releaser.report(stopped)
        counts.outcomes["submitted"] += jobs - len(stopped)
        counts.done["adopted" if was_scanned else "submitted"] += 1
        change = BatchChange.ADOPTED if was_scanned else BatchChange.SUBMITTED
        self.events.emit(batch.changed(change))
        return counts


def _is_uploaded(batch: BatchLease, measured: Measured) -> bool:
    """Whether the uploaded file matches the current content."""
    return not measured.dropped and measured.content.sha256 == batch.content_hash


def _drop_file(batch: BatchLease, account: Account) -> None:
    """Delete an unused input; otherwise it expires."""
    if batch.input_file_id is not None:
        with suppress(ProviderRefused, ProviderUnsure):
            account.adapter.delete_file(account.client, batch.input_file_id)


def _pause(rounds: int, retry_after: float | None) -> float:
    grown = FIRST_PAUSE_SECONDS * 2.0 ** min(rounds, 10)
    return max(min(grown, LONGEST_PAUSE_SECONDS), min(retry_after or 0.0, 3600.0))


def is_alone(account: Account) -> bool:
    """Whether only one create may be in flight: without a tag, batches are matched by count."""
    return account.capabilities.lookup is Lookup.COUNT


def _deadline(seen: ProviderBatch) -> str | None:
    return None if seen.expires_at is None else write_instant(seen.expires_at + GRACE)
