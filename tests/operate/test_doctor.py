"""The doctor: each finding is caused on a real database, and names the remedy."""

from __future__ import annotations

import itertools
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast import FakeClock, Forbidden, Holdfast, SystemClock
from holdfast.actor import Actor, ActorType
from holdfast.config import RunSettings, ScheduleSettings
from holdfast.engine.job import SYSTEM, Completed, Dead, Fault
from holdfast.engine.schedule.dispatcher import dispatch_once
from holdfast.engine.schedule.rows import sync_schedules
from holdfast.engine.settle import settle
from holdfast.engine.worker.heartbeat import GONE_AFTER, Heartbeat
from holdfast.engine.worker.settle_buffer import Backlog
from holdfast.operate.dead_letter_input import DeadLetterFilter
from holdfast.operate.doctor import Finding, Limits, Severity, examine
from holdfast.operate.doctor import files as doctor_files
from holdfast.operate.doctor.database import _version
from holdfast.operate.doctor.files import file_system_of
from holdfast.store import open_store
from tests.conftest import COMPONENTS
from tests.postgres_server import PostgresServer
from tests.story import ORG, by_hand, claim, look, make_holdfast, seal_all

OPERATOR = Actor(ActorType.USER, "op")
QUEUE = "q:default"
OK, NOTICE, WARNING, PROBLEM = Severity
_names = itertools.count(1)


@pytest.fixture
def work(hf: Holdfast) -> Holdfast:
    hf.job("report.export")(lambda job, payload: "done")
    return hf


def visit(hf: Holdfast, **limits: Any) -> list[Finding]:
    context = hf.operate(actor="user:op", role="admin").context
    return examine(context, replace(Limits(), **limits))


def found(hf: Holdfast, check: str, **limits: Any) -> list[Finding]:
    """The doctor's finding about one subject; None if it is healthy."""
    every = [finding for finding in visit(hf, **limits) if finding.check == check]
    assert every, f"{check} was not looked at"
    bad = [finding for finding in every if finding.severity is not OK]
    assert all(finding.remedy and finding.seen for finding in bad)
    return bad


def one(hf: Holdfast, check: str, **limits: Any) -> Finding:
    (finding,) = found(hf, check, **limits)
    return finding


def live(hf: Holdfast, worker: str = "w1", queues: tuple[str, ...] = (QUEUE,)) -> Heartbeat:
    presence = Heartbeat(hf.store, {}, worker, queues, ["report.export"], lease_ms=60_000)
    presence.send()
    return presence


def enqueue(hf: Holdfast, **options: Any) -> str:
    return hf.enqueue("report.export", {}, **{"org_id": ORG, **options}).id


# -- roles, and a healthy store


@pytest.mark.parametrize("who", [{"role": "operator"}, {"role": "admin", "org_id": ORG}])
def test_only_who_may_see_everything_asks_the_doctor(hf: Holdfast, who: dict[str, str]) -> None:
    context = hf.operate(actor="user:op", **who).context

    with pytest.raises(Forbidden):
        examine(context)

    (row,) = look(hf.store, "SELECT detail FROM holdfast.job_event WHERE name = 'operator.refused'")
    assert "doctor" in row["detail"]


def test_a_healthy_busy_store_has_no_warning_on_sqlite(sqlite_url: str, clock: FakeClock) -> None:
    with make_holdfast(sqlite_url, clock) as hf:
        _is_well(hf, clock)


def test_a_healthy_busy_store_has_no_warning_on_postgres(
    stern: PostgresServer, clock: FakeClock
) -> None:
    with fresh(stern, clock) as hf:
        settled = ("idle_in_transaction_session_timeout = '5min'", "statement_timeout = '60s'")
        for setting in settled:
            by_hand(hf.store, f"ALTER DATABASE {_name(hf)} SET {setting}")
        hf.close()
        _is_well(hf, clock)


def _is_well(hf: Holdfast, clock: FakeClock) -> None:
    hf.job("report.export")(lambda job, payload: "done")
    live(hf)
    for _ in range(20):
        enqueue(hf)
    clock.advance(seconds=5)
    hf.worker().run_once(limit=10)
    seal_all(hf.store)

    every = visit(hf)

    bad = [finding for finding in every if finding.severity in (WARNING, PROBLEM)]
    assert bad == []
    assert {"schema", "clock", "workers", "queues", "leases", "rescue", "sealing"} <= {
        finding.check for finding in every if finding.severity is OK
    }


def test_looking_changes_nothing(work: Holdfast) -> None:
    enqueue(work)
    before = look(work.store, "SELECT count(*) AS events FROM holdfast.job_event")

    visit(work)

    assert look(work.store, "SELECT count(*) AS events FROM holdfast.job_event") == before


# -- the schema


def test_a_missing_migration_is_a_problem(work: Holdfast) -> None:
    newest = "(SELECT max(version) FROM holdfast.migration)"
    (row,) = look(work.store, f"SELECT name FROM holdfast.migration WHERE version = {newest}")
    by_hand(work.store, f"DELETE FROM holdfast.migration WHERE version = {newest}")

    finding = one(work, "schema")

    assert finding.severity is PROBLEM
    assert row["name"] in finding.seen
    assert "holdfast migrate" in finding.remedy
    assert {finding.check for finding in visit(work)} & {"workers", "queues"} == set()


def test_a_migration_that_this_code_does_not_know_is_a_problem(work: Holdfast) -> None:
    by_hand(work.store, "INSERT INTO holdfast.migration (version, name) VALUES (9999, 'tomorrow')")

    finding = one(work, "schema")

    assert (finding.severity, "9999_tomorrow" in finding.seen) == (PROBLEM, True)


def test_a_database_without_a_schema_is_a_problem(tmp_path: Path, stern: PostgresServer) -> None:
    name = f"empty{next(_names)}"
    with psycopg.connect(stern.dsn(), autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name} TEMPLATE template0".encode())
    for url in (f"sqlite:///{tmp_path}/empty.db", stern.dsn(name)):
        with make_holdfast(url) as hf:
            hf.use_store(open_store(url, check=False))

            assert one(hf, "schema").seen == "There is no Holdfast schema."


# -- jobs and workers


def test_work_without_a_worker_is_a_warning_and_soon_a_problem(
    work: Holdfast, clock: FakeClock
) -> None:
    enqueue(work)
    enqueue(work, queue="q:exports")
    live(work, queues=("q:exports",))
    clock.advance(seconds=30)

    early = one(work, "queues")
    clock.advance(minutes=5)
    live(work, queues=("q:exports",))
    late = one(work, "queues")
    live(work, "w2")

    assert (early.severity, late.severity) == (WARNING, PROBLEM)
    assert "Jobs have waited in q:default for 30 s" in early.seen
    assert "worker --queues q:default" in early.remedy
    assert found(work, "queues") == []


def test_due_work_that_is_not_promoted_counts_as_waiting(work: Holdfast, clock: FakeClock) -> None:
    enqueue(work, not_before_at=clock.now() + timedelta(hours=1))
    assert found(work, "queues") == []

    clock.advance(hours=2)

    assert one(work, "queues").severity is PROBLEM


def test_a_queue_that_runs_serve_or_that_is_paused_is_not_lonely(
    work: Holdfast, clock: FakeClock
) -> None:
    enqueue(work)
    enqueue(work, queue="q:exports")
    clock.advance(minutes=10)
    assert len(found(work, "queues")) == 2

    work.queues.pause(QUEUE, reason="a look", actor=OPERATOR)
    work.settings = replace(work.settings, runs={"nightly": RunSettings(queues=("q:exports",))})

    assert found(work, "queues") == []


def test_vanished_workers_are_reported_with_their_host(work: Holdfast, clock: FakeClock) -> None:
    live(work, "dead")
    clock.advance(GONE_AFTER + timedelta(seconds=1))
    live(work)

    finding = one(work, "workers")

    assert finding.severity is WARNING
    assert "dead on " in finding.seen
    assert finding.facts["gone"] == ["dead"]


def test_a_running_worker_that_records_nothing_is_a_problem(
    work: Holdfast, clock: FakeClock
) -> None:
    silent, busy = live(work, "silent"), live(work, "busy")
    silent.backlog = lambda: Backlog(outcomes=6, oldest_ms=180_000, settled_ago_ms=200_000)
    busy.backlog = lambda: Backlog(outcomes=400, oldest_ms=2_000, settled_ago_ms=1)
    for presence in (silent, busy):
        presence.send()

    finding = one(work, "workers")

    assert finding.severity is PROBLEM
    assert "silent on " in finding.seen
    assert "6 pending, the oldest for 3 min" in finding.seen
    assert f"{clock.now() - timedelta(seconds=200):%F %T} UTC" in finding.seen
    assert finding.facts["worker_id"] == "silent"


def test_the_absence_of_workers_is_reported(work: Holdfast) -> None:
    assert one(work, "workers").seen == "No running workers."


def test_a_worker_with_a_wrong_clock_is_reported(work: Holdfast) -> None:
    live(work, "bit")
    live(work, "much")
    for worker, off in (("bit", -9_000), ("much", 75_000)):
        by_hand(
            work.store,
            "UPDATE holdfast.worker SET clock_off_ms = :off WHERE worker_id = :worker",
            off=off,
            worker=worker,
        )

    severities = {finding.facts["worker_id"]: finding for finding in found(work, "clock")}

    assert severities["bit"].severity is WARNING
    assert severities["much"].severity is PROBLEM
    assert "claims no jobs" in severities["much"].seen


class Off(SystemClock):
    """A machine whose clock is wrong."""

    def __init__(self, by: timedelta) -> None:
        self.by = by

    def now(self) -> datetime:
        return super().now() + self.by


@pytest.mark.parametrize(("seconds", "severity"), [(20, WARNING), (90, PROBLEM), (-90, PROBLEM)])
def test_this_machines_own_clock_is_compared_with_the_stores(
    postgres_url: str, seconds: int, severity: Severity
) -> None:
    with make_holdfast(postgres_url, Off(timedelta(seconds=seconds))) as hf:  # type: ignore[arg-type]
        finding = one(hf, "clock")

    assert finding.severity is severity
    assert finding.facts["seconds"] == pytest.approx(abs(seconds), abs=2)


# -- leases


def test_a_claim_that_outlasts_its_lease_is_reported_by_the_worker(
    work: Holdfast,
) -> None:
    live(work)
    by_hand(
        work.store,
        "UPDATE holdfast.worker SET longest_ms = 95000, longest_type = 'report.export'",
    )

    finding = one(work, "leases")

    assert finding.severity is WARNING
    assert "report.export were claimed for 95 s with a lease of 60 s" in finding.seen
    assert "lease_seconds" in finding.remedy


def test_run_times_of_jobs_that_succeeded_are_compared_with_the_lease(
    work: Holdfast, clock: FakeClock
) -> None:
    enqueue(work)
    (short,) = claim(work)
    clock.advance(seconds=5)
    settle(work.store, [(short, Completed())], actor=SYSTEM)
    assert found(work, "leases") == []

    enqueue(work)
    (long,) = claim(work)
    clock.advance(seconds=90)
    settle(work.store, [(long, Completed())], actor=SYSTEM)

    finding = one(work, "leases")
    assert finding.facts["ran_ms"] == pytest.approx(90_000, abs=50)
    assert finding.facts["lease_ms"] == 60_000
    # The check is bounded: it does not see rows beyond its limit.
    assert found(work, "leases", events=0) == []


def test_leases_that_are_not_rescued_are_a_problem(work: Holdfast, clock: FakeClock) -> None:
    for _ in range(3):
        enqueue(work)
    claim(work, limit=3)
    clock.advance(seconds=119)
    assert found(work, "rescue") == []

    clock.advance(seconds=2)

    finding = one(work, "rescue")
    assert (finding.severity, finding.facts["jobs"]) == (PROBLEM, 3)
    assert "the first 61 s ago" in finding.seen
    assert one(work, "rescue", count=2).seen.startswith("At least 2 leases")


# -- the audit, dead letters, pauses and schedules


def test_unsealed_events_are_reported(work: Holdfast, clock: FakeClock) -> None:
    enqueue(work)
    clock.advance(minutes=9)
    assert found(work, "sealing") == []
    clock.advance(minutes=2)

    assert "11 min old" in one(work, "sealing").seen
    seal_all(work.store)
    assert found(work, "sealing") == []


def test_a_dead_letter_is_reported_at_once_and_until_its_replay_begins(
    work: Holdfast, clock: FakeClock
) -> None:
    enqueue(work)
    fault = Fault("GONE", "it is gone", retryable=False)
    settle(work.store, [(job, Dead(fault)) for job in claim(work)], actor=SYSTEM)

    fresh = one(work, "dead_letters")
    assert (fresh.severity, fresh.facts) == (WARNING, {"letters": 1, "old": 0})
    assert "1 dead letter (GONE) needs an operator" in fresh.seen
    assert "dead-letters recover" in fresh.remedy
    clock.advance(days=8)
    finding = one(work, "dead_letters")
    assert finding.facts == {"letters": 1, "old": 1}
    assert "1 of them are older than 7 days" in finding.seen
    letters = work.operate(actor="user:ann", role="admin").dead_letters
    letters.recover(DeadLetterFilter(error_class="GONE"), reason="mended", kind="data")

    assert found(work, "dead_letters") == []


def test_a_forgotten_pause_is_reported(work: Holdfast, clock: FakeClock) -> None:
    work.queues.pause(QUEUE, reason="the provider is down", actor=OPERATOR)
    every = [finding.check for finding in visit(work)]
    assert "paused" not in every
    clock.advance(hours=25)

    finding = one(work, "paused")

    assert "by user:op: the provider is down" in finding.seen
    assert "holdfast queues resume q:default" in finding.remedy


def test_a_schedule_that_does_not_fire_is_reported(work: Holdfast, clock: FakeClock) -> None:
    work.job("clean.up", category="maintenance")(lambda job, payload: None)
    work.schedule("hourly", cron="0 * * * *", job_type="clean.up", org_id=ORG, payload={})
    sync_schedules(work)
    clock.advance(hours=1)
    assert found(work, "schedules") == []
    clock.advance(minutes=6)

    late = one(work, "schedules")
    dispatch_once(work)

    assert "Schedule hourly was due 6 min ago" in late.seen
    assert "--dispatch" in late.remedy
    assert found(work, "schedules") == []


def test_a_schedule_that_waits_for_code_that_knows_it_says_so(
    work: Holdfast, clock: FakeClock
) -> None:
    work.settings = replace(
        work.settings,
        runs={"nightly": RunSettings(queues=(QUEUE,))},
        schedules={"night": ScheduleSettings(cron="0 10 * * *", run="nightly")},
    )
    sync_schedules(work)
    work.settings = replace(work.settings, runs={}, schedules={})
    clock.advance(hours=1, minutes=10)
    dispatch_once(work)

    assert "run nightly is not known" in one(work, "schedules").seen


# -- SQLite


@pytest.fixture
def small(sqlite_url: str, clock: FakeClock) -> Iterator[Holdfast]:
    with make_holdfast(sqlite_url, clock) as hf:
        hf.store.read(lambda tx: None)
        yield hf


def _reader(hf: Holdfast) -> sqlite3.Connection:
    connection: sqlite3.Connection = hf.store._idle_readers[-1]  # type: ignore[attr-defined]
    return connection


def test_an_sqlite_that_does_not_wait_for_the_disk_is_a_problem(small: Holdfast) -> None:
    _reader(small).execute("PRAGMA synchronous = NORMAL")

    finding = one(small, "durability")

    assert (finding.severity, "synchronous is 1" in finding.seen) == (PROBLEM, True)


def test_an_sqlite_without_a_write_ahead_log_is_a_problem(small: Holdfast, tmp_path: Path) -> None:
    with closing(sqlite3.connect(small.settings.db.removeprefix("sqlite:///"))) as own:
        own.execute(f"VACUUM INTO '{tmp_path}/copy.db'")
    copy = sqlite3.connect(tmp_path / "copy.db", isolation_level=None, check_same_thread=False)
    copy.execute("PRAGMA synchronous = FULL")
    small.store._idle_readers.append(copy)  # type: ignore[attr-defined]

    assert "journal_mode is delete" in one(small, "durability").seen


def test_a_database_in_memory_says_that_it_will_not_stay() -> None:
    with make_holdfast("sqlite://") as hf:
        finding = one(hf, "durability")

    assert finding.severity is NOTICE
    assert "is lost when the process exits" in finding.seen


def test_an_sqlite_connection_without_busy_timeout_is_reported(small: Holdfast) -> None:
    _reader(small).execute("PRAGMA busy_timeout = 100")

    assert "busy_timeout is 100 ms" in one(small, "timeouts").seen


@pytest.mark.parametrize(
    ("version", "severity"),
    [
        ("3.40.1", NOTICE),
        ("3.44.5", NOTICE),
        ("3.44.6", OK),
        ("3.50.7", OK),
        ("3.51.2", NOTICE),
        ("3.51.3", OK),
        ("3.52.0", OK),
    ],
)
def test_versions_of_sqlite_that_can_lose_a_commit_are_reported(
    version: str, severity: Severity
) -> None:
    (finding,) = _version(version)

    assert finding.severity is severity


def test_a_file_that_other_machines_share_is_a_problem(
    small: Holdfast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "21 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
        f"22 21 0:40 / {tmp_path} rw,relatime shared:1 - nfs4 server:/export rw\n"
    )
    assert found(small, "file") == []
    monkeypatch.setattr(doctor_files, "MOUNTS", mounts)

    finding = one(small, "file")

    assert (finding.severity, finding.facts["file_system"]) == (PROBLEM, "nfs4")
    assert "PostgreSQL" in finding.remedy


def test_the_file_system_is_that_of_the_nearest_mount() -> None:
    mounts = (
        "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n"
        "2 1 0:4 / /srv rw - nfs4 server:/ rw\n"
        "3 2 0:5 / /srv/my\\040disk rw - xfs /dev/sdb1 rw\n"
        "nonsense\n"
    )

    assert file_system_of(Path("/home/work.db"), mounts) == "ext4"
    assert file_system_of(Path("/srv/work.db"), mounts) == "nfs4"
    assert file_system_of(Path("/srvx/work.db"), mounts) == "ext4"
    assert file_system_of(Path("/srv/my disk/work.db"), mounts) == "xfs"
    assert file_system_of(Path("/home/work.db"), "") is None


def test_a_log_that_a_reader_keeps_from_being_emptied_is_reported(
    small: Holdfast, sqlite_url: str
) -> None:
    small.job("report.export")(lambda job, payload: "done")
    path = sqlite_url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM holdfast_job").fetchall()
        small.enqueue_many("report.export", [{"n": n} for n in range(300)], org_id=ORG)

        finding = one(small, "log", wal_bytes=100_000)
        reader.execute("ROLLBACK")

    assert finding.severity is WARNING
    assert finding.facts["bytes"] > 100_000


def test_a_mostly_free_file_is_reported(small: Holdfast) -> None:
    by_hand(small.store, "CREATE TABLE filler (body text)")
    by_hand(
        small.store,
        "INSERT INTO filler WITH RECURSIVE n (i) AS"
        " (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 500) SELECT hex(zeroblob(4000)) FROM n",
    )
    assert found(small, "bloat", free_bytes=1) == []
    by_hand(small.store, "DROP TABLE filler")

    finding = one(small, "bloat", free_bytes=1)

    assert (finding.severity, "VACUUM" in finding.remedy) == (NOTICE, True)


# -- PostgreSQL


@pytest.fixture(scope="module")
def stern() -> Iterator[PostgresServer]:
    """A server with the recommended configuration: durable, and with the data of every finding."""
    server = PostgresServer(durable=True)
    try:
        with psycopg.connect(server.dsn(), autocommit=True) as admin:
            for setting in (
                "wal_level = 'logical'",
                "max_prepared_transactions = 5",
                "max_notify_queue_pages = 64",
            ):
                admin.execute(f"ALTER SYSTEM SET {setting}".encode())
        server.stop()
        server.start()
        store = open_store(server.dsn("template1"), check=False, components=COMPONENTS)
        store.migrate()
        store.close()
        yield server
    finally:
        server.close()


@contextmanager
def fresh(
    server: PostgresServer, clock: FakeClock | None = None, user: str = "postgres"
) -> Iterator[Holdfast]:
    """A Holdfast on a database of its own."""
    name = f"d{next(_names)}"
    with psycopg.connect(server.dsn(), autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}".encode())
    with make_holdfast(server.dsn(name, user), clock) as hf:
        yield hf
    with psycopg.connect(server.dsn(), autocommit=True) as admin:
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def _name(hf: Holdfast) -> str:
    return hf.settings.db.rpartition("/")[2]


def _connect(hf: Holdfast) -> psycopg.Connection[Any]:
    return psycopg.connect(hf.settings.db.replace("doctor@", "postgres@"), autocommit=True)


@pytest.fixture
def healthy(stern: PostgresServer) -> Iterator[Holdfast]:
    with fresh(stern) as hf:
        yield hf


def _set(hf: Holdfast, setting: str) -> None:
    """A setting of the test's database, effective from the next connection on."""
    with _connect(hf) as admin:
        admin.execute(f"ALTER DATABASE {_name(hf)} SET {setting}".encode())
    hf.close()


@contextmanager
def _server_set(server: PostgresServer, name: str, value: str) -> Iterator[None]:
    with psycopg.connect(server.dsn(), autocommit=True) as admin:
        admin.execute(f"ALTER SYSTEM SET {name} = '{value}'".encode())
        _reload(admin, name, value)
        yield
        before = admin.execute("SELECT boot_val FROM pg_settings WHERE name = %s", (name,))
        (value,) = before.fetchone() or ("",)
        admin.execute(f"ALTER SYSTEM RESET {name}".encode())
        _reload(admin, name, value)


def _reload(admin: psycopg.Connection[Any], name: str, value: str) -> None:
    admin.execute("SELECT pg_reload_conf()")
    for _ in range(1_000):
        if admin.execute(f"SHOW {name}".encode()).fetchone() == (value,):
            return
    raise AssertionError(f"{name} did not become {value}")


def test_a_server_that_does_not_wait_for_the_disk_is_a_problem(postgres_url: str) -> None:
    # The tests' own server: fast, and not durable.
    with make_holdfast(postgres_url) as hf:
        seen = [finding.seen for finding in found(hf, "durability")]

    assert [line.split(" is off")[0] for line in seen] == [
        "fsync",
        "full_page_writes",
        "synchronous_commit",
    ]


def test_a_commit_that_is_acknowledged_too_early_is_a_problem(healthy: Holdfast) -> None:
    assert found(healthy, "durability") == []
    _set(healthy, "synchronous_commit = off")

    finding = one(healthy, "durability")

    assert (finding.severity, "acknowledged" in finding.seen) == (PROBLEM, True)


def test_it_is_said_plainly_that_no_standby_confirms_a_commit(healthy: Holdfast) -> None:
    finding = one(healthy, "standby")

    assert finding.severity is NOTICE
    assert "confirmed by this server alone" in finding.seen


def test_configured_standbys_that_no_commit_waits_for_are_reported(
    healthy: Holdfast, stern: PostgresServer
) -> None:
    _set(healthy, "synchronous_commit = local")
    with _server_set(stern, "synchronous_standby_names", "ghost"):
        ignored = one(healthy, "durability")
        with psycopg.connect(stern.dsn(), autocommit=True) as admin:
            admin.execute("SET synchronous_commit = local")
            admin.execute(f"ALTER DATABASE {_name(healthy)} RESET synchronous_commit".encode())
        healthy.close()
        waited_for = [finding for finding in visit(healthy) if finding.check == "standby"]

    assert (ignored.severity, "waits for none" in ignored.seen) == (WARNING, True)
    assert [finding.severity for finding in waited_for] == [OK]


def test_transactions_and_statements_without_a_timeout_are_reported(healthy: Holdfast) -> None:
    without = {finding.seen.split(" is ")[0]: finding for finding in found(healthy, "timeouts")}
    _set(healthy, "idle_in_transaction_session_timeout = '5min'")
    _set(healthy, "statement_timeout = '2s'")
    short = one(healthy, "timeouts")
    _set(healthy, "statement_timeout = '60s'")

    assert without["idle_in_transaction_session_timeout"].severity is WARNING
    assert without["statement_timeout"].severity is NOTICE
    assert "statement_timeout is 2000 ms" in short.seen
    assert [finding for finding in visit(healthy) if finding.check == "timeouts"] == []


def test_an_autovacuum_that_is_off_is_a_problem(healthy: Holdfast, stern: PostgresServer) -> None:
    assert found(healthy, "autovacuum") == []

    with _server_set(stern, "autovacuum", "off"):
        finding = one(healthy, "autovacuum")

    assert (finding.severity, "autovacuum is off" in finding.seen) == (PROBLEM, True)


def test_counts_that_autovacuum_needs_and_does_not_get_are_a_problem(healthy: Holdfast) -> None:
    _set(healthy, "track_counts = off")

    assert "track_counts is off" in one(healthy, "autovacuum").seen


def test_a_table_that_autovacuum_leaves_alone_is_a_problem(healthy: Holdfast) -> None:
    by_hand(healthy.store, "ALTER TABLE holdfast.job_ready SET (autovacuum_enabled = false)")

    finding = one(healthy, "autovacuum")

    assert finding.seen == "Autovacuum is disabled for job_ready."
    assert "RESET (autovacuum_enabled)" in finding.remedy


def test_exhausted_connections_are_reported(healthy: Holdfast) -> None:
    assert found(healthy, "connections") == []
    with _connect(healthy) as admin:
        admin.execute(f"ALTER DATABASE {_name(healthy)} CONNECTION LIMIT 2".encode())

        finding = one(healthy, "connections")

    assert (finding.severity, finding.facts["most"]) == (PROBLEM, 2)
    assert "of this database are in use" in finding.seen


def test_workers_that_may_open_too_many_connections_are_reported(
    healthy: Holdfast,
) -> None:
    with healthy.store.sized_for(handlers=30, threads=7):
        live(healthy)
    assert found(healthy, "connections") == []
    with _connect(healthy) as admin:
        admin.execute(f"ALTER DATABASE {_name(healthy)} CONNECTION LIMIT 40".encode())

        finding = one(healthy, "connections")

    assert (finding.severity, finding.facts["most"]) == (WARNING, 40)
    assert finding.facts["needed"] == 30 + 4 + 7 + 2
    assert "pool_size" in finding.remedy


@pytest.mark.parametrize(("messages", "severity"), [(12, WARNING), (40, PROBLEM)])
def test_a_notification_queue_that_fills_up_is_reported(
    healthy: Holdfast, messages: int, severity: Severity
) -> None:
    assert found(healthy, "notifications") == []
    with _connect(healthy) as stuck, _connect(healthy) as speaker:
        stuck.execute("LISTEN nobody_hears")
        stuck.execute("BEGIN")
        stuck.execute("SELECT 1")
        for number in range(messages):
            speaker.execute("SELECT pg_notify('nobody_hears', %s)", (str(number) + "x" * 7_900,))

        finding = one(healthy, "notifications")
        stuck.execute("ROLLBACK")

    assert finding.severity is severity
    assert "commits fail" in finding.seen


@pytest.mark.parametrize(
    ("limits", "severity"),
    [
        ({"transaction": timedelta(0)}, WARNING),
        ({"transaction": timedelta(0), "transaction_problem": timedelta(0)}, PROBLEM),
    ],
)
def test_an_idle_transaction_that_pins_old_rows_is_reported(
    healthy: Holdfast, limits: dict[str, timedelta], severity: Severity
) -> None:
    assert found(healthy, "transactions", **limits) == []
    with _connect(healthy) as idle:
        idle.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        (pid,) = idle.execute("SELECT pg_backend_pid()").fetchone() or (0,)

        assert found(healthy, "transactions") == []
        finding = one(healthy, "transactions", **limits)
        idle.execute("ROLLBACK")

    assert finding.severity is severity
    assert f"pid {pid} of postgres, idle in transaction holds a snapshot" in finding.seen
    assert "pg_terminate_backend" in finding.remedy


def test_an_abandoned_prepared_transaction_is_reported(healthy: Holdfast) -> None:
    with _connect(healthy) as forgetful:
        forgetful.execute("BEGIN")
        forgetful.execute("SELECT pg_current_xact_id()")
        forgetful.execute("PREPARE TRANSACTION 'forgotten'")
        try:
            finding = one(healthy, "transactions", transaction=timedelta(0))
        finally:
            forgetful.execute("ROLLBACK PREPARED 'forgotten'")

    assert "prepared transaction forgotten" in finding.seen
    assert "ROLLBACK PREPARED" in finding.remedy


def test_an_unused_replication_slot_is_reported(healthy: Holdfast) -> None:
    with _connect(healthy) as admin:
        admin.execute("SELECT pg_create_logical_replication_slot('unread', 'pgoutput')")
        try:
            assert found(healthy, "transactions") == []
            finding = one(healthy, "transactions", slot_transactions=0)
        finally:
            admin.execute("SELECT pg_drop_replication_slot('unread')")

    assert "replication slot unread, inactive" in finding.seen
    assert "pg_drop_replication_slot" in finding.remedy


def test_accumulated_dead_rows_are_reported(healthy: Holdfast) -> None:
    live(healthy)
    with _connect(healthy) as busy:
        busy.execute("ALTER TABLE holdfast.worker SET (autovacuum_enabled = false)")
        for _ in range(40):
            busy.execute("UPDATE holdfast.worker SET longest_ms = longest_ms + 1")
        busy.execute("SELECT pg_stat_force_next_flush()")

    finding = one(healthy, "bloat", dead_rows=20)

    assert "worker has" in finding.seen
    assert "never vacuumed" in finding.seen
    assert finding.facts["dead"] >= 20
    assert found(healthy, "bloat") == []


@pytest.mark.parametrize(
    ("limits", "severity"),
    [({"frozen": 1}, WARNING), ({"frozen": 1, "frozen_problem": 1}, PROBLEM)],
)
def test_unfrozen_rows_are_reported(
    healthy: Holdfast, limits: dict[str, int], severity: Severity
) -> None:
    by_hand(healthy.store, "SELECT pg_current_xact_id()")
    assert found(healthy, "wraparound") == []

    assert one(healthy, "wraparound", **limits).severity is severity


# -- without privileges


@pytest.fixture
def unprivileged(stern: PostgresServer) -> Iterator[Holdfast]:
    with psycopg.connect(stern.dsn(), autocommit=True) as admin:
        admin.execute("DROP ROLE IF EXISTS doctor")
        admin.execute("CREATE ROLE doctor LOGIN IN ROLE holdfast_engine")
    with fresh(stern, user="doctor") as hf:
        yield hf


def test_a_role_without_privileges_gets_a_whole_answer(unprivileged: Holdfast) -> None:
    with _connect(unprivileged) as idle:
        idle.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        idle.execute("SELECT 1")

        every = visit(unprivileged, transaction=timedelta(0))
        idle.execute("ROLLBACK")

    hidden = [finding for finding in every if "cannot see since when" in finding.seen]
    assert [finding.severity for finding in hidden] == [NOTICE]
    assert "pg_read_all_stats" in hidden[0].remedy
    assert {"schema", "durability", "queues", "schedules"} <= {one.check for one in every}


def test_a_view_that_may_not_be_read_becomes_a_notice_and_harms_no_other(
    unprivileged: Holdfast,
) -> None:
    with _connect(unprivileged) as admin:
        admin.execute("REVOKE SELECT ON pg_catalog.pg_replication_slots FROM PUBLIC")
        admin.execute("REVOKE SELECT ON holdfast.worker FROM holdfast_engine")

    every = visit(unprivileged)

    refused = [finding for finding in every if finding.seen.startswith("The check failed")]
    assert [finding.check for finding in refused] == ["transactions", "workers", "queues"]
    assert {finding.severity for finding in refused} == {NOTICE}
    assert "pg_replication_slots" in refused[0].seen
    assert every[-1].check == "sealing"


def test_a_holdfast_session_idle_in_a_transaction_is_found(
    postgres_url: str,
) -> None:
    with make_holdfast(postgres_url) as hf, hf.store.tenant_transaction(ORG, None, lambda tx: None):
        told = [
            item
            for item in visit(hf, idle=timedelta(0))
            if item.check == "transactions" and "no statement" in item.seen
        ]

    assert told[0].severity is WARNING
    assert "pg_terminate_backend" in told[0].remedy


def test_a_handler_that_keeps_the_only_writer_is_found(
    migrated_sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_files, "WRITER_SECONDS", 0.0)
    with make_holdfast(migrated_sqlite_url) as hf:
        before = [item for item in visit(hf) if item.check == "writer"]
        with hf.store.tenant_transaction(ORG, None, lambda tx: None):
            told = [item for item in visit(hf) if item.check == "writer"]

    assert before[0].severity is OK
    assert told[0].severity is WARNING
    assert f"process {os.getpid()}" in told[0].seen
