"""An application for tests with real processes. The payload selects what a handler does."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from holdfast import Context, Holdfast, NetworkTimeout, Settings
from holdfast.config import RunSettings
from holdfast.engine.bounded_run import BoundedRun
from holdfast.engine.run_log import Trigger, TriggerKind


def make(url: str, **settings: Any) -> Holdfast:
    idle_seconds = settings.pop("idle_seconds", None)
    hf = Holdfast(settings=Settings(db=url, **{**FAST, **settings}))
    if idle_seconds is not None and hf.store.dialect.name == "postgres":
        hf.store.idle_seconds = idle_seconds  # type: ignore[attr-defined]

    @hf.job("work", max_attempts=100)
    def work(job: Context, payload: dict[str, Any]) -> dict[str, int]:
        if "began" in payload:
            Path(payload["began"]).touch()
        if "meet" in payload:
            meet(Path(payload["meet"]), payload["processes"])
        while job.attempt == 1 and "until" in payload and not Path(payload["until"]).exists():
            time.sleep(0.01)
        time.sleep(payload.get("seconds", 0))
        if "touch" in payload:
            with Path(payload["touch"]).open("a") as file:
                file.write(f"{job.attempt}\n")
        return {"attempt": job.attempt}

    @hf.job("suicide", max_attempts=2)
    def suicide(job: Context, payload: dict[str, Any]) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    @hf.job("flaky")
    def flaky(job: Context, payload: dict[str, Any]) -> str:
        if job.attempt == 1:
            raise NetworkTimeout
        return "second time"

    @hf.job("effect", max_attempts=5)
    def effect(job: Context, payload: dict[str, Any]) -> None:
        """Insert one row, then kill the process as many times as the payload specifies."""
        with job.transaction(complete=payload["complete"]) as connection:
            connection.execute(f"INSERT INTO effect VALUES ('{job.id}', {job.attempt})")
        if job.attempt <= payload["deaths"]:
            os.kill(os.getpid(), signal.SIGKILL)

    @hf.job("freeze", max_attempts=5)
    def freeze(job: Context, payload: dict[str, Any]) -> None:
        """On the first attempt, keep the transaction and its locks open until the test ends it."""
        with job.transaction(complete=payload["complete"]) as connection:
            connection.execute(f"INSERT INTO effect VALUES ('{job.id}', {job.attempt})")
            if job.attempt == 1:
                job.progress(1, 2)
                hf.enqueue("work", {}, idempotency_key=f"child of {job.id}", conn=connection)
                Path(payload["began"]).write_text(_session(connection))
                while not Path(payload["may_end"]).exists():
                    time.sleep(0.01)

    return hf


def perform(url: str, given: dict[str, Any]) -> None:
    """A bounded run."""
    hf = make(url, runs={"nightly": RunSettings(queues=("q:default",), **given)})
    run = BoundedRun(hf, "nightly", trigger=Trigger(TriggerKind.CRON), concurrency=1)
    signal.signal(signal.SIGTERM, lambda *_: run.drain())
    run.perform()
    hf.close()


def meet(folder: Path, processes: int) -> None:
    """Wait until this many processes have reached this line."""
    (folder / str(os.getpid())).touch()
    while len(list(folder.iterdir())) < processes:
        time.sleep(0.01)


def write_and_stay(url: str, job_id: str, files: tuple[str, str, str], idle_seconds: int) -> None:
    """Hold the place of a waiting job, or SQLite's writer, until the test ends it."""
    began, may_end, ended = map(Path, files)
    hf = make(url, idle_seconds=idle_seconds)

    def work(tx: Any) -> None:
        session = "here"
        if hf.store.dialect.name == "postgres":
            held = "SELECT 1 FROM holdfast.job_ready WHERE job_id = %s FOR UPDATE"
            tx.connection.execute(held, (job_id,))
            session = _session(tx.connection)
        began.write_text(session)
        while not may_end.exists():
            time.sleep(0.01)

    try:
        hf.store.write_soon(work, seconds=0.5)
        ended.write_text("committed")
    except Exception as exc:
        ended.write_text(type(exc).__name__)


def _session(connection: Any) -> str:
    """The server's process for a connection; SQLite has none."""
    pid = getattr(getattr(connection, "info", None), "backend_pid", None)
    return str(pid or "")


FAST = {"lease_seconds": 1.0, "rescue_seconds": 0.2, "poll_seconds": 0.05}


def __getattr__(name: str) -> Holdfast:
    """``hf``: the application on the database of the environment, loaded by commands."""
    if name == "hf":
        return make(os.environ["HOLDFAST_DB"])
    raise AttributeError(name)
