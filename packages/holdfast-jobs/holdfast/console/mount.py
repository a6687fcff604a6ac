"""The console in the application of the HTTP API, with its keys and sessions."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from holdfast.api import sessions
from holdfast.api.authentication import Authentication, check_origin
from holdfast.api.problems import ProblemError
from holdfast.app import Holdfast
from holdfast.console.site import Access, LoginRequired, Site
from holdfast.operate.access import READ, WRITE, AccessDenied
from holdfast.operate.operator import Operator


class ApiAccess(Access):
    """Admits who the HTTP API admits. Changes must come from a page of the console."""

    def __init__(self, access: Authentication) -> None:
        self._access = access

    async def operator(self, request: Request) -> Operator:
        """Return the operator API as the caller. Raises LoginRequired."""
        try:
            check_origin(request)
            needed = READ if request.method == "GET" else WRITE
            caller = await self._access.admit(request, (needed,))
        except AccessDenied:
            raise LoginRequired from None
        return caller.operator

    async def log_in(self, request: Request, response: Response, key: str) -> bool:
        """Open a session and set its cookie on *response*; False if the key is not accepted.

        Raises TooManyRequests.
        """
        try:
            check_origin(request)
            identity = await self._access.identify_key(request, key)
        except (AccessDenied, ProblemError):
            return False
        await sessions.start(request, response, identity)
        return True

    async def log_out(self, request: Request, response: Response) -> None:
        """End the session, and remove its cookie."""
        check_origin(request)
        await sessions.end(request, response)


def install(app: FastAPI, hf: Holdfast) -> None:
    """Add the console to the application of the HTTP API, under ``/console``."""
    has_openid = hf.settings.serve.oidc.issuer is not None
    site = Site(
        hf,
        ApiAccess(app.state.authentication),
        openid_path="/oidc/login" if has_openid else None,
        runner=app.state.bulk_runner,
    )
    app.state.console = site
    if has_openid:
        from holdfast.console.openid import routes_of

        app.router.routes.extend(routes_of(site))

    async def enter(request: Request) -> Response:
        root = str(request.scope.get("root_path", "")).rstrip("/")
        return RedirectResponse(f"{root}{site.prefix}/", 303)

    for path in ("/", site.prefix):
        app.router.routes.append(Route(path, enter, methods=["GET"], include_in_schema=False))
    app.router.routes.extend(site.routes)
