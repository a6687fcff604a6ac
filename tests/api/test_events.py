"""The event stream: own changes only, resumable, ended with its key and with the server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.api import streams
from holdfast.feed.feed import feed_of
from holdfast.operate.changes import end_streams
from tests.api.conftest import WHY, Client, make_key
from tests.api.streaming import Stream, open_stream
from tests.story import ORG, OTHER_ORG


@pytest.fixture(autouse=True)
def _ended(hf: Holdfast) -> Iterator[None]:
    yield
    end_streams(hf)


def opened(
    api: Client, *query: tuple[str, str], **headers: str
) -> AbstractAsyncContextManager[Stream]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    if api.secret is not None:
        named["authorization"] = f"Bearer {api.secret}"
    return open_stream(api.app, "/v1/events", list(query), named)


async def enqueue(hf: Holdfast, org_id: str = ORG, **payload: Any) -> str:
    return (await asyncio.to_thread(hf.enqueue, "work", payload, org_id=org_id)).id


async def jobs_in(stream: Stream, count: int) -> list[str]:
    return [(await stream.next()).data["job_id"] for _ in range(count)]  # type: ignore[union-attr]


@pytest.mark.req("F-02", "F-03", "X-01")
def test_a_client_gets_its_own_changes_and_resumes_where_it_was(hf: Holdfast, api: Client) -> None:
    async def story() -> None:
        async with opened(api) as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            assert stream.headers["cache-control"] == "no-store"
            await enqueue(hf, OTHER_ORG)
            first = await enqueue(hf, text="secret words")
            sent = await stream.next()
            assert sent is not None
            assert (sent.event, sent.data["job_id"], sent.data["state"]) == (
                "change",
                first,
                "queued",
            )
            assert set(sent.data) == {
                *("id", "name", "subject", "job_id", "job_type", "queue", "state", "attempt"),
                *("org_id", "at"),
            }
        await enqueue(hf, OTHER_ORG)
        missed = [await enqueue(hf) for _ in range(2)]
        async with opened(api, last_event_id=stream.last_id or "") as again:
            later = await enqueue(hf)
            assert await jobs_in(again, 3) == [*missed, later]

    asyncio.run(story())
    assert feed_of(hf).readers == 0


def test_a_client_that_saw_nothing_yet_resumes_from_the_moment_it_connected(
    hf: Holdfast, api: Client
) -> None:
    async def story() -> None:
        async with opened(api) as stream:
            await stream.next(named=False)
        missed = await enqueue(hf)
        async with opened(api, ("after", stream.last_id or "")) as again:
            assert await jobs_in(again, 1) == [missed]

    asyncio.run(story())


def test_a_client_chooses_subjects_and_operations_choose_a_tenant(
    hf: Holdfast, api: Client, operations: Client
) -> None:
    async def story() -> None:
        watched = await enqueue(hf)
        async with (
            opened(api, ("subject", f"job:{watched}")) as one,
            opened(operations) as everybody,
            opened(operations, ("org_id", OTHER_ORG)) as others,
        ):
            foreign, own = await enqueue(hf, OTHER_ORG), await enqueue(hf)
            assert await jobs_in(everybody, 2) == [foreign, own]
            assert await jobs_in(others, 1) == [foreign]
            await asyncio.to_thread(
                hf.operate(actor="user:1", role="admin").cancel, watched, reason=WHY
            )
            states = [(await one.next()).data["state"] for _ in range(2)]  # type: ignore[union-attr]
            assert states == [None, "canceled"]

    asyncio.run(story())


def test_a_summary_names_what_changed_and_not_each_change(hf: Holdfast, api: Client) -> None:
    async def story() -> None:
        async with opened(api, ("summary", "true")) as stream:
            jobs = await asyncio.to_thread(hf.enqueue_many, "work", [{}] * 3, org_id=ORG)
            sent = await stream.next()
            assert sent is not None
            assert sent.event == "changed"
            assert sent.data["subjects"] == sorted(
                [*(f"job:{job.id}" for job in jobs), "jobs", "queue:q:default"]
            )

    asyncio.run(story())


@pytest.mark.parametrize("wrong", [("subject", "nonsense"), ("after", "1~2"), ("after", "x")])
def test_a_wrong_subject_and_a_forged_position_are_problems(
    api: Client, wrong: tuple[str, str]
) -> None:
    async def story() -> tuple[int, Any]:
        async with opened(api, wrong) as stream:
            return stream.status, await stream.body()

    status, problem = asyncio.run(story())
    assert status == 422
    assert [one["field"] for one in problem["errors"]] == [wrong[0]]


def test_a_tenants_key_cannot_name_another_tenant(api: Client) -> None:
    async def story() -> int:
        async with opened(api, ("org_id", OTHER_ORG)) as stream:
            return stream.status

    assert asyncio.run(story()) == 403


@pytest.mark.req("F-04", "B-14")
@pytest.mark.parametrize("scopes", [["frontend"], ["jobs:read"]])
def test_a_key_without_the_scope_gets_no_stream(
    hf: Holdfast, api: Client, scopes: list[str]
) -> None:
    weak = api.as_key(make_key(hf, "viewer", scopes=scopes))

    async def story() -> list[int]:
        found = []
        for client in (weak, api.as_key(None), api.as_key("hf_live_wrong")):
            async with opened(client) as stream:
                found.append(stream.status)
        return found

    assert asyncio.run(story()) == [403, 401, 401]


def test_a_stream_ends_before_it_sends_an_event_to_a_revoked_key(
    hf: Holdfast, api: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "FRESH_SECONDS", 0)
    keys = hf.operate(actor="user:root", role="admin").api_keys
    made = keys.create("short", role="viewer", reason=WHY, org_id=ORG)

    async def story() -> None:
        async with opened(api.as_key(made.secret)) as stream:
            await asyncio.to_thread(keys.revoke, made.key.id, reason=WHY)
            await enqueue(hf)
            sent = await stream.next()
            assert sent is not None
            assert (sent.event, sent.data) == ("end", {"reason": "access_ended"})
            assert await stream.next() is None

    asyncio.run(story())


def test_an_idle_stream_checks_its_key_and_sends_heartbeats_with_its_position(
    hf: Holdfast, api: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "CHECK_SECONDS", 0.01)
    monkeypatch.setattr(streams, "HEARTBEAT_SECONDS", 0.02)
    keys = hf.operate(actor="user:root", role="admin").api_keys
    made = keys.create("short", role="viewer", reason=WHY, org_id=ORG)

    async def story() -> None:
        async with opened(api.as_key(made.secret)) as stream:
            before = (await stream.next(named=False)).id  # type: ignore[union-attr]
            await enqueue(hf, OTHER_ORG)
            while (await stream.next(named=False)).id == before:  # type: ignore[union-attr]
                pass
            await asyncio.to_thread(keys.revoke, made.key.id, reason=WHY)
            hf.clock.advance(seconds=60)  # type: ignore[attr-defined]
            sent = await stream.next()
            assert sent is not None
            assert sent.data == {"reason": "access_ended"}

    asyncio.run(story())


def test_a_stopping_server_says_farewell(hf: Holdfast, api: Client) -> None:
    async def story() -> None:
        async with opened(api) as stream:
            await asyncio.to_thread(end_streams, hf)
            sent = await stream.next()
            assert sent is not None
            assert (sent.event, sent.data) == ("end", {"reason": "shutting_down"})
            assert await stream.next() is None

    asyncio.run(story())


def test_more_streams_than_the_server_can_have_are_refused(
    api: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "MOST_STREAMS", 1)

    async def story() -> list[int]:
        async with opened(api) as first, opened(api) as second:
            found = [first.status, second.status]
        async with opened(api) as third:
            return [*found, third.status]

    assert asyncio.run(story()) == [200, 503, 200]
