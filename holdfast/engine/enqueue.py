"""Enqueue: validate, dedupe, insert. One statement writes any number of jobs with their audit.

The dedupe gate is the database's: a key that exists makes the insert a no-op, and the original job
comes back with ``created=False``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast.clock import read_instant, write_instant
from holdfast.document import BadDocument, check, encode, stable_hash
from holdfast.engine import audit
from holdfast.engine.handler import JOB_TYPE, QUEUE, Handler
from holdfast.engine.job import DEAD_LETTER_QUEUE, SYSTEM, Actor, Priority
from holdfast.errors import ForeignKeyScope, InvalidJob, SecretInPayload, StoreBusy
from holdfast.ids import IdSource, JobId, OrgId, read_uuid
from holdfast.secret import find_secret
from holdfast.store import Row, Statements, Store
from holdfast.store.borrow import Steps, run

SQL = Statements("holdfast.engine", "job.sql")

FARTHEST = timedelta(days=366 * 5)
DRIFT = timedelta(seconds=60)

_SHORT_TEXT = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{1,200}")
_FULL_KEY = re.compile(r"([a-z][a-z0-9_.]*):([0-9a-f-]{36}):([0-9a-f-]{36})?:(.+)", re.DOTALL)
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


@dataclass(frozen=True, slots=True)
class JobRequest:
    """What a caller asks for. Everything but the payload and the tenant has a sensible default."""

    payload: Mapping[str, Any]
    org_id: str
    project_id: str | None = None
    actor: Actor | str = SYSTEM
    idempotency_key: str | None = None
    request_id: str | None = None
    correlation_id: str | None = None
    queue: str | None = None
    priority: Priority | str | None = None
    max_attempts: int | None = None
    not_before_at: datetime | None = None
    scheduled_for: datetime | None = None
    traceparent: str | None = None
    unit_key: str | None = None


@dataclass(frozen=True, slots=True)
class Enqueued:
    """The job that stands for a request. ``created`` is False when it was there before."""

    id: JobId
    org_id: OrgId
    job_type: str
    idempotency_key: str
    created_at: datetime
    created: bool
    differs: bool = False


def full_key(job_type: str, org_id: str, project_id: str | None, raw: str) -> str:
    """The stored form of a caller's key: ``job_type:org_id:project_id:hash``.

    A key already in full form is kept if its scope is the caller's own, and refused otherwise.
    """
    scope = f"{job_type}:{org_id}:{project_id or ''}:"
    if raw.startswith(scope) and len(raw) > len(scope):
        return raw
    if _FULL_KEY.fullmatch(raw):
        raise ForeignKeyScope(
            {"idempotency_key": "was made for another tenant, project or job type; pass your own"}
        )
    return scope + hashlib.sha256(raw.encode()).hexdigest()[:32]


def key_for(job_type: str, org_id: str, project_id: str | None, *inputs: object) -> str:
    """A full key derived from what the job is about: equal inputs, equal key."""
    return f"{job_type}:{org_id}:{project_id or ''}:{stable_hash(*inputs)}"


def prepare(
    handler: Handler,
    requests: Sequence[JobRequest],
    *,
    ids: IdSource,
    now: datetime,
    payload_limit: int,
) -> list[dict[str, Any]]:
    """The rows of valid requests. Raises one InvalidJob that names every bad field of the first bad one."""
    return [
        _row(handler, request, job_id, now, payload_limit)
        for request, job_id in zip(requests, ids.take(len(requests)), strict=True)
    ]


def _row(
    handler: Handler, request: JobRequest, job_id: str, now: datetime, payload_limit: int
) -> dict[str, Any]:
    bad: dict[str, str] = {}
    payload = _payload(request.payload, payload_limit, bad)
    org_id = _uuid("org_id", request.org_id, bad)
    project_id = None if request.project_id is None else _uuid("project_id", request.project_id, bad)
    actor = _actor(request.actor, bad)
    request_id = _text("request_id", request.request_id, bad) or job_id
    row = {
        "id": job_id,
        "org_id": org_id,
        "project_id": project_id,
        "job_type": handler.job_type,
        "category": handler.category.name,
        "actor_type": actor.type,
        "actor_id": actor.id,
        "request_id": request_id,
        "correlation_id": _text("correlation_id", request.correlation_id, bad) or request_id,
        "priority": _priority(request.priority, handler.priority, bad),
        "unit_key": _text("unit_key", request.unit_key, bad),
        "queue": _queue(request.queue or handler.queue, bad),
        "stage": handler.first.name,
        "pipeline_version": handler.version,
        "max_attempts": _attempts(request.max_attempts, handler.first.max_attempts, bad),
        "not_before_at": _instant("not_before_at", request.not_before_at, now, bad),
        "traceparent": _traceparent(request.traceparent, bad),
        "payload": payload,
    }
    if request.scheduled_for is not None:
        _schedule(row, handler, request.scheduled_for, now, bad)
    raw_key = _text("idempotency_key", request.idempotency_key, bad, longest=500)
    if bad:
        raise InvalidJob(bad)
    secret = find_secret(request.payload)
    if secret is not None:
        raise SecretInPayload(
            {"payload": f"carries something shaped like a secret at {secret}; pass a reference to it"}
        )
    row["idempotency_key"] = full_key(handler.job_type, row["org_id"], project_id, raw_key or job_id)
    row["payload_hash"] = stable_hash(request.payload)
    return row


def insert_steps(rows: Sequence[Mapping[str, Any]]) -> Steps[list[Enqueued]]:
    """Write rows that :func:`prepare` made; dedupe against what is there and among themselves."""
    created = {row["id"]: row for row in (yield SQL.insert_jobs, {"jobs": rows})}
    return (yield from _answer_steps(rows, created))


def insert(store: Store, rows: Sequence[Mapping[str, Any]]) -> list[Enqueued]:
    """The same in a transaction of its own: one round trip when nothing is a duplicate."""
    created = {row["id"]: row for row in store.write_one(SQL.insert_jobs, jobs=rows)}
    if len(created) == len(rows):
        return [_new(row, created[row["id"]]) for row in rows]
    return store.write(lambda tx: run(tx, _answer_steps(rows, created)))


def _answer_steps(
    rows: Sequence[Mapping[str, Any]], created: Mapping[str, Row]
) -> Steps[list[Enqueued]]:
    missing = [row for row in rows if row["id"] not in created]
    if not missing:
        return [_new(row, created[row["id"]]) for row in rows]
    keys = [
        {name: row.get(name) for name in ("org_id", "job_type", "idempotency_key", "unit_key")}
        for row in missing
    ]
    found = yield SQL.find_duplicates, {"keys": keys}
    by_key = {row["idempotency_key"]: row for row in found}
    by_unit = {(row["org_id"], row["job_type"], row["unit_key"]): row for row in found}
    answers, differing = [], []
    for row in rows:
        if row["id"] in created:
            answers.append(_new(row, created[row["id"]]))
            continue
        original = by_key.get(row["idempotency_key"])
        if original is None:
            original = by_unit.get((row["org_id"], row["job_type"], row.get("unit_key")))
        if original is None:
            # It was pruned between the two statements; the key is free again.
            raise StoreBusy("The original of a duplicate job has just left the store. Try again.")
        differs = original["payload_hash"] not in ("", row["payload_hash"])
        # The very same id: an earlier try was committed, only its answer was lost.
        answers.append(_old(original, created=original["id"] == row["id"], differs=differs))
        if differs:
            detail = {"payload_hash": row["payload_hash"], "request_id": row["request_id"]}
            differing.append(
                audit.Entry(
                    original["org_id"], original["id"], "job.duplicate_differs",
                    original["attempt_count"] + 1, detail,
                )
            )
    if differing:
        yield audit.record_step(SYSTEM, differing)
    return answers


def _new(row: Mapping[str, Any], stored: Row) -> Enqueued:
    return Enqueued(
        row["id"], row["org_id"], row["job_type"], row["idempotency_key"],
        read_instant(stored["created_at"]), created=True,
    )


def _old(row: Row, *, created: bool, differs: bool) -> Enqueued:
    return Enqueued(
        row["id"], row["org_id"], row["job_type"], row["idempotency_key"],
        read_instant(row["created_at"]), created=created, differs=differs,
    )


def _payload(value: object, limit: int, bad: dict[str, str]) -> str:
    if not isinstance(value, Mapping):
        bad["payload"] = f"must be an object, not {type(value).__name__}"
        return "{}"
    try:
        check(value)
        text = encode(value)
    except BadDocument as exc:
        bad["payload"] = str(exc)
        return "{}"
    size = len(text.encode())
    if size > limit:
        bad["payload"] = f"is {size} bytes, the limit is {limit}; store it and pass a reference"
    return text


def _uuid(name: str, value: object, bad: dict[str, str]) -> str:
    try:
        return read_uuid(value)
    except ValueError as exc:
        bad[name] = str(exc)
        return ""


def _text(name: str, value: object, bad: dict[str, str], longest: int = 200) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not value or len(value) > longest:
        bad[name] = f"must be text of 1 to {longest} characters"
    elif not all(_SHORT_TEXT.fullmatch(value[at : at + 200]) for at in range(0, len(value), 200)):
        bad[name] = "must not contain control characters or lone surrogates"
    else:
        return value
    return None


def _actor(value: object, bad: dict[str, str]) -> Actor:
    if isinstance(value, str) and value:
        value = Actor.read(value)
    if isinstance(value, Actor) and _text("actor", value.id, bad):
        return value
    bad.setdefault("actor", "must be an Actor, or text such as 'user:42'")
    return SYSTEM


def _priority(value: object, default: Priority, bad: dict[str, str]) -> int:
    if value is None:
        return int(default)
    if isinstance(value, Priority):
        return int(value)
    if isinstance(value, str) and value.upper() in Priority.__members__:
        return int(Priority[value.upper()])
    bad["priority"] = "must be critical, high, normal or low"
    return int(default)


def _queue(value: object, bad: dict[str, str]) -> str:
    if not isinstance(value, str) or not QUEUE.fullmatch(value):
        bad["queue"] = "must look like 'q:default'"
    elif value == DEAD_LETTER_QUEUE:
        bad["queue"] = f"must not be {DEAD_LETTER_QUEUE}; only a dead job goes there"
    return str(value)


def _attempts(value: object, default: int, bad: dict[str, str]) -> int:
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 100:
        bad["max_attempts"] = "must be a whole number from 1 to 100"
        return default
    return value


def _instant(
    name: str, value: object, now: datetime, bad: dict[str, str]
) -> str | None:
    if value is None:
        return None
    if not isinstance(value, datetime):
        bad[name] = "must be a datetime"
    elif value.tzinfo is None:
        bad[name] = "has no time zone; use an aware datetime, for example datetime.now(UTC)"
    elif abs(value.astimezone(UTC) - now) > FARTHEST:
        bad[name] = "is more than five years away; is it in milliseconds by mistake?"
    else:
        return write_instant(value)
    return None


def _traceparent(value: object, bad: dict[str, str]) -> str | None:
    if value is None:
        return None
    if isinstance(value, str) and _TRACEPARENT.fullmatch(value):
        return value
    bad["traceparent"] = "must be a W3C traceparent"
    return None


def _schedule(
    row: dict[str, Any], handler: Handler, value: object, now: datetime, bad: dict[str, str]
) -> None:
    """A scheduled job waits on q:maintenance until it is due; only two categories may."""
    if handler.category.name not in ("maintenance", "notification"):
        bad["scheduled_for"] = "is only for maintenance jobs and delayed notifications"
        return
    due = _instant("scheduled_for", value, now, bad)
    if due is None or not isinstance(value, datetime):
        return
    if value.astimezone(UTC) < now - DRIFT:
        bad["scheduled_for"] = "is more than 60 seconds in the past"
        return
    row["scheduled_for"] = due
    row["not_before_at"] = due
    if handler.category.name == "maintenance":
        row["queue"] = "q:maintenance"


def is_job_type(text: str) -> bool:
    """Whether *text* may name a job type."""
    return bool(JOB_TYPE.fullmatch(text)) and len(text) <= 100
