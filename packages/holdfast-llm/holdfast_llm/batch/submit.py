"""Submit: claim waiting jobs, put them into batches and send the batches.

    claim a page → plan it → store it (prepare.py) → send full batches (send.py) → … the rest

At most one page of payloads is in memory. Jobs that do not fit, or that the run does not reach, are
released with a short pause and without an attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from holdfast.clock import ms
from holdfast.document import decode
from holdfast.engine import run_log
from holdfast.engine.claim import Order, claim_jobs
from holdfast.engine.job import Actor, ActorType, Claimed
from holdfast.engine.pass_counts import PassCounts
from holdfast.engine.periodic_task import RunBudget
from holdfast.engine.settle import Settled
from holdfast.errors import ConfigError
from holdfast.event import JobStarted
from holdfast.store import Row, Statements, Tx
from holdfast_llm.batch.beside import Beside
from holdfast_llm.batch.budget import limit_of, spent_over_budget
from holdfast_llm.batch.circuit import find_open_circuits
from holdfast_llm.batch.group import BatchKey, Draft
from holdfast_llm.batch.lease import BatchLease, BatchLeases, BatchLost
from holdfast_llm.batch.missing_accounts import MissingAccounts
from holdfast_llm.batch.prepare import PagePreparer, Prepared
from holdfast_llm.batch.price import Prices
from holdfast_llm.batch.recover import BatchRecovery
from holdfast_llm.batch.release import MAX_RUNTIME, STOPPED, BatchReleaser, internal_failure
from holdfast_llm.batch.resources import BatchResources
from holdfast_llm.batch.send import BatchSender
from holdfast_llm.provider.route import Route

SQL = Statements("holdfast_llm.batch", "submit.sql")

PAGE = 500
Unsendable = list[tuple[str, str, str]]
"""Tenants, providers and models whose jobs cannot be sent now."""


class BatchSubmitter:
    """Submits waiting jobs to providers."""

    def __init__(
        self,
        resources: BatchResources,
        leases: BatchLeases,
        preparer: PagePreparer,
        sender: BatchSender,
        releaser: BatchReleaser,
        recovery: BatchRecovery,
    ) -> None:
        self.resources = resources
        self.leases = leases
        self.preparer = preparer
        self.sender = sender
        self.releaser = releaser
        self.recovery = recovery

    def submit_once(self, budget: RunBudget) -> PassCounts:
        """One bounded run: first the batches that an earlier run left, then waiting jobs."""
        done = self.recovery.recover_once(
            owner=budget.run_id, may_continue=lambda: budget.may_continue
        )
        run = _SubmitRun(self, budget)
        run.perform()
        done.add(run.counts)
        return done


class _SubmitRun:
    """The jobs of one run on their way into batches."""

    def __init__(self, submitter: BatchSubmitter, budget: RunBudget) -> None:
        self.submitter = submitter
        self.resources = submitter.resources
        self.store = submitter.resources.store
        self.budget = budget
        self.actor = Actor(ActorType.SYSTEM, budget.run_id)
        self.prices = submitter.resources.prices
        self.counts = PassCounts()
        self._drafts: dict[BatchKey, Draft] = {}
        self._missing = MissingAccounts()
        self._unsendable: Unsendable = []
        # A page is stored while the next one is claimed and rendered.
        self._writer = Beside(self.store, "submitter")
        self._prepared: Callable[[], Prepared] | None = None
        # A run claims a job once, even if it may claim jobs before they are due.
        self._claimed_ids: set[str] = set()

    def perform(self) -> None:
        counts = self.budget.counts
        try:
            # Jobs that can be sent come first. The others are released with the reason.
            passes = [self._find_unsendable(), []] if self._is_crowded() else [[]]
            with self._writer:
                for self._unsendable in passes:
                    while self.budget.may_continue and self.budget.left > 0:
                        if not self._take_page():
                            break
            self._finish_page()
            for draft in self._drafts.values():
                self._send(draft)
        finally:
            counts.outcomes.update(self.counts.outcomes)
            counts.errors.update(self.counts.errors)
            self._missing.report(self.resources.events)
        if self._missing.jobs.total() == counts.claimed > 0:
            # No job could be sent: the run fails with the missing account.
            raise next(iter(self._missing.errors.values()))

    def _is_crowded(self) -> bool:
        """Whether more jobs wait than this run may take."""
        run = self.budget
        waiting = run_log.count_pending(
            self.store, run.queues, run.job_types, run.profile, of_batch=True
        )
        return waiting >= run.left

    def _find_unsendable(self) -> Unsendable:
        return find_unsendable(self.resources, self.budget.queues, self.prices)

    def _take_page(self) -> bool:
        """Claim and prepare a page of jobs. False if no job is left to claim."""
        wanted = min(PAGE, self.budget.left)
        claimed, is_full = self._claim(wanted)
        if not claimed:
            return False
        page = self.submitter.preparer.plan_page(claimed, self.prices)
        self._missing.add(page.missing)
        for one in page.wanted:
            model = f"{one.key.provider}/{one.key.model}"
            self.budget.counts.models[model] += 1
        self._finish_page()
        prepare = partial(
            self.submitter.preparer.prepare_page,
            page,
            self._drafts,
            owner=self.budget.run_id,
            claim_ms=self._claim_ms,
            actor=self.actor,
        )
        self._prepared = self._writer.start(prepare)
        if self.store.is_embedded:
            self._finish_page()
        return is_full

    def _finish_page(self) -> None:
        """Wait until the last page is stored, and send the batches that are full."""
        if self._prepared is None:
            return
        prepared, self._prepared = self._prepared(), None
        self._drafts = prepared.drafts
        self.counts.add(prepared.counts)
        for draft in prepared.full:
            self._send(draft)

    @property
    def _claim_ms(self) -> int:
        return ms(self.budget.profile.claim_timeout_seconds)

    def _claim(self, wanted: int) -> tuple[list[Claimed], bool]:
        """A page of jobs, and whether there may be more."""
        dead_lettered: list[Settled] = []
        profile = self.budget.profile
        found = claim_jobs(
            self.store,
            queues=self.budget.queues,
            worker_id=self.budget.run_id,
            limit=wanted,
            lease_ms=self._claim_ms,
            order=Order(profile.order),
            respect_not_before_at=profile.respect_not_before_at,
            job_types=self.budget.job_types,
            of_batch=True,
            without=self._claimed_ids,
            shut=self._unsendable,
            dead_lettered=dead_lettered,
        )
        self.budget.counts.claimed += len(found)
        if not profile.respect_not_before_at:
            self._claimed_ids.update(job.id for job in found)
        for job in found:
            self.resources.events.emit(
                JobStarted(job.about, job.queue, job.attempt, self.budget.run_id)
            )
        return found, len(found) + len(dead_lettered) >= wanted

    def _send(self, draft: Draft) -> None:
        """Send a batch, or release its jobs if the run is over."""
        submitter = self.submitter
        try:
            batch = submitter.leases.hold_new(draft.id, draft.fence)
        except BatchLost:
            return
        step = submitter.sender.send if self.budget.may_continue else self._release
        self.counts.add(submitter.recovery.guarded(batch, step, actor=self.actor))

    def _release(self, batch: BatchLease, *, actor: Actor) -> PassCounts:
        reason = STOPPED if self.budget.stop_requested else MAX_RUNTIME
        return self.submitter.releaser.release(batch, internal_failure(reason), actor=actor)


# -- jobs that no run could send


def find_unsendable(resources: BatchResources, queues: Sequence[str], prices: Prices) -> Unsendable:
    """Waiting jobs whose account is unusable or whose tenant's budget is spent.

    A run claims a bounded number of jobs, the oldest first. It skips these; otherwise they would
    come first in every run and block all others.
    """
    settings = resources.settings

    def look(tx: Tx) -> tuple[list[Row], set[str], set[str]]:
        rows = tx.many(SQL.list_waiting_routes, queues=[{"queue": name} for name in queues])
        orgs = {str(row["org_id"]) for row in rows}
        return rows, find_open_circuits(tx), set(spent_over_budget(tx, settings, orgs))

    rows, circuits, spent = resources.store.read(look)
    return [
        (str(row["org_id"]), row["provider"], row["model"])
        for row in rows
        if str(row["org_id"]) in spent
        or not _can_send(resources, prices, circuits, str(row["org_id"]), decode(row["decision"]))
    ]


def _can_send(
    resources: BatchResources,
    prices: Prices,
    circuits: set[str],
    org_id: str,
    decision: dict[str, Any],
) -> bool:
    try:
        route = Route.read(decision)
        account = resources.accounts.for_route(route)
    except ValueError:
        # The job itself is invalid and settles when it is claimed.
        return True
    except ConfigError:
        return False
    if account.key in circuits:
        return False
    day = resources.store.clock.now().date()
    return limit_of(resources.settings, org_id) is None or (
        prices.find(route.provider, route.model, route.execution_mode, day) is not None
    )
