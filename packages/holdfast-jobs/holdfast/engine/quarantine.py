"""Quarantine: a job whose outcome violates a constraint is dead-lettered as ROW_INVALID.

Such a job comes from a restore, a manual change or an older version. It does not block other jobs.
"""

from __future__ import annotations

from dataclasses import replace

from holdfast.engine.classify import fault_of
from holdfast.engine.job import Actor, Claimed, Dead
from holdfast.engine.settle import Settled, settle_in
from holdfast.errors import RowInvalid, RuleBroken
from holdfast.store import Store, Tx


def quarantine_job(store: Store, job: Claimed, *, rule: str, actor: Actor) -> Settled:
    """Dead-letter a claimed job whose row rejects every other outcome."""
    try:
        return store.write(lambda tx: quarantine_job_in(tx, job, rule=rule, actor=actor))
    except RuleBroken:
        return Settled(job, _dead(job, rule), lease_held=False)


def quarantine_job_in(tx: Tx, job: Claimed, *, rule: str, actor: Actor) -> Settled:
    """Dead-letter such a job in an open transaction."""
    # An attempt beyond the budget is not charged.
    charged = min(job.attempt_count, job.max_attempts - 1)
    (settled,) = settle_in(
        tx, [(replace(job, attempt_count=charged), _dead(job, rule))], actor=actor
    )
    return settled


def _dead(job: Claimed, rule: str) -> Dead:
    return Dead(fault_of(RowInvalid(rule=rule), stage=job.stage, attempt=job.attempt))
