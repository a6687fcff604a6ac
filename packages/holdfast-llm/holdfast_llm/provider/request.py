"""A model request: the text of one item in a request of its own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.document import BadDocument, canonical
from holdfast.errors import SchemaInvalid
from holdfast_llm.provider.echo import TEXT, echo_name, schema_with_echo

# More than any model generates, and small enough that sums of reserves do not overflow.
MOST_TOKENS = 10_000_000
# The tokens of an echo, and of an echo with the object around a plain text.
ECHO_TOKENS, WRAPPED_TOKENS = 10, 32
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class Request:
    """One self-contained model request.

    *instructions* are the same for every item of a group; *inputs* are the parts of the user
    message of one item. With a *schema* the answer is an object of that JSON schema. Raises
    SchemaInvalid for what no provider accepts.
    """

    inputs: tuple[str, ...] = field(repr=False)
    """The parts of the user message."""
    instructions: str = field(default="", repr=False)
    """The system instructions, equal for every item of a group."""
    schema: Mapping[str, Any] | None = None
    """JSON schema of the answer; None for plain text."""
    schema_name: str = "reply"
    """Name of the schema at the provider."""
    max_output_tokens: int = 800
    """Maximum number of output tokens."""
    wants_echo: bool = False
    """Require an echo in the answer, even if the account does not."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Further parameters in the provider's own names, such as `temperature`."""

    def __post_init__(self) -> None:
        if isinstance(self.inputs, list):
            object.__setattr__(self, "inputs", tuple(self.inputs))
        if not (isinstance(self.inputs, tuple) and self.inputs and all(map(_is_text, self.inputs))):
            raise _refusal("inputs", "a tuple of texts that are not empty, such as (text,)")
        if not isinstance(self.instructions, str):
            raise _refusal("instructions", "text")
        if self.schema is not None and not isinstance(self.schema, Mapping):
            raise _refusal("schema", "an object")
        if not isinstance(self.schema_name, str) or not _NAME.fullmatch(self.schema_name):
            raise _refusal("schema_name", "1 to 64 letters, digits, dashes and underscores")
        if (
            type(self.max_output_tokens) is not int
            or not 1 <= self.max_output_tokens <= MOST_TOKENS
        ):
            raise _refusal("max_output_tokens", f"a whole number from 1 to {MOST_TOKENS:,}")
        if not isinstance(self.wants_echo, bool):
            raise _refusal("wants_echo", "true or false")
        if not _is_object(self.parameters):
            raise _refusal("parameters", "an object of finite JSON values")

    def with_echo(self, echo: str) -> Request:
        """Return the same request whose answer must repeat *echo*, to detect mixed-up answers.

        A plain text answer is requested as an object that contains the text. Raises SchemaInvalid
        if the schema has no place for the echo.
        """
        name = echo_name(self.schema)
        said = f'Set "{name}" in your answer to "{echo}".'
        if self.schema is None:
            said = f'Put your answer into "{TEXT}". {said}'
        # The echo must not cut off an answer that would fit without it.
        room = WRAPPED_TOKENS if self.schema is None else ECHO_TOKENS
        return self._with(
            inputs=(*self.inputs, said),
            schema=schema_with_echo(self.schema),
            max_output_tokens=min(self.max_output_tokens + room, MOST_TOKENS),
        )

    def _with(self, **changes: Any) -> Request:
        """A copy with *changes* that need no validation: 2 us instead of 20, for every item."""
        found = object.__new__(type(self))
        for name in self.__dataclass_fields__:
            value = changes[name] if name in changes else getattr(self, name)
            object.__setattr__(found, name, value)
        return found

    @property
    def input_tokens(self) -> int:
        """An upper estimate of the input tokens: three bytes of UTF-8 per token."""
        size = len(self.instructions.encode()) + sum(len(part.encode()) for part in self.inputs)
        return size // 3 + 64


def _refusal(field: str, wanted: str) -> SchemaInvalid:
    return SchemaInvalid(f"A request's {field} must be {wanted}.", field=field)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _is_object(value: object) -> bool:
    if not isinstance(value, Mapping):
        return False
    if not value:
        return True
    try:
        canonical(dict(value))
    except (BadDocument, TypeError):
        return False
    return True
