"""Login to the console with OpenID Connect: two routes, one to the provider and one back."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from holdfast.api import sessions
from holdfast.api.authentication import Failures
from holdfast.api.openid import COOKIE, LASTS_SECONDS, OpenIdLogin, log_refusal
from holdfast.api.openid_provider import LoginRefused
from holdfast.console.site import HEADERS, Site
from holdfast.operate.access import TooManyRequests

BEGIN, BACK = "/oidc/login", "/oidc/callback"
SAYS = (
    "The login with your organization failed. Try again. If it fails again, the log of the server"
    " names the reason."
)
SAYS_WAIT = "Too many failed logins from your address. Try again in a minute."


def routes_of(site: Site) -> list[Route]:
    """The routes of the login below the prefix of the console."""
    login = OpenIdPages(site)
    return [
        Route(site.prefix + BEGIN, login.begin, methods=["GET"], include_in_schema=False),
        Route(site.prefix + BACK, login.finish, methods=["GET"], include_in_schema=False),
    ]


class OpenIdPages:
    """Sends the browser to the provider, and opens a session when it comes back."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._login = OpenIdLogin(site.hf)
        # A failed login asks the provider, so it is limited.
        self._failures = Failures(site.hf.clock.monotonic)

    async def begin(self, request: Request) -> Response:
        """Redirect to the provider."""
        after = self._site.own_path(request, request.query_params.get("next", ""))
        try:
            begun = await run_in_threadpool(self._login.begin, self._back(request), after)
        except LoginRefused as exc:
            log_refusal(exc)
            return await self._site.show_login(request, SAYS, 503)
        response = RedirectResponse(begun.url, 303, {**HEADERS, "cache-control": "no-store"})
        response.set_cookie(
            COOKIE,
            begun.cookie,
            max_age=LASTS_SECONDS,
            path=self._path(request),
            secure=not sessions.is_loopback(request),
            httponly=True,
            samesite="lax",
        )
        return response

    async def finish(self, request: Request) -> Response:
        """Check what the provider sent, and open a session."""
        address = request.client.host if request.client else ""
        try:
            self._failures.check(address)
            identity, after = await run_in_threadpool(
                self._login.finish,
                dict(request.query_params),
                request.cookies.get(COOKIE, ""),
                self._back(request),
            )
        except TooManyRequests:
            return await self._site.show_login(request, SAYS_WAIT, 429)
        except LoginRefused as exc:
            self._failures.count(address)
            log_refusal(exc)
            response = await self._site.show_login(request, SAYS, 403)
        else:
            response = RedirectResponse(self._site.own_path(request, after), 303, HEADERS)
            await sessions.start(request, response, identity)
        # A login is finished once.
        response.delete_cookie(COOKIE, path=self._path(request))
        return response

    def _path(self, request: Request) -> str:
        return f"{request.scope.get('root_path', '')}{self._site.prefix}/oidc"

    def _back(self, request: Request) -> str:
        base = f"{request.url.scheme}://{request.url.netloc}"
        return f"{base}{self._path(request).removesuffix('/oidc')}{BACK}"
