"""An application with the API in this process: no server, no socket."""

from __future__ import annotations

import asyncio
import atexit
from functools import cache
from typing import Any

import httpx2
import pytest

from holdfast import Holdfast
from holdfast.api import create_app
from tests.story import ORG

WHY = "a test"


@cache
def loop() -> asyncio.AbstractEventLoop:
    """One event loop for all requests of a process, so that its threads are reused."""
    made = asyncio.new_event_loop()
    atexit.register(made.close)
    return made


class Client:
    """Makes requests to the application of *hf* as one key."""

    def __init__(self, hf: Holdfast, app: Any, secret: str | None = None) -> None:
        self.hf = hf
        self.app = app
        self.secret = secret
        self.cookies: dict[str, str] = {}
        self.base = "http://127.0.0.1"

    def as_key(self, secret: str | None) -> Client:
        return Client(self.hf, self.app, secret)

    def request(self, method: str, path: str, **given: Any) -> httpx2.Response:
        headers = dict(given.pop("headers", {}))
        if self.secret is not None:
            headers.setdefault("Authorization", f"Bearer {self.secret}")
        if self.cookies:
            headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())

        async def send() -> httpx2.Response:
            transport = httpx2.ASGITransport(self.app)
            async with httpx2.AsyncClient(transport=transport, base_url=self.base) as client:
                return await client.request(method, path, headers=headers, **given)

        return loop().run_until_complete(send())

    def get(self, path: str, **given: Any) -> httpx2.Response:
        return self.request("GET", path, **given)

    def post(self, path: str, json: Any = None, **given: Any) -> httpx2.Response:
        return self.request("POST", path, json={} if json is None else json, **given)


def make_key(hf: Holdfast, role: str = "operator", org_id: str | None = ORG, **given: Any) -> str:
    keys = hf.operate(actor="user:root", role="admin").api_keys
    return keys.create("test", role=role, reason=WHY, org_id=org_id, **given).secret


@pytest.fixture
def app(hf: Holdfast) -> Any:
    hf.job("work")(lambda job, payload: None)
    return create_app(hf)


@pytest.fixture
def api(hf: Holdfast, app: Any) -> Client:
    """A client with an operator's key of ORG."""
    return Client(hf, app, make_key(hf))


@pytest.fixture
def operations(api: Client, hf: Holdfast) -> Client:
    """A client with an admin's key of operations."""
    return api.as_key(make_key(hf, "admin", None))
