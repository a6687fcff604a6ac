"""Problem details (RFC 9457): every answer that is not a success has one form.

The detail of a problem never contains a stack, SQL, or text of a payload.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette._utils import get_route_path
from starlette.exceptions import HTTPException

from holdfast.errors import (
    ConfigError,
    Conflict,
    Failure,
    Forbidden,
    HoldfastError,
    InvalidArgument,
    NotFound,
    QueueFull,
    RuleBroken,
    SchemaMismatch,
    StoreBusy,
    StoreDown,
    StoreError,
    UnknownKind,
)
from holdfast.ids import MalformedId
from holdfast.operate.access import AccessDenied, ReadTimeout, TooManyRequests
from holdfast.operate.idempotent_requests import RequestInProgress
from holdfast.redact import visible

log = logging.getLogger("holdfast.api")

MEDIA_TYPE = "application/problem+json"
TYPE = "urn:holdfast:problem:"
LONGEST_DETAIL = 500


class FieldError(BaseModel):
    """A field of the request and its problem."""

    field: str
    problem: str


class Problem(BaseModel):
    """Why a request was not answered with a success."""

    type: str = Field(description="A URN that ends with the code.")
    title: str
    status: int
    detail: str
    instance: str = Field(description="The path of the request.")
    code: str = Field(description="Stable code for programs.")
    next_step: str = Field(description="What the caller can do.")
    request_id: str = Field(description="The id of the request, as in the header X-Request-Id.")
    errors: list[FieldError] | None = Field(
        default=None, description="Every bad field, if fields of the request are invalid."
    )


@dataclass
class ProblemError(Exception):
    """Raised by the API itself to answer with a problem."""

    status: int
    code: str
    detail: str
    next_step: str
    headers: Mapping[str, str] = field(default_factory=dict)
    errors: Sequence[tuple[str, str]] = ()


def problem_response(request: Request, problem: ProblemError) -> Response:
    """Return the answer for a problem."""
    body: dict[str, Any] = {
        "type": TYPE + problem.code,
        "title": HTTPStatus(problem.status).phrase,
        "status": problem.status,
        "detail": visible(problem.detail)[:LONGEST_DETAIL],
        "instance": visible(request.scope.get("path", ""))[:LONGEST_DETAIL],
        "code": problem.code,
        "next_step": problem.next_step,
        "request_id": request.scope.get("holdfast.request_id", ""),
    }
    if problem.errors:
        body["errors"] = [
            {"field": visible(name)[:200], "problem": visible(says)[:LONGEST_DETAIL]}
            for name, says in problem.errors
        ]
    return JSONResponse(body, problem.status, dict(problem.headers), media_type=MEDIA_TYPE)


# The status of an error, by the first class of its hierarchy that is listed.
STATUS: Mapping[type[Exception], int] = {
    AccessDenied: 401,
    TooManyRequests: 429,
    InvalidArgument: 422,
    ConfigError: 503,
    UnknownKind: 422,
    NotFound: 404,
    QueueFull: 429,
    Conflict: 409,
    Forbidden: 403,
    RuleBroken: 409,
    StoreBusy: 503,
    ReadTimeout: 503,
    StoreDown: 503,
    StoreError: 503,
    Failure: 500,
    HoldfastError: 500,
}

# What a caller of the API can do, where the docstring of the class speaks to another reader.
_NEXT: Mapping[type[Exception], str] = {
    AccessDenied: "Send a valid API key: Authorization: Bearer hf_live_….",
    ConfigError: "Tell an operator the request_id. The log of the server names the setting.",
    UnknownKind: "Use a job type that the application declares.",
    RuleBroken: "Read the object again, then decide.",
    ReadTimeout: "Narrow the filter.",
    StoreBusy: "Repeat the request.",
    StoreDown: "Repeat the request later.",
    SchemaMismatch: "An operator runs holdfast migrate, or upgrades the package.",
    StoreError: "Repeat the request later. If it persists, an operator can run holdfast doctor.",
    Failure: "Tell an operator the request_id.",
}
_CODES: Mapping[type[Exception], str] = {
    AccessDenied: "invalid_credentials",
    TooManyRequests: "rate_limited",
    UnknownKind: "unknown_job_type",
    ConfigError: "not_configured",
}
_DETAILS: Mapping[type[Exception], str] = {
    ConfigError: "The server is not configured for this request.",
    ReadTimeout: "The read took too long and was stopped.",
    StoreDown: "The database cannot be reached.",
    StoreBusy: "The database is busy, or the read took too long.",
    SchemaMismatch: "The database has not the tables that this version of Holdfast needs.",
    StoreError: "The database refused the operation.",
    Failure: "The stored data could not be read.",
}
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z`])")


def problem_of(exc: HoldfastError) -> ProblemError:
    """Return the problem for an error of Holdfast."""
    kind = type(exc)
    status = STATUS[listed(kind, STATUS)]
    code = _CODES[kind] if kind in _CODES else code_of(kind)
    # The message of an error of the server may describe its configuration.
    own = "The server failed." if status >= 500 else str(exc)
    detail = _DETAILS[found] if (found := _first(kind, _DETAILS)) else own
    if isinstance(exc, RuleBroken):
        detail = f"The database refused the write by its rule {exc.rule}."
    errors = [*exc.fields.items()] if isinstance(exc, InvalidArgument) else []
    headers: dict[str, str] = {}
    if isinstance(exc, AccessDenied):
        headers["WWW-Authenticate"] = "Bearer"
    elif isinstance(exc, TooManyRequests):
        headers["Retry-After"] = str(exc.retry_after)
    elif isinstance(exc, RequestInProgress):
        headers["Retry-After"] = "1"
    elif status in (429, 503) and not isinstance(exc, (ConfigError, SchemaMismatch)):
        headers["Retry-After"] = "5" if isinstance(exc, StoreDown) else "1"
    if errors:
        detail = exc.outcome if isinstance(exc, InvalidArgument) else detail
    return ProblemError(status, code, detail, next_step(kind), headers, errors)


def code_of(kind: type[Exception]) -> str:
    """The stable code of an error class: ``JobNotFound`` is ``job_not_found``."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


def next_step(kind: type[Exception]) -> str:
    """What to do about an error: its own sentence, or those after the first of its docstring."""
    found = _first(kind, _NEXT)
    if found is not None:
        return _NEXT[found]
    _, *rest = _SENTENCE.split(" ".join((kind.__doc__ or "").split()))
    return " ".join(rest) or "Correct the request."


def _first(kind: type, known: Mapping[type[Exception], Any]) -> type[Exception] | None:
    return next((base for base in kind.__mro__ if base in known), None)


def listed(kind: type, known: Mapping[type[Exception], Any]) -> type[Exception]:
    """The first class of the hierarchy of *kind* that is in *known*."""
    found = _first(kind, known)
    assert found is not None, "every error of Holdfast is a HoldfastError"
    return found


def install(app: FastAPI) -> None:
    """Answer every error of *app* with a problem."""

    @app.exception_handler(ProblemError)
    async def on_problem(request: Request, exc: ProblemError) -> Response:
        return problem_response(request, exc)

    @app.exception_handler(HoldfastError)
    async def on_error(request: Request, exc: HoldfastError) -> Response:
        problem = problem_of(exc)
        if problem.status >= 500:
            _log(request, exc)
        return problem_response(request, problem)

    @app.exception_handler(RequestValidationError)
    async def on_invalid(request: Request, exc: RequestValidationError) -> Response:
        return problem_response(request, _invalid(exc))

    @app.exception_handler(HTTPException)
    async def on_http(request: Request, exc: HTTPException) -> Response:
        problem = _http(exc)
        if exc.status_code == 405:
            problem.headers = {**problem.headers, "Allow": ", ".join(_allowed(request))}
        return problem_response(request, problem)


def unexpected(request: Request, exc: Exception) -> Response:
    """Return the answer for an error that is not one of Holdfast's, and log it.

    Starlette's own handler would raise it again, and a server would log its message.
    """
    _log(request, exc)
    return problem_response(
        request,
        ProblemError(
            500, "internal_error", "The server failed.", "Tell an operator the request_id."
        ),
    )


def _log(request: Request, exc: Exception) -> None:
    """Log the class of an error and where it was raised; its message may quote private data."""
    place, at = "", exc.__traceback__
    while at is not None:
        place = f"{at.tb_frame.f_code.co_filename.rpartition('/')[2]}:{at.tb_lineno}"
        at = at.tb_next
    request_id = request.scope.get("holdfast.request_id", "")
    # These describe settings and tables.
    why = f": {exc}" if isinstance(exc, (ConfigError, SchemaMismatch)) else ""
    log.error("request %s failed: %s at %s%s", request_id, type(exc).__name__, place, why)


def _invalid(exc: RequestValidationError) -> ProblemError:
    # The message of a value error may quote the value; the kind of the error does not.
    errors = [
        (".".join(str(part) for part in found["loc"][1:]) or str(found["loc"][0]), _says(found))
        for found in exc.errors()
    ]
    return ProblemError(
        422,
        "invalid_request",
        "Fields of the request are invalid. Nothing was done.",
        "Correct the listed fields.",
        errors=errors,
    )


def _says(found: Mapping[str, Any]) -> str:
    context = found.get("ctx") or {}
    match found["type"]:
        case "missing":
            return "is required"
        case "extra_forbidden":
            return "is not a field of this request"
        case "enum" | "literal_error":
            return f"must be one of {context.get('expected', 'the listed values')}"
        case kind if kind.startswith("string_pattern"):
            return "has a wrong form"
        case "value_error":
            # The text of a malformed id is of this code; that of others may quote the request.
            error = context.get("error")
            return str(error) if isinstance(error, MalformedId) else "has a wrong value"
        case _:
            text = str(found["msg"])
            return text[:1].lower() + text[1:]


def _allowed(request: Request) -> list[str]:
    """The methods of every route of a path. HEAD is answered wherever GET is."""
    path = get_route_path(request.scope)
    matched = (methods for found, methods in request.app.state.allowed if found.match(path))
    allowed = {method for methods in matched for method in methods}
    return sorted(allowed | {"HEAD"} if "GET" in allowed else allowed)


_HTTP = {
    404: ("path_not_found", "No resource has this path.", "Read the API reference at /v1/docs."),
    405: (
        "method_not_allowed",
        "The resource does not support this method.",
        "Use a method that the header Allow names.",
    ),
}


def _http(exc: HTTPException) -> ProblemError:
    code, detail, step = _HTTP.get(
        exc.status_code,
        ("http_error", HTTPStatus(exc.status_code).phrase + ".", "Correct the request."),
    )
    return ProblemError(exc.status_code, code, detail, step, dict(exc.headers or {}))
