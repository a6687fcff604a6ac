"""Outbox: messages of an application to people and programs, sent once in effect."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Protocol, Unpack

from holdfast.actor import read_actor
from holdfast.arguments import anything, checked, each, identifier, name, text
from holdfast.channel.channel import Channel, OnUnknown
from holdfast.config import OUTBOX_RUNS, Settings
from holdfast.engine.context import Context
from holdfast.engine.enqueue import Enqueued
from holdfast.engine.handler import make_handler, plain_stage
from holdfast.engine.job import SYSTEM, Actor, Priority
from holdfast.engine.pass_counts import PassCounts
from holdfast.engine.request import InsertRows, Options
from holdfast.engine.runs import Application
from holdfast.engine.tracing import Tracing
from holdfast.errors import ConfigError
from holdfast.event import DeliveryAlert, DeliveryChange, DeliveryChanged, DeliveryTrouble
from holdfast.outbox import intend as intending
from holdfast.outbox.channel_set import AddedChannel, ChannelSet, ExtensionChannel
from holdfast.outbox.decide import Policy
from holdfast.outbox.delivery import Delivery, State
from holdfast.outbox.erase import Erased, erase_recipient
from holdfast.outbox.failure import DeliveryFailed, InvalidDelivery
from holdfast.outbox.in_app import Feed, InAppChannel, job_like, read_id
from holdfast.outbox.intend import (
    Intended,
    OutgoingMessage,
    RequestContext,
    find_origin,
    with_context,
)
from holdfast.outbox.notify import NotificationOptions, anotify, compose, notify
from holdfast.outbox.post import JOB_TYPE, Posted, announce_posted, apost, post, prepare
from holdfast.outbox.reconcile import RUN, ReconcileTask, reconcile_once
from holdfast.outbox.send import PAGE, deliver_once
from holdfast.outbox.template import Template, Templates
from holdfast.outbox.wait import wait_for
from holdfast.store import Statements, Store, Tx
from holdfast.store.caller_connection import Steps, arun_borrowed, is_awaiting, run, run_borrowed
from holdfast.store.caller_database import CallerDatabase
from holdfast.store.savepoint import asavepoint, savepoint

SQL = Statements("holdfast.outbox", "delivery.sql")


class Channels(Protocol):
    """The channels of a deployment, by configured name."""

    def get(self, name: str) -> Channel | None:
        """Return the channel of that name; None if it is not configured here."""

    def knows(self, name: str) -> bool:
        """Whether a channel of that name exists, even if it cannot be opened here."""

    def on_unknown(self, name: str) -> OnUnknown:
        """The policy for messages with unknown outcome."""

    def max_parallel(self, name: str) -> int:
        """The maximum number of messages to send at once."""

    def problem(self, name: str, address: str, subject: str, text: str = "") -> str | None:
        """Why the channel cannot carry this message; None if it can, or is not configured here."""


class OutboxApplication(Application, Protocol):
    """The parts of the application that the outbox uses."""

    rng: random.Random | None

    tracing: Tracing | None

    callers: CallerDatabase

    def prepare(
        self,
        job_type: str,
        payload: Mapping[str, Any],
        *,
        job_id: str,
        org_id: str | None = None,
        **options: Unpack[Options],
    ) -> InsertRows: ...

    def sync(self, *, borrowed: bool = False) -> None: ...

    def declared_steps(self, conn: Any) -> Steps[None]: ...

    def announce(
        self, batches: Sequence[InsertRows], enqueued: Sequence[Enqueued], *, is_committed: bool
    ) -> None: ...


class BringsBack(Protocol):
    """Replays jobs that failed because of deliveries that have been sent since."""

    def count(self, limit: int) -> int:
        """The number of such jobs, counted up to *limit*."""

    def run(self, limit: int) -> int:
        """Replay at most *limit* jobs; return how many."""


@checked(
    InvalidDelivery,
    checks={
        # These checks name their invalid fields themselves.
        **dict.fromkeys(("data", "html", "intents", "recipient", "subject", "text"), anything),
        "channel": text,
        "ids": each(identifier),
        "job": job_like,
        "template": name,
        "template.name": anything,
    },
    without=("enlist", "emit_events", "post_in", "tell_posted", "use"),
)
class Outbox:
    """The outbox of one application.

    Every application registers the job type ``outbox.deliver``, so that each worker can deliver
    messages of other processes. The run ``outbox_reconciler`` is declared if channels or templates
    are configured, or once a message is stored.
    """

    def __init__(self, app: OutboxApplication) -> None:
        self.app = app
        self.rng = app.rng or random.Random()
        # Set by the application.
        self.brings_back: BringsBack | None = None
        self.templates = Templates()
        self._channels: Channels | None = None
        self._added: dict[str, AddedChannel] = {}
        self.extension_channels: dict[str, ExtensionChannel] = {}
        self._made_for: Settings | None = None
        self._key: str | None = app.settings.outbox.key or None
        kind = app.registry.category("notification")
        stage = plain_stage(
            self._perform, category=kind, max_attempts=None, retry=None, timeout=None
        )
        app.registry.add(
            make_handler(JOB_TYPE, [stage], category=kind, queue=None, priority=Priority.NORMAL)
        )
        if app.settings.channels:
            self.declare()

    def declare(self) -> None:
        """Register the run of the reconciler with the application. May be called again."""
        self.app.registry.tasks.setdefault(RUN, ReconcileTask(self))
        self.app.settings = self.app.settings.with_runs(OUTBOX_RUNS)

    # -- used by the passes

    @property
    def store(self) -> Store:
        return self.app.store

    @property
    def settings(self) -> Settings:
        return self.app.settings

    @property
    def channels(self) -> Channels:
        """The channels of the deployment."""
        if self._channels is None or self._made_for not in (None, self.app.settings):
            from holdfast.channel.channels import ConfiguredChannels

            configured = ConfiguredChannels(self.app.settings, clock=self.app.clock)
            in_app = InAppChannel(lambda: self.store, self.app.ids)
            own = self._added, self.extension_channels
            self._channels = ChannelSet(in_app, configured, *own)
            self._made_for = self.app.settings
        return self._channels

    @channels.setter
    def channels(self, channels: Channels) -> None:
        self._channels, self._made_for = channels, None

    def use(self, *channels: Channel, on_unknown: OnUnknown = OnUnknown.HOLD) -> None:
        """Add channels that the caller created. They replace only channels of the same name."""
        self.declare()
        if self._made_for is None:
            # Channels that were assigned directly are replaced by the configured set.
            self._channels = None
        self._added |= {one.name: AddedChannel(one, on_unknown) for one in channels}

    def policy(self, channel: str) -> Policy:
        """The policy of a channel."""
        own = self.settings.outbox
        return Policy(
            self.channels.on_unknown(channel),
            own.max_attempts,
            timedelta(seconds=own.patience_seconds),
        )

    @property
    def key(self) -> str:
        """The key for tokens: the configured key, or the one of the database."""
        if self._key is None:
            self._key = str(self.store.one(SQL.find_outbox_key)["key"])
        return self._key

    # -- intending

    def intend(
        self,
        intents: Sequence[OutgoingMessage],
        *,
        org_id: str | None = None,
        conn: Any = None,
        **context: Unpack[RequestContext],
    ) -> list[Intended]:
        """Store messages to send. Messages that were stored before are returned unchanged.

        With *conn*, they are stored if and only if the caller's transaction commits. This sends
        nothing: :meth:`deliver` does that, or the job of :meth:`post`. *context* is kept with each
        delivery and appears on its audit events and log lines. Inside a job it defaults to the
        job's context.
        """
        self.declare()
        rows = self._prepare(intents, org_id, context)
        if conn is None:
            intended = self.store.write(lambda tx: run(tx, intending.insert_steps(rows)))
        else:
            if is_awaiting(conn):
                raise ConfigError("The connection is asynchronous: use aintend.")
            intended = run_borrowed(conn, self.app.clock, self._borrowed_steps(conn, rows), [])
        return self.emit_events(intended)

    async def aintend(
        self,
        intents: Sequence[OutgoingMessage],
        *,
        org_id: str | None = None,
        conn: Any,
        **context: Unpack[RequestContext],
    ) -> list[Intended]:
        """:meth:`intend` with an async connection."""
        self.declare()
        steps = self._borrowed_steps(conn, self._prepare(intents, org_id, context))
        return self.emit_events(await arun_borrowed(conn, self.app.clock, steps, []))

    def post(
        self,
        intents: Sequence[OutgoingMessage],
        *,
        org_id: str | None = None,
        conn: Any = None,
        **options: Any,
    ) -> list[Intended]:
        """Store messages and enqueue the jobs that deliver them, in one transaction.

        *options* are those of ``enqueue``. Scheduled messages are not sent before their time.
        """
        if is_awaiting(conn):
            raise ConfigError("The connection is asynchronous: use apost.")
        self.declare()
        rows = self._prepare(intents, org_id)
        with savepoint(conn):
            return post(self, rows, org_id=org_id, conn=conn, options=options)

    async def apost(
        self,
        intents: Sequence[OutgoingMessage],
        *,
        org_id: str | None = None,
        conn: Any = None,
        **options: Any,
    ) -> list[Intended]:
        """:meth:`post` for callers on an event loop."""
        if not is_awaiting(conn):
            return await asyncio.to_thread(self.post, intents, org_id=org_id, conn=conn, **options)
        self.declare()
        rows = self._prepare(intents, org_id)
        async with asavepoint(conn):
            return await apost(self, rows, org_id=org_id, conn=conn, options=options)

    def enlist(
        self, tx: Tx, intents: Sequence[OutgoingMessage], *, org_id: str | None = None
    ) -> list[Intended]:
        """:meth:`intend` in a transaction of the store.

        After the commit, the caller passes the result to :meth:`emit_events`.
        """
        self.declare()
        if self._key is None:
            self._key = str(tx.one(SQL.find_outbox_key)["key"])
        return run(tx, intending.insert_steps(self._prepare(intents, org_id)))

    def post_in(
        self,
        tx: Tx,
        intents: Sequence[OutgoingMessage],
        *,
        org_id: str,
        options: Mapping[str, Any],
    ) -> Posted:
        """:meth:`post` in a transaction of the store, after ``app.sync``.

        After the commit, the caller passes the result to :meth:`tell_posted`.
        """
        self.declare()
        if self._key is None:
            self._key = str(tx.one(SQL.find_outbox_key)["key"])
        rows = self._prepare(intents, org_id)
        return run(tx, prepare(self, rows, org_id=org_id, options=options).steps())

    def tell_posted(self, posted: Posted) -> None:
        """Emit the events of committed messages, and wake the workers that deliver them."""
        announce_posted(self, posted, is_committed=True)

    def _borrowed_steps(self, conn: Any, rows: Sequence[dict[str, Any]]) -> Steps[list[Intended]]:
        yield from self.app.declared_steps(conn)
        return (yield from intending.insert_steps(rows))

    def _prepare(
        self,
        intents: Sequence[OutgoingMessage],
        org_id: str | None,
        context: RequestContext | None = None,
    ) -> list[dict[str, Any]]:
        # Ids are created once, so that a repeated transaction writes the same rows.
        if not isinstance(intents, Sequence) or any(
            not isinstance(one, OutgoingMessage) for one in intents
        ):
            raise InvalidDelivery({"deliveries": "must be a list of OutgoingMessage"})
        ids = self.app.ids.take(len(intents))
        now = self.app.clock.now()
        origin = with_context(find_origin(org_id, self.app.ids), context or {})
        rows = intending.prepare(intents, ids, origin, self.key, now=now)
        bad = {
            f"deliveries[{place}]": says
            for place, one in enumerate(intents)
            if (says := self._problem(one))
        }
        if bad:
            raise InvalidDelivery(bad)
        return rows

    def _problem(self, one: OutgoingMessage) -> str | None:
        content = one.content
        return self.channels.problem(one.channel, one.address, content.subject, content.text)

    def emit_events(self, intended: Sequence[Intended]) -> list[Intended]:
        """Emit the events of committed messages."""
        for one in intended:
            if one.created:
                where = (one.id, one.org_id, one.channel, DeliveryChange.INTENDED)
                self.app.events.emit(DeliveryChanged(*where, **one.about))
            if one.differs:
                what = (DeliveryTrouble.DIFFERS, one.id, one.org_id)
                self.app.events.emit(DeliveryAlert(one.channel, *what, **one.about))
        return list(intended)

    # -- notifying

    def template(self, name: str, *, subject: str, text: str, html: str | None = None) -> None:
        """Declare a template for :meth:`notify`."""
        self.declare()
        self.templates.add(Template.read(name, subject=subject, text=text, html=html))

    def notify(
        self,
        template: str,
        recipient: str,
        data: Mapping[str, Any],
        *,
        channel: str,
        org_id: str | None = None,
        conn: Any = None,
        **options: Unpack[NotificationOptions],
    ) -> Intended | None:
        """Send *recipient* a template rendered with *data*, once per bucket.

        This is best effort: it returns None if the store is unavailable, and the caller's
        transaction (*conn*) continues. An invalid request raises InvalidDelivery.
        """
        given = (self.templates.get(template), recipient, data)
        now = self.app.clock.now()
        made = compose(*given, org_id=org_id, channel=channel, now=now, options=options)
        return notify(self, made, org_id=org_id, conn=conn)

    async def anotify(
        self,
        template: str,
        recipient: str,
        data: Mapping[str, Any],
        *,
        channel: str,
        org_id: str | None = None,
        conn: Any = None,
        **options: Unpack[NotificationOptions],
    ) -> Intended | None:
        """:meth:`notify` for callers on an event loop."""
        given = (self.templates.get(template), recipient, data)
        now = self.app.clock.now()
        made = compose(*given, org_id=org_id, channel=channel, now=now, options=options)
        return await anotify(self, made, org_id=org_id, conn=conn)

    @property
    def feed(self) -> Feed:
        """The in-app feeds of recipients."""
        return Feed(lambda: self.store)

    def erase(self, recipient: str, *, org_id: str, actor: Actor | str = SYSTEM) -> Erased:
        """Delete all sent and pending messages of a recipient."""
        return erase_recipient(self.store, recipient, org_id=org_id, actor=read_actor(actor))

    # -- reading and delivering

    def list_of_job(self, job: Any) -> list[Delivery]:
        """Return the deliveries of a job. *job* is anything with org_id and id."""
        rows = self.store.many(SQL.list_of_job, org_id=str(job.org_id), job_id=str(job.id))
        return [Delivery.from_row(row) for row in rows]

    def find(self, ids: Sequence[str], *, org_id: str) -> list[Delivery]:
        """Return these deliveries of a tenant. Unknown ids are left out."""
        named = [
            {"home": read_id("org_id", org_id), "delivery_id": read_id("ids", one)} for one in ids
        ]
        if not named:
            return []
        rows = self.store.many(SQL.list_named, named=named)
        return [Delivery.from_row(row) for row in rows]

    def deliver(self, ids: Sequence[str], *, org_id: str, worker_id: str = "") -> PassCounts:
        """Send, look up or mark these deliveries now. Safe to call concurrently."""
        keys = [(read_id("org_id", org_id), read_id("ids", one)) for one in ids]
        return deliver_once(self, keys, worker_id=worker_id)

    def wait_for(
        self, job: Context, ids: Sequence[str], *, with_held: bool = True
    ) -> list[Delivery]:
        """Return these deliveries of *job* once none is pending or held. For handlers.

        Until then it raises Snooze: the job waits without using an attempt, and is woken when a
        delivery ends.
        """
        return wait_for(self, job, [read_id("ids", one) for one in ids], with_held=with_held)

    def reconcile(self, *, limit: int = 100, worker_id: str = "") -> PassCounts:
        """Run one pass over deliveries that are unclear, abandoned, or marked without proof."""
        return reconcile_once(self, limit=limit, worker_id=worker_id)

    def _perform(self, job: Context, payload: Mapping[str, Any]) -> dict[str, int]:
        """Run the job ``outbox.deliver``. Each delivery has its own attempt budget and pauses."""
        ids = [str(one) for one in payload["deliveries"]]
        for at in range(0, len(ids), PAGE):
            job.raise_if_canceled()
            self.deliver(ids[at : at + PAGE], org_id=job.org_id, worker_id=job.job.claimed_by)
        found = self.wait_for(job, ids, with_held=False)
        failed = [one.id for one in found if one.state is State.FAILED and one.is_required]
        if failed:
            raise DeliveryFailed(delivery_id=failed[0], failed=len(failed))
        return {str(state): sum(one.state is state for one in found) for state in State}
