"""Calls of Holdfast about jobs that exist: read, await, wake and cancel them, send them events."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from holdfast.actor import read_actor
from holdfast.arguments import anything, checked, each, name, number, string, uuid
from holdfast.config import Settings
from holdfast.engine.cancel import CancelAnswer, cancel_job
from holdfast.engine.handler import Registry
from holdfast.engine.job import SYSTEM, Actor, Job, KeyRecord
from holdfast.engine.lookup import find_job, find_key
from holdfast.extension import Extensions
from holdfast.store import Store
from holdfast.tenant import tenant_of

if TYPE_CHECKING:
    from holdfast.engine.job_result import ResultWaiter

LONGEST_WAIT = 366 * 86_400.0


@checked(
    checks={
        "job_id": uuid,
        "reason": string,
        "timeout": number(0, LONGEST_WAIT),
        "options": anything,
        # Checked by the extension.
        **dict.fromkeys(("name", "payload", "workflow_id", "key"), anything),
        "queues": each(name),
    },
)
class JobLookup:
    """The part of :class:`Holdfast` that is about jobs that exist."""

    settings: Settings
    registry: Registry
    extensions: Extensions

    _waiter: ResultWaiter[Job] | None = None
    _waiter_lock = threading.Lock()

    @property
    def store(self) -> Store:
        """The open store."""
        raise NotImplementedError

    def get(self, job_id: str, *, org_id: str | None = None) -> Job:
        """Return a job. Raises JobNotFound, also for a job of another tenant."""
        return find_job(self.store, tenant_of(self.settings, org_id), job_id)

    async def aget(self, job_id: str, *, org_id: str | None = None) -> Job:
        """The asynchronous form of :meth:`get`."""
        return await asyncio.to_thread(self.get, job_id, org_id=org_id)

    def find_key(
        self,
        job_type: str,
        idempotency_key: str,
        *,
        org_id: str | None = None,
        project_id: str | None = None,
    ) -> KeyRecord | None:
        """Return the record of an idempotency key; None if it is unknown or has expired."""
        tenant = tenant_of(self.settings, org_id)
        return find_key(self.store, job_type, tenant, project_id, idempotency_key)

    def cancel(
        self,
        job_id: str,
        *,
        org_id: str | None = None,
        actor: Actor | str = SYSTEM,
        reason: str = "",
    ) -> CancelAnswer:
        """Cancel a job: at once if it is waiting, at its next step if it is running."""
        tenant, who, known = tenant_of(self.settings, org_id), read_actor(actor), self.registry
        return cancel_job(
            self.store, org_id=tenant, job_id=job_id, actor=who, reason=reason, registry=known
        )

    async def acancel(
        self,
        job_id: str,
        *,
        org_id: str | None = None,
        actor: Actor | str = SYSTEM,
        reason: str = "",
    ) -> CancelAnswer:
        """The asynchronous form of :meth:`cancel`."""
        return await asyncio.to_thread(
            self.cancel, job_id, org_id=org_id, actor=actor, reason=reason
        )

    def wake(self, queues: Sequence[str]) -> None:
        """Wake idle workers of *queues* now instead of at their next poll.

        Call it after committing a transaction that enqueued with ``conn=``. Otherwise such jobs
        start up to ``poll_seconds`` later. It is a hint and may be lost.
        """
        self.store.announce(sorted(set(queues)))

    def send_event(
        self,
        name: str,
        payload: Any = None,
        *,
        job_id: str | None = None,
        workflow_id: str | None = None,
        key: str | None = None,
        org_id: str | None = None,
        actor: Actor | str = SYSTEM,
    ) -> bool:
        """Send an event to a job, a workflow or a key; return whether a job waited for it.

        One ``job.wait_for(name)`` receives it. If none waits yet, the next one receives it.
        """
        found: bool = self.extensions.get("workflows").send_event(  # type: ignore[attr-defined]
            name,
            payload,
            job_id=job_id,
            workflow_id=workflow_id,
            key=key,
            org_id=org_id,
            actor=actor,
        )
        return found

    async def asend_event(self, name: str, payload: Any = None, **options: Any) -> bool:
        """The asynchronous form of :meth:`send_event`."""
        return await asyncio.to_thread(self.send_event, name, payload, **options)

    def wait_result(
        self, job_id: str, org_id: str | None = None, timeout: float | None = None
    ) -> Any:
        """Wait for a job and return its result, like ``handle.result()``."""
        from holdfast.engine.job_result import result_of

        future = self._results().wait_for(tenant_of(self.settings, org_id), job_id)
        try:
            return result_of(future.result(timeout))
        except TimeoutError:
            if not future.done():
                future.cancel()
                raise TimeoutError(f"Job {job_id} has not ended within {timeout:g} s.") from None
            raise

    async def await_result(self, job_id: str, org_id: str | None = None) -> Any:
        """Wait for a job without blocking the event loop, like ``await handle``."""
        from holdfast.engine.job_result import result_of

        future = self._results().wait_for(tenant_of(self.settings, org_id), job_id)
        return result_of(await asyncio.wrap_future(future))

    def _results(self) -> ResultWaiter[Job]:
        from holdfast.engine.job_result import ResultWaiter
        from holdfast.engine.lookup import SQL

        store = self.store
        with self._waiter_lock:
            if self._waiter is None or self._waiter.store is not store:
                self._waiter = ResultWaiter(store, SQL.list_ended, find_job)
            return self._waiter
