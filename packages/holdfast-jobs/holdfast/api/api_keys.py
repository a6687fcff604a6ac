"""API keys: create, list, rotate and revoke them. For admins."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal

from pydantic import Field

from holdfast.actor import Role
from holdfast.api.caller import CallerOf
from holdfast.api.models import Action, Body, Done, Model, NamedId, Reason
from holdfast.api.paging import Cursor, Limit, Listing
from holdfast.api.problems import ProblemError
from holdfast.api.resource import Resource
from holdfast.operate.access import check_scopes
from holdfast.operate.api_keys import CreatedKey
from holdfast.operate.page import NEWEST

router = Resource("api_keys")


class Key(Model):
    """An API key without its secret. *org_id* is null for a key of operations."""

    id: str
    name: str
    prefix: str
    role: str
    scopes: list[str]
    org_id: str | None
    requests_per_minute: int | None
    created_by: str
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    replaced_by: str | None
    revoked_at: datetime | None
    revoked_by: str | None


class NewKey(Body):
    """A key to create. Its scopes must be among those of the caller."""

    name: str = Field(min_length=1, max_length=100)
    role: Literal["viewer", "operator", "admin"]
    reason: Reason
    org_id: NamedId | None = Field(
        default=None, description="The tenant; with a key of operations, null is operations."
    )
    scopes: list[str] = Field(default_factory=list, max_length=100)
    expires_at: datetime | None = None
    requests_per_minute: int | None = Field(default=None, ge=1, le=10_000_000)


class Rotation(Body):
    """How long the old key stays valid."""

    reason: Reason
    overlap_seconds: int = Field(default=86_400, ge=0, le=90 * 86_400)


class MadeKey(Model):
    """A new key. *secret* is the key itself; it is shown once, and null in a repeated answer."""

    key: Key
    secret: str | None

    @classmethod
    def from_item(cls, made: CreatedKey) -> MadeKey:
        """Render a new key of the operator API."""
        return cls(key=Key.model_validate(made.key), secret=made.secret)


@router.read("", operation_id="list_api_keys")
def list_api_keys(caller: CallerOf, limit: Limit = 50, cursor: Cursor = None) -> Listing[Key]:
    """List keys, newest first. Revoked keys are included."""
    pages = caller.pages("api_keys")
    found = caller.operator.api_keys.list(limit=limit, before=pages.start(cursor, NEWEST))
    return Listing[Key].model_validate(pages.page(found, Key.model_validate))


@router.write("", operation_id="create_api_key", status_code=201, shown_once=("secret",))
def create_api_key(new: NewKey, caller: CallerOf) -> MadeKey:
    """Create a key. The answer shows it once."""
    org_id = None if new.org_id is None else str(new.org_id)
    try:
        scopes = check_scopes(new.scopes, Role(new.role), org_id or caller.org_id)
    except ValueError as exc:
        raise ProblemError(
            422, "invalid_request", "Nothing was done.", "Correct the listed fields.",
            errors=[("scopes", str(exc))],
        ) from None  # fmt: skip
    if not all(caller.identity.may(scope) for scope in scopes if scope != "frontend"):
        raise ProblemError(
            403,
            "missing_scope",
            "A key cannot create a key with scopes that it does not have.",
            "Create it with a key that has these scopes.",
        )
    made = caller.operator.api_keys.create(
        new.name,
        role=new.role,
        reason=new.reason,
        org_id=org_id,
        scopes=scopes,
        expires_at=new.expires_at,
        requests_per_minute=new.requests_per_minute,
    )
    return MadeKey.from_item(made)


@router.read("/{key_id}", operation_id="get_api_key", volatile=("last_used_at",))
def get_api_key(key_id: str, caller: CallerOf) -> Key:
    """Return one key."""
    return Key.model_validate(caller.operator.api_keys.get(key_id))


@router.write(
    "/{key_id}/rotate", operation_id="rotate_api_key", status_code=201, shown_once=("secret",)
)
def rotate_api_key(key_id: str, rotation: Rotation, caller: CallerOf) -> MadeKey:
    """Create a key with the same permissions; the old one stays valid for a while."""
    overlap = timedelta(seconds=rotation.overlap_seconds)
    made = caller.operator.api_keys.rotate(key_id, reason=rotation.reason, overlap=overlap)
    return MadeKey.from_item(made)


@router.write("/{key_id}/revoke", operation_id="revoke_api_key")
def revoke_api_key(key_id: str, action: Action, caller: CallerOf) -> Done:
    """End a key and its sessions, at once."""
    return Done(changed=caller.operator.api_keys.revoke(key_id, reason=action.reason))
