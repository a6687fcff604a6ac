"""What an application may set of a provider's own parameters, and what is ours. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.errors import SchemaInvalid

# Names by which a request could hold several people's texts, be kept, be streamed, or be billed in
# another way than its route says.
_OURS = frozenset(
    [
        "background",
        "batch",
        "cachedContent",
        "candidateCount",
        "contents",
        "conversation",
        "input",
        "instructions",
        "max_completion_tokens",
        "max_output_tokens",
        "max_tokens",
        "maxOutputTokens",
        "messages",
        "model",
        "n",
        "output_config",
        "previous_response_id",
        "prompt",
        "response_format",
        "responseJsonSchema",
        "responseMimeType",
        "responseSchema",
        "service_tier",
        "store",
        "stream",
        "system",
        "systemInstruction",
        "text",
        "tool_choice",
        "tools",
    ]
)


def checked(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters, if none of them is ours to set. Raises SchemaInvalid otherwise."""
    taken = sorted(_OURS & set(parameters))
    if taken:
        raise SchemaInvalid(
            f"A request's parameters must not set {', '.join(taken)}: these follow from the "
            "request itself.",
            parameter=taken[0],
        )
    return dict(parameters)
