"""Rows in any state, written by hand, with only the database constraints as a check."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from holdfast.engine.job import State
from holdfast.errors import RuleBroken
from holdfast.store import Store
from tests.story import ORG, by_hand

NOON = "2026-01-05T12:00:00.000Z"
LATER = "2026-03-05T12:00:00.000Z"

_NO_LEASE = {"lease_expires_at": None, "claimed_at": None, "claimed_by": None}
_OPEN = {"finished_at": None, "key_expires_at": None, "result": None}
_ENDED = {**_NO_LEASE, "finished_at": NOON, "key_expires_at": LATER, "result": None}

# The other columns that a row of each state must have.
SHAPE: dict[State, dict[str, Any]] = {
    State.QUEUED: {**_NO_LEASE, **_OPEN, "queue": "q:default"},
    State.PROCESSING: {
        **_OPEN,
        "queue": "q:default",
        "lease_expires_at": LATER,
        "claimed_at": NOON,
        "claimed_by": "w1",
    },
    State.BATCH_SUBMITTED: {
        **_NO_LEASE,
        **_OPEN,
        "queue": "q:default",
        "provider_batch_id": "batch_1",
    },
    State.COMPLETED: {**_ENDED, "queue": "q:default", "result": '{"rows": 1}'},
    State.FAILED: {
        **_ENDED,
        "queue": "q:deadletter",
        "error_class": "GONE",
        "last_error": "it is gone",
        "last_error_at": NOON,
        "first_failed_at": NOON,
    },
    State.CANCELED: {**_ENDED, "queue": "q:default"},
}

_WAY: dict[State, tuple[State, ...]] = {
    State.QUEUED: (),
    State.PROCESSING: (State.PROCESSING,),
    State.BATCH_SUBMITTED: (State.PROCESSING, State.BATCH_SUBMITTED),
    State.COMPLETED: (State.PROCESSING, State.COMPLETED),
    State.FAILED: (State.PROCESSING, State.FAILED),
    State.CANCELED: (State.CANCELED,),
}


def insert(store: Store, org_id: str = ORG, **columns: Any) -> str:
    """A queued job; *columns* replace its defaults."""
    job_id = str(uuid.uuid4())
    job_type = columns.get("job_type", "report.export")
    row = {
        "id": job_id,
        "org_id": org_id,
        "job_type": job_type,
        "category": "general",
        "actor_type": "system",
        "actor_id": "hand",
        "request_id": "r1",
        "correlation_id": "c1",
        "idempotency_key": f"{job_type}:{org_id}::{job_id}",
        "payload": '{"project": 7}',
        "payload_hash": "abc",
        "priority": 20,
        "origin_queue": "q:default",
        "created_at": NOON,
        "queue": "q:default",
        "max_attempts": 5,
        "updated_at": NOON,
        "key_last_seen_at": NOON,
        "turn": job_id,
        **columns,
    }
    names, places = ", ".join(row), ", ".join(":" + name for name in row)
    by_hand(store, f"INSERT INTO holdfast.job ({names}) VALUES ({places})", **row)
    return job_id


def update(store: Store, job_id: str, **columns: Any) -> None:
    changes = ", ".join(f"{name} = :{name}" for name in columns)
    by_hand(store, f"UPDATE holdfast.job SET {changes} WHERE id = :_job", _job=job_id, **columns)


def move(store: Store, job_id: str, old: State, new: State) -> None:
    """Change the state and all its columns, so that only the transition itself can be wrong."""
    columns = {"state": new, **SHAPE[new]}
    changes = ", ".join(f"{name} = :{name}" for name in columns)
    if (old, new) == (State.QUEUED, State.PROCESSING):
        changes += ", lease_token = lease_token + 1"
    by_hand(store, f"UPDATE holdfast.job SET {changes} WHERE id = :_job", _job=job_id, **columns)


def job_in(store: Store, state: State, **columns: Any) -> str:
    """A job that reached *state* by legal transitions."""
    job_id = insert(store, **columns)
    old = State.QUEUED
    for new in _WAY[state]:
        move(store, job_id, old, new)
        old = new
    return job_id


class _Refused:
    def __init__(self, *rules: str) -> None:
        self.rules = rules
        self._raises = pytest.raises(RuleBroken)

    def __enter__(self) -> None:
        self._caught = self._raises.__enter__()

    def __exit__(self, *exc: Any) -> bool:
        handled = bool(self._raises.__exit__(*exc))
        assert self._caught.value.rule in self.rules, str(self._caught.value)
        return handled


def refused(*rules: str) -> _Refused:
    """The database refuses the block, by one of these constraints."""
    return _Refused(*rules)
