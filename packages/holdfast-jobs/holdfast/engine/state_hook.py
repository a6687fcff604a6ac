"""The state hook of extensions: statements for jobs that reach a state in this transaction."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from operator import attrgetter
from typing import NamedTuple

from holdfast.engine.job import Claimed, Outcome, Snoozed, State
from holdfast.store import Row, Statement, Tx
from holdfast.store.caller_connection import note_queues

# A job whose idempotency key contains this text is a step of a workflow. So is a replay of it,
# because the key of a replay begins with the key of the original.
STEP_KEY = ":workflow/"

UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/")
_JOBS = re.compile(r"\{rows jobs: ([^}]+)\}")

# Markers of jobs: a step of a workflow, and a job that was snoozed until an event arrives.
STEP = "step"
AWAITS = "awaits"


class Reached(NamedTuple):
    """A job and the state that it has reached."""

    org_id: str
    job_id: str
    job_type: str
    state: str
    first_id: str
    marker: str | None = None
    workflow_id: str | None = None


def state_reached(job: Claimed, state: str, outcome: Outcome | None = None) -> Reached:
    """What the hook needs to know about a job that reached *state*."""
    key = job.idempotency_key
    workflow_id = workflow_of(key) if STEP_KEY in key else None
    marker = None if workflow_id is None else STEP
    if isinstance(outcome, Snoozed) and outcome.awaits_event:
        marker = AWAITS
    first = job.replay_of or job.id
    return Reached(job.org_id, job.id, job.job_type, state, first, marker, workflow_id)


def reached_row(job: Row, state: str) -> Reached:
    """The same for a row with the columns of the job."""
    workflow_id = workflow_of(job["idempotency_key"])
    marker = None if workflow_id is None else STEP
    org_id, job_id = str(job["org_id"]), str(job["id"])
    first = str(job["replay_of"] or job_id)
    return Reached(org_id, job_id, job["job_type"], state, first, marker, workflow_id)


def outside(org_id: str, job_id: str, job_type: str, state: str) -> Reached:
    """:func:`state_reached` for a job that is no step of a workflow and no replay."""
    return Reached(org_id, job_id, job_type, state, job_id)


def workflow_of(idempotency_key: str) -> str | None:
    """The workflow that the job with this key is a step of."""
    tail = idempotency_key.partition(STEP_KEY)[2]
    return tail[:36] if UUID.match(tail) else None


def follows(tx: Tx, state: str) -> bool:
    """Whether a statement is declared for jobs that reach *state*."""
    return any(state in declared.states for declared in tx.state_statements)


def run_state_statements(tx: Tx, jobs: Iterable[Reached]) -> None:
    """Run the declared statements for these jobs, each statement once for all of its jobs.

    If no job has a declared type, nothing is sent to the database.
    """
    if not tx.state_statements:
        return
    jobs = list(jobs)
    for declared in tx.state_statements:
        rows = [
            job
            for job in jobs
            if job.state in declared.states
            and (declared.marker is None or declared.marker == job.marker)
            and (declared.job_types is None or job.job_type in declared.job_types)
        ]
        if not rows or not _run(tx, declared.statement, rows):
            continue
        for group in declared.further:
            affected = [_run(tx, statement, rows) for statement in group]
            if not affected[-1]:
                break


def _run(tx: Tx, statement: Statement, jobs: Sequence[Reached]) -> int:
    """Run a statement with each distinct row once; return how many rows it affected or returned."""
    columns = _columns(statement.raw)
    pick = attrgetter(*columns)
    values = dict.fromkeys(pick(job) if len(columns) > 1 else (pick(job),) for job in jobs)
    rows = [dict(zip(columns, row, strict=True)) for row in values]
    if statement.shape == "affected":
        return tx.affected(statement, jobs=rows)
    found = tx.many(statement, jobs=rows)
    note_queues([str(row["queue"]) for row in found if "queue" in row])
    return len(found)


@cache
def _columns(raw: str) -> tuple[str, ...]:
    """The columns of the row set ``jobs`` that a statement reads."""
    named = (column.split()[0] for spec in _JOBS.findall(raw) for column in spec.split(","))
    return tuple(dict.fromkeys(named))


def follow_claims(tx: Tx, claimed: list[Claimed]) -> list[Claimed]:
    """Run the statements declared for jobs that start processing; return the jobs."""
    if follows(tx, State.PROCESSING):
        run_state_statements(tx, (state_reached(job, State.PROCESSING) for job in claimed))
    return claimed
