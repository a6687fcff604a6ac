"""The contract is enforced by the database, for every connection."""

from __future__ import annotations

import itertools
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

from holdfast import Holdfast
from holdfast.engine.job import TRANSITIONS, Actor, ActorType, Completed, State
from holdfast.engine.settle import settle
from holdfast.errors import StoreError
from holdfast.store import Store, digest
from holdfast.store.dialect import SQLITE
from tests.store.hand import (
    A_CLAIM,
    LATER,
    MOVED,
    NEXT_EVENT,
    NOON,
    claim_by_hand,
    claim_of,
    end,
    end_attempt,
    insert,
    insert_row,
    job_in,
    move,
    record,
    refused,
    submit,
)
from tests.story import ORG, OTHER_ORG, PROJECT, by_hand, claim, look, seal_all

SYSTEM = Actor(ActorType.SYSTEM, "w1")


@pytest.fixture
def store(shared_store: Store) -> Store:
    return shared_store


PAIRS = list(itertools.permutations(State, 2))
ENDS = [state for state in State if state.is_terminal]
TWICE = {
    table: (f"{table}_pkey", f"holdfast_{table}.org_id, holdfast_{table}.job_id")
    for table in ("job_outcome", "job_running", "job_submitted", "job_waiting", "job_cancel")
}


def state_of(store: Store, job_id: str) -> str:
    return str(record(store, job_id)["state"])


def places_of(store: Store, job_id: str) -> list[str]:
    """The places of a job. One that has not ended has one."""
    return [
        table
        for table in ("job_ready", "job_waiting", "job_running", "job_submitted")
        if look(store, f"SELECT job_id FROM holdfast.{table} WHERE job_id = :id", id=job_id)
    ]


PLACES = {
    State.QUEUED: ["job_ready"],
    State.PROCESSING: ["job_running"],
    State.BATCH_SUBMITTED: ["job_submitted"],
}


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
        # If a row violates a second rule as well, the database may check that one first.
        rules: tuple[str, ...] = (MOVED,)
        if new.is_terminal:
            rules += (*TWICE["job_outcome"], "job_outcome_was_claimed")
        with refused(*rules):
            move(store, job_id, old, new)
        assert state_of(store, job_id) == old
    assert places_of(store, job_id) == PLACES.get(State(state_of(store, job_id)), [])


@pytest.mark.parametrize("state", list(State))
def test_a_state_that_stays_is_no_edge(store: Store, state: State) -> None:
    job_id = job_in(store, state)

    if state is State.QUEUED:
        with refused(MOVED):
            move(store, job_id, state, state)
    else:
        with refused(MOVED, *TWICE["job_outcome"], *TWICE["job_running"], *TWICE["job_submitted"]):
            move(store, job_id, state, state)

    assert state_of(store, job_id) == state


@pytest.mark.parametrize("token", [0, 1, 3])
@pytest.mark.parametrize("ended", [end, end_attempt, submit])
def test_only_the_holder_of_the_lease_ends_a_claim(
    store: Store, ended: Callable[..., None], token: int
) -> None:
    job_id = job_in(store, State.PROCESSING)
    end_attempt(store, job_id)
    claim_by_hand(store, job_id)
    assert record(store, job_id)["lease_token"] == 2

    state = [State.COMPLETED] if ended is end else []
    with refused(MOVED, "job_outcome_was_claimed"):
        ended(store, job_id, *state, lease_token=token)
    assert state_of(store, job_id) == State.PROCESSING

    ended(store, job_id, *state)
    assert state_of(store, job_id) != State.PROCESSING


@pytest.mark.parametrize("token", [0, 2])
@pytest.mark.parametrize("ended", [end, end_attempt])
def test_only_the_claim_that_was_submitted_ends_it(
    store: Store, ended: Callable[..., None], token: int
) -> None:
    job_id = job_in(store, State.BATCH_SUBMITTED)

    state = [State.COMPLETED] if ended is end else []
    with refused(MOVED, "job_outcome_was_claimed"):
        ended(store, job_id, *state, lease_token=token)
    assert state_of(store, job_id) == State.BATCH_SUBMITTED


@pytest.mark.parametrize("state", list(State))
def test_only_a_running_job_continues_with_the_next_stage(store: Store, state: State) -> None:
    job_id = job_in(store, state)

    if state is State.PROCESSING:
        end_attempt(store, job_id, keeps_lease=True, stage="second")
        assert record(store, job_id)["stage"] == "second"
    else:
        with refused(MOVED):
            end_attempt(store, job_id, keeps_lease=True, stage="second")
    assert state_of(store, job_id) == state


@pytest.mark.parametrize("end_state", ENDS)
@pytest.mark.parametrize("deferred", [{}, {"not_before_at": LATER}], ids=["ready", "deferred"])
def test_only_a_cancel_ends_a_job_that_waits(
    store: Store, deferred: dict[str, Any], end_state: State
) -> None:
    fresh, tried = insert(store, **deferred), job_in(store, State.PROCESSING)
    end_attempt(store, tried, attempt_count=0, **deferred)
    assert record(store, tried)["lease_token"] == 1

    for job_id, token in ((fresh, 0), (tried, 1)):
        # A cancel that does not know the last claim is refused as well.
        with refused(MOVED):
            end(store, job_id, end_state, lease_token=token + 1)
        if end_state is State.CANCELED:
            end(store, job_id, end_state)
            assert places_of(store, job_id) == []
        else:
            with refused(*(("job_outcome_was_claimed",) if job_id == fresh else (MOVED,))):
                end(store, job_id, end_state)
            assert len(places_of(store, job_id)) == 1


@pytest.mark.parametrize("deferred", [{}, {"not_before_at": LATER}], ids=["ready", "deferred"])
def test_a_worker_that_lost_its_lease_cannot_cancel_the_job_that_waits(
    store: Store, deferred: dict[str, Any]
) -> None:
    job_id = job_in(store, State.PROCESSING)
    lost = claim_of(store, job_id)
    end_attempt(store, job_id, **deferred)
    assert lost is not None

    with refused(MOVED):
        end(store, job_id, State.CANCELED, **lost)
    assert len(places_of(store, job_id)) == 1

    end(store, job_id, State.CANCELED)
    assert places_of(store, job_id) == []


ANOTHER_CLAIM = {
    "started_event_id": 1,
    "started_attempt": 7,
    "claimed_at": LATER,
    "claimed_by": "w9",
}


@pytest.mark.parametrize("column", list(ANOTHER_CLAIM))
@pytest.mark.parametrize("place", [State.PROCESSING, State.BATCH_SUBMITTED])
def test_the_end_of_a_claim_names_that_claim(store: Store, place: State, column: str) -> None:
    insert(store)
    job_id = job_in(store, place)
    other = {column: ANOTHER_CLAIM[column]}

    for state in ENDS:
        with refused(MOVED, "job_attempts"):
            end(store, job_id, state, **other)
    with refused(MOVED, "job_attempts"):
        end_attempt(store, job_id, **other)
    if place is State.PROCESSING:
        with refused(MOVED, "job_attempts"):
            submit(store, job_id, **other)
    assert places_of(store, job_id) == PLACES[place]


@pytest.mark.parametrize("other", [{"queue": "q:critical"}, {"stage": "other"}])
def test_a_submission_is_that_of_its_claim(store: Store, other: dict[str, str]) -> None:
    job_id = job_in(store, State.PROCESSING, stage="first")

    with refused(MOVED):
        submit(store, job_id, **other)
    submit(store, job_id)
    assert places_of(store, job_id) == ["job_submitted"]


FACTS: dict[str, Callable[[Store, str], None]] = {
    "job_outcome": lambda store, job_id: insert_row(
        store,
        "job_outcome",
        {
            "org_id": ORG,
            "job_id": job_id,
            "finished_at": NOON,
            "key_expires_at": LATER,
            "lease_token": 0,
            "attempt_count": 0,
            "state": "canceled",
        },
    ),
    "job_attempt": lambda store, job_id: insert_row(
        store,
        "job_attempt",
        {
            "org_id": ORG,
            "job_id": job_id,
            "number": 1,
            **A_CLAIM,
            "lease_token": 1,
            "ended_at": NOON,
            "attempt_count": 0,
            "max_attempts": 5,
            "keeps_lease": False,
            "stage": "",
            "pipeline_version": "",
        },
    ),
    "job_running": lambda store, job_id: insert_row(
        store,
        "job_running",
        {
            "org_id": ORG,
            "job_id": job_id,
            "turn": job_id,
            **A_CLAIM,
            "started_event_id": NEXT_EVENT,
            "lease_expires_at": LATER,
            "lease_token": 1,
            "attempt_count": 0,
            "max_attempts": 5,
            "queue": "q:default",
            "limit_key": "",
            "stage": "",
            "claimed_by": "w1",
        },
    ),
    "job_submitted": lambda store, job_id: insert_row(
        store,
        "job_submitted",
        {
            "org_id": ORG,
            "job_id": job_id,
            **A_CLAIM,
            "submitted_at": NOON,
            "lease_token": 1,
            "queue": "q:default",
            "stage": "",
            "provider_batch_id": "batch_1",
        },
    ),
    "job_cancel": lambda store, job_id: insert_row(
        store, "job_cancel", {"org_id": ORG, "job_id": job_id, "requested_at": NOON}
    ),
}


@pytest.mark.parametrize("table", list(FACTS))
def test_there_is_no_fact_without_a_job(store: Store, table: str) -> None:
    job_id = str(uuid.uuid4())

    with refused(MOVED, "job_cancel_org_id_job_id_fkey", "foreign_key"):
        FACTS[table](store, job_id)

    assert not look(store, f"SELECT * FROM holdfast.{table} WHERE job_id = :id", id=job_id)


@pytest.mark.req("X-06")
@pytest.mark.parametrize("state", [State.QUEUED, State.PROCESSING, State.BATCH_SUBMITTED])
def test_a_fact_of_another_tenant_moves_no_job(store: Store, state: State) -> None:
    job_id = job_in(store, state)
    tried: list[Callable[..., None]] = [claim_by_hand, end_attempt, submit]

    for write in tried:
        with refused(MOVED):
            write(store, job_id, org_id=OTHER_ORG)
    for ended in ENDS:
        with refused(MOVED, "job_outcome_was_claimed"):
            end(store, job_id, ended, org_id=OTHER_ORG)
    assert state_of(store, job_id) == state
    assert places_of(store, job_id) == PLACES[state]


@pytest.mark.parametrize("state", list(State))
@pytest.mark.parametrize("place", ["job_ready", "job_waiting"])
def test_no_writer_but_an_attempt_queues_a_job(store: Store, state: State, place: str) -> None:
    job_id = job_in(store, state)
    before = places_of(store, job_id)
    row = {
        "queue": "q:default",
        "limit_key": "",
        "org_id": ORG,
        "turn": job_id,
        "job_id": job_id,
        "created_at": NOON,
        "lease_token": 0,
        "unit": "",
    }
    if place == "job_waiting":
        row["not_before_at"] = LATER

    also = "holdfast_job_ready.queue, holdfast_job_ready.limit_key, holdfast_job_ready.org_id"
    with refused(f"{place}_follows", "job_ready_pkey", f"{also}, holdfast_job_ready.turn"):
        insert_row(store, place, row)
    assert places_of(store, job_id) == before


def test_a_deferred_job_gets_no_second_place(store: Store) -> None:
    deferred = insert(store, not_before_at=LATER)
    elsewhere = insert(store, queue="q:critical")
    row = {"limit_key": "", "org_id": ORG, "created_at": NOON, "lease_token": 0, "unit": ""}

    for job_id in (deferred, elsewhere):
        ids = {"turn": job_id, "job_id": job_id, "queue": "q:default"}
        for place, time in (("job_ready", {}), ("job_waiting", {"not_before_at": LATER})):
            with refused(f"{place}_follows", *TWICE["job_waiting"]):
                insert_row(store, place, row | ids | time)
    assert places_of(store, deferred) == ["job_waiting"]
    assert places_of(store, elsewhere) == ["job_ready"]


@pytest.mark.parametrize(
    ("place", "state"),
    [
        ("job_ready", State.QUEUED),
        ("job_waiting", State.QUEUED),
        ("job_running", State.PROCESSING),
        ("job_submitted", State.BATCH_SUBMITTED),
    ],
)
def test_no_job_is_taken_from_its_place(store: Store, place: str, state: State) -> None:
    deferred = {"not_before_at": LATER} if place == "job_waiting" else {}
    job_id = job_in(store, state, **deferred)

    with refused(f"{place}_follows", f"{place}_leaves"):
        by_hand(store, f"DELETE FROM holdfast.{place} WHERE job_id = :id", id=job_id)
    assert places_of(store, job_id) == [place]


# Times and names that a renewal or a pass over due jobs changes.
MAY_CHANGE = {
    "job_ready": set[str](),
    "job_waiting": {"not_before_at", "queue"},
    "job_running": {"lease_expires_at"},
    "job_submitted": set[str](),
}


@pytest.mark.parametrize("place", list(MAY_CHANGE))
def test_a_place_changes_only_with_its_job(store: Store, place: str) -> None:
    states = {"job_running": State.PROCESSING, "job_submitted": State.BATCH_SUBMITTED}
    deferred = {"not_before_at": LATER} if place == "job_waiting" else {}
    job_id = job_in(store, states.get(place, State.QUEUED), **deferred)
    (row,) = look(store, f"SELECT * FROM holdfast.{place} WHERE job_id = :id", id=job_id)

    for column, value in row.items():
        if column in MAY_CHANGE[place]:
            continue
        other = value + 1 if isinstance(value, int) else OTHER_ORG if "-" in str(value) else "x"
        other = LATER if column.endswith("_at") else other
        with refused(f"{place}_follows", f"{place}_write_once"):
            by_hand(
                store,
                f"UPDATE holdfast.{place} SET {column} = :other WHERE job_id = :id",
                id=job_id,
                other=other,
            )
    (after,) = look(store, f"SELECT * FROM holdfast.{place} WHERE job_id = :id", id=job_id)
    assert dict(after) == dict(row)


FACT_TABLES = ["job_outcome", "job_attempt", "job_cancel"]


def with_facts(store: Store, state: State = State.FAILED) -> str:
    """A job that was tried once before, for which a cancel was requested, and that ended."""
    job_id = job_in(store, State.PROCESSING)
    why = {"error_class": "X", "last_error": "x", "last_error_at": NOON, "first_failed_at": NOON}
    end_attempt(store, job_id, attempt_count=1, **why)
    claim_by_hand(store, job_id)
    FACTS["job_cancel"](store, job_id)
    end(store, job_id, state)
    return job_id


@pytest.mark.req("J-06")
@pytest.mark.parametrize("end_state", ENDS)
def test_the_outcome_of_an_ended_job_is_recorded_once(store: Store, end_state: State) -> None:
    job_id = with_facts(store, end_state)
    before = dict(record(store, job_id))

    for table in FACT_TABLES:
        (row,) = look(store, f"SELECT * FROM holdfast.{table} WHERE job_id = :id", id=job_id)
        for column in row:
            # Any value is refused, also the old one.
            with refused(f"{table}_never_changes"):
                by_hand(
                    store,
                    f"UPDATE holdfast.{table} SET {column} = {column} WHERE job_id = :id",
                    id=job_id,
                )
    for other in ENDS:
        with refused(MOVED, *TWICE["job_outcome"]):
            end(store, job_id, other)
    with refused(*TWICE["job_cancel"], "job_cancel_never_changes"):
        FACTS["job_cancel"](store, job_id)
    assert dict(record(store, job_id)) == before


@pytest.mark.parametrize("table", FACT_TABLES)
def test_a_fact_is_deleted_only_with_its_job(store: Store, table: str) -> None:
    job_id = with_facts(store)

    with refused(f"{table}_stays"):
        by_hand(store, f"DELETE FROM holdfast.{table} WHERE job_id = :id", id=job_id)
    assert look(store, f"SELECT * FROM holdfast.{table} WHERE job_id = :id", id=job_id)

    by_hand(store, "DELETE FROM holdfast.job_envelope WHERE id = :id", id=job_id)
    assert not look(store, f"SELECT * FROM holdfast.{table} WHERE job_id = :id", id=job_id)


@pytest.mark.parametrize("view", ["job", "job_event", "idempotency_key"])
@pytest.mark.parametrize(
    "text",
    ["UPDATE holdfast.{view} SET org_id = org_id", "DELETE FROM holdfast.{view}"],
)
def test_a_record_is_read_only(store: Store, view: str, text: str) -> None:
    insert(store)

    with pytest.raises(StoreError, match=r"view|append-only"):
        by_hand(store, text.format(view=view))


@pytest.mark.req("J-01")
@pytest.mark.parametrize("word", ["running", "succeeded", "dead", "QUEUED", "queued", ""])
def test_a_state_outside_the_six_words_cannot_be_stored(store: Store, word: str) -> None:
    """A stored state is an outcome; the others are places."""
    job_id = job_in(store, State.PROCESSING)

    with refused("job_outcome_known"):
        by_hand(
            store,
            "INSERT INTO holdfast.job_outcome (org_id, job_id, finished_at, key_expires_at,"
            " started_event_id, started_attempt, claimed_at, claimed_by, lease_token,"
            " attempt_count, state)"
            " VALUES (:org_id, :id, :at, :at, 1, 1, :at, 'w1', 1, 0, :word)",
            org_id=ORG,
            id=job_id,
            at=NOON,
            word=word,
        )
    assert state_of(store, job_id) == State.PROCESSING


def test_a_job_begins_queued_without_attempts_and_without_a_lease(store: Store) -> None:
    """An envelope has no column in which it could begin otherwise."""
    job_id = insert(store)
    (row,) = look(store, "SELECT * FROM holdfast.job_envelope WHERE id = :id", id=job_id)
    job = record(store, job_id)

    assert not {"state", "attempt_count", "lease_token", "claimed_by", "result"} & set(row)
    assert (job["state"], job["attempt_count"], job["lease_token"]) == ("queued", 0, 0)
    assert job["claimed_by"] is job["lease_expires_at"] is job["finished_at"] is None


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

    with refused("job_once_per_key"):
        insert(store, idempotency_key=key)


def test_an_execution_unit_belongs_to_one_job_of_a_tenant(store: Store) -> None:
    insert(store, unit_key="message-1:recipient-1")
    insert(store, unit_key="message-1:recipient-1", org_id=OTHER_ORG)

    with refused("job_once_per_unit"):
        insert(store, unit_key="message-1:recipient-1")


CHANGED = {
    "event_id": 999_999,
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
    "not_before_at": LATER,
    "queue": "q:critical",
    "limit_key": "other",
    "priority": 10,
    "turn": "0198c0de-0000-7000-8000-0000000000fc",
    "max_attempts": 9,
    "stage": "other",
    "pipeline_version": "2",
    "scheduled_for": LATER,
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "routing_decision": '{"provider": "other"}',
    "replay_of": "0198c0de-0000-7000-8000-0000000000fe",
    "origin_queue": "q:critical",
    "created_at": LATER,
}
NULLABLE = {
    "request_id": "mine",
    "correlation_id": "mine",
    "queue": "q:exports",
    "not_before_at": NOON,
    "turn": "0198c0de-0000-7000-8000-0000000000fb",
    "project_id": "0198c0de-0000-7000-8000-0000000000ab",
    "unit_key": "mine",
    "scheduled_for": NOON,
    "traceparent": "00-1af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "routing_decision": '{"provider": "openai"}',
    "replay_of": "0198c0de-0000-7000-8000-0000000000fd",
}


def test_every_write_once_column_is_tried(store: Store) -> None:
    job_id = insert(store)
    (row,) = look(store, "SELECT * FROM holdfast.job_envelope WHERE id = :id", id=job_id)

    assert set(row) == set(CHANGED)


@pytest.mark.parametrize("column", list(CHANGED))
def test_what_an_enqueue_wrote_never_changes(store: Store, column: str) -> None:
    unit = {"unit_key": str(uuid.uuid4())}
    empty, filled = insert(store), insert(store, **NULLABLE | unit)
    update = f"UPDATE holdfast.job_envelope SET {column} = :value WHERE id = :id"
    # PostgreSQL checks the key first, which names the tenant and the type.
    of_key = store.dialect is not SQLITE and column in ("org_id", "job_type")

    for job_id in (empty, filled):
        with refused("job_key_names_its_tenant" if of_key else "job_envelope_never_changes"):
            by_hand(store, update, id=job_id, value=CHANGED[column])
    if column in NULLABLE:
        with refused("job_envelope_never_changes"):
            by_hand(store, update, id=filled, value=None)


@pytest.mark.req("P-05")
@pytest.mark.parametrize("value", ["batch_2", None])
def test_the_first_provider_batch_of_a_job_is_immutable(store: Store, value: str | None) -> None:
    submitted = job_in(store, State.BATCH_SUBMITTED)
    returned = job_in(store, State.BATCH_SUBMITTED)
    move(store, returned, State.BATCH_SUBMITTED, State.QUEUED)

    for table, job_id in (("job_submitted", submitted), ("job_attempt", returned)):
        with refused("job_submitted_follows", f"{table}_write_once", f"{table}_never_changes"):
            by_hand(
                store,
                f"UPDATE holdfast.{table} SET provider_batch_id = coalesce(:value, 'x')"
                " WHERE job_id = :id",
                id=job_id,
                value=value,
            )
        assert record(store, job_id)["provider_batch_id"] == "batch_1"
    claim_by_hand(store, returned)
    submit(store, returned, provider_batch_id="batch_2")
    assert record(store, returned)["provider_batch_id"] == "batch_1"


# A column that must have a value has no constraint with a name of its own.
def missing(table: str, column: str) -> tuple[str, str]:
    return "unnamed", f"holdfast_{table}.{column}"


def test_a_submitted_job_names_its_batch(store: Store) -> None:
    job_id = job_in(store, State.PROCESSING)

    with refused(*missing("job_submitted", "provider_batch_id")):
        submit(store, job_id, provider_batch_id=None)


@pytest.mark.parametrize("token", [-1, 0, 2])
@pytest.mark.parametrize("deferred", [{}, {"not_before_at": LATER}], ids=["ready", "deferred"])
def test_a_claim_raises_the_lease_token_by_one(
    store: Store, deferred: dict[str, Any], token: int
) -> None:
    job_id = insert(store, **deferred)

    with refused(MOVED):
        claim_by_hand(store, job_id, lease_token=token)
    assert state_of(store, job_id) == State.QUEUED

    claim_by_hand(store, job_id)
    assert record(store, job_id)["lease_token"] == 1


@pytest.mark.parametrize("change", ["lease_token + 1", "lease_token - 1", "0"])
@pytest.mark.parametrize(
    ("place", "state"), [("job_running", State.PROCESSING), ("job_ready", State.QUEUED)]
)
def test_nothing_but_a_claim_changes_the_lease_token(
    store: Store, place: str, state: State, change: str
) -> None:
    job_id = job_in(store, state)

    with refused(f"{place}_follows", f"{place}_write_once"):
        by_hand(
            store,
            f"UPDATE holdfast.{place} SET lease_token = {change} WHERE job_id = :id",
            id=job_id,
        )


@pytest.mark.parametrize("column", ["attempt_count", "max_attempts"])
@pytest.mark.parametrize("count", [3, 4, 0])
def test_only_an_attempt_changes_the_count_of_attempts(
    store: Store, column: str, count: int
) -> None:
    job_id = job_in(store, State.PROCESSING)
    end_attempt(store, job_id, attempt_count=1, keeps_lease=True)

    with refused("job_running_follows", "job_running_write_once"):
        by_hand(
            store,
            f"UPDATE holdfast.job_running SET {column} = {count} WHERE job_id = :id",
            id=job_id,
        )
    (row,) = look(
        store,
        "SELECT attempt_count, max_attempts FROM holdfast.job_running WHERE job_id = :id",
        id=job_id,
    )
    assert dict(row) == {"attempt_count": 1, "max_attempts": 5}


@pytest.mark.parametrize("keeps_lease", [False, True])
@pytest.mark.parametrize("count", [0, 3, 5])
def test_attempts_are_counted_one_at_a_time(store: Store, count: int, keeps_lease: bool) -> None:
    job_id = job_in(store, State.PROCESSING)
    end_attempt(store, job_id, attempt_count=1)
    claim_by_hand(store, job_id)

    with refused("job_attempts"):
        end_attempt(store, job_id, attempt_count=count, keeps_lease=keeps_lease)
    assert record(store, job_id)["attempt_count"] == 1


@pytest.mark.parametrize("number", [-5, 0, 1, 3, 2_147_483_647])
def test_attempts_are_numbered_without_gaps(store: Store, number: int) -> None:
    job_id = job_in(store, State.PROCESSING)
    end_attempt(store, job_id)
    claim_by_hand(store, job_id)
    also = "holdfast_job_attempt.org_id, holdfast_job_attempt.job_id, holdfast_job_attempt.number"

    with refused("job_attempts", MOVED, also):
        end_attempt(store, job_id, number=number)
    assert state_of(store, job_id) == State.PROCESSING


@pytest.mark.parametrize("state", ENDS)
@pytest.mark.parametrize("place", [State.PROCESSING, State.BATCH_SUBMITTED])
def test_an_outcome_counts_a_failure_and_nothing_else(
    store: Store, place: State, state: State
) -> None:
    job_id = job_in(store, State.PROCESSING)
    end_attempt(store, job_id, attempt_count=1)
    claim_by_hand(store, job_id)
    if place is State.BATCH_SUBMITTED:
        submit(store, job_id)
    right = 2 if state is State.FAILED else 1

    for count in {-3, 0, 1, 2, 3, 99} - {right}:
        with refused("job_attempts", MOVED):
            end(store, job_id, state, attempt_count=count)
    end(store, job_id, state, attempt_count=right)
    assert record(store, job_id)["attempt_count"] == right


@pytest.mark.parametrize("deferred", [{}, {"not_before_at": LATER}], ids=["ready", "deferred"])
def test_a_cancel_of_a_job_that_waits_keeps_its_attempts(
    store: Store, deferred: dict[str, Any]
) -> None:
    job_id = job_in(store, State.PROCESSING)
    end_attempt(store, job_id, attempt_count=1, **deferred)

    for count in (0, 2):
        with refused("job_attempts", MOVED):
            end(store, job_id, State.CANCELED, attempt_count=count)
    end(store, job_id, State.CANCELED)
    assert record(store, job_id)["attempt_count"] == 1


@pytest.mark.parametrize("place", [State.PROCESSING, State.BATCH_SUBMITTED])
@pytest.mark.parametrize("other", [{"max_attempts": 100}, {"attempt_count": 4}, {"stage": "x"}])
def test_an_attempt_stays_in_its_stage_and_budget(
    store: Store, place: State, other: dict[str, Any]
) -> None:
    job_id = job_in(store, place, stage="first")

    with refused("job_attempts", MOVED):
        end_attempt(store, job_id, **other)
    end_attempt(store, job_id, attempt_count=1)
    assert record(store, job_id)["max_attempts"] == 5


def test_the_next_stage_has_a_budget_of_its_own(store: Store) -> None:
    job_id = job_in(store, State.PROCESSING)

    with refused("job_attempts"):
        end_attempt(store, job_id, keeps_lease=True, max_attempts=9)
    end_attempt(store, job_id, keeps_lease=True, max_attempts=9, stage="second")
    assert record(store, job_id)["max_attempts"] == 9


@pytest.mark.parametrize(
    "other",
    [
        {"attempt_count": 3, "started_attempt": 4},
        {"started_attempt": 3},
        {"max_attempts": 32_000},
        {"stage": "other"},
    ],
)
@pytest.mark.parametrize("tried", [False, True])
def test_a_claim_continues_with_the_stage_and_the_attempts_of_its_job(
    store: Store, tried: bool, other: dict[str, Any]
) -> None:
    job_id = insert(store)
    if tried:
        claim_by_hand(store, job_id)
        end_attempt(store, job_id, attempt_count=1)

    with refused("job_attempts"):
        claim_by_hand(store, job_id, **other)
    claim_by_hand(store, job_id)
    assert state_of(store, job_id) == State.PROCESSING


@pytest.mark.parametrize(
    "other",
    [{"queue": "q:critical"}, {"limit_key": "x"}, {"turn": "0198c0de-0000-7000-8000-0000000000fb"}],
)
@pytest.mark.parametrize("deferred", [{}, {"not_before_at": LATER}], ids=["ready", "deferred"])
def test_a_claim_names_the_backlog_of_its_job(
    store: Store, deferred: dict[str, Any], other: dict[str, str]
) -> None:
    job_id = insert(store, **deferred)

    with refused(MOVED):
        claim_by_hand(store, job_id, **other)
    claim_by_hand(store, job_id)


@pytest.mark.parametrize("change", ["", ", not_before_at = NULL"])
def test_a_job_waits_only_in_a_queue_of_its_enqueue(store: Store, change: str) -> None:
    job_id = insert(store, not_before_at=LATER, queue="q:maintenance", origin_queue="q:exports")
    move_to = f"UPDATE holdfast.job_waiting SET queue = :queue{change} WHERE job_id = :id"

    with refused("job_waiting_follows"):
        by_hand(store, move_to, id=job_id, queue="q:nowhere")
    by_hand(store, move_to, id=job_id, queue="q:exports")
    assert places_of(store, job_id) == ["job_ready" if change else "job_waiting"]


def test_a_job_changes_when_a_stage_ends_and_when_a_cancel_is_requested(store: Store) -> None:
    job_id = job_in(store, State.PROCESSING)
    steps = [NOON, "2026-01-05T12:00:01.000Z", "2026-01-05T12:00:02.000Z"]

    def changed_at() -> Any:
        return look(
            store,
            "SELECT {stamp(job.updated_at)} AS at FROM holdfast.job AS job WHERE job.id = :id",
            id=job_id,
        )[0]["at"][:19]

    seen = [changed_at()]
    end_attempt(store, job_id, keeps_lease=True, stage="second", ended_at=steps[1])
    seen.append(changed_at())
    insert_row(store, "job_cancel", {"org_id": ORG, "job_id": job_id, "requested_at": steps[2]})
    seen.append(changed_at())
    assert seen == [step[:19] for step in steps]

    end(store, job_id, State.CANCELED, finished_at=steps[1])
    assert changed_at() == steps[1][:19]


@pytest.fixture
def plain(sqlite_url: str) -> Iterator[tuple[Store, sqlite3.Connection]]:
    """A connection as the sqlite3 shell opens it: REPLACE fires no DELETE triggers."""
    with Holdfast(sqlite_url) as hf:
        insert(hf.store)
        with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as connection:
            digest.register(connection)
            yield hf.store, connection


def with_every_row(store: Store) -> None:
    """Jobs of which each table has a row."""
    for state in State:
        job_in(store, state)
    with_facts(store)
    insert(store, not_before_at=LATER)
    insert_row(
        store,
        "job_remainder",
        {
            "org_id": ORG,
            "job_id": ORG,
            "job_type": "report.export",
            "request_id": "r1",
            "correlation_id": "c1",
            "events": "[]",
        },
    )


REPLACED = [
    *("audit_event", "job_attempt", "job_cancel", "job_envelope", "job_outcome", "job_ready"),
    *("job_remainder", "job_running", "job_submitted", "job_waiting"),
]


@pytest.mark.parametrize("verb", ["INSERT OR REPLACE", "REPLACE"])
@pytest.mark.parametrize("table", REPLACED)
def test_no_row_is_replaced(plain: tuple[Store, sqlite3.Connection], table: str, verb: str) -> None:
    store, connection = plain
    with_every_row(store)
    rows = connection.execute(f"SELECT * FROM holdfast_{table}").fetchall()
    assert rows

    for row in rows:
        marks = ", ".join("?" * len(row))
        with pytest.raises(sqlite3.IntegrityError):
            connection.execute(f"{verb} INTO holdfast_{table} VALUES ({marks})", row)
    connection.rollback()
    assert connection.execute(f"SELECT * FROM holdfast_{table}").fetchall() == rows


@pytest.mark.parametrize(
    "given", [{"idempotency_key": f"report.export:{ORG}::k"}, {"unit_key": "u"}]
)
def test_no_job_is_replaced_by_another_with_its_key_or_unit(
    plain: tuple[Store, sqlite3.Connection], given: dict[str, str]
) -> None:
    store, connection = plain
    job_id = insert(store, **given)
    key = {"idempotency_key": f"report.export:{ORG}::other", **given}["idempotency_key"]

    for verb in ("INSERT OR REPLACE", "INSERT OR IGNORE"):
        with pytest.raises(sqlite3.IntegrityError, match="job_once_per_"):
            connection.execute(
                f"{verb} INTO holdfast_job_envelope (org_id, id, event_id, created_at,"
                " max_attempts, priority, job_type, category, origin_queue, actor_type, actor_id,"
                " idempotency_key, unit_key, payload_hash, payload) SELECT org_id, ?, 99,"
                " created_at, max_attempts, priority, job_type, category, origin_queue, actor_type,"
                " actor_id, ?, unit_key, payload_hash, payload FROM holdfast_job_envelope"
                " WHERE id = ?",
                (str(uuid.uuid4()), key, job_id),
            )
    assert state_of(store, job_id) == State.QUEUED


@pytest.mark.parametrize("verb", ["INSERT OR IGNORE", "INSERT OR REPLACE"])
def test_a_fact_does_not_take_the_event_of_another(
    plain: tuple[Store, sqlite3.Connection], verb: str
) -> None:
    store, connection = plain
    job_id = job_in(store, State.PROCESSING)

    with pytest.raises(sqlite3.IntegrityError, match="job_event_never_leaves"):
        connection.execute(
            f"{verb} INTO holdfast_job_outcome (org_id, job_id, event_id, settled_by,"
            " started_event_id, claimed_at, claimed_by, started_attempt, finished_at,"
            " key_expires_at, lease_token, attempt_count, state, result)"
            " SELECT org_id, job_id, 1, 'w1', started_event_id, claimed_at, claimed_by,"
            " started_attempt, claimed_at, claimed_at, lease_token, attempt_count, 'completed', '1'"
            " FROM holdfast_job_running WHERE job_id = ?",
            (job_id,),
        )
    connection.rollback()
    assert state_of(store, job_id) == State.PROCESSING


def test_the_events_of_a_group_are_in_order_when_their_sort_needs_a_file(
    postgres_url: str,
) -> None:
    database = postgres_url.rpartition("/")[2]
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f"ALTER DATABASE {database} SET work_mem = '64kB'".encode())
    with Holdfast(postgres_url) as hf:
        hf.job("report.export")(lambda job, payload: payload)
        hf.enqueue_many("report.export", [{"n": number} for number in range(1_500)], org_id=ORG)
        claimed = claim(hf, limit=1_500)
        settle(hf.store, [(job, Completed("1")) for job in claimed], actor=SYSTEM)

        counted = "SELECT sum(events) AS n FROM holdfast.audit_event GROUP BY name"
        groups = look(hf.store, counted)
        assert {row["n"] for row in groups} == {1_500}
        report = hf.operate(actor="user:ann", role="admin").verify(only=("I1", "I42", "I43", "I44"))
        assert report.violated == ()


def test_attempts_start_over_with_the_next_stage(store: Store) -> None:
    job_id = job_in(store, State.PROCESSING)
    end_attempt(store, job_id, attempt_count=1)
    claim_by_hand(store, job_id)

    end_attempt(store, job_id, attempt_count=0, stage="second", keeps_lease=True)

    job = record(store, job_id)
    assert (job["attempt_count"], job["stage"], job["state"]) == (0, "second", "processing")


@pytest.mark.parametrize("count", [-1, 2])
def test_attempts_stay_within_their_budget(store: Store, count: int) -> None:
    job_id = job_in(store, State.PROCESSING, max_attempts=1)

    with refused("job_attempts_in_budget"):
        end_attempt(store, job_id, attempt_count=count)
    for none in (0, -1):
        with refused("job_attempts_positive"):
            insert(store, max_attempts=none)


@pytest.mark.parametrize(
    "column", ["error_class", "last_error", "last_error_at", "first_failed_at"]
)
def test_an_attempt_that_failed_says_why_and_when(store: Store, column: str) -> None:
    job_id = job_in(store, State.PROCESSING)
    why = {"error_class": "X", "last_error": "x", "last_error_at": NOON, "first_failed_at": NOON}

    with refused("job_attempt_says_why"):
        end_attempt(store, job_id, attempt_count=1, **why | {column: None})
    end_attempt(store, job_id, attempt_count=1, **why)


@pytest.mark.parametrize("column", ["lease_expires_at", "claimed_at", "claimed_by"])
def test_a_processing_job_has_its_whole_lease_and_no_other_job_has_any(
    store: Store, column: str
) -> None:
    queued, running = job_in(store, State.QUEUED), job_in(store, State.PROCESSING)

    with refused(*missing("job_running", column)):
        claim_by_hand(store, queued, **{column: None})
    with refused(*missing("job_running", column), "job_running_write_once"):
        by_hand(
            store,
            f"UPDATE holdfast.job_running SET {column} = NULL WHERE job_id = :id",
            id=running,
        )
    assert record(store, running)[column] is not None
    assert record(store, queued)[column] is None
    (place,) = look(store, "SELECT * FROM holdfast.job_ready WHERE job_id = :id", id=queued)
    assert column not in place


@pytest.mark.req("J-31", "E-04")
@pytest.mark.parametrize("state", ENDS)
def test_only_completed_jobs_have_a_result(store: Store, state: State) -> None:
    job_id = job_in(store, State.PROCESSING)
    result = None if state is State.COMPLETED else '{"rows": 1}'

    with refused("job_completed_iff_result"):
        end(store, job_id, state, result=result)
    assert record(store, job_id)["result"] is None


@pytest.mark.parametrize("column", ["finished_at", "key_expires_at"])
@pytest.mark.parametrize("state", ENDS)
def test_an_ended_job_says_when(store: Store, state: State, column: str) -> None:
    job_id = job_in(store, State.PROCESSING)

    with refused(*missing("job_outcome", column)):
        end(store, job_id, state, **{column: None})


@pytest.mark.parametrize("column", ["error_class", "last_error"])
@pytest.mark.parametrize("state", ENDS)
def test_a_failed_job_says_why(store: Store, state: State, column: str) -> None:
    job_id = job_in(store, State.PROCESSING)

    with refused("job_failed_says_why"):
        end(store, job_id, state, **{column: None if state is State.FAILED else "x"})


def test_the_dead_letter_queue_holds_failed_jobs_and_only_those(store: Store) -> None:
    for column in ("queue", "origin_queue"):
        with refused("job_not_enqueued_dead"):
            insert(store, **{column: "q:deadletter"})
    for state in State:
        dead = record(store, job_in(store, state))["queue"] == "q:deadletter"
        assert dead == (state is State.FAILED)


@pytest.mark.parametrize("state", list(State))
def test_a_job_leaves_only_when_it_has_ended(store: Store, state: State) -> None:
    job_id = job_in(store, state)
    delete = "DELETE FROM holdfast.job_envelope WHERE id = :id RETURNING id"

    if state.is_terminal:
        assert len(by_hand(store, delete, id=job_id)) == 1
    else:
        with refused("job_leaves_only_when_ended"):
            by_hand(store, delete, id=job_id)


def test_the_audit_outlives_its_job(store: Store) -> None:
    job_id = job_in(store, State.CANCELED)

    by_hand(store, "DELETE FROM holdfast.job_envelope WHERE id = :id", id=job_id)

    (event,) = look(
        store, "SELECT org_id, name FROM holdfast.audit_entry WHERE job_id = :id", id=job_id
    )
    assert dict(event) == {"org_id": ORG, "name": "job.enqueued"}


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
        ("UPDATE holdfast.audit_event SET actor_id = 'somebody else'", "job_event_never_changes"),
        ("UPDATE holdfast.audit_event SET at = at", "job_event_never_changes"),
        ("DELETE FROM holdfast.audit_event", "job_event_never_leaves"),
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
        ("audit_event", "job_event_never_truncated"),
        ("audit_seal", "audit_seal_never_truncated"),
        ("job_envelope CASCADE", "job_envelope_never_truncated"),
        ("job_outcome", "job_outcome_stays"),
        ("job_attempt", "job_attempt_stays"),
        ("job_cancel", "job_cancel_stays"),
        ("job_remainder", "job_remainder_never_truncated"),
        ("job_ready", "job_ready_follows"),
        ("job_waiting", "job_waiting_follows"),
        ("job_running", "job_running_follows"),
        ("job_submitted", "job_submitted_follows"),
    ],
)
def test_jobs_and_their_audit_survive_a_truncate(postgres_url: str, table: str, rule: str) -> None:
    with Holdfast(postgres_url) as hf:
        job_id = insert(hf.store)

        with refused(rule):
            by_hand(hf.store, f"TRUNCATE holdfast.{table}")

        assert state_of(hf.store, job_id) == State.QUEUED
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
