"""The HTTP API and the console in a Django project, below a path of its ASGI application.

application = mount(get_asgi_application())
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth import aget_user
from django.http import HttpRequest
from starlette.requests import Request

from holdfast.actor import Actor, ActorType, Role
from holdfast.api.application import create_app
from holdfast.app import Holdfast
from holdfast.contrib.django.app import application as holdfast_of_project
from holdfast.errors import ConfigError
from holdfast.operate.access import READ, Identity

Application = Callable[[Any, Any, Any], Awaitable[None]]
Authenticate = Callable[[Request], Identity | Awaitable[Identity | None] | None]


async def django_user(request: Request) -> Identity | None:
    """Who is logged in at Django's own session, for :func:`mount`.

    A superuser is an admin. A user with the permission ``holdfast.view_job`` is a viewer. Both see
    every tenant. Others need an API key.
    """
    cookie = request.cookies.get(settings.SESSION_COOKIE_NAME)
    if not cookie:
        return None
    asked = HttpRequest()
    asked.session = import_module(settings.SESSION_ENGINE).SessionStore(cookie)
    user = await aget_user(asked)
    if not user.is_authenticated or not user.is_active:
        return None
    actor = Actor(ActorType.USER, str(user.pk))
    if user.is_superuser:
        return Identity(actor, Role.ADMIN)
    if await sync_to_async(user.has_perm)("holdfast.view_job"):
        return Identity(actor, Role.VIEWER, scopes=frozenset({READ}))
    return None


def mount(
    django_application: Application,
    *,
    prefix: str = "/holdfast",
    hf: Holdfast | None = None,
    authenticate: Authenticate | None = django_user,
) -> Application:
    """Serve the API and the console below *prefix*, and everything else with Django.

    *hf* is by default the application of the project. *authenticate* recognises people by their
    login at Django; None leaves only API keys and sessions of the console.
    """
    path = prefix.rstrip("/")
    if not path.startswith("/"):
        raise ConfigError(f"The prefix {prefix!r} must be a path such as /holdfast.")
    found: list[Application] = []

    def ours() -> Application:
        if not found:
            found.append(create_app(hf or holdfast_of_project(), authenticate=authenticate))
        return found[0]

    async def dispatch(scope: Any, receive: Any, send: Any) -> None:
        asked = scope.get("path", "")
        if scope["type"] != "http" or not (asked == path or asked.startswith(f"{path}/")):
            await django_application(scope, receive, send)
            return
        here = {"root_path": scope.get("root_path", "") + path, "path": asked}
        if asked == path:
            here["path"] = f"{path}/"
        await ours()({**scope, **here}, receive, send)

    return dispatch
