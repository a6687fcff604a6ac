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
from holdfast_llm.provider.adapter import Capabilities, Content, Limits, Name, Phase, Seen, Wire
from holdfast_llm.provider.classify import failure_of, known_id, of_batch, part, parts, whole, word
from holdfast_llm.provider.instant import unix_instant
from holdfast_llm.provider.lines import write_line
from holdfast_llm.provider.listing import MAX_PAGES, PAGE, read_listing
from holdfast_llm.provider.multipart import form
from holdfast_llm.provider.openai import our_names
from holdfast_llm.provider.reply import Answer, Failure, ItemAnswer, ProviderRefused, ProviderUnsure
from holdfast_llm.provider.request import Request
from holdfast_llm.provider.route import Route
from holdfast_llm.provider.wire import (
    answer_of,
    ask_to_cancel,
    delete,
    needed,
    request_id,
    segment,
    without_input,
)

CALL = "v1/chat/completions"
FILES = "v1/files"
JOBS = "v1/batch/jobs"
WINDOW_HOURS = 24

_PHASES = {
    "QUEUED": Phase.RUNNING,
    "RUNNING": Phase.RUNNING,
    "CANCELLATION_REQUESTED": Phase.RUNNING,
    "SUCCESS": Phase.COMPLETED,
    "FAILED": Phase.FAILED,
    "TIMEOUT_EXCEEDED": Phase.EXPIRED,
    "CANCELLED": Phase.CANCELED,
}
LIMITS = Limits(max_items=1_000_000, max_bytes=512_000_000)
CAPABILITIES = Capabilities(can_delete_batch=True)


@dataclass(frozen=True, slots=True)
class Mistral:
    """Batches of chat completions. Lines are answered as OpenAI answers them."""

    kind: str = "mistral_chat"
    base_url: str = "https://api.mistral.ai"
    limits: Limits = LIMITS
    capabilities: Capabilities = CAPABILITIES

    # -- one item

    def body(self, route: Route, request: Request) -> dict[str, Any]:
        return chat.build(route.model, request, limit="max_tokens")

    def line(self, route: Route, custom_id: str, body: Mapping[str, Any]) -> bytes:
        # The model is the whole job's.
        kept = {name: value for name, value in body.items() if name != "model"}
        return write_line({"custom_id": custom_id, "body": kept})

    def parse(self, line: bytes) -> ItemAnswer:
        return openai.parse(line, chat.read)

    def call(self, wire: Wire, route: Route, body: Mapping[str, Any]) -> Answer:
        def ask() -> Answer:
            answer = wire.ask("POST", CALL, json=dict(body))
            if not isinstance(answer.json, dict):
                raise ProviderUnsure("not_understood")
            return chat.read(answer.json, request_id(answer.headers))

        return answer_of(ask)

    def headers(self, credential: str) -> dict[str, str]:
        return {"authorization": f"Bearer {credential}"} if credential else {}

    # -- a batch

    def upload(self, wire: Wire, name: Name, content: Content) -> str | None:
        sent = form({"purpose": "batch"}, _filename(name), content)
        answer = wire.ask("POST", FILES, headers=sent.headers, content=sent.chunks)
        file = part(answer.json)
        if file.get("bytes", file.get("size_bytes")) not in (None, content.size):
            raise ProviderUnsure("size_differs")
        return needed(known_id(file.get("id")))

    def create(
        self, wire: Wire, route: Route, name: Name, file_id: str | None, content: Content
    ) -> Seen:
        made = {
            "input_files": [file_id],
            "endpoint": f"/{CALL}",
            "model": route.model,
            "metadata": name.metadata,
            "timeout_hours": WINDOW_HOURS,
        }
        try:
            return seen_of(wire.ask("POST", JOBS, json=made).json)
        except ProviderRefused as refused:
            raise without_input(refused) from refused

    def get(self, wire: Wire, provider_batch_id: str) -> Seen:
        answer = wire.ask("GET", f"{JOBS}/{segment(provider_batch_id)}")
        return replace(seen_of(answer.json), poll_after=answer.retry_after)

    def scan(self, wire: Wire, since: datetime) -> Iterator[Seen]:
        """As the protocol says. The filters of the listing are not relied on."""
        return read_listing(self._pages(wire), since, partial(self.get, wire), may_repeat=True)

    def _pages(self, wire: Wire) -> Iterator[list[Seen]]:
        for page in count():
            query = {"page": str(page), "page_size": str(PAGE), "order_by": "-created"}
            found = part(wire.ask("GET", JOBS, query=query).json)
            if not isinstance(found.get("data") or [], list):
                raise ProviderUnsure("not_understood")
            shown = [seen_of(item) for item in parts(found.get("data")) if known_id(item.get("id"))]
            if not shown:
                return
            yield shown

    def cancel(self, wire: Wire, provider_batch_id: str) -> None:
        ask_to_cancel(wire, f"{JOBS}/{segment(provider_batch_id)}/cancel")

    def read(self, wire: Wire, file: str) -> AbstractContextManager[Iterator[bytes]]:
        return wire.stream("GET", f"{FILES}/{segment(file)}/content")

    def find_file(self, wire: Wire, name: Name) -> str | None:
        met: set[str] = set()
        for page in range(MAX_PAGES):
            query = {"page": str(page), "page_size": str(PAGE), "purpose": "batch"}
            found = parts(part(wire.ask("GET", FILES, query=query).json).get("data"))
            for item in found:
                if item.get("filename") == _filename(name):
                    return known_id(item.get("id"))
            fresh = {str(item.get("id")) for item in found} - met
            if not fresh:
                return None
            met |= fresh
        return None

    def delete_file(self, wire: Wire, file_id: str) -> None:
        delete(wire, f"{FILES}/{segment(file_id)}")

    def delete_batch(self, wire: Wire, provider_batch_id: str) -> None:
        delete(wire, f"{JOBS}/{segment(provider_batch_id)}")

    # -- what it says

    def refusal(self, status: int, document: Any) -> Failure | None:
        """Its own envelope, or that of the gateway in front of it, which is a bare message."""
        found = openai.refusal(status, document)
        if found is None and "message" in part(document):
            said = part(document)
            found = failure_of(said.get("code"), status, otherwise=said.get("type"))
        if found is None and status == 401 and "detail" in part(document):
            # A key that is not valid has an envelope of its own.
            found = failure_of("unauthorized", status)
        return found


def seen_of(document: Any) -> Seen:
    """A batch job as it is shown; ProviderUnsure if it is none."""
    found = part(document)
    status = found.get("status")
    phase = _PHASES.get(status.upper()) if isinstance(status, str) else None
    is_over = phase is not None and phase.is_over
    total = whole(found.get("total_requests"))
    files = (known_id(found.get(name)) for name in ("output_file", "error_file"))
    inputs = found.get("input_files")
    return Seen(
        provider_batch_id=needed(known_id(found.get("id"))),
        phase=phase or Phase.RUNNING,
        status=word(status) or "unknown",
        is_known_status=phase is not None,
        **our_names(part(found, "metadata")),
        created_at=unix_instant(found.get("created_at")),
        input_file_id=known_id(inputs[0]) if isinstance(inputs, list) and inputs else None,
        result_files=tuple(file for file in files if file) if is_over else (),
        total=total if total or is_over else None,
        succeeded=whole(found.get("succeeded_requests")),
        failed=whole(found.get("failed_requests")),
        # Its errors are sentences, which are not kept.
        failure=of_batch(None) if phase is Phase.FAILED else None,
    )


def _filename(name: Name) -> str:
    return f"{name.file}.jsonl"
