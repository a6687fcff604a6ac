"""SQLite: threads and processes of one machine share one file fairly and safely."""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast import FakeClock, Holdfast
from holdfast.engine.job import SYSTEM, Completed, State
from holdfast.engine.settle import settle
from holdfast.errors import ConfigError, ForkedStore, RuleBroken, StoreBusy, StoreDown
from holdfast.store import Store, open_store, sqlite
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite_tx import begin
from tests.conftest import COMPONENTS
from tests.store.child import forks, in_child
from tests.store.hand import insert
from tests.story import ORG, by_hand, claim, look, make_holdfast


@pytest.fixture
def store(sqlite_url: str) -> Iterator[SqliteStore]:
    opened = open_store(sqlite_url, clock=FakeClock(), components=COMPONENTS)
    assert isinstance(opened, SqliteStore)
    yield opened
    opened.close()


def count_jobs(store: Store) -> int:
    (row,) = look(store, "SELECT count(*) AS jobs FROM holdfast.job")
    return int(row["jobs"])


class Crowd:
    """Writers that all wait before the first one gets the lock."""

    def __init__(self, store: SqliteStore, works: list[Callable[[], Any]]) -> None:
        self.store = store
        self.errors: dict[int, BaseException] = {}
        self.results: dict[int, Any] = {}
        self._threads = [
            threading.Thread(target=self._run, args=(number, work))
            for number, work in enumerate(works)
        ]

    def _run(self, number: int, work: Callable[[], Any]) -> None:
        try:
            self.results[number] = work()
        except BaseException as exc:
            self.errors[number] = exc

    def write(self) -> Crowd:
        with self.store._turn:
            for thread in self._threads:
                thread.start()
            while len(self.store._waiting) < len(self._threads):
                threading.Event().wait(0.001)
        for thread in self._threads:
            thread.join(30)
        return self


def commits_of(store: SqliteStore) -> list[str]:
    seen: list[str] = []
    store._writer.set_trace_callback(lambda text: seen.append(text) if text == "COMMIT" else None)
    return seen


def test_writers_that_wait_together_share_one_commit(store: SqliteStore) -> None:
    seen = commits_of(store)

    crowd = Crowd(store, [lambda: insert(store)] * 20).write()

    assert not crowd.errors
    assert count_jobs(store) == len(set(crowd.results.values())) == 20
    assert seen == ["COMMIT"]


def test_a_request_that_fails_in_a_group_undoes_only_itself(store: SqliteStore) -> None:
    seen = commits_of(store)

    def two_jobs_of_which_one_is_bad() -> None:
        def work(tx: Any) -> None:
            tx.connection.execute(
                "INSERT INTO holdfast_audit_seal VALUES ('o', 1, 1, 1, 1, 1, 'l', 'd', 'n')"
            )
            raise LookupError("second thoughts")

        store.write(work)

    def broken_rule() -> None:
        insert(store, payload="[]")

    works = [lambda: insert(store), two_jobs_of_which_one_is_bad, broken_rule] * 3
    crowd = Crowd(store, works).write()

    assert count_jobs(store) == 3
    assert look(store, "SELECT * FROM holdfast.audit_seal") == []
    assert {number: type(error) for number, error in crowd.errors.items()} == {
        1: LookupError,
        4: LookupError,
        7: LookupError,
        2: RuleBroken,
        5: RuleBroken,
        8: RuleBroken,
    }
    assert seen == ["COMMIT"]


def test_a_full_group_answers_every_request(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "GROUP_LIMIT", 3)
    ahead = [sqlite._Request(lambda tx: "answered") for _ in range(7)]
    store._waiting.extend(ahead)
    seen = commits_of(store)

    insert(store)

    assert {request.result for request in ahead} == {"answered"}
    assert count_jobs(store) == 1
    assert len(seen) == 3


def test_an_interrupt_is_for_the_thread_it_came_to(store: SqliteStore) -> None:
    def interrupted() -> None:
        def work(tx: Any) -> None:
            raise KeyboardInterrupt

        store.write(work)

    crowd = Crowd(store, [lambda: insert(store), interrupted, lambda: insert(store)]).write()

    kinds = sorted(type(error).__name__ for error in crowd.errors.values())
    assert kinds == ["KeyboardInterrupt", "StoreBusy", "StoreBusy"]
    assert count_jobs(store) == 0
    insert(store)


def test_a_failed_commit_fails_every_request_of_the_group(store: SqliteStore) -> None:
    by_hand(store, "CREATE TABLE parent (id integer PRIMARY KEY)")
    by_hand(
        store,
        "CREATE TABLE child (id integer REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED)",
    )

    def dangling() -> None:
        by_hand(store, "INSERT INTO child VALUES (7)")

    crowd = Crowd(store, [lambda: insert(store), dangling]).write()

    assert [type(error) for error in crowd.errors.values()] == [RuleBroken, RuleBroken]
    assert count_jobs(store) == 0


PROCESS = """
    import json, sys, time
    from holdfast import Holdfast
    from holdfast.engine.claim import claim_jobs
    from holdfast.engine.job import SYSTEM, Completed
    from holdfast.engine.settle import settle

    url, name, begin, many = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
    hf = Holdfast(url)
    hf.job("order.ship")(lambda job, payload: payload)
    org = "0198c0de-0000-7000-8000-00000000000a"
    time.sleep(max(0.0, begin - time.time()))
    enqueued, claimed = [], []
    for number in range(many):
        key = f"{name}-{number}"
        enqueued.append(hf.enqueue("order.ship", {"key": key}, org_id=org, idempotency_key=key).id)
        shared = f"shared-{number}"
        hf.enqueue("order.ship", {"key": shared}, org_id=org, idempotency_key=shared)
        jobs = claim_jobs(hf.store, queue="q:default", worker_id=name, limit=2, lease_ms=60_000)
        settle(hf.store, [(job, Completed()) for job in jobs], actor=SYSTEM)
        claimed += [job.id for job in jobs]
    hf.close()
    print(json.dumps({"enqueued": enqueued, "claimed": claimed}))
"""


@pytest.mark.req("C-02")
def test_a_commit_waits_for_the_disk_on_every_connection(store: SqliteStore) -> None:
    """2 is FULL: an acknowledged commit survives a power cut. NORMAL, 1, may lose it."""

    def synchronous(tx: Any) -> int:
        return int(tx.connection.execute("PRAGMA synchronous").fetchone()[0])

    assert (store.write(synchronous), store.read(synchronous)) == (2, 2)


def test_a_write_holds_the_lock_file(store: SqliteStore, sqlite_url: str) -> None:
    path = Path(sqlite_url.removeprefix("sqlite:///") + ".lock")

    def is_locked() -> bool:
        with path.open("rb") as other:
            try:
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            return False

    assert (store.write(lambda tx: is_locked()), is_locked()) == (True, False)


def test_processes_on_one_file_lose_nothing_and_double_nothing(sqlite_url: str) -> None:
    many, names = 50, ["a", "b", "c", "d"]
    begin = str(time.time() + 1.5)

    # No file yet: the first process that opens it also makes the schema, and all four try.
    running = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(PROCESS), sqlite_url, name, begin, str(many)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in names
    ]
    told = []
    for process in running:
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        told.append(json.loads(out))

    with Holdfast(sqlite_url) as hf:
        rows = look(hf.store, "SELECT id, state, lease_token FROM holdfast.job")
        left = claim(hf, limit=1000)
    enqueued = [job_id for each in told for job_id in each["enqueued"]]
    claimed = [job_id for each in told for job_id in each["claimed"]]
    assert len(rows) == len(names) * many + many
    assert set(enqueued) < {row["id"] for row in rows}
    assert len(claimed) == len(set(claimed))
    assert {row["lease_token"] for row in rows} == {0, 1} if left else {1}
    assert len(claimed) + len(left) == len(rows)
    # The scheduler decides how much each of them gets; each must get some.
    assert all(each["claimed"] for each in told)


def test_a_new_file_may_be_opened_by_many_at_once(sqlite_url: str) -> None:
    opened: list[Store] = []
    errors: list[BaseException] = []
    gate = threading.Barrier(8)

    def open_it() -> None:
        gate.wait()
        try:
            opened.append(open_store(sqlite_url))
        except BaseException as exc:
            errors.append(exc)

    threads = [threading.Thread(target=open_it) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    for store in opened:
        store.close()
    assert errors == []
    assert len(opened) == 8


@forks
@pytest.mark.parametrize("work", ["write", "read", "migrate", "tenant_transaction"])
def test_a_store_carried_over_a_fork_refuses_to_work(store: SqliteStore, work: str) -> None:
    def use() -> object:
        if work == "tenant_transaction":
            with store.tenant_transaction(ORG, None, lambda tx: None):
                return "worked"
        if work == "migrate":
            return store.migrate()
        return getattr(store, work)(lambda tx: "worked")

    assert in_child(use) == ForkedStore.__name__
    insert(store)
    assert count_jobs(store) == 1


@forks
def test_holdfast_itself_opens_a_store_of_its_own_in_a_child(sqlite_url: str) -> None:
    with Holdfast(sqlite_url) as hf:
        hf.job("order.ship")(lambda job, payload: payload)
        mine = hf.enqueue("order.ship", {}, org_id=ORG)

        def enqueue_there() -> str:
            theirs = hf.enqueue("order.ship", {}, org_id=ORG, idempotency_key="child")
            return f"{theirs.created} {hf.get(mine.id, org_id=ORG).state}"

        assert in_child(enqueue_there) == "True queued"
        assert count_jobs(hf.store) == 2
        again = hf.enqueue("order.ship", {}, org_id=ORG, idempotency_key="child")
        assert not again.created


@forks
def test_a_child_does_not_hold_the_lock_that_its_parent_died_with(
    store: SqliteStore, sqlite_url: str
) -> None:
    told, tell = os.pipe()
    stay, leave = os.pipe()
    assert store._lock.acquire()
    child = os.fork()
    if child == 0:
        os.write(tell, b".")
        os.close(leave)
        os.read(stay, 1)
        os._exit(0)
    os.read(told, 1)

    # As after a kill: the parent's copy is gone without an unlock.
    store._lock.close()
    probe = os.open(sqlite_url.removeprefix("sqlite:///") + ".lock", os.O_RDWR)
    try:
        fcntl.flock(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(leave)
        os.waitpid(child, 0)
        for descriptor in (told, tell, stay, probe):
            os.close(descriptor)


def test_the_log_is_emptied_when_it_has_grown(
    store: SqliteStore, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "CHECKPOINT_BYTES", 200_000)
    log = Path(sqlite_url.removeprefix("sqlite:///") + "-wal")

    largest = 0
    for _ in range(100):
        insert(store, payload=json.dumps({"text": "x" * 20_000}))
        largest = max(largest, log.stat().st_size)

    assert largest <= 200_000
    assert count_jobs(store) == 100


def test_a_reader_keeps_the_log_for_as_long_as_it_reads(
    store: SqliteStore, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "CHECKPOINT_BYTES", 200_000)
    log = Path(sqlite_url.removeprefix("sqlite:///") + "-wal")

    def slow(tx: Any) -> int:
        before = tx.connection.execute("SELECT count(*) FROM holdfast_job").fetchone()[0]
        for _ in range(30):
            insert(store, payload=json.dumps({"text": "x" * 20_000}))
        after = tx.connection.execute("SELECT count(*) FROM holdfast_job").fetchone()[0]
        assert before == after == 0
        return log.stat().st_size

    grown = store.read(slow)
    insert(store)

    assert grown > 200_000
    assert log.stat().st_size == 0
    assert count_jobs(store) == 31


def test_a_reader_cannot_write(store: SqliteStore) -> None:
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        store.read(lambda tx: tx.connection.execute("DELETE FROM holdfast_job_envelope"))  # type: ignore[attr-defined]


def test_threads_that_come_and_go_leave_no_connections_behind(store: SqliteStore) -> None:
    before = len(os.listdir("/proc/self/fd"))

    for _ in range(20):
        thread = threading.Thread(target=count_jobs, args=(store,))
        thread.start()
        thread.join()

    assert len(os.listdir("/proc/self/fd")) <= before + 6


def test_a_store_in_memory_works_and_forgets() -> None:
    with make_holdfast("sqlite://") as hf:
        hf.job("order.ship")(lambda job, payload: payload)
        enqueued = hf.enqueue("order.ship", {"n": 1}, org_id=ORG)
        hf.worker().run_once()
        assert hf.get(enqueued.id, org_id=ORG).state is State.COMPLETED

    with make_holdfast("sqlite://") as hf:
        assert count_jobs(hf.store) == 0


@pytest.mark.parametrize(
    "address",
    [
        "sqlite:work.db",
        "sqlite:/work.db",
        "sqlite://work.db",
        "sqlite:///",
        "mysql://localhost/work",
        "work.db",
        "",
    ],
)
def test_an_address_that_cannot_be_read_says_how_to_write_one(address: str) -> None:
    with pytest.raises(ConfigError, match=r"sqlite:///"):
        open_store(address)


@pytest.mark.parametrize("place", ["missing/folder/work.db", "folder", "text"])
def test_a_file_that_cannot_be_used_says_so(tmp_path: Path, place: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "text").write_text("this is not a database, and long enough to be sure " * 20)

    with pytest.raises(StoreDown, match=r"Cannot open sqlite:///.*Check the path"):
        open_store(f"sqlite:///{tmp_path}/{place}")


def test_a_file_that_a_transaction_holds_says_what_to_do_first(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "work.db")) as shop, shop:
        shop.execute("CREATE TABLE shop_order (id integer PRIMARY KEY)")
        shop.execute("INSERT INTO shop_order VALUES (7)")

        with pytest.raises(StoreDown, match=r"database is locked\. .*holdfast migrate"):
            open_store(f"sqlite:///{tmp_path}/work.db")


def test_a_full_disk_loses_nothing_that_was_acknowledged(store: SqliteStore) -> None:
    insert(store)
    pages = store._writer.execute("PRAGMA page_count").fetchone()[0]
    store._writer.execute(f"PRAGMA max_page_count = {pages}")

    with pytest.raises(StoreDown, match="full"):
        insert(store, payload=json.dumps({"text": "x" * 200_000}))
    store._writer.execute("PRAGMA max_page_count = 1000000")
    insert(store)

    assert count_jobs(store) == 2


def test_a_file_locked_by_another_process_is_busy_and_not_broken(
    store: SqliteStore, sqlite_url: str
) -> None:
    store._writer.execute("PRAGMA busy_timeout = 20")
    stranger = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)
    stranger.execute("BEGIN IMMEDIATE")

    with pytest.raises(StoreBusy, match="Try again"):
        insert(store)
    stranger.execute("ROLLBACK")
    stranger.close()
    insert(store)

    assert count_jobs(store) == 1


def test_a_commit_in_another_process_wakes_a_waiter(store: SqliteStore, sqlite_url: str) -> None:
    wake = store.wake_up(["q:default"])
    assert not wake.wait(0.02)

    other = open_store(sqlite_url)
    insert(other)
    other.close()

    assert wake.wait(30.0)
    wake.poke()
    assert wake.wait(30.0)
    wake.close()


def test_a_settled_group_is_one_commit(sqlite_url: str) -> None:
    with make_holdfast(sqlite_url) as hf:
        hf.job("order.ship")(lambda job, payload: payload)
        hf.enqueue_many("order.ship", [{"n": n} for n in range(100)], org_id=ORG)
        jobs = claim(hf, limit=100)
        assert isinstance(hf.store, SqliteStore)
        seen = commits_of(hf.store)

        settle(hf.store, [(job, Completed()) for job in jobs], actor=SYSTEM)

        assert seen == ["COMMIT"]


def test_a_write_begins_although_the_last_one_was_ended_after_its_begin(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "work.db", isolation_level=None)) as connection:
        begin(connection)
        connection.execute("CREATE TABLE lost (id integer)")

        begin(connection)

        assert connection.in_transaction
        assert connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
