"""Enqueue jobs in the transaction of a SQLAlchemy session, and start them after its commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from sqlalchemy import event
from sqlalchemy.orm import Session

from holdfast.declared_job import DeclaredJob
from holdfast.engine.enqueue import Enqueued

if TYPE_CHECKING:
    # Needs greenlet, which SQLAlchemy installs only with its extra asyncio.
    from sqlalchemy.ext.asyncio import AsyncSession

P = ParamSpec("P")
R = TypeVar("R")

# The queues whose workers are woken when the session commits.
_WAKE = "holdfast_wake"


def enqueue(
    session: Session, job: DeclaredJob[Any, P, Any, R], *args: P.args, **kwargs: P.kwargs
) -> Enqueued[R]:
    """Enqueue *job* in the transaction of *session*. Workers are woken when it commits.

    Pending objects are flushed first, so that their keys can be arguments.
    """
    session.flush()
    handle = job.configure(conn=session).enqueue(*args, **kwargs)
    _wake_after_commit(session, job)
    return handle


async def aenqueue(
    session: AsyncSession, job: DeclaredJob[Any, P, Any, R], *args: P.args, **kwargs: P.kwargs
) -> Enqueued[R]:
    """:func:`enqueue` for an asynchronous session."""
    await session.flush()
    handle = await job.configure(conn=session).aenqueue(*args, **kwargs)
    _wake_after_commit(session.sync_session, job)
    return handle


def _wake_after_commit(session: Session, job: DeclaredJob[Any, Any, Any, Any]) -> None:
    """Wake the workers of the queue after the commit: before it, they would find nothing."""
    hf = job.holdfast
    queue = job.options.get("queue") or hf.registry.get(job.job_type).queue
    wanted: dict[Any, set[str]] = session.info.setdefault(_WAKE, {})
    is_listening = bool(wanted)
    wanted.setdefault(hf, set()).add(queue)
    if is_listening:
        return

    def wake(_session: Session) -> None:
        for app, queues in session.info.pop(_WAKE, {}).items():
            app.wake(sorted(queues))

    def forget(_session: Session, *_rest: Any) -> None:
        session.info.pop(_WAKE, None)

    event.listen(session, "after_commit", wake, once=True)
    event.listen(session, "after_rollback", forget, once=True)
