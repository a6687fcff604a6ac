"""Context: the first argument of a handler, with the data of its job and what it may do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeVar

from holdfast.arguments import checked_function, number, text
from holdfast.engine import audit, category_rules, completion
from holdfast.engine.category import CATEGORIES, Category
from holdfast.engine.completion import Completion
from holdfast.engine.handler import Handler
from holdfast.engine.job import Actor, ActorType, Claimed, unit_of
from holdfast.engine.result import document
from holdfast.errors import ConfigError, JobCanceled, LeaseLost, RuleViolated
from holdfast.store import Access, Session, Statements, Store, Tx
from holdfast.store.caller_connection import noting_queues
from holdfast.store.query import Statement
from holdfast.store.transaction import Caller, HandlerTransaction, caller

SQL = Statements("holdfast.engine", "job.sql")

T = TypeVar("T")

_AMOUNT = number(0, 1e300)


@dataclass(slots=True)
class CancelToken:
    """A cancel flag, set by the worker and checked by the handler between its steps."""

    is_set: bool = False
    lease_lost: bool = False

    def set(self, *, lease_lost: bool = False) -> None:
        self.lease_lost = self.lease_lost or lease_lost
        self.is_set = True


FindExtension = Callable[[str], Any]
"""Returns the enabled extension with a name; raises ConfigError if there is none."""


def no_extension(name: str) -> Any:
    """Find no extension, for workers that are created without an application."""
    raise ConfigError(
        f"This worker does not have the extension {name!r}. Create the worker with hf.worker(),"
        f" and enable {name} for the application."
    )


@dataclass(frozen=True, slots=True)
class OpenBlock:
    """The open transaction of the handler, and the thread and task that opened it."""

    transaction: HandlerTransaction
    owner: Caller


@dataclass(slots=True)
class Context:
    """The first argument of a handler: the running job, and what the handler may do."""

    job: Claimed
    store: Store
    token: CancelToken
    handler: Handler | None = None
    # The categories of the worker's application.
    categories: Mapping[str, Category] = field(default_factory=lambda: CATEGORIES)
    deciding: bool = False
    find_extension: FindExtension = no_extension
    block: OpenBlock | None = field(default=None, init=False)
    completion: Completion = field(default_factory=Completion, init=False)
    # What the extension "workflows" knows about the job, once it was asked.
    step: Any = field(default=None, init=False)

    @property
    def id(self) -> str:
        """The job's id."""
        return self.job.id

    @property
    def org_id(self) -> str:
        """The tenant that the job belongs to."""
        return self.job.org_id

    @property
    def project_id(self) -> str | None:
        """The project that the job belongs to, if any."""
        return self.job.project_id

    @property
    def job_type(self) -> str:
        """The type that the job was enqueued as."""
        return self.job.job_type

    @property
    def stage(self) -> str:
        """The name of the stage that is running."""
        return self.job.stage

    @property
    def attempt(self) -> int:
        """The number of this attempt, starting at 1."""
        return self.job.attempt

    @property
    def actor(self) -> Actor:
        """The actor that enqueued the job."""
        return Actor(ActorType(self.job.actor_type), self.job.actor_id)

    @property
    def request_id(self) -> str:
        """The id of the request that enqueued the job."""
        return self.job.request_id

    @property
    def correlation_id(self) -> str:
        """The id shared by everything that one request caused."""
        return self.job.correlation_id

    @property
    def idempotency_key(self) -> str:
        """The job's key. It is the same on every attempt, so pass it to other services."""
        return self.job.idempotency_key

    @property
    def traceparent(self) -> str | None:
        """The W3C trace context that the job was enqueued with, if any."""
        return self.job.traceparent

    @property
    def outputs(self) -> Mapping[str, Any]:
        """The results of the finished stages of this job."""
        return self.job.outputs

    @property
    def saved(self) -> Any:
        """The checkpoint of an earlier attempt of this stage, or None."""
        return self.job.checkpoint

    def raise_if_canceled(self) -> None:
        """Stop here if a cancellation was requested or the lease was lost."""
        if self.token.lease_lost:
            raise LeaseLost(self.job.id)
        if self.token.is_set:
            raise JobCanceled

    def checkpoint(self, value: Any) -> None:
        """Store *value* for the next attempt of this stage, and check for cancellation.

        Inside the job's transaction it is committed with that transaction.
        """
        self._save(checkpoint=document(value))

    @checked_function(done=_AMOUNT, total=_AMOUNT, note=text)
    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Report the progress of the stage, and check for cancellation.

        Inside the job's transaction it becomes visible when that commits. Raises InvalidArgument
        unless *done* and *total* are numbers and *note* is text.
        """
        self._save(progress=document({"done": done, "total": total, "note": note[:200]}))

    async def acheckpoint(self, value: Any) -> None:
        """The asynchronous form of :meth:`checkpoint`."""
        await self._off_loop(self.checkpoint, value)

    async def aprogress(self, done: float, total: float | None = None, note: str = "") -> None:
        """The asynchronous form of :meth:`progress`."""
        await self._off_loop(self.progress, done, total, note)

    async def _off_loop(self, call: Callable[..., None], *args: Any) -> None:
        """Run *call* in a thread; in a transaction of this task, here, where it belongs."""
        if self.block is not None:
            call(*args)
        else:
            await asyncio.to_thread(call, *args)

    def _save(self, **columns: str) -> None:
        self.session.write(lambda tx: self.save_in(tx, **columns))
        self.raise_if_canceled()

    def save_in(self, tx: Tx, **columns: str) -> None:
        """Store the checkpoint or the progress of the stage as part of *tx*."""
        row = {"org_id": self.job.org_id, "job_id": self.job.id, "stage": self.job.stage, **columns}
        tx.affected(SQL.save_stage, stages=[row])

    def set_result(self, value: Any) -> None:
        """Set the result of this stage, inside ``job.transaction(complete=True)``.

        It is stored when the block ends. Raises ResultInvalid if it cannot be stored.
        """
        completion.set_result(self, value)

    def check_lease(self, tx: Tx) -> bool:
        """Lock the job until the transaction ends. Raises LeaseLost if the lease was lost.

        Returns whether a cancellation was requested.
        """
        return self._ask_lease(tx, SQL.check_lease)

    def guard(self, tx: Tx) -> None:
        """Raise LeaseLost if the lease was lost. Takes no lock."""
        self._ask_lease(tx, SQL.find_lease)

    def _ask_lease(self, tx: Tx, statement: Statement) -> bool:
        found = tx.maybe(
            statement,
            org_id=self.job.org_id,
            id=self.job.id,
            lease_token=self.job.lease_token,
        )
        if found is None:
            self.token.set(lease_lost=True)
            raise LeaseLost(self.job.id)
        if found["cancel_requested_at"] is None:
            return False
        self.token.set()
        return True

    @property
    def session(self) -> Session:
        """The database session for this job: its open transaction, or the store."""
        return JobSession(self)

    def open_transaction(self) -> HandlerTransaction | None:
        """The transaction that the calling thread and task have open for this job."""
        self.completion.check_unsettled()
        if self.block is None:
            return None
        if self.block.owner != caller():
            raise RuleViolated(
                "Another thread or task of this handler has job.transaction() open. Use the job in"
                " the thread and task that opened the block, or after the block.",
                transaction="open_elsewhere",
            )
        return self.block.transaction

    @contextmanager
    def transaction(self, *, complete: bool = False) -> Iterator[Any]:
        """Open a transaction for the handler's own writes, bound to the job's tenant.

        It commits at the end of the block if the lease is still held; otherwise it raises LeaseLost
        and nothing is written. Calls of this job inside the block are part of the transaction, and
        a nested block is a savepoint. Writes that the rules of the job's category forbid raise
        RuleViolated.

        With *complete*, the outcome of the stage is part of the commit, with the result given to
        :meth:`set_result`, or None. The stage has ended when the block ends: what the handler
        returns or raises afterwards is logged and ignored. If a cancellation was requested, nothing
        is written and JobCanceled is raised.
        """
        outer = self.open_transaction()
        if outer is not None:
            with self._savepoint(outer, complete=complete):
                yield outer.connection
            return
        access, entry = category_rules.access_of(self)
        if complete and access is Access.READ:
            raise RuleViolated(
                "The transaction of this job may only read, so it cannot record an outcome. Use"
                " job.transaction() without complete=True and return the result.",
                transaction="read_only",
            )
        unit = self.job.unit_key
        name = None if unit is None else unit_of(self.job.org_id, self.job.job_type, unit)

        def guard(tx: Tx) -> None:
            self.guard(tx)
            if entry is not None:
                audit.record(tx, Actor(ActorType.SYSTEM, self.job.claimed_by), [entry])

        def finish(tx: Tx) -> None:
            if complete:
                completion.record(self, tx)
            else:
                # A read-only transaction has nothing to fence and cannot lock the row.
                self._ask_lease(tx, SQL.find_lease if access is Access.READ else SQL.check_lease)

        with (
            noting_queues() as queues,
            completion.completing(self) if complete else nullcontext(),
            self.store.handler_transaction(
                self.job.org_id, name, guard=guard, finish=finish, access=access
            ) as opened,
        ):
            self.block = OpenBlock(opened, caller())
            try:
                yield opened.connection
                if complete:
                    completion.prepare(self)
            finally:
                self.block = None
        if queues:
            self.store.announce(sorted(queues))

    @contextmanager
    def _savepoint(self, outer: HandlerTransaction, *, complete: bool) -> Iterator[None]:
        """Open a nested block. A result that is set in it is rolled back with it."""
        if complete:
            raise RuleViolated(
                "job.transaction(complete=True) was opened inside another job.transaction(). Only"
                " the outermost block commits: pass complete=True to that one.",
                transaction="nested",
            )
        before = self.completion.value, self.completion.wanted
        try:
            with outer.savepoint():
                yield
        except BaseException:
            self.completion.value, self.completion.wanted = before
            raise

    def extension(self, name: str) -> Any:
        """Return the object that the extension *name* offers to handlers.

        Raises ConfigError if the extension is not enabled.
        """
        return self.find_extension(name).for_job(self)

    @property
    def artifacts(self) -> Any:
        """The artifacts of this job: its inputs, and the files that it stores."""
        return self.extension("artifacts")

    @property
    def results(self) -> Mapping[str, Any]:
        """The results of the steps that this step of a workflow depends on, by their names."""
        found: Mapping[str, Any] = self._step().results
        return found

    def wait_for(
        self, name: str, *, timeout: timedelta | float | str | None = None, key: str | None = None
    ) -> Any:
        """Wait for the event *name* and return its payload. The job occupies no worker meanwhile.

        In an ``async def`` handler, await it. The handler is called again from its beginning when
        the event has arrived, and this call then returns the payload, also in later attempts. The
        event is one that was sent to this job, to its workflow, or to *key*. Raises WaitTimedOut
        after *timeout*, which counts from the first call.
        """
        return self._step().wait_for(name, timeout=timeout, key=key)

    def sleep(self, delay: timedelta | float | str) -> Any:
        """Wait for a time without occupying a worker, like :meth:`wait_for`."""
        return self._step().sleep(delay)

    def sleep_until(self, time: datetime) -> Any:
        """Wait until *time* without occupying a worker, like :meth:`wait_for`."""
        return self._step().sleep_until(time)

    def _step(self) -> Any:
        # One for the execution: it counts the waits.
        if self.step is None:
            self.step = self.extension("workflows")
        return self.step

    @property
    def command(self) -> str | None:
        """The command that a planning job was enqueued with."""
        return category_rules.command_of(self.job)

    @property
    def audit(self) -> category_rules.Audit:
        """The audit, for an audit enrichment job."""
        return category_rules.Audit(self)


@dataclass(frozen=True, slots=True)
class JobSession:
    """The engine's statements for a running job, in the open transaction of its handler.

    With *asks*, a write first checks the lease. Without *joins*, it commits at once, outside an
    open transaction.
    """

    context: Context
    asks: bool = True
    joins: bool = True

    def write(self, work: Callable[[Tx], T]) -> T:
        context = self.context
        opened = context.open_transaction()
        if opened is None:
            return context.store.write(lambda tx: self._asked(tx, work, SQL.check_lease))
        # The row is locked only at the end of the block, so that other transactions do not wait.
        if self.joins and opened.takes_writes:
            return opened.run(lambda tx: self._asked(tx, work, SQL.find_lease))
        return context.store.write(lambda tx: self._asked(tx, work, SQL.find_lease))

    def write_one(self, work: Callable[[Tx], T]) -> T:
        return self.write(work)

    def read(self, work: Callable[[Tx], T]) -> T:
        opened = self.context.open_transaction()
        if opened is None or not self.joins:
            return self.context.store.read(work)
        return opened.run(work)

    def _asked(self, tx: Tx, work: Callable[[Tx], T], statement: Statement) -> T:
        if self.asks:
            self.context._ask_lease(tx, statement)
        return work(tx)
