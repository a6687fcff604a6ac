"""Fetchers claim jobs for a worker."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Protocol

from holdfast.engine.claim import (
    KEYS,
    ClaimRequest,
    claim_each,
    claim_next,
    find_backlogs,
    find_keys,
    keys_of,
    load_cursors,
    poll_queues,
    save_cursors,
)
from holdfast.engine.fairness import NIL_ID, QueueShares, RoundRobinCursor, TenantBacklog
from holdfast.engine.job import MAINTENANCE_QUEUE, Claimed
from holdfast.engine.limits import Rules, read_rules
from holdfast.engine.promote import promote_jobs
from holdfast.engine.settle import Settled
from holdfast.errors import StoreError
from holdfast.event import Events
from holdfast.store import Statements, Store

FLOW = Statements("holdfast.engine", "flow.sql")

# While there is work, up to a quarter of the time goes to polling the queues for other work. A
# tenant whose jobs arrive late waits for the next poll.
LOOK_SHARE = 4
SHORTEST_LOOK_SECONDS = 0.004
# The minimum depth of a poll: it serves several claims.
DEPTH = 1_000
# Polls that take longer, several in a row, read index entries of claimed jobs, which a long
# transaction of another session keeps. Then the known backlogs are read from where the last claim
# ended, and the queues are polled in a twentieth of the time, at most once a second.
SLOW_LOOK_SECONDS = 0.01
SLOW_LOOKS = 3
SLOW_LOOK_SHARE = 20
SLOW_LOOK_PAUSE_SECONDS = 1.0
# How many backlogs are remembered for that.
FLOORS = 256
# How many jobs of a tenant an idle worker claims before it looks for those of others.
HEARD = 10
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
        self._heard = False
        # After slow polls: the time of the next one, and the backlogs with their floors.
        self._slow_polls = 0
        self._poll_at = 0.0
        self._floors: dict[tuple[str, str, str], str] = {}
        self._dead_lettered: list[Settled] = []

    @property
    def is_over(self) -> bool:
        return False

    def is_limited(self, queue: str) -> bool:
        """Whether the end of a job of *queue* may free capacity for another."""
        return self._rules is not None and self._rules.may_free_capacity(queue)

    def hear(self) -> None:
        self._look_at = 0.0
        self._heard = True

    def take(self, wanted: int) -> list[Claimed]:
        # A fake clock may have moved past a deadline, which only a poll finds.
        is_fake, now = self.store.clock.is_fake, time.monotonic()
        heard, self._heard = self._heard, False
        found: list[Claimed] = []
        try:
            if heard and not self._waiting and not is_fake:
                found += self._claim_next(wanted)
                if found:
                    return found
            if now < self._poll_at and not self._waiting and not is_fake:
                self._continue_backlogs(wanted)
            elif not self._waiting or is_fake or now >= max(self._look_at, self._poll_at):
                self._poll_queues(wanted)
            self._fill(wanted, found)
        except StoreError:
            # Jobs claimed from earlier queues are leased and must be run.
            if not found:
                raise
        return found

    def _claim_next(self, wanted: int) -> list[Claimed]:
        """Jobs that were announced, without a poll: for an idle worker.

        It saves two of three statements before a job starts. While polls are slow, it claims from
        the known backlogs after their floors.
        """
        cursors = {queue: at for queue, at in self._cursors.items() if queue in self.queues}
        if self._rules is None or len(cursors) < len(self.queues):
            return []
        first = ClaimRequest("", self.worker_id, min(wanted, HEARD), self.lease_ms)
        floors = self._floors if self._poll_at else None
        claimed = claim_next(self.store, self._rules, first, cursors, floors)
        for job in claimed:
            backlog = (job.queue, job.limit_key, job.org_id)
            self._floors[backlog] = max(job.position, self._floors.get(backlog, ""))
        return claimed

    def _continue_backlogs(self, wanted: int) -> None:
        """Count the known backlogs from their floors on, instead of polling."""
        known = [
            {"queue": queue, "limit_key": key, "org_id": org_id, "floor": floor}
            for (queue, key, org_id), floor in self._floors.items()
        ]
        reach = max(wanted, DEPTH)
        self._waiting, self._saw_part = {}, False
        for row in self.store.values(FLOW.count_backlogs, known=known, reach=reach):
            backlog = TenantBacklog(*row)
            if backlog.depth:
                backlog.floor = self._floors[backlog.queue, *backlog.name]
                self._waiting.setdefault(backlog.queue, []).append(backlog)

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
            self._remember(request)
            self._went_through = self._went_through or request.at.is_through
            is_empty = not any(backlog.depth for backlog in request.backlogs)
            if len(claimed) < request.limit or request.at.is_through or is_empty:
                del self._waiting[request.queue]

    def _remember(self, request: ClaimRequest) -> None:
        """Keep where the claims of each backlog ended, for polls that become slow."""
        for backlog in request.backlogs:
            if backlog.floor != NIL_ID:
                self._floors[backlog.queue, *backlog.name] = backlog.floor
        while len(self._floors) > FLOORS:
            self._floors.pop(next(iter(self._floors)))

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
            # Promoting is no part of the poll: it must not make the next one wait.
            began = time.monotonic()
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
        self._slow_polls = self._slow_polls + 1 if ended - began > SLOW_LOOK_SECONDS else 0
        pause = max(SLOW_LOOK_PAUSE_SECONDS, SLOW_LOOK_SHARE * (ended - began))
        self._poll_at = ended + pause if self._slow_polls >= SLOW_LOOKS else 0.0

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
