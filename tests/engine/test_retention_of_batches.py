"""Ended batches are deleted in steps; open batches and undeleted files are kept."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast import FakeClock, Holdfast
from holdfast.config import RetentionSettings
from holdfast_llm.batch.maintenance import prune_batches
from tests.operate.at_provider import plant_batch, plant_items
from tests.operate.sound import report_of, violations
from tests.story import ORG, by_hand, look

MONTH = RetentionSettings(keep_days=30.0)


def batches(hf: Holdfast) -> set[str]:
    return {str(row["id"]) for row in look(hf.store, "SELECT id FROM holdfast.provider_batch")}


def items(hf: Holdfast) -> int:
    (row,) = look(hf.store, "SELECT count(*) AS items FROM holdfast.batch_item")
    return int(row["items"])


def forget_files(hf: Holdfast, batch_id: str) -> None:
    by_hand(
        hf.store,
        "UPDATE holdfast.provider_batch SET files_deleted_at = {now}, updated_at = {now}"
        " WHERE id = :id RETURNING id",
        id=batch_id,
    )


def test_a_batch_leaves_when_its_retention_is_over(hf: Holdfast, clock: FakeClock) -> None:
    batch_id = plant_batch(hf, "collected", items=3)
    plant_items(hf, batch_id, ORG, 3, state="succeeded")
    forget_files(hf, batch_id)

    clock.advance(timedelta(days=30))
    assert prune_batches(hf.store, MONTH, limit=100) == 0
    clock.advance(seconds=1)
    assert prune_batches(hf.store, MONTH, limit=100) == 3
    assert (batches(hf), items(hf)) == (set(), 0)


def test_many_items_leave_a_piece_at_a_time_and_verify_does_not_mind(
    hf: Holdfast, clock: FakeClock
) -> None:
    batch_id = plant_batch(hf, "released", items=7)
    plant_items(hf, batch_id, ORG, 7, state="released")
    forget_files(hf, batch_id)
    clock.advance(timedelta(days=91))
    quarter = RetentionSettings()

    assert prune_batches(hf.store, quarter, limit=3) == 3
    assert (batches(hf), items(hf)) == ({batch_id}, 4)
    assert violations(report_of(hf, only=["I23"])) == {}
    assert prune_batches(hf.store, quarter, limit=3) == 3
    assert prune_batches(hf.store, quarter, limit=3) == 1
    assert (batches(hf), items(hf)) == (set(), 0)
    assert prune_batches(hf.store, quarter, limit=3) == 0


@pytest.mark.parametrize("state", ["submitted", "ended", "quarantined", "creating"])
def test_an_unfinished_batch_is_never_pruned(hf: Holdfast, clock: FakeClock, state: str) -> None:
    batch_id = plant_batch(hf, state, items=2)
    plant_items(hf, batch_id, ORG, 2)
    clock.advance(timedelta(days=1000))

    assert prune_batches(hf.store, MONTH, limit=100) == 0
    assert (batches(hf), items(hf)) == ({batch_id}, 2)


def test_a_batch_whose_files_are_still_at_the_provider_stays(
    hf: Holdfast, clock: FakeClock
) -> None:
    batch_id = plant_batch(hf, "collected", items=1)
    plant_items(hf, batch_id, ORG, 1, state="failed")
    calls = plant_batch(hf, "collected", items=1, mode="async")
    clock.advance(timedelta(days=100))

    # Direct calls leave no files.
    prune_batches(hf.store, MONTH, limit=100)
    assert batches(hf) == {batch_id}
    assert calls not in batches(hf)
