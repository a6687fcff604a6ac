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
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from holdfast.clock import read_instant
from holdfast.document import encode
from holdfast.engine import audit, unique
from holdfast.engine.handler import EnqueueRefused, Handler
from holdfast.engine.job import SYSTEM, State, current
from holdfast.engine.key_template import with_keys
from holdfast.engine.payload_reader import Signature
from holdfast.engine.payload_values import is_structured, to_document
from holdfast.engine.request import InsertRows, JobRequest, Options, full_key, key_for, prepare
from holdfast.engine.state_hook import outside, run_state_statements
from holdfast.errors import (
    Forbidden,
    InvalidJob,
    QueueFull,
    RuleBroken,
    StoreBusy,
)
from holdfast.event import About, JobEnqueued
from holdfast.ids import JobId, MalformedId, OrgId, read_named_id
from holdfast.store import Row, Statements, Store, Tx
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
    "held_to",
    "inherit",
    "insert",
    "insert_steps",
    "key_for",
    "prepare",
]

SQL = Statements("holdfast.engine", "job.sql")
JOB_TYPE_SQL = Statements("holdfast.engine", "job_type.sql")

# Up to this many jobs are one statement. More are written in chunks: large enough for the server,
# small enough to validate one chunk while the previous one is written.
ONE_STATEMENT = 500
CHUNK = 250

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


def is_same_tenant(one: object, other: object) -> bool:
    """Whether two ids, or names, are those of one tenant."""
    try:
        return read_named_id(one) == read_named_id(other)
    except MalformedId:
        return str(one) == str(other)


def held_to(request: JobRequest, org_id: str | None) -> JobRequest:
    """Return a prepared request, if it belongs to the tenant that the call is bound to."""
    if org_id is not None and not is_same_tenant(request.org_id, org_id):
        raise Forbidden(f"A request for another tenant than {org_id} cannot be enqueued here.")
    return request


def inherit(org_id: str | None, options: Options) -> dict[str, Any]:
    """The fields of a request; a running job enqueues for its own tenant and correlation."""
    running = current.get()
    if running is None:
        return {"org_id": org_id, **options}
    if org_id is not None and not is_same_tenant(org_id, running.org_id):
        raise Forbidden(
            f"Job {running.id} of tenant {running.org_id} cannot enqueue for another tenant."
        )
    return {
        "org_id": running.org_id,
        "project_id": running.project_id,
        "correlation_id": running.correlation_id,
        "request_id": running.request_id,
        "traceparent": running.traceparent,
        **options,
    }


def accept_payloads(
    handler: Handler, payloads: Iterable[Mapping[str, Any] | JobRequest]
) -> Iterable[Mapping[str, Any] | JobRequest]:
    """Payloads as documents, checked against the parameters and classes that handlers declare.

    Raises InvalidJob. A payload that handlers take as a dict is not checked.
    """
    if not isinstance(payloads, Iterable):
        return payloads
    declared = [
        stage.signature
        for stage in handler.stages
        if stage.signature is not None and stage.signature.is_declared
    ]
    if not declared:
        return [one if type(one) is dict else _document_of(one) for one in payloads]
    return [
        replace(one, payload=_checked(one.payload, declared))
        if isinstance(one, JobRequest)
        else _checked(one, declared)
        for one in payloads
    ]


def _checked(payload: Any, declared: Sequence[Signature]) -> Any:
    if isinstance(payload, Mapping) or is_structured(type(payload)):
        payload = to_document(payload)
        for signature in declared:
            signature.check(payload)
    return payload


def _document_of(payload: Any) -> Any:
    if isinstance(payload, (JobRequest, Mapping, type)):
        return payload
    return to_document(payload) if is_structured(type(payload)) else payload


def requests_of(
    handler: Handler,
    payloads: Iterable[Mapping[str, Any] | JobRequest],
    org_id: str | None,
    options: Options,
    default_org: str | None,
) -> Sequence[tuple[Mapping[str, Any], JobRequest]]:
    """Pair payloads with their requests: prepared ones, or one request shared by all others."""
    given = inherit(org_id, options)
    bound_to = given["org_id"]
    if unknown := sorted(set(given) - set(JobRequest.__slots__)):
        raise InvalidJob(dict.fromkeys(unknown, "is not an option of enqueue"))
    if not isinstance(payloads, Iterable):
        raise InvalidJob({"payloads": f"must be a list, not {type(payloads).__name__}"})
    tenant = default_org if bound_to is None else bound_to
    shared = JobRequest(payload={}, **{**given, "org_id": tenant})
    items = [
        (item.payload, held_to(item, bound_to)) if isinstance(item, JobRequest) else (item, shared)
        for item in payloads
    ]
    return with_keys(handler, items)


def chunks_of(
    handler: Handler,
    items: Sequence[tuple[Mapping[str, Any], JobRequest]],
    *,
    ids: Sequence[str],
    whole: bool,
    **prepared: Any,
) -> list[Callable[[], InsertRows]]:
    """The rows to insert, in pieces validated when consumed; with *whole*, in one piece."""
    # Keys are locked before any row is inserted.
    whole = whole or any(request.unique_key or request.deadline for _, request in items)
    size = CHUNK if len(items) > ONE_STATEMENT and not whole else len(items)
    return [
        partial(prepare, handler, items[at : at + size], ids=ids[at : at + size], **prepared)
        for at in range(0, len(items), size or 1)
    ]


def insert_steps(batch: InsertRows) -> Steps[list[Enqueued]]:
    """Insert prepared rows; dedupe against stored jobs and within the rows."""
    if unique.has_flow(batch):
        return (yield from unique.flow_steps(batch, _insert_steps, Enqueued))
    return (yield from _insert_steps(batch))


def _insert_steps(batch: InsertRows) -> Steps[list[Enqueued]]:
    if batch.has_producer:
        yield JOB_TYPE_SQL.insert_units, {"units": batch.units}
    rows = yield SQL.insert_jobs, {"jobs": batch.distinct, "shared": batch.shared}
    created = {row["id"]: row for row in rows}
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
    rows = _refusing(
        store,
        batch,
        lambda: _write(
            store,
            lambda tx: tx.many(SQL.insert_jobs, jobs=batch.distinct, shared=batch.shared),
            single=True,
        ),
    )
    created = {row["id"]: row for row in rows}
    if len(created) == len(batch.jobs):
        return _all_new(batch, created)
    return _write(store, lambda tx: run(tx, _answer_steps(batch, created)))


def insert_in(tx: Tx, batch: InsertRows) -> list[Enqueued]:
    """Insert rows in an open transaction of the store."""
    answers = run(tx, insert_steps(batch))
    run_state_statements(tx, (outside(*job, State.CANCELED) for job in batch.superseded))
    return answers


def insert_chunks(
    store: Store, chunks: Sequence[Callable[[], InsertRows]]
) -> tuple[list[InsertRows], list[Enqueued]]:
    """Insert any number of jobs in one transaction, chunk by chunk: all of them or none.

    A chunk is validated while the server writes the previous one. Besides the caller's payloads and
    the results, only one or two chunks are in memory. Building a chunk again yields the same rows.
    """

    def work(tx: Tx) -> tuple[list[InsertRows], list[Enqueued]]:
        batches: list[InsertRows] = []
        created: dict[str, Row] = {}
        pending: Callable[[], list[Row]] | None = None
        try:
            for chunk in chunks:
                batch = chunk()
                if pending is not None:
                    # Each reply is read only once, even if it is an error.
                    answer, pending = pending, None
                    created |= {row["id"]: row for row in answer()}
                pending = tx.begin(SQL.insert_jobs, jobs=batch.distinct, shared=batch.shared)
                batches.append(batch)
        finally:
            # Also after an error: the connection must be free for the rollback.
            if pending is not None:
                created |= {row["id"]: row for row in pending()}
        answers = [answer for batch in batches for answer in run(tx, _answer_steps(batch, created))]
        return batches, answers

    return _refusing(store, chunks[0], lambda: _write(store, work))


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


def _answer_steps(batch: InsertRows, created: Mapping[str, Row]) -> Steps[list[Enqueued]]:
    missing = [job for job in batch.jobs if job["id"] not in created]
    if not missing:
        return _all_new(batch, created)
    keys = [
        {
            "org_id": batch.shared_of(job)["org_id"],
            "idempotency_key": batch.key_of(job),
            "key_of": job["id"] if job["idempotency_key"] is None else job.get("key_of"),
        }
        for job in missing
    ]
    found = yield SQL.find_duplicates, {"keys": keys}
    by_key = {row["idempotency_key"]: row for row in found}
    refused = [job for job in missing if batch.key_of(job) not in by_key]
    if refused:
        yield from _refuse_steps(batch, refused)
    yield SQL.record_seen, {"seen": [{"org_id": row["org_id"], "id": row["id"]} for row in found]}
    answers, differing = [], []
    for job in batch.jobs:
        if job["id"] in created:
            created_at = read_instant(created[job["id"]]["created_at"])
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


def _all_new(batch: InsertRows, created: Mapping[str, Row]) -> list[Enqueued]:
    """The answers for new jobs. Those of one statement have one time, which is converted once."""
    answers, last, at = [], None, batch.made_at
    for job in batch.jobs:
        stored_at = created[job["id"]]["created_at"]
        if stored_at != last:
            last, at = stored_at, read_instant(stored_at)
        assert at is not None
        answers.append(_new(batch, job, at))
    return answers


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
