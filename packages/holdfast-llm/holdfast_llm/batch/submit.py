"""Submit: claim what waits for the lane, put it into batches, and send them.

    claim a page → plan it → write it down (prepare.py) → send what is full (send.py) → … the rest

Never more than a page of payloads is in memory. What does not fit, or is not reached before the run
ends, goes back with a short pause and costs no attempt.
"""

from __future__ import annotations

from holdfast.clock import ms
from holdfast.engine import ledger
from holdfast.engine.claim import Order, claim_jobs
from holdfast.engine.errand import Assignment
from holdfast.engine.job import Actor, ActorType, Claimed
from holdfast.engine.settle import Settled
from holdfast.event import JobStarted
from holdfast_llm.batch.group import Artifact, Draft
from holdfast_llm.batch.intent import Intent, hold
from holdfast_llm.batch.lane import BatchLane
from holdfast_llm.batch.leased import BatchLost
from holdfast_llm.batch.point import Point
from holdfast_llm.batch.prepare import plan_page, prepare_page
from holdfast_llm.batch.price import Prices
from holdfast_llm.batch.recover import guarded, recover_once
from holdfast_llm.batch.release import MAX_RUNTIME, STOPPED, Tally, because, give_back
from holdfast_llm.batch.send import send
from holdfast_llm.batch.shut import find_shut
from holdfast_llm.batch.unusable import Unusable

PAGE = 500


def submit_once(lane: BatchLane, assignment: Assignment) -> Tally:
    """One bounded run: first what an earlier one left, then what waits."""
    done = recover_once(lane, owner=assignment.run_id, goes_on=lambda: assignment.goes_on)
    submitter = _Submitter(lane, assignment)
    submitter.run()
    done.add(submitter.tally)
    return done


class _Submitter:
    """The jobs of one run on their way into batches."""

    def __init__(self, lane: BatchLane, assignment: Assignment) -> None:
        self.lane = lane
        self.assignment = assignment
        self.actor = Actor(ActorType.SYSTEM, assignment.run_id)
        self.prices = Prices(lane.settings.prices)
        self.tally = Tally()
        self._drafts: dict[Artifact, Draft] = {}
        self._unusable = Unusable()
        self._shut: list[tuple[str, str, str]] = []
        # A run takes a job once, also where it may take those that wait.
        self._seen: set[str] = set()

    def run(self) -> None:
        try:
            # First what can be sent, then the rest: it is released, and says why it waits.
            passes = [self._find_shut(), []] if self._is_crowded() else [[]]
            for self._shut in passes:
                while self.assignment.goes_on and self.assignment.left > 0:
                    if not self._take_page():
                        break
            for draft in self._drafts.values():
                self._send(draft)
        finally:
            counts = self.assignment.counts
            counts.outcomes.update(self.tally.outcomes)
            counts.errors.update(self.tally.errors)
            self._unusable.tell(self.lane)
        if self._unusable.jobs.total() == counts.claimed > 0:
            # Nothing could be done at all: the run fails with what is missing.
            raise next(iter(self._unusable.missing.values()))

    def _is_crowded(self) -> bool:
        """Whether more waits than this run may take."""
        todo = self.assignment
        waiting = ledger.count_pending(
            self.lane.store, todo.queues, todo.job_types, todo.profile, of_batch=True
        )
        return waiting >= todo.left

    def _find_shut(self) -> list[tuple[str, str, str]]:
        return find_shut(self.lane, self.assignment.queues, self.prices)

    def _take_page(self) -> bool:
        claimed = self._claim(min(PAGE, self.assignment.left))
        if not claimed:
            return False
        self.lane.reached(Point.CLAIMED)
        page = plan_page(self.lane, claimed, self.prices)
        self._unusable.add(page.unusable)
        for one in page.wanted:
            model = f"{one.artifact.provider}/{one.artifact.model}"
            self.assignment.counts.models[model] += 1
        prepared = prepare_page(
            self.lane,
            page,
            self._drafts,
            owner=self.assignment.run_id,
            claim_ms=self._claim_ms,
            actor=self.actor,
        )
        self.lane.reached(Point.PREPARED)
        self._drafts = prepared.drafts
        self.tally.add(prepared.tally)
        for draft in prepared.full:
            self._send(draft)
        return True

    @property
    def _claim_ms(self) -> int:
        return ms(self.assignment.profile.claim_timeout_seconds)

    def _claim(self, wanted: int) -> list[Claimed]:
        buried: list[Settled] = []
        profile = self.assignment.profile
        found = claim_jobs(
            self.lane.store,
            queues=self.assignment.queues,
            worker_id=self.assignment.run_id,
            limit=wanted,
            lease_ms=self._claim_ms,
            order=Order(profile.order),
            respect_not_before_at=profile.respect_not_before_at,
            job_types=self.assignment.job_types,
            of_batch=True,
            without=self._seen,
            shut=self._shut,
            buried=buried,
        )
        self.assignment.counts.claimed += len(found)
        if not profile.respect_not_before_at:
            self._seen.update(job.id for job in found)
        for job in found:
            self.lane.events.emit(
                JobStarted(job.about, job.queue, job.attempt, self.assignment.run_id)
            )
        return found

    def _send(self, draft: Draft) -> None:
        """Send a batch, or give it back if the run is over."""
        try:
            intent = hold(self.lane, draft.id, draft.fence)
        except BatchLost:
            return
        if self.assignment.goes_on:
            self.tally.add(guarded(self.lane, intent, send, actor=self.actor))
        else:
            self.tally.add(guarded(self.lane, intent, self._leave, actor=self.actor))

    def _leave(self, lane: BatchLane, intent: Intent, *, actor: Actor) -> Tally:
        reason = STOPPED if self.assignment.was_stopped else MAX_RUNTIME
        return give_back(lane, intent, because(reason), actor=actor)
