"""What comes back for one item: a reply, or a failure in our own words."""

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
    def all_input(self) -> int:
        """The tokens of the whole input, cached or not."""
        return self.input + self.cache_read + self.cache_write_short + self.cache_write_long


class FailureKind(StrEnum):
    """What kind of failure it is, and so what becomes of the job."""

    # The provider's own trouble: tried again, charged.
    TRANSIENT = "transient"
    # It expired or was canceled before it ran: tried again, charged.
    NOT_RUN = "not_run"
    # The account has no room just then: given back, not charged.
    CAPACITY = "capacity"
    # Key, quota or credit: given back, not charged; the account's circuit opens.
    ACCOUNT = "account"
    # The request itself is wrong: dead.
    INVALID = "invalid"
    # The model or its provider refuses the content: dead.
    POLICY = "policy"
    # The answer was cut off at its limit: dead.
    TRUNCATED = "truncated"
    # There is an answer and it is not what was asked for: dead.
    OUTPUT_INVALID = "output_invalid"
    # Twice and different, or not there at all: dead, and somebody is told.
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
    """No answer, and why: a stable code of ours or the provider's, never its message.

    *usage* is set where it was billed all the same.
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


@dataclass(frozen=True, slots=True)
class ItemAnswer:
    """One line of a batch's results. The digest tells two answers for one item apart."""

    custom_id: str
    answer: Answer
    digest: str
    # The line itself, for as long as its answer is on its way to its job.
    line: bytes = field(default=b"", repr=False, compare=False)


# The code of a refusal that a create got because its input is not seen yet, or not any more.
INPUT_NOT_FOUND = "input_not_found"
REDIRECTED, FOREIGN_REPLY, NO_ENDPOINT = "redirected", "foreign_reply", "no_such_endpoint"
TLS_FAILED, NAME_UNKNOWN = "tls_failed", "name_unknown"
WRONG_ADDRESS = frozenset({REDIRECTED, FOREIGN_REPLY, NO_ENDPOINT, TLS_FAILED, NAME_UNKNOWN})
"""Why an address is wrong: it leads elsewhere, something else answers there, it is not an endpoint,
its server cannot prove who it is, or its name is not known."""


class ProviderRefused(Exception):
    """The provider said no in its own envelope: what was asked for did not happen."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(f"{failure.kind}: {failure.code} ({failure.status})")
        self.failure = failure


class ProviderUnsure(Exception):
    """No answer that can be trusted: what was asked for may have happened, or may yet.

    *reason* is a word of ours: timeout, reset, status_502, not_json … *failure* is what the
    provider said where it did, as with a 500 in its own envelope; it may have acted all the same.
    *is_foreign* means that something else answered: a proxy, or a server at a wrong address.
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
        """Whether a server that is not the provider's answered; a gateway's 5xx may be passing."""
        return self.is_foreign and not self.reason.startswith("status_5")
