"""Resources: routers whose every route names the scope that a caller needs.

    router = Resource("printers")

    @router.read("/{printer_id}", operation_id="get_printer")
    def get_printer(printer_id: str, caller: CallerOf) -> Printer: ...

A route authenticates first and then reads the body. Its answers are problems, typed models, or 304
for a document that the client has.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any, TypeVar

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool

from holdfast.api.authentication import SAFE, Authentication
from holdfast.api.bodies import BoundedRequest
from holdfast.api.problems import MEDIA_TYPE, Problem
from holdfast.errors import ConfigError
from holdfast.operate.access import FRONTEND, READ, WRITE, limited_reads

F = TypeVar("F", bound=Callable[..., Any])

VERSION = "/v1"

_SCHEMA = {"content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}}
_SAYS = {
    400: "The request is malformed.",
    401: "The API key is missing, unknown, expired or revoked.",
    403: "The key lacks the scope or the role, or is bound to another tenant.",
    404: "The object does not exist, or belongs to another tenant.",
    405: "The resource does not support this method.",
    408: "The body arrived too slowly.",
    409: "The state of the object does not allow the operation.",
    413: "The body is too large.",
    415: "The body is compressed, or not JSON.",
    422: "Fields of the request are invalid.",
    429: "The key made too many requests, or the queue is full.",
    503: "The database is busy or unavailable.",
}
_ALWAYS = (400, 401, 403, 404, 422, 429, 503)
_WITH_BODY = (408, 409, 413, 415)


def problems(*codes: int) -> dict[int | str, dict[str, Any]]:
    """The documented problems of a route."""
    return {code: {"description": _SAYS[code], **_SCHEMA} for code in sorted({*_ALWAYS, *codes})}


class GuardedRoute(APIRoute):
    """A route that needs an authenticated caller."""

    @property
    def needed(self) -> tuple[str, ...]:
        """The scopes of which a caller needs one."""
        found: tuple[str, ...] = getattr(self.endpoint, "__holdfast_scopes__", ())
        if not found:
            raise ConfigError(
                f"The route {self.path} has no scope. Use Resource.read or Resource.write."
            )
        return found

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler with the checks before it."""
        handle, needed = super().get_route_handler(), self.needed
        as_tenant: bool = getattr(self.endpoint, "__holdfast_as_tenant__", False)

        async def guarded(request: Request) -> Response:
            access: Authentication = request.app.state.authentication
            bounded = BoundedRequest(request.scope, request.receive, access.limits)
            bounded.state.caller = await access.admit(bounded, needed)
            if bounded.method not in SAFE:
                await bounded.check_content()
                return await handle(bounded)
            org_id = bounded.state.caller.org_id if as_tenant else None
            with limited_reads(access.limits.read_seconds, org_id):
                return with_etag(request, await handle(bounded))

        return guarded


def with_etag(request: Request, response: Response) -> Response:
    """Return the response with an ETag, or 304 if the client has this document."""
    body = getattr(response, "body", None)
    if response.status_code != 200 or not body:
        return response
    etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    response.headers["ETag"] = etag
    known = [tag.strip().removeprefix("W/") for tag in
             request.headers.get("if-none-match", "").split(",")]  # fmt: skip
    if etag in known or "*" in known:
        return Response(status_code=304, headers={"ETag": etag})
    return response


def _in_thread(endpoint: Callable[..., Any]) -> Callable[..., Any]:
    """Run a function in a thread. FastAPI would use a second thread for the answer.

    The answer to a write is small; the second thread is an eighth of the processor time of an
    enqueue.
    """
    if iscoroutinefunction(endpoint):
        return endpoint

    @wraps(endpoint)
    async def run(**given: Any) -> Any:
        return await run_in_threadpool(endpoint, **given)

    return run


class Resource(APIRouter):
    """The routes of one noun under ``/v1/NOUN``."""

    def __init__(self, noun: str, *, path: str | None = None) -> None:
        self.noun = noun
        prefix = f"/{noun.replace('_', '-')}" if path is None else path
        super().__init__(prefix=f"{VERSION}{prefix}", tags=[noun], route_class=GuardedRoute)

    def read(
        self,
        path: str,
        *,
        frontend: bool = False,
        as_tenant: bool = False,
        also: Sequence[str] = (),
        **options: Any,
    ) -> Callable[[F], F]:
        """Declare a GET that needs the scope ``NOUN:read``; *frontend* keys may use it too.

        *also* names other nouns whose read scope suffices.

        *as_tenant*: for a key of a tenant, PostgreSQL reads in the role of tenants, so that
        row-level security checks the statements as well.
        """
        responses = {
            **problems(),
            304: {"description": "The client has this document: see If-None-Match."},
            **options.pop("responses", {}),
        }
        more = [f"{noun}:{READ}" for noun in also]
        declare = self._declare(
            "GET", READ, path, frontend, {**options, "responses": responses}, more
        )

        def read(endpoint: F) -> F:
            endpoint.__holdfast_as_tenant__ = as_tenant  # type: ignore[attr-defined]
            return declare(endpoint)

        return read

    def write(
        self, path: str, *, frontend: bool = False, method: str = "POST", **options: Any
    ) -> Callable[[F], F]:
        """Declare a route that needs the scope ``NOUN:write``: by default a POST."""
        responses = {**problems(*_WITH_BODY), **options.pop("responses", {})}
        declare = self._declare(method, WRITE, path, frontend, {**options, "responses": responses})

        def write(endpoint: F) -> F:
            declare(_in_thread(endpoint))
            return endpoint

        return write

    def _declare(
        self,
        method: str,
        verb: str,
        path: str,
        frontend: bool,
        options: dict[str, Any],
        also: Sequence[str] = (),
    ) -> Callable[[F], F]:
        scopes = (f"{self.noun}:{verb}", *also, *((FRONTEND,) if frontend else ()))

        def declare(endpoint: F) -> F:
            endpoint.__holdfast_scopes__ = scopes  # type: ignore[attr-defined]
            says = {"x-holdfast-scopes": list(scopes)}
            self.add_api_route(path, endpoint, methods=[method], openapi_extra=says, **options)
            return endpoint

        return declare


__all__ = ["GuardedRoute", "Problem", "Resource", "problems"]
