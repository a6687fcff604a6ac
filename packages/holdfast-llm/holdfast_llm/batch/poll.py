"""Poll: ask a provider how far a batch is. Asking changes nothing but when it is asked again.

A batch past its deadline is canceled, and collected like any other when the provider has ended it:
what was finished until then is paid for.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta

from holdfast.document import encode
from holdfast.event import BatchChange, BatchTrouble
from holdfast_llm.batch.circuit import stop_account
from holdfast_llm.batch.lane import BatchLane
from holdfast_llm.batch.leased import Leased, counts_of, put_off, quarantine, write
from holdfast_llm.batch.point import Point
from holdfast_llm.batch.release import NO_ACCOUNT
from holdfast_llm.batch.verdict import class_of, safe_code
from holdfast_llm.provider.account import Account
from holdfast_llm.provider.adapter import Phase, Seen
from holdfast_llm.provider.reply import FailureKind, ProviderRefused, ProviderUnsure

GROWTH = 1.5
JITTER = 0.1
# A provider may ask for patience; not for more than this.
LONGEST_ASKED = 3600.0


def poll_batch(lane: BatchLane, batch: Leased, account: Account) -> Leased | None:
    """Ask about a submitted batch. Comes back as ended if the provider is done with it."""
    assert batch.provider_batch_id is not None
    try:
        seen = account.adapter.get(account.wire, batch.provider_batch_id)
    except (ProviderRefused, ProviderUnsure) as exc:
        _not_told(lane, batch, exc)
        return None
    lane.reached(Point.POLLED)
    if not seen.is_known_status and seen.status != batch.provider_status:
        lane.events.emit(batch.alert(BatchTrouble.UNKNOWN_STATUS, safe_code(seen.status)))
    if seen.phase.is_over:
        return end_batch(lane, batch, seen)
    if _is_unwanted(lane, batch):
        _cancel(lane, batch, account, seen)
    else:
        put_off(lane, batch, pause_of(lane, batch, seen), is_poll=True, seen=seen)
    return None


def end_batch(lane: BatchLane, batch: Leased, seen: Seen) -> Leased:
    """Write down that the provider is done, and what there is to read."""
    failure = seen.failure if seen.phase is Phase.FAILED else None
    write(
        lane,
        "end_batch",
        batch,
        provider_status=seen.status[:100],
        result_files=encode(list(seen.result_files)),
        counts=encode(counts_of(seen)),
        error_class=class_of(failure).error_class if failure else None,
        error_code=safe_code(failure.code) if failure else None,
    )
    lane.reached(Point.END_RECORDED)
    if batch.state == "submitted":
        lane.events.emit(batch.changed(BatchChange.ENDED, str(seen.phase)))
    return replace(
        batch,
        state="ended",
        provider_status=seen.status,
        result_files=seen.result_files,
        ended_at=batch.ended_at or batch.now,
    )


def pause_of(lane: BatchLane, batch: Leased, seen: Seen | None = None) -> float:
    """How long to wait until the next question: longer each time, and not past the deadline."""
    settings = lane.settings.batch
    # Capping the exponent keeps a long wait from overflowing a float.
    pause = settings.poll_seconds * GROWTH ** min(batch.polls, 64)
    pause = min(pause, settings.max_poll_seconds) * (1 + lane.rng.uniform(-JITTER, JITTER))
    if seen is not None and seen.poll_after is not None:
        pause = max(pause, min(seen.poll_after, LONGEST_ASKED))
    left = (deadline_of(lane, batch) - batch.now).total_seconds()
    return min(pause, max(left, settings.poll_seconds))


def deadline_of(lane: BatchLane, batch: Leased) -> datetime:
    """When we stop waiting for the provider to end it."""
    if batch.deadline_at is not None:
        return batch.deadline_at
    begun = batch.submitted_at or batch.now
    return begun + timedelta(seconds=lane.settings.batch.deadline_seconds)


def _is_unwanted(lane: BatchLane, batch: Leased) -> bool:
    return batch.cancel_requested_at is not None or batch.now >= deadline_of(lane, batch)


def _cancel(lane: BatchLane, batch: Leased, account: Account, seen: Seen) -> None:
    """Ask the provider to end it, as often as needed; what it has finished is collected then."""
    if batch.cancel_requested_at is None:
        write(lane, "request_cancel", batch)
        lane.events.emit(batch.alert(BatchTrouble.DEADLINE_PASSED, safe_code(seen.status)))
    elif _is_given_up(lane, batch):
        quarantine(lane, batch, "cancel_ignored")
        return
    # It may have ended just then, or only the answer was lost: the next poll tells.
    with suppress(ProviderRefused, ProviderUnsure):
        account.adapter.cancel(account.wire, seen.provider_batch_id)
    put_off(lane, batch, lane.settings.batch.poll_seconds, is_poll=True, seen=seen)


def _not_told(lane: BatchLane, batch: Leased, exc: ProviderRefused | ProviderUnsure) -> None:
    """No answer is no news; only when it has been none for long after the deadline is it an end."""
    if isinstance(exc, ProviderUnsure):
        code, asked = exc.reason, exc.retry_after
    else:
        code, asked = exc.failure.code, exc.failure.retry_after
        if exc.failure.kind is FailureKind.ACCOUNT:
            stop_account(lane, batch.account, batch.provider, exc.failure, batch.id)
    code = safe_code(code)
    if _is_given_up(lane, batch):
        quarantine(lane, batch, code)
        return
    pause = max(pause_of(lane, batch), min(asked or 0.0, LONGEST_ASKED))
    put_off(lane, batch, pause, is_poll=True, error_code=code)


def wait_for_account(lane: BatchLane, batch: Leased) -> None:
    """Nobody here has its account. Whoever has it collects it; after its time a person decides."""
    lane.events.emit(batch.alert(BatchTrouble.UNCOLLECTED, NO_ACCOUNT))
    if batch.state in ("submitted", "ended") and _is_given_up(lane, batch):
        quarantine(lane, batch, NO_ACCOUNT)
        return
    pause = lane.settings.batch.max_poll_seconds
    put_off(lane, batch, pause, is_poll=True, error_code=NO_ACCOUNT)


def _is_given_up(lane: BatchLane, batch: Leased) -> bool:
    patience = timedelta(seconds=lane.settings.batch.give_up_seconds)
    return batch.now >= deadline_of(lane, batch) + patience
