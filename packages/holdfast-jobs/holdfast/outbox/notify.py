"""Notify: send a rendered template to one recipient, as best effort.

The same template with the same data to the same recipient in the same bucket is sent once; these
values form the key of the job and of the delivery. A failed notification never fails the caller's
transaction.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypedDict, cast

from holdfast.actor import Actor
from holdfast.clock import read_instant, write_instant
from holdfast.document import stable_hash
from holdfast.engine import validation
from holdfast.engine.execute import current
from holdfast.engine.notify import NotifyOptions, abest_effort, best_effort
from holdfast.engine.request import DRIFT, Options
from holdfast.outbox.failure import InvalidDelivery
from holdfast.outbox.intend import (
    LARGEST_VERSION,
    Intended,
    OutgoingMessage,
    RequestContext,
    request_context,
)
from holdfast.outbox.post import JOB_TYPE
from holdfast.outbox.render import render
from holdfast.outbox.template import Template
from holdfast.store import Statements
from holdfast.store.caller_connection import is_awaiting
from holdfast.store.savepoint import is_store_failure

if TYPE_CHECKING:
    from holdfast.outbox.outbox import Outbox

SQL = Statements("holdfast.outbox", "delivery.sql")

_BUCKET = re.compile(r"[^\x00-\x1f\x7f-\x9f\ud800-\udfff]{1,100}")
_NO_TEXT = "must be one line of text"


class NotificationOptions(TypedDict, total=False):
    """Keyword arguments of :meth:`Outbox.notify`."""

    # The address in the channel; defaults to the recipient.
    address: str
    # The notification is not sent before this time.
    scheduled_for: datetime | None
    # Separates otherwise equal notifications, such as the date of a daily reminder.
    bucket: str | None
    # The actor, request and project of the notification.
    actor: Actor | str
    project_id: str | None
    request_id: str | None
    correlation_id: str | None


@dataclass(frozen=True, slots=True)
class Notification:
    """One notification, checked and rendered."""

    intent: OutgoingMessage = field(repr=False)
    # Derived from the recipient, the template, the data and the bucket; unique per tenant.
    key: str
    scheduled_for: datetime | None
    about: RequestContext = field(default_factory=RequestContext)

    @property
    def job_options(self) -> Options:
        options = cast("Options", {"idempotency_key": self.key, **self.about})
        if self.scheduled_for is not None:
            options["scheduled_for"] = self.scheduled_for
        return options


def compose(
    template: Template,
    recipient: str,
    data: Mapping[str, Any],
    *,
    org_id: str | None,
    channel: str,
    now: datetime,
    options: NotificationOptions,
) -> Notification:
    """Compose the notification. Raises InvalidDelivery that names every invalid field."""
    errors: dict[str, str] = {}
    if org_id is not None:
        validation.uuid("org_id", org_id, errors)
    unknown = set(options) - NotificationOptions.__optional_keys__
    errors |= dict.fromkeys(sorted(unknown), "is not an option of notify")
    if not isinstance(recipient, str) or not recipient or not recipient.isprintable():
        errors["recipient"] = _NO_TEXT
    due = _due(options.get("scheduled_for"), now, errors)
    bucket = _bucket(options.get("bucket"), due, errors)
    if errors:
        raise InvalidDelivery(errors)
    content = render(template, data)
    said = stable_hash(dict(data))
    intent = OutgoingMessage(
        subject=f"notification:{template.name}:{said}:{bucket}",
        recipient=recipient,
        version=1,
        channel=channel,
        address=options.get("address", recipient),
        content=content,
        not_before_at=due,
    )
    key = stable_hash("notification", recipient, template.name, said, bucket)
    return Notification(intent, key, due, request_context(options))


def _due(value: object, now: datetime, errors: dict[str, str]) -> datetime | None:
    if value is None:
        return None
    if not isinstance(value, datetime) or value.tzinfo is None:
        errors["scheduled_for"] = "must be a datetime with a time zone"
        return None
    due = value.astimezone(UTC)
    if not now - DRIFT <= due <= now + validation.FARTHEST:
        errors["scheduled_for"] = "must be from now on, and within five years"
    return due


def _bucket(value: object, due: datetime | None, errors: dict[str, str]) -> str:
    if value is None:
        # The same reminder for two times is two notifications.
        return "" if due is None else write_instant(due.replace(second=0, microsecond=0))
    if not isinstance(value, str) or not _BUCKET.fullmatch(value):
        errors["bucket"] = "must be one line of 1 to 100 characters"
        return ""
    return value


def renew(outbox: Outbox, notification: Notification, org_id: str | None) -> Notification:
    """Return *notification*, or a new version of it if the key of the last one has expired.

    Keys are kept for a time after the delivery has ended. Two processes that renew at once choose
    the same version, so it is still sent once.
    """
    job, intent = current.get(), notification.intent
    home = str(org_id) if job is None else job.org_id
    identity = {"org_id": home, "subject": intent.subject, "recipient": intent.recipient}
    row = outbox.store.maybe(SQL.find_latest, **identity)
    if row is None or row["version"] == LARGEST_VERSION:
        return notification
    version, ended_at = row["version"], row["ended_at"]
    lifetime = outbox.app.registry.category("notification").key_ttl
    if ended_at is not None and read_instant(ended_at) + lifetime <= outbox.app.clock.now():
        version += 1
    if version == 1:
        return notification
    # The key of the job must differ as well: its row may outlive its key.
    key = stable_hash(notification.key, version)
    return replace(notification, intent=replace(intent, version=version), key=key)


def notify(
    outbox: Outbox, notification: Notification, *, org_id: str | None, conn: Any
) -> Intended | None:
    """Store the notification and the job that delivers it; None if the store is unavailable."""
    given_to: NotifyOptions = {"org_id": org_id, "conn": conn}
    with best_effort(outbox.app.registry.get(JOB_TYPE), given_to, outbox.app.events):
        try:
            notification = renew(outbox, notification, org_id)
            return _only(
                outbox.post(
                    [notification.intent], org_id=org_id, conn=conn, **notification.job_options
                )
            )
        except Exception as exc:
            # Outside of a transaction it can be stored without a job. The reconciler delivers it if
            # no job can be enqueued.
            if conn is not None or current.get() is not None or not is_store_failure(exc):
                raise
            about = notification.about
            return _only(outbox.intend([notification.intent], org_id=org_id, **about))
    return None


async def anotify(
    outbox: Outbox, notification: Notification, *, org_id: str | None, conn: Any
) -> Intended | None:
    """:func:`notify` for callers on an event loop."""
    if not is_awaiting(conn):
        return await asyncio.to_thread(notify, outbox, notification, org_id=org_id, conn=conn)
    about: NotifyOptions = {"org_id": org_id, "conn": conn}
    async with abest_effort(outbox.app.registry.get(JOB_TYPE), about, outbox.app.events):
        notification = await asyncio.to_thread(renew, outbox, notification, org_id)
        options = notification.job_options
        posted = await outbox.apost([notification.intent], org_id=org_id, conn=conn, **options)
        return _only(posted)
    return None


def _only(intended: Sequence[Intended]) -> Intended:
    (one,) = intended
    return one
