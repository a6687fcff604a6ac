"""The connections of a worker: enough for its handlers, and separate ones for itself."""

from __future__ import annotations

import asyncio
import threading
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest

from holdfast import Context, Holdfast, State
from holdfast.errors import StoreBusy
from holdfast.store import open_store
from holdfast.store import postgres as store_postgres
from holdfast.store.permits import SPARE, Permits, PoolTimeout
from holdfast.store.postgres import PostgresStore
from tests.operate.sound import assert_sound
from tests.story import ORG, make_holdfast, timeline

MINUTE = 60.0


@pytest.fixture
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits for a connection are short."""
    monkeypatch.setattr(store_postgres, "GET_CONNECTION_SECONDS", 0.05)


def charged(hf: Holdfast, jobs: list[Any]) -> int:
    return sum(hf.get(job.id, org_id=ORG).attempt_count for job in jobs)


# -- the default: a connection for every handler


@pytest.mark.req("R-12")
@pytest.mark.parametrize("handlers", [4, 30])
def test_every_handler_may_hold_a_transaction_at_the_same_time(
    postgres_url: str, handlers: int
) -> None:
    together = threading.Barrier(handlers, timeout=MINUTE)
    with make_holdfast(postgres_url) as hf:

        @hf.job("some.work")
        def work(job: Context, payload: object) -> None:
            with job.transaction() as connection:
                connection.execute("SELECT 1")
                together.wait()
                # One more, in addition to the one in use.
                hf.enqueue("other.work", {}, org_id=ORG)

        hf.job("other.work", queue="q:exports")(lambda job, payload: None)
        jobs = hf.enqueue_many("some.work", [{}] * handlers, org_id=ORG)

        hf.worker(queues=["q:default"], concurrency=handlers).run(until_idle=True)

        assert {hf.get(job.id, org_id=ORG).state for job in jobs} == {State.COMPLETED}
        assert charged(hf, jobs) == 0


def test_asynchronous_handlers_may_hold_transactions_across_awaits(postgres_url: str) -> None:
    handlers, arrived = 12, []
    everybody = asyncio.Event()
    with make_holdfast(postgres_url) as hf:

        @hf.job("async.work")
        async def work(job: Context, payload: object) -> None:
            with job.transaction() as connection:
                connection.execute("SELECT 1")
                arrived.append(1)
                if len(arrived) == handlers:
                    everybody.set()
                await everybody.wait()

        jobs = hf.enqueue_many("async.work", [{}] * handlers, org_id=ORG)

        hf.worker(concurrency=1).run(until_idle=True)

        assert {hf.get(job.id, org_id=ORG).state for job in jobs} == {State.COMPLETED}
        assert charged(hf, jobs) == 0


# -- fewer connections than handlers


@pytest.mark.req("R-12")
@pytest.mark.usefixtures("no_patience")
def test_a_handler_that_finds_no_connection_is_released_and_costs_nothing(
    postgres_url: str,
) -> None:
    begun, release = threading.Event(), threading.Event()
    with make_holdfast(postgres_url, pool_size=3) as hf:

        @hf.job("greedy.work")
        def greedy(job: Context, payload: object) -> None:
            with ExitStack() as stack:
                for _ in range(2):
                    stack.enter_context(hf.store.tenant_transaction(ORG, None, lambda tx: None))
                begun.set()
                assert release.wait(MINUTE)

        @hf.job("modest.work")
        def modest(job: Context, payload: object) -> None:
            assert begun.wait(MINUTE)
            try:
                job.progress(1)
            finally:
                release.set()

        greedy_job = hf.enqueue("greedy.work", {}, org_id=ORG)
        job = hf.enqueue("modest.work", {}, org_id=ORG)

        hf.worker(concurrency=2).run(until_idle=True)

        names = timeline(hf, job)
        found = hf.get(job.id, org_id=ORG)
        assert names == ["job.enqueued", "job.started", "job.released"]
        assert (found.state, found.attempt_count, found.last_error) == (State.QUEUED, 0, None)
        assert found.record["not_before_at"] is not None
        assert hf.get(greedy_job.id, org_id=ORG).state is State.COMPLETED
        assert_sound(hf)


@pytest.mark.req("R-12")
@pytest.mark.usefixtures("no_patience")
def test_thirty_handlers_on_a_small_pool_cost_no_attempt(postgres_url: str) -> None:
    with make_holdfast(postgres_url, pool_size=4) as hf:

        @hf.job("some.work")
        def work(job: Context, payload: object) -> None:
            with job.transaction() as connection:
                connection.execute("SELECT pg_sleep(0.02)")

        jobs = hf.enqueue_many("some.work", [{}] * 60, org_id=ORG)
        for _ in range(40):
            hf.worker(concurrency=30).run(until_idle=True)
            hf.clock.advance(seconds=30)  # type: ignore[attr-defined]
            if {hf.get(job.id, org_id=ORG).state for job in jobs} == {State.COMPLETED}:
                break

        assert {hf.get(job.id, org_id=ORG).state for job in jobs} == {State.COMPLETED}
        assert charged(hf, jobs) == 0
        assert_sound(hf)


@pytest.mark.usefixtures("no_patience")
def test_leases_are_renewed_and_outcomes_recorded_while_handlers_hold_every_connection(
    postgres_url: str,
) -> None:
    """All four are the worker's own threads, and three are kept for them."""
    begun, release = threading.Event(), threading.Event()
    with make_holdfast(postgres_url, pool_size=6, lease_seconds=0.5) as hf:

        @hf.job("greedy.work")
        def greedy(job: Context, payload: object) -> None:
            with ExitStack() as stack:
                try:
                    while True:
                        given = hf.store.tenant_transaction(ORG, None, lambda tx: None)
                        stack.enter_context(given)
                except PoolTimeout:
                    begun.set()
                assert release.wait(MINUTE)

        hf.job("quick.work")(lambda job, payload: "done")
        hf.enqueue("greedy.work", {}, org_id=ORG)
        worker = hf.worker(concurrency=2)
        thread = threading.Thread(target=worker.run)
        thread.start()
        try:
            assert begun.wait(MINUTE)
            with make_holdfast(postgres_url) as other:
                other.job("quick.work")(lambda job, payload: "done")
                quick = other.enqueue("quick.work", {}, org_id=ORG)
                deadline = threading.Event()
                for _ in range(600):
                    if other.get(quick.id, org_id=ORG).state is State.COMPLETED:
                        break
                    deadline.wait(0.1)
                assert other.get(quick.id, org_id=ORG).state is State.COMPLETED
        finally:
            release.set()
            worker.drain()
            thread.join(MINUTE)


def test_a_loop_is_never_blocked_by_waiting_for_a_connection(postgres_url: str) -> None:
    """The handlers that hold the connections need the event loop to continue."""
    with make_holdfast(postgres_url, pool_size=2) as hf:

        async def take_two() -> None:
            with (
                hf.store.tenant_transaction(ORG, None, lambda tx: None),
                hf.store.tenant_transaction(ORG, None, lambda tx: None),
                pytest.raises(PoolTimeout),
            ):
                hf.store.read(lambda tx: None)

        asyncio.run(asyncio.wait_for(take_two(), MINUTE))


# -- the setting


def test_a_pool_of_a_given_size_opens_no_more(postgres_url: str) -> None:
    store = open_store(postgres_url, pool_size=3)
    assert isinstance(store, PostgresStore)
    gate = threading.Barrier(4)

    def hold() -> None:
        store.read(lambda tx: gate.wait(MINUTE))

    threads = [threading.Thread(target=hold) for _ in range(3)]
    for thread in threads:
        thread.start()
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        gate.wait(MINUTE)
        used = admin.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name = 'holdfast'"
        ).fetchone()
    for thread in threads:
        thread.join(MINUTE)
    store.close()

    assert used is not None
    assert used[0] <= 3


def test_what_is_said_of_an_exhausted_pool_names_the_setting() -> None:
    assert issubclass(PoolTimeout, StoreBusy)
    assert "pool_size" in str(PoolTimeout(10, 5.0))


def limits(permits: Permits) -> tuple[int, int]:
    return permits.general, permits.reserved


def test_the_size_of_a_pool_follows_the_worker_unless_it_is_set() -> None:
    derived, given, tiny = Permits(None), Permits(20), Permits(1)

    with derived.sized_for(handlers=30, threads=7), given.sized_for(handlers=30, threads=7):
        inside = limits(derived), limits(given)
        with derived.sized_for(handlers=5, threads=7):
            two_workers = limits(derived)
    with tiny.sized_for(handlers=30, threads=7):
        small = limits(tiny)

    assert inside == ((30 + SPARE, 7), (13, 7))
    assert two_workers == (35 + SPARE, 14)
    assert small == (1, 0)
    assert (limits(derived), limits(given)) == ((10, 0), (20, 0))
