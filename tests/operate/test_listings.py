"""Listings are paginated by a cursor, and never show another tenant's rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from holdfast import Access, FakeClock, Forbidden, Gone, Holdfast, InvalidArgument
from holdfast.artifacts.operator import ArtifactFilter
from holdfast.operate.delivery_filter import DeliveryFilter
from holdfast.operate.jobs import JobFilter
from holdfast.operate.operator import Operator
from holdfast.operate.page import Page
from holdfast_llm.operate.costs import CostFilter
from tests.operate.letters import die_at_once
from tests.story import ORG, OTHER_ORG, claim


def operator(hf: Holdfast, role: str = "operator", org_id: str | None = None) -> Operator:
    return hf.operate(actor="user:olga", role=role, org_id=org_id)


def walk(verb: Callable[..., Page[Any]], cursor: str, limit: int) -> list[Any]:
    page = verb(limit=limit)
    found = [*page]
    while page.next is not None:
        page = verb(limit=limit, **{cursor: page.next})
        assert len(page) > 0
        found += page
    return found


def test_jobs_are_listed_once_each_while_others_are_enqueued(hf: Holdfast) -> None:
    hf.job("work")(lambda job, payload: None)
    jobs = [job.id for job in hf.enqueue_many("work", [{}] * 7, org_id=ORG)]
    hf.enqueue("work", {}, org_id=OTHER_ORG)
    listing = operator(hf, "member", ORG).jobs

    first = listing.list(limit=3)
    hf.enqueue("work", {}, org_id=ORG)
    rest = listing.list(limit=4, before=first.next or "")

    assert [job.id for job in (*first, *rest)] == sorted(jobs, reverse=True)
    assert rest.next is None
    assert [(one.state, one.jobs) for one in listing.counts()] == [("queued", 8)]


@pytest.mark.parametrize("few", [0, 100])
@pytest.mark.parametrize("org_id", [None, ORG])
def test_a_listing_of_a_state_is_the_same_from_the_table_of_the_state_and_from_all_jobs(
    hf: Holdfast, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, org_id: str | None, few: int
) -> None:
    monkeypatch.setattr("holdfast.operate.job_rows.FEW", few)
    monkeypatch.setattr("holdfast.operate.job_rows.FEW_KEYS", few)
    hf.job("work")(lambda job, payload: None)
    later = clock.now() + timedelta(hours=1)
    for tenant in (ORG, OTHER_ORG):
        die_at_once(hf, Gone(), org_id=tenant)
    for tenant in (ORG, OTHER_ORG):
        hf.enqueue_many("work", [{}] * 6, org_id=tenant)
        canceled = hf.enqueue("work", {}, org_id=tenant)
        hf.cancel(canceled.id, org_id=tenant)
        hf.enqueue("work", {}, org_id=tenant, not_before_at=later)
        hf.enqueue("work", {}, org_id=tenant, queue="q:exports")
    hf.worker(queues=["q:default"]).run_once(4)
    claim(hf, limit=2)
    listing = operator(hf, "admin").jobs
    known = [job for job in walk(listing.list, "before", 100) if org_id in (None, job.org_id)]
    assert len({job.state for job in known}) == 5

    for job in known:
        for kept in (
            {"state": job.state},
            {"queue": job.queue},
            {"error_class": job.error_class},
            {"state": job.state, "queue": job.queue, "job_type": job.job_type},
        ):
            wanted = JobFilter(org_id=org_id, **kept)
            found = walk(partial(listing.list, wanted), "before", 2)
            assert [one.id for one in found] == [
                one.id
                for one in known
                if all(value in (None, getattr(one, name)) for name, value in kept.items())
            ]
    counts = {(one.state, one.queue): one.jobs for one in listing.counts(org_id=org_id)}
    assert counts == Counter((job.state, job.queue) for job in known)


def test_queues_and_schedules_are_listed_in_order_of_names(hf: Holdfast) -> None:
    everyone = operator(hf, "admin")
    for name in ("b", "a", "c"):
        hf.job(f"tell.{name}", category="notification")(lambda job, payload: None)
        everyone.schedules.add(
            name, reason="r", every="1h", job_type=f"tell.{name}", payload={}, org_id=ORG
        )

    queues = [queue.name for queue in walk(everyone.queues.list, "after", 2)]

    assert queues == sorted(queues)
    assert "q:default" in queues
    assert [one.name for one in walk(everyone.schedules.list, "after", 1)] == ["a", "b", "c"]


@pytest.mark.req("X-07")
def test_a_filter_that_names_another_tenant_is_refused(hf: Holdfast) -> None:
    bound = operator(hf, "operator", ORG)
    for asked in (
        lambda: bound.jobs.list(JobFilter(org_id=OTHER_ORG)),
        lambda: bound.jobs.counts(org_id=OTHER_ORG),
        lambda: bound.artifacts.list(ArtifactFilter(org_id=OTHER_ORG)),
        lambda: bound.deliveries.list(DeliveryFilter(org_id=OTHER_ORG)),
        lambda: bound.costs.report(CostFilter(org_id=OTHER_ORG)),
    ):
        with pytest.raises(Forbidden):
            asked()


@pytest.mark.req("Q-11")
def test_a_member_lists_only_artifacts_that_it_may_open(hf: Holdfast) -> None:
    given: dict[str, Any] = {"org_id": ORG, "owner": "user:ann"}
    shared = hf.artifacts.put(b"x", name="shared.txt", **given)
    private = hf.artifacts.put(b"x", name="private.txt", access=Access.OWNER, **given)

    member = operator(hf, "member", ORG).artifacts
    anyone = operator(hf, "operator", ORG).artifacts

    assert [one.id for one in member.list()] == [shared.id]
    assert [one.id for one in anyone.list()] == [private.id, shared.id]


def test_a_page_has_a_limit(hf: Holdfast) -> None:
    for limit in (0, 1_001, True):
        with pytest.raises(InvalidArgument):
            operator(hf).jobs.list(limit=limit)
