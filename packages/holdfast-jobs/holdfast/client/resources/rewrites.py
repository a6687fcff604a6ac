"""Methods about rewrites. Written by tools/client_code.py."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Any

from holdfast.client.calls.rewrites import (
    AcceptedRewrite,
    HeldDecided,
    HeldDetail,
    HeldItem,
    ReceivedRewrite,
    SentRewrite,
    approve_held_rewrite,
    edit_held_rewrite,
    get_held_rewrite,
    get_rewrite_record,
    get_sent_rewrite,
    list_held_rewrites,
    list_received_rewrites,
    list_sent_rewrites,
    reject_held_rewrite,
    submit_rewrite,
)
from holdfast.client.operations import (
    NOT_GIVEN,
    AsyncCaller,
    Caller,
    NotGiven,
    Page,
)


class Rewrites:
    """The rewrites that the key may use."""

    def __init__(self, client: Caller) -> None:
        self._call = client.call

    def submit(
        self,
        *,
        sender_user_id: str,
        recipient_user_id: str,
        sender_message: str,
        surface: str,
        home_id: str | NotGiven | None = NOT_GIVEN,
        feedback_cycle_start: date | NotGiven | None = NOT_GIVEN,
        emotion_context: str | NotGiven | None = NOT_GIVEN,
        idempotency_key: str | None = None,
    ) -> AcceptedRewrite:
        """Submit a message. It is rewritten later, without any promise about when."""
        return self._call(
            submit_rewrite(
                sender_user_id=sender_user_id,
                recipient_user_id=recipient_user_id,
                sender_message=sender_message,
                surface=surface,
                home_id=home_id,
                feedback_cycle_start=feedback_cycle_start,
                emotion_context=emotion_context,
                idempotency_key=idempotency_key,
            )
        )

    def list_sent(
        self,
        *,
        user_id: str,
        home_id: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[SentRewrite]:
        """List the rewrites that a person sent, newest first."""
        return self._call(
            list_sent_rewrites(user_id=user_id, home_id=home_id, limit=limit, cursor=cursor)
        )

    def list_received(
        self,
        *,
        user_id: str,
        home_id: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[ReceivedRewrite]:
        """List the rewrites for a person, newest first."""
        return self._call(
            list_received_rewrites(user_id=user_id, home_id=home_id, limit=limit, cursor=cursor)
        )

    def get_sent(
        self, rewrite_request_id: str, *, user_id: str, home_id: str | None = None
    ) -> SentRewrite:
        """Return a rewrite for its sender: the state from the database, and the text if revealed."""
        return self._call(get_sent_rewrite(rewrite_request_id, user_id=user_id, home_id=home_id))

    def list_held(
        self, *, reason: str | None = None, limit: int | None = None
    ) -> tuple[HeldItem, ...]:
        """List rewrites that wait for a person, oldest first, without text. For operators."""
        return self._call(list_held_rewrites(reason=reason, limit=limit))

    def get_held(self, rewrite_request_id: str) -> HeldDetail:
        """Return a held rewrite with its texts. For admins; reading is audited."""
        return self._call(get_held_rewrite(rewrite_request_id))

    def approve_held(self, rewrite_request_id: str, *, reason: str) -> HeldDecided:
        """Deliver a held rewrite as it is. For admins."""
        return self._call(approve_held_rewrite(rewrite_request_id, reason=reason))

    def edit_held(self, rewrite_request_id: str, text: str, *, reason: str) -> HeldDecided:
        """Deliver an edited text instead; it passes the gate again. For admins."""
        return self._call(edit_held_rewrite(rewrite_request_id, text, reason=reason))

    def reject_held(self, rewrite_request_id: str, *, reason: str) -> HeldDecided:
        """Reject a held rewrite: it is never delivered. For admins."""
        return self._call(reject_held_rewrite(rewrite_request_id, reason=reason))

    def record(self, rewrite_request_id: str) -> Mapping[str, Any]:
        """Return all records of a rewrite, without any text. For operators."""
        return self._call(get_rewrite_record(rewrite_request_id))


class AsyncRewrites:
    """The rewrites that the key may use."""

    def __init__(self, client: AsyncCaller) -> None:
        self._call = client.call

    async def submit(
        self,
        *,
        sender_user_id: str,
        recipient_user_id: str,
        sender_message: str,
        surface: str,
        home_id: str | NotGiven | None = NOT_GIVEN,
        feedback_cycle_start: date | NotGiven | None = NOT_GIVEN,
        emotion_context: str | NotGiven | None = NOT_GIVEN,
        idempotency_key: str | None = None,
    ) -> AcceptedRewrite:
        """Submit a message. It is rewritten later, without any promise about when."""
        return await self._call(
            submit_rewrite(
                sender_user_id=sender_user_id,
                recipient_user_id=recipient_user_id,
                sender_message=sender_message,
                surface=surface,
                home_id=home_id,
                feedback_cycle_start=feedback_cycle_start,
                emotion_context=emotion_context,
                idempotency_key=idempotency_key,
            )
        )

    async def list_sent(
        self,
        *,
        user_id: str,
        home_id: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[SentRewrite]:
        """List the rewrites that a person sent, newest first."""
        return await self._call(
            list_sent_rewrites(user_id=user_id, home_id=home_id, limit=limit, cursor=cursor)
        )

    async def list_received(
        self,
        *,
        user_id: str,
        home_id: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[ReceivedRewrite]:
        """List the rewrites for a person, newest first."""
        return await self._call(
            list_received_rewrites(user_id=user_id, home_id=home_id, limit=limit, cursor=cursor)
        )

    async def get_sent(
        self, rewrite_request_id: str, *, user_id: str, home_id: str | None = None
    ) -> SentRewrite:
        """Return a rewrite for its sender: the state from the database, and the text if revealed."""
        return await self._call(
            get_sent_rewrite(rewrite_request_id, user_id=user_id, home_id=home_id)
        )

    async def list_held(
        self, *, reason: str | None = None, limit: int | None = None
    ) -> tuple[HeldItem, ...]:
        """List rewrites that wait for a person, oldest first, without text. For operators."""
        return await self._call(list_held_rewrites(reason=reason, limit=limit))

    async def get_held(self, rewrite_request_id: str) -> HeldDetail:
        """Return a held rewrite with its texts. For admins; reading is audited."""
        return await self._call(get_held_rewrite(rewrite_request_id))

    async def approve_held(self, rewrite_request_id: str, *, reason: str) -> HeldDecided:
        """Deliver a held rewrite as it is. For admins."""
        return await self._call(approve_held_rewrite(rewrite_request_id, reason=reason))

    async def edit_held(self, rewrite_request_id: str, text: str, *, reason: str) -> HeldDecided:
        """Deliver an edited text instead; it passes the gate again. For admins."""
        return await self._call(edit_held_rewrite(rewrite_request_id, text, reason=reason))

    async def reject_held(self, rewrite_request_id: str, *, reason: str) -> HeldDecided:
        """Reject a held rewrite: it is never delivered. For admins."""
        return await self._call(reject_held_rewrite(rewrite_request_id, reason=reason))

    async def record(self, rewrite_request_id: str) -> Mapping[str, Any]:
        """Return all records of a rewrite, without any text. For operators."""
        return await self._call(get_rewrite_record(rewrite_request_id))
