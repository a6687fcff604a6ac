"""Requests: valid fields, and errors before any call."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest

from holdfast.errors import SchemaInvalid
from holdfast_llm.provider.request import Request


def test_a_list_of_inputs_is_as_good_as_a_tuple() -> None:
    assert Request(["one", "two"]) == Request(("one", "two"))  # type: ignore[arg-type]
    assert Request(("one",), parameters=MappingProxyType({"top_p": 0.5})).parameters == {
        "top_p": 0.5
    }


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("inputs", "one text"),
        ("inputs", ()),
        ("inputs", []),
        ("inputs", ("",)),
        ("inputs", (None,)),
        ("inputs", ("one", 5)),
        ("inputs", None),
        ("inputs", {"one": "two"}),
        ("instructions", None),
        ("instructions", ("one",)),
        ("schema", "object"),
        ("schema", [{"type": "object"}]),
        ("schema_name", ""),
        ("schema_name", "two words"),
        ("schema_name", "x" * 65),
        ("max_output_tokens", 0),
        ("max_output_tokens", -100_000),
        ("max_output_tokens", "800"),
        ("max_output_tokens", 800.0),
        ("max_output_tokens", True),
        ("max_output_tokens", 10**30),
        ("wants_echo", "yes"),
        ("parameters", None),
        ("parameters", [("top_p", 1)]),
        ("parameters", {"top_p": float("nan")}),
        ("parameters", {"top_p": float("inf")}),
        ("parameters", {"seed": object()}),
        ("parameters", {1: "one"}),
    ],
)
def test_what_no_provider_could_be_sent_is_refused_by_the_name_of_its_field(
    field: str, value: Any
) -> None:
    with pytest.raises(SchemaInvalid, match=f"A request's {field} must be") as refused:
        Request(**{"inputs": ("hello",), field: value})

    assert refused.value.context == {"field": field}
