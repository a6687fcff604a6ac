"""Idempotency keys."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest

from holdfast import FakeClock, Holdfast, KeyStatus, Permanent, Transient, key_for
from holdfast.engine.enqueue import full_key
from holdfast.engine.job import SYSTEM, Completed
from holdfast.engine.maintenance import rescue_jobs
from holdfast.engine.request import owner_of
from holdfast.engine.settle import settle
from holdfast.errors import ForeignKeyScope, InvalidJob
from tests.rows import copy_of_envelope, refused_by
from tests.story import ORG, OTHER_ORG, PROJECT, SQL, claim, events, look, timeline


@pytest.fixture
def work(hf: Holdfast) -> Holdfast:
    hf.job("report.export")(lambda job, payload: {"done": True})
    return hf


def record(hf: Holdfast, key: str, org_id: str = ORG) -> Any:
    given = {"org_id": org_id, "idempotency_key": key, "key_of": owner_of(key)}
    return hf.store.read(lambda tx: tx.maybe(SQL.find_key, **given))


@pytest.mark.req("I-02", "I-12")
def test_the_same_key_returns_the_original_job_and_creates_no_second(work: Holdfast) -> None:
    first = work.enqueue("report.export", {"n": 1}, org_id=ORG, idempotency_key="k")
    again = work.enqueue("report.export", {"n": 1}, org_id=ORG, idempotency_key="k")

    assert (first.created, again.created) == (True, False)
    assert (again.id, again.created_at) == (first.id, first.created_at)
    assert look(work.store, "SELECT count(*) AS n FROM holdfast.job")[0]["n"] == 1
    assert timeline(work, first) == ["job.enqueued"]


@pytest.mark.req("I-12")
def test_the_original_is_returned_even_after_it_has_ended(work: Holdfast, clock: FakeClock) -> None:
    first = work.enqueue("report.export", {}, org_id=ORG, idempotency_key="k")
    work.worker().run_once()
    clock.advance(days=60)

    again = work.enqueue("report.export", {}, org_id=ORG, idempotency_key="k")

    assert (again.id, again.created) == (first.id, False)
    assert work.worker().run_once().claimed == 0


@pytest.mark.req("I-12")
def test_a_duplicate_with_other_content_is_reported_and_audited_and_not_executed(
    work: Holdfast,
) -> None:
    first = work.enqueue("report.export", {"n": 1}, org_id=ORG, idempotency_key="k")

    other = work.enqueue("report.export", {"n": 2}, org_id=ORG, idempotency_key="k")

    assert (other.id, other.created, other.differs) == (first.id, False, True)
    assert work.get(first.id, org_id=ORG).payload == {"n": 1}
    assert timeline(work, first) == ["job.enqueued", "job.duplicate_differs"]


@pytest.mark.req("I-02")
def test_the_order_of_keys_makes_no_difference(work: Holdfast) -> None:
    work.enqueue("report.export", {"a": 1, "b": 2}, org_id=ORG, idempotency_key="k")

    again = work.enqueue("report.export", {"b": 2, "a": 1}, org_id=ORG, idempotency_key="k")

    assert not again.differs


@pytest.mark.req("I-02", "I-12")
def test_duplicates_within_one_call_are_one_job(work: Holdfast) -> None:
    many = work.enqueue_many("report.export", [{"n": 1}, {"n": 1}], org_id=ORG, idempotency_key="k")

    assert [item.created for item in many] == [True, False]
    assert len({item.id for item in many}) == 1


@pytest.mark.req("I-02", "I-11", "I-12")
def test_many_callers_at_the_same_instant_make_one_job(work: Holdfast) -> None:
    callers = 16
    start = threading.Barrier(callers)
    answers: list[Any] = []

    def call() -> None:
        start.wait()
        answers.append(work.enqueue("report.export", {}, org_id=ORG, idempotency_key="k"))

    threads = [threading.Thread(target=call) for _ in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(answers) == callers
    assert len({answer.id for answer in answers}) == 1
    assert sum(answer.created for answer in answers) == 1


@pytest.mark.req("I-03")
def test_equal_keys_of_two_tenants_never_meet(work: Holdfast) -> None:
    mine = work.enqueue("report.export", {}, org_id=ORG, idempotency_key="k")
    theirs = work.enqueue("report.export", {}, org_id=OTHER_ORG, idempotency_key="k")

    assert mine.created
    assert theirs.created
    assert mine.idempotency_key != theirs.idempotency_key
    assert theirs.org_id == OTHER_ORG


@pytest.mark.req("I-04")
def test_the_project_is_part_of_the_key(work: Holdfast) -> None:
    without = work.enqueue("report.export", {}, org_id=ORG, idempotency_key="k")
    within = work.enqueue("report.export", {}, org_id=ORG, project_id=PROJECT, idempotency_key="k")

    assert within.created
    assert PROJECT in within.idempotency_key
    assert PROJECT not in without.idempotency_key


def test_the_job_type_is_part_of_the_key(work: Holdfast) -> None:
    work.job("report.import")(lambda job, payload: None)

    work.enqueue("report.export", {}, org_id=ORG, idempotency_key="k")

    assert work.enqueue("report.import", {}, org_id=ORG, idempotency_key="k").created


@pytest.mark.req("I-05")
def test_a_key_is_stored_in_full_form(work: Holdfast) -> None:
    enqueued = work.enqueue(
        "report.export", {}, org_id=ORG, project_id=PROJECT, idempotency_key="k"
    )

    job_type, org_id, project_id, digest = enqueued.idempotency_key.split(":")
    assert (job_type, org_id, project_id) == ("report.export", ORG, PROJECT)
    assert len(digest) == 32


@pytest.mark.req("I-05", "I-06")
def test_a_key_made_from_inputs_is_kept_as_it_is(work: Holdfast) -> None:
    key = key_for("report.export", ORG, None, {"b": 1, "a": [2]})

    enqueued = work.enqueue("report.export", {}, org_id=ORG, idempotency_key=key)

    assert enqueued.idempotency_key == key
    assert key == key_for("report.export", ORG, None, {"a": [2], "b": 1})


@pytest.mark.req("I-03", "I-04")
@pytest.mark.parametrize(
    "foreign",
    [
        f"report.export:{OTHER_ORG}::x",
        f"report.export:{ORG}:{PROJECT}:x",
        f"other.type:{ORG}::x",
        f"report.export:{OTHER_ORG}:{PROJECT}:x",
    ],
)
def test_a_full_key_of_another_scope_is_refused(foreign: str) -> None:
    with pytest.raises(ForeignKeyScope):
        full_key("report.export", ORG, None, foreign)


@pytest.mark.req("I-11")
def test_the_column_itself_is_unique(work: Holdfast) -> None:
    first = work.enqueue("report.export", {}, org_id=ORG, idempotency_key="k")

    copied = copy_of_envelope({"id": "CAST(:copy_id AS {uuid})"})
    rule = refused_by(work, copied, id=first.id, copy_id=PROJECT)

    assert "job_once_per_key" in rule or "idempotency_key" in rule
    assert timeline(work, first) == ["job.enqueued"]


@pytest.mark.req("I-13")
def test_an_execution_unit_has_one_job_and_gives_it_its_key(work: Holdfast) -> None:
    first = work.enqueue("report.export", {}, org_id=ORG, unit_key="request-1/recipient-2")
    again = work.enqueue("report.export", {}, org_id=ORG, unit_key="request-1/recipient-2")
    with pytest.raises(InvalidJob, match="pass one of them"):
        work.enqueue("report.export", {}, org_id=ORG, unit_key="u", idempotency_key="k")
    other = work.enqueue("report.export", {}, org_id=ORG, unit_key="request-1/recipient-3")
    theirs = work.enqueue("report.export", {}, org_id=OTHER_ORG, unit_key="request-1/recipient-2")

    assert (again.id, again.created) == (first.id, False)
    assert other.created
    assert theirs.created


@pytest.mark.req("I-07")
def test_the_record_of_a_key_shows_the_state_of_its_job_at_every_step(
    hf: Holdfast, clock: FakeClock
) -> None:
    faults: list[BaseException] = [Transient(), Permanent()]

    @hf.job("report.export")
    def export(job: object, payload: object) -> None:
        raise faults.pop(0)

    enqueued = hf.enqueue("report.export", {}, org_id=ORG, idempotency_key="k")
    key = enqueued.idempotency_key
    statuses = [record(hf, key)["status"]]
    first_seen = record(hf, key)["first_seen_at"]
    claim(hf)
    statuses.append(record(hf, key)["status"])
    clock.advance(seconds=61)
    hf.enqueue("report.export", {}, org_id=ORG, idempotency_key="k")
    last_seen = record(hf, key)["last_seen_at"]
    rescue_jobs(hf.store, limit=1)
    statuses.append(record(hf, key)["status"])
    hf.worker().run_once()
    clock.advance(minutes=10)
    hf.worker().run_once()
    last = record(hf, key)

    assert statuses == ["pending", "running", "failed"]
    assert last["status"] == "dead"
    assert last["error_ref"] == f"dead_letter:{enqueued.id}"
    assert last["result_ref"] is None
    assert last_seen > first_seen


@pytest.mark.req("I-07")
def test_the_record_of_a_finished_key_points_at_its_result_and_of_a_canceled_one_at_its_event(
    work: Holdfast,
) -> None:
    done = work.enqueue("report.export", {}, org_id=ORG)
    work.worker().run_once()
    stopped = work.enqueue("report.export", {}, org_id=ORG)
    work.cancel(stopped.id, org_id=ORG)

    succeeded, canceled = (record(work, item.idempotency_key) for item in (done, stopped))
    cancel_event = next(e for e in events(work, stopped) if e["name"] == "job.canceled")

    assert (succeeded["status"], succeeded["result_ref"]) == ("succeeded", f"job:{done.id}")
    assert (canceled["status"], canceled["error_ref"]) == ("failed", f"event:{cancel_event['id']}")


@pytest.mark.req("I-08")
@pytest.mark.parametrize(
    ("category", "days"),
    [("notification", 7), ("planning", 30), ("export", 30), ("maintenance", 7)],
)
def test_the_record_of_a_key_ends_with_its_ttl_and_its_job_row_still_answers(
    hf: Holdfast, clock: FakeClock, category: str, days: int
) -> None:
    hf.job("report.export", category=category)(lambda job, payload: None)
    first = hf.enqueue("report.export", {}, org_id=ORG, idempotency_key="k")
    hf.worker().run_once()

    clock.advance(timedelta(days=days) - timedelta(milliseconds=1))
    before = record(hf, first.idempotency_key)
    clock.advance(milliseconds=1)
    after = record(hf, first.idempotency_key)
    again = hf.enqueue("report.export", {}, org_id=ORG, idempotency_key="k")

    assert before is not None
    assert after is None
    assert (again.id, again.created) == (first.id, False)


@pytest.mark.req("I-14")
def test_completing_twice_changes_nothing(work: Holdfast) -> None:
    enqueued = work.enqueue("report.export", {}, org_id=ORG)
    (claimed,) = claim(work)

    first = settle(work.store, [(claimed, Completed('{"n":1}'))], actor=SYSTEM)
    second = settle(work.store, [(claimed, Completed('{"n":2}'))], actor=SYSTEM)

    assert (first[0].lease_held, second[0].lease_held) == (True, True)
    assert work.get(enqueued.id, org_id=ORG).result == {"n": 1}
    assert timeline(work, enqueued) == ["job.enqueued", "job.started", "job.succeeded"]


@pytest.mark.req("I-15")
def test_each_outcome_of_a_group_reaches_its_own_job_and_no_other(work: Holdfast) -> None:
    enqueued = work.enqueue_many("report.export", [{"n": n} for n in range(10)], org_id=ORG)
    claimed = claim(work, limit=10)

    settle(
        work.store,
        [(job, Completed(f'"{job.id}"')) for job in reversed(claimed)],
        actor=SYSTEM,
    )

    for item in enqueued:
        assert work.get(item.id, org_id=ORG).result == item.id


@pytest.mark.req("I-01")
def test_the_key_a_handler_may_pass_on_is_the_same_on_every_attempt(
    hf: Holdfast, clock: FakeClock
) -> None:
    seen: list[str] = []

    @hf.job("charge.card")
    def charge(job: Any, payload: object) -> None:
        seen.append(job.idempotency_key)
        if job.attempt < 3:
            raise Transient

    enqueued = hf.enqueue("charge.card", {}, org_id=ORG)
    for _ in range(3):
        hf.worker().run_once()
        clock.advance(minutes=10)

    assert seen == [enqueued.idempotency_key] * 3


@pytest.mark.req("I-07", "I-08")
def test_a_caller_can_look_up_a_key_until_it_expires(work: Holdfast, clock: FakeClock) -> None:
    enqueued = work.enqueue("report.export", {}, org_id=ORG, idempotency_key="monthly")
    waiting = work.find_key("report.export", "monthly", org_id=ORG)
    work.worker().run_once()
    done = work.find_key("report.export", "monthly", org_id=ORG)
    clock.advance(days=31)

    assert waiting is not None
    assert done is not None
    assert (waiting.job_id, waiting.status) == (enqueued.id, KeyStatus.PENDING)
    assert (done.status, done.result_ref) == (KeyStatus.SUCCEEDED, f"job:{enqueued.id}")
    assert work.find_key("report.export", "monthly", org_id=OTHER_ORG) is None
    assert work.find_key("report.export", "monthly", org_id=ORG) is None
