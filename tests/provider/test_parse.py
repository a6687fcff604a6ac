"""Lines of results: every form of an answer, and every form of a failure."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast_llm.provider.adapters import ADAPTERS
from holdfast_llm.provider.reply import Answer, Failure, FailureKind, Reply, Usage

KINDS = sorted(ADAPTERS)
ID = "hf1_k7q2m9x4r5t6w3z7_0_5f2a91c0"

RESPONSES_BODY: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1736489777,
    "status": "completed",
    "error": None,
    "incomplete_details": None,
    "model": "gpt-5.2-2026-01-01",
    "output": [
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {
            "type": "message",
            "id": "msg_1",
            "status": "completed",
            "role": "assistant",
            "content": [{"type": "output_text", "text": '{"a":', "annotations": []},
                        {"type": "output_text", "text": "1}", "annotations": []}],
        },
    ],
    "usage": {
        "input_tokens": 120,
        "input_tokens_details": {"cached_tokens": 30, "cache_write_tokens": 10},
        "output_tokens": 60,
        "output_tokens_details": {"reasoning_tokens": 20},
        "total_tokens": 180,
    },
    "service_tier": "default",
}  # fmt: skip
CHAT_BODY: dict[str, Any] = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1736489777,
    "model": "gpt-5.2-2026-01-01",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": '{"a":1}', "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ],
    "usage": {
        "prompt_tokens": 120,
        "completion_tokens": 60,
        "total_tokens": 180,
        "prompt_tokens_details": {"cached_tokens": 30, "cache_write_tokens": 10},
        "completion_tokens_details": {"reasoning_tokens": 20},
    },
    "service_tier": "default",
}
MESSAGE: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-x",
    "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": '{"a":1}'}],
    "stop_reason": "end_turn",
    "usage": {
        "input_tokens": 80,
        "cache_creation_input_tokens": 10,
        "cache_read_input_tokens": 30,
        "output_tokens": 60,
        "service_tier": "batch",
    },
}
GENERATED: dict[str, Any] = {
    "candidates": [
        {
            "content": {
                "role": "model",
                "parts": [{"text": "hm", "thought": True}, {"text": '{"a":1}'}],
            },
            "finishReason": "STOP",
        }
    ],
    "usageMetadata": {
        "promptTokenCount": 110,
        "cachedContentTokenCount": 30,
        "candidatesTokenCount": 40,
        "thoughtsTokenCount": 20,
        "totalTokenCount": 170,
    },
    "modelVersion": "gemini-x",
    "responseId": "r-1",
}


def parse(kind: str, document: object) -> Answer:
    found = ADAPTERS[kind].parse(json.dumps(document).encode())
    assert found.custom_id == ID
    return found.answer


def openai_line(body: object, status: int = 200) -> dict[str, Any]:
    return {
        "id": "batch_req_1",
        "custom_id": ID,
        "response": {"status_code": status, "request_id": "req_1", "body": body},
        "error": None,
    }


def line_of(kind: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """A line of success, with the body of that provider or another one."""
    match kind:
        case "openai_responses" | "azure_responses":
            return openai_line(body or RESPONSES_BODY)
        case "openai_chat" | "azure_chat" | "mistral_chat":
            return openai_line(body or CHAT_BODY)
        case "gemini_generate":
            return {"key": ID, "response": body or GENERATED}
        case _:
            return {"custom_id": ID, "result": {"type": "succeeded", "message": body or MESSAGE}}


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_is_its_text_and_its_tokens_by_the_class_they_are_billed_under(
    kind: str,
) -> None:
    answer = parse(kind, line_of(kind))

    assert isinstance(answer, Reply)
    assert answer.text == '{"a":1}'
    assert answer.model in ("gpt-5.2-2026-01-01", "claude-x", "gemini-x")
    written = 0 if kind == "gemini_generate" else 10
    thought = 0 if kind == "anthropic_messages" else 20
    assert answer.usage == Usage(
        input=80, cache_read=30, cache_write_short=written, output=60, reasoning=thought
    )
    assert answer.provider_request_id in ("req_1", "msg_1", "r-1")


@pytest.mark.req("P-23")
@pytest.mark.parametrize("kind", ["openai_responses", "openai_chat", "mistral_chat"])
def test_an_answer_keeps_its_own_time(kind: str) -> None:
    answer = parse(kind, line_of(kind))

    assert answer.finished_at == datetime(2025, 1, 10, 6, 16, 17, tzinfo=UTC)


def responses(**changes: Any) -> dict[str, Any]:
    return openai_line({**RESPONSES_BODY, **changes})


def said(*pieces: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "message", "status": "completed", "content": list(pieces), **more}


def chat(finish: object = "stop", **message: Any) -> dict[str, Any]:
    told = {"role": "assistant", "content": "x", "refusal": None, **message}
    return openai_line({**CHAT_BODY, "choices": [{"message": told, "finish_reason": finish}]})


def generated(finish: object = "STOP", text: str = "x") -> dict[str, Any]:
    candidate = {"content": {"parts": [{"text": text}]}, "finishReason": finish}
    return {"key": ID, "response": {**GENERATED, "candidates": [candidate]}}


def message(stop: object, text: str = "x") -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    return line_of("anthropic_messages", {**MESSAGE, "stop_reason": stop, "content": content})


def failed(code: object, status: int, kind: str = "invalid_request_error") -> dict[str, Any]:
    error = {"message": "canary of a prompt", "type": kind, "param": None, "code": code}
    return openai_line({"error": error}, status)


def errored(kind: str, text: str = "canary of a prompt", **details: str) -> dict[str, Any]:
    error = {"type": kind, "message": text, "details": details}
    told = {"type": "error", "error": error, "request_id": "req_1"}
    return {"custom_id": ID, "result": {"type": "errored", "error": told}}


def status(code: int, *details: dict[str, Any]) -> dict[str, Any]:
    error = {"code": code, "message": "canary of a prompt", "details": list(details)}
    return {"key": ID, "error": error}


def ended(code: object) -> dict[str, Any]:
    error = {"code": code, "message": "canary of a prompt"}
    return {"id": "batch_req_1", "custom_id": ID, "response": None, "error": error}


PER_DAY = {"@type": "…QuotaFailure", "violations": [{"quotaId": "RequestsPerDayPerProject"}]}
NO_QUOTA = {"@type": "…QuotaFailure", "violations": [{"quotaId": "x", "quotaValue": "0"}]}
MINUTE = {"@type": "…QuotaFailure", "violations": [{"quotaId": "RequestsPerMinute"}]}
SOON = {"@type": "…RetryInfo", "retryDelay": "46.5s"}

R, C, G, A, M = (
    "openai_responses",
    "openai_chat",
    "gemini_generate",
    "anthropic_messages",
    "mistral_chat",
)
K = FailureKind
FAILURES: list[tuple[str, dict[str, Any], FailureKind, str]] = [
    # The first form: an error and no response.
    (R, ended("batch_expired"), K.NOT_RUN, "batch_expired"),
    (C, ended("batch_cancelled"), K.NOT_RUN, "batch_cancelled"),
    (R, ended("request_timeout"), K.TRANSIENT, "request_timeout"),
    (R, ended("token_limit_exceeded"), K.CAPACITY, "token_limit_exceeded"),
    (R, ended("insufficient_quota"), K.ACCOUNT, "insufficient_quota"),
    (R, ended("a code nobody knows"), K.TRANSIENT, "unknown_error"),
    (C, {**openai_line(None, 400), "error": "a sentence"}, K.INVALID, "unknown_error"),
    (C, {**ended("x"), "error": "a sentence"}, K.TRANSIENT, "unknown_error"),
    # The second: an HTTP status within the response.
    (R, failed("context_length_exceeded", 400), K.INVALID, "context_length_exceeded"),
    (R, failed(None, 400), K.INVALID, "invalid_request_error"),
    (R, failed("content_policy_violation", 400), K.POLICY, "content_policy_violation"),
    (C, failed("content_filter", 400), K.POLICY, "content_filter"),
    (R, failed("invalid_api_key", 401), K.ACCOUNT, "invalid_api_key"),
    (R, failed(None, 403, "model_not_allowed"), K.INVALID, "model_not_allowed"),
    (R, failed(None, 403, "access_terminated"), K.ACCOUNT, "access_terminated"),
    (R, failed("model_not_found", 404), K.INVALID, "model_not_found"),
    (R, failed(None, 408, "timeout"), K.TRANSIENT, "timeout"),
    (R, failed("rate_limit_exceeded", 429), K.TRANSIENT, "rate_limit_exceeded"),
    (R, failed("insufficient_quota", 429), K.ACCOUNT, "insufficient_quota"),
    (R, failed("other", 429, "insufficient_quota"), K.ACCOUNT, "insufficient_quota"),
    (R, failed("credit_balance_exhausted", 429), K.ACCOUNT, "credit_balance_exhausted"),
    (R, failed("server_error", 500), K.TRANSIENT, "server_error"),
    (M, openai_line({"object": "error", "type": "invalid_request", "code": 3051}, 422),
     K.INVALID, "invalid_request"),
    (M, openai_line("<html>", 502), K.TRANSIENT, "status_502"),
    # The third: 200, and a body with an error.
    (R, responses(status="failed", error={"code": "server_error"}), K.TRANSIENT, "server_error"),
    (R, responses(status="failed", error={"code": "rate_limit_exceeded"}),
     K.TRANSIENT, "rate_limit_exceeded"),
    (R, responses(status="failed", error={"code": "invalid_prompt"}), K.INVALID, "invalid_prompt"),
    (R, responses(status="failed", error={"code": "bio_policy"}), K.POLICY, "bio_policy"),
    (R, responses(status="failed", error={"code": "misalignment_policy_violation"}),
     K.POLICY, "misalignment_policy_violation"),
    (R, responses(status="incomplete", incomplete_details={"reason": "max_output_tokens"}),
     K.TRUNCATED, "max_output_tokens"),
    (R, responses(status="incomplete", incomplete_details={"reason": "content_filter"}),
     K.POLICY, "content_filter"),
    (R, responses(status="incomplete", incomplete_details={"reason": "steered"}),
     K.TRUNCATED, "steered"),
    (R, responses(status="cancelled"), K.NOT_RUN, "cancelled"),
    (R, responses(status="in_progress"), K.OUTPUT_INVALID, "not_understood"),
    (R, responses(status=None), K.OUTPUT_INVALID, "not_understood"),
    (R, responses(output=[]), K.OUTPUT_INVALID, "empty_output"),
    (R, responses(output=[{"type": "reasoning", "summary": []}]),
     K.OUTPUT_INVALID, "empty_output"),
    (R, responses(output=[said({"type": "output_text", "text": "half"}, status="incomplete")]),
     K.TRUNCATED, "incomplete"),
    (C, chat("length"), K.TRUNCATED, "length"),
    (C, chat("content_filter"), K.POLICY, "content_filter"),
    (C, chat("tool_calls"), K.OUTPUT_INVALID, "not_finished"),
    (C, chat(None), K.OUTPUT_INVALID, "not_finished"),
    (C, chat(content=None), K.OUTPUT_INVALID, "empty_output"),
    (C, openai_line({**CHAT_BODY, "choices": []}), K.OUTPUT_INVALID, "not_understood"),
    (C, openai_line({**CHAT_BODY, "choices": CHAT_BODY["choices"] * 2}),
     K.OUTPUT_INVALID, "not_understood"),
    (M, chat("model_length"), K.TRUNCATED, "length"),
    # The fourth: 200 and a refusal.
    (R, responses(output=[said({"type": "refusal", "refusal": "canary of a prompt"})]),
     K.POLICY, "refusal"),
    (C, chat(refusal="canary of a prompt", content=None), K.POLICY, "refusal"),
    # Neither.
    (R, {"custom_id": ID}, K.OUTPUT_INVALID, "not_understood"),
    (R, {"custom_id": ID, "response": {"body": RESPONSES_BODY}, "error": None},
     K.OUTPUT_INVALID, "not_understood"),
    # Gemini: errors are google.rpc.Status in every state of the job.
    (G, status(1), K.NOT_RUN, "cancelled"),
    (G, status(3), K.INVALID, "invalid_argument"),
    (G, status(4), K.TRANSIENT, "deadline_exceeded"),
    (G, status(7), K.ACCOUNT, "permission_denied"),
    (G, status(8, MINUTE, SOON), K.TRANSIENT, "resource_exhausted"),
    (G, status(8, PER_DAY), K.ACCOUNT, "quota_per_day"),
    (G, status(8, NO_QUOTA), K.ACCOUNT, "quota_per_day"),
    (G, status(9), K.INVALID, "failed_precondition"),
    (G, status(13), K.TRANSIENT, "internal"),
    (G, status(14), K.TRANSIENT, "unavailable"),
    (G, status(16), K.ACCOUNT, "unauthenticated"),
    (G, status(99), K.TRANSIENT, "unknown"),
    (G, status(503), K.TRANSIENT, "status_503"),
    (G, generated("MAX_TOKENS"), K.TRUNCATED, "max_tokens"),
    (G, generated("SAFETY"), K.POLICY, "safety"),
    (G, generated("RECITATION"), K.POLICY, "recitation"),
    (G, generated("PROHIBITED_CONTENT"), K.POLICY, "prohibited_content"),
    (G, generated("MALFORMED_RESPONSE"), K.OUTPUT_INVALID, "malformed_response"),
    (G, generated(None), K.OUTPUT_INVALID, "not_finished"),
    (G, generated(text=""), K.OUTPUT_INVALID, "empty_output"),
    (G, {"key": ID, "response": {"promptFeedback": {"blockReason": "SAFETY"}}},
     K.POLICY, "safety"),
    (G, {"key": ID, "response": {"usageMetadata": {}}}, K.OUTPUT_INVALID, "empty_output"),
    (G, {"key": ID}, K.OUTPUT_INVALID, "not_understood"),
    # Anthropic: four types of a result.
    (A, errored("invalid_request_error"), K.INVALID, "invalid_request_error"),
    (A, errored("invalid_request_error", "Your credit balance is too low to use this"),
     K.ACCOUNT, "credit_balance_too_low"),
    (A, errored("billing_error"), K.ACCOUNT, "billing_error"),
    (A, errored("authentication_error"), K.ACCOUNT, "authentication_error"),
    (A, errored("rate_limit_error", error_code="enforced_spend_limit_reached"),
     K.ACCOUNT, "enforced_spend_limit_reached"),
    (A, errored("rate_limit_error", error_code="ramp_limit_exceeded"),
     K.CAPACITY, "ramp_limit_exceeded"),
    (A, errored("invalid_request_error", error_code="some_detail"), K.INVALID, "some_detail"),
    (A, errored("overloaded_error"), K.TRANSIENT, "overloaded_error"),
    (A, errored("api_error"), K.TRANSIENT, "api_error"),
    (A, errored("not_found_error"), K.INVALID, "not_found_error"),
    (A, {"custom_id": ID, "result": {"type": "expired"}}, K.NOT_RUN, "expired"),
    (A, {"custom_id": ID, "result": {"type": "canceled"}}, K.NOT_RUN, "canceled"),
    (A, {"custom_id": ID, "result": {"type": "other"}}, K.OUTPUT_INVALID, "not_understood"),
    (A, message("max_tokens"), K.TRUNCATED, "max_tokens"),
    (A, message("model_context_window_exceeded"), K.TRUNCATED, "model_context_window_exceeded"),
    (A, message("refusal"), K.POLICY, "refusal"),
    (A, message("pause_turn"), K.OUTPUT_INVALID, "not_finished"),
    (A, message("end_turn", ""), K.OUTPUT_INVALID, "empty_output"),
]  # fmt: skip


@pytest.mark.req("P-25")
@pytest.mark.parametrize(
    ("adapter_kind", "line", "kind", "code"),
    FAILURES,
    ids=[f"{row[0]}-{row[2]}-{row[3]}-{index}" for index, row in enumerate(FAILURES)],
)
def test_every_shape_of_a_failure_is_one_of_ours_and_keeps_nothing_of_its_message(
    adapter_kind: str, line: dict[str, Any], kind: FailureKind, code: str
) -> None:
    answer = parse(adapter_kind, line)

    assert isinstance(answer, Failure)
    assert (answer.kind, answer.code) == (kind, code)
    assert "canary" not in repr(answer)


@pytest.mark.parametrize(
    ("adapter_kind", "line"),
    [
        (R, responses(status="incomplete", incomplete_details={"reason": "max_output_tokens"})),
        (R, responses(status="failed", error={"code": "server_error"})),
        (C, chat("length")),
        (G, generated("SAFETY")),
        (A, message("refusal")),
    ],
)
def test_an_answer_that_is_of_no_use_was_paid_for_all_the_same(
    adapter_kind: str, line: dict[str, Any]
) -> None:
    answer = parse(adapter_kind, line)

    assert isinstance(answer, Failure)
    assert answer.usage is not None
    assert answer.usage.output == 60
    assert answer.model


def test_a_wait_that_an_item_asks_for_is_read() -> None:
    answer = parse(G, status(8, SOON))

    assert isinstance(answer, Failure)
    assert answer.retry_after == 46.5


def test_of_several_messages_the_final_one_is_the_answer() -> None:
    answer = parse(
        R,
        responses(
            output=[
                said({"type": "output_text", "text": "a remark"}, phase="commentary"),
                said({"type": "output_text", "text": "the answer"}, phase="final_answer"),
            ]
        ),
    )

    assert isinstance(answer, Reply)
    assert answer.text == "the answer"


def test_a_chat_answer_in_parts_is_its_text_without_the_thoughts() -> None:
    parts = [{"type": "thinking", "thinking": []}, {"type": "text", "text": "so"}]
    answer = parse(M, chat(content=parts))

    assert isinstance(answer, Reply)
    assert answer.text == "so"


@pytest.mark.parametrize("kind", KINDS)
def test_a_line_under_no_name_is_no_line(kind: str) -> None:
    line = line_of(kind)
    for name in ("", None, 7, "x" * 201):
        unnamed = {**line, ("key" if kind == G else "custom_id"): name}
        with pytest.raises(ValueError):
            ADAPTERS[kind].parse(json.dumps(unnamed).encode())


@pytest.mark.parametrize("kind", KINDS)
def test_two_answers_are_compared_by_content_and_not_by_spelling(
    kind: str,
) -> None:
    adapter = ADAPTERS[kind]
    line = line_of(kind)
    one = adapter.parse(json.dumps(line).encode())
    same = adapter.parse(json.dumps(line, indent=1).encode())
    other = adapter.parse(json.dumps(line).replace('\\"a\\":', '\\"b\\":').encode())

    assert one.digest == same.digest
    assert one.digest != other.digest


@pytest.mark.parametrize("kind", KINDS)
@given(text=st.text(st.characters(codec="utf-8"), min_size=1))
def test_any_text_comes_through_as_it_is_raw_or_escaped(kind: str, text: str) -> None:
    quoted = json.dumps(text)
    line = json.dumps(line_of(kind), ensure_ascii=True).replace(json.dumps('{"a":1}'), quoted)
    line = line.replace(json.dumps('{"a":'), quoted).replace(json.dumps("1}"), '""')
    raw = json.dumps(json.loads(line), ensure_ascii=False)

    for form in (line, raw):
        answer = ADAPTERS[kind].parse(form.encode()).answer
        assert isinstance(answer, Reply)
        assert answer.text == text


# -- tokens


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("usage", [None, {}, "no", {"input_tokens": -1, "output_tokens": 3}])
def test_a_missing_count_is_unknown_and_not_zero(kind: str, usage: object) -> None:
    name = "usageMetadata" if kind == G else "usage"
    bodies = {R: RESPONSES_BODY, C: CHAT_BODY, M: CHAT_BODY, G: GENERATED, A: MESSAGE}
    body = bodies.get(kind.replace("azure", "openai"))
    assert body is not None
    answer = parse(kind, line_of(kind, {**body, name: usage}))

    assert isinstance(answer, Reply)
    assert answer.usage is None


def test_a_count_that_cannot_be_is_unknown() -> None:
    body = {**CHAT_BODY, "usage": {"prompt_tokens": 10**15, "completion_tokens": 1}}

    answer = parse(C, line_of(C, body))
    assert isinstance(answer, Reply)
    assert answer.usage is None


def test_anthropic_says_how_long_what_it_caches_is_kept() -> None:
    usage = {
        **MESSAGE["usage"],
        "cache_creation": {"ephemeral_5m_input_tokens": 4, "ephemeral_1h_input_tokens": 6},
        "output_tokens_details": {"thinking_tokens": 20},
    }
    answer = parse(A, line_of(A, {**MESSAGE, "usage": usage}))

    assert answer.usage == Usage(80, 30, 4, 6, 60, 20)
