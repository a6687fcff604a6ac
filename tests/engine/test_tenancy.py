"""No tenant reaches another: not by id, not by key, not from inside a job."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import (
    Context,
    FakeClock,
    Forbidden,
    Holdfast,
    InvalidJob,
    JobNotFound,
    JobRequest,
    LeaseLost,
    State,
)
from holdfast.engine.context import CancelToken
from holdfast.engine.maintenance import rescue_jobs
from tests.rows import copy_of_envelope, refused_by
from tests.story import ORG, OTHER_ORG, PROJECT, by_hand, claim, look, make_holdfast


@pytest.fixture
def work(hf: Holdfast) -> Holdfast:
    hf.job("report.export")(lambda job, payload: None)
    return hf


def count_of(hf: Holdfast, org_id: str) -> int:
    found: int = look(
        hf.store, "SELECT count(*) AS n FROM holdfast.job WHERE org_id = :org_id", org_id=org_id
    )[0]["n"]
    return found


@pytest.mark.req("X-07", "X-09")
def test_another_tenants_job_is_not_found(work: Holdfast) -> None:
    theirs = work.enqueue("report.export", {}, org_id=OTHER_ORG)

    with pytest.raises(JobNotFound):
        work.get(theirs.id, org_id=ORG)
    with pytest.raises(JobNotFound):
        work.for_org(ORG).get(theirs.id)
    with pytest.raises(JobNotFound):
        work.for_org(ORG).cancel(theirs.id)

    assert work.for_org(OTHER_ORG).get(theirs.id).state is State.QUEUED


@pytest.mark.req("X-08")
def test_a_job_without_a_tenant_is_refused(work: Holdfast) -> None:
    with pytest.raises(InvalidJob, match="org_id"):
        work.enqueue("report.export", {})

    assert work.worker().run_once().claimed == 0


@pytest.mark.req("X-08")
def test_the_database_refuses_a_job_whose_key_names_another_tenant(work: Holdfast) -> None:
    job = work.enqueue("report.export", {}, org_id=ORG, idempotency_key="k")
    copied = copy_of_envelope(
        {
            "id": "CAST(:copy_id AS {uuid})",
            "org_id": f"CAST('{OTHER_ORG}' AS {{uuid}})",
            "idempotency_key": "idempotency_key || 'x'",
        }
    )

    assert refused_by(work, copied, id=job.id, copy_id=PROJECT) == "job_key_names_its_tenant"


@pytest.mark.req("X-06", "X-09")
def test_a_handler_knows_and_keeps_its_tenant_and_project(hf: Holdfast) -> None:
    seen: list[Any] = []

    @hf.job("report.export")
    def export(job: Context, payload: object) -> None:
        seen.append((job.org_id, job.project_id))
        hf.job("child.work")(lambda job, payload: None)
        child = hf.enqueue("child.work", {})
        seen.append((child.org_id, hf.get(child.id, org_id=ORG).record["project_id"]))

    hf.enqueue("report.export", {}, org_id=ORG, project_id=PROJECT)
    hf.worker(queues=["q:default"]).run_once(limit=1)

    assert seen == [(ORG, PROJECT), (ORG, PROJECT)]


@pytest.mark.req("X-09")
def test_a_handler_cannot_enqueue_for_another_tenant_by_any_door(hf: Holdfast) -> None:
    refused: list[str] = []
    hf.job("child.work")(lambda job, payload: None)

    def try_doors(job: Context, payload: object) -> None:
        doors = {
            "enqueue": lambda: hf.enqueue("child.work", {}, org_id=OTHER_ORG),
            "enqueue_many": lambda: hf.enqueue_many("child.work", [{}], org_id=OTHER_ORG),
            "request": lambda: hf.enqueue_many("child.work", [JobRequest({}, OTHER_ORG)]),
            "tenant": lambda: hf.for_org(OTHER_ORG).enqueue("child.work", {}),
        }
        for name, door in doors.items():
            try:
                door()
            except Forbidden:
                refused.append(name)

    hf.job("sly.work")(try_doors)
    hf.enqueue("sly.work", {}, org_id=ORG)
    hf.worker().run_once()

    assert refused == ["enqueue", "enqueue_many", "request", "tenant"]
    assert count_of(hf, OTHER_ORG) == 0


@pytest.mark.req("X-09")
def test_an_asynchronous_handler_cannot_either(hf: Holdfast) -> None:
    hf.job("child.work")(lambda job, payload: None)
    refused: list[bool] = []

    @hf.job("sly.work")
    async def sly(job: Context, payload: object) -> None:
        async def elsewhere() -> None:
            try:
                await hf.aenqueue("child.work", {}, org_id=OTHER_ORG)
            except Forbidden:
                refused.append(True)

        await asyncio.create_task(elsewhere())

    hf.enqueue("sly.work", {}, org_id=ORG)
    hf.worker().run_once()

    assert refused == [True]
    assert count_of(hf, OTHER_ORG) == 0


@pytest.mark.req("X-07", "X-09")
def test_a_call_bound_to_one_tenant_takes_no_request_of_another(work: Holdfast) -> None:
    with pytest.raises(Forbidden):
        work.for_org(ORG).enqueue_many("report.export", [JobRequest({}, OTHER_ORG)])

    assert count_of(work, OTHER_ORG) == 0


@pytest.mark.req("X-06", "X-07", "X-09")
def test_a_handlers_own_transaction_sees_only_its_tenant(
    postgres_url: str, clock: FakeClock
) -> None:
    seen: dict[str, Any] = {}
    with make_holdfast(postgres_url, clock) as hf:

        @hf.job("report.export")
        def export(job: Context, payload: object) -> None:
            with job.transaction() as connection:
                seen["orgs"] = connection.execute(
                    "SELECT DISTINCT org_id FROM holdfast.job"
                ).fetchall()
                seen["theirs"] = connection.execute(
                    "SELECT count(*) FROM holdfast.job WHERE org_id = %s", (OTHER_ORG,)
                ).fetchone()

        hf.enqueue("report.export", {}, org_id=OTHER_ORG, queue="q:planning")
        hf.enqueue("report.export", {}, org_id=ORG)
        hf.worker(queues=["q:default"]).run_once()

    assert [str(row[0]) for row in seen["orgs"]] == [ORG]
    assert seen["theirs"] == (0,)


@pytest.mark.req("X-09")
def test_a_handlers_own_transaction_cannot_write_for_another_tenant(
    postgres_url: str, clock: FakeClock
) -> None:
    with make_holdfast(postgres_url, clock) as hf:

        @hf.job("report.export")
        def export(job: Context, payload: object) -> None:
            with job.transaction() as connection:
                connection.execute(
                    "SELECT * FROM holdfast.enqueue('report.export', '{}', %s)", (OTHER_ORG,)
                )

        enqueued = hf.enqueue("report.export", {}, org_id=ORG)
        hf.worker(queues=["q:default"]).run_once()

        assert count_of(hf, OTHER_ORG) == 0
        assert hf.get(enqueued.id, org_id=ORG).state is State.FAILED


def test_what_a_handler_writes_in_its_transaction_commits_with_the_block(work: Holdfast) -> None:
    by_hand(work.store, "CREATE TABLE note (text text)")
    if work.store.dialect.name == "postgres":
        by_hand(work.store, "GRANT INSERT ON note TO holdfast_tenant")

    @work.job("write.note")
    def write(job: Context, payload: object) -> None:
        with job.transaction() as connection:
            connection.execute("INSERT INTO note VALUES ('kept')")
        with job.transaction() as connection:
            connection.execute("INSERT INTO note VALUES ('lost')")
            raise KeyError("half-way")

    work.enqueue("write.note", {}, org_id=ORG)
    work.worker().run_once()

    assert [row["text"] for row in look(work.store, "SELECT text FROM note")] == ["kept"]


@pytest.mark.req("I-15")
def test_a_handler_that_lost_its_lease_cannot_open_its_transaction(
    work: Holdfast, clock: FakeClock
) -> None:
    work.enqueue("report.export", {}, org_id=ORG)
    (slow,) = claim(work)
    context = Context(slow, work.store, CancelToken())
    clock.advance(seconds=61)
    rescue_jobs(work.store, limit=1)

    with pytest.raises(LeaseLost), context.transaction():
        raise AssertionError("never reached")
    with pytest.raises(LeaseLost):
        context.checkpoint({"n": 1})

    assert look(work.store, "SELECT * FROM holdfast.job_stage") == []


def test_a_handler_whose_job_another_worker_runs_cannot_open_its_transaction(
    work: Holdfast, clock: FakeClock
) -> None:
    work.enqueue("report.export", {}, org_id=ORG)
    (slow,) = claim(work, worker="slow")
    context = Context(slow, work.store, CancelToken())
    clock.advance(seconds=61)
    rescue_jobs(work.store, limit=1)
    assert len(claim(work, worker="next")) == 1

    with pytest.raises(LeaseLost), context.transaction():
        raise AssertionError("never reached")


def test_a_tenant_bound_handle_fills_in_its_tenant(work: Holdfast) -> None:
    mine = work.for_org(ORG)

    one = mine.enqueue("report.export", {})
    many = mine.enqueue_many("report.export", [{}, JobRequest({}, ORG)])

    assert {item.org_id for item in (one, *many)} == {ORG}
