"""Sessions of the console: a cookie in exchange for an API key.

The cookie has a new random value at every login, and logging out ends the session on the server.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Coroutine
from ipaddress import ip_address
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool

from holdfast.actor import Actor, ActorType, Role
from holdfast.api.authentication import COOKIE, SAFE, Authentication, check_origin
from holdfast.api.bodies import BoundedRequest
from holdfast.api.models import Model
from holdfast.api.problems import ProblemError
from holdfast.api.resource import problems
from holdfast.operate.access import AccessDenied, Identity


class BoundedRoute(APIRoute):
    """A route that authenticates itself, with the limits of every body."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler with the limits before it."""
        handle = super().get_route_handler()

        async def bounded(request: Request) -> Response:
            limits = request.app.state.authentication.limits
            given = BoundedRequest(request.scope, request.receive, limits)
            if given.method not in SAFE:
                await given.body()
            return await handle(given)

        return bounded


router = APIRouter(prefix="/session", tags=["session"], route_class=BoundedRoute)


class SessionView(Model):
    """Who is logged in."""

    actor: str
    role: str
    org_id: str | None
    scopes: list[str]


@router.post("", operation_id="log_in", status_code=201, responses=problems(408, 413, 415))
async def log_in(request: Request, response: Response) -> SessionView:
    """Exchange an API key, sent as a bearer token, for a session cookie."""
    access: Authentication = request.app.state.authentication
    check_origin_or_key(request)
    identity = await access.identify(request)
    if "authorization" not in request.headers:
        raise AccessDenied
    await start(request, response, identity)
    return _view(identity)


@router.get("", operation_id="get_session", responses=problems())
async def get_session(request: Request) -> SessionView:
    """Return who makes the request."""
    access: Authentication = request.app.state.authentication
    return _view(await access.identify(request))


@router.delete("", operation_id="log_out", status_code=204, responses=problems(408, 413, 415))
async def log_out(request: Request) -> Response:
    """End the session on the server. Without a session nothing happens."""
    check_origin(request)
    response = Response(status_code=204)
    await end(request, response)
    return response


def check_origin_or_key(request: Request) -> None:
    """Raise ProblemError for a login that another site made the browser send."""
    if "authorization" not in request.headers:
        check_origin(request)


async def start(request: Request, response: Response, identity: Identity) -> None:
    """Open a session for *identity* and set its cookie on *response*.

    An earlier session of the browser is ended, so that its cookie cannot be used any more.
    """
    access: Authentication = request.app.state.authentication
    await run_in_threadpool(access.log_out, request)
    cookie = await run_in_threadpool(access.log_in, identity)
    response.set_cookie(
        COOKIE,
        cookie,
        max_age=int(access.limits.session_hours * 3600),
        path=_path(request),
        secure=not is_loopback(request),
        httponly=True,
        samesite="lax",
    )


async def end(request: Request, response: Response) -> None:
    """End the session of *request* on the server and delete its cookie."""
    access: Authentication = request.app.state.authentication
    await run_in_threadpool(access.log_out, request)
    response.delete_cookie(
        COOKIE, path=_path(request), secure=not is_loopback(request), httponly=True, samesite="lax"
    )


def is_loopback(request: Request) -> bool:
    """Whether the browser is on this machine, where a cookie needs no TLS."""
    host = request.url.hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _path(request: Request) -> str:
    return request.scope.get("root_path", "") or "/"


def _view(identity: Identity) -> SessionView:
    return SessionView(
        actor=f"{identity.actor.type}:{identity.actor.id}",
        role=identity.role,
        org_id=identity.org_id,
        scopes=sorted(identity.scopes),
    )


class DevLogin:
    """A link that logs in once, for ``holdfast serve --dev`` on loopback."""

    def __init__(self) -> None:
        self.token = secrets.token_urlsafe(32)
        self._is_used = False

    async def log_in(self, request: Request, response: Response, token: str) -> None:
        """Log in as an admin. The link works once. Raises ProblemError."""
        is_right = hmac.compare_digest(token.encode(), self.token.encode())
        if self._is_used or not is_right or not is_loopback(request):
            raise ProblemError(
                403, "link_used", "The link was used, or is wrong.", "Start holdfast serve --dev."
            )
        self._is_used = True
        await start(request, response, Identity(Actor(ActorType.USER, "dev"), Role.ADMIN))
