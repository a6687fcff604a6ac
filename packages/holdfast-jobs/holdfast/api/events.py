"""Events: committed changes as server-sent events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Annotated, Any

from fastapi import Query, Request
from starlette.responses import Response, StreamingResponse

from holdfast.api.caller import CallerOf
from holdfast.api.models import NamedId
from holdfast.api.resource import Resource
from holdfast.api.streams import STREAMED, After, LastEventId, compact, open_stream
from holdfast.operate.changes import Change

router = Resource("events")

# A summary names at most this many subjects.
MOST_SUBJECTS = 100
SUMMARY_SECONDS = 0.25

Subjects = Annotated[
    list[str] | None,
    Query(
        alias="subject",
        max_length=100,
        description=(
            "Only changes of this subject: jobs, dead_letters, deliveries, rewrites, or one object,"
            " such as job:ID or queue:NAME. Repeat it for others."
        ),
    ),
]
Summary = Annotated[
    bool,
    Query(description="Send the changed subjects, at most four times a second, not each change."),
]


@router.read("", operation_id="stream_events", response_class=StreamingResponse, responses=STREAMED)
async def stream_events(
    request: Request,
    caller: CallerOf,
    subject: Subjects = None,
    org_id: NamedId | None = None,
    summary: Summary = False,
    after: After = None,
    last_event_id: LastEventId = None,
) -> Response:
    """Stream the committed changes of a tenant as server-sent events.

    Each event is named change and has the position as its id; Last-Event-ID continues there. The
    last event is named end and says why: access_ended, too_slow or shutting_down.
    """
    tenant = None if org_id is None else str(org_id)
    start = after if last_event_id is None else last_event_id

    def subscribe() -> Any:
        changes = caller.operator.changes
        return changes.subscribe(subject or [], org_id=tenant, after=start or None)

    return await open_stream(
        request,
        caller,
        subscribe,
        _summarize if summary else _each,
        pause=SUMMARY_SECONDS if summary else 0.0,
    )


def _each(changes: Sequence[Change]) -> Iterable[tuple[Change, str, Any]]:
    for change in changes:
        yield change, "change", _text(change)


# All streams of a tenant send the same text.
@lru_cache(maxsize=1_024)
def _text(change: Change) -> str:
    return compact(change.document())


def _summarize(changes: Sequence[Change]) -> Iterable[tuple[Change, str, Any]]:
    found = sorted({name for change in changes for name in _topics(change)})
    document = {"subjects": found[:MOST_SUBJECTS], "is_complete": len(found) <= MOST_SUBJECTS}
    yield changes[-1], "changed", document


def _topics(change: Change) -> Iterable[str]:
    yield change.subject
    yield from change.topics
    if change.queue is not None:
        yield f"queue:{change.queue}"
