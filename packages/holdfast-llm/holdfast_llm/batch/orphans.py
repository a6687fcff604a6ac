"""Orphans at a provider: duplicate batches, and input files without a batch.

Both are searched for only after a worker was killed or a create had no answer.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from datetime import datetime, timedelta

from holdfast.clock import ms, read_instant
from holdfast.engine.pass_counts import PassCounts
from holdfast.event import BatchAlert, BatchTrouble
from holdfast.store import Row, Statements
from holdfast_llm.batch.cost import NOBODY, WHOLE_BATCH, CallEntry, CallKind, record_calls
from holdfast_llm.batch.group import batch_of
from holdfast_llm.batch.lease import BatchLease, BatchLeases, BatchLost
from holdfast_llm.batch.resources import BatchResources
from holdfast_llm.provider.account import Account
from holdfast_llm.provider.adapter import BatchPhase, Lookup, ProviderBatch
from holdfast_llm.provider.reply import ProviderRefused, ProviderUnsure

SQL = Statements("holdfast_llm.batch", "submit.sql")

# No create is in flight for longer than this.
REACH = timedelta(hours=48)
SKEW = timedelta(minutes=10)
FILE_PAUSE = timedelta(hours=1)


class OrphanCleaner:
    """Cancels batches and deletes files at providers that should not exist."""

    def __init__(self, resources: BatchResources, leases: BatchLeases) -> None:
        self.resources = resources
        self.store = resources.store
        self.settings = resources.settings
        self.accounts = resources.accounts
        self.events = resources.events
        self.leases = leases

    def cancel_orphan_batches(self) -> PassCounts:
        """Cancel duplicates of recorded batches, and record their cost."""
        counts = PassCounts()
        since_ms = -ms(REACH)
        doubtful = self.store.many(SQL.list_doubtful, since_ms=since_ms)
        for row in doubtful:
            account = self.accounts.by_key(row["account"])
            if account is None or account.capabilities.lookup is not Lookup.KEY:
                continue
            with suppress(ProviderRefused, ProviderUnsure):
                counts.add(self._cancel_in_account(account, read_instant(row["since"]) - SKEW))
        return counts

    def _cancel_in_account(self, account: Account, since: datetime) -> PassCounts:
        ours: dict[str, list[ProviderBatch]] = {}
        for seen in account.adapter.scan(account.client, since):
            batch_id = batch_of(seen.key) if seen.key else None
            # A failed batch ran nothing.
            if batch_id is not None and seen.phase is not BatchPhase.FAILED:
                ours.setdefault(batch_id, []).append(seen)
        if not ours:
            return PassCounts()
        wanted = [{"id": batch_id} for batch_id in ours]
        rows = self.store.many(SQL.find_batches, wanted=wanted, account=account.key)
        counts = PassCounts()
        for row in rows:
            for seen in ours[str(row["id"])]:
                if _is_orphan(row, seen):
                    counts.done["zombies"] += self._end_orphan(account, row, seen)
        return counts

    def _end_orphan(self, account: Account, row: Row, seen: ProviderBatch) -> int:
        """Cancel the orphan or record its cost. Returns 1 the first time."""
        if seen.phase is BatchPhase.RUNNING:
            account.adapter.cancel(account.client, seen.provider_batch_id)
        else:
            entry = CallEntry(
                NOBODY,
                str(row["id"]),
                WHOLE_BATCH,
                seen.provider_batch_id,
                CallKind.ORPHAN,
                account.key,
                row["group_key"],
                usage=seen.usage,
            )
            prices = self.resources.prices
            recorded = self.store.write(lambda tx: record_calls(tx, prices, [entry]))
            for used in recorded.used:
                self.events.emit(used)
            is_news = recorded.calls > 0
            # The pass that canceled it has emitted the alert.
            if not is_news or seen.phase is BatchPhase.CANCELED:
                return 0
        self.events.emit(
            BatchAlert(str(row["id"]), account.key, BatchTrouble.ZOMBIE_BATCH, seen.status[:60])
        )
        return 1

    def delete_orphan_files(self, *, owner: str, limit: int = 100) -> PassCounts:
        """Delete input files that a worker may have uploaded after it lost the batch."""
        counts = PassCounts()
        for _ in range(limit):
            batch = self.leases.take_orphan_files(owner, ms(FILE_PAUSE))
            if batch is None:
                break
            account = self.accounts.by_key(batch.account)
            if account is None:
                continue
            # A provider that does not answer is called again after the pause.
            with suppress(ProviderRefused, ProviderUnsure, BatchLost):
                counts.done.update(self._delete_files(batch, account))
        return counts

    def _delete_files(self, batch: BatchLease, account: Account) -> Counter[str]:
        found = Counter[str]()
        can = account.capabilities
        tries = batch.create_attempt + 1 if can.has_input_file and can.can_delete_file else 0
        for attempt in range(1, tries + 1):
            file_id = account.adapter.find_file(
                account.client, batch.name(self.settings.batch.environment, attempt)
            )
            if file_id is not None:
                account.adapter.delete_file(account.client, file_id)
                found["strays"] += 1
        self.leases.write(SQL.close_stray, batch)
        return found


def _is_orphan(row: Row, seen: ProviderBatch) -> bool:
    """Whether a listed batch is not the recorded one. Recovery adopts unrecorded ones."""
    if row["state"] in ("prepared", "uploaded", "creating"):
        return False
    if row["state"] == "quarantined" and row["provider_batch_id"] is None:
        return False
    return bool(row["provider_batch_id"] != seen.provider_batch_id)
