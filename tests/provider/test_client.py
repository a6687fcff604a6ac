"""The guarded client: its requests, the answers, and its errors."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterator

import pytest

from holdfast import FakeClock
from holdfast.outbound.client import MAX_ANSWER, Client, NotSent, Timeouts, Unsure
from holdfast.outbound.guard import Guard, Origin
from tests.provider.plain_server import PlainServer, plain_server, read_request, reset, say
from tests.telemetry.receiver import PEM, receiving

QUICK = Timeouts(connect=2, read=0.2, write=2, pool=2)


def open_client(server: PlainServer, **options: object) -> Client:
    guard = Guard(Origin.from_url(server.url, allow_private=True), allow_private=True)
    return Client(guard, QUICK, **options)  # type: ignore[arg-type]


def test_an_answer_of_every_status_is_returned_with_its_retry_delay() -> None:
    with plain_server(say(503, b"busy", "Retry-After: 7", "X-Thing: a")) as server:
        answer = open_client(server).send("GET", "/v1/x?y=1", {"authorization": "Bearer k"})

    assert (answer.status, answer.body, answer.retry_after) == (503, b"busy", 7.0)
    assert answer.headers["x-thing"] == "a"
    assert server.requests[0].startswith(b"GET /v1/x?y=1 HTTP/1.1\r\n")
    assert b"authorization: Bearer k" in server.requests[0]
    assert b"accept-encoding: identity" in server.requests[0]


def test_a_redirect_is_an_answer_and_is_not_followed() -> None:
    with plain_server(say(302, b"", "Location: http://169.254.169.254/")) as server:
        answer = open_client(server).send("POST", "/", {"authorization": "Bearer k"}, b"{}")

    assert answer.status == 302
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (reset, "reset"),
        (b"", "reset"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf", "reset"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n", "reset"),
        (b"HTTP/1.1 200 OK\r\n\r\nup to the end of the connection", "unframed_body"),
        (b"no http at all\r\n\r\n", "reset"),
        (say(200, b"x", "Content-Encoding: gzip"), "encoded_body"),
        (lambda connection, request: read_request(connection), "timeout"),
    ],
    ids=["reset", "closed", "cut", "chunk_cut", "unframed", "garbage", "encoded", "silent"],
)
def test_a_call_without_a_whole_answer_is_unsure_and_is_made_once(
    answer: bytes | Callable[[socket.socket, bytes], None], reason: str
) -> None:
    with plain_server(answer) as server, pytest.raises(Unsure) as unsure:
        open_client(server).send("POST", "/", {}, b"{}")

    assert unsure.value.reason == reason
    assert len(server.requests) == 1


def test_a_refused_connection_was_not_sent() -> None:
    with plain_server(say(200, b"")) as server:
        pass

    with pytest.raises(NotSent) as missed:
        open_client(server).send("POST", "/", {}, b"{}")
    assert missed.value.reason == "unreachable"


def test_a_name_that_means_our_own_network_is_not_connected_to() -> None:
    with plain_server(say(200, b"")) as server:
        origin = Origin("http", "api.example.com", server.port)
        client = Client(Guard(origin, resolve=lambda host, port: ["127.0.0.1"]), QUICK)
        with pytest.raises(NotSent) as missed:
            client.send("GET", "/", {})

    assert missed.value.reason == "blocked"
    assert server.requests == []


def test_the_connection_goes_to_the_address_that_was_looked_at() -> None:
    asked = []

    def resolve(host: str, port: int) -> list[str]:
        asked.append((host, port))
        return ["127.0.0.1"]

    with plain_server(say(200, b"")) as server:
        origin = Origin("http", "no-such-host.invalid", server.port)
        guard = Guard(origin, allow_private=True, resolve=resolve)
        answer = Client(guard, QUICK).send("GET", "/", {})

    assert answer.status == 200
    assert asked == [("no-such-host.invalid", server.port)]
    assert f"Host: no-such-host.invalid:{server.port}".encode() in server.requests[0]


def test_an_answer_that_never_ends_is_left() -> None:
    def endless(connection: socket.socket, request: bytes) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n")
        try:
            for _ in range(MAX_ANSWER // 65536 + 2):
                connection.sendall(b"x" * 65536)
        except OSError:
            pass

    with plain_server(endless) as server, pytest.raises(Unsure, match="too_large"):
        open_client(server).send("GET", "/", {})


@pytest.mark.req("E-17")
def test_a_body_that_drips_is_left_when_its_time_is_over() -> None:
    clock = FakeClock()
    with plain_server(say(200, b"x" * 200_000)) as server:
        client = open_client(server, clock=clock)
        with client.stream("GET", "/", {}) as answer:
            assert next(answer.pieces)
            clock.advance(hours=2)
            with pytest.raises(Unsure, match="timeout"):
                list(answer.pieces)


def test_a_body_is_sent_in_pieces_with_the_declared_length() -> None:
    def pieces() -> Iterator[bytes]:
        yield b"one\n"
        yield b"two\n"

    with plain_server(say(200, b"")) as server:
        open_client(server).send("POST", "/", {"content-length": "8"}, pieces())

    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    assert body == b"one\ntwo\n"
    assert b"transfer-encoding" not in head.lower()


def test_an_error_while_a_body_is_made_is_the_callers_own() -> None:
    def broken() -> Iterator[bytes]:
        yield b"one\n"
        raise KeyError("row")

    with plain_server(say(200, b"")) as server, pytest.raises(KeyError):
        open_client(server).send("POST", "/", {"content-length": "8"}, broken())

    assert server.requests == []


def test_nothing_of_a_call_is_in_the_log_but_where_it_went(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.DEBUG), plain_server(say(200, b"geheim-answer")) as server:
        open_client(server).send("POST", "/", {"authorization": "geheim-key"}, b"geheim-text")

    assert "geheim" not in caplog.text


@pytest.mark.parametrize(
    ("host", "trusted", "arrives"),
    [("localhost", True, True), ("localhost", False, False), ("api.example.com", True, False)],
)
def test_a_certificate_must_be_vouched_for_and_be_of_the_hosts_own_name(
    host: str, trusted: bool, arrives: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(PEM))
    with receiving(tls=True) as receiver:
        port = Origin.from_url(receiver.url).port
        origin = Origin("https", host, port)
        guard = Guard(origin, allow_private=True, resolve=lambda host, port: ["127.0.0.1"])
        client = Client(guard, QUICK)
        if arrives:
            assert client.send("POST", "/", {}, b"{}").status == 204
        else:
            with pytest.raises(NotSent, match="tls"):
                client.send("POST", "/", {}, b"{}")

    assert len(receiver.got) == arrives
