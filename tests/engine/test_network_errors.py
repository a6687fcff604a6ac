"""Errors of network clients that a handler does not catch: which are retried, and when."""

from __future__ import annotations

import asyncio
import enum
import errno
import gc
import http.client
import json
import smtplib
import socket
import sqlite3
import ssl
import subprocess
import sys
import time
import urllib.error
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import asyncpg
import psycopg
import pytest

from holdfast import Context, Failure, FakeClock, Holdfast, RetryPolicy, State, StoreDown
from holdfast.engine.classify import classify, fault_of, retry_after_of
from holdfast.engine.network_errors import network_links
from holdfast.errors import AuthDenied, RateLimited, UpstreamDown
from tests.engine.faulty_clients import (
    BROKEN,
    CLIENTS,
    DATABASES,
    DROPS_RETRY_AFTER,
    GRPC_CODES,
    GRPC_FAULTS,
    HTTP_CLIENTS,
    NETWORK,
    PERMANENT,
    QUICK,
    TRANSIENT,
    by_httpx2,
    by_redis,
    table,
    with_permanent_status,
    with_transient_status,
)
from tests.engine.faulty_hosts import Host, closed_port, host, mail_host
from tests.story import ORG
from tests.tree import ROOT

# The errors of clients hold their sockets until they are collected.
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)

CANARY = "canary-7f3a"


@pytest.fixture(scope="module")
def hosts() -> Iterator[Callable[..., Host]]:
    """Hosts by fault, each started once."""
    open_hosts: dict[tuple[str, str], Any] = {}

    def find(fault: str, headers: str = "") -> Host:
        key = fault, headers
        if key not in open_hosts:
            started = host(fault, headers)
            open_hosts[key] = started, started.__enter__()
        found: Host = open_hosts[key][1]
        return found

    yield find
    for started, _ in open_hosts.values():
        started.__exit__(None, None, None)
    gc.collect()


def error_of(call: Callable[[], object]) -> Exception:
    with pytest.raises(Exception) as caught:
        call()
    return caught.value


def stored(exc: BaseException) -> tuple[str, bool]:
    fault = fault_of(exc, stage="run", attempt=1)
    assert CANARY not in repr(fault)
    return fault.error_class, fault.retryable


@pytest.mark.req("R-02", "R-12")
@pytest.mark.parametrize(("client", "fault"), BROKEN)
def test_a_broken_connection_is_retried_whichever_client_reports_it(
    client: str, fault: str, hosts: Callable[..., Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    def nowhere(*args: object, **options: object) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    if fault == "dns":
        monkeypatch.setattr(socket, "getaddrinfo", nowhere)
    there = hosts(fault)

    error_class, is_retried = stored(error_of(lambda: CLIENTS[client](there)))

    assert is_retried
    assert error_class == NETWORK or (error_class == "STORE_UNAVAILABLE" and client in DATABASES)


@pytest.mark.req("R-02", "R-03", "R-04", "R-12")
@pytest.mark.parametrize("status", TRANSIENT)
@pytest.mark.parametrize("client", with_transient_status())
def test_a_status_that_passes_is_retried_after_the_delay_it_asks_for(
    client: str, status: int, hosts: Callable[..., Host]
) -> None:
    asks = client not in DROPS_RETRY_AFTER
    url = hosts(str(status), "rEtry-aFter: 7\r\n" if asks else "").url

    exc = error_of(lambda: HTTP_CLIENTS[client](url))

    assert stored(exc) == (TRANSIENT[status], True)
    assert retry_after_of(classify(exc)) == (timedelta(seconds=7) if asks else None)


@pytest.mark.req("R-06", "R-07", "R-08", "R-11")
@pytest.mark.parametrize("status", PERMANENT)
@pytest.mark.parametrize("client", with_permanent_status())
def test_a_status_that_does_not_pass_is_not_retried(
    client: str, status: int, hosts: Callable[..., Host]
) -> None:
    url = hosts(str(status)).url

    exc = error_of(lambda: HTTP_CLIENTS[client](url))

    assert stored(exc) == (PERMANENT[status], False)
    assert fault_of(exc, stage="run", attempt=1).context["status"] == status


@pytest.mark.req("R-10")
@pytest.mark.parametrize("client", [*HTTP_CLIENTS, "redis"])
def test_a_certificate_that_does_not_verify_is_a_misconfiguration(
    client: str, hosts: Callable[..., Host]
) -> None:
    there = hosts("certificate")

    exc = error_of(lambda: CLIENTS[client](there))

    assert stored(exc) == ("CONFIG_INVALID", False)


@pytest.mark.parametrize(
    ("reply", "error_class", "is_retried"),
    [
        ("-LOADING Redis is loading the dataset", "UPSTREAM_DOWN", True),
        ("-READONLY You can't write against a read only replica.", "UPSTREAM_DOWN", True),
        ("-ERR max number of clients reached", NETWORK, True),
        ("-NOAUTH Authentication required.", "AUTH_DENIED", False),
        ("-WRONGTYPE Operation against a key", "DEFECT", False),
    ],
)
@pytest.mark.req("R-02", "R-08", "R-10")
def test_redis_is_retried_after_a_temporary_reply_and_not_after_a_permanent_one(
    reply: str, error_class: str, is_retried: bool
) -> None:
    with mail_host(*[reply] * 4) as port:
        exc = error_of(lambda: by_redis(Host(f"http://127.0.0.1:{port}", port)))

    assert stored(exc) == (error_class, is_retried)


@pytest.mark.req("R-02", "R-03", "R-04", "R-07", "R-08")
def test_grpc_is_retried_by_its_status_code() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.engine.grpc_faults"],
        capture_output=True, text=True, timeout=100, check=False, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = {name: tuple(value) for name, value in json.loads(done.stdout).items()}

    for fault in GRPC_FAULTS:
        assert found[fault] in ((NETWORK, True), ("UPSTREAM_DOWN", True)), fault
    for code, expected in GRPC_CODES.items():
        assert found[code] == found[f"{code} async"] == expected, code


def test_the_published_table_has_every_client_and_fault() -> None:
    page = (ROOT / "docs/concepts/retries-and-errors.md").read_text()

    assert "\n".join(table()) in page


def send_mail(port: int) -> None:
    with smtplib.SMTP("127.0.0.1", port, timeout=QUICK, local_hostname="here") as mail:
        mail.sendmail("a@x.test", ["b@x.test"], "hello")


HELLO = ("220 here", "250 here")
BUSY, REFUSED = f"451 later {CANARY}", f"550 no such user {CANARY}"


@pytest.mark.parametrize(
    ("replies", "error_class", "is_retried"),
    [
        pytest.param(("421 busy",), NETWORK, True, id="connect"),
        pytest.param(HELLO, NETWORK, True, id="disconnected"),
        pytest.param((*HELLO, BUSY, "250 ok"), "UPSTREAM_DOWN", True, id="sender-4xx"),
        pytest.param((*HELLO, "250 ok", BUSY, "250"), "UPSTREAM_DOWN", True, id="recipient-4xx"),
        pytest.param((*HELLO, REFUSED, "250 ok"), "GONE", False, id="sender-5xx"),
        pytest.param((*HELLO, "250 ok", REFUSED, "250"), "GONE", False, id="recipient-5xx"),
        pytest.param(
            (*HELLO, "250", "250", "354", "554 spam", "250"), "POLICY_REJECTED", False, id="data"
        ),
    ],
)
@pytest.mark.req("R-12")
def test_mail_is_retried_after_a_temporary_reply_and_not_after_a_permanent_one(
    replies: tuple[str, ...], error_class: str, is_retried: bool
) -> None:
    with mail_host(*replies) as port:
        exc = error_of(lambda: send_mail(port))

    assert stored(exc) == (error_class, is_retried)


def test_mail_to_a_closed_port_is_retried_and_a_rejected_password_is_not() -> None:
    refused = error_of(lambda: send_mail(closed_port()))
    denied = smtplib.SMTPAuthenticationError(535, CANARY.encode())

    assert stored(refused) == (NETWORK, True)
    assert stored(denied) == ("AUTH_DENIED", False)


# -- errors by their names: classes with the same module, names and attributes as a client's


def made(name: str, *bases: type, **attributes: Any) -> Exception:
    """An exception of class *name* (``module:Class``), with attributes."""
    module, _, short = name.partition(":")
    kind = type(short, bases or (Exception,), {"__module__": module})
    exc: Exception = kind(CANARY)
    for attribute, value in attributes.items():
        setattr(exc, attribute, value)
    return exc


def a_class(name: str, *bases: type) -> type:
    return type(made(name, *bases))


class GrpcCode(enum.Enum):
    UNAVAILABLE = (14, "unavailable")
    DEADLINE_EXCEEDED = (4, "deadline exceeded")
    RESOURCE_EXHAUSTED = (8, "resource exhausted")
    NOT_FOUND = (5, "not found")
    UNAUTHENTICATED = (16, "unauthenticated")


class Response:
    def __init__(self, status_code: int) -> None:
        self.status_code = status_code
        self.headers = {"RETRY-AFTER": "3"}


def of_grpc(code: GrpcCode) -> Exception:
    return made("grpc.aio._call:AioRpcError", a_class("grpc:RpcError"), code=lambda: code)


def of_grpc_sync(code: GrpcCode) -> Exception:
    def blocks() -> None:
        raise AssertionError("a call that has not ended would block")

    state = type("_RPCState", (), {"code": code})()
    return made("grpc._channel:_InactiveRpcError", _state=state, code=blocks)


def of_aws(code: str, status: int) -> Exception:
    reply = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return made("botocore.exceptions:ClientError", response=reply)


TRANSPORT = a_class("httpx:TransportError")
AIO = a_class("aiohttp.client_exceptions:ClientConnectionError")
REDIS = a_class("redis.exceptions:ConnectionError")

LOOK_ALIKES: list[tuple[Exception, str, bool]] = [
    (made("httpx:ConnectError", a_class("httpx:NetworkError", TRANSPORT)), NETWORK, True),
    (made("httpx:ReadTimeout", a_class("httpx:TimeoutException", TRANSPORT)), NETWORK, True),
    (made("httpx:RemoteProtocolError", TRANSPORT), NETWORK, True),
    (made("httpx:UnsupportedProtocol", TRANSPORT), "DEFECT", False),
    (made("httpx:HTTPStatusError", response=Response(503)), "UPSTREAM_DOWN", True),
    (made("httpx:HTTPStatusError", response=Response(404)), "GONE", False),
    (made("shop.errors:MyStatusError", a_class("httpx:HTTPStatusError"), response=Response(429)),
     "RATE_LIMITED", True),
    (made("aiohttp.client_exceptions:ClientConnectorError", AIO, OSError), NETWORK, True),
    (made("aiohttp.client_exceptions:ServerDisconnectedError", AIO), NETWORK, True),
    (made("aiohttp.client_exceptions:ClientPayloadError"), NETWORK, True),
    (made("aiohttp.client_exceptions:ClientConnectorCertificateError", AIO), "CONFIG_INVALID",
     False),
    (made("aiohttp.client_exceptions:ClientResponseError", status=503), "UPSTREAM_DOWN", True),
    (made("aiohttp.client_exceptions:ClientResponseError", status=404), "GONE", False),
    (made("aiohttp.client_exceptions:ContentTypeError", status=200), "DEFECT", False),
    (made("redis.exceptions:ConnectionError"), NETWORK, True),
    (made("redis.exceptions:TimeoutError"), NETWORK, True),
    (made("redis.exceptions:BusyLoadingError", REDIS), "UPSTREAM_DOWN", True),
    (made("redis.exceptions:ReadOnlyError"), "UPSTREAM_DOWN", True),
    (made("redis.exceptions:AuthenticationError", REDIS), "AUTH_DENIED", False),
    (made("redis.exceptions:ResponseError"), "DEFECT", False),
    (of_grpc(GrpcCode.UNAVAILABLE), "UPSTREAM_DOWN", True),
    (of_grpc(GrpcCode.DEADLINE_EXCEEDED), NETWORK, True),
    (of_grpc_sync(GrpcCode.RESOURCE_EXHAUSTED), "RATE_LIMITED", True),
    (of_grpc_sync(GrpcCode.NOT_FOUND), "GONE", False),
    (of_grpc(GrpcCode.UNAUTHENTICATED), "AUTH_DENIED", False),
    (made("grpc:FutureTimeoutError"), NETWORK, True),
    (made("google.api_core.exceptions:ServiceUnavailable", code=503), "UPSTREAM_DOWN", True),
    (made("google.api_core.exceptions:NotFound", code=404), "GONE", False),
    (of_aws("ThrottlingException", 400), "RATE_LIMITED", True),
    (of_aws("SlowDown", 503), "RATE_LIMITED", True),
    (of_aws("InternalError", 200), "UPSTREAM_ERROR", True),
    (of_aws("ExpiredToken", 400), "AUTH_DENIED", False),
    (of_aws("NoSuchKey", 404), "GONE", False),
    (made("openai:RateLimitError", code="insufficient_quota", status_code=429), "CONFIG_INVALID",
     False),
    (made("anthropic:APIStatusError", status_code=200,
          body={"type": "error", "error": {"type": "overloaded_error"}}), "UPSTREAM_DOWN", True),
    (made("sqlalchemy.exc:OperationalError", connection_invalidated=True), "STORE_UNAVAILABLE",
     True),
    (made("sqlalchemy.exc:InterfaceError", orig=asyncpg.ConnectionDoesNotExistError()),
     "STORE_UNAVAILABLE", True),
    (made("sqlalchemy.exc:OperationalError", orig=psycopg.errors.DeadlockDetected()),
     "WRITE_CONFLICT", True),
    (asyncpg.DeadlockDetectedError(), "WRITE_CONFLICT", True),
    (asyncpg.SerializationError(), "WRITE_CONFLICT", True),
    (asyncpg.CannotConnectNowError(), "STORE_UNAVAILABLE", True),
    (psycopg.errors.SerializationFailure(), "WRITE_CONFLICT", True),
    (psycopg.errors.UniqueViolation(), "DEFECT", False),
    (ssl.SSLEOFError(8, "EOF occurred in violation of protocol"), NETWORK, True),
    (ssl.SSLError(1, "record layer failure"), NETWORK, True),
    (ssl.SSLCertVerificationError("expired"), "CONFIG_INVALID", False),
    (http.client.IncompleteRead(b"x"), NETWORK, True),
    (http.client.RemoteDisconnected(), NETWORK, True),
    (http.client.ResponseNotReady(), "DEFECT", False),
    (asyncio.IncompleteReadError(b"", 5), NETWORK, True),
    (OSError(errno.ENETUNREACH, "Network is unreachable"), NETWORK, True),
    (OSError(errno.EHOSTUNREACH, "No route to host"), NETWORK, True),
    (OSError("Multiple exceptions: [Errno 111] Connect call failed, [Errno 113] x"), NETWORK, True),
    (OSError(errno.ENOSPC, "No space left on device"), "DEFECT", False),
    (FileNotFoundError(errno.ENOENT, "x", "/x"), "DEFECT", False),
    (urllib.error.URLError("unknown url type: x"), "DEFECT", False),
    (urllib.error.URLError(ConnectionResetError()), NETWORK, True),
    (made("shop.errors:ShopError", status_code=503, code=503), "DEFECT", False),
    (made("shop.errors:ShopError", response=Response(503)), "UPSTREAM_DOWN", True),
    (made("pycurl:error", args=(7, "Failed to connect")), NETWORK, True),
    (made("pycurl:error", args=(28, "Operation timed out")), NETWORK, True),
    (made("pycurl:error", args=(22, "returned error: 503")), "UPSTREAM_DOWN", True),
    (made("pycurl:error", args=(22, "returned error: 404")), "GONE", False),
    (made("pycurl:error", args=(60, "SSL certificate problem")), "CONFIG_INVALID", False),
    (made("pycurl:error", args=(3, "URL malformed")), "DEFECT", False),
    (made("pycurl:error"), "DEFECT", False),
    (made("curl_cffi.requests.exceptions:DNSError"), NETWORK, True),
    (made("curl_cffi.requests.exceptions:InvalidURL"), "DEFECT", False),
    (made("xmlrpc.client:ProtocolError", errcode=503), "UPSTREAM_DOWN", True),
    (made("xmlrpc.client:ProtocolError", errcode=404), "GONE", False),
    (made("pymongo.errors:AutoReconnect"), NETWORK, True),
    (made("pymongo.errors:DuplicateKeyError"), "DEFECT", False),
    (made("redis.exceptions:OutOfMemoryError"), "UPSTREAM_DOWN", True),
    (
        made(
            "botocore.exceptions:ClientError",
            response={"Error": {"Code": "KMS.ThrottlingException"}},
        ),
        "RATE_LIMITED",
        True,
    ),
]  # fmt: skip


@pytest.mark.req("R-01", "R-02", "R-03", "R-04", "R-05", "R-07", "R-08", "R-10", "R-12")
@pytest.mark.parametrize(
    ("exc", "error_class", "is_retried"),
    LOOK_ALIKES,
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_a_client_is_recognized_by_its_names(
    exc: Exception, error_class: str, is_retried: bool
) -> None:
    assert stored(exc) == (error_class, is_retried)


@pytest.mark.req("R-12")
def test_a_locked_sqlite_database_behind_sqlalchemy_is_retried(tmp_path: object) -> None:
    import sqlalchemy as sa

    path = f"{tmp_path}/own.db"
    first = sqlite3.connect(path, isolation_level=None)
    first.execute("BEGIN EXCLUSIVE")
    engine = sa.create_engine(f"sqlite:///{path}", connect_args={"timeout": 0})

    def write() -> None:
        with engine.connect() as connection:
            connection.execute(sa.text("CREATE TABLE t (a)"))

    exc = error_of(write)

    assert stored(exc) == ("WRITE_CONFLICT", True)
    first.close()
    engine.dispose()


# -- chains


class ShopError(Exception):
    """An application's own error."""


def wrapped_by_cause() -> None:
    try:
        raise ConnectionResetError(CANARY)
    except OSError as exc:
        raise ShopError(CANARY) from exc


def wrapped_by_context() -> None:
    try:
        raise made("httpx:HTTPStatusError", response=Response(503))
    except Exception:
        raise ShopError(CANARY)  # noqa: B904


def wrapped_group() -> None:
    try:
        raise ExceptionGroup("several", [ConnectionResetError(CANARY), TimeoutError()])
    except ExceptionGroup as exc:
        raise ShopError(CANARY) from exc


def wrapped_by_argument() -> None:
    raise ShopError("failed", TimeoutError(CANARY))


def wrapped_by_attribute() -> None:
    raise made("shop:E", original_error=ConnectionRefusedError())


@pytest.mark.req("R-02", "R-12")
@pytest.mark.parametrize(
    "call",
    [
        wrapped_by_cause,
        wrapped_by_context,
        wrapped_group,
        wrapped_by_argument,
        wrapped_by_attribute,
    ],
)
def test_the_network_error_inside_an_error_of_the_application_decides(
    call: Callable[[], None],
) -> None:
    _, is_retried = stored(error_of(call))

    assert is_retried


def group_with_a_bug() -> None:
    try:
        raise ExceptionGroup("several", [ConnectionResetError(CANARY), ValueError(CANARY)])
    except ExceptionGroup as exc:
        raise ShopError(CANARY) from exc


@pytest.mark.req("R-02")
def test_a_group_waits_for_the_longest_delay_that_one_of_its_errors_asks_for() -> None:
    status = made("httpx:HTTPStatusError", response=Response(429))

    failure = classify(ExceptionGroup("several", [TimeoutError(), status]))

    assert retry_after_of(failure) == timedelta(seconds=3)


def bug_in_an_except_block() -> None:
    try:
        raise ConnectionResetError(CANARY)
    except OSError:
        {}["missing"]


def hidden_context() -> None:
    try:
        raise ConnectionResetError(CANARY)
    except OSError:
        raise ShopError(CANARY) from None


@pytest.mark.req("R-10")
@pytest.mark.parametrize("call", [bug_in_an_except_block, hidden_context, group_with_a_bug])
def test_a_bug_after_a_network_error_is_a_defect(call: Callable[[], None]) -> None:
    assert stored(error_of(call)) == ("DEFECT", False)


def test_a_process_that_exits_after_a_network_error_is_no_network_error() -> None:
    left = SystemExit(1)
    left.__context__ = ConnectionResetError()

    assert stored(left) == ("DEFECT", False)


def test_circular_and_endless_chains_are_followed_for_a_bounded_number_of_links() -> None:
    first, second = ShopError(), ShopError()
    first.__cause__, second.__cause__ = second, first
    first.args = (first, second)
    endless: Exception = TimeoutError()
    for _ in range(100_000):
        above = ShopError()
        above.__cause__ = endless
        endless = above
    began = time.perf_counter()

    assert stored(first) == ("DEFECT", False)
    assert stored(endless) == ("DEFECT", False)
    assert len(list(network_links(endless))) == 16
    assert time.perf_counter() - began < 1
    while endless.__cause__ is not None:
        # Python releases such a chain recursively.
        endless.__cause__, endless = None, endless.__cause__  # type: ignore[assignment]


class Hostile(Exception):
    """Raises on every attribute access."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(CANARY)


class HostileHeaders:
    def items(self) -> Any:
        raise RuntimeError(CANARY)


def test_an_error_that_breaks_when_it_is_inspected_breaks_nothing() -> None:
    reply = Response(503)
    reply.headers = HostileHeaders()  # type: ignore[assignment]
    with_headers = made("httpx:HTTPStatusError", response=reply)

    fault_of(Hostile(CANARY), stage="run", attempt=1)

    assert stored(with_headers) == ("UPSTREAM_DOWN", True)
    assert retry_after_of(classify(with_headers)) is None


# -- Retry-After


@pytest.mark.req("R-03", "R-25")
@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "120"}, 120),
        ({"RETRY-AFTER": " 0 "}, 0),
        ([(b"retry-after", b"9")], 9),
        ({"retry-after-ms": "1500"}, 1.5),
        ({"Date": "Wed, 21 Oct 2026 07:28:00 GMT", "Retry-After": "Wed, 21 Oct 2026 07:29:30 GMT"},
         90),
        ({"Date": "Wed, 21 Oct 2026 07:28:00 GMT", "Retry-After": "Wed, 21 Oct 2020 07:29:30 GMT"},
         0),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "-5"}, None),
        ({"Retry-After": "9" * 5_000}, None),
        ({"Retry-After": "Wed, 21 Oct 99999 07:28:00 GMT"}, None),
        ({"Retry-After": 7}, None),
        ({}, None),
        (None, None),
    ],
)  # fmt: skip
def test_the_delay_is_read_in_seconds_or_as_a_date(headers: Any, seconds: float | None) -> None:
    reply = Response(503)
    reply.headers = headers

    found = retry_after_of(classify(made("httpx:HTTPStatusError", response=reply)))

    assert found == (None if seconds is None else timedelta(seconds=seconds))


def test_a_date_without_the_clock_of_the_server_is_compared_with_the_own_clock() -> None:
    reply = Response(503)
    reply.headers = {"Retry-After": "Fri, 21 Oct 2089 07:28:00 GMT"}

    found = retry_after_of(classify(made("httpx:HTTPStatusError", response=reply)))

    assert found is not None
    assert found > timedelta(days=365)


# -- in a worker


def due_in(hf: Holdfast, job_id: str, clock: FakeClock) -> float:
    due = hf.get(job_id, org_id=ORG).record["not_before_at"]
    return float((due - clock.now()).total_seconds()) if due else 0.0


@pytest.mark.req("R-02", "R-12")
def test_jobs_that_meet_a_closed_port_wait_for_their_next_attempt(hf: Holdfast) -> None:
    url = f"http://127.0.0.1:{closed_port()}"
    hf.job("call", max_attempts=3)(lambda job, payload: by_httpx2(url))
    jobs = hf.enqueue_many("call", [{}] * 5, org_id=ORG)

    hf.worker(concurrency=2).run(until_idle=True)

    found = [hf.get(item.id, org_id=ORG) for item in jobs]
    assert {(job.state, job.error_class) for job in found} == {(State.QUEUED, NETWORK)}


@pytest.mark.req("R-03", "R-25")
@pytest.mark.parametrize(("asked", "waited"), [("100", 100), ("86400", 300)])
def test_a_worker_waits_as_long_as_the_response_asks_for_at_most_five_minutes(
    hf: Holdfast, clock: FakeClock, asked: str, waited: int
) -> None:
    reply = Response(429)
    reply.headers = {"Retry-After": asked}

    @hf.job("call", retry=RetryPolicy(steps=(timedelta(seconds=1),)))
    def call(job: Context, payload: Any) -> None:
        raise made("httpx:HTTPStatusError", response=reply)

    made_job = hf.enqueue("call", {}, org_id=ORG)
    hf.worker().run(until_idle=True)

    job = hf.get(made_job.id, org_id=ORG)
    assert (job.state, job.error_class) == (State.QUEUED, "RATE_LIMITED")
    assert job.last_error == "RATE_LIMITED stage=run attempt=1 exception=HTTPStatusError status=429"
    assert due_in(hf, made_job.id, clock) == pytest.approx(waited, abs=1)


def test_failures_of_the_application_are_left_as_they_are() -> None:
    for failure in (RateLimited(), UpstreamDown(retry_after=4), AuthDenied()):
        assert isinstance(failure, Failure)
        assert classify(failure) is failure
    assert stored(StoreDown("x")) == ("STORE_UNAVAILABLE", True)
