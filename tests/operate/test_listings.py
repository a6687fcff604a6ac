"""Listings are paginated by a cursor, and never show another tenant's rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Access, Forbidden, Holdfast, InvalidArgument
from holdfast.artifacts.operator import ArtifactFilter
from holdfast.operate.delivery_filter import DeliveryFilter
from holdfast.operate.jobs import JobFilter
from holdfast.operate.operator import Operator
from holdfast.operate.page import Page
from holdfast_llm.operate.costs import CostFilter
from tests.story import ORG, OTHER_ORG


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
