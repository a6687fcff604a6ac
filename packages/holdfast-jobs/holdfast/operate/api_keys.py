"""API keys: create, list, rotate and revoke them.

A key is shown once, when it is created. Its hash is stored. It is bound to one tenant, or to
operations, which sees every tenant.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from typing import Any

from holdfast.actor import Role
from holdfast.arguments import anything, checked, identifier
from holdfast.clock import ms, read_instant, write_instant
from holdfast.engine.audit import PLATFORM_ORG, record_action
from holdfast.errors import Conflict, NotFound
from holdfast.ids import read_uuid
from holdfast.operate.access import SQL, SecretKind, check_scopes, new_secret, read_org
from holdfast.operate.admit import admit
from holdfast.operate.authorization import Action, OperatorContext
from holdfast.operate.page import NEWEST, Page, check_limit, page_of
from holdfast.operate.refusal import InvalidAction
from holdfast.store import Row, Tx

LONGEST_NAME = 100
LONGEST_OVERLAP = timedelta(days=90)
MOST_REQUESTS = 10_000_000


class ApiKeyNotFound(NotFound):
    """The API key does not exist, or belongs to another tenant. List the keys: `holdfast keys
    list`."""

    def __init__(self, key_id: str) -> None:
        self.key_id = key_id
        super().__init__(f"API key {key_id} not found. List the keys: holdfast keys list.")


class ApiKeyEnded(Conflict):
    """The API key was revoked or replaced, or has expired. Create another one: `holdfast keys
    create`."""

    def __init__(self, key_id: str) -> None:
        self.key_id = key_id
        super().__init__(
            f"API key {key_id} was revoked or replaced, or has expired. Create another one:"
            " holdfast keys create."
        )


@dataclass(frozen=True, slots=True)
class ApiKey:
    """An API key without its secret. *org_id* is None for a key of operations."""

    id: str
    name: str
    prefix: str
    role: Role
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

    @classmethod
    def from_row(cls, row: Row) -> ApiKey:
        read: dict[str, Any] = {item.name: row[item.name] for item in fields(cls)}
        for name in ("created_at", "expires_at", "last_used_at", "revoked_at"):
            read[name] = None if read[name] is None else read_instant(read[name])
        for name in ("id", "replaced_by"):
            read[name] = None if read[name] is None else str(read[name])
        read["org_id"] = read_org(row["org_id"])
        return cls(**{**read, "role": Role(row["role"]), "scopes": tuple(row["scopes"].split())})


@dataclass(frozen=True, slots=True)
class CreatedKey:
    """A new API key. *secret* is the key itself; it cannot be shown again."""

    key: ApiKey
    secret: str = field(repr=False)


@checked(
    InvalidAction,
    checks={
        "key_id": identifier,
        # Checked by the method, so that a refusal is audited.
        **dict.fromkeys(
            (
                "reason",
                "create.name",
                "create.role",
                "scopes",
                "expires_at",
                "requests_per_minute",
                "overlap",
            ),
            anything,
        ),
    },
)
class ApiKeys:
    """The API keys that the actor of *context* may manage."""

    def __init__(self, context: OperatorContext) -> None:
        self.context = context

    def list(self, *, limit: int = 50, before: str = NEWEST) -> Page[ApiKey]:
        """Keys of the tenant, or of all tenants, newest first. Revoked keys are included."""
        org_id = self.context.tenant_for(Action.READ_KEYS, None, subject="api_keys")
        asked = {"org_id": org_id, "before": before, "limit": check_limit(limit) + 1}
        rows = self.context.store.read(lambda tx: tx.many(SQL.list_keys, **asked))
        return page_of([ApiKey.from_row(row) for row in rows], limit, lambda key: key.id)

    def get(self, key_id: str) -> ApiKey:
        """One key. Raises ApiKeyNotFound for another tenant's."""
        return self._find(Action.READ_KEYS, key_id)

    def create(
        self,
        name: str,
        *,
        role: Role | str,
        reason: str,
        org_id: str | None = None,
        scopes: Collection[str] = (),
        expires_at: datetime | None = None,
        requests_per_minute: int | None = None,
    ) -> CreatedKey:
        """Create a key. Without *org_id* it is a key of the context's tenant, or of operations.

        Without *scopes* a viewer's key may read, and others may read and write.
        """
        tenant = self.context.org_id if org_id is None else org_id
        subject = "api_keys"
        reason = admit(self.context, Action.CREATE_KEY, reason, org_id=tenant, subject=subject)
        now = self.context.app.clock.now()
        try:
            found = _read_new(name, role, scopes, expires_at, requests_per_minute, tenant, now)
        except InvalidAction as exc:
            self.context.refuse(Action.CREATE_KEY, exc, org_id=tenant, subject=subject)
        row = {**found, "id": self.context.ids.new(), "org_id": tenant or PLATFORM_ORG}
        return self.context.store.write(
            lambda tx: self._insert(tx, row, "api_key.created", {"reason": reason})
        )

    def rotate(
        self, key_id: str, *, reason: str, overlap: timedelta = timedelta(days=1)
    ) -> CreatedKey:
        """Create a key with the same permissions; the old one stays valid for *overlap*."""
        key = self._find(Action.ROTATE_KEY, key_id)
        action, subject = Action.ROTATE_KEY, f"api_key:{key.id}"
        reason = admit(self.context, action, reason, org_id=key.org_id, subject=subject)
        is_length = isinstance(overlap, timedelta)
        if not is_length or not timedelta(0) <= overlap <= LONGEST_OVERLAP:
            says = f"must be a timedelta of 0 to {LONGEST_OVERLAP.days} days"
            error = InvalidAction({"overlap": says})
            self.context.refuse(action, error, org_id=key.org_id, subject=subject)
        now = self.context.app.clock.now()
        # The new key lasts as long as the old one did.
        expires_at = None if key.expires_at is None else now + (key.expires_at - key.created_at)
        row = {
            "id": self.context.ids.new(),
            "name": key.name,
            "role": key.role,
            "scopes": " ".join(key.scopes),
            "org_id": key.org_id or PLATFORM_ORG,
            "requests_per_minute": key.requests_per_minute,
            "expires_at": None if expires_at is None else write_instant(expires_at),
        }
        replaced = {"id": key.id, "replaced_by": row["id"], "overlap_ms": ms(overlap)}

        def work(tx: Tx) -> CreatedKey:
            if not tx.affected(SQL.replace_key, **replaced):
                raise ApiKeyEnded(key.id)
            detail = {"reason": reason, "replaces": key.id, "overlap_ms": replaced["overlap_ms"]}
            return self._insert(tx, row, "api_key.rotated", detail)

        try:
            return self.context.store.write(work)
        except ApiKeyEnded as exc:
            self.context.refuse(action, exc, org_id=key.org_id, subject=subject)

    def revoke(self, key_id: str, *, reason: str) -> bool:
        """End a key and its sessions at once. False if it was revoked before."""
        key = self._find(Action.REVOKE_KEY, key_id)
        subject = f"api_key:{key.id}"
        reason = admit(self.context, Action.REVOKE_KEY, reason, org_id=key.org_id, subject=subject)
        actor = self.context.actor

        def work(tx: Tx) -> bool:
            by = f"{actor.type}:{actor.id}"
            if not tx.affected(SQL.revoke_key, id=key.id, revoked_by=by):
                return False
            self._record(tx, key.id, key.org_id, "api_key.revoked", {"reason": reason})
            return True

        return self.context.store.write(work)

    def _find(self, action: Action, key_id: str) -> ApiKey:
        """Return a key that *context* may do *action* on; another tenant's is not found."""
        own, row = self.context.org_id, None
        try:
            asked = {"id": read_uuid(key_id), "org_id": own}
        except ValueError:
            asked = {}
        if asked:
            row = self.context.store.read(lambda tx: tx.maybe(SQL.find_key, **asked))
        subject = f"api_key:{key_id[:100]}"
        if row is None:
            error = ApiKeyNotFound(key_id[:100])
            if own is None and action is Action.READ_KEYS:
                raise error
            self.context.refuse(action, error, org_id=own, subject=subject)
        key = ApiKey.from_row(row)
        self.context.check(action, org_id=key.org_id, subject=subject)
        return key

    def _insert(
        self, tx: Tx, row: dict[str, Any], event: str, detail: dict[str, Any]
    ) -> CreatedKey:
        secret = new_secret(SecretKind.API_KEY)
        actor = self.context.actor
        stored = {
            **row,
            "prefix": secret.prefix,
            "secret_hash": secret.hash,
            "created_by": f"{actor.type}:{actor.id}",
        }
        tx.affected(SQL.insert_key, **stored)
        permissions = {"key_role": row["role"], "scopes": row["scopes"]}
        self._record(tx, row["id"], row["org_id"], event, {**detail, **permissions})
        made = tx.one(SQL.find_key, id=row["id"], org_id=row["org_id"])
        return CreatedKey(ApiKey.from_row(made), secret.text)

    def _record(
        self, tx: Tx, key_id: str, org_id: str | None, event: str, detail: dict[str, Any]
    ) -> None:
        record_action(
            tx,
            self.context.actor,
            subject=f"api_key:{key_id}",
            name=event,
            detail={**detail, "role": self.context.role},
            org_id=org_id or PLATFORM_ORG,
        )


def _read_new(
    name: object,
    role: object,
    scopes: object,
    expires_at: object,
    requests_per_minute: object,
    org_id: str | None,
    now: datetime,
) -> dict[str, Any]:
    """Return the columns of a new key; raises InvalidAction with every bad field."""
    errors: dict[str, str] = {}
    if not (isinstance(name, str) and 1 <= len(name) <= LONGEST_NAME and name.isprintable()):
        errors["name"] = f"must be one line of 1 to {LONGEST_NAME} characters"
    if role not in (Role.VIEWER, Role.OPERATOR, Role.ADMIN):
        errors["role"] = "must be one of viewer, operator, admin"
        role = Role.VIEWER
    try:
        listed = check_scopes(scopes, Role(str(role)), org_id)
    except ValueError as exc:
        errors["scopes"], listed = str(exc), ()
    if expires_at is not None and not (
        isinstance(expires_at, datetime) and expires_at.tzinfo is not None and expires_at > now
    ):
        errors["expires_at"] = "must be a time in the future, with a time zone"
    if requests_per_minute is not None and not (
        type(requests_per_minute) is int and 1 <= requests_per_minute <= MOST_REQUESTS
    ):
        errors["requests_per_minute"] = f"must be a whole number from 1 to {MOST_REQUESTS}"
    if errors:
        raise InvalidAction(errors)
    return {
        "name": name,
        "role": Role(str(role)).value,
        "scopes": " ".join(listed),
        "expires_at": write_instant(expires_at) if isinstance(expires_at, datetime) else None,
        "requests_per_minute": requests_per_minute,
    }
