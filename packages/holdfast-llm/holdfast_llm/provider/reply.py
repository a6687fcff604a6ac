"""The answer for one item: a reply, or a classified failure."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens by billing class. Reasoning tokens are listed separately and included in output."""

    input: int = 0
    cache_read: int = 0
    cache_write_short: int = 0
    cache_write_long: int = 0
    output: int = 0
    reasoning: int = 0

    @property
    def by_class(self) -> tuple[int, int, int, int, int]:
        """The billed classes, in the order of their prices."""
        return (
            self.input,
            self.cache_read,
            self.cache_write_short,
            self.cache_write_long,
            self.output,
        )

    @property
    def all_input(self) -> int:
        """All input tokens, cached or not."""
        return self.input + self.cache_read + self.cache_write_short + self.cache_write_long


class FailureKind(StrEnum):
    """The kind of a failure, which determines the outcome of the job."""

    # A provider error: retried, counts as an attempt.
    TRANSIENT = "transient"
    # It expired or was canceled before it ran: retried, counts as an attempt.
    NOT_RUN = "not_run"
    # The account is at capacity: released without an attempt.
    CAPACITY = "capacity"
    # Key, quota or credit: released without an attempt; the account's circuit opens.
    ACCOUNT = "account"
    # The request itself is invalid: dead-lettered.
    INVALID = "invalid"
    # The model or its provider refuses the content: dead-lettered.
    POLICY = "policy"
    # The answer was cut off at its limit: dead-lettered.
    TRUNCATED = "truncated"
    # The answer does not match the request: dead-lettered.
    OUTPUT_INVALID = "output_invalid"
    # Contradicting answers, or a missing one: dead-lettered with an alert.
    INTEGRITY = "integrity"


@dataclass(frozen=True, slots=True)
class Reply:
    """The complete answer of a model. *data* is the requested object, if one was requested."""

    text: str = field(repr=False)
    model: str
    usage: Usage | None = None
    provider_request_id: str | None = None
    finished_at: datetime | None = None
    data: Any = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Failure:
    """The reason for a missing answer: a stable code, never the provider's message.

    *usage* is set if it was billed anyway.
    """

    kind: FailureKind
    code: str
    status: int | None = None
    usage: Usage | None = None
    model: str | None = None
    provider_request_id: str | None = None
    retry_after: float | None = None
    finished_at: datetime | None = None


Answer = Reply | Failure


# Not frozen: there is one for every line.
@dataclass(slots=True)
class ItemAnswer:
    """One line of a batch's results. The digest distinguishes two answers for one item."""

    custom_id: str
    answer: Answer
    digest: str
    # The raw line, until its answer is stored.
    line: bytes = field(default=b"", repr=False, compare=False)


# The code of a refused create whose input is not visible yet, or was deleted.
INPUT_NOT_FOUND = "input_not_found"
REDIRECTED, FOREIGN_REPLY, NO_ENDPOINT = "redirected", "foreign_reply", "no_such_endpoint"
TLS_FAILED, NAME_UNKNOWN = "tls_failed", "name_unknown"
WRONG_ADDRESS = frozenset({REDIRECTED, FOREIGN_REPLY, NO_ENDPOINT, TLS_FAILED, NAME_UNKNOWN})
"""Why a base URL is wrong.

It redirects, another server answers, it is not an endpoint, its certificate is invalid, or its name
does not exist.
"""


class ProviderRefused(Exception):
    """The provider refused in its own envelope: the request had no effect."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(f"{failure.kind}: {failure.code} ({failure.status})")
        self.failure = failure


class ProviderUnsure(Exception):
    """No reliable answer: the request may have or may still take effect.

    *reason* is a code of Holdfast: timeout, reset, status_502, not_json … *failure* is the
    provider's error, if there is one, as with a 500 in its envelope; it may have acted anyway.
    *is_foreign* means that another server answered: a proxy, or a server at a wrong URL.
    """

    def __init__(
        self,
        reason: str,
        *,
        retry_after: float | None = None,
        failure: Failure | None = None,
        is_foreign: bool = False,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry_after = retry_after
        self.failure = failure
        self.is_foreign = is_foreign

    @property
    def is_wrong_address(self) -> bool:
        """Whether another server than the provider's answered; a gateway's 5xx may be temporary."""
        return self.is_foreign and not self.reason.startswith("status_5")
