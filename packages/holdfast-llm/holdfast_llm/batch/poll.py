"""Poll: query the state of a batch. A poll changes nothing but the time of the next one.

A batch past its deadline is canceled, and collected when the provider has ended it: its finished
items are paid for.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta

from holdfast.document import encode
from holdfast.event import BatchChange, BatchTrouble
from holdfast.store import Statements
from holdfast_llm.batch.circuit import AccountCircuits
from holdfast_llm.batch.item_outcome import class_of, safe_code
from holdfast_llm.batch.lease import BatchLease, BatchLeases, counts_of
from holdfast_llm.batch.release import NO_ACCOUNT
from holdfast_llm.batch.resources import BatchResources
from holdfast_llm.provider.account import Account
from holdfast_llm.provider.adapter import BatchPhase, ProviderBatch
from holdfast_llm.provider.reply import FailureKind, ProviderRefused, ProviderUnsure

SQL = Statements("holdfast_llm.batch", "collect.sql")

GROWTH = 1.5
JITTER = 0.1
# The longest pause that a provider can request.
LONGEST_ASKED = 3600.0


class BatchPoller:
    """Polls providers for the state of batches."""

    def __init__(
        self, resources: BatchResources, leases: BatchLeases, circuits: AccountCircuits
    ) -> None:
        self.resources = resources
        self.settings = resources.settings
        self.events = resources.events
        self.rng = resources.rng
        self.leases = leases
        self.circuits = circuits

    def poll_batch(self, batch: BatchLease, account: Account) -> BatchLease | None:
        """Poll a submitted batch. It is returned as ended if the provider has finished it."""
        assert batch.provider_batch_id is not None
        try:
            seen = account.adapter.get(account.client, batch.provider_batch_id)
        except (ProviderRefused, ProviderUnsure) as exc:
            self._not_told(batch, exc)
            return None
        if not seen.is_known_status and seen.status != batch.provider_status:
            self.events.emit(batch.alert(BatchTrouble.UNKNOWN_STATUS, safe_code(seen.status)))
        if seen.phase.is_over:
            return self.end_batch(batch, seen)
        if self._is_unwanted(batch):
            self._cancel(batch, account, seen)
        else:
            self.leases.put_off(batch, self.pause_of(batch, seen), is_poll=True, seen=seen)
        return None

    def end_batch(self, batch: BatchLease, seen: ProviderBatch) -> BatchLease:
        """Record that the provider has finished, and the result files."""
        failure = seen.failure if seen.phase is BatchPhase.FAILED else None
        self.leases.write(
            SQL.end_batch,
            batch,
            provider_status=seen.status[:100],
            result_files=encode(list(seen.result_files)),
            counts=encode(counts_of(seen)),
            error_class=class_of(failure).error_class if failure else None,
            error_code=safe_code(failure.code) if failure else None,
        )
        if batch.state == "submitted":
            self.events.emit(batch.changed(BatchChange.ENDED, str(seen.phase)))
        return replace(
            batch,
            state="ended",
            provider_status=seen.status,
            result_files=seen.result_files,
            ended_at=batch.ended_at or batch.now,
        )

    def pause_of(self, batch: BatchLease, seen: ProviderBatch | None = None) -> float:
        """The pause until the next poll: growing, and not past the deadline."""
        settings = self.settings.batch
        # Capping the exponent keeps a long wait from overflowing a float.
        pause = settings.poll_seconds * GROWTH ** min(batch.polls, 64)
        pause = min(pause, settings.max_poll_seconds) * (1 + self.rng.uniform(-JITTER, JITTER))
        if seen is not None and seen.poll_after is not None:
            pause = max(pause, min(seen.poll_after, LONGEST_ASKED))
        left = (self.deadline_of(batch) - batch.now).total_seconds()
        return min(pause, max(left, settings.poll_seconds))

    def deadline_of(self, batch: BatchLease) -> datetime:
        """The time after which the batch is canceled."""
        if batch.deadline_at is not None:
            return batch.deadline_at
        begun = batch.submitted_at or batch.now
        return begun + timedelta(seconds=self.settings.batch.deadline_seconds)

    def _is_unwanted(self, batch: BatchLease) -> bool:
        return batch.cancel_requested_at is not None or batch.now >= self.deadline_of(batch)

    def _cancel(self, batch: BatchLease, account: Account, seen: ProviderBatch) -> None:
        """Cancel the batch at the provider. Its finished items are collected afterwards."""
        if batch.cancel_requested_at is None:
            self.leases.write(SQL.request_cancel, batch)
            self.events.emit(batch.alert(BatchTrouble.DEADLINE_PASSED, safe_code(seen.status)))
        elif self._is_given_up(batch):
            self.leases.quarantine(batch, "cancel_ignored")
            return
        # It may have ended just then, or the answer was lost: the next poll decides.
        with suppress(ProviderRefused, ProviderUnsure):
            account.adapter.cancel(account.client, seen.provider_batch_id)
        self.leases.put_off(batch, self.settings.batch.poll_seconds, is_poll=True, seen=seen)

    def _not_told(self, batch: BatchLease, exc: ProviderRefused | ProviderUnsure) -> None:
        """Poll again later. Long after the deadline, hold the batch for an operator."""
        if isinstance(exc, ProviderUnsure):
            code, asked = exc.reason, exc.retry_after
        else:
            code, asked = exc.failure.code, exc.failure.retry_after
            if exc.failure.kind is FailureKind.ACCOUNT:
                self.circuits.stop_account(batch.account, batch.provider, exc.failure, batch.id)
        code = safe_code(code)
        if self._is_given_up(batch):
            self.leases.quarantine(batch, code)
            return
        pause = max(self.pause_of(batch), min(asked or 0.0, LONGEST_ASKED))
        self.leases.put_off(batch, pause, is_poll=True, error_code=code)

    def wait_for_account(self, batch: BatchLease) -> None:
        """Wait for a process that has the account. After the deadline an operator decides."""
        self.events.emit(batch.alert(BatchTrouble.UNCOLLECTED, NO_ACCOUNT))
        if batch.state in ("submitted", "ended") and self._is_given_up(batch):
            self.leases.quarantine(batch, NO_ACCOUNT)
            return
        pause = self.settings.batch.max_poll_seconds
        self.leases.put_off(batch, pause, is_poll=True, error_code=NO_ACCOUNT)

    def _is_given_up(self, batch: BatchLease) -> bool:
        patience = timedelta(seconds=self.settings.batch.give_up_seconds)
        return batch.now >= self.deadline_of(batch) + patience
