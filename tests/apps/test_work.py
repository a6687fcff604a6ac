"""Work: a rewrite job is made of its stored request, and becomes one output or none."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from holdfast import FakeClock, Holdfast
from holdfast.engine.claim import claim_jobs
from holdfast.engine.job import ResultWithRows
from holdfast_llm import Item
from holdfast_llm.provider.reply import Failure, FailureKind, Reply
from holdfast_rewrite.detect import Detected
from holdfast_rewrite.enums import Level
from holdfast_rewrite.payload import JobPayload, RowPayload
from holdfast_rewrite.work import RewriteWork
from tests.apps.planted import (
    HOME,
    ORIGINAL,
    OTHER_HOME,
    RECIPIENT,
    REWRITE,
    STRANGER,
    Planted,
    Stage,
    plant_queued,
    set_stage,
)
from tests.story import by_hand, look

HELD = "SELECT error_code FROM holdfast.provider_batch WHERE state = 'quarantined'"


def error(stage: Stage, planted: Planted) -> tuple[str, str]:
    job = stage.job(planted)
    return job.state, job.error_class


def say(text: str = REWRITE, language: str = "en") -> dict[str, str]:
    return {"rewritten_text": text, "output_language": language}


# -- the way of a good one


@pytest.mark.req("J-05")
@pytest.mark.req("J-30")
@pytest.mark.req("V-01")
@pytest.mark.req("P-02")
def test_a_rewrite_that_passes_is_stored_with_its_evaluation_when_its_job_completes(
    stage: Stage,
) -> None:
    planted = stage.plant()

    stage.answer(say())

    (output,) = stage.outputs()
    row, job = stage.row(planted), stage.job(planted)
    assert (row["status"], row["step"], job.state) == ("completed", "completed", "completed")
    assert row["rewrite_completed_at"] is not None
    assert output["rewritten_text"] == REWRITE
    assert (output["output_language"], output["target_locale"]) == ("en", "en")
    assert (output["provider"], output["model"]) == ("openai", "model-1")
    assert (output["prompt_version"], output["policy_version"]) == ("v1", "v1")
    found = json.loads(output["eval_result"])
    assert found["schema_valid"] is True
    assert set(found) == {
        "schema_valid",
        "lexicon_pass",
        "tone_safety",
        "intent_preserved",
        "violations",
        "judge_version",
        "dataset_version",
        "flags",
    }
    assert job.result == {"rewrite_request_id": planted.id, "recipient_user_id": RECIPIENT}


@pytest.mark.req("B-18")
@pytest.mark.req("V-05")
def test_a_call_of_its_own_is_judged_and_stored_in_the_same_way(stage: Stage) -> None:
    good = stage.plant(mode="async")
    stage.say(say())
    stage.hf.worker().run_once()
    bad = stage.plant("Turn it down, you idiot.", mode="async")
    stage.say(say("Turn it down, you shithead."))
    stage.hf.worker().run_once()

    assert [row["rewrite_request_id"] for row in stage.outputs()] == [good.id]
    assert error(stage, bad) == ("failed", "OUTPUT_REJECTED")


@pytest.mark.req("J-15")
@pytest.mark.req("J-12")
@pytest.mark.req("J-13")
@pytest.mark.req("J-14")
def test_the_payload_of_a_running_job_is_whole_and_lies_nowhere(stage: Stage) -> None:
    planted = stage.plant(source="en", target="de")
    item, loaded = load_one(stage)

    assert isinstance(loaded, JobPayload)
    document = loaded.document
    request = planted.request
    assert document["rewrite_request"] == request.document
    assert document["classifier_result"] == request.classifier_result.document
    assert {
        name: document[name]
        for name in ("job_type", "job_id", "attempt", "max_attempts", "status", "lane")
    } == {
        "job_type": "complaint_rewrite",
        "job_id": planted.job_id,
        "attempt": 1,
        "max_attempts": 2,
        "status": "processing",
        "lane": "cross_language",
    }
    assert (document["source_locale"], document["target_locale"]) == ("en", "de")
    assert document["provider_batch_id"] is None
    assert document["execution_mode"] == "batch"
    assert document["routing_decision"]["adapter_kind"] == "scripted"
    assert ORIGINAL not in repr(loaded)
    assert ORIGINAL not in repr(replace(item, loaded=loaded))
    for table in ("job", "job_event"):
        assert ORIGINAL not in str(look(stage.store, f"SELECT * FROM holdfast.{table}"))


def load_one(stage: Stage) -> tuple[Item, Any]:
    """Claim the one job there is, and load it as the lane does."""
    (job,) = claim_jobs(
        stage.store, queue="q:default", worker_id="w", limit=1, lease_ms=60_000, of_batch=True
    )
    item = Item.from_job(job)
    work = stage.hf.registry.get(job.job_type).work
    return item, stage.store.read(lambda tx: work.load(tx, [item]))[job.id]


@pytest.mark.req("J-25")
def test_many_jobs_are_loaded_with_one_read(stage: Stage) -> None:
    for number in range(5):
        stage.plant(f"Please be quiet tonight, number {number}.")
    jobs = claim_jobs(
        stage.store, queue="q:default", worker_id="w", limit=5, lease_ms=60_000, of_batch=True
    )
    items = [Item.from_job(job) for job in jobs]
    reads: list[str] = []

    class Counting:
        def many(self, statement: Any, **params: Any) -> Any:
            reads.append(statement.name)
            return stage.store.read(lambda tx: tx.many(statement, **params))

    found = stage.hf.registry.get(jobs[0].job_type).work.load(Counting(), items)

    assert reads == ["load_requests"]
    assert sorted(one.rewrite_request.original_text[-2] for one in found.values()) == list("01234")


# -- jobs that do not fit their requests

UNFIT: list[dict[str, str]] = [
    {"recipient_user_id": STRANGER},
    {"sender_user_id": STRANGER},
    {"home_id": OTHER_HOME},
    {"source_locale": "es", "lane": "cross_language"},
    {"target_locale": "es"},
    {"lane": "cross_language"},
    {"recipient_snapshot_id": STRANGER},
    {"recipient_preference_snapshot_id": STRANGER},
    {"surface": "other"},
    {"original_text": ORIGINAL},
]


@pytest.mark.req("J-28")
@pytest.mark.req("J-29")
def test_a_job_whose_ids_are_not_its_requests_is_never_sent(stage: Stage) -> None:
    unfit = []
    for changed in UNFIT:
        request = stage.request()
        plant_queued(stage.store, request)
        payload = {**RowPayload.from_request(request).document, **changed}
        unfit.append(stage.enqueue(request, payload=payload))

    stage.answer(say())

    for planted in unfit:
        assert error(stage, planted) == ("failed", "REQUEST_UNFIT")
        assert stage.row(planted)["failure_code"] == "REQUEST_UNFIT"
    assert stage.provider.paid.total() == 0
    assert stage.outputs() == []


def test_a_job_without_a_request_is_never_sent(stage: Stage) -> None:
    request = stage.request()
    stage.hf.enqueue(
        "complaint_rewrite",
        RowPayload.from_request(request).document,
        org_id=HOME,
        unit_key=RowPayload.from_request(request).unit_key,
        producer=stage.producer,
        routing_decision={
            "provider": "openai",
            "adapter_kind": "scripted",
            "model": "model-1",
            "prompt_version": "v1",
        },
    )

    stage.answer(say())

    (letter,) = look(stage.store, "SELECT error_class, last_error FROM holdfast.dead_letter")
    assert letter["error_class"] == "REQUEST_UNFIT"
    assert "no_request" in letter["last_error"]
    assert stage.provider.paid.total() == 0


def test_one_unfit_job_leaves_the_others_alone(stage: Stage) -> None:
    request = stage.request()
    plant_queued(stage.store, request)
    payload = {**RowPayload.from_request(request).document, "sender_user_id": STRANGER}
    unfit = stage.enqueue(request, payload=payload)
    good = [stage.plant(f"Please take out the bins, number {number}.") for number in range(3)]

    stage.answer(say("Could you please take out the bins?"))

    assert stage.job(unfit).state == "failed"
    assert [stage.job(one).state for one in good] == ["completed"] * 3


# -- answers that are no good


@pytest.mark.req("R-14")
@pytest.mark.req("L-02")
@pytest.mark.req("V-03")
def test_an_answer_in_another_language_is_no_output_and_is_not_tried_again(stage: Stage) -> None:
    planted = stage.plant(target="es")

    stage.answer(say("Could you take out the bins tonight?", "en"))

    assert error(stage, planted) == ("failed", "WRONG_LANGUAGE")
    assert "non_target_locale" in stage.job(planted).last_error
    assert stage.outputs() == []
    assert stage.provider.paid.total() == 1


@pytest.mark.req("L-02")
def test_an_answer_that_only_says_that_it_is_in_the_right_language_is_found_out(
    hf: Holdfast, clock: FakeClock
) -> None:
    class Sure:
        def detect(self, text: str) -> Detected:
            return Detected("en", Level.HIGH)

    stage = set_stage(hf, clock, Sure())
    planted = stage.plant(target="es")

    stage.answer(say("Could you take out the bins tonight?", "es"))

    assert error(stage, planted) == ("failed", "WRONG_LANGUAGE")


@pytest.mark.req("R-14")
@pytest.mark.req("V-02")
@pytest.mark.req("P-20")
@pytest.mark.req("P-24")
@pytest.mark.req("V-04")
def test_a_rejected_rewrite_leaves_codes_and_not_a_word_of_it(stage: Stage) -> None:
    planted = stage.plant()

    stage.answer(say("Take out the shitty bins tonight, will you?"))

    assert error(stage, planted) == ("failed", "OUTPUT_REJECTED")
    assert stage.outputs() == []
    row = stage.row(planted)
    assert (row["status"], row["failure_code"]) == ("failed", "OUTPUT_REJECTED")
    assert row["rewrite_completed_at"] is None
    (letter,) = look(stage.store, "SELECT * FROM holdfast.dead_letter")
    assert "vulgarity" in letter["sanitized_context"]
    for table in ("job", "job_event", "dead_letter", "batch_item", "provider_call"):
        told = str([dict(row) for row in look(stage.store, f"SELECT * FROM holdfast.{table}")])
        assert "shitty" not in told
        assert "bins" not in told


@pytest.mark.req("R-06")
def test_an_answer_of_another_shape_is_no_output(stage: Stage) -> None:
    shapes: list[dict[str, Any]] = [
        {"rewritten_text": REWRITE},
        {"rewritten_text": 7, "output_language": "en"},
        {"rewritten_text": REWRITE, "output_language": "en", "more": "x"},
        {"said": ["no", "text"]},
    ]
    planted = [stage.plant(f"Please be quiet, number {at}.") for at in range(len(shapes))]

    stage.answer(lambda inputs: shapes[int(re.findall(r"number (\d)", inputs[0])[0])])

    assert [error(stage, one) for one in planted] == [("failed", "OUTPUT_INVALID")] * len(shapes)
    assert stage.outputs() == []


@pytest.mark.req("R-09")
def test_a_refusal_of_the_model_fails_for_good(stage: Stage) -> None:
    planted = stage.plant()

    stage.answer(lambda _: Failure(FailureKind.POLICY, "content_filter"))

    assert error(stage, planted) == ("failed", "POLICY_REJECTED")
    assert stage.outputs() == []


@pytest.mark.req("R-13")
@pytest.mark.req("R-17")
@pytest.mark.req("R-20")
@pytest.mark.req("R-21")
def test_a_transient_failure_is_tried_again_with_the_same_request(stage: Stage) -> None:
    planted = stage.plant()
    before = stage.row(planted)

    stage.answer(lambda _: Failure(FailureKind.TRANSIENT, "server_error", 500))
    waiting = stage.row(planted)
    stage.clock.advance(hours=1)
    stage.answer(say())

    assert (waiting["status"], waiting["step"]) == ("queued", "enqueued")
    assert stage.job(planted).state == "completed"
    after = stage.row(planted)
    for name in ("request_hash", "routing_decision", "source_locale", "target_locale", "lane"):
        assert after[name] == before[name]
    sent = [body["body"]["input"][0] for body in lines(stage)]
    assert len(sent) == 2
    assert sent[0] == sent[1]


def lines(stage: Stage) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for batch in stage.provider.batches.values()
        for line in stage.provider.files[batch.file_id or ""].data.splitlines()
    ]


@pytest.mark.req("R-18")
@pytest.mark.req("J-32")
@pytest.mark.req("K-07")
def test_after_two_attempts_job_and_request_have_failed_and_nothing_is_stored(
    stage: Stage,
) -> None:
    planted = stage.plant()

    for _ in range(3):
        stage.answer(lambda _: Failure(FailureKind.TRANSIENT, "server_error", 500))
        stage.clock.advance(hours=3)

    job, row = stage.job(planted), stage.row(planted)
    assert (job.state, job.attempt_count) == ("failed", 2)
    assert (row["status"], row["step"]) == ("failed", "failed")
    assert row["failed_at"] is not None
    assert row["rewrite_completed_at"] is None
    assert stage.outputs() == []


@pytest.mark.req("J-23")
def test_a_job_that_may_not_begin_yet_is_left_until_it_may(stage: Stage) -> None:
    planted = stage.plant(delay=timedelta(hours=1))

    stage.answer(say())
    early = stage.job(planted).state
    stage.clock.advance(minutes=30)
    stage.answer(say())

    assert (early, stage.job(planted).state) == ("queued", "completed")


# -- twice, and at the wrong moment


@pytest.mark.req("I-14")
@pytest.mark.req("I-16")
@pytest.mark.req("C-10")
def test_answers_that_are_read_again_change_nothing(stage: Stage) -> None:
    planted = stage.plant()
    stage.answer(say())
    (first,) = stage.outputs()
    by_hand(
        stage.store,
        "UPDATE holdfast.provider_batch SET next_at = {now} WHERE state = 'collected'",
    )

    stage.say(say("Another text that came later, about the bins tonight?"))
    stage.collect()

    assert stage.outputs() == [first]
    assert stage.job(planted).attempt_count == 0


def test_an_output_that_the_database_refuses_completes_nothing_and_is_kept(stage: Stage) -> None:
    planted = stage.plant()
    stage.submit()
    stage.say(say())
    stage.provider.complete()
    work = stage.hf.registry.get("complaint_rewrite").work
    accept = work.accept

    class Sloppy:
        """Forgets which language was asked for: what no code of ours does."""

        load, request = work.load, work.request

        def accept(self, item: Item, reply: Reply) -> Any:
            kept = accept(item, reply)
            output = kept.value
            wrong = replace(output, response=replace(output.response, output_language="de"))
            return ResultWithRows(kept.result, wrong)

    handler = stage.hf.registry.handlers["complaint_rewrite"]
    stage.hf.registry.handlers["complaint_rewrite"] = replace(handler, work=Sloppy())
    stage.collect()

    # The answer is paid for and the code is to be corrected: the job waits for both.
    assert error(stage, planted) == ("batch_submitted", None)
    assert stage.outputs() == []
    assert [row["error_code"] for row in look(stage.hf.store, HELD)] == ["accept_failed"]


@pytest.mark.req("E-05")
def test_the_same_item_gives_the_same_request(stage: Stage) -> None:
    stage.plant()
    item, loaded = load_one(stage)
    work = stage.hf.registry.get("complaint_rewrite").work
    assert isinstance(work, RewriteWork)

    again = replace(item, loaded=loaded)

    assert work.request(again) == work.request(again)
