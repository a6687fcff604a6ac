"""OpenAI's Responses API: build a request for one item, and parse its answer. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast_llm.provider import usage
from holdfast_llm.provider.classify import (
    Judged,
    answer_with,
    get_code,
    get_list,
    get_object,
    kind_of,
    known_model,
)
from holdfast_llm.provider.instant import unix_instant
from holdfast_llm.provider.parameters import checked
from holdfast_llm.provider.reply import Answer, FailureKind
from holdfast_llm.provider.request import Request
from holdfast_llm.provider.schema import is_strict


def build(model: str, request: Request) -> dict[str, Any]:
    """The body for one item. Without ``store: false`` the provider keeps the answer for a month."""
    inputs = [{"type": "input_text", "text": text} for text in request.inputs]
    body: dict[str, Any] = {
        **checked(request.parameters),
        "model": model,
        "store": False,
        "input": [{"role": "user", "content": inputs}],
        "max_output_tokens": request.max_output_tokens,
    }
    if request.instructions:
        body["instructions"] = request.instructions
    if request.schema is not None:
        body["text"] = {
            "format": {
                "type": "json_schema",
                "name": request.schema_name,
                "strict": is_strict(request.schema),
                "schema": dict(request.schema),
            }
        }
    return body


def read(body: Mapping[str, Any], provider_request_id: str | None) -> Answer:
    """Parse the body of a response with status 200, including refusals and partial answers."""
    return answer_with(
        _judge(body),
        model=known_model(body.get("model")),
        usage=usage.of_responses(body),
        provider_request_id=provider_request_id,
        finished_at=unix_instant(body.get("completed_at")) or unix_instant(body.get("created_at")),
    )


def _judge(body: Mapping[str, Any]) -> Judged:
    """The kind and code of a failure, or None and the text."""
    match body.get("status"):
        case "completed":
            pass
        case "failed":
            code = get_code(get_object(body, "error").get("code")) or "response_failed"
            return kind_of(code), code, ""
        case "incomplete":
            reason = get_code(get_object(body, "incomplete_details").get("reason")) or "incomplete"
            filtered = reason == "content_filter"
            return FailureKind.POLICY if filtered else FailureKind.TRUNCATED, reason, ""
        case "cancelled":
            return FailureKind.NOT_RUN, "cancelled", ""
        case _:
            return FailureKind.OUTPUT_INVALID, "not_understood", ""
    messages = [item for item in get_list(body.get("output")) if item.get("type") == "message"]
    # With several messages, the others are remarks before the answer.
    final = [item for item in messages if item.get("phase") == "final_answer"] or messages
    texts: list[str] = []
    is_partial = False
    for item in final:
        is_partial |= item.get("status", "completed") != "completed"
        for piece in get_list(item.get("content")):
            kind, text = piece.get("type"), piece.get("text")
            if kind == "refusal":
                return FailureKind.POLICY, "refusal", ""
            if kind == "output_text" and isinstance(text, str):
                texts.append(text)
    if is_partial:
        return FailureKind.TRUNCATED, "incomplete", ""
    text = "".join(texts)
    return (None, "", text) if text else (FailureKind.OUTPUT_INVALID, "empty_output", "")
