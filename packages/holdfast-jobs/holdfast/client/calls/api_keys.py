"""Calls about api keys. Written by tools/client_code.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

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
class Key:
    """An API key without its secret. *org_id* is null for a key of operations."""

    id: str
    name: str
    prefix: str
    role: str
    scopes: tuple[str, ...]
    org_id: str | None
    requests_per_minute: int | None
    created_by: str
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    replaced_by: str | None
    revoked_at: datetime | None
    revoked_by: str | None


@dataclass(frozen=True, slots=True)
class MadeKey:
    """A new key. *secret* is the key itself; it is shown once, and null in a repeated answer."""

    key: Key
    secret: str | None


def list_api_keys(*, limit: int | None = None, cursor: str | None = None) -> Call[Page[Key]]:
    """List keys, newest first. Revoked keys are included."""
    return Call(
        "list_api_keys",
        "GET",
        "/v1/api-keys",
        lambda found: read_page(Key, found),
        query={"limit": limit, "cursor": cursor},
    )


def create_api_key(
    name: str,
    *,
    role: str,
    reason: str,
    org_id: str | NotGiven | None = NOT_GIVEN,
    scopes: Sequence[str] | NotGiven = NOT_GIVEN,
    expires_at: datetime | NotGiven | None = NOT_GIVEN,
    requests_per_minute: int | NotGiven | None = NOT_GIVEN,
    idempotency_key: str | None = None,
) -> Call[MadeKey]:
    """Create a key. The answer shows it once."""
    return Call(
        "create_api_key",
        "POST",
        "/v1/api-keys",
        lambda found: read(MadeKey, found),
        headers={"Idempotency-Key": idempotency_key or new_key()},
        body=given(
            {
                "name": name,
                "role": role,
                "reason": reason,
                "org_id": org_id,
                "scopes": scopes,
                "expires_at": expires_at,
                "requests_per_minute": requests_per_minute,
            }
        ),
    )


def get_api_key(key_id: str) -> Call[Key]:
    """Return one key."""
    return Call(
        "get_api_key",
        "GET",
        "/v1/api-keys/{key_id}",
        lambda found: read(Key, found),
        names={"key_id": key_id},
    )


def rotate_api_key(
    key_id: str,
    *,
    reason: str,
    overlap_seconds: int | NotGiven = NOT_GIVEN,
    idempotency_key: str | None = None,
) -> Call[MadeKey]:
    """Create a key with the same permissions; the old one stays valid for a while."""
    return Call(
        "rotate_api_key",
        "POST",
        "/v1/api-keys/{key_id}/rotate",
        lambda found: read(MadeKey, found),
        names={"key_id": key_id},
        headers={"Idempotency-Key": idempotency_key or new_key()},
        body=given({"reason": reason, "overlap_seconds": overlap_seconds}),
    )


def revoke_api_key(key_id: str, *, reason: str) -> Call[bool]:
    """End a key and its sessions, at once."""
    return Call(
        "revoke_api_key",
        "POST",
        "/v1/api-keys/{key_id}/revoke",
        lambda found: bool(found["changed"]),
        names={"key_id": key_id},
        headers={"Idempotency-Key": new_key()},
        body=given({"reason": reason}),
    )
