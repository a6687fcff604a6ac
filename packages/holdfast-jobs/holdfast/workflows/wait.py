"""Jobs that wait for an event or for a time, without a worker, a connection or a thread.

A wait is a row. The job is snoozed until the event arrives or the time is over, and its handler is
then called again from the beginning. Calls of wait_for that were answered return the same payload
again, so that the handler gets past them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from holdfast.actor import Actor
from holdfast.clock import ms, write_instant
from holdfast.document import decode
from holdfast.engine import audit
from holdfast.engine.audit import record_action
from holdfast.engine.await_event import AwaitEvent
from holdfast.engine.context import Context
from holdfast.engine.execute import LONGEST_SNOOZE
from holdfast.engine.job import SYSTEM
from holdfast.errors import JobNotFound, RuleViolated
from holdfast.store import Row, Statements, Store, Tx
from holdfast.workflows.enqueue import SQL as WORKFLOW_SQL
from holdfast.workflows.failure import WaitTimedOut
from holdfast.workflows.handle import WorkflowNotFound

if TYPE_CHECKING:
    from holdfast.app import Holdfast

SQL = Statements("holdfast.workflows", "wait.sql")
JOB_SQL = Statements("holdfast.engine", "job.sql")

# The name under which sleeps are stored. No event can have it.
SLEEP = "~sleep"


@dataclass(slots=True)
class Waits:
    """The waits of one execution of a handler."""

    context: Context
    # How often the handler has waited for each name.
    counts: dict[str, int] = field(default_factory=dict)

    def wait_for(self, name: str, *, timeout: timedelta | None, key: str | None) -> Any:
        """The payload of the event; raises Snooze until it arrives, and WaitTimedOut."""
        wait = self._next(name)
        targets = self._targets(key)

        def work(tx: Tx) -> Any:
            # Before the row of the job, as in send_event.
            tx.lock_units([lock_name(self.context.org_id, target) for target in targets])
            self.context.check_lease(tx)
            found = tx.maybe(SQL.find_wait, **wait)
            if found is None:
                made = {**wait, "workflow_id": _id_in(targets, "workflow:"), "event_key": key}
                made["timeout_ms"] = None if timeout is None else ms(timeout)
                tx.affected(SQL.insert_wait, made=[made])
                found = tx.one(SQL.find_wait, **wait)
            return self._answer(tx, wait, found, targets)

        answer = self._write(work)
        if answer is None:
            raise WaitTimedOut(name)
        return answer[0]

    def sleep(self, *, until: datetime | None = None, length: timedelta | None = None) -> None:
        """Return when the time is over; raises Snooze until then."""
        wait = self._next(SLEEP)

        def work(tx: Tx) -> tuple[Any] | None:
            self.context.check_lease(tx)
            found = tx.maybe(SQL.find_wait, **wait)
            if found is None:
                made = {
                    **wait,
                    "timeout_ms": None if length is None else ms(length),
                    "until": None if until is None else write_instant(until),
                }
                tx.affected(SQL.insert_wait, made=[made])
                found = tx.one(SQL.find_wait, **wait)
            if found["state"] == "waiting" and found["is_over"]:
                _end(tx, wait, "timed_out", is_read=1)
                return None
            return None if found["state"] != "waiting" else (found,)

        pending = self._write(work)
        if pending is not None:
            _snooze(pending[0])

    def _answer(
        self, tx: Tx, wait: dict[str, Any], found: Row, targets: Sequence[str]
    ) -> tuple[Any] | None:
        """The payload in a tuple, None after the timeout; or the row to snooze for."""
        if found["state"] == "timed_out":
            return None
        if found["state"] == "received":
            if not found["is_read"]:
                tx.affected(SQL.read_wait, **wait)
            return (decode(found["payload"]),)
        event = tx.maybe(
            SQL.take_event,
            org_id=wait["org_id"],
            job_id=wait["job_id"],
            name=wait["name"],
            targets=[{"target": target} for target in targets],
        )
        if event is not None:
            _end(tx, wait, "received", event["payload"], str(event["id"]), is_read=1)
            return (decode(event["payload"]),)
        if found["is_over"]:
            _end(tx, wait, "timed_out", is_read=1)
            return None
        return (Pending(found),)

    def _write(self, work: Any) -> Any:
        if self.context.open_transaction() is not None:
            raise RuleViolated(
                "A job cannot wait inside job.transaction(), because the wait ends the execution"
                " and the block would be rolled back. Wait before or after the block.",
                transaction="open",
            )
        answer = self.context.store.write(work)
        if isinstance(answer, tuple) and isinstance(answer[0], Pending):
            _snooze(answer[0].row)
        return answer

    def _next(self, name: str) -> dict[str, Any]:
        job = self.context.job
        self.counts[name] = self.counts.get(name, 0) + 1
        return {
            "org_id": job.org_id,
            "job_id": job.replay_of or job.id,
            "stage": job.stage,
            "name": name,
            "number": self.counts[name],
        }

    def _targets(self, key: str | None) -> list[str]:
        job = self.context.job
        first = job.replay_of or job.id
        found = [f"job:{first}"]
        item = self.context.store.maybe(WORKFLOW_SQL.find_item, org_id=job.org_id, job_id=first)
        if item is not None:
            found.append(f"workflow:{item['workflow_id']}")
        if key is not None:
            found.append(f"key:{key}")
        return found


@dataclass(frozen=True, slots=True)
class Pending:
    """A wait that is not over."""

    row: Row


def _snooze(row: Row) -> NoReturn:
    pause = LONGEST_SNOOZE
    if row["deadline_at"] is not None:
        pause = max(timedelta(milliseconds=-float(row["over_ms"])), timedelta(milliseconds=1))
    raise AwaitEvent(min(pause, LONGEST_SNOOZE))


def _end(
    tx: Tx,
    wait: dict[str, Any],
    state: str,
    payload: Any = None,
    event_id: str | None = None,
    *,
    is_read: int,
) -> None:
    tx.affected(
        SQL.end_wait, **wait, state=state, payload=payload, event_id=event_id, is_read=is_read
    )


def _id_in(targets: Sequence[str], prefix: str) -> str | None:
    return next((one.removeprefix(prefix) for one in targets if one.startswith(prefix)), None)


def lock_name(org_id: str, target: str) -> str:
    """The lock that a wait for a target and an event to it share."""
    return f"event:{org_id}:{target}"


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event to send. One of the three targets is given."""

    id: str
    org_id: str
    name: str
    payload: str
    actor: Actor
    job_id: str | None = None
    workflow_id: str | None = None
    key: str | None = None
    reason: str = ""


def deliver(app: Holdfast, event: NewEvent) -> bool:
    """Store an event, and wake the job that waits for it. Returns whether there is one."""
    queues: set[str] = set()

    def work(tx: Tx) -> bool:
        queues.clear()
        first_id, target = _resolve(tx, event)
        tx.lock_units([lock_name(event.org_id, target)])
        asked = {
            "org_id": event.org_id,
            "name": event.name,
            "job_id": first_id,
            "workflow_id": event.workflow_id,
            "event_key": event.key,
        }
        found = tx.maybe(SQL.find_waiting, **asked)
        made = {
            "org_id": event.org_id,
            "id": event.id,
            "name": event.name,
            "target": target,
            "payload": event.payload,
            "actor_type": event.actor.type,
            "actor_id": event.actor.id,
            "received_by": None if found is None else found["job_id"],
        }
        tx.affected(SQL.insert_event, made=[made])
        if found is not None:
            series = {"org_id": event.org_id, "first_id": found["job_id"]}
            # A settle that snoozes the job ends before, or finds the received wait after it.
            tx.many(SQL.hold_jobs, **series)
            wait = {
                "org_id": event.org_id,
                "job_id": found["job_id"],
                "stage": found["stage"],
                "name": event.name,
                "number": found["number"],
            }
            _end(tx, wait, "received", event.payload, event.id, is_read=0)
            woken = tx.many(SQL.wake_job, **series)
            if woken:
                rows = tx.many(JOB_SQL.count_attempts, jobs=woken)
                audit.record(tx, SYSTEM, [_woken(event.org_id, row) for row in rows])
            queues.update(str(row["queue"]) for row in woken)
        detail: dict[str, Any] = {"event": event.name, "event_id": event.id}
        detail |= {"received": found is not None} | (
            {"reason": event.reason} if event.reason else {}
        )
        record_action(
            tx, event.actor, subject=target, name="event.sent", detail=detail, org_id=event.org_id
        )
        return found is not None

    is_received = app.store.write_soon(work)
    if queues:
        app.store.announce(sorted(queues))
    return is_received


def _resolve(tx: Tx, event: NewEvent) -> tuple[str | None, str]:
    """The first job of the series and the target. Raises JobNotFound and WorkflowNotFound."""
    if event.job_id is not None:
        job = tx.maybe(SQL.find_first, org_id=event.org_id, job_id=event.job_id)
        if job is not None:
            return str(job["first_id"]), f"job:{job['first_id']}"
        # The job of a step that is not released yet.
        step = tx.maybe(WORKFLOW_SQL.find_item, org_id=event.org_id, job_id=event.job_id)
        if step is None:
            raise JobNotFound(event.job_id)
        return event.job_id, f"job:{event.job_id}"
    if event.workflow_id is not None:
        found = tx.maybe(WORKFLOW_SQL.find_workflow, org_id=event.org_id, id=event.workflow_id)
        if found is None:
            raise WorkflowNotFound(event.workflow_id)
        return None, f"workflow:{event.workflow_id}"
    return None, f"key:{event.key}"


def _woken(org_id: str, row: Row) -> audit.Entry:
    return audit.Entry(org_id, str(row["id"]), "job.woken", int(row["attempt_count"]) + 1, None)


def list_waits(store: Store, org_id: str, job_id: str) -> list[Row]:
    """The waits of the first job of a series of replays."""
    return store.many(SQL.list_waits, org_id=org_id, job_id=job_id)
