"""A handler's own transaction: the block of ``job.transaction()``, as the engine sees it.

The handler gets a driver connection and runs its own statements. The engine runs its statements in
the same transaction, ends it, and checks that it is still the one that it began. If the block ended
in another way, the handler's writes are not committed, and the attempt must not count as completed.
"""

from __future__ import annotations

import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.errors import RuleViolated
from holdfast.store.store import Tx

T = TypeVar("T")

IDLE_SECONDS = 60
"""Maximum time that a transaction of Holdfast may be idle on PostgreSQL."""

LOCK_SECONDS = 1.0
"""How long a short transaction of Holdfast waits for a lock."""


class HandlerTransaction(ABC):
    """One open block. *connection* is the handler's."""

    connection: Any
    # On PostgreSQL not even the engine can write in a read-only block.
    takes_writes: bool = True

    @abstractmethod
    def run(self, work: Callable[[Tx], T]) -> T:
        """Run the engine's statements in this transaction, all or nothing."""

    @abstractmethod
    def savepoint(self) -> AbstractContextManager[None]:
        """Open a nested block: a failure inside undoes this part only."""


if TYPE_CHECKING:
    import asyncio

Caller = tuple[int, "asyncio.Task[Any] | None"]
"""Identity of a caller: a thread, and on an event loop the task."""


def caller() -> Caller:
    """Return the calling thread and task."""
    try:
        # Without the module there is no event loop; it takes long to import.
        loops = sys.modules.get("asyncio")
        task = None if loops is None else loops.current_task()
    except RuntimeError:
        task = None
    return threading.get_ident(), task


def not_yours(method: str) -> RuleViolated:
    """Return the refusal of a call that would end the transaction or the connection of a block."""
    return RuleViolated(
        f"{method} was called on the connection of job.transaction(). Holdfast commits when the"
        " block ends, rolls back when it raises, and closes the connection itself. Remove the"
        " call; for a part that may fail, nest another job.transaction().",
        called=method.rstrip("()"),
    )


def ended_early() -> RuleViolated:
    """Return the failure of a block whose transaction ended before the block did."""
    return RuleViolated(
        "The transaction of job.transaction() ended before its block did, by a COMMIT or ROLLBACK"
        " of the handler. Nothing proves that the block was committed as a whole, so the attempt"
        " failed. Remove the statement that ended the transaction.",
        transaction="ended_early",
    )


def failed_inside() -> RuleViolated:
    """Return the failure of a block that caught a database error and continued."""
    return RuleViolated(
        "A statement in job.transaction() failed, the handler caught the error, and the database"
        " has rolled the transaction back. Run the statement in a nested job.transaction(), which"
        " undoes that part only, or let the error leave the block.",
        transaction="rolled_back",
    )
