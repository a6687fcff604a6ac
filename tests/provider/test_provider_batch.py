"""The representation of a batch at each provider."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast_llm.provider import anthropic, gemini, mistral, openai
from holdfast_llm.provider.adapter import BatchPhase
from holdfast_llm.provider.reply import FailureKind, ProviderUnsure, Usage
from tests.provider.asking import KEY

AT = datetime(2025, 1, 10, 6, 16, 15, tzinfo=UTC)
OPENAI: dict[str, Any] = {
    "id": "batch_1",
    "object": "batch",
    "endpoint": "/v1/chat/completions",
    "errors": None,
    "input_file_id": "file-1",
    "completion_window": "24h",
    "status": "validating",
    "output_file_id": None,
    "error_file_id": None,
    "created_at": 1736489775,
    "expires_at": 1736576175,
    "request_counts": {"total": 0, "completed": 0, "failed": 0},
    "metadata": {"hf_key": KEY, "hf_try": "2", "hf_env": "prod"},
}
GEMINI: dict[str, Any] = {
    "name": "batches/abc",
    "metadata": {
        "@type": "…GenerateContentBatch",
        "name": "batches/abc",
        "model": "models/gemini-x",
        "displayName": f"hf-{KEY}-2-prod",
        "inputConfig": {"fileName": "files/hf-1"},
        "createTime": "2025-01-10T06:16:15.123456789Z",
        "state": "BATCH_STATE_PENDING",
        "batchStats": {"requestCount": "2", "pendingRequestCount": "2"},
    },
}
ANTHROPIC: dict[str, Any] = {
    "id": "msgbatch_01",
    "type": "message_batch",
    "processing_status": "in_progress",
    "request_counts": {"processing": 3, "succeeded": 0, "errored": 0, "canceled": 0, "expired": 0},
    "ended_at": None,
    "created_at": "2025-01-10T06:16:15+00:00",
    "expires_at": "2025-01-11T06:16:15+00:00",
    "results_url": None,
}
MISTRAL: dict[str, Any] = {
    "id": "0f1c2d3e-0000-4000-8000-000000000000",
    "object": "batch",
    "input_files": ["11111111-0000-4000-8000-000000000000"],
    "metadata": {"hf_key": KEY, "hf_try": "2", "hf_env": "prod"},
    "output_file": None,
    "error_file": None,
    "errors": [],
    "status": "QUEUED",
    "created_at": 1736489775,
    "total_requests": 0,
    "completed_requests": 0,
    "succeeded_requests": 0,
    "failed_requests": 0,
}


@pytest.mark.parametrize(
    ("provider_batch_of", "document"),
    [
        (openai.provider_batch_of, OPENAI),
        (gemini.provider_batch_of, GEMINI),
        (mistral.provider_batch_of, MISTRAL),
    ],
)
def test_a_batch_is_known_by_the_names_that_we_gave_it(
    provider_batch_of: Any, document: Any
) -> None:
    seen = provider_batch_of(document)

    assert (seen.key, seen.attempt, seen.environment) == (KEY, 2, "prod")
    assert seen.input_file_id in ("file-1", "files/hf-1", MISTRAL["input_files"][0])
    assert seen.created_at.replace(microsecond=0) == AT
    assert seen.phase is BatchPhase.RUNNING
    assert seen.is_known_status


def test_a_batch_at_anthropic_is_known_by_its_time_and_its_number_of_items() -> None:
    seen = anthropic.provider_batch_of(ANTHROPIC)

    assert (seen.key, seen.created_at, seen.total) == (None, AT, 3)


@pytest.mark.parametrize(
    ("status", "phase"),
    [
        ("validating", BatchPhase.RUNNING),
        ("in_progress", BatchPhase.RUNNING),
        ("finalizing", BatchPhase.RUNNING),
        ("cancelling", BatchPhase.RUNNING),
        ("completed", BatchPhase.COMPLETED),
        ("failed", BatchPhase.FAILED),
        ("expired", BatchPhase.EXPIRED),
        ("cancelled", BatchPhase.CANCELED),
    ],
)
def test_openais_words_for_how_far_a_batch_is(status: str, phase: BatchPhase) -> None:
    assert openai.provider_batch_of({**OPENAI, "status": status}).phase is phase
    assert openai.provider_batch_of({**OPENAI, "status": status.upper()}).phase is phase


@pytest.mark.parametrize(
    ("state", "phase"),
    [
        ("BATCH_STATE_UNSPECIFIED", BatchPhase.RUNNING),
        ("BATCH_STATE_RUNNING", BatchPhase.RUNNING),
        ("BATCH_STATE_SUCCEEDED", BatchPhase.COMPLETED),
        ("JOB_STATE_SUCCEEDED", BatchPhase.COMPLETED),
        ("JOB_STATE_PARTIALLY_SUCCEEDED", BatchPhase.COMPLETED),
        ("BATCH_STATE_FAILED", BatchPhase.FAILED),
        ("BATCH_STATE_CANCELLED", BatchPhase.CANCELED),
        ("BATCH_STATE_EXPIRED", BatchPhase.EXPIRED),
    ],
)
def test_geminis_words_for_how_far_a_batch_is(state: str, phase: BatchPhase) -> None:
    seen = gemini.provider_batch_of({**GEMINI, "metadata": {**GEMINI["metadata"], "state": state}})

    assert seen.phase is phase
    assert seen.is_known_status
    lower = {**GEMINI, "metadata": {**GEMINI["metadata"], "state": state.lower()}}
    assert gemini.provider_batch_of(lower).phase is phase


@pytest.mark.parametrize(
    ("status", "phase"),
    [
        ("RUNNING", BatchPhase.RUNNING),
        ("CANCELLATION_REQUESTED", BatchPhase.RUNNING),
        ("SUCCESS", BatchPhase.COMPLETED),
        ("FAILED", BatchPhase.FAILED),
        ("TIMEOUT_EXCEEDED", BatchPhase.EXPIRED),
        ("CANCELLED", BatchPhase.CANCELED),
    ],
)
def test_mistrals_words_for_how_far_a_batch_is(status: str, phase: BatchPhase) -> None:
    assert mistral.provider_batch_of({**MISTRAL, "status": status}).phase is phase
    assert mistral.provider_batch_of({**MISTRAL, "status": status.title()}).phase is phase


def test_anthropics_words_count_in_any_case() -> None:
    assert (
        anthropic.provider_batch_of({**ANTHROPIC, "processing_status": "Ended"}).phase
        is BatchPhase.COMPLETED
    )


@pytest.mark.parametrize(
    ("provider_batch_of", "document"),
    [
        (openai.provider_batch_of, {**OPENAI, "status": "hibernating"}),
        (openai.provider_batch_of, {**OPENAI, "status": None}),
        (gemini.provider_batch_of, {**GEMINI, "metadata": {"state": "BATCH_STATE_DREAMING"}}),
        (anthropic.provider_batch_of, {**ANTHROPIC, "processing_status": "archiving"}),
        (mistral.provider_batch_of, {**MISTRAL, "status": "PAUSED"}),
    ],
)
def test_an_unknown_word_is_no_end(provider_batch_of: Any, document: Any) -> None:
    seen = provider_batch_of(document)

    assert seen.phase is BatchPhase.RUNNING
    assert not seen.is_known_status


@pytest.mark.parametrize(
    "provider_batch_of", [one.provider_batch_of for one in (openai, gemini, anthropic, mistral)]
)
@pytest.mark.parametrize(
    "document", [None, {}, [], "x", {"id": ""}, {"id": "../files"}, {"name": "batches/../x"}]
)
def test_what_has_no_id_is_no_batch(provider_batch_of: Any, document: Any) -> None:
    with pytest.raises(ProviderUnsure):
        provider_batch_of(document)


def test_an_empty_id_is_no_file_and_files_count_only_at_the_end() -> None:
    running = openai.provider_batch_of(
        {**OPENAI, "status": "in_progress", "output_file_id": "file-o"}
    )
    clean = openai.provider_batch_of(
        {**OPENAI, "status": "completed", "output_file_id": "file-o", "error_file_id": ""}
    )
    failed = openai.provider_batch_of(
        {**OPENAI, "status": "completed", "output_file_id": None, "error_file_id": "file-e"}
    )

    assert (running.result_files, clean.result_files, failed.result_files) == (
        (),
        ("file-o",),
        ("file-e",),
    )


@pytest.mark.parametrize("status", ["expired", "cancelled", "failed"])
def test_a_batch_that_ended_badly_still_has_the_files_it_was_paid_for(status: str) -> None:
    document = {**OPENAI, "status": status, "output_file_id": "file-o", "error_file_id": "file-e"}

    assert openai.provider_batch_of(document).result_files == ("file-o", "file-e")


def test_a_failed_batch_names_the_lines_at_fault() -> None:
    errors = [
        {"code": "invalid_json_line", "line": 7, "message": "somebody's text"},
        {"code": "invalid_json_line", "line": 2},
        {"code": "invalid_json_line", "line": None},
        {"code": "invalid_json_line", "line": "two"},
        {"code": "invalid_json_line", "line": 0},
    ]
    document = {**OPENAI, "status": "failed", "errors": {"data": errors}}

    assert openai.provider_batch_of(document).named_lines == (2, 7)
    assert openai.provider_batch_of({**document, "status": "in_progress"}).named_lines == ()


def test_the_number_of_items_is_unknown_until_the_input_was_looked_at() -> None:
    counts = {"total": 3, "completed": None, "failed": 1}

    assert openai.provider_batch_of(OPENAI).total is None
    seen = openai.provider_batch_of({**OPENAI, "status": "in_progress", "request_counts": counts})
    assert (seen.total, seen.succeeded, seen.failed) == (3, None, 1)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("token_limit_exceeded", FailureKind.CAPACITY),
        ("billing_hard_limit_reached", FailureKind.ACCOUNT),
        ("invalid_json_line", FailureKind.NOT_RUN),
        ("model_not_found", FailureKind.NOT_RUN),
        (None, FailureKind.NOT_RUN),
    ],
)
def test_a_batch_that_failed_as_a_whole_blames_no_item(code: str | None, kind: FailureKind) -> None:
    errors = {"object": "list", "data": [{"code": code, "line": 3, "message": "canary"}]}
    seen = openai.provider_batch_of({**OPENAI, "status": "failed", "errors": errors})

    assert seen.failure is not None
    assert seen.failure.kind is kind
    assert "canary" not in repr(seen)


def test_the_usage_of_a_whole_batch_is_read_from_its_place() -> None:
    usage = {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 2},
    }

    assert openai.provider_batch_of({**OPENAI, "usage": usage}).usage == Usage(6, 4, 0, 0, 5, 2)
    assert openai.provider_batch_of(OPENAI).usage is None


def test_a_batch_at_gemini_says_why_it_failed_and_where_its_answers_are() -> None:
    done = {
        **GEMINI,
        "done": True,
        "metadata": {
            **GEMINI["metadata"],
            "state": "BATCH_STATE_SUCCEEDED",
            "batchStats": {
                "requestCount": "2",
                "successfulRequestCount": "1",
                "failedRequestCount": "1",
            },
        },
        "response": {"responsesFile": "files/out"},
    }
    seen = gemini.provider_batch_of(done)
    assert (seen.total, seen.succeeded, seen.failed) == (2, 1, 1)
    assert seen.result_files == ("files/out",)

    failed = gemini.provider_batch_of(
        {
            **GEMINI,
            "metadata": {**GEMINI["metadata"], "state": "BATCH_STATE_FAILED"},
            "error": {"code": 8, "message": "canary"},
        }
    )
    assert failed.failure is not None
    assert failed.failure.kind is FailureKind.CAPACITY


def test_a_batch_at_anthropic_has_results_when_it_says_so_and_its_address_is_not_followed() -> None:
    counts = {"processing": 0, "succeeded": 1, "errored": 1, "canceled": 1, "expired": 1}
    ended = {**ANTHROPIC, "processing_status": "ended", "request_counts": counts}
    there = {**ended, "results_url": "https://evil.example.com/results"}

    assert anthropic.provider_batch_of(ended).result_files == ()
    seen = anthropic.provider_batch_of(there)
    assert seen.result_files == ("msgbatch_01",)
    assert (seen.phase, seen.total, seen.succeeded, seen.failed) == (BatchPhase.COMPLETED, 4, 1, 1)


def test_a_batch_at_mistral_has_both_files() -> None:
    seen = mistral.provider_batch_of(
        {**MISTRAL, "status": "TIMEOUT_EXCEEDED", "output_file": "a1", "error_file": "b2"}
    )

    assert seen.result_files == ("a1", "b2")
