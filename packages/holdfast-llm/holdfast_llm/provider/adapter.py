"""The interface of a provider adapter, and the types it uses."""

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
class BatchTag:
    """The opaque name of a batch at the provider, identical on every worker."""

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


class BatchPhase(StrEnum):
    """Progress of a provider batch. An unknown status counts as RUNNING and raises an alert."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELED = "canceled"

    @property
    def is_over(self) -> bool:
        return self is not BatchPhase.RUNNING


@dataclass(frozen=True, slots=True)
class ProviderBatch:
    """A batch as the provider reports it."""

    provider_batch_id: str
    phase: BatchPhase
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


class ProviderClient(Protocol):
    """An HTTP client for one account: guarded, with timeouts, without automatic retries.

    Paths are relative to the account's base_url; with a leading slash, to its origin. Every call
    raises ProviderRefused if the provider refuses in its own error envelope or if no connection
    was made, and ProviderUnsure for any other failure.
    """

    def request(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        content: Iterator[bytes] | bytes | None = None,
    ) -> ProviderResponse: ...

    def stream(
        self, method: str, path: str, *, query: Mapping[str, str] | None = None
    ) -> AbstractContextManager[Iterator[bytes]]:
        """The body in pieces; leaving early or a body cut short raises ProviderUnsure."""


@dataclass(frozen=True, slots=True)
class ProviderResponse:
    """A successful response: JSON, lower-case headers, and the retry delay if there is one."""

    json: Any
    headers: Mapping[str, str]
    retry_after: float | None = None


class Adapter(Protocol):
    """One provider's API. Everything about one item is pure; only the calls take a client."""

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

    def call(self, client: ProviderClient, route: Route, body: Mapping[str, Any]) -> Answer:
        """One direct call; a failure in the provider's envelope is returned, not raised."""

    # -- a batch

    def upload(self, client: ProviderClient, tag: BatchTag, content: Content) -> str | None:
        """Send the input and return its file's id; None where the body goes with the create."""

    def create(
        self,
        client: ProviderClient,
        route: Route,
        tag: BatchTag,
        file_id: str | None,
        content: Content,
    ) -> ProviderBatch:
        """Create the batch, once. ProviderRefused: nothing was made. ProviderUnsure: perhaps."""

    def get(self, client: ProviderClient, provider_batch_id: str) -> ProviderBatch: ...

    def scan(self, client: ProviderClient, since: datetime) -> Iterator[ProviderBatch]:
        """Batches of the account made after *since*, newest first; all pages."""

    def cancel(self, client: ProviderClient, provider_batch_id: str) -> None: ...

    def read(self, client: ProviderClient, file: str) -> AbstractContextManager[Iterator[bytes]]:
        """The bytes of one of ``ProviderBatch.result_files``."""

    def find_file(self, client: ProviderClient, tag: BatchTag) -> str | None:
        """The id of an input that was uploaded under *tag* before, if it can be found."""

    def delete_file(self, client: ProviderClient, file_id: str) -> None:
        """Delete a file; one that is not there counts as deleted."""

    def delete_batch(self, client: ProviderClient, provider_batch_id: str) -> None:
        """Delete a batch and its results where the provider can; otherwise nothing."""
