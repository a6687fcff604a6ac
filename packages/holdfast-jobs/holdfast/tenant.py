"""Holdfast for one tenant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

from holdfast.arguments import checked, uuid
from holdfast.engine.bounded_run import Runs
from holdfast.engine.cancel import CancelAnswer
from holdfast.engine.enqueue import Enqueued
from holdfast.engine.job import Job
from holdfast.engine.request import JobRequest, Options

if TYPE_CHECKING:
    from holdfast.app import Holdfast


@checked(checks={"job_id": uuid}, without=("enqueue", "enqueue_many", "notify"))
@dataclass(frozen=True, slots=True)
class Tenant:
    """Holdfast bound to one tenant."""

    holdfast: Holdfast
    org_id: str

    @property
    def runs(self) -> Runs:
        """A tenant has none: every call is refused, and the attempt to start one is audited."""
        return Runs(self.holdfast, self.org_id)

    def enqueue(
        self, job_type: str, payload: Mapping[str, Any], **options: Unpack[Options]
    ) -> Enqueued:
        """:meth:`Holdfast.enqueue` for this tenant."""
        return self.holdfast.enqueue(job_type, payload, org_id=self.org_id, **options)

    def enqueue_many(
        self,
        job_type: str,
        payloads: Iterable[Mapping[str, Any] | JobRequest],
        **options: Unpack[Options],
    ) -> list[Enqueued]:
        """:meth:`Holdfast.enqueue_many` for this tenant."""
        return self.holdfast.enqueue_many(job_type, payloads, org_id=self.org_id, **options)

    def notify(
        self, job_type: str, payload: Mapping[str, Any], **options: Unpack[Options]
    ) -> Enqueued | None:
        """:meth:`Holdfast.notify` for this tenant."""
        return self.holdfast.notify(job_type, payload, org_id=self.org_id, **options)

    def get(self, job_id: str) -> Job:
        """:meth:`Holdfast.get` for this tenant."""
        return self.holdfast.get(job_id, org_id=self.org_id)

    def cancel(self, job_id: str, **options: Any) -> CancelAnswer:
        """:meth:`Holdfast.cancel` for this tenant."""
        return self.holdfast.cancel(job_id, org_id=self.org_id, **options)
