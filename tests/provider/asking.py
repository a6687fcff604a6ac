"""A provider client that answers from a list, and the requests that tests make with it."""

from __future__ import annotations

import hashlib
import json as json_module
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from holdfast_llm.provider.adapter import BatchTag, Content, ProviderResponse
from holdfast_llm.provider.reply import Failure, FailureKind, ProviderRefused, ProviderUnsure
from holdfast_llm.provider.request import Request
from holdfast_llm.provider.route import Route

KEY = "k7q2m9x4r5t6w3z7a2b3c4d5e6"
NAME = BatchTag(KEY, 2, "prod")
CUSTOM_ID = "hf1_k7q2m9x4r5t6w3z7_0_5f2a91c0"
SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["rewritten_text"],
    "properties": {"rewritten_text": {"type": "string"}},
}
REQUEST = Request(
    inputs=("one person's text",),
    instructions="static policy prompt",
    schema=SCHEMA,
    schema_name="rewrite_response_v1",
    max_output_tokens=800,
    parameters={"temperature": 0.2},
)


def route(kind: str, model: str = "gpt-5.2") -> Route:
    return Route(provider="p", adapter_kind=kind, model=model)


def content_of(*lines: bytes, piece: int = 7) -> Content:
    data = b"".join(lines)

    def chunks() -> Iterator[bytes]:
        for start in range(0, len(data), piece):
            yield data[start : start + piece]

    return Content(len(data), hashlib.sha256(data).hexdigest(), len(lines), chunks)


@dataclass
class Asked:
    """One call as it was sent."""

    method: str
    path: str
    query: dict[str, str]
    json: Any
    headers: dict[str, str]
    content: bytes | None


@dataclass
class FakeClient:
    """Gives its answers in order: JSON, an exception to raise, or a ProviderResponse."""

    answers: list[Any]
    asked: list[Asked] = field(default_factory=list)

    def request(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        content: Iterator[bytes] | bytes | None = None,
    ) -> ProviderResponse:
        sent = content if isinstance(content, bytes) or content is None else b"".join(content)
        # A body must be JSON, and is recorded as it was at the time of the call.
        document = json_module.loads(json_module.dumps(json))
        self.asked.append(
            Asked(method, path, dict(query or {}), document, dict(headers or {}), sent)
        )
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, ProviderResponse) else ProviderResponse(answer, {})

    @contextmanager
    def stream(
        self, method: str, path: str, *, query: Mapping[str, str] | None = None
    ) -> Iterator[Iterator[bytes]]:
        self.asked.append(Asked(method, path, dict(query or {}), None, {}, None))
        yield iter(self.answers.pop(0))

    @property
    def only(self) -> Asked:
        (asked,) = self.asked
        return asked


def refused(status: int, code: str = "some_code") -> ProviderRefused:
    return ProviderRefused(Failure(FailureKind.INVALID, code, status))


def unsure(status: int, code: str = "some_code") -> ProviderUnsure:
    failure = Failure(FailureKind.TRANSIENT, code, status)
    return ProviderUnsure(f"status_{status}", failure=failure)
