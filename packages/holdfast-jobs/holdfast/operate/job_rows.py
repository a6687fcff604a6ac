"""The rows of a listing of jobs, and the filter that selects them.

``holdfast jobs list`` imports this module without the rest of the operator API.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from holdfast.arguments import name, named_id, word
from holdfast.clock import read_instant
from holdfast.config.setting_type import DEAD_LETTER_QUEUE
from holdfast.engine.job_state import State
from holdfast.operate.authorization import Action, OperatorContext
from holdfast.operate.page import NEWEST, Page, check_limit, page_of, read_filter
from holdfast.store import Row, Statements, Tx

SQL = Statements("holdfast.operate", "jobs.sql")

FEW = 10_000
"""A listing of a state reads all jobs in it if they are fewer than this."""
FEW_KEYS = 100_000
"""The same if it needs only their keys."""
EVERY_TENANT = 2**31 - 1


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs to list; a field that is None matches every job."""

    org_id: str | None = None
    state: State | str | None = None
    job_type: str | None = None
    queue: str | None = None
    error_class: str | None = None

    def __str__(self) -> str:
        """Text for the audit and for errors."""
        found = {item.name: getattr(self, item.name) for item in fields(self)}
        given = {name: str(value)[:100] for name, value in found.items() if value is not None}
        return ", ".join(f"{name}={value!r}" for name, value in given.items())

    def check(self) -> JobFilter:
        """Return the filter in stored form; raises InvalidAction with every bad field."""
        names = dict.fromkeys(("job_type", "queue", "error_class"), name)
        checks = {"org_id": named_id, "state": word(State), **names}
        return read_filter(self, checks)


ALL = JobFilter()


@dataclass(frozen=True, slots=True)
class JobRow:
    """One job of a listing, without its payload and result."""

    id: str
    org_id: str
    project_id: str | None
    job_type: str
    category: str
    state: State
    queue: str
    origin_queue: str
    stage: str
    priority: str
    attempt_count: int
    max_attempts: int
    not_before_at: datetime | None
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None
    last_error: str | None
    error_class: str | None

    @classmethod
    def from_row(cls, row: Row) -> JobRow:
        read = {item.name: row[item.name] for item in fields(cls)}
        for column in ("not_before_at", "created_at", "updated_at", "finished_at"):
            read[column] = None if read[column] is None else read_instant(read[column])
        return cls(**{**read, "state": State(read["state"])})


def list_jobs(
    context: OperatorContext,
    wanted: JobFilter | None = None,
    *,
    limit: int = 50,
    before: str = NEWEST,
) -> Page[JobRow]:
    """Jobs, newest first."""
    wanted = (wanted or ALL).check()
    org_id = context.tenant_for(Action.LOOK, wanted.org_id, subject="jobs")
    state = wanted.state
    if state is None and wanted.queue == DEAD_LETTER_QUEUE:
        state = State.FAILED
    params = {
        "state": state,
        "job_type": wanted.job_type,
        "queue": wanted.queue,
        "error_class": wanted.error_class,
        "before": before,
        "limit": check_limit(limit) + 1,
    }
    rows = context.store.read(lambda tx: _read_page(tx, org_id, params))
    return page_of([JobRow.from_row(row) for row in rows], limit, lambda job: job.id)


def _read_page(tx: Tx, org_id: str | None, params: Mapping[str, Any]) -> list[Row]:
    """Read the jobs in a state that few jobs are in from the table of that state."""
    state = params["state"]
    narrow = ("job_type", "queue", "error_class")
    is_narrow = any(params[name] is not None for name in narrow)
    if state not in (None, State.COMPLETED, State.CANCELED):
        bound = FEW if is_narrow or state == State.FAILED else FEW_KEYS
        if tx.one(SQL.count_placed, state=state, bound=bound)["jobs"] < bound:
            return tx.many(SQL.list_placed_jobs, **params, org_id=org_id, bound=bound)
    if org_id is not None:
        return tx.many(SQL.list_jobs, **params, org_id=org_id)
    tenants = EVERY_TENANT if is_narrow or state is not None else params["limit"]
    return tx.many(SQL.list_all_jobs, **params, tenants=tenants)


def attempts_made(state: str, attempt_count: int) -> int:
    """The attempts that were made or are under way; the stored count has failed ones only."""
    return attempt_count + (state in (State.PROCESSING, State.BATCH_SUBMITTED, State.COMPLETED))
