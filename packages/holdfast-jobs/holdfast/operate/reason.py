"""Determines the reason for a job's state from the facts. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, assert_never

from holdfast.document import decode
from holdfast.engine.deadline import DEADLINE_PASSED
from holdfast.engine.job import State
from holdfast.engine.unique import SUPERSEDED
from holdfast.errors import Defect
from holdfast.operate.dead_letter import DeadLetter
from holdfast.operate.dead_letter_plan import never_replayed, next_step_of
from holdfast.operate.explanation import (
    NO_REASONS,
    Explanation,
    ExtensionReasons,
    Reason,
    Situation,
    utc,
)
from holdfast.operate.undelivered import still_open, undecided
from holdfast.operate.waiting import why_waiting

NOTHING = "None. The job has ended."


def reason_of(situation: Situation, told: ExtensionReasons = NO_REASONS) -> Explanation:
    """Return the reason by precedence; *told* contains the reasons of an extension."""
    match situation.state:
        case State.QUEUED:
            return why_waiting(situation, told)
        case State.PROCESSING:
            return told.instead or _running(situation)
        case State.BATCH_SUBMITTED:
            return told.instead or _submitted(situation)
        case State.COMPLETED:
            line = f"Completed at {utc(situation.at('finished_at'))}"
            line += f"{still_open(situation)}."
            then = undecided(situation) or NOTHING
            return situation.explain(Reason.COMPLETED, line, then, **_ended(situation))
        case State.CANCELED:
            return _canceled(situation)
        case State.FAILED:
            return _failed(situation)
        case _:
            assert_never(situation.state)


# -- claimed


def _running(s: Situation) -> Explanation:
    job, lease_until = s.job, s.at("lease_expires_at")
    owner = next((worker for worker in s.workers if worker.worker_id == job["claimed_by"]), None)
    facts: dict[str, Any] = {
        "worker_id": job["claimed_by"],
        "worker_seen_at": None if owner is None else owner.seen_at,
        "claimed_at": s.at("claimed_at"),
        "lease_until": lease_until,
        "stage": job["stage"],
        "attempt": job["attempt_count"] + 1,
        "max_attempts": job["max_attempts"],
    }
    if lease_until is None or lease_until < s.now:
        return _stale(s, facts)
    if job["cancel_requested_at"] is not None:
        return s.explain(
            Reason.CANCEL_REQUESTED,
            f"A cancel was requested at {utc(s.at('cancel_requested_at'))}; the job is still"
            " running.",
            "The handler stops at its next step.",
            cancel_requested_at=s.at("cancel_requested_at"),
            **facts,
        )
    lease = timedelta(seconds=s.settings.lease_seconds)
    if owner is not None:
        lease = timedelta(milliseconds=owner.lease_ms)
    # A lease is renewed at a third of its length, so a healthy one has at least half of it left.
    is_late = lease_until - s.now < lease / 2
    line = (
        f"Running since {utc(s.at('claimed_at'))} on worker {job['claimed_by']}, stage"
        f" {job['stage']!r}, attempt {facts['attempt']} of {job['max_attempts']}"
    )
    then = "The handler finishes."
    if is_late:
        line += "; its lease renewal is overdue"
        then = f"The worker renews the lease, or the job is rescued after {utc(lease_until)}."
    return s.explain(
        Reason.RUNNING, line + ".", then, lease_until if is_late else None, is_late=is_late, **facts
    )


def _submitted(s: Situation) -> Explanation:
    return s.explain(
        Reason.HELD,
        f"It is in batch {s.job['provider_batch_id']} at a provider, and batch processing is not"
        " installed here.",
        "Install it: pip install holdfast-llm",
        provider_batch_id=s.job["provider_batch_id"],
    )


def _stale(s: Situation, facts: Mapping[str, Any]) -> Explanation:
    job = s.job
    if job["cancel_requested_at"] is not None:
        becomes = "cancels it"
    elif facts["attempt"] >= job["max_attempts"]:
        becomes = "dead-letters it: this was the last attempt"
    else:
        becomes = f"requeues it, with {facts['attempt']} of {job['max_attempts']} attempts used"
    alive = [worker for worker in s.workers if not worker.is_gone]
    then = f"The next rescue (at least every {s.settings.rescue_seconds:g} s) {becomes}."
    if not alive:
        then = f"Start a worker for any queue: its rescue {becomes}."
    return s.explain(
        Reason.LEASE_RAN_OUT,
        f"The lease expired at {utc(facts['lease_until'])}: worker {job['claimed_by']} is dead,"
        " frozen or disconnected.",
        then,
        workers=len(alive),
        **facts,
    )


# -- ended


def _ended(s: Situation) -> dict[str, Any]:
    return {"finished_at": s.at("finished_at")}


def _canceled(s: Situation) -> Explanation:
    ended, how = s.last("job.canceled")
    if ended is not None and how.get("reason") == SUPERSEDED:
        newer = how.get("superseded_by")
        return s.explain(
            Reason.SUPERSEDED,
            f"Canceled at {utc(s.at('finished_at'))}: a later enqueue with its unique key replaced"
            f" it by job {newer}.",
            f"Nothing: it has ended. See the newer job: holdfast explain {newer}",
            superseded_by=newer,
            **_ended(s),
        )
    if ended is not None and how.get("reason") == DEADLINE_PASSED:
        return s.explain(
            Reason.DEADLINE_PASSED,
            f"Canceled at {utc(s.at('finished_at'))}: it had not started by its deadline"
            f" {how.get('deadline_at')}.",
            NOTHING,
            deadline_at=how.get("deadline_at"),
            **_ended(s),
        )
    asked = next(
        (event for event in s.turns if event["name"] == "job.cancel_requested"
         and decode(event["detail"] or "{}").get("answer") != "too_late"),
        None,
    )  # fmt: skip
    who = "an unknown actor" if asked is None else f"{asked['actor_type']}:{asked['actor_id']}"
    why = "" if asked is None else decode(asked["detail"] or "{}").get("reason", "")
    line = f"Canceled at {utc(s.at('finished_at'))} by {who}"
    return s.explain(
        Reason.CANCELED,
        f"{line}: {why}" if why else f"{line}.",
        NOTHING,
        canceled_by=None if asked is None else who,
        why=why or None,
        **_ended(s),
    )


def _failed(s: Situation) -> Explanation:
    job, letter = s.job, s.letter
    failed = f"Failed at {utc(s.at('finished_at'))} with {job['error_class']}"
    facts = {"error_class": job["error_class"], "stage": job["stage"], **_ended(s)}
    if letter is None:
        # Only a row that bypassed the database's rules looks like this.
        return s.explain(
            Reason.DEAD_LETTER,
            f"{failed}, but it has no dead letter.",
            "Investigate: holdfast verify",
            letter_id=None,
            letter_state=None,
            **facts,
        )
    item = f"dead letter {letter.job_id} is {letter.state.replace('_', ' ')}"
    if job["replay_of"] is not None:
        failed = f"It is a replay and f{failed[1:]}"
    if letter.escalated_at is not None:
        item += ", escalated"
    return s.explain(
        Reason.DEAD_LETTER,
        f"{failed}; {item}.",
        _next_step(letter, s.replay_job_id) + _retry_hint(letter),
        letter_id=letter.job_id,
        letter_state=letter.state,
        is_escalated=letter.escalated_at is not None,
        replay_job_id=s.replay_job_id,
        **facts,
    )


def _retry_hint(letter: DeadLetter) -> str:
    """The declaration that retries an unclassified exception, if that is why the job failed."""
    if letter.state.is_ended or letter.error_class != Defect.error_class:
        return ""
    context = letter.sanitized_context
    remedy = context.get("remedy") if isinstance(context, Mapping) else None
    return f". To retry this exception in future: {remedy}" if isinstance(remedy, str) else ""


def _next_step(letter: DeadLetter, replay_job_id: str | None) -> str:
    never = never_replayed(letter.standing)
    if letter.state.is_ended:
        return "None. The dead letter is closed."
    if replay_job_id is not None:
        return f"The replay finishes: holdfast explain {replay_job_id}"
    if never is not None:
        return f"An operator discards it or fixes it forward; {never}."
    return f"{next_step_of(letter)} (holdfast dead-letters show {letter.job_id})"
