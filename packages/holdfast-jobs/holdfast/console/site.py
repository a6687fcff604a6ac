"""The console as ASGI routes: pages, actions, error pages, headers and static files."""

from __future__ import annotations

import hashlib
import importlib
import logging
import mimetypes
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from importlib import resources
from typing import Any, Protocol
from urllib.parse import quote, unquote

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from holdfast.app import Holdfast
from holdfast.console import chart
from holdfast.console import format as formats
from holdfast.console.form import FormRefused, read_form
from holdfast.console.pages import PAGES
from holdfast.console.visit import ConsolePages, Go, Page, PageContext, Shown, link
from holdfast.errors import (
    Conflict,
    Forbidden,
    HoldfastError,
    InvalidArgument,
    NotFound,
    SchemaMismatch,
)
from holdfast.extension import Extension
from holdfast.operate.access import TooManyRequests, limited_reads
from holdfast.operate.bulk_runner import BulkRunner
from holdfast.operate.operator import Operator

_log = logging.getLogger("holdfast.console")

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}
NOTICE = "holdfast_notice"
_STATUS: tuple[tuple[type[HoldfastError], int, str], ...] = (
    (NotFound, 404, "Not found"),
    (Forbidden, 403, "Not allowed"),
    (InvalidArgument, 400, "Please correct this"),
    (Conflict, 409, "Not possible now"),
)


class LoginRequired(Exception):
    """The request has no session and no key. The console shows its login page."""


class Access(Protocol):
    """Who may use the console. The HTTP API implements it with its keys and sessions."""

    async def operator(self, request: Request) -> Operator:
        """Return the operator API as the caller. Raises LoginRequired."""
        ...

    async def log_in(self, request: Request, response: Response, key: str) -> bool:
        """Open a session and set its cookie on *response*; False if the key is not accepted.

        Raises TooManyRequests for guessed keys, and for a key beyond its rate.
        """
        ...

    async def log_out(self, request: Request, response: Response) -> None:
        """End the session, and remove its cookie."""
        ...


class Site:
    """The console of an application. :attr:`routes` are mounted in an ASGI application."""

    def __init__(
        self,
        hf: Holdfast,
        access: Access,
        *,
        prefix: str = "/console",
        openid_path: str | None = None,
        runner: BulkRunner | None = None,
    ) -> None:
        self.hf = hf
        self.runner = runner or BulkRunner(hf)
        self.prefix = prefix
        self.access = access
        # The path below the prefix that begins a login with OpenID Connect, if there is one.
        self.openid_path = openid_path
        loaded = _load_extensions(hf)
        self.extensions = [pages for _, pages in loaded]
        self.pages: list[Page] = [*PAGES, *(one for ext in self.extensions for one in ext.pages)]
        # The extension that a page reads the tables of.
        self._owners = {
            (page.path, page.method): extension
            for extension, pages in loaded
            for page in pages.pages
        }
        self.panels = [ext.panel for ext in self.extensions if ext.panel is not None]
        self.static = _read_static()
        self.environment = self._environment()

    @property
    def routes(self) -> list[Route]:
        """The routes of the console below its prefix. The last one answers unknown paths."""
        given: list[tuple[str, Callable[[Request], Awaitable[Response]], str]] = [
            ("/login", self.show_login, "GET"),
            ("/login", self._log_in, "POST"),
            ("/logout", self._log_out, "POST"),
            ("/static/{name:path}", self._static_file, "GET"),
            *((page.path, partial(self._serve, page), page.method) for page in self.pages),
            ("/{rest:path}", self._missing, "GET"),
        ]
        return [
            Route(self.prefix + path, endpoint, methods=[method], include_in_schema=False)
            for path, endpoint, method in given
        ]

    # -- requests

    async def _serve(self, page: Page, request: Request) -> Response:
        try:
            operator = await self.access.operator(request)
        except LoginRequired:
            where = link("/login", {"next": request.url.path if page.method == "GET" else ""})
            return self._redirect(request, where)
        except TooManyRequests as exc:
            return await self._wait_page(request, exc)
        try:
            form = await read_form(request, self.hf.settings.serve.body_seconds)
        except FormRefused as exc:
            values = {"says": f"{exc.says} Nothing was done.", "fields": {}}
            refused = Shown("error.html", "Not accepted", values, exc.status)
            visit = PageContext(operator)
            response = await run_in_threadpool(self._render, request, visit, page, refused)
            response.headers["connection"] = "close"
            return response
        visit = PageContext(
            operator,
            dict(request.path_params),
            dict(request.query_params),
            form,
            self.panels,
            self.runner.wake,
        )
        try:
            await run_in_threadpool(self._check_tables, page)
            if page.method == "POST":
                visit.require_act()
            # Row-level security checks the reads of a tenant. Changes are those of the engine.
            tenant = visit.org_id if page.method == "GET" else None
            with limited_reads(self.hf.settings.serve.read_seconds, tenant):
                answer = await run_in_threadpool(page.view, visit)
        except HoldfastError as exc:
            answer = _error_page(page, exc)
        except Exception:
            _log.exception("page.failed", extra={"fields": {"page": page.path}})
            says = "The page could not be rendered. See the server log."
            answer = Shown("error.html", "Something went wrong", {"says": says, "fields": {}}, 500)
        if isinstance(answer, Go):
            return self._redirect(request, answer.path, answer.notice)
        return await run_in_threadpool(self._render, request, visit, page, answer)

    def _check_tables(self, page: Page) -> None:
        """Raise SchemaMismatch if the database lacks the tables that the page reads."""
        owner = self._owners.get((page.path, page.method))
        if owner is not None:
            self.hf.extensions.open_tables(owner)

    def _render(self, request: Request, visit: PageContext, page: Page, answer: Shown) -> Response:
        notice = unquote(request.cookies.get(NOTICE, ""))[:500]
        values = {
            "visit": visit,
            "title": answer.title,
            "notice": notice,
            "here": page.path,
            "now": self.hf.clock.now(),
            **self._always(request),
            "nav": self._nav(visit),
            **answer.values,
        }
        html = self.environment.get_template(answer.template).render(values)
        response = _page(html, answer.status)
        if notice:
            response.delete_cookie(NOTICE, path=self._root(request))
        return response

    def _always(self, request: Request) -> dict[str, Any]:
        root = self._root(request)

        def url(path: str, values: Mapping[str, Any] | None = None) -> str:
            return root + link(path, values)

        def static(name: str) -> str:
            return f"{root}/static/{name}?v={self.static[name][2]}"

        return {"url": url, "static": static}

    def _nav(self, visit: PageContext) -> list[tuple[str, list[Page]]]:
        groups: dict[str, list[Page]] = {"": [], "Work": [], "System": [], "Records": []}
        for page in self.pages:
            if page.title and (visit.org_id is None or not page.for_all):
                groups.setdefault(page.group, []).append(page)
        return [(name, pages) for name, pages in groups.items() if pages]

    def _redirect(self, request: Request, path: str, notice: str = "") -> Response:
        response = RedirectResponse(self._root(request) + path, 303, HEADERS)
        if notice:
            response.set_cookie(
                NOTICE,
                quote(notice[:300]),
                max_age=30,
                path=self._root(request),
                httponly=True,
                samesite="strict",
            )
        return response

    async def _missing(self, request: Request) -> Response:
        try:
            operator = await self.access.operator(request)
        except LoginRequired:
            return self._redirect(request, "/login")
        except TooManyRequests as exc:
            return await self._wait_page(request, exc)
        says = "There is no such page. Use the navigation, or search with the key /."
        answer = Shown("error.html", "Not found", {"says": says, "fields": {}}, 404)
        page = Page(request.url.path, lambda _visit: answer)
        return await run_in_threadpool(self._render, request, PageContext(operator), page, answer)

    def _root(self, request: Request) -> str:
        """The path of the console, without a slash at the end."""
        return str(request.scope.get("root_path", "")).rstrip("/") + self.prefix

    # -- sessions

    async def show_login(self, request: Request, says: str = "", status: int = 200) -> Response:
        """The login page, with a message."""
        values = {
            "title": "Log in",
            "says": says,
            "openid_path": self.openid_path,
            "next": request.query_params.get("next", ""),
            **self._always(request),
        }
        return _page(self.environment.get_template("login.html").render(values), status)

    async def _wait_page(self, request: Request, exc: TooManyRequests) -> Response:
        says = f"Too many requests. Wait {exc.retry_after} s, then try again."
        response = await self.show_login(request, says, 429)
        response.headers["retry-after"] = str(exc.retry_after)
        return response

    async def _log_in(self, request: Request) -> Response:
        try:
            form = await read_form(request, self.hf.settings.serve.body_seconds)
        except FormRefused as exc:
            response = await self.show_login(request, exc.says, exc.status)
            response.headers["connection"] = "close"
            return response
        key = next(iter(form.get("key", ())), "").strip()
        wanted = self.own_path(request, next(iter(form.get("next", ())), ""))
        response = RedirectResponse(wanted, 303, HEADERS)
        try:
            is_in = bool(key) and await self.access.log_in(request, response, key)
        except TooManyRequests as exc:
            return await self._wait_page(request, exc)
        if not is_in:
            says = "This key is not valid here. Check it, or create a new one: holdfast keys create"
            return await self.show_login(request, says, 403)
        return response

    def own_path(self, request: Request, wanted: str) -> str:
        """The page to open after a login: a path of the console, and never another site."""
        root = self._root(request)
        is_own = wanted.startswith(f"{root}/") and "\\" not in wanted and "//" not in wanted
        return wanted if is_own and wanted.isprintable() else f"{root}/"

    async def _log_out(self, request: Request) -> Response:
        response = RedirectResponse(f"{self._root(request)}/login", 303, HEADERS)
        await self.access.log_out(request, response)
        return response

    # -- files

    async def _static_file(self, request: Request) -> Response:
        found = self.static.get(request.path_params["name"])
        if found is None:
            return Response("Not found", 404, HEADERS, "text/plain")
        body, kind, tag = found
        headers = {**HEADERS, "cache-control": "public, max-age=86400", "etag": f'"{tag}"'}
        return Response(body, 200, headers, kind)

    def _environment(self) -> Environment:
        loaders = [
            PackageLoader("holdfast.console", "templates"),
            *(PackageLoader(ext.package, "console_templates") for ext in self.extensions),
        ]
        made = Environment(
            loader=ChoiceLoader(loaders),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        made.filters.update(
            {name: getattr(formats, name) for name in FILTERS}
            | {name: found for ext in self.extensions for name, found in ext.filters.items()}
        )
        made.globals["share"] = chart.share
        return made


FILTERS = (
    *("ago", "attempts", "brief", "capped", "document", "number", "short", "span", "state"),
    *("time", "tone", "usd", "words"),
)


def _page(html: str, status: int) -> HTMLResponse:
    return HTMLResponse(html, status, {**HEADERS, "cache-control": "no-store"})


def _error_page(page: Page, exc: HoldfastError) -> Shown:
    for kind, status, title in _STATUS:
        if isinstance(exc, kind):
            fields = getattr(exc, "fields", {}) if kind is InvalidArgument else {}
            says = "" if fields else str(exc)
            return Shown("error.html", title, {"says": says, "fields": fields}, status)
    why = str(exc) if isinstance(exc, SchemaMismatch) else type(exc).__name__
    fields = {"page": page.path, "exception": type(exc).__name__}
    _log.warning("page.unavailable: %s: %s", page.path, why, extra={"fields": fields})
    says = f"The database or a part of the installation is not available: {why}"
    if isinstance(exc, SchemaMismatch):
        says = why
    return Shown("error.html", "Not available", {"says": says, "fields": {}}, 503)


def _load_extensions(hf: Holdfast) -> Sequence[tuple[Extension, ConsolePages]]:
    """The available extensions that have pages, and the pages."""
    found = []
    for extension in hf.extensions.available():
        if extension.console is not None:
            module, _, attribute = extension.console.partition(":")
            found.append((extension, getattr(importlib.import_module(module), attribute)))
    return found


def _read_static() -> dict[str, tuple[bytes, str, str]]:
    """The static files by name: content, type and a hash for their address."""
    folder = resources.files("holdfast.console") / "static"
    found: dict[str, tuple[bytes, str, str]] = {}
    for prefix, place in (("", folder), ("vendor/", folder / "vendor")):
        for file in place.iterdir():
            kind, _ = mimetypes.guess_type(file.name)
            if file.is_file() and kind in ("text/css", "text/javascript", "image/svg+xml"):
                body = file.read_bytes()
                found[prefix + file.name] = (body, kind, hashlib.sha256(body).hexdigest()[:12])
    return found
