"""Chat completions, as OpenAI, Mistral and many other servers implement them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast_llm.provider import usage
from holdfast_llm.provider.classify import Judged, answer_with, get_list, known_model
from holdfast_llm.provider.instant import unix_instant
from holdfast_llm.provider.parameters import checked
from holdfast_llm.provider.reply import Answer, FailureKind
from holdfast_llm.provider.request import Request
from holdfast_llm.provider.schema import is_strict


def build(model: str, request: Request, *, limit: str) -> dict[str, Any]:
    """The body for one item; *limit* is the server's name of the output limit."""
    # A single text as a string: not every server accepts a list of parts.
    content: Any = request.inputs[0]
    if len(request.inputs) > 1:
        content = [{"type": "text", "text": text} for text in request.inputs]
    messages = [{"role": "user", "content": content}]
    if request.instructions:
        # Every server accepts "system"; OpenAI treats it as "developer" where needed.
        messages.insert(0, {"role": "system", "content": request.instructions})
    body: dict[str, Any] = {
        **checked(request.parameters),
        "model": model,
        "messages": messages,
        limit: request.max_output_tokens,
    }
    if request.schema is not None:
        body["response_format"] = {
            "type": "json_schema",
            "json_schema": {
                "name": request.schema_name,
                "strict": is_strict(request.schema),
                "schema": dict(request.schema),
            },
        }
    return body


def read(body: Mapping[str, Any], provider_request_id: str | None) -> Answer:
    """Parse the body of a response with status 200."""
    return answer_with(
        _judge(body),
        model=known_model(body.get("model")),
        usage=usage.of_chat(body),
        provider_request_id=provider_request_id,
        finished_at=unix_instant(body.get("created")),
    )


def _judge(body: Mapping[str, Any]) -> Judged:
    choices = get_list(body.get("choices"))
    if len(choices) != 1 or not isinstance(message := choices[0].get("message"), dict):
        return FailureKind.OUTPUT_INVALID, "not_understood", ""
    if message.get("refusal"):
        return FailureKind.POLICY, "refusal", ""
    match choices[0].get("finish_reason"):
        case "stop":
            text = _text(message.get("content"))
        case "length" | "model_length":
            return FailureKind.TRUNCATED, "length", ""
        case "content_filter":
            return FailureKind.POLICY, "content_filter", ""
        case "error":
            return FailureKind.TRANSIENT, "server_error", ""
        case _:
            return FailureKind.OUTPUT_INVALID, "not_finished", ""
    return (None, "", text) if text else (FailureKind.OUTPUT_INVALID, "empty_output", "")


def _text(content: object) -> str:
    """The text of the answer. Reasoning models split it into parts, next to their thoughts."""
    if isinstance(content, str):
        return content
    return "".join(
        piece["text"]
        for piece in get_list(content)
        if piece.get("type") == "text" and isinstance(piece.get("text"), str)
    )
