"""Database constraints of reviews."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from holdfast import State
from holdfast.errors import RuleBroken
from holdfast.store import Store
from tests.apps_review.bench import ANN, BEN, Bench
from tests.story import ORG, by_hand, look


def refused(rule: str, act: Callable[[], object], store: Store) -> None:
    with pytest.raises(RuleBroken) as caught:
        act()
    # SQLite gives a unique key no name; its error lists the columns.
    is_nameless = store.dialect.name == "sqlite" and "." in caught.value.rule
    assert caught.value.rule == rule or is_nameless


def change(bench: Bench, what: str, table: str = "review") -> None:
    by_hand(bench.hf.store, f"UPDATE holdfast.{table} SET {what}")


def add_finding(bench: Bench, ids: dict[str, str]) -> None:
    by_hand(
        bench.hf.store,
        "INSERT INTO holdfast.finding"
        " (org_id, review_id, number, file, severity, message, confidence)"
        " VALUES (:org, :id, 9, 'a', 'low', 'x', 'low')",
        **ids,
    )


def test_what_a_review_is_of_never_changes(bench: Bench) -> None:
    bench.submit()
    # Without it PostgreSQL would refuse a foreign key before it checks the constraint.
    add = "INSERT INTO holdfast.changelist (org_id, changelist_id, created_at)"
    by_hand(bench.hf.store, f"{add} SELECT org_id, 'cl-2', created_at FROM holdfast.review")

    for what, rule in (
        ("review_version = 7", "review_write_once"),
        ("changelist_id = 'cl-2'", "review_write_once"),
        ("idempotency_key = 'x'", "review_write_once"),
        ("request_hash = 'x'", "review_write_once"),
        ("job_id = '0198c0de-0000-7000-8000-0000000000aa'", "review_write_once"),
        ("is_rerun = 1", "review_write_once"),
        ("status = 'lost'", "review_status_known"),
        ("status = 'completed'", "review_succeeded_when_told"),
        ("finding_count = 3", "review_criticised_whole"),
        ("intended_at = created_at", "review_told_after_criticised"),
        ("erased_at = created_at, summary = 'x'", "review_erased_says_nothing"),
    ):
        refused(rule, partial(change, bench, what), bench.hf.store)


def test_what_was_erased_stays_so(bench: Bench) -> None:
    asked = bench.submit()
    bench.reviews.erase("cl-1", org_id=ORG, reason="asked for")
    ids = {"org": ORG, "id": asked.review.review_id}

    refused("review_write_once", lambda: change(bench, "erased_at = NULL"), bench.hf.store)
    refused("review_erased_says_nothing", lambda: change(bench, "summary = 'x'"), bench.hf.store)
    refused("finding_before_telling", lambda: add_finding(bench, ids), bench.hf.store)


def test_a_part_and_its_answer_never_change(bench: Bench) -> None:
    bench.submit()
    add = (
        "INSERT INTO holdfast.review_part (org_id, review_id, number, change_key, artifact_id,"
        " answer, created_at) SELECT org_id, review_id, {number}, 'k', review_id, '{{}}',"
        " created_at FROM holdfast.review"
    )
    by_hand(bench.hf.store, add.format(number=0))

    for what, rule in (
        ("change_key = 'other'", "review_part_never_changes"),
        ("artifact_id = '0198c0de-0000-7000-8000-0000000000aa'", "review_part_never_changes"),
        ("answer = '[]'", "review_part_never_changes"),
        ("job_id = review_id", "review_part_asked_whole"),
    ):
        refused(rule, partial(change, bench, what, "review_part"), bench.hf.store)
    bad = add.format(number=-1)
    refused("review_part_numbered", lambda: by_hand(bench.hf.store, bad), bench.hf.store)


@pytest.mark.req("N-14")
def test_success_is_refused_while_a_required_recipient_is_not_notified(bench: Bench) -> None:
    asked = bench.submit(to=[ANN, BEN])
    change(bench, "criticised_at = created_at, finding_count = 0")
    change(bench, "intended_at = created_at")

    act = lambda: change(bench, "status = 'completed', succeeded_at = created_at")  # noqa: E731
    refused("review_succeeded_when_told", act, bench.hf.store)

    assert bench.again(asked).state is State.QUEUED


@pytest.mark.req("N-14")
def test_a_job_that_claims_success_too_early_is_buried_not_completed(bench: Bench) -> None:
    stage = bench.hf.registry.handlers["review.process"].stages[2]
    object.__setattr__(stage, "function", lambda job, payload: {"done": True})
    asked = bench.submit()

    bench.work_out()

    assert bench.again(asked).state is State.FAILED
    assert look(bench.hf.store, "SELECT succeeded_version AS v FROM holdfast.changelist") == [
        {"v": None}
    ]


@pytest.mark.req("N-01")
def test_what_succeeded_stays_so(bench: Bench) -> None:
    bench.succeed()

    act = lambda: change(bench, "status = 'failed', succeeded_at = NULL")  # noqa: E731
    refused("review_succeeded_stays", act, bench.hf.store)
    refused(
        "changelist_version_grows",
        lambda: change(bench, "succeeded_version = 0", "changelist"),
        bench.hf.store,
    )


INSERT = """
INSERT INTO holdfast.review
    (org_id, review_id, changelist_id, review_version, idempotency_key, request_hash, source,
     is_rerun, job_id, status, request_id, correlation_id, created_at, updated_at)
SELECT org_id, CAST(:id AS {uuid}), changelist_id, CAST(:version AS integer), :key, request_hash,
       source, CAST(:rerun AS integer), CAST(:id AS {uuid}), :status, request_id, correlation_id,
       created_at, updated_at
FROM holdfast.review
"""


def insert(bench: Bench, **more: Any) -> None:
    given = {
        "id": "0198c0de-0000-7000-8000-0000000000bb",
        "version": 2,
        "key": "other",
        "rerun": 0,
        "status": "queued",
        **more,
    }
    by_hand(bench.hf.store, INSERT, **given)


def test_a_version_has_one_review_and_begins_with_it(bench: Bench) -> None:
    bench.submit()

    refused("review_once", lambda: insert(bench, version=1), bench.hf.store)
    refused("review_version_positive", lambda: insert(bench, version=0), bench.hf.store)
    refused("review_begins_queued", lambda: insert(bench, status="processing"), bench.hf.store)


def test_a_key_has_one_review(bench: Bench) -> None:
    key = bench.submit().review.idempotency_key

    refused("review_once_per_key", lambda: insert(bench, key=key), bench.hf.store)


@pytest.mark.req("N-02")
@pytest.mark.parametrize("more", [{}, {"version": 1, "rerun": 1}], ids=["no flag", "not higher"])
def test_once_one_succeeded_another_is_a_rerun_with_a_higher_version(
    bench: Bench, more: dict[str, Any]
) -> None:
    bench.succeed()

    refused("review_above_succeeded", lambda: insert(bench, **more), bench.hf.store)


def test_recipients_are_immutable(bench: Bench) -> None:
    bench.submit()

    for what in (
        "recipient = 'eve'",
        "channel = 'x'",
        "is_required = 0",
        "address = 'eve@example.org'",
    ):
        refused(
            "review_recipient_never_changes",
            partial(change, bench, what, "review_recipient"),
            bench.hf.store,
        )


def test_recipients_and_findings_are_fixed_after_the_first_notification(bench: Bench) -> None:
    asked = bench.succeed()
    ids = {"org": ORG, "id": asked.review.review_id}

    def add_recipient() -> None:
        by_hand(
            bench.hf.store,
            "INSERT INTO holdfast.review_recipient"
            " (org_id, review_id, recipient, channel, is_required, created_at)"
            " VALUES (:org, :id, 'eve', 'post', 1, {now})",
            **ids,
        )

    refused("review_recipient_before_telling", add_recipient, bench.hf.store)
    refused("finding_before_telling", lambda: add_finding(bench, ids), bench.hf.store)


def test_a_finding_is_of_a_known_kind(bench: Bench) -> None:
    bench.succeed()

    for what, rule in (
        ("number = 0", "finding_numbered"),
        ("line = 0", "finding_line_positive"),
        ("severity = 'awful'", "finding_severity_known"),
        ("confidence = 'sure'", "finding_confidence_known"),
    ):
        only = f"{what} WHERE number = 1"
        refused(rule, partial(change, bench, only, "finding"), bench.hf.store)
