"""A worker in a separate process that is killed at a point of batch processing, as by kill -9."""

from __future__ import annotations

import signal
from datetime import datetime
from typing import Any

from holdfast import FakeClock
from tests.batch.house import House, make_app, run
from tests.failpoints import BatchPoint as Point
from tests.failpoints import install_kill
from tests.forking import SPAWN


def die(house: House, point: Point, name: str, *, nth: int = 1, must: bool = True) -> None:
    """Let a worker perform the run *name*, and kill it the nth time that it reaches *point*."""
    house.opened += 1
    told: dict[str, Any] = {
        "url": house.url,
        "origin": house.sim.origin,
        "now": house.clock.now().isoformat(),
        "provider": house.provider,
        "settings": house.settings,
        "seed": house.opened,
    }
    process = SPAWN.Process(target=_work, args=(told, str(point), name, nth), daemon=True)
    process.start()
    process.join(60)
    if process.is_alive():
        process.kill()
        process.join()
        raise AssertionError(f"the worker neither ended nor came to {point}")
    wanted = {-signal.SIGKILL} if must else {-signal.SIGKILL, 0}
    assert process.exitcode in wanted, f"the worker ended with {process.exitcode} before {point}"


def _work(told: dict[str, Any], point: str, name: str, nth: int) -> None:
    clock = FakeClock(datetime.fromisoformat(told["now"]))
    hf = make_app(
        told["url"],
        told["origin"],
        clock,
        told["provider"],
        seed=told["seed"],
        **told["settings"],
    )
    install_kill(hf, Point(point), nth=nth)
    if name == "worker":
        hf.worker().run_once()
    else:
        run(hf, name)
