"""Grouping: which items share a batch, its name, and its limits."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.clock import FakeClock
from holdfast.engine.job import Claimed
from holdfast_llm.batch.group import (
    BatchKey,
    Draft,
    Wanted,
    batch_key_of,
    batch_of,
    custom_id,
    fits_nowhere,
    key_of,
    name_of,
    place,
    place_in,
    secret_of,
    smaller_batch_size,
)
from holdfast_llm.provider.adapter import Limits
from holdfast_llm.provider.route import Route
from tests.batch.scripted import ScriptedAccounts, ScriptedProvider

BATCH = "0198c0de-0000-7000-8000-0000000000c1"
JOB = "0198c0de-0000-7000-8000-0000000000d1"
ROUTE = Route(
    "openai", "scripted", "gpt-5.2", prompt_version="v3", policy_version="v1", target_locale="en-US"
)
ACCOUNT = ScriptedAccounts(ScriptedProvider(FakeClock())).for_route(ROUTE)
KEY = batch_key_of(ROUTE, ACCOUNT, merge=False)


def wanted(key: BatchKey = KEY, *, size: int = 100, tokens: int = 10, **limit: Any) -> Wanted:
    limits = replace(Limits(max_items=1_000, max_bytes=1_000_000), **limit)
    job: Any = object()
    held: Claimed = job
    return Wanted(held, key, key.group_key, limits, size, tokens, "", None)


def numbered() -> Any:
    return (f"batch-{number}" for number in count(1))


@pytest.mark.req("P-08", "P-09")
def test_identical_routes_share_a_batch() -> None:
    again = batch_key_of(Route.read(ROUTE.decision), ACCOUNT, merge=False)

    assert again == KEY
    assert KEY.group_key == "openai|gpt-5.2|v3|v1|batch|||en-US"


@pytest.mark.req("P-08", "P-10", "P-16")
@pytest.mark.parametrize(
    "other",
    [
        {"target_locale": "es-ES"},
        {"source_locale": "de"},
        {"prompt_version": "v4"},
        {"policy_version": "v2"},
        {"lane": "fast"},
        {"model": "gpt-5.3"},
    ],
)
def test_routes_that_differ_in_one_part_of_the_key_never_share_a_batch(
    other: dict[str, Any],
) -> None:
    assert batch_key_of(replace(ROUTE, **other), ACCOUNT, merge=False) != KEY


@pytest.mark.req("P-17")
def test_groups_of_one_model_share_a_batch_where_a_deployment_asks_for_it() -> None:
    merged = batch_key_of(ROUTE, ACCOUNT, merge=True)

    assert batch_key_of(replace(ROUTE, target_locale="es-ES"), ACCOUNT, merge=True) == merged
    assert batch_key_of(replace(ROUTE, model="gpt-5.3"), ACCOUNT, merge=True) != merged


@given(st.uuids())
def test_a_key_is_26_plain_letters_and_leads_back_to_its_batch(batch: Any) -> None:
    key = key_of(str(batch))

    assert re.fullmatch(r"[a-z2-7]{26}", key)
    assert batch_of(key) == str(batch)


@given(st.text(max_size=40))
def test_what_is_no_key_names_no_batch(text: str) -> None:
    found = batch_of(text)

    assert found is None or key_of(found) == text


def test_a_file_is_called_the_same_from_every_worker() -> None:
    name = name_of(BATCH, 2, "prod")

    assert name.file == f"hf-{key_of(BATCH)}-2"
    assert re.fullmatch(r"[a-z0-9-]{1,40}", name.file)
    assert name.metadata == {"hf_key": key_of(BATCH), "hf_try": "2", "hf_env": "prod"}


@given(st.integers(min_value=0, max_value=999_999))
def test_an_items_name_is_legal_everywhere_and_bound_to_its_place(index: int) -> None:
    secret = secret_of("", ACCOUNT.key)
    name = custom_id(secret, BATCH, index, JOB, 1)

    assert re.fullmatch(r"hf1_[a-z2-7]{16}_[0-9a-z]{1,4}_[0-9a-f]{8}", name)
    assert len(name) <= 36
    assert name != custom_id(secret, BATCH, index + 1, JOB, 1)
    assert name != custom_id(secret, BATCH, index, JOB, 2)
    assert name != custom_id(secret_of("a key of our own", ACCOUNT.key), BATCH, index, JOB, 1)


def test_a_batch_is_full_when_it_has_as_many_items_as_it_may() -> None:
    found = place([wanted(max_items=2) for _ in range(5)], {}, {}, numbered())

    assert [(one.batch_id, one.index) for one in found.placed] == [
        ("batch-1", 0),
        ("batch-1", 1),
        ("batch-2", 0),
        ("batch-2", 1),
        ("batch-3", 0),
    ]
    assert [(draft.id, draft.items) for draft in found.full] == [("batch-1", 2), ("batch-2", 2)]
    assert found.drafts[KEY].items == 1


def test_suspect_items_have_few_companions_and_no_others() -> None:
    apart = replace(KEY, most_items=2)
    found = place([wanted(apart), wanted(), wanted(apart), wanted(apart)], {}, {}, numbered())

    assert [one.batch_id for one in found.placed] == ["batch-1", "batch-2", "batch-1", "batch-3"]


@given(st.integers(2, 50_000), st.integers(1, 20))
def test_a_suspect_item_is_alone_by_its_last_attempt(items: int, attempts: int) -> None:
    for left in range(attempts, 0, -1):
        smaller = smaller_batch_size(items, left)
        assert 1 <= smaller < items or items == smaller == 1
        items = smaller

    assert items == 1


def test_a_batch_is_full_when_another_line_would_be_too_much() -> None:
    found = place([wanted(size=400, max_bytes=1_000) for _ in range(3)], {}, {}, numbered())

    assert [draft.bytes for draft in found.full] == [800]
    assert found.drafts[KEY].bytes == 400


def test_a_page_continues_where_the_previous_page_stopped() -> None:
    before = {KEY: Draft("batch-0", KEY, items=7, bytes=700, input_tokens=70)}
    found = place([wanted(), wanted()], before, {}, numbered())

    assert [(one.batch_id, one.index) for one in found.placed] == [("batch-0", 7), ("batch-0", 8)]
    assert found.begun == set()
    assert found.drafts[KEY].input_tokens == 90


@pytest.mark.req("B-03")
def test_what_goes_beyond_the_accounts_tokens_is_overflow() -> None:
    asked = [wanted(tokens=40, enqueued_tokens=100) for _ in range(3)]
    found = place(asked, {}, {KEY.reserve: 10}, numbered())

    assert len(found.placed) == 2
    assert found.overflow == asked[2:]


def test_a_smaller_request_takes_the_room_that_a_larger_one_could_not() -> None:
    asked = [wanted(tokens=tokens, enqueued_tokens=100) for tokens in (60, 50, 40)]
    found = place(asked, {}, {}, numbered())

    assert [one.wanted.input_tokens for one in found.placed] == [60, 40]
    assert found.overflow == [asked[1]]


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), max_size=60))
def test_no_batch_is_ever_over_a_limit_and_nothing_is_lost(sizes: list[tuple[int, int]]) -> None:
    asked = [
        wanted(size=size, tokens=tokens, max_items=4, max_bytes=100, enqueued_tokens=300)
        for size, tokens in sizes
    ]
    found = place(asked, {}, {}, numbered())

    batches: dict[str, list[Any]] = {}
    for one in found.placed:
        batches.setdefault(one.batch_id, []).append(one)
    assert len(found.placed) + len(found.overflow) == len(asked)
    assert sum(one.wanted.input_tokens for one in found.placed) <= 300
    for held in batches.values():
        assert [one.index for one in held] == list(range(len(held)))
        assert len(held) <= 4
        assert sum(one.wanted.size for one in held) <= 100


def test_a_request_too_large_for_every_batch_is_separated() -> None:
    limits = Limits(max_items=10, max_bytes=1_000, max_line_bytes=500, enqueued_tokens=100)

    assert fits_nowhere(501, 1, limits)
    assert fits_nowhere(1, 101, limits)
    assert not fits_nowhere(500, 100, limits)


@given(st.integers(min_value=0, max_value=2**31 - 1))
def test_a_custom_id_names_its_place(index: int) -> None:
    assert place_in(custom_id(b"secret", BATCH, index, JOB, 1)) == index


@pytest.mark.parametrize(
    "name",
    [
        "",
        "not-ours",
        "call_7",
        "hf1_abcdefgh234567ab_zzzzzzz_0badcafe",
        "hf1_abcdefgh234567ab_-1_0badcafe",
        "hf1_abcdefgh234567ab_1_0_0badcafe",
        "hf1_abcdefgh234567ab_\u0661_0badcafe",
        "hf1_abcdefgh234567ab_1_0badcafe\n",
    ],
)
def test_another_id_names_no_place(name: str) -> None:
    assert place_in(name) is None
