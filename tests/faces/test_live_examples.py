"""The live examples: each serves its page, and its stream reports a change."""

from __future__ import annotations

import asyncio
import re
import runpy
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from holdfast.operate.changes import end_streams
from tests.api.streaming import open_stream

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples" / "live"
Load = Callable[[str], dict[str, Any]]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """Import an example in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SIMULATED_KEY", "")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    loaded: list[Any] = []

    def run(name: str) -> dict[str, Any]:
        found = runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name=name)
        loaded.append(found["hf"])
        return found

    yield run
    for hf in loaded:
        end_streams(hf)
        hf.close()


def client(app: Any) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://localhost")


def test_the_page_of_the_fastapi_example_follows_its_orders(load: Load) -> None:
    app = load("fastapi_app")["app"]

    async def story() -> tuple[str, Any]:
        async with client(app) as web:
            page = await web.get("/")
            script = await web.get(re.findall(r'src="(.+?)"', page.text)[0])
            (path, query) = re.findall(r'EventSource\("(.+?)\?subject=(.+?)"\)', script.text)[0]
            cookie = {"cookie": f"person={web.cookies['person']}"}
            async with open_stream(app, f"/{path}", [("subject", query)], cookie) as stream:
                made = (await web.post("/orders")).json()["job_id"]
                return made, await stream.next()

    job_id, sent = asyncio.run(story())
    assert (sent.event, sent.data["job_id"], sent.data["state"]) == ("change", job_id, "queued")


def test_the_django_example_streams_and_resumes(load: Load) -> None:
    module = load("django_app")
    from django.test import RequestFactory

    async def story() -> list[str]:
        factory = RequestFactory()
        first = await module["events"](factory.get("/events"))
        parts = first.streaming_content
        position = (await anext(parts)).decode().partition(": ")[2].strip()
        await parts.aclose()
        await module["order"](factory.post("/orders"))
        again = factory.get("/events", headers={"Last-Event-ID": position})
        parts = (await module["events"](again)).streaming_content
        found = [(await anext(parts)).decode() for _ in range(3)]
        await parts.aclose()
        return found

    found = asyncio.run(story())
    assert any('"job.enqueued"' in part for part in found)


@pytest.mark.req("F-01", "F-03")
def test_a_message_of_one_person_arrives_politely_in_the_window_of_the_other(load: Load) -> None:
    module = load("rewrite_app")
    app, people = module["app"], module["PEOPLE"]
    path = "/holdfast/v1/rewrites/events"

    async def story() -> None:
        async with app.router.lifespan_context(app), client(app) as nora:
            await nora.get("/?person=nora")
            luis = {"cookie": "person=luis"}
            async with open_stream(app, path, [("user_id", people["nora"])], luis) as spying:
                assert spying.status == 401
            async with open_stream(app, path, [("user_id", people["luis"])], luis) as stream:
                rude = {"text": "Clean the bloody kitchen after yourself, it is disgusting!"}
                assert (await nora.post("/messages", json=rude)).json()["status"] == "queued"
                sent = await stream.next()
                assert sent is not None
                assert (sent.data["role"], sent.data["status"]) == ("received", "completed")
            query = f"?user_id={people['luis']}"
            found = await nora.get(
                f"/holdfast/v1/rewrites/received{query}", headers={"cookie": "person=luis"}
            )
            texts = [one["rewritten_text"] for one in found.json()["items"]]
            assert texts == [module["POLITE"]]

    asyncio.run(story())
