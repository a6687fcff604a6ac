"""Google's Gemini API: resumable uploads with our file names, and batches as operations.

Answers have been returned under the names of other items, so an echo is required. An expired batch
loses even its finished items.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from holdfast_llm.provider import usage
from holdfast_llm.provider.adapter import (
    BatchPhase,
    BatchTag,
    Capabilities,
    Content,
    Limits,
    ProviderBatch,
    ProviderClient,
)
from holdfast_llm.provider.classify import (
    Judged,
    answer_with,
    get_code,
    get_int,
    get_list,
    get_object,
    known_id,
    known_model,
    of_batch,
)
from holdfast_llm.provider.gemini_error import of_status, refusal
from holdfast_llm.provider.http_client import (
    answer_of,
    delete,
    is_gone,
    needed,
    request_cancel,
    request_id,
    segment,
    without_input,
)
from holdfast_llm.provider.instant import iso_instant
from holdfast_llm.provider.kind import VersionedProviderKind
from holdfast_llm.provider.lines import file_answer, read_line, write_line
from holdfast_llm.provider.listing import PAGE, read_listing
from holdfast_llm.provider.parameters import checked
from holdfast_llm.provider.reply import (
    Answer,
    Failure,
    FailureKind,
    ItemAnswer,
    ProviderRefused,
    ProviderUnsure,
)
from holdfast_llm.provider.request import Request
from holdfast_llm.provider.route import Route
from holdfast_llm.provider.schema import openapi

_PHASES = {
    # Zero values are omitted.
    "": BatchPhase.RUNNING,
    "UNSPECIFIED": BatchPhase.RUNNING,
    "PENDING": BatchPhase.RUNNING,
    "QUEUED": BatchPhase.RUNNING,
    "RUNNING": BatchPhase.RUNNING,
    "CANCELLING": BatchPhase.RUNNING,
    "PAUSED": BatchPhase.RUNNING,
    "UPDATING": BatchPhase.RUNNING,
    "SUCCEEDED": BatchPhase.COMPLETED,
    "PARTIALLY_SUCCEEDED": BatchPhase.COMPLETED,
    "FAILED": BatchPhase.FAILED,
    "CANCELLED": BatchPhase.CANCELED,
    "EXPIRED": BatchPhase.EXPIRED,
}
# Request fields outside generationConfig that an application may set.
_TOP_LEVEL = frozenset({"cachedContent", "labels", "safetySettings", "toolConfig", "tools"})
# Fields of generationConfig. A name in neither list fails the whole batch at the provider.
_CONFIG = frozenset(
    {
        "audioTimestamp",
        "enableAffectiveDialog",
        "enableEnhancedCivicAnswers",
        "frequencyPenalty",
        "imageConfig",
        "logprobs",
        "mediaResolution",
        "presencePenalty",
        "responseLogprobs",
        "responseModalities",
        "routingConfig",
        "seed",
        "speechConfig",
        "stopSequences",
        "temperature",
        "thinkingConfig",
        "topK",
        "topP",
    }
)
_TRUNCATED = frozenset({"MAX_TOKENS", "CONTINUATION"})
_NOT_AN_ANSWER = frozenset(
    {
        "FINISH_REASON_UNSPECIFIED",
        "MALFORMED_FUNCTION_CALL",
        "MALFORMED_RESPONSE",
        "MISSING_THOUGHT_SIGNATURE",
        "OTHER",
        "TOO_MANY_TOOL_CALLS",
        "UNEXPECTED_TOOL_CALL",
    }
)
_DISPLAY = re.compile(r"hf-([a-z0-9]{1,40})-([0-9]{1,6})-(.{0,100})")
_NAME = re.compile(r"(files|batches)/[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
# A batch that is not done after 48 hours is lost completely, so batches are kept small.
LIMITS = Limits(max_items=20_000, max_bytes=2_000_000_000)
CAPABILITIES = Capabilities(can_delete_batch=True, wants_echo=True)


@dataclass(frozen=True, slots=True)
class Gemini(VersionedProviderKind):
    """Batches of generated content."""

    kind: str = "gemini_generate"
    base_url: str = "https://generativelanguage.googleapis.com"
    limits: Limits = LIMITS
    capabilities: Capabilities = CAPABILITIES
    api_version: str = "v1beta"

    # -- one item

    def body(self, route: Route, request: Request) -> dict[str, Any]:
        parameters = checked(request.parameters, known=_CONFIG | _TOP_LEVEL, may_set=_TOP_LEVEL)
        top_level = {name: parameters.pop(name) for name in _TOP_LEVEL & set(parameters)}
        config: dict[str, Any] = {**parameters, "maxOutputTokens": request.max_output_tokens}
        if request.schema is not None:
            # Not responseJsonSchema: in batches it returned answers that matched no schema.
            config["responseMimeType"] = "application/json"
            config["responseSchema"] = openapi(request.schema)
        body: dict[str, Any] = {
            **top_level,
            "contents": [{"role": "user", "parts": [{"text": text} for text in request.inputs]}],
            "generationConfig": config,
        }
        if request.instructions:
            body["systemInstruction"] = {"parts": [{"text": request.instructions}]}
        return body

    def line(self, route: Route, custom_id: str, body: Mapping[str, Any]) -> bytes:
        return write_line({"key": custom_id, "request": dict(body)})

    def parse(self, line: bytes) -> ItemAnswer:
        found = read_line(line)
        if error := get_object(found, "error"):
            answer: Answer = of_status(error)
        elif response := get_object(found, "response"):
            answer = read_response(response, None)
        else:
            answer = Failure(FailureKind.OUTPUT_INVALID, "not_understood")
        return file_answer(found.get("key"), answer)

    def call(self, client: ProviderClient, route: Route, body: Mapping[str, Any]) -> Answer:
        def send() -> Answer:
            answer = client.request("POST", self._model(route, "generateContent"), json=dict(body))
            if not isinstance(answer.json, dict):
                raise ProviderUnsure("not_understood")
            return read_response(answer.json, request_id(answer.headers))

        return answer_of(send)

    def headers(self, credential: str) -> dict[str, str]:
        return {"x-goog-api-key": credential} if credential else {}

    def _model(self, route: Route, verb: str) -> str:
        model = route.model.removeprefix("models/")
        return f"{self.api_version}/models/{segment(model)}:{verb}"

    # -- a batch

    def upload(self, client: ProviderClient, tag: BatchTag, content: Content) -> str | None:
        about = {
            "name": f"files/{tag.file}",
            "display_name": tag.file,
            "mime_type": "application/jsonl",
            "size_bytes": content.size,
        }
        headers = {
            "x-goog-upload-protocol": "resumable",
            "x-goog-upload-command": "start",
            "x-goog-upload-header-content-length": str(content.size),
            "x-goog-upload-header-content-type": "application/jsonl",
        }
        path = f"upload/{self.api_version}/files"
        try:
            begun = client.request("POST", path, json={"file": about}, headers=headers)
        except ProviderUnsure as unsure:
            if unsure.failure is None or unsure.failure.code != "already_exists":
                raise
            return self._uploaded_before(client, tag, content)
        # Only its path and query are used; the credential goes to the account's own origin.
        place = urlsplit(begun.headers.get("x-goog-upload-url", ""))
        if not place.path.startswith("/"):
            raise ProviderUnsure("not_understood")
        sent = client.request(
            "POST",
            f"{place.path}?{place.query}" if place.query else place.path,
            headers={
                "x-goog-upload-command": "upload, finalize",
                "x-goog-upload-offset": "0",
                "content-length": str(content.size),
            },
            content=content.chunks(),
        )
        file = get_object(sent.json, "file")
        if get_int(file.get("sizeBytes")) not in (None, content.size):
            raise ProviderUnsure("size_differs")
        return needed(_name(file.get("name")))

    def _uploaded_before(self, client: ProviderClient, tag: BatchTag, content: Content) -> str:
        """The file of that name. It is ours, and complete if its size matches."""
        file = get_object(client.request("GET", f"{self.api_version}/files/{tag.file}").json)
        found = needed(_name(file.get("name")))
        if get_int(file.get("sizeBytes")) != content.size:
            self.delete_file(client, found)
            raise ProviderUnsure("size_differs")
        return found

    def create(
        self,
        client: ProviderClient,
        route: Route,
        tag: BatchTag,
        file_id: str | None,
        content: Content,
    ) -> ProviderBatch:
        display = f"{tag.file}-{tag.environment}"
        made = {"batch": {"displayName": display, "inputConfig": {"fileName": file_id}}}
        try:
            path = self._model(route, "batchGenerateContent")
            return provider_batch_of(client.request("POST", path, json=made).json)
        except ProviderRefused as refused:
            raise without_input(refused) from refused

    def get(self, client: ProviderClient, provider_batch_id: str) -> ProviderBatch:
        answer = client.request("GET", self._thing(provider_batch_id))
        return replace(provider_batch_of(answer.json), poll_after=answer.retry_after)

    def scan(self, client: ProviderClient, since: datetime) -> Iterator[ProviderBatch]:
        return read_listing(self._pages(client), since, partial(self.get, client), may_repeat=True)

    def _pages(self, client: ProviderClient) -> Iterator[list[ProviderBatch]]:
        query = {"pageSize": str(PAGE)}
        while True:
            page = get_object(
                client.request("GET", f"{self.api_version}/batches", query=query).json
            )
            yield [
                provider_batch_of(item)
                for item in get_list(page.get("operations", page.get("batches")))
                if _name(item.get("name"))
            ]
            token = page.get("nextPageToken")
            if not token:
                return
            query["pageToken"] = str(token)

    def cancel(self, client: ProviderClient, provider_batch_id: str) -> None:
        request_cancel(client, f"{self._thing(provider_batch_id)}:cancel")

    def read(self, client: ProviderClient, file: str) -> AbstractContextManager[Iterator[bytes]]:
        return client.stream("GET", f"{self._thing(file)}:download", query={"alt": "media"})

    def find_file(self, client: ProviderClient, tag: BatchTag) -> str | None:
        try:
            found = client.request("GET", f"{self.api_version}/files/{tag.file}")
        except ProviderRefused as refused:
            if is_gone(refused):
                return None
            raise
        return _name(get_object(found.json).get("name"))

    def delete_file(self, client: ProviderClient, file_id: str) -> None:
        delete(client, self._thing(file_id))

    def delete_batch(self, client: ProviderClient, provider_batch_id: str) -> None:
        delete(client, self._thing(provider_batch_id))

    def _thing(self, name: str) -> str:
        return f"{self.api_version}/{needed(_name(name))}"

    # -- responses

    def refusal(self, status: int, document: Any) -> Failure | None:
        return refusal(status, document)


def read_response(body: Mapping[str, Any], provider_request_id: str | None) -> Answer:
    """Parse a response of a call or of an item."""
    return answer_with(
        _judge(body),
        model=known_model(body.get("modelVersion")),
        usage=usage.of_generate(body),
        provider_request_id=provider_request_id or known_id(body.get("responseId")),
        finished_at=iso_instant(body.get("createTime")),
    )


def _judge(body: Mapping[str, Any]) -> Judged:
    if blocked := get_object(body, "promptFeedback").get("blockReason"):
        return FailureKind.POLICY, get_code(blocked) or "blocked", ""
    candidates = get_list(body.get("candidates"))
    if len(candidates) != 1:
        code = "not_understood" if candidates else "empty_output"
        return FailureKind.OUTPUT_INVALID, code, ""
    reason = candidates[0].get("finishReason")
    if reason in _TRUNCATED:
        return FailureKind.TRUNCATED, get_code(reason) or "truncated", ""
    if reason is None or reason in _NOT_AN_ANSWER:
        return FailureKind.OUTPUT_INVALID, get_code(reason) or "not_finished", ""
    if reason != "STOP":
        # SAFETY, RECITATION, LANGUAGE, BLOCKLIST, PROHIBITED_CONTENT, SPII, and future values.
        return FailureKind.POLICY, get_code(reason) or "blocked", ""
    text = "".join(
        piece["text"]
        for piece in get_list(get_object(candidates[0], "content").get("parts"))
        if isinstance(piece.get("text"), str) and not piece.get("thought")
    )
    return (None, "", text) if text else (FailureKind.OUTPUT_INVALID, "empty_output", "")


def provider_batch_of(document: Any) -> ProviderBatch:
    """Parse a batch, as an operation or bare. Raises ProviderUnsure if it is invalid."""
    operation = get_object(document)
    found = get_object(operation, "metadata") or operation
    state = found.get("state")
    short = re.sub(r"^(BATCH|JOB)_STATE_", "", state.upper()) if isinstance(state, str) else ""
    phase = _PHASES.get(short)
    error = get_object(operation, "error")
    if not short and operation.get("done") is True:
        phase = BatchPhase.FAILED if error else BatchPhase.COMPLETED
    is_over = phase is not None and phase.is_over
    outputs = (
        _name(get_object(operation, "response").get("responsesFile")),
        _name(get_object(found, "output").get("responsesFile")),
    )
    stats = get_object(found, "batchStats")
    display = _DISPLAY.fullmatch(str(found.get("displayName") or ""))
    total = get_int(stats.get("requestCount"))
    return ProviderBatch(
        provider_batch_id=needed(_name(operation.get("name")) or _name(found.get("name"))),
        phase=phase or BatchPhase.RUNNING,
        status=get_code(short) or "unknown",
        is_known_status=phase is not None,
        key=display[1] if display else None,
        attempt=int(display[2]) if display else None,
        environment=display[3] if display else None,
        created_at=iso_instant(found.get("createTime")),
        input_file_id=_name(get_object(found, "inputConfig").get("fileName")),
        result_files=tuple(filter(None, outputs))[:1] if is_over else (),
        total=total if total or is_over else None,
        # Protobuf JSON omits a count of zero.
        succeeded=get_int(stats.get("successfulRequestCount", 0 if stats else None)),
        failed=get_int(stats.get("failedRequestCount", 0 if stats else None)),
        failure=_batch_failure(error) if phase is BatchPhase.FAILED else None,
    )


def _batch_failure(error: Mapping[str, Any]) -> Failure:
    """The failure of a batch as a whole; it never concerns a single item."""
    found = of_batch(of_status(error).code if error else None)
    if found.code == "resource_exhausted":
        return replace(found, kind=FailureKind.CAPACITY)
    return found


def _name(value: object) -> str | None:
    """A resource name, used in paths as is."""
    return value if isinstance(value, str) and _NAME.fullmatch(value) else None
