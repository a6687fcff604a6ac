"""Holdfast for one tenant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Unpack

from holdfast.arguments import checked, uuid
from holdfast.config import DEFAULT_ORG, Settings
from holdfast.engine.bounded_run import Runs
from holdfast.engine.cancel import CancelAnswer
from holdfast.engine.enqueue import Enqueued
from holdfast.engine.job import Job, current
from holdfast.engine.request import JobRequest, Options
from holdfast.errors import InvalidArgument

if TYPE_CHECKING:
    from holdfast.app import Holdfast


def with_default_org(settings: Settings, *, always: bool = False) -> Settings:
    """Add a default tenant to the settings of an embedded database, or with *always* of any."""
    if always or settings.db.startswith("sqlite"):
        return replace(settings, default_org=settings.default_org or DEFAULT_ORG)
    is_built_in = settings.default_org == DEFAULT_ORG
    return replace(settings, default_org=None) if is_built_in else settings


def tenant_of(settings: Settings, org_id: str | None) -> str:
    """The tenant of a call: the one passed, that of the running job, or the default."""
    running = current.get()
    found = org_id or (running.org_id if running else settings.default_org)
    if found is None:
        raise InvalidArgument({"org_id": "must name a tenant; the setting default_org gives one"})
    return found


@checked(checks={"job_id": uuid}, without=("enqueue", "enqueue_many", "notify"))
@dataclass(frozen=True, slots=True)
class Tenant:
    """A Holdfast instance that is bound to one tenant."""

    holdfast: Holdfast
    org_id: str

    @property
    def runs(self) -> Runs:
        """Refuse every call: runs belong to no tenant. Attempts to start one are audited."""
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
