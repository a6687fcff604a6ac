"""``holdfast serve`` and ``holdfast keys``: the address, the shutdown and the mount point."""

from __future__ import annotations

import importlib
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.responses import StreamingResponse
from starlette.routing import Mount, Route

from holdfast import Holdfast
from holdfast.api import create_app
from holdfast.api.authentication import COOKIE
from holdfast.api.server import Server, check_address
from holdfast.errors import ConfigError
from holdfast.secret import find_secret
from tests.api.conftest import Client, make_key
from tests.faces.conftest import Run, run  # noqa: F401
from tests.story import ORG, make_holdfast


@pytest.fixture
def hf(migrated_sqlite_url: str) -> Any:
    made = make_holdfast(migrated_sqlite_url)
    yield made
    made.close()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "holdfast.example.com"])
def test_another_address_than_loopback_needs_a_key_first(hf: Holdfast, host: str) -> None:
    with pytest.raises(ConfigError, match="holdfast keys create NAME"):
        check_address(hf, host, is_dev=False)

    make_key(hf)
    check_address(hf, host, is_dev=False)
    with pytest.raises(ConfigError, match="listens on this machine only"):
        check_address(hf, host, is_dev=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.9", "::1", "localhost"])
def test_loopback_needs_none(hf: Holdfast, host: str) -> None:
    check_address(hf, host, is_dev=True)


def test_a_port_that_is_taken_is_named(hf: Holdfast) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port}.*--port"):
            Server(hf, port=port)


def test_it_serves_logs_in_once_by_its_link_and_stops_with_an_open_stream(hf: Holdfast) -> None:
    server = Server(hf, port=0, is_dev=True, shutdown_seconds=1)
    begun = threading.Event()

    async def endless(_: Any) -> StreamingResponse:
        async def lines() -> Any:
            import asyncio

            while True:
                yield b": open\n\n"
                begun.set()
                await asyncio.sleep(0.05)

        return StreamingResponse(lines(), media_type="text/event-stream")

    server.app.router.routes.insert(0, Route("/endless", endless))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    (link,) = [line.rpartition(" ")[2] for line in server.greeting if "token=" in line]
    with httpx2.Client(base_url=server.url, timeout=30) as client:
        first = client.get(link)
        second = httpx2.get(link)
        who = client.get("/v1/session").json()
        headers = client.get("/v1/docs").headers

        def listen() -> None:
            with pytest.raises(httpx2.HTTPError), client.stream("GET", "/endless") as stream:
                for _ in stream.iter_raw():
                    pass

        listener = threading.Thread(target=listen, daemon=True)
        listener.start()
        assert begun.wait(30)
        began = time.monotonic()
        server.stop()
        thread.join(timeout=30)

    assert not thread.is_alive()
    assert time.monotonic() - began < 20
    assert (first.status_code, COOKIE in first.headers["set-cookie"]) == (303, True)
    assert second.status_code == 403
    assert (who["actor"], who["role"]) == ("user:dev", "admin")
    assert "server" not in headers


def test_it_is_announced_when_an_interrupt_ends_it_even_if_the_shell_ignores_interrupts(
    migrated_sqlite_url: str,
) -> None:
    # A shell starts a command in the background with the signal ignored.
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN);"
        " from holdfast.cli import main; sys.exit(main())"
    )
    command = [sys.executable, "-c", code, "--db", migrated_sqlite_url, "serve", "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        assert server.stdout.readline().startswith("Holdfast serves http://127.0.0.1:")
        server.send_signal(signal.SIGINT)

        server.communicate(timeout=60)
    finally:
        server.kill()
        server.wait()


@pytest.mark.parametrize(
    ("path", "kind", "size"),
    [
        ("/v1/jobs", "application/json", 10 * 1024 * 1024),
        ("/v1/session", "application/json", 10 * 1024 * 1024),
        ("/console/login", "application/x-www-form-urlencoded", 10 * 1024 * 1024),
    ],
)
def test_a_client_that_sends_too_much_gets_the_answer_and_no_reset_connection(
    hf: Holdfast, path: str, kind: str, size: int
) -> None:
    """A server that closes with unread data resets the connection before the answer is read."""
    server = Server(hf, port=0)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    host, _, port = server.url.removeprefix("http://").partition(":")
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: {kind}\r\n"
        f"Authorization: Bearer {make_key(hf)}\r\nContent-Length: {size}\r\n\r\n"
    )
    try:
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            # The reset is visible here, because the network buffers are smaller than the body.
            connection.sendall(head.encode() + b"x" * size)
            answer = connection.recv(100)
    finally:
        server.stop()
        thread.join(timeout=30)

    assert answer.startswith(b"HTTP/1.1 413 "), answer


def test_it_is_mounted_under_a_path_of_another_application(hf: Holdfast) -> None:
    outer = Starlette(routes=[Mount("/holdfast", create_app(hf))])
    client = Client(hf, outer, make_key(hf))

    document = client.get("/holdfast/openapi.json").json()
    page = client.get("/holdfast/v1/docs")
    login = client.request("POST", "/holdfast/v1/session")

    assert client.get("/holdfast/v1/jobs").status_code == 200
    assert document["servers"] == [{"url": "/holdfast"}]
    assert 'href="/holdfast/v1/docs.css"' in page.text
    assert "http" not in page.text.replace("HTTP", "").split("<body>")[0]
    assert "Path=/holdfast" in login.headers["set-cookie"]


def test_without_the_extra_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastapi", None)
    monkeypatch.delitem(sys.modules, "holdfast.api.extra", raising=False)

    with pytest.raises(ConfigError, match=r"pip install 'holdfast-jobs\[serve\]'"):
        importlib.import_module("holdfast.api.extra")


def test_keys_are_created_listed_rotated_and_revoked_by_commands(
    run: Run,  # noqa: F811
    migrated_sqlite_url: str,
) -> None:
    def keys(*arguments: str) -> Any:
        return run("keys", *arguments, db=migrated_sqlite_url)

    why = ("--reason", "r")
    made = keys("create", "shop", "--role", "operator", "--org", ORG, *why, "--json").json
    plain = keys("create", "ops", *why)
    rotated = keys("rotate", made["id"], "--overlap-hours", "0", *why, "--json").json
    revoked = keys("revoke", rotated["id"], *why)
    listed = {row["id"]: row for row in keys("list", "--json").json}

    assert plain.out.startswith("hf_live_")
    assert "shown once" in plain.err
    assert revoked.out.endswith("revoked\n")
    assert (listed[made["id"]]["state"], listed[rotated["id"]]["state"]) == ("expired", "revoked")
    assert made["secret"] not in str(listed)


def test_a_key_is_recognised_as_a_secret(hf: Holdfast) -> None:
    assert find_secret({"note": make_key(hf)})
