"""The ASGI application: the API under ``/v1``, the console, and the routers of extensions."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from typing import Any

from holdfast.api import extra as extra  # isort: skip
from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi
from fastapi.responses import RedirectResponse
from starlette.routing import BaseRoute, compile_path

from holdfast.api import headers, problems, reference, sessions
from holdfast.api.authentication import COOKIE, Authenticate, Authentication
from holdfast.api.head import HeadRequests
from holdfast.api.preconditions import Preconditions
from holdfast.api.resource import VERSION, GuardedRoute
from holdfast.app import Holdfast
from holdfast.errors import ConfigError
from holdfast.operate.access import SecretKind
from holdfast.operate.bulk_runner import BulkRunner
from holdfast.operate.run_runner import RunRunner

# The routers of the core, in the order of the API reference.
ROUTERS = (
    "holdfast.api.bulk:jobs",
    "holdfast.api.jobs:router",
    "holdfast.api.queues:router",
    "holdfast.api.schedules:router",
    "holdfast.api.runs:router",
    "holdfast.api.workers:router",
    "holdfast.api.tenants:router",
    "holdfast.api.bulk:letters",
    "holdfast.api.dead_letters:router",
    "holdfast.api.bulk:deliveries",
    "holdfast.api.deliveries:router",
    "holdfast.api.bulk:router",
    "holdfast.api.audit:router",
    "holdfast.api.api_keys:router",
    "holdfast.api.events:router",
)
CONSOLE = "holdfast.console"


def create_app(
    hf: Holdfast,
    *,
    authenticate: Authenticate | None = None,
    dev_login: sessions.DevLogin | None = None,
) -> FastAPI:
    """Return an ASGI application with the API and the console of *hf*.

    Serve it with any ASGI server, or mount it in an application of your own under any path.
    *authenticate* takes a request and returns an :class:`Identity`, or None to leave the request to
    API keys and sessions. It may be a coroutine function.
    """
    if not isinstance(hf, Holdfast):
        raise ConfigError("create_app takes the Holdfast of the application.")
    app = FastAPI(
        title="Holdfast",
        version="1",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        separate_input_output_schemas=False,
        redirect_slashes=False,
    )
    app.state.authentication = Authentication(hf, authenticate)
    app.state.dev_login = dev_login
    app.state.bulk_runner = BulkRunner(hf)
    app.state.run_runner = RunRunner()
    # Whether the server is stopping: an event stream ends then.
    app.state.is_stopping = lambda: False
    problems.install(app)
    for place in ROUTERS:
        # Including the routers of the core would match a request twice more: a sixth of an enqueue.
        app.router.routes.extend(route for _, route in routes_of(_load(place)))
    app.include_router(sessions.router, prefix=VERSION)
    for extension in hf.extensions.available():
        if extension.api is not None:
            tables = Depends(partial(hf.extensions.open_tables, extension))
            app.include_router(_load(extension.api), dependencies=[tables])
    # Starlette names the methods of one route only when it refuses a method.
    app.state.allowed = [
        (compile_path(path)[0], methods)
        for path, route in routes_of(app)
        if (methods := getattr(route, "methods", None))
    ]
    app.state.preconditions = Preconditions()
    app.state.objects = {
        path: route
        for path, route in routes_of(app)
        if isinstance(route, GuardedRoute) and route.methods == {"GET"} and path.endswith("}")
    }
    app.openapi = lambda: _document(app)  # type: ignore[method-assign]
    app.include_router(reference.router)
    if dev_login is not None:
        app.add_api_route("/dev-login", _log_in_once, include_in_schema=False)
    if find_spec(CONSOLE) is not None:
        # The console uses this package, so it is found by its name.
        importlib.import_module(CONSOLE).install(app, hf)
    app.add_middleware(HeadRequests)
    app.add_middleware(headers.SecurityHeaders)
    return app


def routes_of(router: Any, prefix: str = "") -> Iterator[tuple[str, BaseRoute]]:
    """Yield every route below a router with its whole path."""
    for route in router.routes:
        inner = getattr(route, "original_router", None)
        if inner is not None:
            yield from routes_of(inner, prefix + route.include_context.prefix)
        else:
            yield prefix + getattr(route, "path", ""), route


def _load(place: str) -> APIRouter:
    module, _, name = place.partition(":")
    found = getattr(importlib.import_module(module), name, None)
    if not isinstance(found, APIRouter):
        raise ConfigError(f"{place} is not an HTTP API router. Create it with Resource(…).")
    return found


async def _log_in_once(request: Request, token: str = "") -> Response:
    response = RedirectResponse(f"{request.scope.get('root_path', '')}/", status_code=303)
    await request.app.state.dev_login.log_in(request, response, token)
    return response


def _document(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document, made once."""
    if app.openapi_schema is None:
        made = get_openapi(
            title="Holdfast",
            version="1",
            openapi_version="3.1.0",
            description=(
                "Jobs, their operation and their audit. Every answer that is not a success is a"
                " problem (RFC 9457) with a stable code and the next step."
            ),
            routes=app.routes,
            separate_input_output_schemas=False,
        )
        components = made.setdefault("components", {})
        schemas = components.setdefault("schemas", {})
        schemas.update(_problem_schemas())
        components["securitySchemes"] = {
            "key": {
                "type": "http",
                "scheme": "bearer",
                "description": f"An API key: {SecretKind.API_KEY}…. See holdfast keys create.",
            },
            "session": {"type": "apiKey", "in": "cookie", "name": COOKIE},
        }
        made["security"] = [{"key": []}, {"session": []}]
        app.openapi_schema = made
    return app.openapi_schema


def _problem_schemas() -> dict[str, Any]:
    made = problems.Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    return {**made.pop("$defs", {}), "Problem": made}
