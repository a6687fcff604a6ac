"""JSON schemas, as each provider wants them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.errors import SchemaInvalid

MAX_DEPTH = 32


def is_strict(schema: Any) -> bool:
    """Whether OpenAI can hold a model to a schema: every object closed, every property required."""
    if isinstance(schema, list):
        return all(map(is_strict, schema))
    if not isinstance(schema, Mapping):
        return True
    properties = schema.get("properties")
    if isinstance(properties, Mapping):
        if schema.get("additionalProperties") is not False:
            return False
        if set(properties) != set(schema.get("required", ())):
            return False
        if not all(map(is_strict, properties.values())):
            return False
    inner = (schema.get(name) for name in ("items", "anyOf"))
    defined = (schema.get(name) for name in ("$defs", "definitions"))
    return all(map(is_strict, inner)) and all(
        all(map(is_strict, found.values())) for found in defined if isinstance(found, Mapping)
    )


# What Gemini's own dialect of a schema has and calls by the same name.
_KEPT = (
    "description",
    "format",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "nullable",
    "pattern",
    "propertyOrdering",
    "required",
    "title",
)


def openapi(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON schema in the words of Gemini's ``responseSchema``.

    Raises SchemaInvalid for what cannot be said there.
    """
    return _openapi(schema, schema, 0)


def _openapi(schema: Any, root: Mapping[str, Any], depth: int) -> dict[str, Any]:
    if depth > MAX_DEPTH:
        raise SchemaInvalid("A schema refers to itself or is nested too deeply for Gemini.")
    if not isinstance(schema, Mapping):
        raise SchemaInvalid("A schema for Gemini must say the type of every value.")
    if "$ref" in schema:
        return _openapi(referred(str(schema["$ref"]), root), root, depth + 1)
    found = {name: schema[name] for name in _KEPT if name in schema}
    kinds = schema.get("type", "object" if "properties" in schema else None)
    kinds = [kinds] if isinstance(kinds, str) else list(kinds or ())
    if "null" in kinds:
        found["nullable"] = True
    named = [kind for kind in kinds if kind != "null"]
    if len(named) == 1:
        found["type"] = str(named[0]).upper()
    elif named:
        found["anyOf"] = [{"type": str(kind).upper()} for kind in named]
    allowed = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if allowed is not None:
        found |= {"type": "STRING", "enum": [str(value) for value in allowed if value is not None]}
    if isinstance(properties := schema.get("properties"), Mapping):
        found["properties"] = {
            name: _openapi(part, root, depth + 1) for name, part in properties.items()
        }
    if "items" in schema:
        found["items"] = _openapi(schema["items"], root, depth + 1)
    choices = schema.get("anyOf", schema.get("oneOf"))
    if isinstance(choices, list):
        found |= _choice(choices, root, depth)
    return found


def _choice(choices: list[Any], root: Mapping[str, Any], depth: int) -> dict[str, Any]:
    """A choice; one of a type and null is that type, which may be null."""
    kept = [choice for choice in choices if choice != {"type": "null"}]
    nullable = {"nullable": True} if len(kept) < len(choices) else {}
    said = [_openapi(choice, root, depth + 1) for choice in kept]
    return {**(said[0] if len(said) == 1 else {"anyOf": said}), **nullable}


def referred(reference: str, root: Mapping[str, Any]) -> Any:
    """The part of a schema that a reference names; SchemaInvalid if it is not in it."""
    found: Any = root
    for name in reference.removeprefix("#/").split("/"):
        found = found.get(name) if isinstance(found, Mapping) else None
    if not reference.startswith("#/") or found is None:
        raise SchemaInvalid("A schema refers to something that is not in it.")
    return found
