"""Definitions of the schema are compared with those of the migrations."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from functools import partial
from importlib import resources
from pathlib import Path

import psycopg
import pytest

from holdfast import FakeClock, Holdfast
from holdfast.operate.verify.definitions import (
    FILE,
    expected_definitions,
    read_definitions,
    write_definitions,
)
from holdfast.store import CORE, Store, open_store
from holdfast.store.dialect import SQLITE
from tests.conftest import COMPONENTS, TEMPLATE
from tests.operate.sound import assert_sound, report_of, violations
from tests.postgres_server import PostgresServer
from tests.story import ORG, make_holdfast


def found(hf: Holdfast) -> list[str]:
    return violations(report_of(hf, only=["I47"])).get("I47", [])


def test_the_files_of_definitions_are_what_the_migrations_make(postgres: PostgresServer) -> None:
    store = open_store(postgres.dsn(TEMPLATE))
    made = store.read(partial(read_definitions, components=COMPONENTS))
    store.close()

    files = [
        (resources.files(found.package) / found.folder / FILE).read_text(encoding="utf-8")
        for found in (CORE, *COMPONENTS)
    ]
    lines = sorted(line for text in files for line in text.splitlines())
    is_current = lines == sorted(write_definitions(made).splitlines())
    assert is_current, "a migration has changed: run make definitions"


def test_a_new_database_is_as_the_migrations_make_it(store: Store) -> None:
    made = store.read(partial(read_definitions, components=COMPONENTS))

    assert made == expected_definitions(store.dialect, COMPONENTS)
    kinds = {subject.partition(":")[0] for subject in made}
    wanted = {"table", "index", "trigger", "view"}
    if store.dialect is not SQLITE:
        wanted |= {"column", "constraint", "function", "policy", "role", "schema"}
    assert wanted <= kinds


@pytest.fixture
def restored(postgres: PostgresServer, postgres_url: str, tmp_path: Path) -> Iterator[str]:
    """The copy of a database that was dumped and restored."""
    with make_holdfast(postgres_url) as hf:
        hf.job("plain")(lambda job, payload: payload)
        hf.enqueue("plain", {"price": 1.50, "large": 1e20}, org_id=ORG)
        hf.worker().run_once()
    with psycopg.connect(postgres.dsn(), autocommit=True) as admin:
        admin.execute("CREATE DATABASE restored")
        kept = tmp_path / "dump"
        programs = postgres.binaries
        subprocess.run([programs / "pg_dump", "-Fc", "-f", kept, postgres_url], check=True)
        subprocess.run([programs / "pg_restore", "-d", postgres.dsn("restored"), kept], check=True)
        yield postgres.dsn("restored")
        admin.execute("DROP DATABASE restored WITH (FORCE)")


def test_a_database_that_was_dumped_and_restored_is_sound(restored: str) -> None:
    with make_holdfast(restored) as hf:
        assert_sound(hf)


@pytest.fixture
def stranger(postgres: PostgresServer) -> Iterator[str]:
    """A role of the application, dropped afterwards."""
    with psycopg.connect(postgres.dsn(), autocommit=True) as admin:
        admin.execute("CREATE ROLE stranger LOGIN")
        yield "stranger"
        admin.execute("DROP ROLE stranger")


def test_what_a_deployment_adds_for_itself_is_no_violation(
    postgres_url: str, stranger: str
) -> None:
    with psycopg.connect(postgres_url) as owner:
        for text in (
            "CREATE TABLE public.sheet (id integer)",
            "GRANT SELECT, INSERT, UPDATE, DELETE ON public.sheet TO holdfast_tenant",
            "CREATE INDEX sheet_of_job ON holdfast.job_envelope (actor_id)",
            "ALTER TABLE holdfast.job_envelope SET (fillfactor = 80)",
            f"GRANT USAGE ON SCHEMA holdfast TO {stranger}",
            f"GRANT SELECT ON ALL TABLES IN SCHEMA holdfast TO {stranger}",
            f"GRANT holdfast_engine TO {stranger}",
        ):
            owner.execute(text.encode())
    with make_holdfast(postgres_url) as hf:
        assert found(hf) == []
    with psycopg.connect(postgres_url) as owner:
        owner.execute(f"DROP OWNED BY {stranger}".encode())
        owner.execute(f"REVOKE holdfast_engine FROM {stranger}".encode())


BODY = "RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RETURN NULL; END$$"
IDLE = {
    "function:refuse_move": f"CREATE OR REPLACE FUNCTION holdfast.refuse_move() {BODY}",
    "trigger:job_outcome.job_ended": "ALTER TABLE holdfast.job_outcome DISABLE TRIGGER job_ended",
    "policy:job_envelope.engine_serves_all": (
        "DROP POLICY engine_serves_all ON holdfast.job_envelope"
    ),
}


@pytest.mark.parametrize("subject", IDLE)
def test_a_function_or_a_trigger_that_does_nothing_is_found(
    postgres_url: str, subject: str
) -> None:
    with make_holdfast(postgres_url) as hf:
        assert found(hf) == []
        with psycopg.connect(postgres_url) as owner:
            owner.execute(IDLE[subject].encode())

        assert [line.split()[0] for line in found(hf)] == [subject]


@pytest.mark.parametrize("grantee", ["holdfast_engine", "PUBLIC", "stranger"])
def test_a_right_to_change_the_audit_is_found(
    postgres_url: str, stranger: str, grantee: str
) -> None:
    with make_holdfast(postgres_url) as hf:
        with psycopg.connect(postgres_url) as owner:
            owner.execute(f"GRANT UPDATE, DELETE ON holdfast.audit_event TO {grantee}".encode())

        told = found(hf)
        assert [" ".join(line.split()[:2]) for line in told] == [
            "table:audit_event DELETE",
            "table:audit_event UPDATE",
        ]
    with psycopg.connect(postgres_url) as owner:
        owner.execute(f"DROP OWNED BY {stranger}".encode())


def test_a_table_of_the_applications_own_is_no_violation(
    migrated_sqlite_url: str, clock: FakeClock
) -> None:
    with make_holdfast(migrated_sqlite_url, clock) as hf:
        hf.store.write(
            lambda tx: tx.connection.execute("CREATE TABLE sheet (id)")  # type: ignore[attr-defined]
        )
        hf.store.write(
            lambda tx: tx.connection.execute(  # type: ignore[attr-defined]
                "CREATE INDEX sheet_of_job ON holdfast_job_envelope (actor_id)"
            )
        )
        assert found(hf) == []


def test_a_role_that_may_only_read_can_verify(postgres_url: str, stranger: str) -> None:
    with psycopg.connect(postgres_url) as owner:
        owner.execute(f"GRANT USAGE ON SCHEMA holdfast TO {stranger}".encode())
        owner.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA holdfast TO {stranger}".encode())
        owner.execute(f"ALTER ROLE {stranger} BYPASSRLS".encode())
    with make_holdfast(postgres_url.replace("postgres@", f"{stranger}@")) as hf:
        assert_sound(hf)
    with psycopg.connect(postgres_url) as owner:
        owner.execute(f"DROP OWNED BY {stranger}".encode())
