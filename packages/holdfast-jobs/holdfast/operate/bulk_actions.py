"""Bulk actions: start one as a job of its own, and follow its progress."""

from __future__ import annotations

from typing import Any

from holdfast.arguments import checked, identifier, instance, text, whole
from holdfast.engine.audit import JOB_SQL, PLATFORM_ORG
from holdfast.engine.job import Job
from holdfast.engine.lookup import find_key
from holdfast.errors import JobNotFound
from holdfast.operate.authorization import Action, OperatorContext
from holdfast.operate.bulk_action import (
    BulkAction,
    BulkRequest,
    CancelAction,
    DeliveryAction,
    LetterAction,
    StoredAction,
)
from holdfast.operate.bulk_job import JOB_TYPE, sign
from holdfast.operate.jobs import JobFilter
from holdfast.operate.locate import locate_job
from holdfast.operate.overview import Overview
from holdfast.operate.page import Page
from holdfast.operate.refusal import (
    BulkActionNotFound,
    CountChanged,
    InvalidAction,
    KeyReused,
    NothingMatches,
)
from holdfast.operate.short_ids import JOBS
from holdfast.store import Tx

__all__ = ["BulkAction", "BulkActions", "CancelAction", "DeliveryAction", "LetterAction"]


@checked(
    InvalidAction,
    checks={
        "request": instance(LetterAction, DeliveryAction, CancelAction),
        "expected": whole(0),
        "tolerance": whole(0),
        "request_id": text,
        "action_id": identifier,
        "before": text,
    },
)
class BulkActions:
    """The bulk actions that the actor of *context* may see."""

    id_space = JOBS

    def __init__(self, context: OperatorContext) -> None:
        self.context = context

    def start(
        self,
        request: BulkRequest,
        *,
        expected: int,
        tolerance: int = 0,
        idempotency_key: str | None = None,
        request_id: str | None = None,
    ) -> BulkAction:
        """Start a job that acts on every item that matches, in the role of the context.

        *expected* is the number of matching items that a dry run showed. Raises CountChanged if
        there are more than that and *tolerance*. With a known *idempotency_key* the action that it
        started is returned. Items that are created later are left out.
        """
        if not str(request.wanted):
            raise InvalidAction({"filter": "is empty and would match everything; name a condition"})
        pages = request.pages(self.context, {})
        org_id = self.context.org_id or PLATFORM_ORG
        if (known := self._known(org_id, idempotency_key, request)) is not None:
            return known
        found = pages.count()
        start = pages.first_cursor()
        if found.matched == 0 and not found.is_capped:
            raise NothingMatches(str(request.wanted), request.subject.replace("_", " "))
        if found.matched > expected + tolerance:
            raise CountChanged(found.matched, expected)
        own = self.context.role, self.context.org_id
        stored = StoredAction(request, *own, found.matched, found.ready, found.is_capped, start)
        options: dict[str, Any] = {"actor": self.context.actor}
        if idempotency_key is not None:
            options["idempotency_key"] = idempotency_key
        if request_id is not None:
            options["request_id"] = request_id
        payload = sign(self.context.store, org_id, self.context.actor, stored.payload())
        made = self.context.app.enqueue(JOB_TYPE, payload, org_id=org_id, **options)
        if not made.created and (known := self._known(org_id, idempotency_key, request)):
            return known
        return self._read(org_id, made.id)

    def _known(
        self, org_id: str, idempotency_key: str | None, request: BulkRequest
    ) -> BulkAction | None:
        """The action that the key started. Raises KeyReused if it was another one."""
        if idempotency_key is None:
            return None
        found = find_key(self.context.store, JOB_TYPE, org_id, None, idempotency_key)
        if found is None:
            return None
        action = self._read(org_id, found.job_id)
        same = {"subject": request.subject, "action": request.action, "reason": request.reason}
        if any(
            action.request[name] != value for name, value in (same | request.document()).items()
        ):
            raise KeyReused
        return action

    def get(self, action_id: str) -> BulkAction:
        """One bulk action. Raises BulkActionNotFound, also for another tenant's."""
        try:
            org_id, job_id = locate_job(self.context, Action.LOOK, action_id)
            return self._read(org_id, job_id)
        except JobNotFound:
            raise BulkActionNotFound(action_id) from None

    def list(self, *, limit: int = 50, before: str | None = None) -> Page[BulkAction]:
        """Bulk actions, newest first. A page reads a bounded number of jobs and may be short."""
        wanted = JobFilter(job_type=JOB_TYPE)
        found = Overview(self.context).search(wanted, limit=limit, before=before)
        return Page(tuple(self._read(job.org_id, job.id) for job in found), found.next)

    def _read(self, org_id: str, job_id: str) -> BulkAction:
        def look(tx: Tx) -> BulkAction:
            row = tx.maybe(JOB_SQL.find_job, org_id=org_id, id=job_id)
            if row is None or row["job_type"] != JOB_TYPE:
                raise JobNotFound(job_id)
            stages = tx.many(JOB_SQL.list_stages, jobs=[{"org_id": org_id, "id": job_id}])
            return BulkAction.from_rows(Job.from_row(row).record, stages)

        return self.context.store.read(look)
