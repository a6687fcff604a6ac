"""History: ended jobs leave the hot path, and all reads still find them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg import errors as pg

from holdfast import CancelAnswer, Enqueued, FakeClock, Holdfast, State
from holdfast.engine import retention
from holdfast.engine.job import SYSTEM, Completed
from holdfast.engine.maintenance import rescue_jobs
from holdfast.engine.request import JobRequest
from holdfast.engine.retention import archive_jobs
from holdfast.engine.settle import settle
from holdfast.errors import RuleBroken
from holdfast.ids import JobId
from holdfast.operate.jobs import JobFilter
from holdfast.store import Statements, Store, Tx, open_store
from tests.engine.planting import plant
from tests.story import ORG, OTHER_ORG, by_hand, claim, events, look, make_holdfast, timeline

SQL = Statements("holdfast.engine", "job.sql")
JOBS = Statements("holdfast.operate", "jobs.sql")

AT_ONCE = timedelta(0)
HOUR = timedelta(hours=1)


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


def archive(hf: Holdfast, after: timedelta = AT_ONCE, limit: int = 1_000) -> int:
    return archive_jobs(hf.store, after=after, limit=limit)


def archived(hf: Holdfast, **options: Any) -> Enqueued:
    """A job that has completed and is in history."""
    enqueued = finished(hf, **options)
    assert archive(hf) == 1
    return enqueued


def rows_in(store: Store, table: str) -> int:
    found: int = look(store, f"SELECT count(*) AS n FROM holdfast.{table}")[0]["n"]
    return found


# -- which jobs are archived, and when


def test_an_ended_job_is_archived_once_its_hour_is_over(work: Holdfast, clock: FakeClock) -> None:
    finished(work)

    clock.advance(minutes=59)
    before = archive(work, HOUR)
    clock.advance(minutes=1)
    after = archive(work, HOUR)
    again = archive(work, HOUR)

    assert (before, after, again) == (0, 1, 0)
    assert (rows_in(work.store, "job"), rows_in(work.store, "job_history")) == (0, 1)


def test_only_jobs_that_completed_or_were_canceled_are_archived(
    work: Holdfast, clock: FakeClock
) -> None:
    def breaks(job: object, payload: object) -> None:
        raise ValueError

    work.job("report.break", max_attempts=1)(breaks)
    completed = finished(work)
    failed = work.enqueue("report.break", {}, org_id=ORG)
    work.worker().run_once()
    canceled, running, waiting = work.enqueue_many("report.export", [{}, {}, {}], org_id=ORG)
    work.cancel(canceled.id, org_id=ORG)
    claim(work)
    clock.advance(days=400)

    assert archive(work) == 2
    kept = look(work.store, "SELECT id FROM holdfast.job_history")
    assert {row["id"] for row in kept} == {completed.id, canceled.id}
    assert [work.get(item.id, org_id=ORG).state for item in (failed, running, waiting)] == [
        State.FAILED, State.PROCESSING, State.QUEUED,
    ]  # fmt: skip


def test_a_pass_takes_the_oldest_and_no_more_than_its_limit(
    work: Holdfast, clock: FakeClock
) -> None:
    ids = []
    for _ in range(5):
        ids.append(finished(work).id)
        clock.advance(seconds=1)

    assert archive(work, limit=3) == 3
    left = look(work.store, "SELECT id FROM holdfast.job ORDER BY id")
    assert [row["id"] for row in left] == ids[3:]
    assert [archive(work, limit=3), archive(work, limit=3)] == [2, 0]


def test_a_pass_that_breaks_off_leaves_every_job_where_it_was(
    work: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    enqueued = finished(work)
    run = Tx.affected

    def dies(self: Tx, statement: Any, /, **params: Any) -> int:
        if statement.name == "delete_jobs":
            raise KeyboardInterrupt
        return run(self, statement, **params)

    with monkeypatch.context() as broken:
        broken.setattr(Tx, "affected", dies)
        with pytest.raises(KeyboardInterrupt):
            archive(work)

    assert (rows_in(work.store, "job"), rows_in(work.store, "job_history")) == (1, 0)
    assert archive(work) == 1
    assert work.get(enqueued.id, org_id=ORG).state is State.COMPLETED


def test_archiving_takes_as_many_statements_for_50_jobs_as_for_one(
    work: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    work.enqueue_many("report.export", [{} for _ in range(51)], org_id=ORG)
    work.worker().run_once(limit=51)
    ready, counts = Tx._ready, [0]

    def counted(self: Tx, *args: Any) -> Any:
        counts[-1] += 1
        return ready(self, *args)

    monkeypatch.setattr(Tx, "_ready", counted)
    assert archive(work, limit=1) == 1
    counts.append(0)
    assert archive(work, limit=50) == 50

    assert counts[0] == counts[1] == 4


def test_workers_that_archive_at_once_share_the_jobs(postgres_url: str, clock: FakeClock) -> None:
    with make_holdfast(postgres_url, clock) as hf:
        declare(hf)
        for _ in range(5):
            finished(hf)
        other = open_store(postgres_url, clock=clock)

        def while_another_archives(tx: Tx) -> int:
            held = tx.many(retention.SQL.find_archivable, after_ms=0, limit=3)
            assert len(held) == 3
            return archive_jobs(other, after=AT_ONCE, limit=10)

        taken = hf.store.write(while_another_archives)

        assert (taken, archive(hf)) == (2, 3)
        other.close()


def test_a_job_whose_key_history_holds_already_holds_up_no_other(work: Holdfast) -> None:
    first = archived(work, idempotency_key="k")
    twin = finished(work, idempotency_key="other")
    finished(work)
    plant(
        work,
        "UPDATE holdfast.job SET idempotency_key = :key WHERE id = :id",
        key=first.idempotency_key,
        id=twin.id,
    )

    assert archive(work) == 1
    assert [row["id"] for row in look(work.store, "SELECT id FROM holdfast.job")] == [twin.id]


# -- reads of archived jobs


def everything(hf: Holdfast, job: Enqueued) -> dict[str, Any]:
    """All public reads of a job."""
    jobs = hf.operate(actor="user:op", role="operator").jobs

    def ask(tx: Tx) -> dict[str, Any]:
        return {
            "job": tx.maybe(SQL.find_job, org_id=ORG, id=job.id),
            "whose": tx.maybe(SQL.find_org, id=job.id),
            "events": tx.many(SQL.list_events, org_id=ORG, job_id=job.id),
            "key": tx.maybe(SQL.find_key, org_id=ORG, idempotency_key=job.idempotency_key),
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
def test_an_archived_job_reads_in_every_way_as_it_did_before(
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

    assert archive(work) == 1
    assert everything(work, job) == before
    assert len(before["page"]) == 2
    assert before["key"] is not None
    assert len(before["stages"]) == (2 if how == "completed in stages" else 0)


def test_a_page_continues_from_live_jobs_into_history(work: Holdfast, clock: FakeClock) -> None:
    ids = []
    for number in range(6):
        ids.append(finished(work).id)
        clock.advance(seconds=1)
        if number in (1, 3):
            archive(work)

    pages, before = [], "ffffffff-ffff-ffff-ffff-ffffffffffff"
    for _ in range(3):
        page = {"org_id": ORG, "before": before, "state": None, "job_type": None, "limit": 2}
        rows = look(work.store, JOBS.list_jobs.raw, queue=None, error_class=None, **page)
        pages.append([row["id"] for row in rows])
        before = rows[-1]["id"]

    newest = ids[::-1]
    assert pages == [newest[0:2], newest[2:4], newest[4:6]]


def test_another_tenant_finds_nothing_in_history(work: Holdfast) -> None:
    job = archived(work)

    theirs = work.store.read(lambda tx: tx.maybe(SQL.find_job, org_id=OTHER_ORG, id=job.id))

    assert theirs is None


# -- idempotency keys of archived jobs


@pytest.mark.req("I-02", "I-12")
def test_a_key_in_history_answers_with_the_original(work: Holdfast, clock: FakeClock) -> None:
    first = archived(work, idempotency_key="k")
    clock.advance(hours=5)

    again = work.enqueue("report.export", {}, org_id=ORG, idempotency_key="k")

    assert (again.id, again.created, again.differs) == (first.id, False, False)
    assert again.created_at == first.created_at
    assert rows_in(work.store, "job") == 0
    record = work.find_key("report.export", "k", org_id=ORG)
    assert record is not None
    assert (record.job_id, record.last_seen_at) == (first.id, clock.now())


@pytest.mark.req("I-12")
def test_other_content_under_a_key_in_history_is_reported_and_audited(work: Holdfast) -> None:
    first = archived(work, idempotency_key="k")

    again = work.enqueue("report.export", {"n": 2}, org_id=ORG, idempotency_key="k")

    assert (again.id, again.created, again.differs) == (first.id, False, True)
    assert timeline(work, first)[-1] == "job.duplicate_differs"
    assert work.get(first.id, org_id=ORG).payload == {}


@pytest.mark.req("I-02")
@pytest.mark.parametrize("many", [4, 700])
def test_of_many_only_those_are_created_whose_keys_neither_table_holds(
    work: Holdfast, many: int
) -> None:
    old = archived(work, idempotency_key="archived")
    live = work.enqueue("report.export", {}, org_id=ORG, idempotency_key="live")
    requests: list[dict[str, Any]] = [
        {"idempotency_key": "archived"},
        {"idempotency_key": "live", "payload": {"n": 2}},
        {"idempotency_key": "archived", "payload": {"n": 3}},
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
def test_the_unit_of_an_archived_job_has_had_its_job(work: Holdfast) -> None:
    first = archived(work, unit_key="message-1/recipient-2")

    again = work.enqueue("report.export", {}, org_id=ORG, unit_key="message-1/recipient-2")

    assert (again.id, again.created) == (first.id, False)


def copy_of(store: Store, first: JobId, columns: str) -> None:
    """Insert a job by hand that has *columns* in common with the archived one."""
    names = (
        "id, org_id, job_type, category, actor_type, actor_id, request_id, correlation_id,"
        " idempotency_key, payload, payload_hash, priority, unit_key, origin_queue, queue,"
        " max_attempts, created_at, updated_at, key_last_seen_at, turn"
    )
    values = names.replace("id, org_id", ":id, org_id", 1).removesuffix("turn") + ":id"
    by_hand(
        store,
        f"INSERT INTO holdfast.job ({names}) SELECT {values.replace('idempotency_key', columns)}"
        " FROM holdfast.job_history WHERE id = :first RETURNING id",
        id="0198c0de-0000-7000-8000-00000000beef",
        first=first,
    )


@pytest.mark.req("I-11")
@pytest.mark.parametrize(
    ("columns", "rule"),
    [
        ("idempotency_key", "job_once_per_key"),
        ("idempotency_key || '-other'", "job_once_per_unit"),
    ],
)
def test_the_database_itself_refuses_a_key_or_unit_that_history_holds(
    work: Holdfast, columns: str, rule: str
) -> None:
    first = archived(work, unit_key="u")

    with pytest.raises(RuleBroken) as refused:
        copy_of(work.store, first.id, columns)

    assert refused.value.rule == rule
    assert rows_in(work.store, "job") == 0


def test_the_sql_function_answers_with_an_archived_original(
    postgres_url: str, clock: FakeClock
) -> None:
    with make_holdfast(postgres_url, clock) as hf:
        first = archived(declare(hf), idempotency_key="k")
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


# -- while it is being archived


@contextmanager
def archiving(url: str, clock: FakeClock) -> Iterator[None]:
    """Archive all ended jobs, and keep the transaction open inside."""
    store = open_store(url, clock=clock)
    moved, go_on = threading.Event(), threading.Event()
    ended: list[int] = []

    def move_and_wait(tx: Tx) -> int:
        found = tx.many(retention.SQL.find_archivable, after_ms=0, limit=10)
        gone = tx.many(retention.SQL.archive_jobs, ended=found)
        tx.affected(retention.SQL.archive_stages, ended=gone)
        count = tx.affected(retention.SQL.delete_jobs, ended=gone)
        moved.set()
        assert go_on.wait(20)
        return count

    mover = threading.Thread(target=lambda: ended.append(store.write(move_and_wait)))
    mover.start()
    try:
        assert moved.wait(20)
        yield
    finally:
        go_on.set()
        mover.join(20)
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
def test_a_request_during_the_move_finds_the_original(
    postgres_url: str, clock: FakeClock, many: int
) -> None:
    """The enqueue reads history before the move is committed, and inserts afterwards."""
    with make_holdfast(postgres_url, clock) as hf:
        first = finished(declare(hf), idempotency_key="k")
        answers: list[Enqueued] = []
        payloads: list[dict[str, Any]] = [{} for _ in range(many)]

        def ask() -> None:
            answers.extend(
                hf.enqueue_many("report.export", payloads, org_id=ORG, idempotency_key="k")
            )

        asking = threading.Thread(target=ask)
        with archiving(postgres_url, clock):
            asking.start()
            until_somebody_waits(postgres_url)
        asking.join(20)

        assert {(item.id, item.created) for item in answers} == {(first.id, False)}
        assert len(answers) == many
        assert (rows_in(hf.store, "job"), rows_in(hf.store, "job_history")) == (0, 1)


def test_a_request_during_the_move_that_finds_the_row_waits_and_finds_it_in_history(
    postgres_url: str, clock: FakeClock
) -> None:
    """The insert found the live row; its transaction has ended when the move begins."""
    with make_holdfast(postgres_url, clock) as hf:
        first = finished(declare(hf), idempotency_key="k")
        found: list[Any] = []
        keys = [{"org_id": ORG, "idempotency_key": first.idempotency_key}]

        def ask() -> None:
            found.append(hf.store.write(lambda tx: tx.many(SQL.find_duplicates, keys=keys)))
            found.append(hf.store.write(lambda tx: tx.many(SQL.find_archived, keys=keys)))

        asking = threading.Thread(target=ask)
        with archiving(postgres_url, clock):
            asking.start()
            until_somebody_waits(postgres_url)
        asking.join(20)

        assert [[row["id"] for row in rows] for rows in found] == [[], [first.id]]


def test_in_the_callers_own_transaction_the_race_is_an_error_and_never_a_second_job(
    postgres_url: str, clock: FakeClock
) -> None:
    with make_holdfast(postgres_url, clock) as hf:
        first = finished(declare(hf), idempotency_key="k")
        errors: list[BaseException] = []

        def ask() -> None:
            with psycopg.connect(postgres_url) as connection:
                try:
                    hf.enqueue(
                        "report.export", {}, org_id=ORG, conn=connection, idempotency_key="k"
                    )
                except psycopg.Error as exc:
                    errors.append(exc)
                    connection.rollback()

        asking = threading.Thread(target=ask)
        with archiving(postgres_url, clock):
            asking.start()
            until_somebody_waits(postgres_url)
        asking.join(20)

        assert [type(exc) for exc in errors] == [pg.UniqueViolation]
        assert errors[0].diag.constraint_name == "job_once_per_key"  # type: ignore[attr-defined]
        with psycopg.connect(postgres_url) as connection:
            again = hf.enqueue(
                "report.export", {}, org_id=ORG, conn=connection, idempotency_key="k"
            )
        assert (again.id, again.created) == (first.id, False)


@pytest.mark.parametrize("by", ["idempotency_key", "unit_key"])
@pytest.mark.parametrize(
    "level", [psycopg.IsolationLevel.REPEATABLE_READ, psycopg.IsolationLevel.SERIALIZABLE]
)
def test_a_snapshot_from_before_the_move_has_to_retry(
    postgres_url: str, clock: FakeClock, level: psycopg.IsolationLevel, by: str
) -> None:
    key: Any = {by: "k"}
    with make_holdfast(postgres_url, clock) as hf:
        first = finished(declare(hf), **key)
        with psycopg.connect(postgres_url) as connection:
            connection.isolation_level = level
            connection.execute("SELECT 1")
            archive(hf)
            with pytest.raises(pg.SerializationFailure):
                hf.enqueue("report.export", {}, org_id=ORG, conn=connection, **key)
            connection.rollback()
            again = hf.enqueue("report.export", {}, org_id=ORG, conn=connection, **key)

        assert (again.id, again.created) == (first.id, False)
        assert rows_in(hf.store, "job") == 0


def test_a_snapshot_too_old_to_see_every_key_has_to_retry(
    postgres_url: str, clock: FakeClock
) -> None:
    with make_holdfast(postgres_url, clock) as hf, psycopg.connect(postgres_url) as connection:
        declare(hf)
        (made,) = connection.execute(
            "SELECT pg_get_functiondef('holdfast.refuse_archived'::regproc)"
        ).fetchone() or ("",)
        assert "interval '15 minutes'" in made
        # A quarter of an hour passes at once.
        connection.execute(made.replace("interval '15 minutes'", "interval '0'").encode())
        connection.commit()

        hf.enqueue("report.export", {}, org_id=ORG, conn=connection)
        connection.commit()
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        with pytest.raises(pg.SerializationFailure, match="too old"):
            hf.enqueue("report.export", {}, org_id=ORG, conn=connection)


# -- late writes to archived jobs


def test_a_cancel_of_an_archived_job_comes_too_late_and_is_audited(work: Holdfast) -> None:
    job = archived(work)

    assert work.cancel(job.id, org_id=ORG, reason="late") is CancelAnswer.TOO_LATE
    last = events(work, job)[-1]
    assert last["name"] == "job.cancel_requested"


def test_a_worker_that_resumes_after_the_move_has_lost_its_lease(
    work: Holdfast, clock: FakeClock
) -> None:
    job = work.enqueue("report.export", {}, org_id=ORG)
    (frozen,) = claim(work)
    clock.advance(minutes=2)
    rescue_jobs(work.store, limit=10)
    work.worker().run_once()
    assert archive(work) == 1
    other = work.enqueue("report.export", {}, org_id=ORG)
    (held,) = claim(work)

    settled = settle(work.store, [(frozen, Completed()), (held, Completed())], actor=SYSTEM)

    assert [item.lease_held for item in settled] == [False, True]
    assert timeline(work, job)[-1] == "job.lease_lost"
    assert timeline(work, other)[-1] == "job.succeeded"


def test_a_settle_whose_answer_was_lost_until_after_the_move_leaves_no_trace(
    work: Holdfast,
) -> None:
    job = work.enqueue("report.export", {}, org_id=ORG)
    (held,) = claim(work)
    settle(work.store, [(held, Completed())], actor=SYSTEM)
    archive(work)
    before = timeline(work, job)

    (again,) = settle(work.store, [(held, Completed())], actor=SYSTEM)

    assert again.lease_held
    assert timeline(work, job) == before


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


def test_history_holds_every_column_of_a_job(store: Store) -> None:
    columns = columns_of(store, "job")

    assert "turn" in columns
    assert columns_of(store, "job_history") == columns
    assert columns_of(store, "job_record") == columns
    assert columns_of(store, "job_stage_history") == columns_of(store, "job_stage")


def test_nothing_but_stages_and_dead_letters_hangs_on_a_job(postgres_url: str) -> None:
    """A foreign key to job would be broken, or cascade, when the job is archived."""
    with psycopg.connect(postgres_url) as connection:
        found = connection.execute(
            "SELECT conrelid::regclass::text FROM pg_constraint"
            " WHERE contype = 'f' AND confrelid = 'holdfast.job'::regclass"
        ).fetchall()

    assert {name for (name,) in found} == {"holdfast.job_stage", "holdfast.dead_letter"}


def test_a_row_in_history_never_changes(work: Holdfast) -> None:
    job = archived(work)
    for column in columns_of(work.store, "job_history"):
        change = f"UPDATE holdfast.job_history SET {column} = {column} WHERE id = :id"
        if column == "key_last_seen_at":
            by_hand(work.store, f"{change} RETURNING id", id=job.id)
            continue
        with pytest.raises(RuleBroken) as refused:
            by_hand(work.store, f"{change} RETURNING id", id=job.id)
        assert refused.value.rule == "job_history_never_changes", column


def test_what_a_stage_stored_never_changes_in_history(work: Holdfast) -> None:
    work.enqueue("review.run", {}, org_id=ORG)
    work.worker().run_once()
    archive(work)

    with pytest.raises(RuleBroken) as refused:
        by_hand(work.store, "UPDATE holdfast.job_stage_history SET attempts = 9 RETURNING stage")
    assert refused.value.rule == "job_stage_history_never_changes"


@pytest.mark.parametrize("state", ["queued", "processing", "failed"])
def test_a_job_that_has_not_ended_well_cannot_enter_history(work: Holdfast, state: str) -> None:
    job = work.enqueue("report.export", {}, org_id=ORG)
    names = ", ".join(columns_of(work.store, "job_history"))
    values = names.replace(" state,", " :state,")
    for column in ("finished_at", "key_expires_at"):
        values = values.replace(f" {column}", " created_at")

    with pytest.raises(RuleBroken) as refused:
        by_hand(
            work.store,
            f"INSERT INTO holdfast.job_history ({names}) SELECT {values} FROM holdfast.job"
            " WHERE id = :id RETURNING id",
            state=state,
            id=job.id,
        )
    assert refused.value.rule == "job_history_ended"
