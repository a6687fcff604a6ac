"""An application whose jobs end in every possible way, for a real worker that is scraped."""

from __future__ import annotations

import os
import signal
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from holdfast import Context, Holdfast, NetworkTimeout, Permanent, Settings, Snooze
from holdfast.engine.retry import RetryPolicy

NOW = RetryPolicy(steps=(timedelta(0),))


class CardDeclined(Permanent):
    """The bank refused the payment."""

    error_class = "CARD_DECLINED"


def make(url: str) -> Holdfast:
    settings = Settings(db=url, lease_seconds=5.0, rescue_seconds=0.2, poll_seconds=0.05)
    hf = Holdfast(settings=settings)
    hf.queue("q:mail")

    @hf.job("ends", max_attempts=3, retry=NOW)
    def ends(job: Context, payload: dict[str, Any]) -> None:
        match payload["as"]:
            case "retried":
                if job.attempt == 1:
                    raise NetworkTimeout
            case "dead":
                raise CardDeclined(payload["canary"])
            case "defect":
                raise ValueError(payload["canary"])
            case "exhausted":
                raise NetworkTimeout
            case "snoozed":
                if not Path(payload["flag"]).exists():
                    Path(payload["flag"]).touch()
                    raise Snooze(0.01)
            case "canceled" | "robbed":
                _wait(job, payload)
            case "killed":
                if job.attempt == 1:
                    os.kill(os.getpid(), signal.SIGKILL)

    @hf.job("awaits", queue="q:mail")
    async def awaits(job: Context, payload: dict[str, Any]) -> None: ...

    stages = hf.pipeline("staged")
    stages.stage("fetch")(lambda job, payload: {"pages": 3})
    stages.stage("draw")(lambda job, payload: None)
    return hf


def _wait(job: Context, payload: dict[str, Any]) -> None:
    """Report the start, then run until the job is canceled or released."""
    if job.attempt > 1:
        return
    Path(payload["began"]).touch()
    while not Path(payload["go_on"]).exists():
        if payload["as"] == "canceled":
            job.raise_if_canceled()
        time.sleep(0.01)


def __getattr__(name: str) -> Holdfast:
    """``tests.telemetry.app:hf``, on the current database."""
    if name != "hf":
        raise AttributeError(name)
    return make(os.environ["HOLDFAST_DB"])
