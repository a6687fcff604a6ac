"""Schedules of any general job, for one tenant or for all known tenants at the tick."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import FakeClock, Holdfast, InvalidSchedule
from holdfast import dispatch_once as dispatch
from holdfast import sync_schedules as sync
from holdfast.config import ScheduleSettings
from holdfast.engine.maintenance import tidy
from holdfast.engine.schedule.rows import list_ticks
from holdfast.ids import read_uuid
from tests.engine.test_unique import in_threads, is_clean
from tests.story import ORG, OTHER_ORG, by_hand, look, make_holdfast

THIRD = "0198c0de-0000-7000-8000-00000000000c"
TYPE = "stock.count"


@pytest.fixture
def shop(hf: Holdfast) -> Holdfast:
    hf.job(TYPE)(lambda job, payload: payload)
    hf.job("other.job")(lambda job, payload: payload)
    return hf


def jobs(hf: Holdfast, job_type: str = TYPE) -> Counter[str]:
    rows = look(hf.store, "SELECT org_id FROM holdfast.job WHERE job_type = :t", t=job_type)
    return Counter(row["org_id"] for row in rows)


def known(hf: Holdfast, *tenants: str) -> None:
    for org_id in tenants:
        hf.enqueue("other.job", {}, org_id=org_id)


def test_a_job_of_a_general_category_is_scheduled_without_its_handle(
    shop: Holdfast, clock: FakeClock
) -> None:
    shop.schedule("hourly", every="1h", job_type=TYPE, payload={"n": 1}, org_id=ORG)
    sync(shop)
    clock.advance(hours=1)
    dispatch(shop)
    shop.worker().run_once()

    (job,) = shop.operate(actor="user:1", role="admin").jobs.list()
    assert (job.org_id, job.state, job.queue) == (ORG, "completed", "q:default")
    assert is_clean(shop)


def test_every_tenant_that_is_known_at_the_tick_gets_one_job(
    shop: Holdfast, clock: FakeClock
) -> None:
    shop.schedule("hourly", every="1h", job_type=TYPE, tenants="all")
    sync(shop)
    known(shop, ORG)
    clock.advance(hours=1)
    dispatch(shop)
    assert jobs(shop) == {ORG: 1}

    known(shop, OTHER_ORG)
    operator = shop.operate(actor="user:1", role="admin")
    operator.tenants.set(THIRD, weight=2, reason="a large customer")
    clock.advance(hours=1)
    dispatch(shop)
    dispatch(shop)

    assert jobs(shop) == {ORG: 2, OTHER_ORG: 1, THIRD: 1}
    newest = list_ticks(shop.store, "hourly")[0]
    assert (newest["outcome"], newest["detail"]) == ("enqueued", "3 jobs, one for each tenant")
    assert operator.schedules.get("hourly").target == f"job {TYPE} for all tenants"
    assert is_clean(shop)


def test_a_tenant_stays_known_when_its_jobs_have_ended(shop: Holdfast, clock: FakeClock) -> None:
    shop.schedule("daily", every="2d", job_type=TYPE, tenants="all")
    sync(shop)
    known(shop, ORG)
    shop.worker().run_once()
    clock.advance(days=2)
    tidy(shop.store, shop.settings, shop.events)
    assert look(shop.store, "SELECT DISTINCT state FROM holdfast.job") == [{"state": "completed"}]
    dispatch(shop)

    assert jobs(shop) == {ORG: 1}


def test_a_function_lists_the_tenants_of_each_tick(shop: Holdfast, clock: FakeClock) -> None:
    customers = ["name:a"]
    shop.schedule("hourly", every="1h", job_type=TYPE, tenants=lambda: customers)
    sync(shop)
    clock.advance(hours=1)
    dispatch(shop)
    customers += ["name:b", "name:b", ORG]
    clock.advance(hours=1)
    dispatch(shop)

    assert jobs(shop) == {read_uuid("name:a"): 2, read_uuid("name:b"): 1, ORG: 1}


def test_a_handle_schedules_for_tenants_by_name(shop: Holdfast, clock: FakeClock) -> None:
    @shop.job("shelf.count")
    def count(shelf: int) -> None: ...

    count.schedule(every="1h", arguments={"shelf": 3}, tenants=["name:a", "name:b"])
    sync(shop)
    clock.advance(hours=1)
    dispatch(shop)

    assert set(jobs(shop, "shelf.count")) == {read_uuid("name:a"), read_uuid("name:b")}


@pytest.mark.parametrize(
    ("listing", "says"),
    [(lambda: 1 / 0, "ZeroDivisionError"), (lambda: ["nobody"], "must be a UUID")],
)
def test_a_tick_whose_list_fails_is_held_and_fired_later(
    shop: Holdfast, clock: FakeClock, listing: Callable[[], Any], says: str
) -> None:
    answers = [listing, lambda: [ORG]]
    shop.schedule("hourly", every="1h", job_type=TYPE, tenants=lambda: answers[0]())
    sync(shop)
    clock.advance(hours=1)
    dispatch(shop)

    held = list_ticks(shop.store, "hourly")[0]
    assert held["outcome"] == "held"
    assert says in held["detail"]
    assert jobs(shop) == {}
    answers.pop(0)
    dispatch(shop)
    assert jobs(shop) == {ORG: 1}


def test_a_dispatcher_without_the_list_leaves_the_tick_to_one_that_has_it(
    shop: Holdfast, clock: FakeClock, url: str
) -> None:
    shop.schedule("hourly", every="1h", job_type=TYPE, tenants=lambda: [ORG])
    sync(shop)
    clock.advance(hours=1)
    with make_holdfast(url, clock) as other:
        other.job(TYPE)(lambda job, payload: payload)
        dispatch(other)
        assert "listed by code" in list_ticks(shop.store, "hourly")[0]["detail"]
    dispatch(shop)

    assert jobs(shop) == {ORG: 1}


def test_without_a_tenant_the_tick_is_skipped(shop: Holdfast, clock: FakeClock) -> None:
    shop.schedule("hourly", every="1h", job_type=TYPE, tenants=list)
    sync(shop)
    clock.advance(hours=1)
    dispatch(shop)

    tick = list_ticks(shop.store, "hourly")[0]
    assert (tick["outcome"], tick["job_id"]) == ("skipped", None)
    assert "no tenant" in tick["detail"]


def test_a_full_queue_of_one_tenant_does_not_hold_up_the_others(
    shop: Holdfast, clock: FakeClock
) -> None:
    shop.schedule("hourly", every="1h", job_type=TYPE, tenants="all")
    sync(shop)
    known(shop, ORG, OTHER_ORG)
    shop.worker().run_once()
    by_hand(shop.store, "UPDATE holdfast.queue SET max_depth_per_tenant = 1")
    shop.enqueue("other.job", {}, org_id=ORG)
    clock.advance(hours=1)
    dispatch(shop)

    assert jobs(shop) == {OTHER_ORG: 1}
    assert "1 tenants got none" in list_ticks(shop.store, "hourly")[0]["detail"]


def test_dispatchers_at_once_enqueue_one_job_for_each_tenant_and_tick(
    shop: Holdfast, clock: FakeClock
) -> None:
    tenants = [read_uuid(f"name:t{n}") for n in range(30)]
    shop.schedule("hourly", every="1h", job_type=TYPE, tenants=lambda: tenants)
    sync(shop)
    clock.advance(hours=1)

    in_threads(4, lambda _: dispatch(shop))

    assert jobs(shop) == dict.fromkeys(tenants, 1)
    assert is_clean(shop)


def test_settings_and_operators_say_all(url: str, clock: FakeClock) -> None:
    hourly = ScheduleSettings(cron="0 * * * *", job_type=TYPE, tenants="all")
    with make_holdfast(url, clock, schedules={"hourly": hourly}) as hf:
        hf.job(TYPE)(lambda job, payload: payload)
        hf.job("other.job")(lambda job, payload: payload)
        known(hf, ORG)
        sync(hf)
        operator = hf.operate(actor="user:1", role="admin")
        operator.schedules.add("daily", cron="@daily", job_type=TYPE, tenants="all", reason="more")
        with pytest.raises(InvalidSchedule, match="declared in code"):
            operator.schedules.add("x", cron="@daily", job_type=TYPE, tenants=[ORG], reason="no")
        operator.schedules.set("daily", cron="0 4 * * *", reason="later")
        assert operator.schedules.get("daily").target.endswith("for all tenants")
        operator.schedules.set("daily", org_id=ORG, reason="one tenant")
        assert operator.schedules.get("daily").target == f"job {TYPE}"
        fired = operator.schedules.trigger("hourly", reason="now")
        assert fired.job_id is not None
        assert jobs(hf) == {ORG: 1}


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"tenants": "some"}, "tenants"),
        ({"tenants": ["nobody"]}, "tenants"),
        ({"tenants": 7}, "tenants"),
        ({"tenants": "all", "org_id": ORG}, "org_id"),
        ({"tenants": "all", "project_id": ORG}, "project_id"),
        ({}, "org_id"),
    ],
)
def test_bad_tenants_are_refused(shop: Holdfast, options: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidSchedule) as refused:
        shop.schedule("hourly", every="1h", job_type=TYPE, **options)

    assert set(refused.value.fields) == {field}
