"""The complaint rewrite in a frontend with a key of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import FakeClock, Holdfast
from holdfast.api import create_app
from tests.api.conftest import WHY, Client, make_key
from tests.api.world import BODIES, UNKNOWN_ID, World, make_world
from tests.apps.household import HOME, RECIPIENT, SENDER
from tests.apps.judged import KIND, open_court, verdict

SEEN_BY_A_SENDER = {
    *("rewrite_request_id", "status", "created_at", "completed_at", "sender_reveal_at"),
    *("has_failed", "rewritten_text", "output_language"),
}


@pytest.fixture
def world(url: str, clock: FakeClock, tmp_path: Path) -> Iterator[World]:
    made = make_world(url, clock, tmp_path)
    yield made
    made.hf.close()


@pytest.mark.req("F-01", "F-02", "F-03", "F-04", "X-05", "E-14")
def test_a_frontend_submits_and_reads_states_from_the_database(world: World) -> None:
    frontend = world.key("viewer", HOME, scopes=["frontend"])

    answer = frontend.post("/v1/rewrites", BODIES["submit_rewrite"])
    accepted = answer.json()
    place = f"/v1/rewrites/sent/{accepted['rewrite_request_id']}"
    sent = frontend.get(f"{place}?user_id={SENDER}")
    listed = frontend.get(f"/v1/rewrites/sent?user_id={SENDER}").json()["items"]
    received = frontend.get(f"/v1/rewrites/received?user_id={RECIPIENT}").json()["items"]

    assert (answer.status_code, set(accepted)) == (202, {"rewrite_request_id", "status"})
    assert set(sent.json()) == SEEN_BY_A_SENDER
    assert sent.json()["status"] == "queued"
    assert sent.json() in listed
    assert received == []


@pytest.mark.req("X-01", "X-04")
def test_another_person_and_another_home_find_nothing(world: World) -> None:
    frontend = world.key("viewer", HOME, scopes=["frontend"])
    other_home = world.key("viewer", UNKNOWN_ID, scopes=["frontend"])
    body = BODIES["submit_rewrite"]
    made = frontend.post("/v1/rewrites", body).json()["rewrite_request_id"]

    by_recipient = frontend.get(f"/v1/rewrites/sent/{made}?user_id={RECIPIENT}")
    by_other_home = other_home.get(f"/v1/rewrites/sent/{made}?user_id={SENDER}")
    named = other_home.post("/v1/rewrites", {**body, "home_id": HOME})

    assert (by_recipient.status_code, by_other_home.status_code) == (404, 404)
    assert (named.status_code, named.json()["code"]) == (403, "other_tenant")


@pytest.mark.req("X-02")
def test_a_refused_message_is_not_repeated(world: World) -> None:
    frontend = world.key("viewer", HOME, scopes=["frontend"])
    body = {**BODIES["submit_rewrite"], "sender_message": "CANARY-7f3a", "surface": 7}

    answer = frontend.post("/v1/rewrites", body)

    assert answer.status_code == 422
    assert "CANARY" not in answer.text


def test_an_admin_reads_and_approves_a_held_rewrite_and_an_operator_sees_no_text(
    url: str, clock: FakeClock
) -> None:
    with open_court(url, clock) as court:
        court.says = verdict("threat", quote="help me a lot")
        held = court.send()
        app = create_app(court.hf)
        operator = Client(court.hf, app, make_key(court.hf, "operator", HOME))
        admin = Client(court.hf, app, make_key(court.hf, "admin", HOME))
        place = f"/v1/rewrites/held/{held}"

        listed = operator.get("/v1/rewrites/held")
        refused = operator.get(place)
        texts = admin.get(place).json()
        approved = admin.post(f"{place}/approve", {"reason": WHY}).json()
        again = admin.post(f"{place}/approve", {"reason": WHY})

    assert [one["rewrite_request_id"] for one in listed.json()] == [held]
    assert refused.status_code == 403
    assert KIND not in listed.text + refused.text
    assert texts["rewritten_text"] == KIND
    assert approved["status"] == "completed"
    assert again.status_code == 404


@pytest.mark.req("F-04", "X-05")
def test_a_server_without_routes_says_so_to_operators_and_not_to_frontends(
    hf: Holdfast, caplog: pytest.LogCaptureFixture
) -> None:
    """Missing routes are an error of the server, and its log names the setting."""
    app = create_app(hf)
    frontend = Client(hf, app, make_key(hf, "viewer", HOME, scopes=["frontend"]))
    operator = Client(hf, app, make_key(hf, "admin", None))

    answers = [
        frontend.get(f"/v1/rewrites/sent?user_id={SENDER}"),
        frontend.get(f"/v1/rewrites/received?user_id={RECIPIENT}"),
        frontend.post("/v1/rewrites", BODIES["submit_rewrite"]),
        operator.get("/v1/rewrites/held"),
    ]

    for answer in answers:
        assert (answer.status_code, answer.json()["code"]) == (503, "not_configured")
        assert "rewrite.routes" not in answer.text
        assert "holdfast.toml" not in answer.text
    assert caplog.text.count("[[rewrite.routes]]") == len(answers)
