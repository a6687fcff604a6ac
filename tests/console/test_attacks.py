"""Hostile forms at the console: slow, large and compressed bodies, and guessed keys."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from holdfast import Holdfast, ServeSettings
from holdfast.api import create_app
from tests.api.conftest import loop, make_key
from tests.story import make_holdfast

OWN = {"sec-fetch-site": "same-origin"}
FORM = {**OWN, "content-type": "application/x-www-form-urlencoded"}


@pytest.fixture
def client(hf: Holdfast) -> TestClient:
    return TestClient(create_app(hf), base_url="http://127.0.0.1", follow_redirects=False)


@pytest.fixture
def member(client: TestClient, hf: Holdfast) -> TestClient:
    """A browser that is logged in."""
    login = {"key": make_key(hf, "operator", None)}
    assert client.post("/console/login", data=login, headers=OWN).status_code == 303
    return client


@pytest.mark.parametrize("path", ["/console/login", "/console/queues/q:default/pause"])
@pytest.mark.parametrize(
    ("content", "headers", "status"),
    [
        (b"reason=" + b"x" * 100_000, {}, 413),
        (gzip.compress(b"reason=x", mtime=0), {"content-encoding": "gzip"}, 415),
        (b'{"reason": "x"}', {"content-type": "application/json"}, 415),
        (b"&".join(b"a%d=1" % n for n in range(300)), {}, 400),
    ],
    ids=["large", "compressed", "not a form", "many fields"],
)
def test_a_hostile_form_is_refused_and_nothing_is_done(
    member: TestClient,
    hf: Holdfast,
    path: str,
    content: bytes,
    headers: dict[str, str],
    status: int,
) -> None:
    answer = member.post(path, content=content, headers={**FORM, **headers})

    assert answer.status_code == status
    assert "text/html" in answer.headers["content-type"]
    assert hf.queues.rules().queues["q:default"].paused_at is None


def test_a_form_without_a_length_is_cut_at_the_limit(member: TestClient) -> None:
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        while sent < 10_000_000:
            sent += 10_000
            yield b"x" * 10_000

    answer = member.post("/console/queues/q:default/pause", content=endless(), headers=FORM)

    assert answer.status_code == 413


@pytest.mark.parametrize("path", ["/console/login", "/v1/session"])
def test_a_login_that_drips_is_left_when_its_time_is_over(url: str, path: str) -> None:
    hf = make_holdfast(url, serve=ServeSettings(body_seconds=0.1))
    app, sent = create_app(hf), list[Any]()

    async def drip() -> dict[str, Any]:
        await asyncio.sleep(0.03)
        return {"type": "http.request", "body": b"k", "more_body": True}

    async def keep(message: Any) -> None:
        sent.append(message)

    headers = {**FORM, "host": "127.0.0.1", "authorization": f"Bearer {make_key(hf)}"}
    scope = {
        "type": "http", "method": "POST", "path": path, "raw_path": path.encode(),
        "query_string": b"", "root_path": "", "scheme": "http", "http_version": "1.1",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
    }  # fmt: skip

    async def send() -> None:
        async with asyncio.timeout(60):
            await app(scope, drip, keep)

    loop().run_until_complete(send())
    hf.close()

    assert sent[0]["status"] == 408


@pytest.mark.parametrize(
    "content", [b"x" * 3_000_000, gzip.compress(b"{}", mtime=0)], ids=["large", "compressed"]
)
def test_a_session_takes_no_large_or_compressed_body(
    client: TestClient, hf: Holdfast, content: bytes
) -> None:
    headers = {"authorization": f"Bearer {make_key(hf)}"}
    if content.startswith(b"\x1f"):
        headers["content-encoding"] = "gzip"

    answer = client.post("/v1/session", content=content, headers=headers)

    assert answer.status_code == (415 if "content-encoding" in headers else 413)
    assert "set-cookie" not in answer.headers


def test_guessing_keys_at_the_login_is_limited(client: TestClient, hf: Holdfast) -> None:
    wrong = {"key": "hf_live_" + "x" * 43}

    answers = [client.post("/console/login", data=wrong, headers=OWN) for _ in range(61)]
    statuses = [answer.status_code for answer in answers]
    right = client.post("/console/login", data={"key": make_key(hf)}, headers=OWN)
    # Failures of the login and of the API share one count.
    api = client.get("/v1/jobs", headers={"authorization": "Bearer hf_live_x"})
    hf.clock.advance(minutes=1)  # type: ignore[attr-defined]
    later = client.post("/console/login", data={"key": make_key(hf)}, headers=OWN)

    assert (set(statuses[:60]), statuses[60]) == ({403}, 429)
    assert "text/html" in answers[60].headers["content-type"]
    assert int(answers[60].headers["retry-after"]) <= 60
    assert (right.status_code, api.status_code, later.status_code) == (429, 429, 303)


def test_a_login_counts_against_the_rate_of_its_key(client: TestClient, hf: Holdfast) -> None:
    login = {"key": make_key(hf, requests_per_minute=3)}

    statuses = [
        client.post("/console/login", data=login, headers=OWN).status_code for _ in range(4)
    ]

    assert statuses == [303, 303, 303, 429]
