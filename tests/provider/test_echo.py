"""The echo: its name, its place in a schema, and the schemas that have none."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.errors import SchemaInvalid
from holdfast_llm.provider.echo import echo_name
from holdfast_llm.provider.request import Request
from tests.provider.asking import SCHEMA

STRING = {"type": "string"}


def asked(schema: dict[str, Any] | None) -> Request:
    return Request(("hello",), schema=schema).with_echo("q7x3")


def test_an_answer_of_a_schema_repeats_the_echo_beside_its_own_properties() -> None:
    found = asked(SCHEMA)

    assert found.schema == {
        "type": "object",
        "properties": {**SCHEMA["properties"], "rid": STRING},
        "required": [*SCHEMA["required"], "rid"],
        "additionalProperties": False,
    }
    assert found.inputs == ("hello", 'Set "rid" in your answer to "q7x3".')


def test_a_plain_answer_is_put_into_an_object_with_its_echo() -> None:
    found = asked(None)

    assert found.schema == {
        "type": "object",
        "properties": {"text": STRING, "rid": STRING},
        "required": ["text", "rid"],
        "additionalProperties": False,
    }
    assert found.inputs[1].startswith('Put your answer into "text". Set "rid"')


@pytest.mark.parametrize(
    ("schema", "name"),
    [
        (None, "rid"),
        ({"properties": {"a": STRING}}, "rid"),
        ({"properties": {"rid": {"type": "integer"}}}, "rid2"),
        ({"properties": {"rid": STRING, "rid2": STRING}}, "rid3"),
        ({"type": "object", "required": ["rid"]}, "rid2"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"properties": {"rid": STRING}}}}, "rid2"),
    ],
)
def test_the_echo_has_a_name_that_the_schema_does_not_use(
    schema: dict[str, Any] | None, name: str
) -> None:
    assert echo_name(schema) == name

    found = asked(schema).schema
    assert found is not None
    assert found["properties"][name] == STRING
    assert found["required"][-1] == name


def test_a_root_that_refers_to_a_part_is_that_part_with_the_echo() -> None:
    part = {"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}, "required": ["a"]}
    defined = {"m": part, "a": STRING}

    assert asked({"$ref": "#/$defs/m", "$defs": defined}).schema == {
        "type": "object",
        "properties": {**part["properties"], "rid": STRING},  # type: ignore[dict-item]
        "required": ["a", "rid"],
        "$defs": defined,
    }


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": STRING},
        {"type": ["object", "null"], "properties": {"a": STRING}},
        {"type": "string"},
        {},
        {"type": "object", "allOf": [{"properties": {"a": STRING}}]},
        {"type": "object", "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
        {"type": "object", "patternProperties": {"^r": {"type": "integer"}}},
        {"type": "object", "properties": {"a": STRING}, "maxProperties": 1},
        {"type": "object", "properties": {"next": {"$ref": "#"}}},
        {"$ref": "#"},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}},
        {"$ref": "#/$defs/a", "$defs": {"a": True}},
        {"$ref": "#/$defs/none"},
    ],
)
def test_a_schema_without_a_sure_place_for_the_echo_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(SchemaInvalid):
        asked(schema)
