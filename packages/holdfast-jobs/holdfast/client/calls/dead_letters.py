"""Calls about dead letters. Written by tools/client_code.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypedDict

from holdfast.client.calls.shared import BulkActionView, BulkPlan
from holdfast.client.models import read, read_either
from holdfast.client.operations import (
    NOT_GIVEN,
    Call,
    NotGiven,
    Page,
    given,
    new_key,
    read_page,
)


@dataclass(frozen=True, slots=True)
class DeadLetterItem:
    """A job that failed for good, and where its recovery stands."""

    job_id: str
    org_id: str
    job_type: str
    queue: str
    stage: str
    error_class: str
    last_error: str
    attempts: int
    max_attempts: int
    first_failure_at: datetime
    last_failure_at: datetime
    created_at: datetime
    updated_at: datetime
    state: str
    version: int
    kind: str | None
    evidence_ref: str | None
    is_safe_to_repeat: bool | None
    replay_count: int
    escalated_at: datetime | None
    verified_at: datetime | None
    fixed_by: str | None
    ending: str | None
    ended_at: datetime | None
    replay_refusal: str | None


@dataclass(frozen=True, slots=True)
class CauseItem:
    """Open dead letters with the same cause and state."""

    job_type: str
    error_class: str
    stage: str
    queue: str
    state: str
    letters: int
    escalated: int
    oldest_at: datetime
    newest_at: datetime


@dataclass(frozen=True, slots=True)
class DeadLetterDetail:
    """A dead letter with its stack, replays, notes and available actions."""

    letter: DeadLetterItem
    last_stack: str
    sanitized_context: Any
    checklist: Mapping[str, bool] | None
    replays: tuple[ReplayItem, ...]
    notes: tuple[NoteItem, ...]
    next_step: str
    offers: tuple[OfferItem, ...]


@dataclass(frozen=True, slots=True)
class ReplayItem:
    """One replay of a dead letter."""

    number: int
    replay_job_id: str
    full_restart: bool
    stage: str
    reason: str
    actor_type: str
    actor_id: str
    requested_at: datetime
    outcome: str | None
    error_class: str | None
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class NoteItem:
    """A note of an operator."""

    id: str
    body: str
    actor_type: str
    actor_id: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class OfferItem:
    """An action: whether it is available, or why not."""

    action: str
    is_offered: bool
    says: str


@dataclass(frozen=True, slots=True)
class ReplayMade:
    """The replay that was enqueued."""

    letter: DeadLetterItem
    number: int
    replay_job_id: str
    stage: str


class LetterFilter(TypedDict, total=False):
    """Which dead letters. At least one condition is required."""

    org_id: str | None
    job_type: str | None
    error_class: str | None
    queue: str | None
    stage: str | None
    kind: str | None
    state: str | None
    older_than_seconds: int | None


def act_on_dead_letters(
    *,
    reason: str,
    action: str,
    filter: LetterFilter,
    dry_run: bool | NotGiven = NOT_GIVEN,
    expected: int | NotGiven | None = NOT_GIVEN,
    tolerance: int | NotGiven = NOT_GIVEN,
    kind: str | NotGiven | None = NOT_GIVEN,
    done: Sequence[str] | NotGiven | None = NOT_GIVEN,
    evidence_ref: str | NotGiven | None = NOT_GIVEN,
    is_safe_to_repeat: bool | NotGiven = NOT_GIVEN,
    full_restart: bool | NotGiven = NOT_GIVEN,
    idempotency_key: str | None = None,
) -> Call[BulkPlan | BulkActionView]:
    """Take one step for every dead letter that matches: a dry run, then a job."""
    return Call(
        "act_on_dead_letters",
        "POST",
        "/v1/dead-letters/bulk",
        lambda found: read_either(BulkPlan, BulkActionView, found),
        headers={"Idempotency-Key": idempotency_key or new_key()},
        body=given(
            {
                "reason": reason,
                "dry_run": dry_run,
                "expected": expected,
                "tolerance": tolerance,
                "action": action,
                "filter": filter,
                "kind": kind,
                "done": done,
                "evidence_ref": evidence_ref,
                "is_safe_to_repeat": is_safe_to_repeat,
                "full_restart": full_restart,
            }
        ),
    )


def list_dead_letters(
    *,
    org_id: str | None = None,
    job_type: str | None = None,
    error_class: str | None = None,
    queue: str | None = None,
    stage: str | None = None,
    kind: str | None = None,
    state: str | None = None,
    older_than_seconds: int | None = None,
    with_ended: bool | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[Page[DeadLetterItem]]:
    """List dead letters, newest first; by default only open ones."""
    return Call(
        "list_dead_letters",
        "GET",
        "/v1/dead-letters",
        lambda found: read_page(DeadLetterItem, found),
        query={
            "org_id": org_id,
            "job_type": job_type,
            "error_class": error_class,
            "queue": queue,
            "stage": stage,
            "kind": kind,
            "state": state,
            "older_than_seconds": older_than_seconds,
            "with_ended": with_ended,
            "limit": limit,
            "cursor": cursor,
        },
    )


def list_dead_letter_causes(*, org_id: str | None = None) -> Call[tuple[CauseItem, ...]]:
    """Group open dead letters by cause and state, the largest group first."""
    return Call(
        "list_dead_letter_causes",
        "GET",
        "/v1/dead-letters/causes",
        lambda found: tuple(read(CauseItem, one) for one in found),
        query={"org_id": org_id},
    )


def get_dead_letter(job_id: str) -> Call[DeadLetterDetail]:
    """Return a dead letter with its records and the available actions."""
    return Call(
        "get_dead_letter",
        "GET",
        "/v1/dead-letters/{job_id}",
        lambda found: read(DeadLetterDetail, found),
        names={"job_id": job_id},
    )


def triage_dead_letter(
    job_id: str, *, kind: str, version: int | NotGiven | None = NOT_GIVEN
) -> Call[DeadLetterItem]:
    """Confirm the failure and its kind."""
    return Call(
        "triage_dead_letter",
        "POST",
        "/v1/dead-letters/{job_id}/triage",
        lambda found: read(DeadLetterItem, found),
        names={"job_id": job_id},
        headers={"Idempotency-Key": new_key()},
        body=given({"kind": kind, "version": version}),
    )


def remediate_dead_letter(
    job_id: str, *, done: Sequence[str], version: int | NotGiven | None = NOT_GIVEN
) -> Call[DeadLetterItem]:
    """Confirm every point of the checklist of its kind."""
    return Call(
        "remediate_dead_letter",
        "POST",
        "/v1/dead-letters/{job_id}/remediate",
        lambda found: read(DeadLetterItem, found),
        names={"job_id": job_id},
        headers={"Idempotency-Key": new_key()},
        body=given({"done": done, "version": version}),
    )


def validate_dead_letter(
    job_id: str,
    *,
    evidence_ref: str,
    is_safe_to_repeat: bool,
    version: int | NotGiven | None = NOT_GIVEN,
) -> Call[DeadLetterItem]:
    """Record evidence, and that repeating is safe."""
    return Call(
        "validate_dead_letter",
        "POST",
        "/v1/dead-letters/{job_id}/validate",
        lambda found: read(DeadLetterItem, found),
        names={"job_id": job_id},
        headers={"Idempotency-Key": new_key()},
        body=given(
            {
                "evidence_ref": evidence_ref,
                "is_safe_to_repeat": is_safe_to_repeat,
                "version": version,
            }
        ),
    )


def replay_dead_letter(
    job_id: str,
    *,
    reason: str,
    full_restart: bool | NotGiven = NOT_GIVEN,
    version: int | NotGiven | None = NOT_GIVEN,
) -> Call[ReplayMade]:
    """Enqueue a replay of a validated dead letter."""
    return Call(
        "replay_dead_letter",
        "POST",
        "/v1/dead-letters/{job_id}/replay",
        lambda found: read(ReplayMade, found),
        names={"job_id": job_id},
        headers={"Idempotency-Key": new_key()},
        body=given({"reason": reason, "full_restart": full_restart, "version": version}),
    )


def verify_dead_letter(
    job_id: str, *, version: int | NotGiven | None = NOT_GIVEN
) -> Call[DeadLetterItem]:
    """Confirm the effects of the replay."""
    return Call(
        "verify_dead_letter",
        "POST",
        "/v1/dead-letters/{job_id}/verify",
        lambda found: read(DeadLetterItem, found),
        names={"job_id": job_id},
        headers={"Idempotency-Key": new_key()},
        body=given({"version": version}),
    )


def resolve_dead_letter(
    job_id: str, *, notes: str, version: int | NotGiven | None = NOT_GIVEN
) -> Call[DeadLetterItem]:
    """Close a dead letter whose replay was verified."""
    return Call(
        "resolve_dead_letter",
        "POST",
        "/v1/dead-letters/{job_id}/resolve",
        lambda found: read(DeadLetterItem, found),
        names={"job_id": job_id},
        headers={"Idempotency-Key": new_key()},
        body=given({"notes": notes, "version": version}),
    )


def discard_dead_letter(
    job_id: str, *, reason: str, version: int | NotGiven | None = NOT_GIVEN
) -> Call[DeadLetterItem]:
    """Give the work up."""
    return Call(
        "discard_dead_letter",
        "POST",
        "/v1/dead-letters/{job_id}/discard",
        lambda found: read(DeadLetterItem, found),
        names={"job_id": job_id},
        headers={"Idempotency-Key": new_key()},
        body=given({"reason": reason, "version": version}),
    )


def fix_forward_dead_letter(
    job_id: str, *, reason: str, reference: str, version: int | NotGiven | None = NOT_GIVEN
) -> Call[DeadLetterItem]:
    """Close a dead letter because something else replaces it."""
    return Call(
        "fix_forward_dead_letter",
        "POST",
        "/v1/dead-letters/{job_id}/fix-forward",
        lambda found: read(DeadLetterItem, found),
        names={"job_id": job_id},
        headers={"Idempotency-Key": new_key()},
        body=given({"reason": reason, "reference": reference, "version": version}),
    )


def add_dead_letter_note(
    job_id: str, body: str, *, idempotency_key: str | None = None
) -> Call[NoteItem]:
    """Add a note."""
    return Call(
        "add_dead_letter_note",
        "POST",
        "/v1/dead-letters/{job_id}/notes",
        lambda found: read(NoteItem, found),
        names={"job_id": job_id},
        headers={"Idempotency-Key": idempotency_key or new_key()},
        body=given({"body": body}),
    )
