"""Holdfast: the object an application declares its jobs on and enqueues through."""

from __future__ import annotations

import asyncio
import os
import random
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Unpack, cast

from holdfast.actor import Role, read_actor, read_role
from holdfast.arguments import anything, checked, each, instance, name
from holdfast.clock import Clock, SystemClock, ms
from holdfast.config import Settings
from holdfast.declared_job import Declare, DeclaredJob, declared_job
from holdfast.engine import enqueue as enqueueing
from holdfast.engine.bounded_run import Runs
from holdfast.engine.category import CategoryOptions, make_category, sync_categories
from holdfast.engine.declared import Declarations, worker_options
from holdfast.engine.due import with_due_time
from holdfast.engine.enqueue import Enqueued
from holdfast.engine.error_rules import Classifier, read_classifier
from holdfast.engine.handler import HandlerOptions, Registry, check_options, plain_handler
from holdfast.engine.job import QUEUES, SYSTEM, Actor
from holdfast.engine.limits import (
    KeyOptions,
    QueueOptions,
    Queues,
    make_key,
    make_queue,
    sync_rules,
)
from holdfast.engine.notify import NotifyOptions, abest_effort, best_effort
from holdfast.engine.payloads import Chunks, accept_payloads, chunks_of, requests_of
from holdfast.engine.pipeline import Pipeline
from holdfast.engine.request import InsertRows, JobRequest, Options, SharedColumns
from holdfast.engine.retry import RetryPolicy
from holdfast.engine.schedule.schedule import Declared, ScheduleOptions, make_schedule
from holdfast.engine.tracing import Tracing, atraced, traced
from holdfast.engine.worker.worker import Worker
from holdfast.errors import ConfigError
from holdfast.event import Events, JobEvents
from holdfast.extension import E, Extension, Extensions
from holdfast.ids import IdSource, uuid_argument
from holdfast.job_lookup import JobLookup
from holdfast.operate.authorization import OperatorContext
from holdfast.operate.bring_back import BringBack
from holdfast.operate.bulk_job import declare_bulk_actions
from holdfast.operate.operator import Operator
from holdfast.outbox.outbox import Outbox
from holdfast.store import Component, Store, open_store
from holdfast.store.caller_connection import Steps, arun_borrowed, is_awaiting, run_borrowed
from holdfast.store.caller_database import CallerDatabase
from holdfast.tenant import Tenant, with_default_org


@checked(
    checks={
        "queues": each(name),
        "settings": instance(Settings),
        "store": instance(Store),
        "extensions": each(instance(Extension)),
        "classify_error": anything,
    },
    init=True,
    # These methods validate every field of a job or a declaration themselves; the last are
    # internal.
    without=(
        *("enqueue", "enqueue_many", "aenqueue", "aenqueue_many", "notify", "anotify"),
        *("job", "pipeline", "queue", "category", "schedule", "worker", "prepare", "announce"),
        *("add_extension", "extension", "open_components", "limit_key"),
    ),
)
class Holdfast(JobLookup):
    """The jobs of one application in one database.

    The database is opened on first use, so a module may create it and declare jobs on import.
    *classify_error* returns the error class of an exception, or None for the built-in rule. With
    *default_tenant*, calls without a tenant are for one default tenant, on every database.
    """

    def __init__(
        self,
        db: str | None = None,
        *,
        settings: Settings | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        extensions: Iterable[Extension] = (),
        classify_error: Classifier | None = None,
        default_tenant: bool = False,
    ) -> None:
        self.has_default_tenant = default_tenant
        if settings is None or default_tenant:
            settings = settings or Settings.load(db=db)
            settings = with_default_org(settings, always=default_tenant)
        self.settings = settings if db is None else replace(settings, db=db)
        self.clock = clock or SystemClock()
        self.rng = rng
        self.ids = IdSource(self.clock, rng)
        self.registry = Registry(classify_error=read_classifier(classify_error))
        self.schedules = Declared()
        self.events = Events()
        self.outbox = Outbox(self)
        self.outbox.brings_back = BringBack(lambda: OperatorContext(self, SYSTEM, Role.ADMIN))
        declare_bulk_actions(self)
        self.tracing: Tracing | None = None
        self._store: Store | None = None
        self._store_pid = 0
        self._opening = threading.Lock()
        self.callers = CallerDatabase(self, lambda: self._store)
        self._frames: SharedColumns = {}
        self._declarations = Declarations(self.registry)
        # Set by tests that want jobs to run inside the call that enqueues them.
        self._inline: Callable[[], object] | None = None
        self.extensions = Extensions(self)
        for extension in extensions:
            self.add_extension(extension)
        self.extensions.enable_named(self.settings.extensions or ())

    @property
    def store(self) -> Store:
        """The open store. A child process gets its own."""
        if self._store is None or self._store_pid != os.getpid():
            with self._opening:
                if self._store is None or self._store_pid != os.getpid():
                    self._store = open_store(
                        self.settings.db,
                        clock=self.clock,
                        pool_size=self.settings.pool_size,
                        handler_url=self.settings.handler_db,
                        components=self.extensions.components,
                    )
                    self._store.audit_tables = self.settings.audit_tables
                    self.extensions.follow_states(self._store)
                    self._store_pid = os.getpid()
        return self._store

    def _reopen(self) -> Store:
        """Open the store in a process that was forked from this one."""
        # Kept: closing the connections of the parent here would break them there.
        self._inherited = self._store
        return self.store

    def use_store(self, store: Store) -> None:
        """Use a store that the caller opened."""
        store.enable(self.extensions.components)
        self.extensions.follow_states(store)
        self._store, self._store_pid = store, os.getpid()

    # -- extensions

    def add_extension(self, extension: Extension) -> None:
        """Enable an extension, like ``Holdfast(db, extensions=[…])``."""
        self.extensions.enable(extension)

    def extension(self, kind: type[E]) -> E:
        """Return the enabled extension of this class; enable one if there is none."""
        if not (isinstance(kind, type) and issubclass(kind, Extension)):
            raise ConfigError("hf.extension takes the class of an extension.")
        if (found := self.extensions.find(kind)) is None:
            self.add_extension(found := kind())
        return found

    def open_components(self, components: Sequence[Component]) -> None:
        """Enable components on the store, now or when it is opened."""
        if self._store is not None and self._store_pid == os.getpid():
            self._store.enable(components)
            self.extensions.follow_states(self._store)

    def __getattr__(self, name: str) -> Any:
        """Return an extension by name; the first use enables an installed one."""
        found = None if name.startswith("_") else self.extensions.find_named(name)
        if found is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return found

    def close(self) -> None:
        """Close the store. It is opened again on the next use."""
        if self._store is not None:
            if self._waiter is not None:
                self._waiter.close()
                self._waiter = None
            self._store.close()
            self._store = None

    def __enter__(self) -> Holdfast:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def queues(self) -> Queues:
        """The rules of queues, tenants and limit keys."""
        return Queues(self.store, self.settings, self.registry.queues, self.registry.limit_keys)

    @property
    def known_queues(self) -> list[str]:
        """The names of all queues that jobs may be enqueued on."""
        return list(dict.fromkeys((*QUEUES, *self.settings.queues, *self.registry.queues)))

    # -- declaring

    def job(
        self,
        job_type: str,
        *,
        category: str = "general",
        max_attempts: int | None = None,
        retry: RetryPolicy | None = None,
        timeout: timedelta | float | None = None,
        **options: Unpack[HandlerOptions],
    ) -> Declare:
        """Declare the decorated function as the handler of *job_type*.

        The function takes the job, or no job, and then its payload: a dict, a dataclass or a
        pydantic model, or the keys of the payload as arguments. The decorator returns a
        :class:`DeclaredJob`, which is called like the function and enqueues jobs. *options* are
        ``queue``, ``priority``, ``version``, ``policy``, ``slo``, ``producer``, ``cancel_role``,
        ``stores``, ``replay_refusal``, ``retry_on``, ``give_up_on``, ``isolation``, ``limit_key``,
        ``unique_key``, ``batch_size`` and ``batch_wait``. With ``isolation="process"`` each job
        runs in a process of its own, which is killed at the timeout.
        """
        check_options(job_type, options)

        def declare(function: Callable[..., Any]) -> DeclaredJob[..., ..., Any, Any]:
            kind, limits = self.registry.category(category), (max_attempts, retry, timeout)
            handler = plain_handler(job_type, function, kind, *limits, options)
            self.registry.add(handler)
            assert handler.first.signature is not None
            return DeclaredJob(self, job_type, function, handler.first.signature)

        return Declare(declare)

    def declared(self, job_type: str) -> DeclaredJob[..., ..., Any, Any]:
        """The handle of a declared job type, also of a pipeline or a batch class."""
        return declared_job(self, job_type)

    def pipeline(
        self,
        job_type: str,
        *,
        accepts: Sequence[str] = (),
        category: str = "general",
        **options: Unpack[HandlerOptions],
    ) -> Pipeline:
        """Declare a job of several named stages, each with its own attempts and result.

        *options* are those of :meth:`job`; the default ``version`` is "1".
        """
        check_options(job_type, options)
        given: HandlerOptions = {"version": "1", **options}
        return Pipeline(self.registry, job_type, accepts, category, given)

    def queue(self, name: str, **limits: Unpack[QueueOptions]) -> None:
        """Declare a queue with its weight and limits."""
        self.registry.add_queue(name, make_queue(name, limits))

    def limit_key(self, name: str, **limits: Unpack[KeyOptions]) -> None:
        """Declare the limits of a key; ``customer:*`` is for each key with that prefix."""
        self.registry.add_limit_key(*make_key(name, limits))

    def category(self, name: str, **options: Unpack[CategoryOptions]) -> None:
        """Declare a category of jobs; workers store it in the database."""
        self.registry.add_category(make_category(name, **options))

    def schedule(self, name: str, **options: Unpack[ScheduleOptions]) -> None:
        """Declare a schedule; dispatchers store it in the database."""
        self.schedules.add(make_schedule(name, options, now=self.clock.now()), self.registry)

    # -- enqueueing

    def enqueue(
        self,
        job_type: str,
        payload: Mapping[str, Any],
        *,
        org_id: str | None = None,
        conn: Any = None,
        **options: Unpack[Options],
    ) -> Enqueued:
        """Enqueue one job; a known idempotency key returns the original, ``created=False``.

        *options* are the fields of :class:`JobRequest`. With *conn* the job is part of the caller's
        transaction. Raises InvalidJob, QueueFull and StoreDown.
        """
        return self.enqueue_many(job_type, [payload], org_id=org_id, conn=conn, **options)[0]

    @traced
    def enqueue_many(
        self,
        job_type: str,
        payloads: Iterable[Mapping[str, Any] | JobRequest],
        *,
        org_id: str | None = None,
        conn: Any = None,
        **options: Unpack[Options],
    ) -> list[Enqueued]:
        """Enqueue any number of jobs of one type: all of them or none."""
        chunks = self._chunks(job_type, payloads, org_id, options, whole=conn is not None)
        if not chunks:
            return []
        if conn is not None:
            if is_awaiting(conn):
                raise ConfigError("The connection is asynchronous: use aenqueue or aenqueue_many.")
            self.sync(borrowed=True)
            batches = [chunks[0]()]
            steps = self._borrowed_steps(conn, batches[0])
            enqueued = run_borrowed(conn, self.clock, steps, batches[0].queues)
        elif len(chunks) == 1:
            self.sync()
            batches = [chunks[0]()]
            enqueued = enqueueing.insert(self.store, batches[0])
        else:
            self.sync()
            batches, enqueued = enqueueing.insert_chunks(self.store, chunks)
        self.announce(batches, enqueued, is_committed=conn is None)
        return enqueueing.attach(enqueued, self)

    def prepare(
        self,
        job_type: str,
        payload: Mapping[str, Any],
        *,
        job_id: str,
        org_id: str | None = None,
        **options: Unpack[Options],
    ) -> InsertRows:
        """Validate one job that the caller inserts with other rows; then call announce."""
        ids = [uuid_argument("job_id", job_id)]
        return self._chunks(job_type, [payload], org_id, options, ids=ids)[0]()

    def announce(
        self, batches: Sequence[InsertRows], enqueued: Sequence[Enqueued], *, is_committed: bool
    ) -> None:
        """Wake the workers for inserted jobs, and emit their events."""
        if is_committed and any(item.created for item in enqueued):
            self.store.announce(sorted({queue for batch in batches for queue in batch.queues}))
        self._emit_enqueued(batches, enqueued)
        if self._inline is not None:
            self._inline()

    def notify(
        self, job_type: str, payload: Mapping[str, Any], **options: Unpack[NotifyOptions]
    ) -> Enqueued | None:
        """Enqueue a notification as best effort: returns None if the store fails.

        The caller's transaction (*conn*) continues either way. An invalid request raises.
        """
        with best_effort(self.registry.get(job_type), options, self.events):
            return self.enqueue(job_type, payload, **options)
        return None

    async def anotify(
        self, job_type: str, payload: Mapping[str, Any], **options: Unpack[NotifyOptions]
    ) -> Enqueued | None:
        """The asynchronous form of :meth:`notify`."""
        if not is_awaiting(options.get("conn")):
            return await asyncio.to_thread(self.notify, job_type, payload, **options)
        async with abest_effort(self.registry.get(job_type), options, self.events):
            return await self.aenqueue(job_type, payload, **options)
        return None

    async def aenqueue(
        self,
        job_type: str,
        payload: Mapping[str, Any],
        *,
        org_id: str | None = None,
        conn: Any = None,
        **options: Unpack[Options],
    ) -> Enqueued:
        """The asynchronous form of :meth:`enqueue`."""
        many = await self.aenqueue_many(job_type, [payload], org_id=org_id, conn=conn, **options)
        return many[0]

    @atraced
    async def aenqueue_many(
        self,
        job_type: str,
        payloads: Iterable[Mapping[str, Any] | JobRequest],
        *,
        org_id: str | None = None,
        conn: Any = None,
        **options: Unpack[Options],
    ) -> list[Enqueued]:
        """The asynchronous form of :meth:`enqueue_many`."""
        if conn is None or not is_awaiting(conn):
            return await asyncio.to_thread(
                self.enqueue_many, job_type, payloads, org_id=org_id, conn=conn, **options
            )
        chunks = self._chunks(job_type, payloads, org_id, options, whole=True)
        if not chunks:
            return []
        await asyncio.to_thread(self.sync, borrowed=True)
        batch = chunks[0]()
        steps = self._borrowed_steps(conn, batch)
        enqueued = await arun_borrowed(conn, self.clock, steps, batch.queues)
        self._emit_enqueued([batch], enqueued)
        return enqueueing.attach(enqueued, self)

    def for_org(self, org_id: str) -> Tenant:
        """Return the same calls for one tenant."""
        return Tenant(self, org_id)

    def sync(self, *, borrowed: bool = False) -> None:
        """Store the declarations of this application, if they are not stored yet.

        Enqueues, workers, dispatchers and ``holdfast migrate`` call it. *borrowed* means that a
        caller's connection is in use, which on SQLite may be the only one that can write.
        """
        if not (borrowed and self.callers.is_embedded):
            self._declarations.sync(self.store, self.settings)

    def declared_steps(self, conn: Any) -> Steps[None]:
        """Like :meth:`sync`, as steps for a caller's connection, which they check first."""
        yield from self.callers.steps(conn)
        yield from self._declarations.borrowed_steps(self.callers.store, self.settings)

    def _borrowed_steps(self, conn: Any, batch: InsertRows) -> Steps[list[Enqueued]]:
        yield from self.declared_steps(conn)
        return (yield from enqueueing.borrowed_steps(batch, self.callers.dialect))

    def _chunks(
        self,
        job_type: str,
        payloads: Iterable[Mapping[str, Any] | JobRequest],
        org_id: str | None,
        options: Options,
        *,
        whole: bool = True,
        ids: Sequence[str] | None = None,
        trusted: bool = False,
    ) -> Chunks:
        """The rows to insert, in pieces that are validated as they are consumed.

        The arguments in *trusted* payloads were checked before.
        """
        handler = self.registry.get(job_type)
        now = self.clock.now()
        due = cast(Options, with_due_time(options, now))
        accepted = payloads if trusted else accept_payloads(handler, payloads)
        items = requests_of(handler, accepted, org_id, due, self.settings.default_org)
        self._declarations.note_names(request for _, request in items)
        return chunks_of(
            handler,
            items,
            # Ids are assigned once, so that a retried transaction writes the same jobs.
            ids=self.ids.take(len(items)) if ids is None else ids,
            whole=whole or handler.producer is not None,
            now=now,
            payload_limit=self.settings.payload_limit_bytes,
            known=self._frames,
            queues=self.known_queues,
            ageing_ms=ms(self.settings.ageing_seconds),
        )

    def _emit_enqueued(self, batches: Sequence[InsertRows], enqueued: Sequence[Enqueued]) -> None:
        if not self.events.subscribers:
            return
        self.events.emit_all(JobEvents(list(enqueueing.events_of(batches, enqueued))))

    # -- operating

    def operate(
        self, *, actor: Actor | str, role: Role | str, org_id: str | None = None
    ) -> Operator:
        """Return the operator API for an actor in a role, for one tenant or for all."""
        return Operator(OperatorContext(self, read_actor(actor), read_role(role), org_id))

    # -- running

    @property
    def runs(self) -> Runs:
        """Start bounded runs, and read past ones."""
        return Runs(self)

    def worker(self, **options: Any) -> Worker:
        """Create a worker for this application; *options* are those of :class:`Worker`."""
        self.extensions.enable_defaults()
        sync_categories(self.store, self.registry.categories.values())
        sync_rules(self.store, self.settings, self.registry.queues, self.registry.limit_keys)
        self.sync()
        profile = self.settings.default_profile
        given: dict[str, Any] = {
            "registry": self.registry.with_backoff(profile.retry_backoff_seconds),
            "settings": self.settings,
            "events": self.events,
            "rng": self.rng,
            "find_extension": self.extensions.get,
            "tracing": self.tracing,
            "queues": self.known_queues,
            "reopen": self._reopen,
        }
        return Worker(self.store, **{**given, **worker_options(options)})
