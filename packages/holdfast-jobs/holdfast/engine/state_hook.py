"""The state hook of extensions: statements for jobs that reach a state in this transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from holdfast.engine.job import Claimed, Outcome, Snoozed, State
from holdfast.store import Statement, Tx
from holdfast.store.caller_connection import note_queues

# A job whose idempotency key contains this text is a step of a workflow. So is a replay of it,
# because the key of a replay begins with the key of the original.
STEP_KEY = ":workflow/"

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


def reached(job: Claimed, state: str, outcome: Outcome | None = None) -> Reached:
    """What the hook needs to know about a job that reached *state*."""
    marker = STEP if STEP_KEY in job.idempotency_key else None
    if isinstance(outcome, Snoozed) and outcome.awaits_event:
        marker = AWAITS
    return Reached(job.org_id, job.id, job.job_type, state, job.replay_of or job.id, marker)


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
            job._asdict()
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


def _run(tx: Tx, statement: Statement, jobs: Sequence[Mapping[str, Any]]) -> int:
    """Run a statement; return how many rows it affected or returned."""
    if statement.shape == "affected":
        return tx.affected(statement, jobs=jobs)
    found = tx.many(statement, jobs=jobs)
    note_queues([str(row["queue"]) for row in found if "queue" in row])
    return len(found)


def follow_claims(tx: Tx, claimed: list[Claimed]) -> list[Claimed]:
    """Run the statements declared for jobs that start processing; return the jobs."""
    if follows(tx, State.PROCESSING):
        run_state_statements(tx, (reached(job, State.PROCESSING) for job in claimed))
    return claimed
