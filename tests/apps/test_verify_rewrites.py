"""The invariants of rewrites, each seen failing: its violation is planted and named, alone."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.operate.doctor import examine
from holdfast_rewrite.erase import erase_data
from holdfast_rewrite.finish import finish_once
from holdfast_rewrite.verify import PATIENCE
from tests.apps.planted import ORIGINAL, REWRITE, STRANGER, Planted, Stage, plant_queued
from tests.engine.planting import plant
from tests.operate.sound import assert_sound, report_of, violations

CHECKS = ("I11", "I39", "I40", "I41")


@pytest.fixture
def done(stage: Stage) -> Planted:
    """A completed rewrite; beside it others that failed, were canceled and are under way."""
    stage.plant("Please do not slam the door, number 1.")
    stage.answer({"rewritten_text": REWRITE, "output_language": "de"})
    done = stage.plant()
    stage.answer()
    canceled = stage.plant("Please do not slam the door, number 2.")
    stage.hf.cancel(canceled.job_id, org_id=canceled.request.home_id, reason="asked")
    stage.plant("Please do not slam the door, number 3.")
    stage.submit()
    finish_once(stage.store, reveal_delay=PATIENCE)
    return done


def found(stage: Stage) -> dict[str, list[str]]:
    return {
        check: [line.partition(" ")[2] for line in lines]
        for check, lines in violations(report_of(stage.hf, only=CHECKS)).items()
    }


def test_rewrites_in_every_state_are_sound_and_stay_so_when_they_are_erased(
    stage: Stage, done: Planted
) -> None:
    assert_sound(stage.hf)
    admin = stage.hf.operate(actor="user:a", role="admin").context
    erase_data(admin, home_id=done.request.home_id, reason="asked")
    assert_sound(stage.hf)


PLANTED: list[tuple[str, str, str]] = [
    (
        "I11",
        "UPDATE holdfast.rewrite_output SET output_language = 'de'",
        "its output is not in its language",
    ),
    (
        "I11",
        f"UPDATE holdfast.rewrite_output SET recipient_user_id = '{STRANGER}'",
        "it has an output for another recipient",
    ),
    (
        "I41",
        "UPDATE holdfast.rewrite_request SET erased_at = {now} WHERE rewrite_request_id = :id",
        "it is marked erased, but a text is left",
    ),
    (
        "I40",
        (
            "UPDATE holdfast.rewrite_request SET sender_reveal_at = '2020-01-01T00:00:00.000Z'"
            " WHERE rewrite_request_id = :id"
        ),
        "its sender may read it before it was completed",
    ),
    (
        "I39",
        (
            f"UPDATE holdfast.rewrite_request SET sender_user_id = '{STRANGER}'"
            " WHERE rewrite_request_id = :id"
        ),
        "its columns differ from its request",
    ),
    (
        "I39",
        (
            "UPDATE holdfast.rewrite_request SET target_locale = 'es', lane = 'cross_language'"
            " WHERE rewrite_request_id = :id"
        ),
        "its columns differ from its request",
    ),
]


# Two databases: within each, no violation causes another one's check to report its detail.
@pytest.mark.parametrize("chosen", [(0, 3, 4), (1, 2, 5)])
def test_what_is_wrong_is_named(stage: Stage, done: Planted, chosen: tuple[int, ...]) -> None:
    planted = [PLANTED[number] for number in chosen]
    for _, text, _ in planted:
        params: dict[str, Any] = {"id": done.id} if ":id" in text else {}
        plant(stage.hf, text.replace("{now}", "'2026-01-05T10:00:00.000Z'"), **params)

    named = found(stage)

    for check, _, detail in planted:
        assert detail in named[check]


def test_a_completed_request_without_its_output_is_named(stage: Stage, done: Planted) -> None:
    plant(stage.hf, "DELETE FROM holdfast.rewrite_output")

    assert found(stage) == {"I11": ["it is completed and has no output"]}


def test_an_output_of_a_request_that_is_not_completed_is_named(stage: Stage, done: Planted) -> None:
    plant(
        stage.hf,
        "UPDATE holdfast.rewrite_request SET status = 'failed', step = 'failed'"
        " WHERE rewrite_request_id = :id",
        id=done.id,
    )

    told = found(stage)

    assert told["I11"] == ["it has an output and is failed"]
    assert told["I39"] == ["it is failed, its job completed"]


def test_a_request_without_progress_is_named_after_an_hour(stage: Stage) -> None:
    plant_queued(stage.store, stage.request())
    stage.clock.advance(minutes=59)
    patient = found(stage)
    stage.clock.advance(minutes=2)

    assert patient == {}
    assert found(stage) == {"I40": ["it has no job and no failure"]}


def test_an_end_that_the_orchestrator_did_not_report_is_named(stage: Stage) -> None:
    stage.plant()
    stage.answer()
    stage.clock.advance(hours=2)

    assert found(stage) == {"I40": ["it has ended, but the orchestrator has not finished it"]}


@pytest.mark.req("X-02")
@pytest.mark.parametrize("text", [ORIGINAL, REWRITE], ids=["original", "rewrite"])
def test_a_text_that_came_out_of_its_column_is_found(
    stage: Stage, done: Planted, text: str
) -> None:
    plant(
        stage.hf,
        "UPDATE holdfast.job_outcome SET last_error = :said WHERE job_id = :id",
        said=f"the model said: {text}",
        id=done.job_id,
    )
    kind = "original_text" if text == ORIGINAL else "rewritten_text"

    assert found(stage) == {"I41": [f"its {kind} lies in its job"]}


def test_the_doctor_says_when_the_orchestrator_does_not_come(stage: Stage) -> None:
    plant_queued(stage.store, stage.request())
    watch = stage.hf.operate(actor="user:a", role="admin").context

    def looked() -> list[str]:
        return [str(one.severity) for one in examine(watch) if one.check == "rewrites"]

    stage.clock.advance(minutes=29)
    early = looked()
    stage.clock.advance(minutes=2)

    assert (early, looked()) == (["ok"], ["problem"])
