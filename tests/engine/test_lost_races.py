"""Two transactions move one job at once: the second waits, and then decides on what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from holdfast import CancelAnswer, FakeClock, Holdfast, State
from holdfast.config import RetentionSettings
from holdfast.engine import deadline, promote
from holdfast.engine.cancel import request_cancels
from holdfast.engine.classify import fault_of
from holdfast.engine.enqueue import SQL as ENQUEUE_SQL
from holdfast.engine.enqueue import Enqueued, insert_steps
from holdfast.engine.execute import name_stage
from holdfast.engine.job import (
    SYSTEM,
    Advanced,
    Canceled,
    Completed,
    Outcome,
    Released,
    Retry,
    Snoozed,
    Submitted,
)
from holdfast.engine.maintenance import rescue_jobs
from holdfast.engine.retention import _prune, prune_jobs
from holdfast.engine.settle import Settled, settle, settle_in
from holdfast.engine.unique import SQL as UNIQUE_SQL
from holdfast.errors import RuleBroken, StoreBusy
from holdfast.store import Statement, Tx
from holdfast.store.caller_connection import Steps, run
from tests.meanwhile import meanwhile
from tests.operate.sound import assert_sound
from tests.rows import claim_by_hand, outcome_of
from tests.story import ORG, by_hand, claim, look, make_holdfast, timeline

TYPE = "report.export"
RETRY = Retry(fault_of(ValueError("x"), stage="run", attempt=1), 60_000)
BACK = [RETRY, Released("drained", 60_000), Snoozed(60_000), Submitted("batch-1")]
names = [type(outcome).__name__ for outcome in BACK]


def declare(hf: Holdfast) -> Holdfast:
    hf.job(TYPE)(lambda job, payload: payload)
    return hf


@pytest.fixture
def work(hf: Holdfast) -> Holdfast:
    return declare(hf)


@pytest.fixture
def other(work: Holdfast, url: str, clock: FakeClock) -> Iterator[Holdfast]:
    """The same database in another process."""
    with declare(make_holdfast(url, clock)) as made:
        yield made


@pytest.fixture
def pair(postgres_url: str, clock: FakeClock) -> Iterator[tuple[Holdfast, Holdfast]]:
    """Two processes on PostgreSQL, for what SQLite with its one writer cannot do."""
    with make_holdfast(postgres_url, clock) as one, make_holdfast(postgres_url, clock) as two:
        yield declare(one), declare(two)


def cancels(hf: Holdfast) -> int:
    found: int = look(hf.store, "SELECT count(*) AS n FROM holdfast.job_cancel")[0]["n"]
    return found


def canceling(*jobs: Any) -> Callable[[Tx], list[CancelAnswer]]:
    asked = [{"org_id": job.org_id, "id": job.id} for job in jobs]
    return lambda tx: [*request_cancels(tx, asked, actor=SYSTEM, reason="").values()]


def settling(job: Any, outcome: Outcome) -> Callable[[Tx], list[Settled]]:
    return lambda tx: settle_in(tx, [(job, outcome)], actor=SYSTEM)


@pytest.mark.req("A-10", "J-07")
@pytest.mark.parametrize("outcome", BACK, ids=names)
def test_a_cancel_waits_for_a_settle_that_requeues_the_job_and_ends_it(
    work: Holdfast, other: Holdfast, outcome: Outcome
) -> None:
    enqueued = work.enqueue(TYPE, {}, org_id=ORG)
    (job,) = claim(work)

    _, answer = meanwhile(
        work, settling(job, outcome), lambda: other.cancel(enqueued.id, org_id=ORG)
    )

    assert answer is CancelAnswer.CANCELED
    assert work.get(enqueued.id, org_id=ORG).state is State.CANCELED
    assert_sound(work)


@pytest.mark.req("A-10", "J-09")
def test_a_cancel_that_waited_for_the_end_of_the_job_is_too_late_and_leaves_no_request(
    work: Holdfast, other: Holdfast
) -> None:
    enqueued = work.enqueue(TYPE, {}, org_id=ORG)
    (job,) = claim(work)

    _, answer = meanwhile(
        work, settling(job, Completed('"done"')), lambda: other.cancel(enqueued.id, org_id=ORG)
    )

    assert answer is CancelAnswer.TOO_LATE
    assert cancels(work) == 0
    assert timeline(work, enqueued)[-1] == "job.cancel_requested"
    assert_sound(work)


@pytest.mark.req("A-10", "J-07")
@pytest.mark.parametrize("outcome", BACK, ids=names)
def test_a_settle_that_requeues_a_job_waits_for_a_cancel_and_ends_the_job(
    work: Holdfast, other: Holdfast, outcome: Outcome
) -> None:
    enqueued = work.enqueue(TYPE, {}, org_id=ORG)
    (job,) = claim(work)

    (answer,), (settled,) = meanwhile(
        work, canceling(enqueued), lambda: settle(other.store, [(job, outcome)], actor=SYSTEM)
    )

    assert answer is CancelAnswer.REQUESTED
    assert settled.canceled_instead
    assert work.get(enqueued.id, org_id=ORG).state is State.CANCELED
    assert_sound(work)


def test_a_cancel_and_the_end_of_a_stage_at_once_are_recorded_one_after_the_other(
    work: Holdfast, other: Holdfast
) -> None:
    pipeline = work.pipeline("review.run")
    for stage in ("first", "second", "third"):
        pipeline.stage(stage)(lambda job, payload: 1)
    enqueued = work.enqueue("review.run", {}, org_id=ORG)
    (job,) = claim(work)
    job = name_stage(job, work.registry)

    (second,), answer = meanwhile(
        work,
        settling(job, Advanced("1", "second", 3)),
        lambda: other.cancel(enqueued.id, org_id=ORG),
    )
    assert second.next_claim is not None
    going = second.next_claim
    (again,), (third,) = meanwhile(
        work,
        canceling(enqueued),
        lambda: settle(other.store, [(going, Advanced("2", "third", 3))], actor=SYSTEM),
    )

    assert (answer, again) == (CancelAnswer.REQUESTED, CancelAnswer.REQUESTED)
    assert third.cancel_requested_at is not None
    assert_sound(work)


def test_of_two_cancels_at_once_one_cancels_the_job_and_the_other_is_too_late(
    work: Holdfast, other: Holdfast
) -> None:
    enqueued = work.enqueue(TYPE, {}, org_id=ORG)

    (first,), second = meanwhile(
        work, canceling(enqueued), lambda: other.cancel(enqueued.id, org_id=ORG)
    )

    assert (first, second) == (CancelAnswer.CANCELED, CancelAnswer.TOO_LATE)
    assert timeline(work, enqueued).count("job.canceled") == 1
    assert_sound(work)


def test_a_cancel_of_a_job_that_becomes_ready_meanwhile_cancels_it(
    work: Holdfast, other: Holdfast, clock: FakeClock
) -> None:
    enqueued = work.enqueue(TYPE, {}, org_id=ORG, delay=60)
    clock.advance(minutes=2)

    promoted, answer = meanwhile(work, promoting, lambda: other.cancel(enqueued.id, org_id=ORG))

    assert promoted == 1
    assert answer is CancelAnswer.CANCELED
    assert_sound(work)


def promoting(tx: Tx) -> int:
    return len(tx.values(promote.SQL.promote_due, queue="q:default", limit=10))


def test_a_group_is_settled_in_the_order_in_which_a_cancel_locks_its_jobs(
    work: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    work.enqueue_many(TYPE, [{} for _ in range(6)], org_id=ORG)
    jobs = claim(work, limit=6)
    written: list[list[str]] = []
    ready = Tx._ready

    def note(tx: Tx, statement: Statement, params: dict[str, Any]) -> Any:
        if "changes" in params:
            written.append([row["id"] for row in params["changes"]])
        return ready(tx, statement, params)

    monkeypatch.setattr(Tx, "_ready", note)
    settled = settle(work.store, [(job, Completed()) for job in reversed(jobs)], actor=SYSTEM)

    assert written == [sorted(job.id for job in jobs)]
    assert [one.job for one in settled] == [*reversed(jobs)]


@pytest.mark.parametrize("outcome", [RETRY, Completed('"done"'), Canceled()], ids=type)
def test_a_settle_that_waited_for_the_rescue_of_its_job_has_lost_its_lease(
    work: Holdfast, other: Holdfast, clock: FakeClock, outcome: Outcome
) -> None:
    enqueued = work.enqueue(TYPE, {}, org_id=ORG)
    (job,) = claim(work)
    clock.advance(minutes=5)

    _, (settled,) = meanwhile(
        work,
        settling(job, Released("lease_expired")),
        lambda: settle(other.store, [(job, outcome)], actor=SYSTEM),
    )

    assert not settled.lease_held
    assert timeline(work, enqueued)[-1] == "job.lease_lost"
    assert_sound(work)


def test_a_rescue_passes_over_a_job_that_is_being_settled(
    work: Holdfast, other: Holdfast, clock: FakeClock
) -> None:
    enqueued = work.enqueue(TYPE, {}, org_id=ORG)
    (job,) = claim(work)
    clock.advance(minutes=5)

    _, rescued = meanwhile(
        work, settling(job, Completed('"done"')), lambda: rescue_jobs(other.store, limit=10)
    )

    assert rescued == []
    assert work.get(enqueued.id, org_id=ORG).state is State.COMPLETED
    assert_sound(work)


def test_two_cancels_of_a_job_that_a_provider_has_end_it_once(
    work: Holdfast, other: Holdfast
) -> None:
    enqueued = work.enqueue(TYPE, {}, org_id=ORG)
    (job,) = claim(work)
    settle(work.store, [(job, Submitted("batch-1"))], actor=SYSTEM)

    (answer,), answered = meanwhile(
        work, canceling(enqueued), lambda: other.cancel(enqueued.id, org_id=ORG)
    )

    assert (answer, answered) == (CancelAnswer.CANCELED, CancelAnswer.TOO_LATE)
    assert_sound(work)


@pytest.mark.parametrize("cancels_first", [True, False])
def test_a_cancel_and_the_result_of_a_batch_at_once_end_the_job_once(
    work: Holdfast, other: Holdfast, cancels_first: bool
) -> None:
    enqueued = work.enqueue(TYPE, {}, org_id=ORG)
    (job,) = claim(work)
    settle(work.store, [(job, Submitted("batch-1"))], actor=SYSTEM)
    sent = replace(job, state=State.BATCH_SUBMITTED)

    if cancels_first:
        (answer,), (settled,) = meanwhile(
            work,
            canceling(enqueued),
            lambda: settle(other.store, [(sent, Completed('"done"'))], actor=SYSTEM),
        )
    else:
        done, answer = meanwhile(
            work,
            settling(sent, Completed('"done"')),
            lambda: other.cancel(enqueued.id, org_id=ORG),
        )
        settled = done[0]

    assert settled.lease_held is not cancels_first
    assert answer is (CancelAnswer.CANCELED if cancels_first else CancelAnswer.TOO_LATE)
    assert cancels(work) == cancels_first
    assert_sound(work)


def test_a_worker_continues_when_a_job_is_canceled_while_its_deadline_passes(
    work: Holdfast, other: Holdfast, clock: FakeClock
) -> None:
    late = work.enqueue(TYPE, {}, org_id=ORG, expires_in=60)
    clock.advance(minutes=2)
    good = work.enqueue(TYPE, {}, org_id=ORG)

    (answer,), _ = meanwhile(work, canceling(late), lambda: other.worker().run(until_idle=True))

    assert answer is CancelAnswer.CANCELED
    assert timeline(work, late) == ["job.enqueued", "job.cancel_requested", "job.canceled"]
    assert work.get(good.id, org_id=ORG).state is State.COMPLETED
    assert_sound(work)


def test_a_job_that_is_claimed_while_its_deadline_passes_is_not_recorded_as_canceled(
    pair: tuple[Holdfast, Holdfast], clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, other = pair
    late = work.enqueue(TYPE, {}, org_id=ORG, expires_in=60)
    clock.advance(minutes=2)
    many = Tx.many

    def noted(tx: Tx, statement: Statement, /, **params: Any) -> Any:
        rows = many(tx, statement, **params)
        if statement.name == "find_expired":
            claim_by_hand(other.store, late.id)
        return rows

    monkeypatch.setattr(Tx, "many", noted)
    assert deadline.expire_jobs(work.store) == 0
    monkeypatch.undo()

    assert timeline(work, late) == ["job.enqueued", "job.started"]
    assert work.get(late.id, org_id=ORG).state is State.PROCESSING


def test_one_expired_job_that_the_database_refuses_does_not_keep_the_others(
    work: Holdfast, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, late = (work.enqueue(TYPE, {}, org_id=ORG, expires_in=60) for _ in range(2))
    clock.advance(minutes=2)
    many = Tx.many

    def refusing(tx: Tx, statement: Statement, /, **params: Any) -> Any:
        if statement.name == "cancel_jobs" and broken.id in [row["id"] for row in params["jobs"]]:
            raise RuleBroken("planted", "changed by hand")
        return many(tx, statement, **params)

    monkeypatch.setattr(Tx, "many", refusing)
    work.worker().run(until_idle=True)

    assert timeline(work, broken) == ["job.enqueued"]
    assert timeline(work, late) == ["job.enqueued", "job.canceled"]


def test_one_due_job_that_the_database_refuses_does_not_keep_other_tenants(
    work: Holdfast, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    work.enqueue(TYPE, {}, org_id=ORG, delay=60)
    theirs = work.enqueue(TYPE, {}, org_id="0198c0de-0000-7000-8000-00000000000b", delay=60)
    clock.advance(minutes=2)
    values = Tx.values

    def refusing(tx: Tx, statement: Statement, /, **params: Any) -> Any:
        tenants = [row["org_id"] for row in params.get("tenants", ())]
        if statement.name == "promote_due" or ORG in tenants:
            raise RuleBroken("planted", "changed by hand")
        return values(tx, statement, **params)

    monkeypatch.setattr(Tx, "values", refusing)
    work.worker().run(until_idle=True)

    assert work.get(theirs.id, org_id=theirs.org_id).state is State.COMPLETED


def test_facts_that_contradict_each_other_are_refused_by_name_after_some_reruns(
    pair: tuple[Holdfast, Holdfast],
) -> None:
    work, _ = pair
    enqueued = work.enqueue(TYPE, {}, org_id=ORG)
    work.worker().run(until_idle=True)

    with pytest.raises(RuleBroken) as refused:
        by_hand(work.store, outcome_of("completed"), id=enqueued.id)

    assert refused.value.rule == "job_outcome_pkey"


@pytest.mark.parametrize("as_caller", [False, True])
def test_a_job_that_is_claimed_while_it_is_replaced_runs_and_the_new_one_waits(
    pair: tuple[Holdfast, Holdfast], as_caller: bool
) -> None:
    work, other = pair
    old = work.enqueue(TYPE, {"n": 1}, org_id=ORG, unique_key="u")

    _, new = meanwhile(work, starting(old.id), lambda: replacing(other, as_caller))

    assert new.created
    assert work.get(old.id, org_id=ORG).state is State.PROCESSING
    assert work.get(new.id, org_id=ORG).state is State.QUEUED


@pytest.mark.parametrize("as_caller", [False, True])
def test_a_job_that_becomes_ready_while_it_is_replaced_is_superseded(
    pair: tuple[Holdfast, Holdfast], clock: FakeClock, as_caller: bool
) -> None:
    work, other = pair
    old = work.enqueue(TYPE, {"n": 1}, org_id=ORG, unique_key="u", delay=60)
    clock.advance(minutes=2)

    _, new = meanwhile(work, promoting, lambda: replacing(other, as_caller))

    assert new.created
    assert timeline(work, old) == ["job.enqueued", "job.canceled"]
    assert_sound(work)


def starting(job_id: str) -> Callable[[Tx], object]:
    """Claim a job with one statement."""
    text = (
        "INSERT INTO holdfast.job_running (org_id, job_id, turn, claimed_at, lease_expires_at,"
        " lease_token, started_attempt, attempt_count, max_attempts, queue, limit_key, stage,"
        " claimed_by) SELECT ready.org_id, ready.job_id, ready.turn, {now}, {later(60000)}, 1, 1,"
        " 0, job.max_attempts, ready.queue, ready.limit_key, job.stage, 'w9'"
        " FROM holdfast.job_ready AS ready JOIN holdfast.job_envelope AS job"
        " ON job.org_id = ready.org_id AND job.id = ready.job_id WHERE ready.job_id = :id"
    )
    statement = Statement("start", "affected", "", text, frozenset())
    return lambda tx: tx.affected(statement, id=job_id)


def replacing(hf: Holdfast, as_caller: bool) -> Any:
    given: dict[str, Any] = {"org_id": ORG, "unique_key": "u", "replace": True}
    if not as_caller:
        return hf.enqueue(TYPE, {"n": 2}, **given)
    with psycopg.connect(hf.settings.db) as conn:
        return hf.enqueue(TYPE, {"n": 2}, **given, conn=conn)


def seen_orphans(hf: Holdfast) -> int:
    rows = look(
        hf.store,
        "SELECT count(*) AS n FROM holdfast.job_key_seen AS seen WHERE NOT EXISTS ("
        "SELECT 1 FROM holdfast.job_envelope AS job WHERE job.id = seen.job_id)",
    )
    found: int = rows[0]["n"]
    return found


def over(job: Any) -> Callable[[Tx], int]:
    return lambda tx: _prune(tx, [{"org_id": job.org_id, "id": job.id}])


@pytest.mark.parametrize("as_caller", [False, True])
def test_a_request_for_a_key_whose_job_is_being_pruned_leaves_nothing_behind(
    pair: tuple[Holdfast, Holdfast], as_caller: bool
) -> None:
    work, other = pair
    old = work.enqueue(TYPE, {}, org_id=ORG, idempotency_key="k")
    work.worker().run(until_idle=True)

    def ask() -> Any:
        if not as_caller:
            return other.enqueue(TYPE, {}, org_id=ORG, idempotency_key="k")
        with psycopg.connect(other.settings.db) as conn:
            return other.enqueue(TYPE, {}, org_id=ORG, idempotency_key="k", conn=conn)

    pruned, asked = meanwhile(work, over(old), ask)

    assert pruned == 1
    assert asked.created
    assert seen_orphans(work) == 0
    assert_sound(work)


def test_a_duplicate_that_is_pruned_before_its_key_is_recorded_is_refused(
    pair: tuple[Holdfast, Holdfast],
) -> None:
    work, other = pair
    old = work.enqueue(TYPE, {}, org_id=ORG, idempotency_key="k")
    work.worker().run(until_idle=True)
    batch = other.prepare(TYPE, {}, job_id=str(uuid4()), org_id=ORG, idempotency_key="k")

    def pruned_after_the_lookup() -> Steps[list[Enqueued]]:
        steps = insert_steps(batch)
        step = next(steps)
        while True:
            if step[0] is ENQUEUE_SQL.record_seen:
                assert work.store.write(over(old)) == 1
            answer = yield step
            try:
                step = steps.send(answer)
            except StopIteration as end:
                return end.value

    with pytest.raises(StoreBusy, match="was pruned concurrently"):
        other.store.write(lambda tx: run(tx, pruned_after_the_lookup()))

    assert other.enqueue(TYPE, {}, org_id=ORG, idempotency_key="k").created
    assert_sound(work)


def test_a_prune_waits_for_a_request_for_the_key_and_deletes_its_record_too(
    work: Holdfast, other: Holdfast
) -> None:
    old = work.enqueue(TYPE, {}, org_id=ORG, idempotency_key="k")
    work.worker().run(until_idle=True)
    seen = [{"org_id": ORG, "id": old.id}]

    _, pruned = meanwhile(
        work,
        lambda tx: tx.many(ENQUEUE_SQL.record_seen, seen=seen),
        lambda: other.store.write(over(old)),
    )

    assert pruned == 1
    assert seen_orphans(work) == 0
    assert_sound(work)


def test_a_prune_waits_for_a_request_for_the_key_in_sql_too(
    pair: tuple[Holdfast, Holdfast],
) -> None:
    work, other = pair
    old = work.enqueue(TYPE, {}, org_id=ORG, idempotency_key="k")
    work.worker().run(until_idle=True)
    text = (
        "SELECT job_id FROM holdfast.enqueue(:job_type, '{}', CAST(:org_id AS uuid),"
        " idempotency_key => 'k')"
    )
    ask = Statement("ask", "many", "", text, frozenset())

    (asked,), pruned = meanwhile(
        work,
        lambda tx: tx.many(ask, job_type=TYPE, org_id=ORG),
        lambda: other.store.write(over(old)),
    )

    assert (asked["job_id"], pruned) == (old.id, 1)
    assert seen_orphans(work) == 0
    assert_sound(work)


def test_a_login_with_only_the_rights_of_the_engine_prunes_and_cancels(
    postgres_url: str, clock: FakeClock
) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        login = f"pruner_{admin.info.backend_pid}"
        admin.execute(f"CREATE ROLE {login} LOGIN IN ROLE holdfast_engine".encode())
        try:
            with make_holdfast(postgres_url.replace("postgres@", f"{login}@"), clock) as hf:
                declare(hf)
                first = hf.enqueue(TYPE, {}, org_id=ORG, idempotency_key="k")
                again = hf.enqueue(TYPE, {}, org_id=ORG, idempotency_key="k")
                canceled = hf.cancel(first.id, org_id=ORG)
                clock.advance(timedelta(days=400))
                pruned = prune_jobs(hf.store, RetentionSettings(), limit=10)
        finally:
            admin.execute(f"DROP ROLE {login}".encode())

    assert (again.created, canceled, pruned) == (False, CancelAnswer.CANCELED, 1)


def test_the_statement_that_supersedes_jobs_says_which_it_ended(work: Holdfast) -> None:
    waits = work.enqueue(TYPE, {}, org_id=ORG, delay=60)
    running = work.enqueue(TYPE, {}, org_id=ORG)
    assert claim(work)[0].id == running.id
    asked = [{"org_id": ORG, "id": job.id} for job in (waits, running)]

    ended = work.store.write(lambda tx: tx.many(UNIQUE_SQL.supersede_jobs, jobs=asked))

    assert [row["id"] for row in ended] == [waits.id]
