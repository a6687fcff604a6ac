"""OpenAI's formats: parse request bodies, render batches, files and answers."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from holdfast_simulator.exchange import Why
from holdfast_simulator.models import File, Shown, Stage
from holdfast_simulator.prompt import Finish, Prompt, Said

STATUS = {
    Stage.VALIDATING: "validating",
    Stage.RUNNING: "in_progress",
    Stage.FINALIZING: "finalizing",
    Stage.CANCELING: "cancelling",
    Stage.COMPLETED: "completed",
    Stage.FAILED: "failed",
    Stage.EXPIRED: "expired",
    Stage.CANCELED: "cancelled",
}

# Status, type and code of the error envelope.
REFUSALS: dict[Why, tuple[int, str, str | None]] = {
    Why.INVALID: (400, "invalid_request_error", None),
    Why.UNAUTHORIZED: (401, "invalid_request_error", "invalid_api_key"),
    Why.FORBIDDEN: (403, "invalid_request_error", "insufficient_permissions"),
    Why.NOT_FOUND: (404, "invalid_request_error", None),
    Why.CONFLICT: (409, "invalid_request_error", "conflict"),
    Why.ALREADY_EXISTS: (409, "invalid_request_error", "already_exists"),
    Why.TOO_LARGE: (413, "invalid_request_error", "request_too_large"),
    Why.TOKEN_LIMIT: (400, "invalid_request_error", "token_limit_exceeded"),
    Why.RATE_LIMITED: (429, "requests", "rate_limit_exceeded"),
    Why.SLOW_DOWN: (429, "requests", "slow_down"),
    Why.QUOTA: (429, "insufficient_quota", "insufficient_quota"),
    Why.SERVER_ERROR: (500, "server_error", None),
    Why.OVERLOADED: (503, "service_unavailable_error", "server_is_overloaded"),
    Why.OVERLOADED_529: (529, "service_unavailable_error", "server_is_overloaded"),
}


def seconds(at: datetime | None) -> int | None:
    """Format an instant as OpenAI does."""
    return None if at is None else int(at.timestamp())


def write_file(file: File) -> dict[str, Any]:
    """Render a file object."""
    return {
        "object": "file",
        "id": file.id,
        "purpose": file.purpose,
        "filename": file.name,
        "bytes": file.size,
        "created_at": seconds(file.created_at),
        "expires_at": seconds(file.expires_at),
        "status": "processed",
        "status_details": None,
    }


def write_batch(shown: Shown) -> dict[str, Any]:
    """Render a batch object in the format recorded from the live API."""
    batch = shown.batch
    problems = [
        {"code": item.code, "line": item.line, "message": item.message, "param": item.param}
        for item in shown.problems
    ]
    return {
        "id": batch.id,
        "object": "batch",
        "endpoint": batch.endpoint,
        "errors": {"object": "list", "data": problems} if problems else None,
        "input_file_id": batch.file_id,
        "completion_window": "24h",
        "status": shown.strange_status or STATUS[shown.stage],
        "output_file_id": shown.output_id,
        "error_file_id": shown.error_id,
        "created_at": seconds(batch.created_at),
        "in_progress_at": seconds(shown.entered(Stage.RUNNING)),
        "expires_at": seconds(batch.expires_at),
        "finalizing_at": seconds(shown.entered(Stage.FINALIZING)),
        "completed_at": seconds(shown.entered(Stage.COMPLETED)),
        "failed_at": seconds(shown.entered(Stage.FAILED)),
        "expired_at": seconds(shown.entered(Stage.EXPIRED)),
        "cancelling_at": seconds(shown.entered(Stage.CANCELING)),
        "cancelled_at": seconds(shown.entered(Stage.CANCELED)),
        "request_counts": {
            "total": shown.total,
            "completed": shown.succeeded,
            # Expired and canceled items are in the error file, so they count as failed.
            "failed": shown.failed + shown.not_run,
        },
        "metadata": None if shown.metadata is None else dict(shown.metadata) or None,
        "model": batch.model or None,
        "usage": {
            "input_tokens": batch.input_tokens,
            "input_tokens_details": {"cached_tokens": batch.cached_tokens},
            "output_tokens": batch.output_tokens,
            "output_tokens_details": {"reasoning_tokens": batch.reasoning_tokens},
            "total_tokens": batch.input_tokens + batch.output_tokens,
        },
    }


# -- requests


def read_responses(provider: str, model: str, body: Mapping[str, Any]) -> Prompt:
    """Parse a body for /responses."""
    given = body.get("input", "")
    turns = [{"role": "user", "content": given}] if isinstance(given, str) else given
    instructions, inputs = _turns(turns)
    form = (body.get("text") or {}).get("format") or {}
    return Prompt(
        provider,
        model,
        inputs,
        "\n".join(filter(None, [str(body.get("instructions") or ""), instructions])),
        form.get("schema"),
        body.get("max_output_tokens"),
        body,
    )


def read_chat(provider: str, model: str, body: Mapping[str, Any]) -> Prompt:
    """Parse a body for /chat/completions."""
    instructions, inputs = _turns(body.get("messages") or [])
    form = (body.get("response_format") or {}).get("json_schema") or {}
    limit = body.get("max_completion_tokens") or body.get("max_tokens")
    return Prompt(provider, model, inputs, instructions, form.get("schema"), limit, body)


def _turns(turns: Any) -> tuple[str, tuple[str, ...]]:
    """Return the instructions and the parts of the user's messages."""
    instructions: list[str] = []
    inputs: list[str] = []
    for turn in turns if isinstance(turns, list) else []:
        content = turn.get("content", "") if isinstance(turn, dict) else ""
        parts = [content] if isinstance(content, str) else content or []
        texts = [part if isinstance(part, str) else str(part.get("text", "")) for part in parts]
        is_standing = isinstance(turn, dict) and turn.get("role") in ("system", "developer")
        (instructions if is_standing else inputs).extend(texts)
    return "\n".join(instructions), tuple(inputs)


# -- answers


def write_response(name: str, said: Said, now: datetime) -> dict[str, Any]:
    """Render a response object; *name* is the base of its ids."""
    status, error, reason = "completed", None, None
    match said.finish:
        case Finish.LENGTH:
            status, reason = "incomplete", "max_output_tokens"
        case Finish.FILTERED:
            status, reason = "incomplete", "content_filter"
        case Finish.FAILED:
            status = "failed"
            error = {"code": "server_error", "message": "The model failed."}
        case _:
            pass
    written: dict[str, Any] = {
        "id": f"resp_{name}",
        "object": "response",
        "created_at": seconds(now),
        "status": status,
        "error": error,
        "incomplete_details": None if reason is None else {"reason": reason},
        "instructions": None,
        "metadata": {},
        "model": said.model,
        "output": _output(name, said),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "temperature": 1.0,
        "top_p": 1.0,
        "store": False,
        "service_tier": "default",
    }
    if not said.hides_usage:
        written["usage"] = {
            "input_tokens": said.input_tokens,
            "input_tokens_details": {"cached_tokens": said.cached_tokens, "cache_write_tokens": 0},
            "output_tokens": said.output_tokens,
            "output_tokens_details": {"reasoning_tokens": said.reasoning_tokens},
            "total_tokens": (said.input_tokens or 0) + (said.output_tokens or 0),
        }
    return written


def _output(name: str, said: Said) -> list[dict[str, Any]]:
    output: list[dict[str, Any]] = []
    if said.reasoning_tokens:
        output.append({"type": "reasoning", "id": f"rs_{name}", "summary": []})
    if said.finish in (Finish.FAILED, Finish.REASONING_ONLY):
        return output
    if said.finish is Finish.REFUSED:
        part: dict[str, Any] = {"type": "refusal", "refusal": "I cannot help with that."}
    else:
        part = {"type": "output_text", "text": said.text, "annotations": []}
    cut = "incomplete" if said.finish in (Finish.LENGTH, Finish.FILTERED) else "completed"
    message = {"type": "message", "id": f"msg_{name}", "status": cut, "role": "assistant"}
    if said.finish is Finish.SEVERAL:
        thought = {"type": "output_text", "text": "Let me see.", "annotations": []}
        first = {**message, "id": f"msg_{name}0", "phase": "commentary", "content": [thought]}
        return [*output, first, {**message, "phase": "final_answer", "content": [part]}]
    return [*output, {**message, "content": [part]}]


CHAT_FINISH = {Finish.LENGTH: "length", Finish.FILTERED: "content_filter"}


def write_chat(name: str, said: Said, now: datetime) -> dict[str, Any]:
    """Render a chat completion."""
    is_refused = said.finish is Finish.REFUSED
    content = None if is_refused or said.finish is Finish.REASONING_ONLY else said.text
    message: dict[str, Any] = {
        "role": "assistant",
        "content": content,
        "refusal": "I cannot help with that." if is_refused else None,
        "annotations": [],
    }
    choice = {
        "index": 0,
        "message": message,
        "logprobs": None,
        "finish_reason": CHAT_FINISH.get(said.finish, "stop"),
    }
    choices = [choice]
    if said.finish is Finish.FAILED:
        choices = []
    elif said.finish is Finish.SEVERAL:
        choices.append({**choice, "index": 1, "message": {**message, "content": "Or this."}})
    written: dict[str, Any] = {
        "id": f"chatcmpl-{name}",
        "object": "chat.completion",
        "created": seconds(now),
        "model": said.model,
        "choices": choices,
        "service_tier": "default",
        "system_fingerprint": None,
    }
    if not said.hides_usage:
        written["usage"] = {
            "prompt_tokens": said.input_tokens,
            "completion_tokens": said.output_tokens,
            "total_tokens": (said.input_tokens or 0) + (said.output_tokens or 0),
            "prompt_tokens_details": {"cached_tokens": said.cached_tokens, "audio_tokens": 0},
            "completion_tokens_details": {
                "reasoning_tokens": said.reasoning_tokens,
                "audio_tokens": 0,
                "accepted_prediction_tokens": 0,
                "rejected_prediction_tokens": 0,
            },
        }
    return written
