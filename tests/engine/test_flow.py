"""The flow of jobs: shares, caps, rates, pauses, depth and time, through the doors people use."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from datetime import timedelta

import pytest

from holdfast import Actor, Context, FakeClock, Holdfast, JobRequest
from holdfast.actor import ActorType
from holdfast.config import KeySettings, QueueSettings, Rate, TenantSettings
from holdfast.engine.audit import PLATFORM_ORG, subject_id, verify_seals
from holdfast.engine.claim import Order, claim_jobs
from holdfast.engine.intake import FairIntake
from holdfast.engine.job import Claimed
from holdfast.errors import ConfigError, InvalidJob, QueueFull, UnknownQueue
from holdfast.store import open_store
from tests.story import ORG, OTHER_ORG, look, make_holdfast, seal_all

BOSS = Actor(ActorType.USER, "boss")


@pytest.fixture
def shop(hf: Holdfast) -> Holdfast:
    hf.job("order.ship", slo=timedelta(seconds=5))(lambda job, payload: None)
    return hf


def intake(hf: Holdfast, *queues: str, lease_ms: int = 60_000) -> FairIntake:
    return FairIntake(hf.store, queues=queues or ("q:default",), worker_id="w", lease_ms=lease_ms)


def whose(claimed: list[Claimed]) -> Counter[str]:
    return Counter(job.org_id for job in claimed)


def flood(hf: Holdfast, many: int, org_id: str = ORG, **options: object) -> None:
    hf.enqueue_many("order.ship", [{"n": n} for n in range(many)], org_id=org_id, **options)  # type: ignore[arg-type]


# -- tenants


@pytest.mark.parametrize("priority", ["normal", "critical"])
def test_whoever_floods_a_quiet_tenant_is_in_the_next_claim(shop: Holdfast, priority: str) -> None:
    flood(shop, 600, priority=priority)
    flood(shop, 1, OTHER_ORG, priority="low")

    claimed = intake(shop).take(10)

    assert whose(claimed) == {ORG: 9, OTHER_ORG: 1}


def test_a_flood_that_comes_due_at_once_does_not_hide_a_quiet_tenants_retry(
    shop: Holdfast, clock: FakeClock
) -> None:
    flood(shop, 1_200, not_before_at=clock.now() + timedelta(seconds=5))
    flood(shop, 1, OTHER_ORG, not_before_at=clock.now() + timedelta(seconds=6))
    clock.advance(seconds=10)

    assert whose(intake(shop).take(10))[OTHER_ORG] == 1


def test_claims_of_one_visit_every_tenant_before_any_twice(shop: Holdfast) -> None:
    tenants = [str(uuid.UUID(int=number)) for number in range(1, 8)]
    for org_id in tenants:
        flood(shop, 3, org_id)
    taking = intake(shop)

    served = [job.org_id for _ in range(14) for job in taking.take(1)]

    assert Counter(served[:7]) == Counter(served[7:]) == Counter(tenants)


def test_a_thousand_tenants_each_get_one_before_the_flood_gets_the_rest(shop: Holdfast) -> None:
    tenants = [str(uuid.UUID(int=number)) for number in range(1, 1_001)]
    shop.enqueue_many("order.ship", [JobRequest({}, org_id=org_id) for org_id in tenants])
    flood(shop, 2_000)
    taking = intake(shop)

    served: Counter[str] = Counter()
    while sum(served.values()) < 1_400:
        served += whose(taking.take(100))

    assert all(served[org_id] == 1 for org_id in tenants)


@pytest.mark.parametrize("weight", [3, 10])
@pytest.mark.parametrize("size", [1, 7, 220])
def test_a_tenant_gets_as_much_more_as_its_weight(shop: Holdfast, weight: int, size: int) -> None:
    shop.queues.set_tenant(OTHER_ORG, TenantSettings(weight), actor=BOSS)
    for org_id in (ORG, OTHER_ORG):
        flood(shop, 450, org_id)
    taking = intake(shop)

    served: Counter[str] = Counter()
    while sum(served.values()) < 220:
        served += whose(taking.take(size))

    assert served[OTHER_ORG] == pytest.approx(served[ORG] * weight, abs=2 * weight)


def test_an_urgent_job_overtakes_a_backlog_but_not_for_ever(
    shop: Holdfast, clock: FakeClock
) -> None:
    old = shop.enqueue("order.ship", {"n": 0}, org_id=ORG, priority="low")
    clock.advance(hours=1, minutes=1)
    normal = shop.enqueue("order.ship", {"n": 1}, org_id=ORG)
    urgent = shop.enqueue("order.ship", {"n": 2}, org_id=ORG, priority="high")

    taken = [job.id for _ in range(3) for job in intake(shop).take(1)]

    assert taken == [urgent.id, old.id, normal.id]


# -- queues


@pytest.mark.req("Q-23")
@pytest.mark.parametrize(
    ("full", "other"), [("q:critical", "q:default"), ("q:default", "q:critical")]
)
def test_no_queue_starves_another(shop: Holdfast, full: str, other: str) -> None:
    flood(shop, 600, queue=full)
    flood(shop, 5, queue=other)

    claimed = intake(shop, "q:critical", "q:default").take(20)

    assert Counter(job.queue for job in claimed) == {full: 15, other: 5}


def test_busy_queues_share_by_weight(shop: Holdfast) -> None:
    for queue in ("q:critical", "q:default", "q:planning"):
        flood(shop, 300, queue=queue)
    taking = intake(shop, "q:critical", "q:default", "q:planning")

    served: Counter[str] = Counter()
    for _ in range(20):
        served += Counter(job.queue for job in taking.take(14))

    assert served["q:critical"] == pytest.approx(160, abs=8)
    assert served["q:default"] == pytest.approx(80, abs=8)


@pytest.mark.req("Q-15")
def test_a_queue_must_be_registered_and_then_works_like_ours(shop: Holdfast) -> None:
    with pytest.raises(InvalidJob, match=r"'q:reports' is not registered"):
        flood(shop, 1, queue="q:reports")

    shop.queue("q:reports", weight=2)
    flood(shop, 1, queue="q:reports")

    assert shop.worker().run_once().claimed == 1
    assert shop.queues.rules().queues["q:reports"].settings.weight == 2


# -- caps and rates


def test_a_cap_counts_live_leases_and_a_dead_worker_frees_it_with_its_lease(
    shop: Holdfast, clock: FakeClock
) -> None:
    shop.queues.set("q:default", QueueSettings(weight=4, max_running=3), actor=BOSS)
    flood(shop, 10)
    taking = intake(shop)

    assert len(taking.take(10)) == 3
    assert taking.take(10) == []
    clock.advance(seconds=61)
    assert len(taking.take(10)) == 3


def test_a_tenants_cap_holds_over_all_queues_and_a_queues_per_tenant(shop: Holdfast) -> None:
    shop.queues.set_tenant(ORG, TenantSettings(max_running=4), actor=BOSS)
    shop.queues.set("q:exports", QueueSettings(max_running_per_tenant=3), actor=BOSS)
    for queue in ("q:default", "q:exports"):
        for org_id in (ORG, OTHER_ORG):
            flood(shop, 10, org_id, queue=queue)

    claimed = intake(shop, "q:default", "q:exports").take(100)

    assert whose(claimed)[ORG] == 4
    assert Counter(j.queue for j in claimed if j.org_id == OTHER_ORG) == {
        "q:default": 10,
        "q:exports": 3,
    }


@pytest.mark.req("B-07")
def test_a_key_is_capped_across_tenants_and_queues_and_stands_in_nobodys_way(
    shop: Holdfast,
) -> None:
    shop.queues.set_key("provider:x", KeySettings(max_running=2), actor=BOSS)
    flood(shop, 300, limit_key="provider:x")
    flood(shop, 5, OTHER_ORG, limit_key="provider:x", queue="q:exports")
    flood(shop, 5, OTHER_ORG)

    claimed = intake(shop, "q:default", "q:exports").take(50)

    assert Counter(job.limit_key for job in claimed) == {"provider:x": 2, "": 5}


@pytest.mark.req("B-05")
def test_a_rate_lets_a_burst_through_and_then_its_pace(shop: Holdfast, clock: FakeClock) -> None:
    shop.queues.set("q:default", QueueSettings(rate=Rate(6, 60)), actor=BOSS)
    flood(shop, 50)
    taking = intake(shop)

    assert len(taking.take(50)) == 6
    clock.advance(seconds=9)
    assert taking.take(50) == []
    clock.advance(seconds=11)
    assert len(taking.take(50)) == 2
    clock.advance(hours=5)
    assert len(taking.take(50)) == 6


@pytest.mark.req("Q-13")
def test_maintenance_is_capped_and_rated_from_the_start(hf: Holdfast, clock: FakeClock) -> None:
    hf.job("clean.up", category="maintenance")(lambda job, payload: None)
    hf.enqueue_many("clean.up", [{"n": n} for n in range(400)], org_id=ORG)
    worker, done = hf.worker(queues=["q:maintenance"]), 0
    assert len(intake(hf, "q:maintenance").take(50)) == 4, "so many at once"
    clock.advance(seconds=61)
    for _ in range(200):
        done += worker.run_once().claimed

    assert done <= 240, "so many a minute"


def test_two_workers_at_the_same_instant_do_not_pass_a_cap(url: str) -> None:
    with make_holdfast(url) as hf:
        hf.job("order.ship")(lambda job, payload: None)
        hf.queues.set("q:default", QueueSettings(max_running=5), actor=BOSS)
        flood(hf, 60)
        start, claimed = threading.Barrier(6), []

        def take() -> None:
            store = open_store(url, clock=hf.clock)
            own = FairIntake(store, queues=["q:default"], worker_id="w", lease_ms=60_000)
            start.wait()
            claimed.extend(own.take(20))
            store.close()

        threads = [threading.Thread(target=take) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)

        assert len(claimed) == 5


# -- pause, depth, order


def test_a_pause_holds_from_its_commit_and_is_audited_with_its_reason(shop: Holdfast) -> None:
    flood(shop, 4)
    taking = intake(shop)
    assert len(taking.take(1)) == 1

    assert shop.queues.pause("q:default", reason="the provider is down", actor=BOSS)
    assert taking.take(10) == []
    assert not shop.queues.pause("q:default", reason="again", actor=BOSS)
    assert shop.queues.resume("q:default", reason="it is back", actor=BOSS)
    assert len(taking.take(10)) == 3

    rows = look(
        shop.store,
        "SELECT name, actor_id FROM holdfast.job_event WHERE job_id = :id ORDER BY id",
        id=subject_id("queue:q:default"),
    )
    assert [tuple(row.values()) for row in rows] == [
        ("queue.paused", "boss"),
        ("queue.resumed", "boss"),
    ]
    seal_all(shop.store)
    assert verify_seals(shop.store, PLATFORM_ORG) == []


def test_a_pause_needs_a_reason_and_a_queue(shop: Holdfast) -> None:
    with pytest.raises(ConfigError, match="Say why"):
        shop.queues.pause("q:default", reason="  ", actor=BOSS)
    with pytest.raises(UnknownQueue, match="q:nope"):
        shop.queues.pause("q:nope", reason="x", actor=BOSS)


def test_a_full_queue_refuses_all_or_nothing_and_still_knows_its_keys(shop: Holdfast) -> None:
    shop.queues.set("q:default", QueueSettings(max_depth=5), actor=BOSS)
    shop.enqueue("order.ship", {"n": 0}, org_id=ORG, idempotency_key="k")
    flood(shop, 3)
    requests = [
        JobRequest({"n": 1}, org_id=ORG, queue="q:exports"),
        JobRequest({"n": 2}, org_id=ORG),
        JobRequest({"n": 3}, org_id=ORG),
    ]

    with pytest.raises(QueueFull, match="q:default is full"):
        flood(shop, 2)
    with pytest.raises(QueueFull):
        shop.enqueue_many("order.ship", requests)
    flood(shop, 1)
    again = shop.enqueue("order.ship", {"n": 0}, org_id=ORG, idempotency_key="k")

    assert not again.created
    assert look(shop.store, "SELECT count(*) AS n FROM holdfast.job")[0]["n"] == 5


def test_a_tenants_depth_is_its_own(shop: Holdfast) -> None:
    shop.queues.set("q:default", QueueSettings(max_depth_per_tenant=2), actor=BOSS)
    flood(shop, 2)

    with pytest.raises(QueueFull):
        flood(shop, 1)
    flood(shop, 2, OTHER_ORG)


@pytest.mark.req("B-10")
def test_created_at_asc_takes_the_oldest_whoevers_and_however_urgent(
    shop: Holdfast, clock: FakeClock
) -> None:
    expected = []
    for number in range(8):
        org_id = ORG if number % 3 else OTHER_ORG
        priority = ["low", "critical", "normal"][number % 3]
        job = shop.enqueue("order.ship", {"n": number}, org_id=org_id, priority=priority)
        expected.append(job.id)
        clock.advance(seconds=1)

    claimed = claim_jobs(
        shop.store, queue="q:default", worker_id="w", limit=5, lease_ms=60_000,
        order=Order.CREATED_AT_ASC,
    )  # fmt: skip

    assert [job.id for job in claimed] == expected[:5]


# -- time


@pytest.mark.req("T-01", "T-02", "Q-17", "Q-20")
def test_a_delayed_notification_waits_on_maintenance_and_is_delivered_on_its_own_queue(
    hf: Holdfast, clock: FakeClock
) -> None:
    seen: list[str] = []

    @hf.job("mail.send", category="notification")
    def send(job: Context, payload: object) -> None:
        seen.append(job.job.queue)

    due = clock.now() + timedelta(minutes=5)
    enqueued = hf.enqueue("mail.send", {}, org_id=ORG, scheduled_for=due)
    waiting = hf.get(enqueued.id, org_id=ORG)
    worker = hf.worker(queues=["q:notifications"])
    clock.advance(minutes=4, seconds=59)
    worker.run_once()
    early = list(seen)
    clock.advance(seconds=1)
    worker.run_once()

    assert (waiting.queue, waiting.origin_queue) == ("q:maintenance", "q:notifications")
    assert waiting.record["scheduled_for"] == due
    assert early == []
    assert seen == ["q:notifications"]


@pytest.mark.req("T-01")
@pytest.mark.parametrize("category", ["general", "export", "planning", "audit_enrichment"])
def test_only_maintenance_and_notifications_may_be_scheduled(
    hf: Holdfast, clock: FakeClock, category: str
) -> None:
    hf.job("some.work", category=category)(lambda job, payload: None)

    with pytest.raises(InvalidJob, match="only for maintenance jobs and delayed notifications"):
        hf.enqueue("some.work", {}, org_id=ORG, scheduled_for=clock.now() + timedelta(hours=1))
