"""Stages: each has its own attempts, and a completed stage is not repeated."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from holdfast import ConfigError, Context, FakeClock, Holdfast, State, Transient, UpstreamDown
from holdfast.engine.maintenance import rescue_jobs
from holdfast.engine.retry import CRITIC
from tests.engine.faulty import Died
from tests.story import ORG, SQL, events, look, timeline


class Review:
    """A pipeline of three stages that fail a given number of times."""

    def __init__(self, hf: Holdfast, **failures: int) -> None:
        self.calls: Counter[str] = Counter()
        self.seen: dict[str, dict[str, Any]] = {}
        self.pipeline = hf.pipeline("review.run", version="1")
        for name in ("fetch", "llm", "notify"):
            self.pipeline.stage(name)(self._stage(name, failures.get(name, 0)))

    def _stage(self, name: str, failures: int) -> Any:
        def stage(job: Context, payload: dict[str, Any]) -> dict[str, Any]:
            self.calls[name] += 1
            self.seen[name] = dict(job.outputs)
            if self.calls[name] <= failures:
                raise UpstreamDown
            return {"by": name, "call": self.calls[name]}

        return stage


def run_out(hf: Holdfast, clock: FakeClock) -> None:
    for _ in range(40):
        if not hf.worker().run_once().claimed:
            clock.advance(minutes=5)
            if not hf.worker().run_once().claimed:
                return


@pytest.mark.req("S-06", "A-05")
def test_stages_run_in_order_and_each_sees_what_came_before(hf: Holdfast) -> None:
    review = Review(hf)
    enqueued = hf.enqueue("review.run", {}, org_id=ORG)

    hf.worker().run_once()

    job = hf.get(enqueued.id, org_id=ORG)
    assert (job.state, job.result) == (State.COMPLETED, {"by": "notify", "call": 1})
    assert review.seen == {
        "fetch": {},
        "llm": {"fetch": {"by": "fetch", "call": 1}},
        "notify": {"fetch": {"by": "fetch", "call": 1}, "llm": {"by": "llm", "call": 1}},
    }
    assert timeline(hf, enqueued) == [
        "job.enqueued", "job.started", "job.advanced", "job.advanced", "job.succeeded",
    ]  # fmt: skip


@pytest.mark.req("S-02", "S-04")
def test_failures_of_one_stage_consume_nothing_of_another(hf: Holdfast, clock: FakeClock) -> None:
    review = Review(hf, fetch=4, llm=4, notify=4)
    enqueued = hf.enqueue("review.run", {}, org_id=ORG)

    run_out(hf, clock)

    job = hf.get(enqueued.id, org_id=ORG)
    assert job.state is State.COMPLETED
    assert review.calls == {"fetch": 5, "llm": 5, "notify": 5}


@pytest.mark.req("S-03", "S-05")
def test_a_stage_that_spends_its_five_attempts_is_dead_lettered_under_its_own_name(
    hf: Holdfast, clock: FakeClock
) -> None:
    review = Review(hf, fetch=2, llm=99)
    enqueued = hf.enqueue("review.run", {}, org_id=ORG)

    run_out(hf, clock)

    job = hf.get(enqueued.id, org_id=ORG)
    letter = hf.store.read(lambda tx: tx.one(SQL.find_dead_letter, org_id=ORG, job_id=enqueued.id))
    assert review.calls == {"fetch": 3, "llm": 5}
    assert (job.state, job.stage, job.attempt_count) == (State.FAILED, "llm", 5)
    assert (letter["stage"], letter["attempts"]) == ("llm", 5)
    assert letter["error_class"] == "UPSTREAM_DOWN"
    failed = [event for event in events(hf, enqueued) if event["name"] == "job.failed"]
    assert [event["attempt"] for event in failed] == [1, 2, 1, 2, 3, 4, 5]


@pytest.mark.req("S-06")
def test_a_later_failure_keeps_the_work_of_finished_stages(hf: Holdfast, clock: FakeClock) -> None:
    review = Review(hf, notify=99)
    enqueued = hf.enqueue("review.run", {}, org_id=ORG)

    run_out(hf, clock)

    stored = look(
        hf.store,
        "SELECT stage, output FROM holdfast.job_stage WHERE job_id = :id AND output IS NOT NULL"
        " ORDER BY stage",
        id=enqueued.id,
    )
    assert review.calls["fetch"] == review.calls["llm"] == 1
    assert [row["stage"] for row in stored] == ["fetch", "llm"]
    assert hf.get(enqueued.id, org_id=ORG).result is None


@pytest.mark.req("S-06", "I-18")
def test_a_worker_that_dies_in_a_stage_costs_that_stage_one_attempt_and_no_finished_work(
    hf: Holdfast, clock: FakeClock
) -> None:
    calls: list[str] = []
    pipeline = hf.pipeline("review.run")

    @pipeline.stage("fetch")
    def fetch(job: Context, payload: object) -> str:
        calls.append("fetch")
        return "diff"

    @pipeline.stage("llm")
    def llm(job: Context, payload: object) -> str:
        calls.append(f"llm {job.attempt} after {job.outputs['fetch']}")
        if job.attempt == 1:
            raise Died
        return "critique"

    enqueued = hf.enqueue("review.run", {}, org_id=ORG)
    with pytest.raises(Died):
        hf.worker().run_once()
    clock.advance(seconds=61)
    rescue_jobs(hf.store, limit=10)
    hf.worker().run_once()

    assert calls == ["fetch", "llm 1 after diff", "llm 2 after diff"]
    assert hf.get(enqueued.id, org_id=ORG).state is State.COMPLETED


@pytest.mark.req("S-03", "R-22")
def test_a_stage_has_five_attempts_and_the_critics_policy_by_default(
    hf: Holdfast,
) -> None:
    Review(hf)

    stages = hf.registry.get("review.run").stages

    assert [(stage.max_attempts, stage.retry) for stage in stages] == [(5, CRITIC)] * 3


def test_a_stage_may_have_a_budget_of_its_own(hf: Holdfast, clock: FakeClock) -> None:
    pipeline = hf.pipeline("review.run")
    pipeline.stage("first")(lambda job, payload: 1)

    @pipeline.stage("second", max_attempts=2)
    def second(job: Context, payload: object) -> None:
        raise Transient

    enqueued = hf.enqueue("review.run", {}, org_id=ORG)
    run_out(hf, clock)

    job = hf.get(enqueued.id, org_id=ORG)
    assert (job.state, job.attempt_count, job.max_attempts) == (State.FAILED, 2, 2)


def test_a_pipeline_that_changed_under_a_waiting_job_is_not_run(
    hf: Holdfast, clock: FakeClock
) -> None:
    Review(hf, llm=1)
    enqueued = hf.enqueue("review.run", {}, org_id=ORG)
    hf.worker().run_once()
    del hf.registry.handlers["review.run"]
    changed = hf.pipeline("review.run", version="2")
    ran: list[str] = []
    changed.stage("fetch")(lambda job, payload: ran.append("fetch"))
    changed.stage("llm")(lambda job, payload: ran.append("llm"))

    clock.advance(minutes=5)
    hf.worker().run_once()

    job = hf.get(enqueued.id, org_id=ORG)
    assert (job.state, job.error_class, ran) == (State.FAILED, "PIPELINE_CHANGED", [])


def test_a_pipeline_may_say_that_it_carries_on_older_jobs(hf: Holdfast, clock: FakeClock) -> None:
    old = Review(hf, llm=1)
    enqueued = hf.enqueue("review.run", {}, org_id=ORG)
    hf.worker().run_once()
    before = old.pipeline.version
    del hf.registry.handlers["review.run"]
    newer = hf.pipeline("review.run", version="2", accepts=[before])
    newer.stage("fetch")(lambda job, payload: None)
    newer.stage("llm")(lambda job, payload: "better")

    clock.advance(minutes=5)
    hf.worker().run_once()

    assert hf.get(enqueued.id, org_id=ORG).result == "better"


def test_a_stage_is_named_once(hf: Holdfast) -> None:
    pipeline = hf.pipeline("review.run")
    pipeline.stage("fetch")(lambda job, payload: 1)

    with pytest.raises(ConfigError, match="names a stage twice"):
        pipeline.stage("fetch")(lambda job, payload: 2)
