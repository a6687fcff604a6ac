"""Resources: routers whose every route names the scope that a caller needs.

    router = Resource("printers")

    @router.read("/{printer_id}", operation_id="get_printer")
    def get_printer(printer_id: str, caller: CallerOf) -> Printer: ...

A route authenticates first and then reads the body. Its answers are problems, typed models, or 304
for a document that the client has.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from inspect import iscoroutinefunction, signature
from typing import Any, TypeVar

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool

from holdfast.api import idempotency, preconditions
from holdfast.api.authentication import SAFE, Authentication
from holdfast.api.bodies import BoundedRequest
from holdfast.api.preconditions import Preconditions, with_etag
from holdfast.api.problems import MEDIA_TYPE, Problem
from holdfast.errors import ConfigError
from holdfast.operate.access import FRONTEND, READ, WRITE, limited_reads

F = TypeVar("F", bound=Callable[..., Any])

VERSION = "/v1"
Handle = Callable[[Request], Coroutine[Any, Any, Response]]

_SCHEMA = {"content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}}
_SAYS = {
    400: "The request is malformed.",
    401: "The API key is missing, unknown, expired or revoked.",
    403: "The key lacks the scope or the role, or is bound to another tenant.",
    404: "The object does not exist, or belongs to another tenant.",
    405: "The resource does not support this method.",
    408: "The body arrived too slowly.",
    409: "The state of the object does not allow the operation.",
    412: "The object is not the version that If-Match names.",
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


@dataclass(frozen=True, slots=True)
class Options:
    """How a route is read or repeated."""

    # Whether PostgreSQL reads in the role of tenants.
    as_tenant: bool = False
    # Fields of an object that change by themselves, and so are not part of its version.
    volatile: frozenset[str] = frozenset()
    # Fields of an answer that are secret, and so are not kept for a repeated request.
    shown_once: frozenset[str] = frozenset()
    # Whether the operation keeps idempotency keys itself.
    has_own_key: bool = False


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

    @property
    def object_path(self) -> str | None:
        """The path of the object that the route is for; None for a collection."""
        head, brace, _ = self.path.rpartition("}")
        return head + brace or None

    def get_route_handler(self) -> Handle:
        """Return the handler with the checks before it."""
        self.handle_admitted = handle = super().get_route_handler()
        needed, options = self.needed, getattr(self.endpoint, "__holdfast_options__", Options())

        async def guarded(request: Request) -> Response:
            access: Authentication = request.app.state.authentication
            bounded = BoundedRequest(request.scope, request.receive, access.limits)
            bounded.state.caller = await access.admit(bounded, needed)
            if bounded.method not in SAFE:
                await bounded.check_content()
                return await self._change(bounded, options, handle)
            org_id = bounded.state.caller.org_id if options.as_tenant else None
            with limited_reads(access.limits.read_seconds, org_id):
                return with_etag(request, await handle(bounded), options.volatile)

        return guarded

    async def _change(self, request: BoundedRequest, options: Options, handle: Handle) -> Response:
        """Make a change once for each idempotency key, and only to the version of If-Match."""

        async def hold() -> Response:
            read = request.app.state.objects.get(self.object_path)
            if read is None or "if-match" not in request.headers:
                return await handle(request)
            checks: Preconditions = request.app.state.preconditions
            path = read.path.format(**request.path_params)
            act = partial(handle, request)
            return await checks.hold(request, path, read.read_object, act)

        if options.has_own_key:
            return await hold()
        return await idempotency.once(request, options.shown_once, hold)

    async def read_object(self, request: Request) -> Response:
        """Answer a GET of a caller who was admitted."""
        access: Authentication = request.app.state.authentication
        options = getattr(self.endpoint, "__holdfast_options__", Options())
        org_id = request.state.caller.org_id if options.as_tenant else None
        with limited_reads(access.limits.read_seconds, org_id):
            response = await self.handle_admitted(request)
        return with_etag(request, response, options.volatile)


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
        volatile: Collection[str] = (),
        **options: Any,
    ) -> Callable[[F], F]:
        """Declare a GET that needs the scope ``NOUN:read``; *frontend* keys may use it too.

        *also* names other nouns whose read scope suffices.

        *as_tenant*: for a key of a tenant, PostgreSQL reads in the role of tenants, so that
        row-level security checks the statements as well.

        *volatile* names fields that change by themselves: If-Match does not compare them.
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
            found = Options(as_tenant=as_tenant, volatile=frozenset(volatile))
            endpoint.__holdfast_options__ = found  # type: ignore[attr-defined]
            return declare(endpoint)

        return read

    def write(
        self,
        path: str,
        *,
        frontend: bool = False,
        method: str = "POST",
        shown_once: Collection[str] = (),
        **options: Any,
    ) -> Callable[[F], F]:
        """Declare a route that needs the scope ``NOUN:write``: by default a POST.

        A repeated request with the same Idempotency-Key is answered like the first one. An
        operation that keeps the keys itself has a parameter *idempotency_key*. *shown_once* names
        the secrets of the answer, which are not repeated. A route for an object takes If-Match if
        its path continues the path of a GET.
        """
        codes: tuple[int, ...] = _WITH_BODY
        parameters: list[dict[str, Any]] = []
        if "{" in path:
            codes, parameters = (*_WITH_BODY, 412), [preconditions.PARAMETER]

        def write(endpoint: F) -> F:
            has_own_key = "idempotency_key" in signature(endpoint).parameters
            found = Options(shown_once=frozenset(shown_once), has_own_key=has_own_key)
            endpoint.__holdfast_options__ = found  # type: ignore[attr-defined]
            says = [*parameters, *([] if has_own_key else [idempotency.PARAMETER])]
            given = {**options, "responses": {**problems(*codes), **options.get("responses", {})}}
            declare = self._declare(method, WRITE, path, frontend, given, parameters=says)
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
        parameters: Sequence[dict[str, Any]] = (),
    ) -> Callable[[F], F]:
        scopes = (f"{self.noun}:{verb}", *also, *((FRONTEND,) if frontend else ()))

        def declare(endpoint: F) -> F:
            endpoint.__holdfast_scopes__ = scopes  # type: ignore[attr-defined]
            says: dict[str, Any] = {"x-holdfast-scopes": list(scopes)}
            if parameters:
                says["parameters"] = list(parameters)
            self.add_api_route(path, endpoint, methods=[method], openapi_extra=says, **options)
            return endpoint

        return declare


__all__ = ["GuardedRoute", "Problem", "Resource", "problems"]
