"""The contract is enforced by the database, for every connection."""

from __future__ import annotations

import itertools
import re
import uuid
from importlib import resources
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.engine.job import TRANSITIONS, State
from holdfast.store import Store
from tests.store.hand import LATER, NOON, SHAPE, insert, job_in, move, refused, update
from tests.story import ORG, OTHER_ORG, PROJECT, by_hand, look, seal_all


@pytest.fixture
def store(shared_store: Store) -> Store:
    return shared_store


PAIRS = list(itertools.permutations(State, 2))
ENDS = [state for state in State if state.is_terminal]


def state_of(store: Store, job_id: str) -> str:
    (row,) = look(store, "SELECT state FROM holdfast.job WHERE id = :id", id=job_id)
    return str(row["state"])


@pytest.mark.req("J-01", "J-06", "J-09", "J-11")
@pytest.mark.parametrize(("old", "new"), PAIRS, ids=[f"{a}-{b}" for a, b in PAIRS])
def test_a_job_moves_along_the_drawn_edges_and_no_others(
    store: Store, old: State, new: State
) -> None:
    job_id = job_in(store, old)

    if new in TRANSITIONS[old]:
        move(store, job_id, old, new)
        assert state_of(store, job_id) == new
    else:
        rules = ("job_edge", "job_ended") if old.is_terminal else ("job_edge",)
        with refused(*rules):
            move(store, job_id, old, new)
        assert state_of(store, job_id) == old


@pytest.mark.parametrize("state", list(State))
def test_a_state_that_stays_is_no_edge(store: Store, state: State) -> None:
    job_id = job_in(store, state)

    update(store, job_id, state=state, updated_at=LATER)

    assert state_of(store, job_id) == state


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("stage", "other"),
        ("attempt_count", 1),
        ("max_attempts", 9),
        ("last_error", "another"),
        ("last_error_at", LATER),
        ("error_class", "OTHER"),
        ("result", '{"rows": 2}'),
        ("finished_at", LATER),
        ("queue", "q:critical"),
        ("not_before_at", LATER),
        ("first_failed_at", LATER),
        ("provider_batch_id", "batch_9"),
        ("cancel_requested_at", NOON),
        ("lease_token", 9),
    ],
)
def test_the_outcome_of_an_ended_job_is_recorded_once(
    store: Store, end: State, column: str, value: Any
) -> None:
    job_id = job_in(store, end)

    # If a value violates a second constraint as well, the database may check that one first.
    also = {
        "lease_token": "job_lease_token",
        "result": "job_completed_iff_result",
        "queue": "job_failed_iff_dead_letter_queue",
    }
    with refused("job_ended", also.get(column, "job_ended")):
        update(store, job_id, **{column: value})


@pytest.mark.req("J-01")
@pytest.mark.parametrize("word", ["running", "succeeded", "dead", "QUEUED", ""])
def test_a_state_outside_the_six_words_cannot_be_stored(store: Store, word: str) -> None:
    job_id = job_in(store, State.QUEUED)

    with refused("job_begins_queued", "job_state_known"):
        insert(store, state=word)
    with refused("job_edge", "job_state_known"):
        update(store, job_id, state=word)


@pytest.mark.parametrize("state", [state for state in State if state is not State.QUEUED])
def test_a_job_begins_queued(store: Store, state: State) -> None:
    with refused("job_begins_queued"):
        insert(store, state=state, **SHAPE[state])


@pytest.mark.parametrize("column", ["attempt_count", "lease_token"])
def test_a_job_begins_without_attempts_and_without_a_lease(store: Store, column: str) -> None:
    with refused("job_begins_queued"):
        insert(store, **{column: 1})


@pytest.mark.req("J-36")
@pytest.mark.parametrize("word", ["admin", "User", ""])
def test_an_actor_is_a_user_the_system_or_an_api_key(store: Store, word: str) -> None:
    for known in ("user", "system", "api_key"):
        insert(store, actor_type=known)

    with refused("job_actor_known"):
        insert(store, actor_type=word)


@pytest.mark.parametrize("payload", ["[]", '"text"', "7", "null", "true"])
def test_a_payload_is_an_object(store: Store, payload: str) -> None:
    with refused("job_payload_is_object"):
        insert(store, payload=payload)


@pytest.mark.req("I-03", "X-06")
@pytest.mark.parametrize(
    "key",
    [
        f"report.export:{OTHER_ORG}::k",
        f"report.import:{ORG}::k",
        f"{ORG}:k",
        "k",
        "",
        f"report.export:{ORG}",
    ],
)
def test_a_key_names_the_type_and_the_tenant_of_its_own_job(store: Store, key: str) -> None:
    with refused("job_key_names_its_tenant"):
        insert(store, idempotency_key=key)


@pytest.mark.req("I-02", "I-11")
def test_a_key_belongs_to_one_job(store: Store) -> None:
    key = f"report.export:{ORG}::once"
    insert(store, idempotency_key=key)

    with refused("job_once_per_key", "holdfast_job.org_id, holdfast_job.idempotency_key"):
        insert(store, idempotency_key=key)


def test_an_execution_unit_belongs_to_one_job_of_a_tenant(store: Store) -> None:
    insert(store, unit_key="message-1:recipient-1")
    insert(store, unit_key="message-1:recipient-1", org_id=OTHER_ORG)

    with (
        refused("job_once_per_unit")
        if store.dialect.name == "postgres"
        else refused("holdfast_job.org_id, holdfast_job.job_type, holdfast_job.unit_key")
    ):
        insert(store, unit_key="message-1:recipient-1")


CHANGED = {
    "id": "0198c0de-0000-7000-8000-0000000000ff",
    "org_id": OTHER_ORG,
    "project_id": PROJECT,
    "job_type": "report.import",
    "category": "export",
    "actor_type": "user",
    "actor_id": "other",
    "request_id": "other",
    "correlation_id": "other",
    "idempotency_key": f"report.export:{ORG}::other",
    "payload": '{"project": 8}',
    "payload_hash": "other",
    "unit_key": "other",
    "scheduled_for": LATER,
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "routing_decision": '{"provider": "other"}',
    "replay_of": "0198c0de-0000-7000-8000-0000000000fe",
    "origin_queue": "q:critical",
    "created_at": LATER,
}
NULLABLE = {
    "project_id": "0198c0de-0000-7000-8000-0000000000ab",
    "unit_key": "mine",
    "scheduled_for": NOON,
    "traceparent": "00-1af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "routing_decision": '{"provider": "openai"}',
    "replay_of": "0198c0de-0000-7000-8000-0000000000fd",
}


def test_every_write_once_column_is_tried() -> None:
    text = resources.files("holdfast.store").joinpath("migrations/0002_job.sql").read_text()
    found = re.search(r"job_write_once BEFORE UPDATE OF (.*?) ON holdfast\.job", text, re.DOTALL)

    assert found is not None
    assert {name.strip() for name in found[1].split(",")} == set(CHANGED)


@pytest.mark.parametrize("column", list(CHANGED))
def test_what_an_enqueue_wrote_never_changes(store: Store, column: str) -> None:
    unit = {"unit_key": str(uuid.uuid4())}
    empty, filled = insert(store), insert(store, **NULLABLE | unit)

    for job_id in (empty, filled):
        with refused("job_write_once"):
            update(store, job_id, **{column: CHANGED[column]})
    if column in NULLABLE:
        with refused("job_write_once"):
            update(store, filled, **{column: None})


@pytest.mark.req("P-05")
@pytest.mark.parametrize("value", ["batch_2", None])
def test_the_first_provider_batch_of_a_job_is_immutable(store: Store, value: str | None) -> None:
    submitted = job_in(store, State.BATCH_SUBMITTED)
    returned = job_in(store, State.BATCH_SUBMITTED)
    move(store, returned, State.BATCH_SUBMITTED, State.QUEUED)

    for job_id in (submitted, returned):
        with refused("job_batch_write_once", "job_submitted_names_its_batch"):
            update(store, job_id, provider_batch_id=value)


def test_a_submitted_job_names_its_batch(store: Store) -> None:
    job_id = job_in(store, State.PROCESSING)

    with refused("job_submitted_names_its_batch"):
        by_hand(
            store,
            "UPDATE holdfast.job SET state = 'batch_submitted', lease_expires_at = NULL,"
            " claimed_at = NULL, claimed_by = NULL WHERE id = :id",
            id=job_id,
        )


@pytest.mark.parametrize(
    ("state", "token"),
    [
        (State.PROCESSING, "lease_token"),
        (State.PROCESSING, "lease_token + 2"),
        (State.PROCESSING, "lease_token - 1"),
        (State.CANCELED, "lease_token + 1"),
    ],
)
def test_a_claim_raises_the_lease_token_by_one(store: Store, state: State, token: str) -> None:
    job_id = insert(store)
    columns = {"state": state, **SHAPE[state]}
    changes = ", ".join(f"{name} = :{name}" for name in columns)

    with refused("job_lease_token"):
        by_hand(
            store,
            f"UPDATE holdfast.job SET {changes}, lease_token = {token} WHERE id = :id",
            id=job_id,
            **columns,
        )


@pytest.mark.parametrize("change", ["lease_token + 1", "lease_token - 1", "0"])
def test_nothing_but_a_claim_changes_the_lease_token(store: Store, change: str) -> None:
    job_id = job_in(store, State.PROCESSING)

    with refused("job_lease_token"):
        by_hand(store, f"UPDATE holdfast.job SET lease_token = {change} WHERE id = :id", id=job_id)


@pytest.mark.parametrize("count", [3, 5, 0])
def test_attempts_are_counted_one_at_a_time(store: Store, count: int) -> None:
    job_id = job_in(store, State.PROCESSING)
    update(store, job_id, attempt_count=1)

    with refused("job_attempts"):
        update(store, job_id, attempt_count=count)


def test_attempts_start_over_only_with_the_next_stage(store: Store) -> None:
    job_id = job_in(store, State.PROCESSING)
    update(store, job_id, attempt_count=1)

    update(store, job_id, attempt_count=0, stage="second")

    (row,) = look(store, "SELECT attempt_count FROM holdfast.job WHERE id = :id", id=job_id)
    assert row["attempt_count"] == 0


def test_attempts_stay_within_their_budget(store: Store) -> None:
    job_id = job_in(store, State.PROCESSING, max_attempts=1)
    update(store, job_id, attempt_count=1)

    with refused("job_attempts_in_budget"):
        update(store, job_id, attempt_count=2)
    with refused("job_attempts_in_budget"):
        insert(store, max_attempts=-1)


LEASE = ["lease_expires_at", "claimed_at", "claimed_by"]


@pytest.mark.parametrize("column", LEASE)
def test_a_processing_job_has_its_whole_lease_and_no_other_job_has_any(
    store: Store, column: str
) -> None:
    queued, running = job_in(store, State.QUEUED), job_in(store, State.PROCESSING)

    with refused("job_lease_iff_processing"):
        update(store, running, **{column: None})
    with refused("job_lease_iff_processing"):
        update(store, queued, **{column: NOON})


@pytest.mark.req("J-31", "E-04")
@pytest.mark.parametrize("state", list(State))
def test_only_completed_jobs_have_a_result(store: Store, state: State) -> None:
    job_id = job_in(store, State.PROCESSING)
    result = None if state is State.COMPLETED else '{"rows": 1}'

    with refused("job_completed_iff_result"):
        update(store, job_id, **{**SHAPE[state], "state": state, "result": result})


@pytest.mark.parametrize("column", ["finished_at", "key_expires_at"])
@pytest.mark.parametrize("state", ENDS)
def test_an_ended_job_says_when(store: Store, state: State, column: str) -> None:
    job_id = job_in(store, State.PROCESSING)

    with refused("job_finished_iff_terminal"):
        update(store, job_id, **{**SHAPE[state], "state": state, column: None})


@pytest.mark.parametrize("column", ["error_class", "last_error", "last_error_at"])
def test_a_failed_job_says_why(store: Store, column: str) -> None:
    job_id = job_in(store, State.PROCESSING)

    with refused("job_failed_says_why"):
        update(store, job_id, **{**SHAPE[State.FAILED], "state": State.FAILED, column: None})


def test_the_dead_letter_queue_holds_failed_jobs_and_only_those(store: Store) -> None:
    job_id = job_in(store, State.PROCESSING)

    with refused("job_failed_iff_dead_letter_queue"):
        insert(store, queue="q:deadletter")
    with refused("job_failed_iff_dead_letter_queue"):
        update(
            store, job_id, **{**SHAPE[State.FAILED], "state": State.FAILED, "queue": "q:default"}
        )


@pytest.mark.parametrize("state", list(State))
def test_a_job_leaves_only_when_it_has_ended(store: Store, state: State) -> None:
    job_id = job_in(store, state)
    delete = "DELETE FROM holdfast.job WHERE id = :id RETURNING id"

    if state.is_terminal:
        assert len(by_hand(store, delete, id=job_id)) == 1
    else:
        with refused("job_leaves_only_when_ended"):
            by_hand(store, delete, id=job_id)


def test_the_audit_outlives_its_job(store: Store) -> None:
    job_id = job_in(store, State.CANCELED)

    by_hand(store, "DELETE FROM holdfast.job WHERE id = :id", id=job_id)

    (event,) = look(store, "SELECT name FROM holdfast.job_event WHERE job_id = :id", id=job_id)
    assert event["name"] == "job.enqueued"


@pytest.mark.req("A-07", "A-09")
def test_every_job_has_its_first_event_for_every_writer(store: Store) -> None:
    job_id = insert(store, project_id=PROJECT, actor_type="user", actor_id="42")

    (event,) = look(
        store,
        "SELECT name, org_id, project_id, job_type, attempt, actor_type, actor_id, request_id,"
        " correlation_id FROM holdfast.job_event WHERE job_id = :id",
        id=job_id,
    )
    assert dict(event) == {
        "name": "job.enqueued",
        "org_id": ORG,
        "project_id": PROJECT,
        "job_type": "report.export",
        "attempt": 1,
        "actor_type": "user",
        "actor_id": "42",
        "request_id": "r1",
        "correlation_id": "c1",
    }


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("UPDATE holdfast.job_event SET actor_id = 'somebody else'", "job_event_never_changes"),
        ("UPDATE holdfast.job_event SET at = at", "job_event_never_changes"),
        ("DELETE FROM holdfast.job_event", "job_event_never_leaves"),
        ("UPDATE holdfast.audit_seal SET digest = 'forged'", "audit_seal_never_changes"),
        ("DELETE FROM holdfast.audit_seal", "audit_seal_never_leaves"),
    ],
)
def test_the_audit_is_append_only(store: Store, text: str, rule: str) -> None:
    insert(store)
    seal_all(store)
    assert look(store, "SELECT number FROM holdfast.audit_seal")

    with refused(rule):
        by_hand(store, text)


@pytest.mark.parametrize(
    ("table", "rule"),
    [
        ("job_event", "job_event_never_truncated"),
        ("audit_seal", "audit_seal_never_truncated"),
        ("job CASCADE", None),
    ],
)
def test_the_audit_survives_a_truncate(postgres_url: str, table: str, rule: str | None) -> None:
    with Holdfast(postgres_url) as hf:
        job_id = insert(hf.store)

        if rule is None:
            by_hand(hf.store, f"TRUNCATE holdfast.{table}")
        else:
            with refused(rule):
                by_hand(hf.store, f"TRUNCATE holdfast.{table}")

        events = "SELECT name FROM holdfast.job_event WHERE job_id = :id"
        assert look(hf.store, events, id=job_id)


def insert_stage(store: Store, job_id: str, org_id: str = ORG, **columns: Any) -> None:
    row = {"org_id": org_id, "job_id": job_id, "stage": "fetch", "updated_at": NOON, **columns}
    names, places = ", ".join(row), ", ".join(":" + name for name in row)
    by_hand(store, f"INSERT INTO holdfast.job_stage ({names}) VALUES ({places})", **row)


@pytest.mark.parametrize(
    "change", ["output = '{\"b\": 2}'", "finished_at = :later", "attempts = 9", "checkpoint = '1'"]
)
def test_the_result_of_a_finished_stage_never_changes(store: Store, change: str) -> None:
    job_id = job_in(store, State.PROCESSING)
    insert_stage(store, job_id, output='{"a": 1}', finished_at=NOON)

    with refused("job_stage_output_write_once"):
        by_hand(
            store,
            f"UPDATE holdfast.job_stage SET {change} WHERE job_id = :id",
            id=job_id,
            later=LATER,
        )


@pytest.mark.parametrize("columns", [{"output": '{"a": 1}'}, {"finished_at": NOON}])
def test_a_stage_has_an_output_when_it_is_finished_and_not_before(
    store: Store, columns: dict[str, str]
) -> None:
    job_id = job_in(store, State.PROCESSING)

    with refused("job_stage_output_iff_finished"):
        insert_stage(store, job_id, **columns)


@pytest.mark.req("X-06")
def test_a_stage_belongs_to_the_tenant_of_its_job(store: Store) -> None:
    job_id = job_in(store, State.PROCESSING)

    with refused("job_stage_org_id_job_id_fkey", "foreign_key"):
        insert_stage(store, job_id, org_id=OTHER_ORG)


def insert_letter(store: Store, job_id: str, **columns: Any) -> None:
    row = {
        "org_id": ORG,
        "job_id": job_id,
        "job_type": "report.export",
        "queue": "q:default",
        "stage": "",
        "error_class": "GONE",
        "last_error": "it is gone",
        "last_stack": "",
        "sanitized_context": "{}",
        "attempts": 1,
        "first_failure_at": NOON,
        "last_failure_at": NOON,
        "created_at": NOON,
        **columns,
    }
    names, places = ", ".join(row), ", ".join(":" + name for name in row)
    by_hand(store, f"INSERT INTO holdfast.dead_letter ({names}) VALUES ({places})", **row)


def test_a_job_has_one_dead_letter_of_its_own_tenant(store: Store) -> None:
    job_id = job_in(store, State.FAILED)
    insert_letter(store, job_id)

    with refused("dead_letter_pkey", "holdfast_dead_letter.org_id, holdfast_dead_letter.job_id"):
        insert_letter(store, job_id)
    with refused("dead_letter_org_id_job_id_fkey", "foreign_key"):
        insert_letter(store, job_id, org_id=OTHER_ORG)


def test_a_dead_letter_does_not_end_before_it_begins(store: Store) -> None:
    job_id = job_in(store, State.FAILED)

    with refused("dead_letter_times_in_order"):
        insert_letter(store, job_id, first_failure_at=LATER)
