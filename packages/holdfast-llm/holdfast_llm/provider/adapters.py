"""Every adapter, by the kind that a route names."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from holdfast_llm.provider.anthropic import Anthropic
from holdfast_llm.provider.azure import Azure
from holdfast_llm.provider.gemini import Gemini
from holdfast_llm.provider.mistral import Mistral
from holdfast_llm.provider.openai import CHAT, RESPONSES, OpenAI
from holdfast_llm.provider.wire import HttpAdapter

ALL: tuple[HttpAdapter, ...] = (
    OpenAI("openai_responses", RESPONSES),
    OpenAI("openai_chat", CHAT),
    Azure("azure_responses", RESPONSES),
    Azure("azure_chat", CHAT),
    Gemini(),
    Anthropic(),
    Mistral(),
)

ADAPTERS: Mapping[str, HttpAdapter] = MappingProxyType({adapter.kind: adapter for adapter in ALL})
