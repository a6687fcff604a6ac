"""PostgreSQL: connections break, servers restart, sessions are swapped; nothing is lost."""

from __future__ import annotations

import re
import signal
import threading
import time
from collections.abc import Iterator
from hashlib import sha256
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from holdfast import Context, FakeClock, Holdfast, Settings
from holdfast.engine.job import SYSTEM, Advanced, Completed, State
from holdfast.engine.maintenance import rescue_jobs
from holdfast.engine.settle import settle
from holdfast.errors import ConfigError, ForkedStore, StoreDown
from holdfast.sealed_audit.seal import seal_events
from holdfast.store import Store, Tx, open_store, postgres
from holdfast.store import wake as waking
from holdfast.store.postgres import PostgresStore
from tests.postgres_server import PostgresServer
from tests.store.child import forks, in_child
from tests.store.hand import insert
from tests.store.proxy import Wire
from tests.story import ORG, OTHER_ORG, by_hand, claim, events, look, make_holdfast, timeline


@pytest.fixture
def shop(postgres_url: str) -> Iterator[Holdfast]:
    with make_holdfast(postgres_url) as hf:
        hf.job("order.ship")(lambda job, payload: payload)
        yield hf


def count_jobs(store: Store) -> int:
    (row,) = look(store, "SELECT count(*) AS jobs FROM holdfast.job")
    return int(row["jobs"])


def fill_pool(store: Store, size: int) -> None:
    """Have *size* connections open at once."""
    gate = threading.Barrier(size)
    threads = [
        threading.Thread(target=lambda: store.read(lambda tx: gate.wait(20))) for _ in range(size)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)


def kill_connections(url: str) -> int:
    """End every backend of Holdfast on this database; return their number."""
    with psycopg.connect(url, autocommit=True) as admin:
        killed = admin.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name = 'holdfast'"
        ).fetchall()
    return len(killed)


def test_connections_killed_between_two_calls_are_replaced(
    shop: Holdfast, postgres_url: str
) -> None:
    fill_pool(shop.store, 10)
    assert kill_connections(postgres_url) >= 10

    began = time.monotonic()
    enqueued = shop.enqueue("order.ship", {}, org_id=ORG)
    took = time.monotonic() - began

    assert enqueued.created
    assert count_jobs(shop.store) == 1
    assert took < 3.0


def test_work_whose_connection_dies_under_it_runs_again_from_its_beginning(
    shop: Holdfast, postgres_url: str
) -> None:
    runs = []

    def work(tx: Any) -> str:
        runs.append(tx)
        tx.connection.execute("CREATE TABLE step_one (id int)")
        if len(runs) == 1:
            kill_connections(postgres_url)
        tx.connection.execute("CREATE TABLE step_two (id int)")
        return "done"

    assert shop.store.write(work) == "done"
    assert len(runs) == 2


def test_every_transaction_limits_how_long_it_may_be_idle(shop: Holdfast) -> None:
    """A process that freezes inside of it keeps its locks while it is frozen."""
    limits: list[str] = []

    def note(connection: Any) -> None:
        asked = "SHOW idle_in_transaction_session_timeout"
        limits.append(connection.execute(asked).fetchone()[0])

    shop.store.write(lambda tx: note(tx.connection))  # type: ignore[attr-defined]
    shop.store.read(lambda tx: note(tx.connection))  # type: ignore[attr-defined]

    @shop.job("order.look")
    def look_inside(job: Context, payload: object) -> None:
        with job.transaction() as connection:
            note(connection)

    shop.enqueue("order.look", {}, org_id=ORG)
    shop.worker().run_once()

    assert limits == ["1min"] * 3


def test_a_lost_race_is_run_again(shop: Holdfast) -> None:
    by_hand(shop.store, "CREATE TABLE account (id int PRIMARY KEY, euros int)")
    by_hand(shop.store, "INSERT INTO account VALUES (1, 0), (2, 0)")
    both_hold_one = threading.Barrier(2)
    runs: list[int] = []

    def transfer(first: int, second: int) -> None:
        def work(tx: Any) -> None:
            runs.append(first)
            is_rerun = runs.count(first) > 1
            # Two reruns that take the rows in different orders could meet again.
            one, other = sorted((first, second)) if is_rerun else (first, second)
            add = "UPDATE account SET euros = euros + 1 WHERE id = %s"
            tx.connection.execute(add, (one,))
            if not is_rerun:
                both_hold_one.wait(10)
            tx.connection.execute(add, (other,))

        shop.store.write(work)

    threads = [threading.Thread(target=transfer, args=pair) for pair in ((1, 2), (2, 1))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    # The server ends one of the two, or each gives up its lock after a second.
    assert len(runs) > 2
    assert [row["euros"] for row in look(shop.store, "SELECT euros FROM account")] == [2, 2]


@pytest.fixture
def wired(postgres: PostgresServer, postgres_url: str) -> Iterator[tuple[Holdfast, Wire]]:
    wire = Wire(postgres.port)
    url = postgres_url.replace(f":{postgres.port}/", f":{wire.port}/")
    with make_holdfast(url) as hf:
        hf.job("order.ship")(lambda job, payload: payload)
        assert count_jobs(hf.store) == 0
        yield hf, wire
    wire.close()


@pytest.mark.req("I-18")
@pytest.mark.parametrize("many", [1, 3])
def test_an_enqueue_whose_answer_is_lost_leaves_one_job(
    wired: tuple[Holdfast, Wire], many: int
) -> None:
    hf, wire = wired

    wire.lose_answer_to("INSERT INTO holdfast.job_envelope")
    payloads = [{"n": n} for n in range(many)]
    enqueued = hf.enqueue_many("order.ship", payloads, org_id=ORG)

    assert wire.lost == 1
    assert count_jobs(hf.store) == many
    for item in enqueued:
        assert item.created
        assert timeline(hf, item) == ["job.enqueued"]


@pytest.mark.req("I-14", "I-18")
def test_a_settle_whose_commit_is_lost_is_recorded_once(wired: tuple[Holdfast, Wire]) -> None:
    hf, wire = wired
    enqueued = hf.enqueue("order.ship", {}, org_id=ORG)
    (job,) = claim(hf)

    wire.lose_answer_to("COMMIT")
    settle(hf.store, [(job, Completed('{"n":1}'))], actor=SYSTEM)

    assert wire.lost == 1
    stored = hf.get(enqueued.id, org_id=ORG)
    assert (stored.state, stored.result) == (State.COMPLETED, {"n": 1})
    assert timeline(hf, enqueued).count("job.succeeded") == 1


def test_a_stage_whose_commit_is_lost_is_finished_once(wired: tuple[Holdfast, Wire]) -> None:
    hf, wire = wired
    pipeline = hf.pipeline("order.pack")
    pipeline.stage("pick")(lambda job, payload: 1)
    pipeline.stage("wrap")(lambda job, payload: 2)
    hf.enqueue("order.pack", {}, org_id=ORG)
    (job,) = claim(hf)

    wire.lose_answer_to("COMMIT")
    (settled,) = settle(hf.store, [(job, Advanced('{"n":1}', "wrap", 5))], actor=SYSTEM)

    assert wire.lost == 1
    assert settled.lease_held
    (stage,) = look(hf.store, "SELECT stage, output FROM holdfast.job_stage")
    assert stage["stage"] == "pick"
    assert hf.get(job.id, org_id=ORG).stage == "wrap"


def test_a_claim_whose_commit_is_lost_is_rescued_when_its_lease_ends(
    wired: tuple[Holdfast, Wire],
) -> None:
    hf, wire = wired
    # Of two tenants: with one backlog alone the statement would be prepared first, and only that
    # answer lost.
    enqueued = [hf.enqueue("order.ship", {}, org_id=org_id).id for org_id in (ORG, OTHER_ORG)]

    # Without statements of extensions a claim is one statement, and its answer that of the commit.
    hf.store.state_statements = ()
    wire.lose_answer_to("INSERT INTO holdfast.job_running")
    assert claim(hf, limit=2) == []
    assert wire.lost == 1
    assert isinstance(hf.clock, FakeClock)
    hf.clock.advance(seconds=61)
    rescue_jobs(hf.store, limit=10)

    assert {job.id for job in claim(hf, limit=2)} == set(enqueued)


def test_a_crash_of_the_server_loses_nothing_that_was_acknowledged() -> None:
    server = PostgresServer(durable=True)
    try:
        store = open_store(server.dsn(), check=False)
        store.migrate()
        store.close()
        with Holdfast(server.dsn()) as hf:
            hf.job("order.ship")(lambda job, payload: payload)
            acknowledged: list[str] = []
            stop = threading.Event()
            errors: list[BaseException] = []

            def enqueue() -> None:
                number = 0
                while not stop.is_set():
                    try:
                        made = hf.enqueue(
                            "order.ship", {}, org_id=ORG, idempotency_key=f"order-{number}"
                        )
                    except BaseException as exc:
                        errors.append(exc)
                        return
                    acknowledged.append(made.id)
                    number += 1

            thread = threading.Thread(target=enqueue)
            thread.start()
            wait_until(lambda: len(acknowledged) >= 20)
            server.stop(signal.SIGQUIT)
            server.start()
            after = len(acknowledged)
            wait_until(lambda: len(acknowledged) >= after + 20)
            stop.set()
            thread.join(30)

            assert errors == []
            rows = look(hf.store, "SELECT id FROM holdfast.job")
            assert {row["id"] for row in rows} == set(acknowledged)
            assert len(rows) == len(acknowledged)
            counts = hf.worker().run_once(limit=1000)
            assert counts.outcomes == {"completed": len(acknowledged)}
    finally:
        server.close()


def wait_until(reached: Any, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def test_every_transaction_may_run_on_another_session(shop: Holdfast) -> None:
    store = shop.store
    assert isinstance(store, PostgresStore)
    pool, give_back, sessions = store._pool, store._pool.give_back, set()

    def close_and_give_back(connection: psycopg.Connection[Any]) -> None:
        sessions.add(connection.info.backend_pid)
        connection.close()
        give_back(connection)

    pool.give_back = close_and_give_back  # type: ignore[method-assign]
    seen: list[str] = []

    @shop.job("order.pack")
    def pack(job: Any, payload: dict[str, int]) -> dict[str, int]:
        with job.transaction() as connection:
            seen.extend(row[0] for row in connection.execute("SELECT id FROM holdfast.job"))
        return payload

    made = [
        shop.enqueue("order.pack", {"n": n}, org_id=ORG, unit_key=f"unit-{n}") for n in range(5)
    ]
    counts = shop.worker().run_once()
    seal_events(store)

    assert counts.outcomes == {"completed": 5}
    assert len(seen) == 25
    assert all(timeline(shop, item)[-1] == "job.succeeded" for item in made)
    assert len(sessions) > 20


def test_no_session_keeps_anything_for_the_next_transaction(shop: Holdfast) -> None:
    @shop.job("order.pack")
    def pack(job: Any, payload: dict[str, int]) -> None:
        with job.transaction() as connection:
            connection.execute("SELECT * FROM holdfast.job")

    for number in range(12):
        shop.enqueue("order.pack", {"n": number}, org_id=ORG, unit_key=f"unit-{number}")
        shop.worker().run_once()

    def left_over(tx: Any) -> dict[str, Any]:
        def ask(text: str) -> Any:
            return tx.connection.execute(text).fetchone()[0]

        return {
            "locks": ask("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"),
            "listening": ask("SELECT count(*) FROM pg_listening_channels()"),
            "settings": ask(
                "SELECT count(*) FROM pg_settings WHERE source = 'session'"
                " AND name NOT LIKE 'transaction\\_%'"
            ),
            "tenant": ask("SELECT coalesce(current_setting('holdfast.org_id', true), '')"),
            "role": ask("SELECT current_user = session_user"),
            "tables": ask("SELECT count(*) FROM pg_class WHERE relpersistence = 't'"),
        }

    # Not in a transaction: what that sets for itself is no left-over.
    assert shop.store.write_one(left_over) == {
        "locks": 0,
        "listening": 0,
        "settings": 0,
        "tenant": "",
        "role": True,
        "tables": 0,
    }


def test_a_statement_that_another_session_never_prepared_is_run_without(shop: Holdfast) -> None:
    store = shop.store
    assert isinstance(store, PostgresStore)
    shop.enqueue("order.ship", {"n": 1}, org_id=ORG)
    names = look(store, "SELECT name, statement FROM pg_prepared_statements")
    by_hand(store, "DEALLOCATE ALL")

    again = shop.enqueue("order.ship", {"n": 2}, org_id=ORG)

    assert again.created
    assert count_jobs(store) == 2
    assert not store._prepared.allowed
    assert all(
        row["name"] == "holdfast_" + sha256(row["statement"].encode()).hexdigest()[:24]
        for row in names
    )
    assert names


class Deaf(psycopg.Connection[Any]):
    """A session that refuses to listen, as behind a transaction pooler or on a standby."""

    def execute(self, query: Any, *args: Any, **kwargs: Any) -> Any:
        if "LISTEN" in (query if isinstance(query, str) else query.as_string(None)):
            raise psycopg.errors.FeatureNotSupported("cannot LISTEN here")
        return super().execute(query, *args, **kwargs)


@pytest.mark.parametrize("connects", [True, False])
def test_a_worker_that_hears_nothing_still_finds_its_work(
    shop: Holdfast, monkeypatch: pytest.MonkeyPatch, connects: bool
) -> None:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise psycopg.OperationalError("no connection for you")

    driver = SimpleNamespace(connect=Deaf.connect if connects else refuse, Error=psycopg.Error)
    monkeypatch.setattr(waking, "psycopg", driver)
    made = shop.enqueue("order.ship", {"n": 1}, org_id=ORG)
    wake = shop.store.wake_up(["q:default"])

    assert not wake.wait(0.02)
    wake.poke()
    assert wake.wait(30.0)
    wake.close()
    shop.worker(concurrency=2).run(until_idle=True)

    assert shop.get(made.id, org_id=ORG).state is State.COMPLETED


def test_a_listener_whose_session_dies_listens_again(
    shop: Holdfast, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waking, "RETRY_SECONDS", 0.01)
    wake = shop.store.wake_up(["q:default"])
    kill_connections(postgres_url)
    assert wake.wait(30.0)
    wait_until(lambda: not wake.wait(0.02))

    shop.enqueue("order.ship", {}, org_id=ORG)

    assert wake.wait(30.0)
    wake.close()
    wake.poke()


def test_an_enqueue_wakes_the_listeners_of_its_queue(shop: Holdfast) -> None:
    mine, others = shop.store.wake_up(["q:default"]), shop.store.wake_up(["q:exports"])

    shop.enqueue_many("order.ship", [{"n": n} for n in range(10)], org_id=ORG)

    assert mine.wait(30.0)
    assert not others.wait(0.05)
    mine.close()
    others.close()


def test_a_pause_distinguishes_an_announcement_from_a_poke(shop: Holdfast) -> None:
    wake = shop.store.wake_up(["q:default"])

    wake.poke()
    assert not wake.pause(5.0)
    shop.enqueue("order.ship", {}, org_id=ORG)
    assert wake.pause(5.0)
    wait_until(lambda: not wake.pause(0.02))
    wake.close()


def test_a_worker_with_busy_threads_claims_an_announced_latecomer(
    postgres_url: str,
) -> None:
    hf = Holdfast(settings=Settings(db=postgres_url))
    going, begun = threading.Event(), []

    @hf.job("wait")
    def wait(job: Context, payload: Any) -> None:
        begun.append(job.org_id)
        going.wait(30)

    # By a closed connection, so that its notification is not taken for the later one's.
    with Holdfast(settings=Settings(db=postgres_url)) as crowd:
        crowd.job("wait")(wait)
        crowd.enqueue_many("wait", [{"n": n} for n in range(50)], org_id=ORG)
    worker = hf.worker(concurrency=2)
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    wait_until(lambda: len(begun) == 2)
    wait_until(lambda: worker._executor_pool.wants_capacity)

    late = hf.enqueue("wait", {}, org_id=OTHER_ORG)
    wait_until(lambda: late.id in [job_id for _, job_id, _ in list(worker._in_flight)])
    going.set()
    worker.drain()
    thread.join(30)
    hf.close()

    assert set(begun[:2]) == {ORG}


def test_a_reader_sees_one_moment(shop: Holdfast) -> None:
    def look_twice(tx: Tx) -> list[int]:
        counts = []
        for _ in range(2):
            counts.append(tx.connection.execute("SELECT count(*) FROM holdfast.job").fetchone()[0])  # type: ignore[attr-defined]
            shop.enqueue("order.ship", {}, org_id=ORG)
        return counts

    assert shop.store.read(look_twice) == [0, 0]
    assert count_jobs(shop.store) == 2


class SkippedTime:
    """The module ``time`` with a sleep that returns at once."""

    slept = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.slept

    def sleep(self, seconds: float) -> None:
        self.slept += seconds


def test_a_reader_cannot_write(shop: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "time", SkippedTime())

    with pytest.raises(StoreDown, match="ReadOnlySqlTransaction"):
        shop.store.read(lambda tx: tx.connection.execute("DELETE FROM holdfast.job_envelope"))  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://user:hunter2@127.0.0.1:port/name",
        "postgresql://127.0.0.1/name?nonsense=hunter2",
        "postgresql://user:hunter2@[::1/name",
    ],
)
def test_an_address_that_cannot_be_read_is_refused_without_being_repeated(address: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_store(address)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://user:hunter2@127.0.0.1:{port}/name",
        "postgresql://:hunter2@127.0.0.1:{port}/name",
        "postgresql://user@127.0.0.1:{port}/name?password=hunter2&sslmode=disable",
    ],
)
def test_a_server_that_is_away_is_named_without_its_password(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SkippedTime()
    monkeypatch.setattr(postgres, "time", clock)
    store = PostgresStore(address.format(port=1), FakeClock())

    with pytest.raises(StoreDown, match="server") as caught:
        store.check_schema()
    with pytest.raises(StoreDown):
        store.migrate()
    store.close()

    assert clock.slept > 10, "it tried again for a while"
    assert "hunter2" not in str(caught.value) + store.url
    assert re.search("127.0.0.1:1/name", store.url)


@forks
@pytest.mark.parametrize("work", ["write", "read"])
def test_a_store_carried_over_a_fork_refuses_to_work(shop: Holdfast, work: str) -> None:
    store = shop.store

    assert in_child(lambda: getattr(store, work)(lambda tx: None)) == ForkedStore.__name__
    assert count_jobs(store) == 0


@forks
def test_holdfast_itself_opens_a_store_of_its_own_in_a_child(postgres_url: str) -> None:
    with Holdfast(postgres_url) as hf:
        hf.job("order.ship")(lambda job, payload: payload)
        mine = hf.enqueue("order.ship", {}, org_id=ORG)

        def enqueue_there() -> str:
            theirs = hf.enqueue("order.ship", {}, org_id=ORG, idempotency_key="child")
            return f"{theirs.created} {hf.get(mine.id, org_id=ORG).state}"

        assert in_child(enqueue_there) == "True queued"
        assert not hf.enqueue("order.ship", {}, org_id=ORG, idempotency_key="child").created
        assert count_jobs(hf.store) == 2


def test_a_row_written_by_hand_is_read_like_any_other(shop: Holdfast) -> None:
    job_id = insert(shop.store, job_type="order.ship")

    shop.worker().run_once()

    job = shop.get(job_id, org_id=ORG)
    assert job.state is State.COMPLETED
    assert [event["name"] for event in events(shop, job)] == [
        "job.enqueued",
        "job.started",
        "job.succeeded",
    ]
