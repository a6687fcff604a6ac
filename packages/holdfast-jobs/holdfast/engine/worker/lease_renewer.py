"""Renews the leases of a worker's jobs, forwards cancel requests, abandons stuck threads."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from holdfast.clock import ms
from holdfast.config import Settings
from holdfast.engine.execute import timed_out
from holdfast.engine.job import Claimed, ClaimId, claim_of, claim_row
from holdfast.engine.lease import SQL, renew_leases
from holdfast.engine.worker.executor_pool import ExecutorPool, InFlight
from holdfast.engine.worker.watchdog import Guard, unguarded
from holdfast.errors import StoreError
from holdfast.store import Store

TICK_SECONDS = 0.25
CANCEL_LOOK_SECONDS = 1.0
RENEW_SECONDS = 1.0


class LeaseRenewer:
    """Renews the leases of the claims in *in_flight* from its own thread."""

    def __init__(
        self,
        store: Store,
        pool: ExecutorPool,
        in_flight: dict[ClaimId, InFlight],
        *,
        settings: Settings,
        rng: random.Random,
        recycle: Callable[[int], None],
        guard: Guard = unguarded,
    ) -> None:
        self.store = store
        self.pool = pool
        self.in_flight = in_flight
        self.settings = settings
        self.rng = rng
        self.recycle = recycle
        self._lease_ms = ms(settings.lease_seconds)
        self._stuck = 0
        self._end = threading.Event()
        # The time of the last iteration, for the watchdog.
        self.progress_at = time.monotonic()
        run = guard(self._run)
        self._thread = threading.Thread(target=run, name="holdfast-lease-renewer", daemon=True)

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
        """Abandon threads whose handler exceeded its timeout; a thread cannot be stopped."""
        for claim in list(self.in_flight.values()):
            stage = None if claim.execution is None else claim.execution.stage
            if stage is None or stage.timeout is None or stage.is_async or stage.is_isolated:
                continue
            # Read once: the thread may finish meanwhile.
            started_at = claim.started_at
            if started_at is None or now - started_at <= stage.timeout.total_seconds():
                continue
            # Copies for the settle buffer; the stuck thread still uses the originals.
            copies = [
                (replace(one, started_at=None, ran_seconds=now - started_at, completion=None), one)
                for one in claim.together
            ]
            completions = [one.completion for one in claim.together]
            if not self.pool.abandon(claim):
                continue
            for (copy, one), completion in zip(copies, completions, strict=True):
                outcome = timed_out(one.job, stage, self.rng)
                ended = outcome if completion is None else completion.ended(outcome)
                self.pool.finished(copy, ended)
            self._stuck += 1
            if self._stuck >= self.pool.concurrency:
                self.recycle(self._stuck)

    def _renew_due(self, now: float) -> None:
        lease = self.settings.lease_seconds
        due = [claim for claim in self._open_claims() if now - claim.renewed_at >= lease / 3]
        if not due:
            return
        try:
            # Short enough to be retried before the lease ends.
            renewed = renew_leases(
                self.store,
                [claim.job for claim in due],
                lease_ms=self._lease_ms,
                seconds=min(RENEW_SECONDS, lease / 6),
            )
        except StoreError:
            return
        for claim in due:
            if claim.claim_id in renewed.lease_held:
                claim.renewed_at = now
                if claim.claim_id in renewed.cancel_requested:
                    claim.interrupt()
            else:
                claim.interrupt(lease_lost=True)

    def _stop_unrenewed(self, now: float) -> None:
        """Stop handlers shortly before an unrenewed lease ends."""
        for claim in self._open_claims():
            if now - claim.renewed_at >= self.settings.lease_seconds * 0.9:
                claim.interrupt(lease_lost=True)

    def _open_claims(self) -> list[InFlight]:
        """Claims that still have a lease. A handler may run on after it has completed its job."""
        return [
            claim
            for claim in list(self.in_flight.values())
            if claim.completion is None or not claim.completion.has_closed_claim
        ]

    def _look_for_cancels(self, now: float) -> None:
        long = [
            claim
            for claim in list(self.in_flight.values())
            if claim.started_at is not None and now - claim.started_at >= CANCEL_LOOK_SECONDS
        ]
        if not long:
            return
        try:
            wanted = _find_canceled(self.store, [claim.job for claim in long])
        except StoreError:
            return
        for claim in long:
            if claim.claim_id in wanted:
                claim.interrupt()


def _find_canceled(store: Store, jobs: Sequence[Claimed]) -> frozenset[ClaimId]:
    """The claims among *jobs* for which a cancel was requested."""
    held = [claim_row(job) for job in jobs]
    rows = store.many(SQL.find_canceled, held=held)
    return frozenset(map(claim_of, rows))
