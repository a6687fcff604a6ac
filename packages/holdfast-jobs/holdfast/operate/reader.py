"""A database that a command only reads: without job types, extensions and the engine."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, cast

from holdfast.actor import Role, read_actor
from holdfast.clock import SystemClock
from holdfast.operate.authorization import OperatorContext
from holdfast.store import Store, open_store

if TYPE_CHECKING:
    from holdfast.config import Settings


def missing_file(settings: Settings) -> str | None:
    """The path of the SQLite file in the settings, if it does not exist."""
    if not settings.db.startswith("sqlite:"):
        return None
    from holdfast.store.sqlite_connect import path_of

    path = path_of(settings.db)
    return None if path is None or os.path.exists(path) else path


class Reader:
    """The database of the settings. Every command that imports less starts sooner."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.clock = SystemClock()
        self._store: Store | None = None

    @property
    def store(self) -> Store:
        """The open store; its schema must match this code."""
        if self._store is None:
            self._store = open_store(self.settings.db, clock=self.clock)
        return self._store

    def context(self) -> OperatorContext:
        """The context of an admin who reads every tenant."""
        return OperatorContext(cast(Any, self), read_actor("user:cli"), Role.ADMIN)

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._store is not None:
            self._store.close()
