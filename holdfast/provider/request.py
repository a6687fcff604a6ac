"""What is asked of a model: one person's text, in one request of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.provider.echo import TEXT, echo_name, schema_with


@dataclass(frozen=True, slots=True)
class Request:
    """One self-contained model request.

    *instructions* are the same for every item of a group; what belongs to one item is in *inputs*,
    the parts of one user's message. With a *schema* the answer is an object of that JSON schema.
    """

    inputs: tuple[str, ...] = field(repr=False)
    instructions: str = field(default="", repr=False)
    schema: Mapping[str, Any] | None = None
    schema_name: str = "reply"
    max_output_tokens: int = 800
    # Whether the answer must repeat a word of its own, also where the account does not ask for it.
    wants_echo: bool = False
    # Sent as they stand under the provider's own names, such as temperature.
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def with_echo(self, echo: str) -> Request:
        """The same request, whose answer must repeat *echo*: one answered for another is noticed.

        An answer that would be plain text is asked for as an object with the text in it. Raises
        SchemaInvalid where the schema has no place for the echo.
        """
        name = echo_name(self.schema)
        said = f'Set "{name}" in your answer to "{echo}".'
        if self.schema is None:
            said = f'Put your answer into "{TEXT}". {said}'
        return replace(self, inputs=(*self.inputs, said), schema=schema_with(self.schema, name))

    @property
    def input_tokens(self) -> int:
        """An estimate that is rather too high: three bytes of UTF-8 a token, and some for form."""
        size = len(self.instructions.encode()) + sum(len(part.encode()) for part in self.inputs)
        return size // 3 + 64
