"""A wrong address is a fault of the account: it does not count as an attempt of any job."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from holdfast import FakeClock, Holdfast
from holdfast.event import BatchAlert
from holdfast.operate.doctor import Severity, examine
from holdfast_llm.batch.accounts import ConfiguredAccounts
from holdfast_llm.settings import ProviderSettings
from tests.batch.outgoing import ROUTE, Outgoing, set_out
from tests.operate.sound import assert_sound
from tests.provider.plain_server import plain_server, say
from tests.story import make_holdfast

REPLIES = {
    "html_404": say(404, b"<html>Not Found</html>"),
    "html_405": say(405, b"<html>Method Not Allowed</html>"),
    "json_404": say(404, b'{"error":{"message":"Invalid URL (POST /v2/files)","type":"x"}}'),
    "fastapi_404": say(404, b'{"detail":"Not Found"}'),
    "redirect": say(301, b"", "location: https://elsewhere.example/"),
    "proxy_login": say(407, b"<html>Log in</html>"),
    "portal": say(200, b"<html>Welcome</html>"),
}
KINDS = ("openai_responses", "anthropic_messages", "mistral_chat", "gemini_generate")


@contextmanager
def sending_to(url: str, clock: FakeClock, address: str, kind: str) -> Iterator[Outgoing]:
    account = ProviderSettings(
        base_url=address, allow_private=True, credential_env="KEY", connect_seconds=2.0
    )
    with make_holdfast(url, clock, providers={"there": account}) as hf:
        out = set_out(hf, clock)
        hf.batch.accounts = ConfiguredAccounts(hf.settings, env={"KEY": "sk-test"})
        yield out


def run_for_ten_hours(out: Outgoing) -> None:
    for number in range(10):
        out.submit(owner=f"run-{number}")
        out.later(minutes=61)


def alerts(out: Outgoing) -> set[str]:
    return {str(one.what) for one in out.told if isinstance(one, BatchAlert)}


def route(kind: str) -> Any:
    return replace(ROUTE, provider="there", adapter_kind=kind)


@pytest.mark.req("R-07")
@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        *(("html_404", kind) for kind in KINDS),
        *zip(list(REPLIES)[1:-1], itertools.cycle(KINDS), strict=False),
        ("portal", "openai_responses"),
        ("portal", "anthropic_messages"),
    ],
)
def test_a_wrong_address_costs_no_attempt_and_is_named(
    migrated_sqlite_url: str, clock: FakeClock, kind: str, reply: str
) -> None:
    with (
        plain_server(REPLIES[reply]) as server,
        sending_to(migrated_sqlite_url, clock, server.url, kind) as out,
    ):
        (job,) = out.enqueue("one", route=route(kind))

        run_for_ten_hours(out)

        if (reply, kind) != ("portal", "anthropic_messages"):
            # A create may have been accepted there behind the portal, so the batch is looked up.
            assert (out.job(job).state, out.job(job).attempt_count) == ("queued", 0)
        assert out.job(job).attempt_count == 0
        assert "circuit_opened" in alerts(out)
        problems = [
            one for one in doctor(out.hf) if one.check == "circuits" and one.severity == "problem"
        ]
        assert ["providers.there.base_url" in one.remedy for one in problems] == [True]
        assert_sound(out.hf)


def doctor(hf: Holdfast) -> list[Any]:
    return examine(hf.operate(actor="user:op", role="admin").context)


def test_an_unknown_host_name_counts_no_attempt(url: str, clock: FakeClock) -> None:
    with sending_to(url, clock, "https://no-such-host.invalid", "openai_responses") as out:
        (job,) = out.enqueue("one", route=route("openai_responses"))

        run_for_ten_hours(out)

        assert (out.job(job).state, out.job(job).attempt_count) == ("queued", 0)


@contextmanager
def server_without_tls() -> Iterator[str]:
    """The server answers in plain text although the client uses TLS."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"https://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def test_a_server_without_tls_costs_no_attempt(url: str, clock: FakeClock) -> None:
    with (
        server_without_tls() as address,
        sending_to(url, clock, address, "openai_responses") as out,
    ):
        (job,) = out.enqueue("one", route=route("openai_responses"))

        run_for_ten_hours(out)

        assert (out.job(job).state, out.job(job).attempt_count) == ("queued", 0)
        assert "circuit_opened" in alerts(out)


def test_the_doctor_asks_each_account_a_free_question(url: str, clock: FakeClock) -> None:
    good, bad = say(200, b'{"data": [], "has_more": false}'), say(404, b"<html></html>")
    for reply, severity in ((good, Severity.OK), (bad, Severity.PROBLEM)):
        with (
            plain_server(reply) as server,
            sending_to(url, clock, server.url, "openai_responses") as out,
        ):
            out.enqueue("one", route=route("openai_responses"))
            watch = out.hf.operate(actor="user:op", role="admin").context

            found = examine(watch, probes=True)

            (there,) = [
                one
                for one in found
                if one.check == "providers" and one.facts["account"].startswith("there|")
            ]
            assert there.severity is severity
            assert all(request.startswith(b"GET ") for request in server.requests)
            assert server.requests
