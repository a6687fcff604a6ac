"""The complaint rewrite over HTTP, for frontends and operators.

A frontend submits a message and reads states and texts of one person. It never sees routing,
providers, batches, attempts or errors, and no route starts a worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import Query, Request
from pydantic import Field
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from holdfast.api.caller import Caller, CallerOf
from holdfast.api.models import Action, Body, Model, Reason
from holdfast.api.paging import Cursor, Limit, Listing
from holdfast.api.resource import Resource
from holdfast.api.streams import STREAMED, After, LastEventId, Rendered, open_stream
from holdfast.operate.changes import Change, Subscription
from holdfast.operate.page import Page
from holdfast_rewrite.live import PersonalChanges
from holdfast_rewrite.rewrites import RewriteDesk, Rewrites
from holdfast_rewrite.show import NEWEST
from holdfast_rewrite.validation import Submission

router = Resource("rewrites")

User = Annotated[UUID, Query(description="The person whose messages are shown.")]
Home = Annotated[UUID | None, Query(description="The home; only a key of operations names one.")]


class NewRewrite(Body):
    """A message from one member of a home to another."""

    sender_user_id: UUID
    recipient_user_id: UUID
    sender_message: str = Field(min_length=1, max_length=20_000)
    surface: str = Field(min_length=1, max_length=50)
    home_id: UUID | None = Field(
        default=None, description="The home; only a key of operations names one."
    )
    feedback_cycle_start: date | None = None
    emotion_context: str | None = Field(default=None, max_length=40)


class AcceptedRewrite(Model):
    """The id of the request, and whether it is queued or has failed."""

    rewrite_request_id: str
    status: str


class SentRewrite(Model):
    """A rewrite as its sender sees it; the text once it is revealed."""

    rewrite_request_id: str
    status: str
    created_at: datetime
    completed_at: datetime | None
    sender_reveal_at: datetime | None
    has_failed: bool
    rewritten_text: str | None
    output_language: str | None


class ReceivedRewrite(Model):
    """A rewrite as its recipient sees it."""

    rewrite_request_id: str
    rewritten_text: str
    output_language: str


@router.write("", frontend=True, operation_id="submit_rewrite", status_code=202)
def submit_rewrite(new: NewRewrite, caller: CallerOf) -> AcceptedRewrite:
    """Submit a message. It is rewritten later, without any promise about when."""
    answer = _rewrites(caller).submit(
        Submission(
            home_id=caller.tenant(new.home_id),
            sender_user_id=str(new.sender_user_id),
            recipient_user_id=str(new.recipient_user_id),
            sender_message=new.sender_message,
            surface=new.surface,
            feedback_cycle_start=new.feedback_cycle_start,
            emotion_context=new.emotion_context,
            request_id=caller.request_id,
        )
    )
    return AcceptedRewrite(rewrite_request_id=answer.rewrite_request_id, status=answer.status)


@router.read(
    "/events",
    frontend=True,
    operation_id="stream_rewrites",
    response_class=StreamingResponse,
    responses=STREAMED,
)
async def stream_rewrites(
    request: Request,
    caller: CallerOf,
    user_id: User,
    home_id: Home = None,
    after: After = None,
    last_event_id: LastEventId = None,
) -> Response:
    """Stream what happens to the rewrites of a person: sent ones change, received ones arrive.

    Each event is named rewrite and carries the id and the status; the texts are read with the other
    operations. Last-Event-ID continues after an event.
    """
    home, start = caller.tenant(home_id), after if last_event_id is None else last_event_id
    personal = PersonalChanges(caller.hf.store, home, str(user_id))

    async def render(changes: Sequence[Change]) -> list[Rendered]:
        found = await run_in_threadpool(personal.find, changes)
        return [(changes[-1], "rewrite", one.document()) for one in found]

    def subscribe() -> Subscription:
        return caller.operator.changes.subscribe(org_id=home, after=start or None)

    return await open_stream(request, caller, subscribe, render)


@router.read("/sent", frontend=True, operation_id="list_sent_rewrites")
def list_sent_rewrites(
    caller: CallerOf, user_id: User, home_id: Home = None, limit: Limit = 50, cursor: Cursor = None
) -> Listing[SentRewrite]:
    """List the rewrites that a person sent, newest first."""
    whose = {"home_id": caller.tenant(home_id), "user_id": str(user_id)}
    pages = caller.pages("rewrites.sent", **whose)
    before = pages.start(cursor, NEWEST)
    found = _rewrites(caller).list_sent(**whose, limit=limit + 1, before=before)
    return Listing[SentRewrite].model_validate(
        pages.page(_page(found, limit), SentRewrite.model_validate)
    )


@router.read("/received", frontend=True, operation_id="list_received_rewrites")
def list_received_rewrites(
    caller: CallerOf, user_id: User, home_id: Home = None, limit: Limit = 50, cursor: Cursor = None
) -> Listing[ReceivedRewrite]:
    """List the rewrites for a person, newest first."""
    whose = {"home_id": caller.tenant(home_id), "user_id": str(user_id)}
    pages = caller.pages("rewrites.received", **whose)
    before = pages.start(cursor, NEWEST)
    found = _rewrites(caller).list_received(**whose, limit=limit + 1, before=before)
    return Listing[ReceivedRewrite].model_validate(
        pages.page(_page(found, limit), ReceivedRewrite.model_validate)
    )


@router.read("/sent/{rewrite_request_id}", frontend=True, operation_id="get_sent_rewrite")
def get_sent_rewrite(
    rewrite_request_id: UUID, caller: CallerOf, user_id: User, home_id: Home = None
) -> SentRewrite:
    """Return a rewrite for its sender: the state from the database, and the text if revealed."""
    found = _rewrites(caller).find_sent(
        str(rewrite_request_id), home_id=caller.tenant(home_id), user_id=str(user_id)
    )
    return SentRewrite.model_validate(found)


class HeldItem(Model):
    """A rewrite that waits for a person, without its texts."""

    rewrite_request_id: str
    home_id: str
    reason: str
    held_at: datetime
    age_seconds: int
    gate: str
    findings: list[str] | None
    no_verdict_code: str | None
    output_language: str
    lane: str
    rewrite_strength: str
    surface: str


class HeldDetail(Model):
    """A held rewrite with its texts, for the person who decides."""

    rewrite_request_id: str
    home_id: str
    reason: str
    held_at: datetime
    gate: str
    gate_codes: list[str]
    findings: list[str] | None
    no_verdict_code: str | None
    source_locale: str
    target_locale: str
    original_text: str | None
    rewritten_text: str


class HeldEdit(Body):
    """The text to deliver instead."""

    text: str = Field(min_length=1, max_length=20_000)
    reason: Reason


class HeldDecided(Model):
    """The result of a decision."""

    rewrite_request_id: str
    decision: str
    status: str


@router.read("/held", operation_id="list_held_rewrites")
def list_held_rewrites(
    caller: CallerOf,
    reason: Annotated[str | None, Query(max_length=50)] = None,
    limit: Limit = 50,
) -> list[HeldItem]:
    """List rewrites that wait for a person, oldest first, without text. For operators."""
    found = _desk(caller).held.list(reason=reason, limit=limit)
    return [HeldItem.model_validate(one) for one in found]


@router.read("/held/{rewrite_request_id}", operation_id="get_held_rewrite")
def get_held_rewrite(rewrite_request_id: UUID, caller: CallerOf) -> HeldDetail:
    """Return a held rewrite with its texts. For admins; reading is audited."""
    return HeldDetail.model_validate(_desk(caller).held.show(str(rewrite_request_id)))


@router.write("/held/{rewrite_request_id}/approve", operation_id="approve_held_rewrite")
def approve_held_rewrite(rewrite_request_id: UUID, action: Action, caller: CallerOf) -> HeldDecided:
    """Deliver a held rewrite as it is. For admins."""
    held = _desk(caller).held
    return HeldDecided.model_validate(held.approve(str(rewrite_request_id), reason=action.reason))


@router.write("/held/{rewrite_request_id}/edit", operation_id="edit_held_rewrite")
def edit_held_rewrite(rewrite_request_id: UUID, edit: HeldEdit, caller: CallerOf) -> HeldDecided:
    """Deliver an edited text instead; it passes the gate again. For admins."""
    held = _desk(caller).held
    return HeldDecided.model_validate(
        held.edit(str(rewrite_request_id), text=edit.text, reason=edit.reason)
    )


@router.write("/held/{rewrite_request_id}/reject", operation_id="reject_held_rewrite")
def reject_held_rewrite(rewrite_request_id: UUID, action: Action, caller: CallerOf) -> HeldDecided:
    """Reject a held rewrite: it is never delivered. For admins."""
    held = _desk(caller).held
    return HeldDecided.model_validate(held.reject(str(rewrite_request_id), reason=action.reason))


@router.read("/{rewrite_request_id}", operation_id="get_rewrite_record")
def get_rewrite_record(rewrite_request_id: UUID, caller: CallerOf) -> dict[str, Any]:
    """Return all records of a rewrite, without any text. For operators."""
    return _desk(caller).show(str(rewrite_request_id))


def _desk(caller: Caller) -> RewriteDesk:
    who = caller.identity
    return _rewrites(caller).operate(actor=who.actor, role=who.role, org_id=who.org_id)


def _rewrites(caller: Caller) -> Rewrites:
    return Rewrites.for_app(caller.hf)


def _page(found: list[Any], limit: int) -> Page[Any]:
    items = tuple(found[:limit])
    return Page(items, items[-1].rewrite_request_id if len(found) > limit else None)
