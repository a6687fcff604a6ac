"""JSON schemas in the dialect of each provider. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from holdfast.errors import SchemaInvalid
from holdfast_llm.provider.schema_text import schema_text

MAX_DEPTH = 32


def is_strict(schema: Mapping[str, Any]) -> bool:
    """Whether OpenAI can enforce a schema: every object closed, every property required."""
    return _is_strict_text(schema_text(schema))


@lru_cache(maxsize=256)
def _is_strict_text(schema: str) -> bool:
    return _is_strict(json.loads(schema))


def _is_strict(schema: Any) -> bool:
    if isinstance(schema, list):
        return all(map(_is_strict, schema))
    if not isinstance(schema, Mapping):
        return True
    properties = schema.get("properties")
    if isinstance(properties, Mapping):
        if schema.get("additionalProperties") is not False:
            return False
        if set(properties) != set(schema.get("required", ())):
            return False
        if not all(map(_is_strict, properties.values())):
            return False
    inner = (schema.get(name) for name in ("items", "anyOf"))
    defined = (schema.get(name) for name in ("$defs", "definitions"))
    return all(map(_is_strict, inner)) and all(
        all(map(_is_strict, found.values())) for found in defined if isinstance(found, Mapping)
    )


# Keywords that Gemini's schema dialect shares with JSON Schema.
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
    "pattern",
    "propertyOrdering",
    "required",
    "title",
)

# Keywords that Gemini cannot enforce: violating answers would be paid for and refused.
_UNSAID = (
    "additionalItems",
    "contains",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "if",
    "not",
    "patternProperties",
    "prefixItems",
    "propertyNames",
)

# An allOf with one element is that element; some libraries use it next to a reference.
_CHOICES = ("anyOf", "oneOf", "allOf")


def openapi(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a JSON schema to Gemini's ``responseSchema``.

    Raises SchemaInvalid for keywords that it does not support.
    """
    return _openapi(schema, schema, 0)


def _openapi(schema: Any, root: Mapping[str, Any], depth: int) -> dict[str, Any]:
    if depth > MAX_DEPTH:
        raise SchemaInvalid("A schema refers to itself or is nested too deeply for Gemini.")
    if not isinstance(schema, Mapping):
        raise SchemaInvalid("A schema for Gemini must declare the type of every value.")
    if "$ref" in schema:
        return _openapi(referred(str(schema["$ref"]), root), root, depth + 1)
    _check_said(schema)
    found = {name: schema[name] for name in _KEPT if name in schema}
    kinds = schema.get("type", _implied(schema))
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
        kept = {name: value for name, value in found.items() if name not in ("nullable", "anyOf")}
        found = {**kept, **_words(allowed, kinds)}
    if isinstance(properties := schema.get("properties"), Mapping):
        found["properties"] = {
            name: _openapi(part, root, depth + 1) for name, part in properties.items()
        }
    if "items" in schema:
        found["items"] = _openapi(schema["items"], root, depth + 1)
    for name in _CHOICES:
        if isinstance(schema.get(name), list):
            found |= _choice(schema[name], root, depth)
    if "type" not in found and not found.get("anyOf"):
        raise SchemaInvalid(
            "A schema for Gemini must declare the type of every value.", field="schema"
        )
    return found


def _check_said(schema: Mapping[str, Any]) -> None:
    unsaid = [name for name in _UNSAID if name in schema]
    if schema.get("nullable"):
        # Not a JSON Schema keyword: our validation would refuse the null that it allows.
        unsaid.append("nullable")
    choices = [name for name in _CHOICES if name in schema]
    beside = {"properties", "items", "enum", "const"} & set(schema)
    if choices and (beside or len(choices) > 1):
        # In this dialect, a choice has no sibling keywords.
        unsaid += choices
    if "allOf" in schema and len(schema["allOf"]) != 1:
        unsaid.append("allOf")
    if unsaid:
        raise SchemaInvalid(
            f"Gemini does not support {unsaid[0]} here. Express it differently, or check it in"
            " accept().",
            field="schema",
            word=unsaid[0],
        )


def _implied(schema: Mapping[str, Any]) -> str | None:
    if "properties" in schema:
        return "object"
    return "array" if "items" in schema else None


def _words(allowed: Sequence[Any], kinds: Sequence[Any]) -> dict[str, Any]:
    """The allowed values: strings, and null if the types allow it."""
    words = [value for value in allowed if value is not None]
    is_text = not kinds or "string" in kinds
    if not words or not is_text or not all(isinstance(value, str) for value in words):
        raise SchemaInvalid(
            "Gemini supports enum only for strings. Use strings, or a type with minimum and"
            " maximum.",
            field="schema",
            word="enum",
        )
    may_be_null = len(words) < len(allowed) and (not kinds or "null" in kinds)
    return {"type": "STRING", "enum": words, **({"nullable": True} if may_be_null else {})}


def _choice(choices: list[Any], root: Mapping[str, Any], depth: int) -> dict[str, Any]:
    """Convert a choice; a type and null become a nullable type."""
    kept = [choice for choice in choices if choice != {"type": "null"}]
    nullable = {"nullable": True} if len(kept) < len(choices) else {}
    said = [_openapi(choice, root, depth + 1) for choice in kept]
    return {**(said[0] if len(said) == 1 else {"anyOf": said}), **nullable}


def referred(reference: str, root: Mapping[str, Any]) -> Any:
    """The part of a schema that a reference names. Raises SchemaInvalid if it does not exist."""
    found: Any = root
    for name in reference.removeprefix("#/").split("/"):
        found = found.get(name) if isinstance(found, Mapping) else None
    if not reference.startswith("#/") or found is None:
        raise SchemaInvalid("The schema has an unresolved $ref.")
    return found
