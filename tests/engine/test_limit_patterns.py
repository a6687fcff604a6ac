"""A limit that is declared once and applies to each key with a prefix."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any

import pytest

from holdfast import FakeClock, Holdfast, InvalidJob, KeySettings
from holdfast.clock import SystemClock
from holdfast.config import Settings
from holdfast.engine.claim import Order, claim_jobs
from holdfast.engine.fairness import Capacity, RoundRobinCursor, TenantBacklog, allocate
from holdfast.engine.job import SYSTEM, Completed
from holdfast.engine.limits import sync_rules
from holdfast.engine.settle import settle
from holdfast.errors import ConfigError
from tests.engine.test_unique import is_clean
from tests.story import ORG, claim, look, make_holdfast

TYPE = "invoice.sync"


@pytest.fixture
def work(hf: Holdfast) -> Holdfast:
    hf.limit_key("customer:*", max_running=1)
    hf.job(TYPE, limit_key="customer:{customer}")(lambda job, payload: None)
    hf.worker()
    return hf


def put(hf: Holdfast, customer: Any, **options: Any) -> Any:
    return hf.enqueue(TYPE, {"customer": customer}, org_id=ORG, **options)


def keys(claimed: list[Any]) -> list[str]:
    return sorted(job.limit_key for job in claimed)


@pytest.mark.parametrize("order", list(Order))
def test_each_key_runs_one_job_at_a_time(work: Holdfast, order: Order) -> None:
    for customer in (1, 1, 1, 2, 2, 3):
        put(work, customer)

    def take() -> list[Any]:
        return claim_jobs(
            work.store, queue="q:default", worker_id="w", limit=10, lease_ms=60_000, order=order
        )

    first = take()
    assert keys(first) == ["customer:1", "customer:2", "customer:3"]
    assert take() == []
    settle(work.store, [(job, Completed()) for job in first[:2]], actor=SYSTEM)
    assert keys(take()) == keys(first[:2])
    assert is_clean(work)


def test_a_rule_of_its_own_and_a_longer_pattern_win(hf: Holdfast) -> None:
    hf.limit_key("customer:*", max_running=1)
    hf.limit_key("customer:big:*", max_running=2)
    hf.limit_key("customer:big:7", max_running=3)
    hf.job(TYPE)(lambda job, payload: None)
    hf.worker()
    for key in ("customer:1", "customer:big:1", "customer:big:7", "other"):
        for _ in range(5):
            hf.enqueue(TYPE, {}, org_id=ORG, limit_key=key)

    counts = Counter(keys(claim(hf, limit=50)))

    assert counts == {"customer:1": 1, "customer:big:1": 2, "customer:big:7": 3, "other": 5}


def test_two_workers_at_once_never_run_two_jobs_of_a_key(url: str) -> None:
    running: Counter[str] = Counter()
    most: Counter[str] = Counter()
    lock = threading.Lock()

    with Holdfast(settings=Settings(db=url), clock=SystemClock()) as hf:
        hf.limit_key("customer:*", max_running=1)

        @hf.job(TYPE, limit_key="customer:{customer}")
        def sync(job: Any, payload: dict[str, Any]) -> None:
            key = str(payload["customer"])
            with lock:
                running[key] += 1
                most[key] = max(most[key], running[key])
            time.sleep(0.002)
            with lock:
                running[key] -= 1

        for number in range(60):
            put(hf, number % 5)
        workers = [hf.worker(concurrency=4) for _ in range(3)]
        threads = [threading.Thread(target=one.run, kwargs={"until_idle": True}) for one in workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        hf.worker().run(until_idle=True)

        assert set(most.values()) == {1}
        rows = look(hf.store, "SELECT count(*) AS n FROM holdfast.job WHERE state = 'completed'")
        assert rows == [{"n": 60}]


def test_the_rule_comes_from_settings_or_an_operator_too(url: str, clock: FakeClock) -> None:
    hf = make_holdfast(url, clock, keys={"customer:*": KeySettings(max_running=2)})
    hf.job(TYPE, limit_key="customer:{customer}")(lambda job, payload: None)
    sync_rules(hf.store, hf.settings, {})
    for _ in range(5):
        put(hf, 1)
    first = claim(hf, limit=10)
    assert len(first) == 2

    operator = hf.operate(actor="user:ann", role="admin")
    operator.limit_keys.set("customer:*", max_running=3, reason="more capacity")
    assert len(claim(hf, limit=10)) == 1
    hf.close()


def test_a_pattern_takes_no_rate(hf: Holdfast) -> None:
    with pytest.raises(ConfigError, match="no rate"):
        hf.limit_key("customer:*", rate="10/minute")
    with pytest.raises(ConfigError, match="has no 'weight'"):
        hf.limit_key("customer:*", weight=3)  # type: ignore[call-arg]
    with pytest.raises(ConfigError):
        hf.limit_key("cust*omer", max_running=1)


@pytest.mark.parametrize("payload", [{}, {"customer": None}, {"customer": ""}, {"customer": True}])
def test_a_payload_without_the_field_of_the_key_is_refused(
    work: Holdfast, payload: dict[str, Any]
) -> None:
    with pytest.raises(InvalidJob) as refused:
        work.enqueue(TYPE, payload, org_id=ORG)

    assert "limit_key" in refused.value.fields


@pytest.mark.parametrize("key", ["{", "{0}", "{a.b}", "{a!r}", 7, ""])
def test_a_key_that_cannot_be_made_is_refused_when_it_is_declared(hf: Holdfast, key: Any) -> None:
    with pytest.raises(ConfigError, match="limit_key="):
        hf.job(TYPE, limit_key=key)(lambda job, payload: None)


def test_a_unique_key_is_made_from_the_payload(hf: Holdfast) -> None:
    hf.job(TYPE, unique_key="customer:{customer}")(lambda job, payload: None)

    assert put(hf, 1).created
    assert not put(hf, 1).created
    assert put(hf, 2).created
    assert put(hf, 1, idempotency_key="mine").created


def test_dividing_a_claim_over_ten_thousand_keys_is_linear() -> None:
    def seconds(count: int) -> float:
        backlogs = [TenantBacklog("q:default", f"customer:{n}", ORG, 1, 1) for n in range(count)]
        capacity = Capacity(100, {f"customer:{n}": 1 for n in range(count)}, 10**9, {})
        began = time.process_time()
        allocate(backlogs, 100, capacity, RoundRobinCursor())
        return time.process_time() - began

    seconds(100)
    # Quadratic work would be a hundred times as much for ten times as many keys.
    assert min(seconds(10_000) for _ in range(3)) < 40 * min(seconds(1_000) for _ in range(3))
