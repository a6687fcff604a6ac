"""A tenant's own SQL creates no job that the engine would not have created itself."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import psycopg
import pytest
from psycopg import errors as pg

from holdfast import Holdfast, State
from holdfast.ids import shift
from tests.postgres_server import PostgresServer
from tests.rows import copy_of_envelope, refused_by
from tests.story import ORG, OTHER_ORG, PROJECT, by_hand, look, make_holdfast

LOGIN = "forger"
SCOPE = f"order.ship:{ORG}::"


@pytest.fixture(scope="module")
def forger(postgres: PostgresServer) -> Iterator[str]:
    """A login of an application that is bound to one tenant per transaction."""
    with psycopg.connect(postgres.dsn(), autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {LOGIN} LOGIN")
        admin.execute(f"GRANT holdfast_tenant TO {LOGIN}")
    yield LOGIN
    with psycopg.connect(postgres.dsn(), autocommit=True) as admin:
        admin.execute(f"DROP OWNED BY {LOGIN}")
        admin.execute(f"DROP ROLE {LOGIN}")


@pytest.fixture
def shop(postgres_url: str) -> Iterator[Holdfast]:
    """Two tenants with a job each, on the clock of the database."""
    with Holdfast(postgres_url) as hf:
        hf.job("order.ship")(lambda job, payload: payload)
        for org_id in (ORG, OTHER_ORG):
            hf.enqueue("order.ship", {"n": 0}, org_id=org_id, idempotency_key="first")
        yield hf


@contextmanager
def as_login(hf: Holdfast, login: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(hf.settings.db.replace("postgres@", f"{login}@")) as connection:
        connection.execute("SELECT set_config('holdfast.org_id', %s, true)", (ORG,))
        yield connection
        connection.commit()


@contextmanager
def as_handler(hf: Holdfast, login: str) -> Iterator[psycopg.Connection[Any]]:
    """The engine's login in the role that a handler's transaction runs in."""
    with psycopg.connect(hf.settings.db) as connection:
        connection.execute("SELECT set_config('holdfast.org_id', %s, true)", (ORG,))
        connection.execute("SET LOCAL ROLE holdfast_tenant")
        yield connection
        connection.commit()


each_way = pytest.mark.parametrize("bound", [as_login, as_handler])


def first_of(hf: Holdfast, org_id: str) -> str:
    """The job that a tenant had before the forgery."""
    found = "SELECT id FROM holdfast.job WHERE org_id = :org_id ORDER BY id LIMIT 1"
    return str(look(hf.store, found, org_id=org_id)[0]["id"])


def all_jobs(hf: Holdfast) -> list[Any]:
    return look(hf.store, "SELECT * FROM holdfast.job ORDER BY org_id, id")


# -- by hand

NOW = datetime.now(UTC)
ROW: dict[str, Any] = {
    "id": "0198c0de-0000-7000-8000-0000000000ff",
    "org_id": ORG,
    "job_type": "order.ship",
    "category": "general",
    "actor_type": "system",
    "actor_id": "x",
    "request_id": "r",
    "correlation_id": "c",
    "idempotency_key": SCOPE + "by-hand",
    "payload": "{}",
    "payload_hash": "",
    "priority": 20,
    "origin_queue": "q:default",
    "max_attempts": 5,
    "created_at": NOW,
}
YEAR_2999 = "2999-01-01T00:00:00Z"
BY_HAND: dict[str, dict[str, Any]] = {
    "an ordinary row": {},
    "another tenant": {"org_id": OTHER_ORG, "idempotency_key": f"order.ship:{OTHER_ORG}::x"},
    "created in the year 2999": {"created_at": YEAR_2999},
    "due in the year 2999": {"not_before_at": YEAR_2999},
    "a payload of 5 MB": {"payload": json.dumps({"text": "x" * 5_000_000})},
    "a secret": {"payload": json.dumps({"password": "hunter2"})},
    "another queue": {"queue": "q:critical", "origin_queue": "q:critical"},
    "a queue that is not registered": {"queue": "q:nowhere", "origin_queue": "q:nowhere"},
    "a queue to return to that is another": {"origin_queue": "q:critical"},
    "a place in front of all others": {"turn": "00000000-0000-7000-8000-000000000001"},
    "an id from another time": {"id": "ffffffff-ffff-7fff-bfff-ffffffffffff"},
    "a thousand attempts": {"max_attempts": 1_000},
    "a priority before critical": {"priority": -5},
    "the hash of another payload": {"payload_hash": "0" * 32},
    "a later stage of a pipeline": {"stage": "paid", "pipeline_version": "1"},
    "a replay of another tenant's job": {"replay_of": OTHER_ORG},
    "the event of another job": {"event_id": 1},
    "the lane of batches": {"limit_key": "~batch"},
    "a category that is not registered": {"category": "nonsense"},
    "a trace that is none": {"traceparent": "nonsense"},
}


@each_way
@pytest.mark.req("X-01", "X-06")
@pytest.mark.parametrize("forged", list(BY_HAND))
def test_a_tenant_inserts_no_row_by_hand(
    shop: Holdfast, forger: str, bound: Any, forged: str
) -> None:
    before = all_jobs(shop)
    row = ROW | BY_HAND[forged]
    if forged == "a replay of another tenant's job":
        row["replay_of"] = first_of(shop, OTHER_ORG)
    named, values = ", ".join(row), ", ".join(f"%({name})s" for name in row)

    with pytest.raises(pg.InsufficientPrivilege), bound(shop, forger) as connection:
        connection.execute(
            f"INSERT INTO holdfast.job_envelope ({named}) VALUES ({values})".encode(), row
        )

    assert all_jobs(shop) == before


TABLES = ["job_envelope", "job_attempt", "job_outcome", "job_cancel", "job_key_seen"]
TABLES += ["job_ready", "job_waiting", "job_running", "job_submitted", "audit_event"]
OTHERWISE = {
    **{
        f"rows of {table}": f"INSERT INTO holdfast.{table}"
        f" {'OVERRIDING SYSTEM VALUE ' if table == 'audit_event' else ''}TABLE holdfast.{table}"
        for table in [*TABLES, "job_remainder"]
    },
    **{f"update of {table}": f"UPDATE holdfast.{table} SET org_id = org_id" for table in TABLES},
    **{f"delete from {table}": f"DELETE FROM holdfast.{table}" for table in TABLES},
    **{f"copy to {table}": f"COPY holdfast.{table} FROM STDIN" for table in TABLES},
    **{f"a lock of {table}": f"SELECT org_id FROM holdfast.{table} FOR UPDATE" for table in TABLES},
    "an outcome of a job that waits": "INSERT INTO holdfast.job_outcome (org_id, job_id,"
    " finished_at, key_expires_at, lease_token, attempt_count, state)"
    " SELECT org_id, id, now(), now(), 0, 0, 'canceled' FROM holdfast.job",
    "a claim of a job that waits": "INSERT INTO holdfast.job_running (org_id, job_id, turn,"
    " claimed_at, lease_expires_at, lease_token, started_attempt, attempt_count, max_attempts,"
    " queue, limit_key, stage, claimed_by) SELECT org_id, job_id, turn, now(), now(), 1, 1, 0, 5,"
    " queue, limit_key, '', 'me' FROM holdfast.job_ready",
    "merge": "MERGE INTO holdfast.job_ready AS job USING holdfast.job_ready AS other"
    " ON job.job_id = other.job_id WHEN MATCHED THEN DELETE",
    "an insert through a view": "INSERT INTO holdfast.job SELECT * FROM holdfast.job",
    "an update through a view": "UPDATE holdfast.job SET priority = 0",
    "a delete through a view": "DELETE FROM holdfast.job",
    "a lock through a view": "SELECT id FROM holdfast.job FOR UPDATE",
    **{
        f"the function of {trigger}": f"CREATE TEMP TABLE forged (LIKE holdfast.{table});"
        " CREATE TRIGGER forged AFTER INSERT ON forged REFERENCING NEW TABLE AS added"
        f" FOR EACH STATEMENT EXECUTE FUNCTION holdfast.{function}()"
        for trigger, table, function in (
            ("an enqueue", "job_envelope", "enqueue_envelopes"),
            ("a claim", "job_running", "start_jobs"),
            ("an attempt", "job_attempt", "end_attempts"),
            ("a submission", "job_submitted", "submit_jobs"),
            ("an outcome", "job_outcome", "end_jobs"),
        )
    },
    "the function of a promotion": "CREATE TEMP TABLE forged (LIKE holdfast.job_waiting);"
    " CREATE TRIGGER forged AFTER UPDATE ON forged REFERENCING NEW TABLE AS changed"
    " FOR EACH STATEMENT EXECUTE FUNCTION holdfast.promote_jobs()",
    "the function of a deletion": "CREATE TEMP TABLE forged (LIKE holdfast.job_envelope);"
    " CREATE TRIGGER forged AFTER DELETE ON forged REFERENCING OLD TABLE AS gone"
    " FOR EACH STATEMENT EXECUTE FUNCTION holdfast.delete_facts()",
    "a table that inherits": "CREATE TEMP TABLE forged () INHERITS (holdfast.job_envelope)",
    "a foreign key": "CREATE TEMP TABLE forged (org_id uuid, id uuid,"
    " FOREIGN KEY (org_id, id) REFERENCES holdfast.job_envelope)",
    "the inner function": "SELECT holdfast.insert_requests('{}', now())",
}


@each_way
@pytest.mark.parametrize("way", list(OTHERWISE))
def test_a_tenant_finds_no_other_way_to_write_a_job_or_its_audit(
    shop: Holdfast, forger: str, bound: Any, way: str
) -> None:
    before = all_jobs(shop)

    refused = (
        pg.InsufficientPrivilege,
        pg.WrongObjectType,
        pg.InvalidTableDefinition,
        pg.ObjectNotInPrerequisiteState,
    )
    with pytest.raises(refused), bound(shop, forger) as connection:
        connection.execute(OTHERWISE[way].encode())

    assert all_jobs(shop) == before


def test_only_our_roles_may_call_a_function(shop: Holdfast) -> None:
    open_to_all = look(
        shop.store,
        "SELECT made.proname AS name FROM pg_catalog.pg_proc AS made,"
        " aclexplode(coalesce(made.proacl, acldefault('f', made.proowner))) AS granted"
        " WHERE made.pronamespace = CAST('holdfast' AS regnamespace) AND granted.grantee = 0",
    )

    assert open_to_all == []


def test_a_tenant_may_call_the_functions_that_are_made_for_it_and_no_other(shop: Holdfast) -> None:
    rows = look(
        shop.store,
        "SELECT made.proname AS name FROM pg_catalog.pg_proc AS made"
        " WHERE made.pronamespace = CAST('holdfast' AS regnamespace)"
        " AND has_function_privilege('holdfast_tenant', made.oid, 'EXECUTE') ORDER BY 1",
    )

    assert [row["name"] for row in rows] == [
        *("current_tenant", "enqueue", "enqueue_jobs", "find_key", "is_full", "lock_keys"),
        *("own_key", "wake", "write_flow"),
    ]


# -- through the function of the Python call


def new_id() -> str:
    tail = uuid.uuid4().hex[12:]
    at = int(datetime.now(UTC).timestamp() * 1000)
    return str(uuid.UUID(f"{at:012x}7{tail[1:4]}8{tail[5:]}"))


def ask(
    connection: psycopg.Connection[Any], job: dict[str, Any], frame: dict[str, Any], **given: Any
) -> list[dict[str, Any]]:
    """Call the function as the Python call does, with the values of a hostile caller."""
    made = new_id()
    jobs = {
        "frame": 0,
        "id": made,
        "idempotency_key": SCOPE + made.replace("-", ""),
        "payload": '{"n":1}',
        "payload_hash": sha256(b'{"n":1}').hexdigest()[:32],
        **job,
    }
    frames = {
        "frame": 0,
        "jobs": 1,
        "org_id": ORG,
        "project_id": None,
        "job_type": "order.ship",
        "category": "general",
        "actor_type": "system",
        "actor_id": "holdfast",
        "request_id": None,
        "correlation_id": None,
        "priority": 20,
        "limit_key": "",
        "origin_queue": "q:default",
        "queue": "q:default",
        "stage": "run",
        "pipeline_version": "",
        "max_attempts": 5,
        **frame,
    }
    arguments = {"jobs": json.dumps([jobs]), "frames": json.dumps([frames]), "now": None, **given}
    cursor = connection.execute(
        "SELECT * FROM holdfast.enqueue_jobs(CAST(%(jobs)s AS json), CAST(%(frames)s AS json),"
        " CAST(%(now)s AS timestamptz))",
        arguments,
    )
    names = [column.name for column in cursor.description or ()]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


# The values of the caller in its job and in its frame, and the word in the refusal.
REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "another tenant": (
        {"idempotency_key": f"order.ship:{OTHER_ORG}::x"},
        {"org_id": OTHER_ORG},
        "org_id",
    ),
    "no tenant": ({}, {"org_id": None}, "org_id"),
    "a key of another tenant": ({"idempotency_key": f"order.ship:{OTHER_ORG}::x"}, {}, "idempot"),
    "a key of another project": ({"idempotency_key": SCOPE + "x"}, {"project_id": PROJECT}, "idem"),
    "a key of another type": ({"idempotency_key": f"order.pay:{ORG}::x"}, {}, "idempotency_key"),
    "a key that is only its scope": ({"idempotency_key": SCOPE}, {}, "idempotency_key"),
    "a key without an end": ({"idempotency_key": SCOPE + "x" * 600}, {}, "idempotency_key"),
    "a key with a line break": ({"idempotency_key": SCOPE + "a\nb"}, {}, "idempotency_key"),
    "a type that is no name": ({}, {"job_type": "Order Ship"}, "job_type"),
    "due in the year 2999": ({}, {"not_before_at": YEAR_2999}, "not_before_at"),
    "due in infinity": ({}, {"not_before_at": "infinity"}, "not_before_at"),
    "scheduled in the year 2999": (
        {},
        {"category": "maintenance", "scheduled_for": YEAR_2999},
        "scheduled_for",
    ),
    "scheduled though it may not be": ({}, {"scheduled_for": NOW.isoformat()}, "scheduled_for"),
    "a payload of 5 MB": ({"payload": json.dumps({"text": "x" * 5_000_000})}, {}, "payload"),
    "a payload that is a list": ({"payload": "[1]"}, {}, "payload"),
    "a payload without bottom": ({"payload": '{"a":' + "[" * 40 + "]" * 40 + "}"}, {}, "payload"),
    "a payload of 10,001 values": ({"payload": json.dumps({"a": [0] * 10_000})}, {}, "payload"),
    "a number beyond numbers": ({"payload": '{"a":1e400}'}, {}, "payload"),
    "a password": ({"payload": '{"password":"hunter2"}'}, {}, "payload"),
    "a key of a provider": ({"payload": json.dumps({"text": "sk-" + "a" * 24})}, {}, "payload"),
    "a secret as a name": ({"payload": json.dumps({"sk-" + "a" * 24: 1})}, {}, "payload"),
    "a secret in the route": (
        {},
        {"routing_decision": json.dumps({"token": "ghp_" + "a" * 36})},
        "routing_decision",
    ),
    "a route that is a list": ({}, {"routing_decision": "[1]"}, "routing_decision"),
    "a route without end": ({}, {"routing_decision": '{"a":"' + "x" * 20_000 + '"}'}, "routing_"),
    "the dead letter queue": (
        {},
        {"queue": "q:deadletter", "origin_queue": "q:deadletter"},
        "queue",
    ),
    "the dead letter queue later": (
        {},
        {
            "category": "notification",
            "scheduled_for": NOW.isoformat(),
            "origin_queue": "q:deadletter",
        },
        "queue",
    ),
    "a queue that is not registered": ({}, {"queue": "q:nowhere"}, "queue"),
    "no queue": ({}, {"queue": None}, "queue"),
    "a category that is not registered": ({}, {"category": "nonsense"}, "category"),
    "an actor of no known type": ({}, {"actor_type": "root"}, "actor_type"),
    "an actor without a name": ({}, {"actor_id": ""}, "actor_id"),
    "an actor with a line break": ({}, {"actor_id": "a\nb"}, "actor_id"),
    "a request id without end": ({}, {"request_id": "x" * 201}, "request_id"),
    "a thousand attempts": ({}, {"max_attempts": 1_000}, "max_attempts"),
    "no attempt": ({}, {"max_attempts": 0}, "max_attempts"),
    "a priority before critical": ({}, {"priority": -5}, "priority"),
    "a priority between two": ({}, {"priority": 15}, "priority"),
    "a limit key that is none": ({}, {"limit_key": "Printer One"}, "limit_key"),
    "the lane of batches": ({}, {"limit_key": "~batch"}, "limit_key"),
    "a replay": ({}, {"replay_of": OTHER_ORG}, "replay_of"),
    "a unit without a name": ({"unit_key": ""}, {}, "unit_key"),
    "a trace that is none": ({}, {"traceparent": "nonsense"}, "traceparent"),
    "a version without end": ({}, {"pipeline_version": "x" * 201}, "pipeline_version"),
    "a job without a frame": ({"frame": 7}, {}, "frame"),
}


@pytest.mark.req("X-01", "X-10")
@pytest.mark.parametrize("forged", list(REFUSED))
def test_the_function_refuses_by_name_what_a_tenant_may_not_ask_for(
    shop: Holdfast, forger: str, forged: str
) -> None:
    before = all_jobs(shop)
    job, frame, says = REFUSED[forged]

    refused = (pg.InvalidParameterValue, pg.InsufficientPrivilege)
    with pytest.raises(refused, match=says) as caught, as_login(shop, forger) as connection:
        ask(connection, job, frame)

    assert "hunter2" not in str(caught.value)
    assert all_jobs(shop) == before


def stored(hf: Holdfast, rows: list[dict[str, Any]]) -> Any:
    assert [row["outcome"] for row in rows] == ["created"]
    return hf.get(str(rows[0]["id"]), org_id=ORG).record


@pytest.mark.req("X-01", "X-06")
def test_the_function_fills_in_what_a_tenant_may_not_say(shop: Holdfast, forger: str) -> None:
    theirs = first_of(shop, OTHER_ORG)
    forged = {
        "state": "completed",
        "result": "{}",
        "attempt_count": 3,
        "lease_token": 7,
        "claimed_by": "me",
        "provider_batch_id": "batch_1",
        "created_at": YEAR_2999,
        "updated_at": YEAR_2999,
        "key_last_seen_at": YEAR_2999,
        "finished_at": YEAR_2999,
        "key_expires_at": YEAR_2999,
        "error_class": "X",
    }
    with as_login(shop, forger) as connection:
        rows = ask(
            connection,
            {**forged, "id": theirs, "payload_hash": "0" * 32, "turn": "0" * 8 + theirs[8:]},
            {**forged, "stage": "paid", "origin_queue": "q:exports", "jobs": -1_000_000},
            now=YEAR_2999,
        )
    record = stored(shop, rows)

    assert record["id"] != theirs
    assert abs(read_time(record["id"]) - datetime.now(UTC)) < timedelta(minutes=1)
    assert record["turn"] == record["id"]
    assert (record["state"], record["attempt_count"], record["lease_token"]) == (State.QUEUED, 0, 0)
    assert (record["queue"], record["origin_queue"]) == ("q:default", "q:default")
    assert record["stage"] == ""
    assert record["payload_hash"] == sha256(b'{"n":1}').hexdigest()[:32]
    for name in ("created_at", "updated_at", "key_last_seen_at"):
        assert abs(record[name] - datetime.now(UTC)) < timedelta(minutes=1), name
    for name in ("claimed_by", "provider_batch_id", "result", "finished_at", "error_class"):
        assert record[name] is None, name


def read_time(uuid7: str) -> datetime:
    return datetime.fromtimestamp(int(uuid7.replace("-", "")[:12], 16) / 1000, UTC)


@pytest.mark.parametrize(
    "given",
    ["ffffffff-ffff-7fff-bfff-ffffffffffff", "00000000-0000-7000-8000-000000000001", None, ORG],
)
def test_an_id_that_was_not_made_now_is_replaced(
    shop: Holdfast, forger: str, given: str | None
) -> None:
    with as_login(shop, forger) as connection:
        rows = ask(connection, {"id": given}, {})
    record = stored(shop, rows)

    assert record["id"] != given
    assert abs(read_time(record["id"]) - datetime.now(UTC)) < timedelta(minutes=1)


def test_an_id_that_was_made_now_is_kept_and_one_that_is_taken_is_replaced(
    shop: Holdfast, forger: str
) -> None:
    mine, taken = new_id(), first_of(shop, OTHER_ORG)
    with as_login(shop, forger) as connection:
        kept = ask(connection, {"id": mine}, {})
        replaced = ask(connection, {"id": taken}, {})

    assert str(kept[0]["id"]) == mine
    assert str(replaced[0]["id"]) != taken
    held = look(shop.store, "SELECT org_id FROM holdfast.job WHERE id = :id", id=taken)
    assert [str(row["org_id"]) for row in held] == [OTHER_ORG]


@pytest.mark.req("X-01")
def test_two_tenants_never_have_jobs_with_the_same_id(shop: Holdfast) -> None:
    same = copy_of_envelope({"org_id": f"CAST('{ORG}' AS {{uuid}})", "idempotency_key": "NULL"})

    assert refused_by(shop, same, id=first_of(shop, OTHER_ORG)) == "job_once_per_id"


def test_the_id_of_a_job_that_was_pruned_is_replaced(shop: Holdfast, forger: str) -> None:
    pruned = "INSERT INTO holdfast.job_remainder (org_id, job_id, job_type, request_id,"
    pruned += " correlation_id, events) VALUES (:org_id, :id, 'order.ship', 'r', 'c', '[]')"
    used = new_id()
    by_hand(shop.store, pruned, org_id=ORG, id=used)

    with as_login(shop, forger) as connection:
        row = ask(connection, {"id": used}, {})[0]

    assert row["outcome"] == "created"
    assert str(row["id"]) != used


def test_a_job_without_a_key_has_the_key_that_ends_with_its_id(shop: Holdfast, forger: str) -> None:
    with as_login(shop, forger) as connection:
        rows = ask(connection, {"idempotency_key": None}, {})
        again = ask(connection, {"idempotency_key": rows[0]["idempotency_key"]}, {})
    record = stored(shop, rows)

    assert record["idempotency_key"] == SCOPE + record["id"].replace("-", "")
    assert (again[0]["outcome"], str(again[0]["id"])) == ("duplicate", record["id"])


def test_the_key_of_a_unit_is_made_of_the_unit(shop: Holdfast, forger: str) -> None:
    with as_login(shop, forger) as connection:
        first = ask(connection, {"unit_key": "order-7", "idempotency_key": SCOPE + "a"}, {})
        again = ask(connection, {"unit_key": "order-7", "idempotency_key": SCOPE + "b"}, {})
    by_python = shop.enqueue("order.ship", {"n": 1}, org_id=ORG, unit_key="order-7")

    assert [row[0]["outcome"] for row in (first, again)] == ["created", "duplicate"]
    assert {str(row[0]["id"]) for row in (first, again)} == {by_python.id}
    assert not by_python.created


@pytest.mark.parametrize("priority", [0, 10, 20, 30])
def test_a_place_in_the_queue_is_what_the_priority_is_worth_and_no_more(
    shop: Holdfast, forger: str, priority: int
) -> None:
    made = new_id()
    with as_login(shop, forger) as connection:
        (row,) = ask(
            connection,
            {"id": made, "turn": "00000000-0000-7000-8000-000000000001"},
            {"priority": priority},
        )
    record = shop.get(str(row["id"]), org_id=ORG).record

    steps = (priority - 20) // 10
    moved = read_time(record["turn"]) - read_time(record["id"])
    assert abs(moved) <= timedelta(days=30) * abs(steps)
    assert (moved > timedelta(0)) == (steps > 0)


@pytest.mark.req("X-01", "X-06")
def test_no_tenant_gives_two_of_its_jobs_one_turn(shop: Holdfast, forger: str) -> None:
    first = new_id()
    later = shift(first, 1_000)
    due = {"not_before_at": (datetime.now(UTC) + timedelta(milliseconds=1)).isoformat()}
    with as_login(shop, forger) as connection:
        ask(connection, {"id": first, "turn": first}, due)
        (urgent,) = ask(connection, {"id": later, "turn": later}, {**due, "priority": 10})
    turn = shop.get(str(urgent["id"]), org_id=ORG).record["turn"]
    with as_login(shop, forger) as connection:
        ask(connection, {"id": turn}, due)

    turns = look(shop.store, "SELECT turn FROM holdfast.job WHERE org_id = :org_id", org_id=ORG)
    assert len({row["turn"] for row in turns}) == len(turns) == 4
    assert read_time(turn) == read_time(first)
    shop.worker().run(until_idle=True)
    jobs = look(shop.store, "SELECT DISTINCT state FROM holdfast.job")
    assert [row["state"] for row in jobs] == ["completed"]


@pytest.mark.req("X-10")
def test_verify_finds_nothing_wrong_with_what_a_tenant_may_do(shop: Holdfast, forger: str) -> None:
    with as_login(shop, forger) as connection:
        ask(connection, {}, {"priority": 0})
        ask(connection, {"unit_key": "u"}, {"stage": "paid"})
        ask(connection, {}, {"category": "maintenance", "scheduled_for": NOW.isoformat()})
        same = {"idempotency_key": SCOPE + "same"}
        ask(connection, same, {})
        assert ask(connection, {**same, "payload": '{"n":2}'}, {})[0]["outcome"] == "differs"
    shop.worker().run_once()

    report = shop.operate(actor="user:ann", role="admin").verify()
    assert report.violated == ()


def test_a_login_of_the_engine_says_what_it_wants_as_before(shop: Holdfast) -> None:
    with make_holdfast(shop.settings.db) as fake, psycopg.connect(shop.settings.db) as connection:
        fake.job("order.ship")(lambda job, payload: payload)
        made = fake.enqueue("order.ship", {}, org_id=OTHER_ORG, conn=connection)
        connection.commit()
        record = fake.get(made.id, org_id=OTHER_ORG).record

    assert made.created_at == record["created_at"] == fake.clock.now()
    assert (record["stage"], record["turn"]) == ("run", made.id)


@each_way
@pytest.mark.parametrize(
    "forged",
    [
        {"state": "sent"},
        {"proof": "seen"},
        {"attempts": 0, "fence": 0},
        {"lease_owner": "me", "lease_expires_at": YEAR_2999},
        {"notification_id": "n", "notified_at": YEAR_2999},
        {"confirmed_by": "user:me"},
        {"reconciled_at": YEAR_2999, "first_sent_at": YEAR_2999, "ended_at": YEAR_2999},
    ],
    ids=lambda forged: next(iter(forged)),
)
def test_a_tenant_records_nothing_of_a_delivery_that_only_the_engine_knows(
    shop: Holdfast, forger: str, bound: Any, forged: dict[str, Any]
) -> None:
    row = {
        "org_id": ORG,
        "id": new_id(),
        "subject": "s",
        "recipient": "r",
        "version": 1,
        "channel": "c",
        "address": "a",
        "token": "t",
        "content_hash": "h",
        "request_id": "r",
        "correlation_id": "c",
        "created_at": NOW,
        "updated_at": NOW,
        **forged,
    }
    named, values = ", ".join(row), ", ".join(f"%({name})s" for name in row)

    with pytest.raises(pg.InsufficientPrivilege), bound(shop, forger) as connection:
        connection.execute(
            f"INSERT INTO holdfast.delivery ({named}) VALUES ({values})".encode(), row
        )
