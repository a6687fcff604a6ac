"""A process that is frozen inside a transaction, and what everybody else can do meanwhile."""

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
from tests.acceptance.app import make
from tests.acceptance.processes import SPAWN, _started, all_in, holdfast, start_worker, wait_until
from tests.acceptance.test_frozen_worker import stands_still
from tests.acceptance.test_one_commit import make_effects
from tests.operate.sound import assert_sound
from tests.story import ORG, look, timeline

T = TypeVar("T")

# Far more than the second that is promised, on a machine with other work, and less than any limit
# that would end the wait by itself.
SOON = 15.0
IDLE = 40


def soon(call: Callable[[], T]) -> T:
    """What *call* answers, or the error it raises; it must not wait for the frozen process."""
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


@pytest.mark.req("C-08", "C-09", "I-14", "I-18")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("thaws", ["before the limit", "after the limit"])
def test_a_process_frozen_in_its_handlers_transaction_keeps_nobody_on_postgres(
    postgres_url: str, tmp_path: Path, thaws: str
) -> None:
    url = postgres_url
    hf = make(url)
    make_effects(hf)
    may_end = tmp_path / "may_end"
    frozen = start_worker(url, settings={"idle_seconds": IDLE}, queues=["q:default"])
    jobs = [
        hf.enqueue(
            "freeze",
            {"complete": complete, "began": str(tmp_path / name), "may_end": str(may_end)},
            org_id=ORG,
            idempotency_key=name,
        )
        for name, complete in (("canceled", False), ("rescued", False), ("completing", True))
    ]
    canceled, rescued, completing = jobs
    began = [tmp_path / name for name in ("canceled", "rescued", "completing")]
    wait_until(lambda: all(path.exists() and path.read_text() for path in began))
    backends = [int(path.read_text()) for path in began]
    stop(frozen.pid or 0)

    # Nothing of the frozen process is waited for.
    assert soon(lambda: hf.cancel(canceled.id, org_id=ORG)) is CancelAnswer.REQUESTED
    assert soon(lambda: explained(hf, rescued))
    again = soon(
        lambda: hf.enqueue(
            "freeze",
            {"complete": False, "began": str(began[1]), "may_end": str(may_end)},
            org_id=ORG,
            idempotency_key="rescued",
        )
    )
    assert not again.created
    assert soon(lambda: hf.enqueue("work", {}, org_id=ORG, idempotency_key="new")).created
    # Its key is written and not committed: the answer is that nobody knows yet.
    child = f"child of {rescued.id}"
    with pytest.raises(StoreBusy, match="try again"):
        soon(lambda: hf.enqueue("work", {}, org_id=ORG, idempotency_key=child))

    # A rescue brings the jobs back when their leases end, and another worker runs them.
    start_worker(url)
    wait_until(lambda: all_in(hf, [rescued, completing], State.COMPLETED))
    wait_until(lambda: all_in(hf, [canceled], State.CANCELED))
    with database(url) as admin:
        assert all(is_connected(admin, backend) for backend in backends)
        if thaws == "after the limit":
            wait_until(lambda: not any(is_connected(admin, backend) for backend in backends))
            # What it had locked is free.
            assert soon(lambda: hf.enqueue("work", {}, org_id=ORG, idempotency_key=child)).created

    # The thawed process neither commits nor settles.
    may_end.touch()
    os.kill(frozen.pid or 0, signal.SIGCONT)
    for job in jobs:
        wait_until(lambda: "job.lease_lost" in timeline(hf, job))  # noqa: B023
    found = look(hf.store, "SELECT job_id, attempt FROM effect ORDER BY attempt, job_id")
    assert [(row["job_id"], row["attempt"]) for row in found] == sorted(
        [(rescued.id, 2), (completing.id, 2)]
    )
    assert all_in(hf, [canceled], State.CANCELED)
    for job in (rescued, completing):
        assert timeline(hf, job).count("job.succeeded") == 1
    assert_sound(hf)
    hf.close()


def _write_and_stay(url: str, job_id: str, began: str, may_end: str, ended: str) -> None:
    """Any other transaction of Holdfast: an ordinary write that holds the row of a job."""
    hf = make(url, idle_seconds=IDLE)

    def work(tx: Any) -> None:
        session = "here"
        if hf.store.dialect.name == "postgres":
            held = "SELECT 1 FROM holdfast.job WHERE id = %s FOR UPDATE"
            tx.connection.execute(held, (job_id,))
            session = str(tx.connection.info.backend_pid)
        Path(began).write_text(session)
        while not Path(may_end).exists():
            time.sleep(0.01)

    try:
        hf.store.write_soon(work, seconds=0.5)
        Path(ended).write_text("committed")
    except Exception as exc:
        Path(ended).write_text(type(exc).__name__)


def freeze_in_a_write(url: str, job: Enqueued, *files: Path) -> int:
    """Start such a process, freeze it inside its write, and return its number."""
    process = SPAWN.Process(
        target=_write_and_stay, args=(url, job.id, *map(str, files)), daemon=True
    )
    process.start()
    _started.append(process)
    wait_until(lambda: files[0].exists() and bool(files[0].read_text()))
    stop(process.pid or 0)
    return process.pid or 0


@pytest.mark.req("C-08", "C-09")
@pytest.mark.timeout(600)
def test_a_process_frozen_in_an_ordinary_write_is_answered_for_and_cut_off_on_postgres(
    postgres_url: str, tmp_path: Path
) -> None:
    hf = make(postgres_url)
    held = hf.enqueue("work", {}, org_id=ORG, idempotency_key="held")
    files = [tmp_path / name for name in ("began", "may_end", "ended")]
    began, may_end, ended = files
    pid = freeze_in_a_write(postgres_url, held, *files)
    backend = int(began.read_text())

    again = JobRequest({}, ORG, idempotency_key="held")
    for call in (
        lambda: hf.cancel(held.id, org_id=ORG),
        lambda: hf.operate(actor="user:1", role="admin").cancel(held.id, reason="now"),
        lambda: hf.enqueue("work", {}, org_id=ORG, idempotency_key="held"),
        lambda: hf.enqueue_many("work", [again, JobRequest({}, ORG)]),
    ):
        with pytest.raises(StoreBusy, match="try again"):
            soon(call)
    command = holdfast(postgres_url, "jobs", "cancel", held.id, "--reason", "now")
    said = "".join(command.communicate(timeout=IDLE))
    assert command.returncode != 0
    assert "try again" in said
    assert soon(lambda: explained(hf, held))
    other = soon(lambda: hf.enqueue("work", {}, org_id=ORG))
    start_worker(postgres_url)
    wait_until(lambda: all_in(hf, [other], State.COMPLETED))

    with database(postgres_url) as admin:
        assert is_connected(admin, backend)
        wait_until(lambda: not is_connected(admin, backend))
    wait_until(lambda: all_in(hf, [held], State.COMPLETED))
    may_end.touch()
    os.kill(pid, signal.SIGCONT)
    wait_until(ended.exists)
    wait_until(lambda: bool(ended.read_text()))
    assert ended.read_text() == "StoreDown"
    assert_sound(hf)
    hf.close()


# -- SQLite has one writer, and a frozen process may have it


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

    for call in (
        lambda: hf.cancel(job.id, org_id=ORG),
        lambda: hf.enqueue("freeze", payload, org_id=ORG, idempotency_key="one"),
        lambda: hf.enqueue("work", {}, org_id=ORG),
        lambda: rescue_jobs(hf.store, limit=1),
    ):
        with pytest.raises(StoreBusy, match=f"process {frozen.pid} has SQLite's only writer"):
            soon(call)
    assert soon(lambda: explained(hf, job))
    assert soon(lambda: explained(make(url), job))
    findings = [found for found in doctor(hf) if found.check == "writer"]
    assert str(frozen.pid) in findings[0].seen

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
    migrated_sqlite_url: str, tmp_path: Path
) -> None:
    hf = make(migrated_sqlite_url)
    held = hf.enqueue("work", {}, org_id=ORG, idempotency_key="held")
    files = [tmp_path / name for name in ("began", "may_end", "ended")]
    pid = freeze_in_a_write(migrated_sqlite_url, held, *files)

    for call in (
        lambda: hf.cancel(held.id, org_id=ORG),
        lambda: hf.enqueue("work", {}, org_id=ORG, idempotency_key="held"),
        lambda: rescue_jobs(hf.store, limit=1),
    ):
        with pytest.raises(StoreBusy, match="frozen"):
            soon(call)
    assert soon(lambda: explained(hf, held))
    assert soon(lambda: explained(make(migrated_sqlite_url), held))
    assert "frozen" in next(found.seen for found in doctor(hf) if found.check == "writer")

    os.kill(pid, signal.SIGKILL)
    assert soon(lambda: hf.cancel(held.id, org_id=ORG)) is CancelAnswer.CANCELED
    assert_sound(hf)
    hf.close()


def doctor(hf: Holdfast) -> Any:
    return hf.operate(actor="user:1", role="admin").doctor()
