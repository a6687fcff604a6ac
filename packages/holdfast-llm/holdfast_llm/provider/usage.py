"""Tokens as each provider counts them, brought to the classes they are billed under. Pure.

A provider that says nothing, or nothing that can be, gives None: an unknown cost is not a cost of
nothing.
"""

from __future__ import annotations

from typing import Any

from holdfast_llm.provider.classify import part, whole
from holdfast_llm.provider.reply import Usage


def of_responses(body: object) -> Usage | None:
    """OpenAI Responses: cached tokens are part of the input, reasoning is part of the output."""
    found = part(body, "usage")
    return _openai(
        found,
        found.get("input_tokens"),
        found.get("output_tokens"),
        part(found, "input_tokens_details"),
        part(found, "output_tokens_details"),
    )


def of_chat(body: object) -> Usage | None:
    """OpenAI Chat and all that speak like it, Mistral too."""
    found = part(body, "usage")
    return _openai(
        found,
        found.get("prompt_tokens"),
        found.get("completion_tokens"),
        part(found, "prompt_tokens_details"),
        part(found, "completion_tokens_details"),
    )


def _openai(
    found: dict[str, Any], given: object, made: object, inside: dict[str, Any], made_of: object
) -> Usage | None:
    total, output = whole(given), whole(made)
    if not found or total is None or output is None:
        return None
    read = whole(inside.get("cached_tokens")) or 0
    written = whole(inside.get("cache_write_tokens")) or 0
    return Usage(
        input=max(0, total - read - written),
        cache_read=read,
        cache_write_short=written,
        output=output,
        reasoning=whole(part(made_of).get("reasoning_tokens")) or 0,
    )


def of_messages(body: object) -> Usage | None:
    """Anthropic: the cached tokens are counted beside the input, by how long they are kept."""
    found = part(body, "usage")
    given, output = whole(found.get("input_tokens")), whole(found.get("output_tokens"))
    if given is None or output is None:
        return None
    written = part(found, "cache_creation")
    short = whole(written.get("ephemeral_5m_input_tokens"))
    long = whole(written.get("ephemeral_1h_input_tokens"))
    if short is None and long is None:
        short = whole(found.get("cache_creation_input_tokens"))
    return Usage(
        input=given,
        cache_read=whole(found.get("cache_read_input_tokens")) or 0,
        cache_write_short=short or 0,
        cache_write_long=long or 0,
        output=output,
        reasoning=whole(part(found, "output_tokens_details").get("thinking_tokens")) or 0,
    )


def of_generate(body: object) -> Usage | None:
    """Gemini: the prompt holds the cached tokens, and thoughts are counted beside the candidates.

    Protocol buffers leave out what is zero.
    """
    found = part(body, "usageMetadata")
    given = whole(found.get("promptTokenCount"))
    if given is None:
        return None
    read = whole(found.get("cachedContentTokenCount")) or 0
    thoughts = whole(found.get("thoughtsTokenCount")) or 0
    tools = whole(found.get("toolUsePromptTokenCount")) or 0
    return Usage(
        input=max(0, given + tools - read),
        cache_read=read,
        output=(whole(found.get("candidatesTokenCount")) or 0) + thoughts,
        reasoning=thoughts,
    )
