"""The console in the application of the HTTP API: sessions and forged requests."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from holdfast import Holdfast, State
from holdfast.api import create_app
from holdfast.api.sessions import DevLogin
from tests.api.conftest import make_key
from tests.console.site import World
from tests.story import ORG


@pytest.fixture
def client(hf: Holdfast) -> TestClient:
    app = create_app(hf, dev_login=DevLogin())
    return TestClient(app, base_url="http://127.0.0.1", follow_redirects=False)


def test_another_site_cannot_act_with_the_session_of_a_browser(
    client: TestClient, hf: Holdfast
) -> None:
    job = World(hf).waiting[0]
    token = client.app.state.dev_login.token  # type: ignore[attr-defined]
    assert client.get(f"/dev-login?token={token}").status_code == 303
    action, reason = f"/console/jobs/{job.id}/cancel", {"reason": "x"}

    for headers in ({}, {"sec-fetch-site": "cross-site"}, {"origin": "https://evil.example"}):
        assert client.post(action, data=reason, headers=headers).status_code == 403
    assert hf.get(job.id, org_id=ORG).state is State.QUEUED
    own = {"sec-fetch-site": "same-origin"}
    assert client.post(action, data=reason, headers=own).status_code == 303
    assert hf.get(job.id, org_id=ORG).state is State.CANCELED


def test_a_key_opens_a_session_in_its_role_and_logging_out_ends_it(
    client: TestClient, hf: Holdfast
) -> None:
    own = {"sec-fetch-site": "same-origin"}
    login = {"key": make_key(hf, "viewer", None)}

    assert client.post("/console/login", data={"key": "x"}, headers=own).status_code == 403
    assert client.post("/console/login", data=login, headers=own).status_code == 303
    assert "viewer" in client.get("/console/").text
    paused = client.post("/console/queues/q:default/pause", data={"reason": "x"}, headers=own)
    assert paused.status_code == 403
    client.post("/console/logout", headers=own)
    assert client.get("/console/").status_code == 303
