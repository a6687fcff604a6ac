"""The settings of the HTTP API and the console."""

from __future__ import annotations

import re
from dataclasses import dataclass

from holdfast.config.setting_type import (
    FLAG,
    Section,
    number,
    refuse,
    section,
    setting,
    text,
    texts,
    whole,
)

_ISSUER = re.compile(r"https?://[^\s/@?#]+(/[^\s?#@]*)?")
_VARIABLE = text(
    "the name of an environment variable",
    re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}"),
    is_address=True,
)
_PATH = text("an absolute path", re.compile(r"/\S+"), is_address=True)
_TRACE_URL = text(
    'an address with {trace_id}, such as "https://traces.example.com/trace/{trace_id}"',
    re.compile(r"https?://[^\s/@?#{}\"<>]+/[^\s\"<>{}]*\{trace_id\}[^\s\"<>{}]*"),
    is_address=True,
)
_CLAIM = text("the name of a claim, such as groups", re.compile(r"[!-~]{1,200}"))
_VALUES = texts("a list of values of the claim", lambda value: 0 < len(value) <= 200)


@dataclass(frozen=True, slots=True)
class OidcSettings(Section):
    """Login to the console with OpenID Connect: `[serve.oidc]`. Needs the extra `oidc`.

    Claims are read from the ID token. Everything that is not mapped to a role and, with
    `tenant_claim`, to a tenant is refused.
    """

    issuer: str | None = setting(
        None, text('an address such as "https://login.example.com"', _ISSUER, is_address=True)
    )
    """Issuer of the identity provider, as in its discovery document. Without it, there is no login
    with OpenID Connect."""
    client_id: str | None = setting(None, text("the id of a client", re.compile(r"[!-~]{1,300}")))
    """Client id of the console at the provider."""
    client_secret_env: str | None = setting(None, _VARIABLE)
    """Environment variable with the client secret. A public client has none."""
    client_secret_file: str | None = setting(None, _PATH)
    """File with the client secret, instead of `client_secret_env`."""
    redirect_url: str | None = setting(
        None, text('an address such as "https://jobs.example.com/console/oidc/callback"', _ISSUER)
    )
    """Address that the provider sends the browser back to, ending in `/console/oidc/callback`.
    Required behind a proxy that changes host or scheme. The default is the address of the
    request."""
    scopes: tuple[str, ...] = setting(
        ("openid",),
        texts(
            "a list of scopes with openid", lambda scope: re.fullmatch(r"[!-~]+", scope) is not None
        ),
    )
    """Scopes to ask for: `openid`, and those that the claims need."""
    name_claim: str = setting("sub", _CLAIM)
    """Claim that names the person in the audit. It must be unique and must never be reused."""
    role_claim: str = setting("groups", _CLAIM)
    """Claim with the groups or roles of the person: a text or a list of texts. Dots lead into
    nested claims, such as `realm_access.roles`."""
    admins: tuple[str, ...] = setting((), _VALUES)
    """Values of `role_claim` that make an admin."""
    operators: tuple[str, ...] = setting((), _VALUES)
    """Values of `role_claim` that make an operator."""
    viewers: tuple[str, ...] = setting((), _VALUES)
    """Values of `role_claim` that make a viewer. The strongest role of a person counts."""
    tenant_claim: str | None = setting(None, _CLAIM)
    """Claim with the tenant of the person: its UUID, or a name as `name:acme`. Without this
    setting, each login acts for all tenants."""
    all_tenants: tuple[str, ...] = setting((), _VALUES)
    """Values of `tenant_claim` that mean all tenants."""
    allow_private: bool = setting(False, FLAG)
    """Allow a provider in a private network, and plain HTTP."""

    def __post_init__(self) -> None:
        Section.__post_init__(self)
        problems = []
        if self.issuer is not None:
            if self.client_id is None:
                problems.append("client_id is needed with issuer")
            if not (self.admins or self.operators or self.viewers):
                problems.append("admins, operators or viewers must name a value of role_claim")
            if self.issuer.startswith("http:") and not self.allow_private:
                problems.append("issuer must be https; allow_private permits one of your own")
        if "openid" not in self.scopes:
            problems.append("scopes must contain openid")
        if self.client_secret_env and self.client_secret_file:
            problems.append("client_secret_env and client_secret_file exclude each other")
        if self.all_tenants and self.tenant_claim is None:
            problems.append("all_tenants needs tenant_claim")
        refuse("Invalid OidcSettings", problems)


@dataclass(frozen=True, slots=True)
class ServeSettings(Section):
    """Address and limits of `holdfast serve`: `[serve]`."""

    host: str = setting("127.0.0.1", text("an address"))
    """Address to listen on. An address other than loopback needs an API key, or an authentication
    of your own."""
    port: int = setting(8321, whole(0, 65_535))
    """Port to listen on; 0 chooses a free one."""
    session_hours: float = setting(12.0, number(0.1, 30 * 24))
    """How long a session of the console lasts."""
    requests_per_minute: int = setting(60_000, whole(1, 10_000_000))
    """Requests that an API key may make in a minute, unless the key has its own limit."""
    body_limit_bytes: int = setting(1024 * 1024, whole(1024, 64 * 1024 * 1024))
    """Maximum size of a request body in bytes."""
    body_seconds: float = setting(10.0, number(0.1, 300))
    """How long a client may take to send a request body."""
    read_seconds: float = setting(5.0, number(0.1, 300))
    """How long the database may work on one read of a request."""
    idempotency_hours: float = setting(24.0, number(1, 30 * 24))
    """How long the answer of a request with an `Idempotency-Key` is kept. Enqueues are recognised
    as long as their job is stored."""
    trace_url: str | None = setting(None, _TRACE_URL)
    """Address of a trace in your tracing tool, with `{trace_id}`, such as
    `https://grafana.example.com/explore?trace={trace_id}`. The page of a job links to it."""
    oidc: OidcSettings = section(OidcSettings)
    """Login to the console with OpenID Connect."""
