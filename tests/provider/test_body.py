"""One request from one item, in each provider's format."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import SchemaInvalid
from holdfast_llm.provider.adapters import ADAPTERS
from holdfast_llm.provider.request import Request
from holdfast_llm.provider.schema import is_strict, openapi
from tests.provider.asking import CUSTOM_ID, REQUEST, SCHEMA, route

KINDS = sorted(ADAPTERS)


def built(kind: str, request: Request = REQUEST) -> dict[str, Any]:
    return ADAPTERS[kind].body(route(kind), request)


def lined(kind: str, request: Request = REQUEST) -> dict[str, Any]:
    adapter = ADAPTERS[kind]
    line = adapter.line(route(kind), CUSTOM_ID, adapter.body(route(kind), request))
    found = json.loads(line)
    assert isinstance(found, dict)
    return found


def test_a_line_for_responses_is_kept_nowhere_and_has_a_flat_schema() -> None:
    assert lined("openai_responses") == {
        "custom_id": CUSTOM_ID,
        "method": "POST",
        "url": "/v1/responses",
        "body": {
            "model": "gpt-5.2",
            "store": False,
            "instructions": "static policy prompt",
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "one person's text"}]}
            ],
            "max_output_tokens": 800,
            "temperature": 0.2,
            "text": {
                "format": {
                    "type": "json_schema",
                    "name": "rewrite_response_v1",
                    "strict": True,
                    "schema": SCHEMA,
                }
            },
        },
    }


def test_a_line_for_chat_has_its_schema_one_level_deeper() -> None:
    assert lined("openai_chat") == {
        "custom_id": CUSTOM_ID,
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": {
            "model": "gpt-5.2",
            "store": False,
            "messages": [
                {"role": "system", "content": "static policy prompt"},
                {"role": "user", "content": "one person's text"},
            ],
            "max_completion_tokens": 800,
            "temperature": 0.2,
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "rewrite_response_v1", "strict": True, "schema": SCHEMA},
            },
        },
    }


def test_a_line_for_gemini_is_the_rest_request_with_its_own_schema() -> None:
    assert lined("gemini_generate") == {
        "key": CUSTOM_ID,
        "request": {
            "systemInstruction": {"parts": [{"text": "static policy prompt"}]},
            "contents": [{"role": "user", "parts": [{"text": "one person's text"}]}],
            "generationConfig": {
                "maxOutputTokens": 800,
                "temperature": 0.2,
                "responseMimeType": "application/json",
                "responseSchema": {
                    "type": "OBJECT",
                    "required": ["rewritten_text"],
                    "properties": {"rewritten_text": {"type": "STRING"}},
                },
            },
        },
    }


def test_a_line_for_anthropic_names_the_model_of_each_item() -> None:
    assert lined("anthropic_messages") == {
        "custom_id": CUSTOM_ID,
        "params": {
            "model": "gpt-5.2",
            "max_tokens": 800,
            "temperature": 0.2,
            "system": "static policy prompt",
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "one person's text"}]}
            ],
            "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
        },
    }


def test_a_line_for_mistral_leaves_the_model_to_the_job() -> None:
    line = lined("mistral_chat")

    assert set(line) == {"custom_id", "body"}
    assert "model" not in line["body"]
    assert line["body"]["max_tokens"] == 800
    assert built("mistral_chat")["model"] == "gpt-5.2"


def test_the_lines_of_azure_have_the_url_of_their_way() -> None:
    assert lined("azure_chat")["url"] == "/v1/chat/completions"
    assert lined("azure_responses")["body"] == lined("openai_responses")["body"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_request_without_instructions_or_schema_sends_neither(kind: str) -> None:
    body = json.dumps(built(kind, Request(inputs=("hello",))))

    for word in ("schema", "instructions", "system", "Schema"):
        assert word not in body


@pytest.mark.parametrize("kind", KINDS)
def test_the_echo_is_asked_for_in_the_persons_own_message_and_in_the_schema(kind: str) -> None:
    body = json.dumps(built(kind, REQUEST.with_echo("q7x3")))

    assert "q7x3" in body
    assert '"rid"' in body


@pytest.mark.req("P-15")
@pytest.mark.parametrize("kind", KINDS)
@given(
    texts=st.lists(
        st.text(st.characters(codec="utf-8"), min_size=4, max_size=40),
        min_size=2,
        max_size=6,
        unique=True,
    )
)
def test_no_body_holds_the_texts_of_two_items(kind: str, texts: list[str]) -> None:
    adapter = ADAPTERS[kind]
    marked = [f"canary-{index:04d} {text}" for index, text in enumerate(texts)]
    bodies = []
    for index, text in enumerate(marked):
        request = Request(inputs=(text, f"extra {index:04d}"), instructions="the same for all")
        bodies.append(
            adapter.line(route(kind), f"id-{index}", adapter.body(route(kind), request)).decode()
        )

    for index, body in enumerate(bodies):
        seen = [other for other in range(len(texts)) if f"canary-{other:04d}" in body]
        assert seen == [index]
        assert json.dumps(marked[index])[1:-1] in body


@pytest.mark.req("P-15")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "name", ["messages", "input", "contents", "n", "candidateCount", "previous_response_id"]
)
def test_no_parameter_can_bring_a_second_text_or_a_second_answer(kind: str, name: str) -> None:
    request = Request(inputs=("hello",), parameters={name: "x"})

    with pytest.raises(SchemaInvalid, match=name):
        built(kind, request)


def test_what_gemini_takes_beside_its_generation_config_is_put_there() -> None:
    parameters = {
        "safetySettings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}],
        "cachedContent": "cachedContents/abc",
        "tools": [{"googleSearch": {}}],
        "thinkingConfig": {"thinkingBudget": 0},
    }

    body = built("gemini_generate", Request(inputs=("hello",), parameters=parameters))

    for name in ("safetySettings", "cachedContent", "tools"):
        assert body[name] == parameters[name]
        assert name not in body["generationConfig"]
    assert body["generationConfig"]["thinkingConfig"] == {"thinkingBudget": 0}


@pytest.mark.parametrize("kind", KINDS)
def test_a_misspelt_parameter_is_refused_with_the_right_name(kind: str) -> None:
    with pytest.raises(SchemaInvalid, match="Did you mean temperature"):
        built(kind, Request(inputs=("hello",), parameters={"temprature": 0.5}))


def test_a_new_parameter_passes_where_it_harms_no_other_item() -> None:
    request = Request(inputs=("hello",), parameters={"brand_new": 1})

    assert built("openai_chat", request)["brand_new"] == 1
    # Gemini fails a whole batch for a field that it does not know.
    with pytest.raises(SchemaInvalid, match="brand_new"):
        built("gemini_generate", request)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_item_gives_the_same_bytes(kind: str) -> None:
    adapter = ADAPTERS[kind]
    lines = {adapter.line(route(kind), CUSTOM_ID, built(kind)) for _ in range(3)}

    assert len(lines) == 1


# -- schemas


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        (SCHEMA, True),
        ({**SCHEMA, "required": []}, False),
        ({"type": "object", "properties": {}, "required": []}, False),
        ({"type": "array", "items": {"type": "object", "properties": {"a": {}}}}, False),
        ({**SCHEMA, "$defs": {"x": {"properties": {"a": {"type": "string"}}}}}, False),
        ({"type": "string"}, True),
    ],
)
def test_a_model_is_held_to_a_schema_only_where_the_schema_allows_it(
    schema: dict[str, Any], strict: bool
) -> None:
    assert is_strict(schema) is strict


def test_a_schema_is_said_in_geminis_own_dialect() -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "additionalProperties": False,
        "required": ["name", "kind"],
        "properties": {
            "name": {"type": ["string", "null"], "maxLength": 9},
            "kind": {"const": "person"},
            "size": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "either": {"oneOf": [{"type": "string"}, {"type": "number"}]},
            "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}},
            "mood": {"type": ["string", "null"], "enum": ["good", "bad", None]},
            "tone": {"type": ["string", "null"], "enum": ["kind"]},
            "list": {"items": {"type": "number"}},
            "told": {"description": "a tag", "allOf": [{"$ref": "#/$defs/tag"}]},
        },
        "$defs": {"tag": {"type": "string", "enum": ["a", "b"]}},
    }

    assert openapi(schema) == {
        "type": "OBJECT",
        "required": ["name", "kind"],
        "properties": {
            "name": {"type": "STRING", "nullable": True, "maxLength": 9},
            "kind": {"type": "STRING", "enum": ["person"]},
            "size": {"type": "INTEGER", "nullable": True},
            "either": {"anyOf": [{"type": "STRING"}, {"type": "NUMBER"}]},
            "tags": {"type": "ARRAY", "items": {"type": "STRING", "enum": ["a", "b"]}},
            "mood": {"type": "STRING", "enum": ["good", "bad"], "nullable": True},
            "tone": {"type": "STRING", "enum": ["kind"]},
            "list": {"type": "ARRAY", "items": {"type": "NUMBER"}},
            "told": {"description": "a tag", "type": "STRING", "enum": ["a", "b"]},
        },
    }


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$ref": "https://example.com/x"},
        {"$ref": "#/$defs/none"},
        {"$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}, "$ref": "#/$defs/a"},
        {"type": "array", "items": True},
        {"type": "integer", "enum": [1, 2]},
        {"type": "integer", "enum": ["1", "2"]},
        {"enum": [None]},
        {"const": True},
        {"type": "null"},
        {"anyOf": [{"type": "null"}]},
        {"description": "anything"},
        {"type": "string", "nullable": True},
        {"allOf": [{"type": "integer"}, {"minimum": 1}]},
        {"properties": {"a": {"type": "string"}}, "allOf": [{"required": ["a"]}]},
        {"type": "string", "not": {"const": "a"}},
        {"type": "object", "patternProperties": {"^a": {"type": "string"}}},
        {"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "string"}},
        {"type": "object", "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
        {"properties": {"a": {"type": "string"}}, "anyOf": [{"type": "object"}]},
        {"anyOf": [{"type": "string"}], "oneOf": [{"type": "string"}]},
    ],
)
def test_a_schema_that_gemini_does_not_support_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(SchemaInvalid):
        openapi(schema)
    with pytest.raises(SchemaInvalid):
        openapi({"type": "object", "properties": {"inner": schema}})
