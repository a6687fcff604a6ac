"""A planning job proposes: it reads, stores its result, and writes only with an apply command."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import ConfigError, Context, Holdfast, InvalidJob
from holdfast.engine.job import State
from tests.engine.domain import DEAD, DONE, count, ended, make_domain, run_one, titles, with_files
from tests.rows import refused_by
from tests.story import ORG, events, timeline

ASSIGN = "UPDATE run_sheet SET title = 'assigned'"


@pytest.fixture
def planned(url: str, tmp_path: Path) -> Iterator[Holdfast]:
    with with_files(url, tmp_path) as hf:
        make_domain(hf.store)
        yield hf


def proposal(job: Context) -> str:
    return job.artifacts.put(b"1. Ada\n2. Grace\n", name="ranking.txt").ref


def yes(job: Context, command: str) -> bool:
    return command == "assign-run-sheet"


def declare(hf: Holdfast, *statements: str, policy: Any = None) -> None:
    @hf.job("plan.assign", category="planning", policy=policy)
    def plan(job: Context, payload: object) -> dict[str, str]:
        with job.transaction() as connection:
            for text in statements:
                connection.execute(text)
        return {"proposal": proposal(job)}


@pytest.mark.req("Q-06", "Q-08")
def test_a_planning_job_reads_the_domain_and_stores_a_proposal(planned: Holdfast) -> None:
    @planned.job("plan.scan", category="planning")
    def scan(job: Context, payload: object) -> dict[str, str]:
        with job.transaction() as connection:
            (title,) = connection.execute("SELECT title FROM run_sheet").fetchone()
        return {"proposal": job.artifacts.put(title.encode(), name="conflicts.txt").ref}

    done = run_one(planned, "plan.scan", {})

    assert ended(planned, done) == DONE
    found = planned.get(done.id, org_id=ORG)
    assert found.origin_queue == "q:planning"
    with planned.artifacts.open(found.result["proposal"], org_id=ORG) as reader:
        assert reader.read() == b"as it was"


@pytest.mark.req("Q-08")
@pytest.mark.parametrize(
    "result",
    [
        None,
        {},
        {"proposal": "assign Ada"},
        {"proposal": "artifact:none"},
        {"proposal": f"artifact:{ORG}"},
    ],
)
def test_a_result_without_an_artifact_of_its_own_is_dead(planned: Holdfast, result: Any) -> None:
    planned.job("plan.scan", category="planning")(lambda job, payload: result)

    done = run_one(planned, "plan.scan", {})

    assert ended(planned, done) == (State.FAILED, "RESULT_INVALID")
    assert timeline(planned, done)[-1] == "job.deadlettered"


@pytest.mark.req("Q-08")
def test_the_artifact_of_another_job_is_no_result(planned: Holdfast) -> None:
    theirs = planned.artifacts.put(b"older", org_id=ORG, name="older.txt")

    @planned.job("plan.scan", category="planning")
    def scan(job: Context, payload: dict[str, str]) -> dict[str, str]:
        return {"proposal": theirs.ref}

    assert ended(planned, run_one(planned, "plan.scan", {})) == (State.FAILED, "RESULT_INVALID")


@pytest.mark.req("Q-08")
def test_only_the_last_stage_has_to_deliver(planned: Holdfast) -> None:
    pipeline = planned.pipeline("plan.rank", category="planning")
    pipeline.stage("scan")(lambda job, payload: {"conflicts": 3})
    pipeline.stage("rank")(lambda job, payload: {"proposal": proposal(job)})

    assert ended(planned, run_one(planned, "plan.rank", {})) == DONE


@pytest.mark.req("Q-08")
@pytest.mark.parametrize("delivers", [True, False])
def test_an_asynchronous_planning_job_has_the_same_duty(planned: Holdfast, delivers: bool) -> None:
    @planned.job("plan.scan", category="planning")
    async def scan(job: Context, payload: object) -> dict[str, str]:
        return {"proposal": await asyncio.to_thread(proposal, job)} if delivers else {}

    enqueued = planned.enqueue("plan.scan", {}, org_id=ORG)
    planned.worker().run(until_idle=True)

    expected = DONE if delivers else (State.FAILED, "RESULT_INVALID")
    assert ended(planned, enqueued) == expected


@pytest.mark.req("Q-07")
@pytest.mark.parametrize(
    "text",
    [
        ASSIGN,
        "INSERT INTO run_sheet VALUES (2, 'assigned')",
        "DELETE FROM run_sheet",
        "CREATE TABLE mine (id integer)",
        "DROP TABLE run_sheet",
    ],
)
def test_without_a_command_nothing_can_be_written(planned: Holdfast, text: str) -> None:
    declare(planned, text, policy=yes)

    done = run_one(planned, "plan.assign", {})

    assert ended(planned, done) == DEAD
    assert titles(planned.store) == ["as it was"]


@pytest.mark.req("Q-07")
@pytest.mark.parametrize(
    "text",
    [
        f"SET TRANSACTION READ WRITE; {ASSIGN}",
        f"SET LOCAL transaction_read_only = off; {ASSIGN}",
        f"SELECT set_config('transaction_read_only', 'off', true); {ASSIGN}",
        f"RESET ROLE; {ASSIGN}",
        f"RESET ROLE; SET TRANSACTION READ WRITE; {ASSIGN}",
        f"SAVEPOINT s; SET TRANSACTION READ WRITE; {ASSIGN}",
        "COPY run_sheet FROM PROGRAM 'echo 9,planted' WITH CSV",
    ],
)
def test_a_reading_transaction_cannot_be_made_a_writing_one(
    postgres_url: str, tmp_path: Path, text: str
) -> None:
    with with_files(postgres_url, tmp_path) as hf:
        make_domain(hf.store)
        declare(hf, text)

        assert ended(hf, run_one(hf, "plan.assign", {})) == DEAD
        assert titles(hf.store) == ["as it was"]


@pytest.mark.req("Q-07")
@pytest.mark.parametrize("text", ["PRAGMA query_only = OFF", "COMMIT", "ATTACH ':memory:' AS mine"])
def test_sqlite_lets_a_reading_transaction_read_only(
    sqlite_url: str, tmp_path: Path, text: str
) -> None:
    with with_files(sqlite_url, tmp_path) as hf:
        make_domain(hf.store)
        declare(hf, text)

        assert ended(hf, run_one(hf, "plan.assign", {})) == DEAD


@pytest.mark.req("Q-07")
def test_the_database_refuses_the_statement_itself(planned: Holdfast) -> None:
    said: list[str] = []

    @planned.job("plan.assign", category="planning")
    def plan(job: Context, payload: object) -> None:
        with job.transaction() as connection:
            try:
                connection.execute(ASSIGN)
            except Exception as exc:
                said.append(str(exc))

    run_one(planned, "plan.assign", {})

    assert len(said) == 1
    assert "read-only transaction" in said[0] or "not authorized" in said[0]


@pytest.mark.req("Q-07")
def test_a_command_that_the_policy_agrees_to_is_carried_out_and_audited(planned: Holdfast) -> None:
    declare(planned, ASSIGN, policy=yes)

    done = run_one(planned, "plan.assign", {}, command="assign-run-sheet")

    assert ended(planned, done) == DONE
    assert titles(planned.store) == ["assigned"]
    (told,) = [row for row in events(planned, done) if row["name"] == "job.write_authorized"]
    assert "assign-run-sheet" in told["detail"]
    assert "test_planning_rules.yes" in told["detail"]


@pytest.mark.req("Q-07")
@pytest.mark.parametrize(
    "policy",
    [
        lambda job, command: False,
        lambda job, command: None,
        # A truthy value is not an approval: no person decided anything here.
        lambda job, command: "perhaps",
    ],
)
def test_a_command_that_the_policy_refuses_writes_nothing(planned: Holdfast, policy: Any) -> None:
    declare(planned, ASSIGN, policy=policy)

    done = run_one(planned, "plan.assign", {}, command="assign-run-sheet")

    assert ended(planned, done) == DEAD
    assert titles(planned.store) == ["as it was"]
    assert "job.write_authorized" not in timeline(planned, done)


@pytest.mark.req("Q-07")
def test_another_command_is_another_question(planned: Holdfast) -> None:
    declare(planned, ASSIGN, policy=yes)

    done = run_one(planned, "plan.assign", {}, command="assign-everything")

    assert ended(planned, done) == DEAD


def test_an_authorised_write_that_fails_is_not_in_the_audit(planned: Holdfast) -> None:
    declare(planned, ASSIGN, "SELECT no_such_column FROM run_sheet", policy=yes)

    done = run_one(planned, "plan.assign", {}, command="assign-run-sheet")

    assert titles(planned.store) == ["as it was"]
    assert "job.write_authorized" not in timeline(planned, done)


@pytest.mark.req("Q-07")
def test_a_policy_may_look_but_not_write(planned: Holdfast) -> None:
    def may_assign(job: Context, command: str) -> bool:
        with job.transaction() as connection:
            (title,) = connection.execute("SELECT title FROM run_sheet").fetchone()
            if title != "as it was":
                connection.execute(ASSIGN)
        return True

    declare(planned, ASSIGN, policy=may_assign)

    assert ended(planned, run_one(planned, "plan.assign", {}, command="assign-x")) == DONE
    # The second time the policy itself writes.
    assert ended(planned, run_one(planned, "plan.assign", {}, command="assign-y")) == DEAD


@pytest.mark.req("Q-07")
def test_a_command_needs_a_planning_job_with_a_policy(planned: Holdfast) -> None:
    planned.job("plan.scan", category="planning")(lambda job, payload: None)
    planned.job("order.ship")(lambda job, payload: None)

    for job_type in ("plan.scan", "order.ship"):
        with pytest.raises(InvalidJob, match="command"):
            planned.enqueue(job_type, {}, org_id=ORG, command="assign-run-sheet")
    with pytest.raises(ConfigError, match="policy"):
        planned.job("order.pack", policy=yes)(lambda job, payload: None)

    async def decide(job: Context, command: str) -> bool:
        return True

    later: Any = decide
    with pytest.raises(ConfigError, match="plain function"):
        planned.job("plan.late", category="planning", policy=later)(lambda job, payload: None)
    assert count(planned.store, "holdfast.job") == 0


def test_a_stored_command_without_a_policy_writes_nothing(planned: Holdfast) -> None:
    declare(planned, ASSIGN, policy=yes)
    done = planned.enqueue("plan.assign", {}, org_id=ORG, command="assign-run-sheet")
    # Another version of the application, whose handler has no policy.
    del planned.registry.handlers["plan.assign"]
    declare(planned, ASSIGN)
    planned.worker().run_once()

    assert ended(planned, done) == DEAD
    assert titles(planned.store) == ["as it was"]


def test_a_command_is_written_once(planned: Holdfast) -> None:
    declare(planned, ASSIGN, policy=yes)
    planned.enqueue("plan.assign", {}, org_id=ORG)

    text = """UPDATE holdfast.job_envelope SET routing_decision = '{"command": "x"}'"""
    assert refused_by(planned, text) == "job_envelope_never_changes"
