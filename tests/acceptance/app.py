"""An application for real processes: what its handlers do is told by the payload."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from holdfast import Context, Holdfast, NetworkTimeout, Settings


def make(url: str, **settings: Any) -> Holdfast:
    hf = Holdfast(settings=Settings(db=url, **{**FAST, **settings}))

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

    return hf


FAST = {"lease_seconds": 1.0, "rescue_seconds": 0.2, "poll_seconds": 0.05}

if "HOLDFAST_DB" in os.environ:
    hf = make(os.environ["HOLDFAST_DB"])
