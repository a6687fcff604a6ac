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
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta

from holdfast.clock import ms, read_instant
from holdfast.engine.job import Actor, ActorType
from holdfast.errors import Conflict, StoreError, UnknownKind
from holdfast.event import BatchChange, BatchTrouble
from holdfast.store import Tx
from holdfast_llm.batch.candidates import find_candidates
from holdfast_llm.batch.group import key_of
from holdfast_llm.batch.intent import SQL, Intent, hold, lease_next, put_off, write
from holdfast_llm.batch.lane import BatchLane
from holdfast_llm.batch.leased import BatchLost, lease_ms
from holdfast_llm.batch.point import Point
from holdfast_llm.batch.reach import reach
from holdfast_llm.batch.release import (
    OPERATOR,
    OVERFLOW,
    UNKNOWN_TYPE,
    Tally,
    because,
    give_back,
    go_on_giving_back,
)
from holdfast_llm.batch.send import is_alone, record_submitted, send
from holdfast_llm.batch.sweep import sweep_strays, sweep_zombies
from holdfast_llm.provider.account import Account
from holdfast_llm.provider.adapter import Lookup, Phase, Seen
from holdfast_llm.provider.reply import ProviderRefused, ProviderUnsure

_log = logging.getLogger("holdfast.batch")

# How far a provider's clock may be off: a listing is read from this much before the batch was made.
SKEW = timedelta(minutes=10)
LOOK_AGAIN_SECONDS = 60.0
# Not the run that does it: the jobs are another one's claims, and stand in that one's counts.
RECOVERY = Actor(ActorType.SYSTEM, "recovery")
# Which of several batches with our key is kept: one that is paid for already, then one that runs.
_RANK = {Phase.COMPLETED: 0, Phase.RUNNING: 1, Phase.EXPIRED: 2, Phase.CANCELED: 2}


def recover_once(
    lane: BatchLane, *, owner: str, goes_on: Callable[[], bool] = lambda: True
) -> Tally:
    """Take every batch on its way out one step further, and look for what should not exist."""
    tally = Tally()
    while goes_on() and (intent := lease_next(lane, owner=owner)) is not None:
        tally.add(guarded(lane, intent, resolve, actor=RECOVERY))
    if goes_on():
        tally.add(_release_unresolved(lane))
        tally.add(sweep_zombies(lane))
        tally.add(sweep_strays(lane, owner=owner))
    return tally


def guarded(lane: BatchLane, intent: Intent, step: Callable[..., Tally], *, actor: Actor) -> Tally:
    """Do *step* for one batch; whatever goes wrong with it, the others have their turn."""
    try:
        return step(lane, intent, actor=actor)
    except BatchLost:
        return Tally()
    except StoreError:
        raise
    except UnknownKind:
        return _calmly(lambda: _without_its_type(lane, intent, actor))
    except (ProviderRefused, ProviderUnsure):
        return _calmly(lambda: _stuck(lane, intent))
    except Exception as exc:
        # The name of its class and no more: what it says may be somebody's text.
        _log.error("batch %s could not go on: %s", intent.id, type(exc).__name__)
        return _calmly(lambda: _stuck(lane, intent))


def _calmly(step: Callable[[], Tally]) -> Tally:
    try:
        return step()
    except BatchLost:
        return Tally()


def resolve(lane: BatchLane, intent: Intent, *, actor: Actor) -> Tally:
    """One step of one batch. Raises BatchLost if somebody else has it."""
    if intent.goes_back:
        return go_on_giving_back(lane, intent, actor=actor)
    if intent.state == "creating":
        return _resolve_create(lane, intent, actor)
    account = lane.accounts.by_key(intent.account)
    if intent.create_attempt and account is not None:
        # Between the last look and this one something may have turned up after all.
        found = _find(lane, intent, account)
        if found.alive:
            return _adopt(lane, intent, found, actor)
    return send(lane, intent, actor=actor)


def _account(lane: BatchLane, intent: Intent) -> Account:
    account = lane.accounts.by_key(intent.account)
    if account is None:
        raise ProviderUnsure("account_unknown")
    return account


# -- a create without an answer


@dataclass(frozen=True, slots=True)
class _Found:
    """What a listing shows of a batch: those that may be paid for, best first, and the failed."""

    account: Account
    alive: tuple[Seen, ...] = ()
    failed: tuple[Seen, ...] = ()


def _resolve_create(lane: BatchLane, intent: Intent, actor: Actor) -> Tally:
    found = _find(lane, intent, _account(lane, intent))
    lane.reached(Point.SCANNED)
    if is_alone(found.account) and len(found.alive) > 1:
        return _ambiguous(lane, intent, "several_candidates")
    if found.alive:
        return _adopt(lane, intent, found, actor)
    if intent.fenced_at is None:
        own = [seen for seen in found.failed if _is_of_try(seen, intent)]
        if own:
            # It failed by itself and not by our fence: the collector says what that means.
            return _adopt(lane, intent, replace(found, alive=(own[0],)), actor)
    return _wait_or_fence(lane, intent, found.account, actor)


def _wait_or_fence(lane: BatchLane, intent: Intent, account: Account, actor: Actor) -> Tally:
    settings = lane.settings.batch
    assert intent.creating_at is not None
    can_fence = account.capabilities.can_delete_file and intent.input_file_id is not None
    began, settle = intent.creating_at, settings.settle_seconds
    if not can_fence or is_alone(account):
        if intent.answered_at is None:
            settle = settings.count_settle_seconds
        else:
            # The provider is done with this create: only its listing may lag behind.
            began = intent.answered_at
    waits = settle - (intent.now - began).total_seconds()
    if intent.fenced_at is not None:
        waits = settings.fence_seconds - (intent.now - intent.fenced_at).total_seconds()
    if waits > 0:
        # A look in between may find it, and end the wait.
        put_off(lane, intent, min(waits, LOOK_AGAIN_SECONDS), was_scanned=True)
        return Tally(batches=_one("waiting"))
    if account.capabilities.lookup is Lookup.NONE:
        return _ambiguous(lane, intent, "no_listing")
    if not can_fence and _policy(lane, intent.provider)[0] == "wait":
        return _ambiguous(lane, intent, "not_found")
    if can_fence and intent.fenced_at is None:
        return _fence(lane, intent, account)
    return _create_again(lane, intent, actor)


def _create_again(lane: BatchLane, intent: Intent, actor: Actor) -> Tally:
    """The last create made nothing, and can make nothing any more: nobody is charged for it."""
    if intent.create_attempt >= lane.settings.batch.max_rounds:
        alert = intent.alert(BatchTrouble.CREATE_UNANSWERED, str(intent.create_attempt))
        lane.events.emit(alert)
        return give_back(lane, intent, because(OVERFLOW), actor=actor)
    write(lane, "step_back", intent, lease_ms=lease_ms(lane))
    lane.reached(Point.STEPPED_BACK)
    return send(lane, hold(lane, intent.id, intent.fence), actor=actor)


def _fence(lane: BatchLane, intent: Intent, account: Account) -> Tally:
    """Take from a create that may still be under way what it would run."""
    assert intent.input_file_id is not None
    account.adapter.delete_file(account.wire, intent.input_file_id)
    lane.reached(Point.FENCED)
    write(
        lane,
        "record_fence",
        intent,
        attempt=intent.create_attempt,
        delay_ms=ms(lane.settings.batch.fence_seconds),
    )
    lane.reached(Point.FENCE_RECORDED)
    lane.events.emit(intent.changed(BatchChange.FENCED))
    return Tally(batches=_one("fenced"))


def _ambiguous(lane: BatchLane, intent: Intent, code: str) -> Tally:
    """It cannot be found out whether the batch exists: do what the account is set to."""
    if _policy(lane, intent.provider)[0] == "wait":
        put_off(lane, intent, lane.settings.batch.max_poll_seconds, was_scanned=True)
        return Tally(batches=_one("waiting"))
    return _quarantine(lane, intent, code)


def _policy(lane: BatchLane, provider: str) -> tuple[str, timedelta]:
    """What an account does with a create that cannot be resolved, and when it releases one."""
    every, own = lane.settings.batch, lane.settings.providers.get(provider)
    chosen = (own.on_ambiguous if own is not None else None) or every.on_ambiguous
    seconds = own.release_after_seconds if own is not None else None
    return chosen, timedelta(seconds=seconds or every.release_after_seconds)


def _release_unresolved(lane: BatchLane, *, limit: int = 100) -> Tally:
    """Release held batches of accounts that accept that a batch may be paid for twice.

    Each is looked for once more, and adopted if it is there after all.
    """
    tally = Tally()
    for row in lane.store.read(lambda tx: tx.many(SQL.list_unresolved, limit=limit)):
        chosen, patience = _policy(lane, row["provider"])
        held = lane.store.clock.now() - read_instant(row["creating_at"])
        if chosen != "release_after" or held < patience:
            continue
        # Another worker may have it by now, and a provider may not answer: the next run looks.
        with (
            suppress(Conflict, BatchLost, ProviderRefused, ProviderUnsure),
            _leased_quarantined(lane, str(row["id"]), RECOVERY) as intent,
        ):
            tally.add(_release_one(lane, intent))
    return tally


def _release_one(lane: BatchLane, intent: Intent) -> Tally:
    account = lane.accounts.by_key(intent.account)
    if account is not None:
        # A listing that still does not answer changes nothing: the accepted time is over.
        with suppress(ProviderRefused, ProviderUnsure):
            found = _find(lane, intent, account)
            if len(found.alive) == 1:
                return _adopt(lane, intent, found, RECOVERY)
        with suppress(ProviderRefused, ProviderUnsure):
            if intent.input_file_id is not None:
                account.adapter.delete_file(account.wire, intent.input_file_id)
    lane.events.emit(intent.alert(BatchTrouble.UNKNOWN_CALL, "released", intent.items))
    return give_back(lane, intent, because(OVERFLOW), actor=RECOVERY)


def _quarantine(lane: BatchLane, intent: Intent, code: str) -> Tally:
    write(lane, "quarantine_intent", intent, error_class="UNRESOLVED_CREATE", error_code=code)
    lane.events.emit(intent.changed(BatchChange.QUARANTINED, code))
    lane.events.emit(intent.alert(BatchTrouble.QUARANTINED, code))
    return Tally(batches=_one("quarantined"))


def _stuck(lane: BatchLane, intent: Intent) -> Tally:
    """The provider could not be asked. A create that stays unclear for too long is a person's."""
    # The batch may have gone on since we took it.
    intent = hold(lane, intent.id, intent.fence)
    begun = intent.creating_at or intent.now
    waited = (intent.now - begun).total_seconds()
    if intent.state == "creating" and waited > lane.settings.batch.give_up_seconds:
        return _quarantine(lane, intent, "not_answered")
    put_off(lane, intent, LOOK_AGAIN_SECONDS)
    return Tally(batches=_one("put_off"))


def _without_its_type(lane: BatchLane, intent: Intent, actor: Actor) -> Tally:
    """Nobody here knows the job type: another process may, for example during a deployment."""
    intent = hold(lane, intent.id, intent.fence)
    waited = (intent.now - intent.created_at).total_seconds()
    if waited > lane.settings.unknown_type_patience_seconds and intent.state != "creating":
        return give_back(lane, intent, because(UNKNOWN_TYPE), actor=actor)
    put_off(lane, intent, LOOK_AGAIN_SECONDS)
    return Tally(batches=_one("put_off"))


# -- finding and adopting


def _find(lane: BatchLane, intent: Intent, account: Account) -> _Found:
    """Read the account's listing for batches that are this one."""
    if account.capabilities.lookup is Lookup.NONE:
        return _Found(account)
    since = intent.created_at - SKEW
    if is_alone(account):
        return _Found(account, find_candidates(lane, intent, account, since))
    key = key_of(intent.id)
    # Its input is as good a name as its key, and a listing may leave the key out.
    ours = [
        one
        for one in account.adapter.scan(account.wire, since)
        if one.key == key
        or (one.input_file_id is not None and one.input_file_id == intent.input_file_id)
    ]
    ours = list({one.provider_batch_id: one for one in ours}.values())
    alive = sorted(
        (one for one in ours if one.phase is not Phase.FAILED),
        key=lambda one: (_RANK[one.phase], one.created_at or intent.created_at),
    )
    failed = tuple(one for one in ours if one.phase is Phase.FAILED)
    return _Found(account, tuple(alive), failed)


def _is_of_try(seen: Seen, intent: Intent) -> bool:
    if seen.attempt is not None:
        return seen.attempt == intent.create_attempt
    return seen.input_file_id == intent.input_file_id


def _adopt(lane: BatchLane, intent: Intent, found: _Found, actor: Actor) -> Tally:
    """Write down that it exists; of several with our key one is kept, the others must not run."""
    kept, *others = found.alive
    tally = record_submitted(lane, intent, kept, fence=intent.fence, actor=actor, was_scanned=True)
    if tally is None:
        raise BatchLost(intent.id)
    lane.reached(Point.CREATE_RECORDED)
    for zombie in others:
        if zombie.phase is Phase.RUNNING:
            # What cannot be canceled just now is found again by the sweep.
            with suppress(ProviderRefused, ProviderUnsure):
                found.account.adapter.cancel(found.account.wire, zombie.provider_batch_id)
        lane.events.emit(intent.alert(BatchTrouble.ZOMBIE_BATCH, zombie.status[:60]))
        tally.batches["zombies"] += 1
    return tally


def _one(word: str) -> Counter[str]:
    return Counter((word,))


# -- what an operator decides


Decided = Callable[[Tx], None]
"""Writes down who decided, and why, in the transaction that does it."""


def adopt_quarantined(
    lane: BatchLane,
    batch_id: str,
    provider_batch_id: str,
    *,
    actor: Actor,
    decided: Decided | None = None,
) -> Tally:
    """Take a batch out of quarantine: it is *provider_batch_id* at the provider.

    Raises Conflict if it is not quarantined, and what the provider says if it has no such batch.
    """
    with _leased_quarantined(lane, batch_id, actor) as intent:
        account = reach(lane, intent.account, batch_id, provider_batch_id)
        if account is None:
            raise Conflict(f"Batch {batch_id} was not adopted: no account here has it.")
        seen = account.adapter.get(account.wire, provider_batch_id)
        if _is_anothers(lane, intent, account, seen.provider_batch_id):
            raise Conflict(
                f"Batch {batch_id} was not adopted: another batch of ours has that name."
            )
        tally = record_submitted(
            lane,
            intent,
            seen,
            fence=intent.fence,
            actor=actor,
            was_scanned=True,
            decided=decided,
        )
        if tally is None:
            raise Conflict(f"Batch {batch_id} was not adopted: somebody else has it. Look again.")
        return tally


def release_quarantined(
    lane: BatchLane, batch_id: str, *, actor: Actor, decided: Decided | None = None
) -> Tally:
    """Take a batch out of quarantine: it does not exist, and its jobs go back."""
    with _leased_quarantined(lane, batch_id, actor) as intent:
        account = reach(lane, intent.account, batch_id, intent.provider_batch_id)
        if account is not None and intent.input_file_id is not None:
            # A person may be wrong: what is still under way shall have nothing to run.
            with suppress(ProviderRefused, ProviderUnsure):
                account.adapter.delete_file(account.wire, intent.input_file_id)
        return give_back(lane, intent, because(OPERATOR), actor=actor, decided=decided)


@contextmanager
def _leased_quarantined(lane: BatchLane, batch_id: str, actor: Actor) -> Iterator[Intent]:
    """A quarantined batch that is ours meanwhile. Where nothing comes of it, anybody's again."""
    owner = f"{actor.type}:{actor.id}"[:100]
    lease = {"owner": owner, "lease_ms": lease_ms(lane)}
    row = lane.store.write(lambda tx: tx.maybe(SQL.lease_quarantined, id=batch_id, **lease))
    if row is None:
        raise Conflict(f"Batch {batch_id} is not quarantined, or somebody works on it just now.")
    intent = Intent.of(row)
    try:
        yield intent
    except Exception:
        with suppress(BatchLost, StoreError):
            write(lane, "let_quarantined_go", intent)
        raise


def _is_anothers(lane: BatchLane, intent: Intent, account: Account, provider_batch_id: str) -> bool:
    """Whether a batch of the provider is on record for another one of ours."""
    if intent.provider_batch_id == provider_batch_id:
        return False
    names = [{"provider_batch_id": provider_batch_id}]
    keys = {intent.account, account.key}
    return lane.store.read(
        lambda tx: any(tx.many(SQL.list_recorded, account=key, names=names) for key in keys)
    )
