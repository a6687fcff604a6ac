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
    """The limits of one batch of a provider; an account may have lower ones."""

    max_items: int
    max_bytes: int
    max_line_bytes: int = 1024 * 1024
    # Input tokens of all open batches of one model; None if unknown.
    enqueued_tokens: int | None = None


class Lookup(StrEnum):
    """How a batch that may have been created is looked up."""

    # By our tag in its metadata or name.
    KEY = "key"
    # By creation time and number of items; the listing has no tag.
    COUNT = "count"
    # There is no reliable listing.
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The capabilities of a server. A compatible server may differ from the original."""

    supports_batches: bool = True
    lookup: Lookup = Lookup.KEY
    # A property of the adapter: whether a batch reads a file, or its input is sent inline.
    has_input_file: bool = True
    # A create that names a deleted input file fails, so deleting it is the fence.
    can_delete_file: bool = True
    can_delete_batch: bool = False
    # Whether every answer must repeat an echo. None: those of a batch must, if the schema of the
    # request has a place for it. A request without an echo shares no batch with another tenant.
    wants_echo: bool | None = None


@dataclass(frozen=True, slots=True)
class BatchTag:
    """The opaque name of a batch at the provider, identical on every worker."""

    key: str
    attempt: int
    environment: str

    @property
    def file(self) -> str:
        """The file name: at most 40 characters of a-z, 0-9 and dashes."""
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
    # Our tag, attempt and environment, if the provider returns them.
    key: str | None = None
    attempt: int | None = None
    environment: str | None = None
    created_at: datetime | None = None
    expires_at: datetime | None = None
    input_file_id: str | None = None
    # Ids or URLs of the files to read, output and errors, in this order.
    result_files: tuple[str, ...] = ()
    total: int | None = None
    succeeded: int | None = None
    failed: int | None = None
    # Items that ended without a run, if the provider counts them separately.
    not_run: int | None = None
    # Why the whole batch failed, and the input lines, counted from 1, that are named as the cause.
    failure: Failure | None = None
    named_lines: tuple[int, ...] = ()
    usage: Usage | None = None
    poll_after: float | None = None


@dataclass(frozen=True, slots=True)
class Content:
    """The body of a batch: its exact size and hash, and a repeatable stream of its bytes."""

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
        """The body in pieces. Stopping early or a truncated body raises ProviderUnsure."""


@dataclass(frozen=True, slots=True)
class ProviderResponse:
    """A successful response: JSON, lower-case headers, and the retry delay if there is one."""

    json: Any
    headers: Mapping[str, str]
    retry_after: float | None = None


class Adapter(Protocol):
    """One provider's API. Everything about one item is pure; only network calls take a client."""

    @property
    def kind(self) -> str: ...
    @property
    def limits(self) -> Limits: ...
    @property
    def capabilities(self) -> Capabilities: ...

    # -- one item

    def body(self, route: Route, request: Request) -> dict[str, Any]:
        """The provider's request for one item. No call takes several items."""

    def line(self, route: Route, custom_id: str, body: Mapping[str, Any]) -> bytes:
        """One line of a batch's input with its newline, deterministic for the same item."""

    def parse(self, line: bytes) -> ItemAnswer:
        """Parse a line of results. Raises ValueError if it is invalid."""

    def call(self, client: ProviderClient, route: Route, body: Mapping[str, Any]) -> Answer:
        """Make one direct call; a failure in the provider's envelope is returned, not raised."""

    # -- a batch

    def upload(self, client: ProviderClient, tag: BatchTag, content: Content) -> str | None:
        """Upload the input and return its file id; None if the body is sent with the create."""

    def create(
        self,
        client: ProviderClient,
        route: Route,
        tag: BatchTag,
        file_id: str | None,
        content: Content,
    ) -> ProviderBatch:
        """Create the batch, once. ProviderRefused: it was not created. ProviderUnsure: unknown."""

    def get(self, client: ProviderClient, provider_batch_id: str) -> ProviderBatch: ...

    def scan(self, client: ProviderClient, since: datetime) -> Iterator[ProviderBatch]:
        """Batches of the account created after *since*, newest first; all pages."""

    def cancel(self, client: ProviderClient, provider_batch_id: str) -> None: ...

    def read(self, client: ProviderClient, file: str) -> AbstractContextManager[Iterator[bytes]]:
        """The bytes of one of ``ProviderBatch.result_files``."""

    def find_file(self, client: ProviderClient, tag: BatchTag) -> str | None:
        """The id of an input that was uploaded under *tag* before, if it can be found."""

    def delete_file(self, client: ProviderClient, file_id: str) -> None:
        """Delete a file; a missing file counts as deleted."""

    def delete_batch(self, client: ProviderClient, provider_batch_id: str) -> None:
        """Delete a batch and its results if the provider supports it; otherwise do nothing."""
