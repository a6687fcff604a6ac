"""Limits: caps count live leases, rate limits count started jobs, across all workers."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar, cast

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast import FakeClock, Holdfast
from holdfast.config import KeySettings, QueueSettings, Rate, TenantSettings
from holdfast.engine.claim import ClaimRequest, Order, claim_jobs, claim_queue, find_backlogs
from holdfast.engine.job import SYSTEM, Claimed, Completed
from holdfast.engine.limits import read_rules
from holdfast.engine.maintenance import rescue_jobs
from holdfast.engine.settle import settle
from holdfast.engine.worker.fetcher import FairFetcher
from holdfast.errors import ConfigError
from holdfast.store import Store, Tx
from tests.engine.flood import (
    NOISY,
    OPERATOR,
    QUEUE,
    QUIET,
    by_tenant,
    declare,
    fetcher,
    fill,
    fill_tenants,
    fill_with,
    narrow_looks,
    tenant,
)
from tests.engine.planting import plant
from tests.story import ORG, OTHER_ORG, by_hand, look, make_holdfast

T = TypeVar("T")


@pytest.fixture(autouse=True)
def _narrow_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow_looks(monkeypatch)


@pytest.fixture
def work(hf: Holdfast) -> Holdfast:
    return declare(hf)


def limit(hf: Holdfast, queue: str = QUEUE, **limits: Any) -> None:
    hf.queues.set(queue, QueueSettings(**limits), actor=OPERATOR)


def finish(hf: Holdfast, claimed: list[Claimed]) -> None:
    settle(hf.store, [(job, Completed()) for job in claimed], actor=SYSTEM)


# -- caps


@pytest.mark.req("B-05", "Q-13")
def test_a_queue_runs_no_more_at_once_than_its_cap(work: Holdfast) -> None:
    limit(work, max_running=3)
    fill(work, ORG, 20)
    running = fetcher(work)

    first, second = running.take(10), running.take(10)
    finish(work, first[:2])
    third = running.take(10)

    assert [len(first), len(second), len(third)] == [3, 0, 2]


@pytest.mark.req("B-05")
@pytest.mark.parametrize("size", [1, 3, 100])
def test_a_tenant_runs_no_more_of_a_queue_than_its_cap_however_small_the_claims(
    work: Holdfast, size: int
) -> None:
    limit(work, max_running_per_tenant=7)
    fill(work, NOISY, 30)
    fill(work, QUIET, 5)
    running = fetcher(work)

    got = by_tenant([job for _ in range(30) for job in running.take(size)])

    assert got == {NOISY: 7, QUIET: 5}


@pytest.mark.req("B-05")
def test_a_tenants_own_cap_counts_all_its_queues(work: Holdfast) -> None:
    work.queues.set_tenant(NOISY, TenantSettings(max_running=4), actor=OPERATOR)
    for job_type in ("work", "tell"):
        fill(work, NOISY, 10, job_type)
        fill(work, QUIET, 3, job_type)
    running = fetcher(work, QUEUE, "q:notifications")

    got = by_tenant([job for _ in range(5) for job in running.take(8)])

    assert got == {NOISY: 4, QUIET: 6}


@pytest.mark.req("B-05")
def test_a_key_counts_the_jobs_of_all_tenants_and_queues(work: Holdfast) -> None:
    work.queues.set_key("llm/one", KeySettings(max_running=3), actor=OPERATOR)
    for org_id in (ORG, OTHER_ORG):
        fill(work, org_id, 5, limit_key="llm/one")
        fill(work, org_id, 5, "tell", limit_key="llm/one")
        fill(work, org_id, 2, limit_key="llm/two")
    running = fetcher(work, QUEUE, "q:notifications")

    got = Counter(job.limit_key for _ in range(5) for job in running.take(10))

    assert got == {"llm/one": 3, "llm/two": 4}


def test_what_a_capped_tenant_may_not_take_goes_to_the_others_in_the_same_claim(
    work: Holdfast,
) -> None:
    work.queues.set_tenant(NOISY, TenantSettings(max_running=1), actor=OPERATOR)
    fill(work, NOISY, 50)
    fill(work, QUIET, 50)

    assert by_tenant(fetcher(work).take(10)) == {NOISY: 1, QUIET: 9}


def test_a_full_key_does_not_block_other_jobs(work: Holdfast) -> None:
    work.queues.set_key("busy", KeySettings(max_running=1), actor=OPERATOR)
    fill(work, NOISY, 150, limit_key="busy")
    fill(work, QUIET, 3)

    claimed = fetcher(work).take(10)

    assert Counter(job.limit_key for job in claimed) == {"busy": 1, "": 3}


def test_tenants_at_their_cap_do_not_block_others_beyond_one_claim(work: Holdfast) -> None:
    limit(work, max_running_per_tenant=1)
    fill_tenants(work, 36, 2)
    running = fetcher(work)
    running.take(36)

    work.enqueue("work", {}, org_id=QUIET)

    assert by_tenant(running.take(5)) == {QUIET: 1}


def test_a_scarce_key_goes_round_among_its_tenants_beside_a_flood_without_a_key(
    work: Holdfast,
) -> None:
    work.queues.set_key("scarce", KeySettings(max_running=1), actor=OPERATOR)
    fill(work, tenant(9), 200)
    fill(work, tenant(1), 20, limit_key="scarce")
    fill(work, tenant(2), 2, limit_key="scarce")
    running, got = fetcher(work), Counter[str]()

    for _ in range(8):
        claimed = running.take(20)
        under = [job for job in claimed if job.limit_key == "scarce"]
        got += by_tenant(under)
        finish(work, under)

    assert got == {tenant(1): 6, tenant(2): 2}


@pytest.mark.req("B-05")
@pytest.mark.parametrize("cap", ["queue", "tenant_here", "tenant", "key"])
def test_a_worker_that_died_holds_its_room_until_its_leases_end_and_no_longer(
    work: Holdfast, clock: FakeClock, cap: str
) -> None:
    match cap:
        case "queue":
            limit(work, max_running=2)
        case "tenant_here":
            limit(work, max_running_per_tenant=2)
        case "tenant":
            work.queues.set_tenant(ORG, TenantSettings(max_running=2), actor=OPERATOR)
        case _:
            work.queues.set_key("k", KeySettings(max_running=2), actor=OPERATOR)
    fill(work, ORG, 6, limit_key="k")

    dead = fetcher(work, worker="dead").take(5)
    clock.advance(milliseconds=60_000)
    held = fetcher(work).take(5)
    clock.advance(milliseconds=1)
    freed = fetcher(work).take(5)
    rescued = rescue_jobs(work.store, limit=10)

    assert [len(dead), len(held), len(freed), len(rescued)] == [2, 0, 2, 2]


@pytest.mark.req("B-05")
def test_a_cap_lowered_below_what_runs_starts_nothing_new(work: Holdfast) -> None:
    limit(work, max_running=5)
    fill(work, ORG, 20)
    running = fetcher(work)
    held = running.take(10)

    limit(work, max_running=2)
    counts = []
    for _ in range(5):
        counts.append(len(running.take(10)))
        finish(work, [held.pop()])

    assert counts == [0, 0, 0, 0, 1]


def test_caps_hold_also_where_a_row_breaks_a_rule(work: Holdfast) -> None:
    limit(work, max_running=3)
    work.queues.set_tenant(NOISY, TenantSettings(max_running=1), actor=OPERATOR)
    work.queues.set_key("k", KeySettings(max_running=1), actor=OPERATOR)
    fill(work, NOISY, 5)
    fill(work, QUIET, 5, limit_key="k")
    broken = work.enqueue("work", {}, org_id=ORG)
    plant(work, "UPDATE holdfast.job_envelope SET max_attempts = 0 WHERE id = :id", id=broken.id)

    claimed = fetcher(work).take(20)

    assert by_tenant(claimed) == {NOISY: 1, QUIET: 1, ORG: 1}


# -- two workers at the same moment


class InFlight:
    """A store whose next write waits before its commit until it may go on."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.is_inside, self.may_go = threading.Event(), threading.Event()

    def write(self, work: Callable[[Tx], T]) -> T:
        def then_wait(tx: Tx) -> T:
            result = work(tx)
            self.is_inside.set()
            assert self.may_go.wait(20)
            return result

        return self._store.write(then_wait)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def in_thread(work: Callable[[], T]) -> tuple[threading.Thread, list[T]]:
    found: list[T] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    return thread, found


CAPS: dict[str, Callable[[Holdfast], object]] = {
    "queue": lambda hf: limit(hf, max_running=7),
    "tenant_here": lambda hf: limit(hf, max_running_per_tenant=7),
    "tenant": lambda hf: hf.queues.set_tenant(ORG, TenantSettings(max_running=7), actor=OPERATOR),
    "key": lambda hf: hf.queues.set_key("k", KeySettings(max_running=7), actor=OPERATOR),
    "rate": lambda hf: limit(hf, rate=Rate(7, 60)),
    "key_rate": lambda hf: hf.queues.set_key("k", KeySettings(rate=Rate(7, 60)), actor=OPERATOR),
}


@pytest.mark.req("B-05")
@pytest.mark.parametrize("cap", CAPS)
@pytest.mark.parametrize("order", list(Order))
def test_a_claim_that_comes_while_another_is_not_committed_counts_it(
    postgres_url: str, clock: FakeClock, cap: str, order: Order
) -> None:
    with make_holdfast(postgres_url, clock) as hf, make_holdfast(postgres_url, clock) as second:
        declare(hf)
        CAPS[cap](hf)
        fill(hf, ORG, 30, limit_key="k")
        held = InFlight(hf.store)

        def take(store: Store) -> list[Claimed]:
            return claim_jobs(
                store, queue=QUEUE, worker_id="w", limit=5, lease_ms=60_000, order=order
            )

        one, first = in_thread(lambda: take(cast(Store, held)))
        assert held.is_inside.wait(20)
        two, then = in_thread(lambda: take(second.store))
        wait_for_a_lock(postgres_url)
        held.may_go.set()
        one.join()
        two.join()

    assert [len(claimed) for claimed in (*first, *then)] == [5, 2]


def wait_for_a_lock(url: str) -> None:
    """Wait until a claim waits for the advisory lock of another one."""
    ask = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    deadline = time.monotonic() + 20
    with psycopg.connect(url, autocommit=True) as connection:
        while time.monotonic() < deadline:
            if connection.execute(ask).fetchone() != (0,):
                return
    raise AssertionError("no claim waited for a lock")


@pytest.mark.req("B-05")
@pytest.mark.parametrize("cap", CAPS)
def test_workers_that_claim_at_the_same_instant_never_exceed_a_limit(
    url: str, clock: FakeClock, cap: str
) -> None:
    count = 4
    with make_holdfast(url, clock) as hf:
        declare(hf)
        CAPS[cap](hf)
        fill(hf, ORG, 30, limit_key="k")
        start = threading.Barrier(count)

        def take(number: int) -> list[Claimed]:
            with make_holdfast(url, clock) as mine:
                running = fetcher(mine, worker=f"w{number}")
                start.wait()
                return [job for _ in range(4) for job in running.take(3)]

        pairs = [in_thread(lambda number=number: take(number)) for number in range(count)]  # type: ignore[misc]
        for thread, _ in pairs:
            thread.join()

    assert sum(len(claimed) for _, found in pairs for claimed in found) == 7


# -- rules that change while workers run


def declare_another(hf: Holdfast) -> None:
    hf.queue("q:mine", weight=3)
    hf.worker()


CHANGES: dict[str, Callable[[Holdfast], object]] = {
    "set": lambda hf: limit(hf, weight=7),
    "set_tenant": lambda hf: hf.queues.set_tenant(ORG, TenantSettings(weight=2), actor=OPERATOR),
    "set_key": lambda hf: hf.queues.set_key("x", KeySettings(max_running=1), actor=OPERATOR),
    "pause": lambda hf: hf.queues.pause(QUEUE, reason="because", actor=OPERATOR),
    "code": lambda hf: declare_another(hf),
}


@pytest.mark.req("B-05")
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("order", list(Order))
def test_a_worker_that_has_not_heard_of_a_change_claims_nothing(
    work: Holdfast, change: str, order: Order
) -> None:
    fill(work, ORG, 4)
    old = read_rules(work.store)

    def ask() -> ClaimRequest:
        lanes = find_backlogs(work.store, {QUEUE: [""]}, served={}, wanted=10)[QUEUE]
        return ClaimRequest(QUEUE, "w1", 10, 60_000, backlogs=lanes, order=order)

    CHANGES[change](work)

    assert claim_queue(work.store, old, ask()) == []
    fresh = claim_queue(work.store, read_rules(work.store), ask())
    assert len(fresh) == (0 if change == "pause" else 4)


# -- buckets


def tokens(hf: Holdfast) -> list[float]:
    text = "SELECT tokens FROM holdfast.queue UNION ALL SELECT tokens FROM holdfast.limit_key"
    return [row["tokens"] for row in look(hf.store, text)]


@pytest.mark.req("B-05", "Q-13")
@pytest.mark.parametrize("of", ["queue", "key"])
def test_a_bucket_gives_its_burst_at_once_and_then_what_time_adds(
    work: Holdfast, clock: FakeClock, of: str
) -> None:
    rate = Rate(10, 60)
    if of == "queue":
        limit(work, rate=rate)
    else:
        work.queues.set_key("k", KeySettings(rate=rate), actor=OPERATOR)
    fill(work, ORG, 80, limit_key="k")
    running = fetcher(work)

    counts = []
    for seconds in (0, 0, 5.999, 0.001, 30, 3600, 0):
        clock.advance(seconds=seconds)
        counts.append(len(running.take(50)))

    assert counts == [10, 0, 0, 1, 5, 10, 0]
    assert min(tokens(work)) >= 0


def test_maintenance_is_bounded_and_rate_limited_from_the_start(
    work: Holdfast, clock: FakeClock
) -> None:
    fill(work, ORG, 260, "sweep")
    running, got = fetcher(work, "q:maintenance"), 0

    first = running.take(50)
    finish(work, first)
    for _ in range(62):
        claimed = running.take(50)
        got += len(claimed)
        finish(work, claimed)

    assert len(first) == 4
    assert len(first) + got == 240


def test_a_job_needs_a_token_of_its_queue_and_of_its_key(work: Holdfast) -> None:
    limit(work, rate=Rate(6, 60))
    work.queues.set_key("k", KeySettings(rate=Rate(2, 60)), actor=OPERATOR)
    fill(work, ORG, 10, limit_key="k")
    fill(work, ORG, 10)

    claimed = fetcher(work).take(20)

    assert Counter(job.limit_key for job in claimed) == {"k": 2, "": 4}


@pytest.mark.parametrize("change", [{"weight": 9}, {"max_running": 50}])
def test_another_setting_does_not_fill_the_bucket(work: Holdfast, change: dict[str, Any]) -> None:
    limit(work, rate=Rate(5, 60))
    fill(work, ORG, 20)
    first = fetcher(work).take(20)

    limit(work, rate=Rate(5, 60), **change)

    assert [len(first), len(fetcher(work).take(20))] == [5, 0]


@pytest.mark.req("B-05")
def test_another_rate_holds_at_once(work: Holdfast, clock: FakeClock) -> None:
    limit(work, rate=Rate(100, 10))
    fill(work, ORG, 200)
    running = fetcher(work)
    running.take(1)

    limit(work, rate=Rate(3, 10))
    slow = len(running.take(50)), len(running.take(50))
    limit(work, rate=None)
    free = len(running.take(50))

    assert (slow, free) == ((3, 0), 50)


def test_a_clock_that_was_set_back_neither_fills_nor_empties_a_bucket(
    url: str, clock: FakeClock
) -> None:
    with make_holdfast(url, clock) as hf:
        declare(hf)
        limit(hf, rate=Rate(10, 60))
        fill(hf, ORG, 40)
        clock.advance(hours=5)
        first = fetcher(hf).take(4)
        with make_holdfast(url, FakeClock(clock.now() - timedelta(hours=4))) as back:
            second = fetcher(back).take(20)
            third = fetcher(back).take(20)
        left = tokens(hf)

    assert [len(first), len(second), len(third)] == [4, 6, 0]
    assert min(left) >= 0


STEPS = st.lists(
    st.tuples(st.integers(0, 30_000), st.integers(1, 12), st.integers(0, 1)),
    min_size=1, max_size=12,
)  # fmt: skip


@pytest.mark.req("B-05")
@given(rate=st.tuples(st.integers(1, 20), st.integers(1, 60)), steps=STEPS)
@settings(
    deadline=None, max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@pytest.mark.parametrize("of", ["queue", "key"])
def test_over_any_time_no_more_starts_than_the_rate_and_one_burst(
    work: Holdfast,
    clock: FakeClock,
    of: str,
    rate: tuple[int, int],
    steps: list[tuple[int, int, int]],
) -> None:
    """Two workers that share a rate limit and claim at random times."""
    if not look(work.store, "SELECT id FROM holdfast.job LIMIT 1"):
        fill(work, ORG, 1_200, limit_key="k")
    own = Rate(*rate)
    if of == "queue":
        limit(work, rate=own)
    else:
        work.queues.set_key("k", KeySettings(rate=own), actor=OPERATOR)
    by_hand(work.store, f"UPDATE holdfast.{'queue' if of == 'queue' else 'limit_key'}"
            " SET refilled_at = NULL")  # fmt: skip
    workers: list[FairFetcher] = [fetcher(work, worker=f"w{number}") for number in range(2)]
    began, started = clock.now(), []

    for wait, wanted, worker in steps:
        clock.advance(milliseconds=wait)
        at = (clock.now() - began).total_seconds()
        started += [at] * len(workers[worker].take(wanted))
        assert min(tokens(work)) >= 0

    for first, begin in enumerate(started):
        for last in range(first, len(started)):
            allowed = own.count + own.count / own.seconds * (started[last] - begin)
            assert last - first + 1 <= allowed + 1e-6


def test_a_claim_touches_only_the_rules_of_keys_with_waiting_jobs(work: Holdfast) -> None:
    for number in range(20):
        work.queues.set_key(f"k{number}", KeySettings(rate=Rate(5, 60)), actor=OPERATOR)
    fill_with(work, ORG, [{"limit_key": "k3"}, {"limit_key": "k4"}])

    fetcher(work).take(5)

    touched = look(
        work.store,
        "SELECT name FROM holdfast.limit_key WHERE refilled_at IS NOT NULL ORDER BY name",
    )
    assert [row["name"] for row in touched] == ["k3", "k4"]


def test_a_bucket_that_is_looked_at_each_full_minute_gives_its_whole_rate(
    work: Holdfast, clock: FakeClock
) -> None:
    limit(work, rate=Rate(2, 60))
    fill(work, QUIET, 40)

    started = []
    for _ in range(15):
        started.append(len(fetcher(work).take(10)))
        clock.advance(minutes=1)

    assert started == [2] * 15


def test_code_writes_a_rate_as_the_file_does(hf: Holdfast) -> None:
    hf.queue("q:calls", rate="100/minute")

    assert hf.registry.queues["q:calls"].rate == Rate(100, 60)
    with pytest.raises(ConfigError, match="must be a rate"):
        hf.queue("q:more", rate="many")
