"""Worker heartbeats, draining and shutdown."""

from __future__ import annotations

import os
import socket
import threading
import time
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest

from holdfast import Context, FakeClock, Holdfast, SystemClock
from holdfast.engine.worker.executor_pool import InFlight
from holdfast.engine.worker.heartbeat import (
    GONE_AFTER,
    KEEP,
    Heartbeat,
    WorkerRow,
    list_workers,
    serving,
)
from holdfast.errors import RuleBroken, StoreDown
from tests.engine.faulty import FaultyStore
from tests.story import ORG, by_hand, claim, look, make_holdfast


def present(hf: Holdfast) -> list[WorkerRow]:
    return hf.store.read(list_workers)


def make(hf: Holdfast, worker: str = "w1", **given: Any) -> Heartbeat:
    held: dict[str, InFlight] = given.pop("in_flight", {})
    return Heartbeat(
        given.pop("store", hf.store),
        held,
        worker,
        ["q:default"],
        ["report.export"],
        lease_ms=60_000,
    )


def until(condition: Any) -> None:
    """Wait for a condition that another thread makes true."""
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_worker_records_what_it_serves_while_it_runs_and_leaves_nothing_behind(
    hf: Holdfast,
) -> None:
    begun, release = threading.Event(), threading.Event()

    @hf.job("report.export")
    def slow(job: Context, payload: object) -> None:
        begun.set()
        release.wait(20)

    hf.enqueue("report.export", {}, org_id=ORG)
    worker = hf.worker(queues=["q:default", "q:exports"], concurrency=1)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        assert begun.wait(10)
        until(lambda: present(hf))
        (seen,) = present(hf)
        worker.drain()
        until(lambda: present(hf)[0].state == "draining")
        (draining,) = present(hf)
    finally:
        release.set()
        worker.drain()
        thread.join(20)

    assert not thread.is_alive()
    assert (seen.worker_id, seen.state) == (worker.id, "working")
    assert sorted(seen.queues) == ["q:default", "q:exports"]
    assert sorted(seen.job_types) == ["operate.bulk_action", "outbox.deliver", "report.export"]
    assert (seen.host, seen.process_id) == (socket.gethostname()[:100], os.getpid())
    assert seen.lease_ms == 60_000
    assert seen.can_claim
    assert serving([seen], "q:default") == [seen]
    assert serving([seen], "q:planning") == []
    assert not draining.can_claim
    assert draining.started_at == seen.started_at
    assert present(hf) == []


def test_a_worker_that_went_without_a_word_counts_as_gone_and_is_forgotten_in_the_end(
    hf: Holdfast, clock: FakeClock
) -> None:
    make(hf, "dead").send()

    clock.advance(GONE_AFTER)
    (still,) = present(hf)
    clock.advance(seconds=1)
    (gone,) = present(hf)
    make(hf, "alive").send()
    both = [(worker.worker_id, worker.is_gone) for worker in present(hf)]
    clock.advance(KEEP)
    make(hf, "alive").send()

    assert not still.is_gone
    assert gone.is_gone
    assert both == [("alive", False), ("dead", True)]
    assert [worker.worker_id for worker in present(hf)] == ["alive"]


def test_the_longest_claim_is_remembered_while_it_runs_and_after_it(hf: Holdfast) -> None:
    hf.job("report.export")(lambda job, payload: None)
    hf.enqueue("report.export", {}, org_id=ORG)
    (job,) = claim(hf)
    now = time.monotonic()
    short, long = InFlight(job, None, now - 10, now), InFlight(job, None, now - 90, now)  # type: ignore[arg-type]
    held = {"short": short}
    presence = make(hf, in_flight=held)

    presence.send()
    (first,) = present(hf)
    presence.observe([long])
    held.clear()
    presence.send()
    (second,) = present(hf)

    assert 10_000 <= first.longest_ms < 20_000
    assert 90_000 <= second.longest_ms < 100_000
    assert second.longest_type == "report.export"


class Off:
    """A machine whose clock is wrong."""

    is_fake = False

    def __init__(self, by: timedelta) -> None:
        self.by, self._clock = by, SystemClock()

    def now(self) -> datetime:
        return self._clock.now() + self.by

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def wait(self, event: threading.Event, timeout: float) -> bool:
        return self._clock.wait(event, timeout)


def test_a_worker_records_its_clock_offset(postgres_url: str) -> None:
    with make_holdfast(postgres_url, Off(timedelta(seconds=90))) as hf:  # type: ignore[arg-type]
        presence = make(hf)
        presence.send()
        presence.send()
        (seen,) = present(hf)

    assert seen.clock_off_ms == pytest.approx(-90_000, abs=2_000)
    assert seen.is_off
    assert not seen.can_claim


def test_a_worker_pruned_while_it_was_frozen_records_itself_again(
    hf: Holdfast, clock: FakeClock
) -> None:
    frozen = make(hf, "frozen")
    frozen.send()
    clock.advance(KEEP + timedelta(seconds=1))
    make(hf, "other").send()
    assert [worker.worker_id for worker in present(hf)] == ["other"]

    frozen.send()

    assert {worker.worker_id for worker in present(hf)} == {"frozen", "other"}


def test_a_database_that_is_away_harms_neither_the_start_nor_the_end(hf: Holdfast) -> None:
    store = FaultyStore(hf.store).be_away(1_000)
    presence = make(hf, store=store)

    with pytest.raises(StoreDown):
        presence.send()
    presence.start()
    presence.drain()
    presence.close()

    assert not presence._thread.is_alive()
    assert present(hf) == []


def test_an_unknown_state_is_refused_by_the_database(hf: Holdfast) -> None:
    make(hf).send()

    with pytest.raises(RuleBroken) as caught:
        by_hand(hf.store, "UPDATE holdfast.worker SET state = 'asleep'")

    assert caught.value.rule == "worker_state_known"


@pytest.mark.req("X-09")
def test_a_tenant_sees_no_workers(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        connection.execute("SET ROLE holdfast_tenant")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("SELECT * FROM holdfast.worker")


def test_presence_is_two_small_writes_a_beat(hf: Holdfast) -> None:
    store = FaultyStore(hf.store)
    presence = make(hf, store=store)

    for _ in range(3):
        presence.send()

    assert store.writes == 6
    assert look(hf.store, "SELECT count(*) AS workers FROM holdfast.worker")[0]["workers"] == 1
