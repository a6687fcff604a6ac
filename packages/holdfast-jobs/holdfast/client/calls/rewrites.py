"""Calls about rewrites. Written by tools/client_code.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from holdfast.client.models import read
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
class AcceptedRewrite:
    """The id of the request, and whether it is queued or has failed."""

    rewrite_request_id: str
    status: str


@dataclass(frozen=True, slots=True)
class SentRewrite:
    """A rewrite as its sender sees it; the text once it is revealed."""

    rewrite_request_id: str
    status: str
    created_at: datetime
    completed_at: datetime | None
    sender_reveal_at: datetime | None
    has_failed: bool
    rewritten_text: str | None
    output_language: str | None


@dataclass(frozen=True, slots=True)
class ReceivedRewrite:
    """A rewrite as its recipient sees it."""

    rewrite_request_id: str
    rewritten_text: str
    output_language: str


@dataclass(frozen=True, slots=True)
class HeldItem:
    """A rewrite that waits for a person, without its texts."""

    rewrite_request_id: str
    home_id: str
    reason: str
    held_at: datetime
    age_seconds: int
    gate: str
    findings: tuple[str, ...] | None
    no_verdict_code: str | None
    output_language: str
    lane: str
    rewrite_strength: str
    surface: str


@dataclass(frozen=True, slots=True)
class HeldDetail:
    """A held rewrite with its texts, for the person who decides."""

    rewrite_request_id: str
    home_id: str
    reason: str
    held_at: datetime
    gate: str
    gate_codes: tuple[str, ...]
    findings: tuple[str, ...] | None
    no_verdict_code: str | None
    source_locale: str
    target_locale: str
    original_text: str | None
    rewritten_text: str


@dataclass(frozen=True, slots=True)
class HeldDecided:
    """The result of a decision."""

    rewrite_request_id: str
    decision: str
    status: str


def submit_rewrite(
    *,
    sender_user_id: str,
    recipient_user_id: str,
    sender_message: str,
    surface: str,
    home_id: str | NotGiven | None = NOT_GIVEN,
    feedback_cycle_start: date | NotGiven | None = NOT_GIVEN,
    emotion_context: str | NotGiven | None = NOT_GIVEN,
    idempotency_key: str | None = None,
) -> Call[AcceptedRewrite]:
    """Submit a message. It is rewritten later, without any promise about when."""
    return Call(
        "submit_rewrite",
        "POST",
        "/v1/rewrites",
        lambda found: read(AcceptedRewrite, found),
        headers={"Idempotency-Key": idempotency_key or new_key()},
        body=given(
            {
                "sender_user_id": sender_user_id,
                "recipient_user_id": recipient_user_id,
                "sender_message": sender_message,
                "surface": surface,
                "home_id": home_id,
                "feedback_cycle_start": feedback_cycle_start,
                "emotion_context": emotion_context,
            }
        ),
    )


def list_sent_rewrites(
    *, user_id: str, home_id: str | None = None, limit: int | None = None, cursor: str | None = None
) -> Call[Page[SentRewrite]]:
    """List the rewrites that a person sent, newest first."""
    return Call(
        "list_sent_rewrites",
        "GET",
        "/v1/rewrites/sent",
        lambda found: read_page(SentRewrite, found),
        query={"user_id": user_id, "home_id": home_id, "limit": limit, "cursor": cursor},
    )


def list_received_rewrites(
    *, user_id: str, home_id: str | None = None, limit: int | None = None, cursor: str | None = None
) -> Call[Page[ReceivedRewrite]]:
    """List the rewrites for a person, newest first."""
    return Call(
        "list_received_rewrites",
        "GET",
        "/v1/rewrites/received",
        lambda found: read_page(ReceivedRewrite, found),
        query={"user_id": user_id, "home_id": home_id, "limit": limit, "cursor": cursor},
    )


def get_sent_rewrite(
    rewrite_request_id: str, *, user_id: str, home_id: str | None = None
) -> Call[SentRewrite]:
    """Return a rewrite for its sender: the state from the database, and the text if revealed."""
    return Call(
        "get_sent_rewrite",
        "GET",
        "/v1/rewrites/sent/{rewrite_request_id}",
        lambda found: read(SentRewrite, found),
        names={"rewrite_request_id": rewrite_request_id},
        query={"user_id": user_id, "home_id": home_id},
    )


def list_held_rewrites(
    *, reason: str | None = None, limit: int | None = None
) -> Call[tuple[HeldItem, ...]]:
    """List rewrites that wait for a person, oldest first, without text. For operators."""
    return Call(
        "list_held_rewrites",
        "GET",
        "/v1/rewrites/held",
        lambda found: tuple(read(HeldItem, one) for one in found),
        query={"reason": reason, "limit": limit},
    )


def get_held_rewrite(rewrite_request_id: str) -> Call[HeldDetail]:
    """Return a held rewrite with its texts. For admins; reading is audited."""
    return Call(
        "get_held_rewrite",
        "GET",
        "/v1/rewrites/held/{rewrite_request_id}",
        lambda found: read(HeldDetail, found),
        names={"rewrite_request_id": rewrite_request_id},
    )


def approve_held_rewrite(rewrite_request_id: str, *, reason: str) -> Call[HeldDecided]:
    """Deliver a held rewrite as it is. For admins."""
    return Call(
        "approve_held_rewrite",
        "POST",
        "/v1/rewrites/held/{rewrite_request_id}/approve",
        lambda found: read(HeldDecided, found),
        names={"rewrite_request_id": rewrite_request_id},
        headers={"Idempotency-Key": new_key()},
        body=given({"reason": reason}),
    )


def edit_held_rewrite(rewrite_request_id: str, text: str, *, reason: str) -> Call[HeldDecided]:
    """Deliver an edited text instead; it passes the gate again. For admins."""
    return Call(
        "edit_held_rewrite",
        "POST",
        "/v1/rewrites/held/{rewrite_request_id}/edit",
        lambda found: read(HeldDecided, found),
        names={"rewrite_request_id": rewrite_request_id},
        headers={"Idempotency-Key": new_key()},
        body=given({"text": text, "reason": reason}),
    )


def reject_held_rewrite(rewrite_request_id: str, *, reason: str) -> Call[HeldDecided]:
    """Reject a held rewrite: it is never delivered. For admins."""
    return Call(
        "reject_held_rewrite",
        "POST",
        "/v1/rewrites/held/{rewrite_request_id}/reject",
        lambda found: read(HeldDecided, found),
        names={"rewrite_request_id": rewrite_request_id},
        headers={"Idempotency-Key": new_key()},
        body=given({"reason": reason}),
    )


def get_rewrite_record(rewrite_request_id: str) -> Call[Mapping[str, Any]]:
    """Return all records of a rewrite, without any text. For operators."""
    return Call(
        "get_rewrite_record",
        "GET",
        "/v1/rewrites/{rewrite_request_id}",
        lambda found: dict(found),
        names={"rewrite_request_id": rewrite_request_id},
    )
