"""Gauges: figures from the database, and the cost of reading them."""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from prometheus_client import generate_latest

from holdfast import Actor, Context, FakeClock, Holdfast, Permanent
from holdfast.engine.promote import promote_jobs
from holdfast.engine.schedule.rows import sync_schedules
from holdfast.engine.worker.heartbeat import GONE_AFTER, Heartbeat
from holdfast.errors import StoreDown
from holdfast.sealed_audit.telemetry import SQL as SEAL_SQL
from holdfast.store import Row, Store, Tx
from holdfast.telemetry import gauges
from holdfast.telemetry.gauges import (
    EVERY_SECONDS,
    LONGEST_REST_SECONDS,
    SQL,
    STALE_SECONDS,
    CachedGauges,
    Reading,
    known_gauges,
    read_all,
)
from holdfast.telemetry.label import Labels
from holdfast.telemetry.metrics import Metrics
from holdfast_llm.telemetry import SQL as BATCH_SQL
from tests.story import ORG, OTHER_ORG, by_hand, claim, look, seal_all
from tests.telemetry.exposition import problems_of, value


def reading_of(hf: Holdfast) -> Reading:
    return read_all(hf, Labels(hf))


@pytest.fixture
def shop(hf: Holdfast) -> Holdfast:
    @hf.job("order.ship")
    def ship(job: Context, payload: dict[str, Any]) -> None:
        if payload.get("fails"):
            raise Permanent

    return hf


def present(hf: Holdfast, worker_id: str, *queues: str) -> Heartbeat:
    return Heartbeat(hf.store, {}, worker_id, queues, ["order.ship"], lease_ms=60_000)


# -- values


def test_jobs_are_counted_as_ready_delayed_and_running(shop: Holdfast, clock: FakeClock) -> None:
    shop.enqueue_many("order.ship", [{}] * 5, org_id=ORG)
    shop.enqueue_many("order.ship", [{}] * 3, org_id=OTHER_ORG)
    soon = clock.now() + timedelta(minutes=1)
    later = clock.now() + timedelta(days=1)
    shop.enqueue_many("order.ship", [{}] * 2, org_id=ORG, not_before_at=soon)
    shop.enqueue("order.ship", {}, org_id=ORG, not_before_at=later)
    claim(shop, limit=4)
    # No worker promotes the due jobs. They are ready all the same.
    clock.advance(minutes=2)

    depth = reading_of(shop)["holdfast_queue_depth"]

    assert depth["q:default", "ready"] == 8 - 4 + 2
    assert depth["q:default", "delayed"] == 1
    assert depth["q:default", "running"] == 4
    assert depth["q:exports", "ready"] == depth["q:exports", "running"] == 0


def test_the_age_is_the_time_that_the_longest_waiting_job_has_been_ready(
    shop: Holdfast, clock: FakeClock
) -> None:
    def age() -> float:
        return reading_of(shop)["holdfast_queue_oldest_ready_age_seconds"]["q:default",]

    assert age() == 0
    hour = timedelta(hours=1)
    shop.enqueue("order.ship", {}, org_id=ORG, not_before_at=clock.now() + hour)
    clock.advance(seconds=3500)
    waiting = shop.enqueue("order.ship", {}, org_id=ORG)
    clock.advance(seconds=40)
    assert age() == 40

    clock.advance(seconds=90)
    assert age() == 130
    # The deferred one became due half a minute ago; it counts from then, though it was created
    # first, and a worker has promoted it only now.
    promote_jobs(shop.store, ["q:default"])
    shop.cancel(waiting.id, org_id=ORG, actor="user:1", reason="not needed")
    clock.advance(seconds=10)
    assert age() == 40


def test_a_paused_queue_says_so(shop: Holdfast) -> None:
    shop.queues.pause("q:exports", reason="a partner is down", actor=Actor.read("user:1"))

    paused = reading_of(shop)["holdfast_queue_paused"]

    assert paused["q:exports",] == 1
    assert paused["q:default",] == 0


def test_a_queue_that_another_application_declared_is_named(shop: Holdfast) -> None:
    by_hand(
        shop.store,
        "INSERT INTO holdfast.queue (name, updated_at) VALUES ('q:theirs', {now}) RETURNING name",
    )

    assert ("q:theirs", "ready") in reading_of(shop)["holdfast_queue_depth"]


def test_beyond_a_hundred_queues_the_rest_is_other(
    shop: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gauges, "QUEUES", len(shop.known_queues) + 2)
    for number in range(6):
        by_hand(
            shop.store,
            f"INSERT INTO holdfast.queue (name, updated_at) VALUES ('q:q{number}', {{now}})"
            " RETURNING name",
        )

    named = {queue for queue, _ in reading_of(shop)["holdfast_queue_depth"]}

    assert named == {*shop.known_queues, "q:q0", "q:q1", "other"}


def test_open_dead_letters_are_counted_by_job_type(shop: Holdfast) -> None:
    shop.enqueue_many("order.ship", [{"fails": True}] * 3, org_id=ORG)
    shop.worker().run_once()
    letter = look(shop.store, "SELECT job_id FROM holdfast.dead_letter LIMIT 1")[0]
    by_hand(
        shop.store,
        "UPDATE holdfast.dead_letter SET state = 'discarded', ending = 'not needed',"
        " ended_at = {now}, updated_at = {now}, version = version + 1 WHERE job_id = :job_id"
        " RETURNING job_id",
        job_id=letter["job_id"],
    )

    found = reading_of(shop)

    assert found["holdfast_dead_letters_open"]["order.ship",] == 2
    assert found["holdfast_dead_letters_open"]["other",] == 0
    assert found["holdfast_dead_letters_escalated"]["order.ship",] == 0


def test_without_the_application_every_job_type_is_other(shop: Holdfast) -> None:
    shop.enqueue("order.ship", {"fails": True}, org_id=ORG)
    shop.worker().run_once()
    stranger = Holdfast(settings=shop.settings, clock=shop.clock)
    stranger.use_store(shop.store)

    assert reading_of(stranger)["holdfast_dead_letters_open"] == {
        ("other",): 1,
        # Known to every application.
        ("operate.bulk_action",): 0,
        ("outbox.deliver",): 0,
    }


def test_workers_are_live_until_they_leave_or_are_silent(shop: Holdfast, clock: FakeClock) -> None:
    first = present(shop, "w1", "q:default", "q:exports")
    second = present(shop, "w2", "q:default")
    first.send()
    second.send()
    second.drain()
    second.send()

    found = reading_of(shop)
    assert found["holdfast_workers_live"] == {("working",): 1, ("draining",): 1}
    assert found["holdfast_queue_workers"]["q:default",] == 1
    assert found["holdfast_queue_workers"]["q:exports",] == 1
    assert found["holdfast_queue_workers"]["q:planning",] == 0

    clock.advance(GONE_AFTER + timedelta(seconds=1))
    second.send()
    assert reading_of(shop)["holdfast_workers_live"] == {("working",): 0, ("draining",): 1}
    second.leave()
    assert reading_of(shop)["holdfast_workers_live"] == {("working",): 0, ("draining",): 0}


def test_what_is_not_sealed_is_counted_and_grows_old(shop: Holdfast, clock: FakeClock) -> None:
    shop.enqueue_many("order.ship", [{}] * 4, org_id=ORG)
    clock.advance(minutes=5)

    found = reading_of(shop)
    assert found["holdfast_audit_unsealed_events"][()] == 4
    assert found["holdfast_audit_unsealed_age_seconds"][()] == 300

    seal_all(shop.store)
    found = reading_of(shop)
    assert found["holdfast_audit_unsealed_events"][()] == 0
    assert found["holdfast_audit_unsealed_age_seconds"][()] == 0


def test_a_tick_that_does_not_fire_is_late(shop: Holdfast, clock: FakeClock) -> None:
    shop.job("shop.tidy", category="maintenance")(lambda job, payload: None)
    shop.schedule("often", every="10m", job_type="shop.tidy", payload={}, org_id=ORG)
    sync_schedules(shop)
    assert reading_of(shop)["holdfast_schedule_lag_seconds"][()] == 0

    clock.advance(minutes=25)

    assert 300 < reading_of(shop)["holdfast_schedule_lag_seconds"][()] <= 1500


def test_an_old_transaction_is_seen_where_there_can_be_one(shop: Holdfast) -> None:
    if shop.store.dialect.name == "sqlite":
        found = reading_of(shop)
        assert "holdfast_db_oldest_xmin_age_seconds" not in found
        assert "holdfast_db_hidden_transactions" not in found
        return
    with psycopg.connect(shop.settings.db) as old:
        old.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT pg_sleep(0.05), count(*) FROM holdfast.job")

        found = reading_of(shop)

        assert found["holdfast_db_oldest_xmin_age_seconds"][()] >= 0.05
        assert found["holdfast_db_hidden_transactions"][()] == 0
    # Its own snapshot does not count.
    assert reading_of(shop)["holdfast_db_oldest_xmin_age_seconds"][()] < 0.05


def test_a_transaction_that_our_role_may_not_measure_is_at_least_counted(
    postgres_url: str, clock: FakeClock
) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        name = f"plain_{admin.info.backend_pid}"
        admin.execute(f"CREATE ROLE {name} LOGIN IN ROLE holdfast_engine")
        try:
            plain = Holdfast(postgres_url.replace("postgres@", f"{name}@"), clock=clock)
            plain.job("order.ship")(lambda job, payload: None)
            with psycopg.connect(postgres_url) as other:
                other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
                other.execute("SELECT count(*) FROM holdfast.migration")
                found = reading_of(plain)
            plain.close()
            assert found["holdfast_db_hidden_transactions"][()] == 1
            assert found["holdfast_db_oldest_xmin_age_seconds"][()] == 0
        finally:
            admin.execute(f"DROP ROLE {name}")


def test_every_gauge_is_shown_and_none_beyond(shop: Holdfast) -> None:
    text = generate_latest(Metrics(shop).registry).decode()
    found = reading_of(shop)

    assert problems_of(text) == []
    assert value(text, "holdfast_db_up") == 1
    assert value(text, "holdfast_queue_depth", queue="q:default", state="ready") == 0
    known = {gauge.name: set(gauge.labels) for gauge in known_gauges(shop)}
    assert set(found) <= set(known)
    if shop.store.dialect.name == "postgres":
        assert set(found) == set(known)


# -- costs


def explained(store: Store, statement: Any, **params: Any) -> str:
    word = "EXPLAIN QUERY PLAN " if store.dialect.name == "sqlite" else "EXPLAIN "
    changed = replace(statement, raw=word + statement.raw)

    def work(tx: Tx) -> list[Row]:
        tx.one(SQL.bound_reading)
        return tx.many(changed, **params)

    rows = store.read(work)
    return "\n".join(str(row.get("detail", row.get("QUERY PLAN"))) for row in rows)


@pytest.mark.parametrize("analyzed", [False, True], ids=["never_analyzed", "analyzed"])
def test_no_reading_goes_through_a_whole_table(
    shop: Holdfast, clock: FakeClock, analyzed: bool
) -> None:
    if not shop.store.is_embedded:
        # All letters are open, so both indexes of letters are equally good. With the statistics of
        # an autovacuum that comes by, PostgreSQL takes either.
        by_hand(shop.store, "ALTER TABLE holdfast.dead_letter SET (autovacuum_enabled = off)")
    shop.queue("q:other")
    later = clock.now() + timedelta(days=1)
    shop.enqueue_many("order.ship", [{"pad": "x" * 1_000}] * 750, org_id=ORG)
    shop.enqueue_many(
        "order.ship", [{"fails": True, "pad": "x" * 1_000}] * 200, org_id=ORG, queue="q:exports"
    )
    shop.enqueue_many("order.ship", [{"pad": "x" * 1_000}] * 250, org_id=ORG, not_before_at=later)
    claim(shop, limit=100)
    shop.worker(queues=["q:exports"]).run_once(200)
    if analyzed:
        by_hand(shop.store, "ANALYZE")
    asked = [{"name": name} for name in shop.known_queues]

    plans = [
        explained(shop.store, SQL.count_waiting, queues=asked, bound=100_000, oldest=1_000),
        explained(shop.store, SQL.count_running, bound=100_000),
        explained(shop.store, SQL.count_letters, bound=100_000),
        explained(shop.store, SEAL_SQL.read_lag),
        explained(shop.store, SQL.read_schedules),
        explained(shop.store, BATCH_SQL.count_batches, bound=100_000),
        explained(shop.store, BATCH_SQL.read_overdue, bound=100_000),
    ]

    tables = "job_envelope|job_ready|job_waiting|job_outcome|job_attempt|dead_letter|audit_event"
    whole = re.compile(
        rf"Seq Scan on ({tables}|provider_batch)\b"
        rf"|SCAN (holdfast_({tables})|asked|attempt|letter|event|batch)"
        r"(?! USING (COVERING )?INDEX)\b"
    )
    for text in plans:
        assert not whole.search(text), text
    for index in ("job_ready", "job_waiting_due", "job_ready_oldest"):
        assert index in plans[0], plans[0]
    assert "job_envelope" not in plans[1], plans[1]
    assert "dead_letter_unended" in plans[2]


@contextmanager
def counted(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The statements of every read from here on."""
    asked: list[str] = []
    read = type(hf.store).read

    def note(self: Store, work: Callable[[Tx], Any]) -> Any:
        def noted(tx: Tx) -> Any:
            execute = tx._execute
            tx._execute = lambda statement, params: (  # type: ignore[method-assign]
                asked.append(statement.name),
                execute(statement, params),
            )[1]
            return work(tx)

        return read(self, noted)

    with monkeypatch.context() as patched:
        patched.setattr(type(hf.store), "read", note)
        yield asked


def test_a_reading_is_a_fixed_number_of_statements(
    shop: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    with counted(shop, monkeypatch) as asked:
        reading_of(shop)
        few = list(asked)
        asked.clear()
        for number in range(5):
            shop.queue(f"q:more{number}")
            shop.enqueue_many("order.ship", [{}] * 50, org_id=ORG, queue=f"q:more{number}")
        asked.clear()
        reading_of(shop)

    assert asked == few
    assert len(few) == 13


def test_a_count_stops_at_its_bound(shop: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gauges, "BOUND", 10)
    shop.enqueue_many("order.ship", [{}] * 50, org_id=ORG)
    shop.enqueue_many("order.ship", [{}] * 50, org_id=ORG, queue="q:exports")
    claim(shop, limit=30, queue="q:exports")

    depth = reading_of(shop)["holdfast_queue_depth"]

    assert depth["q:default", "ready"] == 10
    assert depth["q:exports", "running"] == 10


def test_a_hundred_scrapes_in_a_moment_read_the_database_once(
    shop: Holdfast, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics = Metrics(shop)
    with counted(shop, monkeypatch) as asked:
        threads = [
            threading.Thread(target=generate_latest, args=(metrics.registry,)) for _ in range(20)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        for _ in range(80):
            generate_latest(metrics.registry)
        assert asked.count("count_waiting") == 1

        clock.advance(seconds=EVERY_SECONDS)
        generate_latest(metrics.registry)
        assert asked.count("count_waiting") == 2


def test_a_reading_that_took_long_is_not_repeated_soon(clock: FakeClock) -> None:
    times: list[float] = []

    def read() -> Reading:
        times.append(clock.monotonic())
        clock.advance(seconds=1)
        return {}

    looks = CachedGauges(read, clock)
    for _ in range(200):
        looks.latest()
        clock.advance(seconds=0.5)

    pauses = [after - before for before, after in itertools.pairwise(times)]
    assert min(pauses) >= 20
    assert max(pauses) <= LONGEST_REST_SECONDS


def test_a_database_that_hangs_keeps_no_scrape_waiting_and_is_asked_once(
    clock: FakeClock,
) -> None:
    go_on = threading.Event()
    asked: list[float] = []

    def read() -> Reading:
        asked.append(clock.monotonic())
        go_on.wait(30)
        return {"holdfast_queue_depth": {("q:default", "ready"): 1.0}}

    looks = CachedGauges(read, clock, patience=0.01)
    try:
        for _ in range(10):
            assert looks.latest() is None
            clock.advance(seconds=60)
        assert len(asked) == 1
    finally:
        go_on.set()
    looks.patience = 10
    assert looks.latest() is not None


def test_the_last_reading_is_shown_for_a_limited_time_while_the_next_is_slow(
    clock: FakeClock,
) -> None:
    go_on = threading.Event()
    answers: list[Reading] = [{}]

    def read() -> Reading:
        if answers:
            return answers.pop()
        go_on.wait(30)
        return {}

    looks = CachedGauges(read, clock, patience=10)
    assert looks.latest() == {}
    looks.patience = 0.01
    try:
        clock.advance(seconds=STALE_SECONDS)
        assert looks.latest() == {}
        clock.advance(seconds=1)
        assert looks.latest() is None
    finally:
        go_on.set()


@pytest.mark.parametrize("fault", [StoreDown("gone"), RuntimeError("a defect")])
def test_a_scrape_succeeds_while_the_database_is_away(
    shop: Holdfast, clock: FakeClock, fault: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics = Metrics(shop)

    def away(self: Store, work: object) -> None:
        raise fault

    with monkeypatch.context() as patched:
        patched.setattr(type(shop.store), "read", away)
        text = generate_latest(metrics.registry).decode()

    assert problems_of(text) == []
    assert value(text, "holdfast_db_up") == 0
    assert "holdfast_queue_depth" not in text
    assert "jobs_enqueued_total" in text

    clock.advance(seconds=EVERY_SECONDS)
    assert value(generate_latest(metrics.registry).decode(), "holdfast_db_up") == 1
