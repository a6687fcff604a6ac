"""Validation of requests to enqueue, with every bad field reported. Pure.

Requests that differ only in payload and key share their other columns, so a bulk of thousands costs
little more than its payloads to validate, send and parse.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, TypedDict
from uuid import UUID

from holdfast.document import canonical, stable_hash
from holdfast.engine import validation
from holdfast.engine.category import CategoryRules
from holdfast.engine.handler import JOB_TYPE, EnqueueRefused, Handler, Producer, Router
from holdfast.engine.job import (
    BATCH_KEY,
    CRITICAL_QUEUE,
    MAINTENANCE_QUEUE,
    QUEUES,
    SYSTEM,
    Actor,
    Priority,
)
from holdfast.engine.unique_key import NOT_UNIQUE, UniqueKey, read_deadline, read_unique_key
from holdfast.errors import ForeignKeyScope, InvalidJob
from holdfast.ids import read_named_id, shift, uuid_argument
from holdfast.secret import may_hold_secret

DRIFT = timedelta(seconds=60)
# The value of one priority step: a job overtakes jobs enqueued up to an hour before it.
AGEING_MS = 3_600_000


_FULL_KEY = re.compile(r"([a-z][a-z0-9_.]*):([0-9a-f-]{36}):([0-9a-f-]{36})?:(.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class JobRequest:
    """A request to enqueue. Only the payload and the tenant are required."""

    payload: Mapping[str, Any]
    """A JSON object. It may not contain secrets."""
    org_id: str
    """The tenant of the job."""
    project_id: str | None = None
    """The project of the job, if any."""
    actor: Actor | str = SYSTEM
    """Who enqueues it, such as `user:42`."""
    idempotency_key: str | None = None
    """Two requests of a tenant with the same key are one job. By default every request is a new
    job."""
    request_id: str | None = None
    """The id of the request that caused it. By default a new one."""
    correlation_id: str | None = None
    """Shared by everything that one request causes. By default the request id."""
    queue: str | None = None
    """Overrides the queue of the job type."""
    priority: Priority | str | None = None
    """Overrides the priority of the job type."""
    max_attempts: int | None = None
    """Overrides the number of attempts of the job type."""
    not_before_at: datetime | None = None
    """The job is not started before this time."""
    scheduled_for: datetime | None = None
    """The time that the job is about, such as the tick of a schedule."""
    traceparent: str | None = None
    """W3C trace context of the caller. By default the current span."""
    unit_key: str | None = None
    """The execution unit: a tenant has at most one job of a type for it."""
    limit_key: str | None = None
    """Jobs with this key share the limits of `[keys.NAME]`."""
    unique_key: str | None = None
    """While a job with this key waits or runs, an enqueue returns that job. The key belongs to the
    tenant and the job type."""
    unique: str = "active"
    """When the key is free again: `active`, when the job has ended; `queued`, when a worker has
    claimed it."""
    replace: bool = False
    """The new job supersedes the job with this unique key, unless a worker has claimed it."""
    debounce: timedelta | float | str | None = None
    """Like `replace`, and the new job starts this long after the last enqueue with the key."""
    debounce_limit: timedelta | float | str | None = None
    """The longest wait of a debounced job since the first enqueue with the key."""
    deadline: datetime | None = None
    """A job that has not started by this time is canceled."""
    command: str | None = None
    """The command that allows a planning job to write."""
    routing_decision: Mapping[str, Any] | None = None
    """The route of a batch job."""
    producer: Producer | None = None
    """The permission to enqueue, for job types that have a producer."""


def scope_of(job_type: str, org_id: str, project_id: str | None) -> str:
    """The common prefix of all keys of a job type within a tenant and project."""
    return f"{job_type}:{org_id}:{project_id or ''}:"


def full_key(job_type: str, org_id: str, project_id: str | None, raw: str) -> str:
    """The stored form of a caller's key: ``job_type:org_id:project_id:hash``.

    A key in full form is kept if its scope is the caller's own; otherwise it is rejected.
    """
    return key_in(scope_of(job_type, org_id, project_id), raw)


def key_in(scope: str, raw: str) -> str:
    """:func:`full_key` for a known scope."""
    if raw.startswith(scope) and len(raw) > len(scope):
        return raw
    if _FULL_KEY.fullmatch(raw):
        raise ForeignKeyScope(
            {
                "idempotency_key": (
                    "is the full key of another tenant, project or job type; pass only your own"
                    " part of the key"
                )
            }
        )
    return scope + sha256(raw.encode()).hexdigest()[:32]


def key_for(job_type: str, org_id: str, project_id: str | None, *inputs: object) -> str:
    """Derive a full idempotency key from the subject of a job: equal inputs, equal key."""
    if not isinstance(job_type, str) or not JOB_TYPE.fullmatch(job_type):
        raise InvalidJob({"job_type": "must be lower-case words joined by dots"})
    org_id = uuid_argument("org_id", org_id, read_named_id)
    if project_id is not None:
        project_id = uuid_argument("project_id", project_id, read_named_id)
    try:
        return scope_of(job_type, org_id, project_id) + stable_hash(*inputs)
    except (TypeError, ValueError) as exc:
        raise InvalidJob({"inputs": f"cannot be hashed: {exc}"}) from None


class Options(TypedDict, total=False):
    """The fields of a :class:`JobRequest` that an enqueue takes as keywords.

    ``delay`` (seconds, a timedelta or text like ``5m``) and ``at`` set ``not_before_at``;
    ``expires_in`` sets ``deadline``.
    """

    project_id: str | None
    actor: Actor | str
    idempotency_key: str | None
    request_id: str | None
    correlation_id: str | None
    queue: str | None
    priority: Priority | str | None
    max_attempts: int | None
    delay: timedelta | float | str | None
    at: datetime | None
    not_before_at: datetime | None
    scheduled_for: datetime | None
    traceparent: str | None
    unit_key: str | None
    limit_key: str | None
    unique_key: str | None
    unique: str
    replace: bool
    debounce: timedelta | float | str | None
    debounce_limit: timedelta | float | str | None
    deadline: datetime | None
    expires_in: timedelta | float | str | None
    command: str | None
    routing_decision: Mapping[str, Any] | None
    producer: Producer | None


@dataclass(slots=True)
class InsertRows:
    """Validated requests as rows to insert: shared columns, and the rows of the jobs."""

    shared: list[dict[str, Any]] = field(default_factory=list)
    jobs: list[dict[str, Any]] = field(default_factory=list)
    # Whether the job type has a producer, which registers the execution units of its jobs.
    has_producer: bool = False
    # The unique keys and the deadlines of jobs, by job id.
    unique_keys: dict[str, UniqueKey] = field(default_factory=dict)
    deadlines: dict[str, str] = field(default_factory=dict)
    made_at: datetime | None = None
    # Tenant, id and type of the jobs that the insert has superseded.
    superseded: list[tuple[str, str, str]] = field(default_factory=list)
    _scopes: dict[int, str] = field(default_factory=dict, init=False, repr=False)

    @property
    def has_keys(self) -> bool:
        """Whether a job may exist already: it has a key or a unit."""
        return any(
            job["idempotency_key"] is not None or job["unit_key"] is not None for job in self.jobs
        )

    def key_of(self, job: Mapping[str, Any]) -> str:
        """The idempotency key of a job; that of a job without a given key ends with its id."""
        key: str | None = job["idempotency_key"]
        if key is not None:
            return key
        scope = self._scopes.get(job["frame"])
        if scope is None:
            frame = self.shared_of(job)
            scope = scope_of(frame["job_type"], frame["org_id"], frame["project_id"])
            self._scopes[job["frame"]] = scope
        return scope + str(job["id"]).replace("-", "")

    def shared_of(self, job: Mapping[str, Any]) -> dict[str, Any]:
        frame: dict[str, Any] = self.shared[job["frame"]]
        return frame

    @property
    def distinct(self) -> list[dict[str, Any]]:
        """The jobs without the later ones of each key, which must not get a number of an event."""
        first: dict[str, str] = {}
        for job in self.jobs:
            if job["idempotency_key"] is not None:
                first.setdefault(job["idempotency_key"], job["id"])
        if not first:
            return self.jobs
        return [
            job for job in self.jobs if first.get(job["idempotency_key"], job["id"]) == job["id"]
        ]

    @property
    def queues(self) -> list[str]:
        return sorted({frame["queue"] for frame in self.shared})

    @property
    def units(self) -> list[dict[str, Any]]:
        """The execution unit of each job."""
        frames = ((self.shared_of(job), job) for job in self.jobs)
        return [
            {
                "org_id": frame["org_id"],
                "job_type": frame["job_type"],
                "unit_key": job["unit_key"],
                "job_id": job["id"],
            }
            for frame, job in frames
        ]


SharedColumns = dict[Any, dict[str, Any]]
"""Cached shared columns of requests with the same tenant, actor and options."""

SHARED_LIMIT = 1_000


def prepare(
    handler: Handler,
    items: Sequence[tuple[Mapping[str, Any], JobRequest]],
    *,
    ids: Sequence[str],
    now: datetime,
    payload_limit: int,
    known: SharedColumns,
    queues: Collection[str] = QUEUES,
    ageing_ms: int = AGEING_MS,
) -> InsertRows:
    """The rows of payloads with their requests; many payloads may share a request.

    Raises one InvalidJob with all bad fields of the first invalid request. *known* caches the
    shared columns of earlier calls.
    """
    batch = InsertRows(has_producer=handler.producer is not None, made_at=now)
    places: dict[Any, int] = {}
    scope, last, place = "", None, 0
    unique_key, deadline = NOT_UNIQUE, None
    for (payload, request), job_id in zip(items, ids, strict=True):
        errors: dict[str, str] = {}
        text = validation.payload(payload, payload_limit, errors)
        if request is not last:
            _check_producer(handler, request, errors)
            shared = _shared_key(handler, request)
            found = places.get(shared)
            if found is None:
                found = places[shared] = len(batch.shared)
                frame = _known_columns(handler, request, shared, now, errors, known, queues)
                batch.shared.append({**frame, "frame": found, "jobs": 0})
            last, place, frame = request, found, batch.shared[found]
            scope = scope_of(handler.job_type, frame["org_id"], frame["project_id"])
            unique_key = read_unique_key(request, errors)
            deadline = read_deadline(request, now, errors)
        key = _key(request, scope, errors)
        if errors:
            raise InvalidJob(errors)
        if may_hold_secret(text):
            validation.refuse_secret(payload)
        frame["jobs"] += 1
        if request.unique_key is not None:
            batch.unique_keys[job_id] = unique_key
        if deadline is not None:
            batch.deadlines[job_id] = deadline
        batch.jobs.append(
            {
                "frame": place,
                "id": job_id,
                "idempotency_key": key,
                "key_of": None if key is None else owner_of(key),
                "payload": text,
                "payload_hash": sha256(text.encode()).hexdigest()[:32],
                "unit_key": request.unit_key,
                "turn": position_of(job_id, frame["priority"], ageing_ms),
            }
        )
    return batch


_OWN_KEY = re.compile(r":([0-9a-f]{12}7[0-9a-f]{3}[89ab][0-9a-f]{15})$")


def owner_of(key: str) -> str | None:
    """The id of the job that has *key* although none was given to it, from the form of the key."""
    found = _OWN_KEY.search(key)
    return None if found is None else str(UUID(found[1]))


def _check_producer(handler: Handler, request: JobRequest, errors: dict[str, str]) -> None:
    """Reject every caller except the producer of the job type."""
    if handler.producer is None:
        if request.producer is not None:
            errors["producer"] = "is only for job types that are declared with one"
        return
    if request.producer is not handler.producer:
        raise EnqueueRefused(handler.job_type, handler.producer.call)
    if request.unit_key is None:
        errors["unit_key"] = (
            "is required: a job type with a producer has one job per execution unit"
        )


def position_of(job_id: str, priority: int, ageing_ms: int) -> str | None:
    """The position of a job in its queue: its id, shifted by its priority. None means the id."""
    if priority == Priority.NORMAL:
        return None
    return shift(job_id, (priority - Priority.NORMAL) * ageing_ms // 10)


def _known_columns(
    handler: Handler,
    request: JobRequest,
    shared: Any,
    now: datetime,
    errors: dict[str, str],
    known: SharedColumns,
    queues: Collection[str],
) -> dict[str, Any]:
    found = known.get(shared)
    if found is None:
        found = _shared_columns(handler, request, now, errors, queues)
        passing = (
            request.request_id,
            request.correlation_id,
            request.traceparent,
            request.not_before_at,
            request.scheduled_for,
        )
        if not errors and passing == (None,) * 5:
            if len(known) >= SHARED_LIMIT:
                known.clear()
            known[shared] = found
    return found


def _key(request: JobRequest, scope: str, errors: dict[str, str]) -> str | None:
    """The stored key: from the caller's key or the execution unit. None means the job id."""
    if request.unit_key is not None:
        # One job per execution unit: its key is the unit, so one constraint enforces both.
        unit = validation.text("unit_key", request.unit_key, errors)
        if request.idempotency_key is not None:
            errors["idempotency_key"] = "comes from unit_key; pass one of them"
        return scope + sha256(f"unit\n{unit}".encode()).hexdigest()[:32]
    if request.idempotency_key is None:
        return None
    raw = validation.text("idempotency_key", request.idempotency_key, errors, longest=500)
    return key_in(scope, raw) if raw is not None else ""


def _shared_key(handler: Handler, request: JobRequest) -> Any:
    """The fields that two requests must have in common to share columns."""
    shared = (
        handler.job_type,
        handler.version,
        request.org_id,
        request.project_id,
        request.actor,
        request.request_id,
        request.correlation_id,
        request.queue,
        request.priority,
        request.max_attempts,
        request.not_before_at,
        request.scheduled_for,
        request.traceparent,
        request.limit_key,
        request.command,
        request.routing_decision and repr(request.routing_decision),
    )
    try:
        hash(shared)
    except TypeError:
        return object()
    return shared


def _shared_columns(
    handler: Handler,
    request: JobRequest,
    now: datetime,
    errors: dict[str, str],
    queues: Collection[str],
) -> dict[str, Any]:
    actor = validation.actor(request.actor, errors)
    wanted = handler.queue if request.queue is None else request.queue
    queue = validation.queue(wanted, errors, queues)
    project_id = request.project_id
    frame: dict[str, Any] = {
        "org_id": validation.named_id("org_id", request.org_id, errors),
        "project_id": None
        if project_id is None
        else validation.named_id("project_id", project_id, errors),
        "job_type": handler.job_type,
        "category": handler.category.name,
        "actor_type": actor.type,
        "actor_id": actor.id,
        "request_id": validation.text("request_id", request.request_id, errors),
        "correlation_id": validation.text("correlation_id", request.correlation_id, errors),
        "priority": validation.priority(request.priority, handler.priority, errors),
        "limit_key": validation.limit_key(request.limit_key, errors),
        "origin_queue": queue,
        "queue": queue,
        "stage": handler.first.name,
        "pipeline_version": handler.version,
        "max_attempts": validation.attempts(
            request.max_attempts, handler.first.max_attempts, errors
        ),
        "not_before_at": validation.instant("not_before_at", request.not_before_at, now, errors),
        "traceparent": validation.traceparent(request.traceparent, errors),
    }
    if queue == CRITICAL_QUEUE and handler.slo is None:
        errors["queue"] = f"{CRITICAL_QUEUE} is for jobs with a strict SLO; declare it: slo="
    if request.command is not None:
        frame["routing_decision"] = _command(handler, request.command, errors)
    if handler.router is not None:
        _route(frame, handler.router, request, errors)
    elif request.routing_decision is not None:
        errors["routing_decision"] = "is only for job types that send model requests: hf.batch"
    if request.scheduled_for is not None:
        _schedule(frame, handler, request.scheduled_for, now, errors)
    return frame


def _command(handler: Handler, value: object, errors: dict[str, str]) -> str:
    """The command under which a planning job may write, if the handler's policy allows it."""
    if handler.policy is None:
        errors["command"] = "is only for planning jobs whose handler declares a policy"
    return canonical({"command": validation.text("command", value, errors)})


def _route(
    frame: dict[str, Any], router: Router, request: JobRequest, errors: dict[str, str]
) -> None:
    """Fix the route of the job's request; batch jobs wait under a separate limit key."""
    try:
        routed = router(request.routing_decision)
    except ValueError as exc:
        errors["routing_decision"] = str(exc)
        return
    frame["routing_decision"] = canonical(routed.decision)
    if routed.max_attempts is not None:
        frame["max_attempts"] = min(frame["max_attempts"], routed.max_attempts)
    if routed.is_batched:
        frame["limit_key"] = BATCH_KEY
        if request.limit_key is not None:
            errors["limit_key"] = "is not for batch jobs; their limits are those of the account"


def _schedule(
    row: dict[str, Any], handler: Handler, value: object, now: datetime, errors: dict[str, str]
) -> None:
    """Park a scheduled job on q:maintenance until due; only two categories may be scheduled."""
    if not handler.category.rules.may_be_scheduled:
        errors["scheduled_for"] = "is only for maintenance jobs and delayed notifications"
        return
    due = validation.instant("scheduled_for", value, now, errors)
    if due is None or not isinstance(value, datetime):
        return
    if value.astimezone(UTC) < now - DRIFT:
        errors["scheduled_for"] = "is more than 60 seconds in the past"
        return
    row["scheduled_for"] = due
    row["not_before_at"] = due
    # It waits on q:maintenance and is delivered on its own queue.
    row["queue"] = MAINTENANCE_QUEUE
    if handler.category.rules is CategoryRules.MAINTENANCE:
        row["origin_queue"] = MAINTENANCE_QUEUE
