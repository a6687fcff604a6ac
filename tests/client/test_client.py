"""The typed client: the calls of the API document, idempotent retries, resumed streams."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import pkgutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import httpx2
import pytest

from holdfast import FakeClock, Gone, Holdfast
from holdfast.api import create_app
from holdfast.api.server import Server
from holdfast.client import (
    AccessRefused,
    AsyncClient,
    Client,
    Invalid,
    Missing,
    StreamEnded,
    Unavailable,
    calls,
    operations,
)
from holdfast.client.calls.shared import BulkActionView, BulkPlan
from holdfast.client.models import Event
from holdfast.client.operations import Call, EventReader
from tests.api.conftest import make_key
from tests.operate.letters import die_at_once
from tests.story import ORG, make_holdfast
from tests.tree import ROOT

URL = "https://api.example.com"


@pytest.fixture
def hf(migrated_sqlite_url: str, clock: FakeClock) -> Iterator[Holdfast]:
    made = make_holdfast(migrated_sqlite_url, clock)
    made.job("work")(lambda job, payload: None)
    yield made
    made.close()


class InProcess(httpx2.BaseTransport):
    """Answers of an application in this process, optionally after a failure."""

    def __init__(self, app: Any, *failures: Exception | httpx2.Response) -> None:
        self.app = app
        self.failures = list(failures)
        self.requests: list[httpx2.Request] = []

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)

        async def send() -> httpx2.Response:
            inner = httpx2.ASGITransport(self.app)
            plain = httpx2.Request(
                request.method, request.url, headers=request.headers, content=request.read()
            )
            response = await inner.handle_async_request(plain)
            body = await response.aread()
            return httpx2.Response(response.status_code, headers=response.headers, content=body)

        answer = asyncio.run(send())
        if self.failures:
            failure = self.failures.pop(0)
            if isinstance(failure, Exception):
                raise failure
            return failure
        return answer


def client_of(hf: Holdfast, *failures: Exception | httpx2.Response) -> tuple[Client, InProcess]:
    transport = InProcess(create_app(hf), *failures)
    client = Client(URL, make_key(hf), transport=transport)
    client._sleep = lambda seconds: None  # type: ignore[assignment]
    return client, transport


MODULES = [
    operations,
    *(
        importlib.import_module(f"{calls.__name__}.{found.name}")
        for found in pkgutil.iter_modules(calls.__path__)
    ),
]
# Sessions are for browsers.
LEFT_OUT = {"log_in", "log_out", "get_session"}


def every_call() -> list[Call[Any]]:
    """Each operation, called with every argument that it has."""
    given: dict[str, Any] = {"payload": {}, "filter": {}, "subjects": ["jobs"], "events": ["e"]}
    found = []
    for module in MODULES:
        for function in vars(module).values():
            if not inspect.isfunction(function) or function.__module__ != module.__name__:
                continue
            signature = inspect.signature(function)
            if str(signature.return_annotation).startswith("Call["):
                found.append(function(**{one: given.get(one, "x") for one in signature.parameters}))
    return found


def test_the_client_has_every_operation_of_the_api_document(hf: Holdfast) -> None:
    document = create_app(hf).openapi()
    schemas = document["components"]["schemas"]
    called = {call.operation_id: call for call in every_call()}
    listed = {
        operation["operationId"]: (path, method, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    assert set(called) == set(listed) - LEFT_OUT
    for operation_id, call in called.items():
        path, method, operation = listed[operation_id]
        assert (call.path, call.method.lower()) == (path, method)
        known = {(one["in"], one["name"].lower()) for one in operation.get("parameters", [])}
        used = {("query", name) for name in call.query} | {("path", name) for name in call.names}
        used |= {("header", name.lower()) for name in call.headers if name != "Accept"}
        assert used <= known, operation_id
        if call.body is not None:
            body = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
            properties = schemas[body.rpartition("/")[2]]["properties"]
            assert set(call.body) == set(properties), operation_id


def test_the_resources_are_those_that_the_tool_writes() -> None:
    done = subprocess.run(
        [sys.executable, "tools/client_code.py", "--check"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.stdout, done.returncode) == ("", 0), done.stderr


def test_both_clients_have_the_same_resources_and_methods() -> None:
    def methods(client: Any) -> dict[str, set[str]]:
        return {
            name: {one for one in dir(found) if not one.startswith("_")}
            for name, found in vars(client).items()
            if type(found).__module__.startswith("holdfast.client.resources")
        }

    plain = methods(
        Client(URL, "k", transport=httpx2.MockTransport(lambda _: httpx2.Response(200)))
    )
    assert plain == methods(AsyncClient(URL, "k"))
    assert set(plain) == {module.__name__.rpartition(".")[2] for module in MODULES[1:]} - {"shared"}


def test_an_operator_uses_every_kind_of_answer(hf: Holdfast) -> None:
    """A listing, an object with nested objects, a list, one value, and a removed limit."""
    client, transport = client_of(hf)
    client._http.headers["Authorization"] = f"Bearer {make_key(hf, 'admin', None)}"
    (dead,) = die_at_once(hf, Gone())

    assert client.queues.pause("q:default", reason="INC-7")
    assert not client.queues.pause("q:default", reason="INC-7")
    limited = client.queues.set_limits("q:default", reason="INC-7", max_running=3)
    assert (limited.max_running, limited.is_paused, limited.weight) == (3, True, 4)
    assert (
        client.queues.set_limits("q:default", reason="INC-7", max_running=None).max_running is None
    )
    assert json.loads(transport.requests[-1].content) == {"reason": "INC-7", "max_running": None}
    assert [one.name for one in client.queues.every(is_paused=True, limit=1)] == ["q:default"]
    triaged = client.dead_letters.triage(dead.id, kind="transient")
    found = client.dead_letters.get(dead.id)
    assert found.letter == triaged
    assert isinstance(found.letter.last_failure_at, datetime)
    client.dead_letters.add_note(dead.id, "seen")
    assert [note.body for note in client.dead_letters.get(dead.id).notes] == ["seen"]
    planned = client.dead_letters.act_on_all(
        reason="INC-7", action="discard", filter={"job_type": found.letter.job_type}
    )
    assert isinstance(planned, BulkPlan)
    assert planned.matched == 1
    started = client.dead_letters.act_on_all(
        reason="INC-7",
        action="discard",
        filter={"job_type": found.letter.job_type},
        dry_run=False,
        expected=1,
    )
    assert isinstance(started, BulkActionView)
    assert client.bulk_actions.get(started.id).id == started.id
    made = client.jobs.enqueue_many([{"job_type": "work", "org_id": ORG}] * 2)
    assert len({one.id for one in made}) == 2
    assert client.audit.list(name="queue.paused", limit=1).items[0].detail


def test_a_lost_answer_is_repeated_with_the_same_key_and_is_one_job(hf: Holdfast) -> None:
    busy = httpx2.Response(503, headers={"Retry-After": "0"})
    client, transport = client_of(hf, httpx2.ReadError("lost"), busy)
    made = client.jobs.enqueue("work", {"n": 1})

    assert not made.created
    assert len({one.headers["idempotency-key"] for one in transport.requests}) == 1
    assert [job.id for job in client.jobs.every(limit=1)] == [made.id]
    assert client.jobs.get(made.id).state == "queued"
    assert client.jobs.explain(made.id).job_id == made.id
    assert [(one.state, one.jobs) for one in client.jobs.counts()] == [("queued", 1)]


def test_a_change_without_an_answer_is_repeated_with_its_key_and_made_once(hf: Holdfast) -> None:
    client, transport = client_of(hf)
    job = client.jobs.enqueue("work", {})
    transport.failures, transport.requests = [httpx2.ReadError("lost")], []

    assert client.jobs.cancel(job.id, reason="test") == "canceled"

    assert len(transport.requests) == 2
    assert len({one.headers["idempotency-key"] for one in transport.requests}) == 1
    events = [event.name for event in client.jobs.events(job.id)]
    assert events.count("job.canceled") == 1, events


def test_a_change_that_is_still_in_progress_is_asked_for_again(hf: Holdfast) -> None:
    document = {"code": "request_in_progress", "detail": "in progress"}
    busy = httpx2.Response(409, json=document, headers={"Retry-After": "0"})
    client, transport = client_of(hf, busy)

    client.jobs.enqueue("work", {})

    assert len(transport.requests) == 2


def test_problems_are_exceptions_with_code_next_step_and_fields(hf: Holdfast) -> None:
    client, _ = client_of(hf)
    with pytest.raises(Missing) as missing:
        client.jobs.get("0198c0de-0000-7000-8000-00000000dead")
    with pytest.raises(Invalid) as invalid:
        client.jobs.enqueue("work", {}, max_attempts=0)
    client._http.headers["Authorization"] = "Bearer hf_live_wrong"
    with pytest.raises(AccessRefused) as refused:
        client.jobs.list()

    assert (missing.value.status, missing.value.code) == (404, "job_not_found")
    assert list(invalid.value.errors) == ["max_attempts"]
    assert refused.value.code == "invalid_credentials"
    assert refused.value.next_step
    assert refused.value.request_id


def test_a_server_that_is_away_is_tried_four_times(hf: Holdfast) -> None:
    client, transport = client_of(hf, *[httpx2.ConnectError("no")] * 4)
    with pytest.raises(Unavailable) as away:
        client.jobs.list()
    assert (len(transport.requests), away.value.code) == (4, "unreachable")


def test_a_reader_of_events_takes_any_division_into_parts() -> None:
    sent = (
        b"retry: 50\nid: 7\n\n: heartbeat\nid: 8\n\n"
        b'id: 9~8\nevent: change\ndata: {"id":"9","name":"job.started","subject":"job:1",'
        b'"at":"2026-03-01T12:00:00Z","extra":1}\r\n\r\n'
    )
    for size in (1, 7, len(sent)):
        reader = EventReader(None, Event)
        parts = (sent[at : at + size] for at in range(0, len(sent), size))
        (event,) = [event for part in parts for event in reader.feed(part)]
        assert isinstance(event, Event)
        assert (event.name, event.position, reader.retry_seconds) == ("job.started", "9~8", 0.05)
    with pytest.raises(StreamEnded):
        list(EventReader(None, Event).feed(b'event: end\ndata: {"reason":"access_ended"}\n\n'))


@pytest.fixture
def served(migrated_sqlite_url: str) -> Iterator[tuple[Holdfast, str, list[Server]]]:
    """A real server; a test may stop it and start another one at the same address."""
    hf = Holdfast(migrated_sqlite_url)
    hf.job("work")(lambda job, payload: None)
    servers: list[Server] = []
    threads: list[threading.Thread] = []

    def start(port: int) -> Server:
        server = Server(hf, port=port)
        thread = threading.Thread(target=server.run)
        thread.start()
        servers.append(server)
        threads.append(thread)
        return server

    first = start(0)
    hf.start = start  # type: ignore[attr-defined]
    yield hf, first.url, servers
    for server in servers:
        server.stop()
    for thread in threads:
        thread.join(timeout=30)
    assert not any(thread.is_alive() for thread in threads)
    hf.close()


def test_a_stream_continues_after_the_server_was_started_again(
    served: tuple[Holdfast, str, list[Server]],
) -> None:
    hf, url, servers = served
    with Client(url, make_key(hf)) as client:
        stream = client.events(["jobs"], after="0")
        first = client.jobs.enqueue("work", {}).id
        assert next(stream).job_id == first
        servers[0].stop()
        missed = hf.enqueue("work", {}, org_id=ORG).id
        port = int(url.rpartition(":")[2])
        for _ in range(100):
            try:
                hf.start(port)  # type: ignore[attr-defined]
                break
            except Exception:
                threading.Event().wait(0.1)
        assert next(stream).job_id == missed
        stream.close()  # type: ignore[attr-defined]


def test_the_asynchronous_client_has_the_same_calls(
    served: tuple[Holdfast, str, list[Server]],
) -> None:
    hf, url, _ = served

    async def story() -> None:
        async with AsyncClient(url, make_key(hf)) as client:
            made = await client.jobs.enqueue("work", {})
            assert (await client.jobs.get(made.id)).state == "queued"
            assert [job.id async for job in client.jobs.every()] == [made.id]
            assert await client.jobs.cancel(made.id, reason="test") == "canceled"
            found = []
            async for event in client.events([f"job:{made.id}"], after="0"):
                found.append(event.name)
                if event.state == "canceled":
                    break
            assert found == ["job.enqueued", "job.cancel_requested", "job.canceled"]
            hook = await client.webhooks.add("https://example.com/x", reason="test")
            assert hook.secret
            assert [one.id for one in (await client.webhooks.list()).items] == [hook.id]
            assert await client.webhooks.remove(hook.id, reason="test")

    asyncio.run(story())
    ours = {name for name in vars(AsyncClient) if not name.startswith("_")}
    assert ours == {name for name in vars(Client) if not name.startswith("_")}
