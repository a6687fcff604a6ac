"""Dead letters: list them, group them by cause, and take them through the workflow.

triage → remediate → validate → replay → verify → resolve; or discard, or fix forward.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any

from fastapi import Query
from pydantic import Field

from holdfast.api.caller import CallerOf
from holdfast.api.models import Body, Model, NamedId, Reason
from holdfast.api.paging import Cursor, Limit, Listing
from holdfast.api.resource import Resource
from holdfast.operate.dead_letter_input import DeadLetterFilter

router = Resource("dead_letters")

Text = Annotated[str | None, Query(min_length=1, max_length=200)]
Version = Annotated[
    int | None,
    Field(ge=1, le=2**31 - 1, description="Refuse the step if the item has another version."),
]


class DeadLetterItem(Model):
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


class ReplayItem(Model):
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


class NoteItem(Model):
    """A note of an operator."""

    id: str
    body: str
    actor_type: str
    actor_id: str
    created_at: datetime


class OfferItem(Model):
    """An action: whether it is available, or why not."""

    action: str
    is_offered: bool
    says: str


class DeadLetterDetail(Model):
    """A dead letter with its stack, replays, notes and available actions."""

    letter: DeadLetterItem
    last_stack: str
    sanitized_context: Any
    checklist: dict[str, bool] | None
    replays: list[ReplayItem]
    notes: list[NoteItem]
    next_step: str
    offers: list[OfferItem]


class CauseItem(Model):
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


class Triage(Body):
    """The kind of the problem."""

    kind: str = Field(max_length=50)
    version: Version = None


class Remediation(Body):
    """The points of the checklist that were done."""

    done: list[str] = Field(max_length=50)
    version: Version = None


class Validation(Body):
    """Evidence that the cause is gone, and that repeating is safe."""

    evidence_ref: str = Field(min_length=1, max_length=500)
    is_safe_to_repeat: bool
    version: Version = None


class ReplayRequest(Body):
    """A replay, from the failed stage or from the first one."""

    reason: Reason
    full_restart: bool = False
    version: Version = None


class Verification(Body):
    """Confirms the effects of a replay."""

    version: Version = None


class Resolution(Body):
    """What was found out."""

    notes: str = Field(min_length=1, max_length=4_000)
    version: Version = None


class Discarding(Body):
    """Why the work is given up."""

    reason: Reason
    version: Version = None


class FixForward(Body):
    """What replaces the work, and where it is recorded."""

    reason: Reason
    reference: str = Field(min_length=1, max_length=500)
    version: Version = None


class NewNote(Body):
    """A note."""

    body: str = Field(min_length=1, max_length=4_000)


class ReplayMade(Model):
    """The replay that was enqueued."""

    letter: DeadLetterItem
    number: int
    replay_job_id: str
    stage: str


@router.read("", operation_id="list_dead_letters", as_tenant=True)
def list_dead_letters(
    caller: CallerOf,
    org_id: NamedId | None = None,
    job_type: Text = None,
    error_class: Text = None,
    queue: Text = None,
    stage: Text = None,
    kind: Text = None,
    state: Text = None,
    older_than_seconds: Annotated[int | None, Query(ge=1, le=10**9)] = None,
    with_ended: bool = False,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Listing[DeadLetterItem]:
    """List dead letters, newest first; by default only open ones."""
    age = None if older_than_seconds is None else timedelta(seconds=older_than_seconds)
    tenant = None if org_id is None else str(org_id)
    wanted = DeadLetterFilter(tenant, job_type, error_class, queue, stage, kind, state, age)
    pages = caller.pages("dead_letters", wanted=wanted, with_ended=with_ended)
    found = caller.operator.dead_letters.list(
        wanted, with_ended=with_ended, limit=limit, before=pages.start(cursor)
    )
    page = pages.page(found, DeadLetterItem.model_validate)
    return Listing[DeadLetterItem].model_validate(page)


@router.read("/causes", operation_id="list_dead_letter_causes", as_tenant=True)
def list_dead_letter_causes(caller: CallerOf, org_id: NamedId | None = None) -> list[CauseItem]:
    """Group open dead letters by cause and state, the largest group first."""
    wanted = DeadLetterFilter(None if org_id is None else str(org_id))
    found = caller.operator.dead_letters.causes(wanted)
    return [CauseItem.model_validate(cause) for cause in found]


@router.read("/{job_id}", operation_id="get_dead_letter", as_tenant=True)
def get_dead_letter(job_id: str, caller: CallerOf) -> DeadLetterDetail:
    """Return a dead letter with its records and the available actions."""
    view = caller.operator.dead_letters.show(job_id)
    letter = view.letter
    return DeadLetterDetail(
        letter=DeadLetterItem.model_validate(letter),
        last_stack=letter.last_stack,
        sanitized_context=letter.sanitized_context,
        checklist=None if letter.checklist is None else dict(letter.checklist),
        replays=[ReplayItem.model_validate(one) for one in view.replays],
        notes=[NoteItem.model_validate(one) for one in view.notes],
        next_step=view.plan.next_step,
        offers=[OfferItem.model_validate(one) for one in view.plan.offers],
    )


@router.write("/{job_id}/triage", operation_id="triage_dead_letter")
def triage_dead_letter(job_id: str, step: Triage, caller: CallerOf) -> DeadLetterItem:
    """Confirm the failure and its kind."""
    letters = caller.operator.dead_letters
    return DeadLetterItem.model_validate(
        letters.triage(job_id, kind=step.kind, version=step.version)
    )


@router.write("/{job_id}/remediate", operation_id="remediate_dead_letter")
def remediate_dead_letter(job_id: str, step: Remediation, caller: CallerOf) -> DeadLetterItem:
    """Confirm every point of the checklist of its kind."""
    letters = caller.operator.dead_letters
    return DeadLetterItem.model_validate(
        letters.remediate(job_id, done=step.done, version=step.version)
    )


@router.write("/{job_id}/validate", operation_id="validate_dead_letter")
def validate_dead_letter(job_id: str, step: Validation, caller: CallerOf) -> DeadLetterItem:
    """Record evidence, and that repeating is safe."""
    found = caller.operator.dead_letters.validate(
        job_id,
        evidence_ref=step.evidence_ref,
        is_safe_to_repeat=step.is_safe_to_repeat,
        version=step.version,
    )
    return DeadLetterItem.model_validate(found)


@router.write("/{job_id}/replay", operation_id="replay_dead_letter")
def replay_dead_letter(job_id: str, step: ReplayRequest, caller: CallerOf) -> ReplayMade:
    """Enqueue a replay of a validated dead letter."""
    made = caller.operator.dead_letters.replay(
        job_id, reason=step.reason, full_restart=step.full_restart, version=step.version
    )
    return ReplayMade.model_validate(made)


@router.write("/{job_id}/verify", operation_id="verify_dead_letter")
def verify_dead_letter(job_id: str, step: Verification, caller: CallerOf) -> DeadLetterItem:
    """Confirm the effects of the replay."""
    letters = caller.operator.dead_letters
    return DeadLetterItem.model_validate(letters.verify_replay(job_id, version=step.version))


@router.write("/{job_id}/resolve", operation_id="resolve_dead_letter")
def resolve_dead_letter(job_id: str, step: Resolution, caller: CallerOf) -> DeadLetterItem:
    """Close a dead letter whose replay was verified."""
    letters = caller.operator.dead_letters
    return DeadLetterItem.model_validate(
        letters.resolve(job_id, notes=step.notes, version=step.version)
    )


@router.write("/{job_id}/discard", operation_id="discard_dead_letter")
def discard_dead_letter(job_id: str, step: Discarding, caller: CallerOf) -> DeadLetterItem:
    """Give the work up."""
    letters = caller.operator.dead_letters
    return DeadLetterItem.model_validate(
        letters.discard(job_id, reason=step.reason, version=step.version)
    )


@router.write("/{job_id}/fix-forward", operation_id="fix_forward_dead_letter")
def fix_forward_dead_letter(job_id: str, step: FixForward, caller: CallerOf) -> DeadLetterItem:
    """Close a dead letter because something else replaces it."""
    found = caller.operator.dead_letters.fix_forward(
        job_id, reason=step.reason, reference=step.reference, version=step.version
    )
    return DeadLetterItem.model_validate(found)


@router.write("/{job_id}/notes", operation_id="add_dead_letter_note", status_code=201)
def add_dead_letter_note(job_id: str, note: NewNote, caller: CallerOf) -> NoteItem:
    """Add a note."""
    return NoteItem.model_validate(caller.operator.dead_letters.add_note(job_id, note.body))
