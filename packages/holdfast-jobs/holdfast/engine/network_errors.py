"""Classify the errors of network clients: HTTP, mail, gRPC, Redis, AWS and model SDKs. Pure.

Clients are recognized by the names of their modules, classes and attributes, so none of them has to
be installed. Messages are never kept: a failure holds class names and status codes only.
"""

from __future__ import annotations

import errno
import re
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, timedelta
from email.utils import parsedate_to_datetime
from itertools import islice
from typing import Any

from holdfast.clock import Clock, SystemClock
from holdfast.engine import network_clients as clients
from holdfast.engine.retry import parse_retry_after
from holdfast.errors import (
    AuthDenied,
    ConfigInvalid,
    Defect,
    Failure,
    Gone,
    NetworkTimeout,
    PolicyRejected,
    RateLimited,
    RuleViolated,
    SchemaInvalid,
    Transient,
    UpstreamDown,
    UpstreamError,
    WriteConflict,
)
from holdfast.store.disconnect import links_of

# Maximum number of errors followed in a chain.
LINKS = 16
HEADERS = 200
WALL_CLOCK = SystemClock()

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

SMTP_CODES: Mapping[int, type[Failure]] = {
    **dict.fromkeys((530, 534, 535, 538), AuthDenied),
    **dict.fromkeys((550, 551, 553), Gone),
    554: PolicyRejected,
}

NETWORK_ERRNOS = frozenset(
    {
        errno.EADDRNOTAVAIL,
        errno.ECONNABORTED,
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ENETDOWN,
        errno.ENETRESET,
        errno.ENETUNREACH,
        errno.EPIPE,
        errno.ETIMEDOUT,
    }
)
# The event loop joins the errors of several addresses into one text.
_SEVERAL = re.compile(r"Multiple exceptions: \[Errno \d")
_ERRNO = re.compile(r"\[Errno (\d{1,5})\]")


def failure_of_status(status: int, *, idempotent: bool = False) -> type[Failure]:
    """The failure for an HTTP status. 409 is a lost race only if the request is *idempotent*."""
    if status == 409:
        return WriteConflict if idempotent else RuleViolated
    if status in HTTP_STATUSES:
        return HTTP_STATUSES[status]
    if status >= 500:
        return UpstreamError
    return SchemaInvalid if status >= 400 else Defect


def failure_of_network(exc: BaseException, clock: Clock = WALL_CLOCK) -> Failure | None:
    """The failure that a network client reported, or None. The nearest conclusive error decides."""
    # A process that exits, or a task that is canceled, says nothing about the network.
    if not isinstance(exc, Exception):
        return None
    links = list(network_links(exc))
    for link in links:
        if _is_bad_certificate(link):
            return ConfigInvalid(exception=type(link).__name__)
    for link in links:
        failure = _of_link(link)
        if failure is not None:
            if isinstance(failure, Transient):
                failure.retry_after = retry_after_of_response(link, clock)
            return failure
    return None


def network_links(exc: BaseException) -> Iterator[BaseException]:
    """Yield *exc* and the errors it was raised for, nearest first, at most LINKS of them."""
    return links_of(exc, _following, LINKS)


def _following(link: BaseException) -> list[object]:
    found: list[object] = [link.__cause__]
    # MaxRetryError and URLError have a reason, requests and urllib3 put the error into args.
    found += [_get(link, name) for name in ("reason", "original_error", "orig", "os_error")]
    found += [_get(_get(link, "kwargs"), "error"), *link.args[:LINKS]]
    if not link.__suppress_context__ and _is_deliberate(link):
        found.append(link.__context__)
    return found


def _is_deliberate(link: BaseException) -> bool:
    """Whether *link* was raised because of its context, not by a bug in an ``except`` block.

    Errors like KeyError are what a bug raises, so only ``raise … from`` connects them to a cause.
    """
    package = _package(type(link))
    if package not in sys.stdlib_module_names or package == "http":
        return True
    if isinstance(link, (NotImplementedError, RecursionError)):
        return False
    return type(link) is Exception or isinstance(link, (OSError, RuntimeError))


def _of_link(link: BaseException) -> Failure | None:
    """The failure that *link* alone stands for, or None."""
    packages = {_package(kind) for kind in type(link).__mro__}
    if packages & {"botocore", "boto3"} and (found := _of_aws(link)) is not None:
        return found
    if "grpc" in packages:
        return _of_grpc(link)
    if "smtplib" in packages:
        return _of_mail(link)
    if "pycurl" in packages:
        return _of_curl(link)
    if packages & clients.MODEL_SDKS and (found := _of_model(link)) is not None:
        return found
    if _is_unreadable(link):
        return _make(NetworkTimeout, link)
    status = _status_of(link, is_client=bool(packages & clients.HTTP_CLIENTS))
    if status is not None:
        return _make(failure_of_status(status), link, status)
    return _of_class(link) or _of_system(link)


def _is_unreadable(link: BaseException) -> bool:
    """Whether aiohttp could not read a response, for which it reports the status 400."""
    kinds = type(link.__cause__).__mro__
    return any((_package(one), one.__name__) == ("aiohttp", "HttpProcessingError") for one in kinds)


def _make(
    kind: type[Failure], link: BaseException, status: int | None = None, code: object = None
) -> Failure:
    """A failure with the class of *link*, and with the codes that are known."""
    failure = kind(exception=type(link).__name__)
    if status is not None:
        failure.context["status"] = status
    if isinstance(code, (int, str)):
        failure.context["code"] = code
    return failure


def _of_class(link: BaseException) -> Failure | None:
    for kind in type(link).__mro__:
        known = clients.CLASSES.get(f"{_package(kind)}.{kind.__name__}")
        if known is not None:
            return _make(known, link)
    if type(link).__name__ == "ResponseError" and _package(type(link)) == "urllib3":
        # Retries were exhausted by responses. A text of urllib3, of which nothing is kept.
        found = re.search(r"too many (\d{3}) error responses", str(link.args[:1])[:200])
        status = int(found[1]) if found else 0
        if status >= 400:
            return _make(failure_of_status(status), link, status)
    return None


def _of_system(link: BaseException) -> Failure | None:
    """The failure for an error of the operating system."""
    if not isinstance(link, OSError):
        return None
    name = type(link).__name__
    if isinstance(link, (TimeoutError, ConnectionError)):
        return NetworkTimeout(exception=name)
    # A file error is no network error, even if it has one of these numbers.
    if link.errno in NETWORK_ERRNOS and link.filename is None:
        return NetworkTimeout(exception=name)
    text = link.args[0] if link.args and isinstance(link.args[0], str) else ""
    if _SEVERAL.match(text):
        numbers = {int(number) for number in _ERRNO.findall(text[:10_000])}
        if numbers <= NETWORK_ERRNOS:
            return NetworkTimeout(exception=name)
    return None


def _is_bad_certificate(link: BaseException) -> bool:
    """Whether a certificate was rejected, by this side or by the other one."""
    names = {f"{_package(kind)}.{kind.__name__}" for kind in type(link).__mro__}
    if names & clients.BAD_CERTIFICATES:
        return True
    reason = _get(link, "reason") if "ssl.SSLError" in names else None
    return isinstance(reason, str) and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason)


def _of_aws(link: BaseException) -> Failure | None:
    response = _get(link, "response")
    code = _get(_get(response, "Error"), "Code")
    status = _http_status(_get(_get(response, "ResponseMetadata"), "HTTPStatusCode"))
    # Some services put their name before the code.
    known = clients.AWS_CODES.get(code.rpartition(".")[2]) if isinstance(code, str) else None
    if known is not None:
        return _make(known, link, status, code)
    return None if status is None else _make(failure_of_status(status), link, status)


def _of_grpc(link: BaseException) -> Failure | None:
    # code() of an unfinished call blocks; the state of a finished one has the code.
    state = _get(link, "_state")
    code = _call(link, "code") if state is None else _get(state, "code")
    name = _get(code, "name")
    known = clients.GRPC_CODES.get(name) if isinstance(name, str) else None
    if known is not None:
        return _make(known, link, code=name)
    return _of_class(link)


def _of_curl(link: BaseException) -> Failure | None:
    """The failure for a number of libcurl, the first argument of its errors."""
    number, text = (*link.args[:2], None, None)[:2]
    if number in clients.CURL_CERTIFICATE:
        return _make(ConfigInvalid, link, code=number)
    if number in clients.CURL_NETWORK:
        return _make(NetworkTimeout, link, code=number)
    # FAILONERROR: the status is in the text only, of which nothing else is kept.
    found = (
        re.search(r"returned error: ([45]\d{2})\b", text[:200]) if number == 22 and text else None
    )
    return None if found is None else _make(failure_of_status(int(found[1])), link, int(found[1]))


def _of_mail(link: BaseException) -> Failure | None:
    if (found := _of_class(link)) is not None:
        return found
    code = _get(link, "smtp_code")
    recipients = _get(link, "recipients")
    if isinstance(recipients, Mapping):
        # smtplib raises this if every recipient was refused, so nothing was sent.
        replies = list(islice(recipients.values(), 1_000))
        codes = [one[0] for one in replies if isinstance(one, tuple) and one]
        code = min((one for one in codes if isinstance(one, int)), default=None)
    if not isinstance(code, int) or not 400 <= code <= 599:
        return None
    failure = UpstreamDown if code < 500 else SMTP_CODES.get(code, SchemaInvalid)
    return _make(failure, link, code=code)


def _of_model(link: BaseException) -> Failure | None:
    """The failure for an error code of a model API, which may arrive inside a stream."""
    body = _get(link, "body")
    for code in (_get(link, "code"), _get(_get(body, "error"), "type"), _get(body, "type")):
        known = clients.MODEL_CODES.get(code) if isinstance(code, str) else None
        if known is not None:
            return _make(known, link, _status_of(link, is_client=True), code)
    return None


def _status_of(link: BaseException, *, is_client: bool) -> int | None:
    """The HTTP status of the response that *link* is about.

    Only errors of known clients have it in an attribute of their own: a `code` of another class may
    mean anything.
    """
    response = _response_of(link)
    found = [_get(response, name) for name in ("status_code", "status")]
    if is_client:
        found += [_get(link, name) for name in ("status_code", "status", "code", "errcode")]
    return next((status for one in found if (status := _http_status(one)) is not None), None)


def _response_of(link: BaseException) -> Any:
    # Not "or": a response of requests with an error status is false.
    found = _get(link, "response")
    return _get(link, "raw_response") if found is None else found


def _http_status(value: object) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool) and 400 <= value <= 599:
        return int(value)
    return None


def retry_after_of_response(link: BaseException, clock: Clock = WALL_CLOCK) -> timedelta | None:
    """The delay that the response asks for. The caller limits it."""
    response = _response_of(link)
    metadata = _get(response, "ResponseMetadata")
    for headers in (
        _get(metadata, "HTTPHeaders"),
        _get(response, "headers"),
        _get(link, "headers"),
        _get(link, "hdrs"),
    ):
        found = _read_headers(headers)
        milliseconds = found.get("retry-after-ms", "")
        if milliseconds.isascii() and milliseconds.isdigit() and len(milliseconds) <= 12:
            return timedelta(milliseconds=int(milliseconds))
        if "retry-after" in found:
            return _parse(found["retry-after"], found.get("date"), clock)
    return None


def _parse(header: str, date: str | None, clock: Clock) -> timedelta | None:
    now = clock.now()
    try:
        if date is not None:
            # The clock of the server that wrote the date may differ from this one.
            now = parsedate_to_datetime(date).astimezone(UTC)
        return parse_retry_after(header, now)
    except (OverflowError, TypeError, ValueError):
        return None


def _read_headers(headers: object) -> dict[str, str]:
    """The headers that say how long to wait, by lower-case name."""
    found: dict[str, str] = {}
    try:
        items: Any = headers.items() if hasattr(headers, "items") else headers
        for name, value in islice(items or (), HEADERS):
            key, text = _text(name).lower(), _text(value)
            if key in ("retry-after", "retry-after-ms", "date") and len(text) <= 64:
                found.setdefault(key, text.strip())
    except Exception:
        return found
    return found


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value[:200].decode("latin-1")
    return value if isinstance(value, str) else ""


def _package(kind: type) -> str:
    module = kind.__module__
    return module.partition(".")[0] if isinstance(module, str) else ""


def _get(target: object, name: str) -> Any:
    """An attribute or a key, or None. Attributes of other packages may raise anything."""
    if target is None:
        return None
    try:
        return target.get(name) if isinstance(target, Mapping) else getattr(target, name, None)
    except Exception:
        return None


def _call(target: object, name: str) -> Any:
    try:
        return getattr(target, name)()
    except Exception:
        return None
