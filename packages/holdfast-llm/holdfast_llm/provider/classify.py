"""Classify a provider's error codes and statuses. Pure.

A code takes precedence over a status: 429 is either throttling or missing credit. Messages are read
only to distinguish missing credit from an invalid request, and are never stored: providers repeat
prompts in them.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime
from typing import Any

from holdfast_llm.provider.reply import Answer, Failure, FailureKind, Reply, Usage

_ACCOUNT = frozenset(
    [
        "access_terminated",
        "account_deactivated",
        "api_key_invalid",
        "authentication_error",
        "billing_error",
        "billing_hard_limit_reached",
        "billing_not_active",
        "credit_balance_exhausted",
        "credit_balance_too_low",
        "enforced_spend_limit_reached",
        "insufficient_quota",
        "invalid_api_key",
        "organization_spend_limit_exceeded",
        "organization_usage_limit_exceeded",
        "permission_denied",
        "permission_error",
        "project_spend_limit_exceeded",
        "quota_per_day",
        "unauthenticated",
    ]
)
_CAPACITY = frozenset(["token_limit_exceeded", "ramp_limit_exceeded", "too_many_batches"])
_NOT_RUN = frozenset(
    ["batch_expired", "batch_cancelled", "batch_canceled", "expired", "canceled", "cancelled"]
)
_TRANSIENT = frozenset(
    [
        "aborted",
        "api_error",
        "deadline_exceeded",
        "internal",
        "internal_error",
        "overloaded_error",
        "rate_limit_error",
        "rate_limit_exceeded",
        "request_timeout",
        "resource_exhausted",
        "server_error",
        "server_is_overloaded",
        "slow_down",
        "timeout_error",
        "unavailable",
        "unknown",
        "vector_store_timeout",
    ]
)
_INVALID = frozenset(
    [
        "context_length_exceeded",
        "data_residency_mismatch",
        "failed_precondition",
        "invalid_argument",
        "invalid_prompt",
        "invalid_request",
        "invalid_request_error",
        "not_found",
        "not_found_error",
        "out_of_range",
        "request_too_large",
        "unimplemented",
    ]
)
_POLICY = re.compile(r"content_filter|content_policy|policy_violation|policyviolation|_policy$")

# Statuses that mean that nothing was done, if they come in the provider's envelope. Not 408, 409
# and 5xx: after these the request may have been or may still be processed.
DEFINITE = frozenset({400, 401, 402, 403, 404, 405, 410, 413, 415, 416, 422, 429})


def kind_of(code: str, status: int | None = None) -> FailureKind:
    """The kind of an item's failure. Unknown codes are retried and count as an attempt."""
    if code in _ACCOUNT:
        return FailureKind.ACCOUNT
    if code in _CAPACITY:
        return FailureKind.CAPACITY
    if code in _NOT_RUN:
        return FailureKind.NOT_RUN
    if _POLICY.search(code):
        return FailureKind.POLICY
    if code in _TRANSIENT:
        return FailureKind.TRANSIENT
    if status is not None and status != 400:
        return _kind_of_status(status)
    if status == 400 or code in _INVALID:
        return FailureKind.INVALID
    return FailureKind.TRANSIENT


def _kind_of_status(status: int) -> FailureKind:
    match status:
        case 401 | 402 | 403:
            return FailureKind.ACCOUNT
        case 408 | 409 | 425 | 429:
            return FailureKind.TRANSIENT
        case _ if 400 <= status < 500:
            return FailureKind.INVALID
        case _:
            return FailureKind.TRANSIENT


def failure_of(code: object, status: int, *, otherwise: object = None) -> Failure:
    """The failure of an HTTP error response.

    *otherwise* is a second code of the provider, used if it says that the account is blocked.
    """
    said = [found for found in (get_code(code), get_code(otherwise)) if found]
    found = next((one for one in said if one in _ACCOUNT), said[0] if said else f"status_{status}")
    return Failure(kind_of(found, status), found, status)


def of_item(failure: Failure) -> Failure:
    """The failure of one item of a batch.

    A blocked account is reported with a known code. Any other 403, as for a model that is not
    allowed, concerns only this item.
    """
    is_own = failure.status == 403 and failure.code not in _ACCOUNT
    if is_own and failure.kind is FailureKind.ACCOUNT:
        return replace(failure, kind=FailureKind.INVALID)
    return failure


def as_refusal(failure: Failure) -> Failure:
    """The failure of a batch API call: there, too many requests mean missing capacity."""
    if failure.kind is FailureKind.TRANSIENT and failure.status == 429:
        return replace(failure, kind=FailureKind.CAPACITY)
    return failure


def of_batch(code: object) -> Failure:
    """The failure of a batch as a whole.

    One bad line fails all of them, so it only says that the items did not run.
    """
    found = get_code(code) or "batch_failed"
    kind = kind_of(found)
    if kind not in (FailureKind.CAPACITY, FailureKind.ACCOUNT):
        kind = FailureKind.NOT_RUN
    return Failure(kind, found)


# -- provider values that may be stored

_WORD = re.compile(r"[a-z][a-z0-9_.-]{0,63}")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:=+-]{0,499}")
_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,199}")


def get_code(value: object) -> str | None:
    """Return *value* in lower case if it is a plain code, else None."""
    if not isinstance(value, str):
        return None
    small = value.lower()
    return small if _WORD.fullmatch(small) else None


def known_id(value: object) -> str | None:
    """An id that may be stored and used in a path; None for anything else, including ""."""
    return value if isinstance(value, str) and _ID.fullmatch(value) else None


def known_model(value: object) -> str:
    """A model name that may be stored; "" for anything else."""
    return value if isinstance(value, str) and _MODEL.fullmatch(value) else ""


def get_object(document: object, *names: str) -> dict[str, Any]:
    """Return the nested object at *names*, or an empty one."""
    for name in names:
        document = document.get(name) if isinstance(document, dict) else None
    return document if isinstance(document, dict) else {}


def get_list(value: object) -> list[dict[str, Any]]:
    """Return the objects of a list; an empty list for any other value."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def get_int(value: object) -> int | None:
    """Return a count: an int, or digits in a string, as JSON encodes int64."""
    if type(value) is int:
        return value if 0 <= value <= 10**12 else None
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 16:
        return get_int(int(value))
    return None


Judged = tuple[FailureKind | None, str, str]
"""The kind and code of a failure, or None, an unused code, and the text."""


def answer_with(
    judged: Judged,
    *,
    model: str,
    usage: Usage | None,
    provider_request_id: str | None,
    finished_at: datetime | None = None,
) -> Answer:
    """The answer of a parsed body; a failed one is still billed."""
    kind, code, text = judged
    if kind is None:
        return Reply(text, model, usage, provider_request_id, finished_at)
    return Failure(
        kind,
        code,
        usage=usage,
        model=model or None,
        provider_request_id=provider_request_id,
        finished_at=finished_at,
    )
