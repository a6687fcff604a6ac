"""A job type with a producer: one caller enqueues, and each execution unit has one job."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import errors as pg

from holdfast import (
    ConfigError,
    Context,
    EnqueueRefused,
    FakeClock,
    Forbidden,
    Gone,
    Holdfast,
    InvalidJob,
    InvalidSchedule,
    JobRequest,
    Producer,
    QueueFull,
    State,
)
from holdfast.engine.enqueue import insert_steps
from holdfast.errors import RuleBroken
from holdfast.store.caller_connection import run
from tests.engine.planting import plant
from tests.operate.letters import operator, prepare
from tests.operate.sound import assert_sound
from tests.rows import copy_of_envelope
from tests.story import ORG, OTHER_ORG, by_hand, look, make_holdfast

CALL = "billing.charge(…)"
CHARGE = "billing.charge"


class Billing:
    """An application with one job type that only it enqueues."""

    def __init__(self, hf: Holdfast, **options: Any) -> None:
        self.hf = hf
        self.fault: Exception | None = None
        self.producer = Producer(CALL)
        hf.job(CHARGE, producer=self.producer, **options)(self._run)

    def _run(self, job: Context, payload: Any) -> Any:
        if self.fault is not None:
            raise self.fault
        return {"charged": payload.get("n")}

    def charge(self, unit: str = "invoice-1", **options: Any) -> Any:
        given = {"org_id": ORG, "unit_key": unit, "producer": self.producer, **options}
        return self.hf.enqueue(CHARGE, {"n": 1}, **given)


@pytest.fixture
def billing(hf: Holdfast) -> Billing:
    return Billing(hf)


def count(hf: Holdfast, table: str = "job") -> int:
    (row,) = look(hf.store, f"SELECT count(*) AS n FROM holdfast.{table}")
    return int(row["n"])


# -- the declaring process


@pytest.mark.req("I-13", "J-27")
def test_the_producer_enqueues_and_a_second_enqueue_of_the_unit_is_a_no_op(
    billing: Billing,
) -> None:
    first, again = billing.charge(), billing.charge()
    other = billing.charge("invoice-2")

    assert (first.created, again.created, other.created) == (True, False, True)
    assert again.id == first.id
    assert count(billing.hf) == count(billing.hf, "execution_unit") == 2
    assert_sound(billing.hf)


def test_other_callers_are_refused_with_the_call_to_use(hf: Holdfast, billing: Billing) -> None:
    forged = [None, Producer(CALL), CALL, True, object()]

    for producer in forged:
        with pytest.raises(EnqueueRefused, match=r"billing\.charge\(…\) instead") as caught:
            billing.charge(producer=producer)
        assert (caught.value.job_type, caught.value.call) == (CHARGE, CALL)
        assert isinstance(caught.value, Forbidden)
    for request in (JobRequest({}, ORG), JobRequest({}, ORG, unit_key="u")):
        with pytest.raises(EnqueueRefused):
            hf.enqueue_many(CHARGE, [request])
    with pytest.raises(EnqueueRefused):
        hf.for_org(ORG).enqueue_many(CHARGE, [{}, {}])
    with pytest.raises(EnqueueRefused):
        asyncio.run(hf.aenqueue_many(CHARGE, [{}], org_id=ORG))
    with pytest.raises(EnqueueRefused):
        hf.prepare(CHARGE, {}, job_id=hf.ids.new(), org_id=ORG)

    assert count(hf) == 0


def test_one_refused_request_among_many_leaves_nothing(hf: Holdfast, billing: Billing) -> None:
    mine = [JobRequest({}, ORG, unit_key=f"u{n}", producer=billing.producer) for n in range(3)]

    with pytest.raises(EnqueueRefused):
        hf.enqueue_many(CHARGE, [*mine, JobRequest({}, ORG, unit_key="u9")])

    assert (count(hf), count(hf, "execution_unit")) == (0, 0)
    assert [one.created for one in hf.enqueue_many(CHARGE, mine)] == [True] * 3


def test_a_large_bulk_of_the_producer_is_all_or_nothing_too(hf: Holdfast, billing: Billing) -> None:
    mine = [JobRequest({}, ORG, unit_key=f"u{n}", producer=billing.producer) for n in range(600)]

    made = hf.enqueue_many(CHARGE, mine)

    assert {one.created for one in made} == {True}
    assert count(hf) == count(hf, "execution_unit") == 600


def test_a_handler_may_not_enqueue_it_either(hf: Holdfast, billing: Billing) -> None:
    seen: list[type] = []

    @hf.job("shop.order")
    def order(job: Context, payload: Any) -> None:
        for options in ({}, {"unit_key": "u"}):
            try:
                hf.enqueue(CHARGE, {}, **options)
            except Forbidden as exc:
                seen.append(type(exc))

    hf.enqueue("shop.order", {}, org_id=ORG)
    hf.worker().run_once()

    assert seen == [EnqueueRefused] * 2
    assert count(hf) == 1


def test_a_best_effort_notification_is_refused_and_not_dropped(hf: Holdfast) -> None:
    Billing(hf, category="notification")

    with pytest.raises(EnqueueRefused):
        hf.notify(CHARGE, {}, org_id=ORG)
    with pytest.raises(EnqueueRefused):
        asyncio.run(hf.anotify(CHARGE, {}, org_id=ORG))


def test_a_schedule_of_it_is_refused_at_its_declaration(hf: Holdfast) -> None:
    Billing(hf, category="maintenance")

    with pytest.raises(InvalidSchedule, match=r"billing\.charge\(…\) only"):
        hf.schedule("nightly", cron="0 3 * * *", job_type=CHARGE, org_id=ORG)


def test_the_producer_must_name_the_unit(billing: Billing) -> None:
    with pytest.raises(InvalidJob, match="unit_key: is required"):
        billing.charge(unit_key=None)


def test_a_producer_is_refused_where_the_job_type_declares_none(hf: Holdfast) -> None:
    hf.job("plain.work")(lambda job, payload: None)

    with pytest.raises(InvalidJob, match="producer: is only for job types"):
        hf.enqueue("plain.work", {}, org_id=ORG, producer=Producer(CALL))


@pytest.mark.parametrize("producer", ["billing", 7, Producer(""), Producer("a\nb"), Producer(5)])  # type: ignore[arg-type]
def test_a_declaration_with_something_else_than_a_producer_is_refused(
    hf: Holdfast, producer: Any
) -> None:
    with pytest.raises(ConfigError, match="producer= must be a Producer"):
        hf.job("x.y", producer=producer)(lambda job, payload: None)


# -- processes that do not declare it


@pytest.fixture
def stranger(hf: Holdfast, billing: Billing, clock: FakeClock) -> Iterator[Holdfast]:
    """Another process on the same database, whose code has a job type of the same name."""
    billing.charge()
    with make_holdfast(hf.settings.db, clock) as made:
        made.job(CHARGE)(lambda job, payload: None)
        yield made


def test_a_process_without_the_declaration_is_refused_by_the_database(
    hf: Holdfast, stranger: Holdfast
) -> None:
    for options in ({}, {"unit_key": "invoice-1"}, {"unit_key": "invoice-9"}):
        if options == {"unit_key": "invoice-1"}:
            # The unit has its job: a second enqueue has no effect.
            assert not stranger.enqueue(CHARGE, {"n": 1}, org_id=ORG, **options).created
            continue
        with pytest.raises(EnqueueRefused, match=r"billing\.charge\(…\) instead"):
            stranger.enqueue(CHARGE, {}, org_id=ORG, **options)
    with pytest.raises(EnqueueRefused):
        stranger.enqueue_many(CHARGE, [{} for _ in range(600)], org_id=OTHER_ORG)

    assert count(hf) == 1
    assert_sound(hf)


def test_the_sql_function_is_refused_for_the_engine_and_for_a_tenant(
    postgres_url: str, clock: FakeClock
) -> None:
    with make_holdfast(postgres_url, clock) as hf:
        billing = Billing(hf)
        billing.charge()
        for role in (None, "holdfast_tenant"):
            with psycopg.connect(postgres_url) as conn:
                if role is not None:
                    conn.execute(f"SET ROLE {role}".encode())
                    conn.execute("SELECT set_config('holdfast.org_id', %s, false)", [ORG])
                with pytest.raises(pg.CheckViolation, match=r"billing\.charge\(…\) only") as caught:
                    conn.execute(
                        "SELECT holdfast.enqueue(%s, '{}', %s, idempotency_key => 'mine')",
                        [CHARGE, ORG],
                    )
                assert caught.value.diag.constraint_name == "job_needs_its_unit"

        assert count(hf) == 1


FORGED = copy_of_envelope(
    {
        "id": "CAST(:copy_id AS {uuid})",
        "idempotency_key": "idempotency_key || 'x'",
        "unit_key": "CAST(:unit AS text)",
        "replay_of": "CAST(:original AS {uuid})",
    }
)
STRAY = "0198c0de-0000-7000-8000-0000000000cc"


@pytest.mark.parametrize(
    ("unit", "is_replay", "rule"),
    [
        (None, False, "job_needs_its_unit"),
        ("invoice-9", False, "job_enqueued_by_producer"),
        ("invoice-1", True, "job_enqueued_by_producer"),
        (None, True, "job_needs_its_unit"),
    ],
    ids=["no unit", "a unit of its own", "a replay that nobody made", "a replay without a unit"],
)
def test_a_row_by_hand_is_refused_by_name(
    hf: Holdfast, billing: Billing, unit: str | None, is_replay: bool, rule: str
) -> None:
    job = billing.charge()

    original = job.id if is_replay else None
    with pytest.raises(RuleBroken) as caught:
        by_hand(hf.store, FORGED, id=job.id, copy_id=STRAY, unit=unit, original=original)

    assert caught.value.rule == rule
    assert count(hf) == 1


# -- the unit stays taken


@pytest.mark.req("J-27")
def test_the_unit_is_taken_while_its_job_is_kept_and_when_it_is_deleted(
    hf: Holdfast, billing: Billing, clock: FakeClock
) -> None:
    job = billing.charge()
    hf.worker().run_once()
    kept = billing.charge()
    plant(hf, "DELETE FROM holdfast.job_envelope")

    with pytest.raises(EnqueueRefused):
        billing.charge()

    assert (kept.id, kept.created) == (job.id, False)
    assert (count(hf), count(hf, "execution_unit")) == (0, 1)


def test_a_unit_never_changes_and_never_leaves(hf: Holdfast, billing: Billing) -> None:
    billing.charge()

    with pytest.raises(RuleBroken, match="execution_unit_stays"):
        by_hand(hf.store, "DELETE FROM holdfast.execution_unit")
    with pytest.raises(RuleBroken, match="execution_unit_never_changes"):
        by_hand(hf.store, "UPDATE holdfast.execution_unit SET unit_key = 'other'")


def test_a_full_queue_leaves_the_unit_free_also_on_the_callers_connection(
    hf: Holdfast, billing: Billing
) -> None:
    hf.queue("q:tight", max_depth=1)
    billing.charge("first", queue="q:tight")
    url = hf.settings.db
    conn: Any = (
        sqlite3.connect(url.removeprefix("sqlite:///"))
        if url.startswith("sqlite")
        else psycopg.connect(url)
    )
    with pytest.raises(QueueFull):
        billing.charge("second", queue="q:tight", conn=conn)
    conn.commit()
    conn.close()
    with pytest.raises(QueueFull):
        billing.charge("second", queue="q:tight")

    hf.worker().run_once()
    assert billing.charge("second", queue="q:tight").created


def test_an_enqueue_whose_answer_was_lost_is_the_same_job_with_its_unit(
    hf: Holdfast, billing: Billing
) -> None:
    mine = JobRequest({"n": 1}, ORG, unit_key="u", producer=billing.producer)
    (chunk,) = hf._chunks(CHARGE, [mine], None, {}, whole=True)
    hf.sync()

    # The transaction runs again with the same ids, because the answer to its commit was lost.
    answers = [hf.store.write(lambda tx: run(tx, insert_steps(chunk())))[0] for _ in range(2)]

    assert [one.created for one in answers] == [True, True]
    assert answers[0].id == answers[1].id
    assert (count(hf), count(hf, "execution_unit")) == (1, 1)


# -- replay


@pytest.mark.req("D-16")
def test_a_dead_letter_of_it_is_replayed_as_any_other(
    hf: Holdfast, billing: Billing, clock: FakeClock
) -> None:
    billing.fault = Gone()
    job = billing.charge()
    hf.worker().run_once()
    assert hf.get(job.id, org_id=ORG).state is State.FAILED
    billing.fault = None
    letters = operator(hf)
    prepare(letters, job)

    again = letters.replay(job.id, reason="the card is valid again").replay_job_id
    hf.worker().run_once()

    assert hf.get(again, org_id=ORG).state is State.COMPLETED
    assert_sound(hf)
