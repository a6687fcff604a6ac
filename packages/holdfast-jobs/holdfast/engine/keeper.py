"""The keeper of a worker: renews leases, passes cancels on, takes jobs from stuck threads."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from holdfast.clock import ms
from holdfast.config import Settings
from holdfast.engine.claim import SQL, renew_leases
from holdfast.engine.execute import timed_out
from holdfast.engine.hands import Hands, Held
from holdfast.engine.job import Claimed, ClaimId, claim_of, claim_row
from holdfast.engine.watchdog import Guard, unguarded
from holdfast.errors import StoreError
from holdfast.store import Store

TICK_SECONDS = 0.25
CANCEL_LOOK_SECONDS = 1.0
RENEW_SECONDS = 1.0


class Keeper:
    """Looks after the claims in *held* from a thread of its own."""

    def __init__(
        self,
        store: Store,
        hands: Hands,
        held: dict[ClaimId, Held],
        *,
        settings: Settings,
        rng: random.Random,
        recycle: Callable[[int], None],
        guard: Guard = unguarded,
    ) -> None:
        self.store = store
        self.hands = hands
        self.held = held
        self.settings = settings
        self.rng = rng
        self.recycle = recycle
        self._lease_ms = ms(settings.lease_seconds)
        self._stuck = 0
        self._end = threading.Event()
        # When the loop last came around, for the watchdog.
        self.progress_at = time.monotonic()
        run = guard(self._run)
        self._thread = threading.Thread(target=run, name="holdfast-keeper", daemon=True)

    def start(self) -> None:
        self.progress_at = time.monotonic()
        self._thread.start()

    def close(self) -> None:
        self._end.set()
        self._thread.join(timeout=5.0)

    def _run(self) -> None:
        next_look = time.monotonic() + CANCEL_LOOK_SECONDS
        tick = min(TICK_SECONDS, self.settings.lease_seconds / 6)
        while not self._end.wait(tick):
            now = self.progress_at = time.monotonic()
            self._abandon_overdue(now)
            self._renew_due(now)
            self._stop_unrenewed(time.monotonic())
            if now >= next_look:
                next_look = now + CANCEL_LOOK_SECONDS
                self._look_for_cancels(now)

    def _abandon_overdue(self, now: float) -> None:
        """A thread cannot be stopped; its job can be taken away from it."""
        for held in list(self.held.values()):
            stage = None if held.plan is None else held.plan.stage
            if stage is None or stage.timeout is None or stage.is_async:
                continue
            # Read once: the thread may finish meanwhile.
            started_at = held.started_at
            if started_at is None or now - started_at <= stage.timeout.total_seconds():
                continue
            # A copy for the settler, apart from the one that the stuck thread still looks at.
            copy = replace(held, started_at=None, ran_seconds=now - started_at, completion=None)
            completion = held.completion
            if not self.hands.abandon(held):
                continue
            outcome = timed_out(held.job, stage, self.rng)
            self.hands.finished(copy, outcome if completion is None else completion.ended(outcome))
            self._stuck += 1
            if self._stuck >= self.hands.concurrency:
                self.recycle(self._stuck)

    def _renew_due(self, now: float) -> None:
        lease = self.settings.lease_seconds
        due = [held for held in self._open_claims() if now - held.renewed_at >= lease / 3]
        if not due:
            return
        try:
            # Short enough to be tried again before the lease ends.
            renewed = renew_leases(
                self.store,
                [held.job for held in due],
                lease_ms=self._lease_ms,
                seconds=min(RENEW_SECONDS, lease / 6),
            )
        except StoreError:
            return
        for held in due:
            if held.claim_id in renewed.held:
                held.renewed_at = now
                if held.claim_id in renewed.cancel_requested:
                    held.token.set()
            else:
                held.token.set(lease_lost=True)

    def _stop_unrenewed(self, now: float) -> None:
        """Effects must stop before the lease does: somebody else may own the job after that."""
        for held in self._open_claims():
            if now - held.renewed_at >= self.settings.lease_seconds * 0.9:
                held.token.set(lease_lost=True)

    def _open_claims(self) -> list[Held]:
        """Those with a lease: a handler that has completed its job may still run."""
        return [
            held
            for held in list(self.held.values())
            if held.completion is None or not held.completion.has_closed_claim
        ]

    def _look_for_cancels(self, now: float) -> None:
        long = [
            held
            for held in list(self.held.values())
            if held.started_at is not None and now - held.started_at >= CANCEL_LOOK_SECONDS
        ]
        if not long:
            return
        try:
            wanted = _find_canceled(self.store, [held.job for held in long])
        except StoreError:
            return
        for held in long:
            if held.claim_id in wanted:
                held.token.set()


def _find_canceled(store: Store, jobs: Sequence[Claimed]) -> frozenset[ClaimId]:
    """Of the claims we hold, those whose job somebody wants stopped."""
    held = [claim_row(job) for job in jobs]
    rows = store.many(SQL.find_canceled, held=held)
    return frozenset(map(claim_of, rows))
