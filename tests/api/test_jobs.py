"""Jobs over HTTP: enqueue, list, inspect, explain and cancel."""

from __future__ import annotations

import pytest

from holdfast import Holdfast
from tests.api.conftest import WHY, Client, make_key
from tests.story import ORG, OTHER_ORG


def enqueue(api: Client, **given: object) -> str:
    answer = api.post("/v1/jobs", {"job_type": "work", "payload": {}, **given})
    assert answer.status_code == 201, answer.text
    found: str = answer.json()["id"]
    return found


@pytest.mark.req("E-14")
def test_an_enqueued_job_is_committed_when_the_answer_arrives(api: Client, hf: Holdfast) -> None:
    answer = api.post("/v1/jobs", {"job_type": "work", "payload": {"a": 1}})

    assert answer.status_code == 201
    job = hf.get(answer.json()["id"], org_id=ORG)
    assert (job.org_id, job.record["actor_type"]) == (ORG, "api_key")


def test_a_payload_that_the_handler_cannot_take_is_refused(api: Client, hf: Holdfast) -> None:
    @hf.job("typed.work")
    def typed(number: int) -> None: ...

    one = api.post("/v1/jobs", {"job_type": "typed.work", "payload": {"number": "q"}})
    many = api.post("/v1/jobs/bulk", {"jobs": [{"job_type": "typed.work", "payload": {}}]})

    assert (one.status_code, many.status_code) == (422, 422), many.text
    assert "must be int, not str" in one.text
    assert "is missing" in many.text
    assert hf.operate(actor="user:1", role="admin").jobs.counts() == ()


def test_an_idempotency_key_returns_the_original_and_refuses_another_payload(api: Client) -> None:
    key = {"Idempotency-Key": "order-7"}
    first = api.post("/v1/jobs", {"job_type": "work", "payload": {"a": 1}}, headers=key)
    again = api.post("/v1/jobs", {"job_type": "work", "payload": {"a": 1}}, headers=key)
    other = api.post("/v1/jobs", {"job_type": "work", "payload": {"a": 2}}, headers=key)

    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json() == {**first.json(), "created": False}
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")


@pytest.mark.req("X-06", "X-08")
def test_the_tenant_comes_from_the_key_and_another_one_is_refused(
    api: Client, operations: Client, hf: Holdfast
) -> None:
    named = {"job_type": "work", "org_id": OTHER_ORG}

    refused = api.post("/v1/jobs", named)
    listed = api.get(f"/v1/jobs?org_id={OTHER_ORG}")
    unnamed = operations.post("/v1/jobs", {"job_type": "work"})
    made = operations.post("/v1/jobs", named)

    assert (refused.status_code, refused.json()["code"]) == (403, "other_tenant")
    assert listed.status_code == 403
    assert (unnamed.status_code, unnamed.json()["code"]) == (422, "tenant_required")
    assert made.json()["org_id"] == OTHER_ORG


def test_a_tenant_and_a_project_may_be_named(api: Client, operations: Client, hf: Holdfast) -> None:
    given = {"job_type": "work", "org_id": "name:acme", "project_id": "name:launch"}

    made = operations.post("/v1/jobs", given)
    listed = operations.get("/v1/jobs?org_id=name:acme")
    refused = api.post("/v1/jobs", given)
    part_of_an_id = operations.post("/v1/jobs", {**given, "org_id": "cafe"})

    assert (made.status_code, made.json()["org_id"]) == (201, hf.for_org("name:acme").org_id)
    assert [job["id"] for job in listed.json()["items"]] == [made.json()["id"]]
    assert hf.get(made.json()["id"], org_id="name:acme").record["project_id"] is not None
    assert (refused.status_code, refused.json()["code"]) == (403, "other_tenant")
    assert part_of_an_id.status_code == 422
    assert "a name such as name:acme" in str(part_of_an_id.json())
    for path in ("jobs", "workflows", "webhooks", "dead-letters"):
        bare = operations.get(f"/v1/{path}?org_id=acme")
        assert (bare.status_code, "a name such as name:acme" in bare.text) == (422, True), path
        assert operations.get(f"/v1/{path}?org_id=name:acme").status_code == 200, path


@pytest.mark.req("X-01", "X-09")
def test_a_foreign_id_answers_as_an_unknown_one(api: Client, hf: Holdfast) -> None:
    foreign = hf.enqueue("work", {}, org_id=OTHER_ORG).id
    unknown = "0198c0de-0000-7000-8000-0000000000ff"

    for method, path in (
        ("GET", "/v1/jobs/{}"),
        ("GET", "/v1/jobs/{}/events"),
        ("GET", "/v1/jobs/{}/explain"),
        ("POST", "/v1/jobs/{}/cancel"),
    ):
        body = {"json": {"reason": WHY}} if method == "POST" else {}
        same = {"X-Request-Id": "r1"}
        found = [
            api.request(method, path.format(job_id), headers=same, **body)
            for job_id in (foreign, unknown)
        ]
        assert [answer.status_code for answer in found] == [404, 404]
        assert found[0].text.replace(foreign, unknown) == found[1].text


def test_a_list_is_read_page_by_page_with_a_cursor_of_its_own_filter(
    api: Client, hf: Holdfast
) -> None:
    made = [enqueue(api) for _ in range(3)]
    first = api.get("/v1/jobs?limit=2").json()
    second = api.get(f"/v1/jobs?limit=2&cursor={first['next']}").json()

    assert [job["id"] for job in (*first["items"], *second["items"])] == made[::-1]
    assert second["next"] is None
    for query in (
        f"state=queued&cursor={first['next']}",
        f"cursor={first['next'][:-2]}xx",
        "cursor=%00",
        "cursor=é",
    ):
        refused = api.get(f"/v1/jobs?{query}")
        assert (refused.status_code, refused.json()["code"]) == (400, "invalid_cursor")
    other = api.as_key(make_key(hf, org_id=OTHER_ORG))
    assert other.get(f"/v1/jobs?cursor={first['next']}").status_code == 400


def test_a_list_that_grows_and_changes_while_it_is_read_shows_each_job_once(
    api: Client, hf: Holdfast
) -> None:
    """New jobs are listed before the first page; a change does not move a job."""
    made = [enqueue(api) for _ in range(7)]
    seen: list[str] = []
    query = "limit=2"
    while True:
        page = api.get(f"/v1/jobs?{query}").json()
        seen += [job["id"] for job in page["items"]]
        enqueue(api)
        hf.enqueue("work", {}, org_id=OTHER_ORG)
        api.post(f"/v1/jobs/{made[0]}/cancel", {"reason": "test"})
        if page["next"] is None:
            break
        query = f"limit=2&cursor={page['next']}"

    assert seen == made[::-1]


def test_an_unchanged_job_is_not_sent_again(api: Client) -> None:
    job_id = enqueue(api)
    first = api.get(f"/v1/jobs/{job_id}")
    tag = {"If-None-Match": first.headers["ETag"]}

    unchanged = api.get(f"/v1/jobs/{job_id}", headers=tag)
    api.post(f"/v1/jobs/{job_id}/cancel", {"reason": WHY})
    changed = api.get(f"/v1/jobs/{job_id}", headers=tag)

    assert (unchanged.status_code, unchanged.content) == (304, b"")
    assert (changed.status_code, changed.json()["state"]) == (200, "canceled")


def test_the_timeline_and_the_explanation_of_a_job(api: Client) -> None:
    job_id = enqueue(api)

    events = api.get(f"/v1/jobs/{job_id}/events").json()
    explained = api.get(f"/v1/jobs/{job_id}/explain").json()

    assert [event["name"] for event in events] == ["job.enqueued"]
    assert explained["reason"] == "no_worker"
