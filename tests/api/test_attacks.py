"""Hostile requests: large, deep, compressed and slow bodies, forged requests, stolen sessions."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from holdfast import Holdfast, ServeSettings
from holdfast.actor import Actor, ActorType, Role
from holdfast.api import Identity, create_app
from holdfast.api.authentication import COOKIE
from tests.api.conftest import WHY, Client, loop, make_key
from tests.story import ORG, make_holdfast

JSON = {"Content-Type": "application/json"}
OWN_PAGE = {"Sec-Fetch-Site": "same-origin"}


def post(api: Client, content: bytes, **headers: str) -> tuple[int, str]:
    answer = api.request("POST", "/v1/jobs", content=content, headers={**JSON, **headers})
    return answer.status_code, answer.json()["code"]


@pytest.mark.parametrize(
    ("content", "headers", "answer"),
    [
        (b"x" * (1024 * 1024 + 1), {}, (413, "body_too_large")),
        (gzip.compress(b"{}", mtime=0), {"Content-Encoding": "gzip"}, (415, "compressed_body")),
        (b"a=b", {"Content-Type": "application/x-www-form-urlencoded"},
         (415, "unsupported_media_type")),
        (b"cos\nsystem\n", {"Content-Type": "application/x-pickle"},
         (415, "unsupported_media_type")),
        (b"[" * 100_000, {}, (400, "invalid_json")),
        (b'{"payload": ' + b'{"a": ' * 50 + b"1" + b"}" * 51, {}, (400, "invalid_json")),
        (b'{"job_type": "work", "job_type": "work"}', {}, (400, "invalid_json")),
        (b'{"payload": {"a": NaN}}', {}, (400, "invalid_json")),
        (b'{"payload": {"a": 1e400}}', {}, (400, "invalid_json")),
        (b'{"payload": {"a": ' + b"9" * 5_000 + b"}}", {}, (400, "invalid_json")),
        (b'{"job_type": "\\ud800"}', {}, (400, "invalid_json")),
        (b'{"job_type": "a\\u0000"}', {}, (400, "invalid_json")),
        (b'\xff\xfe{"job_type": "work"}', {}, (400, "invalid_json")),
        (b'{"job_type": "work", "payload": {"key": "sk-ant-api03-' + b"x" * 90 + b'"}}', {},
         (422, "secret_in_payload")),
        (b'{"job_type": "work", "role": "admin"}', {}, (422, "invalid_request")),
    ],
    ids=lambda value: str(value)[:20] if isinstance(value, tuple) else None,
)  # fmt: skip
def test_a_hostile_body_is_refused(
    api: Client, content: bytes, headers: dict[str, str], answer: tuple[int, str]
) -> None:
    assert post(api, content, **headers) == answer


def test_a_body_without_a_length_is_cut_at_the_limit(
    api: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A body without an end is discarded for a while, so that the client reads the answer."""
    monkeypatch.setattr("holdfast.api.bodies.DISCARDED_BYTES", 3_000_000)
    sent = 0

    async def endless() -> Any:
        nonlocal sent
        while sent < 100:
            sent += 1
            yield b"x" * 100_000

    answer = api.request("POST", "/v1/jobs", content=endless(), headers=JSON)

    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")
    assert sent == 31


def test_a_backslash_before_the_letters_u0000_is_ordinary_text(api: Client) -> None:
    answer = api.post("/v1/jobs", {"job_type": "work", "payload": {"a": "\\u0000"}})

    assert answer.status_code == 201


def test_a_body_that_drips_is_left_when_its_time_is_over(url: str) -> None:
    hf = make_holdfast(url, serve=ServeSettings(body_seconds=0.1))
    app, secret = create_app(hf), make_key(hf)
    sent: list[Any] = []

    async def drip() -> dict[str, Any]:
        await asyncio.sleep(0.03)
        return {"type": "http.request", "body": b"[", "more_body": True}

    async def keep(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http", "method": "POST", "path": "/v1/jobs", "raw_path": b"/v1/jobs",
        "query_string": b"", "root_path": "", "scheme": "http", "http_version": "1.1",
        "headers": [(b"authorization", f"Bearer {secret}".encode()),
                    (b"content-type", b"application/json"), (b"host", b"127.0.0.1")],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
    }  # fmt: skip

    loop().run_until_complete(app(scope, drip, keep))
    hf.close()

    assert sent[0]["status"] == 408


def test_a_key_in_a_url_is_refused_and_repeated_nowhere(
    api: Client, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "holdfast"):
        answer = api.get(f"/v1/jobs?key={api.secret}")

    assert (answer.status_code, answer.json()["code"]) == (400, "key_in_query")
    assert api.secret is not None
    assert api.secret not in answer.text + caplog.text


def test_control_characters_reach_neither_log_nor_answer(
    api: Client, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A forged id cannot begin a line of the log, and an error shows no stack and no message."""

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("SELECT secret FROM payload\nline two")

    monkeypatch.setattr("holdfast.operate.jobs.Jobs.get", fail)
    answer = api.get("/v1/jobs/a%0d%0aforged%1b[31m", headers={"X-Request-Id": "a b"})

    assert (answer.status_code, answer.json()["code"]) == (500, "internal_error")
    assert answer.headers["Content-Security-Policy"]
    assert "SELECT" not in answer.text + caplog.text
    assert "forged" not in caplog.text
    assert not any(ord(letter) < 32 for letter in answer.text + caplog.text.rstrip("\n"))
    assert " " not in answer.headers["X-Request-Id"]


def test_a_session_has_a_new_value_at_every_login_and_ends_on_the_server(
    api: Client, hf: Holdfast
) -> None:
    browser = api.as_key(None)
    login = {"Authorization": f"Bearer {api.secret}"}
    browser.cookies = {COOKIE: "hf_session_chosen-by-an-attacker"}

    first = browser.request("POST", "/v1/session", headers=login)
    browser.cookies = {COOKIE: first.cookies[COOKIE]}
    second = browser.request("POST", "/v1/session", headers=login)
    old = browser.get("/v1/session").status_code
    browser.cookies = {COOKIE: second.cookies[COOKIE]}
    new = browser.get("/v1/session").status_code
    out = browser.request("DELETE", "/v1/session", headers=OWN_PAGE)
    after = browser.get("/v1/session").status_code

    flags = first.headers["set-cookie"].lower()
    assert "httponly" in flags
    assert "samesite=lax" in flags
    assert "attacker" not in flags
    assert first.cookies[COOKIE] != second.cookies[COOKIE]
    assert (old, new, out.status_code, after) == (401, 200, 204, 401)


def test_a_cookie_over_the_network_is_secure_and_expires(
    api: Client, hf: Holdfast, clock: Any
) -> None:
    browser = api.as_key(None)
    browser.base = "https://holdfast.example.com"
    login = {"Authorization": f"Bearer {api.secret}"}

    answer = browser.request("POST", "/v1/session", headers=login)
    browser.cookies = {COOKIE: answer.cookies[COOKIE]}
    clock.advance(hours=12)

    assert "secure" in answer.headers["set-cookie"].lower()
    assert answer.headers["Strict-Transport-Security"]
    assert browser.get("/v1/session").status_code == 401


def test_a_session_ends_with_its_key(api: Client, hf: Holdfast) -> None:
    browser = api.as_key(None)
    answer = browser.request(
        "POST", "/v1/session", headers={"Authorization": f"Bearer {api.secret}"}
    )
    browser.cookies = {COOKIE: answer.cookies[COOKIE]}
    keys = hf.operate(actor="user:root", role="admin").api_keys

    before = browser.get("/v1/jobs").status_code
    keys.revoke(keys.list()[0].id, reason=WHY)

    assert (before, browser.get("/v1/jobs").status_code) == (200, 401)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Sec-Fetch-Site": "same-origin"}, 201),
        ({"Origin": "http://127.0.0.1"}, 201),
        ({}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "none"}, 403),
        ({"Origin": "http://127.0.0.1.evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Origin": "http://127.0.0.1"}, 403),
    ],
)
def test_a_change_with_a_cookie_must_come_from_a_page_of_this_server(
    api: Client, headers: dict[str, str], status: int
) -> None:
    browser = api.as_key(None)
    answer = browser.request(
        "POST", "/v1/session", headers={"Authorization": f"Bearer {api.secret}"}
    )
    browser.cookies = {COOKIE: answer.cookies[COOKIE]}

    made = browser.post("/v1/jobs", {"job_type": "work"}, headers=headers)

    assert made.status_code == status
    assert "access-control-allow-origin" not in made.headers


def test_every_answer_has_the_security_headers(api: Client) -> None:
    for path in ("/v1/jobs", "/nope", "/v1/docs"):
        headers = api.get(path).headers
        assert "unsafe" not in headers["Content-Security-Policy"]
        assert headers["Content-Security-Policy"].startswith("default-src 'none'")
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["X-Frame-Options"] == "DENY"
        assert headers["Cache-Control"] == "no-store"


def test_a_key_has_its_rate_in_every_process(hf: Holdfast, app: Any) -> None:
    """For the rate limit, two applications on one database count as two processes."""
    secret = make_key(hf, requests_per_minute=3)
    first, second = Client(hf, app, secret), Client(hf, create_app(hf), secret)

    statuses = [client.get("/v1/jobs") for client in (first, second, first, second)]

    assert [answer.status_code for answer in statuses] == [200, 200, 200, 429]
    assert int(statuses[-1].headers["Retry-After"]) <= 60
    hf.clock.advance(minutes=1)  # type: ignore[attr-defined]
    assert first.get("/v1/jobs").status_code == 200


def test_guessing_keys_is_limited(api: Client) -> None:
    wrong = api.as_key("hf_live_" + "x" * 43)

    statuses = [wrong.get("/v1/jobs").status_code for _ in range(61)]

    assert (set(statuses[:60]), statuses[60]) == ({401}, 429)


def test_an_application_authenticates_by_itself(hf: Holdfast) -> None:
    async def authenticate(request: Any) -> Identity | None:
        if request.headers.get("x-user") != "ada":
            return None
        return Identity(Actor(ActorType.USER, "ada"), Role.OPERATOR, ORG)

    hf.job("work")(lambda job, payload: None)
    app = create_app(hf, authenticate=authenticate)
    anonymous, ada = Client(hf, app), {"X-User": "ada"}

    assert anonymous.get("/v1/jobs").status_code == 401
    assert anonymous.get("/v1/jobs", headers=ada).status_code == 200
    # A cookie may carry it, so a change needs the same proof as one with a session.
    assert anonymous.post("/v1/jobs", {"job_type": "work"}, headers=ada).status_code == 403
    made = anonymous.post("/v1/jobs", {"job_type": "work"}, headers={**ada, **OWN_PAGE})
    assert made.status_code == 201


@pytest.mark.req("X-05")
def test_a_problem_has_a_stable_code_the_next_step_and_no_internals(api: Client) -> None:
    answer = api.get("/v1/jobs/0198c0de-0000-7000-8000-0000000000ff")

    problem = answer.json()
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert problem == {
        "type": "urn:holdfast:problem:job_not_found",
        "title": "Not Found",
        "status": 404,
        "detail": "Job 0198c0de-0000-7000-8000-0000000000ff not found. Check the id and the tenant"
        " it belongs to.",
        "instance": "/v1/jobs/0198c0de-0000-7000-8000-0000000000ff",
        "code": "job_not_found",
        "next_step": "Check the id and the tenant.",
        "request_id": answer.headers["X-Request-Id"],
    }


@pytest.mark.req("X-02", "X-10")
def test_a_refused_payload_is_not_repeated(api: Client) -> None:
    canary = "CANARY-7f3a"
    bodies = (
        {"job_type": "work", "payload": {"a": canary, "password": canary}},
        {"job_type": "work", "payload": [canary]},
        {"job_type": "work", "priority": canary},
        {"job_type": "work", "not_before_at": canary, canary: 1},
    )
    for body in bodies:
        answer = api.request("POST", "/v1/jobs", content=json.dumps(body).encode(), headers=JSON)
        assert answer.status_code == 422, answer.text
        assert canary not in answer.text.replace(f'"field":"{canary}"', "")


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/v1/jobs", "GET, HEAD, POST"),
        ("/v1/queues/q:default", "GET, HEAD"),
        ("/v1/jobs/bulk", "GET, HEAD, POST"),
    ],
)
def test_a_method_that_a_path_does_not_have_is_answered_with_those_that_it_has(
    hf: Holdfast, app: Any, path: str, allowed: str
) -> None:
    mounted = Starlette(routes=[Mount("/holdfast", app)])
    for client in (Client(hf, app), Client(hf, mounted)):
        prefix = "/holdfast" if client.app is mounted else ""
        answer = client.request("DELETE", prefix + path)
        assert (answer.status_code, answer.json()["code"]) == (405, "method_not_allowed")
        assert answer.headers["Allow"] == allowed
