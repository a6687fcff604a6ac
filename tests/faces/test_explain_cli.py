"""holdfast explain and holdfast doctor: their output and exit codes."""

from __future__ import annotations

import pytest

from holdfast import SystemClock
from holdfast.operate.explain import Reason
from holdfast.secret import hide_passwords
from tests.engine.planting import plant
from tests.faces.conftest import APP, Run
from tests.story import ORG, OTHER_ORG, make_holdfast
from tests.workflows.flow import two_steps

NOBODY = "0198c0de-0000-7000-8000-0000000000ff"


def enqueue(run: Run, url: str, *more: str) -> str:
    done = run("enqueue", "greet", "{}", "--org", ORG, *more, "--json", db=url, app=APP)
    assert done.code == 0, done.err
    job_id: str = done.json["job_id"]
    return job_id


def test_explain_prints_one_line_and_what_has_to_happen_next(run: Run, url: str) -> None:
    job_id = enqueue(run, url)

    waiting = run("explain", job_id, db=url)
    run("worker", "--until-idle", db=url, app=APP)
    ended = run("explain", job_id, "--json", db=url)

    assert waiting.code == ended.code == 0
    line, then = waiting.out.splitlines()
    assert line == "No worker serves q:default."
    assert then == (
        f"Next: Start one: holdfast --db {hide_passwords(url)} --app MODULE:NAME worker"
        " --queues q:default"
    )
    assert ended.json["reason"] == Reason.COMPLETED
    assert set(ended.json) == {"job_id", "state", "reason", "line", "next", "until", "facts"}
    assert ended.json["facts"]["finished_at"].endswith("Z")


def test_user_text_cannot_move_the_terminal(run: Run, url: str) -> None:
    job_id = enqueue(run, url)
    run("jobs", "cancel", job_id, "--reason", "gone", db=url)
    with make_holdfast(url, SystemClock()) as hf:
        plant(
            hf,
            "UPDATE holdfast.audit_event SET actor_id = :actor WHERE name LIKE 'job.cancel%'",
            actor="\x1b[31mred",
        )

    shown = run("explain", job_id, db=url)

    assert "\x1b" not in shown.out
    assert "\\x1b[31mred" in shown.out


def test_a_job_that_is_not_there_is_exit_code_three(run: Run, url: str) -> None:
    shown = run("explain", NOBODY, db=url)

    assert (shown.code, shown.out) == (3, "")
    assert f"No job or workflow has the id {NOBODY}." in shown.err
    assert "holdfast jobs list, holdfast workflows list" in shown.err


@pytest.mark.parametrize(("text", "code"), [("UNKNOWN", 2), ("41", 2), ("ffffffff", 3)])
def test_explain_lists_the_ids_that_it_accepts(run: Run, url: str, text: str, code: int) -> None:
    shown = run("explain", text, db=url)

    assert (shown.code, shown.out) == (code, "")
    assert "the id of a job or a workflow" in " ".join(shown.err.split())
    assert "holdfast jobs list, holdfast workflows list" in " ".join(shown.err.split())


def test_explain_takes_the_beginning_of_a_workflow_id(run: Run, url: str) -> None:
    with make_holdfast(url, SystemClock()) as hf:
        workflow_id = two_steps(hf)

    shown = run("explain", workflow_id[:18], db=url)

    assert (shown.code, shown.err) == (0, "")
    assert shown.out == run("explain", workflow_id, db=url).out


def test_another_tenants_job_is_not_there_for_a_member(run: Run, url: str) -> None:
    job_id = enqueue(run, url)
    who = ("--role", "member", "--org", OTHER_ORG)

    asked = run("explain", job_id, *who, db=url)
    stopped = run("jobs", "cancel", job_id, "--reason", "x", *who, db=url)

    assert (asked.code, stopped.code) == (3, 3)
    assert run("jobs", "show", job_id, "--json", db=url).json["state"] == "queued"


# -- doctor


def test_the_doctor_says_what_was_seen_and_what_helps(run: Run, sqlite_url: str) -> None:
    enqueue(run, sqlite_url)

    shown = run("doctor", db=sqlite_url)
    listed = run("doctor", "--json", db=sqlite_url)

    assert shown.code == listed.code == 0
    assert "warning  queues         Jobs have waited in q:default" in shown.out
    db = f"--db {sqlite_url}"
    assert f"→ Start one: holdfast {db} --app MODULE:NAME worker --queues q:default" in shown.out
    assert all(
        set(finding) == {"check", "severity", "seen", "remedy", "facts"} for finding in listed.json
    )
    assert {finding["severity"] for finding in listed.json} <= {"ok", "notice", "warning"}


def test_a_problem_is_exit_code_one(run: Run, postgres_url: str) -> None:
    # The tests' own server does not wait for its disk.
    shown = run("doctor", "--json", db=postgres_url)

    assert shown.code == 1
    assert "problem" in {finding["severity"] for finding in shown.json}


def test_a_database_that_was_not_migrated_is_a_finding_and_no_crash(
    run: Run, sqlite_url: str
) -> None:
    shown = run("doctor", db=sqlite_url)

    assert shown.code == 1
    assert "There is no Holdfast schema." in shown.out
    assert f"holdfast --db {sqlite_url} migrate" in shown.out


def test_who_is_no_administrator_is_refused(run: Run, url: str) -> None:
    enqueue(run, url)

    shown = run("doctor", "--role", "operator", db=url)

    assert shown.code == 1
    assert "may not" in shown.err
    assert shown.out == ""
