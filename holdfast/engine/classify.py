"""Which failure is it, and may it be tried again? The table of the contract, as data. Pure."""

from __future__ import annotations

import re
import socket
import traceback
from collections.abc import Mapping
from types import TracebackType

from holdfast.document import stable_hash
from holdfast.engine.job import Fault
from holdfast.errors import (
    AuthDenied,
    ConfigError,
    ConfigInvalid,
    Defect,
    Failure,
    Forbidden,
    Gone,
    InvalidArtifact,
    InvalidJob,
    NetworkTimeout,
    NotFound,
    RateLimited,
    RuleBroken,
    RuleViolated,
    SchemaInvalid,
    StoreBusy,
    StoreDown,
    StoreUnavailable,
    UpstreamDown,
    UpstreamError,
    WriteConflict,
)
from holdfast.secret import find_secret

# First match wins. An exception that no row names is a Defect.
EXCEPTIONS: tuple[tuple[type[BaseException], type[Failure]], ...] = (
    (TimeoutError, NetworkTimeout),
    (socket.gaierror, NetworkTimeout),
    (ConnectionError, NetworkTimeout),
    (StoreBusy, WriteConflict),
    (StoreDown, StoreUnavailable),
    (InvalidJob, SchemaInvalid),
    (InvalidArtifact, SchemaInvalid),
    (Forbidden, RuleViolated),
    (RuleBroken, RuleViolated),
    (NotFound, Gone),
    (ConfigError, ConfigInvalid),
)

# Driver errors by SQLSTATE class, so that a handler's own database errors are told apart without
# importing a driver: 08 connection, 40 rollback asked for, 53 resources, 57 operator intervention.
TRANSIENT_SQLSTATES: Mapping[str, type[Failure]] = {
    "08": StoreUnavailable,
    "40": WriteConflict,
    "53": StoreUnavailable,
    "57": StoreUnavailable,
}

HTTP_STATUSES: Mapping[int, type[Failure]] = {
    400: SchemaInvalid,
    401: AuthDenied,
    403: AuthDenied,
    404: Gone,
    408: NetworkTimeout,
    410: Gone,
    422: SchemaInvalid,
    425: UpstreamDown,
    429: RateLimited,
    502: UpstreamDown,
    503: UpstreamDown,
    504: UpstreamDown,
}


def failure_of_status(status: int, *, idempotent: bool = False) -> type[Failure]:
    """The failure an HTTP status means. 409 is a lost race only where repeating is harmless."""
    if status == 409:
        return WriteConflict if idempotent else RuleViolated
    if status in HTTP_STATUSES:
        return HTTP_STATUSES[status]
    if status >= 500:
        return UpstreamError
    return SchemaInvalid if status >= 400 else Defect


def classify(exc: BaseException) -> Failure:
    """The failure that *exc* is. One that nobody named is a Defect."""
    if isinstance(exc, Failure):
        return exc
    for known, failure in EXCEPTIONS:
        if isinstance(exc, known):
            return failure()
    return _of_driver(exc) or Defect(exception=type(exc).__qualname__)


def _of_driver(exc: BaseException) -> Failure | None:
    """The transient failure that a database driver's error is, if it is one."""
    # SQLAlchemy keeps the driver's own error in orig.
    exc = getattr(exc, "orig", None) or exc
    sqlstate = getattr(exc, "sqlstate", None) or getattr(exc, "pgcode", None)
    if isinstance(sqlstate, str):
        failure = TRANSIENT_SQLSTATES.get(sqlstate[:2])
        return failure(sqlstate=sqlstate) if failure else None
    if str(getattr(exc, "sqlite_errorname", "")).startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return WriteConflict()
    # A connection that broke in mid-statement has no SQLSTATE.
    if hasattr(exc, "sqlstate") and type(exc).__name__ == "OperationalError":
        return StoreUnavailable()
    return None


def fault_of(exc: BaseException, *, stage: str, attempt: int) -> Fault:
    """What is stored of an exception: no message, no arguments, no literals."""
    failure = classify(exc)
    # Foreign subclasses may forget to call our constructor.
    context = safe_context(getattr(failure, "context", {}))
    said = " ".join(f"{name}={value}" for name, value in context.items())
    return Fault(
        error_class=failure.error_class,
        last_error=f"{failure.error_class} stage={stage} attempt={attempt} {said}".rstrip(),
        retryable=failure.retryable,
        context=context,
        stack=safe_stack(exc),
        pages_operator=failure.pages_operator,
    )


_SAFE_TEXT = re.compile(r"[A-Za-z0-9._:/+-]{1,120}")


def safe_context(context: Mapping[str, object]) -> dict[str, int | str]:
    """The fields that may be stored: numbers, and short text of the kind that ids and codes are."""
    safe: dict[str, int | str] = {}
    for name, value in list(context.items())[:20]:
        if not _SAFE_TEXT.fullmatch(name):
            continue
        if isinstance(value, (bool, int)):
            safe[name] = int(value)
        elif (
            isinstance(value, str)
            and _SAFE_TEXT.fullmatch(value)
            and not find_secret({name: value})
        ):
            safe[name] = value
        else:
            safe[name] = "hash:" + stable_hash(str(value))[:12]
    return safe


def safe_stack(exc: BaseException, limit: int = 20) -> str:
    """The error chain as class, module, line and function: source and messages may quote data."""
    lines: list[str] = []
    seen: set[int] = set()
    link: BaseException | None = exc
    while link is not None and id(link) not in seen and len(seen) < 5:
        seen.add(id(link))
        lines.append(f"{type(link).__module__}.{type(link).__qualname__}")
        lines.extend(_frames(link.__traceback__, limit))
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    return "\n".join(lines)


def _frames(trace: TracebackType | None, limit: int) -> list[str]:
    found = []
    for frame, line in traceback.walk_tb(trace):
        module = frame.f_globals.get("__name__", "?")
        found.append(f"  {module}:{line} in {frame.f_code.co_name}")
    return found[-limit:]
