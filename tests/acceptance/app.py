"""An application for real processes: what its handlers do is told by the payload."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from holdfast import Context, Holdfast, NetworkTimeout, Settings


def make(url: str, **settings: Any) -> Holdfast:
    idle_seconds = settings.pop("idle_seconds", None)
    hf = Holdfast(settings=Settings(db=url, **{**FAST, **settings}))
    if idle_seconds is not None and hf.store.dialect.name == "postgres":
        hf.store.idle_seconds = idle_seconds  # type: ignore[attr-defined]

    @hf.job("work", max_attempts=100)
    def work(job: Context, payload: dict[str, Any]) -> dict[str, int]:
        if "began" in payload:
            Path(payload["began"]).touch()
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
        """Leave one row, and die as often as the payload says: after the block, or after all."""
        with job.transaction(complete=payload["complete"]) as connection:
            connection.execute(f"INSERT INTO effect VALUES ('{job.id}', {job.attempt})")
        if job.attempt <= payload["deaths"]:
            os.kill(os.getpid(), signal.SIGKILL)

    @hf.job("freeze", max_attempts=5)
    def freeze(job: Context, payload: dict[str, Any]) -> None:
        """On the first attempt stay inside the transaction, with locks, until it may end."""
        with job.transaction(complete=payload["complete"]) as connection:
            connection.execute(f"INSERT INTO effect VALUES ('{job.id}', {job.attempt})")
            if job.attempt == 1:
                job.progress(1, 2)
                hf.enqueue("work", {}, idempotency_key=f"child of {job.id}", conn=connection)
                Path(payload["began"]).write_text(_session(connection))
                while not Path(payload["may_end"]).exists():
                    time.sleep(0.01)

    return hf


def _session(connection: Any) -> str:
    """The server's process for a connection; SQLite has none."""
    pid = getattr(getattr(connection, "info", None), "backend_pid", None)
    return str(pid or "")


FAST = {"lease_seconds": 1.0, "rescue_seconds": 0.2, "poll_seconds": 0.05}

if "HOLDFAST_DB" in os.environ:
    hf = make(os.environ["HOLDFAST_DB"])
