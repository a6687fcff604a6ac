"""Quarantine: a row that violates a constraint is dead-lettered and does not block other jobs.

Such a row comes from a restore, a manual change or an older version. If it can be repaired, the job
is dead-lettered as ROW_INVALID; otherwise the row is left as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from holdfast.engine.capacity import consume_tokens, find_capacity
from holdfast.engine.classify import fault_of
from holdfast.engine.fairness import Order, allocate, unlimited
from holdfast.engine.job import Actor, ActorType, Claimed, Dead
from holdfast.engine.limits import Rules
from holdfast.engine.settle import Settled, settle_in
from holdfast.engine.state_hook import follow_claims
from holdfast.errors import RowInvalid, RuleBroken
from holdfast.store import Statements, Store, Tx

if TYPE_CHECKING:
    from holdfast.engine.claim import ClaimRequest

SQL = Statements("holdfast.engine", "job.sql")
FLOW = Statements("holdfast.engine", "flow.sql")


def quarantine_job(store: Store, job: Claimed, *, rule: str, actor: Actor) -> Settled:
    """Dead-letter a claimed job whose row rejects every other outcome."""
    try:
        return store.write(lambda tx: quarantine_job_in(tx, job, rule=rule, actor=actor))
    except RuleBroken:
        return Settled(job, _dead(job, rule), lease_held=False)


def quarantine_job_in(tx: Tx, job: Claimed, *, rule: str, actor: Actor) -> Settled:
    """Dead-letter such a job in an open transaction."""
    tx.affected(SQL.repair_job, org_id=job.org_id, id=job.id)
    (settled,) = settle_in(tx, [(job, _dead(job, rule))], actor=actor)
    return settled


def _dead(job: Claimed, rule: str) -> Dead:
    return Dead(fault_of(RowInvalid(rule=rule), stage=job.stage, attempt=job.attempt))


# How many broken rows that cannot be dead-lettered a claim skips.
PASS_OVER = 500


def claim_one_by_one(store: Store, rules: Rules, request: ClaimRequest) -> list[Claimed]:
    """Claim one by one if a row violates a constraint: that job is quarantined."""
    claimed: list[Claimed] = []
    for quota, rows in _candidates(store, request):
        wanted = len(claimed) + quota
        for org_id, job_id, limit_key in rows:
            if len(claimed) >= wanted:
                break
            one = _One(rules, request, org_id, job_id, limit_key)
            try:
                claimed += store.write(one.take)
            except RuleBroken as exc:
                with suppress(RuleBroken):
                    request.dead_lettered.extend(
                        store.write(partial(one.quarantine, rule=exc.rule))
                    )
    return claimed


def _candidates(
    store: Store, request: ClaimRequest
) -> Iterator[tuple[int, list[tuple[str, str, str]]]]:
    """The rows that the claim would have considered, by backlog, with the number to take."""
    if request.order is Order.CREATED_AT_ASC:
        params = {
            "queue": request.queue,
            "limit": request.limit + PASS_OVER,
            **request.which_oldest,
        }
        yield request.limit, store.values(SQL.list_due, **params)
        return
    shares = allocate(request.backlogs, request.limit, unlimited(request.limit), request.at).shares
    for (key, org_id), quota in shares.items():
        params = {"queue": request.queue, "limit_key": key, "org_id": org_id}
        params["limit"] = quota + PASS_OVER
        yield quota, store.values(SQL.list_backlog, **params)


@dataclass(frozen=True, slots=True)
class _One:
    """A single job that a claim may take."""

    rules: Rules
    request: ClaimRequest
    org_id: str
    job_id: str
    limit_key: str

    def take(self, tx: Tx) -> list[Claimed]:
        rules, request = self.rules, self.request
        if tx.one(FLOW.read_revision)["revision"] != rules.revision:
            return []
        if not rules.is_limited(request.queue, [self.limit_key]):
            return self._claim(tx)
        capacity = find_capacity(tx, rules, request.queue, 1, [self.limit_key])
        if (
            min(
                capacity.jobs, capacity.keys.get(self.limit_key, 1), capacity.of_tenant(self.org_id)
            )
            < 1
        ):
            return []
        claimed = self._claim(tx)
        consume_tokens(tx, rules, request.queue, claimed)
        return claimed

    def quarantine(self, tx: Tx, rule: str) -> list[Settled]:
        tx.affected(SQL.repair_job, org_id=self.org_id, id=self.job_id)
        actor = Actor(ActorType.SYSTEM, self.request.worker_id)
        return [quarantine_job_in(tx, job, rule=rule, actor=actor) for job in self._claim(tx)]

    def _claim(self, tx: Tx) -> list[Claimed]:
        rows = tx.values(
            SQL.claim_job,
            org_id=self.org_id,
            id=self.job_id,
            worker_id=self.request.worker_id,
            lease_ms=self.request.lease_ms,
        )
        return follow_claims(tx, [Claimed(*row) for row in rows])
