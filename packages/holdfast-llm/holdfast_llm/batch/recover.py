"""Recover outgoing batches without a worker. Safe to run anywhere, concurrently and repeatedly.

A batch that was not created is sent. For a create without an answer, recovery determines whether
the batch exists. Nothing is created again before the first create certainly has no effect:

    scan by our tag → found: adopt
    not found, and it may still appear → wait
    not found → fence: delete its input, so that a late create has nothing to run
    wait for the listing, scan again → found: adopt; not found: upload and create again

If there is no file to delete, the listing alone is the proof: a batch that it does not show during
a longer wait with repeated reads was not created, and is created again. If the listing is
inconclusive, the batch is held for an operator, or released after the time that the account
accepts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta

from holdfast.clock import ms, read_instant
from holdfast.engine.job import Actor, ActorType
from holdfast.engine.pass_counts import PassCounts
from holdfast.errors import Conflict, StoreError, UnknownKind
from holdfast.event import BatchChange, BatchTrouble
from holdfast.store import Statements, Tx
from holdfast_llm.batch.candidates import find_candidates
from holdfast_llm.batch.group import key_of
from holdfast_llm.batch.lease import BatchLease, BatchLeases, BatchLost
from holdfast_llm.batch.orphans import REACH, OrphanCleaner
from holdfast_llm.batch.release import (
    OPERATOR,
    OVERFLOW,
    UNKNOWN_TYPE,
    BatchReleaser,
    internal_failure,
)
from holdfast_llm.batch.resources import BatchResources
from holdfast_llm.batch.send import BatchSender, is_alone
from holdfast_llm.provider.account import Account
from holdfast_llm.provider.adapter import BatchPhase, Lookup, ProviderBatch
from holdfast_llm.provider.reply import ProviderRefused, ProviderUnsure

SQL = Statements("holdfast_llm.batch", "submit.sql")

_log = logging.getLogger("holdfast.batch")

# The allowed clock skew of a provider: a listing is read from this long before the batch.
SKEW = timedelta(minutes=10)
LOOK_AGAIN_SECONDS = 60.0
# Not the current run: the jobs are claims of another run and part of its counts.
RECOVERY = Actor(ActorType.SYSTEM, "recovery")
# Which of several batches with our tag is kept: one that is already paid for, then a running one.
_RANK = {
    BatchPhase.COMPLETED: 0,
    BatchPhase.RUNNING: 1,
    BatchPhase.EXPIRED: 2,
    BatchPhase.CANCELED: 2,
}


class BatchRecovery:
    """Resolves outgoing batches without a worker."""

    def __init__(
        self,
        resources: BatchResources,
        leases: BatchLeases,
        releaser: BatchReleaser,
        sender: BatchSender,
        orphans: OrphanCleaner,
    ) -> None:
        self.resources = resources
        self.store = resources.store
        self.settings = resources.settings
        self.accounts = resources.accounts
        self.events = resources.events
        self.leases = leases
        self.releaser = releaser
        self.sender = sender
        self.orphans = orphans

    def recover_once(
        self, *, owner: str, may_continue: Callable[[], bool] = lambda: True
    ) -> PassCounts:
        """Advance every outgoing batch by one step, and clean up orphans."""
        counts = PassCounts()
        work = self.store.one(SQL.find_recovery_work, since_ms=-ms(REACH))
        has_sent = bool(work["outgoing"])
        while (
            has_sent and may_continue() and (batch := self.leases.take_to_send(owner)) is not None
        ):
            counts.add(self.guarded(batch, self.resolve, actor=RECOVERY))
        # The resolved batches may have left work for these steps.
        if may_continue() and (has_sent or work["unresolved"]):
            counts.add(self._release_unresolved())
        if may_continue() and (has_sent or work["doubtful"]):
            counts.add(self.orphans.cancel_orphan_batches())
        if may_continue() and (has_sent or work["orphan_files"]):
            counts.add(self.orphans.delete_orphan_files(owner=owner))
        return counts

    def guarded(
        self, batch: BatchLease, step: Callable[..., PassCounts], *, actor: Actor
    ) -> PassCounts:
        """Run *step* for one batch. An error does not affect the other batches."""
        try:
            return step(batch, actor=actor)
        except BatchLost:
            return PassCounts()
        except StoreError:
            raise
        except UnknownKind:
            return _calmly(lambda: self._without_its_type(batch, actor))
        except (ProviderRefused, ProviderUnsure):
            return _calmly(lambda: self._stuck(batch))
        except Exception as exc:
            # Only the class name: the message may contain request text.
            _log.error("batch %s failed to continue: %s", batch.id, type(exc).__name__)
            return _calmly(lambda: self._stuck(batch))

    def resolve(self, batch: BatchLease, *, actor: Actor) -> PassCounts:
        """Advance one batch by one step. Raises BatchLost if another worker owns it."""
        if batch.goes_back:
            return self.releaser.continue_release(batch, actor=actor)
        if batch.state == "creating":
            return self._resolve_create(batch, actor)
        account = self.accounts.by_key(batch.account)
        if batch.create_attempt and account is not None:
            # It may have appeared since the last scan.
            found = self._find(batch, account)
            if found.alive:
                return self._adopt(batch, found, actor)
        return self.sender.send(batch, actor=actor)

    def _account(self, batch: BatchLease) -> Account:
        account = self.accounts.by_key(batch.account)
        if account is None:
            raise ProviderUnsure("account_unknown")
        return account

    def _resolve_create(self, batch: BatchLease, actor: Actor) -> PassCounts:
        found = self._find(batch, self._account(batch))
        if is_alone(found.account) and len(found.alive) > 1:
            return self._ambiguous(batch, "several_candidates")
        if found.alive:
            return self._adopt(batch, found, actor)
        if batch.fenced_at is None:
            own = [seen for seen in found.failed if _is_of_try(seen, batch)]
            if own:
                # It failed without our fence: the collector evaluates the failure.
                return self._adopt(batch, replace(found, alive=(own[0],)), actor)
        return self._wait_or_fence(batch, found.account, actor)

    def _wait_or_fence(self, batch: BatchLease, account: Account, actor: Actor) -> PassCounts:
        settings = self.settings.batch
        assert batch.creating_at is not None
        can_fence = account.capabilities.can_delete_file and batch.input_file_id is not None
        began, settle = batch.creating_at, settings.settle_seconds
        if not can_fence or is_alone(account):
            if batch.answered_at is None:
                settle = settings.count_settle_seconds
            else:
                # The provider has finished this create: only its listing may lag.
                began = batch.answered_at
        waits = settle - (batch.now - began).total_seconds()
        if batch.fenced_at is not None:
            waits = settings.fence_seconds - (batch.now - batch.fenced_at).total_seconds()
        if waits > 0:
            # A scan in between may find it and end the wait.
            self.leases.put_off(batch, min(waits, LOOK_AGAIN_SECONDS), was_scanned=True)
            return PassCounts.counting("waiting")
        if account.capabilities.lookup is Lookup.NONE:
            return self._ambiguous(batch, "no_listing")
        if not can_fence and self._policy(batch.provider)[0] == "wait":
            return self._ambiguous(batch, "not_found")
        if can_fence and batch.fenced_at is None:
            return self._fence(batch, account)
        return self._create_again(batch, actor)

    def _create_again(self, batch: BatchLease, actor: Actor) -> PassCounts:
        """Create again: the last create had no effect. It does not count as an attempt."""
        if batch.create_attempt >= self.settings.batch.max_rounds:
            alert = batch.alert(BatchTrouble.CREATE_UNANSWERED, str(batch.create_attempt))
            self.events.emit(alert)
            return self.releaser.release(batch, internal_failure(OVERFLOW), actor=actor)
        self.leases.write(SQL.step_back, batch, lease_ms=self.leases.lease_ms)
        return self.sender.send(self.leases.hold(batch), actor=actor)

    def _fence(self, batch: BatchLease, account: Account) -> PassCounts:
        """Delete the input of a create that may still be in flight."""
        assert batch.input_file_id is not None
        account.adapter.delete_file(account.client, batch.input_file_id)
        self.leases.write(
            SQL.record_fence,
            batch,
            attempt=batch.create_attempt,
            delay_ms=ms(self.settings.batch.fence_seconds),
        )
        self.events.emit(batch.changed(BatchChange.FENCED))
        return PassCounts.counting("fenced")

    def _ambiguous(self, batch: BatchLease, code: str) -> PassCounts:
        """Apply the account's policy if the existence of the batch cannot be determined."""
        if self._policy(batch.provider)[0] == "wait":
            self.leases.put_off(batch, self.settings.batch.max_poll_seconds, was_scanned=True)
            return PassCounts.counting("waiting")
        return self._quarantine(batch, code)

    def _policy(self, provider: str) -> tuple[str, timedelta]:
        """The account's policy for an unresolved create, and the time of its release."""
        every, own = self.settings.batch, self.settings.providers.get(provider)
        chosen = (own.on_ambiguous if own is not None else None) or every.on_ambiguous
        seconds = own.release_after_seconds if own is not None else None
        return chosen, timedelta(seconds=seconds or every.release_after_seconds)

    def _release_unresolved(self, *, limit: int = 100) -> PassCounts:
        """Release held batches of accounts that accept a possible double payment.

        Each is looked up once more, and adopted if it exists.
        """
        counts = PassCounts()
        for row in self.store.many(SQL.list_unresolved, limit=limit):
            chosen, patience = self._policy(row["provider"])
            held = self.store.clock.now() - read_instant(row["creating_at"])
            if chosen != "release_after" or held < patience:
                continue
            # Another worker may own it, or the provider may not answer: the next run tries again.
            with (
                suppress(Conflict, BatchLost, ProviderRefused, ProviderUnsure),
                self._leased_quarantined(str(row["id"]), RECOVERY) as batch,
            ):
                counts.add(self._release_one(batch))
        return counts

    def _release_one(self, batch: BatchLease) -> PassCounts:
        account = self.accounts.by_key(batch.account)
        if account is not None:
            # A failing listing changes nothing: the accepted time is over.
            with suppress(ProviderRefused, ProviderUnsure):
                found = self._find(batch, account)
                if len(found.alive) == 1:
                    return self._adopt(batch, found, RECOVERY)
            with suppress(ProviderRefused, ProviderUnsure):
                if batch.input_file_id is not None:
                    account.adapter.delete_file(account.client, batch.input_file_id)
        self.events.emit(batch.alert(BatchTrouble.UNKNOWN_CALL, "released", batch.items))
        return self.releaser.release(batch, internal_failure(OVERFLOW), actor=RECOVERY)

    def _quarantine(self, batch: BatchLease, code: str) -> PassCounts:
        self.leases.quarantine(batch, code, error_class="UNRESOLVED_CREATE")
        return PassCounts.counting("quarantined")

    def _stuck(self, batch: BatchLease) -> PassCounts:
        """Handle a missing answer of the provider. If it lasts too long, hold the batch."""
        # The batch may have changed since it was leased.
        batch = self.leases.hold(batch)
        begun = batch.creating_at or batch.now
        waited = (batch.now - begun).total_seconds()
        if batch.state == "creating" and waited > self.settings.batch.give_up_seconds:
            return self._quarantine(batch, "not_answered")
        self.leases.put_off(batch, LOOK_AGAIN_SECONDS)
        return PassCounts.counting("put_off")

    def _without_its_type(self, batch: BatchLease, actor: Actor) -> PassCounts:
        """Handle an unknown job type: another process may know it, as during a deployment."""
        batch = self.leases.hold(batch)
        waited = (batch.now - batch.created_at).total_seconds()
        if waited > self.settings.unknown_type_patience_seconds and batch.state != "creating":
            return self.releaser.release(batch, internal_failure(UNKNOWN_TYPE), actor=actor)
        self.leases.put_off(batch, LOOK_AGAIN_SECONDS)
        return PassCounts.counting("put_off")

    # -- finding and adopting

    def _find(self, batch: BatchLease, account: Account) -> _Found:
        """Search the account's listing for this batch."""
        if account.capabilities.lookup is Lookup.NONE:
            return _Found(account)
        since = batch.created_at - SKEW
        if is_alone(account):
            return _Found(account, find_candidates(self.store, batch, account, since))
        key = key_of(batch.id)
        # The input file identifies a batch as well, and a listing may omit the tag.
        ours = [
            one
            for one in account.adapter.scan(account.client, since)
            if one.key == key
            or (one.input_file_id is not None and one.input_file_id == batch.input_file_id)
        ]
        ours = list({one.provider_batch_id: one for one in ours}.values())
        alive = sorted(
            (one for one in ours if one.phase is not BatchPhase.FAILED),
            key=lambda one: (_RANK[one.phase], one.created_at or batch.created_at),
        )
        failed = tuple(one for one in ours if one.phase is BatchPhase.FAILED)
        return _Found(account, tuple(alive), failed)

    def _adopt(self, batch: BatchLease, found: _Found, actor: Actor) -> PassCounts:
        """Record that the batch exists. Of several with our tag only one is kept."""
        kept, *others = found.alive
        counts = self.sender.record_submitted(
            batch, kept, fence=batch.fence, actor=actor, was_scanned=True
        )
        if counts is None:
            raise BatchLost(batch.id)
        for zombie in others:
            if zombie.phase is BatchPhase.RUNNING:
                # A batch that cannot be canceled now is found by cancel_orphan_batches.
                with suppress(ProviderRefused, ProviderUnsure):
                    found.account.adapter.cancel(found.account.client, zombie.provider_batch_id)
            self.events.emit(batch.alert(BatchTrouble.ZOMBIE_BATCH, zombie.status[:60]))
            counts.done["zombies"] += 1
        return counts

    def adopt_quarantined(
        self,
        batch_id: str,
        provider_batch_id: str,
        *,
        actor: Actor,
        decided: Decided | None = None,
    ) -> PassCounts:
        """Take a batch out of quarantine: it is *provider_batch_id* at the provider.

        Raises Conflict if it is not quarantined, and the provider's error if it has no such batch.
        """
        with self._leased_quarantined(batch_id, actor) as batch:
            account = self.resources.resolve_account(batch.account, batch_id, provider_batch_id)
            if account is None:
                raise Conflict(f"Batch {batch_id} was not adopted: no account here has it.")
            seen = account.adapter.get(account.client, provider_batch_id)
            if self._is_anothers(batch, account, seen.provider_batch_id):
                raise Conflict(
                    f"Batch {batch_id} was not adopted: another Holdfast batch has that provider"
                    " batch id."
                )
            counts = self.sender.record_submitted(
                batch,
                seen,
                fence=batch.fence,
                actor=actor,
                was_scanned=True,
                decided=decided,
            )
            if counts is None:
                raise Conflict(
                    f"Batch {batch_id} was not adopted: another process holds it. Try again."
                )
            return counts

    def release_quarantined(
        self, batch_id: str, *, actor: Actor, decided: Decided | None = None
    ) -> PassCounts:
        """Take a batch out of quarantine: it does not exist, and its jobs are released."""
        with self._leased_quarantined(batch_id, actor) as batch:
            account = self.resources.resolve_account(
                batch.account, batch_id, batch.provider_batch_id
            )
            if account is not None and batch.input_file_id is not None:
                # The operator may be wrong, so a create in flight must have nothing to run.
                with suppress(ProviderRefused, ProviderUnsure):
                    account.adapter.delete_file(account.client, batch.input_file_id)
            return self.releaser.release(
                batch, internal_failure(OPERATOR), actor=actor, decided=decided
            )

    @contextmanager
    def _leased_quarantined(self, batch_id: str, actor: Actor) -> Iterator[BatchLease]:
        """Lease a quarantined batch for the block; return the lease if the block fails."""
        owner = f"{actor.type}:{actor.id}"[:100]
        batch = self.leases.take_quarantined(owner, batch_id)
        if batch is None:
            raise Conflict(
                f"Batch {batch_id} is not quarantined, or another process is working on it."
            )
        try:
            yield batch
        except Exception:
            with suppress(BatchLost, StoreError):
                self.leases.give_up(batch)
            raise

    def _is_anothers(self, batch: BatchLease, account: Account, provider_batch_id: str) -> bool:
        """Whether a provider batch is recorded for another batch."""
        if batch.provider_batch_id == provider_batch_id:
            return False
        names = [{"provider_batch_id": provider_batch_id}]
        keys = {batch.account, account.key}
        return self.store.read(
            lambda tx: any(tx.many(SQL.list_recorded, account=key, names=names) for key in keys)
        )


def _calmly(step: Callable[[], PassCounts]) -> PassCounts:
    try:
        return step()
    except BatchLost:
        return PassCounts()


@dataclass(frozen=True, slots=True)
class _Found:
    """The batches found in a listing: billable ones, best first, and failed ones."""

    account: Account
    alive: tuple[ProviderBatch, ...] = ()
    failed: tuple[ProviderBatch, ...] = ()


def _is_of_try(seen: ProviderBatch, batch: BatchLease) -> bool:
    if seen.attempt is not None:
        return seen.attempt == batch.create_attempt
    return seen.input_file_id == batch.input_file_id


# -- operator decisions


Decided = Callable[[Tx], None]
"""Writes the audit entry of an operator's decision, in its transaction."""
