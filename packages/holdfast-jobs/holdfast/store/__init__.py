"""The only code that accesses a database."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.clock import Clock, SystemClock
from holdfast.errors import ConfigError
from holdfast.store.component import CORE, Component
from holdfast.store.query import Statement, Statements
from holdfast.store.state_statement import StateStatement
from holdfast.store.store import Access, Row, Session, Store, Tx, WakeUp

__all__ = [
    "CORE",
    "Access",
    "Component",
    "Row",
    "Session",
    "StateStatement",
    "Statement",
    "Statements",
    "Store",
    "Tx",
    "WakeUp",
    "open_store",
]


def open_store(
    url: str,
    *,
    clock: Clock | None = None,
    check: bool = True,
    pool_size: int | None = None,
    handler_url: str | None = None,
    components: Sequence[Component] = (),
) -> Store:
    """Open the store at *url*. With *check*, its schema must match this code.

    *pool_size* limits the connections to PostgreSQL; None follows the workers of this process.
    *handler_url* is the same database with a login for handlers only. *components* are migrated and
    checked with the core.
    """
    clock = clock or SystemClock()
    store: Store
    if url.startswith("sqlite:"):
        from holdfast.store.sqlite import SqliteStore

        store = SqliteStore(url, clock)
    elif url.startswith(("postgresql:", "postgres:")):
        try:
            from holdfast.store.postgres import PostgresStore
        except ModuleNotFoundError as exc:
            raise ConfigError(
                "PostgreSQL needs the extra: pip install 'holdfast-jobs[postgres]'."
            ) from exc
        store = PostgresStore(url, clock, pool_size=pool_size, handler_url=handler_url)
    else:
        # Do not repeat the URL: it may contain a password.
        raise ConfigError("The address must be sqlite:///FILE or postgresql://HOST/NAME.")
    store.components = tuple(components)
    if check:
        try:
            store.check_schema()
        except BaseException:
            store.close()
            raise
    return store
