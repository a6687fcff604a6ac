"""Ended jobs: all reads find them until they are pruned, and their facts never change."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from holdfast import Enqueued, FakeClock, Holdfast, State
from holdfast.config import RetentionSettings
from holdfast.engine import retention
from holdfast.engine.job import SYSTEM, Completed
from holdfast.engine.maintenance import rescue_jobs, run_maintenance
from holdfast.engine.request import JobRequest, owner_of
from holdfast.engine.retention import prune_jobs
from holdfast.engine.settle import settle
from holdfast.operate.jobs import JobFilter
from holdfast.store import Statements, Store, Tx, open_store
from tests.rows import copy_of_envelope, refused_by
from tests.story import ORG, OTHER_ORG, claim, look, make_holdfast, timeline

SQL = Statements("holdfast.engine", "job.sql")


def declare(hf: Holdfast) -> Holdfast:
    hf.job("report.export")(lambda job, payload: {"rows": 1})
    pipeline = hf.pipeline("review.run")
    pipeline.stage("read")(lambda job, payload: "read")
    pipeline.stage("judge")(lambda job, payload: "judged")
    return hf


@pytest.fixture
def work(hf: Holdfast) -> Holdfast:
    return declare(hf)


def finished(hf: Holdfast, **options: Any) -> Enqueued:
    """A job that has completed."""
    enqueued = hf.enqueue("report.export", {}, org_id=ORG, **options)
    hf.worker().run_once()
    return enqueued


def prune(store: Store, limit: int = 1_000) -> int:
    return prune_jobs(store, RetentionSettings(), limit=limit)


def rows_in(store: Store, table: str) -> int:
    found: int = look(store, f"SELECT count(*) AS n FROM holdfast.{table}")[0]["n"]
    return found


# -- reads of ended jobs


def everything(hf: Holdfast, job: Enqueued) -> dict[str, Any]:
    """All public reads of a job."""
    jobs = hf.operate(actor="user:op", role="operator").jobs
    key = {"idempotency_key": job.idempotency_key, "key_of": owner_of(job.idempotency_key)}

    def ask(tx: Tx) -> dict[str, Any]:
        return {
            "job": tx.maybe(SQL.find_job, org_id=ORG, id=job.id),
            "whose": tx.maybe(SQL.find_org, id=job.id),
            "events": tx.many(SQL.list_events, org_id=ORG, job_id=job.id),
            "key": tx.maybe(SQL.find_key, org_id=ORG, **key),
            "stages": sorted(
                tx.many(SQL.list_stages, jobs=[{"org_id": ORG, "id": job.id}]), key=str
            ),
        }

    listed = {
        "page": jobs.list(JobFilter(org_id=ORG)),
        "every page": jobs.list(),
        "counts": jobs.counts(),
        "view": jobs.get(job.id),
    }
    return {"get": hf.get(job.id, org_id=ORG), **listed, **hf.store.read(ask)}


@pytest.mark.req("I-07")
@pytest.mark.parametrize("how", ["completed", "completed in stages", "canceled"])
def test_an_ended_job_is_listed_and_found_until_its_key_expires(
    work: Holdfast, clock: FakeClock, how: str
) -> None:
    job_type = "review.run" if how == "completed in stages" else "report.export"
    job = work.enqueue(job_type, {"n": 1}, org_id=ORG, idempotency_key="k", actor="user:42")
    if how == "canceled":
        work.cancel(job.id, org_id=ORG, reason="not needed")
    else:
        work.worker().run_once()
    work.enqueue("report.export", {}, org_id=ORG)
    before = everything(work, job)

    clock.advance(days=29)
    run_maintenance(work.store, work.settings, work.events)

    assert everything(work, job) == before
    assert len(before["page"]) == 2
    assert before["key"] is not None
    assert len(before["stages"]) == (2 if how == "completed in stages" else 0)


def test_another_tenant_finds_no_ended_job(work: Holdfast) -> None:
    job = finished(work)

    theirs = work.store.read(lambda tx: tx.maybe(SQL.find_job, org_id=OTHER_ORG, id=job.id))

    assert theirs is None


# -- idempotency keys of ended jobs


@pytest.mark.req("I-02", "I-12")
def test_the_key_of_an_ended_job_answers_with_the_original(
    work: Holdfast, clock: FakeClock
) -> None:
    first = finished(work, idempotency_key="k")
    clock.advance(hours=5)

    again = work.enqueue("report.export", {}, org_id=ORG, idempotency_key="k")

    assert (again.id, again.created, again.differs) == (first.id, False, False)
    assert again.created_at == first.created_at
    assert rows_in(work.store, "job") == 1
    record = work.find_key("report.export", "k", org_id=ORG)
    assert record is not None
    assert (record.job_id, record.last_seen_at) == (first.id, clock.now())


@pytest.mark.req("I-12")
def test_other_content_under_the_key_of_an_ended_job_is_reported_and_audited(
    work: Holdfast,
) -> None:
    first = finished(work, idempotency_key="k")

    again = work.enqueue("report.export", {"n": 2}, org_id=ORG, idempotency_key="k")

    assert (again.id, again.created, again.differs) == (first.id, False, True)
    assert timeline(work, first)[-1] == "job.duplicate_differs"
    assert work.get(first.id, org_id=ORG).payload == {}


@pytest.mark.req("I-02")
@pytest.mark.parametrize("many", [4, 700])
def test_of_many_only_those_are_created_whose_keys_no_job_holds(work: Holdfast, many: int) -> None:
    old = finished(work, idempotency_key="ended")
    live = work.enqueue("report.export", {}, org_id=ORG, idempotency_key="live")
    requests: list[dict[str, Any]] = [
        {"idempotency_key": "ended"},
        {"idempotency_key": "live", "payload": {"n": 2}},
        {"idempotency_key": "ended", "payload": {"n": 3}},
    ]
    requests += [{"idempotency_key": f"k{number}"} for number in range(many - 3)]
    asked: list[Any] = [{"payload": {}, "org_id": ORG, **request} for request in requests]
    items = [JobRequest(**request) for request in asked]
    answers = work.enqueue_many("report.export", items)

    assert [(item.id, item.created, item.differs) for item in answers[:3]] == [
        (old.id, False, False), (live.id, False, True), (old.id, False, True),
    ]  # fmt: skip
    assert all(item.created for item in answers[3:])
    assert [timeline(work, job).count("job.duplicate_differs") for job in (old, live)] == [1, 1]


@pytest.mark.req("I-13")
def test_the_unit_of_an_ended_job_has_had_its_job(work: Holdfast) -> None:
    first = finished(work, unit_key="message-1/recipient-2")

    again = work.enqueue("report.export", {}, org_id=ORG, unit_key="message-1/recipient-2")

    assert (again.id, again.created) == (first.id, False)


@pytest.mark.req("I-11")
@pytest.mark.parametrize(
    ("given", "key", "rule"),
    [
        ("idempotency_key", "idempotency_key", "job_once_per_key"),
        ("unit_key", "idempotency_key || '-other'", "job_once_per_unit"),
    ],
)
def test_the_database_itself_refuses_a_key_or_unit_that_an_ended_job_holds(
    work: Holdfast, given: str, key: str, rule: str
) -> None:
    first = finished(work, **{given: "u"})

    copied = copy_of_envelope({"id": "CAST(:copy_id AS {uuid})", "idempotency_key": key})
    refused = refused_by(work, copied, id=first.id, copy_id="0198c0de-0000-7000-8000-00000000beef")

    # SQLite names the columns of a unique index.
    assert refused == rule or refused.endswith(f"holdfast_job_envelope.{given}")
    assert rows_in(work.store, "job") == 1


def test_the_sql_function_answers_with_an_ended_original(
    postgres_url: str, clock: FakeClock
) -> None:
    with make_holdfast(postgres_url, clock) as hf:
        first = finished(declare(hf), idempotency_key="k")
        with psycopg.connect(postgres_url) as connection:
            answer = connection.execute(
                "SELECT job_id::text, created FROM holdfast.enqueue("
                "'report.export', '{}', %s, idempotency_key => 'k')",
                (ORG,),
            ).fetchone()

        assert answer == (first.id, False)
        record = hf.find_key("report.export", "k", org_id=ORG)
        assert record is not None
        assert record.last_seen_at > record.first_seen_at


# -- while it is being pruned


def test_a_pass_that_breaks_off_leaves_every_job_where_it_was(
    work: Holdfast, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    enqueued = finished(work)
    clock.advance(days=91)
    run = Tx.affected

    def dies(self: Tx, statement: Any, /, **params: Any) -> int:
        if statement.name == "delete_jobs":
            raise KeyboardInterrupt
        return run(self, statement, **params)

    with monkeypatch.context() as broken:
        broken.setattr(Tx, "affected", dies)
        with pytest.raises(KeyboardInterrupt):
            prune(work.store)

    assert work.get(enqueued.id, org_id=ORG).state is State.COMPLETED
    assert timeline(work, enqueued)[-1] == "job.succeeded"
    assert prune(work.store) == 1


@contextmanager
def pruning(url: str, clock: FakeClock) -> Iterator[None]:
    """Prune all ended jobs, and keep the transaction open inside."""
    store = open_store(url, clock=clock)
    gone, go_on = threading.Event(), threading.Event()
    ended: list[int] = []

    def prune_and_wait(tx: Tx) -> int:
        kind = {"category": None, "job_type": None, "state": None, "keep_ms": 0}
        found = tx.many(retention.SQL.find_prunable, rules=[kind], shortest_ms=0, limit=10)
        count = retention._prune(tx, found)
        gone.set()
        assert go_on.wait(20)
        return count

    pruner = threading.Thread(target=lambda: ended.append(store.write(prune_and_wait)))
    pruner.start()
    try:
        assert gone.wait(20)
        yield
    finally:
        go_on.set()
        pruner.join(20)
        store.close()
    assert ended == [1]


def until_somebody_waits(url: str) -> None:
    """Return once another session of this database waits for a lock."""
    waiting = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    deadline = time.monotonic() + 20
    with psycopg.connect(url, autocommit=True) as connection:
        while connection.execute(waiting).fetchone() == (0,):
            assert time.monotonic() < deadline, "nobody waits"


@pytest.mark.req("I-11", "I-12")
@pytest.mark.parametrize("many", [1, 3, 700])
def test_requests_while_the_original_is_pruned_are_one_new_job(
    postgres_url: str, clock: FakeClock, many: int
) -> None:
    """The enqueue waits for the transaction that deletes the job whose key it has."""
    with make_holdfast(postgres_url, clock) as hf:
        first = finished(declare(hf), idempotency_key="k")
        clock.advance(days=91)
        answers: list[Enqueued] = []
        payloads: list[dict[str, Any]] = [{} for _ in range(many)]

        def ask() -> None:
            answers.extend(
                hf.enqueue_many("report.export", payloads, org_id=ORG, idempotency_key="k")
            )

        asking = threading.Thread(target=ask)
        with pruning(postgres_url, clock):
            asking.start()
            until_somebody_waits(postgres_url)
        asking.join(20)

        assert len(answers) == many
        assert len({item.id for item in answers} - {first.id}) == 1
        assert [item.created for item in answers].count(True) == 1
        assert rows_in(hf.store, "job") == 1


def test_in_the_callers_own_transaction_it_is_one_new_job_too(
    postgres_url: str, clock: FakeClock
) -> None:
    with make_holdfast(postgres_url, clock) as hf:
        first = finished(declare(hf), idempotency_key="k")
        clock.advance(days=91)
        answers: list[Enqueued] = []

        def ask() -> None:
            with psycopg.connect(postgres_url) as connection:
                answers.append(
                    hf.enqueue(
                        "report.export", {}, org_id=ORG, conn=connection, idempotency_key="k"
                    )
                )

        asking = threading.Thread(target=ask)
        with pruning(postgres_url, clock):
            asking.start()
            until_somebody_waits(postgres_url)
        asking.join(20)

        (answer,) = answers
        assert answer.created
        assert answer.id != first.id
        assert rows_in(hf.store, "job") == 1


def test_a_worker_that_resumes_after_its_job_was_pruned_has_lost_its_lease(
    work: Holdfast, clock: FakeClock
) -> None:
    job = work.enqueue("report.export", {}, org_id=ORG)
    (frozen,) = claim(work)
    clock.advance(minutes=2)
    rescue_jobs(work.store, limit=10)
    work.worker().run_once()
    clock.advance(days=91)
    assert prune(work.store) == 1
    other = work.enqueue("report.export", {}, org_id=ORG)
    (held,) = claim(work)

    settled = settle(work.store, [(frozen, Completed()), (held, Completed())], actor=SYSTEM)

    assert [item.lease_held for item in settled] == [False, True]
    assert timeline(work, job)[-1] == "job.pruned"
    assert timeline(work, other)[-1] == "job.succeeded"


# -- database constraints


def columns_of(store: Store, table: str) -> list[str]:
    if store.dialect.name == "sqlite":
        text = f"SELECT name FROM pragma_table_info('holdfast_{table}') ORDER BY cid"
    else:
        text = (
            "SELECT column_name AS name FROM information_schema.columns"
            f" WHERE table_schema = 'holdfast' AND table_name = '{table}' ORDER BY ordinal_position"
        )
    return [row["name"] for row in look(store, text)]


def test_nothing_but_stages_cancels_and_dead_letters_refers_to_a_job(postgres_url: str) -> None:
    """A foreign key to a job would be checked, or cascade, when the job is pruned."""
    with psycopg.connect(postgres_url) as connection:
        found = connection.execute(
            "SELECT conrelid::regclass::text FROM pg_constraint"
            " WHERE contype = 'f' AND confrelid = 'holdfast.job_envelope'::regclass"
        ).fetchall()

    assert {name for (name,) in found} == {
        "holdfast.job_stage", "holdfast.job_cancel", "holdfast.dead_letter",
    }  # fmt: skip


@pytest.mark.parametrize("table", ["job_envelope", "job_attempt", "job_outcome", "job_cancel"])
def test_a_fact_never_changes(work: Holdfast, table: str) -> None:
    work.enqueue("review.run", {}, org_id=ORG)
    work.worker().run_once()
    waiting = work.enqueue("report.export", {}, org_id=ORG)
    work.cancel(waiting.id, org_id=ORG)
    claimed = work.enqueue("report.export", {}, org_id=ORG)
    claim(work)
    work.cancel(claimed.id, org_id=ORG)
    columns = columns_of(work.store, table)

    assert rows_in(work.store, table) > 0
    for column in columns:
        change = f"UPDATE holdfast.{table} SET {column} = {column}"
        assert refused_by(work, change) == f"{table}_never_changes", column


@pytest.mark.parametrize("table", ["job_attempt", "job_outcome", "job_cancel"])
def test_a_fact_is_deleted_only_with_its_job(work: Holdfast, table: str) -> None:
    work.enqueue("review.run", {}, org_id=ORG)
    work.worker().run_once()
    claimed = work.enqueue("report.export", {}, org_id=ORG)
    claim(work)
    work.cancel(claimed.id, org_id=ORG)

    assert refused_by(work, f"DELETE FROM holdfast.{table}") == f"{table}_stays"


def test_what_a_finished_stage_stored_never_changes(work: Holdfast) -> None:
    work.enqueue("review.run", {}, org_id=ORG)
    work.worker().run_once()

    change = "UPDATE holdfast.job_stage SET attempts = 9"
    assert refused_by(work, change) == "job_stage_output_write_once"
