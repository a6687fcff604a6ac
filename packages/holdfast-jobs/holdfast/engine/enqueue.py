"""Enqueue: validate, dedupe, insert. One statement writes any number of jobs with their audit.

The database dedupes: if a key exists, also of a job that has ended, the insert is a no-op and the
original job is returned with ``created=False``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import (
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from holdfast.clock import read_instant
from holdfast.document import encode
from holdfast.engine import audit, unique
from holdfast.engine.handler import EnqueueRefused
from holdfast.engine.job import SYSTEM, State, current
from holdfast.engine.payloads import Chunks
from holdfast.engine.request import InsertRows, JobRequest, full_key, key_for, prepare
from holdfast.engine.state_hook import outside, run_state_statements
from holdfast.errors import (
    QueueFull,
    RuleBroken,
    StoreBusy,
)
from holdfast.event import About, JobEnqueued
from holdfast.ids import JobId, OrgId
from holdfast.store import Row, Statement, Statements, Store, Tx
from holdfast.store.caller_connection import Steps, run
from holdfast.store.dialect import Dialect

if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultingTypeVar

    from holdfast.engine.cancel import CancelAnswer
    from holdfast.engine.job import Job

    R_co = DefaultingTypeVar("R_co", covariant=True, default=Any)
else:
    R_co = TypeVar("R_co", covariant=True)

__all__ = [
    "Enqueued",
    "InsertRows",
    "JobRequest",
    "attach",
    "borrowed_steps",
    "events_of",
    "full_key",
    "insert",
    "insert_steps",
    "key_for",
    "prepare",
]

SQL = Statements("holdfast.engine", "job.sql")
JOB_TYPE_SQL = Statements("holdfast.engine", "job_type.sql")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Enqueued(Generic[R_co]):
    """The handle of an enqueued job. ``created`` is False if the job already existed.

    ``handle.result(timeout=10)`` or ``await handle`` wait for the result.
    """

    id: JobId
    """The id of the job."""
    org_id: OrgId
    """The tenant of the job."""
    job_type: str
    """The type of the job."""
    idempotency_key: str
    """The full idempotency key of the job."""
    created_at: datetime
    """When the job was created."""
    created: bool
    """False if a job with this key already existed."""
    differs: bool = False
    """True if the existing job has another payload."""
    jobs: Any = field(default=None, repr=False, compare=False)
    """The application that enqueued it."""

    def result(self, timeout: float | None = None) -> R_co:
        """Wait until the job has ended and return its result.

        Raises TimeoutError after *timeout* seconds, JobFailed with the error class of a failed job,
        and ResultCanceled for a canceled one. In a handler, waiting occupies a thread of the
        worker.
        """
        found: R_co = self.jobs.wait_result(self.id, self.org_id, timeout)
        return found

    def __await__(self) -> Generator[Any, None, R_co]:
        """Wait for the result without blocking the event loop."""
        waiting: Coroutine[Any, Any, R_co] = self.jobs.await_result(self.id, self.org_id)
        return waiting.__await__()

    def get(self) -> Job:
        """Return the job as it is now, with its state and progress."""
        found: Job = self.jobs.get(self.id, org_id=self.org_id)
        return found

    def cancel(self, *, reason: str = "") -> CancelAnswer:
        """Cancel the job: at once if it is waiting, at its next step if it is running."""
        answer: CancelAnswer = self.jobs.cancel(self.id, org_id=self.org_id, reason=reason)
        return answer


def attach(enqueued: list[Enqueued], jobs: Any) -> list[Enqueued]:
    """Let the handles of an enqueue wait for their results through *jobs*."""
    for item in enqueued:
        # Set afterwards, because rows are written without knowing the application.
        object.__setattr__(item, "jobs", jobs)
    return enqueued


Created = dict[str, str | datetime]
"""When each new job was stored, by id."""


def insert_steps(batch: InsertRows) -> Steps[list[Enqueued]]:
    """Insert prepared rows; dedupe against stored jobs and within the rows."""
    if unique.has_flow(batch):
        return (yield from unique.flow_steps(batch, _insert_steps, Enqueued))
    return (yield from _insert_steps(batch))


def _insert_steps(batch: InsertRows) -> Steps[list[Enqueued]]:
    if batch.has_producer:
        yield JOB_TYPE_SQL.insert_units, {"units": batch.units}
    rows = yield SQL.insert_jobs, {"jobs": batch.distinct, "shared": batch.shared}
    created = {row["id"]: row["created_at"] for row in rows}
    if batch.has_producer and len(created) < len(batch.jobs):
        unused = [unit for unit in batch.units if unit["job_id"] not in created]
        yield JOB_TYPE_SQL.release_units, {"units": unused}
    return (yield from _answer_steps(batch, created))


def borrowed_steps(batch: InsertRows, dialect: Dialect) -> Steps[list[Enqueued]]:
    """:func:`insert_steps` for a caller's connection, which may have only a tenant's rights.

    If the database has no roles, the connection writes with the engine's rights. So does a
    producer, because a tenant cannot act as one.
    """
    if not dialect.has_roles or batch.has_producer:
        return (yield from insert_steps(batch))
    if unique.has_flow(batch):
        return (yield from unique.flow_steps(batch, _caller_steps, Enqueued, as_caller=True))
    return (yield from _caller_steps(batch))


def _caller_steps(batch: InsertRows) -> Steps[list[Enqueued]]:
    given = {"jobs": encode(batch.jobs), "shared": encode(batch.shared)}
    rows = yield SQL.enqueue_jobs, given
    refused = [
        job for job, row in zip(batch.jobs, rows, strict=True) if row["outcome"] in ("full", "busy")
    ]
    if refused:
        yield from _refuse_steps(batch, refused)
    return [_old(row, row["outcome"]) for row in rows]


def insert(store: Store, batch: InsertRows) -> list[Enqueued]:
    """Insert rows in a separate transaction: one round trip if there are no duplicates."""
    if batch.has_producer or unique.has_flow(batch):
        return _refusing(store, batch, lambda: _write(store, lambda tx: insert_in(tx, batch)))
    if not batch.has_keys:
        # A lost reply: the jobs are there, and their ids are taken.
        with suppress(RuleBroken):
            at = _write(
                store,
                lambda tx: tx.values(SQL.insert_new_jobs, jobs=batch.jobs, shared=batch.shared),
                single=True,
            )
            if at:
                return _all_new(batch, at[0][0])
    rows = _refusing(
        store,
        batch,
        lambda: _write(
            store,
            lambda tx: tx.values(SQL.insert_jobs, jobs=batch.distinct, shared=batch.shared),
            single=True,
        ),
    )
    if len(rows) == len(batch.jobs):
        return _all_new(batch, rows[0][1])
    return _write(store, lambda tx: run(tx, _answer_steps(batch, dict(rows))))


def insert_in(tx: Tx, batch: InsertRows) -> list[Enqueued]:
    """Insert rows in an open transaction of the store."""
    if len(batch.shared) > 1:
        tx.allow_hash_joins()
    answers = run(tx, insert_steps(batch))
    run_state_statements(tx, (outside(*job, State.CANCELED) for job in batch.superseded))
    return answers


def insert_chunks(store: Store, chunks: Chunks) -> tuple[list[InsertRows], list[Enqueued]]:
    """Insert any number of jobs in one transaction, chunk by chunk: all of them or none.

    A chunk is validated while the server writes the previous one. Besides the caller's payloads and
    the results, only one or two chunks are in memory. Building a chunk again yields the same rows.
    """

    # The jobs have keys, a queue has a depth limit, or the reply to the first commit was lost.
    with suppress(_HasKeys, RuleBroken):
        return _write(store, partial(_insert_new, chunks))
    return _refusing(store, chunks[0], lambda: _write(store, partial(_insert_known, chunks)))


def _insert_new(chunks: Chunks, tx: Tx) -> tuple[list[InsertRows], list[Enqueued]]:
    batches, answers = [], []
    with closing(_inserted(tx, chunks, SQL.insert_new_jobs, _new_jobs)) as inserted:
        for batch, rows in inserted:
            if not rows:
                raise _HasKeys
            batches.append(batch)
            answers += _all_new(batch, rows[0][0])
    return batches, answers


def _insert_known(chunks: Chunks, tx: Tx) -> tuple[list[InsertRows], list[Enqueued]]:
    batches = []
    created: Created = {}
    with closing(_inserted(tx, chunks, SQL.insert_jobs, attrgetter("distinct"))) as inserted:
        for batch, rows in inserted:
            batches.append(batch)
            created.update(rows)
    answers = [run(tx, _answer_steps(batch, created)) for batch in batches]
    return batches, [answer for some in answers for answer in some]


def _inserted(
    tx: Tx,
    chunks: Chunks,
    statement: Statement,
    jobs_of: Callable[[InsertRows], list[dict[str, Any]]],
) -> Generator[tuple[InsertRows, list[tuple[Any, ...]]]]:
    """Insert each chunk, and yield it with its rows while the server writes the next."""
    sent: tuple[InsertRows, Callable[[], list[tuple[Any, ...]]]] | None = None
    try:
        for chunk in chunks:
            batch = chunk()
            jobs = jobs_of(batch)
            # Each reply is read only once, even if it is an error.
            done, sent = sent, None
            rows = done[1]() if done is not None else []
            if len(batch.shared) > 1:
                tx.allow_hash_joins()
            sent = batch, tx.begin(statement, jobs=jobs, shared=batch.shared)
            if done is not None:
                yield done[0], rows
        done, sent = sent, None
        if done is not None:
            yield done[0], done[1]()
    finally:
        # After an error: the connection must be free for the rollback.
        if sent is not None:
            sent[1]()


def _new_jobs(batch: InsertRows) -> list[dict[str, Any]]:
    if batch.has_keys:
        raise _HasKeys
    return batch.jobs


class _HasKeys(Exception):
    """Jobs that are not known to be new must be inserted with insert_jobs."""


def _write(store: Store, work: Callable[[Tx], T], *, single: bool = False) -> T:
    """Write or fail quickly; a running job waits longer, because failing costs an attempt."""
    if current.get() is None:
        return store.write_soon(work, single=single)
    return store.write_one(work) if single else store.write(work)


_PRODUCER_RULES = ("job_enqueued_by_producer", "job_needs_its_unit")


def _refusing(
    store: Store, batch: InsertRows | Callable[[], InsertRows], write: Callable[[], T]
) -> T:
    """Raise the refusal of a producer's rule as EnqueueRefused."""
    try:
        return write()
    except RuleBroken as exc:
        if exc.rule in _PRODUCER_RULES:
            raise _refused(store, batch if isinstance(batch, InsertRows) else batch()) from exc
        raise


def _refused(store: Store, batch: InsertRows) -> EnqueueRefused:
    """The error for a job type whose producer the store knows and this process does not declare."""
    job_type = batch.shared[0]["job_type"]
    rule = store.maybe(JOB_TYPE_SQL.find_job_type, job_type=job_type)
    return EnqueueRefused(job_type, None if rule is None else rule["producer"])


def _answer_steps(batch: InsertRows, created: Created) -> Steps[list[Enqueued]]:
    missing = [job for job in batch.jobs if job["id"] not in created]
    if not missing:
        return [_new(batch, job, read_instant(created[job["id"]])) for job in batch.jobs]
    keys = [
        {
            "org_id": batch.shared_of(job)["org_id"],
            "idempotency_key": batch.key_of(job),
            "key_of": job["id"] if job["idempotency_key"] is None else job.get("key_of"),
        }
        for job in missing
    ]
    found = yield SQL.find_duplicates, {"keys": keys}
    known = [{"org_id": row["org_id"], "id": row["id"]} for row in found]
    seen = {row["job_id"] for row in (yield SQL.record_seen, {"seen": known})}
    by_key = {row["idempotency_key"]: row for row in found if row["id"] in seen}
    refused = [job for job in missing if batch.key_of(job) not in by_key]
    if refused:
        yield from _refuse_steps(batch, refused)
    answers, differing = [], []
    for job in batch.jobs:
        if job["id"] in created:
            created_at = read_instant(created[job["id"]])
            answers.append(_new(batch, job, created_at))
            continue
        original = by_key[batch.key_of(job)]
        # SQL holdfast.enqueue hashes another text form, so the two hashes cannot be compared.
        differs = not original["payload_hash"].startswith("jsonb:") and (
            original["payload_hash"] not in ("", job["payload_hash"])
        )
        # The same id: an earlier attempt was committed and only its reply was lost.
        outcome = "created" if original["id"] == job["id"] else "differs" if differs else ""
        answers.append(_old(original, outcome))
        if differs:
            differing.append(_differing(batch, job, original))
    if differing:
        yield audit.record_step(SYSTEM, differing)
    return answers


def _refuse_steps(batch: InsertRows, refused: Sequence[Mapping[str, Any]]) -> Steps[NoReturn]:
    """Raise QueueFull if jobs for a queue with a depth limit were not stored."""
    frames = [batch.shared_of(job) for job in refused]
    of_queue = Counter(frame["queue"] for frame in frames)
    of_tenant = Counter((frame["queue"], frame["org_id"]) for frame in frames)
    asked = [
        {"queue": queue, "org_id": org_id, "of_queue": of_queue[queue], "of_tenant": jobs}
        for (queue, org_id), jobs in of_tenant.items()
    ]
    for row in (yield SQL.find_full, {"asked": asked}):
        raise QueueFull(row["name"], row["max_depth"], row["max_depth_per_tenant"])
    # They were pruned between the two statements; their keys are free again.
    raise StoreBusy("The original of a duplicate job was pruned concurrently. Try again.")


def _differing(batch: InsertRows, job: Mapping[str, Any], original: Row) -> audit.Entry:
    """The audit row of a request whose key belongs to a job with other content."""
    detail = {
        "payload_hash": job["payload_hash"],
        "request_id": batch.shared_of(job)["request_id"] or job["id"],
    }
    attempt = original["attempt_count"] + 1
    return audit.Entry(original["org_id"], original["id"], "job.duplicate_differs", attempt, detail)


def _all_new(batch: InsertRows, stored_at: str | datetime) -> list[Enqueued]:
    """The answers for the new jobs of one statement, which have one time."""
    created_at = read_instant(stored_at)
    return [_new(batch, job, created_at) for job in batch.jobs]


def _new(batch: InsertRows, job: Mapping[str, Any], created_at: datetime) -> Enqueued:
    frame = batch.shared_of(job)
    return Enqueued(
        job["id"],
        frame["org_id"],
        frame["job_type"],
        batch.key_of(job),
        created_at,
        created=True,
    )


def _old(row: Row, outcome: str) -> Enqueued:
    return Enqueued(
        row["id"],
        row["org_id"],
        row["job_type"],
        row["idempotency_key"],
        read_instant(row["created_at"]),
        created=outcome == "created",
        differs=outcome == "differs",
    )


def events_of(batches: Iterable[InsertRows], enqueued: Sequence[Enqueued]) -> Iterator[JobEnqueued]:
    """The events of the jobs that were created."""
    frames = (batch.shared_of(job) for batch in batches for job in batch.jobs)
    for frame, item in zip(frames, enqueued, strict=True):
        if item.created:
            request_id = frame["request_id"] or item.id
            about = About(
                item.id,
                frame["job_type"],
                frame["org_id"],
                frame["project_id"],
                request_id,
                frame["correlation_id"] or request_id,
            )
            yield JobEnqueued(about, frame["queue"])
