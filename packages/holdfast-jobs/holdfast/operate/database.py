"""The database itself: migrate it, and open one whose schema does not match.

Both work before an audit exists, so the database alone decides the permissions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from holdfast.clock import Clock
from holdfast.config import Settings
from holdfast.engine.category import sync_categories
from holdfast.engine.declared import sync_declared
from holdfast.engine.handler import Registry
from holdfast.extension import Extensions, components_of
from holdfast.store import Store, open_store
from holdfast.store.component import in_order


@dataclass(frozen=True, slots=True)
class Migrated:
    """The applied migrations. *database* is the product and version of the server."""

    database: str
    applied: tuple[str, ...]
    versions: Mapping[str, int]
    has_roles: bool


class MigratedApp(Protocol):
    """An application whose declarations and extensions are written."""

    settings: Settings
    registry: Registry
    extensions: Extensions


def migrate_database(app: MigratedApp) -> Migrated:
    """Migrate the core and the extensions, and write the declarations of *app*."""
    components = in_order(components_of(app.extensions.available()))
    store = open_store(app.settings.db, check=False, components=components)
    try:
        applied = store.migrate()
        store.check_schema()
        sync_categories(store, app.registry.categories.values())
        sync_declared(store, app.settings, app.registry)
        found = store.component_versions()
        versions = {component.name: found[component.name] for component in components}
        return Migrated(store.version(), tuple(applied), versions, store.dialect.has_roles)
    finally:
        store.close()


class StoreOwner(Protocol):
    """An application whose store can be replaced."""

    settings: Settings
    clock: Clock

    def use_store(self, store: Store) -> None: ...


def use_unchecked_store(app: StoreOwner) -> None:
    """Let *app* use its database even if the schema does not match this code."""
    app.use_store(open_store(app.settings.db, clock=app.clock, check=False))
