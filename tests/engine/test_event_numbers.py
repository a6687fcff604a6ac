"""On SQLite the events of the audit are numbered without gaps, so a gap shows a deleted event."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import FakeClock, Holdfast, JobRequest
from holdfast.store.dialect import SQLITE
from tests.operate.sound import report_of, violations
from tests.story import ORG, look


@pytest.fixture
def shop(hf: Holdfast) -> Holdfast:
    if hf.store.dialect is not SQLITE:
        pytest.skip("PostgreSQL numbers events with gaps")
    return hf


def numbers(hf: Holdfast) -> list[int]:
    return [row["id"] for row in look(hf.store, "SELECT id FROM holdfast.audit_entry ORDER BY id")]


def assert_gapless(hf: Holdfast) -> None:
    found = numbers(hf)
    assert found == list(range(1, len(found) + 1))
    assert violations(report_of(hf, only=["I48"])) == {}


@pytest.mark.parametrize("keys", ["bac", "bbc", "abcd", "bcca"])
def test_a_key_that_exists_or_is_repeated_takes_no_number(shop: Holdfast, keys: str) -> None:
    shop.job("order.ship")(lambda job, payload: None)
    shop.enqueue("order.ship", {"n": "a"}, org_id=ORG, idempotency_key="a")

    shop.enqueue_many(
        "order.ship", [JobRequest({"n": key}, ORG, idempotency_key=key) for key in keys]
    )

    assert_gapless(shop)


def test_outcomes_of_one_group_take_numbers_only_for_what_completed(
    shop: Holdfast, clock: FakeClock
) -> None:
    @shop.job("order.ship", max_attempts=1)
    def ship(job: Any, payload: Any) -> None:
        if payload["n"] % 2:
            raise ValueError(payload["n"])

    shop.enqueue_many("order.ship", [{"n": n} for n in range(7)], org_id=ORG)
    shop.worker().run_once()
    clock.advance(minutes=1)

    assert_gapless(shop)
