"""No tenant reaches another's rows: not by our calls, and on PostgreSQL not by its own SQL."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg import errors as pg

from holdfast import FakeClock, Holdfast
from holdfast.engine.job import SYSTEM, Dead, Fault, Retry, State
from holdfast.engine.schedule.dispatcher import dispatch_once
from holdfast.engine.schedule.rows import sync_schedules
from holdfast.engine.settle import settle
from holdfast.errors import JobNotFound, RuleBroken, SchemaMismatch, StoreError
from holdfast.sealed_audit.seal import seal_events
from holdfast.store import open_store
from tests.conftest import COMPONENTS
from tests.postgres_server import PostgresServer
from tests.store.hand import submit
from tests.story import ORG, OTHER_ORG, claim, make_holdfast, seal_all

FACTS = ["job_envelope", "job_attempt", "job_outcome", "job_cancel", "job_key_seen"]
PLACES = ["job_ready", "job_waiting", "job_running", "job_submitted"]
VIEWS = ["job", "job_event", "idempotency_key"]
TABLES = [*FACTS, *PLACES, *VIEWS, "job_stage", "dead_letter", "audit_event", "audit_seal"]
_roles = itertools.count(1)


@pytest.mark.req("X-01", "X-09")
def test_another_tenants_job_is_not_found(hf: Holdfast) -> None:
    hf.job("order.ship")(lambda job, payload: payload)
    enqueued = hf.enqueue("order.ship", {}, org_id=ORG)

    with pytest.raises(JobNotFound):
        hf.get(enqueued.id, org_id=OTHER_ORG)
    with pytest.raises(JobNotFound):
        hf.cancel(enqueued.id, org_id=OTHER_ORG)
    with pytest.raises(JobNotFound):
        hf.for_org(OTHER_ORG).get(enqueued.id)
    assert hf.get(enqueued.id, org_id=ORG).state is State.QUEUED


@pytest.mark.req("I-03")
def test_the_same_key_of_two_tenants_is_two_jobs(hf: Holdfast) -> None:
    hf.job("order.ship")(lambda job, payload: payload)

    mine = hf.enqueue("order.ship", {}, org_id=ORG, idempotency_key="order-1")
    theirs = hf.enqueue("order.ship", {}, org_id=OTHER_ORG, idempotency_key="order-1")

    assert (mine.created, theirs.created) == (True, True)
    assert mine.id != theirs.id


@contextmanager
def _role(server: PostgresServer, *granted: str, options: str = "") -> Iterator[str]:
    name = f"login{next(_roles)}"
    with psycopg.connect(server.dsn(), autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {name} LOGIN {options}")
        for role in granted:
            admin.execute(f"GRANT {role} TO {name}")
    yield name
    with psycopg.connect(server.dsn(), autocommit=True) as admin:
        admin.execute(f"DROP ROLE {name}")


@pytest.fixture(scope="module")
def tenant_login(postgres: PostgresServer) -> Iterator[str]:
    with _role(postgres, "holdfast_tenant") as name:
        yield name


@pytest.fixture(scope="module")
def engine_login(postgres: PostgresServer) -> Iterator[str]:
    with _role(postgres, "holdfast_engine") as name:
        yield name


def _as(url: str, role: str) -> str:
    return url.replace("postgres@", f"{role}@")


@pytest.fixture(scope="module")
def filled(shared_postgres_url: str) -> Iterator[Holdfast]:
    """Two tenants with rows in every table."""
    with make_holdfast(shared_postgres_url) as hf:
        hf.job("order.ship")(lambda job, payload: payload)
        pipeline = hf.pipeline("order.pack")
        pipeline.stage("pick")(lambda job, payload: 1)
        pipeline.stage("wrap")(lambda job, payload: 2)
        fault = Fault("GONE", "it is gone", retryable=False)
        for org_id in (ORG, OTHER_ORG):
            hf.enqueue("order.pack", {}, org_id=org_id)
            hf.worker().run_once()
            hf.enqueue("order.ship", {}, org_id=org_id)
            settle(hf.store, [(job, Dead(fault)) for job in claim(hf)], actor=SYSTEM)
        for org_id in (ORG, OTHER_ORG):
            for _ in range(2):
                hf.enqueue("order.ship", {}, org_id=org_id, idempotency_key="in a batch")
            for job in claim(hf):
                submit(hf.store, job.id)
            running = hf.enqueue("order.ship", {}, org_id=org_id)
            claim(hf, lease_ms=3_600_000)
            hf.cancel(running.id, org_id=org_id)
        for org_id in (ORG, OTHER_ORG):
            hf.enqueue("order.ship", {}, org_id=org_id)
            claimed = claim(hf)
            settle(hf.store, [(job, Retry(fault, 60_000)) for job in claimed], actor=SYSTEM)
        for org_id in (ORG, OTHER_ORG):
            hf.enqueue("order.ship", {}, org_id=org_id)
        seal_all(hf.store)
        yield hf


DROP_ROLES = "DROP ROLE holdfast_tenant, holdfast_auditor, holdfast_handler, holdfast_engine"


@contextmanager
def tenant(url: str, login: str, org_id: str | None) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(_as(url, login)) as connection:
        if org_id is not None:
            connection.execute("SELECT set_config('holdfast.org_id', %s, true)", (org_id,))
        yield connection
        connection.rollback()


def orgs_in(connection: psycopg.Connection[Any], table: str) -> set[str]:
    rows = connection.execute(f"SELECT DISTINCT org_id::text FROM holdfast.{table}".encode())
    return {row[0] for row in rows}


@pytest.mark.req("X-01", "X-09")
def test_a_tenant_sees_only_its_own_rows_in_every_table(
    filled: Holdfast, shared_postgres_url: str, tenant_login: str
) -> None:
    with psycopg.connect(shared_postgres_url) as admin:
        everything = {table: orgs_in(admin, table) for table in TABLES}
    assert all(found == {ORG, OTHER_ORG} for found in everything.values()), everything

    for org_id in (ORG, OTHER_ORG):
        with tenant(shared_postgres_url, tenant_login, org_id) as connection:
            assert {table: orgs_in(connection, table) for table in TABLES} == {
                table: {org_id} for table in TABLES
            }


@pytest.mark.req("X-09")
def test_a_connection_that_names_no_tenant_sees_nothing(
    filled: Holdfast, shared_postgres_url: str, tenant_login: str
) -> None:
    with tenant(shared_postgres_url, tenant_login, None) as connection:
        assert {table: orgs_in(connection, table) for table in TABLES} == {
            table: set() for table in TABLES
        }


@pytest.mark.req("X-01", "X-09")
def test_a_tenant_sees_its_own_schedules_and_their_ticks_and_changes_none(
    postgres_url: str, tenant_login: str
) -> None:
    clock = FakeClock()
    with make_holdfast(postgres_url, clock) as hf:
        hf.job("db.cleanup", category="maintenance")(lambda job, payload: payload)
        for name, org_id in (("mine", ORG), ("theirs", OTHER_ORG)):
            hf.schedule(name, every="1h", job_type="db.cleanup", org_id=org_id)
        sync_schedules(hf)
        clock.advance(hours=1)
        assert dispatch_once(hf)["enqueued"] == 2

    for table in ("schedule", "schedule_tick"):
        for org_id in (ORG, OTHER_ORG):
            with tenant(postgres_url, tenant_login, org_id) as connection:
                assert orgs_in(connection, table) == {org_id}
                with pytest.raises(pg.InsufficientPrivilege):
                    connection.execute(f"DELETE FROM holdfast.{table}".encode())
        with tenant(postgres_url, tenant_login, None) as connection:
            assert orgs_in(connection, table) == set()


def test_a_connection_is_closed_again_after_the_transaction_that_named_a_tenant(
    filled: Holdfast, shared_postgres_url: str, tenant_login: str
) -> None:
    with psycopg.connect(_as(shared_postgres_url, tenant_login)) as connection:
        connection.execute(f"SET LOCAL holdfast.org_id = '{ORG}'".encode())
        assert orgs_in(connection, "job") == {ORG}
        connection.commit()

        (setting,) = connection.execute("SHOW holdfast.org_id").fetchone() or ("unset",)
        assert setting == ""
        assert orgs_in(connection, "job") == set()


def test_a_tenant_that_is_no_uuid_is_an_error_and_not_every_tenant(
    filled: Holdfast, shared_postgres_url: str, tenant_login: str
) -> None:
    with (
        tenant(shared_postgres_url, tenant_login, "%") as connection,
        pytest.raises(pg.InvalidTextRepresentation),
    ):
        connection.execute("SELECT * FROM holdfast.job")


ENQUEUE = (
    "SELECT job_id FROM holdfast.enqueue('order.ship', '{}', %(org)s, idempotency_key => %(key)s)"
)


def test_a_tenant_enqueues_for_itself_only(
    filled: Holdfast, shared_postgres_url: str, tenant_login: str
) -> None:
    with tenant(shared_postgres_url, tenant_login, ORG) as connection:
        connection.execute(ENQUEUE, {"org": ORG, "key": f"order.ship:{ORG}::by-hand"})
        with pytest.raises(pg.InsufficientPrivilege, match="row-level security"):
            connection.execute(ENQUEUE, {"org": OTHER_ORG, "key": f"order.ship:{OTHER_ORG}::x"})


def test_a_tenant_cannot_find_out_whether_another_uses_a_key(
    filled: Holdfast, shared_postgres_url: str, tenant_login: str
) -> None:
    theirs = filled.enqueue("order.ship", {}, org_id=OTHER_ORG, idempotency_key="plan")

    said = []
    for key in (theirs.idempotency_key, theirs.idempotency_key[:-1] + "!"):
        with tenant(shared_postgres_url, tenant_login, ORG) as connection:
            with pytest.raises(pg.InvalidParameterValue, match="another tenant") as caught:
                connection.execute(ENQUEUE, {"org": ORG, "key": key})
            said.append(caught.value.diag.message_primary)

    assert said[0] == said[1]


@pytest.mark.parametrize(
    "text",
    [
        *(
            f"INSERT INTO holdfast.{name} SELECT * FROM holdfast.{name}"
            for name in [*FACTS, *PLACES]
        ),
        *(f"UPDATE holdfast.{name} SET org_id = org_id" for name in [*FACTS, *PLACES]),
        *(f"DELETE FROM holdfast.{name}" for name in [*FACTS, *PLACES]),
        "DELETE FROM holdfast.audit_event",
        "INSERT INTO holdfast.audit_event OVERRIDING SYSTEM VALUE TABLE holdfast.audit_event",
        "INSERT INTO holdfast.audit_seal SELECT * FROM holdfast.audit_seal",
        "UPDATE holdfast.audit_cursor SET sealed_to = 0",
        "SELECT * FROM holdfast.audit_cursor",
        "SELECT * FROM holdfast.lease_extension",
        "SELECT * FROM holdfast.handler_transaction",
        "UPDATE holdfast.dead_letter SET last_error = ''",
        "DELETE FROM holdfast.dead_letter",
        "UPDATE holdfast.job_stage SET attempts = 0",
        "DELETE FROM holdfast.job_stage",
        "INSERT INTO holdfast.migration VALUES ('core', 99, 'x')",
        "TRUNCATE holdfast.job_envelope CASCADE",
        "TRUNCATE holdfast.audit_event",
        "ALTER TABLE holdfast.job_envelope DISABLE ROW LEVEL SECURITY",
        "ALTER VIEW holdfast.job SET (security_invoker = false)",
        "DROP TRIGGER job_ended ON holdfast.job_outcome",
        "CREATE TABLE holdfast.mine (id int)",
        "SET ROLE holdfast_engine",
        "SET session_replication_role = replica",
    ],
)
def test_a_tenant_may_look_and_enqueue_and_nothing_else(
    filled: Holdfast, shared_postgres_url: str, tenant_login: str, text: str
) -> None:
    with (
        tenant(shared_postgres_url, tenant_login, ORG) as connection,
        pytest.raises(pg.InsufficientPrivilege),
    ):
        connection.execute(text.encode())


@pytest.mark.parametrize(
    "text",
    [
        "UPDATE holdfast.audit_event SET actor_id = 'x'",
        "DELETE FROM holdfast.audit_event",
        "DELETE FROM holdfast.audit_seal",
        "UPDATE holdfast.job_envelope SET payload = '{}'",
        "UPDATE holdfast.job_outcome SET state = 'canceled'",
        "UPDATE holdfast.job_attempt SET attempt_count = 0",
        "UPDATE holdfast.job_cancel SET requested_at = now()",
        *(f"TRUNCATE holdfast.{name} CASCADE" for name in [*FACTS, *PLACES]),
        "TRUNCATE holdfast.audit_event",
        "ALTER TABLE holdfast.job_outcome DISABLE TRIGGER ALL",
    ],
)
def test_the_engine_role_cannot_touch_the_audit_or_the_rules(
    filled: Holdfast, shared_postgres_url: str, engine_login: str, text: str
) -> None:
    with tenant(shared_postgres_url, engine_login, None) as connection:
        assert orgs_in(connection, "job") == {ORG, OTHER_ORG}
        with pytest.raises(pg.InsufficientPrivilege):
            connection.execute(text.encode())


def whole_way(url: str) -> None:
    """All operations of the engine, with the login of *url*."""
    with make_holdfast(url) as hf:
        seen: list[Any] = []

        @hf.job("order.ship")
        def ship(job: Any, payload: dict[str, Any]) -> dict[str, Any]:
            with job.transaction() as connection:
                rows = connection.execute("SELECT DISTINCT org_id FROM holdfast.job").fetchall()
                seen.extend(row[0] for row in rows)
            return payload

        mine = hf.enqueue("order.ship", {"n": 1}, org_id=ORG)
        theirs = hf.enqueue("order.ship", {"n": 2}, org_id=OTHER_ORG)
        hf.cancel(hf.enqueue("order.ship", {}, org_id=ORG, queue="q:exports").id, org_id=ORG)
        hf.worker(queues=["q:default"]).run_once()
        for _ in range(3):
            seal_events(hf.store)
        hf.store.wake_up(["q:default"]).close()

        assert hf.get(mine.id, org_id=ORG).result == {"n": 1}
        assert hf.get(theirs.id, org_id=OTHER_ORG).result == {"n": 2}
        assert sorted(seen) == [ORG, OTHER_ORG]


@pytest.mark.req("X-06")
def test_a_member_of_the_engine_role_runs_every_tenants_jobs_each_inside_its_own_tenant(
    postgres_url: str, engine_login: str
) -> None:
    whole_way(_as(postgres_url, engine_login))


@contextmanager
def empty_database(server: PostgresServer, owner: str) -> Iterator[str]:
    name = f"owned_by_{owner}"
    with psycopg.connect(server.dsn(), autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name} OWNER {owner}")
    yield server.dsn(name, owner)
    with psycopg.connect(server.dsn(), autocommit=True) as admin:
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def fresh_server() -> Iterator[PostgresServer]:
    """A server without the roles of Holdfast: roles belong to the whole server."""
    server = PostgresServer()
    yield server
    server.close()


def test_an_owner_who_is_no_superuser_migrates_and_works(fresh_server: PostgresServer) -> None:
    with _role(fresh_server, options="CREATEROLE") as owner:
        with empty_database(fresh_server, owner) as url:
            store = open_store(url, check=False, components=COMPONENTS)
            assert store.migrate()
            store.close()

            whole_way(url)

        with psycopg.connect(fresh_server.dsn(), autocommit=True) as admin:
            admin.execute(DROP_ROLES)

    with _role(fresh_server) as owner, empty_database(fresh_server, owner) as url:
        store = open_store(url, check=False, components=COMPONENTS)
        for role in ("holdfast_engine", "holdfast_auditor"):
            with pytest.raises(
                StoreError, match=rf"{role} .* missing or incomplete.* CREATE ROLE"
            ) as caught:
                store.migrate()
            advice = str(caught.value).partition("As an administrator: ")[2]
            with pytest.raises(SchemaMismatch):
                store.check_schema()

            with psycopg.connect(fresh_server.dsn(), autocommit=True) as admin:
                admin.execute(advice.encode())
        assert store.migrate()
        store.close()

        whole_way(url)


def test_even_the_owner_of_the_tables_is_bound(fresh_server: PostgresServer) -> None:
    with _role(fresh_server, options="CREATEROLE") as owner:
        with empty_database(fresh_server, owner) as url:
            store = open_store(url, check=False, components=COMPONENTS)
            store.migrate()
            store.close()
            whole_way(url)
            with psycopg.connect(fresh_server.dsn(), autocommit=True) as admin:
                admin.execute(f"REVOKE holdfast_engine FROM {owner} GRANTED BY {owner}")

            with psycopg.connect(url) as connection:
                assert orgs_in(connection, "job") == set()
        with psycopg.connect(fresh_server.dsn(), autocommit=True) as admin:
            admin.execute(DROP_ROLES)


def test_a_refusal_of_the_tenant_wall_is_a_broken_rule(
    postgres_url: str, tenant_login: str
) -> None:
    store = open_store(_as(postgres_url, tenant_login))

    with pytest.raises(RuleBroken) as caught:
        store.write(lambda tx: tx.connection.execute("DELETE FROM holdfast.job_envelope"))  # type: ignore[attr-defined]
    assert caught.value.rule == "row_level_security"
    store.close()


# -- the catalog


@pytest.fixture
def catalog(shared_postgres_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(shared_postgres_url) as connection:
        yield connection


def test_row_level_security_is_forced_on_every_table_of_tenants(
    catalog: psycopg.Connection[Any],
) -> None:
    rows = catalog.execute(
        "SELECT c.relname, c.relrowsecurity, c.relforcerowsecurity,"
        " (SELECT array_agg(p.polname::text ORDER BY p.polname) FROM pg_policy p"
        "  WHERE p.polrelid = c.oid AND p.polcmd = '*' AND p.polpermissive"
        "  AND p.polqual IS NOT NULL AND p.polwithcheck IS NOT NULL"
        "  AND p.polroles <> '{0}'::oid[])"
        " FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'org_id'"
        " WHERE c.relnamespace = 'holdfast'::regnamespace AND c.relkind IN ('r', 'p')"
    ).fetchall()

    assert len(rows) >= 5
    for name, enabled, forced, policies in rows:
        assert (enabled, forced) == (True, True), name
        assert policies == ["engine_serves_all", "tenant_sees_itself"], name


def test_every_view_runs_with_the_privileges_of_the_caller(
    catalog: psycopg.Connection[Any],
) -> None:
    rows = catalog.execute(
        "SELECT relname, reloptions FROM pg_class"
        " WHERE relnamespace = 'holdfast'::regnamespace AND relkind = 'v'"
    ).fetchall()

    assert rows
    for name, options in rows:
        assert "security_invoker=true" in (options or []), name


def test_a_function_with_its_owners_rights_has_a_fixed_search_path(
    catalog: psycopg.Connection[Any],
) -> None:
    rows = catalog.execute(
        "SELECT proname, proconfig FROM pg_proc"
        " WHERE pronamespace = 'holdfast'::regnamespace AND prosecdef"
    ).fetchall()

    assert rows
    for name, config in rows:
        assert any(item.startswith("search_path=pg_catalog") for item in config or []), name


def test_truncate_is_denied_and_the_public_has_no_privileges(
    catalog: psycopg.Connection[Any],
) -> None:
    rows = catalog.execute(
        "SELECT table_name, grantee, privilege_type FROM information_schema.role_table_grants"
        " WHERE table_schema = 'holdfast' AND (grantee = 'PUBLIC' OR"
        " (grantee LIKE 'holdfast%' AND privilege_type IN ('TRUNCATE', 'REFERENCES', 'TRIGGER')))"
    ).fetchall()

    assert rows == []
