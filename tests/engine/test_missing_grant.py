"""A handler whose role lacks a privilege on a table: the error names the table and the remedy."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy as sa
from psycopg import errors as pg

from holdfast import Context, Enqueued, FakeClock, Holdfast, State
from holdfast.event import JobSettled
from tests.postgres_server import PostgresServer
from tests.story import ORG, by_hand, look, make_holdfast

INSERT = "INSERT INTO note (text) VALUES ('kept')"


@pytest.fixture
def shop(postgres_url: str, clock: FakeClock) -> Iterator[Holdfast]:
    with make_holdfast(postgres_url, clock) as hf:
        by_hand(hf.store, "CREATE TABLE note (id serial, text text)")
        yield hf


def run(hf: Holdfast, text: str, category: str = "general") -> Enqueued:
    """A job whose handler runs one statement in its own transaction."""

    @hf.job("write.note", category=category)
    def write(job: Context, payload: object) -> None:
        with job.transaction() as connection:
            connection.execute(text.encode())

    enqueued = hf.enqueue("write.note", {}, org_id=ORG)
    hf.worker().run_once()
    return enqueued


def failed(hf: Holdfast, job: Enqueued) -> tuple[str | None, str]:
    found = hf.get(job.id, org_id=ORG)
    assert found.state is State.FAILED
    return found.error_class, str(found.record["last_error"])


def test_a_table_without_a_grant_is_a_configuration_failure_that_names_all_of_it(
    shop: Holdfast,
) -> None:
    told: list[Any] = []
    shop.events.subscribe(told.append)

    error_class, said = failed(shop, run(shop, INSERT))

    assert error_class == "CONFIG_INVALID"
    assert "table=public.note" in said
    assert "role=holdfast_tenant" in said
    assert "missing=SELECT+INSERT+UPDATE+DELETE" in said
    assert "remedy=holdfast grant public.note" in said
    assert [event.pages_operator for event in told if isinstance(event, JobSettled)] == [True]
    assert look(shop.store, "SELECT text FROM note") == []


def test_only_the_rights_that_are_missing_are_named(shop: Holdfast) -> None:
    by_hand(shop.store, "GRANT SELECT ON note TO holdfast_tenant")

    _, said = failed(shop, run(shop, INSERT))

    assert "missing=INSERT+UPDATE+DELETE" in said


def test_a_sequence_leads_to_the_table_that_it_fills_in(shop: Holdfast) -> None:
    by_hand(shop.store, "GRANT SELECT, INSERT, UPDATE, DELETE ON note TO holdfast_tenant")

    error_class, said = failed(shop, run(shop, INSERT))

    assert error_class == "CONFIG_INVALID"
    assert "table=public.note" in said
    assert "missing=USAGE" in said
    assert "remedy=holdfast grant public.note" in said


def test_a_schema_is_named_where_the_role_does_not_get_as_far_as_a_table(shop: Holdfast) -> None:
    by_hand(shop.store, "CREATE SCHEMA app")
    by_hand(shop.store, "CREATE TABLE app.note (text text)")

    error_class, said = failed(shop, run(shop, "INSERT INTO app.note VALUES ('x')"))

    assert error_class == "CONFIG_INVALID"
    assert "schema=app" in said
    assert "role=holdfast_tenant" in said
    assert "missing=USAGE" in said


def test_a_name_from_user_text_is_not_stored(shop: Holdfast) -> None:
    by_hand(shop.store, 'CREATE TABLE "olga@example.com 4111111111111111" (text text)')

    error_class, said = failed(
        shop, run(shop, """INSERT INTO "olga@example.com 4111111111111111" VALUES ('x')""")
    )

    assert error_class == "CONFIG_INVALID"
    assert "role=holdfast_tenant" in said
    assert "olga" not in said
    assert "4111" not in said


@pytest.mark.parametrize("category", ["maintenance", "planning"])
def test_a_confined_handler_without_a_grant_is_a_configuration_failure_too(
    shop: Holdfast, category: str
) -> None:
    error_class, said = failed(shop, run(shop, "SELECT text FROM note", category=category))

    assert error_class == "CONFIG_INVALID"
    assert "remedy=holdfast grant public.note" in said


def test_an_audit_handler_that_reaches_for_a_domain_table_has_broken_its_rule(
    shop: Holdfast,
) -> None:
    error_class, _ = failed(shop, run(shop, INSERT, category="audit_enrichment"))

    assert error_class == "RULE_VIOLATED"


@pytest.mark.parametrize(
    "text",
    [
        "UPDATE holdfast.job_envelope SET priority = 0",
        "DELETE FROM holdfast.audit_event",
    ],
)
def test_holdfast_s_own_tables_are_nothing_to_grant(shop: Holdfast, text: str) -> None:
    error_class, said = failed(shop, run(shop, text))

    assert error_class == "RULE_VIOLATED"
    assert "holdfast grant" not in said


def test_a_refusal_of_row_level_security_stays_what_it_is(shop: Holdfast) -> None:
    by_hand(shop.store, "GRANT ALL ON note, note_id_seq TO holdfast_tenant")
    by_hand(shop.store, "ALTER TABLE note ENABLE ROW LEVEL SECURITY")

    error_class, said = failed(shop, run(shop, INSERT))

    assert error_class == "DEFECT"
    assert "holdfast grant" not in said


def test_what_only_an_owner_may_do_is_nothing_to_grant(shop: Holdfast) -> None:
    error_class, said = failed(shop, run(shop, "DROP TABLE note"))

    assert error_class == "DEFECT"
    assert "holdfast grant" not in said


# -- the handler's own connection


@pytest.fixture(scope="module")
def stranger(postgres: PostgresServer) -> Iterator[str]:
    with psycopg.connect(postgres.dsn(), autocommit=True) as admin:
        admin.execute("CREATE ROLE unprivileged LOGIN")
    yield "unprivileged"
    with psycopg.connect(postgres.dsn(), autocommit=True) as admin:
        admin.execute("DROP ROLE unprivileged")


def by_psycopg(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute(INSERT.encode())


def by_sqlalchemy(url: str) -> None:
    engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    try:
        with engine.begin() as connection:
            connection.execute(sa.text(INSERT))
    finally:
        engine.dispose()


def by_asyncpg(url: str) -> None:
    async def story() -> None:
        connection = await asyncpg.connect(url)
        try:
            await connection.execute(INSERT)
        finally:
            await connection.close()

    asyncio.run(story())


@pytest.mark.parametrize("opened", [by_psycopg, by_sqlalchemy, by_asyncpg])
def test_a_connection_of_the_handler_s_own_is_distinguished_from_a_defect_too(
    shop: Holdfast, stranger: str, opened: Any
) -> None:
    url = shop.settings.db.replace("postgres@", f"{stranger}@")
    shop.job("write.note")(lambda job, payload: opened(url))
    job = shop.enqueue("write.note", {}, org_id=ORG)
    shop.worker().run_once()

    error_class, said = failed(shop, job)

    assert error_class == "CONFIG_INVALID"
    assert "table=note" in said


def test_the_server_s_own_words_are_never_stored(shop: Holdfast) -> None:
    @shop.job("write.note")
    def write(job: Context, payload: object) -> None:
        raise pg.InsufficientPrivilege("permission denied for table olga@example.com")

    job = shop.enqueue("write.note", {}, org_id=ORG)
    shop.worker().run_once()

    error_class, said = failed(shop, job)
    assert error_class == "DEFECT"
    assert "olga" not in said
