"""The record of a rewrite job: every field of its contract, by its exact name, in every state."""

from __future__ import annotations

import re
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.engine.claim import claim_jobs
from holdfast_llm.provider.reply import Failure, FailureKind
from holdfast_rewrite import Rewrites
from holdfast_rewrite.show import find_record
from tests.apps.household import HOME, RECIPIENT, submission
from tests.apps.planted import Planted, Stage
from tests.faces.conftest import Run
from tests.faces.conftest import run as run

RECORD = (
    "job_id", "rewrite_request_id", "task", "surface", "rewrite_strength", "language_pair",
    "recipient_user_id", "recipient_snapshot_id", "recipient_preference_snapshot_id", "status",
    "created_at", "updated_at", "not_before_at", "claimed_at", "claimed_by", "attempt_count",
    "max_attempts", "last_error", "last_error_at", "routing_decision",
)  # fmt: skip
DECISION = {
    "provider", "adapter_kind", "base_url", "model", "prompt_version", "policy_version",
    "execution_mode", "cache_eligible", "max_retries",
}  # fmt: skip
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
NULLABLE = ("not_before_at", "claimed_at", "claimed_by", "last_error", "last_error_at")


def shown(rewrites: Rewrites, rewrite_request_id: str) -> dict[str, Any]:
    return rewrites.operate(actor="user:op", role="operator").show(rewrite_request_id)


def assert_whole(record: dict[str, Any]) -> None:
    """Every field is there, in the order of the contract, and has the type that it says."""
    assert tuple(record)[: len(RECORD)] == RECORD
    for name in RECORD:
        if name.endswith("_id"):
            assert UUID.fullmatch(record[name]), name
        if name.endswith("_at") and (record[name] is not None or name not in NULLABLE):
            assert INSTANT.fullmatch(record[name]), name
    assert record["task"] == "complaint_rewrite"
    assert set(record["language_pair"]) == {"from", "to"}
    assert set(record["routing_decision"]) >= DECISION
    assert isinstance(record["routing_decision"]["cache_eligible"], bool)


@pytest.mark.req("J-16", "J-19", "J-20", "J-21", "K-07")
def test_a_job_that_waits_shows_the_whole_record(rewrites: Rewrites) -> None:
    answer = rewrites.submit(submission())

    record = shown(rewrites, answer.rewrite_request_id)

    assert_whole(record)
    assert {name: record[name] for name in NULLABLE} == dict.fromkeys(NULLABLE)
    assert (record["job_id"], record["recipient_user_id"]) == (answer.job_id, RECIPIENT)
    assert record["language_pair"] == {"from": "en", "to": "de"}
    assert (record["surface"], record["rewrite_strength"]) == ("weekly_harmony", "light_touch")
    assert (record["status"], record["attempt_count"], record["attempt"]) == ("queued", 0, 1)
    assert (record["max_attempts"], record["routing_decision"]["max_retries"]) == (2, 2)


@pytest.mark.req("J-16")
def test_the_command_prints_it(run: Run, rewrites: Rewrites, hf: Holdfast) -> None:
    answer = rewrites.submit(submission())

    done = run("rewrite", "show", answer.rewrite_request_id, db=hf.settings.db)

    assert done.code == 0
    assert_whole(done.json)
    assert "events" in done.json


@pytest.mark.req("J-16", "C-02")
def test_a_claimed_job_says_by_whom_and_since_when(rewrites: Rewrites, hf: Holdfast) -> None:
    answer = rewrites.submit(submission())
    given = {"queue": "q:default", "worker_id": "run-7", "limit": 1, "lease_ms": 60_000}
    claim_jobs(hf.store, of_batch=True, **given)  # type: ignore[arg-type]

    record = shown(rewrites, answer.rewrite_request_id)

    assert_whole(record)
    assert (record["status"], record["claimed_by"]) == ("processing", "run-7")
    assert (record["claimed_at"], record["attempt"]) == (record["updated_at"], 1)


@pytest.mark.req("J-12", "J-16", "R-17", "R-18")
def test_a_job_that_is_tried_again_counts_from_one_and_says_what_went_wrong(stage: Stage) -> None:
    planted = stage.plant()
    payloads: list[int] = []

    def fail(_: Any) -> Failure:
        payloads.append(record(stage, planted)["attempt"])
        return Failure(FailureKind.TRANSIENT, "server_error", 500)

    stage.answer(fail)
    again = record(stage, planted)
    stage.clock.advance(hours=3)
    stage.answer(fail)
    dead = record(stage, planted)

    assert_whole(again)
    assert_whole(dead)
    assert (again["status"], again["attempt_count"], again["attempt"]) == ("queued", 1, 2)
    assert again["last_error"] is not None
    assert again["last_error_at"] is not None
    assert again["not_before_at"] > again["updated_at"]
    assert (dead["status"], dead["attempt_count"], dead["attempt"]) == ("failed", 2, 2)
    assert payloads == [1, 2]


def record(stage: Stage, planted: Planted) -> dict[str, Any]:
    return find_record(stage.hf.operate(actor="user:op", role="operator").context, planted.id)


@pytest.mark.req("J-16", "A-05")
def test_a_canceled_job_keeps_its_record(rewrites: Rewrites, hf: Holdfast) -> None:
    answer = rewrites.submit(submission())
    hf.cancel(str(answer.job_id), org_id=HOME)

    record = shown(rewrites, answer.rewrite_request_id)

    assert_whole(record)
    assert record["status"] == "canceled"
    assert record["created_at"] == record["received_at"]


def test_a_request_that_never_had_a_job_shows_the_same_fields(rewrites: Rewrites) -> None:
    answer = rewrites.submit(submission("…!"))

    record = shown(rewrites, answer.rewrite_request_id)

    assert tuple(record)[: len(RECORD)] == RECORD
    assert (record["job_id"], record["attempt_count"], record["attempt"]) == (None, 0, None)
    assert (record["status"], record["failure_code"]) == ("failed", "empty_message")
