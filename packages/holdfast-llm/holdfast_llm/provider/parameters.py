"""Provider parameters that an application may set, and reserved ones. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from holdfast.errors import SchemaInvalid

# Parameters that could add other people's texts, store or stream the answer, or change the billing
# of the route.
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


# Parameters that the chat, responses and messages APIs share, to detect misspellings.
COMMON = frozenset(
    [
        "frequency_penalty",
        "logit_bias",
        "logprobs",
        "metadata",
        "presence_penalty",
        "random_seed",
        "reasoning",
        "reasoning_effort",
        "safe_prompt",
        "seed",
        "speed",
        "stop",
        "stop_sequences",
        "temperature",
        "thinking",
        "top_k",
        "top_logprobs",
        "top_p",
        "truncation",
        "user",
        "verbosity",
    ]
)


def checked(
    parameters: Mapping[str, Any],
    *,
    known: frozenset[str] | None = None,
    may_set: frozenset[str] = frozenset(),
) -> dict[str, Any]:
    """Return the parameters if none is reserved, except *may_set*, and none is misspelled.

    With *known*, every other name is refused. Without it, new parameters of a provider are
    accepted, and near misses of common ones are refused. Raises SchemaInvalid.
    """
    taken = sorted((_OURS - may_set) & set(parameters))
    if taken:
        raise SchemaInvalid(
            f"A request's parameters must not set {', '.join(taken)}: these follow from the "
            "request itself.",
            parameter=taken[0],
        )
    for name in sorted(set(parameters) - (known or COMMON)):
        near = get_close_matches(name, known or COMMON, n=1, cutoff=0.8)
        if near or known is not None:
            hint = f" Did you mean {near[0]}?" if near else ""
            raise SchemaInvalid(
                f"The provider has no parameter {name!r}.{hint}", parameter=name[:100]
            )
    return dict(parameters)
