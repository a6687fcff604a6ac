"""Authentication: who makes a request, whether it was forged, and whether it is within the rate.

An API key is sent as ``Authorization: Bearer …``, a session of the console as a cookie. The tenant
comes from them and never from the request.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextvars import Context
from datetime import timedelta
from functools import partial
from inspect import isawaitable
from urllib.parse import urlsplit

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from holdfast.api.caller import Caller
from holdfast.api.problems import ProblemError
from holdfast.app import Holdfast
from holdfast.config.serve import ServeSettings
from holdfast.operate.access import (
    AccessDenied,
    Identity,
    RequestRates,
    SecretKind,
    TooManyRequests,
    end_session,
    find_key,
    find_session,
    open_session,
    signing_key,
)

COOKIE = "holdfast_session"
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
# Failed logins that one address may make in a minute. Keys have 256 random bits: this limits load.
MOST_FAILURES = 60
MOST_ADDRESSES = 10_000

Authenticate = Callable[[Request], Identity | Awaitable[Identity | None] | None]
"""An authentication of your own. None leaves the request to keys and sessions."""


class Authentication:
    """Admits requests to an application."""

    def __init__(self, hf: Holdfast, authenticate: Authenticate | None = None) -> None:
        self.hf = hf
        self._authenticate = authenticate
        self._rates: RequestRates | None = None
        self._cursor_key: bytes | None = None
        self._failures = Failures(hf.clock.monotonic)

    @property
    def limits(self) -> ServeSettings:
        return self.hf.settings.serve

    def cursor_key(self) -> bytes:
        """The key that cursors are signed with."""
        if self._cursor_key is None:
            # Tenants cannot read it: leave the limits of the request.
            self._cursor_key = Context().run(signing_key, self.hf.store, "cursor")
        return self._cursor_key

    async def admit(self, request: Request, needed: tuple[str, ...]) -> Caller:
        """Return the caller of a request that has one of the scopes *needed*.

        Raises AccessDenied, TooManyRequests, or ProblemError for a forged request and a missing
        scope.
        """
        identity = await self.identify(request)
        if not any(identity.may(scope) for scope in needed):
            raise ProblemError(
                403,
                "missing_scope",
                f"The key does not have the scope {' or '.join(needed)}.",
                "Use a key with this scope.",
            )
        return Caller(self.hf, identity, request.scope["holdfast.request_id"], self.cursor_key)

    async def identify(self, request: Request) -> Identity:
        """Return who makes a request. Raises AccessDenied; see :meth:`admit`."""
        _refuse_key_in_query(request)
        identity = await self.given(request)
        if identity is None:
            identity = await run_in_threadpool(self._find, request)
        elif "authorization" not in request.headers:
            check_origin(request)
        return identity

    async def given(self, request: Request) -> Identity | None:
        """Return who makes a request by the authentication of the application, if it has one."""
        if self._authenticate is None:
            return None
        found = self._authenticate(request)
        return await found if isawaitable(found) else found

    async def identify_key(self, request: Request, secret: str) -> Identity:
        """Return who a key from a login form belongs to. Raises AccessDenied, TooManyRequests."""
        find = partial(self._limited, request, lambda: find_key(self.hf.store, secret))
        return await run_in_threadpool(find)

    def _find(self, request: Request) -> Identity:
        return self._limited(request, lambda: self._by_key(request) or self._by_session(request))

    def _limited(self, request: Request, find: Callable[[], Identity]) -> Identity:
        """Limit failures by the address of the client, and requests by the key."""
        address = request.client.host if request.client else ""
        self._failures.check(address)
        try:
            identity = find()
        except AccessDenied:
            self._failures.count(address)
            raise
        if self._rates is None:
            self._rates = RequestRates(self.hf.store, self.limits.requests_per_minute)
        self._rates.take(identity)
        return identity

    def _by_key(self, request: Request) -> Identity | None:
        sent = request.headers.getlist("authorization")
        if not sent:
            return None
        scheme, _, secret = sent[0].partition(" ")
        if len(sent) > 1 or scheme.lower() != "bearer":
            raise AccessDenied
        return find_key(self.hf.store, secret.strip())

    def _by_session(self, request: Request) -> Identity:
        cookie = request.cookies.get(COOKIE)
        if cookie is None:
            raise AccessDenied
        found = find_session(self.hf.store, cookie)
        check_origin(request)
        return found.identity

    # -- sessions

    def log_in(self, identity: Identity) -> str:
        """Open a session and return the value of its cookie: a new one at every login."""
        lasts = timedelta(hours=self.limits.session_hours)
        return open_session(self.hf.store, identity, lasts=lasts)

    def log_out(self, request: Request) -> None:
        """End the session of a request on the server. Nothing happens without one."""
        cookie = request.cookies.get(COOKIE, "")
        try:
            found = find_session(self.hf.store, cookie)
        except AccessDenied:
            return
        end_session(self.hf.store, cookie, found.identity)


class Failures:
    """Limits failed authentications of one address in this process."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._counts: OrderedDict[str, tuple[int, int]] = OrderedDict()
        self._lock = threading.Lock()

    def check(self, address: str) -> None:
        """Raise TooManyRequests if the address failed too often in this minute."""
        now = self._monotonic()
        with self._lock:
            minute, failed = self._counts.get(address, (-1, 0))
        if minute == int(now // 60) and failed >= MOST_FAILURES:
            raise TooManyRequests(MOST_FAILURES, max(1, 60 - int(now % 60)))

    def count(self, address: str) -> None:
        minute = int(self._monotonic() // 60)
        with self._lock:
            known, failed = self._counts.pop(address, (minute, 0))
            self._counts[address] = (minute, failed + 1 if known == minute else 1)
            if len(self._counts) > MOST_ADDRESSES:
                self._counts.popitem(last=False)


def check_origin(request: Request) -> None:
    """Refuse a change that another site made the browser send. Raises ProblemError.

    A browser says where a request comes from: ``Sec-Fetch-Site``, or ``Origin`` in old ones. A
    request that says neither is refused. Requests with an API key need no check, because no site
    can make a browser send one.
    """
    if request.method in SAFE:
        return
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        is_own = site == "same-origin"
    else:
        origin = urlsplit(request.headers.get("origin", ""))
        is_own = bool(origin.netloc) and origin.netloc == request.headers.get("host")
    if not is_own:
        raise ProblemError(
            403,
            "cross_site_request",
            "The request did not come from a page of this server.",
            "Send an API key instead of a cookie, or use the console.",
        )


def _refuse_key_in_query(request: Request) -> None:
    query = request.scope.get("query_string", b"")
    if any(kind.encode() in query for kind in SecretKind):
        raise ProblemError(
            400,
            "key_in_query",
            "An API key must not be part of a URL, because URLs are logged.",
            "Send the key in the header Authorization, and rotate it: holdfast keys rotate.",
        )
