"""Recover: batches on their way out that nobody works on. Anybody may do it, twice and at once.

A batch that was not created is sent. Of one whose create had no answer it is found out whether it
exists, and nothing is created again before it is certain that the first create can do nothing:

    scan by our key → found: adopt
    not found, and it may still come → wait
    not found → fence: delete its input, so that a late create has nothing to run
    wait for the listing, scan again → found: adopt; not found: upload and create anew

Where there is no file to delete, the listing alone is the proof: after a longer wait, in which it
is read again and again, a batch that it does not show was not created, and is created anew. Where
the listing cannot say, the batch is held for an operator, or for as long as the account accepts.
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

# How far a provider's clock may be off: a listing is read from this much before the batch was made.
SKEW = timedelta(minutes=10)
LOOK_AGAIN_SECONDS = 60.0
# Not the run that does it: the jobs are another one's claims, and stand in that one's counts.
RECOVERY = Actor(ActorType.SYSTEM, "recovery")
# Which of several batches with our key is kept: one that is paid for already, then one that runs.
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
        """Take every batch on its way out one step further, and look for what should not exist."""
        counts = PassCounts()
        work = self.store.one(SQL.find_recovery_work, since_ms=-ms(REACH))
        has_sent = bool(work["outgoing"])
        while (
            has_sent and may_continue() and (batch := self.leases.take_to_send(owner)) is not None
        ):
            counts.add(self.guarded(batch, self.resolve, actor=RECOVERY))
        # What was just resolved may have left work for any of these.
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
        """Do *step* for one batch; whatever goes wrong with it, the others have their turn."""
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
            # The name of its class and no more: what it says may be somebody's text.
            _log.error("batch %s could not go on: %s", batch.id, type(exc).__name__)
            return _calmly(lambda: self._stuck(batch))

    def resolve(self, batch: BatchLease, *, actor: Actor) -> PassCounts:
        """One step of one batch. Raises BatchLost if somebody else has it."""
        if batch.goes_back:
            return self.releaser.continue_release(batch, actor=actor)
        if batch.state == "creating":
            return self._resolve_create(batch, actor)
        account = self.accounts.by_key(batch.account)
        if batch.create_attempt and account is not None:
            # Between the last look and this one something may have turned up after all.
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
                # It failed by itself and not by our fence: the collector says what that means.
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
                # The provider is done with this create: only its listing may lag behind.
                began = batch.answered_at
        waits = settle - (batch.now - began).total_seconds()
        if batch.fenced_at is not None:
            waits = settings.fence_seconds - (batch.now - batch.fenced_at).total_seconds()
        if waits > 0:
            # A look in between may find it, and end the wait.
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
        """The last create made nothing, and can make nothing any more: nobody is charged for it."""
        if batch.create_attempt >= self.settings.batch.max_rounds:
            alert = batch.alert(BatchTrouble.CREATE_UNANSWERED, str(batch.create_attempt))
            self.events.emit(alert)
            return self.releaser.release(batch, internal_failure(OVERFLOW), actor=actor)
        self.leases.write(SQL.step_back, batch, lease_ms=self.leases.lease_ms)
        return self.sender.send(self.leases.hold(batch), actor=actor)

    def _fence(self, batch: BatchLease, account: Account) -> PassCounts:
        """Take from a create that may still be under way what it would run."""
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
        """It cannot be found out whether the batch exists: do what the account is set to."""
        if self._policy(batch.provider)[0] == "wait":
            self.leases.put_off(batch, self.settings.batch.max_poll_seconds, was_scanned=True)
            return PassCounts.counting("waiting")
        return self._quarantine(batch, code)

    def _policy(self, provider: str) -> tuple[str, timedelta]:
        """What an account does with a create that cannot be resolved, and when it releases one."""
        every, own = self.settings.batch, self.settings.providers.get(provider)
        chosen = (own.on_ambiguous if own is not None else None) or every.on_ambiguous
        seconds = own.release_after_seconds if own is not None else None
        return chosen, timedelta(seconds=seconds or every.release_after_seconds)

    def _release_unresolved(self, *, limit: int = 100) -> PassCounts:
        """Release held batches of accounts that accept that a batch may be paid for twice.

        Each is looked for once more, and adopted if it is there after all.
        """
        counts = PassCounts()
        for row in self.store.many(SQL.list_unresolved, limit=limit):
            chosen, patience = self._policy(row["provider"])
            held = self.store.clock.now() - read_instant(row["creating_at"])
            if chosen != "release_after" or held < patience:
                continue
            # Another worker may have it by now, and a provider may not answer: the next run looks.
            with (
                suppress(Conflict, BatchLost, ProviderRefused, ProviderUnsure),
                self._leased_quarantined(str(row["id"]), RECOVERY) as batch,
            ):
                counts.add(self._release_one(batch))
        return counts

    def _release_one(self, batch: BatchLease) -> PassCounts:
        account = self.accounts.by_key(batch.account)
        if account is not None:
            # A listing that still does not answer changes nothing: the accepted time is over.
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
        """The provider did not answer. Hold the batch for an operator if that lasts too long."""
        # The batch may have gone on since we took it.
        batch = self.leases.hold(batch)
        begun = batch.creating_at or batch.now
        waited = (batch.now - begun).total_seconds()
        if batch.state == "creating" and waited > self.settings.batch.give_up_seconds:
            return self._quarantine(batch, "not_answered")
        self.leases.put_off(batch, LOOK_AGAIN_SECONDS)
        return PassCounts.counting("put_off")

    def _without_its_type(self, batch: BatchLease, actor: Actor) -> PassCounts:
        """Nobody here knows the job type: another process may, for example during a deployment."""
        batch = self.leases.hold(batch)
        waited = (batch.now - batch.created_at).total_seconds()
        if waited > self.settings.unknown_type_patience_seconds and batch.state != "creating":
            return self.releaser.release(batch, internal_failure(UNKNOWN_TYPE), actor=actor)
        self.leases.put_off(batch, LOOK_AGAIN_SECONDS)
        return PassCounts.counting("put_off")

    # -- finding and adopting

    def _find(self, batch: BatchLease, account: Account) -> _Found:
        """Read the account's listing for batches that are this one."""
        if account.capabilities.lookup is Lookup.NONE:
            return _Found(account)
        since = batch.created_at - SKEW
        if is_alone(account):
            return _Found(account, find_candidates(self.store, batch, account, since))
        key = key_of(batch.id)
        # Its input is as good a name as its key, and a listing may leave the key out.
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
        """Record that the batch exists. Of several with our key only one is kept."""
        kept, *others = found.alive
        counts = self.sender.record_submitted(
            batch, kept, fence=batch.fence, actor=actor, was_scanned=True
        )
        if counts is None:
            raise BatchLost(batch.id)
        for zombie in others:
            if zombie.phase is BatchPhase.RUNNING:
                # What cannot be canceled just now is found again by the sweep.
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
                    f"Batch {batch_id} was not adopted: another batch of ours has that name."
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
                    f"Batch {batch_id} was not adopted: somebody else has it. Look again."
                )
            return counts

    def release_quarantined(
        self, batch_id: str, *, actor: Actor, decided: Decided | None = None
    ) -> PassCounts:
        """Take a batch out of quarantine: it does not exist, and its jobs go back."""
        with self._leased_quarantined(batch_id, actor) as batch:
            account = self.resources.resolve_account(
                batch.account, batch_id, batch.provider_batch_id
            )
            if account is not None and batch.input_file_id is not None:
                # A person may be wrong: what is still under way shall have nothing to run.
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
                f"Batch {batch_id} is not quarantined, or somebody works on it just now."
            )
        try:
            yield batch
        except Exception:
            with suppress(BatchLost, StoreError):
                self.leases.give_up(batch)
            raise

    def _is_anothers(self, batch: BatchLease, account: Account, provider_batch_id: str) -> bool:
        """Whether a batch of the provider is on record for another one of ours."""
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
    """What a listing shows of a batch: those that may be paid for, best first, and the failed."""

    account: Account
    alive: tuple[ProviderBatch, ...] = ()
    failed: tuple[ProviderBatch, ...] = ()


def _is_of_try(seen: ProviderBatch, batch: BatchLease) -> bool:
    if seen.attempt is not None:
        return seen.attempt == batch.create_attempt
    return seen.input_file_id == batch.input_file_id


# -- what an operator decides


Decided = Callable[[Tx], None]
"""Writes down who decided, and why, in the transaction that does it."""
