"""Webhooks over HTTP."""

from __future__ import annotations

from holdfast import Holdfast
from tests.api.conftest import WHY, Client, make_key
from tests.story import OTHER_ORG

NEW = {"url": "https://example.com/hooks", "events": ["job.*"], "reason": WHY}


def test_an_endpoint_is_registered_rotated_and_removed_and_its_secret_is_shown_once(
    hf: Holdfast, api: Client
) -> None:
    made = api.post("/v1/webhooks", NEW)
    assert made.status_code == 201
    path = f"/v1/webhooks/{made.json()['id']}"

    assert made.json()["secret"].startswith("whsec_")
    assert "secret" not in api.get(path).json()
    assert made.json()["secret"] not in api.get("/v1/webhooks").text
    rotated = api.post(f"{path}/rotate", {"reason": WHY}).json()
    assert rotated["secret"] != made.json()["secret"]
    assert rotated["previous_secret_until"]
    other = api.as_key(make_key(hf, org_id=OTHER_ORG))
    assert other.get(path).status_code == 404
    assert other.post(f"{path}/remove", {"reason": WHY}).status_code == 404
    assert api.post(f"{path}/pause", {"reason": WHY}).json() == {"changed": True}
    assert api.post(f"{path}/resume", {"reason": WHY}).json() == {"changed": True}
    assert api.post(f"{path}/remove", {"reason": WHY}).json() == {"changed": True}
    assert api.get(path).status_code == 404


def test_a_private_address_and_a_viewer_are_refused(hf: Holdfast, api: Client) -> None:
    for url in ("https://127.0.0.1/x", "http://example.com/", "https://[::1]/", "https://10.1/x"):
        answer = api.post("/v1/webhooks", {**NEW, "url": url})
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "url")
    viewer = api.as_key(make_key(hf, "viewer"))
    assert viewer.post("/v1/webhooks", NEW).status_code == 403
