"""Fetchers claim jobs for a worker."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Protocol

from holdfast.engine.claim import (
    KEYS,
    ClaimRequest,
    claim_each,
    find_backlogs,
    find_keys,
    keys_of,
    load_cursors,
    poll_queues,
    save_cursors,
)
from holdfast.engine.fairness import QueueShares, RoundRobinCursor, TenantBacklog
from holdfast.engine.job import MAINTENANCE_QUEUE, Claimed
from holdfast.engine.limits import Rules, read_rules
from holdfast.engine.promote import promote_jobs
from holdfast.engine.settle import Settled
from holdfast.errors import StoreError
from holdfast.event import Events
from holdfast.store import Store

# While there is work, up to a quarter of the time goes to polling the queues for other work. A
# tenant whose jobs arrive late waits for the next poll.
LOOK_SHARE = 4
SHORTEST_LOOK_SECONDS = 0.004
# The minimum depth of a poll: it serves several claims.
DEPTH = 1_000
# How often a take polls again if everything it found is at its limit.
FRUITLESS_LOOKS = 8


class Fetcher(Protocol):
    """Claims jobs for a worker, as many as it can use."""

    @property
    def is_over(self) -> bool:
        """Whether there will be no more jobs, so that the worker returns."""

    def hear(self) -> None:
        """Poll the queues again: jobs were enqueued or have ended."""

    def take(self, wanted: int) -> list[Claimed]:
        """Claim up to *wanted* jobs."""

    def is_limited(self, queue: str) -> bool:
        """Whether the end of a job of *queue* may free capacity for another."""

    def take_dead_lettered(self) -> list[Settled]:
        """Jobs that were dead-lettered instead of claimed since the last call."""

    def close(self) -> None:
        """Store the cursors; nothing more is claimed."""


class FairFetcher:
    """Claims from several queues by weight, and within each from every tenant in turn."""

    def __init__(
        self,
        store: Store,
        *,
        queues: Sequence[str],
        worker_id: str,
        lease_ms: int,
        events: Events | None = None,
    ) -> None:
        self.store = store
        self.events = events or Events()
        self.queues = tuple(queues)
        self.worker_id = worker_id
        self.lease_ms = lease_ms
        # Delayed notifications are parked there, whichever worker delivers them.
        self._watched = tuple(dict.fromkeys((*self.queues, MAINTENANCE_QUEUE)))
        self._rules: Rules | None = None
        self._waiting: dict[str, list[TenantBacklog]] = {}
        self._cursors: dict[str, RoundRobinCursor] = {}
        self._last_key: dict[str, str] = {}
        self._shares = QueueShares()
        self._expected = 1
        self._saw_part = False
        self._went_through = False
        self._look_at = 0.0
        self._dead_lettered: list[Settled] = []

    @property
    def is_over(self) -> bool:
        return False

    def is_limited(self, queue: str) -> bool:
        """Whether the end of a job of *queue* may free capacity for another."""
        return self._rules is not None and self._rules.may_free_capacity(queue)

    def hear(self) -> None:
        self._look_at = 0.0

    def take(self, wanted: int) -> list[Claimed]:
        # A fake clock may have moved past a deadline since.
        if not self._waiting or self.store.clock.is_fake or time.monotonic() >= self._look_at:
            self._poll_queues(wanted)
        found: list[Claimed] = []
        try:
            self._fill(wanted, found)
        except StoreError:
            # Jobs claimed from earlier queues are leased and must be run.
            if not found:
                raise
        return found

    def _fill(self, wanted: int, found: list[Claimed]) -> None:
        before, fruitless = 0, 0
        while len(found) < wanted:
            if self._waiting:
                self._take_round(wanted - len(found), found)
                continue
            # Everything found is claimed. Poll again if there may be more and polling can find it.
            fruitless = 0 if len(found) > before else fruitless + 1
            if not self._saw_part or fruitless > (FRUITLESS_LOOKS if self._went_through else 0):
                return
            before = len(found)
            self._poll_queues(wanted)

    def _take_round(self, wanted: int, found: list[Claimed]) -> None:
        """Claim each waiting queue's share once; a queue that has less is not polled again."""
        assert self._rules is not None
        weights = self._rules.weights
        shares = self._shares.split(wanted, self._waiting, weights)
        requests = [self._request(queue, share) for queue, share in shares]
        for request, claimed in claim_each(self.store, self._rules, requests):
            self._shares.spend(request.queue, len(claimed), weights)
            found += claimed
            self._went_through = self._went_through or request.at.is_through
            is_empty = not any(backlog.depth for backlog in request.backlogs)
            if len(claimed) < request.limit or request.at.is_through or is_empty:
                del self._waiting[request.queue]

    def _request(self, queue: str, share: int) -> ClaimRequest:
        return ClaimRequest(
            queue,
            self.worker_id,
            share,
            self.lease_ms,
            backlogs=self._waiting[queue],
            at=self._cursors[queue],
            dead_lettered=self._dead_lettered,
        )

    def take_dead_lettered(self) -> list[Settled]:
        found = list(self._dead_lettered)
        self._dead_lettered.clear()
        return found

    def close(self) -> None:
        """Store the cursors, so that the next worker continues the rotation."""
        save_cursors(
            self.store,
            {queue: at for queue, at in self._cursors.items() if at != RoundRobinCursor()},
        )

    def _poll_queues(self, wanted: int) -> None:
        """Poll all queues in one statement: due jobs, current rules, waiting tenants."""
        began = time.monotonic()
        seen = poll_queues(self.store, self._watched, self.events)
        due = [row["queue"] for row in seen if row["has_due"]]
        if due and promote_jobs(self.store, due):
            seen = poll_queues(self.store, self._watched)
        if self._rules is None or any(row["revision"] != self._rules.revision for row in seen):
            self._rules = read_rules(self.store)
        keys = {
            row["queue"]: self._find_keys(self._rules, row["queue"]) if row["has_keys"] else ("",)
            for row in seen
            if row["is_waiting"]
            and row["queue"] in self.queues
            and not self._rules.is_paused(row["queue"])
        }
        self._find_backlogs(keys, wanted)
        ended = time.monotonic()
        self._look_at = ended + max(SHORTEST_LOOK_SECONDS, (LOOK_SHARE - 1) * (ended - began))

    def _find_backlogs(self, keys: Mapping[str, Sequence[str]], wanted: int) -> None:
        expected, self._expected = self._expected, 1
        self._waiting, self._went_through = {}, False
        if keys:
            unknown = [queue for queue in keys if queue not in self._cursors]
            if unknown:
                self._cursors |= load_cursors(self.store, unknown)
            self._waiting = find_backlogs(
                self.store, keys, served=self._cursors, wanted=max(wanted, DEPTH), expected=expected
            )
            self._expected = sum(map(len, self._waiting.values()))
        backlogs = (backlog for found in self._waiting.values() for backlog in found)
        self._saw_part = any(backlog.is_deep or backlog.is_cut for backlog in backlogs)

    def _find_keys(self, rules: Rules, queue: str) -> list[str]:
        """The keys to search; if there are too many, the ones after those of the last search."""
        waiting = find_keys(self.store, queue, self._last_key.get(queue, ""))
        self._last_key[queue] = waiting[-1] if len(waiting) >= KEYS else ""
        return keys_of(rules, waiting)
