"""Jobs in any state, written by hand, with only the database constraints as a check."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from holdfast.engine.job import State
from holdfast.errors import RuleBroken, StoreBusy
from holdfast.store import Row, Store
from holdfast.store.query import Statement
from tests.story import ORG, by_hand, look

NOON = "2026-01-05T12:00:00.000Z"
LATER = "2026-03-05T12:00:00.000Z"

# The columns of an outcome that depend on how the job ended.
SHAPE: dict[State, dict[str, Any]] = {
    State.COMPLETED: {"result": '{"rows": 1}'},
    State.FAILED: {"error_class": "GONE", "last_error": "it is gone"},
    State.CANCELED: {},
}

_WAY: dict[State, tuple[State, ...]] = {
    State.QUEUED: (),
    State.PROCESSING: (State.PROCESSING,),
    State.BATCH_SUBMITTED: (State.PROCESSING, State.BATCH_SUBMITTED),
    State.COMPLETED: (State.PROCESSING, State.COMPLETED),
    State.FAILED: (State.PROCESSING, State.FAILED),
    State.CANCELED: (State.CANCELED,),
}


# The id of the next event of the audit, found by the INSERT itself.
NEXT_EVENT = "next event"
_NEXT = {
    "sqlite": "(SELECT coalesce(max(id), 0) + 1 FROM holdfast.audit_event)",
    "postgres": "nextval('holdfast.audit_event_id_seq')",
}


def insert_row(store: Store, table: str, row: dict[str, Any]) -> None:
    names = ", ".join(row)
    places = ", ".join(
        _NEXT[store.dialect.name] if value == NEXT_EVENT else f":{name}"
        for name, value in row.items()
    )
    row = {name: value for name, value in row.items() if value != NEXT_EVENT}
    text = f"INSERT INTO holdfast.{table} ({names}) VALUES ({places})"
    if store.dialect.name == "sqlite":
        by_hand(store, text, **row)
        return
    # PostgreSQL runs a transaction that met job_moved again, for 15 seconds if it may.
    statement = Statement("by_hand", "many", "", text, frozenset())
    store.write_soon(lambda tx: tx.many(statement, **row), seconds=0.2)


def insert(store: Store, org_id: str = ORG, **columns: Any) -> str:
    """A queued job; *columns* replace the defaults of its envelope."""
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
        "max_attempts": 5,
        "event_id": NEXT_EVENT,
        **columns,
    }
    insert_row(store, "job_envelope", row)
    return str(row["id"])


NO_CLAIM = dict.fromkeys(("started_event_id", "started_attempt", "claimed_at", "claimed_by"))
A_CLAIM = {"started_event_id": 1, "started_attempt": 1, "claimed_at": NOON, "claimed_by": "w1"}


def claim_of(store: Store, job_id: str) -> dict[str, Any] | None:
    """The claim of a job that a worker or a provider has."""
    for place in ("job_running", "job_submitted"):
        columns = ", ".join(NO_CLAIM)
        found = look(store, f"SELECT {columns} FROM holdfast.{place} WHERE job_id = :id", id=job_id)
        if found:
            return dict(found[0])
    return None


def record(store: Store, job_id: str) -> Row:
    """The row of a job in the view."""
    return look(store, "SELECT * FROM holdfast.job WHERE id = :id", id=job_id)[0]


def claim_by_hand(store: Store, job_id: str, **columns: Any) -> None:
    """Insert the claim of a job; *columns* replace those of a legal one."""
    job = record(store, job_id)
    row = {
        "org_id": job["org_id"],
        "job_id": job_id,
        "turn": job["turn"],
        "started_event_id": NEXT_EVENT,
        "started_attempt": job["attempt_count"] + 1,
        "claimed_at": NOON,
        "lease_expires_at": LATER,
        "lease_token": job["lease_token"] + 1,
        "attempt_count": job["attempt_count"],
        "max_attempts": job["max_attempts"],
        "queue": job["origin_queue"],
        "limit_key": job["limit_key"],
        "stage": job["stage"],
        "claimed_by": "w1",
        **columns,
    }
    insert_row(store, "job_running", row)


def end_attempt(store: Store, job_id: str, **columns: Any) -> None:
    """Insert the end of an attempt, after which the job is queued again."""
    job = record(store, job_id)
    numbers = look(
        store,
        "SELECT coalesce(max(number), 0) AS newest FROM holdfast.job_attempt WHERE job_id = :id",
        id=job_id,
    )
    row = {
        "org_id": job["org_id"],
        "job_id": job_id,
        "number": numbers[0]["newest"] + 1,
        "lease_token": job["lease_token"],
        "ended_at": NOON,
        "attempt_count": job["attempt_count"],
        "max_attempts": job["max_attempts"],
        "keeps_lease": False,
        "stage": job["stage"],
        "pipeline_version": job["pipeline_version"],
        "provider_batch_id": job["provider_batch_id"],
        **(NO_CLAIM if columns.get("keeps_lease") else claim_of(store, job_id) or A_CLAIM),
        **columns,
    }
    insert_row(store, "job_attempt", row)


def submit(store: Store, job_id: str, **columns: Any) -> None:
    """Insert the submission of a job to a provider."""
    job = record(store, job_id)
    row = {
        "org_id": job["org_id"],
        "job_id": job_id,
        "submitted_at": NOON,
        "lease_token": job["lease_token"],
        "queue": job["origin_queue"],
        "stage": job["stage"],
        "provider_batch_id": "batch_1",
        **(claim_of(store, job_id) or A_CLAIM),
        **columns,
    }
    insert_row(store, "job_submitted", row)


def end(store: Store, job_id: str, state: State, **columns: Any) -> None:
    """Insert the outcome of a job."""
    job = record(store, job_id)
    unclaimed = NO_CLAIM if state is State.CANCELED else A_CLAIM
    row = {
        **(claim_of(store, job_id) or unclaimed),
        "org_id": job["org_id"],
        "job_id": job_id,
        "finished_at": NOON,
        "key_expires_at": LATER,
        "lease_token": job["lease_token"],
        "attempt_count": job["attempt_count"] + (state is State.FAILED),
        "state": state,
        "provider_batch_id": job["provider_batch_id"],
        **SHAPE.get(state, {}),
        **columns,
    }
    insert_row(store, "job_outcome", row)


def move(store: Store, job_id: str, old: State, new: State) -> None:
    """Insert the row that brings a job to *new*, so that only the transition can be wrong."""
    match new:
        case State.QUEUED:
            end_attempt(store, job_id)
        case State.PROCESSING:
            claim_by_hand(store, job_id)
        case State.BATCH_SUBMITTED:
            submit(store, job_id)
        case _:
            end(store, job_id, new)


def job_in(store: Store, state: State, **columns: Any) -> str:
    """A job that reached *state* by legal transitions."""
    job_id = insert(store, **columns)
    old = State.QUEUED
    for new in _WAY[state]:
        move(store, job_id, old, new)
        old = new
    return job_id


# What PostgreSQL says instead of the rule job_moved: the store tries such a transaction again.
MOVED = "job_moved"


class _Refused:
    def __init__(self, *rules: str) -> None:
        self.rules = rules
        self._raises = pytest.raises((RuleBroken, StoreBusy))

    def __enter__(self) -> None:
        self._caught = self._raises.__enter__()

    def __exit__(self, *exc: Any) -> bool:
        handled = bool(self._raises.__exit__(*exc))
        caught = self._caught.value
        if isinstance(caught, RuleBroken):
            assert caught.rule in self.rules, str(caught)
        else:
            assert MOVED in self.rules, str(caught)
            assert "moved a job" in str(caught)
        return handled


def refused(*rules: str) -> _Refused:
    """The database refuses the block, by one of these constraints."""
    return _Refused(*rules)
