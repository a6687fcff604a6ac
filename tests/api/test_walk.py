"""Every route, called without a key, with a wrong one, with a weaker one and by another tenant.

A route that tests/api/world.py does not know fails here.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import FakeClock, Holdfast
from holdfast.operate.access import limited_reads
from tests.api.conftest import WHY, make_key
from tests.api.world import World, make_world
from tests.apps.household import HOME
from tests.story import ORG, OTHER_ORG, look, make_holdfast

pytestmark = pytest.mark.req("X-07")


@pytest.fixture
def world(url: str, clock: FakeClock, tmp_path: Path) -> Iterator[World]:
    made = make_world(url, clock, tmp_path)
    yield made
    made.hf.close()


def events_of(hf: Holdfast, org_id: str) -> int:
    rows = look(
        hf.store,
        "SELECT count(*) AS found FROM holdfast.job_event"
        f" WHERE org_id = '{org_id}' AND name <> 'operator.refused'",
    )
    return int(rows[0]["found"])


def document(answer: Any) -> dict[str, Any]:
    found: dict[str, Any] = answer.json()
    return {name: value for name, value in found.items() if name not in ("instance", "request_id")}


def test_without_a_valid_key_every_route_answers_the_same(world: World, clock: FakeClock) -> None:
    keys = world.hf.operate(actor="user:root", role="admin").api_keys
    later = clock.now() + timedelta(minutes=1)
    expired = make_key(world.hf, "admin", None, expires_at=later)
    revoked = keys.create("n", role="admin", reason=WHY)
    keys.revoke(revoked.key.id, reason=WHY)
    clock.advance(minutes=1)
    wrong = [None, expired, revoked.secret, "hf_live_" + "x" * 43, "hf_test_x", expired[:-1]]
    before = events_of(world.hf, ORG)

    answers = []
    for route in world.routes():
        for secret in wrong:
            # Failures are limited per minute; the walk is longer.
            clock.advance(minutes=len(answers) % 50 == 49)
            answer = route.by(world.client(secret))
            assert answer.status_code == 401, (route.method, route.path, secret)
            assert answer.headers["WWW-Authenticate"] == "Bearer"
            answers.append(document(answer))

    assert len(answers) > 400
    assert all(answer == answers[0] for answer in answers)
    assert events_of(world.hf, ORG) == before


def test_every_route_refuses_a_key_with_other_scopes(world: World) -> None:
    weaker = world.key("admin", None, scopes=["nothing:read", "nothing:write"])
    reader = world.key("admin", None, scopes=["read"])

    for route in world.routes():
        answer = route.by(weaker)
        assert (answer.status_code, answer.json()["code"]) == (403, "missing_scope"), route.path
        if route.method != "GET":
            answer = route.by(reader)
            assert (answer.status_code, answer.json()["code"]) == (403, "missing_scope"), route.path


@pytest.mark.req("B-14", "F-04")
def test_a_frontend_key_reaches_the_rewrites_of_people_and_nothing_else(world: World) -> None:
    frontend = world.key("viewer", HOME, scopes=["frontend"])
    reached = []
    for route in world.routes():
        answer = route.by(frontend)
        if "frontend" in route.scopes:
            reached.append(route.operation)
            assert answer.status_code not in (401, 403), route.path
        else:
            assert (answer.status_code, answer.json()["code"]) == (403, "missing_scope"), route.path

    assert sorted(reached) == [
        "get_sent_rewrite",
        "list_received_rewrites",
        "list_sent_rewrites",
        "stream_rewrites",
        "submit_rewrite",
    ]


@pytest.mark.req("X-01", "X-09")
def test_a_key_of_another_tenant_finds_nothing_and_changes_nothing(world: World) -> None:
    """An object of another tenant answers like one that does not exist, byte by byte."""
    foreign = world.key("admin", OTHER_ORG)
    before = events_of(world.hf, ORG)

    for route in world.routes():
        answer = route.by(foreign, **{"X-Request-Id": "r1"})
        assert answer.status_code < 500, (route.path, answer.text)
        if not route.ids:
            # A listing, or a change of the caller's own tenant.
            if route.operation == "list_audit_events":
                # The caller's own refusals name the object that it requested.
                assert {event["org_id"] for event in answer.json()["items"]} == {OTHER_ORG}
            else:
                assert ORG not in answer.text, route.path
            continue
        # Resources of all tenants are forbidden to a tenant, whether they exist or not.
        assert answer.status_code in (403, 404), (route.path, answer.text)
        unknown = route.with_unknown()
        same = unknown.by(foreign, **{"X-Request-Id": "r1"})
        (mine,), (other,) = route.ids.values(), unknown.ids.values()
        assert answer.text.replace(mine, other) == same.text, route.path

    assert events_of(world.hf, ORG) == before


def test_a_viewer_of_operations_reads_everything_and_is_refused_every_change(world: World) -> None:
    viewer = world.key("viewer", None)
    statuses = {}
    for route in world.routes():
        statuses[route.operation] = (route.method, route.by(viewer).status_code)

    assert {status for method, status in statuses.values() if method != "GET"} == {403}
    # The audit, the costs and the keys need more than a viewer.
    refused = {
        name for name, (method, status) in statuses.items() if status == 403 and method == "GET"
    }
    assert refused == {
        *("list_audit_events", "verify_audit", "get_costs", "list_api_keys", "get_api_key"),
        *("get_rewrite_record", "list_held_rewrites", "get_held_rewrite"),
    }


@pytest.mark.req("X-01")
def test_a_key_of_a_tenant_reads_its_own_objects_in_the_role_of_tenants(world: World) -> None:
    """On PostgreSQL, row-level security checks these statements as well."""
    own = world.key("operator", ORG)
    read = [route for route in world.routes() if route.is_as_tenant]

    for route in read:
        answer = route.by(own)
        assert answer.status_code == 200, (route.path, answer.text)
        assert answer.json(), route.path

    assert len(read) == 11


def test_a_statement_without_its_tenant_shows_no_other_one_in_the_role_of_tenants(
    postgres_url: str,
) -> None:
    with make_holdfast(postgres_url) as hf:
        hf.job("work")(lambda job, payload: None)
        hf.enqueue("work", {}, org_id=ORG)
        everything = "SELECT count(*) AS found FROM holdfast.job"
        with limited_reads(5, OTHER_ORG):
            other = look(hf.store, everything)[0]["found"]
        with limited_reads(5, ORG):
            own = look(hf.store, everything)[0]["found"]

        assert (other, own, look(hf.store, everything)[0]["found"]) == (0, 1, 1)
