"""What every provider can do for us, each in its own words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

from holdfast_llm.provider.reply import Answer, Failure, ItemAnswer, Usage
from holdfast_llm.provider.request import Request
from holdfast_llm.provider.route import Route


@dataclass(frozen=True, slots=True)
class Limits:
    """What fits into one batch of a provider; an account may have lower ones."""

    max_items: int
    max_bytes: int
    max_line_bytes: int = 1024 * 1024
    # Input tokens of all batches that have not ended, of one model; None where nobody says.
    enqueued_tokens: int | None = None


class Lookup(StrEnum):
    """How a batch that we may have made can be found again."""

    # Our key stands in its metadata or name.
    KEY = "key"
    # Nothing of ours is in the listing: only time and number of items can be compared.
    COUNT = "count"
    # There is no listing that could be relied on.
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a server can be relied on for; a compatible one may differ from its model."""

    supports_batches: bool = True
    lookup: Lookup = Lookup.KEY
    # The adapter's own, no server's: whether a batch reads a file, or its input goes along.
    has_input_file: bool = True
    # A create that names a deleted input file cannot succeed: deleting it is the fence.
    can_delete_file: bool = True
    can_delete_batch: bool = False
    # Whether every answer must repeat an echo. None: those of a batch must, where the schema of the
    # request has a place for it; what cannot carry one shares no batch with another tenant.
    wants_echo: bool | None = None


@dataclass(frozen=True, slots=True)
class Name:
    """How a batch is called at the provider: opaque, and the same from every worker."""

    key: str
    attempt: int
    environment: str

    @property
    def file(self) -> str:
        """At most 40 of a-z, 0-9 and dashes."""
        return f"hf-{self.key}-{self.attempt}"

    @property
    def metadata(self) -> dict[str, str]:
        return {"hf_key": self.key, "hf_try": str(self.attempt), "hf_env": self.environment}


class Phase(StrEnum):
    """How far a provider's batch is. An unknown word is RUNNING and worth an alert, no end."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELED = "canceled"

    @property
    def is_over(self) -> bool:
        return self is not Phase.RUNNING


@dataclass(frozen=True, slots=True)
class Seen:
    """A batch as the provider shows it."""

    provider_batch_id: str
    phase: Phase
    status: str
    is_known_status: bool = True
    # Our key, try and environment, where the provider gives them back.
    key: str | None = None
    attempt: int | None = None
    environment: str | None = None
    created_at: datetime | None = None
    expires_at: datetime | None = None
    input_file_id: str | None = None
    # Ids or addresses of the files to read, output and errors, in this order.
    result_files: tuple[str, ...] = ()
    total: int | None = None
    succeeded: int | None = None
    failed: int | None = None
    # Items that ended without a run, where the provider counts them apart.
    not_run: int | None = None
    # Why the whole batch failed, and the lines of its input, from 1, that are called the reason.
    failure: Failure | None = None
    named_lines: tuple[int, ...] = ()
    usage: Usage | None = None
    poll_after: float | None = None


@dataclass(frozen=True, slots=True)
class Content:
    """The body of a batch: its exact size and hash, and as often as needed its bytes."""

    size: int
    sha256: str
    items: int
    chunks: Callable[[], Iterator[bytes]]


class Wire(Protocol):
    """An HTTP connection to one account: guarded, bounded in time, never retried by itself.

    Paths are relative to the account's base_url; with a leading slash, to its origin. Every call
    raises ProviderRefused for a refusal in the provider's own error envelope and where no
    connection came about, and ProviderUnsure for anything else that is not a success.
    """

    def ask(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        content: Iterator[bytes] | bytes | None = None,
    ) -> WireAnswer: ...

    def stream(
        self, method: str, path: str, *, query: Mapping[str, str] | None = None
    ) -> AbstractContextManager[Iterator[bytes]]:
        """The body in pieces; leaving early or a body cut short raises ProviderUnsure."""


@dataclass(frozen=True, slots=True)
class WireAnswer:
    """A successful answer: its JSON, its headers in lower case, and when to ask again."""

    json: Any
    headers: Mapping[str, str]
    retry_after: float | None = None


class Adapter(Protocol):
    """One provider's API. Everything about one item is pure; only the calls take a wire."""

    @property
    def kind(self) -> str: ...
    @property
    def limits(self) -> Limits: ...
    @property
    def capabilities(self) -> Capabilities: ...

    # -- one item

    def body(self, route: Route, request: Request) -> dict[str, Any]:
        """The provider's request for one item. There is no call that takes several."""

    def line(self, route: Route, custom_id: str, body: Mapping[str, Any]) -> bytes:
        """One line of a batch's input with its newline: the same bytes for the same item."""

    def parse(self, line: bytes) -> ItemAnswer:
        """What a line of results says; ValueError if it is not one."""

    def call(self, wire: Wire, route: Route, body: Mapping[str, Any]) -> Answer:
        """One direct call; a failure in the provider's envelope is returned, not raised."""

    # -- a batch

    def upload(self, wire: Wire, name: Name, content: Content) -> str | None:
        """Send the input and return its file's id; None where the body goes with the create."""

    def create(
        self, wire: Wire, route: Route, name: Name, file_id: str | None, content: Content
    ) -> Seen:
        """Create the batch, once. ProviderRefused: nothing was made. ProviderUnsure: perhaps."""

    def get(self, wire: Wire, provider_batch_id: str) -> Seen: ...

    def scan(self, wire: Wire, since: datetime) -> Iterator[Seen]:
        """Batches of the account made after *since*, newest first; all pages."""

    def cancel(self, wire: Wire, provider_batch_id: str) -> None: ...

    def read(self, wire: Wire, file: str) -> AbstractContextManager[Iterator[bytes]]:
        """The bytes of one of ``Seen.result_files``."""

    def find_file(self, wire: Wire, name: Name) -> str | None:
        """The id of an input that was uploaded under *name* before, if it can be found."""

    def delete_file(self, wire: Wire, file_id: str) -> None:
        """Delete a file; one that is not there counts as deleted."""

    def delete_batch(self, wire: Wire, provider_batch_id: str) -> None:
        """Delete a batch and its results where the provider can; otherwise nothing."""
