"""Access of HTTP clients: keys, sessions of the console, scopes and the rate of requests."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import threading
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from holdfast.actor import Actor, ActorType, Role
from holdfast.clock import ms
from holdfast.engine.audit import PLATFORM_ORG, record_action
from holdfast.errors import HoldfastError
from holdfast.store import Row, Statements, Store, Tx
from holdfast.store.read_limit import ReadTimeout as ReadTimeout
from holdfast.store.read_limit import limited_reads as limited_reads

SQL = Statements("holdfast.operate", "api_keys.sql")

SECRET_BYTES = 32
NAME_BYTES = 6

READ, WRITE, FRONTEND = "read", "write", "frontend"
_SCOPE = re.compile(r"read|write|frontend|[a-z][a-z0-9_]{0,40}:(read|write)")


class SecretKind(StrEnum):
    """What a secret is for; each begins with its own words."""

    API_KEY = "hf_live_"
    SESSION = "hf_session_"


@dataclass(frozen=True, slots=True)
class Secret:
    """A random secret, what is shown of it, and what is stored."""

    text: str = field(repr=False)
    prefix: str
    hash: str


def new_secret(kind: SecretKind) -> Secret:
    """Return a new secret: its kind, a name to recognise it by, and 32 random bytes.

    The form is one of those that :mod:`holdfast.secret` finds in payloads, reasons and logs.
    """
    prefix = f"{kind}{secrets.token_hex(NAME_BYTES)}"
    text = f"{prefix}_{secrets.token_urlsafe(SECRET_BYTES)}"
    return Secret(text, prefix, hash_secret(text))


def hash_secret(text: str) -> str:
    """What is stored of a secret. It has 256 random bits, so it needs neither salt nor delay."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


# -- permissions


def check_scopes(scopes: object, role: Role, org_id: str | None) -> tuple[str, ...]:
    """Return the scopes of a key, sorted, by default those of its role. Raises ValueError."""
    if isinstance(scopes, str) or not isinstance(scopes, Collection):
        raise ValueError("must be a list of scopes, such as jobs:read")
    if not scopes:
        return (READ,) if role is Role.VIEWER else (READ, WRITE)
    for scope in scopes:
        if not isinstance(scope, str) or not _SCOPE.fullmatch(scope):
            raise ValueError("must be read, write, frontend, or a noun with one, like jobs:read")
    if FRONTEND in scopes and (len(set(scopes)) > 1 or org_id is None or role is not Role.VIEWER):
        raise ValueError("frontend is the only scope of a viewer's key that is bound to a tenant")
    if role is Role.VIEWER and any(scope.endswith(WRITE) for scope in scopes):
        raise ValueError("a viewer only reads; use the role operator or admin")
    return tuple(sorted(set(scopes)))


def covers(scopes: Iterable[str], needed: str) -> bool:
    """Whether *scopes* include the scope *needed*: itself, or the general form of it."""
    held = set(scopes)
    return needed in held or needed.rpartition(":")[2] in held & {READ, WRITE}


@dataclass(frozen=True, slots=True)
class Identity:
    """Who makes a request, and what they may do: for one tenant or, without *org_id*, for all.

    An authentication of your own returns one of these. *key_id* names the API key, if there is one.
    """

    actor: Actor
    role: Role
    org_id: str | None = None
    scopes: frozenset[str] = frozenset({READ, WRITE})
    key_id: str | None = None
    requests_per_minute: int | None = None

    def may(self, needed: str) -> bool:
        """Whether the identity has the scope *needed*."""
        return covers(self.scopes, needed)


# -- signatures


def signing_key(store: Store, purpose: str) -> bytes:
    """Return a secret of this database for one purpose; every process has the same."""
    secret = str(store.one(SQL.find_signing_key)["key"])
    return hmac.digest(secret.encode(), purpose.encode(), hashlib.sha256)


# -- keys


class AccessDenied(HoldfastError):
    """The API key or the session is missing, unknown, expired or revoked. Send a valid key."""

    def __init__(self) -> None:
        super().__init__("The request has no valid API key.")


def find_key(store: Store, secret: str) -> Identity:
    """Return who an API key belongs to. Raises AccessDenied, whatever is wrong with the key."""
    if not secret.startswith(SecretKind.API_KEY) or not secret.isascii() or len(secret) > 200:
        raise AccessDenied
    row = store.maybe(SQL.find_secret, secret_hash=hash_secret(secret))
    if row is None or not row["is_valid"]:
        raise AccessDenied
    key_id = str(row["id"])
    if row["is_stale"]:
        store.execute(SQL.touch_key, id=key_id)
    return _identity(row, Actor(ActorType.API_KEY, key_id), key_id)


def has_keys(store: Store) -> bool:
    """Whether an API key exists that can be used now."""
    return int(store.one(SQL.count_valid)["keys"]) > 0


def read_org(stored: object) -> str | None:
    """Return the tenant of a key or a session; None for operations."""
    return None if str(stored) == PLATFORM_ORG else str(stored)


def _identity(row: Row, actor: Actor, key_id: str | None) -> Identity:
    return Identity(
        actor,
        Role(row["role"]),
        read_org(row["org_id"]),
        frozenset(row["scopes"].split()),
        key_id,
        row["requests_per_minute"],
    )


# -- sessions of the console


@dataclass(frozen=True, slots=True)
class OpenSession:
    """A session of the console and when it ends."""

    identity: Identity
    expires_at: datetime | str


def open_session(store: Store, identity: Identity, *, lasts: timedelta) -> str:
    """Open a session with a new id, and return the value of its cookie."""
    secret = new_secret(SecretKind.SESSION)
    row = {
        "secret_hash": secret.hash,
        "key_id": identity.key_id,
        "actor_type": identity.actor.type,
        "actor_id": identity.actor.id,
        "role": identity.role,
        "scopes": " ".join(sorted(identity.scopes)),
        "org_id": identity.org_id or PLATFORM_ORG,
        "lasts_ms": ms(lasts),
    }

    def work(tx: Tx) -> None:
        tx.affected(SQL.prune_sessions)
        tx.affected(SQL.insert_session, **row)
        _record(tx, identity, "console.session_opened")

    store.write(work)
    return secret.text


def find_session(store: Store, cookie: str) -> OpenSession:
    """Return the session of a cookie. Raises AccessDenied if it ended, or if its key did."""
    if not cookie.startswith(SecretKind.SESSION) or not cookie.isascii() or len(cookie) > 200:
        raise AccessDenied
    row = store.maybe(SQL.find_session, secret_hash=hash_secret(cookie))
    if row is None:
        raise AccessDenied
    key_id = None if row["key_id"] is None else str(row["key_id"])
    actor = Actor(ActorType(row["actor_type"]), row["actor_id"])
    return OpenSession(_identity(row, actor, key_id), row["expires_at"])


def end_session(store: Store, cookie: str, identity: Identity) -> None:
    """End a session on the server: its cookie is worth nothing any more."""

    def work(tx: Tx) -> None:
        if tx.affected(SQL.end_session, secret_hash=hash_secret(cookie)):
            _record(tx, identity, "console.session_ended")

    store.write(work)


def _record(tx: Tx, identity: Identity, event: str) -> None:
    actor = identity.actor
    record_action(
        tx,
        actor,
        subject=f"session:{actor.type}:{actor.id}",
        name=event,
        detail={"role": identity.role},
        org_id=identity.org_id or PLATFORM_ORG,
    )


# -- the rate of requests


class TooManyRequests(HoldfastError):
    """The API key made more requests in this minute than it may. Wait for the next minute."""

    def __init__(self, limit: int, retry_after: int) -> None:
        self.limit, self.retry_after = limit, retry_after
        super().__init__(f"The key may make {limit} requests a minute. Wait {retry_after} s.")


@dataclass(slots=True)
class _Block:
    minute: int
    left: int


class RequestRates:
    """Counts requests per key and minute in the database, so that it holds over all processes.

    A process takes requests in blocks of a hundredth of the limit: a key that makes many requests
    costs one write per block. What is left of a block in the next minute is discarded, so a key
    never exceeds its limit.
    """

    def __init__(self, store: Store, requests_per_minute: int) -> None:
        self._store = store
        self._default = requests_per_minute
        self._blocks: dict[str, _Block] = {}
        self._lock = threading.Lock()

    def take(self, identity: Identity) -> None:
        """Count one request. Raises TooManyRequests."""
        key_id = identity.key_id
        if key_id is None:
            return
        limit = identity.requests_per_minute or self._default
        now = self._store.clock.now().timestamp()
        minute = int(now // 60)
        with self._lock:
            block = self._blocks.get(key_id)
            if block is not None and block.minute == minute and block.left > 0:
                block.left -= 1
                return
        size = max(1, limit // 100)
        asked = {"key_id": key_id, "minute": minute, "requests": size}
        used = self._store.one(SQL.take_requests, **asked)["used"]
        allowed = min(size, limit - (used - size))
        if allowed <= 0:
            raise TooManyRequests(limit, max(1, 60 - int(now % 60)))
        with self._lock:
            self._blocks[key_id] = _Block(minute, allowed - 1)
