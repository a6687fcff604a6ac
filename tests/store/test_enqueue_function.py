"""holdfast.enqueue(…): the same rules as the Python call, in SQL from any language."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import psycopg
import pytest
from psycopg import errors as pg
from psycopg.types.json import Jsonb

from holdfast import Context, Holdfast, NetworkTimeout
from holdfast.engine.category import CATEGORIES, make_category, sync_categories
from holdfast.engine.job import Priority, State
from holdfast.engine.request import AGEING_MS, position_of
from holdfast.errors import ForeignKeyScope, InvalidJob, SecretInPayload
from holdfast.ids import IdSource
from holdfast.store import open_store
from tests.postgres_server import PostgresServer
from tests.story import ORG, OTHER_ORG, PROJECT, look, timeline


@pytest.fixture(scope="module")
def shop(postgres: PostgresServer) -> Iterator[Holdfast]:
    with psycopg.connect(postgres.dsn(), autocommit=True) as admin:
        admin.execute("CREATE DATABASE by_function")
        admin.execute("CREATE ROLE function_tenant LOGIN")
    store = open_store(postgres.dsn("by_function"), check=False)
    store.migrate()
    store.close()
    with psycopg.connect(postgres.dsn(), autocommit=True) as admin:
        admin.execute("GRANT holdfast_tenant TO function_tenant")
    with Holdfast(postgres.dsn("by_function")) as hf:
        hf.job("order.ship")(lambda job, payload: {"shipped": payload["n"]})
        yield hf
    with psycopg.connect(postgres.dsn(), autocommit=True) as admin:
        admin.execute("DROP DATABASE by_function WITH (FORCE)")
        admin.execute("DROP ROLE function_tenant")


@pytest.fixture
def sql(shop: Holdfast) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(shop.settings.db) as connection:
        yield connection


def call(connection: psycopg.Connection[Any], **given: Any) -> tuple[str, bool]:
    """Call the function by the names of its arguments."""
    given = {"job_type": "order.ship", "payload": {"n": 1}, "org_id": ORG, **given}
    if isinstance(given["payload"], (dict, list)):
        given["payload"] = Jsonb(given["payload"])
    named = ", ".join(f"{name} => %({name})s" for name in given)
    row = connection.execute(f"SELECT * FROM holdfast.enqueue({named})".encode(), given).fetchone()
    assert row is not None
    return str(row[0]), row[1]


def test_a_worker_runs_what_the_function_enqueued(
    shop: Holdfast, sql: psycopg.Connection[Any]
) -> None:
    job_id, created = call(sql, payload={"n": 7})
    sql.commit()

    shop.worker().run_once(limit=1000)

    job = shop.get(job_id, org_id=ORG)
    assert created
    assert (job.state, job.result) == (State.COMPLETED, {"shipped": 7})
    assert timeline(shop, job) == ["job.enqueued", "job.started", "job.succeeded"]


def test_a_pipeline_that_the_function_enqueued_begins_at_its_first_stage_by_name(
    shop: Holdfast, sql: psycopg.Connection[Any]
) -> None:
    parcel = shop.pipeline("parcel.send")
    parcel.stage("pack")(lambda job, payload: {"packed": payload["n"]})

    @parcel.stage("post", max_attempts=1)
    def post(job: Context, payload: dict[str, Any]) -> None:
        raise NetworkTimeout(packed=job.outputs["pack"]["packed"])

    job_id, _ = call(sql, job_type="parcel.send", payload={"n": 7})
    sql.commit()
    shop.worker().run_once(limit=1000)

    letters = "SELECT stage, last_error FROM holdfast.dead_letter WHERE job_id = :id"
    letter = look(shop.store, letters, id=job_id)
    stages = look(shop.store, "SELECT stage FROM holdfast.job_stage WHERE job_id = :id", id=job_id)
    assert [(row["stage"], "packed=7" in row["last_error"]) for row in letter] == [("post", True)]
    assert [row["stage"] for row in stages] == ["pack"]


def test_what_was_enqueued_vanishes_with_the_callers_transaction(
    shop: Holdfast, sql: psycopg.Connection[Any]
) -> None:
    job_id, _ = call(sql)
    sql.rollback()

    found = "SELECT id FROM holdfast.job_event WHERE job_id = :id"
    assert look(shop.store, found, id=job_id) == []


@pytest.mark.req("I-12")
@pytest.mark.parametrize("project_id", [None, PROJECT])
@pytest.mark.parametrize("key", ["order 1", "ключ", "a:b:c", f"x:{ORG}:c", "full"])
def test_one_key_is_one_job_whichever_way_it_comes(
    shop: Holdfast, sql: psycopg.Connection[Any], project_id: str | None, key: str
) -> None:
    def full(side: str) -> str:
        return f"order.ship:{ORG}:{project_id or ''}:{side}" if key == "full" else f"{key}{side}"

    first = shop.enqueue(
        "order.ship", {"n": 1}, org_id=ORG, project_id=project_id, idempotency_key=full("python")
    )
    by_function = call(sql, project_id=project_id, idempotency_key=full("python"))
    original, created = call(sql, project_id=project_id, idempotency_key=full("sql"))
    sql.commit()
    by_python = shop.enqueue(
        "order.ship", {"n": 1}, org_id=ORG, project_id=project_id, idempotency_key=full("sql")
    )

    assert by_function == (first.id, False)
    assert created
    assert (by_python.id, by_python.created, by_python.differs) == (original, False, False)


def test_a_repeated_key_is_remembered_as_seen(shop: Holdfast, sql: psycopg.Connection[Any]) -> None:
    job_id, _ = call(sql, idempotency_key="seen twice")
    sql.commit()
    call(sql, idempotency_key="seen twice")
    sql.commit()

    (row,) = look(
        shop.store,
        "SELECT last_seen_at > first_seen_at AS again FROM holdfast.idempotency_key"
        " WHERE job_id = :id",
        id=job_id,
    )
    assert row["again"]


def test_two_callers_with_one_key_at_the_same_time_get_one_job(
    shop: Holdfast, sql: psycopg.Connection[Any]
) -> None:
    import threading

    first, _ = call(sql, idempotency_key="race")
    answers: list[tuple[str, bool]] = []

    def second() -> None:
        with psycopg.connect(shop.settings.db) as other:
            answers.append(call(other, idempotency_key="race"))

    thread = threading.Thread(target=second)
    thread.start()
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'"
    while (sql.execute(waiting).fetchone() or (0,))[0] == 0:
        pass
    sql.commit()
    thread.join(30)

    assert answers == [(first, False)]


@pytest.mark.parametrize("category", list(CATEGORIES.values()), ids=lambda kind: kind.name)
def test_a_category_means_the_same_queue_and_budget_in_both(
    shop: Holdfast, sql: psycopg.Connection[Any], category: Any
) -> None:
    job_id, _ = call(sql, category=category.name)
    sql.commit()

    job = shop.get(job_id, org_id=ORG)
    assert job.record["category"] == category.name
    assert (job.queue, job.origin_queue) == (category.queue, category.queue)
    assert job.max_attempts == category.max_attempts


def test_every_argument_arrives_in_its_column(shop: Holdfast, sql: psycopg.Connection[Any]) -> None:
    when = datetime.now(UTC) + timedelta(hours=1)
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    job_id, _ = call(
        sql,
        project_id=PROJECT,
        queue="q:critical",
        actor_type="user",
        actor_id="42",
        request_id="r",
        correlation_id="c",
        max_attempts=7,
        not_before_at=when,
        traceparent=trace,
        priority="high",
    )
    bare_id, _ = call(sql)
    sql.commit()

    job, bare = shop.get(job_id, org_id=ORG).record, shop.get(bare_id, org_id=ORG).record
    assert {
        name: job[name]
        for name in (
            "project_id",
            "queue",
            "actor_type",
            "actor_id",
            "request_id",
            "correlation_id",
            "max_attempts",
            "not_before_at",
            "traceparent",
            "priority",
            "payload",
        )
    } == {
        "project_id": PROJECT,
        "queue": "q:critical",
        "actor_type": "user",
        "actor_id": "42",
        "request_id": "r",
        "correlation_id": "c",
        "max_attempts": 7,
        "not_before_at": when,
        "traceparent": trace,
        "priority": Priority.HIGH,
        "payload": {"n": 1},
    }
    assert (bare["request_id"], bare["correlation_id"]) == (bare_id, bare_id)
    assert (bare["actor_type"], bare["priority"]) == ("system", Priority.NORMAL)


def test_a_category_that_an_application_declared_is_known_once_it_is_written(
    shop: Holdfast, sql: psycopg.Connection[Any]
) -> None:
    with pytest.raises(pg.InvalidParameterValue, match=r"not one of .*, general, .*planning"):
        call(sql, category="letter")
    sql.rollback()
    declared = make_category("letter", queue="q:notifications", max_attempts=2)
    sync_categories(shop.store, [declared])

    job_id, _ = call(sql, category="letter")
    sql.commit()

    job = shop.get(job_id, org_id=ORG)
    assert (job.queue, job.max_attempts) == ("q:notifications", 2)


def test_an_unregistered_queue_is_refused_with_its_name(
    sql: psycopg.Connection[Any],
) -> None:
    with pytest.raises(pg.InvalidParameterValue, match="queue q:nowhere is not registered"):
        call(sql, queue="q:nowhere")


def test_a_full_queue_takes_no_more_and_still_knows_its_keys(
    shop: Holdfast, sql: psycopg.Connection[Any]
) -> None:
    rows = "INSERT INTO holdfast.queue (name, max_depth, updated_at) VALUES ('q:small', 2, now())"
    sql.execute(rows.encode())
    first = call(sql, queue="q:small", idempotency_key="small one")
    call(sql, queue="q:small", not_before_at=datetime.now(UTC) + timedelta(hours=1))
    sql.commit()

    with pytest.raises(pg.ConfigurationLimitExceeded, match="q:small is full"):
        call(sql, queue="q:small")
    sql.rollback()
    assert call(sql, queue="q:small", idempotency_key="small one") == (first[0], False)


def test_a_tenant_that_has_its_share_waits_and_another_does_not(
    shop: Holdfast, sql: psycopg.Connection[Any]
) -> None:
    sql.execute(
        "INSERT INTO holdfast.queue (name, max_depth_per_tenant, updated_at)"
        " VALUES ('q:shared', 1, now())"
    )
    call(sql, queue="q:shared")
    sql.commit()

    with pytest.raises(pg.ConfigurationLimitExceeded):
        call(sql, queue="q:shared")
    sql.rollback()
    assert call(sql, queue="q:shared", org_id=OTHER_ORG)[1]


def test_a_tenant_s_own_connection_meets_the_limit_of_the_whole_queue(
    shop: Holdfast, sql: psycopg.Connection[Any]
) -> None:
    sql.execute(
        "INSERT INTO holdfast.queue (name, max_depth, updated_at) VALUES ('q:tight', 1, now())"
    )
    call(sql, queue="q:tight", org_id=OTHER_ORG)
    sql.commit()

    sql.execute("SELECT set_config('holdfast.org_id', %s, true)", (ORG,))
    sql.execute("SET LOCAL ROLE holdfast_tenant")
    with pytest.raises(pg.ConfigurationLimitExceeded):
        call(sql, queue="q:tight")


@pytest.mark.parametrize("name", [priority.name.lower() for priority in Priority])
def test_a_turn_is_the_same_in_both(
    shop: Holdfast, sql: psycopg.Connection[Any], name: str
) -> None:
    job_id, _ = call(sql, priority=name, limit_key="printer:1")
    sql.commit()

    record = shop.get(job_id, org_id=ORG).record
    assert record["limit_key"] == "printer:1"
    assert record["turn"] == (position_of(job_id, Priority[name.upper()], AGEING_MS) or job_id)


def test_a_command_is_for_planning_jobs_and_is_stored_as_python_stores_it(
    shop: Holdfast, sql: psycopg.Connection[Any]
) -> None:
    job_id, _ = call(sql, category="planning", command="assign-run-sheet")
    sql.commit()

    assert shop.get(job_id, org_id=ORG).record["routing_decision"] == {
        "command": "assign-run-sheet"
    }
    with pytest.raises(pg.InvalidParameterValue, match="only for planning jobs"):
        call(sql, command="assign-run-sheet")


@pytest.mark.req("Q-10")
def test_the_payload_has_a_checksum_that_says_of_which_text_it_is(
    shop: Holdfast, sql: psycopg.Connection[Any]
) -> None:
    job_id, _ = call(sql, category="import", payload={"b": 1, "a": [2, 3]})
    sql.commit()

    digest = sha256(b'{"a": [2, 3], "b": 1}').hexdigest()[:32]
    assert shop.get(job_id, org_id=ORG).record["payload_hash"] == f"jsonb:{digest}"


@pytest.mark.parametrize("name", [priority.name.lower() for priority in Priority])
def test_a_priority_is_the_same_rank_in_both(
    shop: Holdfast, sql: psycopg.Connection[Any], name: str
) -> None:
    job_id, _ = call(sql, priority=name)
    sql.commit()

    assert shop.get(job_id, org_id=ORG).record["priority"] == Priority[name.upper()]


def test_ids_are_version_7_and_carry_the_time(sql: psycopg.Connection[Any]) -> None:
    ids = [uuid.UUID(call(sql)[0]) for _ in range(50)]

    now = datetime.now(UTC).timestamp() * 1000
    assert {(found.version, found.variant) for found in ids} == {(7, uuid.RFC_4122)}
    assert len(set(ids)) == 50
    assert all(abs((found.int >> 80) - now) < 60_000 for found in ids)
    assert len({found.int & ((1 << 62) - 1) for found in ids}) == 50


BAD: list[dict[str, Any]] = [
    {"job_type": None},
    {"job_type": ""},
    {"job_type": "Order.Ship"},
    {"job_type": "order..ship"},
    {"job_type": "x" * 101},
    {"org_id": None},
    {"payload": None},
    {"payload": [1]},
    {"payload": Jsonb("text")},
    {"payload": Jsonb(None)},
    {"payload": {"text": "x" * 300_000}},
    {"category": "nonsense"},
    {"category": None},
    {"queue": "default"},
    {"queue": "q:Default"},
    {"queue": "q:deadletter"},
    {"priority": "urgent"},
    {"priority": None},
    {"actor_type": "admin"},
    {"actor_type": None},
    {"actor_id": ""},
    {"actor_id": None},
    {"actor_id": "x" * 201},
    {"actor_id": "a\nb"},
    {"request_id": ""},
    {"request_id": "x" * 201},
    {"correlation_id": "a\tb"},
    {"limit_key": ""},
    {"limit_key": "Printer"},
    {"limit_key": "x" * 101},
    {"command": "", "category": "planning"},
    {"command": "x" * 201, "category": "planning"},
    {"command": "a\nb", "category": "planning"},
    {"max_attempts": 0},
    {"max_attempts": 101},
    {"max_attempts": -1},
    {"not_before_at": "infinity"},
    {"not_before_at": "2100-01-01T00:00:00Z"},
    {"not_before_at": "1999-01-01T00:00:00Z"},
    {"traceparent": "nonsense"},
    {"idempotency_key": ""},
    {"idempotency_key": "x" * 501},
    {"idempotency_key": "a\nb"},
    {"idempotency_key": f"order.ship:{OTHER_ORG}::key"},
    {"idempotency_key": f"order.pack:{ORG}::key"},
    {"idempotency_key": f"order.ship:{ORG}:{PROJECT}:key"},
]


@pytest.mark.parametrize("given", BAD, ids=lambda given: str(given)[:50])
def test_a_bad_argument_is_refused_by_name(
    sql: psycopg.Connection[Any], given: dict[str, Any]
) -> None:
    with pytest.raises(pg.InvalidParameterValue, match=next(iter(given))):
        call(sql, **given)


SECRETS = [
    {"password": "hunter2"},
    {"nested": [{"API-Key": "abc"}]},
    {"connection string": "abc"},
    {"text": "sk-" + "a" * 24},
    {"text": "line\nsk-" + "a" * 24},
    {"text": "AKIA" + "A" * 16},
    {"text": "ghp_" + "a" * 36},
    {"list": ["xoxb-1234567890-abc"]},
    {"text": "-----BEGIN RSA PRIVATE KEY-----"},
    {"text": "postgresql://user:hunter2@host/db"},
    {"text": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.abcdefghijk"},
]
HARMLESS = [
    {"password": ""},
    {"password": None},
    {"note": 'he said "password": "hunter2"'},
    {"task-list": "risk-assessment-of-the-quarter-report"},
    {"url": "https://example.com/a:b@c"},
]


@pytest.mark.req("X-10")
@pytest.mark.parametrize("payload", SECRETS, ids=lambda payload: str(payload)[:40])
def test_a_secret_is_refused_by_both(
    shop: Holdfast, sql: psycopg.Connection[Any], payload: dict[str, Any]
) -> None:
    with pytest.raises(SecretInPayload):
        shop.enqueue("order.ship", payload, org_id=ORG)
    with pytest.raises(pg.InvalidParameterValue, match="payload") as caught:
        call(sql, payload=payload)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("payload", HARMLESS, ids=lambda payload: str(payload)[:40])
def test_what_only_sounds_like_a_secret_is_taken_by_both(
    shop: Holdfast, sql: psycopg.Connection[Any], payload: dict[str, Any]
) -> None:
    assert shop.enqueue("order.ship", payload, org_id=ORG).created
    assert call(sql, payload=payload)[1]


@pytest.mark.parametrize(
    "key",
    [f"order.ship:{OTHER_ORG}::key", f"order.pack:{ORG}::key", f"order.ship:{ORG}:{PROJECT}:k"],
)
def test_a_key_of_another_scope_is_refused_by_both(
    shop: Holdfast, sql: psycopg.Connection[Any], key: str
) -> None:
    with pytest.raises(ForeignKeyScope):
        shop.enqueue("order.ship", {}, org_id=ORG, idempotency_key=key)
    with pytest.raises(pg.InvalidParameterValue, match="another tenant"):
        call(sql, idempotency_key=key)


def test_both_refuse_an_empty_key(shop: Holdfast, sql: psycopg.Connection[Any]) -> None:
    with pytest.raises(InvalidJob, match="idempotency_key"):
        shop.enqueue("order.ship", {}, org_id=ORG, idempotency_key="")
    with pytest.raises(pg.InvalidParameterValue, match="idempotency_key"):
        call(sql, idempotency_key="")


@pytest.mark.req("X-06")
def test_a_tenant_calls_it_for_itself_only(shop: Holdfast) -> None:
    url = shop.settings.db.replace("postgres@", "function_tenant@")
    with psycopg.connect(url) as connection:
        connection.execute("SELECT set_config('holdfast.org_id', %s, true)", (ORG,))
        job_id, created = call(connection, idempotency_key="by a tenant")
        again = call(connection, idempotency_key="by a tenant")
        assert (created, again) == (True, (job_id, False))
        with pytest.raises(pg.InsufficientPrivilege, match="row-level security"):
            call(connection, org_id=OTHER_ORG)
        connection.rollback()

        connection.execute("SELECT set_config('holdfast.org_id', %s, true)", (ORG,))
        job_id, _ = call(connection)
        connection.commit()
        with pytest.raises(pg.InsufficientPrivilege):
            call(connection)

    assert timeline(shop, shop.get(job_id, org_id=ORG)) == ["job.enqueued"]


def test_a_listener_is_notified_by_wake_and_not_by_the_enqueue(
    shop: Holdfast, sql: psycopg.Connection[Any]
) -> None:
    wake = shop.store.wake_up(["q:planning"])

    call(sql, category="planning")
    sql.commit()
    assert not wake.wait(0.2)

    sql.execute("SELECT holdfast.wake('q:planning')")
    sql.commit()
    assert wake.wait(30.0)
    wake.close()


@pytest.mark.req("I-12")
def test_a_tenant_cannot_give_a_key_to_one_job_and_its_id_to_another(
    shop: Holdfast,
) -> None:
    """The key of a job without one ends with its id, and a tenant may choose the id."""
    first, second = IdSource().take(2)
    key = f"order.ship:{ORG}::{second.replace('-', '')}"
    frame = {
        "frame": 0, "org_id": ORG, "job_type": "order.ship", "category": "general",
        "actor_type": "system", "actor_id": "x", "priority": 20, "limit_key": "",
        "origin_queue": "q:default", "queue": "q:default", "stage": "", "pipeline_version": "",
        "max_attempts": 5,
    }  # fmt: skip

    def enqueue(job_id: str, **given: str) -> tuple[str, str]:
        jobs = [{"frame": 0, "id": job_id, "payload": "{}", **given}]
        url = shop.settings.db.replace("postgres@", "function_tenant@")
        with psycopg.connect(url) as connection:
            connection.execute("SELECT set_config('holdfast.org_id', %s, true)", (ORG,))
            row = connection.execute(
                "SELECT id, outcome FROM holdfast.enqueue_jobs(%s, %s)",
                (json.dumps(jobs), json.dumps([frame])),
            ).fetchone()
        assert row is not None
        return str(row[0]), row[1]

    assert enqueue(first, idempotency_key=key) == (first, "created")
    assert enqueue(second) == (first, "duplicate")

    same = "SELECT count(*) AS n FROM holdfast.job WHERE idempotency_key = :key"
    assert look(shop.store, same, key=key)[0]["n"] == 1
