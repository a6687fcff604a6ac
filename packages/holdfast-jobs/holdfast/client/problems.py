"""Errors of the client: problem details (RFC 9457) as exceptions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class ApiError(Exception):
    """The API answered with a problem. *code* is stable; *next_step* says what to do."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        next_step: str = "",
        errors: Mapping[str, str] | None = None,
        request_id: str = "",
    ) -> None:
        super().__init__(f"{detail} {next_step}".strip())
        self.status = status
        self.code = code
        self.detail = detail
        self.next_step = next_step
        self.errors = dict(errors or {})
        self.request_id = request_id


class AccessRefused(ApiError):
    """The key is not valid, or may not do this."""


class Missing(ApiError):
    """The object does not exist, or belongs to another tenant."""


class Invalid(ApiError):
    """The request is malformed. *errors* has every bad field."""


class Conflicting(ApiError):
    """The state of the object does not allow the operation."""


class TooManyRequests(ApiError):
    """The key made too many requests, or the queue is full."""


class Unavailable(ApiError):
    """The server could not be reached, or cannot answer now."""


class StreamEnded(ApiError):
    """The server ended an event stream that cannot be resumed."""


_BY_STATUS: Mapping[int, type[ApiError]] = {
    401: AccessRefused,
    403: AccessRefused,
    404: Missing,
    400: Invalid,
    413: Invalid,
    415: Invalid,
    422: Invalid,
    409: Conflicting,
    429: TooManyRequests,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
}


def error_from(status: int, document: Any) -> ApiError:
    """The error for an answer that is not a success. A proxy may answer without a problem."""
    found = document if isinstance(document, Mapping) else {}
    listed = found.get("errors")
    errors = {
        str(one.get("field")): str(one.get("problem"))
        for one in (listed if isinstance(listed, list) else [])
        if isinstance(one, Mapping)
    }
    return _BY_STATUS.get(status, ApiError)(
        status,
        str(found.get("code", "http_error")),
        str(found.get("detail", f"The server answered with status {status}.")),
        str(found.get("next_step", "")),
        errors,
        str(found.get("request_id", "")),
    )


def unreachable(kind: str) -> Unavailable:
    """The error for a server that did not answer. *kind* is the class of the cause."""
    return Unavailable(0, "unreachable", f"The server did not answer: {kind}.", "Try again later.")
