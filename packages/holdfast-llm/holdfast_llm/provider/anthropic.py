"""Anthropic: message batches, whose input is sent with the create.

There is no file to fence and no field for our tag, so a batch is looked up by its creation time and
its number of items.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from holdfast_llm.provider import usage
from holdfast_llm.provider.adapter import (
    BatchPhase,
    BatchTag,
    Capabilities,
    Content,
    Limits,
    Lookup,
    ProviderBatch,
    ProviderClient,
)
from holdfast_llm.provider.classify import (
    Judged,
    answer_with,
    failure_of,
    get_code,
    get_int,
    get_list,
    get_object,
    kind_of,
    known_id,
    known_model,
)
from holdfast_llm.provider.http_client import (
    answer_of,
    delete,
    needed,
    request_cancel,
    request_id,
    segment,
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
    ProviderUnsure,
)
from holdfast_llm.provider.request import Request
from holdfast_llm.provider.route import Route

CALL = "v1/messages"
BATCHES = "v1/messages/batches"

_PHASES = {
    "in_progress": BatchPhase.RUNNING,
    "canceling": BatchPhase.RUNNING,
    "ended": BatchPhase.COMPLETED,
}
_COUNTS = ("processing", "succeeded", "errored", "canceled", "expired")
# Missing credit looks like an invalid request of each item; only the message differs.
_CREDIT = "credit balance is too low"
LIMITS = Limits(max_items=100_000, max_bytes=256_000_000)
CAPABILITIES = Capabilities(lookup=Lookup.COUNT, has_input_file=False, can_delete_batch=True)


@dataclass(frozen=True, slots=True)
class Anthropic(VersionedProviderKind):
    """Batches of messages."""

    kind: str = "anthropic_messages"
    base_url: str = "https://api.anthropic.com"
    limits: Limits = LIMITS
    capabilities: Capabilities = CAPABILITIES
    api_version: str = "2023-06-01"

    # -- one item

    def body(self, route: Route, request: Request) -> dict[str, Any]:
        content = [{"type": "text", "text": text} for text in request.inputs]
        body: dict[str, Any] = {
            **checked(request.parameters),
            "model": route.model,
            "max_tokens": request.max_output_tokens,
            "messages": [{"role": "user", "content": content}],
        }
        if request.instructions:
            body["system"] = request.instructions
        if request.schema is not None:
            form = {"type": "json_schema", "schema": dict(request.schema)}
            body["output_config"] = {"format": form}
        return body

    def line(self, route: Route, custom_id: str, body: Mapping[str, Any]) -> bytes:
        return write_line({"custom_id": custom_id, "params": dict(body)})

    def parse(self, line: bytes) -> ItemAnswer:
        found = read_line(line)
        return file_answer(found.get("custom_id"), _answer(get_object(found, "result")))

    def call(self, client: ProviderClient, route: Route, body: Mapping[str, Any]) -> Answer:
        def send() -> Answer:
            answer = client.request("POST", CALL, json=dict(body))
            if not isinstance(answer.json, dict):
                raise ProviderUnsure("not_understood")
            return read_message(answer.json, request_id(answer.headers))

        return answer_of(send)

    def headers(self, credential: str) -> dict[str, str]:
        found = {"anthropic-version": self.api_version}
        return {**found, "x-api-key": credential} if credential else found

    # -- a batch

    def upload(self, client: ProviderClient, tag: BatchTag, content: Content) -> str | None:
        return None

    def create(
        self,
        client: ProviderClient,
        route: Route,
        tag: BatchTag,
        file_id: str | None,
        content: Content,
    ) -> ProviderBatch:
        # Every newline except the last becomes a comma, and the last one is removed.
        size = len(_HEAD) + content.size - 1 + len(_TAIL)
        headers = {"content-type": "application/json", "content-length": str(size)}
        answer = client.request("POST", BATCHES, headers=headers, content=_array(content))
        return provider_batch_of(answer.json)

    def get(self, client: ProviderClient, provider_batch_id: str) -> ProviderBatch:
        answer = client.request("GET", f"{BATCHES}/{segment(provider_batch_id)}")
        return replace(provider_batch_of(answer.json), poll_after=answer.retry_after)

    def scan(self, client: ProviderClient, since: datetime) -> Iterator[ProviderBatch]:
        return read_listing(self._pages(client), since)

    def _pages(self, client: ProviderClient) -> Iterator[list[ProviderBatch]]:
        query = {"limit": str(PAGE)}
        while True:
            found = get_object(client.request("GET", BATCHES, query=query).json).get("data")
            if not isinstance(found, list):
                raise ProviderUnsure("not_understood")
            page = [provider_batch_of(item) for item in get_list(found) if known_id(item.get("id"))]
            yield page
            if not page:
                return
            query["after_id"] = page[-1].provider_batch_id

    def cancel(self, client: ProviderClient, provider_batch_id: str) -> None:
        request_cancel(client, f"{BATCHES}/{segment(provider_batch_id)}/cancel")

    def read(self, client: ProviderClient, file: str) -> AbstractContextManager[Iterator[bytes]]:
        return client.stream("GET", f"{BATCHES}/{segment(file)}/results")

    def find_file(self, client: ProviderClient, tag: BatchTag) -> str | None:
        return None

    def delete_file(self, client: ProviderClient, file_id: str) -> None:
        """Do nothing: there are no files. The results are deleted with the batch."""

    def delete_batch(self, client: ProviderClient, provider_batch_id: str) -> None:
        delete(client, f"{BATCHES}/{segment(provider_batch_id)}")

    # -- responses

    def refusal(self, status: int, document: Any) -> Failure | None:
        if get_object(document).get("type") != "error" or not get_object(document, "error"):
            return None
        return _failure(document, status)


_HEAD, _TAIL = b'{"requests":[', b"]}"


def _array(content: Content) -> Iterator[bytes]:
    """The lines of a batch as one JSON array, streamed. No line contains a newline."""
    yield _HEAD
    held = b""
    for chunk in content.chunks():
        if chunk:
            whole_chunk = held + chunk
            held = b"\n" if whole_chunk.endswith(b"\n") else b""
            yield whole_chunk.removesuffix(b"\n").replace(b"\n", b",")
    yield _TAIL


def _answer(result: Mapping[str, Any]) -> Answer:
    match str(result.get("type")).lower():
        case "succeeded":
            return read_message(get_object(result, "message"), None)
        case "errored":
            return _failure(get_object(result, "error"), None)
        case "expired":
            return Failure(FailureKind.NOT_RUN, "expired")
        case "canceled":
            return Failure(FailureKind.NOT_RUN, "canceled")
        case _:
            return Failure(FailureKind.OUTPUT_INVALID, "not_understood")


def _failure(document: Mapping[str, Any], status: int | None) -> Failure:
    """The failure of an error of a call or of an item. Its details have the most specific code."""
    said = get_object(document, "error")
    fine = get_code(get_object(said, "details").get("error_code"))
    rough = get_code(said.get("type")) or "unknown_error"
    message = said.get("message")
    if isinstance(message, str) and _CREDIT in message.lower():
        fine = "credit_balance_too_low"
    named = known_id(document.get("request_id"))
    if status is not None:
        return replace(failure_of(fine, status, otherwise=rough), provider_request_id=named)
    code = fine or rough
    kind = kind_of(code)
    if fine and kind is FailureKind.TRANSIENT:
        # An unknown detail code falls back to the general code.
        kind = kind_of(rough)
    return Failure(kind, code, provider_request_id=named)


def read_message(body: Mapping[str, Any], provider_request_id: str | None) -> Answer:
    """Parse a message of a call or of an item."""
    return answer_with(
        _judge(body),
        model=known_model(body.get("model")),
        usage=usage.of_messages(body),
        provider_request_id=provider_request_id or known_id(body.get("id")),
    )


def _judge(body: Mapping[str, Any]) -> Judged:
    match body.get("stop_reason"):
        case "end_turn" | "stop_sequence":
            pass
        case "max_tokens" | "model_context_window_exceeded" as reason:
            return FailureKind.TRUNCATED, str(reason), ""
        case "refusal":
            return FailureKind.POLICY, "refusal", ""
        case _:
            return FailureKind.OUTPUT_INVALID, "not_finished", ""
    text = "".join(
        piece["text"]
        for piece in get_list(body.get("content"))
        if piece.get("type") == "text" and isinstance(piece.get("text"), str)
    )
    return (None, "", text) if text else (FailureKind.OUTPUT_INVALID, "empty_output", "")


def provider_batch_of(document: Any) -> ProviderBatch:
    """Parse a batch. Raises ProviderUnsure if it is invalid."""
    found = get_object(document)
    status = found.get("processing_status")
    phase = _PHASES.get(status.lower()) if isinstance(status, str) else None
    batch_id = needed(known_id(found.get("id")))
    counts = {name: get_int(get_object(found, "request_counts").get(name)) or 0 for name in _COUNTS}
    # The URL is not followed, only checked for presence: results are read from our own account.
    has_results = bool(found.get("results_url")) and phase is BatchPhase.COMPLETED
    return ProviderBatch(
        provider_batch_id=batch_id,
        phase=phase or BatchPhase.RUNNING,
        status=get_code(status) or "unknown",
        is_known_status=phase is not None,
        created_at=iso_instant(found.get("created_at")),
        expires_at=iso_instant(found.get("expires_at")),
        result_files=(batch_id,) if has_results else (),
        total=sum(counts.values()) or None,
        succeeded=counts["succeeded"] if phase is BatchPhase.COMPLETED else None,
        failed=counts["errored"] if phase is BatchPhase.COMPLETED else None,
        not_run=counts["canceled"] + counts["expired"] if phase is BatchPhase.COMPLETED else None,
    )
