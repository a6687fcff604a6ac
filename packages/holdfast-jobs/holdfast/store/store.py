"""Store and Tx: the only access to a database.

A Store opens transactions; a Tx runs named statements in one. Callers pass their work as a
function. The store can then run it again on a new connection after a conflict, and combine the work
of several callers in one commit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from holdfast.clock import Clock, write_instant
from holdfast.document import encode
from holdfast.errors import StoreBusy, StoreError
from holdfast.store.availability import ALWAYS, Availability
from holdfast.store.component import Component
from holdfast.store.dialect import Dialect
from holdfast.store.query import Statement
from holdfast.store.state_statement import StateStatement

if TYPE_CHECKING:
    from holdfast.store.login import Login
    from holdfast.store.transaction import HandlerTransaction

Row = Mapping[str, Any]
T = TypeVar("T")
X = TypeVar("X", bound="Tx")


class Tx(ABC):
    """One open transaction."""

    # Statements of extensions that run when jobs change state.
    state_statements: tuple[StateStatement, ...] = ()

    def __init__(self, dialect: Dialect, clock: Clock) -> None:
        self.dialect = dialect
        self.clock = clock

    @abstractmethod
    def _fetch(
        self, text: str, params: Any, prepare: bool
    ) -> tuple[list[str], list[tuple[Any, ...]], int]:
        """Run one rendered statement; return columns, rows and the number of affected rows."""

    @abstractmethod
    def stream(self, statement: Statement, /, **params: Any) -> Iterator[Row]:
        """Yield rows one by one, with only a few in memory."""

    @abstractmethod
    def lock_units(self, units: Sequence[str]) -> None:
        """Lock these execution units until the end of the transaction."""

    def many(self, statement: Statement, /, **params: Any) -> list[Row]:
        return self._execute(statement, params)[0]

    def maybe(self, statement: Statement, /, **params: Any) -> Row | None:
        rows = self._execute(statement, params)[0]
        return rows[0] if rows else None

    def one(self, statement: Statement, /, **params: Any) -> Row:
        return self._execute(statement, params)[0][0]

    def affected(self, statement: Statement, /, **params: Any) -> int:
        return self._execute(statement, params)[1]

    def begin(self, statement: Statement, /, **params: Any) -> Callable[[], list[tuple[Any, ...]]]:
        """Start a statement; calling the result waits for its rows, which are those of `values`.

        On PostgreSQL it runs while the caller continues. Nothing else may run on this transaction
        in between.
        """
        rows = self.values(statement, **params)
        return lambda: rows

    def command(self, text: str) -> None:
        """Run a command that the database generated, such as a GRANT, unchanged."""
        raise NotImplementedError(f"{self.dialect.name} does not run generated commands")

    def values(self, statement: Statement, /, **params: Any) -> list[tuple[Any, ...]]:
        """Return rows as tuples, in the order of the statement's columns: for the busiest reads."""
        return self._fetch(*self._ready(statement, params))[1]

    def _execute(self, statement: Statement, params: dict[str, Any]) -> tuple[list[Row], int]:
        columns, rows, touched = self._fetch(*self._ready(statement, params))
        return [dict(zip(columns, row, strict=True)) for row in rows], touched

    def _ready(self, statement: Statement, params: dict[str, Any]) -> tuple[str, Any, bool]:
        """Return the rendered statement and its parameters, as the driver takes them."""
        bulk = self._as_values(statement, params) if statement.is_bulk else None
        if bulk is not None:
            return *bulk, False
        lone = bool(statement.row_sets) and all(
            len(params[name]) == 1 for name in statement.row_sets
        )
        rendered = statement.render(self.dialect, lone=lone)
        if not lone:
            bound = bind(statement, params, self.dialect, self.clock)
            # A join of two large row sets is planned for their sizes.
            large = sum(len(params[name]) > 1 for name in statement.row_sets)
            return rendered.text, bound, statement.is_prepared and large <= 1
        bound = {}
        for name, source, column in rendered.picks:
            if column:
                bound[name] = params[source][0].get(column)
            else:
                bound[name] = self.stamp() if name == "now" else params[name]
        return rendered.text, bound, lone

    def _as_values(
        self, statement: Statement, params: Mapping[str, Any]
    ) -> tuple[str, list[Any]] | None:
        """The statement with its largest row set as values, if the driver takes them so."""
        return None

    def allow_hash_joins(self) -> None:  # noqa: B027
        """Let the following statements join two large row sets; PostgreSQL otherwise uses keys."""

    def read_in_order(self) -> None:  # noqa: B027
        """Let the following statements walk an index for a page of a table.

        PostgreSQL expects few rows of a table that has grown since it was analyzed. It then sorts
        all rows that follow for each page: 47 microseconds an item of 20,000 instead of 26.
        """

    def stamp(self) -> str | datetime | None:
        """Return the value of ``{now}``; None uses the database's clock."""
        return _stamp(self.dialect, self.clock)


def bind(
    statement: Statement, params: Mapping[str, Any], dialect: Dialect, clock: Clock
) -> dict[str, Any]:
    """Return the parameters of a rendered statement: row sets as JSON, ``now`` as the time."""
    bound: dict[str, Any] = {}
    for name in statement.render(dialect).params:
        if name == "now":
            bound[name] = _stamp(dialect, clock)
            continue
        value = params[name]
        bound[name] = encode(value) if name in statement.row_sets else value
    return bound


def _stamp(dialect: Dialect, clock: Clock) -> str | datetime | None:
    """Return the value of ``{now}``; None uses the database's clock."""
    if dialect.name == "sqlite":
        return write_instant(clock.now())
    return clock.now() if clock.is_fake else None


class Access(StrEnum):
    """What a handler's transaction may write."""

    WRITE = "write"
    DOMAIN = "domain"
    AUDIT = "audit"
    READ = "read"

    @property
    def says(self) -> str:
        return _SAYS[self]


_SAYS = {
    Access.WRITE: "write its tenant's rows",
    Access.DOMAIN: "write only the application's tables",
    Access.AUDIT: "write only audit tables",
    Access.READ: "read only",
}


class Session(Protocol):
    """Runs statements: a store, or a transaction that is already open."""

    def write(self, work: Callable[[Tx], T]) -> T: ...

    def write_one(self, work: Callable[[Tx], T]) -> T: ...

    def read(self, work: Callable[[Tx], T]) -> T: ...


class Store(ABC):
    """A database with Holdfast's tables."""

    dialect: Dialect
    clock: Clock
    url: str
    # Whether the database runs inside this process, and so not in parallel with it.
    is_embedded: bool = False
    # On SQLite: the application's tables that audit enrichment may write. On PostgreSQL, grants to
    # the role holdfast_auditor decide.
    audit_tables: Sequence[str] = ()
    availability: Availability = ALWAYS
    # Components of the enabled extensions, which are migrated and checked with the core.
    components: tuple[Component, ...] = ()
    # Statements of extensions for jobs that reach a state; every transaction of this store has
    # them.
    state_statements: tuple[StateStatement, ...] = ()

    @property
    def is_shareable(self) -> bool:
        """Whether another process can open the same database."""
        return True

    def follows(self, state: str) -> bool:
        """Whether a statement of an extension runs when jobs reach *state*."""
        return any(state in declared.states for declared in self.state_statements)

    def _following(self, tx: X) -> X:
        tx.state_statements = self.state_statements
        return tx

    @property
    def pool_size(self) -> int:
        """Maximum number of connections of this process; 0 without a pool."""
        return 0

    def sized_for(self, *, handlers: int, threads: int) -> AbstractContextManager[None]:
        """Size the pool for a worker with this many concurrent handlers and own threads."""
        return nullcontext()

    def use_reserved(self) -> AbstractContextManager[None]:
        """Let the current thread use the connections reserved for a worker's own threads."""
        return nullcontext()

    @abstractmethod
    def write(self, work: Callable[[Tx], T]) -> T:
        """Run *work* in a transaction and commit. *work* may run again and must not keep state."""

    @abstractmethod
    def write_one(self, work: Callable[[Tx], T]) -> T:
        """Run *work*, a single statement that commits by itself: one round trip."""

    def write_soon(
        self,
        work: Callable[[Tx], T],
        *,
        lock_seconds: float = 1.0,
        seconds: float = 15.0,
        single: bool = False,
    ) -> T:
        """Run *work* like :meth:`write`, with limits on the wait. Raises StoreBusy when they pass.

        It waits *lock_seconds* for locks of other transactions and *seconds* for an unavailable
        database. With *single*, *work* is a single statement.
        """
        return self.write(work)

    @abstractmethod
    def announce(self, channels: Sequence[str]) -> None:
        """Wake the waiters on these channels. After commit, coalesced, and only a hint."""

    @abstractmethod
    def read(self, work: Callable[[Tx], T]) -> T:
        """Run *work* on one snapshot. It must not write."""

    def read_one(self, work: Callable[[Tx], T]) -> T:
        """Run *work*, a single read-only statement: one round trip."""
        return self.read(work)

    # -- one statement in its own transaction

    def many(self, statement: Statement, /, **params: Any) -> list[Row]:
        """Run one statement in its own transaction and return its rows."""
        return self._run(statement, lambda tx: tx.many(statement, **params))

    def maybe(self, statement: Statement, /, **params: Any) -> Row | None:
        """Run one statement in its own transaction and return its first row, or None."""
        return self._run(statement, lambda tx: tx.maybe(statement, **params))

    def one(self, statement: Statement, /, **params: Any) -> Row:
        """Run one statement in its own transaction and return its only row."""
        return self._run(statement, lambda tx: tx.one(statement, **params))

    def values(self, statement: Statement, /, **params: Any) -> list[tuple[Any, ...]]:
        """Run one statement in its own transaction and return its rows as tuples."""
        return self._run(statement, lambda tx: tx.values(statement, **params))

    def execute(self, statement: Statement, /, **params: Any) -> int:
        """Run one statement in its own transaction and return the number of affected rows."""
        return self._run(statement, lambda tx: tx.affected(statement, **params))

    def _run(self, statement: Statement, work: Callable[[Tx], T]) -> T:
        return self.write_one(work) if statement.writes else self.read_one(work)

    def extend_leases(self, claims: Sequence[Row], lease_ms: int) -> None:
        """Extend the leases of these claims although their rows cannot be written now.

        A claim is its org_id, id and lease_token. The extension is written to the table
        lease_extension, or to the sidecar file. A rescue checks both.
        """
        raise StoreBusy("This store cannot extend leases now. Try again.")

    def extended_leases(self, claims: Sequence[Row]) -> frozenset[tuple[str, str, int]]:
        """Return those of *claims* whose lease was extended in the sidecar and is still in force.

        Each is returned as org_id, id and lease_token.
        """
        return frozenset()

    def find_stuck_writer(self, seconds: float) -> str | None:
        """Describe what has blocked all other writers for *seconds* or more.

        None if nothing does, or if the database has more than one writer.
        """
        return None

    def handler_transaction(
        self,
        org_id: str,
        unit: str | None,
        *,
        guard: Callable[[Tx], None],
        finish: Callable[[Tx], None],
        access: Access = Access.WRITE,
    ) -> AbstractContextManager[HandlerTransaction]:
        """Open a transaction for a handler's own statements, bound to one tenant.

        It locks the execution unit, and no row. *guard* runs before the handler's first statement,
        *finish* after its last and immediately before the commit; an exception from either rolls
        the block back. Raises RuleViolated, and writes nothing, if the handler's statements exceed
        *access* or end the transaction. Returns only after an acknowledged commit.
        """
        raise NotImplementedError

    @contextmanager
    def tenant_transaction(
        self,
        org_id: str,
        unit: str | None,
        guard: Callable[[Tx], None],
        access: Access = Access.WRITE,
    ) -> Iterator[Any]:
        """Yield the connection of such a transaction, for callers without a claim to fence."""
        with self.handler_transaction(
            org_id, unit, guard=guard, finish=_nothing, access=access
        ) as opened:
            yield opened.connection

    def read_handler_login(self, url: str) -> Login:
        """Return the privileges of the login in *url*. Raises StoreError if it cannot connect."""
        raise StoreError(f"{self.dialect.name} has no logins; handler_db is for PostgreSQL.")

    @abstractmethod
    def wake_up(self, channels: Sequence[str]) -> WakeUp:
        """Return a waiter for notifications on these channels."""

    @abstractmethod
    def migrate(self) -> list[str]:
        """Migrate the core and the enabled components; return the applied migrations."""

    @abstractmethod
    def check_schema(self) -> None:
        """Raise SchemaMismatch unless the core and the enabled components match this code.

        An embedded database first creates the missing tables of components.
        """

    @abstractmethod
    def component_versions(self) -> dict[str, int]:
        """Return the version of each component in the database; empty without a Holdfast schema."""

    def enable(self, components: Sequence[Component]) -> None:
        """Add components to an open store. Raises SchemaMismatch as :meth:`check_schema` does."""
        known = {found.name for found in self.components}
        added = tuple(found for found in components if found.name not in known)
        if added:
            before = self.components
            self.components = (*before, *added)
            try:
                self.check_schema()
            except BaseException:
                self.components = before
                raise

    @abstractmethod
    def version(self) -> str:
        """Return the name and version of the database for display."""

    @abstractmethod
    def close(self) -> None: ...


def _nothing(_: Tx) -> None:
    """Does nothing before the commit."""


# The channel on which ended jobs are announced, and the one that asks workers to announce them.
ENDED = "~ended"
AWAITING = "~awaiting"


class WakeUp(ABC):
    """Waits for notifications. They may be missed, so callers must also poll."""

    # Until when ended jobs are announced, because a process waits for some.
    awaited_until = 0.0

    @abstractmethod
    def wait(self, timeout: float) -> bool:
        """Wait up to *timeout* seconds; return whether a notification arrived."""

    @abstractmethod
    def pause(self, timeout: float) -> bool:
        """Wait for a poke or an announcement; return whether it was an announcement.

        If announcements cannot be distinguished from this process's own writes, only pokes count.
        """

    @abstractmethod
    def poke(self) -> None:
        """End the current or next wait at once, from any thread."""

    @abstractmethod
    def close(self) -> None: ...
