"""Settle: write the outcomes of claimed jobs. Every claim ends here.

A group of any size is one transaction with a fixed number of statements: one fenced insert for each
kind of change, usually of outcomes, one insert of audit events, and one each for dead letters,
stage results, answered cancels and lost leases if there are any. A lost lease affects only its own
job; the rest of the group is written.
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
    Actor,
    ActorType,
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
        # A cancel of many jobs locks them in this order too.
        taken = dict(sorted(taken.items()))
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
    tx.lock_units(_units_of(group))
    changes = _changes(group, actor)
    held = _write_changes(tx, group, changes, actor)
    kept = [item for claim, item in zip(claims, group, strict=True) if claim in held]
    missed = [item for claim, item in zip(claims, group, strict=True) if claim not in held]
    unproven = [(job, perhaps[job.claim_id]) for job, _ in missed if job.claim_id in perhaps]
    known = _recorded_before(tx, [*missed, *unproven], actor)

    if tx.state_statements:
        reached = [
            state_reached(job, change["state"], outcome)
            for claim, (job, outcome), change in zip(claims, group, changes, strict=True)
            if claim in held and change["state"] != job.state
        ]
        run_state_statements(tx, reached)
    if len(held) == len(group) and _are_plain(group, changes):
        return [Settled(job, outcome, lease_held=True) for job, outcome in group]
    _store_rows(tx, kept, stores)
    asked = [
        item
        for claim, item in zip(claims, group, strict=True)
        if held.get(claim) and isinstance(item[1], _BACK)
    ]
    stopped = _stop_requested(tx, asked, actor)
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
    written = {*known, *(job.claim_id for job, _ in asked)}
    entries = [
        entry
        for claim, item, change in zip(claims, settled, changes, strict=True)
        if claim not in written and not (item.lease_held and "in_group" in change)
        for entry in _entries(item)
    ]
    entries += [audit.Entry(job.org_id, job.id, "job.canceled", job.attempt) for job in stopped]
    audit.record(tx, actor, [*entries, *letters.entries])
    return settled


def _units_of(group: Sequence[tuple[Claimed, Outcome]]) -> list[str]:
    return [unit_of(job.org_id, job.job_type, job.unit_key) for job, _ in group if job.unit_key]


def _are_plain(
    group: Sequence[tuple[Claimed, Outcome]], changes: Sequence[Mapping[str, Any]]
) -> bool:
    """Whether these outcomes write nothing but their rows. Most do; the rest costs 3 us a job."""
    others = [
        job
        for (job, outcome), change in zip(group, changes, strict=True)
        if "in_group" not in change
        or job.replay_of is not None
        or not isinstance(outcome, Completed)
        or outcome.rows
    ]
    return not others


def _changes(group: Sequence[tuple[Claimed, Outcome]], actor: Actor) -> list[dict[str, Any]]:
    """The rows to write. The events of most outcomes are one row of the audit for the group."""
    changes = [change_of(job, outcome) for job, outcome in group]
    if actor.type is ActorType.SYSTEM:
        for (job, outcome), change in zip(group, changes, strict=True):
            if type(outcome) is Completed and not job.outputs:
                change["in_group"] = 1
    return changes


def _write_changes(
    tx: Tx,
    group: Sequence[tuple[Claimed, Outcome]],
    changes: Sequence[Mapping[str, Any]],
    actor: Actor,
) -> dict[ClaimId, str | datetime | None]:
    """Insert the outcomes and attempts; return the claims that were held, with their cancels.

    One statement for each kind of change in the group: usually one.
    """
    by_statement: dict[str, list[Mapping[str, Any]]] = {}
    for (job, outcome), change in zip(group, changes, strict=True):
        name = _WRITTEN_BY.get(type(outcome), "insert_outcomes")
        if job.state == State.BATCH_SUBMITTED and name != "insert_submitted":
            name += "_of_batch"
        by_statement.setdefault(name, []).append(change)
    if len(by_statement) > 1:
        # Each statement locks its claims in order, but not those of the next one.
        claims = [{"org_id": job.org_id, "id": job.id} for job, _ in group]
        tx.affected(SQL.hold_claims, jobs=claims)
    held = [
        claim
        for name, rows in by_statement.items()
        for claim in tx.values(getattr(SQL, name), changes=rows, actor_id=actor.id)
    ]
    # An outcome that ends the job answers its cancel request.
    back = [job for job, outcome in group if type(outcome) in _WRITTEN_BY]
    cancels = find_cancels(tx, back) if back else {}
    return {claim: cancels.get(claim[:2]) for claim in held}


def find_cancels(tx: Tx, jobs: Sequence[Claimed]) -> dict[tuple[str, str], str | datetime | None]:
    """When the cancellation of these jobs was requested, by tenant and id."""
    asked = [{"org_id": job.org_id, "id": job.id} for job in jobs]
    rows = tx.values(SQL.find_cancels, jobs=asked)
    return {(org_id, job_id): requested_at for org_id, job_id, requested_at in rows}


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


def _stop_requested(
    tx: Tx, asked: Sequence[tuple[Claimed, Outcome]], actor: Actor
) -> list[Claimed]:
    """Cancel jobs that were requeued although a cancel was requested."""
    if not asked:
        return []
    # Before the cancel: the digest of an event is that of the job as its outcome left it.
    answered = [Settled(job, outcome, lease_held=True) for job, outcome in asked]
    audit.record(tx, actor, [entry for item in answered for entry in _entries(item)])
    back = {(job.org_id, job.id): job for job, _ in asked}
    jobs = [{"org_id": job.org_id, "id": job.id} for job in back.values()]
    return [back[row["org_id"], row["id"]] for row in tx.many(SQL.cancel_jobs, jobs=jobs)]


_BACK = (Retry, Snoozed, Released, Submitted)
# An outcome that is not listed ends the job.
_WRITTEN_BY: Mapping[type[Outcome], str] = {
    Advanced: "insert_attempts",
    Retry: "insert_attempts",
    Snoozed: "insert_attempts",
    Released: "insert_attempts",
    Submitted: "insert_submitted",
}
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
    """The row that is written, with the state that the job reaches. Pure."""
    change: dict[str, Any] = {
        "org_id": job.org_id,
        "id": job.id,
        "lease_token": job.lease_token,
        "attempt_count": job.attempt_count,
        "stage": job.stage,
        "at_stage": job.stage,
        "category": job.category,
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
                "keeps_lease": True,
            }
        case Retry(fault, delay_ms):
            change |= _queued(delay_ms) | _charge(job, fault)
        case Dead(fault):
            change |= {"state": State.FAILED, **_charge(job, fault)}
        case Snoozed(delay_ms):
            change |= _queued(delay_ms)
        case Released(_, delay_ms):
            change |= _queued(delay_ms)
        case Submitted(provider_batch_id):
            change |= {"state": State.BATCH_SUBMITTED, "provider_batch_id": provider_batch_id}
        case Canceled():
            change |= {"state": State.CANCELED}
        case _:
            assert_never(outcome)
    return change


def _queued(delay_ms: int | None) -> dict[str, Any]:
    return {"state": State.QUEUED, "delay_ms": delay_ms, "keeps_lease": False}


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
