"""Every invariant of the store apart from jobs: only its planted violation is reported."""

from __future__ import annotations

import sqlite3
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from holdfast import FakeClock, Holdfast, State
from holdfast.clock import write_instant
from holdfast.engine.maintenance import rescue_jobs
from holdfast.operate.dead_letter import CHECKLISTS, DeadLetterKind
from holdfast.operate.dead_letters import DeadLetters
from holdfast.operate.verify.catalog import made_by
from holdfast.operate.verify.run import Status
from holdfast.store.dialect import SQLITE
from holdfast.store.migrate import migrations
from tests.operate.busy import Busy, declare, work
from tests.operate.conftest import Mould
from tests.operate.planting import plant, rules_aside
from tests.operate.sound import assert_sound, by_rule, report_of
from tests.story import ORG, OTHER_ORG, look, make_holdfast

NOWHERE = "0198c0de-0000-7000-8000-00000000dead"


@pytest.fixture
def busy(mould: Mould) -> Busy:
    """A store that has been through everything; only the planted violation is found in it."""
    return mould.busy


@pytest.fixture
def clock(mould: Mould) -> FakeClock:
    return FakeClock(mould.now)


@pytest.fixture
def hf(mould: Mould, clock: FakeClock) -> Iterator[Holdfast]:
    with mould.copy() as url, make_holdfast(url, clock) as made:
        declare(made)
        yield made


@pytest.fixture(params=["sqlite", "postgres"])
def each_hf(request: pytest.FixtureRequest) -> Iterator[Holdfast]:
    """On both databases in every run, for checks whose SQL differs between them."""
    mould: Mould = request.getfixturevalue(f"{request.param}_mould")
    with mould.copy() as url, make_holdfast(url, FakeClock(mould.now)) as made:
        yield made


def found(hf: Holdfast, **options: Any) -> dict[str, list[str]]:
    """The violations, without the subjects."""
    return {
        check: [line.partition(" ")[2] for line in lines]
        for check, lines in by_rule(report_of(hf, **options)).items()
    }


def one(hf: Holdfast, text: str, **params: Any) -> Any:
    """The first value of the first row."""
    return next(iter(look(hf.store, text, **params)[0].values()))


def tell(hf: Holdfast, name: str, detail: str | None = None, **columns: str) -> None:
    """Insert an audit event by hand, about something that is not a job."""
    row = {
        "org_id": ORG,
        "job_id": NOWHERE,
        "job_type": "sheet",
        "name": name,
        "actor_id": "hand",
        "actor_type": "user",
        "request_id": "r",
        "correlation_id": "c",
        "at": write_instant(hf.clock.now()),
        **columns,
    }
    names, places = ", ".join(row), ", ".join(":" + key for key in row)
    plant(
        hf,
        f"INSERT INTO holdfast.audit_event ({names}, attempt, detail)"
        f" VALUES ({places}, 1, :detail)",
        detail=detail,
        **row,
    )


@contextmanager
def changed(hf: Holdfast, table: str, changes: str, **key: str) -> Iterator[None]:
    """A row with *changes*; afterwards it is as before."""
    ((column, value),) = key.items()
    names = [part.partition(" = ")[0].strip() for part in changes.split(", ")]
    where = f"WHERE {column} = :value"
    (before,) = look(
        hf.store, f"SELECT {', '.join(names)} FROM holdfast.{table} {where}", value=value
    )
    plant(hf, f"UPDATE holdfast.{table} SET {changes} {where}", value=value)
    yield
    back = ", ".join(f"{name} = :{name}" for name in names)
    plant(hf, f"UPDATE holdfast.{table} SET {back} {where}", value=value, **before)


@contextmanager
def hand(hf: Holdfast) -> Iterator[Any]:
    """A connection outside of Holdfast; its changes are committed."""
    if hf.store.dialect is SQLITE:
        connection = sqlite3.connect(hf.settings.db.removeprefix("sqlite:///"))
        try:
            with connection:
                yield connection
        finally:
            connection.close()
    else:
        with psycopg.connect(hf.settings.db) as session:
            yield session


# -- I27: dead letters


def test_a_dead_job_without_its_letter(hf: Holdfast, busy: Busy) -> None:
    plant(hf, "DELETE FROM holdfast.dead_letter WHERE job_id = :id", id=busy.dead.id)

    assert by_rule(report_of(hf)) == {
        "I27": [f"job:{busy.dead.id} it failed without a dead letter"]
    }


COPY = (
    "INSERT INTO holdfast.dead_letter (org_id, job_id, job_type, queue, stage, error_class,"
    " last_error, last_stack, sanitized_context, attempts, first_failure_at, last_failure_at,"
    " created_at, updated_at) SELECT org_id, :id, job_type, queue, stage, error_class, last_error,"
    " last_stack, sanitized_context, attempts, first_failure_at, last_failure_at, created_at,"
    " updated_at FROM holdfast.dead_letter WHERE job_id = :dead"
)


def test_a_dead_letter_of_a_job_that_did_not_fail(hf: Holdfast, busy: Busy) -> None:
    plant(hf, COPY, id=busy.done.id, dead=busy.dead.id)

    ((check, lines),) = found(hf).items()
    assert check == "I27"
    assert "its job did not fail" in lines


def test_a_dead_letter_without_its_failure(hf: Holdfast, busy: Busy) -> None:
    changes = {
        "error_class = 'not a class'": "its error class is missing or invalid",
        "stage = ''": "its stage is missing",
        "first_failure_at = '2031-01-01T00:00:00.000Z'": "its failures are not in order",
        f"last_error = '{'x' * 1001}'": "its error is too long",
        f"last_stack = '{'x' * 10_001}'": "its stack is too long",
        f"""sanitized_context = '{{"x": "{"x" * 20_000}"}}'""": "its context is too long",
    }
    for change, told in changes.items():
        with changed(hf, "dead_letter", change, job_id=busy.dead.id):
            assert found(hf, only=["I27"]) == {"I27": [told]}
    plant(
        hf,
        "UPDATE holdfast.dead_letter SET error_class = 'GONE' WHERE job_id = :id",
        id=busy.dead.id,
    )

    assert found(hf) == {"I27": ["its failure differs from its job's"]}


# -- I28: replays


@pytest.fixture
def replay_id(hf: Holdfast, busy: Busy, clock: FakeClock) -> str:
    """The job of a replay that has been started and failed again at its stage."""
    letters = DeadLetters(hf.operate(actor="user:olga", role="operator", org_id=ORG).context)
    letters.triage(busy.dead.id, kind=DeadLetterKind.DEFECT)
    letters.remediate(busy.dead.id, done=list(CHECKLISTS[DeadLetterKind.DEFECT]))
    letters.validate(busy.dead.id, evidence_ref="ticket:7", is_safe_to_repeat=True)
    made = letters.replay(busy.dead.id, reason="it is mended")
    assert_sound(hf)
    return made.replay_job_id


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            ["actor_id = ' '", "reason = ' '", "actor_id = 'somebody'"],
            "replay 1 has no actor or reason",
        ),
        (
            ["stage = 'fetch'", "stage = 'fetch', full_restart = TRUE"],
            "replay 1 started at the wrong stage",
        ),
    ],
    ids=["who and why", "where"],
)
def test_a_replay_that_does_not_say_who_why_and_where(
    hf: Holdfast, replay_id: str, changes: list[str], told: str
) -> None:
    *others, last = changes
    for change in others:
        with changed(hf, "dead_letter_replay", change, replay_job_id=replay_id):
            assert found(hf, only=["I28"]) == {"I28": [told]}
    with changed(hf, "dead_letter_replay", last, replay_job_id=replay_id):
        assert found(hf) == {"I28": [told]}


def test_a_replay_that_leads_to_another_job(hf: Holdfast, busy: Busy, replay_id: str) -> None:
    plant(
        hf,
        "UPDATE holdfast.job_envelope SET replay_of = :other WHERE id = :id",
        id=replay_id,
        other=busy.done.id,
    )

    assert found(hf) == {"I28": ["the job of replay 1 repeats another one"]}


def test_a_replay_of_which_the_letter_does_not_know_the_end(hf: Holdfast, replay_id: str) -> None:
    plant(
        hf,
        "UPDATE holdfast.dead_letter_replay SET outcome = 'canceled', ended_at = requested_at"
        " WHERE replay_job_id = :id",
        id=replay_id,
    )

    assert found(hf) == {
        "I28": [
            "replay 1 is canceled, its job is queued",
            "it is replaying, and its newest replay is canceled",
        ]
    }


def test_a_replay_that_fails_like_its_job_has_no_dead_letter_of_its_own(
    hf: Holdfast, replay_id: str, clock: FakeClock
) -> None:
    hf.worker().run_once()
    assert_sound(hf)
    work(hf, clock)
    rescue_jobs(hf.store, limit=10)

    assert hf.get(replay_id, org_id=ORG).state is State.FAILED
    assert_sound(hf)
    plant(hf, "UPDATE holdfast.dead_letter_replay SET outcome = 'completed', error_class = NULL")
    assert found(hf) == {"I28": ["replay 1 is completed, its job is failed"]}


# -- I29: tenants


@pytest.mark.req("X-09")
@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "UPDATE holdfast.artifact SET org_id = :org_id WHERE name = 'out.csv'",
            ["it refers to a job of another tenant"],
        ),
        (
            "UPDATE holdfast.audit_note SET org_id = :org_id",
            [
                "it refers to a job of another tenant",
                "it refers to an event of another tenant",
            ],
        ),
        (
            (
                "UPDATE holdfast.schedule_tick SET org_id = :org_id WHERE job_id ="
                " (SELECT max(CAST(job_id AS text)) FROM holdfast.schedule_tick)"
            ),
            ["it refers to a job of another tenant"],
        ),
    ],
    ids=["artifact", "note", "tick"],
)
def test_what_belongs_to_a_job_of_another_tenant(
    hf: Holdfast, busy: Busy, text: str, told: list[str]
) -> None:
    if hf.store.dialect is not SQLITE:
        text = text.replace("job_id = (SELECT", "CAST(job_id AS text) = (SELECT")
    plant(hf, text, org_id=OTHER_ORG)

    assert found(hf) == {"I29": told}


def test_an_event_under_another_tenant(hf: Holdfast, busy: Busy) -> None:
    plant(
        hf,
        "INSERT INTO holdfast.audit_event (org_id, job_id, job_type, name, attempt, actor_type,"
        " actor_id, request_id, correlation_id, at)"
        " SELECT :org_id, id, job_type, 'sheet.seen', 1, 'system', 'hand', 'r', 'c', updated_at"
        " FROM holdfast.job WHERE id = :id",
        org_id=OTHER_ORG,
        id=busy.waiting.id,
    )

    told = f"it refers to job {busy.waiting.id} of another tenant"
    assert found(hf) == {"I29": [told]}
    assert found(hf, org_id=ORG) == {}
    assert found(hf, org_id=OTHER_ORG) == {"I29": [told]}


def test_a_stage_of_a_job_that_is_not_there(hf: Holdfast, busy: Busy) -> None:
    plant(
        hf,
        "INSERT INTO holdfast.job_stage (org_id, job_id, stage, attempts, updated_at)"
        " VALUES (:org_id, :id, 'fetch', 0, '2026-01-05T09:00:00.000Z')",
        org_id=ORG,
        id=NOWHERE,
    )

    told = found(hf)
    # SQLite's own check finds it as well.
    told.pop("I38", None)
    assert told == {"I29": ["its tenant has no such job"]}


# -- I30: tenant isolation of the schema

POSTGRES_HOLES = {
    "not forced": (
        "ALTER TABLE holdfast.artifact NO FORCE ROW LEVEL SECURITY",
        "table:artifact row-level security is not forced",
    ),
    "not enabled": (
        "ALTER TABLE holdfast.job_running DISABLE ROW LEVEL SECURITY",
        "table:job_running row-level security is not forced",
    ),
    "no policy": (
        "DROP POLICY tenant_sees_itself ON holdfast.dead_letter_note",
        "table:dead_letter_note the policy tenant_sees_itself is missing",
    ),
    "open policy": (
        "CREATE POLICY all_see ON holdfast.job_envelope FOR SELECT TO holdfast_tenant USING (true)",
        "table:job_envelope the policy all_see exposes rows of other tenants",
    ),
    "half open policy": (
        (
            "ALTER POLICY tenant_sees_itself ON holdfast.job_envelope USING (org_id ="
            " nullif(current_setting('holdfast.org_id', true), '')::uuid OR priority = 0)"
        ),
        "table:job_envelope the policy tenant_sees_itself exposes rows of other tenants",
    ),
    "truncate": (
        "GRANT TRUNCATE ON holdfast.worker_run TO holdfast_tenant",
        "table:worker_run holdfast_tenant has TRUNCATE, which no policy restricts",
    ),
    "references": (
        "GRANT REFERENCES ON holdfast.job_outcome TO PUBLIC",
        "table:job_outcome holdfast_auditor has REFERENCES, which no policy restricts",
    ),
    "unique": (
        "CREATE UNIQUE INDEX one_for_all ON holdfast.artifact (created_at, id)",
        "index:one_for_all the unique index does not start with the tenant",
    ),
    "view": (
        "ALTER VIEW holdfast.job SET (security_invoker = false)",
        "view:job the view runs with its owner's privileges (security_invoker is off)",
    ),
    "function": (
        "ALTER FUNCTION holdfast.is_full RESET ALL",
        "function:is_full the SECURITY DEFINER function has no fixed search_path",
    ),
    "nullable": (
        (
            "ALTER TABLE holdfast.artifact DROP CONSTRAINT artifact_pkey;"
            " ALTER TABLE holdfast.artifact ALTER COLUMN org_id DROP NOT NULL"
        ),
        "table:artifact the tenant column is nullable",
    ),
    "trigger off": (
        "ALTER TABLE holdfast.job_outcome DISABLE TRIGGER job_ended",
        "trigger:job_ended the trigger is disabled",
    ),
    "no trigger": (
        "DROP TRIGGER job_event_never_changes ON holdfast.audit_event",
        "trigger:job_event_never_changes it is missing",
    ),
}


@pytest.mark.req("X-09")
def test_every_hole_in_the_wall_between_tenants_is_found(postgres_url: str) -> None:
    with make_holdfast(postgres_url) as hf:
        assert by_rule(report_of(hf)) == {}
        with psycopg.connect(postgres_url) as admin:
            for text, _ in POSTGRES_HOLES.values():
                admin.execute(text.encode())

        ((check, lines),) = by_rule(report_of(hf, shown=1000)).items()

    assert check == "I30"
    # Each line names one subject and one fault, so no fault hides another one.
    assert {name for name, (_, told) in POSTGRES_HOLES.items() if told not in lines} == set()


def test_the_wall_between_tenants_is_no_matter_of_one_tenant(hf: Holdfast) -> None:
    (finding,) = report_of(hf, only=["I30"], org_id=ORG).findings

    assert finding.status is Status.NOT_APPLICABLE


def test_a_tenant_that_no_policy_binds(postgres_url: str) -> None:
    with make_holdfast(postgres_url) as hf, psycopg.connect(postgres_url) as admin:
        admin.execute("ALTER ROLE holdfast_tenant BYPASSRLS")
        admin.commit()
        try:
            told = by_rule(report_of(hf))
        finally:
            # A role belongs to the whole server.
            admin.execute("ALTER ROLE holdfast_tenant NOBYPASSRLS")

    assert told == {
        "I30": ["role:holdfast_tenant holdfast_tenant has BYPASSRLS, which no policy restricts"]
    }


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("DROP TRIGGER job_ready_leaves", "trigger:job_ready_leaves it is missing"),
        (
            "CREATE UNIQUE INDEX one_for_all ON holdfast_artifact (created_at, id)",
            "index:one_for_all the unique index does not start with the tenant",
        ),
    ],
)
def test_a_hole_in_the_schema_of_a_file(sqlite_url: str, text: str, told: str) -> None:
    with make_holdfast(sqlite_url) as hf:
        hf.extensions.enable_defaults()
        hf.store.migrate()
        with hand(hf) as connection:
            connection.execute(text)

        assert by_rule(report_of(hf)) == {"I30": [told]}


def test_the_migrations_say_what_there_must_be() -> None:
    made = made_by(migrations(SQLITE))

    assert {"job_ended", "job_enqueued", "job_ready_follows"} <= made.trigger
    assert {"job_ready_oldest", "job_once_per_key"} <= made.index
    assert {"job_outcome_known", "dead_letter_steps_in_order"} <= made.rule


# -- I31 and I32: secrets

SECRET = "sk-" + "a1B2c3D4" * 4


@pytest.mark.req("X-02")
def test_a_secret_where_people_look(hf: Holdfast, busy: Busy) -> None:
    quoted = '{"step": {"password": "hunter2"}}'
    key = '{"key": "ghp_' + "a1B2" * 10 + '"}'
    top = "something shaped like a secret at the top"
    with changed(hf, "dead_letter", f"last_stack = '{SECRET}'", job_id=busy.dead.id):
        assert found(hf, only=["I31"]) == {"I31": [top]}
    with rules_aside(hf) as run:
        for table, column, value, where in (
            ("dead_letter", "last_error", SECRET, f"job_id = '{busy.dead.id}'"),
            ("dead_letter", "sanitized_context", quoted, f"job_id = '{busy.dead.id}'"),
            ("job_outcome", "last_error", SECRET, f"job_id = '{busy.dead.id}'"),
            ("job_attempt", "last_error", SECRET, f"job_id = '{busy.deferred.id}'"),
            ("schedule_tick", "detail", SECRET, "outcome = 'missed'"),
            ("worker_run", "reason", SECRET, "outcome = 'full'"),
            ("audit_note", "note", key, "TRUE"),
        ):
            run(f"UPDATE holdfast.{table} SET {column} = '{value}' WHERE {where}")

    told = by_rule(report_of(hf))
    assert set(told) == {"I31"}
    assert SECRET not in str(told)
    assert Counter((line.partition(":")[0], line.partition(" ")[2]) for line in told["I31"]) == {
        ("dead_letter", top): 1,
        ("dead_letter", top.replace("the top", "step.password")): 1,
        ("job", top): 2,
        ("tick", top): 2,
        ("run", top): 1,
        ("audit_note", top.replace("the top", "key")): 1,
    }


def test_a_secret_in_the_audit_and_what_was_struck_out(hf: Holdfast, busy: Busy) -> None:
    tell(hf, "sheet.seen", '{"authorization": "[secret]", "to": "[email]"}')
    assert_sound(hf)
    tell(hf, "sheet.seen", '{"header": {"authorization": "Basic 12"}}')
    tell(hf, "sheet.seen", actor_id=SECRET)

    assert found(hf) == {
        "I31": [
            "something shaped like a secret at header.authorization",
            "something shaped like a secret at the top",
        ]
    }
    assert found(hf, org_id=OTHER_ORG) == {}


def test_a_canary_is_found_wherever_it_sits(hf: Holdfast, busy: Busy) -> None:
    canary = 'the "yellow" canary'
    tell(hf, "sheet.seen", '{"said": "see: the \\"yellow\\" canary!"}')
    plant(
        hf,
        "UPDATE holdfast.dead_letter SET last_stack = 'the \"yellow\" canary' WHERE job_id = :id",
        id=busy.dead.id,
    )

    assert found(hf) == {}
    assert found(hf, canaries=["not planted", canary]) == {"I31": ["canary 2"] * 2}


def test_a_key_or_a_session_that_is_stored_in_plain_text_is_found_and_not_shown(
    hf: Holdfast,
) -> None:
    keys = hf.operate(actor="user:root", role="admin").api_keys
    made = keys.create("billing", role="viewer", org_id=ORG, reason="the invoices")
    assert found(hf, only=["I32"]) == {}

    plain = "hf_live_Zm9yZ290dGVu"
    plant(
        hf,
        "UPDATE holdfast.api_key SET secret_hash = :plain WHERE id = :id",
        plain=plain,
        id=made.key.id,
    )
    plant(
        hf,
        "INSERT INTO holdfast.console_session (secret_hash, actor_type, actor_id, role, scopes,"
        " org_id, created_at, expires_at) SELECT 'plain', 'user', 'ada', 'viewer', '', org_id,"
        " created_at, created_at FROM holdfast.api_key",
    )

    (finding,) = report_of(hf, only=["I32"]).findings
    assert [violation.subject for violation in finding.violations] == [
        f"api_key:{made.key.id}",
        "console_session of user:ada",
    ]
    assert plain not in repr(finding)


# -- I33: the audit


def test_a_sealed_event_that_was_edited(hf: Holdfast, busy: Busy) -> None:
    event = one(hf, "SELECT min(id) AS id FROM holdfast.job_event WHERE name = 'queue.paused'")
    plant(hf, "UPDATE holdfast.audit_event SET actor_id = 'eve' WHERE id = :id", id=event)

    ((check, told),) = found(hf).items()
    assert check == "I33"
    assert [line.partition(" (")[0] for line in told] == [
        f"event {event} was edited or inserted",
        "the event was edited or deleted",
    ]


def test_a_sealed_event_that_was_deleted(hf: Holdfast, busy: Busy) -> None:
    plant(hf, "DELETE FROM holdfast.audit_event WHERE name = 'queue.paused'")

    ((check, (told,)),) = found(hf).items()
    assert check == "I33"
    assert told.startswith("the event was edited or deleted (")


def test_an_event_that_was_inserted_among_sealed_ones(hf: Holdfast, busy: Busy) -> None:
    (gap,) = look(
        hf.store, "SELECT id, at, org_id FROM holdfast.job_event WHERE name = 'queue.paused'"
    )
    plant(hf, "DELETE FROM holdfast.audit_event WHERE id = :id", id=gap["id"])
    overriding = "" if hf.store.dialect is SQLITE else "OVERRIDING SYSTEM VALUE"
    plant(
        hf,
        "INSERT INTO holdfast.audit_event (id, org_id, job_id, job_type, name, attempt, actor_type,"
        f" actor_id, request_id, correlation_id, at) {overriding} VALUES (:id, :org_id, :job_id,"
        " 'sheet', 'sheet.seen', 1, 'user', 'eve', 'r', 'c', :at)",
        id=gap["id"],
        at=gap["at"],
        org_id=OTHER_ORG,
        job_id=NOWHERE,
    )

    told = found(hf, org_id=OTHER_ORG)
    assert told == {"I33": [f"event {gap['id']} was edited or inserted"]}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "DELETE FROM holdfast.audit_seal WHERE org_id = :org_id AND number = 1",
            "the seal is missing",
        ),
        (
            (
                "UPDATE holdfast.audit_seal SET first_seq = first_seq + 1 WHERE org_id = :org_id"
                " AND number = 1"
            ),
            "the seal does not follow from the one before",
        ),
        (
            "UPDATE holdfast.audit_cursor SET sealed_to = sealed_to + 1 WHERE :org_id <> ''",
            "seals reach event",
        ),
        (
            "UPDATE holdfast.audit_cursor SET sealed_to = 0, next_to = 0 WHERE :org_id <> ''",
            "seals reach event",
        ),
    ],
)
def test_a_broken_chain(hf: Holdfast, busy: Busy, text: str, told: str) -> None:
    hf.enqueue("plain", {}, org_id=OTHER_ORG)
    plant(hf, text, org_id=ORG)

    ((check, lines),) = found(hf).items()
    assert check == "I33"
    assert any(line.startswith(told) for line in lines)


def test_an_event_without_its_cause(hf: Holdfast, busy: Busy) -> None:
    tell(hf, "sheet.seen", request_id=" ")

    assert found(hf) == {"I33": ["the event has no name, job type, request id or attempt"]}


def test_an_event_that_is_older_than_those_before_it(hf: Holdfast, busy: Busy) -> None:
    tell(hf, "sheet.seen", at=write_instant(hf.clock.now() - timedelta(minutes=5)))
    assert_sound(hf)
    tell(hf, "sheet.seen", at=write_instant(hf.clock.now() - timedelta(minutes=5, seconds=2)))

    assert found(hf) == {"I33": ["it is older than an event with a lower number"]}


# -- I34: actors


def test_an_event_without_an_actor(hf: Holdfast, busy: Busy) -> None:
    tell(hf, "sheet.seen", actor_id=" ")
    tell(hf, "sheet.seen", actor_type="ghost")

    assert found(hf) == {"I34": ["the event has no actor"] * 2}


def test_an_act_in_a_role_that_may_not(hf: Holdfast, busy: Busy) -> None:
    tell(hf, "operator.refused", "{}")
    tell(hf, "operator.refused", '{"role": "king"}')
    tell(hf, "audit.exported", None)
    tell(hf, "audit.exported", '{"role": "operator"}')
    tell(hf, "dead_letter.triaged", '{"role": "member"}')
    tell(hf, "dead_letter.noted", "{}")

    assert found(hf) == {
        "I34": [
            "it records operator.refused by no role",
            "it records operator.refused by king",
            "it records audit.exported by no role",
            "it records audit.exported by operator",
            "it records dead_letter.triaged by member",
            "it records dead_letter.noted by no role",
        ]
    }


# -- I35: ticks


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            (
                "UPDATE holdfast.schedule_tick SET job_id = :id WHERE outcome = 'enqueued'"
                " AND fire_at = (SELECT max(fire_at) FROM holdfast.schedule_tick"
                " WHERE outcome = 'enqueued')"
            ),
            ["its job was never enqueued"],
        ),
        (
            (
                "UPDATE holdfast.schedule_tick SET detail = ' ' WHERE outcome = 'missed' AND"
                " schedule = 'hourly'"
            ),
            ["it is missed without a reason"],
        ),
        (
            (
                "UPDATE holdfast.schedule_tick SET run_id = :id WHERE run_id IS NOT NULL"
                " AND fire_at = (SELECT max(fire_at) FROM holdfast.schedule_tick"
                " WHERE run_id IS NOT NULL)"
            ),
            ["its run is not in the run log"],
        ),
    ],
    ids=["no job", "no reason", "no run"],
)
def test_a_tick_of_which_nothing_became(
    hf: Holdfast, busy: Busy, text: str, told: list[str]
) -> None:
    plant(hf, text, **({"id": NOWHERE} if ":id" in text else {}))

    assert found(hf) == {"I35": told}


def test_a_tick_that_was_taken_and_forgotten(hf: Holdfast, busy: Busy, clock: FakeClock) -> None:
    def take_tick(minutes: int) -> None:
        plant(
            hf,
            "INSERT INTO holdfast.schedule_tick (schedule, fire_at, org_id, outcome, recorded_at)"
            " VALUES ('sweep', :at, :org_id, 'taken', :at)",
            at=write_instant(clock.now() - timedelta(minutes=minutes)),
            org_id=ORG,
        )

    take_tick(14)
    # A process that was killed during its run left the run open in the run log.
    plant(
        hf,
        "UPDATE holdfast.schedule_tick SET outcome = 'taken', run_id = NULL, detail = NULL"
        " WHERE outcome = 'ran'",
    )
    assert_sound(hf)
    take_tick(16)

    assert found(hf) == {"I35": ["it was claimed without an outcome"]}


def test_two_ticks_that_share_a_job(hf: Holdfast, busy: Busy) -> None:
    plant(
        hf,
        "UPDATE holdfast.schedule_tick SET job_id = (SELECT twin.job_id FROM"
        " holdfast.schedule_tick AS twin WHERE twin.job_id IS NOT NULL ORDER BY twin.fire_at"
        " LIMIT 1) WHERE job_id IS NOT NULL",
    )

    ((check, (told,)),) = found(hf).items()
    assert check == "I35"
    assert told.startswith("it is recorded for ")


# -- I36: instants


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            (
                "INSERT INTO holdfast.job_key_seen (org_id, job_id, last_seen_at) SELECT org_id,"
                " id, :at FROM holdfast.job_envelope WHERE id = :id ON CONFLICT (org_id, job_id)"
                " DO UPDATE SET last_seen_at = excluded.last_seen_at"
            ),
            "key_last_seen_at is in the future",
        ),
        (
            "UPDATE holdfast.artifact SET stored_at = :at WHERE name = 'out.csv'",
            "one of its timestamps is in the future",
        ),
        (
            "UPDATE holdfast.queue SET updated_at = :at WHERE name = 'q:planning'",
            "one of its timestamps is in the future",
        ),
    ],
)
def test_an_instant_that_has_not_come(
    hf: Holdfast, busy: Busy, clock: FakeClock, text: str, told: str
) -> None:
    def at(seconds: int) -> dict[str, str]:
        known = {"at": write_instant(clock.now() + timedelta(seconds=seconds))}
        return known | ({"id": busy.waiting.id} if ":id" in text else {})

    plant(hf, text, **at(60))
    assert_sound(hf)
    plant(hf, text, **at(61))

    assert found(hf) == {"I36": [told]}


def test_an_event_from_the_future(hf: Holdfast, busy: Busy, clock: FakeClock) -> None:
    tell(hf, "sheet.seen", at=write_instant(clock.now() + timedelta(seconds=61)))

    assert found(hf) == {"I36": ["at is in the future"]}


def test_a_job_that_ended_before_it_was_there(hf: Holdfast, busy: Busy) -> None:
    plant(
        hf,
        "UPDATE holdfast.job_outcome SET finished_at = '2026-01-05T09:00:00.000Z'"
        " WHERE job_id = :id",
        id=busy.archived.id,
    )

    assert found(hf) == {
        "I36": ["it ended before it was created", "the claim ended before it began"]
    }


def test_an_attempt_that_ended_before_its_job_was_there(hf: Holdfast, busy: Busy) -> None:
    plant(
        hf,
        "UPDATE holdfast.job_attempt SET ended_at = '2026-01-05T09:00:00.000Z' WHERE job_id = :id",
        id=busy.deferred.id,
    )

    assert found(hf) == {
        "I36": ["attempt 1 ended before the job was created", "the claim ended before it began"]
    }


# -- I37: totals


def test_a_count_of_replays_that_is_off(hf: Holdfast, busy: Busy) -> None:
    plant(
        hf, "UPDATE holdfast.dead_letter SET replay_count = 2 WHERE job_id = :id", id=busy.dead.id
    )

    assert found(hf) == {"I37": ["it counts 2 replays, there are 0"]}


def test_a_run_that_counts_what_did_not_happen(hf: Holdfast, busy: Busy) -> None:
    run_id = one(
        hf, "SELECT max(CAST(run_id AS text)) AS id FROM holdfast.worker_run WHERE outcome = 'full'"
    )
    *others, last = (
        "succeeded_count = succeeded_count - 1, left_count = left_count + 1",
        "claimed_count = claimed_count + 1, left_count = left_count + 1",
        "failed_count = failed_count + 1, succeeded_count = succeeded_count - 1",
        "requeued_count = requeued_count + 1, left_count = left_count - 1",
        "released_count = released_count + 1",
        "failed_count = failed_count + 1, left_count = left_count - 1",
        "failed_count = failed_count + 1, claimed_count = claimed_count + 1",
        "canceled_count = canceled_count + 1, left_count = left_count - 1",
    )
    for change in others:
        with changed(hf, "worker_run", change, run_id=run_id):
            ((check, (told,)),) = found(hf, only=["I37"]).items()
            assert told.endswith("the audit 2 with 2"), change
    with changed(hf, "worker_run", last, run_id=run_id):
        ((check, (told,)),) = found(hf).items()
    assert check == "I37"
    assert told.endswith("the audit 2 with 2")


# -- I38: the schema matches this code


def test_a_schema_that_missed_a_migration(each_hf: Holdfast) -> None:
    hf = each_hf
    plant(hf, "DELETE FROM holdfast.migration WHERE version = 12")
    plant(hf, "INSERT INTO holdfast.migration (version, name) VALUES (99, 'tomorrow')")

    assert by_rule(report_of(hf)) == {
        "I38": [
            "migration:0012 it is missing here and category in code",
            "migration:0099 it is tomorrow here and none in code",
        ]
    }


def test_an_index_that_is_gone(each_hf: Holdfast) -> None:
    hf = each_hf
    with hand(hf) as connection:
        prefix = "" if hf.store.dialect is SQLITE else "holdfast."
        connection.execute(f"DROP INDEX {prefix}job_outcome_ended")

    assert by_rule(report_of(hf)) == {"I38": ["index:job_outcome_ended it is missing"]}


def test_a_schema_that_does_not_hold(postgres_url: str) -> None:
    with make_holdfast(postgres_url) as hf:
        with psycopg.connect(postgres_url) as admin:
            admin.execute(
                "UPDATE pg_index SET indisvalid = false"
                " WHERE indexrelid = 'holdfast.job_outcome_ended'::regclass"
            )
            admin.execute(
                "UPDATE pg_constraint SET convalidated = false WHERE conname = 'job_outcome_known'"
            )
            admin.execute("ALTER TABLE holdfast.job_attempt DROP CONSTRAINT job_attempts_in_budget")
            admin.execute("DROP FUNCTION holdfast.enqueue")

        ((check, lines),) = by_rule(report_of(hf)).items()

    assert check == "I38"
    assert sorted(lines) == [
        "constraint:job_attempts_in_budget it is missing",
        "constraint:job_outcome_known the constraint is not valid",
        "function:enqueue it is missing",
        "index:job_outcome_ended the index is not valid",
    ]


def test_a_file_whose_index_does_not_fit_its_table(sqlite_url: str) -> None:
    with make_holdfast(sqlite_url) as hf:
        hf.job("plain")(lambda job, payload: None)
        hf.enqueue("plain", {}, org_id=ORG, actor="user:ada")
        with hand(hf) as connection:
            connection.execute("PRAGMA writable_schema = ON")
            connection.execute(
                "UPDATE sqlite_master SET sql = replace(sql, '(actor_id', '(name')"
                " WHERE name = 'job_event_of_person'"
            )

    with make_holdfast(sqlite_url) as hf:
        told = by_rule(report_of(hf))

    assert set(told) == {"I38"}
    assert any("job_event_of_person" in line for line in told["I38"])


def test_every_violation_of_a_row_names_its_tenant(hf: Holdfast, busy: Busy) -> None:
    plant(
        hf, "UPDATE holdfast.dead_letter SET replay_count = 2, last_stack = :secret", secret=SECRET
    )

    report = report_of(hf)
    assert {finding.id for finding in report.violated} == {"I31", "I37", "I46"}
    for finding in report.violated:
        assert finding.count == len(finding.violations)
        for item in finding.violations:
            assert uuid.UUID(item.org_id) == uuid.UUID(ORG)
            assert item.subject.startswith("dead_letter:")
