"""Convert the token counts of each provider to billing classes. Pure.

A missing or impossible count gives None: an unknown cost is not zero.
"""

from __future__ import annotations

from typing import Any

from holdfast_llm.provider.classify import get_int, get_object
from holdfast_llm.provider.reply import Usage


def of_responses(body: object) -> Usage | None:
    """OpenAI Responses: input includes cached tokens, output includes reasoning."""
    found = get_object(body, "usage")
    return _openai(
        found,
        found.get("input_tokens"),
        found.get("output_tokens"),
        get_object(found, "input_tokens_details"),
        get_object(found, "output_tokens_details"),
    )


def of_chat(body: object) -> Usage | None:
    """OpenAI Chat and compatible servers, including Mistral."""
    found = get_object(body, "usage")
    return _openai(
        found,
        found.get("prompt_tokens"),
        found.get("completion_tokens"),
        get_object(found, "prompt_tokens_details"),
        get_object(found, "completion_tokens_details"),
    )


def _openai(
    found: dict[str, Any], given: object, made: object, inside: dict[str, Any], made_of: object
) -> Usage | None:
    total, output = get_int(given), get_int(made)
    if not found or total is None or output is None:
        return None
    read = get_int(inside.get("cached_tokens")) or 0
    written = get_int(inside.get("cache_write_tokens")) or 0
    return Usage(
        input=max(0, total - read - written),
        cache_read=read,
        cache_write_short=written,
        output=output,
        reasoning=get_int(get_object(made_of).get("reasoning_tokens")) or 0,
    )


def of_messages(body: object) -> Usage | None:
    """Anthropic: cached tokens are counted separately from the input, by cache lifetime."""
    found = get_object(body, "usage")
    given, output = get_int(found.get("input_tokens")), get_int(found.get("output_tokens"))
    if given is None or output is None:
        return None
    written = get_object(found, "cache_creation")
    short = get_int(written.get("ephemeral_5m_input_tokens"))
    long = get_int(written.get("ephemeral_1h_input_tokens"))
    if short is None and long is None:
        short = get_int(found.get("cache_creation_input_tokens"))
    return Usage(
        input=given,
        cache_read=get_int(found.get("cache_read_input_tokens")) or 0,
        cache_write_short=short or 0,
        cache_write_long=long or 0,
        output=output,
        reasoning=get_int(get_object(found, "output_tokens_details").get("thinking_tokens")) or 0,
    )


def of_generate(body: object) -> Usage | None:
    """Gemini: the prompt includes cached tokens; thoughts are counted separately.

    Protocol buffers omit zero values.
    """
    found = get_object(body, "usageMetadata")
    given = get_int(found.get("promptTokenCount"))
    if given is None:
        return None
    read = get_int(found.get("cachedContentTokenCount")) or 0
    thoughts = get_int(found.get("thoughtsTokenCount")) or 0
    tools = get_int(found.get("toolUsePromptTokenCount")) or 0
    return Usage(
        input=max(0, given + tools - read),
        cache_read=read,
        output=(get_int(found.get("candidatesTokenCount")) or 0) + thoughts,
        reasoning=thoughts,
    )
