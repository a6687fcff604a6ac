"""``job.transaction(complete=True)``: the handler's rows and the job's outcome in one commit."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from holdfast import Context, FakeClock, Holdfast, SystemClock
from holdfast.engine.job import SYSTEM, Advanced, Released
from holdfast.engine.maintenance import rescue_jobs
from holdfast.engine.settle import settle_in
from holdfast.engine.worker import settle_buffer
from holdfast.errors import JobCanceled, LeaseLost, NetworkTimeout, RuleViolated, Snooze, StoreDown
from holdfast.testing import HoldfastApp
from tests.acceptance.processes import wait_until
from tests.engine.domain import ended, make_domain, run_one
from tests.engine.test_transaction import add, numbers
from tests.engine.test_worker import running
from tests.operate.sound import assert_sound
from tests.story import ORG, make_holdfast, timeline

LATE = 60
COMPLETED = ("completed", None)


@pytest.fixture
def shop(hf: Holdfast) -> Holdfast:
    """An application with a table of its own that its handlers may write."""
    make_domain(hf.store)
    return hf


@pytest.mark.req("I-14")
@pytest.mark.timeout(LATE)
def test_the_job_is_completed_when_the_block_has_ended(shop: Holdfast) -> None:
    seen: list[Any] = []

    @shop.job("sheet.make")
    def make(job: Context, payload: object) -> None:
        with job.transaction(complete=True) as connection:
            add(connection, 2)
            job.checkpoint({"page": 7})
            job.set_result({"sheet": 2})
            seen.append(shop.get(job.id, org_id=ORG).state)
        found = shop.get(job.id, org_id=ORG)
        seen.extend([found.state, found.result])

    made = run_one(shop, "sheet.make", {})

    assert seen == ["processing", "completed", {"sheet": 2}]
    assert ended(shop, made) == COMPLETED
    assert numbers(shop.store) == [1, 2]
    assert timeline(shop, made) == ["job.enqueued", "job.started", "job.succeeded"]
    assert_sound(shop)


def test_a_completed_job_is_not_settled_again(
    shop: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups: list[int] = []
    plain = settle_buffer.settle_bisecting

    def counting(store: Any, group: Any, **options: Any) -> Any:
        groups.append(len(group))
        return plain(store, group, **options)

    monkeypatch.setattr(settle_buffer, "settle_bisecting", counting)

    @shop.job("sheet.make")
    def make(job: Context, payload: object) -> None:
        with job.transaction(complete=True) as connection:
            add(connection, 2)

    made = run_one(shop, "sheet.make", {})

    assert ended(shop, made) == COMPLETED
    assert sum(groups) == 0


def test_without_a_result_it_is_null(shop: Holdfast) -> None:
    @shop.job("sheet.make")
    def make(job: Context, payload: object) -> None:
        with job.transaction(complete=True) as connection:
            add(connection, 2)

    made = run_one(shop, "sheet.make", {})

    assert ended(shop, made) == COMPLETED
    assert shop.get(made.id, org_id=ORG).result is None


@pytest.mark.timeout(LATE)
def test_an_asynchronous_handler_completes_its_job_too(shop: Holdfast) -> None:
    @shop.job("sheet.make")
    async def make(job: Context, payload: object) -> None:
        with job.transaction(complete=True) as connection:
            add(connection, 2)
            job.set_result("made")

    made = run_one(shop, "sheet.make", {})

    assert shop.get(made.id, org_id=ORG).result == "made"
    assert numbers(shop.store) == [1, 2]


def test_a_stage_that_is_followed_by_another_advances(shop: Holdfast) -> None:
    pipeline = shop.pipeline("sheet.press")

    @pipeline.stage("first")
    def first(job: Context, payload: object) -> None:
        with job.transaction(complete=True) as connection:
            add(connection, 2)
            job.set_result({"made": 2})
        found = shop.get(job.id, org_id=ORG)
        assert (found.state, found.stage) == ("processing", "second")

    @pipeline.stage("second")
    def second(job: Context, payload: object) -> Any:
        return {"from": job.outputs["first"]}

    made = run_one(shop, "sheet.press", {})

    assert shop.get(made.id, org_id=ORG).result == {"from": {"made": 2}}
    assert timeline(shop, made) == ["job.enqueued", "job.started", "job.advanced", "job.succeeded"]
    assert numbers(shop.store) == [1, 2]
    assert_sound(shop)


# -- after the block


def after_the_block(shop: Holdfast, finish: Any, caplog: pytest.LogCaptureFixture) -> list[str]:
    """Complete a job, then let its handler end as *finish* does; return the log."""

    @shop.job("sheet.make")
    def make(job: Context, payload: object) -> Any:
        with job.transaction(complete=True) as connection:
            add(connection, 2)
            job.set_result("recorded")
        return finish(job)

    with caplog.at_level(logging.WARNING, logger="holdfast"):
        made = run_one(shop, "sheet.make", {})

    assert ended(shop, made) == COMPLETED
    assert shop.get(made.id, org_id=ORG).result == "recorded"
    assert timeline(shop, made) == ["job.enqueued", "job.started", "job.succeeded"]
    assert numbers(shop.store) == [1, 2]
    assert_sound(shop)
    return [record.getMessage() for record in caplog.records]


def raiser(exc: BaseException) -> Any:
    def finish(job: Context) -> None:
        raise exc

    return finish


@pytest.mark.parametrize(
    "finish",
    [
        raiser(KeyError("too late")),
        raiser(NetworkTimeout()),
        raiser(Snooze(timedelta(seconds=5))),
        raiser(JobCanceled()),
        raiser(SystemExit(1)),
        lambda job: "another",
        lambda job: object(),
    ],
    ids=["defect", "transient", "snooze", "cancel", "exit", "value", "no document"],
)
def test_another_end_after_the_block_is_ignored_and_logged(
    shop: Holdfast, finish: Any, caplog: pytest.LogCaptureFixture
) -> None:
    said = after_the_block(shop, finish, caplog)

    assert said == ["handler.outcome_ignored"]
    fields = caplog.records[0].__dict__["fields"]
    assert fields["outcome"] == "completed"
    assert "too late" not in str(fields)


@pytest.mark.parametrize("finish", [lambda job: None, lambda job: "recorded"])
def test_the_same_end_after_the_block_is_nothing_to_log(
    shop: Holdfast, finish: Any, caplog: pytest.LogCaptureFixture
) -> None:
    assert after_the_block(shop, finish, caplog) == []


@pytest.mark.parametrize(
    "call",
    [
        lambda job: job.transaction().__enter__(),
        lambda job: job.transaction(complete=True).__enter__(),
        lambda job: job.progress(1),
        lambda job: job.checkpoint(1),
        lambda job: job.artifacts.put(b"bytes", name="late.txt"),
        lambda job: job.set_result(1),
    ],
    ids=["transaction", "complete", "progress", "checkpoint", "artifact", "result"],
)
def test_a_job_whose_outcome_is_recorded_writes_nothing_more(
    shop: Holdfast, call: Any, caplog: pytest.LogCaptureFixture
) -> None:
    said: list[str] = []

    def finish(job: Context) -> None:
        with pytest.raises(RuleViolated) as refused:
            call(job)
        said.append(str(refused.value))

    assert after_the_block(shop, finish, caplog) == []
    assert "already recorded" in said[0] or "complete=True" in said[0]


# -- a block that does not commit


@pytest.mark.parametrize(
    "error", [NetworkTimeout(), KeyError("inside")], ids=["transient", "defect"]
)
def test_an_error_inside_the_block_undoes_rows_and_outcome(
    shop: Holdfast, clock: FakeClock, error: Exception
) -> None:
    tries: list[int] = []

    @shop.job("sheet.make")
    def make(job: Context, payload: object) -> None:
        tries.append(job.attempt)
        with job.transaction(complete=True) as connection:
            add(connection, 1 + job.attempt)
            job.set_result("made")
            if job.attempt == 1:
                raise error

    made = run_one(shop, "sheet.make", {})
    first = numbers(shop.store)
    clock.advance(minutes=5)
    shop.worker().run_once()

    assert first == [1]
    if isinstance(error, NetworkTimeout):
        assert ended(shop, made)[0] == "completed"
        assert (tries, numbers(shop.store)) == ([1, 2], [1, 3])
    else:
        assert ended(shop, made) == ("failed", "DEFECT")
    assert_sound(shop)


def test_a_result_that_cannot_be_stored_fails_the_attempt(shop: Holdfast) -> None:
    @shop.job("sheet.make")
    def make(job: Context, payload: object) -> None:
        with job.transaction(complete=True) as connection:
            add(connection, 2)
            job.set_result(object())

    made = run_one(shop, "sheet.make", {})

    assert ended(shop, made) == ("failed", "RESULT_INVALID")
    assert numbers(shop.store) == [1]


@pytest.mark.req("I-14", "I-18")
def test_a_lost_lease_commits_neither_rows_nor_outcome(shop: Holdfast) -> None:
    raised: list[BaseException] = []

    @shop.job("sheet.make")
    def make(job: Context, payload: object) -> None:
        try:
            with job.transaction(complete=True) as connection:
                lose(job)
                add(connection, 2)
        except LeaseLost as exc:
            raised.append(exc)
            raise

    def lose(job: Context) -> None:
        if shop.store.dialect.name == "postgres":
            assert rescue_jobs(shop.store, limit=1, dead_worker_id=job.job.claimed_by)
        else:
            # The block has the only writer, so the claim can only be closed inside of it.
            opened = job.open_transaction()
            assert opened is not None
            opened.run(lambda tx: settle_in(tx, [(job.job, Released("lost"))], actor=SYSTEM))

    made = run_one(shop, "sheet.make", {})

    assert len(raised) == 1
    assert numbers(shop.store) == [1]
    assert "job.succeeded" not in timeline(shop, made)


def test_a_stage_that_was_settled_elsewhere_cannot_be_completed(shop: Holdfast) -> None:
    """The claim is still ours, but the job is at its next stage."""
    pipeline = shop.pipeline("sheet.press")

    @pipeline.stage("first")
    def first(job: Context, payload: object) -> None:
        with job.transaction(complete=True) as connection:
            opened = job.open_transaction()
            assert opened is not None
            gone = Advanced("null", "second", 3)
            opened.run(lambda tx: settle_in(tx, [(job.job, gone)], actor=SYSTEM))
            add(connection, 2)

    pipeline.stage("second")(lambda job, payload: "made")
    made = run_one(shop, "sheet.press", {})

    assert numbers(shop.store) == [1]
    assert ended(shop, made)[0] == "queued"


@pytest.mark.timeout(LATE)
@pytest.mark.parametrize("swallows", [False, True])
def test_a_cancel_request_before_the_end_of_the_block_wins(url: str, swallows: bool) -> None:
    is_open, may_end = threading.Event(), threading.Event()
    with make_holdfast(url, SystemClock(), poll_seconds=0.05) as hf:  # type: ignore[arg-type]
        make_domain(hf.store)

        @hf.job("sheet.make")
        def make(job: Context, payload: object) -> Any:
            try:
                is_open.set()
                assert may_end.wait(LATE)
                with job.transaction(complete=True) as connection:
                    add(connection, 2)
            except JobCanceled:
                if not swallows:
                    raise
            return "swallowed"

        made = hf.enqueue("sheet.make", {}, org_id=ORG)
        with running(hf.worker()):
            assert is_open.wait(LATE)
            hf.cancel(made.id, org_id=ORG)
            may_end.set()
            wait_until(lambda: hf.get(made.id, org_id=ORG).record["finished_at"] is not None)

        assert ended(hf, made) == ("canceled", None)
        assert numbers(hf.store) == [1]
        assert_sound(hf)


def test_a_commit_that_failed_cannot_be_swallowed(
    shop: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    @shop.job("sheet.make")
    def make(job: Context, payload: object) -> str:
        try:
            with job.transaction(complete=True) as connection:
                add(connection, 2)
        except StoreDown:
            pass
        return "as if"

    lose_commits(shop, monkeypatch, before=True)
    made = run_one(shop, "sheet.make", {})

    assert ended(shop, made) == ("queued", "STORE_UNAVAILABLE")
    assert numbers(shop.store) == [1]
    assert_sound(shop)


# -- a lost answer to COMMIT


def lose_commits(hf: Holdfast, monkeypatch: pytest.MonkeyPatch, *, before: bool) -> list[str]:
    """The connection breaks at the COMMIT of every block: before it was done, or after."""
    from contextlib import contextmanager

    lost: list[str] = []
    store = type(hf.store)
    plain = store.handler_transaction

    @contextmanager
    def breaking(self: Any, *args: Any, finish: Any, **options: Any) -> Any:
        def last(tx: Any) -> None:
            finish(tx)
            if before:
                lost.append("before")
                raise StoreDown("the connection was lost")

        with plain(self, *args, finish=last, **options) as opened:
            yield opened
        lost.append("after")
        raise StoreDown("the connection was lost")

    monkeypatch.setattr(store, "handler_transaction", breaking)
    return lost


@pytest.mark.req("I-14", "I-18")
@pytest.mark.parametrize("stages", [1, 2])
def test_a_lost_answer_to_the_commit_is_looked_up(
    shop: Holdfast, monkeypatch: pytest.MonkeyPatch, stages: int
) -> None:
    pipeline = shop.pipeline("sheet.press")

    @pipeline.stage("first")
    def first(job: Context, payload: object) -> None:
        with job.transaction(complete=True) as connection:
            add(connection, 2)
            job.set_result("made")

    if stages == 2:
        pipeline.stage("second")(lambda job, payload: "made")

    lost = lose_commits(shop, monkeypatch, before=False)
    made = run_one(shop, "sheet.press", {})

    assert lost == ["after"]
    assert shop.get(made.id, org_id=ORG).result == "made"
    assert numbers(shop.store) == [1, 2]
    assert "job.lease_lost" not in timeline(shop, made)
    assert timeline(shop, made).count("job.succeeded") == 1
    assert_sound(shop)


@pytest.mark.req("I-14", "I-18")
@pytest.mark.parametrize("before", [False, True])
def test_an_answer_that_cannot_be_looked_up_yet_is_decided_by_the_next_settle(
    shop: Holdfast, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    from holdfast.engine import completion

    @shop.job("sheet.make")
    def make(job: Context, payload: object) -> None:
        with job.transaction(complete=True) as connection:
            add(connection, 2)
            job.set_result("made")

    def away(*_: Any, **__: Any) -> None:
        raise StoreDown("still away")

    lose_commits(shop, monkeypatch, before=before)
    monkeypatch.setattr(completion, "find_settled", away)
    made = run_one(shop, "sheet.make", {})

    if before:
        assert ended(shop, made) == ("queued", "STORE_UNAVAILABLE")
        assert numbers(shop.store) == [1]
    else:
        assert shop.get(made.id, org_id=ORG).result == "made"
        assert timeline(shop, made) == ["job.enqueued", "job.started", "job.succeeded"]
        assert numbers(shop.store) == [1, 2]
    assert_sound(shop)


# -- nesting and misuse


def test_a_block_that_completes_cannot_be_within_another(shop: Holdfast) -> None:
    said: list[str] = []

    @shop.job("sheet.make")
    def make(job: Context, payload: dict[str, bool]) -> str:
        with job.transaction(complete=payload["outer"]) as connection:
            add(connection, 2)
            with pytest.raises(RuleViolated) as refused, job.transaction(complete=True):
                pass
            said.append(str(refused.value))
            with job.transaction() as inner:
                add(inner, 3)
        return "plain"

    made = run_one(shop, "sheet.make", {"outer": False})

    assert "outermost" in said[0]
    assert ended(shop, made) == COMPLETED
    assert numbers(shop.store) == [1, 2, 3]


def test_a_result_that_a_savepoint_set_goes_with_the_savepoint(shop: Holdfast) -> None:
    @shop.job("sheet.make")
    def make(job: Context, payload: object) -> None:
        with job.transaction(complete=True) as connection:
            job.set_result("outer")
            try:
                with job.transaction():
                    add(connection, 2)
                    job.set_result("inner")
                    raise LookupError
            except LookupError:
                add(connection, 3)

    made = run_one(shop, "sheet.make", {})

    assert shop.get(made.id, org_id=ORG).result == "outer"
    assert numbers(shop.store) == [1, 3]


def test_a_result_needs_a_block_that_completes(shop: Holdfast) -> None:
    said: list[str] = []

    @shop.job("sheet.make")
    def make(job: Context, payload: object) -> None:
        for _ in range(2):
            with pytest.raises(RuleViolated) as refused:
                job.set_result(1)
            said.append(str(refused.value))
        with job.transaction(), pytest.raises(RuleViolated):
            job.set_result(1)

    made = run_one(shop, "sheet.make", {})

    assert "complete=True" in said[0]
    assert ended(shop, made) == COMPLETED


def test_a_job_that_may_only_read_cannot_complete_in_its_transaction(shop: Holdfast) -> None:
    @shop.job("sheet.plan", category="planning")
    def plan(job: Context, payload: object) -> None:
        with job.transaction(complete=True):
            pass

    made = run_one(shop, "sheet.plan", {})

    assert ended(shop, made) == ("failed", "RULE_VIOLATED")


@pytest.mark.parametrize("delivers", [True, False])
def test_an_export_that_completes_must_have_stored_its_artifact(
    shop: Holdfast, delivers: bool
) -> None:
    @shop.job("sheet.export", category="export")
    def export(job: Context, payload: object) -> None:
        with job.transaction(complete=True) as connection:
            add(connection, 2)
            job.set_result(job.artifacts.put(b"bytes", name="a.txt") if delivers else "nothing")

    made = run_one(shop, "sheet.export", {})

    assert ended(shop, made) == (COMPLETED if delivers else ("failed", "RESULT_INVALID"))
    assert numbers(shop.store) == ([1, 2] if delivers else [1])


# -- in a worker with threads


@pytest.mark.timeout(120)
def test_a_worker_neither_renews_nor_times_out_what_is_completed(url: str) -> None:
    """The handlers continue for three leases after their block, one of them beyond its timeout."""
    told: list[bool] = []
    outcomes: Counter[str] = Counter()
    done = threading.Event()
    fast = {"lease_seconds": 0.6, "rescue_seconds": 0.1, "poll_seconds": 0.05}
    with make_holdfast(url, SystemClock(), **fast) as hf:  # type: ignore[arg-type]
        make_domain(hf.store)

        def complete(job: Context, number: int) -> None:
            with job.transaction(complete=True) as connection:
                add(connection, number)
                job.set_result("made")

        @hf.job("sheet.late", timeout=1.0)
        def late(job: Context, payload: object) -> None:
            complete(job, 2)
            assert done.wait(LATE)

        @hf.job("sheet.long")
        def long(job: Context, payload: object) -> None:
            complete(job, 3)
            time.sleep(3 * fast["lease_seconds"])
            told.append(job.token.is_set)

        made = [hf.enqueue(name, {}, org_id=ORG) for name in ("sheet.late", "sheet.long")]
        worker = hf.worker(concurrency=3)
        with running(worker):
            wait_until(lambda: worker.outcomes["completed"] == 2)
            outcomes.update(worker.outcomes)
            done.set()

        assert outcomes == {"completed": 2}
        assert told == [False]
        for job in made:
            assert ended(hf, job) == COMPLETED
            assert timeline(hf, job) == ["job.enqueued", "job.started", "job.succeeded"]
        assert numbers(hf.store) == [1, 2, 3]
        assert_sound(hf)


@pytest.mark.timeout(120)
def test_threads_and_loop_complete_each_job_once(url: str) -> None:
    ran: Counter[str] = Counter()
    with make_holdfast(url, SystemClock(), poll_seconds=0.05) as hf:  # type: ignore[arg-type]
        make_domain(hf.store)
        pipeline = hf.pipeline("sheet.press")

        @pipeline.stage("first")
        def first(job: Context, payload: dict[str, int]) -> None:
            ran[job.id] += 1
            with job.transaction(complete=True) as connection:
                add(connection, payload["n"])

        @pipeline.stage("second")
        async def second(job: Context, payload: dict[str, int]) -> None:
            ran[job.id] += 1
            with job.transaction(complete=True) as connection:
                add(connection, payload["n"] + 100)
                job.set_result(payload["n"])

        jobs = hf.enqueue_many("sheet.press", [{"n": n} for n in range(2, 12)], org_id=ORG)
        counts = hf.worker(concurrency=4).run(until_idle=True)

        assert counts.outcomes == {"completed": 10, "advanced": 10}
        assert set(ran.values()) == {2}
        assert numbers(hf.store) == [*range(1, 12), *range(102, 112)]
        assert [hf.get(job.id, org_id=ORG).result for job in jobs] == list(range(2, 12))
        assert_sound(hf)


@pytest.mark.req("C-09")
def test_a_worker_that_dies_after_the_block_leaves_nothing_to_rescue(
    shop: Holdfast, clock: FakeClock
) -> None:
    class Died(BaseException):
        pass

    ran: list[int] = []

    @shop.job("sheet.make")
    def make(job: Context, payload: object) -> None:
        ran.append(job.attempt)
        with job.transaction(complete=True) as connection:
            add(connection, 2)
        raise Died

    with pytest.raises(Died):
        run_one(shop, "sheet.make", {})
    clock.advance(minutes=10)
    rescued = rescue_jobs(shop.store, limit=10)
    shop.worker().run_once()

    assert (rescued, ran) == ([], [1])
    assert numbers(shop.store) == [1, 2]


@pytest.mark.parametrize("point", ["execute", "settle"])
def test_the_pytest_plugin_shows_that_a_crash_repeats_nothing(point: str) -> None:
    app = HoldfastApp(Holdfast("sqlite:"))
    make_domain(app.hf.store)

    @app.hf.job("sheet.make")
    def make(job: Context, payload: object) -> None:
        with job.transaction(complete=True) as connection:
            add(connection, 2)
            job.set_result("made")

    made = app.hf.enqueue("sheet.make", {}, org_id=ORG)
    with app.crash_after(point):
        app.drain()
    app.clock.advance(seconds=61)
    app.run_maintenance()
    app.drain()

    assert app.hf.get(made.id, org_id=ORG).result == "made"
    assert numbers(app.hf.store) == [1, 2]
    app.close()
