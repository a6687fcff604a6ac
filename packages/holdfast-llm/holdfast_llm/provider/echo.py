"""Echo: a random word that an answer must repeat, and its place in a JSON schema. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from itertools import chain, count
from typing import Any

from holdfast.errors import SchemaInvalid
from holdfast_llm.provider.schema import MAX_DEPTH, referred
from holdfast_llm.provider.schema_text import schema_text

ECHO = "rid"
# The property of an answer that would be plain text without the echo.
TEXT = "text"
PLAIN: Mapping[str, Any] = {
    "type": "object",
    "properties": {TEXT: {"type": "string"}},
    "required": [TEXT],
    "additionalProperties": False,
}

# With one of these keywords, a root may forbid or redefine another property.
_CLOSING = frozenset(
    [
        "allOf",
        "anyOf",
        "const",
        "else",
        "enum",
        "if",
        "maxProperties",
        "not",
        "oneOf",
        "patternProperties",
        "propertyNames",
        "then",
    ]
)


def echo_name(schema: Mapping[str, Any] | None) -> str:
    """The name of the echo property: a word that does not occur in the schema."""
    return _echo_name(_text(schema))


def has_place(schema: Mapping[str, Any] | None) -> bool:
    """Whether an answer is an object whose schema can carry an echo."""
    return schema is not None and isinstance(_schema_with(_text(schema)), dict)


def schema_with_echo(schema: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The schema with the echo as a required property. Raises SchemaInvalid if it has no place."""
    found = _schema_with(_text(schema))
    if isinstance(found, SchemaInvalid):
        raise found
    return found


def _text(schema: Mapping[str, Any] | None) -> str:
    return schema_text(PLAIN if schema is None else schema)


@lru_cache(maxsize=256)
def _echo_name(schema: str) -> str:
    numbered = (f"{ECHO}{number}" for number in count(2))
    return next(name for name in chain([ECHO], numbered) if f'"{name}"' not in schema)


@lru_cache(maxsize=256)
def _schema_with(schema: str) -> dict[str, Any] | SchemaInvalid:
    try:
        return _add_echo(json.loads(schema), _echo_name(schema))
    except SchemaInvalid as exc:
        return exc.with_traceback(None)


def _add_echo(schema: Mapping[str, Any], name: str) -> dict[str, Any]:
    root = _root(schema)
    kind = root.get("type", "object" if "properties" in root else None)
    if kind != "object":
        raise SchemaInvalid(
            "An answer that must repeat an echo has to be an object: let the schema's root have the"
            " type object.",
            field="schema",
        )
    closing = sorted(_CLOSING & set(root))
    # A recursive reference to the root would require the echo as well.
    if closing or '"$ref": "#"' in json.dumps(root):
        raise SchemaInvalid(
            f"A root schema with {closing[0] if closing else 'a reference to itself'} cannot carry"
            " the echo that the answer must repeat. Move it into a property.",
            field="schema",
            word=closing[0] if closing else "$ref",
        )
    properties = {**root.get("properties", {}), name: {"type": "string"}}
    required = [*root.get("required", []), name]
    return {**root, "type": "object", "properties": properties, "required": required}


def _root(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The root of a schema, after resolving a reference to a part of itself."""
    kept = {name: schema[name] for name in ("$schema", "$defs", "definitions") if name in schema}
    root: Any = schema
    for _ in range(MAX_DEPTH):
        if not isinstance(root, Mapping):
            break
        if "$ref" not in root:
            return {**root, **kept}
        root = referred(str(root["$ref"]), schema)
    raise SchemaInvalid("The schema has a recursive or invalid $ref.", field="schema")
