"""Explain: the reason for a job's state, and the condition for the next change."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from holdfast import (
    Context,
    Enqueued,
    FakeClock,
    Holdfast,
    NetworkTimeout,
    Producer,
    Snooze,
    State,
)
from holdfast.actor import Actor, ActorType, Role
from holdfast.config import (
    KeySettings,
    QueueSettings,
    Rate,
    RunSettings,
    ScheduleSettings,
    TenantSettings,
)
from holdfast.engine.job import (
    SYSTEM,
    Canceled,
    Claimed,
    Completed,
    Dead,
    Fault,
    Outcome,
    Released,
    Retry,
    Snoozed,
)
from holdfast.engine.maintenance import rescue_jobs
from holdfast.engine.schedule.rows import sync_schedules
from holdfast.engine.settle import settle
from holdfast.engine.worker.heartbeat import GONE_AFTER, Heartbeat
from holdfast.errors import Forbidden, JobNotFound
from holdfast.operate import authorization
from holdfast.operate.explain import Explanation, Reason, explain_job
from tests.engine.planting import plant
from tests.store.hand import job_in
from tests.story import ORG, OTHER_ORG, by_hand, claim, look

QUEUE = "q:default"
OPERATOR = Actor(ActorType.USER, "op")
NOBODY = "0198c0de-0000-7000-8000-0000000000ff"
FAULT = Fault("GONE", "it is gone", retryable=False)


@pytest.fixture
def work(hf: Holdfast) -> Holdfast:
    hf.job("report.export")(lambda job, payload: "done")
    return hf


def explain(hf: Holdfast, job: Enqueued | Claimed | str, **who: Any) -> Explanation:
    job_id = job if isinstance(job, str) else job.id
    desk = hf.operate(**{"actor": "user:op", "role": "admin", **who})
    return explain_job(desk.context, job_id)


def enqueue(hf: Holdfast, **options: Any) -> Enqueued:
    return hf.enqueue("report.export", {}, **{"org_id": ORG, **options})


def live(
    hf: Holdfast,
    worker: str = "w1",
    *,
    queues: Collection[str] = (QUEUE,),
    job_types: Collection[str] = ("report.export",),
) -> Heartbeat:
    """A worker with a current heartbeat."""
    presence = Heartbeat(hf.store, {}, worker, queues, job_types, lease_ms=60_000)
    presence.send()
    return presence


def finish(hf: Holdfast, job: Claimed, outcome: Outcome) -> None:
    (settled,) = settle(hf.store, [(job, outcome)], actor=SYSTEM)
    assert settled.lease_held


# -- not due


def test_a_job_that_was_enqueued_for_later_is_not_due(work: Holdfast, clock: FakeClock) -> None:
    live(work)
    due_at = clock.now() + timedelta(hours=2)
    job = enqueue(work, not_before_at=due_at)

    found = explain(work, job)

    assert (found.job_id, found.state, found.reason) == (job.id, State.QUEUED, Reason.NOT_DUE)
    assert found.until == due_at
    assert found.facts["because"] == "scheduled"
    assert "2026-01-05 11:00:00 UTC" in found.line

    clock.advance(hours=2)
    live(work)
    assert explain(work, job).reason is Reason.READY


def test_a_failed_attempt_is_not_due_until_its_backoff_is_over(hf: Holdfast) -> None:
    @hf.job("report.export")
    def fail(job: Context, payload: object) -> None:
        raise NetworkTimeout("somebody's secret")

    job = enqueue(hf)
    hf.worker().run_once()

    found = explain(hf, job)

    assert (found.reason, found.facts["because"]) == (Reason.NOT_DUE, "retry")
    assert "attempt 1 of 5 of stage 'run' failed with NETWORK_TIMEOUT" in found.line
    assert "secret" not in repr(found)
    assert found.until == hf.get(job.id, org_id=ORG).record["not_before_at"]


def test_a_snoozed_job_says_that_its_handler_asked_for_it(hf: Holdfast, clock: FakeClock) -> None:
    @hf.job("report.export")
    def later(job: Context, payload: object) -> None:
        raise Snooze(timedelta(minutes=10))

    job = enqueue(hf)
    hf.worker().run_once()

    found = explain(hf, job)

    assert (found.reason, found.facts["because"]) == (Reason.NOT_DUE, "snoozed")
    assert found.until == clock.now() + timedelta(minutes=10)


def test_a_job_that_was_given_back_unused_says_why(work: Holdfast, clock: FakeClock) -> None:
    job = enqueue(work)
    (claimed,) = claim(work)
    finish(work, claimed, Released("max_runtime", 300_000))

    found = explain(work, job)

    assert (found.reason, found.facts["because"]) == (Reason.NOT_DUE, "released")
    assert "max_runtime" in found.line
    assert found.until == clock.now() + timedelta(minutes=5)


def test_a_parked_notification_says_where_it_goes(hf: Holdfast, clock: FakeClock) -> None:
    hf.job("mail.send", category="notification")(lambda job, payload: None)
    due_at = clock.now() + timedelta(hours=1)
    job = hf.enqueue("mail.send", {}, org_id=ORG, scheduled_for=due_at)
    assert hf.get(job.id, org_id=ORG).queue == "q:maintenance"

    found = explain(hf, job)

    assert (found.reason, found.until) == (Reason.NOT_DUE, due_at)
    assert "q:notifications" in found.next

    clock.advance(hours=1)
    assert explain(hf, job).facts["queue"] == "q:notifications"


# -- paused queues, and missing workers


def test_a_paused_queue_names_who_when_and_why(work: Holdfast, clock: FakeClock) -> None:
    live(work)
    job = enqueue(work)
    work.queues.pause(QUEUE, reason="the provider is down", actor=OPERATOR)

    found = explain(work, job)

    assert found.reason is Reason.QUEUE_PAUSED
    assert found.facts["paused_at"] == clock.now()
    assert "user:op: the provider is down" in found.line
    assert f"holdfast queues resume {QUEUE}" in found.next


def test_a_queue_without_a_worker_says_so(work: Holdfast) -> None:
    live(work, queues=["q:exports"])
    job = enqueue(work)

    found = explain(work, job)

    assert found.reason is Reason.NO_WORKER
    assert found.line == "No worker serves q:default."
    assert "worker --queues q:default" in found.next


def test_workers_that_are_gone_draining_or_on_a_wrong_clock_do_not_count(
    work: Holdfast, clock: FakeClock
) -> None:
    live(work, "gone")
    clock.advance(GONE_AFTER + timedelta(seconds=1))
    drained = live(work, "draining")
    drained.drain()
    drained.send()
    live(work, "off")
    by_hand(work.store, "UPDATE holdfast.worker SET clock_off_ms = 61000 WHERE worker_id = 'off'")
    job = enqueue(work)

    found = explain(work, job)

    assert found.reason is Reason.NO_WORKER
    assert found.line == "No worker serves q:default (1 gone, 1 draining, 1 with a wrong clock)."


def test_where_only_runs_serve_a_queue_the_next_one_is_named(
    work: Holdfast, clock: FakeClock
) -> None:
    run = RunSettings(queues=(QUEUE,), job_types=("report.export",))
    other = RunSettings(queues=(QUEUE,), job_types=("other.work",))
    work.settings = replace(work.settings, runs={"nightly": run, "other": other})
    job = enqueue(work)

    unscheduled = explain(work, job)
    work.settings = replace(
        work.settings, schedules={"at-ten": ScheduleSettings(cron="0 10 * * *", run="nightly")}
    )
    sync_schedules(work)
    found = explain(work, job)

    assert (unscheduled.reason, unscheduled.until) == (Reason.AWAITS_RUN, None)
    assert "holdfast run nightly" in unscheduled.next
    assert found.reason is Reason.AWAITS_RUN
    assert found.until == clock.now() + timedelta(hours=1)
    assert found.facts["runs"] == ["nightly"]


def test_a_job_type_that_no_worker_knows_says_until_when_one_may_come(
    work: Holdfast, clock: FakeClock
) -> None:
    live(work, job_types=["other.work"])
    job = enqueue(work)
    created_at = clock.now()

    found = explain(work, job)

    assert found.reason is Reason.UNKNOWN_TYPE
    assert "has the job type report.export registered" in found.line
    assert found.facts["dead_letter_from"] == created_at + timedelta(hours=1)


def test_a_job_of_an_unknown_type_is_not_explained_as_merely_early(
    work: Holdfast, clock: FakeClock
) -> None:
    job = enqueue(work)
    (claimed,) = claim(work)
    finish(work, claimed, Released("unknown_job_type", 30_000))

    found = explain(work, job)

    assert found.reason is Reason.UNKNOWN_TYPE
    assert found.until == clock.now() + timedelta(seconds=30)


# -- caps and rates


def limit(hf: Holdfast, **limits: Any) -> None:
    hf.queues.set(QUEUE, QueueSettings(**limits), actor=OPERATOR)


def test_a_tenant_at_its_cap_in_a_queue_waits_for_its_own(work: Holdfast) -> None:
    live(work)
    limit(work, max_running_per_tenant=1)
    enqueue(work)
    claim(work)
    job, other = enqueue(work), enqueue(work, org_id=OTHER_ORG)

    found = explain(work, job)

    assert found.reason is Reason.TENANT_CAP
    assert found.line == "1 of at most 1 jobs of its tenant in q:default are running."
    assert explain(work, other).reason is Reason.READY


def test_a_tenant_at_its_cap_over_all_queues_waits_for_its_own(work: Holdfast) -> None:
    live(work)
    work.queues.set_tenant(ORG, TenantSettings(max_running=1), actor=OPERATOR)
    enqueue(work, queue="q:exports")
    claim(work, queue="q:exports")
    job = enqueue(work)

    found = explain(work, job)

    assert (found.reason, found.facts["cap"]) == (Reason.TENANT_CAP, "max_running_of_tenant")


def test_a_queue_at_its_cap_holds_every_tenant(work: Holdfast) -> None:
    live(work)
    limit(work, max_running=2)
    enqueue(work), enqueue(work, org_id=OTHER_ORG)
    claim(work, limit=2)
    job = enqueue(work)

    found = explain(work, job)

    assert found.reason is Reason.QUEUE_CAP
    assert (found.facts["running"], found.facts["most"]) == (2, 2)


@pytest.mark.parametrize("rule", ["openai", "open*"])
def test_a_key_at_its_cap_holds_its_own(work: Holdfast, rule: str) -> None:
    live(work)
    work.queues.set_key(rule, KeySettings(max_running=1), actor=OPERATOR)
    enqueue(work, limit_key="openai")
    claim(work)
    job, free = enqueue(work, limit_key="openai"), enqueue(work)

    assert explain(work, job).reason is Reason.KEY_CAP
    assert "key openai" in explain(work, job).line
    assert explain(work, free).reason is Reason.READY


def test_a_lease_that_ran_out_does_not_count_for_a_cap(work: Holdfast, clock: FakeClock) -> None:
    limit(work, max_running=1)
    enqueue(work)
    claim(work)
    job = enqueue(work)
    clock.advance(seconds=61)
    live(work)

    assert explain(work, job).reason is Reason.READY


def test_a_used_up_rate_says_when_the_next_may_start(work: Holdfast, clock: FakeClock) -> None:
    live(work)
    limit(work, rate=Rate(2, 60))
    enqueue(work), enqueue(work)
    assert len(claim(work, limit=5)) == 2
    job = enqueue(work)

    found = explain(work, job)

    assert found.reason is Reason.RATE_LIMIT
    assert found.until == clock.now() + timedelta(seconds=30)
    assert found.facts["tokens"] == 0

    clock.advance(seconds=29)
    assert explain(work, job).reason is Reason.RATE_LIMIT
    assert claim(work) == []
    # At exactly that instant, SQLite's day fractions may be slightly less than a whole token.
    clock.advance(seconds=1.01)
    assert explain(work, job).reason is Reason.READY
    assert [taken.id for taken in claim(work)] == [job.id]


def test_a_used_up_rate_of_a_key_is_explained_too(work: Holdfast) -> None:
    live(work)
    work.queues.set_key("openai", KeySettings(rate=Rate(1, 60)), actor=OPERATOR)
    enqueue(work, limit_key="openai")
    claim(work)
    job = enqueue(work, limit_key="openai")

    assert explain(work, job).reason is Reason.RATE_LIMIT
    assert explain(work, job).facts["whose"] == "key openai"


# -- position in the queue


def test_a_job_knows_how_many_of_its_own_tenant_go_first(work: Holdfast) -> None:
    live(work)
    first, second = enqueue(work), enqueue(work)
    stranger = enqueue(work, org_id=OTHER_ORG)

    assert explain(work, first).reason is Reason.READY
    assert explain(work, second).line == "1 job of its own tenant goes before it in q:default."
    assert explain(work, second).facts["workers"] == 1
    assert explain(work, stranger).reason is Reason.READY


def test_a_place_far_back_is_counted_no_further_than_a_thousand(work: Holdfast) -> None:
    live(work)
    work.enqueue_many("report.export", [{} for _ in range(1_005)], org_id=ORG)
    last = enqueue(work)

    found = explain(work, last)

    assert (found.reason, found.facts["ahead"]) == (Reason.IN_LINE, 1_000)
    assert found.line.startswith("At least 1,000 jobs of its own tenant go")


# -- claimed


def test_a_running_job_says_where_since_when_and_how_often(
    work: Holdfast, clock: FakeClock
) -> None:
    live(work)
    job = enqueue(work)
    claim(work)
    since = clock.now()
    clock.advance(seconds=20)

    found = explain(work, job)

    assert (found.state, found.reason, found.until) == (State.PROCESSING, Reason.RUNNING, None)
    assert "on worker w1, stage 'run', attempt 1 of 5" in found.line
    assert found.facts["claimed_at"] == since
    assert found.facts["lease_until"] == since + timedelta(seconds=60)
    assert found.facts["worker_seen_at"] == since
    assert not found.facts["is_late"]


def test_a_lease_that_is_not_renewed_in_time_is_explained(work: Holdfast, clock: FakeClock) -> None:
    job = enqueue(work)
    claim(work)
    clock.advance(seconds=45)

    found = explain(work, job)

    assert (found.reason, found.facts["is_late"]) == (Reason.RUNNING, True)
    assert "lease renewal is overdue" in found.line
    assert found.until == clock.now() + timedelta(seconds=15)


def test_a_pending_cancel_is_explained(work: Holdfast) -> None:
    job = enqueue(work)
    claim(work)
    work.cancel(job.id, org_id=ORG)

    found = explain(work, job)

    assert found.reason is Reason.CANCEL_REQUESTED
    assert "next step" in found.next


@pytest.mark.parametrize(
    ("attempts", "cancel", "becomes"),
    [
        (5, False, "requeues it, with 1 of 5 attempts used"),
        (1, False, "dead-letters it"),
        (5, True, "cancels it"),
    ],
)
def test_a_lease_that_ran_out_waits_for_the_next_rescue(
    work: Holdfast, clock: FakeClock, attempts: int, cancel: bool, becomes: str
) -> None:
    job = enqueue(work, max_attempts=attempts)
    claim(work)
    if cancel:
        work.cancel(job.id, org_id=ORG)
    clock.advance(seconds=61)

    lonely = explain(work, job)
    live(work, "w2")
    found = explain(work, job)

    assert lonely.reason is found.reason is Reason.LEASE_RAN_OUT
    assert lonely.next.startswith("Start a worker")
    assert found.next.startswith("The next rescue (at least every 5 s)")
    assert becomes in found.next
    # The prediction is right.
    rescue_jobs(work.store, limit=10)
    expected = {5: State.QUEUED, 1: State.FAILED}[attempts]
    assert work.get(job.id, org_id=ORG).state is (State.CANCELED if cancel else expected)


def test_a_submitted_job_that_no_batch_has_is_held(work: Holdfast) -> None:
    job_id = job_in(work.store, State.BATCH_SUBMITTED)

    found = explain(work, job_id)

    assert (found.state, found.reason) == (State.BATCH_SUBMITTED, Reason.HELD)
    assert found.facts["provider_batch_id"] == "batch_1"


# -- ended


def test_a_completed_job_has_nothing_before_it(work: Holdfast) -> None:
    job = enqueue(work)
    work.worker().run_once()

    found = explain(work, job)

    assert found.reason is Reason.COMPLETED
    assert "is_archived" not in found.facts
    assert "archived" not in found.line
    assert found.next == "None. The job has ended."


def test_a_canceled_job_says_who_wanted_it_and_why(work: Holdfast) -> None:
    job = enqueue(work)
    work.cancel(job.id, org_id=ORG, actor="user:42", reason="not needed")
    work.cancel(job.id, org_id=ORG, actor="user:43", reason="too late")

    found = explain(work, job)

    assert found.reason is Reason.CANCELED
    assert found.line.endswith("by user:42: not needed")


def test_a_failed_job_names_its_dead_letter_and_the_next_step(work: Holdfast) -> None:
    job = enqueue(work)
    (claimed,) = claim(work)
    finish(work, claimed, Dead(FAULT))

    found = explain(work, job)

    assert (found.state, found.reason) == (State.FAILED, Reason.DEAD_LETTER)
    assert f"dead letter {job.id} is open" in found.line
    assert "triage" in found.next
    assert (found.facts["letter_id"], found.facts["letter_state"]) == (job.id, "open")


@pytest.mark.parametrize(
    ("state", "then"),
    [
        ("open", "triage: classify"),
        ("triaged", "remediate: confirm"),
        ("remediated", "validate: add"),
        ("validated", "replay: give"),
        ("replaying", "wait for replay"),
        ("replayed", "verify: check"),
        ("resolved", "None"),
        ("discarded", "None"),
        ("fixed_forward", "None"),
    ],
)
def test_every_step_of_a_dead_letter_has_a_next_one(work: Holdfast, state: str, then: str) -> None:
    job = enqueue(work)
    (claimed,) = claim(work)
    finish(work, claimed, Dead(FAULT))
    plant(work, "UPDATE holdfast.dead_letter SET state = :state, kind = 'data'", state=state)

    found = explain(work, job)

    assert state.replace("_", " ") in found.line
    assert then in found.next


def test_a_complaint_rewrite_is_never_offered_for_replay(hf: Holdfast) -> None:
    producer = Producer("rewrites.submit(…)")
    options = {"producer": producer, "replay_refusal": "it would be written twice"}
    hf.job("complaint_rewrite", **options)(lambda job, payload: None)
    job = hf.enqueue("complaint_rewrite", {}, org_id=ORG, unit_key="u", producer=producer)
    (claimed,) = claim(hf)
    finish(hf, claimed, Dead(FAULT))

    found = explain(hf, job)

    assert found.next.startswith("An operator discards it or fixes it forward")


def test_a_dead_letter_that_is_being_replayed_points_at_the_replay(work: Holdfast) -> None:
    job = enqueue(work)
    (claimed,) = claim(work)
    finish(work, claimed, Dead(FAULT))
    letters = work.operate(actor="user:op", role="operator").dead_letters
    letters.triage(job.id, kind="data")
    letters.remediate(job.id, done=["source_corrected"])
    letters.validate(job.id, evidence_ref="INC-7", is_safe_to_repeat=True)
    letters.replay(job.id, reason="the source is corrected")

    found = explain(work, job)
    replay_id = found.facts["replay_job_id"]

    assert found.next == f"The replay finishes: holdfast explain {replay_id}"
    assert explain(work, replay_id).reason is Reason.NO_WORKER

    assert work.cancel(replay_id, org_id=ORG).value == "canceled"
    assert explain(work, job).facts["letter_state"] == "open"
    assert explain(work, replay_id).reason is Reason.CANCELED


def test_a_failed_replay_points_at_the_item_of_its_original(work: Holdfast) -> None:
    original, replay = enqueue(work), enqueue(work)
    for claimed in claim(work, limit=2):
        finish(work, claimed, Dead(FAULT))
    plant(
        work, "UPDATE holdfast.job_envelope SET replay_of = :original WHERE id = :id",
        original=original.id, id=replay.id,
    )  # fmt: skip

    found = explain(work, replay)

    assert found.line.startswith("It is a replay and failed at")
    assert found.facts["letter_id"] == original.id


def test_a_failed_job_without_a_dead_letter_is_explained_and_raises_nothing(work: Holdfast) -> None:
    job = enqueue(work)
    (claimed,) = claim(work)
    finish(work, claimed, Dead(FAULT))
    plant(work, "DELETE FROM holdfast.dead_letter")

    found = explain(work, job)

    assert found.reason is Reason.DEAD_LETTER
    assert "it has no dead letter" in found.line


# -- tenants


@pytest.mark.req("X-07", "X-09")
@pytest.mark.parametrize("job_id", [NOBODY, "not-an-id", "x" * 5_000])
def test_an_unknown_id_is_not_found(work: Holdfast, job_id: str) -> None:
    with pytest.raises(JobNotFound) as caught:
        explain(work, job_id)

    assert len(str(caught.value)) < 300


@pytest.mark.req("X-07", "X-09")
def test_another_tenants_job_is_not_found_just_like_one_that_is_not_there(
    work: Holdfast,
) -> None:
    job = enqueue(work)

    said = []
    for job_id in (job.id, NOBODY):
        with pytest.raises(JobNotFound) as caught:
            explain(work, job_id, role="member", org_id=OTHER_ORG)
        said.append(str(caught.value).replace(job_id, "ID"))

    assert said[0] == said[1]
    refused = look(
        work.store,
        "SELECT org_id, actor_id FROM holdfast.job_event WHERE name = 'operator.refused'",
    )
    assert [(row["org_id"], row["actor_id"]) for row in refused] == [(OTHER_ORG, "op")] * 2


def test_a_member_asks_about_its_own_tenants_job(work: Holdfast) -> None:
    job = enqueue(work)

    assert explain(work, job, role="member", org_id=ORG).reason is Reason.NO_WORKER


def test_a_role_that_may_not_look_is_refused_on_record(
    work: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(authorization._LEAST, authorization.Action.LOOK, Role.ADMIN)
    job = enqueue(work)

    with pytest.raises(Forbidden):
        explain(work, job, role="operator")

    (row,) = look(
        work.store, "SELECT org_id FROM holdfast.job_event WHERE name = 'operator.refused'"
    )
    assert row["org_id"] == ORG


def test_what_is_no_job_is_not_found_although_the_audit_knows_its_id(work: Holdfast) -> None:
    work.queues.pause(QUEUE, reason="a look", actor=OPERATOR)
    (row,) = look(work.store, "SELECT job_id FROM holdfast.job_event WHERE name = 'queue.paused'")

    with pytest.raises(JobNotFound):
        explain(work, row["job_id"])


# -- precedence


def test_of_many_obstacles_the_first_in_the_way_is_named(work: Holdfast, clock: FakeClock) -> None:
    limit(work, max_running=1, max_running_per_tenant=1, rate=Rate(1, 3600))
    work.queues.set_key("openai", KeySettings(max_running=1), actor=OPERATOR)
    running = enqueue(work, limit_key="openai")
    job = enqueue(work, limit_key="openai", not_before_at=clock.now() + timedelta(seconds=30))
    (claimed,) = claim(work)
    assert claimed.id == running.id
    work.queues.pause(QUEUE, reason="a look", actor=OPERATOR)
    seen = [explain(work, job).reason]

    clock.advance(seconds=30)
    seen.append(explain(work, job).reason)
    work.queues.resume(QUEUE, reason="seen", actor=OPERATOR)
    seen.append(explain(work, job).reason)
    live(work, job_types=["other.work"])
    seen.append(explain(work, job).reason)
    live(work)
    seen.append(explain(work, job).reason)
    limit(work, max_running=1, rate=Rate(1, 3600))
    seen.append(explain(work, job).reason)
    limit(work, rate=Rate(1, 3600))
    seen.append(explain(work, job).reason)
    work.queues.reset_key("openai", actor=OPERATOR)
    seen.append(explain(work, job).reason)
    limit(work)
    seen.append(explain(work, job).reason)

    assert seen == [
        Reason.NOT_DUE,
        Reason.QUEUE_PAUSED,
        Reason.NO_WORKER,
        Reason.UNKNOWN_TYPE,
        Reason.TENANT_CAP,
        Reason.QUEUE_CAP,
        Reason.KEY_CAP,
        Reason.RATE_LIMIT,
        Reason.READY,
    ]


# -- every reachable state


BY_STATE = {
    State.PROCESSING: {Reason.RUNNING, Reason.CANCEL_REQUESTED, Reason.LEASE_RAN_OUT},
    State.COMPLETED: {Reason.COMPLETED},
    State.CANCELED: {Reason.CANCELED},
    State.FAILED: {Reason.DEAD_LETTER},
}


class Walk:
    """Any events of jobs, in any order."""

    def __init__(self, hf: Holdfast, clock: FakeClock, seed: int) -> None:
        self.hf, self.clock, self.rng = hf, clock, random.Random(seed)
        self.jobs: list[Enqueued] = []
        self.claimed: list[Claimed] = []

    def step(self) -> None:
        acts = [self.enqueue, self.claim, self.settle, self.settle, self.cancel, self.wait]
        acts += [self.rule, self.rescue, self.work]
        self.rng.choice(acts)()

    def enqueue(self) -> None:
        late = self.rng.choice([None, timedelta(seconds=self.rng.randrange(90))])
        due_at = None if late is None else self.clock.now() + late
        key = self.rng.choice([None, "openai"])
        attempts = self.rng.choice([1, 2, 5])
        self.jobs.append(
            enqueue(self.hf, not_before_at=due_at, limit_key=key, max_attempts=attempts)
        )

    def claim(self) -> None:
        self.claimed += claim(self.hf, limit=self.rng.randrange(1, 3))

    def settle(self) -> None:
        if not self.claimed:
            return
        job = self.claimed.pop(self.rng.randrange(len(self.claimed)))
        again = job.attempt < job.max_attempts
        outcomes: list[Outcome] = [Completed('"x"'), Dead(FAULT), Snoozed(9_000), Released("drain")]
        outcomes += [Retry(FAULT, 5_000)] if again else []
        outcomes += [Released("unknown_job_type", 30_000)]
        current = self.hf.get(job.id, org_id=ORG)
        if current.record["cancel_requested_at"] is not None:
            outcomes.append(Canceled())
        settle(self.hf.store, [(job, self.rng.choice(outcomes))], actor=SYSTEM)

    def cancel(self) -> None:
        if self.jobs:
            self.hf.cancel(self.rng.choice(self.jobs).id, org_id=ORG)

    def wait(self) -> None:
        self.clock.advance(seconds=self.rng.choice([1, 10, 40, 70]))

    def rule(self) -> None:
        match self.rng.randrange(5):
            case 0:
                self.hf.queues.pause(QUEUE, reason="fuzz", actor=OPERATOR)
            case 1:
                self.hf.queues.resume(QUEUE, reason="fuzz", actor=OPERATOR)
            case 2:
                limit(self.hf, max_running=self.rng.choice([None, 1, 3]))
            case 3:
                limit(self.hf, rate=self.rng.choice([None, Rate(2, 30)]))
            case _:
                limit(self.hf, max_running_per_tenant=self.rng.choice([None, 1]))

    def rescue(self) -> None:
        rescue_jobs(self.hf.store, limit=10)

    def work(self) -> None:
        presence = live(
            self.hf,
            self.rng.choice(["w1", "w2"]),
            job_types=self.rng.choice([["report.export"], ["other"]]),
        )
        if self.rng.random() < 0.3:
            presence.leave()


@pytest.mark.parametrize("seed", range(3))
def test_whatever_happens_to_a_job_there_is_one_reason_for_it(
    work: Holdfast, clock: FakeClock, seed: int
) -> None:
    walk = Walk(work, clock, seed)
    seen: set[Reason] = set()
    for _ in range(80):
        walk.step()
        for job in walk.rng.sample(walk.jobs, min(3, len(walk.jobs))):
            found = explain(work, job)
            seen.add(found.reason)

            state = work.get(job.id, org_id=ORG).state
            ended = {Reason.COMPLETED, Reason.CANCELED, Reason.DEAD_LETTER, Reason.RUNNING}
            assert found.state is state
            if state in BY_STATE:
                assert found.reason in BY_STATE[state]
            else:
                assert found.reason not in ended
            assert found.line
            assert found.next
            assert "\n" not in found.line + found.next
            assert found.until is None or found.until >= clock.now()
    assert len(seen) >= 4, seen
