"""OpenAI and compatible servers: files, batches, Responses and Chat."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

from holdfast_llm.provider import chat, responses
from holdfast_llm.provider.adapter import (
    BatchPhase,
    BatchTag,
    Capabilities,
    Content,
    Limits,
    ProviderBatch,
    ProviderClient,
    ProviderResponse,
)
from holdfast_llm.provider.classify import (
    failure_of,
    get_int,
    get_list,
    get_object,
    kind_of,
    known_id,
    of_batch,
    of_item,
)
from holdfast_llm.provider.classify import get_code as plain_word
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
from holdfast_llm.provider.lines import file_answer, read_line, write_line
from holdfast_llm.provider.listing import MAX_PAGES, PAGE, read_listing
from holdfast_llm.provider.multipart import form
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
from holdfast_llm.provider.usage import of_responses

DAY_SECONDS = 86_400
# Further lines are ignored; the next batch names them.
MOST_NAMED = 1_000

_PHASES = {
    "validating": BatchPhase.RUNNING,
    "in_progress": BatchPhase.RUNNING,
    "finalizing": BatchPhase.RUNNING,
    "cancelling": BatchPhase.RUNNING,
    "completed": BatchPhase.COMPLETED,
    "failed": BatchPhase.FAILED,
    "expired": BatchPhase.EXPIRED,
    "cancelled": BatchPhase.CANCELED,
    "canceled": BatchPhase.CANCELED,
}


@dataclass(frozen=True, slots=True)
class Surface:
    """One model API: how to build a body from one item, and how to parse the answer."""

    endpoint: str
    build: Callable[[str, Request], dict[str, Any]]
    read: Callable[[Mapping[str, Any], str | None], Answer]


def _build_chat(model: str, request: Request) -> dict[str, Any]:
    return {**chat.build(model, request, limit="max_completion_tokens"), "store": False}


RESPONSES = Surface("responses", responses.build, responses.read)
CHAT = Surface("chat/completions", _build_chat, chat.read)
LIMITS = Limits(max_items=50_000, max_bytes=200_000_000)
CAPABILITIES = Capabilities()


@dataclass(frozen=True, slots=True)
class OpenAI(ProviderKind):
    """Files and batches, for one surface."""

    kind: str
    surface: Surface
    base_url: str = "https://api.openai.com/v1"
    limits: Limits = LIMITS
    capabilities: Capabilities = CAPABILITIES
    # How long files are kept if they are never deleted.
    kept_days: int = 7

    # -- one item

    def body(self, route: Route, request: Request) -> dict[str, Any]:
        return self.surface.build(route.model, request)

    def line(self, route: Route, custom_id: str, body: Mapping[str, Any]) -> bytes:
        return write_line(
            {"custom_id": custom_id, "method": "POST", "url": self.line_url, "body": dict(body)}
        )

    def parse(self, line: bytes) -> ItemAnswer:
        return parse(line, self.surface.read)

    def call(self, client: ProviderClient, route: Route, body: Mapping[str, Any]) -> Answer:
        def send() -> Answer:
            answer = client.request(
                "POST", self.call_path(route), json=dict(body), query=self.query
            )
            if not isinstance(answer.json, dict):
                raise ProviderUnsure("not_understood")
            return self.surface.read(answer.json, request_id(answer.headers))

        return answer_of(send)

    # -- paths; Azure overrides them

    @property
    def line_url(self) -> str:
        return f"/v1/{self.surface.endpoint}"

    @property
    def query(self) -> Mapping[str, str]:
        return {}

    def path(self, *names: str) -> str:
        return "/".join(names)

    def call_path(self, route: Route) -> str:
        return self.path(self.surface.endpoint)

    def headers(self, credential: str) -> dict[str, str]:
        return {"authorization": f"Bearer {credential}"} if credential else {}

    # -- a batch

    def upload(self, client: ProviderClient, tag: BatchTag, content: Content) -> str | None:
        fields = {
            "purpose": "batch",
            "expires_after[anchor]": "created_at",
            "expires_after[seconds]": str(self.kept_days * DAY_SECONDS),
        }
        sent = form(fields, _filename(tag), content)
        answer = client.request(
            "POST",
            self.path("files"),
            query=self.query,
            headers=sent.headers,
            content=sent.chunks,
        )
        file = get_object(answer.json)
        if file.get("bytes") not in (None, content.size):
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
            "input_file_id": file_id,
            "endpoint": self.line_url,
            "completion_window": "24h",
            "metadata": tag.metadata,
            "output_expires_after": {
                "anchor": "created_at",
                "seconds": self.kept_days * DAY_SECONDS,
            },
        }
        try:
            return self._provider_batch(
                client.request("POST", self.path("batches"), json=made, query=self.query)
            )
        except ProviderRefused as refused:
            raise without_input(refused) from refused

    def get(self, client: ProviderClient, provider_batch_id: str) -> ProviderBatch:
        path = self.path("batches", segment(provider_batch_id))
        return self._provider_batch(client.request("GET", path, query=self.query))

    def scan(self, client: ProviderClient, since: datetime) -> Iterator[ProviderBatch]:
        """List batches. ``has_more`` is not relied on."""
        return read_listing(self._pages(client), since, partial(self.get, client))

    def _pages(self, client: ProviderClient) -> Iterator[list[ProviderBatch]]:
        query = {**self.query, "limit": str(PAGE)}
        while True:
            answer = client.request("GET", self.path("batches"), query=query)
            page = [provider_batch_of(item) for item in _listed(answer) if known_id(item.get("id"))]
            yield page
            if not page:
                return
            query["after"] = page[-1].provider_batch_id

    def cancel(self, client: ProviderClient, provider_batch_id: str) -> None:
        request_cancel(
            client, self.path("batches", segment(provider_batch_id), "cancel"), self.query
        )

    def read(self, client: ProviderClient, file: str) -> AbstractContextManager[Iterator[bytes]]:
        path = self.path("files", segment(file), "content")
        return client.stream("GET", path, query=self.query)

    def find_file(self, client: ProviderClient, tag: BatchTag) -> str | None:
        query = {**self.query, "purpose": "batch", "order": "desc", "limit": str(PAGE)}
        met: set[str] = set()
        for _ in range(MAX_PAGES):
            files = [
                (found, item.get("filename"))
                for item in _listed(client.request("GET", self.path("files"), query=query))
                if (found := known_id(item.get("id")))
            ]
            for file_id, filename in files:
                if filename == _filename(tag):
                    return file_id
            fresh = {file_id for file_id, _ in files} - met
            if not fresh:
                return None
            met |= fresh
            query["after"] = files[-1][0]
        return None

    def delete_file(self, client: ProviderClient, file_id: str) -> None:
        delete(client, self.path("files", segment(file_id)), self.query)

    def delete_batch(self, client: ProviderClient, provider_batch_id: str) -> None:
        """Do nothing: batches cannot be deleted, so they contain no personal data."""

    # -- responses

    def refusal(self, status: int, document: Any) -> Failure | None:
        return refusal(status, document)

    def _provider_batch(self, answer: ProviderResponse) -> ProviderBatch:
        return replace(provider_batch_of(answer.json), poll_after=answer.retry_after)


# -- shared by compatible servers


def parse(line: bytes, read: Callable[[Mapping[str, Any], str | None], Answer]) -> ItemAnswer:
    """Parse a line of results. A failure has four forms, and *read* handles the last two:

    ``error`` next to ``response: null``; a status of 400 or more within ``response``; a body that
    says failed or incomplete; and a body with a refusal.
    """
    found = read_line(line)
    return file_answer(found.get("custom_id"), _answer(found, read))


def _answer(
    found: Mapping[str, Any], read: Callable[[Mapping[str, Any], str | None], Answer]
) -> Answer:
    response, error = get_object(found, "response"), found.get("error")
    status = get_int(response.get("status_code"))
    named = known_id(response.get("request_id")) or known_id(found.get("id"))
    if error:
        # Some servers write a sentence here, which is not stored.
        said = get_object(error)
        code = plain_word(said.get("code")) or plain_word(said.get("type")) or "unknown_error"
        if status is None or status < 400:
            return Failure(kind_of(code), code, provider_request_id=named)
        failure = of_item(failure_of(code, status))
        return replace(failure, provider_request_id=named)
    if status is None or not response:
        return Failure(FailureKind.OUTPUT_INVALID, "not_understood", provider_request_id=named)
    body = get_object(response, "body")
    if 200 <= status < 300:
        return read(body, named)
    said = get_object(body, "error") or body
    failure = of_item(failure_of(said.get("code"), status, otherwise=said.get("type")))
    return replace(failure, provider_request_id=named)


def refusal(status: int, document: Any) -> Failure | None:
    """The failure of an error in the envelope of these servers; None if there is no envelope."""
    said = get_object(document, "error")
    if not said and get_object(document).get("object") == "error":
        said = get_object(document)
    if said and {"message", "code", "type"} & set(said):
        return failure_of(said.get("code"), status, otherwise=said.get("type"))
    if status in (401, 403, 404, 405, 422) and "detail" in get_object(document):
        # FastAPI servers: key, path or form was invalid, and no handler ran.
        return failure_of(None, status)
    return None


def provider_batch_of(document: Any) -> ProviderBatch:
    """Parse a batch. Raises ProviderUnsure if it is invalid."""
    found = get_object(document)
    status = found.get("status")
    phase = _PHASES.get(status.lower()) if isinstance(status, str) else None
    is_over = phase is not None and phase.is_over
    counts, metadata = get_object(found, "request_counts"), get_object(found, "metadata")
    total = get_int(counts.get("total"))
    files = (known_id(found.get(name)) for name in ("output_file_id", "error_file_id"))
    errors = get_list(get_object(found, "errors").get("data"))
    usage = of_responses(found)
    return ProviderBatch(
        provider_batch_id=needed(known_id(found.get("id"))),
        phase=phase or BatchPhase.RUNNING,
        status=plain_word(status) or "unknown",
        is_known_status=phase is not None,
        **our_names(metadata),
        created_at=unix_instant(found.get("created_at")),
        expires_at=unix_instant(found.get("expires_at")),
        input_file_id=known_id(found.get("input_file_id")),
        # Some servers name the files before they are complete.
        result_files=tuple(file for file in files if file) if is_over else (),
        # It is 0 until the input has been validated.
        total=total if total or is_over else None,
        succeeded=get_int(counts.get("completed")),
        failed=get_int(counts.get("failed")),
        failure=of_batch(errors[0].get("code") if errors else None)
        if phase is BatchPhase.FAILED
        else None,
        named_lines=_named_lines(errors) if phase is BatchPhase.FAILED else (),
        usage=usage if usage and (usage.input or usage.output) else None,
    )


def _named_lines(errors: list[dict[str, Any]]) -> tuple[int, ...]:
    found = (get_int(error.get("line")) for error in errors[:MOST_NAMED])
    return tuple(sorted({line for line in found if line}))


def our_names(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of our metadata that were returned."""
    key, environment = metadata.get("hf_key"), metadata.get("hf_env")
    return {
        "key": key if isinstance(key, str) and key else None,
        "attempt": get_int(metadata.get("hf_try")),
        "environment": environment if isinstance(environment, str) else None,
    }


def _listed(answer: ProviderResponse) -> list[dict[str, Any]]:
    found = get_object(answer.json).get("data")
    if not isinstance(found, list):
        raise ProviderUnsure("not_understood")
    return get_list(found)


def _filename(tag: BatchTag) -> str:
    return f"{tag.file}.jsonl"


def chat_adapter() -> OpenAI:
    """The provider ``openai_chat``."""
    return OpenAI("openai_chat", CHAT)


def responses_adapter() -> OpenAI:
    """The provider ``openai_responses``."""
    return OpenAI("openai_responses", RESPONSES)


@dataclass(frozen=True, slots=True)
class OpenAICompatible(OpenAI):
    """An adapter for another server that implements OpenAI's chat, file and batch API.

    Subclasses set *kind*, which is the name of the entry point, *base_url* and *limits*.
    """

    kind: str = ""
    surface: Surface = CHAT
