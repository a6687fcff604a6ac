"""While a process is frozen inside a transaction, other processes get answers and run its jobs."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import psycopg
import pytest

from holdfast import CancelAnswer, Enqueued, Holdfast, JobRequest, State
from holdfast.engine.maintenance import rescue_jobs
from holdfast.errors import StoreBusy
from holdfast.store import block_lock, sqlite
from tests.acceptance.app import make, write_and_stay
from tests.acceptance.processes import all_in, fork, holdfast, start_worker, wait_until
from tests.acceptance.test_frozen_worker import stands_still
from tests.acceptance.test_one_commit import make_effects
from tests.operate.sound import assert_sound
from tests.story import ORG, look, timeline

T = TypeVar("T")

# Far more than the documented second, because the machine may be busy.
SOON = 15.0
# No test reaches this limit.
NEVER = 600
# The limit of a test that waits for it.
SHORT = 2


def soon(call: Callable[[], T]) -> T:
    """What *call* returns, or the error it raises; it must not wait for the frozen process."""
    began = time.monotonic()
    try:
        return call()
    finally:
        assert time.monotonic() - began < SOON


def stop(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: stands_still(pid))


@contextmanager
def database(url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


def is_connected(connection: psycopg.Connection[Any], backend: int) -> bool:
    asked = "SELECT 1 FROM pg_stat_activity WHERE pid = %s"
    return connection.execute(asked, (backend,)).fetchone() is not None


def explained(hf: Holdfast, job: Enqueued) -> str:
    return str(hf.operate(actor="user:1", role="admin").explain(job.id).reason)


class FrozenHandlers:
    """A worker process that is frozen while its handlers are inside their transactions."""

    def __init__(self, hf: Holdfast, url: str, folder: Path, *, idle_seconds: int) -> None:
        self.hf = hf
        self.may_end = folder / "may_end"
        make_effects(hf)
        worker = start_worker(url, settings={"idle_seconds": idle_seconds}, queues=["q:default"])
        began = {name: folder / name for name in ("canceled", "rescued", "completing")}
        self.payloads = {
            name: {
                "complete": name == "completing",
                "began": str(path),
                "may_end": str(self.may_end),
            }
            for name, path in began.items()
        }
        self.jobs = {
            name: hf.enqueue("freeze", payload, org_id=ORG, idempotency_key=name)
            for name, payload in self.payloads.items()
        }
        wait_until(lambda: all(path.exists() and path.read_text() for path in began.values()))
        self.backends = [int(path.read_text()) for path in began.values()]
        self.pid = worker.pid or 0
        stop(self.pid)

    @property
    def child_key(self) -> str:
        """A key that a frozen handler has written and not committed."""
        return f"child of {self.jobs['rescued'].id}"

    def assert_others_ran_the_jobs(self) -> None:
        """A rescue releases the jobs when their leases end, and another worker runs them."""
        done = [self.jobs["rescued"], self.jobs["completing"]]
        wait_until(lambda: all_in(self.hf, done, State.COMPLETED))
        wait_until(lambda: all_in(self.hf, [self.jobs["canceled"]], State.CANCELED))

    def thaw(self) -> None:
        """The thawed process neither commits nor settles."""
        self.may_end.touch()
        os.kill(self.pid, signal.SIGCONT)
        for job in self.jobs.values():
            wait_until(lambda: "job.lease_lost" in timeline(self.hf, job))  # noqa: B023
        done = [self.jobs["rescued"], self.jobs["completing"]]
        found = look(self.hf.store, "SELECT job_id, attempt FROM effect ORDER BY attempt, job_id")
        assert [(row["job_id"], row["attempt"]) for row in found] == sorted(
            (job.id, 2) for job in done
        )
        assert all_in(self.hf, [self.jobs["canceled"]], State.CANCELED)
        for job in done:
            assert timeline(self.hf, job).count("job.succeeded") == 1
        assert_sound(self.hf)


@pytest.mark.req("C-08", "C-09", "I-14", "I-18")
@pytest.mark.timeout(600)
def test_no_call_waits_for_a_process_that_is_frozen_in_its_handlers_transaction_on_postgres(
    postgres_url: str, tmp_path: Path
) -> None:
    hf = make(postgres_url)
    frozen = FrozenHandlers(hf, postgres_url, tmp_path, idle_seconds=NEVER)
    jobs = frozen.jobs

    assert soon(lambda: hf.cancel(jobs["canceled"].id, org_id=ORG)) is CancelAnswer.REQUESTED
    assert soon(lambda: explained(hf, jobs["rescued"]))
    payload = frozen.payloads["rescued"]
    again = soon(lambda: hf.enqueue("freeze", payload, org_id=ORG, idempotency_key="rescued"))
    assert not again.created
    assert soon(lambda: hf.enqueue("work", {}, org_id=ORG, idempotency_key="new")).created
    with pytest.raises(StoreBusy, match="try again"):
        soon(lambda: hf.enqueue("work", {}, org_id=ORG, idempotency_key=frozen.child_key))

    start_worker(postgres_url)
    frozen.assert_others_ran_the_jobs()
    with database(postgres_url) as admin:
        assert all(is_connected(admin, backend) for backend in frozen.backends)
    frozen.thaw()
    hf.close()


def freeze_in_a_write(
    url: str, job: Enqueued, files: tuple[Path, Path, Path], *, idle_seconds: int = NEVER
) -> int:
    """Start a process, freeze it inside an ordinary write, and return its number."""
    began, may_end, ended = map(str, files)
    process = fork(write_and_stay, url, job.id, (began, may_end, ended), idle_seconds)
    wait_until(lambda: files[0].exists() and bool(files[0].read_text()))
    stop(process.pid or 0)
    return process.pid or 0


@pytest.mark.req("C-08", "C-09")
@pytest.mark.timeout(600)
def test_calls_answer_while_a_process_is_frozen_in_an_ordinary_write_on_postgres(
    postgres_url: str, tmp_path: Path
) -> None:
    hf = make(postgres_url)
    held = hf.enqueue("work", {}, org_id=ORG, idempotency_key="held")
    began, may_end, ended = (tmp_path / name for name in ("began", "may_end", "ended"))
    pid = freeze_in_a_write(postgres_url, held, (began, may_end, ended))

    again = JobRequest({}, ORG, idempotency_key="held")
    for call in (
        lambda: hf.cancel(held.id, org_id=ORG),
        lambda: hf.operate(actor="user:1", role="admin").cancel(held.id, reason="now"),
    ):
        with pytest.raises(StoreBusy, match="try again"):
            soon(call)
    # A duplicate writes nothing that the frozen process holds.
    assert not soon(lambda: hf.enqueue("work", {}, org_id=ORG, idempotency_key="held")).created
    many = soon(lambda: hf.enqueue_many("work", [again, JobRequest({}, ORG)]))
    assert [item.created for item in many] == [False, True]
    command = holdfast(postgres_url, "jobs", "cancel", held.id, "--reason", "now")
    said = "".join(command.wait())
    assert command.returncode != 0
    assert "try again" in said
    assert soon(lambda: explained(hf, held))
    other = soon(lambda: hf.enqueue("work", {}, org_id=ORG))
    start_worker(postgres_url)
    wait_until(lambda: all_in(hf, [other], State.COMPLETED))
    with database(postgres_url) as admin:
        assert is_connected(admin, int(began.read_text()))

    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: all_in(hf, [held], State.COMPLETED))
    assert_sound(hf)
    hf.close()


@pytest.mark.req("C-08", "C-09", "I-14", "I-18")
@pytest.mark.timeout(600)
def test_the_server_ends_the_transactions_of_a_frozen_process_at_the_idle_limit(
    postgres_url: str, tmp_path: Path
) -> None:
    hf = make(postgres_url)
    held = hf.enqueue("work", {}, org_id=ORG, queue="q:exports")
    began, may_end, ended = (tmp_path / f"write_{name}" for name in ("began", "may_end", "ended"))
    frozen = FrozenHandlers(hf, postgres_url, tmp_path, idle_seconds=SHORT)
    writer = freeze_in_a_write(postgres_url, held, (began, may_end, ended), idle_seconds=SHORT)

    with database(postgres_url) as admin:
        for backend in (*frozen.backends, int(began.read_text())):
            wait_until(lambda: not is_connected(admin, backend))  # noqa: B023
    # The rows and the key that the processes had locked are free.
    assert hf.enqueue("work", {}, org_id=ORG, idempotency_key=frozen.child_key).created
    assert hf.cancel(frozen.jobs["canceled"].id, org_id=ORG) is CancelAnswer.REQUESTED
    start_worker(postgres_url)
    wait_until(lambda: all_in(hf, [held], State.COMPLETED))
    frozen.assert_others_ran_the_jobs()

    may_end.touch()
    os.kill(writer, signal.SIGCONT)
    wait_until(lambda: ended.exists() and bool(ended.read_text()))
    assert ended.read_text() == "StoreDown"
    frozen.thaw()
    hf.close()


# -- SQLite has one writer, and a frozen process may hold it


@pytest.mark.timeout(600)
@pytest.mark.parametrize("then", ["thaws", "is killed"])
def test_a_process_frozen_in_its_handlers_transaction_is_named_on_sqlite(
    migrated_sqlite_url: str, tmp_path: Path, then: str
) -> None:
    url = migrated_sqlite_url
    hf = make(url)
    make_effects(hf)
    began, may_end = tmp_path / "began", tmp_path / "may_end"
    payload = {"complete": False, "began": str(began), "may_end": str(may_end)}
    job = hf.enqueue("freeze", payload, org_id=ORG, idempotency_key="one")
    frozen = start_worker(url)
    wait_until(began.exists)
    stop(frozen.pid or 0)

    calls: list[Callable[[], object]] = [
        lambda: hf.cancel(job.id, org_id=ORG),
        lambda: hf.enqueue("freeze", payload, org_id=ORG, idempotency_key="one"),
        lambda: hf.enqueue("work", {}, org_id=ORG),
        lambda: rescue_jobs(hf.store, limit=1),
    ]
    # The answers do not depend on what happens to the process afterwards.
    for call in calls if then == "thaws" else calls[:1]:
        with pytest.raises(StoreBusy, match=f"write lock is held .* process {frozen.pid}"):
            soon(call)
    if then == "thaws":
        assert soon(lambda: explained(hf, job))
        assert soon(lambda: explained(make(url), job))
        assert str(frozen.pid) in stuck_writer(hf)

    may_end.touch()
    os.kill(frozen.pid or 0, signal.SIGCONT if then == "thaws" else signal.SIGKILL)
    start_worker(url)
    wait_until(lambda: all_in(hf, [job], State.COMPLETED))
    # The thawed process was the only writer all the time, so its claim was never lost.
    attempt = 1 if then == "thaws" else 2
    found = look(hf.store, "SELECT attempt FROM effect")
    assert [row["attempt"] for row in found] == [attempt]
    assert timeline(hf, job).count("job.succeeded") == 1
    assert_sound(hf)
    hf.close()


@pytest.mark.timeout(600)
def test_a_process_frozen_in_an_ordinary_write_ends_every_wait_on_sqlite(
    migrated_sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A wait of one second has the same outcome as one of five seconds.
    for module in (block_lock, sqlite):
        monkeypatch.setattr(module, "LOCK_FILE_SECONDS", 1.0)
    hf = make(migrated_sqlite_url)
    held = hf.enqueue("work", {}, org_id=ORG, idempotency_key="held")
    began, may_end, ended = (tmp_path / name for name in ("began", "may_end", "ended"))
    pid = freeze_in_a_write(migrated_sqlite_url, held, (began, may_end, ended))

    for call in (
        lambda: hf.cancel(held.id, org_id=ORG),
        lambda: hf.enqueue("work", {}, org_id=ORG, idempotency_key="held"),
        lambda: rescue_jobs(hf.store, limit=1),
    ):
        with pytest.raises(StoreBusy, match="frozen"):
            soon(call)
    assert soon(lambda: explained(hf, held))
    assert soon(lambda: explained(make(migrated_sqlite_url), held))
    assert "frozen" in stuck_writer(hf)

    os.kill(pid, signal.SIGKILL)
    assert soon(lambda: hf.cancel(held.id, org_id=ORG)) is CancelAnswer.CANCELED
    assert_sound(hf)
    hf.close()


def stuck_writer(hf: Holdfast) -> str:
    """The doctor's finding about SQLite's only writer."""
    findings = hf.operate(actor="user:1", role="admin").doctor()
    return next(found.seen for found in findings if found.check == "writer")
