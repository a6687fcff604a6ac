"""Fairness between tenants and between queues, and the ageing of priorities."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from holdfast import FakeClock, Holdfast, JobRequest, Priority, Settings
from holdfast.config import KeySettings, QueueSettings, TenantSettings
from holdfast.engine.claim import Order, claim_jobs
from holdfast.engine.job import SYSTEM, Completed, Retry
from holdfast.engine.settle import settle
from tests.engine.flood import (
    NOISY,
    OPERATOR,
    QUEUE,
    QUIET,
    by_queue,
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
from tests.engine.test_settle import FAULT
from tests.rows import refused_by
from tests.story import ORG, OTHER_ORG, look, make_holdfast

# More tenants or units than a poll reads, and fewer jobs than it counts.
MANY = 90


@pytest.fixture(autouse=True)
def _narrow_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow_looks(monkeypatch)


@pytest.fixture
def work(hf: Holdfast) -> Holdfast:
    return declare(hf)


def oldest(hf: Holdfast, limit: int, **options: Any) -> list[Any]:
    return claim_jobs(
        hf.store, queue=QUEUE, worker_id="w1", limit=limit, lease_ms=60_000,
        order=Order.CREATED_AT_ASC, **options,
    )  # fmt: skip


def test_a_fetcher_that_is_notified_looks_before_it_claims(
    work: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(work, NOISY, 50)
    mine = fetcher(work)
    mine.take(2)
    fill(work, QUIET, 1)
    # As with a real clock, on which the next poll is not due yet.
    monkeypatch.setattr(FakeClock, "is_fake", False)
    monkeypatch.setattr(mine, "_look_at", float("inf"))

    assert by_tenant(mine.take(2)) == {NOISY: 2}
    mine.hear()
    assert by_tenant(mine.take(2)) == {NOISY: 1, QUIET: 1}


def test_many_busy_queues_are_one_claim_and_those_with_limits_one_each(
    work: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues = [f"q:own{number}" for number in range(10)]
    for queue in queues:
        work.queue(queue, max_running=1 if queue == "q:own3" else None)
        fill(work, tenant(1), 4, queue=queue)
    work.worker(queues=queues)
    mine = fetcher(work, *queues)
    written: list[str] = []
    for name in ("write", "write_one"):
        genuine = getattr(work.store, name)
        monkeypatch.setattr(
            work.store,
            name,
            lambda step, name=name, do=genuine: (written.append(name), do(step))[1],
        )

    claimed = mine.take(40)

    assert by_queue(claimed) == {queue: 1 if queue == "q:own3" else 4 for queue in queues}
    assert Counter(written)["write_one"] < len(queues)


# -- floods of one tenant


def flood_fresh(hf: Holdfast, clock: FakeClock) -> None:
    fill(hf, NOISY, MANY)
    hf.enqueue("work", {}, org_id=QUIET)


def flood_priorities(hf: Holdfast, clock: FakeClock) -> None:
    fill(hf, NOISY, MANY, priority=Priority.CRITICAL)
    hf.enqueue("work", {}, org_id=QUIET, priority=Priority.LOW)


def flood_deferred(hf: Holdfast, clock: FakeClock) -> None:
    """More jobs become due at once than two passes promote, all before the quiet tenant's."""
    due = clock.now() + timedelta(hours=1)
    fill(hf, NOISY, 250, not_before_at=due)
    hf.enqueue("work", {}, org_id=QUIET, not_before_at=due + timedelta(milliseconds=1))
    clock.advance(hours=2)


def flood_keys(hf: Holdfast, clock: FakeClock) -> None:
    """More keys than a worker reads at once, all of them before the quiet tenant's key."""
    fill_with(hf, NOISY, [{"limit_key": f"k{n:04d}"} for n in range(48)])
    hf.enqueue("work", {}, org_id=QUIET)


def flood_keys_beside_a_real_one(hf: Holdfast, clock: FakeClock) -> None:
    fill_with(hf, NOISY, [{"limit_key": f"k{n:04d}"} for n in range(48)])
    hf.queues.set_key("zz/provider", KeySettings(max_running=100), actor=OPERATOR)
    hf.enqueue("work", {}, org_id=QUIET, limit_key="zz/provider")


def flood_units(hf: Holdfast, clock: FakeClock) -> None:
    fill_with(hf, NOISY, [{"unit_key": f"unit-{n}"} for n in range(MANY)])
    hf.enqueue("work", {}, org_id=QUIET, unit_key="unit-1")


def flood_projects(hf: Holdfast, clock: FakeClock) -> None:
    fill_with(hf, NOISY, [{"project_id": tenant(n)} for n in range(MANY)])
    hf.enqueue("work", {}, org_id=QUIET)


FLOODS = [
    flood_fresh, flood_priorities, flood_deferred, flood_keys, flood_keys_beside_a_real_one,
    flood_units, flood_projects,
]  # fmt: skip


@pytest.mark.parametrize("flood", FLOODS, ids=lambda flood: flood.__name__.removeprefix("flood_"))
@pytest.mark.parametrize("limit", [2, 30])
def test_a_quiet_tenant_is_served_in_the_next_claim_whatever_another_floods(
    work: Holdfast, clock: FakeClock, flood: Callable[[Holdfast, FakeClock], None], limit: int
) -> None:
    flood(work, clock)

    claimed = fetcher(work).take(limit)

    assert len(claimed) == limit
    assert by_tenant(claimed)[QUIET] == 1


def test_a_quiet_tenant_is_served_by_a_worker_that_has_been_busy_with_the_flood(
    work: Holdfast,
) -> None:
    fill(work, NOISY, MANY)
    busy = fetcher(work)
    for _ in range(5):
        busy.take(15)

    work.enqueue("work", {}, org_id=QUIET)

    assert by_tenant(busy.take(2)) == {NOISY: 1, QUIET: 1}


def test_a_quiet_tenant_under_a_key_of_its_own_is_found_behind_many_made_up_ones(
    work: Holdfast,
) -> None:
    # The keys that a worker reads rotate too: a key without a rule is found a little later.
    fill_with(work, NOISY, [{"limit_key": f"k{n:04d}"} for n in range(48)])
    work.enqueue("work", {}, org_id=QUIET, limit_key="zz")
    running = fetcher(work)

    taken = running.take(5) + running.take(5)

    assert by_tenant(taken)[QUIET] == 1


@pytest.mark.parametrize("keys", [16, 48])
def test_many_keys_on_one_queue_do_not_hide_another_queue(work: Holdfast, keys: int) -> None:
    fill_with(work, NOISY, [{"limit_key": f"k{n:04d}"} for n in range(keys)])
    fill(work, QUIET, 1, "tell")

    claimed = fetcher(work, QUEUE, "q:notifications").take(5)

    assert by_tenant(claimed)[QUIET] == 1


def test_a_worker_runs_a_quiet_tenants_job_among_the_first(work: Holdfast) -> None:
    order: list[str] = []
    work.job("note")(lambda job, payload: order.append(job.org_id))
    fill(work, NOISY, 50, "note")
    work.enqueue("note", {}, org_id=QUIET)

    work.worker(concurrency=1).run(until_idle=True)

    assert len(order) == 51
    assert order.index(QUIET) <= 2


def test_a_row_that_breaks_a_rule_does_not_let_the_flood_through(work: Holdfast) -> None:
    fill(work, NOISY, MANY)
    broken, fine = (work.enqueue("work", {}, org_id=QUIET) for _ in range(2))
    plant(
        work, "UPDATE holdfast.job_envelope SET max_attempts = 0 WHERE id = :id",
        id=broken.id,
    )  # fmt: skip

    claimed = fetcher(work).take(4)

    assert {broken.id, fine.id} <= {job.id for job in claimed}
    assert by_tenant(claimed)[NOISY] <= 2


# -- many tenants


def test_of_many_tenants_each_gets_one_before_any_gets_two(work: Holdfast) -> None:
    fill_tenants(work, 120, 2)
    running, got = fetcher(work), Counter[str]()

    for _ in range(20):
        got += by_tenant(running.take(6))

    assert len(got) == 120
    assert set(got.values()) == {1}


def test_a_claim_larger_than_a_look_gives_each_one_before_any_gets_two(
    work: Holdfast,
) -> None:
    fill_tenants(work, 75, 4)
    running, got = fetcher(work), Counter[str]()

    got += by_tenant(running.take(50))
    got += by_tenant(running.take(25))

    assert len(got) == 75


def test_claims_of_one_visit_all_tenants_also_beyond_one_look(work: Holdfast) -> None:
    fill_tenants(work, 36, 2)
    running = fetcher(work)

    got = by_tenant([job for _ in range(36) for job in running.take(1)])

    assert len(got) == 36


def test_claims_between_two_looks_take_turns_too(url: str) -> None:
    with Holdfast(settings=Settings(db=url)) as hf:
        declare(hf)
        fill_tenants(hf, 10, 5)
        running = fetcher(hf)
        first = running.take(1)
        # With the real clock one poll serves several claims; here it serves all that follow.
        running._look_at = float("inf")

        got = by_tenant(first + [job for _ in range(19) for job in running.take(1)])

    assert got == {tenant(number): 2 for number in range(10)}


def test_a_look_that_is_used_up_is_followed_by_another(url: str) -> None:
    with Holdfast(settings=Settings(db=url)) as hf:
        declare(hf)
        # More jobs than a poll reads, and more tenants than those it reads many jobs of.
        fill(hf, NOISY, 300)
        fill_tenants(hf, 40, 1)
        running = fetcher(hf)

        counts = [len(running.take(50)) for _ in range(6)]

    assert counts == [50] * 6


def test_a_flood_beyond_one_look_does_not_keep_the_look_where_it_is(work: Holdfast) -> None:
    # The noisy tenant has the most jobs in every claim, the others always have one.
    fill_tenants(work, 38, 1)
    fill(work, NOISY, 500)
    running, got = fetcher(work), Counter[str]()

    for _ in range(4):
        claimed = running.take(38)
        got += by_tenant(claimed)
        served = by_tenant(claimed).keys() - {NOISY}
        work.enqueue_many("work", [JobRequest({}, org_id) for org_id in sorted(served)])

    assert len(got) == 39


def test_a_worker_that_starts_again_for_every_claim_leaves_no_tenant_out(
    work: Holdfast, clock: FakeClock
) -> None:
    # A served tenant has its next job at once, and precedes the quiet one by its id.
    for number in range(3):
        fill(work, tenant(number), 4)
    clock.advance(seconds=1)
    work.enqueue("work", {}, org_id=QUIET)
    served = []

    while QUIET not in served:
        (job,) = fetcher(work).take(1)
        served.append(job.org_id)
        clock.advance(seconds=1)
        fill(work, job.org_id, 1)

    assert len(served) <= 13


@pytest.mark.req("Q-23")
def test_short_runs_beside_a_flood_leave_no_tenant_out(work: Holdfast, clock: FakeClock) -> None:
    # The flood always has the oldest job and the lowest id.
    quiet = [tenant(number) for number in range(1, 21)]
    fill(work, tenant(0), 100)
    clock.advance(seconds=1)
    for org_id in quiet:
        fill(work, org_id, 1)
    served: Counter[str] = Counter()

    for _ in range(10):
        running = fetcher(work)
        claimed = running.take(5)
        running.close()
        served += by_tenant(claimed)
        for org_id in by_tenant(claimed).keys() - {tenant(0)}:
            fill(work, org_id, 1)

    assert set(served) == {tenant(0), *quiet}
    assert max(served.values()) - min(served.values()) <= 1


def test_claims_without_a_fetcher_continue_where_the_last_one_ended(work: Holdfast) -> None:
    for number in range(3):
        fill(work, tenant(number), 4)

    served = [
        job.org_id
        for _ in range(6)
        for job in claim_jobs(work.store, queue=QUEUE, worker_id="w", limit=1, lease_ms=60_000)
    ]

    assert Counter(served) == {tenant(number): 2 for number in range(3)}


@pytest.mark.parametrize("limit", [1, 7, 40])
@pytest.mark.parametrize("heavy", [3, 10])
def test_tenants_share_by_weight_whatever_the_size_of_a_claim(
    work: Holdfast, heavy: int, limit: int
) -> None:
    work.queues.set_tenant(OTHER_ORG, TenantSettings(weight=heavy), actor=OPERATOR)
    fill(work, ORG, 150)
    fill(work, OTHER_ORG, 150)
    running, got = fetcher(work), Counter[str]()

    while sum(got.values()) < 110:
        got += by_tenant(running.take(limit))

    assert abs(got[ORG] - sum(got.values()) / (1 + heavy)) <= heavy


def test_slots_that_a_short_backlog_does_not_need_go_to_the_others(work: Holdfast) -> None:
    fill(work, NOISY, 100)
    fill(work, ORG, 3)
    fill(work, QUIET, 1)

    claimed = fetcher(work).take(50)

    assert by_tenant(claimed) == {NOISY: 46, ORG: 3, QUIET: 1}


def test_two_workers_that_claim_in_turn_are_fair_together(work: Holdfast) -> None:
    fill(work, NOISY, 100)
    fill(work, ORG, 100)
    workers = [fetcher(work, worker=f"w{number}") for number in range(2)]

    got = by_tenant([job for _ in range(20) for each in workers for job in each.take(2)])

    assert got == {NOISY: 40, ORG: 40}


def test_workers_that_claim_at_the_same_time_take_every_job_once(
    url: str, clock: FakeClock
) -> None:
    count = 4
    with make_holdfast(url, clock) as hf:
        declare(hf)
        fill_tenants(hf, 40, 10)
        taken: list[list[str]] = [[] for _ in range(count)]
        start = threading.Barrier(count)

        def work(number: int) -> None:
            with make_holdfast(url, clock) as mine:
                running = fetcher(mine, worker=f"w{number}")
                start.wait()
                while claimed := running.take(13):
                    taken[number] += [job.id for job in claimed]

        threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        # The next poll finds a job that was skipped while another worker had locked its row.
        rest = [job.id for job in fetcher(hf).take(400)]

    everything = [job_id for mine in taken for job_id in mine] + rest
    assert len(everything) == len(set(everything)) == 400


# -- queues


@pytest.mark.req("Q-23")
@pytest.mark.parametrize("quiet", ["rush", "work"])
@pytest.mark.parametrize("limit", [2, 30])
def test_no_queue_starves_another(work: Holdfast, quiet: str, limit: int) -> None:
    noisy = "work" if quiet == "rush" else "rush"
    fill(work, NOISY, 300, noisy)
    running = fetcher(work, "q:critical", QUEUE)
    for _ in range(3):
        running.take(limit)

    work.enqueue(quiet, {}, org_id=NOISY)
    claimed = running.take(limit) + running.take(limit)

    assert quiet in {job.job_type for job in claimed}


@pytest.mark.req("Q-23")
@pytest.mark.parametrize("limit", [1, 30])
def test_busy_queues_share_a_worker_by_weight(work: Holdfast, limit: int) -> None:
    fill(work, ORG, 300, "rush")
    fill(work, ORG, 300)
    running, got = fetcher(work, QUEUE, "q:critical"), Counter[str]()

    while sum(got.values()) < 120:
        got += by_queue(running.take(limit))

    assert abs(got["q:critical"] - 80) <= 8
    assert abs(got[QUEUE] - 40) <= 8


def test_a_queue_that_was_empty_has_saved_nothing_up(work: Holdfast) -> None:
    work.queue("q:a")
    work.queue("q:b")
    work.worker()
    fill(work, ORG, 400, queue="q:a")
    running = fetcher(work, "q:a", "q:b")
    for _ in range(20):
        running.take(10)

    fill(work, ORG, 400, queue="q:b")
    got = by_queue([job for _ in range(10) for job in running.take(10)])

    assert abs(got["q:a"] - got["q:b"]) <= 4


@pytest.mark.req("Q-23")
def test_fifty_busy_queues_are_all_served(work: Holdfast) -> None:
    queues = [f"q:team{number}" for number in range(50)]
    for queue in queues:
        work.queue(queue)
    work.worker()
    for queue in queues:
        fill(work, ORG, 20, queue=queue)
    running = fetcher(work, *queues)

    got = by_queue([job for _ in range(6) for job in running.take(100)])

    assert set(got) == set(queues)
    assert max(got.values()) - min(got.values()) <= 14


# -- priorities age


@pytest.mark.parametrize(("minutes", "overtakes"), [(59, True), (61, False)])
def test_a_low_job_is_overtaken_only_by_what_came_within_what_a_step_is_worth(
    work: Holdfast, clock: FakeClock, minutes: int, overtakes: bool
) -> None:
    low = work.enqueue("work", {}, org_id=ORG, priority=Priority.LOW)
    clock.advance(minutes=minutes)
    normal = work.enqueue("work", {}, org_id=ORG)

    (first,) = fetcher(work).take(1)

    assert first.id == (normal.id if overtakes else low.id)


@pytest.mark.parametrize(("minutes", "overtakes"), [(0, True), (119, True), (121, False)])
def test_a_critical_job_jumps_the_backlog_of_two_hours_and_no_more(
    work: Holdfast, clock: FakeClock, minutes: int, overtakes: bool
) -> None:
    fill(work, ORG, 50)
    clock.advance(minutes=minutes)
    critical = work.enqueue("work", {}, org_id=ORG, priority=Priority.CRITICAL)

    (first,) = fetcher(work).take(1)

    assert (first.id == critical.id) is overtakes


def test_what_a_step_is_worth_can_be_set(url: str, clock: FakeClock) -> None:
    with make_holdfast(url, clock, ageing_seconds=10.0) as hf:
        declare(hf)
        low = hf.enqueue("work", {}, org_id=ORG, priority=Priority.LOW)
        clock.advance(seconds=11)
        hf.enqueue("work", {}, org_id=ORG)

        (first,) = fetcher(hf).take(1)

    assert first.id == low.id


def test_within_a_tenant_jobs_come_in_the_order_of_their_turns(
    work: Holdfast, clock: FakeClock
) -> None:
    priorities = [Priority.LOW, Priority.NORMAL, Priority.CRITICAL, Priority.HIGH]
    for at in range(24):
        work.enqueue("work", {"at": at}, org_id=ORG, priority=priorities[at * 7 % 4])
        clock.advance(minutes=13)
    expected = [
        row["id"] for row in look(work.store, "SELECT id FROM holdfast.job ORDER BY turn, id")
    ]
    running = fetcher(work)

    order = [job.id for _ in range(8) for job in running.take(3)]

    assert order == expected
    assert order != sorted(order)


def test_a_retry_keeps_the_turn_it_had(work: Holdfast, clock: FakeClock) -> None:
    work.enqueue("work", {}, org_id=ORG, priority=Priority.HIGH)
    (first,) = fetcher(work).take(1)
    settle(work.store, [(first, Retry(FAULT, 1_000))], actor=SYSTEM)
    clock.advance(seconds=2)
    work.enqueue("work", {}, org_id=ORG)

    (again,) = fetcher(work).take(1)

    assert (again.id, again.position) == (first.id, first.position)


@pytest.mark.parametrize(
    "change",
    [
        "job_ready SET turn = '0198c0de-0000-7000-8000-000000000001'",
        "job_ready SET limit_key = 'another'",
        "job_envelope SET turn = '0198c0de-0000-7000-8000-000000000001'",
        "job_envelope SET limit_key = 'another'",
    ],
)
def test_the_database_refuses_to_move_a_job_to_another_service(work: Holdfast, change: str) -> None:
    work.enqueue("work", {}, org_id=ORG)

    assert refused_by(work, f"UPDATE holdfast.{change}") in (
        "job_ready_follows", "job_ready_write_once", "job_envelope_never_changes",
    )  # fmt: skip


# -- strictly the oldest first


@pytest.mark.req("B-10")
def test_the_oldest_goes_first_whatever_its_tenant_priority_and_key(
    work: Holdfast, clock: FakeClock
) -> None:
    expected = []
    for at in range(30):
        made = work.enqueue(
            "work", {}, org_id=tenant(at * 7 % 5), limit_key=[None, "k", "l"][at % 3],
            priority=[Priority.LOW, Priority.CRITICAL, Priority.NORMAL][at * 5 % 3],
        )  # fmt: skip
        expected.append(made.id)
        clock.advance(seconds=1)

    order = [job.id for limit in (1, 9, 20) for job in oldest(work, limit)]

    assert order == expected


@pytest.mark.req("B-10")
def test_the_oldest_that_may_run_goes_first_under_caps_and_keys(
    work: Holdfast, clock: FakeClock
) -> None:
    work.queues.set_tenant(ORG, TenantSettings(max_running=2), actor=OPERATOR)
    work.queues.set_key("k", KeySettings(max_running=1), actor=OPERATOR)
    made = {}
    for name, org_id, key in [
        ("a1", ORG, None), ("a2", ORG, None), ("a3", ORG, None), ("k1", QUIET, "k"),
        ("k2", QUIET, "k"), ("b1", QUIET, None), ("b2", QUIET, None),
    ]:  # fmt: skip
        made[work.enqueue("work", {}, org_id=org_id, limit_key=key).id] = name
        clock.advance(seconds=1)

    order = []
    while claimed := oldest(work, 2):
        order += [made[job.id] for job in claimed]

    assert order == ["a1", "a2", "k1", "b1", "b2"]


@pytest.mark.req("B-10")
def test_a_job_that_is_due_again_has_the_place_of_its_age(work: Holdfast, clock: FakeClock) -> None:
    first = work.enqueue("work", {}, org_id=ORG, not_before_at=clock.now() + timedelta(minutes=5))
    clock.advance(seconds=1)
    second = work.enqueue("work", {}, org_id=ORG)
    clock.advance(minutes=6)

    assert [job.id for job in oldest(work, 5)] == [first.id, second.id]


@pytest.mark.req("B-08")
def test_a_claim_that_does_not_respect_the_time_takes_early_ones_too(
    work: Holdfast, clock: FakeClock
) -> None:
    later = clock.now() + timedelta(days=1)
    early = work.enqueue("work", {}, org_id=ORG, not_before_at=later, limit_key="only/early")
    clock.advance(seconds=1)
    due = work.enqueue("work", {}, org_id=ORG)

    respectful = oldest(work, 5)
    settle(work.store, [(job, Completed()) for job in respectful], actor=SYSTEM)
    others = oldest(work, 5, respect_not_before_at=False)

    assert [job.id for job in respectful] == [due.id]
    assert [job.id for job in others] == [early.id]


@pytest.mark.req("B-10")
def test_a_broken_row_changes_neither_the_order_nor_what_may_be_claimed(
    work: Holdfast, clock: FakeClock
) -> None:
    work.job("other")(lambda job, payload: None)
    work.queues.set_tenant(ORG, TenantSettings(max_running=2), actor=OPERATOR)
    made = []
    for job_type in ("work", "work", "other", "work", "work"):
        made.append(work.enqueue(job_type, {}, org_id=ORG, priority=Priority.NORMAL).id)
        clock.advance(seconds=1)
    plant(
        work, "UPDATE holdfast.job_envelope SET max_attempts = 0 WHERE id = :id",
        id=made[0],
    )  # fmt: skip

    claimed = oldest(work, 5, job_types=["work"])

    assert [job.id for job in claimed] == [made[0], made[1]]


def test_a_claim_by_job_type_is_in_the_order_of_age(work: Holdfast) -> None:
    # Only runs claim by job type or before the due time: they use the order of age.
    work.job("other")(lambda job, payload: None)
    fill(work, NOISY, 5)
    fill(work, QUIET, 1, "other")

    claimed = claim_jobs(
        work.store, queue=QUEUE, worker_id="w1", limit=5, lease_ms=60_000, job_types=["other"]
    )

    assert [job.job_type for job in claimed] == ["other"]


def test_a_queue_declared_without_a_weight_has_the_weight_of_one(work: Holdfast) -> None:
    assert work.queues.rules().weights[QUEUE] == 4
    work.queue("q:plain")
    work.queue("q:heavy", weight=9)
    work.worker()

    assert work.queues.rules().weights["q:plain"] == 1
    assert work.queues.rules().queues["q:heavy"].settings == QueueSettings(weight=9)
