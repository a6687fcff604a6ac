"""Quarantine: a row that breaks a rule ends as a dead letter and never stands in others' way.

Such a row comes from outside: a restore, a hand in the database, an older version. What can be
made legal is, and the job is buried as ROW_INVALID; what cannot is left where it stands.
"""

from __future__ import annotations

from holdfast.engine.classify import fault_of
from holdfast.engine.job import Actor, Claimed, Dead
from holdfast.engine.settle import Settled, settle_in
from holdfast.errors import RowInvalid, RuleBroken
from holdfast.store import Statements, Store, Tx

SQL = Statements("holdfast.engine", "job.sql")


def bury_broken(store: Store, job: Claimed, *, rule: str, actor: Actor) -> Settled:
    """End a claimed job whose row refuses every other outcome, or leave it if it refuses all."""
    try:
        return store.write(lambda tx: bury_broken_in(tx, job, rule=rule, actor=actor))
    except RuleBroken:
        return Settled(job, _dead(job, rule), held=False)


def bury_broken_in(tx: Tx, job: Claimed, *, rule: str, actor: Actor) -> Settled:
    """The same in a transaction that is already open."""
    tx.affected(SQL.repair_job, org_id=job.org_id, id=job.id)
    (settled,) = settle_in(tx, [(job, _dead(job, rule))], actor=actor)
    return settled


def _dead(job: Claimed, rule: str) -> Dead:
    return Dead(fault_of(RowInvalid(rule=rule), stage=job.stage, attempt=job.attempt))
