"""What an application may set of a provider's own parameters, and what is ours. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
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


# Names that the chat, responses and messages APIs share; a misspelt one is told from a new one.
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
    """The parameters, if none is ours to set, but for *may_set*, and none is misspelt.

    With *known* every other name is refused. Without it a provider's newest parameters pass, and
    what nearly is a common one is refused. Raises SchemaInvalid.
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
