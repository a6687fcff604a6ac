"""The doctor on privileges: tables that handlers cannot use, and tables that all handlers can."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from holdfast import Context, Holdfast
from holdfast.operate.doctor import Finding, Severity, examine
from tests.postgres_server import PostgresServer
from tests.story import ORG, by_hand, make_holdfast


@pytest.fixture
def shop(postgres_url: str) -> Iterator[Holdfast]:
    with make_holdfast(postgres_url) as hf:
        yield hf


def found(hf: Holdfast, check: str) -> list[Finding]:
    every = examine(hf.operate(actor="user:op", role="admin").context)
    return [finding for finding in every if finding.check == check]


def test_an_application_without_tables_has_nothing_to_grant(shop: Holdfast) -> None:
    (finding,) = found(shop, "grants")

    assert finding.severity is Severity.OK


def test_a_table_without_a_grant_is_a_notice_and_once_a_job_died_of_it_a_warning(
    shop: Holdfast,
) -> None:
    by_hand(shop.store, "CREATE TABLE note (text text)")
    (finding,) = found(shop, "grants")
    assert finding.severity is Severity.NOTICE
    assert "public.note" in finding.seen

    @shop.job("write.note")
    def write(job: Context, payload: object) -> None:
        with job.transaction() as connection:
            connection.execute("INSERT INTO note VALUES ('x')")

    shop.enqueue("write.note", {}, org_id=ORG)
    shop.worker().run_once()
    finding, _ = found(shop, "grants")

    assert finding.severity is Severity.WARNING
    assert "1 job failed because holdfast_tenant lacks privileges on public.note" in finding.seen
    assert "holdfast grant public.note" in finding.remedy

    shop.operate(actor="user:op", role="admin").grant(["note"])
    (finding,) = found(shop, "grants")
    assert finding.severity is Severity.NOTICE
    assert "every tenant can use all rows of public.note" in finding.seen


def test_a_table_with_row_level_security_is_well(shop: Holdfast) -> None:
    by_hand(shop.store, "CREATE TABLE note (org_id uuid, text text)")
    by_hand(shop.store, "ALTER TABLE note ENABLE ROW LEVEL SECURITY")
    shop.operate(actor="user:op", role="admin").grant(["note"])

    (finding,) = found(shop, "grants")

    assert finding.severity is Severity.OK


def test_a_long_list_is_cut(shop: Holdfast) -> None:
    for number in range(13):
        by_hand(shop.store, f"CREATE TABLE note_{number:02} (text text)")

    (finding,) = found(shop, "grants")

    assert "public.note_09 and 3 more tables" in finding.seen


# -- whether handlers can reach other tenants


@pytest.fixture(scope="module")
def logins(postgres: PostgresServer) -> Iterator[None]:
    with psycopg.connect(postgres.dsn(), autocommit=True) as admin:
        for name, role in (("good_login", "handler"), ("bad_login", "tenant"), ("own", "engine")):
            admin.execute(f"CREATE ROLE {name} LOGIN IN ROLE holdfast_{role}".encode())
    yield
    with psycopg.connect(postgres.dsn(), autocommit=True) as admin:
        admin.execute("DROP ROLE good_login, bad_login, own")


def with_login(url: str, login: str | None) -> Holdfast:
    handler_db = None if login is None else url.replace("postgres@", f"{login}@")
    return make_holdfast(url.replace("postgres@", "own@"), handler_db=handler_db)


def test_one_login_for_all_is_called_a_guard_rail_and_not_a_wall(
    postgres_url: str, logins: None
) -> None:
    with with_login(postgres_url, None) as hf:
        (finding,) = found(hf, "isolation")

    assert finding.severity is Severity.NOTICE
    assert "handler SQL can bypass the tenant isolation" in finding.seen
    assert "tenancy.md" in finding.remedy


def test_a_login_for_handlers_is_well(postgres_url: str, logins: None) -> None:
    with with_login(postgres_url, "good_login") as hf:
        (finding,) = found(hf, "isolation")

    assert finding.severity is Severity.OK
    assert "good_login" in finding.seen


def test_a_login_that_is_no_wall_is_a_problem(postgres_url: str, logins: None) -> None:
    with with_login(postgres_url, "bad_login") as hf:
        (finding,) = found(hf, "isolation")

    assert finding.severity is Severity.PROBLEM
    assert "bad_login of handler_db is not a member of holdfast_handler" in finding.seen


def test_a_superuser_as_the_engine_is_noticed(shop: Holdfast) -> None:
    superuser, _ = found(shop, "isolation")

    assert superuser.severity is Severity.NOTICE
    assert "postgres is a superuser or has BYPASSRLS" in superuser.seen


def test_a_login_that_cannot_connect_is_a_problem(postgres_url: str, logins: None) -> None:
    with with_login(postgres_url, "missing_login") as hf:
        (finding,) = found(hf, "isolation")

    assert finding.severity is Severity.PROBLEM
    assert "cannot connect" in finding.seen


def test_on_sqlite_there_are_no_roles_to_look_at(migrated_sqlite_url: str) -> None:
    with make_holdfast(migrated_sqlite_url) as hf:
        assert found(hf, "grants") == []
        (finding,) = found(hf, "isolation")

    assert finding.severity is Severity.OK
    assert "handler SQL can read all rows" in finding.seen
