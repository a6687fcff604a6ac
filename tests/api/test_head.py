"""HEAD is answered like GET, without a body."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import FakeClock
from tests.api.world import World, make_world

# These differ between two requests.
OWN = ("x-request-id", "set-cookie")


class Sent:
    """Passes requests to an application, and counts the bytes of the bodies that it sends."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.bytes = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def counted(message: Any) -> None:
            self.bytes += len(message.get("body", b""))
            await send(message)

        await self.app(scope, receive, counted)


@pytest.fixture
def world(url: str, clock: FakeClock, tmp_path: Path) -> Iterator[World]:
    made = make_world(url, clock, tmp_path)
    yield made
    made.hf.close()


def headers_of(answer: Any) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name not in OWN}


def test_head_has_the_status_and_the_headers_of_get_and_no_body(world: World) -> None:
    client = world.key("admin", None)
    client.app = sent = Sent(world.app)
    paths = [route.url for route in world.routes() if route.method == "GET"]
    paths += ["/openapi.json", "/v1/openapi.json", "/v1/docs", "/v1/session", "/v1/unknown"]
    statuses = set()
    for path in paths:
        expected = client.get(path)
        sent.bytes = 0

        answer = client.request("HEAD", path)

        assert (answer.status_code, sent.bytes) == (expected.status_code, 0), path
        assert headers_of(answer) == headers_of(expected), path
        statuses.add(answer.status_code)
    assert statuses >= {200, 404}
    assert len(paths) > 40


def test_head_of_an_event_stream_ends_at_once_and_opens_no_stream(world: World) -> None:
    client = world.key("admin", None)

    answer = client.request("HEAD", "/v1/events")

    assert answer.status_code == 200
    assert answer.headers["Content-Type"].startswith("text/event-stream")
    assert "Content-Length" not in answer.headers
    assert world.app.state.__dict__.get("streams", 0) == 0


def test_head_needs_a_key_and_a_path_with_get(world: World) -> None:
    without_key = world.client().request("HEAD", "/v1/jobs")
    without_get = world.key("admin", None).request("HEAD", "/v1/rewrites")

    assert without_key.status_code == 401
    assert (without_get.status_code, without_get.headers["Allow"]) == (405, "POST")


def test_head_of_a_document_that_the_client_has_is_not_modified(world: World) -> None:
    client = world.key("admin", None)
    path = f"/v1/jobs/{world.ids['/v1/jobs/{job_id}']}"
    etag = client.request("HEAD", path).headers["ETag"]

    answer = client.request("HEAD", path, headers={"If-None-Match": etag})

    assert answer.status_code == 304
