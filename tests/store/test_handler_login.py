"""A separate login for handlers: no SQL of a handler reaches another tenant."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner
from psycopg import errors as pg
from psycopg.pq import TransactionStatus

from holdfast import (
    ArtifactSettings,
    ConfigError,
    Context,
    Enqueued,
    FakeClock,
    Holdfast,
    Settings,
    State,
)
from holdfast.cli import cli
from holdfast.engine.maintenance import rescue_jobs
from holdfast.store import open_store
from tests.outbox.scripted import letter, outbox_with
from tests.postgres_server import PostgresServer
from tests.story import ORG, OTHER_ORG, look, make_holdfast, timeline

LOGIN, ENGINE = "handlers", "engine_of_handlers"
TABLES = (
    *("job", "job_event", "audit_entry", "idempotency_key", "job_envelope", "audit_event"),
    *("delivery", "note"),
)
_names = itertools.count(1)


@pytest.fixture(scope="module")
def logins(postgres: PostgresServer) -> Iterator[None]:
    """Two logins as the documents describe them; the engine's is not a superuser either."""
    with psycopg.connect(postgres.dsn(), autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {LOGIN} LOGIN")
        admin.execute(f"GRANT holdfast_handler TO {LOGIN}")
        admin.execute(f"CREATE ROLE {ENGINE} LOGIN")
        admin.execute(f"GRANT holdfast_engine TO {ENGINE}")
    yield
    with psycopg.connect(postgres.dsn(), autocommit=True) as admin:
        admin.execute(f"DROP ROLE {LOGIN}, {ENGINE}")


def as_login(url: str, login: str) -> str:
    return url.replace("postgres@", f"{login}@")


@pytest.fixture
def url(postgres_url: str, logins: None) -> str:
    """A database with a table of the application, in which two tenants have a row each."""
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute("CREATE TABLE note (org_id uuid, text text)")
        admin.execute("GRANT ALL ON note TO holdfast_tenant")
        admin.execute("ALTER TABLE note ENABLE ROW LEVEL SECURITY")
        admin.execute(
            "CREATE POLICY own ON note TO holdfast_tenant"
            " USING (org_id = (SELECT holdfast.current_tenant()))"
        )
        for org_id in (ORG, OTHER_ORG):
            admin.execute("INSERT INTO note VALUES (%s, 'first')", (org_id,))
        # A function as an application may define it. It is for the tenant that calls it.
        admin.execute(
            "CREATE FUNCTION forget_notes() RETURNS void LANGUAGE sql SECURITY DEFINER AS"
            " $$ DELETE FROM note WHERE org_id = holdfast.current_tenant() $$"
        )
    return postgres_url


@pytest.fixture
def shop(url: str, clock: FakeClock) -> Iterator[Holdfast]:
    settings = {"handler_db": as_login(url, LOGIN)}
    with make_holdfast(as_login(url, ENGINE), clock, **settings) as hf:
        yield filled(hf)


@pytest.fixture
def open_shop(url: str, tmp_path: Path) -> Iterator[Holdfast]:
    """The same with a running clock: verify compares the rows of a tenant and of the engine."""
    files = ArtifactSettings(store=f"file://{tmp_path}/files")
    settings = Settings(db=as_login(url, ENGINE), handler_db=as_login(url, LOGIN), artifacts=files)
    with Holdfast(settings=settings) as hf:
        yield filled(hf)


def filled(hf: Holdfast) -> Holdfast:
    hf.job("order.ship")(lambda job, payload: payload)
    outbox_with(hf)
    for org_id in (ORG, OTHER_ORG):
        hf.enqueue("order.ship", {}, org_id=org_id, queue="q:exports")
        hf.outbox.intend([letter()], org_id=org_id)
    return hf


def run(hf: Holdfast, handler: Callable[[Context], Any], **options: Any) -> Enqueued:
    """Run *handler* as the handler of a job."""
    job_type = f"test.n{next(_names)}"
    category = options.pop("category", "general")
    hf.job(job_type, category=category)(lambda job, payload: handler(job))
    job = hf.enqueue(job_type, {}, **{"org_id": ORG, **options})
    hf.worker(queues=["q:default", "q:planning", "q:maintenance"]).run_once()
    return job


def ended(hf: Holdfast, job: Enqueued) -> tuple[State, str | None]:
    found = hf.get(job.id, org_id=job.org_id)
    return found.state, found.error_class


DONE = (State.COMPLETED, None)


def tenants_in(connection: Any) -> set[str]:
    """The tenants whose rows a connection can see, in any table or view."""
    seen: set[str] = set()
    for table in TABLES:
        name = table if table == "note" else f"holdfast.{table}"
        rows = connection.execute(f"SELECT DISTINCT org_id::text FROM {name}".encode())
        seen |= {row[0] for row in rows.fetchall()}
    return seen


def test_a_handler_works_in_its_own_tenant(open_shop: Holdfast) -> None:
    seen: list[Any] = []

    shop = open_shop

    def handler(job: Context) -> None:
        with job.transaction() as connection:
            seen.append(connection.execute("SELECT session_user, current_user").fetchone())
            seen.append(tenants_in(connection))
            connection.execute("INSERT INTO note VALUES (%s, 'written')", (job.org_id,))
            child = shop.enqueue("order.ship", {"n": 1}, conn=connection, queue="q:exports")
            seen.append(child)
            shop.outbox.post([letter("person:2")], conn=connection)

    job = run(shop, handler)

    assert ended(shop, job) == DONE
    assert seen[0] == (LOGIN, "holdfast_tenant")
    assert seen[1] == {ORG}
    assert shop.get(seen[2].id, org_id=ORG).state is State.QUEUED
    assert shop.operate(actor="user:ann", role="admin").verify().violated == ()


HOSTILE = {
    "set_config": f"SELECT set_config('holdfast.org_id', '{OTHER_ORG}', true)",
    "set_config for the session": f"SELECT set_config('holdfast.org_id', '{OTHER_ORG}', false)",
    "SET LOCAL": f"SET LOCAL holdfast.org_id = '{OTHER_ORG}'",
    "SET": f"SET holdfast.org_id = '{OTHER_ORG}'",
    "RESET": "RESET holdfast.org_id",
    "RESET ROLE": "RESET ROLE",
    "RESET ROLE and the setting": f"RESET ROLE; SET holdfast.org_id = '{OTHER_ORG}'",
    "SET ROLE NONE": "SET ROLE NONE",
    "SET ROLE holdfast_handler": "SET ROLE holdfast_handler",
    "SET ROLE holdfast_auditor": "SET ROLE holdfast_auditor",
    "SET ROLE holdfast_engine": "SET ROLE holdfast_engine",
    "SET ROLE of the engine's login": f"SET ROLE {ENGINE}",
    "SET ROLE postgres": "SET ROLE postgres",
    "SET SESSION AUTHORIZATION": f"SET SESSION AUTHORIZATION {ENGINE}",
    "RESET SESSION AUTHORIZATION": "RESET SESSION AUTHORIZATION",
    "row_security off": "SET row_security = off",
    "row_security off for the transaction": "SET LOCAL row_security = off",
    "RESET ALL": "RESET ALL",
    "DISCARD ALL": "DISCARD ALL",
    "session_replication_role": "SET session_replication_role = replica",
    "GRANT": f"GRANT holdfast_engine TO {LOGIN}",
    "ALTER ROLE": f"ALTER ROLE {LOGIN} BYPASSRLS",
    "CREATE ROLE": "CREATE ROLE intruder SUPERUSER",
    "ALTER TABLE": "ALTER TABLE holdfast.job_envelope DISABLE ROW LEVEL SECURITY",
    "CREATE POLICY": "CREATE POLICY open ON holdfast.job_envelope USING (true)",
    "a binding of its own": "INSERT INTO holdfast.handler_transaction (org_id, xid)"
    f" VALUES ('{OTHER_ORG}', pg_current_xact_id()::text::bigint)",
    "another tenant in its binding": "UPDATE holdfast.handler_transaction"
    f" SET org_id = '{OTHER_ORG}'",
    "no binding": "DELETE FROM holdfast.handler_transaction",
    "the bindings of others": "SELECT org_id FROM holdfast.handler_transaction",
    "another function in its place": "CREATE OR REPLACE FUNCTION holdfast.current_tenant()"
    f" RETURNS uuid LANGUAGE sql AS $$ SELECT '{OTHER_ORG}'::uuid $$",
    "a function in front of it": "CREATE FUNCTION pg_temp.current_tenant() RETURNS uuid"
    f" LANGUAGE sql AS $$ SELECT '{OTHER_ORG}'::uuid $$;"
    " SET search_path = pg_temp, holdfast, public",
    "a table in front of the binding": "CREATE TEMP TABLE handler_transaction AS"
    f" SELECT '{OTHER_ORG}'::uuid AS org_id, pg_current_xact_id()::text::bigint AS xid;"
    " SET search_path = pg_temp, holdfast, public",
    "an operator in front of =": "CREATE FUNCTION pg_temp.yes(uuid, uuid) RETURNS boolean"
    " LANGUAGE sql AS $$ SELECT true $$; CREATE OPERATOR pg_temp.= (LEFTARG = uuid,"
    " RIGHTARG = uuid, FUNCTION = pg_temp.yes); SET search_path = pg_temp, pg_catalog, public",
    "a job for another tenant": "SELECT holdfast.enqueue('order.ship', '{}'::jsonb,"
    f" '{OTHER_ORG}')",
    "a function of Holdfast with its owner's rights": "SELECT holdfast.is_full('q:exports');"
    f" SELECT holdfast.enqueue('order.ship', '{{}}'::jsonb, '{OTHER_ORG}')",
    "a function of the application with its owner's rights": "SELECT public.forget_notes(),"
    f" set_config('holdfast.org_id', '{OTHER_ORG}', true), public.forget_notes()",
    "a function of its own with its owner's rights": "CREATE FUNCTION pg_temp.look() RETURNS"
    " bigint LANGUAGE sql SECURITY DEFINER AS $$ SELECT count(*) FROM holdfast.job $$;"
    " SELECT pg_temp.look()",
    "the engine's function": "RESET ROLE; SELECT holdfast.run_as_engine('', 'SELECT 1')",
    "a savepoint": f"SAVEPOINT s; SELECT set_config('holdfast.org_id', '{OTHER_ORG}', true)",
}


TAKE = (
    "UPDATE note SET text = 'taken' WHERE org_id = %(other)s",
    "DELETE FROM note WHERE org_id = %(other)s",
    "INSERT INTO note VALUES (%(other)s, 'planted')",
    "SELECT holdfast.enqueue('order.ship', '{}'::jsonb, %(other)s)",
    "DELETE FROM holdfast.job_ready WHERE org_id = %(other)s",
    "UPDATE holdfast.job_running SET lease_expires_at = now() WHERE org_id = %(other)s",
)


def rows_of_the_other_tenant(url: str) -> list[Any]:
    with psycopg.connect(url) as admin:
        return [
            admin.execute(text.encode(), (OTHER_ORG,)).fetchall()
            for text in (
                "SELECT * FROM note WHERE org_id = %s",
                "SELECT id, state, priority, updated_at FROM holdfast.job WHERE org_id = %s",
                "SELECT id, name FROM holdfast.job_event WHERE org_id = %s ORDER BY id",
            )
        ]


def take_all(connection: Any) -> None:
    """Try to change the other tenant's rows, and record what was possible."""
    for text in TAKE:
        connection.execute("SAVEPOINT attempt")
        with suppress(psycopg.Error):
            connection.execute(text.encode(), {"other": OTHER_ORG})
        if connection.info.transaction_status == TransactionStatus.INERROR:
            connection.execute("ROLLBACK TO attempt")


@pytest.mark.req("X-01", "X-06", "X-09")
def test_a_hostile_statement_reads_and_writes_no_other_tenant(shop: Holdfast, url: str) -> None:
    seen: dict[str, set[str]] = {}
    stolen: list[Any] = []
    attacks = iter(HOSTILE)
    before = rows_of_the_other_tenant(url)

    def handler(job: Context) -> None:
        attack = next(attacks)
        with job.transaction() as connection:
            assert tenants_in(connection) == {ORG}
            connection.execute("SAVEPOINT before_attack")
            try:
                rows = connection.execute(HOSTILE[attack].encode())
                if attack == "the bindings of others":
                    stolen.extend(rows.fetchall())
            except psycopg.Error:
                connection.execute("ROLLBACK TO before_attack")
            try:
                seen[attack] = tenants_in(connection)
            except psycopg.Error:
                # With row_security off the server refuses rows that a policy would have filtered.
                seen[attack] = set()
                connection.execute("ROLLBACK TO before_attack")
            take_all(connection)

    # Each attack is a separate job, mostly on the session of the attack before it.
    for attack in HOSTILE:
        run(shop, handler)

        assert attack in seen, f"{attack}: the handler did not get as far as its attack"
        assert seen[attack] <= {ORG}, attack
        assert stolen == []
        assert rows_of_the_other_tenant(url) == before, attack


ENDS = {
    "COMMIT": "COMMIT",
    "COMMIT and BEGIN": "COMMIT; BEGIN",
    "COMMIT AND CHAIN": "COMMIT AND CHAIN",
    "ROLLBACK and BEGIN": "ROLLBACK; BEGIN",
    "COMMIT and the setting": f"COMMIT; BEGIN; SET holdfast.org_id = '{OTHER_ORG}'",
    "COMMIT and the role": "COMMIT; BEGIN; SET ROLE holdfast_tenant",
    "PREPARE TRANSACTION": "PREPARE TRANSACTION 'x'; BEGIN",
    "COMMIT and DISCARD ALL": "COMMIT",
}


@pytest.mark.parametrize("attack", list(ENDS))
def test_a_transaction_of_the_handler_s_own_is_bound_to_no_tenant(
    shop: Holdfast, attack: str
) -> None:
    seen: list[set[str]] = []

    def handler(job: Context) -> None:
        with job.transaction() as connection, suppress(psycopg.Error):
            assert tenants_in(connection) == {ORG}
            seen.append(set())
            connection.execute(ENDS[attack].encode())
            if attack == "COMMIT and DISCARD ALL":
                connection.execute("DISCARD ALL")
            connection.execute("SELECT pg_current_xact_id()")
            seen.append(tenants_in(connection))

    job = run(shop, handler)

    assert seen, "the handler did not get as far as its attack"
    assert all(found == set() for found in seen), seen
    assert ended(shop, job)[0] is State.FAILED


def test_the_next_job_on_the_same_connection_finds_nothing_of_the_one_before(
    shop: Holdfast, url: str
) -> None:
    """One connection for all jobs: state that a hostile job leaves must not reach others."""
    sessions: list[int] = []
    found: dict[str, Any] = {}

    def hostile(job: Context) -> None:
        with job.transaction() as connection:
            sessions.append(connection.info.backend_pid)
            connection.execute("CREATE TEMP TABLE loot AS SELECT * FROM note")
            connection.execute("CREATE TEMP TABLE note AS SELECT * FROM public.note")
            connection.execute("DECLARE loot CURSOR WITH HOLD FOR SELECT org_id FROM holdfast.job")
            connection.execute("PREPARE loot AS SELECT 1")
            connection.execute("SET search_path = pg_temp")
            connection.execute(f"SET holdfast.org_id = '{job.org_id}'".encode())
            connection.execute("SET default_transaction_read_only = on")
            connection.execute("SELECT pg_advisory_lock(7)")

    def next_one(job: Context) -> None:
        with job.transaction() as connection:
            sessions.append(connection.info.backend_pid)
            found["tenants"] = tenants_in(connection)
            connection.execute("INSERT INTO note VALUES (%s, 'mine')", (job.org_id,))
            for kind, text in {
                "table": "SELECT 1 FROM pg_class WHERE relname = 'loot'",
                "cursor": "SELECT 1 FROM pg_cursors WHERE name = 'loot'",
                "prepared": "SELECT 1 FROM pg_prepared_statements WHERE name = 'loot'",
                "lock": "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = 7",
            }.items():
                found[kind] = connection.execute(text.encode()).fetchall()

    assert ended(shop, run(shop, hostile, org_id=OTHER_ORG)) == DONE
    assert ended(shop, run(shop, next_one)) == DONE
    assert sessions[0] == sessions[1]
    assert found == {"tenants": {ORG}, "table": [], "cursor": [], "prepared": [], "lock": []}
    with psycopg.connect(url) as admin:
        rows = admin.execute("SELECT text FROM note WHERE org_id = %s", (ORG,)).fetchall()
    assert sorted(row[0] for row in rows) == ["first", "mine"]


def test_two_blocks_at_once_see_their_own_tenant_each(shop: Holdfast) -> None:
    both = threading.Barrier(2, timeout=60)
    seen: dict[str, set[str]] = {}

    def look_around(org_id: str) -> None:
        with shop.store.tenant_transaction(org_id, None, lambda tx: None) as connection:
            both.wait()
            seen[org_id] = tenants_in(connection)
            both.wait()

    threads = [threading.Thread(target=look_around, args=(org,)) for org in (ORG, OTHER_ORG)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert seen == {ORG: {ORG}, OTHER_ORG: {OTHER_ORG}}


def test_the_calls_of_the_job_join_the_block(shop: Holdfast) -> None:
    def handler(job: Context) -> None:
        with job.transaction() as connection:
            job.progress(1, 2, "half")
            job.checkpoint({"page": 7})
            with suppress(KeyError), job.transaction():
                connection.execute("INSERT INTO note VALUES (%s, 'undone')", (job.org_id,))
                raise KeyError
            connection.execute("INSERT INTO note VALUES (%s, 'kept')", (job.org_id,))

    job = run(shop, handler)

    assert ended(shop, job) == DONE
    (stage,) = look(
        shop.store,
        "SELECT checkpoint, progress FROM holdfast.job_stage WHERE job_id = :id",
        id=job.id,
    )
    assert stage["checkpoint"] == '{"page": 7}'
    assert '"done": 1' in stage["progress"]


def test_progress_of_a_failed_block_is_undone_with_it(shop: Holdfast) -> None:
    def handler(job: Context) -> None:
        with job.transaction():
            job.checkpoint({"page": 7})
            raise KeyError

    job = run(shop, handler)

    stages = look(
        shop.store, "SELECT 1 AS one FROM holdfast.job_stage WHERE job_id = :id", id=job.id
    )
    assert stages == []


def test_an_artifact_and_a_job_of_the_block_are_committed_with_it(open_shop: Holdfast) -> None:
    shop = open_shop

    def handler(job: Context) -> None:
        with job.transaction() as connection:
            job.artifacts.put(b"x", name="a.txt")
            shop.enqueue("order.ship", {"n": 2}, conn=connection, queue="q:exports")
            connection.execute("INSERT INTO note VALUES (%s, 'it''s \\ kept')", (job.org_id,))

    job = run(shop, handler)

    assert ended(shop, job) == DONE
    (file,) = look(shop.store, "SELECT name FROM holdfast.artifact WHERE job_id = :id", id=job.id)
    assert file["name"] == "a.txt"
    assert shop.operate(actor="user:ann", role="admin").verify().violated == ()


def test_rows_and_outcome_are_one_commit_on_this_login_too(open_shop: Holdfast, url: str) -> None:
    shop = open_shop

    def handler(job: Context) -> None:
        with job.transaction(complete=True) as connection:
            connection.execute("INSERT INTO note VALUES (%s, 'kept')", (job.org_id,))
            job.set_result({"kept": 1})
        raise KeyError

    job = run(shop, handler)

    assert ended(shop, job) == DONE
    assert shop.get(job.id, org_id=ORG).result == {"kept": 1}
    with psycopg.connect(url) as admin:
        kept = admin.execute("SELECT count(*) FROM note WHERE text = 'kept'").fetchone()
    assert kept == (1,)
    assert shop.operate(actor="user:ann", role="admin").verify().violated == ()


@pytest.mark.req("I-15")
def test_a_worker_that_lost_its_lease_commits_nothing(
    shop: Holdfast, url: str, clock: FakeClock
) -> None:
    def handler(job: Context) -> None:
        with job.transaction() as connection:
            connection.execute("INSERT INTO note VALUES (%s, 'stale')", (job.org_id,))
            clock.advance(seconds=61)
            rescued.extend(rescue_jobs(shop.store, limit=10))

    rescued: list[Any] = []
    job = run(shop, handler)
    assert rescued

    with psycopg.connect(url) as admin:
        rows = admin.execute("SELECT text FROM note WHERE text = 'stale'").fetchall()
    assert rows == []
    assert "job.succeeded" not in timeline(shop, job)


FORGED = "UPDATE holdfast.job_running SET lease_expires_at = '2999-01-01'"


@pytest.mark.parametrize("secret", ["", "guess", None])
def test_the_engine_s_functions_refuse_a_caller_without_the_secret(
    shop: Holdfast, secret: str | None
) -> None:
    refused: list[str | None] = []

    def handler(job: Context) -> None:
        for function in ("run_as_engine", "check_secret"):
            with suppress(pg.InsufficientPrivilege), job.transaction() as connection:
                connection.execute("RESET ROLE")
                arguments = "%s, %s" if function == "run_as_engine" else "%s"
                values = (secret, FORGED)[: arguments.count("%s")]
                connection.execute(f"SELECT holdfast.{function}({arguments})".encode(), values)
                refused.append(function)

    run(shop, handler)

    assert refused == []
    forged = look(shop.store, "SELECT id FROM holdfast.job WHERE lease_expires_at > '2900-01-01'")
    assert forged == []


@pytest.mark.parametrize("category", ["planning", "maintenance", "audit_enrichment"])
def test_what_a_category_forbids_is_refused_on_this_login_too(
    shop: Holdfast, category: str
) -> None:
    seen: list[set[str]] = []
    text = "INSERT INTO holdfast.audit_seal SELECT * FROM holdfast.audit_seal"

    def handler(job: Context) -> None:
        with job.transaction() as connection:
            seen.append(tenants_in(connection) if category != "audit_enrichment" else set())
            connection.execute(text.encode())

    job = run(shop, handler, category=category)

    assert ended(shop, job) == (State.FAILED, "RULE_VIOLATED")
    assert seen[0] <= {ORG}


def test_an_audit_handler_that_leaves_its_role_changes_no_table_of_the_application(
    shop: Holdfast,
) -> None:
    def handler(job: Context) -> None:
        with job.transaction() as connection:
            connection.execute("RESET ROLE")
            connection.execute("INSERT INTO note VALUES (%s, 'loot')", (job.org_id,))

    job = run(shop, handler, category="audit_enrichment")

    assert ended(shop, job) == (State.FAILED, "RULE_VIOLATED")


@pytest.mark.parametrize("stale", ["of a restored dump", "of this server"])
def test_a_binding_that_was_left_behind_never_applies(shop: Holdfast, url: str, stale: str) -> None:
    """With any transaction id: after a COMMIT of its own a handler has no tenant."""
    started = "pg_postmaster_start_time()"
    if stale == "of a restored dump":
        started += " - interval '1 day'"
    seen: list[set[str]] = []

    def handler(job: Context) -> None:
        with job.transaction() as connection:
            with psycopg.connect(url, autocommit=True) as admin:
                admin.execute(
                    "INSERT INTO holdfast.handler_transaction (org_id, xid, secret_hash,"
                    f" server_started_at) SELECT '{OTHER_ORG}', xid, '', {started}"
                    " FROM generate_series(1, 100) AS before,"
                    " LATERAL (SELECT pg_current_xact_id()::text::bigint"
                    f" {'+' if stale == 'of a restored dump' else '-'} before AS xid) AS ids"
                )
            connection.execute("COMMIT; BEGIN; SELECT pg_current_xact_id()")
            seen.append(tenants_in(connection))

    run(shop, handler)

    assert seen == [set()]


def test_a_connection_lost_in_the_block_is_transient_and_leaves_nothing(
    shop: Holdfast, url: str
) -> None:
    def handler(job: Context) -> None:
        with job.transaction() as connection:
            connection.execute("INSERT INTO note VALUES (%s, 'lost')", (job.org_id,))
            with psycopg.connect(url, autocommit=True) as admin:
                admin.execute(
                    "SELECT pg_terminate_backend(%s, 60000)", (connection.info.backend_pid,)
                )

    job = run(shop, handler)

    state, error_class = ended(shop, job)
    assert state is State.QUEUED
    assert error_class == "STORE_UNAVAILABLE"
    with psycopg.connect(url) as admin:
        assert admin.execute("SELECT 1 FROM note WHERE text = 'lost'").fetchall() == []

    assert ended(shop, run(shop, lambda job: None)) == DONE


def test_the_command_prints_the_sql_that_makes_a_fit_login(
    url: str, postgres: PostgresServer
) -> None:
    printed = CliRunner().invoke(cli, ["handler-login", "printed_login"])
    assert printed.exit_code == 0
    with psycopg.connect(postgres.dsn(), autocommit=True) as admin:
        admin.execute(printed.output.encode())
        try:
            with make_holdfast(url) as hf:
                login = hf.store.read_handler_login(as_login(url, "printed_login"))
            assert login.fault is None
        finally:
            admin.execute("DROP ROLE printed_login")

    refused = CliRunner().invoke(cli, ["handler-login", "x; DROP TABLE note"])
    assert refused.exit_code == 2


# -- a login without isolation


@contextmanager
def login_with(server: PostgresServer, *statements: str) -> Iterator[str]:
    name = f"unfit{next(_names)}"
    with psycopg.connect(server.dsn(), autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {name} LOGIN")
        for statement in statements:
            admin.execute(statement.format(name=name).encode())
    yield name
    with psycopg.connect(server.dsn(), autocommit=True) as admin:
        admin.execute(f"DROP ROLE {name}")


@pytest.mark.parametrize(
    ("statements", "says"),
    [
        (["GRANT holdfast_tenant TO {name}"], "is not a member of holdfast_handler"),
        (
            ["GRANT holdfast_handler, holdfast_engine TO {name}"],
            "has the rights of role holdfast_engine",
        ),
        (
            ["GRANT holdfast_handler TO {name}", "ALTER ROLE {name} SUPERUSER"],
            "has the rights of a superuser",
        ),
        (
            ["GRANT holdfast_handler TO {name}", "ALTER ROLE {name} BYPASSRLS"],
            "has the rights of BYPASSRLS",
        ),
        (
            ["GRANT holdfast_handler TO {name}", "ALTER ROLE {name} CREATEROLE"],
            "has the rights of CREATEROLE",
        ),
        (["GRANT holdfast_handler, pg_read_server_files TO {name}"], "role pg_read_server_files"),
        (
            ["GRANT holdfast_handler, " + ENGINE + " TO {name}"],
            "has the rights of role holdfast_engine",
        ),
    ],
)
def test_a_login_that_could_reach_other_tenants_is_refused(
    url: str, postgres: PostgresServer, statements: list[str], says: str
) -> None:
    def handler(job: Context) -> None:
        with job.transaction():
            raise AssertionError("never reached")

    with (
        login_with(postgres, *statements) as name,
        make_holdfast(url, handler_db=as_login(url, name)) as hf,
    ):
        assert ended(hf, run(hf, handler)) == (State.FAILED, "CONFIG_INVALID")
        with (
            pytest.raises(ConfigError, match=says),
            hf.store.tenant_transaction(ORG, None, lambda tx: None),
        ):
            raise AssertionError("never reached")


def test_a_login_of_another_database_is_refused(
    shop: Holdfast, url: str, databases: Any, postgres: PostgresServer
) -> None:
    other = databases.take()
    try:
        store = open_store(url, handler_url=as_login(postgres.dsn(other), LOGIN))
        with (
            pytest.raises(ConfigError, match="points to another database than db"),
            store.tenant_transaction(ORG, None, lambda tx: None),
        ):
            raise AssertionError("never reached")
        store.close()
    finally:
        databases.give_back(other)


def test_sqlite_has_no_logins(tmp_path: Any) -> None:
    with pytest.raises(ConfigError, match="handler_db is a login of PostgreSQL"):
        make_holdfast(f"sqlite:///{tmp_path}/x.db", handler_db="postgresql://x@localhost/y")


# -- one login for all: no isolation against hostile code


def test_on_the_engine_s_login_a_setting_still_decides(url: str, clock: FakeClock) -> None:
    """One login does not isolate tenants: the documents and the doctor say so."""
    seen: list[set[str]] = []
    with make_holdfast(as_login(url, ENGINE), clock) as hf:
        hf.job("order.ship")(lambda job, payload: payload)
        hf.enqueue("order.ship", {}, org_id=OTHER_ORG, queue="q:exports")

        def handler(job: Context) -> None:
            with job.transaction() as connection:
                seen.append(tenants_in(connection))
                connection.execute(HOSTILE["set_config"].encode())
                seen.append(tenants_in(connection))

        assert ended(hf, run(hf, handler)) == DONE

    assert seen == [{ORG}, {OTHER_ORG}]


def test_on_the_engine_s_login_the_next_user_of_the_session_finds_nothing_either(
    url: str, clock: FakeClock
) -> None:
    with make_holdfast(as_login(url, ENGINE), clock) as hf:
        found: list[Any] = []

        def hostile(job: Context) -> None:
            with job.transaction() as connection:
                connection.execute("CREATE TEMP TABLE note AS SELECT * FROM public.note")
                connection.execute("SET default_transaction_read_only = on")
                connection.execute("SET search_path = pg_temp")
                connection.execute("SET SESSION ROLE holdfast_tenant")

        def next_one(job: Context) -> None:
            with job.transaction() as connection:
                found.append(connection.execute("SELECT DISTINCT text FROM note").fetchall())
                connection.execute("INSERT INTO note VALUES (%s, 'mine')", (job.org_id,))

        assert ended(hf, run(hf, hostile, org_id=OTHER_ORG)) == DONE
        assert ended(hf, run(hf, next_one)) == DONE
        assert found == [[("first",)]]


def test_a_tenant_s_login_still_says_who_it_is(url: str, postgres: PostgresServer) -> None:
    with (
        login_with(postgres, "GRANT holdfast_tenant TO {name}") as name,
        psycopg.connect(as_login(url, name)) as connection,
    ):
        connection.execute("SELECT set_config('holdfast.org_id', %s, true)", (ORG,))
        row = connection.execute("SELECT holdfast.current_tenant()").fetchone()
        assert row is not None
        assert str(row[0]) == ORG
        with pytest.raises(pg.InsufficientPrivilege):
            connection.execute("SELECT holdfast.run_as_engine('', 'SELECT 1')")
