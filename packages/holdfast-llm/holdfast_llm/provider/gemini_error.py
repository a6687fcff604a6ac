"""Google's errors: google.rpc.Status with a machine-readable code. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from holdfast_llm.provider.classify import (
    failure_of,
    get_code,
    get_int,
    get_list,
    get_object,
    kind_of,
)
from holdfast_llm.provider.reply import Failure, FailureKind

_NAMES = (
    "ok",
    "cancelled",
    "unknown",
    "invalid_argument",
    "deadline_exceeded",
    "not_found",
    "already_exists",
    "permission_denied",
    "resource_exhausted",
    "failed_precondition",
    "aborted",
    "out_of_range",
    "unimplemented",
    "internal",
    "unavailable",
    "data_loss",
    "unauthenticated",
)
_SECONDS = re.compile(r"([0-9]{1,7}(?:\.[0-9]{1,9})?)s")
# It answers 403 for a missing file, and only the message says so.
_MAY_NOT_EXIST = "may not exist"


def of_status(error: Mapping[str, Any]) -> Failure:
    """The failure of an item or of a batch, from a google.rpc.Code number."""
    code = get_int(error.get("code"))
    if code is not None and code >= 100:
        return _failure_of(error, code)
    name = _NAMES[code] if code is not None and 0 < code < len(_NAMES) else "unknown"
    found = _quota(error) or name
    return Failure(kind_of(found), found, retry_after=_delay(error))


def refusal(status: int, document: Any) -> Failure | None:
    """The failure of an error in Google's envelope; None if there is no envelope."""
    if isinstance(document, list) and len(document) == 1:
        document = document[0]
    error = get_object(document, "error")
    if get_int(error.get("code")) is None or not isinstance(error.get("status", ""), str):
        return None
    return _failure_of(error, status)


def _failure_of(error: Mapping[str, Any], status: int) -> Failure:
    name = get_code(error.get("status"))
    message = error.get("message")
    if status == 403 and isinstance(message, str) and _MAY_NOT_EXIST in message:
        return Failure(FailureKind.INVALID, "not_found", status)
    reasons = [get_code(detail.get("reason")) for detail in get_list(error.get("details"))]
    if "api_key_invalid" in reasons:
        name = "api_key_invalid"
    found = replace(
        failure_of(_quota(error) or name, status, otherwise=name), retry_after=_delay(error)
    )
    if found.code == "failed_precondition":
        # Billing is not set up or not available in this region: no request is at fault.
        return replace(found, kind=FailureKind.ACCOUNT)
    return found


def _quota(error: Mapping[str, Any]) -> str | None:
    """``quota_per_day`` if waiting a minute does not help."""
    for detail in get_list(error.get("details")):
        for violation in get_list(detail.get("violations")):
            named = str(violation.get("quotaId", ""))
            if "PerDay" in named or str(violation.get("quotaValue")) == "0":
                return "quota_per_day"
    return None


def _delay(error: Mapping[str, Any]) -> float | None:
    for detail in get_list(error.get("details")):
        found = _SECONDS.fullmatch(str(detail.get("retryDelay", "")))
        if found:
            return float(found[1])
    return None
