"""A call of the API without a transport, and what both clients share.

``calls`` has the calls, which both clients run. A test compares them with the OpenAPI document.
"""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import quote

from holdfast.client.models import Event, RewriteEvent, read
from holdfast.client.problems import ApiError, StreamEnded

T = TypeVar("T")

ATTEMPTS = 4
FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 10.0
# Three heartbeats: a stream that is silent for longer is dead.
SILENCE_SECONDS = 50.0
RETRIED = frozenset({429, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request, and how its answer is read."""

    operation_id: str
    method: str
    path: str
    read: Callable[[Any], T]
    names: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None

    @property
    def target(self) -> str:
        """The path with its names filled in."""
        return self.path.format(
            **{name: quote(value, safe="") for name, value in self.names.items()}
        )

    @property
    def params(self) -> tuple[tuple[str, str], ...]:
        """The query without what is not set."""
        found: list[tuple[str, str]] = []
        for name, value in self.query.items():
            listed = value if isinstance(value, (list, tuple)) else [value]
            found += [(name, _text(one)) for one in listed if one is not None]
        return tuple(found)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if isinstance(value, date) else str(value)


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a listing. *next* is the cursor of the following page."""

    items: tuple[T, ...]
    next: str | None


def read_page(model: type[T], found: Any) -> Page[T]:
    """Read one page of a listing."""
    return Page(tuple(read(model, one) for one in found["items"]), found["next"])


class Caller(Protocol):
    """Makes calls: the synchronous client."""

    def call(self, call: Call[T]) -> T: ...


class AsyncCaller(Protocol):
    """Makes calls: the asynchronous client."""

    async def call(self, call: Call[T]) -> T: ...


class NotGiven(Enum):
    """The type of :data:`NOT_GIVEN`: a field that is left out. None is sent as null."""

    NOT_GIVEN = "not given"


NOT_GIVEN = NotGiven.NOT_GIVEN


def given(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The body of a request without the fields that are left out."""
    return {name: _json(value) for name, value in fields.items() if value is not NOT_GIVEN}


def _json(value: Any) -> Any:
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {name: _json(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json(one) for one in value]
    return value


def new_key() -> str:
    """A new idempotency key, so that a repeated request is the same job."""
    return f"client:{uuid.uuid4()}"


def stream_events(
    subjects: Sequence[str] = (), *, org_id: str | None = None, after: str | None = None
) -> Call[Event]:
    """Stream committed changes, from *after* or from now on."""
    headers = {"Accept": "text/event-stream"}
    if after is not None:
        headers["Last-Event-ID"] = after
    query = {"subject": list(subjects), "org_id": org_id}
    return Call(
        "stream_events",
        "GET",
        "/v1/events",
        lambda found: read(Event, found),
        query=query,
        headers=headers,
    )


def stream_rewrites(
    user_id: str, *, home_id: str | None = None, after: str | None = None
) -> Call[RewriteEvent]:
    """Stream the states of the messages that a person sends and receives."""
    headers = {"Accept": "text/event-stream"}
    if after is not None:
        headers["Last-Event-ID"] = after
    return Call(
        "stream_rewrites",
        "GET",
        "/v1/rewrites/events",
        lambda found: read(RewriteEvent, found),
        query={"user_id": user_id, "home_id": home_id},
        headers=headers,
    )


def pause_after(attempt: int, retry_after: str | None, rng: random.Random) -> float:
    """How long to wait before the next attempt: what the server says, or longer each time."""
    if retry_after is not None and retry_after.isdecimal():
        return min(float(retry_after), LONGEST_PAUSE_SECONDS)
    longest = min(FIRST_PAUSE_SECONDS * 2**attempt, LONGEST_PAUSE_SECONDS)
    return rng.uniform(longest / 2, longest)


class EventReader(Generic[T]):
    """Reads server-sent events from bytes, and keeps the position to resume from.

    Events with another name than *name* are left out.
    """

    def __init__(self, after: str | None, model: type[T], name: str = "change") -> None:
        self.position = after
        self._model, self._name = model, name
        self.retry_seconds = 2.0
        # Whether the server said farewell.
        self.has_ended = False
        self._text = b""
        self._fields: dict[str, list[str]] = {}

    def begin(self) -> None:
        """Begin with a new connection. Half an event of the one before is dropped."""
        self._text, self._fields, self.has_ended = b"", {}, False

    def feed(self, part: bytes) -> Iterator[T]:
        """Yield the events that *part* completes. Raises StreamEnded."""
        *lines, self._text = (self._text + part).split(b"\n")
        for raw in lines:
            line = raw.rstrip(b"\r").decode("utf-8", "replace")
            if line:
                name, _, value = line.partition(":")
                self._fields.setdefault(name, []).append(value.removeprefix(" "))
                continue
            named, self._fields = self._fields, {}
            yield from self._dispatch(named)

    def _dispatch(self, named: Mapping[str, list[str]]) -> Iterator[T]:
        if "id" in named:
            self.position = named["id"][-1]
        if "retry" in named and named["retry"][-1].isdecimal():
            self.retry_seconds = int(named["retry"][-1]) / 1000
        if "data" not in named:
            return
        document = json.loads("\n".join(named["data"]))
        name = named.get("event", ["message"])[-1]
        if name == self._name:
            yield read(self._model, {**document, "position": self.position})
        elif name == "end":
            self.has_ended = True
            if document.get("reason") == "access_ended":
                raise StreamEnded(401, "access_ended", "The key of the stream is no longer valid.")


def is_repeated(error: ApiError) -> bool:
    """Whether a call that got this error is made again. A change has the same idempotency key."""
    return error.status in RETRIED or error.code == "request_in_progress"


def is_final(error: ApiError) -> bool:
    """Whether a stream that got this error is not opened again."""
    return error.status not in RETRIED and error.status != 0
