"""The overview of operators: failed and waiting jobs by cause, and the last hour."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import Context, FakeClock, Gone, Holdfast
from holdfast.operate.dead_letter_input import DeadLetterFilter
from holdfast.operate.jobs import JobFilter
from tests.operate.letters import die_at_once
from tests.story import ORG, OTHER_ORG


def test_dead_letters_are_grouped_by_cause(hf: Holdfast) -> None:
    for org_id in (ORG, ORG, OTHER_ORG):
        die_at_once(hf, Gone(), org_id=org_id)
    desk = hf.operate(actor="user:ann", role="admin")

    (group,) = desk.overview.dead_letters()
    (own,) = desk.overview.dead_letters(org_id=ORG)

    assert (group.error_class, group.letters, group.tenants) == ("GONE", 3, 2)
    assert group.states == {"open": 3}
    assert own.letters == 2


def test_a_flood_of_one_tenant_does_not_hide_the_wait_of_another(
    hf: Holdfast, clock: FakeClock
) -> None:
    hf.job("work")(lambda job, payload: None)
    hf.enqueue("work", {}, org_id=OTHER_ORG)
    clock.advance(minutes=5)
    hf.enqueue_many("work", [{} for _ in range(30)], org_id=ORG)
    desk = hf.operate(actor="user:ann", role="admin")

    longest, flood = desk.overview.backlogs()

    assert (longest.org_id, longest.jobs, longest.queue) == (OTHER_ORG, 1, "q:default")
    assert (flood.org_id, flood.jobs) == (ORG, 30)
    depth = {one.queue: one for one in desk.overview.depths()}["q:default"]
    assert (depth.ready, depth.tenants, depth.ready_at) == (31, 2, longest.ready_at)


def test_backlogs_of_many_tenants_are_counted_to_a_common_limit(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a million jobs of a hundred tenants, counting each to 10,000 would read all of them."""
    hf.job("work")(lambda job, payload: None)
    tenants = {f"0198c0de-0000-7000-8000-00000000000{n}": n * 60 for n in (1, 2, 3)}
    for org_id, jobs in tenants.items():
        hf.enqueue_many("work", [{}] * jobs, org_id=org_id)
    overview = hf.operate(actor="user:ann", role="admin").overview
    exact = {one.org_id: (one.jobs, one.is_capped) for one in overview.backlogs()}
    monkeypatch.setattr("holdfast.operate.overview.BUDGET", 330)

    shared = {one.org_id: (one.jobs, one.is_capped) for one in overview.backlogs()}
    depth = next(one for one in overview.depths() if one.queue == "q:default")

    assert exact == {org_id: (jobs, False) for org_id, jobs in tenants.items()}
    assert sorted(shared.values()) == [(60, False), (110, True), (110, True)]
    assert (depth.ready, depth.is_capped) == (280, True)


def test_the_throughput_counts_outcomes_by_minute(hf: Holdfast, clock: FakeClock) -> None:
    hf.job("work")(lambda job, payload: None)
    hf.enqueue_many("work", [{}, {}], org_id=ORG)
    hf.worker().run_once()
    clock.advance(minutes=10)
    die_at_once(hf, Gone())
    desk = hf.operate(actor="user:ann", role="admin")

    found = desk.overview.throughput()
    other = desk.overview.throughput(org_id=OTHER_ORG)

    assert (found.succeeded[-11], sum(found.succeeded)) == (2, 2)
    assert (found.deadlettered[-1], sum(found.deadlettered)) == (1, 1)
    assert sum(other.succeeded) == 0
    assert found.whole


def test_a_search_continues_where_the_page_before_ended(hf: Holdfast) -> None:
    hf.job("work")(lambda job, payload: None)
    hf.job("rest")(lambda job, payload: None)
    made = [hf.enqueue("work", {}, org_id=ORG).id for _ in range(3)]
    hf.enqueue("rest", {}, org_id=OTHER_ORG)

    for desk in (
        hf.operate(actor="user:ann", role="admin"),
        hf.operate(actor="user:ann", role="operator", org_id=ORG),
    ):
        first = desk.overview.search(JobFilter(job_type="work"), limit=2)
        rest = desk.overview.search(JobFilter(job_type="work"), limit=2, before=first.next)

        assert [job.id for job in (*first, *rest)] == made[::-1]
        assert rest.next is None


@pytest.mark.parametrize("org_id", [None, ORG])
def test_a_search_of_bounded_pages_leaves_out_no_job(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch, org_id: str | None
) -> None:
    """A page reads two jobs, or the jobs that one statement enqueued."""
    monkeypatch.setattr("holdfast.operate.overview.REACH", 2)
    hf.job("work")(lambda job, payload: None)
    hf.job("rest")(lambda job, payload: None)
    made = [job.id for job in hf.enqueue_many("work", [{}] * 3, org_id=ORG)]
    for _ in range(2):
        hf.enqueue("rest", {}, org_id=OTHER_ORG)
        hf.enqueue("rest", {}, org_id=ORG)
        made.append(hf.enqueue("work", {}, org_id=ORG).id)
    hf.worker().run_once(3)
    desk = hf.operate(actor="user:ann", role="admin")

    found: list[str] = []
    before, pages = None, 0
    while before is not None or not pages:
        page = desk.overview.search(JobFilter(org_id=org_id, job_type="work"), before=before)
        found += [job.id for job in page]
        before, pages = page.next, pages + 1

    assert found == sorted(made, reverse=True)
    assert pages > 2


def test_dead_letters_of_one_cause_go_through_the_workflow_in_bulk(hf: Holdfast) -> None:
    faults = [Gone(), Gone(), Gone()]

    @hf.job("mail.send", max_attempts=1)
    def send(_job: Context, _payload: dict[str, Any]) -> None:
        if faults:
            raise faults.pop()

    hf.enqueue_many("mail.send", [{}, {}, {}], org_id=ORG)
    hf.worker().run_once()
    letters = hf.operate(actor="user:ann", role="admin").dead_letters
    cause = {"error_class": "GONE"}
    steps: list[tuple[str, dict[str, Any]]] = [
        ("triage", {"kind": "data"}),
        ("remediate", {"done": ("source_corrected",)}),
        ("validate", {"evidence_ref": "INC-7"}),
    ]

    for step, more in steps:
        answer = letters.recover(DeadLetterFilter(**cause), steps=[step], reason="INC-7", **more)
        assert (answer.matched, answer.done) == (3, 3)
    assert letters.replay_all(DeadLetterFilter(**cause), reason="INC-7").done == 3
    hf.worker().run_once()

    wanted = DeadLetterFilter(**cause)
    early = letters.recover(wanted, steps=["resolve"], reason="Fixed.")
    assert (early.done, early.left_out[-1].why) == (0, "replayed, not verified")
    assert letters.recover(wanted, steps=["verify_replay"], reason="INC-7").done == 3
    assert letters.recover(wanted, steps=["resolve"], reason="Fixed.").done == 3
    assert hf.operate(actor="user:ann", role="admin").verify(only=["I27", "I28"]).violated == ()
