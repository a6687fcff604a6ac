"""Login with OpenID Connect: the authorization code flow with PKCE, state and nonce.

What a login must remember until the browser comes back is in a signed cookie of that browser, so
that any process can finish it. Claims of the ID token become an identity.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any
from urllib.parse import urlencode

from holdfast.actor import Actor, ActorType, Role, read_actor
from holdfast.api.openid_provider import LoginRefused, OpenIdProvider
from holdfast.app import Holdfast
from holdfast.config.serve import OidcSettings
from holdfast.errors import InvalidArgument
from holdfast.ids import MalformedId, read_uuid
from holdfast.operate.access import Identity, check_scopes, read_org, signing_key

_log = logging.getLogger("holdfast.api")

COOKIE = "holdfast_login"
LASTS_SECONDS = 600
LONGEST_COOKIE = 4096
LONGEST_CODE = 4096


@dataclass(frozen=True, slots=True)
class Attempt:
    """A login that was begun and not finished. *after* is the page to open afterwards."""

    state: str
    nonce: str
    verifier: str
    after: str
    ends_at: int


@dataclass(frozen=True, slots=True)
class Begun:
    """Where to send the browser, and the cookie that it must bring back."""

    url: str
    cookie: str


class OpenIdLogin:
    """Logs people in at the provider of ``[serve.oidc]``."""

    def __init__(self, hf: Holdfast) -> None:
        self._hf = hf
        self._settings = hf.settings.serve.oidc
        self._provider = OpenIdProvider(self._settings, hf.clock)

    def begin(self, redirect_url: str, after: str) -> Begun:
        """Begin a login. Raises LoginRefused if the provider cannot be reached."""
        attempt = Attempt(
            secrets.token_urlsafe(24),
            secrets.token_urlsafe(24),
            secrets.token_urlsafe(48),
            after[:1000],
            self._now() + LASTS_SECONDS,
        )
        challenge = hashlib.sha256(attempt.verifier.encode()).digest()
        query = {
            "response_type": "code",
            "client_id": self._provider.client_id,
            "redirect_uri": self._settings.redirect_url or redirect_url,
            "scope": " ".join(self._settings.scopes),
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": base64.urlsafe_b64encode(challenge).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
        }
        address = self._provider.discover().authorization_endpoint
        url = f"{address}{'&' if '?' in address else '?'}{urlencode(query)}"
        return Begun(url, self._sign(attempt))

    def finish(
        self, query: Mapping[str, str], cookie: str, redirect_url: str
    ) -> tuple[Identity, str]:
        """Return who logged in, and the page to open. *query* is what the provider sent.

        Raises LoginRefused.
        """
        attempt = self._read(cookie)
        if not hmac.compare_digest(query.get("state", "").encode(), attempt.state.encode()):
            raise LoginRefused("state")
        # A provider that names itself must be the one that was asked (RFC 9207).
        if query.get("iss", self._provider.issuer) != self._provider.issuer:
            raise LoginRefused("issuer")
        code = query.get("code", "")
        if "error" in query or not 0 < len(code) <= LONGEST_CODE:
            raise LoginRefused("no_code")
        token = self._provider.exchange(
            code, attempt.verifier, self._settings.redirect_url or redirect_url
        )
        claims = self._provider.check(token, attempt.nonce)
        return identity_of(claims, self._settings), attempt.after

    # -- the cookie

    @cached_property
    def _key(self) -> bytes:
        return signing_key(self._hf.store, "oidc")

    def _now(self) -> int:
        return int(self._hf.clock.now().timestamp())

    def _sign(self, attempt: Attempt) -> str:
        text = json.dumps(asdict(attempt), separators=(",", ":"))
        body = base64.urlsafe_b64encode(text.encode()).decode()
        return f"{body}.{self._signature(body)}"

    def _read(self, cookie: str) -> Attempt:
        body, _, signature = cookie.rpartition(".")
        is_signed = hmac.compare_digest(signature.encode(), self._signature(body).encode())
        if not body or len(cookie) > LONGEST_COOKIE or not is_signed:
            raise LoginRefused("no_login_begun")
        attempt = Attempt(**json.loads(base64.urlsafe_b64decode(body)))
        if attempt.ends_at < self._now():
            raise LoginRefused("login_expired")
        return attempt

    def _signature(self, body: str) -> str:
        return hmac.new(self._key, body.encode(), hashlib.sha256).hexdigest()


def log_refusal(refused: LoginRefused) -> None:
    """Log why a login was refused: a code, and nothing that the browser or the provider sent."""
    _log.warning("login.refused", extra={"fields": {"reason": refused.reason}})


# -- claims


def identity_of(claims: Mapping[str, Any], settings: OidcSettings) -> Identity:
    """Return who the claims of an ID token are. Raises LoginRefused if no role fits."""
    role = _role(claims, settings)
    org_id = _tenant(claims, settings)
    name = claims.get(settings.name_claim)
    try:
        actor = read_actor(Actor(ActorType.USER, name if isinstance(name, str) else ""))
    except InvalidArgument:
        raise LoginRefused("name_claim") from None
    return Identity(actor, role, org_id, frozenset(check_scopes((), role, org_id)))


def _role(claims: Mapping[str, Any], settings: OidcSettings) -> Role:
    held = _texts(_claim(claims, settings.role_claim))
    for role, values in (
        (Role.ADMIN, settings.admins),
        (Role.OPERATOR, settings.operators),
        (Role.VIEWER, settings.viewers),
    ):
        if held & set(values):
            return role
    raise LoginRefused("no_role")


def _tenant(claims: Mapping[str, Any], settings: OidcSettings) -> str | None:
    if settings.tenant_claim is None:
        return None
    held = _texts(_claim(claims, settings.tenant_claim))
    if held & set(settings.all_tenants):
        return None
    if len(held) != 1:
        raise LoginRefused("tenant_claim")
    try:
        # The id that stands for all tenants is no tenant.
        org_id = read_org(read_uuid(next(iter(held))))
    except MalformedId:
        org_id = None
    if org_id is None:
        raise LoginRefused("tenant_claim")
    return org_id


def _claim(claims: Mapping[str, Any], name: str) -> object:
    """A claim by its name, or by a path with dots into nested claims."""
    if name in claims:
        return claims[name]
    found: object = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _texts(value: object) -> set[str]:
    """The texts of a claim: one, or a list of them."""
    listed = value if isinstance(value, list) else [value]
    return {one for one in listed if isinstance(one, str) and one}
