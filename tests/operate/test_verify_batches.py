"""Every invariant of batch processing: its violation is planted, and only that is reported."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import FakeClock, Holdfast
from tests.batch.planted import Planted, Stage, set_stage
from tests.operate.at_provider import plant_claim_of_submitter
from tests.operate.planting import plant
from tests.operate.sound import assert_sound, by_rule, report_of
from tests.story import ORG, OTHER_ORG


@pytest.fixture
def stage(hf: Holdfast, clock: FakeClock) -> Stage:
    return set_stage(hf, clock)


@pytest.fixture
def open_batch(stage: Stage) -> Planted:
    """A batch of two tenants at the provider, and one that is collected."""
    stage.plant("one", "two")
    stage.provider.complete()
    stage.collect(minutes=5)
    return stage.plant("three", "four", "five", org_id=(ORG, OTHER_ORG, ORG))


def found(hf: Holdfast) -> dict[str, list[str]]:
    """The violations, without the subjects."""
    return {
        check: [line.partition(" ")[2] for line in lines]
        for check, lines in by_rule(report_of(hf)).items()
    }


def change(hf: Holdfast, table: str, changes: str, where: str, **params: Any) -> None:
    plant(hf, f"UPDATE holdfast.{table} SET {changes} WHERE {where}", **params)


def of_item(batch: Planted, place: int) -> dict[str, Any]:
    return {"batch_id": batch.id, "place": place}


ITEM = "batch_id = :batch_id AND batch_item_index = :place"


def test_batches_under_way_and_collected_are_sound(hf: Holdfast, open_batch: Planted) -> None:
    assert_sound(hf)
    for org_id in (ORG, OTHER_ORG):
        assert by_rule(report_of(hf, org_id=org_id)) == {}


def test_a_batch_that_failed_item_by_item_is_sound(stage: Stage, open_batch: Planted) -> None:
    lines = stage.provider.batches[open_batch.at_provider.id].lines
    assert len(lines) == 3
    stage.hf.cancel(open_batch.jobs[0].id, org_id=ORG, reason="not needed")
    assert_sound(stage.hf)
    stage.provider.complete()
    stage.collect(minutes=5)

    assert stage.states(open_batch) == ["canceled", "completed", "completed"]
    assert_sound(stage.hf)


# -- I1 to I5: the lifecycle of jobs in batches


def test_a_job_in_state_submitted_that_was_not_submitted(hf: Holdfast, open_batch: Planted) -> None:
    plant(
        hf,
        "DELETE FROM holdfast.audit_event WHERE job_id = :id AND name = 'job.submitted'",
        id=open_batch.jobs[0].id,
    )

    assert found(hf) == {
        "I1": ["its state is batch_submitted, its event history ends in processing"],
        "I22": ["it refers to a batch that it was never submitted to"],
    }


def test_a_job_that_was_requeued_while_it_was_submitted(hf: Holdfast, open_batch: Planted) -> None:
    plant(
        hf,
        "INSERT INTO holdfast.audit_event (org_id, job_id, job_type, name, attempt, actor_type,"
        " actor_id, request_id, correlation_id, at, detail) SELECT org_id, job_id, job_type,"
        " 'job.retried', attempt, actor_type, actor_id, request_id, correlation_id, at, NULL"
        " FROM holdfast.audit_event WHERE job_id = :id AND name = 'job.submitted'",
        id=open_batch.jobs[0].id,
    )

    assert found(hf) == {"I1": ["its state is batch_submitted, its event history ends in queued"]}


def test_a_lease_that_ran_out_inside_a_batch_waits_for_its_recovery(
    hf: Holdfast, stage: Stage, open_batch: Planted, clock: FakeClock
) -> None:
    """A submitter that was killed before it recorded the batch of the provider."""
    job_id = open_batch.jobs[0].id
    plant_claim_of_submitter(hf, job_id, "w", until=clock.now())
    plant(
        hf,
        "DELETE FROM holdfast.audit_event WHERE job_id = :id AND name = 'job.submitted'",
        id=job_id,
    )
    change(hf, "provider_batch", "state = 'creating'", "id = :id", id=open_batch.id)
    for other in open_batch.jobs[1:]:
        assert other.id != job_id
    clock.advance(hours=3)

    # The other two jobs are submitted, but the create of their batch is not recorded.
    assert set(found(hf)) == {"I22"}
    assert all("batch is creating" in line for line in found(hf)["I22"] if "item" in line)


# -- I22: a submitted job is an item of a batch


def test_a_submitted_job_without_a_place(hf: Holdfast, open_batch: Planted) -> None:
    plant(hf, f"DELETE FROM holdfast.batch_item WHERE {ITEM}", **of_item(open_batch, 2))
    change(hf, "provider_batch", "items = 2", "id = :id", id=open_batch.id)

    assert found(hf) == {"I22": ["it is submitted, but no open batch contains it"]}


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        (
            "DELETE FROM holdfast.job_submitted",
            "its batch is submitted, its job queued under another claim",
        ),
        (
            "UPDATE holdfast.job_submitted SET lease_token = lease_token + 1",
            "its batch is submitted, its job batch_submitted under another claim",
        ),
    ],
)
def test_a_place_whose_job_is_elsewhere(
    hf: Holdfast, open_batch: Planted, statement: str, told: str
) -> None:
    plant(hf, f"{statement} WHERE job_id = :id", id=open_batch.jobs[0].id)

    assert told in found(hf)["I22"]


def test_a_job_that_names_another_batch_than_its_first(hf: Holdfast, open_batch: Planted) -> None:
    job_id = open_batch.jobs[0].id
    change(hf, "job_submitted", "provider_batch_id = 'batch_x'", "job_id = :id", id=job_id)

    assert found(hf) == {
        "I22": ["it refers to another batch than the first that it was submitted to"]
    }


# -- I23: positions


def test_a_place_that_is_missing(hf: Holdfast, open_batch: Planted) -> None:
    change(hf, "provider_batch", "items = 4", "id = :id", id=open_batch.id)

    assert found(hf) == {"I23": ["it says 4 items, and has 3, from 0 to 2"]}


def test_places_with_a_gap(hf: Holdfast, open_batch: Planted) -> None:
    change(hf, "batch_item", "batch_item_index = 7", ITEM, **of_item(open_batch, 2))

    assert found(hf) == {
        "I23": [
            "it says 3 items, and has 3, from 0 to 7",
            "its custom id does not match its position",
        ]
    }


def test_an_item_that_is_named_after_another_place(hf: Holdfast, open_batch: Planted) -> None:
    name = open_batch.names[1].replace("_1_", "_z_")
    change(hf, "batch_item", "custom_id = :name", ITEM, name=name, **of_item(open_batch, 1))

    assert found(hf) == {"I23": ["its custom id does not match its position"]}


# -- I24: groups


def test_an_item_of_another_group(hf: Holdfast, open_batch: Planted) -> None:
    (group,) = {"openai|model-1|v9||batch||en|de"}
    change(hf, "batch_item", "group_key = :group", ITEM, group=group, **of_item(open_batch, 0))

    assert found(hf) == {
        "I24": ["its group differs from its batch's", "its job belongs to another group"]
    }


def test_a_batch_may_merge_the_groups_of_a_model(hf: Holdfast, open_batch: Planted) -> None:
    merged = "openai|model-1|||batch|||"
    change(hf, "provider_batch", "group_key = :group", "id = :id", group=merged, id=open_batch.id)

    assert_sound(hf)


# -- I25: ends


def test_an_open_item_of_a_batch_that_is_over(hf: Holdfast, open_batch: Planted) -> None:
    change(
        hf,
        "provider_batch",
        "state = 'collected', collected_at = created_at",
        "id = :id",
        id=open_batch.id,
    )

    told = found(hf)
    assert set(told) == {"I22", "I25"}
    assert told["I25"] == ["its batch is collected, and its outcome is unknown"] * 3


def test_an_answer_that_its_job_did_not_hear_of(hf: Holdfast, open_batch: Planted) -> None:
    change(
        hf,
        "batch_item",
        "state = 'failed', is_open = 0, recorded_at = created_at",
        ITEM,
        **of_item(open_batch, 0),
    )

    told = found(hf)
    assert told["I25"] == ["it is failed, and its job is still batch_submitted"]
    assert set(told) == {"I22", "I25"}


# -- I26: no duplicates


def test_a_unit_that_two_open_items_have(hf: Holdfast, open_batch: Planted) -> None:
    index = "batch_item_one_open_per_unit"
    schema = "" if hf.store.dialect.name == "sqlite" else "holdfast."
    plant(hf, f"DROP INDEX {schema}{index}")
    change(
        hf,
        "batch_item",
        "unit = (SELECT unit FROM (SELECT unit, batch_id, batch_item_index"
        " FROM holdfast.batch_item) AS other WHERE other.batch_id = :batch_id"
        " AND other.batch_item_index = 0)",
        ITEM,
        **of_item(open_batch, 2),
    )

    told = found(hf)
    assert told.pop("I38") == ["it is missing"]
    assert told == {"I26": ["2 items of one execution unit can be executed"]}


# -- I29, I31, I34, I36, I37: invariants of all rows


def test_a_batch_that_was_moved_by_an_unauthorized_role(
    hf: Holdfast, stage: Stage, open_batch: Planted
) -> None:
    desk = hf.operate(actor="user:op", role="operator").batches(stage.service)
    desk.cancel(open_batch.id, reason="not needed")
    assert_sound(hf)
    plant(
        hf,
        "UPDATE holdfast.audit_event SET detail = :detail WHERE name = 'batch.cancel_requested'",
        detail='{"role": "member", "reason": "not needed"}',
    )

    assert found(hf) == {"I34": ["it records batch.cancel_requested by member"]}


def test_an_item_of_another_tenants_job(hf: Holdfast, open_batch: Planted) -> None:
    change(hf, "batch_item", "org_id = :org", ITEM, org=OTHER_ORG, **of_item(open_batch, 0))

    told = found(hf)
    assert told["I29"] == ["it refers to a job of another tenant"]


def test_a_providers_words_in_an_error_code(hf: Holdfast, open_batch: Planted) -> None:
    code = "Dear canary-77aa your key sk-proj-abcdefghijklmnopqrstuvwx is wrong"
    change(hf, "batch_item", "error_code = :code", ITEM, code=code, **of_item(open_batch, 0))

    told = by_rule(report_of(hf, canaries=["canary-77aa"]))
    assert set(told) == {"I31"}
    assert any("canary 1" in line for line in told["I31"])


def test_a_batch_from_the_future(hf: Holdfast, open_batch: Planted) -> None:
    ahead = "updated_at = '2031-01-01T00:00:00.000Z'"
    change(hf, "provider_batch", ahead, "id = :id", id=open_batch.id)

    assert found(hf) == {"I36": ["one of its timestamps is in the future"]}


def test_an_answer_that_is_not_in_the_ledger(hf: Holdfast, open_batch: Planted) -> None:
    plant(hf, "DELETE FROM holdfast.provider_call WHERE batch_item_index = 0")

    assert found(hf) == {"I37": ["it was answered without a ledger entry"]}
