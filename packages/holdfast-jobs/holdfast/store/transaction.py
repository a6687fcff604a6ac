"""A handler's own transaction: the block of ``job.transaction()``, as the engine sees it.

The handler gets a driver connection and runs what it likes. The engine runs its own statements in
the same transaction, ends it, and proves that it is still the one it began: a block that ended in
another way has not committed what the handler wrote, and its attempt must not count as done.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from holdfast.errors import RuleViolated
from holdfast.store.store import Tx

T = TypeVar("T")

IDLE_SECONDS = 60
"""How long any transaction of Holdfast may stay open on PostgreSQL without a statement."""

LOCK_SECONDS = 1.0
"""How long a short transaction of Holdfast waits for a lock that another one holds."""


class HandlerTransaction(ABC):
    """One open block. *connection* is the handler's."""

    connection: Any
    # On PostgreSQL nothing can be written in a block that only reads, not even by the engine.
    takes_writes: bool = True

    @abstractmethod
    def run(self, work: Callable[[Tx], T]) -> T:
        """Run the engine's statements in this transaction: all of *work* or nothing of it."""

    @abstractmethod
    def savepoint(self) -> AbstractContextManager[None]:
        """A block within the block: what fails inside undoes this part only."""


Caller = tuple[int, "asyncio.Task[Any] | None"]
"""Who runs: a thread, and on an event loop the task."""


def caller() -> Caller:
    """The thread and the task that call."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    return threading.get_ident(), task


def not_yours(method: str) -> RuleViolated:
    """The refusal of a call that would end the transaction or the connection of a block."""
    return RuleViolated(
        f"{method} was called on the connection of job.transaction(). Holdfast commits when the"
        " block ends, rolls back when it raises, and closes the connection itself. Remove the"
        " call; for a part that may fail, nest another job.transaction().",
        called=method.rstrip("()"),
    )


def ended_early() -> RuleViolated:
    """The failure of a block whose transaction was over before the block was."""
    return RuleViolated(
        "The transaction of job.transaction() ended before its block did, by a COMMIT or ROLLBACK"
        " of the handler. Nothing proves that the block was committed as a whole, so the attempt"
        " failed. Remove the statement that ended the transaction.",
        transaction="ended_early",
    )


def failed_inside() -> RuleViolated:
    """The failure of a block that caught a database error and went on to its end."""
    return RuleViolated(
        "A statement in job.transaction() failed, the handler caught the error, and the database"
        " has rolled the transaction back. Run the statement in a nested job.transaction(), which"
        " undoes that part only, or let the error leave the block.",
        transaction="rolled_back",
    )
