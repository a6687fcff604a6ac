"""Audit enrichment can read all tables of its tenant and write audit tables only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from holdfast import Context, FakeClock, Holdfast, RuleViolated
from holdfast.engine.category_rules import SQL
from holdfast.engine.context import CancelToken
from holdfast.engine.job import State
from holdfast.errors import RuleBroken
from tests.engine.domain import AUDIT_TABLE, DEAD, DONE, count, ended, make_domain, run_one, titles
from tests.story import ORG, OTHER_ORG, by_hand, claim, events, look, make_holdfast, timeline

NOTES = "holdfast.audit_note"


@pytest.fixture
def hf(url: str, clock: FakeClock) -> Iterator[Holdfast]:
    with make_holdfast(url, clock, audit_tables=(AUDIT_TABLE,)) as made:
        make_domain(made.store)
        yield made


def own(hf: Holdfast, postgres: str, sqlite: str) -> str:
    """The same operation in the SQL of each database."""
    return postgres if hf.store.dialect.name == "postgres" else sqlite


def enrich(hf: Holdfast, *statements: str) -> Any:
    """A handler of audit enrichment that runs these statements in its own transaction."""

    @hf.job("sheet.enrich", category="audit_enrichment")
    def enrich(job: Context, payload: object) -> None:
        with job.transaction() as connection:
            for text in statements:
                connection.execute(text)

    return run_one(hf, "sheet.enrich", {})


@pytest.mark.req("Q-03", "Q-04")
def test_an_enrichment_reads_the_domain_and_adds_notes_and_events(hf: Holdfast) -> None:
    hf.job("sheet.change")(lambda job, payload: None)
    changed = run_one(hf, "sheet.change", {"to": "as it is"})

    @hf.job("sheet.enrich", category="audit_enrichment")
    def enrich(job: Context, payload: dict[str, Any]) -> None:
        with job.transaction() as connection:
            (title,) = connection.execute("SELECT title FROM run_sheet").fetchone()
        succeeded = job.audit.events(payload["job"])[-1]
        job.audit.note(succeeded["id"], {"diff": f"{title} → as it is"}, name="diff")
        job.audit.append("sheet.compared", subject="run_sheet:1", detail={"lines": 1})

    enriched = run_one(hf, "sheet.enrich", {"job": changed.id})

    assert ended(hf, enriched) == DONE
    (note,) = hf.store.read(lambda tx: tx.many(SQL.list_notes, org_id=ORG, subject_id=changed.id))
    assert (note["name"], note["job_id"]) == ("diff", enriched.id)
    assert "as it was → as it is" in note["note"]
    assert timeline(hf, enriched) == [
        "job.enqueued", "job.started", "sheet.compared", "job.succeeded",
    ]  # fmt: skip
    told = events(hf, enriched)[2]
    assert told["correlation_id"] == hf.get(enriched.id, org_id=ORG).record["correlation_id"]
    assert "run_sheet:1" in told["detail"]


def test_an_attempt_that_runs_again_adds_nothing_twice(hf: Holdfast) -> None:
    @hf.job("sheet.enrich", category="audit_enrichment")
    def enrich(job: Context, payload: object) -> None:
        first = job.audit.events(job.id)[0]
        for _ in range(2):
            job.audit.note(first["id"], {"who": "a"})
            job.audit.append("sheet.compared", subject="run_sheet:1")
        job.audit.append("sheet.compared", subject="run_sheet:2")

    enriched = run_one(hf, "sheet.enrich", {})

    assert count(hf.store, NOTES) == 1
    assert timeline(hf, enriched).count("sheet.compared") == 2


@pytest.mark.req("Q-04")
def test_it_writes_audit_tables_by_its_own_statements_too(hf: Holdfast) -> None:
    enriched = enrich(hf, f"INSERT INTO {AUDIT_TABLE} VALUES (1, 'looked at')")

    assert ended(hf, enriched) == DONE
    assert count(hf.store, AUDIT_TABLE) == 1


def test_a_large_entry_is_no_violation(hf: Holdfast) -> None:
    enriched = enrich(hf, f"INSERT INTO {AUDIT_TABLE} VALUES (1, '{'ab' * 20_000}')")

    assert ended(hf, enriched) == DONE


BEFORE = f"INSERT INTO {AUDIT_TABLE} VALUES (1, 'an honest beginning')"

# Wrong or injected statements on either database.
HOSTILE = [
    "UPDATE run_sheet SET title = 'taken'",
    "DELETE FROM run_sheet",
    "INSERT INTO run_sheet VALUES (2, 'planted')",
    "INSERT INTO run_sheet SELECT 3, title FROM run_sheet",
    "CREATE TABLE mine (id integer)",
    "CREATE TEMP TABLE mine (id integer)",
    "DROP TABLE run_sheet",
    "ALTER TABLE run_sheet ADD COLUMN mine text",
    "CREATE INDEX mine ON run_sheet (title)",
    "CREATE VIEW mine AS SELECT * FROM run_sheet",
    f"DELETE FROM {AUDIT_TABLE}",
    f"DROP TABLE {AUDIT_TABLE}",
]

HOLDFAST = [
    "UPDATE holdfast.job_envelope SET payload = '{}'",
    "UPDATE holdfast.job_running SET lease_expires_at = claimed_at",
    "DELETE FROM holdfast.job_running",
    "DELETE FROM holdfast.audit_event",
    "UPDATE holdfast.audit_event SET name = 'x'",
    "UPDATE holdfast.category SET key_ttl_ms = 1",
    "DELETE FROM holdfast.migration",
    f"UPDATE {NOTES} SET name = 'x'",
    f"DELETE FROM {NOTES}",
]


@pytest.mark.req("Q-03", "Q-05")
@pytest.mark.parametrize("text", [*HOSTILE, *HOLDFAST])
def test_a_write_beyond_the_audit_is_dead_and_leaves_nothing(hf: Holdfast, text: str) -> None:
    enriched = enrich(hf, BEFORE, own(hf, text, text.replace("holdfast.", "holdfast_")))

    assert ended(hf, enriched) == DEAD
    assert titles(hf.store) == ["as it was"]
    assert count(hf.store, AUDIT_TABLE) == 0
    assert timeline(hf, enriched)[-1] == "job.deadlettered"


SQLITE_ONLY = [
    "ATTACH DATABASE ':memory:' AS mine",
    "PRAGMA writable_schema = ON",
    "PRAGMA recursive_triggers = OFF",
    "PRAGMA foreign_keys = OFF",
    "COMMIT",
    "ROLLBACK",
    "REPLACE INTO run_sheet VALUES (1, 'taken')",
    "DROP TRIGGER job_event_never_changes",
    "CREATE TRIGGER mine AFTER INSERT ON run_sheet_audit BEGIN DELETE FROM run_sheet; END",
    "SELECT load_extension('mine')",
]


@pytest.mark.req("Q-05")
@pytest.mark.parametrize("text", SQLITE_ONLY)
def test_sqlite_is_asked_before_a_statement_runs(
    sqlite_url: str, clock: FakeClock, text: str
) -> None:
    with make_holdfast(sqlite_url, clock, audit_tables=(AUDIT_TABLE,)) as hf:
        make_domain(hf.store)

        enriched = enrich(hf, BEFORE, text)

        assert ended(hf, enriched) == DEAD
        assert titles(hf.store) == ["as it was"]
        assert count(hf.store, AUDIT_TABLE) == 0


def test_the_schema_of_sqlite_is_not_to_be_written_either(
    sqlite_url: str, clock: FakeClock
) -> None:
    with make_holdfast(sqlite_url, clock) as hf:
        make_domain(hf.store)

        enriched = enrich(hf, "UPDATE sqlite_master SET sql = ''")

        assert ended(hf, enriched)[0] is State.FAILED
        assert titles(hf.store) == ["as it was"]


def test_a_function_that_is_first_used_here_is_no_violation(sqlite_url: str) -> None:
    with make_holdfast(sqlite_url, audit_tables=(AUDIT_TABLE,)) as hf:
        make_domain(hf.store)

        enriched = enrich(hf, f"INSERT INTO {AUDIT_TABLE} SELECT value, 'x' FROM json_tree('[1]')")

        assert ended(hf, enriched) == DONE
        assert count(hf.store, AUDIT_TABLE) == 2


POSTGRES_ONLY = [
    "COPY run_sheet FROM PROGRAM 'echo 9,planted' WITH CSV",
    "TRUNCATE run_sheet",
    "GRANT ALL ON run_sheet TO holdfast_auditor",
    "ALTER ROLE holdfast_auditor SUPERUSER",
    "SELECT holdfast.enqueue('order.ship', '{}', '" + ORG + "')",
    "DO $$ BEGIN UPDATE run_sheet SET title = 'taken'; END $$",
    "CREATE FUNCTION public.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "LOCK TABLE run_sheet IN EXCLUSIVE MODE",
    "SET ROLE holdfast_engine; UPDATE run_sheet SET title = 'taken'",
    # From here on the session has left the role, which the server permits. The check before the
    # commit finds its writes.
    "RESET ROLE; UPDATE run_sheet SET title = 'taken'",
    "SET ROLE NONE; UPDATE run_sheet SET title = 'taken'",
    "RESET ROLE; UPDATE run_sheet SET title = 'taken'; SET ROLE holdfast_auditor",
    "SELECT set_config('role', 'none', true); DELETE FROM run_sheet",
    "RESET ROLE; CREATE TABLE public.mine (id integer)",
    "RESET ROLE; CREATE FUNCTION public.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "RESET ROLE; UPDATE holdfast.job_running SET lease_expires_at = now()",
    "RESET ROLE; DELETE FROM run_sheet; SET LOCAL search_path = public",
    "RESET ROLE; SAVEPOINT s; DELETE FROM run_sheet; RELEASE s; SET ROLE holdfast_auditor",
    "RESET ROLE; TRUNCATE run_sheet",
]


@pytest.mark.req("Q-05")
@pytest.mark.parametrize("text", POSTGRES_ONLY)
def test_postgresql_refuses_or_the_last_look_finds_it(
    postgres_url: str, clock: FakeClock, text: str
) -> None:
    with make_holdfast(postgres_url, clock) as hf:
        make_domain(hf.store)

        enriched = enrich(hf, BEFORE, text)

        assert ended(hf, enriched) == DEAD
        assert titles(hf.store) == ["as it was"]
        assert count(hf.store, AUDIT_TABLE) == 0


def test_a_commit_in_the_middle_is_found_and_its_connection_is_not_used_again(
    postgres_url: str, clock: FakeClock
) -> None:
    with make_holdfast(postgres_url, clock) as hf:
        make_domain(hf.store)

        enriched = enrich(hf, BEFORE, "COMMIT; SET ROLE holdfast_tenant; BEGIN; SELECT 1")

        assert ended(hf, enriched) == DEAD
        for _ in range(12):
            assert look(hf.store, "SELECT current_user = session_user AS same")[0]["same"]


@pytest.mark.req("Q-05")
@pytest.mark.parametrize("text", ["UPDATE run_sheet SET title = 'taken'", "DROP TABLE run_sheet"])
def test_a_swallowed_refusal_is_still_one(hf: Holdfast, text: str) -> None:
    @hf.job("sheet.enrich", category="audit_enrichment")
    def enrich(job: Context, payload: object) -> str:
        with job.transaction() as connection:
            connection.execute(BEFORE)
            try:
                connection.execute(text)
            except Exception:
                return "nothing happened"
        return "unreachable"

    enriched = run_one(hf, "sheet.enrich", {})

    assert ended(hf, enriched) == DEAD
    assert count(hf.store, AUDIT_TABLE) == 0


def test_the_next_transaction_of_an_ordinary_job_is_not_confined(hf: Holdfast) -> None:
    enrich(hf, "UPDATE run_sheet SET title = 'taken'")

    @hf.job("sheet.change")
    def change(job: Context, payload: object) -> None:
        with job.transaction() as connection:
            connection.execute("UPDATE run_sheet SET title = 'as it is'")

    changed = run_one(hf, "sheet.change", {})

    assert ended(hf, changed) == DONE
    assert titles(hf.store) == ["as it is"]


@pytest.mark.req("Q-05")
def test_a_grant_to_public_makes_no_table_an_audit_table(hf: Holdfast) -> None:
    if hf.store.dialect.name == "postgres":
        by_hand(hf.store, "GRANT ALL ON run_sheet TO PUBLIC")

    enriched = enrich(hf, BEFORE, "UPDATE run_sheet SET title = 'taken'")

    assert ended(hf, enriched) == DEAD
    assert titles(hf.store) == ["as it was"]
    assert count(hf.store, AUDIT_TABLE) == 0


@pytest.mark.req("Q-05")
@pytest.mark.parametrize("category", ["audit_enrichment", "own_enrichment"])
def test_a_job_that_was_enqueued_as_enrichment_is_held_to_it(hf: Holdfast, category: str) -> None:
    hf.category("own_enrichment", rules="audit_enrichment")

    @hf.job("sheet.enrich")
    def enrich(job: Context, payload: object) -> None:
        with job.transaction() as connection:
            connection.execute("UPDATE run_sheet SET title = 'taken'")

    enqueued = hf.enqueue("sheet.enrich", {}, org_id=ORG)
    loosen = own(
        hf,
        "ALTER TABLE holdfast.job_envelope DISABLE TRIGGER USER",
        "DROP TRIGGER job_envelope_never_changes",
    )
    by_hand(hf.store, loosen)
    by_hand(hf.store, f"UPDATE holdfast.job_envelope SET category = '{category}'")
    hf.worker().run_once()

    assert ended(hf, enqueued) == DEAD


def test_only_an_enrichment_writes_to_the_audit(hf: Holdfast) -> None:
    @hf.job("sheet.change")
    def change(job: Context, payload: object) -> None:
        job.audit.append("sheet.compared", subject="run_sheet:1")

    changed = run_one(hf, "sheet.change", {})

    assert ended(hf, changed) == DEAD
    assert "sheet.compared" not in timeline(hf, changed)


@pytest.mark.parametrize(
    ("name", "detail"),
    [("job.succeeded", {}), ("plain", {}), ("sheet.compared", {"x": "y" * 20_000}),
     ("sheet.compared", {"x": float("nan")})],
)  # fmt: skip
def test_the_audit_takes_no_name_of_the_engine_and_nothing_large(
    hf: Holdfast, name: str, detail: dict[str, Any]
) -> None:
    @hf.job("sheet.enrich", category="audit_enrichment")
    def enrich(job: Context, payload: object) -> None:
        job.audit.append(name, subject="run_sheet:1", detail=detail)

    enriched = run_one(hf, "sheet.enrich", {})

    assert ended(hf, enriched)[1] == "SCHEMA_INVALID"
    assert timeline(hf, enriched).count("job.succeeded") == 0


def test_a_note_is_about_an_event_of_its_own_tenant(hf: Holdfast) -> None:
    hf.job("sheet.change")(lambda job, payload: None)
    theirs = hf.enqueue("sheet.change", {}, org_id=OTHER_ORG)
    event_id = events(hf, theirs)[0]["id"]

    @hf.job("sheet.enrich", category="audit_enrichment")
    def enrich(job: Context, payload: object) -> None:
        assert job.audit.events(theirs.id) == []
        job.audit.note(event_id, {"seen": True})

    enriched = run_one(hf, "sheet.enrich", {})

    assert ended(hf, enriched) == DEAD
    with pytest.raises(RuleBroken) as caught:
        by_hand(
            hf.store,
            f"INSERT INTO {NOTES} VALUES (CAST(:org AS {{uuid}}), {event_id},"
            f" CAST(:job AS {{uuid}}), 'x', '{{}}', {{now}})".replace("{{", "{"),
            org=ORG, job=theirs.id,
        )  # fmt: skip
    assert caught.value.rule == "audit_note_stays_in_its_tenant"


@pytest.mark.parametrize("verb", ["UPDATE holdfast.audit_note SET name = 'y'",
                                  "DELETE FROM holdfast.audit_note"])  # fmt: skip
def test_notes_are_append_only_for_every_role(hf: Holdfast, verb: str) -> None:
    @hf.job("sheet.enrich", category="audit_enrichment")
    def enrich(job: Context, payload: object) -> None:
        job.audit.note(job.audit.events(job.id)[0]["id"], {"seen": True})

    run_one(hf, "sheet.enrich", {})

    with pytest.raises(RuleBroken, match="append-only"):
        by_hand(hf.store, verb)
    assert count(hf.store, NOTES) == 1


@pytest.mark.parametrize(
    ("table", "rule"),
    [("audit_event", "job_event_never_leaves"), ("category", "category_never_leaves")],
)
def test_replacing_is_deleting_and_is_refused_too(sqlite_url: str, table: str, rule: str) -> None:
    with make_holdfast(sqlite_url) as hf:
        hf.job("sheet.change")(lambda job, payload: None)
        run_one(hf, "sheet.change", {})

        with pytest.raises(RuleBroken, match=rule):
            by_hand(hf.store, f"REPLACE INTO holdfast.{table} SELECT * FROM holdfast.{table}")


def test_an_auditor_sees_its_own_tenant_and_no_other(postgres_url: str, clock: FakeClock) -> None:
    with make_holdfast(postgres_url, clock) as hf:
        hf.job("sheet.change")(lambda job, payload: None)
        for org_id in (ORG, OTHER_ORG):
            hf.enqueue("sheet.change", {}, org_id=org_id)

    with psycopg.connect(postgres_url) as connection:
        connection.execute("SELECT set_config('holdfast.org_id', %s, true)", (ORG,))
        connection.execute("SET LOCAL ROLE holdfast_auditor")
        tables = [
            row[0]
            for row in connection.execute(
                "SELECT tablename FROM pg_policies WHERE policyname = 'auditor_sees_itself'"
            )
        ]
        assert {
            "job_envelope", "job_running", "job_outcome", "audit_event", "audit_note", "artifact",
        } <= set(tables)  # fmt: skip
        for table in tables:
            seen = connection.execute(
                f"SELECT DISTINCT org_id::text FROM holdfast.{table}".encode()
            )
            assert {row[0] for row in seen} <= {ORG}, table
        assert connection.execute("SELECT count(*) FROM holdfast.job").fetchone() == (1,)


def test_a_context_without_a_handler_knows_its_duty_by_its_category(hf: Holdfast) -> None:
    hf.job("sheet.enrich", category="audit_enrichment")(lambda job, payload: None)
    hf.enqueue("sheet.enrich", {}, org_id=ORG)
    (job,) = claim(hf)
    context = Context(job, hf.store, CancelToken())

    with pytest.raises(RuleViolated), context.transaction() as connection:
        connection.execute("DELETE FROM run_sheet")
    assert titles(hf.store) == ["as it was"]
