"""Mistral: files and batch jobs, and Chat."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import count
from typing import Any

from holdfast_llm.provider import chat, openai
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
    failure_of,
    get_code,
    get_int,
    get_list,
    get_object,
    known_id,
    of_batch,
)
from holdfast_llm.provider.http_client import (
    answer_of,
    delete,
    needed,
    request_cancel,
    request_id,
    segment,
    without_input,
)
from holdfast_llm.provider.instant import unix_instant
from holdfast_llm.provider.kind import ProviderKind
from holdfast_llm.provider.lines import write_line
from holdfast_llm.provider.listing import MAX_PAGES, PAGE, read_listing
from holdfast_llm.provider.multipart import form
from holdfast_llm.provider.openai import our_names
from holdfast_llm.provider.reply import Answer, Failure, ItemAnswer, ProviderRefused, ProviderUnsure
from holdfast_llm.provider.request import Request
from holdfast_llm.provider.route import Route

CALL = "v1/chat/completions"
FILES = "v1/files"
JOBS = "v1/batch/jobs"
WINDOW_HOURS = 24

_PHASES = {
    "QUEUED": BatchPhase.RUNNING,
    "RUNNING": BatchPhase.RUNNING,
    "CANCELLATION_REQUESTED": BatchPhase.RUNNING,
    "SUCCESS": BatchPhase.COMPLETED,
    "FAILED": BatchPhase.FAILED,
    "TIMEOUT_EXCEEDED": BatchPhase.EXPIRED,
    "CANCELLED": BatchPhase.CANCELED,
}
LIMITS = Limits(max_items=1_000_000, max_bytes=512_000_000)
CAPABILITIES = Capabilities(can_delete_batch=True)


@dataclass(frozen=True, slots=True)
class Mistral(ProviderKind):
    """Batches of chat completions. Result lines have OpenAI's format."""

    kind: str = "mistral_chat"
    base_url: str = "https://api.mistral.ai"
    limits: Limits = LIMITS
    capabilities: Capabilities = CAPABILITIES

    # -- one item

    def body(self, route: Route, request: Request) -> dict[str, Any]:
        return chat.build(route.model, request, limit="max_tokens")

    def line(self, route: Route, custom_id: str, body: Mapping[str, Any]) -> bytes:
        # The model is set for the whole job.
        kept = {name: value for name, value in body.items() if name != "model"}
        return write_line({"custom_id": custom_id, "body": kept})

    def parse(self, line: bytes) -> ItemAnswer:
        return openai.parse(line, chat.read)

    def call(self, client: ProviderClient, route: Route, body: Mapping[str, Any]) -> Answer:
        def send() -> Answer:
            answer = client.request("POST", CALL, json=dict(body))
            if not isinstance(answer.json, dict):
                raise ProviderUnsure("not_understood")
            return chat.read(answer.json, request_id(answer.headers))

        return answer_of(send)

    def headers(self, credential: str) -> dict[str, str]:
        return {"authorization": f"Bearer {credential}"} if credential else {}

    # -- a batch

    def upload(self, client: ProviderClient, tag: BatchTag, content: Content) -> str | None:
        sent = form({"purpose": "batch"}, _filename(tag), content)
        answer = client.request("POST", FILES, headers=sent.headers, content=sent.chunks)
        file = get_object(answer.json)
        if file.get("bytes", file.get("size_bytes")) not in (None, content.size):
            raise ProviderUnsure("size_differs")
        return needed(known_id(file.get("id")))

    def create(
        self,
        client: ProviderClient,
        route: Route,
        tag: BatchTag,
        file_id: str | None,
        content: Content,
    ) -> ProviderBatch:
        made = {
            "input_files": [file_id],
            "endpoint": f"/{CALL}",
            "model": route.model,
            "metadata": tag.metadata,
            "timeout_hours": WINDOW_HOURS,
        }
        try:
            return provider_batch_of(client.request("POST", JOBS, json=made).json)
        except ProviderRefused as refused:
            raise without_input(refused) from refused

    def get(self, client: ProviderClient, provider_batch_id: str) -> ProviderBatch:
        answer = client.request("GET", f"{JOBS}/{segment(provider_batch_id)}")
        return replace(provider_batch_of(answer.json), poll_after=answer.retry_after)

    def scan(self, client: ProviderClient, since: datetime) -> Iterator[ProviderBatch]:
        """List batches. The filters of the listing are not relied on."""
        return read_listing(self._pages(client), since, partial(self.get, client), may_repeat=True)

    def _pages(self, client: ProviderClient) -> Iterator[list[ProviderBatch]]:
        for page in count():
            query = {"page": str(page), "page_size": str(PAGE), "order_by": "-created"}
            found = get_object(client.request("GET", JOBS, query=query).json)
            if not isinstance(found.get("data") or [], list):
                raise ProviderUnsure("not_understood")
            shown = [
                provider_batch_of(item)
                for item in get_list(found.get("data"))
                if known_id(item.get("id"))
            ]
            if not shown:
                return
            yield shown

    def cancel(self, client: ProviderClient, provider_batch_id: str) -> None:
        request_cancel(client, f"{JOBS}/{segment(provider_batch_id)}/cancel")

    def read(self, client: ProviderClient, file: str) -> AbstractContextManager[Iterator[bytes]]:
        return client.stream("GET", f"{FILES}/{segment(file)}/content")

    def find_file(self, client: ProviderClient, tag: BatchTag) -> str | None:
        met: set[str] = set()
        for page in range(MAX_PAGES):
            query = {"page": str(page), "page_size": str(PAGE), "purpose": "batch"}
            found = get_list(get_object(client.request("GET", FILES, query=query).json).get("data"))
            for item in found:
                if item.get("filename") == _filename(tag):
                    return known_id(item.get("id"))
            fresh = {str(item.get("id")) for item in found} - met
            if not fresh:
                return None
            met |= fresh
        return None

    def delete_file(self, client: ProviderClient, file_id: str) -> None:
        delete(client, f"{FILES}/{segment(file_id)}")

    def delete_batch(self, client: ProviderClient, provider_batch_id: str) -> None:
        delete(client, f"{JOBS}/{segment(provider_batch_id)}")

    # -- responses

    def refusal(self, status: int, document: Any) -> Failure | None:
        """The failure in its own envelope, or in that of its gateway, which is a bare message."""
        found = openai.refusal(status, document)
        if found is None and "message" in get_object(document):
            said = get_object(document)
            found = failure_of(said.get("code"), status, otherwise=said.get("type"))
        if found is None and status == 401 and "detail" in get_object(document):
            # An invalid key has a different envelope.
            found = failure_of("unauthorized", status)
        return found


def provider_batch_of(document: Any) -> ProviderBatch:
    """Parse a batch job. Raises ProviderUnsure if it is invalid."""
    found = get_object(document)
    status = found.get("status")
    phase = _PHASES.get(status.upper()) if isinstance(status, str) else None
    is_over = phase is not None and phase.is_over
    total = get_int(found.get("total_requests"))
    files = (known_id(found.get(name)) for name in ("output_file", "error_file"))
    inputs = found.get("input_files")
    return ProviderBatch(
        provider_batch_id=needed(known_id(found.get("id"))),
        phase=phase or BatchPhase.RUNNING,
        status=get_code(status) or "unknown",
        is_known_status=phase is not None,
        **our_names(get_object(found, "metadata")),
        created_at=unix_instant(found.get("created_at")),
        input_file_id=known_id(inputs[0]) if isinstance(inputs, list) and inputs else None,
        result_files=tuple(file for file in files if file) if is_over else (),
        total=total if total or is_over else None,
        succeeded=get_int(found.get("succeeded_requests")),
        failed=get_int(found.get("failed_requests")),
        # Its errors are sentences, which are not stored.
        failure=of_batch(None) if phase is BatchPhase.FAILED else None,
    )


def _filename(tag: BatchTag) -> str:
    return f"{tag.file}.jsonl"
