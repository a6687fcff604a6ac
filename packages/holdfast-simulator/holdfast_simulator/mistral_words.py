"""Mistral's formats: parse request bodies, render files, jobs and answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from holdfast_simulator.exchange import Refused, Why
from holdfast_simulator.models import File, Shown, Stage
from holdfast_simulator.prompt import Finish, ItemError, Prompt, Said

STATUS = {
    Stage.VALIDATING: "QUEUED",
    Stage.RUNNING: "RUNNING",
    Stage.FINALIZING: "RUNNING",
    Stage.CANCELING: "CANCELLATION_REQUESTED",
    Stage.COMPLETED: "SUCCESS",
    Stage.FAILED: "FAILED",
    Stage.EXPIRED: "TIMEOUT_EXCEEDED",
    Stage.CANCELED: "CANCELLED",
}

# Status, type and code of the error envelope. Only two of the codes are known.
REFUSALS: dict[Why, tuple[int, str, str | None]] = {
    Why.INVALID: (400, "invalid_request_error", None),
    Why.UNAUTHORIZED: (401, "unauthorized", None),
    Why.FORBIDDEN: (403, "forbidden", None),
    Why.NOT_FOUND: (404, "not_found", None),
    Why.CONFLICT: (409, "conflict", None),
    Why.ALREADY_EXISTS: (409, "conflict", None),
    Why.TOO_LARGE: (413, "request_too_large", None),
    Why.TOKEN_LIMIT: (429, "service_tier_capacity_exceeded", "3505"),
    Why.RATE_LIMITED: (429, "rate_limited", "1300"),
    Why.SLOW_DOWN: (429, "rate_limited", "1300"),
    Why.QUOTA: (402, "payment_required", None),
    Why.SERVER_ERROR: (500, "internal_server_error", None),
    Why.OVERLOADED: (503, "service_unavailable", None),
    Why.OVERLOADED_529: (529, "service_unavailable", None),
}
FINISHES = {
    Finish.STOP: "stop",
    Finish.LENGTH: "length",
    Finish.FILTERED: "error",
    # Mistral refuses in the text only.
    Finish.REFUSED: "stop",
    Finish.FAILED: "error",
    Finish.REASONING_ONLY: "stop",
    Finish.SEVERAL: "stop",
}
REQUEST = {
    *("model", "messages", "max_tokens", "temperature", "top_p", "stop", "stream", "random_seed"),
    *("response_format", "tools", "tool_choice", "presence_penalty", "frequency_penalty", "n"),
    *("prediction", "parallel_tool_calls", "prompt_mode", "safe_prompt", "metadata"),
    *("reasoning_effort", "guardrails", "prompt_cache_key", "service_tier", "min_tokens"),
    *("repetition_penalty", "top_k", "logprobs", "top_logprobs", "prompt_logprobs"),
    "top_prompt_logprobs",
}


def seconds(at: datetime | None) -> int | None:
    """Format an instant as Mistral does."""
    return None if at is None else int(at.timestamp())


def write_error(
    status: int, kind: str, code: str | None, message: str, param: str | None = None
) -> dict[str, Any]:
    """Render the envelope of a refusal. An invalid key has its own format."""
    if status == 401:
        return {"detail": "Unauthorized"}
    return {
        "object": "error",
        "message": message,
        "type": kind,
        "param": param,
        "code": code,
        "raw_status_code": status,
    }


def write_refusal(refused: Refused) -> tuple[int, dict[str, Any]]:
    """Return the status and the body of a refusal."""
    status, kind, code = REFUSALS[refused.why]
    return status, write_error(status, kind, code, refused.message, refused.param)


def write_file(file: File) -> dict[str, Any]:
    """Render a file object."""
    kinds = {"output": "batch_result", "error": "batch_error"}
    made = file.name.rpartition("_")[2].removesuffix(".jsonl")
    is_made = file.batch_id is not None
    return {
        "id": file.id,
        "object": "file",
        "bytes": file.size,
        "created_at": seconds(file.created_at),
        "filename": file.name,
        "purpose": "batch",
        "sample_type": kinds.get(made, "batch_result") if is_made else "batch_request",
        "source": "mistral" if is_made else "upload",
        "num_lines": max(0, len(file.blob.line_starts()) - 1),
        "mimetype": "application/jsonl",
        "signature": None,
        "expires_at": seconds(file.expires_at),
        "visibility": file.extra.get("visibility", "workspace"),
    }


def write_job(shown: Shown, outputs: list[dict[str, Any]] | None) -> dict[str, Any]:
    """Render a batch job; *outputs* are its results, if requested."""
    batch = shown.batch
    ended = shown.entered(shown.stage) if shown.stage.is_over else None
    problems = Counter(problem.message for problem in shown.problems)
    return {
        "id": batch.id,
        "object": "batch",
        "input_files": [batch.file_id] if batch.file_id else [],
        "endpoint": batch.endpoint,
        "model": batch.model or None,
        "agent_id": None,
        "metadata": None if shown.metadata is None else dict(shown.metadata) or None,
        "output_file": shown.output_id,
        "error_file": shown.error_id,
        "errors": [{"message": message, "count": count} for message, count in problems.items()],
        "outputs": outputs,
        "status": shown.strange_status or STATUS[shown.stage],
        "created_at": seconds(batch.created_at),
        "started_at": seconds(shown.entered(Stage.RUNNING)),
        "completed_at": seconds(ended),
        "total_requests": shown.total,
        "completed_requests": shown.succeeded + shown.failed,
        "succeeded_requests": shown.succeeded,
        "failed_requests": shown.failed,
    }


# -- requests


def find_wrong(body: Any) -> str | None:
    """Return the API's error for the first invalid field of a chat request."""
    if not isinstance(body, dict):
        return "body: Input should be an object"
    strange = sorted(set(body) - REQUEST)
    if strange:
        return f"{strange[0]}: Extra inputs are not permitted"
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        return "messages: Field required"
    roles = ("system", "user", "assistant", "tool")
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or message.get("role") not in roles:
            return f"messages.{index}.role: Input should be one of {', '.join(roles)}"
    return None


def read_chat(provider: str, model: str, body: Mapping[str, Any]) -> Prompt:
    """Parse a body for /v1/chat/completions."""
    instructions: list[str] = []
    inputs: list[str] = []
    for message in body["messages"]:
        to = instructions if message["role"] == "system" else inputs
        to.extend(_texts(message.get("content")))
    form = (body.get("response_format") or {}).get("json_schema") or {}
    return Prompt(
        provider,
        model,
        tuple(inputs),
        "\n".join(instructions),
        # The client's schema_definition is named schema on the wire.
        form.get("schema"),
        body.get("max_tokens"),
        body,
    )


def _texts(content: Any) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [str(chunk["text"]) for chunk in content or [] if chunk.get("type") == "text"]


# -- answers


def write_chat(name: str, said: Said, now: datetime) -> dict[str, Any]:
    """Render a chat completion."""
    message = {"role": "assistant", "content": _content(said), "tool_calls": None, "prefix": False}
    written: dict[str, Any] = {
        "id": name,
        "object": "chat.completion",
        "created": seconds(now),
        "model": said.model,
        "choices": [{"index": 0, "message": message, "finish_reason": FINISHES[said.finish]}],
    }
    if not said.hides_usage:
        asked, spoken = said.input_tokens or 0, said.output_tokens or 0
        written["usage"] = {
            "prompt_tokens": asked,
            "completion_tokens": spoken,
            "total_tokens": asked + spoken,
            "prompt_tokens_details": {"cached_tokens": said.cached_tokens},
        }
    return written


def _content(said: Said) -> str | list[dict[str, Any]]:
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "The answer is near."}]}
    text = {"type": "text", "text": said.text}
    match said.finish:
        case Finish.REASONING_ONLY:
            return [thought]
        case Finish.REFUSED:
            return "I cannot help with that."
        case Finish.FILTERED | Finish.FAILED:
            return ""
        case Finish.SEVERAL:
            return [{"type": "text", "text": "Let me see."}, text]
        case _:
            return [thought, text] if said.reasoning_tokens else said.text


def write_item_error(error: ItemError) -> dict[str, Any]:
    """Render the line of a failed item: an error response, or no response."""
    body = write_error(error.status, error.code, None, error.message)
    if error.status >= 500:
        return {"response": None, "error": body}
    return {"response": {"status_code": error.status, "body": body}, "error": None}
