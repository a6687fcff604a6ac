"""A typed client of the HTTP API, synchronous and asynchronous.

    from holdfast.client import Client

    with Client("https://jobs.example.com", key) as client:
        job = client.jobs.enqueue("order.ship", {"order": 42})
        for event in client.events(subjects=[f"job:{job.id}"]):
            print(event.state)

It needs the extra ``client``: ``pip install 'holdfast-jobs[client]'``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazy_names

if TYPE_CHECKING:
    from holdfast.client.asynchronous import AsyncClient as AsyncClient
    from holdfast.client.models import Event as Event
    from holdfast.client.models import RewriteEvent as RewriteEvent
    from holdfast.client.operations import NOT_GIVEN as NOT_GIVEN
    from holdfast.client.operations import Page as Page
    from holdfast.client.problems import AccessRefused as AccessRefused
    from holdfast.client.problems import ApiError as ApiError
    from holdfast.client.problems import Conflicting as Conflicting
    from holdfast.client.problems import Invalid as Invalid
    from holdfast.client.problems import Missing as Missing
    from holdfast.client.problems import StreamEnded as StreamEnded
    from holdfast.client.problems import TooManyRequests as TooManyRequests
    from holdfast.client.problems import Unavailable as Unavailable
    from holdfast.client.synchronous import Client as Client

__all__ = [
    "NOT_GIVEN",
    "AccessRefused",
    "ApiError",
    "AsyncClient",
    "Client",
    "Conflicting",
    "Event",
    "Invalid",
    "Missing",
    "Page",
    "RewriteEvent",
    "StreamEnded",
    "TooManyRequests",
    "Unavailable",
]

__getattr__ = lazy_names(
    __name__,
    {
        "holdfast.client.asynchronous": "AsyncClient",
        "holdfast.client.models": "Event RewriteEvent",
        "holdfast.client.operations": "NOT_GIVEN Page",
        "holdfast.client.problems": (
            "AccessRefused ApiError Conflicting Invalid Missing StreamEnded TooManyRequests"
            " Unavailable"
        ),
        "holdfast.client.synchronous": "Client",
    },
)
