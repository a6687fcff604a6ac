"""Repeated and conditional requests: Idempotency-Key, If-Match and If-None-Match."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from holdfast import FakeClock, Holdfast
from holdfast.api.idempotency import REPLAYED
from holdfast.errors import StoreBusy, StoreDown
from tests.api.conftest import WHY, Client, loop, make_key
from tests.api.world import BODIES, World, make_world
from tests.operate.letters import die_at_once
from tests.story import ORG, OTHER_ORG, look


@pytest.fixture
def world(url: str, clock: FakeClock, tmp_path: Path) -> Iterator[World]:
    made = make_world(url, clock, tmp_path)
    yield made
    made.hf.close()


def count(hf: Holdfast, table: str, where: str = "1 = 1") -> int:
    rows = look(hf.store, f"SELECT count(*) AS found FROM holdfast.{table} WHERE {where}")
    return int(rows[0]["found"])


def events(hf: Holdfast) -> int:
    return count(hf, "job_event", "name <> 'operator.refused'")


def letter_of(hf: Holdfast) -> str:
    from holdfast import Gone

    (dead,) = die_at_once(hf, Gone())
    return dead.id


# -- Idempotency-Key


def test_every_change_that_is_repeated_with_its_key_acts_once_and_answers_the_same(
    world: World,
) -> None:
    """A route that stores no idempotency key fails here: it acts twice or answers differently."""
    admin = world.key("admin", None)
    replayed = []
    for number, route in enumerate(world.routes()):
        if route.method == "GET":
            continue
        key = {"Idempotency-Key": f"walk-{number}"}
        body = dict(BODIES[route.operation])
        if route.operation in ("enqueue_job", "submit_review"):
            body["org_id"] = ORG
        if route.operation == "enqueue_jobs":
            body = {"jobs": [{"job_type": "work", "org_id": ORG}]}
        first = admin.request(route.method, route.url, json=body, headers=key)
        before = events(world.hf)

        second = admin.request(route.method, route.url, json=body, headers=key)

        if first.status_code >= 300:
            assert second.status_code == first.status_code, route.operation
            continue
        assert events(world.hf) == before, route.operation
        if route.operation in ("enqueue_job",):
            assert second.json()["id"] == first.json()["id"]
            continue
        if "dry_run" in first.json():
            continue
        known = {**first.json(), **({"secret": None} if "secret" in first.json() else {})}
        assert (second.status_code, second.json()) == (first.status_code, known), route.operation
        assert second.headers[REPLAYED] == "true", route.operation
        replayed.append(route.operation)

    assert len(replayed) >= 20, replayed


def test_a_key_of_another_request_is_refused(api: Client, hf: Holdfast) -> None:
    job = api.post("/v1/jobs", {"job_type": "work"}).json()["id"]
    other = api.post("/v1/jobs", {"job_type": "work"}).json()["id"]
    key = {"Idempotency-Key": "k"}
    api.post(f"/v1/jobs/{job}/cancel", {"reason": WHY}, headers=key)

    for path, body in (
        (f"/v1/jobs/{job}/cancel", {"reason": "another reason"}),
        (f"/v1/jobs/{other}/cancel", {"reason": WHY}),
    ):
        answer = api.post(path, body, headers=key)
        assert (answer.status_code, answer.json()["code"]) == (422, "idempotency_key_reused")
    assert api.get(f"/v1/jobs/{other}").json()["state"] == "queued"


def test_the_same_body_with_other_spaces_and_order_is_the_same_request(
    api: Client, hf: Holdfast
) -> None:
    letter = letter_of(hf)
    given: Any = {"headers": {"Idempotency-Key": "k", "Content-Type": "application/json"}}
    path = f"/v1/dead-letters/{letter}/discard"

    first = api.request("POST", path, content=b'{"reason":"a","version":1}', **given)
    second = api.request("POST", path, content=b'{ "version": 1, "reason": "a" }', **given)

    assert (first.status_code, second.status_code) == (200, 200), first.text
    assert second.text == first.text


def test_a_key_belongs_to_its_tenant(hf: Holdfast, app: Any) -> None:
    """The keys of two tenants are independent, and neither reveals the other."""
    hf.enqueue("work", {}, org_id=ORG)
    path, body = "/v1/webhooks", {"url": "https://example.com/hooks", "reason": WHY}
    key = {"Idempotency-Key": "the same"}
    made = [
        Client(hf, app, make_key(hf, "admin", org_id)).post(path, body, headers=key)
        for org_id in (ORG, OTHER_ORG, None)
    ]

    assert [answer.status_code for answer in made] == [201, 201, 201], made[0].text
    assert len({answer.json()["id"] for answer in made}) == 3
    assert not any(REPLAYED in answer.headers for answer in made)


def test_a_key_of_another_caller_of_the_tenant_shows_nothing_of_the_answer(
    api: Client, hf: Holdfast
) -> None:
    admin, operator = api.as_key(make_key(hf, "admin")), api
    key, path = {"Idempotency-Key": "k"}, "/v1/webhooks"
    body = {"url": "https://example.com/hooks", "reason": WHY}
    made = admin.post(path, body, headers=key).json()

    answer = operator.post(path, body, headers=key)

    assert answer.status_code == 422, answer.text
    assert made["id"] not in answer.text


def test_a_secret_is_not_stored_with_the_answer(api: Client, hf: Holdfast) -> None:
    admin = api.as_key(make_key(hf, "admin", None))
    body = {"name": "n", "role": "viewer", "reason": WHY}
    key = {"Idempotency-Key": "k"}

    first = admin.post("/v1/api-keys", body, headers=key)
    second = admin.post("/v1/api-keys", body, headers=key)

    secret = first.json()["secret"]
    stored = look(hf.store, "SELECT answer FROM holdfast.api_request")
    assert secret.startswith("hf_live_")
    assert secret not in str(stored)
    assert second.json() == {**first.json(), "secret": None}
    assert api.as_key(secret).get("/v1/session").status_code == 200


def test_a_kept_answer_expires(api: Client, hf: Holdfast, clock: FakeClock) -> None:
    letter = letter_of(hf)
    path, body = f"/v1/dead-letters/{letter}/notes", {"body": "a note"}
    key = {"Idempotency-Key": "k"}
    first = api.post(path, body, headers=key)
    clock.advance(hours=23)
    still = api.post(path, body, headers=key)
    clock.advance(hours=1)

    later = api.post(path, body, headers=key)

    assert still.text == first.text
    assert later.json()["id"] != first.json()["id"]
    assert count(hf, "api_request") == 1


def test_a_refused_request_gives_its_key_back(api: Client, hf: Holdfast) -> None:
    key = {"Idempotency-Key": "k"}
    letter = letter_of(hf)
    path = f"/v1/dead-letters/{letter}/notes"

    refused = [
        api.post(path, {"body": ""}, headers=key),
        api.post("/v1/dead-letters/0198c0de-0000-7000-8000-0000000000ff/notes",
                 {"body": "a"}, headers=key),
        api.post(path, {"body": "a"}, headers={**key, "If-Match": '"other"'}),
    ]  # fmt: skip
    made = api.post(path, {"body": "a"}, headers=key)

    assert [answer.status_code for answer in refused] == [422, 404, 412]
    assert made.status_code == 201


@pytest.mark.parametrize("key", ["", " ", "x" * 201, "ä", "a\tb"])
def test_a_key_that_is_no_line_of_ascii_is_refused(api: Client, hf: Holdfast, key: str) -> None:
    letter = letter_of(hf)
    answer = api.post(
        f"/v1/dead-letters/{letter}/notes",
        {"body": "a"},
        headers={"Idempotency-Key": key.encode("latin-1")},
    )

    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "Idempotency-Key")


def test_two_requests_with_one_key_at_the_same_time_act_once(
    hf: Holdfast, app: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second request arrives while the first one is being processed."""
    letter = letter_of(hf)
    client = Client(hf, app, make_key(hf))
    headers = {"Authorization": f"Bearer {client.secret}", "Idempotency-Key": "k"}
    begun, may_end = threading.Event(), threading.Event()
    from holdfast.operate.dead_letters import DeadLetters

    add_note = DeadLetters.add_note

    def slow(self: Any, *given: Any, **named: Any) -> Any:
        begun.set()
        assert may_end.wait(10)
        return add_note(self, *given, **named)

    monkeypatch.setattr(DeadLetters, "add_note", slow)

    async def both() -> tuple[httpx2.Response, httpx2.Response]:
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:

            def post() -> Any:
                path = f"/v1/dead-letters/{letter}/notes"
                return http.post(path, json={"body": "a"}, headers=headers)

            first = asyncio.ensure_future(post())
            await asyncio.to_thread(begun.wait, 10)
            second = await post()
            may_end.set()
            return await first, second

    first, second = loop().run_until_complete(both())

    assert first.status_code == 201
    assert (second.status_code, second.json()["code"]) == (409, "request_in_progress")
    assert second.headers["Retry-After"] == "1"
    assert count(hf, "dead_letter_note") == 1


@pytest.mark.parametrize(("error", "is_known"), [(StoreBusy, True), (StoreDown, False)])
def test_a_request_that_was_cut_off_is_not_repeated_unless_it_is_known_to_have_done_nothing(
    hf: Holdfast,
    api: Client,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    error: type[Exception],
    is_known: bool,
) -> None:
    from holdfast.operate.dead_letters import DeadLetters

    letter = letter_of(hf)
    path, key = f"/v1/dead-letters/{letter}/notes", {"Idempotency-Key": "k"}

    def fail(*_: object, **__: object) -> Any:
        raise error("cut off")

    with monkeypatch.context() as patch:
        patch.setattr(DeadLetters, "add_note", fail)
        assert api.post(path, {"body": "a"}, headers=key).status_code == 503

    again = api.post(path, {"body": "a"}, headers=key)
    clock.advance(minutes=1)
    later = api.post(path, {"body": "a"}, headers=key)

    if is_known:
        assert (again.status_code, later.status_code) == (201, 201)
        assert again.text == later.text
    else:
        assert (again.status_code, again.json()["code"]) == (409, "request_in_progress")
        assert (later.status_code, later.json()["code"]) == (409, "request_outcome_unknown")
        assert count(hf, "dead_letter_note") == 0


def test_a_kept_answer_is_seen_by_every_process(hf: Holdfast, api: Client) -> None:
    from holdfast.api import create_app

    letter = letter_of(hf)
    path, key = f"/v1/dead-letters/{letter}/notes", {"Idempotency-Key": "k"}
    first = api.post(path, {"body": "a"}, headers=key)

    second = Client(hf, create_app(hf), api.secret).post(path, {"body": "a"}, headers=key)

    assert second.text == first.text
    assert count(hf, "dead_letter_note") == 1


# -- If-Match and If-None-Match


def test_an_unchanged_document_is_answered_with_304_and_no_body(api: Client) -> None:
    job = api.post("/v1/jobs", {"job_type": "work"}).json()["id"]
    found = api.get(f"/v1/jobs/{job}")
    etag = found.headers["ETag"]

    for sent in (etag, f'"other", {etag}', f"W/{etag}", "*"):
        same = api.get(f"/v1/jobs/{job}", headers={"If-None-Match": sent})
        assert (same.status_code, same.content, same.headers["ETag"]) == (304, b"", etag)
    api.post(f"/v1/jobs/{job}/cancel", {"reason": WHY})
    changed = api.get(f"/v1/jobs/{job}", headers={"If-None-Match": etag})

    assert (changed.status_code, changed.json()["state"]) == (200, "canceled")
    assert changed.headers["ETag"] != etag


def test_a_change_is_made_only_to_the_version_that_the_caller_has_read(
    operations: Client,
) -> None:
    path = "/v1/queues/q:default"
    etag = operations.get(path).headers["ETag"]
    first = operations.post(
        f"{path}/limits", {"weight": 2, "reason": WHY}, headers={"If-Match": etag}
    )
    lost = operations.post(
        f"{path}/limits", {"weight": 3, "reason": WHY}, headers={"If-Match": etag}
    )

    assert first.status_code == 200
    assert (lost.status_code, lost.json()["code"]) == (412, "precondition_failed")
    found = operations.get(path)
    assert (found.json()["weight"], found.headers["ETag"]) == (2, lost.headers["ETag"])


def test_jobs_that_arrive_do_not_change_the_version_of_their_queue(
    operations: Client, api: Client
) -> None:
    """Otherwise no change of a busy queue would succeed; the document itself has changed."""
    path = "/v1/queues/q:default"
    etag = operations.get(path).headers["ETag"]
    api.post("/v1/jobs", {"job_type": "work"})

    known = operations.get(path, headers={"If-None-Match": etag})
    paused = operations.post(f"{path}/pause", {"reason": WHY}, headers={"If-Match": etag})

    assert (known.status_code, paused.status_code) == (200, 200)


@pytest.mark.parametrize(
    ("sent", "status"),
    [("*", 200), ('"x", {etag}', 200), ("W/{etag}", 412), ('""', 412), ("x", 412), ('"x"', 412)],
)
def test_if_match_compares_strongly_and_takes_a_list(api: Client, sent: str, status: int) -> None:
    job = api.post("/v1/jobs", {"job_type": "work"}).json()["id"]
    etag = api.get(f"/v1/jobs/{job}").headers["ETag"]

    answer = api.post(
        f"/v1/jobs/{job}/cancel", {"reason": WHY}, headers={"If-Match": sent.format(etag=etag)}
    )

    assert answer.status_code == status
    state = api.get(f"/v1/jobs/{job}").json()["state"]
    assert state == ("canceled" if status == 200 else "queued")


@pytest.mark.req("X-07")
def test_if_match_on_an_object_of_another_tenant_finds_nothing(
    hf: Holdfast, api: Client, app: Any
) -> None:
    job = api.post("/v1/jobs", {"job_type": "work"}).json()["id"]
    etag = api.get(f"/v1/jobs/{job}").headers["ETag"]
    foreign = Client(hf, app, make_key(hf, "admin", OTHER_ORG))

    for sent in (etag, "*", '"x"'):
        answer = foreign.post(f"/v1/jobs/{job}/cancel", {"reason": WHY}, headers={"If-Match": sent})
        assert answer.status_code == 404


def test_two_changes_of_one_version_at_the_same_time_are_one(
    hf: Holdfast, app: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have read the version; the second waits for the first, and is refused."""
    from holdfast.operate.queues import OperatorQueues

    client = Client(hf, app, make_key(hf, "admin", None))
    path = "/v1/queues/q:default"
    etag = client.get(path).headers["ETag"]
    headers = {"Authorization": f"Bearer {client.secret}", "If-Match": etag}
    begun, may_end = threading.Event(), threading.Event()
    change = OperatorQueues.set

    def slow(self: Any, *given: Any, **named: Any) -> Any:
        begun.set()
        assert may_end.wait(10)
        return change(self, *given, **named)

    monkeypatch.setattr(OperatorQueues, "set", slow)

    async def both() -> list[int]:
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:

            def post(weight: int) -> Any:
                body = {"weight": weight, "reason": WHY}
                return http.post(f"{path}/limits", json=body, headers=headers)

            first = asyncio.ensure_future(post(2))
            await asyncio.to_thread(begun.wait, 10)
            second = asyncio.ensure_future(post(3))
            await asyncio.sleep(0)
            may_end.set()
            return [(await first).status_code, (await second).status_code]

    assert loop().run_until_complete(both()) == [200, 412]


def test_the_document_lists_the_headers_of_every_change(api: Client) -> None:
    document = json.loads(api.get("/v1/openapi.json").text)
    wrong = []
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if method == "get" or path == "/v1/session":
                continue
            headers = {one["name"] for one in operation["parameters"] if one["in"] == "header"}
            wanted = {"Idempotency-Key", *(("If-Match",) if "{" in path else ())}
            if headers != wanted or ("412" in operation["responses"]) != ("{" in path):
                wrong.append((path, headers))

    assert wrong == []
    assert document == api.get("/openapi.json").json()
