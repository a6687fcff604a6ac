"""Settle: write the outcomes of claimed jobs. Every claim ends here.

A group of any size is one transaction with a fixed number of statements: one fenced update of the
jobs, one insert of their audit events, and one each for dead letters, stage results and lost leases
if there are any. A lost lease affects only its own job; the rest of the group is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType
from typing import Any, assert_never, get_args

from holdfast.document import decode
from holdfast.engine import audit
from holdfast.engine.dead_letter import write_dead_letters
from holdfast.engine.job import (
    DEAD_LETTER_QUEUE,
    Actor,
    Advanced,
    Canceled,
    Claimed,
    ClaimId,
    Completed,
    Dead,
    Fault,
    Outcome,
    Released,
    Retry,
    Snoozed,
    State,
    Submitted,
    unit_of,
)
from holdfast.engine.state_hook import run_state_statements, state_reached
from holdfast.errors import ConfigError
from holdfast.event import DeadLetterEscalated
from holdfast.store import Statement, Statements, Store, Tx
from holdfast.store.caller_connection import noting_queues

SQL = Statements("holdfast.engine", "job.sql")


# Not frozen: there is one for every settled job.
@dataclass(slots=True)
class Settled:
    """One claim and its outcome. ``lease_held`` is False if the lease was lost before."""

    job: Claimed
    outcome: Outcome
    lease_held: bool
    cancel_requested_at: str | datetime | None = None
    escalated: DeadLetterEscalated | None = None
    # The job would be requeued, but a cancel was requested.
    canceled_instead: bool = False
    # False when the outcome was recorded by an earlier run of this work and the claim was lost
    # since.
    is_claim_open: bool = True

    @property
    def next_claim(self) -> Claimed | None:
        """The same claim at its next stage, if there is one."""
        if not self.lease_held or not self.is_claim_open or not isinstance(self.outcome, Advanced):
            return None
        return replace(
            self.job,
            stage=self.outcome.next_stage,
            attempt_count=0,
            max_attempts=self.outcome.next_max_attempts,
            outputs={**self.job.outputs, self.job.stage: decode(self.outcome.output)},
            checkpoint=None,
            cancel_requested_at=self.cancel_requested_at,
        )


NOTHING: Mapping[ClaimId, Outcome] = MappingProxyType({})

StoresOf = Callable[[str], Sequence[Statement]]
"""Returns the statements that a job type declares for the rows of its outcomes."""


def settle(
    store: Store,
    group: Sequence[tuple[Claimed, Outcome]],
    *,
    actor: Actor,
    stores: StoresOf | None = None,
    perhaps: Mapping[ClaimId, Outcome] = NOTHING,
) -> list[Settled]:
    """Write a group of outcomes in one transaction.

    *perhaps* are outcomes of the same claims whose COMMIT got no reply. If one of them was
    recorded, it is the outcome.
    """
    if not group:
        return []
    with noting_queues() as queues:
        settled = store.write(
            lambda tx: settle_in(tx, group, actor=actor, stores=stores, perhaps=perhaps)
        )
    if queues:
        # Steps of workflows became due.
        store.announce(sorted(queues))
    return settled


def settle_in(
    tx: Tx,
    group: Sequence[tuple[Claimed, Outcome]],
    *,
    actor: Actor,
    stores: StoresOf | None = None,
    perhaps: Mapping[ClaimId, Outcome] = NOTHING,
) -> list[Settled]:
    """Write a group of outcomes in an open transaction.

    Of two outcomes of one claim the first is written; the second finds the claim closed.
    """
    claims = [job.claim_id for job, _ in group]
    settled: dict[int, Settled] = {}
    waiting: Sequence[int] = range(len(group))
    while waiting:
        taken: dict[ClaimId, int] = {}
        for place in waiting:
            taken.setdefault(claims[place], place)
        done = _settle_claims(
            tx,
            list(taken),
            [group[place] for place in taken.values()],
            actor=actor,
            stores=stores,
            perhaps=perhaps,
        )
        settled |= zip(taken.values(), done, strict=True)
        waiting = [place for place in waiting if place not in settled]
    return [settled[place] for place in range(len(group))]


def find_settled(tx: Tx, job: Claimed, outcome: Outcome, *, actor: Actor) -> Settled | None:
    """Return an outcome whose COMMIT got no reply, if it was recorded.

    The lookup waits for the row lock, so a COMMIT in progress on the server has ended by then.
    """
    tx.maybe(SQL.check_lease, org_id=job.org_id, id=job.id, lease_token=job.lease_token)
    return _recorded_before(tx, [(job, outcome)], actor).get(job.claim_id)


def _settle_claims(
    tx: Tx,
    claims: Sequence[ClaimId],
    group: Sequence[tuple[Claimed, Outcome]],
    *,
    actor: Actor,
    stores: StoresOf | None,
    perhaps: Mapping[ClaimId, Outcome],
) -> list[Settled]:
    """Write the outcomes of different claims."""
    units = [unit_of(job.org_id, job.job_type, job.unit_key) for job, _ in group if job.unit_key]
    tx.lock_units(units)
    changes = [change_of(job, outcome) for job, outcome in group]
    rows = tx.values(SQL.settle_jobs, changes=changes)
    held = {(org_id, job_id, token): cancel for org_id, job_id, token, cancel in rows}
    known: dict[ClaimId, Settled] = {}
    kept = group
    if len(held) < len(group):
        missed = [item for claim, item in zip(claims, group, strict=True) if claim not in held]
        unproven = [(job, perhaps[job.claim_id]) for job, _ in missed if job.claim_id in perhaps]
        known = _recorded_before(tx, [*missed, *unproven], actor)
        kept = [item for claim, item in zip(claims, group, strict=True) if claim in held]

    run_state_statements(
        tx,
        (
            state_reached(job, change["state"], outcome)
            for claim, (job, outcome), change in zip(claims, group, changes, strict=True)
            if claim in held and change["state"] != job.state
        ),
    )
    _store_rows(tx, kept, stores)
    asked = [item for claim, item in zip(claims, group, strict=True) if held.get(claim)]
    stopped = _stop_requested(tx, asked)
    run_state_statements(tx, (state_reached(job, State.CANCELED) for job in stopped))
    letters = write_dead_letters(tx, [*kept, *((job, Canceled()) for job in stopped)])
    stopped_keys = {job.claim_id for job in stopped}
    settled = [
        known.get(claim)
        or Settled(
            job,
            outcome,
            claim in held,
            held.get(claim),
            letters.escalated.get((job.org_id, job.id)),
            claim in stopped_keys,
        )
        for claim, (job, outcome) in zip(claims, group, strict=True)
    ]
    _finish_stages(tx, kept)
    entries = [
        entry
        for claim, item in zip(claims, settled, strict=True)
        if claim not in known
        for entry in _entries(item)
    ]
    entries += [audit.Entry(job.org_id, job.id, "job.canceled", job.attempt) for job in stopped]
    audit.record(tx, actor, [*entries, *letters.entries])
    return settled


def _finish_stages(tx: Tx, group: Sequence[tuple[Claimed, Outcome]]) -> None:
    stages = [
        _stage(job, outcome)
        for job, outcome in group
        if isinstance(outcome, Advanced) or (isinstance(outcome, Completed) and job.outputs)
    ]
    if stages:
        tx.affected(SQL.finish_stages, stages=stages)


def _store_rows(tx: Tx, group: Sequence[tuple[Claimed, Outcome]], stores: StoresOf | None) -> None:
    """Run the declared statements of each job type, with the rows of the whole group.

    If the database rejects them, the outcomes are rolled back too.
    """
    by_type: dict[str, dict[str, list[Mapping[str, Any]]]] = {}
    for job, outcome in group:
        if isinstance(outcome, _KEEPS) and outcome.rows:
            rows = by_type.setdefault(job.job_type, {})
            for name, added in outcome.rows.items():
                rows.setdefault(name, []).extend(added)
    for job_type, rows in by_type.items():
        statements = () if stores is None else stores(job_type)
        known = {name for statement in statements for name in statement.row_sets}
        if strange := sorted(rows.keys() - known):
            raise ConfigError(
                f"Job type {job_type!r} returned rows {strange[0]!r}, which no statement in its"
                " stores= accepts."
            )
        for statement in statements:
            given = {name: rows.get(name, []) for name in statement.row_sets}
            if any(given.values()):
                tx.affected(statement, **given)


def _stop_requested(tx: Tx, wanted: Sequence[tuple[Claimed, Outcome]]) -> list[Claimed]:
    """Cancel jobs that would be requeued although a cancel was requested."""
    back = {(job.org_id, job.id): job for job, outcome in wanted if isinstance(outcome, _BACK)}
    if not back:
        return []
    jobs = [{"org_id": job.org_id, "id": job.id} for job in back.values()]
    return [back[row["org_id"], row["id"]] for row in tx.many(SQL.stop_jobs, jobs=jobs)]


_BACK = (Retry, Snoozed, Released, Submitted)
_KEEPS = (Completed, Retry, Dead, Released)


def _recorded_before(
    tx: Tx, missed: Sequence[tuple[Claimed, Outcome]], actor: Actor
) -> dict[ClaimId, Settled]:
    """Outcomes that could not be written because an earlier run of this transaction wrote them.

    A transaction is run again if its COMMIT got no reply. Every claim raises the token, and the job
    may have been claimed again since. So the row proves a final outcome, and the audit event, which
    names the claim and its actor, proves every other outcome.
    """
    if not missed:
        return {}
    changes = [
        {**change_of(job, outcome), "place": place, "event": _CLOSED_BY.get(type(outcome))}
        for place, (job, outcome) in enumerate(missed)
    ]
    known = {}
    for row in tx.many(SQL.find_recorded, changes=changes, actor_id=actor.id):
        job, outcome = missed[row["place"]]
        known[job.claim_id] = Settled(
            job,
            outcome,
            lease_held=True,
            cancel_requested_at=row["cancel_requested_at"],
            canceled_instead=isinstance(outcome, _BACK) and row["state"] == State.CANCELED,
            is_claim_open=row["state"] == State.PROCESSING
            and row["lease_token"] == job.lease_token,
        )
    return known


# The audit event of each outcome that leaves the job unfinished.
_CLOSED_BY: Mapping[type[Outcome], str] = {
    Advanced: "job.advanced",
    Retry: "job.retried",
    Snoozed: "job.snoozed",
    Released: "job.released",
    Submitted: "job.submitted",
}


def change_of(job: Claimed, outcome: Outcome) -> dict[str, Any]:
    """The row that settle_jobs writes. Pure."""
    change: dict[str, Any] = {
        "org_id": job.org_id,
        "id": job.id,
        "lease_token": job.lease_token,
        "attempt_count": job.attempt_count,
        "stage": job.stage,
        "at_stage": job.stage,
        "was": job.state,
    }
    match outcome:
        case Completed(result):
            change |= {"state": State.COMPLETED, "result": result}
        case Advanced(_, next_stage, next_max_attempts):
            change |= {
                "state": State.PROCESSING,
                "stage": next_stage,
                "attempt_count": 0,
                "max_attempts": next_max_attempts,
            }
        case Retry(fault, delay_ms):
            change |= {"state": State.QUEUED, "delay_ms": delay_ms, **_charge(job, fault)}
        case Dead(fault):
            change |= {
                "state": State.FAILED,
                "queue": DEAD_LETTER_QUEUE,
                **_charge(job, fault),
            }
        case Snoozed(delay_ms):
            change |= {"state": State.QUEUED, "delay_ms": delay_ms}
        case Released(_, delay_ms):
            change |= {"state": State.QUEUED, "delay_ms": delay_ms}
        case Submitted(provider_batch_id):
            change |= {"state": State.BATCH_SUBMITTED, "provider_batch_id": provider_batch_id}
        case Canceled():
            change |= {"state": State.CANCELED}
        case _:
            assert_never(outcome)
    return change


def _charge(job: Claimed, fault: Fault) -> dict[str, Any]:
    return {
        "attempt_count": job.attempt_count + 1,
        "error_class": fault.error_class,
        "last_error": fault.last_error,
    }


def _stage(job: Claimed, outcome: Advanced | Completed) -> dict[str, Any]:
    output = outcome.output if isinstance(outcome, Advanced) else outcome.result
    return {
        "org_id": job.org_id,
        "job_id": job.id,
        "stage": job.stage,
        "attempts": job.attempt,
        "output": output,
    }


def _entries(item: Settled) -> list[audit.Entry]:
    job = item.job
    if item.lease_held and type(item.outcome) is Completed and not job.outputs:
        # Most outcomes.
        return [audit.Entry(job.org_id, job.id, "job.succeeded", job.attempt_count + 1)]

    def entry(name: str, **detail: Any) -> audit.Entry:
        return audit.Entry(job.org_id, job.id, name, job.attempt, detail or None)

    if not item.lease_held:
        return [entry("job.lease_lost", lease_token=job.lease_token, outcome=verb_of(item.outcome))]
    # An outcome that leaves the job unfinished names its claim; find_recorded searches for it.
    claim = {"lease_token": job.lease_token}
    match item.outcome:
        case Completed():
            # The event of the last stage of a pipeline names the stage, because it attests its
            # output.
            stage = {"stage": job.stage} if job.outputs else {}
            return [entry("job.succeeded", **stage)]
        case Advanced(_, next_stage):
            return [entry("job.advanced", stage=job.stage, next_stage=next_stage, **claim)]
        case Retry(fault, delay_ms):
            retried = entry("job.retried", delay_ms=delay_ms or 0, **claim)
            return [_failed(entry, job, fault), retried]
        case Dead(fault):
            return [
                _failed(entry, job, fault),
                entry("job.deadlettered", error_class=fault.error_class, stage=job.stage),
            ]
        case Snoozed(delay_ms):
            return [entry("job.snoozed", delay_ms=delay_ms, **claim)]
        case Released(reason):
            return [entry("job.released", reason=reason, **claim)]
        case Submitted(provider_batch_id):
            return [entry("job.submitted", provider_batch_id=provider_batch_id, **claim)]
        case Canceled():
            return [entry("job.canceled", stage=job.stage)]
        case _:
            assert_never(item.outcome)


def _failed(entry: Any, job: Claimed, fault: Fault) -> audit.Entry:
    failed: audit.Entry = entry(
        "job.failed", error_class=fault.error_class, last_error=fault.last_error, stage=job.stage
    )
    return failed


def verb_of(outcome: Outcome) -> str:
    """The name of an outcome, as logs and metrics use it."""
    return VERBS[type(outcome)]


VERBS: Mapping[type[Outcome], str] = {kind: kind.__name__.lower() for kind in get_args(Outcome)}
