"""The state hook of extensions: statements for jobs that reach a state in this transaction."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from holdfast.engine.job import Claimed, State
from holdfast.store import Tx


class Reached(NamedTuple):
    """A job and the state that it has reached."""

    org_id: str
    job_id: str
    job_type: str
    state: str


def run_state_statements(tx: Tx, reached: Iterable[Reached]) -> None:
    """Run the declared statements for these jobs, each statement once for all of its jobs.

    If no job has a declared type, nothing is sent to the database.
    """
    if not tx.state_statements:
        return
    jobs = list(reached)
    for declared in tx.state_statements:
        rows = [
            job._asdict()
            for job in jobs
            if job.state in declared.states
            and (declared.job_types is None or job.job_type in declared.job_types)
        ]
        if rows:
            tx.affected(declared.statement, jobs=rows)


def follow_claims(tx: Tx, claimed: list[Claimed]) -> list[Claimed]:
    """Run the statements declared for jobs that start processing; return the jobs."""
    run_state_statements(
        tx, (Reached(job.org_id, job.id, job.job_type, State.PROCESSING) for job in claimed)
    )
    return claimed
