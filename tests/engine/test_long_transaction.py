"""A long transaction: no lease expires because of it, and no call waits for it without a limit."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from holdfast import CancelAnswer, Context, Enqueued, FakeClock, Holdfast, SystemClock
from holdfast.engine.context import CancelToken
from holdfast.engine.lease import renew_leases
from holdfast.engine.maintenance import rescue_jobs
from holdfast.engine.worker.executor_pool import InFlight
from holdfast.engine.worker.lease_renewer import LeaseRenewer
from holdfast.errors import StoreBusy
from holdfast.store import Store, migrate, open_store
from tests.acceptance.processes import wait_until
from tests.engine.domain import make_domain
from tests.engine.faulty import FaultyStore, through
from tests.engine.test_transaction import add, numbers
from tests.engine.test_worker import running
from tests.rows import expire_lease
from tests.story import ORG, claim, make_holdfast, timeline

LEASE = 1.0
LONG = 2 * LEASE


@pytest.fixture
def fast(url: str) -> Iterator[Holdfast]:
    """Leases of a second, on real clocks."""
    with make_holdfast(
        url,
        SystemClock(),
        lease_seconds=LEASE,
        rescue_seconds=0.2,
        poll_seconds=0.05,  # type: ignore[arg-type]
    ) as hf:
        make_domain(hf.store)
        yield hf


@pytest.mark.req("C-08", "I-14")
@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_a_transaction_longer_than_the_lease_is_run_once_and_so_are_its_neighbours(
    fast: Holdfast, ends: str
) -> None:
    ran: Counter[str] = Counter()
    is_open = threading.Event()

    @fast.job("sheet.make")
    def make(job: Context, payload: object) -> None:
        ran["writer"] += 1
        with job.transaction() as connection:
            add(connection, 2)
            is_open.set()
            time.sleep(LONG)
            if ends == "rollback":
                raise KeyError("after all")

    @fast.job("sheet.read")
    def read(job: Context, payload: object) -> None:
        ran[job.id] += 1
        assert is_open.wait(60)
        time.sleep(LONG * 0.75)
        job.progress(1)

    writer = fast.enqueue("sheet.make", {}, org_id=ORG)
    jobs = fast.enqueue_many("sheet.read", [{"n": n} for n in range(5)], org_id=ORG)
    counts = fast.worker(concurrency=8).run(until_idle=True)

    assert counts.outcomes == {"completed": 6 - (ends == "rollback")} | (
        {"dead": 1} if ends == "rollback" else {}
    )
    assert set(ran.values()) == {1}
    assert all(timeline(fast, job).count("job.started") == 1 for job in (writer, *jobs))
    assert numbers(fast.store) == ([1, 2] if ends == "commit" else [1])


@pytest.mark.req("C-08")
def test_workers_of_another_store_on_the_same_database_keep_their_leases_too(
    fast: Holdfast, url: str
) -> None:
    """Another store object has its own writer and its own locks, as another process has."""
    ran: Counter[str] = Counter()
    is_open, may_end = threading.Event(), threading.Event()
    with make_holdfast(
        url,
        SystemClock(),
        lease_seconds=LEASE,
        rescue_seconds=0.2,
        poll_seconds=0.05,  # type: ignore[arg-type]
    ) as other:

        @other.job("sheet.read", queue="q:exports")
        def read(job: Context, payload: object) -> None:
            ran[job.id] += 1
            assert may_end.wait(60)

        @fast.job("sheet.make")
        def make(job: Context, payload: object) -> None:
            assert is_open.wait(60)
            with job.transaction() as connection:
                add(connection, 2)
                time.sleep(LONG)

        fast.registry.add(other.registry.get("sheet.read"))
        writer = fast.enqueue("sheet.make", {}, org_id=ORG)
        jobs = fast.enqueue_many("sheet.read", [{"n": n} for n in range(3)], org_id=ORG)
        with (
            running(other.worker(queues=["q:exports"])),
            running(fast.worker(queues=["q:default"])),
        ):
            wait_until(lambda: len(ran) == 3)
            is_open.set()
            wait_until(lambda: fast.get(writer.id, org_id=ORG).record["finished_at"] is not None)
            may_end.set()
            wait_until(lambda: all(fast.get(j.id, org_id=ORG).state == "completed" for j in jobs))

    assert set(ran.values()) == {1}
    assert timeline(fast, writer).count("job.started") == 1


@pytest.mark.req("C-08")
def test_an_open_transaction_of_the_application_stops_no_renewal(
    postgres_url: str,
) -> None:
    """It enqueued with the key of the running job, and so locks the job's row."""
    began, may_end = threading.Event(), threading.Event()
    ran: list[str] = []
    with (
        make_holdfast(postgres_url, SystemClock(), lease_seconds=LEASE, rescue_seconds=0.2) as hf,  # type: ignore[arg-type]
        psycopg.connect(postgres_url) as mine,
    ):

        @hf.job("sheet.make")
        def make(job: Context, payload: object) -> None:
            ran.append(job.id)
            began.set()
            may_end.wait(60)

        job = hf.enqueue("sheet.make", {}, org_id=ORG, idempotency_key="one")
        with running(hf.worker()):
            assert began.wait(60)
            assert not hf.enqueue(
                "sheet.make", {}, org_id=ORG, idempotency_key="one", conn=mine
            ).created
            time.sleep(LONG)
            may_end.set()
            time.sleep(LEASE)
            mine.commit()
            wait_until(lambda: hf.get(job.id, org_id=ORG).state == "completed")
        events = timeline(hf, job)

    assert len(ran) == 1
    assert events.count("job.started") == 1


# -- renewal, one call at a time


@contextmanager
def held_row(hf: Holdfast, job_id: str, place: str = "job_running") -> Iterator[None]:
    """Another client has locked the row, or SQLite's writer."""
    if hf.store.dialect.name == "postgres":
        with psycopg.connect(hf.store._dsn) as other:  # type: ignore[attr-defined]
            lock = f"SELECT FROM holdfast.{place} WHERE job_id = %s FOR UPDATE"
            other.execute(lock.encode(), (job_id,))
            yield
            other.rollback()
        return
    other = sqlite3.connect(hf.store._path, isolation_level=None)  # type: ignore[attr-defined]
    other.execute("BEGIN IMMEDIATE")
    yield
    other.execute("ROLLBACK")
    other.close()


@pytest.mark.req("C-08")
def test_a_row_that_is_held_is_not_a_lost_one(hf: Holdfast, clock: FakeClock) -> None:
    hf.job("sheet.make")(lambda job, payload: None)
    hf.enqueue_many("sheet.make", [{"n": n} for n in range(3)], org_id=ORG)
    jobs = claim(hf, limit=3, lease_ms=60_000)
    clock.advance(seconds=50)

    with held_row(hf, jobs[0].id):
        began = time.monotonic()
        renewed = renew_leases(hf.store, jobs, lease_ms=60_000, seconds=0.2)
        took = time.monotonic() - began
    clock.advance(seconds=50)
    rescued_while_extended = rescue_jobs(hf.store, limit=10)
    clock.advance(seconds=20)
    rescued_afterwards = rescue_jobs(hf.store, limit=10)

    assert renewed.lease_held == {job.claim_id for job in jobs}
    assert took < 30
    assert rescued_while_extended == []
    assert len(rescued_afterwards) == 3


@pytest.mark.req("C-09")
def test_what_a_dead_worker_extended_is_brought_back_at_once(hf: Holdfast) -> None:
    hf.job("sheet.make")(lambda job, payload: None)
    hf.enqueue("sheet.make", {}, org_id=ORG)
    (job,) = claim(hf, worker="dead")
    with held_row(hf, job.id):
        renew_leases(hf.store, [job], lease_ms=60_000, seconds=0.2)

    assert len(rescue_jobs(hf.store, limit=10, dead_worker_id="dead")) == 1


@pytest.mark.req("C-09")
def test_a_lost_claim_is_not_extended_although_its_row_is_held(hf: Holdfast) -> None:
    hf.job("sheet.make")(lambda job, payload: None)
    hf.enqueue("sheet.make", {}, org_id=ORG)
    (lost,) = claim(hf, worker="w1")
    rescue_jobs(hf.store, limit=1, dead_worker_id="w1")
    (held,) = claim(hf, worker="w2")

    with held_row(hf, held.id):
        renewed = renew_leases(hf.store, [lost, held], lease_ms=60_000, seconds=0.2)

    assert renewed.lease_held == {held.claim_id}


@pytest.mark.req("C-08")
def test_the_lease_renewer_stops_what_it_cannot_renew_and_what_it_has_lost(hf: Holdfast) -> None:
    hf.job("sheet.make")(lambda job, payload: None)
    hf.enqueue_many("sheet.make", [{"n": n} for n in range(2)], org_id=ORG)
    kept, lost = (InFlight(job, CancelToken(), 0.0, 0.0) for job in claim(hf, limit=2))
    expire_lease(hf.store, lost.job.id)
    rescue_jobs(hf.store, limit=1)
    away = FaultyStore(hf.store)
    with through(hf, away):
        worker = hf.worker()
        keeper = LeaseRenewer(away, worker._executor_pool, {}, settings=hf.settings, rng=worker.rng,
                        recycle=lambda stuck: None)  # fmt: skip
        keeper.in_flight = {held.claim_id: held for held in (kept, lost)}
        lease = hf.settings.lease_seconds

        away.be_away(1)
        keeper._renew_due(lease * 0.5)
        keeper._stop_unrenewed(lease * 0.89)
        before = [kept.token.lease_lost, lost.token.lease_lost]
        keeper._renew_due(lease * 0.5)
        after = [kept.token.lease_lost, lost.token.lease_lost]
        keeper._stop_unrenewed(lease * 1.41)

    assert before == [False, False]
    assert after == [False, True]
    assert kept.token.lease_lost


# -- no call waits without a limit


@pytest.mark.timeout(60)
def test_a_call_that_meets_a_held_row_says_so_in_about_a_second(
    hf: Holdfast, clock: FakeClock
) -> None:
    hf.job("sheet.make")(lambda job, payload: None)
    job = hf.enqueue("sheet.make", {}, org_id=ORG, idempotency_key="one")
    if hf.store.is_embedded:
        # SQLite itself waits five seconds for another program.
        hf.store._writer.execute("PRAGMA busy_timeout = 500")  # type: ignore[attr-defined]
    shown = hf.operate(actor="user:1", role="admin")

    def again() -> Enqueued:
        return hf.enqueue("sheet.make", {}, org_id=ORG, idempotency_key="one")

    calls: list[Callable[[], object]] = [lambda: hf.cancel(job.id, org_id=ORG)]
    if hf.store.is_embedded:
        calls.append(again)
    with held_row(hf, job.id, "job_ready"):
        for call in calls:
            began = time.monotonic()
            with pytest.raises(StoreBusy) as said:
                call()
            assert time.monotonic() - began < 20
            assert len(str(said.value)) > 20
        # On PostgreSQL a duplicate writes no row that another transaction may have locked.
        assert hf.store.is_embedded or not again().created
        assert shown.explain(job.id).reason
        assert rescue_jobs(hf.store, limit=1) == [] if hf.store.dialect.name == "postgres" else True

    assert hf.cancel(job.id, org_id=ORG) is CancelAnswer.CANCELED


@pytest.mark.timeout(60)
def test_a_handlers_open_transaction_stops_no_call_on_postgres_and_is_named_on_sqlite(
    fast: Holdfast,
) -> None:
    is_open, may_end = threading.Event(), threading.Event()
    fast.job("child.work")(lambda job, payload: None)

    @fast.job("sheet.make")
    def make(job: Context, payload: object) -> None:
        with job.transaction() as connection:
            add(connection, 2)
            job.progress(1, 2)
            is_open.set()
            may_end.wait(60)
        job.raise_if_canceled()

    job = fast.enqueue("sheet.make", {}, org_id=ORG)
    with running(fast.worker()):
        assert is_open.wait(60)
        began = time.monotonic()
        if fast.store.dialect.name == "postgres":
            assert fast.cancel(job.id, org_id=ORG) is CancelAnswer.REQUESTED
            fast.enqueue("child.work", {}, org_id=ORG)
        else:
            for call in (
                lambda: fast.cancel(job.id, org_id=ORG),
                lambda: fast.enqueue("child.work", {}, org_id=ORG),
            ):
                with pytest.raises(StoreBusy, match=r"transaction in process \d+\."):
                    call()
        took = time.monotonic() - began
        may_end.set()
        wait_until(lambda: fast.get(job.id, org_id=ORG).record["finished_at"] is not None)

    assert took < 20
    assert numbers(fast.store) == [1, 2]


@pytest.mark.parametrize("kind", ["write", "write_soon", "read", "handler", "migrate"])
def test_every_transaction_of_ours_ends_when_its_client_freezes(
    postgres_url: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(postgres_url)
    ask = "SELECT setting FROM pg_settings WHERE name = 'idle_in_transaction_session_timeout'"
    found: Any = None
    if kind == "migrate":
        # The migration refuses to run without the limit.
        text = (
            "DO $$ BEGIN IF current_setting('idle_in_transaction_session_timeout') <> '1min' THEN"
            " RAISE EXCEPTION 'no limit'; END IF; END $$"
        )
        monkeypatch.setattr(migrate, "after", lambda *_: [migrate.Migration(9999, "look", text)])
        assert len(store.migrate()) == 1
        found = ("60000",)
    elif kind == "handler":
        with store.tenant_transaction(ORG, None, lambda tx: None) as connection:
            found = connection.execute(ask).fetchone()
    else:
        found = getattr(store, kind)(lambda tx: tx.connection.execute(ask).fetchone())
    store.close()

    assert found == ("60000",)


@pytest.mark.req("C-08")
def test_a_job_whose_row_is_only_referred_to_is_rescued_and_claimed(postgres_url: str) -> None:
    """A row that a frozen handler inserted references the job's row, and therefore locks it."""
    with (
        make_holdfast(postgres_url, SystemClock(), poll_seconds=0.05) as hf,  # type: ignore[arg-type]
        psycopg.connect(postgres_url) as other,
    ):
        hf.job("sheet.make")(lambda job, payload: "made")
        late = hf.clock.now() + timedelta(milliseconds=1)
        jobs = [
            hf.enqueue("sheet.make", {}, org_id=ORG),
            hf.enqueue("sheet.make", {}, org_id=ORG, not_before_at=late),
        ]
        other.execute("SELECT FROM holdfast.job_envelope FOR KEY SHARE")
        (held,) = claim(hf, limit=1)
        assert rescue_jobs(hf.store, limit=1, dead_worker_id=held.claimed_by)
        with running(hf.worker()):
            wait_until(lambda: _all_made(hf, jobs))
        other.rollback()


def _all_made(hf: Holdfast, jobs: list[Any]) -> bool:
    return all(hf.get(job.id, org_id=ORG).state == "completed" for job in jobs)


def test_a_transaction_waits_for_others_locks_by_the_second(postgres_url: str) -> None:
    store: Store = open_store(postgres_url)

    found = store.write(lambda tx: tx.connection.execute("SHOW lock_timeout").fetchone())  # type: ignore[attr-defined]
    alone: list[Any] = []
    statement = __import__("holdfast.store.query", fromlist=["Statement"]).Statement(
        "limit", "one", "", "SELECT current_setting('lock_timeout') AS limit", frozenset()
    )
    store.write_one(lambda tx: alone.append(tx.one(statement)["limit"]))
    store.close()

    assert found == ("1s",)
    assert alone == ["1s"]
