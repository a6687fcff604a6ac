"""Grant: the command in a handler's error lets the next job succeed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner

from holdfast import Context, Forbidden, Holdfast, State
from holdfast.cli import cli, main
from holdfast.engine.audit import PLATFORM_ORG
from holdfast.operate.operator import Operator
from holdfast.operate.refusal import InvalidAction, TableNotFound
from tests.postgres_server import PostgresServer
from tests.story import ORG, by_hand, look, make_holdfast


@pytest.fixture
def shop(postgres_url: str) -> Iterator[Holdfast]:
    with make_holdfast(postgres_url) as hf:
        by_hand(hf.store, "CREATE SCHEMA app")
        by_hand(hf.store, "CREATE TABLE app.note (id serial, text text)")
        by_hand(hf.store, "CREATE SEQUENCE app.numbers")
        by_hand(
            hf.store,
            "CREATE TABLE app.bill (id bigint GENERATED ALWAYS AS IDENTITY, org_id uuid,"
            " number bigint DEFAULT nextval('app.numbers'))",
        )
        yield hf


def desk(hf: Holdfast, role: str = "admin", org_id: str | None = None) -> Operator:
    return hf.operate(actor="user:ann", role=role, org_id=org_id)


def granted_events(hf: Holdfast) -> list[Any]:
    return look(
        hf.store,
        "SELECT actor_id, detail, org_id FROM holdfast.job_event WHERE name = 'table.granted'",
    )


def write(hf: Holdfast, text: str) -> State:
    job_type = f"write.n{len(hf.registry.handlers)}"

    @hf.job(job_type)
    def handler(job: Context, payload: object) -> None:
        with job.transaction() as connection:
            connection.execute(text.encode())

    job = hf.enqueue(job_type, {}, org_id=ORG)
    hf.worker().run_once()
    return hf.get(job.id, org_id=ORG).state


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO app.note (text) VALUES ('a'); UPDATE app.note SET text = 'b'; TABLE app.note",
        "INSERT INTO app.bill (org_id) VALUES (NULL)",
    ],
    ids=["serial", "default"],
)
def test_after_the_grant_a_handler_uses_the_table_with_its_schema_and_sequences(
    shop: Holdfast, text: str
) -> None:
    assert write(shop, text) is State.FAILED

    desk(shop).grant(["app.note", "app.bill"])

    assert write(shop, text) is State.COMPLETED


def test_a_second_run_finds_nothing_to_do_and_is_not_audited(shop: Holdfast) -> None:
    first = desk(shop).grant(["app.note"])
    second = desk(shop).grant(["app.note"])

    assert first[0].statements == (
        "GRANT USAGE ON SCHEMA app TO holdfast_tenant",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON TABLE app.note TO holdfast_tenant",
        "GRANT USAGE ON SEQUENCE app.note_id_seq TO holdfast_tenant",
    )
    assert second[0].statements == ()
    (event,) = granted_events(shop)
    assert (event["actor_id"], event["org_id"]) == ("ann", PLATFORM_ORG)
    assert json.loads(event["detail"]) == {
        "to": "holdfast_tenant",
        "privileges": ["SELECT", "INSERT", "UPDATE", "DELETE"],
        "role": "admin",
        "subject": "table:app.note",
    }
    assert shop.operate(actor="user:ann", role="admin").verify().violated == ()


def test_a_dry_run_says_the_same_and_changes_nothing(shop: Holdfast) -> None:
    would = desk(shop).grant(["app.note"], dry_run=True)

    assert granted_events(shop) == []
    assert desk(shop).grant(["app.note"]) == would


def test_rights_and_role_can_be_chosen(shop: Holdfast) -> None:
    (one,) = desk(shop).grant(["app.note"], privileges=["select"])
    (two,) = desk(shop).grant(["app.bill"], to="holdfast_auditor")

    assert one.statements[1:] == ("GRANT SELECT ON TABLE app.note TO holdfast_tenant",)
    assert two.statements[1:3] == (
        "GRANT SELECT, INSERT ON TABLE app.bill TO holdfast_auditor",
        "GRANT USAGE ON SEQUENCE app.bill_id_seq TO holdfast_auditor",
    )


def test_a_table_without_row_level_security_is_warned_about(shop: Holdfast) -> None:
    note, bill = desk(shop).grant(["app.note", "app.bill"], dry_run=True)
    by_hand(shop.store, "ALTER TABLE app.bill ENABLE ROW LEVEL SECURITY")
    (guarded,) = desk(shop).grant(["app.bill"], dry_run=True)

    assert "no row-level security, and has no column org_id" in note.warnings[0]
    assert "no row-level security: handlers of every tenant" in bill.warnings[0]
    assert guarded.warnings == ()


@pytest.mark.parametrize("name", ["holdfast.job_envelope", "pg_catalog.pg_authid", "holdfast.job"])
def test_tables_that_are_not_the_application_s_are_refused_on_record(
    shop: Holdfast, name: str
) -> None:
    with pytest.raises(Forbidden, match="not a table of the application"):
        desk(shop).grant([name, "app.note"])

    refused = look(shop.store, "SELECT id FROM holdfast.job_event WHERE name = 'operator.refused'")
    assert len(refused) == 1
    assert granted_events(shop) == []


@pytest.mark.parametrize("name", ["app.nowhere", "note", "app.numbers", "'; DROP TABLE app.note"])
def test_what_is_no_table_is_not_found(shop: Holdfast, name: str) -> None:
    with pytest.raises(TableNotFound):
        desk(shop).grant(["app.note", name])

    assert granted_events(shop) == []


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"tables": []}, "table"),
        ({"tables": [""]}, "table"),
        ({"tables": ["app.note"], "to": "postgres"}, "to"),
        ({"tables": ["app.note"], "privileges": ["all"]}, "privileges"),
        ({"tables": ["app.note"], "privileges": ["select; drop"]}, "privileges"),
    ],
)
def test_what_is_wrong_is_named(shop: Holdfast, given: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidAction) as caught:
        desk(shop).grant(**given)

    assert list(caught.value.fields) == [field]


def test_a_name_in_quotes_is_granted_as_it_is(shop: Holdfast) -> None:
    by_hand(shop.store, 'CREATE TABLE app."My Notes; --" (text text)')

    desk(shop).grant(['app."My Notes; --"'])

    assert write(shop, """INSERT INTO app."My Notes; --" VALUES ('x')""") is State.COMPLETED


@pytest.mark.parametrize(("role", "org_id"), [("operator", None), ("admin", ORG)])
def test_only_an_admin_of_all_tenants_grants(shop: Holdfast, role: str, org_id: str | None) -> None:
    with pytest.raises(Forbidden):
        desk(shop, role, org_id).grant(["app.note"])

    assert granted_events(shop) == []


def test_a_login_that_may_not_grant_gets_the_sql_for_the_owner(
    shop: Holdfast, postgres: PostgresServer
) -> None:
    with psycopg.connect(postgres.dsn(), autocommit=True) as admin:
        admin.execute("CREATE ROLE no_owner LOGIN")
        admin.execute("GRANT holdfast_engine TO no_owner")
    try:
        url = shop.settings.db.replace("postgres@", "no_owner@")
        with make_holdfast(url) as other, pytest.raises(Forbidden) as caught:
            desk(other).grant(["app.note"])
        assert "no_owner may not grant this: it belongs to postgres" in str(caught.value)
        assert "GRANT SELECT, INSERT, UPDATE, DELETE ON TABLE app.note TO" in str(caught.value)
        assert granted_events(shop) == []
    finally:
        with psycopg.connect(postgres.dsn(), autocommit=True) as admin:
            admin.execute("DROP ROLE no_owner")


# -- the command


def test_the_command_prints_what_it_did(shop: Holdfast) -> None:
    called = CliRunner().invoke(cli, ["--db", shop.settings.db, "grant", "app.note"])

    assert called.exit_code == 0, called.output
    assert "GRANT USAGE ON SCHEMA app TO holdfast_tenant;" in called.output
    assert "warning: app.note has no row-level security" in called.output
    again = CliRunner().invoke(cli, ["--db", shop.settings.db, "grant", "app.note"])
    assert "already has SELECT, INSERT, UPDATE, DELETE on app.note" in again.output


DRY = ("--dry-run", "--json")


def test_the_command_prints_json(shop: Holdfast) -> None:
    called = CliRunner().invoke(
        cli,
        ["--db", shop.settings.db, "grant", "app.note", "--privileges=select", *DRY],
    )

    (one,) = json.loads(called.output)
    assert one["table"] == "app.note"
    assert one["privileges"] == ["SELECT"]
    assert len(one["statements"]) == 2


def test_a_table_that_is_not_there_is_exit_code_3(
    shop: Holdfast, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--db", shop.settings.db, "grant", "nowhere"])

    assert ended.value.code == 3
    assert "no table 'nowhere'" in capsys.readouterr().err


def test_on_sqlite_there_is_nothing_to_grant(migrated_sqlite_url: str) -> None:
    called = CliRunner().invoke(cli, ["--db", migrated_sqlite_url, "grant", "note"])

    assert called.exit_code == 0
    assert "nothing to grant" in called.output
