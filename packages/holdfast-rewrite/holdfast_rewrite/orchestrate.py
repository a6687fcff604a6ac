"""The orchestrator: stores messages, classifies them and enqueues their rewrites.

It uses two transactions. The first stores the message (intake.py). Then third-party code runs
outside a transaction. The second enqueues the request with its job, or fails it
(enqueue_rewrites.py). If the process dies in between, :meth:`Orchestrator.resume_once` continues
the request.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta

from holdfast.actor import Actor
from holdfast.app import Holdfast
from holdfast.engine.enqueue import events_of
from holdfast.engine.execute import current
from holdfast.engine.handler import Producer
from holdfast.errors import Forbidden, HoldfastError, RuleBroken, StoreBusy, StoreDown
from holdfast.event import Event
from holdfast_rewrite.classify import Classifier, Message, classify_safely, waits
from holdfast_rewrite.decide import Captured, Decision, StoredSubmission, decide
from holdfast_rewrite.directory import Directory, Household, Pair
from holdfast_rewrite.enqueue_rewrites import Moved, enqueue_rewrites
from holdfast_rewrite.enums import JOB_TYPE, FailureCode, HomeRole, Status, Step
from holdfast_rewrite.event import RewriteMoved
from holdfast_rewrite.intake import (
    Received,
    count_unfinished,
    receive,
    store_messages,
    take_unfinished,
)
from holdfast_rewrite.judging import ORCHESTRATOR, enqueue_judges_once
from holdfast_rewrite.route import Routes
from holdfast_rewrite.validation import (
    Answer,
    Given,
    Submission,
    is_sound,
    read_submission,
    refusal_of,
)

__all__ = ["Answer", "Orchestrator", "Submission"]

_log = logging.getLogger("holdfast.rewrite")

CADENCE_RULE = "rewrite_request_cadence"
# A concurrent request may take the sender's week between check and write; the next check sees it.
CADENCE_LOOKS = 10
# Concurrent calls of a classifier that waits.
CLASSIFIED_AT_ONCE = 16
# With such a classifier, one pass claims at most this many times that number of requests.
ROUNDS_A_RUN = 4
WRITING = timedelta(minutes=1)


class Orchestrator:
    """Accepts messages and turns them into jobs.

    With a classifier that waits, submitting ends with the stored message, and the orchestrator's
    run does the rest, so that submitters never wait for a model.
    """

    def __init__(
        self,
        hf: Holdfast,
        *,
        producer: Producer,
        directory: Directory,
        classifier: Classifier,
        routes: Routes,
    ) -> None:
        self.hf = hf
        self._producer = producer
        self.directory = directory
        self.classifier = classifier
        self.routes = routes

    def submit(self, submission: Submission) -> Answer:
        """Submit one message. Raises InvalidRewrite, without writing, if it is malformed."""
        return self._submit([read_submission(submission, now=self.hf.clock.now())])[0]

    def submit_many(self, submissions: Iterable[Submission]) -> list[Answer]:
        """Submit any number of messages in a fixed number of statements.

        Failures are independent.
        """
        now = self.hf.clock.now()
        return self._submit(
            [
                read_submission(item, now=now, place=f"submissions[{at}].")
                for at, item in enumerate(submissions)
            ]
        )

    def resume_once(self, limit: int = 500) -> int:
        """Continue up to *limit* abandoned requests; return how many were claimed.

        They are built from the data stored on arrival, so the result is the same.
        """
        if waits(self.classifier):
            limit = min(limit, ROUNDS_A_RUN * CLASSIFIED_AT_ONCE)
        found = take_unfinished(
            self.hf.store, abandoned=self._abandoned, limit=limit, lease=self._lease
        )
        self._finish(
            [
                *self._decide_all([item for item, failure in found if failure is None]),
                *(Decision(item, failure=failure) for item, failure in found if failure),
            ],
            ORCHESTRATOR,
        )
        return len(found)

    def judge_once(self, limit: int = 500) -> int:
        """Enqueue the judges' jobs of up to *limit* drafts; return how many."""
        return enqueue_judges_once(self.hf, self._producer, limit=limit)

    def count_unfinished(self, most: int) -> int:
        """Count the requests to continue, up to *most*."""
        return count_unfinished(self.hf.store, abandoned=self._abandoned, most=most)

    @property
    def _abandoned(self) -> timedelta:
        """Return how long a request may be idle before the run continues it."""
        if waits(self.classifier):
            return timedelta(0)
        return timedelta(seconds=self.hf.settings.rewrite.abandoned_seconds)

    @property
    def _lease(self) -> timedelta:
        """Return the lease of claimed requests: longer than processing them can take."""
        rounds = ROUNDS_A_RUN if waits(self.classifier) else 0
        seconds = self.hf.settings.rewrite.classifier_timeout_seconds
        return timedelta(seconds=rounds * seconds) + WRITING

    # -- from submission to message

    def _submit(self, given: Sequence[Given]) -> list[Answer]:
        if not given:
            return []
        _check_tenant(given)
        surfaces = self.hf.settings.rewrite.surfaces
        received = receive(
            [
                (item, _captured(household), refusal_of(item, household, surfaces))
                for item, household in zip(given, self._look(given), strict=True)
            ],
            self.hf.ids,
        )
        intakes = store_messages(self.hf.store, received)
        self._tell([_received(item) for item in received])
        if waits(self.classifier):
            queued = {item.rewrite_request_id for item in intakes}
            answers = {made: Answer(made, None, Status.QUEUED) for made in queued}
        else:
            answers = self._finish(self._decide_all(intakes), None)
        return [
            answers.get(item.rewrite_request_id)
            or Answer(item.rewrite_request_id, None, Status.FAILED)
            for item in received
        ]

    def _look(self, given: Sequence[Given]) -> list[Household | None]:
        """Query the directory for each; None if it failed or returned an invalid type."""
        pairs = [Pair(item.home_id, item.sender_user_id, item.recipient_user_id) for item in given]
        look_many = getattr(self.directory, "look_many", None)
        if look_many is not None:
            try:
                found = list(look_many(pairs))
                if len(found) == len(pairs):
                    return [item if is_sound(item) else None for item in found]
            except Exception as exc:
                _complain(exc)
        return [self._look_at(pair) for pair in pairs]

    def _look_at(self, pair: Pair) -> Household | None:
        try:
            found = self.directory.look(pair.home_id, pair.sender_user_id, pair.recipient_user_id)
        except Exception as exc:
            _complain(exc)
            return None
        return found if is_sound(found) else None

    def _decide_all(self, intakes: Sequence[StoredSubmission]) -> list[Decision]:
        if not waits(self.classifier):
            return [self._decide(item) for item in intakes]
        with ThreadPoolExecutor(CLASSIFIED_AT_ONCE) as pool:
            return list(pool.map(self._decide, intakes))

    def _decide(self, intake: StoredSubmission) -> Decision:
        message = Message(
            classifier_request_id=intake.rewrite_request_id,
            sender_message=intake.original_text,
            sender_user_id=intake.sender_user_id,
            surface=intake.surface,
        )
        timeout = self.hf.settings.rewrite.classifier_timeout_seconds
        result, error = classify_safely(self.classifier, message, timeout_seconds=timeout)
        return decide(intake, result, error, self.routes)

    # -- from message to job

    def _finish(self, decisions: Sequence[Decision], actor: Actor | None) -> dict[str, Answer]:
        """Write the decisions as *actor*, or else as each request's sender."""
        if not decisions:
            return {}
        try:
            moved = self._move(decisions, actor)
        except (StoreBusy, StoreDown):
            return self._fail(decisions, actor)
        except HoldfastError as exc:
            if len(decisions) == 1:
                request_id = decisions[0].intake.rewrite_request_id
                _log.error("request %s cannot be enqueued: %s", request_id, type(exc).__name__)
                return self._fail(decisions, actor)
            # One of them cannot be written; the others can.
            half = len(decisions) // 2
            return self._finish(decisions[:half], actor) | self._finish(decisions[half:], actor)
        self._announce(moved)
        return moved.answers

    def _fail(self, decisions: Sequence[Decision], actor: Actor | None) -> dict[str, Answer]:
        """Settle an enqueue of unknown outcome: requests with a job keep it, the others fail.

        If that cannot be written either, they stay queued and the next run continues them.
        """
        failed = [item.failed(FailureCode.ENQUEUE_FAILED) for item in decisions]
        try:
            moved = self._move(failed, actor)
        except HoldfastError as exc:
            _log.error("%d requests wait to be resumed: %s", len(failed), type(exc).__name__)
            ids = [item.intake.rewrite_request_id for item in decisions]
            return {request_id: Answer(request_id, None, Status.QUEUED) for request_id in ids}
        self._announce(moved)
        return moved.answers

    def _move(self, decisions: Sequence[Decision], actor: Actor | None) -> Moved:
        # Ids are assigned once: a repeated transaction writes the same jobs.
        job_ids = dict(
            zip(
                (item.intake.rewrite_request_id for item in decisions),
                self.hf.ids.take(len(decisions)),
                strict=True,
            )
        )
        self.hf.sync()
        with self._traced() as traceparent:
            for _ in range(CADENCE_LOOKS):
                try:
                    return self.hf.store.write(
                        lambda tx: enqueue_rewrites(
                            tx,
                            self.hf,
                            decisions,
                            job_ids=job_ids,
                            actor=actor,
                            producer=self._producer,
                            traceparent=traceparent,
                        )
                    )
                except RuleBroken as exc:
                    if exc.rule != CADENCE_RULE:
                        raise
        raise StoreBusy("Concurrent requests keep changing the weeks of these senders. Try again.")

    # -- events

    @contextmanager
    def _traced(self) -> Iterator[str | None]:
        """Run inside the span of an enqueue, if tracing is enabled."""
        tracing = self.hf.tracing
        if tracing is None:
            yield None
            return
        with tracing.enqueueing(JOB_TYPE, (), {}) as producing:
            yield producing.options.get("traceparent")

    def _announce(self, moved: Moved) -> None:
        if moved.enqueued:
            self.hf.store.announce(moved.batch.queues)
            self._tell(events_of([moved.batch], moved.enqueued))
        self._tell(_advanced(item) for item in moved.decisions)

    def _tell(self, events: Iterable[Event]) -> None:
        if self.hf.events.subscribers:
            for event in events:
                self.hf.events.emit(event)


def _check_tenant(given: Sequence[Given]) -> None:
    """Check that a job submits in its own tenant only."""
    running = current.get()
    if running is not None and any(item.home_id != running.org_id for item in given):
        raise Forbidden(
            f"Job {running.id} of tenant {running.org_id} cannot submit for another tenant."
        )


def _complain(exc: Exception) -> None:
    # Only the type: the exception of third-party code may quote anything.
    _log.error("directory lookup failed: %s", type(exc).__name__)


def _captured(household: Household | None) -> Captured | None:
    if household is None or household.sender is None or household.recipient is None:
        return None
    sender, recipient = household.sender, household.recipient
    return Captured(
        HomeRole(sender.role),
        HomeRole(recipient.role),
        sender.locale,
        recipient.locale,
        dict(household.answers),
    )


def _received(item: Received) -> RewriteMoved:
    step = Step.QUEUED if item.failure is None else Step.FAILED
    home_id, surface = item.given.home_id, item.given.surface
    return RewriteMoved(item.rewrite_request_id, home_id, step, surface, code=item.failure)


def _advanced(item: Decision) -> RewriteMoved:
    return RewriteMoved(
        item.intake.rewrite_request_id,
        item.intake.home_id,
        item.step,
        item.intake.surface,
        item.strength,
        None if item.locales is None else item.locales.lane,
        item.failure,
    )
