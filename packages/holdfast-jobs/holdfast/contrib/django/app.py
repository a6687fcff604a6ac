"""The Holdfast application of a Django project.

``HOLDFAST_APP = "shop.jobs:hf"`` in the settings names one. Otherwise it is created on Django's
default database, so that jobs can be enqueued in Django's transactions.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any
from urllib.parse import quote

from django.conf import settings

from holdfast.app import Holdfast
from holdfast.errors import ConfigError

_made: list[Holdfast] = []


def application() -> Holdfast:
    """The application of this project."""
    named = getattr(settings, "HOLDFAST_APP", None)
    if named:
        module, _, name = named.partition(":")
        found = getattr(import_module(module), name or "hf")
        if not isinstance(found, Holdfast):
            raise ConfigError(f"HOLDFAST_APP = {named!r} is not a Holdfast application.")
        return found
    if not _made:
        from django.db import connection

        # The connection knows the database of a test.
        _made.append(Holdfast(database_url(connection.settings_dict), default_tenant=True))
    return _made[0]


def database_url(database: dict[str, Any]) -> str:
    """The URL of a database in Django's settings. Raises ConfigError."""
    engine = str(database.get("ENGINE", ""))
    if engine.endswith("sqlite3"):
        return f"sqlite:///{database['NAME']}"
    if not engine.endswith(("postgresql", "postgis")):
        raise ConfigError(
            f"Holdfast needs SQLite or PostgreSQL; DATABASES has {engine!r}. Name an application"
            " with a database of its own: HOLDFAST_APP = 'module:hf'."
        )
    user, password = (quote(str(database.get(one) or ""), safe="") for one in ("USER", "PASSWORD"))
    login = f"{user}:{password}@" if password else f"{user}@" if user else ""
    port = f":{database['PORT']}" if database.get("PORT") else ""
    host = quote(str(database.get("HOST") or ""), safe="")
    return f"postgresql://{login}{host}{port}/{quote(str(database['NAME']), safe='')}"


def __getattr__(name: str) -> Any:
    """``hf``, for ``holdfast --app holdfast.contrib.django.app:hf``."""
    if name != "hf":
        raise AttributeError(name)
    import django
    from django.apps import apps

    if not apps.ready:
        # The command line of Holdfast was started without manage.py.
        django.setup()
    try:
        from holdfast.contrib.django.tasks import declare
    except ImportError:
        # Neither Django 6 nor django-tasks: only the jobs of the application.
        return application()
    return declare(application())
