"""Prompts and completions in a provider-independent form."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

# Holdfast's instruction to echo a value, which any model would follow.
ECHO = re.compile(r'Set "(\w+)" in your answer to "([^"]*)"')
# The preceding instruction, for requests that would have a plain text answer without an echo.
TEXT = re.compile(r'Put your answer into "(\w+)"\. Set "')


@dataclass(frozen=True, slots=True)
class Prompt:
    """A request to a model, with the provider's original body."""

    provider: str
    model: str
    inputs: tuple[str, ...]
    instructions: str = ""
    schema: Mapping[str, Any] | None = None
    max_output_tokens: int | None = None
    body: Mapping[str, Any] = field(default_factory=dict)
    # None for a direct call.
    custom_id: str | None = None
    batch_id: str | None = None

    @property
    def text(self) -> str:
        """Return the text of this request."""
        return "\n".join(self.inputs)


class Finish(StrEnum):
    """How an answer ends. A provider without this reason uses the closest one."""

    STOP = "stop"
    LENGTH = "length"
    FILTERED = "filtered"
    REFUSED = "refused"
    # Status 200 with a model failure inside.
    FAILED = "failed"
    REASONING_ONLY = "reasoning_only"
    # The answer has several messages or parts; the last one contains the text.
    SEVERAL = "several"


@dataclass(frozen=True, slots=True)
class ItemError:
    """The error of a failed item: an HTTP status and the provider's error code."""

    status: int
    code: str
    message: str = "The request could not be processed."


class NotRun(StrEnum):
    """Why an item was not executed."""

    EXPIRED = "expired"
    CANCELED = "canceled"


@dataclass(frozen=True, slots=True)
class Said:
    """The result of one request. Exactly one of text, error and not_run is set."""

    text: str = ""
    finish: Finish = Finish.STOP
    error: ItemError | None = None
    not_run: NotRun | None = None
    # None: estimated from the text lengths.
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    # None: the requested model.
    model: str | None = None
    hides_usage: bool = False

    @property
    def is_billed(self) -> bool:
        """Return True if it was executed. Errors and items that did not run are not billed.

        Internal provider errors without usage are not billed either.
        """
        failed = self.finish is Finish.FAILED and self.hides_usage
        return self.error is None and self.not_run is None and not failed


Responder = Callable[[Prompt], "Said | str | Mapping[str, Any]"]
"""Answers one request with a text, an object (sent as JSON), or a complete :class:`Said`."""


def respond(prompt: Prompt) -> Said:
    """Repeat the prompt: the default responder.

    For a request with a schema, return an object that matches the schema.
    """
    if prompt.schema is None:
        return Said(f"Answer to: {prompt.text}")
    echoes = dict(ECHO.findall(prompt.text))
    return Said(_json(_fit(prompt.schema, prompt.text, echoes)))


def completion_of(answer: Said | str | Mapping[str, Any], prompt: Prompt) -> Said:
    """Convert a responder's return value to a :class:`Said`. Objects get the requested echo."""
    if isinstance(answer, Said):
        return answer
    echoes = {} if prompt.schema is None else dict(ECHO.findall(prompt.text))
    if isinstance(answer, str):
        # A text goes into the requested field beside the echo.
        field = TEXT.search(prompt.text) if echoes else None
        return Said(answer if field is None else _json({field[1]: answer, **echoes}))
    return Said(_json({**echoes, **answer}))


def fill_in(prompt: Prompt, answered: Said) -> Said:
    """Fill in the model and the tokens: about four bytes per token, plus overhead."""
    spoken = len(answered.text.encode()) // 4 + 1 + answered.reasoning_tokens
    asked = (len(prompt.instructions.encode()) + len(prompt.text.encode())) // 4 + 8
    return replace(
        answered,
        model=answered.model or prompt.model,
        input_tokens=asked if answered.input_tokens is None else answered.input_tokens,
        output_tokens=spoken if answered.output_tokens is None else answered.output_tokens,
    )


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _fit(schema: Mapping[str, Any], text: str, echoes: Mapping[str, str]) -> Any:
    """Return a value that matches a JSON schema or Gemini's schema dialect."""
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][0]
    for choice in ("anyOf", "oneOf", "allOf"):
        if schema.get(choice):
            return _fit(schema[choice][0], text, echoes)
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = (kind[0] if isinstance(kind, list) else str(kind)).lower()
    match kind:
        case "object":
            properties = schema.get("properties", {})
            return {
                name: echoes[name] if name in echoes else _fit(part, text, echoes)
                for name, part in properties.items()
            }
        case "array":
            part = schema.get("items", {"type": "string"})
            return [_fit(part, text, echoes)] * max(1, int(schema.get("minItems", 1)))
        case "string":
            return f"Answer to: {text}"[: schema.get("maxLength")]
        case "integer" | "number":
            return schema.get("minimum", 0)
        case "boolean":
            return True
        case _:
            return None
