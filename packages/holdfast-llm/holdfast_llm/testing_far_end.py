"""Base class for tests of a provider adapter: a test server, and common steps."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, ClassVar

import pytest

from holdfast.outbound.client import Timeouts
from holdfast_llm.provider.adapter import (
    BatchTag,
    Content,
    Lookup,
    ProviderBatch,
    ProviderClient,
    ProviderResponse,
)
from holdfast_llm.provider.http_client import HttpAdapter, open_client
from holdfast_llm.provider.lines import Overlong, split
from holdfast_llm.provider.reply import (
    Answer,
    Failure,
    FailureKind,
    ItemAnswer,
    ProviderRefused,
    Reply,
)
from holdfast_llm.provider.request import Request
from holdfast_llm.provider.route import Route

CREDENTIAL = "sk-conformance-4f1d8a"
TEXTS = tuple(f"canary-{number}-of-one-person" for number in range(4))
TAG = BatchTag("k7q2m9x4r5t6w3z7a2b3c4d5e6", 1, "conformance")
QUICK = Timeouts(connect=5, read=5, write=5, pool=5)


class ProviderFault(StrEnum):
    """The behavior of the test server on the next call or batch."""

    # Creates the batch and closes the connection without an answer.
    LOSE_ANSWER = "accept_then_reset"
    # Answers 429 with Retry-After: 7.
    THROTTLE = "rate_limited"
    # Answers 401.
    REFUSE_CREDENTIAL = "key_rotated"
    # Answers 413.
    REFUSE_SIZE = "too_large"
    # Shows the batch with a status that the provider does not document.
    UNKNOWN_STATUS = "unknown_status"
    # Ends the batch after half of its items: it expires, or the provider cancels it.
    EXPIRE = "expired_partial"
    CANCEL = "canceled_partial"
    # Returns results in another order, with one broken line, without one line, with one line
    # twice, or with two different lines for one item.
    SHUFFLE = "shuffled"
    GARBLE_LINE = "odd_lines"
    OMIT_LINE = "missing_line"
    REPEAT_LINE = "duplicate_identical"
    CONTRADICT_LINE = "duplicate_conflicting"
    # Fails one item.
    FAIL_ITEM = "item_error"
    # Closes the connection in the middle of the results.
    CUT_RESULTS = "truncated_download"
    # Leaves the usage out of one reply.
    OMIT_USAGE = "odd_usage"


@dataclass(slots=True)
class CollectedBatch:
    """An ended batch with its results."""

    batch: ProviderBatch
    answers: list[ItemAnswer] = field(default_factory=list)
    bad_lines: int = 0

    @property
    def replies(self) -> dict[str, Reply]:
        return {one.custom_id: one.answer for one in self.answers if isinstance(one.answer, Reply)}

    @property
    def failures(self) -> dict[str, Failure]:
        return {
            one.custom_id: one.answer for one in self.answers if isinstance(one.answer, Failure)
        }


class ProviderUnderTest:
    """The adapter, its test server, and the steps of the tests."""

    model: ClassVar[str] = "gpt-5.2"
    """A model that the test server knows."""

    faults: ClassVar[frozenset[ProviderFault]] = frozenset(ProviderFault)
    """The faults that :meth:`play` supports. Tests of other faults are skipped."""

    bad_addresses: ClassVar[tuple[str, ...]] = ()
    """URLs that the settings of this kind must refuse, in addition to the common ones."""

    retry_after: ClassVar[float | None] = 7.0
    """The retry delay that the adapter reads from a throttled answer; None if it has no such field.
    """

    # -- defined by subclasses

    def make_adapter(self) -> HttpAdapter:
        """The adapter that the entry point registers."""
        raise NotImplementedError

    def base_url(self) -> str:
        """The URL of the test server."""
        raise NotImplementedError

    def play(self, fault: ProviderFault, on: str | None = None) -> None:
        """Make the test server behave like this once. With *on*, at a "create" or at a "call"."""
        raise NotImplementedError

    def count_batches(self) -> int:
        """The number of batches that the test server has created."""
        raise NotImplementedError

    def start_batches(self) -> None:
        """Advance the test server's time so that batches run but do not end."""

    def finish_batches(self) -> None:
        """Advance the test server's time so that every batch ends."""
        raise NotImplementedError

    def error_document(self, message: str) -> Any:
        """The JSON of an error with this message, in the provider's format."""
        raise NotImplementedError

    def now(self) -> datetime:
        """The time at the test server."""
        return datetime.now(UTC)

    def billed_tokens(self) -> tuple[int, int] | None:
        """All billed input and output tokens of the test server; None if unknown."""
        return None

    # -- test steps

    def _route(self, adapter: HttpAdapter) -> Route:
        return Route("conformance", adapter.kind, self.model)

    def _body(self, adapter: HttpAdapter, text: str) -> dict[str, Any]:
        return adapter.body(self._route(adapter), Request(inputs=(text,), instructions="Be kind."))

    def _lines(self) -> list[bytes]:
        adapter = self.make_adapter()
        route = self._route(adapter)
        return [
            adapter.line(route, f"item-{place}", self._body(adapter, text))
            for place, text in enumerate(TEXTS)
        ]

    def _content(self, adapter: HttpAdapter) -> Content:
        data = b"".join(self._lines())
        digest = hashlib.sha256(data).hexdigest()
        return Content(len(data), digest, len(TEXTS), lambda: iter([data]))

    def _client(self, adapter: HttpAdapter) -> ProviderClient:
        return open_client(adapter, self.base_url(), CREDENTIAL, allow_private=True, timeouts=QUICK)

    def _since(self) -> datetime:
        return self.now() - timedelta(minutes=10)

    def _submit(self, adapter: HttpAdapter, client: ProviderClient | None = None) -> ProviderBatch:
        client = client or self._client(adapter)
        content = self._content(adapter)
        file_id = adapter.upload(client, TAG, content)
        return adapter.create(client, self._route(adapter), TAG, file_id, content)

    def _call(self, adapter: HttpAdapter) -> Answer:
        client = self._client(adapter)
        return adapter.call(client, self._route(adapter), self._body(adapter, TEXTS[0]))

    def _play(self, fault: ProviderFault, on: str | None = None) -> None:
        if fault not in self.faults:
            pytest.skip(f"the far end of this test cannot play {fault.name}")
        self.play(fault, on)

    def _call_during(self, fault: ProviderFault) -> Answer:
        self._play(fault, "call")
        return self._call(self.make_adapter())

    def _refused(self, fault: ProviderFault) -> Failure:
        self._play(fault, "create")
        with pytest.raises(ProviderRefused) as refused:
            self._submit(self.make_adapter())
        assert self.count_batches() == 0
        return refused.value.failure

    def _collect_during(self, fault: ProviderFault) -> CollectedBatch:
        adapter = self.make_adapter()
        self._play(fault)
        return self._collect(adapter, self._submit(adapter))

    def _collect(self, adapter: HttpAdapter, made: ProviderBatch) -> CollectedBatch:
        client = self._client(adapter)
        self.finish_batches()
        found = CollectedBatch(adapter.get(client, made.provider_batch_id))
        for file in found.batch.result_files:
            with adapter.read(client, file) as pieces:
                for line in split(pieces):
                    assert not isinstance(line, Overlong)
                    try:
                        found.answers.append(adapter.parse(line))
                    except ValueError:
                        found.bad_lines += 1
        return found

    def _assert_tagged(self, adapter: HttpAdapter, listed: ProviderBatch) -> None:
        if adapter.capabilities.lookup is Lookup.KEY:
            tag = (listed.key, listed.attempt, listed.environment)
            assert tag == (TAG.key, TAG.attempt, TAG.environment)

    def _assert_counts(self, found: CollectedBatch) -> None:
        """Check the counts. A count that the provider does not state is None and not 0."""
        assert found.batch.total == len(TEXTS)
        if found.batch.result_files:
            assert found.batch.succeeded in (None, len(found.replies))

    def _assert_not_run(self, found: CollectedBatch) -> None:
        kinds = {failure.kind for failure in found.failures.values()}
        assert kinds <= {FailureKind.NOT_RUN}, "items that did not run are sent again"


class RecordingClient:
    """Records the targets of calls."""

    def __init__(self, inner: ProviderClient) -> None:
        self._inner = inner
        self.targets: list[tuple[str, str, Mapping[str, str] | None]] = []

    def request(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        content: Iterator[bytes] | bytes | None = None,
    ) -> ProviderResponse:
        """Send a request, and record its target."""
        self.targets.append((method, path, query))
        return self._inner.request(
            method, path, json=json, query=query, headers=headers, content=content
        )

    def stream(
        self, method: str, path: str, *, query: Mapping[str, str] | None = None
    ) -> AbstractContextManager[Iterator[bytes]]:
        """Read a body, and record its target."""
        self.targets.append((method, path, query))
        return self._inner.stream(method, path, query=query)
