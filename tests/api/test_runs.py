"""Bounded runs over HTTP: an admin of operations starts one in the server, and reads its report."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from holdfast import Holdfast, RunSettings, SystemClock
from holdfast.api import create_app
from holdfast.operate.run_runner import MOST_RUNS
from tests.api.conftest import WHY, Client, make_key
from tests.story import ORG, look, make_holdfast

NEW = {"name": "recovery", "reason": WHY}


def with_run(hf: Holdfast) -> Holdfast:
    run = RunSettings(queues=("q:default",), max_jobs_per_run=5)
    hf.settings = replace(hf.settings, runs={"recovery": run})
    return hf


def admin_of(hf: Holdfast) -> Client:
    return Client(hf, create_app(with_run(hf)), make_key(hf, "admin", None))


@pytest.mark.req("B-13")
def test_an_admin_starts_a_run_and_reads_its_report(hf: Holdfast) -> None:
    hf.job("work")(lambda job, payload: None)
    admin = admin_of(hf)
    for number in range(3):
        hf.enqueue("work", {"n": number}, org_id=ORG)

    started = admin.post("/v1/runs", {**NEW, "max_jobs": 2})
    report = admin.get(started.headers["Location"]).json()

    assert started.status_code == 202
    assert (report["trigger_kind"], report["outcome"]) == ("manual", "full")
    assert (report["succeeded_count"], report["max_jobs_per_run"]) == (2, 2)
    assert report["actor"].startswith("api_key:")
    (event,) = look(hf.store, "SELECT detail FROM holdfast.job_event WHERE name = 'run.triggered'")
    assert WHY in str(event["detail"])


def test_a_run_without_pending_work_is_stored_as_skipped(hf: Holdfast) -> None:
    answer = admin_of(hf).post("/v1/runs", NEW)

    assert (answer.status_code, answer.json()["outcome"]) == (202, "skipped")


def test_a_run_that_is_not_declared_is_not_found(hf: Holdfast) -> None:
    answer = admin_of(hf).post("/v1/runs", {**NEW, "name": "other"})

    assert (answer.status_code, answer.json()["code"]) == (404, "unknown_run")


@pytest.mark.req("B-14", "F-03")
@pytest.mark.parametrize(
    ("role", "org_id", "given"),
    [
        ("operator", None, {}),
        ("viewer", None, {}),
        ("admin", ORG, {}),
        ("viewer", ORG, {"scopes": ["frontend"]}),
        ("admin", None, {"scopes": ["runs:read", "jobs:write"]}),
    ],
)
def test_only_an_admin_of_operations_starts_a_run(
    hf: Holdfast, role: str, org_id: str | None, given: dict[str, Any]
) -> None:
    hf.job("work")(lambda job, payload: None)
    job = hf.enqueue("work", {}, org_id=ORG)
    client = admin_of(hf).as_key(make_key(hf, role, org_id, **given))

    answer = client.post("/v1/runs", NEW)

    assert answer.status_code == 403
    assert hf.operate(actor="user:root", role="admin").jobs.get(job.id).record["state"] == "queued"
    assert look(hf.store, "SELECT run_id FROM holdfast.worker_run") == []


def test_a_run_is_answered_before_it_ends_and_no_server_performs_too_many(url: str) -> None:
    hf = with_run(make_holdfast(url, SystemClock()))
    begun, may_end = threading.Semaphore(0), threading.Event()

    @hf.job("work")
    def work(job: Any, payload: Any) -> None:
        begun.release()
        assert may_end.wait(20)

    app = create_app(hf)
    admin = Client(hf, app, make_key(hf, "admin", None))
    started = []
    for number in range(MOST_RUNS):
        hf.enqueue("work", {"n": number}, org_id=ORG)
        started.append(admin.post("/v1/runs", {**NEW, "max_jobs": 1}).json())
        assert begun.acquire(timeout=20)
    hf.enqueue("work", {}, org_id=ORG)
    refused = admin.post("/v1/runs", NEW)
    may_end.set()
    app.state.run_runner.stop(20)
    reports = [admin.get(f"/v1/runs/{run['run_id']}").json() for run in started]
    hf.close()

    assert [run["outcome"] for run in started] == [None] * MOST_RUNS
    assert (refused.status_code, refused.json()["code"]) == (409, "too_many_runs")
    assert [run["succeeded_count"] for run in reports] == [1] * MOST_RUNS
