"""An application with every kind of output, and a canary in each."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import warnings
from datetime import timedelta
from typing import Any

from holdfast import Context, Holdfast, NetworkTimeout, Settings
from holdfast.engine.retry import RetryPolicy

CANARY = "canary-77c1"
SECRET = "sk-canary77c1canary77c1canary77c1"
NOW = RetryPolicy(steps=(timedelta(0),))

own = logging.getLogger("shop.billing")
library = logging.getLogger("some.library")


class Odd(BaseException):
    """Neither an error nor a signal of ours: it ends the thread."""


class Falls:
    def __del__(self) -> None:
        raise ValueError(CANARY)


def make(url: str) -> Holdfast:
    hf = Holdfast(
        settings=Settings(db=url, lease_seconds=2.0, rescue_seconds=0.2, poll_seconds=0.05)
    )

    @hf.job("loud.sync", max_attempts=2, retry=NOW)
    def loud(job: Context, payload: dict[str, Any]) -> None:
        own.info("billed %s", "invoice-7")
        own.info('key %s\n{"event": "job.dead"}', SECRET)
        library.debug("headers %s", CANARY)
        library.error("%s and %s", "too few")
        warnings.warn(CANARY, UserWarning, stacklevel=1)
        thread = threading.Thread(target=_die, name="of-the-handler")
        thread.start()
        thread.join()
        Falls()
        try:
            raise KeyError(CANARY)
        except KeyError:
            own.exception("could not bill")
        raise NetworkTimeout(CANARY)

    @hf.job("loud.async")
    async def loud_too(job: Context, payload: dict[str, Any]) -> None:
        own.warning("from the loop")
        task = asyncio.get_running_loop().create_task(_fail())
        await asyncio.sleep(0)
        del task

    @hf.job("odd", max_attempts=1)
    def odd(job: Context, payload: dict[str, Any]) -> None:
        raise Odd(CANARY)

    @hf.job("suicide", max_attempts=1)
    def suicide(job: Context, payload: dict[str, Any]) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    return hf


def _die() -> None:
    raise RuntimeError(CANARY)


async def _fail() -> None:
    raise RuntimeError(CANARY)


if "HOLDFAST_DB" in os.environ:
    hf = make(os.environ["HOLDFAST_DB"])
