"""Anthropic's formats: parse requests, render messages and errors. Pure."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any

from holdfast_simulator.blob import Blob
from holdfast_simulator.exchange import Refused, Why
from holdfast_simulator.prompt import Finish, ItemError, Said

CUSTOM_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
STOPS = {
    Finish.STOP: "end_turn",
    Finish.LENGTH: "max_tokens",
    Finish.FILTERED: "refusal",
    Finish.REFUSED: "refusal",
    # Anthropic has no failed answer; pause_turn is the closest one.
    Finish.FAILED: "pause_turn",
    Finish.REASONING_ONLY: "end_turn",
    Finish.SEVERAL: "end_turn",
}
PARAMS = {
    *("model", "messages", "max_tokens", "system", "stop_sequences", "stream", "metadata"),
    *("temperature", "top_p", "top_k", "thinking", "tools", "tool_choice", "output_config"),
    *("service_tier", "speed", "inference_geo", "container", "cache_control", "diagnostics"),
    "user_profile_id",
}


# -- requests

OPENING = re.compile(r'\s*\{\s*"requests"\s*:\s*\[')
BETWEEN = re.compile(r"[\s,]*")


def read_requests(body: Blob) -> Iterator[Any]:
    """Yield the requests of a create one at a time: a body may have 256 MB."""
    pieces = _decoded(body)
    text = next(pieces, "")
    opening = OPENING.match(text)
    if opening is None:
        raise Refused(Why.INVALID, "requests: Field required")
    decoder = json.JSONDecoder()
    at = opening.end()
    while True:
        between = BETWEEN.match(text, at)
        at = at if between is None else between.end()
        if text.startswith("]", at):
            return
        try:
            value, at = decoder.raw_decode(text, at)
        except ValueError:
            more = next(pieces, None)
            if more is None:
                raise Refused(Why.INVALID, "The body of the request is not valid JSON.") from None
            text, at = text[at:] + more, 0
            continue
        yield value


def _decoded(body: Blob) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for piece in body.pieces():
            yield decoder.decode(piece)
    except UnicodeDecodeError:
        raise Refused(Why.INVALID, "The body of the request is not valid UTF-8.") from None


def check_name(index: int, request: Any, names: set[str]) -> str:
    """Return the request's name, which must be unique. A create checks nothing else."""
    where = f"requests.{index}"
    if not isinstance(request, dict) or not isinstance(request.get("params"), dict):
        raise Refused(Why.INVALID, f"{where}.params: Field required")
    custom_id = request.get("custom_id")
    if not isinstance(custom_id, str) or not CUSTOM_ID.fullmatch(custom_id):
        message = f"{where}.custom_id: String should match pattern '^[a-zA-Z0-9_-]{{1,64}}$'"
        raise Refused(Why.INVALID, message)
    if custom_id in names:
        raise Refused(Why.INVALID, f"{where}.custom_id: custom_id must be unique in a batch")
    names.add(custom_id)
    return custom_id


def find_wrong(params: Any) -> str | None:
    """Return the error message for the first thing that the provider would reject."""
    if not isinstance(params, dict):
        return "params: Input should be an object"
    strange = sorted(set(params) - PARAMS)
    if strange:
        return f"{strange[0]}: Extra inputs are not permitted"
    if not isinstance(params.get("model"), str) or not params["model"]:
        return "model: Field required"
    tokens = params.get("max_tokens")
    if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 1:
        return "max_tokens: Input should be greater than or equal to 1"
    return _wrong_messages(params.get("messages"))


def _wrong_messages(messages: Any) -> str | None:
    if not isinstance(messages, list) or not messages:
        return "messages: at least one message is required"
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or message.get("role") not in ("user", "assistant"):
            return f"messages.{index}.role: Input should be 'user' or 'assistant'"
        content = message.get("content")
        if not isinstance(content, (str, list)) or not content:
            return f"messages.{index}.content: must not be empty"
    return None


def texts(content: Any) -> list[str]:
    """Return the texts of a content, which is a string or a list of blocks."""
    if isinstance(content, str):
        return [content] if content else []
    return [str(block["text"]) for block in content if block.get("type") == "text"]


# -- answers


def write_message(message_id: str, said: Said, tier: str) -> dict[str, Any]:
    """Render a message. Input tokens exclude cache reads; output tokens include thinking."""
    message: dict[str, Any] = {
        "id": message_id,
        "type": "message",
        "role": "assistant",
        "model": said.model,
        "content": _content(said),
        "stop_reason": STOPS[said.finish],
        "stop_sequence": None,
    }
    if not said.hides_usage:
        message["usage"] = {
            "input_tokens": (said.input_tokens or 0) - said.cached_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": said.cached_tokens,
            "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
            "output_tokens": said.output_tokens,
            "service_tier": tier,
        }
        if said.reasoning_tokens:
            details = {"thinking_tokens": said.reasoning_tokens}
            message["usage"]["output_tokens_details"] = details
    return message


def _content(said: Said) -> list[dict[str, Any]]:
    thinking = {"type": "thinking", "thinking": "The answer is near.", "signature": "c2ln"}
    text = [{"type": "text", "text": said.text}] if said.text else []
    match said.finish:
        case Finish.REASONING_ONLY:
            return [thinking]
        case Finish.FILTERED | Finish.REFUSED | Finish.FAILED:
            return []
        case Finish.SEVERAL:
            return [{"type": "text", "text": "Let me think."}, *text]
        case _:
            return [thinking, *text] if said.reasoning_tokens else [*text]


def write_error(error: ItemError) -> dict[str, Any]:
    """Render the error of one item, which has a type but no status."""
    known = error.code if error.code in {*TYPES.values(), "api_error"} else None
    kind = known or TYPES.get(error.status, "api_error")
    return {"type": "error", "error": {"type": kind, "message": error.message}}
