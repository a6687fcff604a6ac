"""Workflows: the enabled extension, for applications and for jobs."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from holdfast.actor import SYSTEM, Actor, read_actor
from holdfast.document import BadDocument, encode
from holdfast.engine import validation
from holdfast.engine.context import Context
from holdfast.engine.due import read_delay
from holdfast.engine.job_result import ResultWaiter
from holdfast.engine.worker.housekeeping import Chore
from holdfast.errors import ConfigError, InvalidJob
from holdfast.ids import uuid_argument
from holdfast.secret import may_hold_secret
from holdfast.store import Row, Tx
from holdfast.store.caller_connection import arun_borrowed, is_awaiting, run, run_borrowed
from holdfast.tenant import tenant_of
from holdfast.workflows import wait
from holdfast.workflows.cancel import cancel_workflow
from holdfast.workflows.cleanup import upkeep
from holdfast.workflows.enqueue import SQL, Stored, WorkflowRows, make_rows, store_steps
from holdfast.workflows.extension import WorkflowsExtension
from holdfast.workflows.graph import Workflow
from holdfast.workflows.handle import (
    EnqueuedWorkflow,
    WorkflowDetail,
    WorkflowFailed,
    WorkflowState,
    find_workflow,
    read_results,
)

if TYPE_CHECKING:
    from holdfast.app import Holdfast

EVENT_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.:-]{0,99}")
LONGEST_KEY = 200
UPKEEP_SECONDS = 15.0


class Workflows(WorkflowsExtension):
    """The workflows of one application."""

    _app: Holdfast

    def __init__(self) -> None:
        self._waiter: ResultWaiter[WorkflowDetail] | None = None
        self._lock = threading.Lock()

    def install(self, app: Holdfast) -> None:
        self._app = app

    def maintenance(self, app: Holdfast) -> Sequence[Chore]:
        """Cancel overdue steps and prune, in a separate thread."""
        every = min(app.settings.rescue_seconds, UPKEEP_SECONDS)
        return [Chore("workflows", every, lambda: upkeep(app), lambda: upkeep(app))]

    def for_job(self, job: Context) -> StepContext:
        """What ``job.results`` and ``job.wait_for`` use."""
        return StepContext(job)

    def enqueue(
        self,
        workflow: Workflow,
        *,
        org_id: str | None = None,
        conn: Any = None,
        key: str | None = None,
        project_id: str | None = None,
        actor: Actor | str = SYSTEM,
        correlation_id: str | None = None,
    ) -> EnqueuedWorkflow:
        """Store a workflow and enqueue its first steps, like ``workflow.enqueue()``."""
        app = self._app
        rows = self._rows(workflow, org_id, key, project_id, actor, correlation_id)
        if conn is None:
            app.sync()
            stored = app.store.write(lambda tx: run(tx, self._steps(rows, is_borrowed=False)))
        else:
            if is_awaiting(conn):
                raise ConfigError(
                    "This connection must be awaited: await workflow.aenqueue(conn=connection)."
                )
            app.sync(borrowed=True)
            stored = run_borrowed(conn, app.clock, self._borrowed(conn, rows), rows.first.queues)
        return self._handle(workflow, rows, stored, is_committed=conn is None)

    async def aenqueue(
        self,
        workflow: Workflow,
        *,
        org_id: str | None = None,
        conn: Any = None,
        key: str | None = None,
        project_id: str | None = None,
        actor: Actor | str = SYSTEM,
        correlation_id: str | None = None,
    ) -> EnqueuedWorkflow:
        """The asynchronous form of :meth:`enqueue`."""
        given = (org_id, key, project_id, actor, correlation_id)
        if conn is None or not is_awaiting(conn):
            return await asyncio.to_thread(
                self.enqueue,
                workflow,
                org_id=org_id,
                conn=conn,
                key=key,
                project_id=project_id,
                actor=actor,
                correlation_id=correlation_id,
            )
        rows = await asyncio.to_thread(self._rows, workflow, *given)
        await asyncio.to_thread(self._app.sync, borrowed=True)
        steps = self._borrowed(conn, rows)
        stored = await arun_borrowed(conn, self._app.clock, steps, rows.first.queues)
        return self._handle(workflow, rows, stored, is_committed=False)

    def _rows(
        self,
        workflow: Workflow,
        org_id: str | None,
        key: str | None,
        project_id: str | None,
        actor: Actor | str,
        correlation_id: str | None,
    ) -> WorkflowRows:
        errors = dict[str, str]()
        key = None if key is None else validation.text("key", key, errors)
        if errors:
            raise InvalidJob(errors)
        return make_rows(
            self._app,
            workflow,
            org_id=tenant_of(self._app.settings, org_id),
            key=key,
            project_id=project_id,
            actor=read_actor(actor),
            correlation_id=correlation_id,
        )

    def _handle(
        self, workflow: Workflow, rows: WorkflowRows, stored: Stored, *, is_committed: bool
    ) -> EnqueuedWorkflow:
        """Announce the first jobs of a stored workflow, and return its handle."""
        if stored.enqueued:
            self._app.announce([rows.first], stored.enqueued, is_committed=is_committed)
        job_ids: dict[str, list[str]] = {}
        for item in rows.items if stored.created else ():
            job_ids.setdefault(item["step"], []).append(item["job_id"])
        return EnqueuedWorkflow(
            stored.id,
            rows.workflow["org_id"],
            workflow.name,
            stored.created,
            {step: tuple(ids) for step, ids in job_ids.items()},
            self,
        )

    def _steps(self, rows: WorkflowRows, *, is_borrowed: bool) -> Any:
        return store_steps(rows, self._app.store.dialect, is_borrowed=is_borrowed)

    def _borrowed(self, conn: Any, rows: WorkflowRows) -> Any:
        yield from self._app.declared_steps(conn)
        stored: Stored = yield from self._steps(rows, is_borrowed=True)
        return stored

    def get(self, workflow_id: str, *, org_id: str | None = None) -> WorkflowDetail:
        """A workflow with its steps. Raises WorkflowNotFound, also for another tenant's."""
        tenant = tenant_of(self._app.settings, org_id)
        return find_workflow(self._app.store, tenant, uuid_argument("workflow_id", workflow_id))

    def cancel(
        self,
        workflow_id: str,
        *,
        org_id: str | None = None,
        actor: Actor | str = SYSTEM,
        reason: str = "",
    ) -> int:
        """Cancel a workflow; return how many jobs were canceled or asked to stop."""
        found = self.get(workflow_id, org_id=org_id)
        return cancel_workflow(self._app, found, actor=read_actor(actor), reason=reason)

    def result_of(self, ended: WorkflowDetail) -> Any:
        """The result of an ended workflow. Raises WorkflowFailed."""
        if ended.state is not WorkflowState.COMPLETED:
            raise WorkflowFailed(ended)
        key = {"org_id": ended.org_id, "id": ended.id}

        def work(tx: Tx) -> dict[str, Any]:
            steps = tx.many(SQL.list_last, **key)
            return read_results(tx, ended.org_id, ended.id, steps)

        found = self._app.store.read(work)
        return next(iter(found.values())) if len(found) == 1 else found

    @property
    def waiter(self) -> ResultWaiter[WorkflowDetail]:
        """Waits for ended workflows, in one thread for all of them."""
        store = self._app.store
        with self._lock:
            if self._waiter is None or self._waiter.store is not store:
                self._waiter = ResultWaiter(store, SQL.list_ended, find_workflow)
            return self._waiter

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
        reason: str = "",
    ) -> bool:
        """Send an event, like ``hf.send_event()``. *reason* is kept in the audit."""
        app = self._app
        targets = {"job_id": job_id, "workflow_id": workflow_id, "key": key}
        given = [target for target, value in targets.items() if value is not None]
        if len(given) != 1:
            raise InvalidJob({"target": "must be one of job_id, workflow_id and key"})
        event = wait.NewEvent(
            app.ids.new(),
            tenant_of(app.settings, org_id),
            read_event_name(name),
            self._payload(payload),
            read_actor(actor),
            None if job_id is None else uuid_argument("job_id", job_id),
            None if workflow_id is None else uuid_argument("workflow_id", workflow_id),
            read_event_key(key),
            reason,
        )
        return wait.deliver(app, event)

    def _payload(self, payload: Any) -> str:
        try:
            text = encode(payload)
            size = len(text.encode())
        except (BadDocument, TypeError, ValueError) as exc:
            raise InvalidJob({"payload": f"must be JSON: {exc}"}) from None
        limit = self._app.settings.payload_limit_bytes
        if size > limit:
            raise InvalidJob({"payload": f"is larger than {limit} bytes"})
        if may_hold_secret(text):
            validation.refuse_secret(payload if isinstance(payload, Mapping) else {"": payload})
        return text


class StepContext:
    """What a running job knows about its workflow, and how it waits."""

    def __init__(self, job: Context) -> None:
        self._job = job
        self._results: dict[str, Any] | None = None
        self._waits = wait.Waits(job)

    @property
    def results(self) -> Mapping[str, Any]:
        """The results of the steps that this one depends on, by their names.

        The result of a mapped step is a list in the order of its items. A failed job that the
        workflow ignores has the result None. A job outside a workflow has no results.
        """
        if self._results is None:
            self._results = self._job.session.read(self._read_results)
        return self._results

    def _read_results(self, tx: Tx) -> dict[str, Any]:
        job = self._job.job
        mine = tx.maybe(SQL.find_item, org_id=job.org_id, job_id=job.replay_of or job.id)
        if mine is None:
            return {}
        key = {"org_id": job.org_id, "id": mine["workflow_id"]}
        needed = tx.many(SQL.list_needed, **key, step=mine["step"])
        return read_results(tx, job.org_id, str(mine["workflow_id"]), needed)

    @property
    def workflow_id(self) -> str | None:
        """The workflow that the job belongs to, if any."""
        job = self._job.job
        item: Row | None = self._job.store.maybe(
            SQL.find_item, org_id=job.org_id, job_id=job.replay_of or job.id
        )
        return None if item is None else str(item["workflow_id"])

    def wait_for(
        self, name: str, *, timeout: timedelta | float | str | None = None, key: str | None = None
    ) -> Any:
        """Wait for an event; see :meth:`Context.wait_for`."""
        named, found = read_event_name(name), _length("timeout", timeout)
        matched = read_event_key(key)
        return self._maybe_async(lambda: self._waits.wait_for(named, timeout=found, key=matched))

    def sleep(self, delay: timedelta | float | str) -> Any:
        """Sleep without a worker; see :meth:`Context.sleep`."""
        length = _length("delay", delay)
        return self._maybe_async(lambda: self._waits.sleep(length=length))

    def sleep_until(self, time: datetime) -> Any:
        """Sleep without a worker; see :meth:`Context.sleep_until`."""
        if not isinstance(time, datetime) or time.tzinfo is None:
            raise InvalidJob({"time": "must be an aware datetime, for example datetime.now(UTC)"})
        return self._maybe_async(lambda: self._waits.sleep(until=time))

    def _maybe_async(self, call: Any) -> Any:
        """Run *call*; on an event loop, return an awaitable that runs it in a thread."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return call()
        # Checked here: the thread is not the one that opened the transaction.
        if self._job.open_transaction() is not None:
            return call()
        return asyncio.to_thread(call)


def read_event_name(name: object) -> str:
    """The name of an event. Raises InvalidJob."""
    if not isinstance(name, str) or EVENT_NAME.fullmatch(name) is None:
        raise InvalidJob({"name": "must be letters, digits, '_', '.', ':' and '-', up to 100"})
    return name


def read_event_key(key: object) -> str | None:
    """The key of an event. Raises InvalidJob."""
    if key is None:
        return None
    if not isinstance(key, str) or not 1 <= len(key) <= LONGEST_KEY or not key.isprintable():
        raise InvalidJob({"key": f"must be printable text of up to {LONGEST_KEY} characters"})
    return key


def _length(name: str, value: object) -> timedelta | None:
    if value is None:
        return None
    try:
        return read_delay(value)
    except ValueError as exc:
        raise InvalidJob({name: str(exc)}) from None
