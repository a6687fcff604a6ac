"""OpenAI at Azure: the same API at other paths.

base_url ends with ``/openai``. Without an API version, calls go to ``/openai/v1``; with one they
use the older URL scheme, where the deployment is part of the path. A model is the name of a
deployment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast_llm.provider import openai
from holdfast_llm.provider.adapter import Limits
from holdfast_llm.provider.classify import failure_of, get_int, get_object
from holdfast_llm.provider.http_client import segment
from holdfast_llm.provider.kind import VersionedProviderKind
from holdfast_llm.provider.openai import CHAT, RESPONSES, OpenAI
from holdfast_llm.provider.reply import Failure
from holdfast_llm.provider.route import Route

LIMITS = Limits(max_items=100_000, max_bytes=200_000_000)


@dataclass(frozen=True, slots=True)
class Azure(VersionedProviderKind, OpenAI):
    """Files and batches at Azure. A batch has no deadline there; it ends or is canceled."""

    # There is no common base URL.
    base_url: str = ""
    limits: Limits = LIMITS
    # The minimum at Azure.
    kept_days: int = 14
    api_version: str | None = None

    @property
    def line_url(self) -> str:
        return f"/{self.surface.endpoint}" if self.api_version else f"/v1/{self.surface.endpoint}"

    @property
    def query(self) -> Mapping[str, str]:
        return {"api-version": self.api_version} if self.api_version else {}

    def path(self, *names: str) -> str:
        return "/".join(names if self.api_version else ("v1", *names))

    def call_path(self, route: Route) -> str:
        if self.api_version and self.surface is CHAT:
            return self.path("deployments", segment(route.model), self.surface.endpoint)
        return self.path(self.surface.endpoint)

    def headers(self, credential: str) -> dict[str, str]:
        return {"api-key": credential} if credential else {}

    def refusal(self, status: int, document: Any) -> Failure | None:
        found = openai.refusal(status, document)
        if found is None and get_int(get_object(document).get("statusCode")) == status:
            # An error of the gateway, which forwards nothing that it refuses.
            found = failure_of(None, status)
        return found


def chat_adapter() -> Azure:
    """The provider ``azure_chat``."""
    return Azure("azure_chat", CHAT)


def responses_adapter() -> Azure:
    """The provider ``azure_responses``."""
    return Azure("azure_responses", RESPONSES)
