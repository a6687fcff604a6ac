"""Settle the jobs of a batch that its provider has accepted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.document import encode
from holdfast.engine import audit
from holdfast.engine.dead_letter import write_dead_letters
from holdfast.engine.job import Actor, Canceled, Claimed, State
from holdfast.engine.settle import Settled
from holdfast.engine.state_hook import outside, run_state_statements, state_reached
from holdfast.store import Statements, Tx

SQL = Statements("holdfast_llm.batch", "submitted.sql")
JOB_SQL = Statements("holdfast.engine", "job.sql")


@dataclass(frozen=True, slots=True)
class SubmittedJobs:
    """The number of submitted jobs, and those of them that were canceled at the same time."""

    jobs: int
    stopped: Sequence[Settled] = ()


# SQLite keeps the pages that a statement changes until it ends, for a rollback: 20,000 jobs at once
# took 80 MiB, 2,000 take 8.
STRETCH = 2_000


def submit_jobs(
    tx: Tx, *, batch_id: str, items: int, provider_batch_id: str, actor: Actor
) -> SubmittedJobs:
    """Settle every job of a batch of so many items as submitted, in large slices.

    Their execution units are not locked here: the claims are protected by their tokens, and 50,000
    locks are more than a PostgreSQL server keeps.
    """
    who = {"actor_type": actor.type, "actor_id": actor.id}
    detail = encode({"provider_batch_id": provider_batch_id})
    types, every_type = _followed_types(tx)
    jobs = 0
    for first in range(0, items, STRETCH):
        where = {"batch_id": batch_id, "first": first, "after": first + STRETCH}
        jobs += tx.affected(SQL.submit_jobs, provider_batch_id=provider_batch_id, **where)
        tx.affected(SQL.insert_submitted, detail=detail, **who, **where)
        if types or every_type:
            followed = [{"job_type": name} for name in types]
            found = tx.values(
                SQL.list_submitted, types=followed, every_type=int(every_type), **where
            )
            submitted = State.BATCH_SUBMITTED
            run_state_statements(
                tx,
                (outside(org_id, job_id, kind, submitted) for org_id, job_id, kind in found),
            )
    stopped = [Claimed(*row) for row in tx.values(SQL.find_stopped, batch_id=batch_id)]
    if stopped:
        asked = [{"org_id": job.org_id, "id": job.id} for job in stopped]
        canceled = {(row["org_id"], row["id"]) for row in tx.many(JOB_SQL.cancel_jobs, jobs=asked)}
        stopped = [job for job in stopped if (job.org_id, job.id) in canceled]
    run_state_statements(tx, (state_reached(job, State.CANCELED) for job in stopped))
    letters = write_dead_letters(tx, [(job, Canceled()) for job in stopped])
    entries = [audit.Entry(job.org_id, job.id, "job.canceled", job.attempt) for job in stopped]
    audit.record(tx, actor, [*entries, *letters.entries])
    return SubmittedJobs(jobs, [Settled(job, Canceled(), lease_held=True) for job in stopped])


def _followed_types(tx: Tx) -> tuple[list[str], bool]:
    """The job types for which a statement follows submitted jobs, and whether one follows all."""
    declared = [one for one in tx.state_statements if State.BATCH_SUBMITTED in one.states]
    named = {name for one in declared for name in one.job_types or ()}
    return sorted(named), any(one.job_types is None for one in declared)
