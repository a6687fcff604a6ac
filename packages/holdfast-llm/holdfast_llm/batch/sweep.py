"""Sweep: what should not be at a provider. Second batches with our name, and inputs nobody needs.

Neither is expected. Both are looked for only where a worker died or a create had no answer.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from datetime import datetime, timedelta

from holdfast.clock import ms, read_instant
from holdfast.event import BatchAlert, BatchTrouble
from holdfast.store import Row
from holdfast_llm.batch.cost import NOBODY, WHOLE_BATCH, CallEntry, CallKind, record_calls
from holdfast_llm.batch.group import batch_of
from holdfast_llm.batch.intent import SQL, Intent, write
from holdfast_llm.batch.lane import BatchLane
from holdfast_llm.batch.leased import BatchLost, lease_ms
from holdfast_llm.batch.price import Prices
from holdfast_llm.batch.release import Tally
from holdfast_llm.provider.account import Account
from holdfast_llm.provider.adapter import Lookup, Phase, Seen
from holdfast_llm.provider.reply import ProviderRefused, ProviderUnsure

# No create is under way for longer, whatever stands between us and the provider.
REACH = timedelta(hours=48)
SKEW = timedelta(minutes=10)
STRAY_PAUSE = timedelta(hours=1)


def sweep_zombies(lane: BatchLane) -> Tally:
    """Cancel batches with our name that are not the one on record, and write down their cost."""
    tally = Tally()
    since_ms = -ms(REACH)
    doubtful = lane.store.read(lambda tx: tx.many(SQL.list_doubtful, since_ms=since_ms))
    for row in doubtful:
        account = lane.accounts.by_key(row["account"])
        if account is None or account.capabilities.lookup is not Lookup.KEY:
            continue
        with suppress(ProviderRefused, ProviderUnsure):
            tally.add(_sweep_account(lane, account, read_instant(row["since"]) - SKEW))
    return tally


def _sweep_account(lane: BatchLane, account: Account, since: datetime) -> Tally:
    ours: dict[str, list[Seen]] = {}
    for seen in account.adapter.scan(account.wire, since):
        batch_id = batch_of(seen.key) if seen.key else None
        # One that failed ran nothing: that is what a fence is for.
        if batch_id is not None and seen.phase is not Phase.FAILED:
            ours.setdefault(batch_id, []).append(seen)
    if not ours:
        return Tally()
    wanted = [{"id": batch_id} for batch_id in ours]
    rows = lane.store.read(lambda tx: tx.many(SQL.find_batches, wanted=wanted, account=account.key))
    tally = Tally()
    for row in rows:
        for seen in ours[str(row["id"])]:
            if _is_zombie(row, seen):
                tally.batches["zombies"] += _end_zombie(lane, account, row, seen)
    return tally


def _is_zombie(row: Row, seen: Seen) -> bool:
    """Whether a batch is one too many. What has no name on record is recovery's to adopt."""
    if row["state"] in ("prepared", "uploaded", "creating"):
        return False
    if row["state"] == "quarantined" and row["provider_batch_id"] is None:
        return False
    return bool(row["provider_batch_id"] != seen.provider_batch_id)


def _end_zombie(lane: BatchLane, account: Account, row: Row, seen: Seen) -> int:
    """Stop it, or write down what it cost; 1 if that is news."""
    if seen.phase is Phase.RUNNING:
        account.adapter.cancel(account.wire, seen.provider_batch_id)
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
        prices = Prices(lane.settings.prices)
        recorded = lane.store.write(lambda tx: record_calls(tx, prices, [entry]))
        for used in recorded.used:
            lane.events.emit(used)
        is_news = recorded.calls > 0
        # Whoever canceled it has told of it.
        if not is_news or seen.phase is Phase.CANCELED:
            return 0
    lane.events.emit(
        BatchAlert(str(row["id"]), account.key, BatchTrouble.ZOMBIE_BATCH, seen.status[:60])
    )
    return 1


def sweep_strays(lane: BatchLane, *, owner: str, limit: int = 100) -> Tally:
    """Delete inputs that a worker may have uploaded after it lost the batch."""
    tally = Tally()
    for _ in range(limit):
        row = lane.store.write(
            lambda tx: tx.maybe(
                SQL.lease_stray, owner=owner, lease_ms=lease_ms(lane), pause_ms=ms(STRAY_PAUSE)
            )
        )
        if row is None:
            break
        intent = Intent.of(row)
        account = lane.accounts.by_key(intent.account)
        if account is None:
            continue
        # What cannot be asked just now is asked again after the pause.
        with suppress(ProviderRefused, ProviderUnsure, BatchLost):
            tally.batches.update(_delete_strays(lane, intent, account))
    return tally


def _delete_strays(lane: BatchLane, intent: Intent, account: Account) -> Counter[str]:
    found = Counter[str]()
    can = account.capabilities
    tries = intent.create_attempt + 1 if can.has_input_file and can.can_delete_file else 0
    for attempt in range(1, tries + 1):
        file_id = account.adapter.find_file(account.wire, intent.name(lane, attempt))
        if file_id is not None:
            account.adapter.delete_file(account.wire, file_id)
            found["strays"] += 1
    write(lane, "close_stray", intent)
    return found
