"""The provider: a server that speaks OpenAI's chat API at an address of its own."""

from __future__ import annotations

from typing import Any

from holdfast_llm import openai_compatible


def make_adapter() -> Any:
    """What the entry point registers, for routes with ``adapter_kind = "pager_chat"``."""
    return openai_compatible(
        "pager_chat", "https://llm.pager.example/v1", max_items=1_000, max_bytes=10_000_000
    )
