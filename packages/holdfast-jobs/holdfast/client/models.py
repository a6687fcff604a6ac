"""What the API answers, as frozen dataclasses. Unknown fields of newer servers are ignored."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from datetime import datetime
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

M = TypeVar("M")


@dataclass(frozen=True, slots=True)
class EnqueuedJob:
    """An enqueued job; *created* is False if it existed already."""

    id: str
    org_id: str
    job_type: str
    idempotency_key: str
    created_at: datetime
    created: bool


@dataclass(frozen=True, slots=True)
class Job:
    """A job without its payload and result."""

    id: str
    org_id: str
    project_id: str | None
    job_type: str
    category: str
    state: str
    queue: str
    stage: str
    priority: int
    attempt_count: int
    max_attempts: int
    not_before_at: datetime | None
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None
    last_error: str | None
    error_class: str | None


@dataclass(frozen=True, slots=True)
class JobCounts:
    """How many jobs are in one state and queue."""

    state: str
    queue: str
    jobs: int


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a job is in its state, and what has to happen next."""

    job_id: str
    state: str
    reason: str
    line: str
    next: str
    until: datetime | None


@dataclass(frozen=True, slots=True)
class Webhook:
    """An endpoint that gets changes. *secret* is there only when it was just made."""

    id: str
    org_id: str
    url: str
    paused_at: datetime | None
    created_at: datetime
    secret: str | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """One committed change. *position* resumes a stream after it."""

    id: str
    name: str
    subject: str
    job_id: str | None
    job_type: str | None
    queue: str | None
    state: str | None
    attempt: int | None
    org_id: str
    at: datetime
    position: str = ""


def read(model: type[M], document: Any) -> M:
    """Read a model from a JSON object. A missing field without a default is None."""
    found = document if isinstance(document, Mapping) else {}
    hints = get_type_hints(model)
    given: dict[str, Any] = {}
    for item in fields(model):  # type: ignore[arg-type]
        if item.name in found:
            given[item.name] = _value(hints[item.name], found[item.name])
        elif item.default is MISSING:
            given[item.name] = None
    return model(**given)


def _value(hint: Any, value: Any) -> Any:
    kinds = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    if datetime in kinds and isinstance(value, str):
        return datetime.fromisoformat(value)
    return value
