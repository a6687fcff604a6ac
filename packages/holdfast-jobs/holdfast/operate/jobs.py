"""Jobs: list, inspect, enqueue, cancel and explain them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Unpack

from holdfast.arguments import anything, checked, each, instance
from holdfast.document import decode
from holdfast.engine.audit import JOB_SQL
from holdfast.engine.cancel import CancelAnswer
from holdfast.engine.category_rules import SQL as NOTES_SQL
from holdfast.engine.enqueue import Enqueued
from holdfast.engine.handler import EnqueueRefused
from holdfast.engine.job import Job, State
from holdfast.engine.lookup import SQL as LOOKUP_SQL
from holdfast.engine.request import JobRequest, Options
from holdfast.errors import InvalidJob, JobNotFound
from holdfast.ids import MalformedId, read_named_id
from holdfast.operate.audit import AuditEvent
from holdfast.operate.authorization import Action, OperatorContext
from holdfast.operate.bulk_job import JOB_TYPE as BULK_ACTION
from holdfast.operate.cancel import cancel_job
from holdfast.operate.cancel_all import LONGEST as LONGEST_CANCEL
from holdfast.operate.cancel_all import CancelAllAnswer, cancel_matching
from holdfast.operate.explain import explain_job
from holdfast.operate.explanation import Explanation
from holdfast.operate.job_rows import SQL, JobFilter, JobRow, attempts_made, list_jobs
from holdfast.operate.locate import locate_job
from holdfast.operate.page import NEWEST, Page
from holdfast.operate.refusal import InvalidAction
from holdfast.operate.short_ids import JOBS
from holdfast.store import Row, Tx

__all__ = [
    "EventNote",
    "JobCount",
    "JobFilter",
    "JobRequest",
    "JobRow",
    "JobView",
    "Jobs",
    "attempts_made",
]

# A payload and a result may be private.
_PRIVATE = ("payload", "result")


@dataclass(frozen=True, slots=True)
class EventNote:
    """A note that audit enrichment added to an event of a job."""

    event_id: int
    event_name: str
    job_id: str
    name: str
    note: Any
    created_at: str


@dataclass(frozen=True, slots=True)
class JobView:
    """One job with its timeline. *record* has every column but the payload and the result."""

    id: str
    org_id: str
    record: Mapping[str, Any]
    events: tuple[AuditEvent, ...]
    notes: tuple[EventNote, ...]
    dead_letter: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class JobCount:
    """How many jobs are in one state and queue, and how many of them need an operator.

    A failed job needs one until its replay starts again, or its dead letter is closed.
    """

    state: str
    queue: str
    jobs: int
    problems: int = 0


@checked(
    InvalidAction,
    checks={
        "wanted": instance(JobFilter),
        "requests": each(instance(JobRequest)),
        # Checked by the method, so that a refusal is audited, or by the enqueue itself.
        **dict.fromkeys(
            ("enqueue.job_type", "enqueue_many.job_type", "payload", "enqueue.org_id", "reason"),
            anything,
        ),
    },
)
class Jobs:
    """The jobs that the actor of *context* may see."""

    id_space = JOBS

    def __init__(self, context: OperatorContext) -> None:
        self.context = context

    def list(
        self, wanted: JobFilter | None = None, *, limit: int = 50, before: str = NEWEST
    ) -> Page[JobRow]:
        """Jobs, newest first."""
        return list_jobs(self.context, wanted, limit=limit, before=before)

    def get(self, job_id: str) -> JobView:
        """One job with its timeline and dead letter. Raises JobNotFound for another tenant's."""
        org_id, job_id = locate_job(self.context, Action.LOOK, job_id)
        return self.context.store.read(lambda tx: _view(tx, org_id, job_id))

    def counts(self, *, org_id: str | None = None) -> tuple[JobCount, ...]:
        """Job counts by state and queue, with the failed jobs that need an operator."""
        org_id = self.context.tenant_for(Action.LOOK, org_id, subject="jobs")

        def look(tx: Tx) -> tuple[list[Row], int]:
            if org_id is None:
                rows = tx.many(SQL.count_all_jobs)
            else:
                rows = tx.many(SQL.count_jobs, org_id=org_id)
            return rows, tx.one(SQL.count_problems, org_id=org_id)["jobs"]

        rows, problems = self.context.store.read(look)
        return tuple(
            JobCount(
                row["state"],
                row["queue"],
                row["jobs"],
                problems if row["state"] == State.FAILED else 0,
            )
            for row in rows
        )

    def explain(self, job_id: str) -> Explanation:
        """Explain why a job is in its state, and what has to happen next."""
        return explain_job(self.context, job_id)

    def cancel(self, job_id: str, *, reason: str) -> CancelAnswer:
        """Cancel a job: at once if it is waiting, at its next step if it is running."""
        return cancel_job(self.context, job_id, reason=reason)

    def cancel_all(
        self,
        wanted: JobFilter,
        *,
        reason: str,
        is_dry_run: bool = False,
        limit: int = LONGEST_CANCEL,
    ) -> CancelAllAnswer:
        """Cancel all waiting and running jobs that match; a dry run counts them.

        The filter must have a condition. Jobs that ended meanwhile are counted as too late.
        """
        return cancel_matching(
            self.context, wanted, reason=reason, is_dry_run=is_dry_run, limit=limit
        )

    def enqueue(
        self,
        job_type: str,
        payload: Mapping[str, Any],
        *,
        org_id: str | None = None,
        **options: Unpack[Options],
    ) -> Enqueued:
        """Enqueue one job as the actor of the context.

        *org_id* is the tenant of the job, by default that of the context or of the settings.
        *options* are those of :meth:`Holdfast.enqueue`, except ``actor`` and ``conn``.
        """
        if {"actor", "conn"} & set(options):
            raise InvalidAction(
                {"options": ("actor and conn come from the operator context and cannot be passed")}
            )
        try:
            tenant = self.context.org_id if org_id is None else read_named_id(org_id)
            tenant = tenant or self.context.app.settings.default_org
        except MalformedId as exc:
            raise InvalidJob({"org_id": str(exc)}) from None
        if tenant is None:
            raise InvalidJob({"org_id": "must name the tenant of the job"})
        self._check_enqueue(job_type, tenant)
        options["actor"] = self.context.actor
        return self.context.app.enqueue(job_type, payload, org_id=tenant, **options)

    def enqueue_many(self, job_type: str, requests: Sequence[JobRequest]) -> Sequence[Enqueued]:
        """Enqueue jobs of one type as the actor of the context: all of them or none.

        The tenant of each is that of its request.
        """
        for org_id in sorted({str(request.org_id) for request in requests}):
            with suppress(MalformedId):  # The enqueue refuses it.
                org_id = read_named_id(org_id)
            self._check_enqueue(job_type, org_id)
        own = [replace(request, actor=self.context.actor) for request in requests]
        return self.context.app.enqueue_many(job_type, own)

    def _check_enqueue(self, job_type: str, org_id: str) -> None:
        self.context.check(Action.ENQUEUE, org_id=org_id, subject="jobs")
        if job_type == BULK_ACTION:
            refusal = EnqueueRefused(job_type, "operator.bulk_actions.start(…)")
            self.context.refuse(Action.ENQUEUE, refusal, org_id=org_id, subject="jobs")


def _view(tx: Tx, org_id: str, job_id: str) -> JobView:
    row = tx.maybe(LOOKUP_SQL.find_with_progress, org_id=org_id, id=job_id)
    if row is None:
        raise JobNotFound(job_id)
    key = {"org_id": org_id, "job_id": job_id}
    letter = tx.maybe(JOB_SQL.find_dead_letter, **key)
    if letter is not None:
        letter = {**letter, "sanitized_context": decode(letter["sanitized_context"])}
    notes = tx.many(NOTES_SQL.list_notes, org_id=org_id, subject_id=job_id)
    record = dict(Job.from_row(row).record)
    if record["progress"] is None:
        del record["progress"]
    shown = {name: value for name, value in record.items() if name not in _PRIVATE}
    return JobView(
        job_id,
        org_id,
        shown,
        tuple(AuditEvent.from_row(event) for event in tx.many(JOB_SQL.list_events, **key)),
        tuple(EventNote(**{**note, "note": decode(note["note"])}) for note in notes),
        letter,
    )
