"""The command line: output, refusals and exit codes."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import partialmethod
from pathlib import Path

import click
import psycopg
import pytest
from click.testing import CliRunner

from holdfast import Holdfast, SystemClock, UpstreamDown
from holdfast.cli import cli, command_groups
from holdfast.cli.next_command import complete_commands, next_command
from holdfast.operate.dead_letter_input import DeadLetterFilter
from holdfast.secret import hide_passwords
from holdfast.store import postgres as postgres_store
from tests.engine.planting import plant
from tests.faces.conftest import APP, Run
from tests.operate.letters import die_at_once
from tests.postgres_server import PostgresServer
from tests.story import ORG, OTHER_ORG, make_holdfast

NOBODY = "0198c0de-0000-7000-8000-0000000000ff"
LISTED = {
    "id", "org_id", "project_id", "job_type", "category", "state", "queue", "origin_queue",
    "stage", "priority", "attempt_count", "max_attempts", "attempts", "not_before_at", "created_at",
    "updated_at", "finished_at", "last_error", "error_class",
}  # fmt: skip
SHOWN = {
    "id", "org_id", "project_id", "job_type", "category", "actor_type", "actor_id", "request_id",
    "correlation_id", "idempotency_key", "payload_hash", "priority", "unit_key", "scheduled_for",
    "traceparent", "routing_decision", "replay_of", "origin_queue", "created_at", "state", "queue",
    "stage", "pipeline_version", "attempt_count", "max_attempts", "not_before_at", "lease_token",
    "lease_expires_at", "claimed_at", "claimed_by", "cancel_requested_at", "provider_batch_id",
    "first_failed_at", "last_error", "last_error_at", "error_class", "updated_at", "finished_at",
    "key_last_seen_at", "key_expires_at", "events", "dead_letter", "notes",
    "turn", "limit_key", "deadline_at",
}  # fmt: skip
EVENT = {
    "id", "org_id", "project_id", "job_id", "job_type", "name", "attempt", "actor_type",
    "actor_id", "request_id", "correlation_id", "at", "detail",
}  # fmt: skip


def enqueue(run: Run, url: str, job_type: str = "greet", payload: str = "{}", *more: str) -> str:
    done = run("enqueue", job_type, payload, "--org", ORG, *more, "--json", db=url, app=APP)
    assert done.code == 0, done.err
    job_id: str = done.json["job_id"]
    return job_id


def test_progress_of_any_stored_form_is_shown(run: Run, url: str) -> None:
    stored = {
        '{"done": 3, "total": 10, "note": "third page"}': "3 of 10, third page",
        '{"done": 0.5, "total": "half", "note": ""}': "0.5 of half",
        '{"done": null, "total": 3, "note": 7}': "None of 3, 7",
        '"half"': '"half"',
        "[1, 2]": "[1,2]",
    }
    job_id = enqueue(run, url)
    with make_holdfast(url, SystemClock()) as hf:
        hf.job("greet")(lambda job, payload: None)
        hf.worker().run_once()
        for text, shown in stored.items():
            plant(hf, "DELETE FROM holdfast.job_stage")
            plant(
                hf,
                "INSERT INTO holdfast.job_stage (org_id, job_id, stage, progress, updated_at)"
                " SELECT org_id, id, stage, :progress, updated_at FROM holdfast.job",
                progress=text,
            )
            done = run("jobs", "show", job_id, db=url)

            assert (done.code, done.err) == (0, "")
            assert f"progress         {shown}\n" in re.sub(
                r"progress +", "progress         ", done.out
            )


def test_a_tenant_is_given_and_shown_by_its_name(run: Run, url: str) -> None:
    given = ("--org", "name:acme", "--project", "name:launch")
    job_id = run("enqueue", "greet", "{}", *given, "--json", db=url, app=APP).json["job_id"]
    enqueue(run, url)

    listed = run("jobs", "list", "--org", "name:acme", db=url)
    every = run("jobs", "list", db=url)
    shown = run("jobs", "show", job_id, db=url)
    other = run("jobs", "list", "--org", "name:other", db=url)

    assert (listed.code, every.code, shown.code) == (0, 0, 0), listed.err
    assert re.search(r"^\S+ +greet .* acme +-$", listed.out, re.MULTILINE)
    assert "1 job: 1 queued" in listed.out
    assert (every.out.count(" acme "), "2 jobs" in every.out) == (1, True)
    assert re.search(r"^  org_id +acme \([0-9a-f-]{36}\)$", shown.out, re.MULTILINE)
    assert re.search(r"^  project_id +launch \([0-9a-f-]{36}\)$", shown.out, re.MULTILINE)
    assert other.out == "No jobs match.\n"


def test_a_name_without_its_prefix_finds_a_known_tenant_only(run: Run, url: str) -> None:
    run("enqueue", "greet", "{}", "--org", "name:acme", db=url, app=APP)

    known = run("jobs", "list", "--org", "acme", db=url)
    unknown = run("jobs", "list", "--org", "umbrella", db=url)
    part_of_an_id = run("jobs", "list", "--org", "cafe", db=url)
    enqueued = run("enqueue", "greet", "{}", "--org", "acme", db=url, app=APP)

    assert "1 job: 1 queued" in known.out, known.err
    assert (unknown.code, part_of_an_id.code, enqueued.code) == (2, 3, 1)
    assert "a name such as name:acme" in unknown.err
    assert "A name begins with name:" in part_of_an_id.err
    assert "a name such as name:acme" in enqueued.err


# -- migrate


def test_migrate_says_what_it_applied_and_the_second_time_that_nothing_is_missing(
    run: Run, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/new.db"

    first = run("migrate", "--json", db=url)
    second = run("migrate", db=url)

    assert first.code == second.code == 0
    assert set(first.json) == {"database", "applied", "versions"}
    assert first.json["database"].startswith("SQLite ")
    assert "0002_job" in first.json["applied"]
    assert second.out.endswith("the schema is up to date.\n")
    assert "applied" not in second.out


def test_an_empty_postgresql_must_be_migrated_first_and_then_works(
    run: Run, postgres: PostgresServer
) -> None:
    with psycopg.connect(postgres.dsn(), autocommit=True) as admin:
        admin.execute("CREATE DATABASE faces_empty")
    url = postgres.dsn("faces_empty")

    before = run("jobs", "count", db=url)
    migrated = run("migrate", db=url)
    after = run("jobs", "count", db=url)

    assert before.code == 4
    assert "Run 'holdfast migrate' once." in before.err
    assert migrated.code == after.code == 0
    assert "PostgreSQL" in migrated.out


# -- enqueue


def test_enqueue_prints_the_job_and_a_second_time_that_it_was_there(run: Run, url: str) -> None:
    arguments = ("enqueue", "greet", '{"name": "Ada"}', "--org", ORG, "--key", "once")

    first = run(*arguments, db=url, app=APP)
    second = run(*arguments, db=url, app=APP)

    assert first.code == second.code == 0
    assert first.out.endswith("  enqueued\n")
    assert second.out.endswith("  already exists\n")
    assert first.out.split()[0] == second.out.split()[0]


def test_enqueue_needs_a_tenant_only_on_a_shared_database(
    run: Run, migrated_sqlite_url: str, postgres_url: str
) -> None:
    embedded = run("enqueue", "greet", "{}", db=migrated_sqlite_url, app=APP)
    shared = run("enqueue", "greet", "{}", db=postgres_url, app=APP)

    assert embedded.code == 0
    assert shared.code == 1
    assert "org_id: must name the tenant of the job" in shared.err


def test_enqueue_as_json_has_the_documented_fields(run: Run, url: str) -> None:
    done = run(
        "enqueue", "greet", "{}", "--org", ORG, "--actor", "user:42", "--json", db=url, app=APP
    )

    assert set(done.json) == {
        "job_id", "job_type", "created", "differs", "idempotency_key", "created_at",
    }  # fmt: skip
    assert (done.json["created"], done.json["differs"]) == (True, False)


def test_enqueue_takes_a_unique_key_and_a_deadline(run: Run, url: str) -> None:
    def put(*options: str) -> dict[str, object]:
        given = ("enqueue", "greet", "{}", "--org", ORG, "--json", *options)
        return run(*given, db=url, app=APP).json

    first = put("--unique-key", "a", "--expires-in", "1h")
    assert put("--unique-key", "a") == {**first, "created": False}
    latest = put("--unique-key", "a", "--debounce", "30s", "--debounce-limit", "5m")
    refused = run("enqueue", "greet", "--org", ORG, "--replace", db=url, app=APP)

    shown = [
        run("jobs", "show", str(each["job_id"]), "--json", db=url).json for each in (first, latest)
    ]
    assert [one["state"] for one in shown] == ["canceled", "queued"]
    assert shown[0]["deadline_at"] > shown[0]["created_at"]
    assert (refused.code, "replace: needs unique_key" in refused.err) == (1, True)


def test_enqueue_takes_a_delay_or_a_time(run: Run, url: str) -> None:
    delayed = enqueue(run, url, "greet", "{}", "--delay", "1h30m")
    later = enqueue(run, url, "greet", "{}", "--at", "2027-01-02T08:00:00+01:00")
    wrong = ["--delay", "soon"], ["--at", "soon"], ["--delay", "5m", "--at", "2027-01-02"]
    refused = [run("enqueue", "greet", "--org", ORG, *each, db=url, app=APP) for each in wrong]

    shown = [run("jobs", "show", each, "--json", db=url).json for each in (delayed, later)]
    assert shown[0]["not_before_at"] > shown[0]["created_at"]
    assert shown[1]["not_before_at"].startswith("2027-01-02T07:00:00")
    assert [one.code for one in refused] == [1, 2, 1]
    assert "delay: must be a length of time like 90s" in refused[0].err


def test_enqueue_warns_when_the_earlier_job_under_the_key_differs(run: Run, url: str) -> None:
    enqueue(run, url, "greet", '{"name": "Ada"}', "--key", "once")

    done = run("enqueue", "greet", '{"name": "Bo"}', "--org", ORG, "--key", "once", db=url, app=APP)

    assert done.code == 0
    assert done.err == "A job with this key and another payload exists; it was not changed.\n"


def test_enqueue_reads_the_payload_from_standard_input(sqlite_url: str) -> None:
    done = CliRunner().invoke(
        cli,
        ["--db", sqlite_url, "--app", APP, "enqueue", "greet", "-", "--org", ORG, "--json"],
        input='{"name": "Ada"}',
    )

    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["job_type"] == "greet"


# -- worker


def test_a_worker_until_idle_runs_what_is_due_and_leaves(run: Run, url: str) -> None:
    job_id = enqueue(run, url, "greet", '{"name": "Ada"}')

    worked = run("worker", "--until-idle", "--concurrency", "2", db=url, app=APP)

    shown = run("jobs", "show", job_id, "--json", db=url)
    assert worked.code == 0
    assert shown.json["state"] == "completed"
    lines = [json.loads(line) for line in worked.err.splitlines()]
    assert [line["event"] for line in lines if "job_id" in line] == ["job.completed"]


# -- jobs


def test_list_as_json_has_the_documented_fields_newest_first(run: Run, url: str) -> None:
    older, newer = enqueue(run, url), enqueue(run, url)

    rows = run("jobs", "list", "--json", db=url).json

    assert [row["id"] for row in rows] == [newer, older]
    assert set(rows[0]) == LISTED
    assert rows[0]["attempts"] == "0/5"


def test_list_narrows_by_tenant_state_and_type_and_turns_the_page(run: Run, url: str) -> None:
    older, newer = enqueue(run, url), enqueue(run, url)

    def ids(*options: str) -> list[str]:
        return [row["id"] for row in run("jobs", "list", "--json", *options, db=url).json]

    assert ids("--org", ORG, "--state", "queued", "--type", "greet") == [newer, older]
    assert ids("--limit", "1", "--before", newer) == [older]
    assert ids("--org", OTHER_ORG) == ids("--state", "failed") == ids("--type", "stumble") == []


def test_an_empty_list_says_what_would_fill_it_and_is_an_empty_json_array(
    run: Run, url: str
) -> None:
    assert run("jobs", "list", "--json", db=url).json == []
    assert run("jobs", "list", db=url).out.startswith("No jobs yet. Enqueue one: holdfast --db")
    assert run("jobs", "list", "--state", "failed", db=url).out == "No jobs match.\n"


def test_the_ids_of_a_list_can_be_given_to_other_commands(run: Run, url: str) -> None:
    ids = [enqueue(run, url) for _ in range(3)]

    lines = run("jobs", "list", db=url).out.splitlines()

    short = [line.split()[0] for line in lines[1:4]]
    assert [run("jobs", "show", each, "--json", db=url).json["id"] for each in short] == ids[::-1]
    assert max(map(len, short)) < 36
    assert lines[-1] == "3 jobs: 3 queued"
    assert run("explain", short[0], db=url).code == 0


def test_the_next_page_keeps_the_database_the_application_and_the_filters(
    run: Run, url: str
) -> None:
    ids = [enqueue(run, url) for _ in range(3)]
    filters = ("--org", ORG, "--state", "queued", "--limit", "2")

    printed = run("jobs", "list", *filters, db=url, app=APP).out
    program, *words = shlex.split(printed.splitlines()[-1].removeprefix("More: "))

    assert program == "holdfast"
    assert words[:4] == ["--db", hide_passwords(url), "--app", APP]
    at = words.index("jobs")
    assert words[at : at + 8] == ["jobs", "list", *filters]
    rest = run(*words[at:], "--json", db=url, app=APP)
    assert [row["id"] for row in rest.json] == [ids[0]]


def test_a_printed_command_does_not_repeat_the_password_of_the_database() -> None:
    root = click.Context(cli, info_name="holdfast")
    root.params = {"db": "postgresql://ada:secret@localhost/work", "app": None}
    root.set_parameter_source("db", click.core.ParameterSource.COMMANDLINE)

    assert next_command(root, "verify") == ("holdfast --db postgresql://ada@localhost/work verify")
    assert complete_commands(root, "Upgrade the holdfast package; see holdfast doctor.") == (
        "Upgrade the holdfast package; see holdfast --db postgresql://ada@localhost/work doctor."
    )


def test_a_prefix_of_several_ids_lists_them_and_an_unknown_one_is_not_found(
    run: Run, url: str
) -> None:
    ids = [enqueue(run, url) for _ in range(2)]

    several = run("jobs", "show", ids[0][:4], db=url)
    unknown = run("jobs", "show", "0fff0fff", db=url)

    assert several.code == 2
    assert all(job_id in several.err for job_id in ids)
    assert (unknown.code, "starts with 0fff0fff" in unknown.err) == (3, True)


def test_a_job_that_completes_at_its_first_attempt_has_one_attempt(run: Run, url: str) -> None:
    enqueue(run, url, "greet", '{"name": "Ada"}')
    assert run("jobs", "list", "--json", db=url).json[0]["attempts"].startswith("0/")

    run("worker", "--until-idle", db=url, app=APP)

    assert run("jobs", "list", "--json", db=url).json[0]["attempts"].startswith("1/")


def test_show_as_json_has_the_documented_fields_and_the_timeline(run: Run, url: str) -> None:
    job_id = enqueue(run, url)

    shown = run("jobs", "show", job_id, "--json", db=url).json

    assert set(shown) == SHOWN
    (event,) = shown["events"]
    assert set(event) == EVENT
    assert event["name"] == "job.enqueued"
    assert event["detail"]["queue"] == "q:default"


def test_show_never_prints_a_payload_or_a_result(run: Run, url: str) -> None:
    job_id = enqueue(run, url, "greet", '{"name": "canary-in-the-payload"}')
    broken = enqueue(run, url, "break", '{"name": "canary-in-the-error"}')
    run("worker", "--until-idle", db=url, app=APP)

    shown = [run("jobs", "show", each, db=url).out for each in (job_id, broken)]
    shown += [run("jobs", "show", each, "--json", db=url).out for each in (job_id, broken)]
    shown += [run("jobs", "list", db=url).out, run("jobs", "list", "--json", db=url).out]

    letter = run("jobs", "show", broken, "--json", db=url).json["dead_letter"]

    assert "completed" in shown[0]
    assert "Dead letter: DEFECT at stage run" in shown[1]
    assert (letter["error_class"], letter["sanitized_context"]["attempts"]) == ("DEFECT", 1)
    assert "tests.faces.app:" in letter["last_stack"]
    assert not [text for text in shown if "canary" in text]


def test_cancel_ends_a_waiting_job_and_comes_too_late_for_an_ended_one(run: Run, url: str) -> None:
    job_id = enqueue(run, url)

    first = run("jobs", "cancel", job_id, "--reason", "a mistake", "--json", db=url)
    second = run("jobs", "cancel", job_id, "--reason", "again", db=url)

    assert (first.code, first.json) == (0, {"job_id": job_id, "answer": "canceled"})
    assert second.code == 1
    assert re.fullmatch(
        rf"{job_id}  too late: the job is canceled since \d{{4}}-\d\d-\d\d [\d:]+ UTC \(.+ ago\)\."
        r" Ended jobs cannot be canceled\.\n",
        second.out,
    )


def test_cancel_of_an_ended_job_has_its_state_and_its_end_as_json(run: Run, url: str) -> None:
    job_id = enqueue(run, url)
    run("jobs", "cancel", job_id, "--reason", "a mistake", db=url)

    done = run("jobs", "cancel", job_id, "--reason", "again", "--json", db=url)
    record = run("jobs", "show", job_id, "--json", db=url).json

    assert done.code == 1
    assert done.json == {
        "job_id": job_id,
        "answer": "too_late",
        "state": "canceled",
        "finished_at": record["finished_at"],
    }


def test_what_an_operator_wrote_cannot_move_the_terminal(run: Run, url: str) -> None:
    job_id = enqueue(run, url)
    run("jobs", "cancel", job_id, "--reason", "gone", db=url)
    with make_holdfast(url, SystemClock()) as hf:
        plant(
            hf,
            "UPDATE holdfast.audit_event SET actor_id = :actor WHERE name LIKE 'job.cancel%'",
            actor="\x1b[31mred",
        )

    shown = run("jobs", "show", job_id, db=url)

    assert "\x1b" not in shown.out
    assert "\\x1b[31mred" in shown.out


def test_count_groups_by_state_and_queue(run: Run, url: str) -> None:
    enqueue(run, url)
    enqueue(run, url, "greet", "{}", "--queue", "q:planning")

    assert run("jobs", "count", "--json", db=url).json == [
        {"state": "queued", "queue": "q:default", "jobs": 1},
        {"state": "queued", "queue": "q:planning", "jobs": 1},
    ]


def test_count_distinguishes_problems_from_replays(run: Run, hf: Holdfast, url: str) -> None:
    die_at_once(hf, UpstreamDown(), count=3)
    letters = hf.operate(actor="user:ann", role="admin").dead_letters
    letters.recover(DeadLetterFilter(job_type="mail.send"), reason="back", limit=1)

    counted = run("jobs", "count", "--json", db=url).json

    assert counted[0] == {"state": "failed", "queue": "q:deadletter", "jobs": 3, "problems": 2}
    assert counted[1] == {"state": "queued", "queue": "q:default", "jobs": 1}
    summary = run("jobs", "count", db=url).out
    assert "4 jobs, 2 problems\nNext: holdfast " in summary
    assert summary.endswith(" dead-letters list\n")


# -- refusals


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["enqueue", "greet", "{", "--org", ORG], 2, "Invalid value for PAYLOAD: it is not JSON"),
        (["enqueue", "greet", "[]", "--org", ORG], 1, "payload: must be an object, not list"),
        (["enqueue", "greet", "{}", "--org", "cafe"], 1, "org_id: must be a UUID"),
        (["enqueue", "greet", '{"password": "x1"}', "--org", ORG], 1, "looks like a secret"),
        (["enqueue", "greet", "{}", "--org", ORG, "--queue", "x"], 1, "queue: must look like"),
        (["enqueue", "nothing", "{}", "--org", ORG], 3, "No job type 'nothing' is registered."),
        (["enqueue", "greet", "{}", "--org", ORG, "--priority", "x"], 2, "Invalid value"),
        (["jobs", "show", "41"], 2, "must be an id, or a prefix of at least 4 characters"),
        (["jobs", "show", NOBODY], 3, f"Job {NOBODY} not found."),
        (["jobs", "cancel", NOBODY, "--reason", "x"], 3, f"Job {NOBODY} not found."),
        (["jobs", "list", "--limit", "0"], 2, "Invalid value"),
        (
            ["jobs", "list", "--org", "abc"],
            2,
            "must be an id, or a prefix of at least 4 characters",
        ),
        (["jobs", "list", "--state", "running"], 2, "Invalid value"),
        (["worker", "--concurrency", "0"], 2, "Invalid value"),
        (["dance"], 2, "No such command 'dance'"),
    ],
)
def test_bad_input_gets_one_clear_sentence_and_an_exit_code(
    run: Run, migrated_sqlite_url: str, arguments: list[str], code: int, says: str
) -> None:
    done = run(*arguments, db=migrated_sqlite_url, app=APP)

    assert done.code == code
    assert says in done.err
    assert done.out == ""
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("app", "says"),
    [
        (None, "No application given."),
        ("no.such.module:hf", "no module named 'no' from here"),
        ("tests.faces.app:nothing", "has no 'nothing'"),
        ("tests.faces.app:greet", "is a DeclaredJob, not a Holdfast"),
    ],
)
def test_an_application_that_is_not_there_is_named(
    run: Run, sqlite_url: str, app: str | None, says: str
) -> None:
    done = run("worker", "--until-idle", db=sqlite_url, app=app)

    assert done.code == 1
    assert says in done.err


def test_a_database_that_cannot_be_opened_is_exit_code_4(run: Run, tmp_path: Path) -> None:
    done = run("jobs", "count", db=f"sqlite:///{tmp_path}/no/such/folder/work.db")

    assert done.code == 4
    assert "Check the path and its permissions." in done.err


def test_a_postgresql_that_is_away_is_exit_code_4(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The default of an argument, which is read when the class is defined.
    wait = partialmethod(postgres_store.PostgresStore._with_connection, seconds=0.1)
    monkeypatch.setattr(postgres_store.PostgresStore, "_with_connection", wait)

    done = run("jobs", "count", db="postgresql://postgres:hunter2@127.0.0.1:1/work")

    assert done.code == 4
    assert "hunter2" not in done.out + done.err


@pytest.mark.parametrize(
    "db",
    [
        "mysql://ada:hunter2@db.internal/work",
        "postgresql://ada:hunter2@db.internal:port/work",
    ],
)
def test_an_address_that_cannot_be_used_is_refused_without_its_password(run: Run, db: str) -> None:
    done = run("jobs", "count", db=db)

    assert done.code == 1
    assert "hunter2" not in done.out + done.err


def test_a_password_never_appears_in_what_a_command_prints(run: Run, postgres_url: str) -> None:
    url = postgres_url.replace("postgres@", "postgres:hunter2@")
    job_id = enqueue(run, url)

    printed = [
        run("migrate", db=url),
        run("worker", "--until-idle", "--log-level", "debug", db=url, app=APP),
        run("jobs", "show", job_id, db=url),
    ]

    assert [done.code for done in printed] == [0, 0, 0]
    assert not [done for done in printed if "hunter2" in done.out + done.err]


# -- the source of the database URL


def test_the_option_wins_over_the_environment_and_that_over_the_file(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def databases() -> set[str]:
        return {path.stem for path in tmp_path.glob("*.db")}

    assert run("migrate").code == 0
    assert databases() == {"holdfast"}
    (tmp_path / "holdfast.toml").write_text('db = "sqlite:///from_file.db"\n')
    assert run("migrate").code == 0
    assert databases() == {"holdfast", "from_file"}
    monkeypatch.setenv("HOLDFAST_DB", "sqlite:///from_env.db")
    assert run("migrate").code == 0
    assert databases() == {"holdfast", "from_file", "from_env"}
    assert run("migrate", db="sqlite:///from_option.db").code == 0
    assert databases() == {"holdfast", "from_file", "from_env", "from_option"}


def test_the_file_names_the_application_and_an_unknown_setting_is_refused(
    run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text(f'db = "sqlite:///work.db"\napp = "{APP}"\n')
    assert run("enqueue", "greet", "{}", "--org", ORG).code == 0

    file.write_text("lease = 5\n")
    refused = run("jobs", "count")

    assert refused.code == 1
    assert "lease is an unknown key; did you mean 'lease_seconds'?" in refused.err


# -- the whole command line


def every_command(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        yield (*path, name)
        if isinstance(command, click.Group):
            yield from every_command(command, (*path, name))


@pytest.mark.parametrize("path", list(every_command(cli)), ids=" ".join)
def test_every_command_has_a_help_text(path: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(cli, [*path, "--help"], terminal_width=80)
    above = CliRunner().invoke(cli, [*path[:-1], "--help"], terminal_width=80)
    (summary,) = (line for line in above.output.splitlines() if line.split()[:1] == [path[-1]])

    assert shown.exit_code == 0, shown.output
    assert len(shown.output.splitlines()) > 5
    assert len(summary) <= 80
    assert len(summary.split()) > 1
    is_whole = summary.endswith(".") and not summary.endswith("...")
    assert is_whole, "the summary is cut off: shorten the first sentence of its help"


def test_the_help_lists_the_commands_by_group() -> None:
    shown = CliRunner().invoke(cli, ["--help"]).output
    titles = [line.rstrip(":") for line in shown.splitlines() if line.endswith(":")]

    assert titles == [
        *("Options", "Jobs", "Operations", "Batch processing"),
        *("Applications", "Administration", "Development"),
    ]
    assert "simulator" in command_groups()["Development"]


def test_the_module_and_the_script_are_the_same_command(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "--version"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0
    assert done.stdout.startswith("holdfast, version ")
