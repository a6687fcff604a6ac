"""Database constraints of rewrites."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.engine.state_hook import Reached, run_state_statements
from holdfast.errors import RuleBroken
from holdfast.store import Store, Tx
from holdfast.store.query import Statement
from holdfast_rewrite.enums import JOB_TYPE, Strength
from tests.apps.planted import (
    HOME,
    OTHER_HOME,
    RECIPIENT,
    SENDER,
    STRANGER,
    Planted,
    Stage,
    plant_enqueued,
    plant_queued,
)
from tests.rows import claim_by_hand, outcome_of
from tests.story import by_hand, look


def change(stage: Stage, planted: Planted, what: str, **params: Any) -> None:
    by_hand(
        stage.store,
        f"UPDATE holdfast.rewrite_request SET {what} WHERE rewrite_request_id = :id",
        id=planted.id,
        **params,
    )


def refused(rule: str, act: Callable[[], object], store: Store) -> None:
    with pytest.raises(RuleBroken) as caught:
        act()
    # SQLite gives a unique key and a foreign key no name: it says which columns, or nothing.
    is_nameless = "." in caught.value.rule or caught.value.rule == "foreign_key"
    assert caught.value.rule == rule or (store.dialect.name == "sqlite" and is_nameless)


WRITE_ONCE = [
    "sender_user_id = '0198c0de-0000-7000-8000-000000000053'",
    "recipient_user_id = '0198c0de-0000-7000-8000-000000000053'",
    "surface = 'other'",
    "iso_week = 2",
    "recipient_snapshot_id = '0198c0de-0000-7000-8000-000000000053'",
    "recipient_preference_snapshot_id = '0198c0de-0000-7000-8000-000000000053'",
    "source_locale = 'de', lane = 'cross_language'",
    "target_locale = 'de', lane = 'cross_language'",
    "rewrite_strength = 'full_reframe'",
    "request_hash = 'other'",
    "classifier_result = '{}'",
    "context_pack = '{}'",
    "policy = '{}'",
    "routing_decision = '{}'",
    "rewrite_request = '{}'",
    "job_id = '0198c0de-0000-7000-8000-000000000053'",
]


@pytest.mark.req("L-03")
@pytest.mark.req("L-09")
@pytest.mark.req("R-20")
def test_what_a_request_was_made_of_never_changes(stage: Stage) -> None:
    planted = stage.plant()

    for what in WRITE_ONCE:
        with pytest.raises(RuleBroken) as caught:
            change(stage, planted, what)
        assert caught.value.rule == "rewrite_request_write_once", what


WRONG_BEFORE = [
    ("rewrite_request_locales_known", "source_locale = 'unknown'"),
    ("rewrite_request_locales_known", "target_locale = 'und'"),
    ("rewrite_request_locales_known", "target_locale = ''"),
    ("rewrite_request_locales_known", "source_locale = 'EN'"),
    (
        "rewrite_request_lane_follows_locales",
        "source_locale = 'en', target_locale = 'en', lane = 'cross_language'",
    ),
    (
        "rewrite_request_lane_follows_locales",
        "source_locale = 'en', target_locale = 'es', lane = 'same_language'",
    ),
    ("rewrite_request_strength_known", "rewrite_strength = 'harsh'"),
    ("rewrite_request_enqueued_iff_job", "step = 'enqueued'"),
]

WRONG = [
    ("rewrite_request_step_known", "step = 'lost'"),
    ("rewrite_request_status_known", "status = 'running'"),
    ("rewrite_request_step_fits_status", "step = 'failed', failure_code = 'x', failed_at = {now}"),
    ("rewrite_request_failed_says_why", "step = 'failed', status = 'failed'"),
    ("rewrite_request_completed_says_when", "step = 'completed', status = 'completed'"),
    ("rewrite_request_whole_once_enqueued", "topics = NULL"),
    ("rewrite_request_reveal_follows_completion", "sender_reveal_at = {now}"),
]


def test_a_request_that_contradicts_itself_is_refused(stage: Stage) -> None:
    planted = stage.plant()

    for rule, what in WRONG:
        with pytest.raises(RuleBroken) as caught:
            change(stage, planted, what)
        # A step that nobody knows is also no edge; SQLite looks at that first.
        also = {"rewrite_request_edge"} if rule == "rewrite_request_step_known" else set()
        assert caught.value.rule in {rule, *also}, what


def test_a_request_never_goes_back_a_step(stage: Stage) -> None:
    request = stage.request()
    plant_queued(stage.store, request)
    planted = Planted(request, "")
    change(stage, planted, "step = 'context_built'")

    for step in ("queued", "classified"):
        with pytest.raises(RuleBroken) as caught:
            change(stage, planted, f"step = '{step}'")
        assert caught.value.rule == "rewrite_request_edge"


@pytest.mark.req("J-17")
@pytest.mark.req("L-04")
def test_locales_are_known_and_the_lane_follows_from_them(stage: Stage) -> None:
    request = stage.request()
    plant_queued(stage.store, request)

    for rule, what in WRONG_BEFORE:
        with pytest.raises(RuleBroken) as caught:
            change(stage, Planted(request, ""), what)
        assert caught.value.rule == rule, what


@pytest.mark.req("J-17")
def test_a_request_begins_queued_or_is_refused_at_the_gate(stage: Stage) -> None:
    request = stage.request()

    def insert(step: str, status: str, surface: str = "other") -> None:
        by_hand(
            stage.store,
            "INSERT INTO holdfast.rewrite_request (org_id, rewrite_request_id, sender_user_id,"
            " recipient_user_id, surface, iso_week_year, iso_week, step, status, request_id,"
            " correlation_id, created_at, updated_at) VALUES (:org, :id, :sender, :recipient,"
            " :surface, 2026, 1, :step, :status, 'r', 'c', {now}, {now})",
            org=HOME,
            id=request.rewrite_request_id,
            sender=SENDER,
            recipient=RECIPIENT,
            step=step,
            status=status,
            surface=surface,
        )

    refused("rewrite_request_begins", lambda: insert("classified", "queued"), stage.store)
    refused(
        "rewrite_request_surface_known",
        lambda: insert("queued", "queued", "weekly_feedback"),
        stage.store,
    )
    insert("queued", "queued")


@pytest.mark.req("J-26")
def test_a_request_id_is_one_in_all_homes_and_a_job_has_one_request(stage: Stage) -> None:
    planted = stage.plant()
    other = stage.request(home=OTHER_HOME)

    twin = replace(other, rewrite_request_id=planted.id)
    refused("rewrite_request_once", lambda: plant_queued(stage.store, twin), stage.store)
    second = stage.request("Please be quiet.")
    plant_queued(stage.store, second)
    refused(
        "rewrite_request_one_job",
        lambda: plant_enqueued(stage.store, Planted(second, planted.job_id)),
        stage.store,
    )


@pytest.mark.req("J-30")
@pytest.mark.req("J-31")
def test_a_completed_request_without_an_output_does_not_commit(stage: Stage) -> None:
    planted = stage.plant()
    take(stage, planted)

    def complete() -> None:
        stage.store.write(lambda tx: complete_in(tx, planted))

    refused("rewrite_request_completed_has_output", complete, stage.store)
    assert stage.row(planted)["status"] == "processing"


def take(stage: Stage, planted: Planted) -> None:
    claim_by_hand(stage.store, planted.job_id)
    reached = Reached(HOME, planted.job_id, JOB_TYPE, "processing", planted.job_id)
    stage.store.write(lambda tx: run_state_statements(tx, [reached]))


OUTPUT = (
    "INSERT INTO holdfast.rewrite_output (org_id, rewrite_request_id, recipient_user_id,"
    " rewritten_text, output_language, target_locale, provider, model, prompt_version,"
    " policy_version, lexicon_version, eval_result, created_at) VALUES (:org, :id, :who, :said,"
    " :language, :target, 'p', 'm', 'v1', :policy, 'none', '{}', {now})"
)


def output_of(planted: Planted, **values: Any) -> dict[str, Any]:
    return {
        "org": HOME,
        "id": planted.id,
        "who": RECIPIENT,
        "said": "Hello.",
        "language": "en",
        "target": "en",
        "policy": "v1",
        **values,
    }


def write_output(stage: Stage, planted: Planted, **values: Any) -> None:
    by_hand(stage.store, OUTPUT, **output_of(planted, **values))


def complete_with(stage: Stage, planted: Planted, **values: Any) -> None:
    """The completion of a job and the output of its request, in one transaction."""
    write = Statement("by_hand", "many", "", OUTPUT, frozenset())

    def both(tx: Tx) -> None:
        complete_in(tx, planted)
        tx.many(write, **output_of(planted, **values))

    stage.store.write(both)


def complete_in(tx: Tx, planted: Planted) -> None:
    """Complete a job by hand, and what follows it."""
    complete = Statement("by_hand", "many", "", outcome_of("completed"), frozenset())
    tx.many(complete, id=planted.job_id)
    run_state_statements(tx, [Reached(HOME, planted.job_id, JOB_TYPE, "completed", planted.job_id)])


@pytest.mark.req("E-04")
@pytest.mark.req("J-27")
@pytest.mark.req("O-11")
@pytest.mark.req("V-04")
def test_an_output_belongs_to_a_completed_request_and_its_recipient(stage: Stage) -> None:
    under_way = stage.plant()

    refused("rewrite_output_of_completed", lambda: write_output(stage, under_way), stage.store)

    stage.answer()
    done = stage.outputs()[0]
    assert done["recipient_user_id"] == RECIPIENT
    refused(
        "rewrite_output_of_completed",
        lambda: write_output(stage, under_way, who=STRANGER),
        stage.store,
    )
    refused("rewrite_output_pkey", lambda: write_output(stage, under_way), stage.store)
    assert stage.outputs() == [done]


@pytest.mark.req("V-04")
def test_an_output_is_written_once(stage: Stage) -> None:
    stage.plant()
    stage.answer()
    before = stage.outputs()

    for what in (
        "rewritten_text = 'Another.'",
        "eval_result = '{}'",
        "model = 'other'",
        "rewritten_text = NULL",
    ):
        with pytest.raises(RuleBroken) as caught:
            by_hand(stage.store, f"UPDATE holdfast.rewrite_output SET {what}")
        assert caught.value.rule in (
            "rewrite_output_never_changes",
            "rewrite_output_text_until_erased",
        ), what
    assert stage.outputs() == before


@pytest.mark.req("L-02")
def test_an_output_in_another_language_or_too_long_is_refused(stage: Stage) -> None:
    planted = stage.plant()
    take(stage, planted)

    for rule, values in (
        ("rewrite_output_in_target_locale", {"language": "de"}),
        ("rewrite_output_of_completed", {"language": "de", "target": "de"}),
        ("rewrite_output_length", {"said": "x" * 601}),
        ("rewrite_output_length", {"said": ""}),
    ):
        with pytest.raises(RuleBroken) as caught:
            complete_with(stage, planted, **values)
        assert caught.value.rule == rule, values
    assert (stage.outputs(), stage.row(planted)["status"]) == ([], "processing")
    complete_with(stage, planted, said="x" * 600)
    assert stage.row(planted)["status"] == "completed"


@pytest.mark.req("O-06")
@pytest.mark.req("O-08")
def test_a_message_and_its_snapshots_never_change(stage: Stage) -> None:
    stage.plant()

    for rule, what in (
        ("rewrite_message_write_once", "rewrite_message SET original_text = 'Other.'"),
        ("rewrite_message_text_until_erased", "rewrite_message SET original_text = NULL"),
        (
            "recipient_snapshot_never_changes",
            "recipient_snapshot SET recipient_user_ids = '[]'",
        ),
        (
            "preference_snapshot_never_changes",
            "recipient_preference_snapshot SET preference_payload = '{}'",
        ),
    ):
        with pytest.raises(RuleBroken) as caught:
            by_hand(stage.store, f"UPDATE holdfast.{what}")
        assert caught.value.rule == rule


def test_a_request_follows_its_job_wherever_it_goes(stage: Stage) -> None:
    planted = stage.plant()
    seen = [stage.row(planted)["status"]]
    stage.submit()
    seen.append(stage.row(planted)["status"])
    stage.hf.cancel(planted.job_id, org_id=HOME, reason="asked")
    row = stage.row(planted)

    assert [*seen, row["status"]] == ["queued", "batch_submitted", "canceled"]
    assert (row["step"], row["canceled_at"] is not None) == ("canceled", True)
    assert row["rewrite_completed_at"] is None


def test_a_sender_has_one_full_reframe_a_week_whatever_the_home(stage: Stage) -> None:
    first = stage.plant(strength=Strength.FULL_REFRAME)

    refused(
        "rewrite_request_cadence",
        lambda: stage.plant(strength=Strength.FULL_REFRAME, home=OTHER_HOME),
        stage.store,
    )
    stage.hf.cancel(first.job_id, org_id=HOME, reason="asked")
    again = stage.plant(strength=Strength.FULL_REFRAME)

    assert stage.row(again)["step"] == "enqueued"


PACKAGES = Path(__file__).resolve().parents[2] / "packages"


@pytest.mark.req("O-13")
def test_no_statement_but_the_orchestrators_says_when_a_sender_may_read(store: Store) -> None:
    writes = re.compile(r"\bsender_reveal_at\s*=(?!\s*OLD)")
    found = {
        "/".join(path.relative_to(PACKAGES).parts[1:])
        for path in PACKAGES.glob("*/holdfast*/**/*.sql")
        if writes.search(path.read_text(encoding="utf-8"))
    }

    assert found == {"holdfast_rewrite/finish.sql"}


def test_the_record_of_a_rewrite_job_holds_no_text(stage: Stage) -> None:
    planted = stage.plant()
    stage.answer()

    (record,) = look(stage.store, "SELECT * FROM holdfast.rewrite_job")

    assert record["job_id"] == planted.job_id
    told = str(dict(record))
    assert planted.request.original_text not in told
    assert "take the bins" not in told
