"""Execute: every result and every exception of a handler becomes one outcome."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pydantic
import pytest

import holdfast.engine.execute as execute_module
from holdfast import (
    Context,
    FakeClock,
    Holdfast,
    NetworkTimeout,
    Snooze,
    State,
    Transient,
)
from holdfast.errors import InvalidArgument, StoreError
from tests.story import ORG, SQL, events, look, make_holdfast, timeline


@dataclass
class Order:
    number: int
    note: str = ""
    rate: float = 1.0
    tags: list[str] | None = None


class Invoice(pydantic.BaseModel):
    number: int
    lines: list[str] = []


def run(hf: Holdfast, payload: dict[str, Any] | None = None, name: str = "some.work") -> Any:
    enqueued = hf.enqueue(name, payload or {}, org_id=ORG)
    hf.worker().run_once()
    return hf.get(enqueued.id, org_id=ORG)


def test_a_payload_arrives_as_a_dict_unless_the_handler_says_otherwise(hf: Holdfast) -> None:
    hf.job("some.work")(lambda job, payload: [type(payload).__name__, payload])

    assert run(hf, {"a": [1, {"b": None}]}).result == ["dict", {"a": [1, {"b": None}]}]


def test_a_payload_arrives_as_the_dataclass_the_handler_names(hf: Holdfast) -> None:
    @hf.job("some.work")
    def work(job: Context, order: Order) -> Any:
        return [order.number, order.note, order.rate, order.tags]

    assert run(hf, {"number": 7, "rate": 2, "tags": ["x"]}).result == [7, "", 2, ["x"]]


def test_a_payload_arrives_as_the_pydantic_model_the_handler_names(hf: Holdfast) -> None:
    @hf.job("some.work")
    def work(job: Context, invoice: Invoice) -> Any:
        return invoice.model_dump()

    assert run(hf, {"number": 7, "lines": ["a"]}).result == {"number": 7, "lines": ["a"]}


@pytest.mark.req("R-06")
def test_a_payload_that_does_not_fit_is_not_tried_again_and_not_quoted(hf: Holdfast) -> None:
    ran: list[str] = []

    @hf.job("order.work")
    def order(job: Context, order: Order) -> None:
        ran.append("order")

    @hf.job("invoice.work")
    def invoice(job: Context, invoice: Invoice) -> None:
        ran.append("invoice")

    bad = [
        ("order.work", {}),
        ("order.work", {"number": "canary"}),
        ("order.work", {"number": True}),
        ("order.work", {"number": 1, "canary": 2}),
        ("order.work", {"number": 1, "note": ["canary"]}),
        ("invoice.work", {}),
        ("invoice.work", {"number": "canary"}),
    ]
    # Enqueued by a process that has other declarations of these types.
    producer = make_holdfast(hf.settings.db, hf.clock)
    for name in ("order.work", "invoice.work"):
        producer.job(name)(lambda job, payload: None)
    enqueued = [producer.enqueue(name, payload, org_id=ORG) for name, payload in bad]
    producer.close()
    hf.worker().run_once()
    for one in enqueued:
        job = hf.get(one.id, org_id=ORG)
        letter = hf.store.read(
            lambda tx, job=job: tx.one(SQL.find_dead_letter, org_id=ORG, job_id=job.id)
        )
        assert (job.state, job.error_class) == (State.FAILED, "SCHEMA_INVALID")
        assert (job.attempt_count, ran) == (1, [])
        assert "canary" not in str(job.last_error).replace("unknown_field=canary", "")
        assert "canary" not in letter["last_stack"]


def test_an_asynchronous_handler_runs_too(hf: Holdfast) -> None:
    @hf.job("some.work")
    async def work(job: Context, payload: dict[str, int]) -> int:
        await asyncio.sleep(0)
        return payload["n"] + 1

    assert run(hf, {"n": 1}).result == 2


@pytest.mark.parametrize(
    "value", [None, True, 0, 1.5, "text", [], {}, {"deep": [1, {"x": "ü"}]}], ids=repr
)
def test_any_document_may_be_a_result(sqlite_url: str, value: Any) -> None:
    with make_holdfast(sqlite_url) as hf:
        hf.job("some.work")(lambda job, payload: value)

        job = run(hf)

        assert (job.state, job.result) == (State.COMPLETED, value)


@pytest.mark.req("E-04")
def test_a_result_that_cannot_be_stored_fails_the_job_and_stores_nothing(hf: Holdfast) -> None:
    unstorable = [object(), b"x", {1: 2}, float("nan"), "\x00", "\ud800", {1, 2}, "x" * 300_000]
    for number, value in enumerate(unstorable):
        hf.job(f"some.work{number}")(lambda job, payload, value=value: value)
        job = run(hf, name=f"some.work{number}")
        assert (job.state, job.error_class) == (State.FAILED, "RESULT_INVALID")
        assert job.result is None


def test_a_handler_knows_its_job(hf: Holdfast, clock: FakeClock) -> None:
    seen: list[Any] = []

    @hf.job("some.work")
    def work(job: Context, payload: object) -> None:
        seen.append((job.id, job.org_id, job.job_type, job.stage, job.attempt, job.actor.id,
                     job.request_id, job.correlation_id))  # fmt: skip
        if job.attempt == 1:
            raise Transient

    enqueued = hf.enqueue("some.work", {}, org_id=ORG, actor="user:42", request_id="r")
    hf.worker().run_once()
    clock.advance(minutes=1)
    hf.worker().run_once()

    common = (enqueued.id, ORG, "some.work", "run")
    assert seen == [(*common, 1, "42", "r", "r"), (*common, 2, "42", "r", "r")]


def test_a_snooze_returns_later_and_counts_no_attempt(hf: Holdfast, clock: FakeClock) -> None:
    @hf.job("some.work", max_attempts=1)
    def work(job: Context, payload: object) -> str:
        if clock.now() < wake:
            raise Snooze(timedelta(minutes=10))
        return "awake"

    wake = clock.now() + timedelta(minutes=25)
    enqueued = hf.enqueue("some.work", {}, org_id=ORG)
    for _ in range(4):
        hf.worker().run_once()
        clock.advance(minutes=10)

    job = hf.get(enqueued.id, org_id=ORG)
    assert (job.state, job.result, job.attempt_count) == (State.COMPLETED, "awake", 0)
    assert timeline(hf, enqueued).count("job.snoozed") == 3


@pytest.mark.req("T-05")
def test_a_careless_except_cannot_swallow_a_snooze_or_a_cancel(hf: Holdfast) -> None:
    @hf.job("careless.snooze")
    def snooze(job: Context, payload: object) -> str:
        try:
            raise Snooze(60)
        except Exception:
            return "swallowed"

    @hf.job("careless.cancel")
    def cancel(job: Context, payload: object) -> str:
        hf.cancel(job.id, org_id=ORG)
        with contextlib.suppress(Exception):
            job.checkpoint(1)
        return "swallowed"

    assert run(hf, name="careless.snooze").state is State.QUEUED
    assert run(hf, name="careless.cancel").state is State.CANCELED


def test_a_checkpoint_is_there_on_the_next_attempt_and_gone_in_the_next_stage(
    hf: Holdfast, clock: FakeClock
) -> None:
    seen: list[Any] = []
    pipeline = hf.pipeline("some.work")

    @pipeline.stage("first")
    def first(job: Context, payload: object) -> None:
        seen.append(("first", job.saved))
        if job.saved is None:
            job.checkpoint({"page": 3})
            raise Transient

    @pipeline.stage("second")
    def second(job: Context, payload: object) -> None:
        seen.append(("second", job.saved))

    hf.enqueue("some.work", {}, org_id=ORG)
    hf.worker().run_once()
    clock.advance(minutes=1)
    hf.worker().run_once()

    assert seen == [("first", None), ("first", {"page": 3}), ("second", None)]


def test_progress_is_kept_beside_the_checkpoint(hf: Holdfast) -> None:
    @hf.job("some.work")
    def work(job: Context, payload: object) -> None:
        job.checkpoint({"page": 1})
        job.progress(3, 10, "third page")
        raise KeyError("stop here")

    job = run(hf)

    (row,) = look(
        hf.store,
        "SELECT checkpoint, progress FROM holdfast.job_stage WHERE job_id = :id",
        id=job.id,
    )
    assert '"page"' in row["checkpoint"]
    assert '"third page"' in row["progress"]


WRONG_PROGRESS: dict[str, tuple[Any, ...]] = {
    "total: must be a number, not str": (0.5, "half"),
    "done: must be a number, not str": ("half",),
    "done: must be a number, not NoneType": (None,),
    "done: must be from 0": (float("nan"),),
    "total: must be from 0": (1, -1),
    "note: must be text, not int": (1, 2, 3),
}


@pytest.mark.parametrize("problem", WRONG_PROGRESS)
@pytest.mark.parametrize("is_async", [False, True])
def test_progress_that_is_not_a_number_is_refused_and_not_stored(
    hf: Holdfast, problem: str, is_async: bool
) -> None:
    seen: list[str] = []

    def work(job: Context, payload: object) -> None:
        with pytest.raises(InvalidArgument) as refused:
            job.progress(*WRONG_PROGRESS[problem])
        seen.append(str(refused.value))

    async def awork(job: Context, payload: object) -> None:
        with pytest.raises(InvalidArgument) as refused:
            await job.aprogress(*WRONG_PROGRESS[problem])
        seen.append(str(refused.value))

    hf.job("some.work")(awork if is_async else work)
    job = run(hf)

    assert (job.state, job.progress) == ("completed", None)
    assert problem in seen[0]


@pytest.mark.req("R-10")
@pytest.mark.parametrize("how", ["exit", "cancelled"])
def test_a_handler_that_tries_to_leave_the_process_is_a_defect(hf: Holdfast, how: str) -> None:
    @hf.job("some.work")
    def work(job: Context, payload: object) -> None:
        if how == "exit":
            sys.exit(1)
        raise asyncio.CancelledError

    job = run(hf)

    assert (job.state, job.error_class) == (State.FAILED, "DEFECT")


def test_nothing_a_handler_says_in_an_exception_is_stored(hf: Holdfast) -> None:
    canary = "canary: dear neighbour, your dog"

    @hf.job("some.work")
    def work(job: Context, payload: object) -> None:
        try:
            raise ValueError(canary)
        except ValueError as exc:
            raise NetworkTimeout(canary, note=canary) from exc

    enqueued = hf.enqueue("some.work", {}, org_id=ORG, max_attempts=1)
    hf.worker().run_once()

    letter = hf.store.read(lambda tx: tx.one(SQL.find_dead_letter, org_id=ORG, job_id=enqueued.id))
    job = hf.get(enqueued.id, org_id=ORG)
    stored = f"{letter} {job.record} {events(hf, enqueued)}"
    assert "canary" not in stored
    assert "work" in letter["last_stack"]


def test_an_unknown_job_type_waits_for_a_worker_that_knows_it_and_is_then_buried(
    hf: Holdfast, clock: FakeClock
) -> None:
    hf.job("new.work")(lambda job, payload: None)
    enqueued = hf.enqueue("new.work", {}, org_id=ORG)
    del hf.registry.handlers["new.work"]

    hf.worker().run_once()
    waiting = hf.get(enqueued.id, org_id=ORG)
    clock.advance(minutes=61)
    hf.worker().run_once()
    buried = hf.get(enqueued.id, org_id=ORG)

    assert (waiting.state, waiting.attempt_count) == (State.QUEUED, 0)
    assert (buried.state, buried.error_class) == (State.FAILED, "UNKNOWN_JOB_TYPE")
    assert "job.released" in timeline(hf, enqueued)


def test_an_unknown_job_type_that_turns_up_in_time_runs(hf: Holdfast, clock: FakeClock) -> None:
    hf.job("new.work")(lambda job, payload: "ran")
    enqueued = hf.enqueue("new.work", {}, org_id=ORG)
    handler = hf.registry.handlers.pop("new.work")
    hf.worker().run_once()

    clock.advance(seconds=30)
    hf.registry.add(handler)
    hf.worker().run_once()

    assert hf.get(enqueued.id, org_id=ORG).result == "ran"


def test_an_asynchronous_handler_that_takes_too_long_is_stopped_and_tried_again(
    hf: Holdfast,
) -> None:
    @hf.job("some.work", timeout=0.02)
    async def work(job: Context, payload: object) -> None:
        await asyncio.Event().wait()

    job = run(hf)

    assert (job.state, job.attempt_count) == (State.QUEUED, 1)
    assert job.error_class == "HANDLER_TIMEOUT"


def test_a_timeout_inside_the_handler_is_a_network_timeout_and_not_ours(hf: Holdfast) -> None:
    @hf.job("some.work", timeout=60)
    async def work(job: Context, payload: object) -> None:
        raise TimeoutError

    assert run(hf).error_class == "NETWORK_TIMEOUT"


def test_a_synchronous_handler_that_takes_too_long_loses_its_job(hf: Holdfast) -> None:
    release = threading.Event()

    @hf.job("some.work", timeout=0.05)
    def work(job: Context, payload: object) -> str:
        release.wait(30)
        return "too late"

    enqueued = hf.enqueue("some.work", {}, org_id=ORG)
    hf.worker(concurrency=1).run(until_idle=True)
    release.set()

    job = hf.get(enqueued.id, org_id=ORG)
    assert (job.state, job.attempt_count) == (State.QUEUED, 1)
    assert (job.error_class, job.result) == ("HANDLER_TIMEOUT", None)


def test_a_canceled_subtask_of_a_handler_is_its_own_bug_and_does_not_loop(
    hf: Holdfast,
) -> None:
    @hf.job("some.work")
    async def work(job: Context, payload: object) -> None:
        inner = asyncio.create_task(asyncio.sleep(60))
        inner.cancel()
        await inner

    enqueued = hf.enqueue("some.work", {}, org_id=ORG)
    hf.worker().run(until_idle=True)

    job = hf.get(enqueued.id, org_id=ORG)
    assert (job.state, job.error_class) == (State.FAILED, "DEFECT")


@pytest.mark.both_databases
def test_writing_outside_an_open_transaction_is_an_error_and_does_not_hang(hf: Holdfast) -> None:
    said: list[str] = []
    hf.job("child.work")(lambda job, payload: None)

    @hf.job("parent.work")
    def parent(job: Context, payload: object) -> None:
        with job.transaction() as connection:
            hf.enqueue("child.work", {}, conn=connection)
            if hf.store.dialect.name == "sqlite":
                try:
                    hf.enqueue("child.work", {})
                except StoreError as exc:
                    said.append(str(exc))

    hf.enqueue("parent.work", {}, org_id=ORG)
    counts = hf.worker().run_once(limit=1)

    assert counts.outcomes == {"completed": 1}
    assert ["conn=" in sentence for sentence in said] == (
        [True] if hf.store.dialect.name == "sqlite" else []
    )
    assert hf.worker().run_once().outcomes == {"completed": 1}


def test_execute_does_not_know_what_a_handler_may_write() -> None:
    assert not hasattr(execute_module, "Context")
    assert not hasattr(execute_module, "settle")
