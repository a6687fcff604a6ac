"""Gemini's formats: parse request bodies, render files, operations and answers."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from holdfast_simulator.exchange import Why
from holdfast_simulator.models import File, Shown, Stage
from holdfast_simulator.prompt import Finish, ItemError, Prompt, Said

STATES = {
    Stage.VALIDATING: "BATCH_STATE_PENDING",
    Stage.RUNNING: "BATCH_STATE_RUNNING",
    Stage.FINALIZING: "BATCH_STATE_RUNNING",
    Stage.CANCELING: "BATCH_STATE_RUNNING",
    Stage.COMPLETED: "BATCH_STATE_SUCCEEDED",
    Stage.FAILED: "BATCH_STATE_FAILED",
    Stage.EXPIRED: "BATCH_STATE_EXPIRED",
    Stage.CANCELED: "BATCH_STATE_CANCELLED",
}

# HTTP status and status name of the error envelope.
REFUSALS: dict[Why, tuple[int, str]] = {
    Why.INVALID: (400, "INVALID_ARGUMENT"),
    # Gemini reports an invalid key as a bad argument; only the reason distinguishes it.
    Why.UNAUTHORIZED: (400, "INVALID_ARGUMENT"),
    Why.FORBIDDEN: (403, "PERMISSION_DENIED"),
    Why.NOT_FOUND: (404, "NOT_FOUND"),
    Why.CONFLICT: (409, "ABORTED"),
    Why.ALREADY_EXISTS: (409, "ALREADY_EXISTS"),
    Why.TOO_LARGE: (400, "INVALID_ARGUMENT"),
    Why.TOKEN_LIMIT: (429, "RESOURCE_EXHAUSTED"),
    Why.RATE_LIMITED: (429, "RESOURCE_EXHAUSTED"),
    Why.SLOW_DOWN: (429, "RESOURCE_EXHAUSTED"),
    Why.QUOTA: (429, "RESOURCE_EXHAUSTED"),
    Why.SERVER_ERROR: (500, "INTERNAL"),
    Why.OVERLOADED: (503, "UNAVAILABLE"),
    Why.OVERLOADED_529: (503, "UNAVAILABLE"),
}
# The quota name distinguishes per-minute, per-day and permanent limits.
QUOTAS = {
    Why.TOKEN_LIMIT: "BatchEnqueuedTokensPerModelPerProject",
    Why.RATE_LIMITED: "GenerateRequestsPerMinutePerProjectPerModel",
    Why.SLOW_DOWN: "GenerateRequestsPerMinutePerProjectPerModel",
    Why.QUOTA: "GenerateRequestsPerDayPerProjectPerModel",
}
# HTTP status to the number and name of google.rpc.Code.
CODES = {
    400: (3, "INVALID_ARGUMENT"),
    401: (16, "UNAUTHENTICATED"),
    403: (7, "PERMISSION_DENIED"),
    404: (5, "NOT_FOUND"),
    409: (10, "ABORTED"),
    422: (3, "INVALID_ARGUMENT"),
    429: (8, "RESOURCE_EXHAUSTED"),
    499: (1, "CANCELLED"),
    500: (13, "INTERNAL"),
    501: (12, "UNIMPLEMENTED"),
    503: (14, "UNAVAILABLE"),
    504: (4, "DEADLINE_EXCEEDED"),
}
FINISHES = {
    Finish.STOP: "STOP",
    Finish.LENGTH: "MAX_TOKENS",
    Finish.REFUSED: "SAFETY",
    Finish.FAILED: "MALFORMED_RESPONSE",
    Finish.REASONING_ONLY: "STOP",
    Finish.SEVERAL: "STOP",
}
REQUEST = {
    *("model", "contents", "systemInstruction", "generationConfig", "safetySettings", "tools"),
    *("toolConfig", "cachedContent", "labels", "serviceTier", "store"),
}
CONFIG = {
    *("stopSequences", "responseMimeType", "responseSchema", "responseJsonSchema", "seed"),
    *("responseModalities", "responseFormat", "candidateCount", "maxOutputTokens", "temperature"),
    *("topP", "topK", "presencePenalty", "frequencyPenalty", "responseLogprobs", "logprobs"),
    *("thinkingConfig", "imageConfig", "mediaResolution", "speechConfig"),
    *("enableEnhancedCivicAnswers", "audioTimestamp", "routingConfig", "translationConfig"),
}
TYPE = "type.googleapis.com/google.rpc."


def instant(at: datetime | None) -> str | None:
    """Format an instant as Google does."""
    return None if at is None else at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def without_none(value: Mapping[str, Any]) -> dict[str, Any]:
    """Drop unset fields, as Google does."""
    return {name: part for name, part in value.items() if part is not None}


def write_file(file: File, address: str) -> dict[str, Any]:
    """Render a file resource; *address* is the API's base URL for its version."""
    uri = f"{address}/files/{file.id}"
    is_made = file.batch_id is not None
    if "sha256Hash" not in file.extra:
        digest = bytes.fromhex(file.blob.sha256)
        file.extra["sha256Hash"] = base64.b64encode(digest).decode()
    return without_none(
        {
            "name": f"files/{file.id}",
            "displayName": file.extra.get("displayName"),
            "mimeType": file.extra.get("mimeType", "application/jsonl"),
            "sizeBytes": str(file.size),
            "createTime": instant(file.created_at),
            "updateTime": instant(file.created_at),
            "expirationTime": instant(file.expires_at),
            "sha256Hash": file.extra["sha256Hash"],
            "uri": uri,
            "downloadUri": f"{uri}:download?alt=media" if is_made else None,
            "state": "ACTIVE",
            "source": "GENERATED" if is_made else "UPLOADED",
        }
    )


def write_batch(shown: Shown, output: dict[str, Any] | None) -> dict[str, Any]:
    """Render a batch as a long-running operation; *output* locates its results."""
    batch = shown.batch
    ended = shown.entered(shown.stage) if shown.stage.is_over else None
    name = f"batches/{batch.id}"
    stats = {
        "requestCount": str(batch.extra.get("count", shown.total)),
        "successfulRequestCount": str(shown.succeeded) if shown.succeeded else None,
        "failedRequestCount": str(shown.failed) if shown.failed else None,
        "pendingRequestCount": str(shown.pending) if shown.pending else None,
    }
    metadata = {
        "@type": "type.googleapis.com/google.ai.generativelanguage.v1main.GenerateContentBatch",
        "name": name,
        "model": f"models/{batch.model}",
        "displayName": (shown.metadata or {}).get("displayName"),
        "inputConfig": {"fileName": f"files/{batch.file_id}"} if batch.file_id else None,
        "createTime": instant(batch.created_at),
        "updateTime": instant(max(batch.times.values())),
        "endTime": instant(ended),
        "state": shown.strange_status or STATES[shown.stage],
        "batchStats": without_none(stats),
        "output": output,
        "priority": "0",
    }
    operation: dict[str, Any] = {"name": name, "metadata": without_none(metadata)}
    if shown.stage.is_over:
        operation["done"] = True
        error = _end(shown)
        if error is not None:
            operation["error"] = error
        elif output is not None:
            operation["response"] = {
                "@type": f"{metadata['@type']}Output",
                **output,
            }
    return operation


def _end(shown: Shown) -> dict[str, Any] | None:
    """Return the error of an operation that did not succeed."""
    match shown.stage:
        case Stage.FAILED:
            problem = shown.problems[0] if shown.problems else None
            code = {"token_limit_exceeded": 8, "file_not_found": 5}.get(
                "" if problem is None else problem.code, 3
            )
            message = "The batch failed." if problem is None else problem.message
            return {"code": code, "message": message}
        case Stage.EXPIRED:
            return {"code": 4, "message": "The batch expired."}
        case Stage.CANCELED:
            return {"code": 1, "message": "The batch was cancelled."}
        case _:
            return None


# -- requests


def find_wrong(request: Any) -> str | None:
    """Return the API's message for the first unknown field of a request."""
    if not isinstance(request, dict):
        return "Invalid value at 'request'"
    for place, known, where in (
        (request, REQUEST, "request"),
        (named(request, "generationConfig") or {}, CONFIG, "request.generation_config"),
    ):
        for name in place:
            if _camel(name) not in known:
                message = f"Cannot find field. Unknown name \"{name}\" at '{where}'"
                return f"Invalid JSON payload received. {message}"
    contents = request.get("contents")
    if not isinstance(contents, list) or not any(_texts(turn) for turn in contents):
        return "GenerateContentRequest.contents: contents is not specified"
    return None


def named(value: Mapping[str, Any], name: str) -> Any:
    """Return a field by its JSON name or by its protocol buffer name."""
    own = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
    return value.get(name, value.get(own))


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def read_request(provider: str, model: str, body: Mapping[str, Any]) -> Prompt:
    """Parse a GenerateContentRequest."""
    config = named(body, "generationConfig") or {}
    return Prompt(
        provider,
        model,
        tuple(text for turn in body.get("contents") or [] for text in _texts(turn)),
        "\n".join(_texts(named(body, "systemInstruction") or {})),
        named(config, "responseSchema") or named(config, "responseJsonSchema"),
        named(config, "maxOutputTokens"),
        body,
    )


def without_json_schema(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Drop responseJsonSchema, which batches silently ignore."""
    config = named(request, "generationConfig")
    if not config or named(config, "responseJsonSchema") is None:
        return request
    kept = {name: value for name, value in config.items() if _camel(name) != "responseJsonSchema"}
    return {**request, "generationConfig": kept}


def _texts(turn: Any) -> list[str]:
    parts = turn.get("parts") if isinstance(turn, dict) else None
    # A single part need not be in a list.
    listed = [parts] if isinstance(parts, dict) else parts or []
    return [str(part["text"]) for part in listed if isinstance(part, dict) and part.get("text")]


# -- answers


def write_response(name: str, said: Said) -> dict[str, Any]:
    """Render a GenerateContentResponse; *name* is its id."""
    written: dict[str, Any] = {}
    output = 0
    if said.finish is Finish.FILTERED:
        written["promptFeedback"] = {"blockReason": "PROHIBITED_CONTENT"}
    else:
        candidate: dict[str, Any] = {"finishReason": FINISHES[said.finish], "index": 0}
        parts = _parts(said)
        if parts:
            candidate["content"] = {"parts": parts, "role": "model"}
        written["candidates"] = [candidate]
        output = (said.output_tokens or 0) - said.reasoning_tokens
    if not said.hides_usage:
        asked = said.input_tokens or 0
        written["usageMetadata"] = without_none(
            {
                "promptTokenCount": asked,
                "candidatesTokenCount": output or None,
                "cachedContentTokenCount": said.cached_tokens or None,
                "thoughtsTokenCount": said.reasoning_tokens or None,
                "totalTokenCount": asked + output + said.reasoning_tokens,
                "promptTokensDetails": [{"modality": "TEXT", "tokenCount": asked}],
            }
        )
    return {**written, "modelVersion": said.model, "responseId": name}


def _parts(said: Said) -> list[dict[str, Any]]:
    thought = {"text": "The answer is near.", "thought": True}
    text = [{"text": said.text}] if said.text else []
    match said.finish:
        case Finish.REASONING_ONLY:
            return [thought]
        case Finish.REFUSED | Finish.FAILED:
            return []
        case Finish.SEVERAL:
            return [{"text": "Let me see."}, *text]
        case _:
            return [*text]


def write_status(error: ItemError) -> dict[str, Any]:
    """Render the google.rpc.Status of one item."""
    code, _ = CODES.get(error.status, (13, "INTERNAL"))
    return {"code": code, "message": error.message}


def write_error(
    status: int, word: str, message: str, details: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    """Render the error envelope of a refusal."""
    error: dict[str, Any] = {"code": status, "message": message, "status": word}
    if details:
        error["details"] = details
    return {"error": error}


def write_details(why: Why, retry_after: float | None) -> list[dict[str, Any]]:
    """Render the details of a refusal: reason, quota and retry delay."""
    details: list[dict[str, Any]] = []
    if why is Why.UNAUTHORIZED:
        service = {"service": "generativelanguage.googleapis.com"}
        reason = {"reason": "API_KEY_INVALID", "domain": "googleapis.com", "metadata": service}
        details.append({"@type": f"{TYPE}ErrorInfo", **reason})
    if why in QUOTAS:
        metric = "generativelanguage.googleapis.com/generate_content_requests"
        violation = {"quotaMetric": metric, "quotaId": QUOTAS[why]}
        if why is Why.QUOTA:
            violation["quotaValue"] = "0"
        details.append({"@type": f"{TYPE}QuotaFailure", "violations": [violation]})
    if retry_after is not None:
        details.append({"@type": f"{TYPE}RetryInfo", "retryDelay": f"{retry_after:g}s"})
    return details
