"""Notify: enqueue as best effort. A failing notification never fails the caller's write."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from holdfast.engine.category import CategoryRules
from holdfast.engine.handler import Handler
from holdfast.engine.job import current
from holdfast.engine.request import Options
from holdfast.errors import InvalidJob, RuleBroken
from holdfast.event import Events, NotificationDropped
from holdfast.store.savepoint import asavepoint, is_store_failure, savepoint

_log = logging.getLogger("holdfast.notify")


class NotifyOptions(Options, total=False):
    """The keywords of :meth:`Holdfast.notify`: all that an enqueue takes."""

    org_id: str | None
    conn: Any


@contextmanager
def best_effort(handler: Handler, options: NotifyOptions, events: Events) -> Iterator[None]:
    """Suppress store errors and emit an event; an invalid request is raised.

    Only the notification's writes on the caller's connection are rolled back.
    """
    _check(handler)
    try:
        with savepoint(options.get("conn")):
            yield
    except Exception as exc:
        _drop(exc, handler, options, events)


@asynccontextmanager
async def abest_effort(
    handler: Handler, options: NotifyOptions, events: Events
) -> AsyncIterator[None]:
    """The asynchronous form of :func:`best_effort`."""
    _check(handler)
    try:
        async with asavepoint(options.get("conn")):
            yield
    except Exception as exc:
        _drop(exc, handler, options, events)


def _check(handler: Handler) -> None:
    if handler.category.rules is not CategoryRules.NOTIFICATION:
        says = (
            f"{handler.job_type!r} is not a notification, and only notifications can be dropped;"
            " use enqueue"
        )
        raise InvalidJob({"job_type": says})


def _drop(exc: Exception, handler: Handler, options: NotifyOptions, events: Events) -> None:
    if not is_store_failure(exc):
        raise exc
    running = current.get()
    org = str(options.get("org_id")) if running is None else running.org_id
    reason = exc.rule if isinstance(exc, RuleBroken) else type(exc).__name__
    # Logged here, because most processes that notify are not workers and have no subscriber.
    fields = {"job_type": handler.job_type, "org_id": org, "reason": reason}
    _log.warning("notification.dropped", extra={"fields": fields})
    events.emit(NotificationDropped(handler.job_type, org, reason))
