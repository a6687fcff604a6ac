"""Documents: values that both databases can store, one text, one hash."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.document import (
    MAX_DEPTH,
    BadDocument,
    canonical,
    check,
    decode,
    encode,
    parse,
    stable_hash,
)

TEXT = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=20)
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | NUMBERS | TEXT
DOCUMENTS = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth - 1):
        value = [value]
    return value


@given(DOCUMENTS)
def test_a_good_document_survives_writing_and_reading(value: Any) -> None:
    check(value)

    assert decode(encode(value)) == value
    assert parse(encode(value)) == value


@pytest.mark.parametrize(
    "bad",
    [
        math.nan, math.inf, -math.inf, 10**400, b"bytes", {1}, object(), 1j, datetime.now(UTC),
        "a\x00b", "\ud800", {"\x00": 1}, {"\udfff": 1}, {1: 2}, {None: 1},
    ],
)  # fmt: skip
def test_what_json_or_a_database_cannot_hold_is_refused_wherever_it_hides(bad: object) -> None:
    for hidden in (bad, [bad], {"a": {"b": [bad]}}):
        with pytest.raises(BadDocument):
            check(hidden)


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 1_000, 100_000])
def test_deep_nesting_is_refused_without_exhausting_the_stack(depth: int) -> None:
    with pytest.raises(BadDocument, match="nested deeper"):
        check(nested(depth))


def test_the_deepest_allowed_nesting_is_allowed() -> None:
    check(nested(MAX_DEPTH))


def test_a_document_that_contains_itself_is_refused() -> None:
    loop: dict[str, Any] = {}
    loop["self"] = loop

    with pytest.raises(BadDocument, match="nested deeper"):
        check(loop)


def test_too_many_values_are_refused() -> None:
    with pytest.raises(BadDocument, match="more than"):
        check(list(range(10_001)))


def test_only_plain_containers_are_accepted_so_that_whatever_is_can_be_written() -> None:
    with pytest.raises(BadDocument, match="has a mappingproxy at a"):
        check({"a": MappingProxyType({"b": 1})})
    with pytest.raises(BadDocument, match="has a mappingproxy at a"):
        canonical({"a": MappingProxyType({"b": 1})})


@given(DOCUMENTS)
def test_the_canonical_text_is_one_text_and_means_the_same(value: Any) -> None:
    text = canonical(value)

    assert decode(text) == value
    assert canonical(decode(text)) == text


WILD = st.recursive(
    st.none() | st.floats() | st.text(max_size=5) | st.integers(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=10,
)


@given(WILD)
def test_the_fast_way_to_the_text_refuses_exactly_what_the_check_refuses(value: Any) -> None:
    def refuses(judge: Callable[[Any], object]) -> bool:
        try:
            judge(value)
        except BadDocument:
            return True
        return False

    assert refuses(canonical) == refuses(check)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"a": NaN}', "NaN"),
        ('{"a": Infinity}', "Infinity"),
        ('{"a": 1e400}', "infinity"),
        ("9" * 5_000, "JSON"),
        ('{"a": 1, "a": 2}', "same key twice"),
        ('{"x": {"a": 1, "b": 2, "a": 3}}', "same key twice"),
        ('"\\u0000"', "NUL"),
        ('"\\ud800"', "surrogate"),
        ("[" * 100_000 + "]" * 100_000, "nested deeper"),
        ("[" * 33 + "]" * 33, "nested deeper"),
        ("", "JSON"),
        ("{", "JSON"),
        ("\ufeff{}", "JSON"),
        (b"\xff\xfe{}", "UTF-8"),
        ('{"a": 1}'.encode("utf-16"), "UTF-8"),
    ],
)
def test_hostile_json_is_refused_with_the_reason(text: str | bytes, says: str) -> None:
    with pytest.raises(BadDocument, match=says):
        parse(text)


@given(st.binary(max_size=200) | st.text(max_size=200))
def test_no_input_breaks_the_parser_in_any_other_way(text: str | bytes) -> None:
    try:
        value = parse(text)
    except BadDocument:
        return
    check(value)


@pytest.mark.req("I-06")
@given(DOCUMENTS, st.randoms())
def test_equal_inputs_have_equal_hashes_whatever_the_order_of_keys(value: Any, rng: Any) -> None:
    def shuffled(node: Any) -> Any:
        if isinstance(node, dict):
            items = list(node.items())
            rng.shuffle(items)
            return {key: shuffled(item) for key, item in items}
        if isinstance(node, list):
            return [shuffled(item) for item in node]
        return node

    assert stable_hash(value) == stable_hash(shuffled(value))
    assert stable_hash(value) == stable_hash(json.loads(json.dumps(value)))


@pytest.mark.req("I-06")
def test_one_instant_has_one_hash_in_every_zone() -> None:
    utc = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
    delhi = utc.astimezone(timezone(timedelta(hours=5, minutes=30)))

    assert stable_hash("x", utc) == stable_hash("x", delhi)
    assert stable_hash("x", utc) != stable_hash("x", utc + timedelta(seconds=1))


@pytest.mark.req("I-06")
@pytest.mark.parametrize(
    ("left", "right"),
    [(("a", "b"), ("ab",)), (("1",), (1,)), (({"a": 1},), ({"a": 2},)), ((None,), ("null",)),
     ((True,), (1,)), (([1, 2],), ([2, 1],))],
)  # fmt: skip
def test_different_inputs_have_different_hashes(left: tuple[Any], right: tuple[Any]) -> None:
    assert stable_hash(*left) != stable_hash(*right)


def test_a_whole_float_hashes_as_its_integer() -> None:
    assert stable_hash({"n": 2.0}) == stable_hash({"n": 2})


def test_a_timestamp_without_a_zone_has_no_hash() -> None:
    with pytest.raises(BadDocument, match="time zone"):
        stable_hash(datetime(2026, 1, 1))  # noqa: DTZ001
