"""No statement reads the whole of history, or all jobs because of it.

The rows are long: the planner counts pages, and 4,000 rows of 1 kB take as many as 16,000 short
ones.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.engine.claim import claim_jobs
from holdfast.engine.job import SYSTEM, Completed, Dead, Fault
from holdfast.engine.retention import archive_jobs
from holdfast.engine.settle import settle
from holdfast.store import Statements, Store
from tests.store.crowd import KINDS as DATABASES
from tests.store.crowd import Crowds
from tests.story import ORG, look

SQL = Statements("holdfast.engine", "job.sql")
JOBS = Statements("holdfast.operate", "jobs.sql")
RETENTION = Statements("holdfast.engine", "retention.sql")

KINDS = ("order.pack", "order.ship")


def fill(hf: Holdfast) -> None:
    """4,000 jobs in history, 1,000 ended ones outside, 1,000 failed, 500 waiting."""
    for job_type in KINDS:
        hf.job(job_type)(lambda job, payload: payload)

    def enqueue(many: int) -> None:
        for job_type in KINDS:
            payloads = [{"n": n, "text": "x" * 1_000} for n in range(many // 2)]
            hf.enqueue_many(job_type, payloads, org_id=ORG)

    def end(many: int, outcome: Completed | Dead) -> None:
        enqueue(many)
        claimed = claim_jobs(
            hf.store, queue="q:default", worker_id="w1", limit=many, lease_ms=60_000
        )
        assert len(claimed) == many
        settle(hf.store, [(job, outcome) for job in claimed], actor=SYSTEM)

    end(4_000, Completed())
    assert archive_jobs(hf.store, after=timedelta(0), limit=4_000) == 4_000
    end(1_000, Completed())
    end(1_000, Dead(Fault("GONE", "it is gone", retryable=False)))
    enqueue(500)


@pytest.fixture(scope="module")
def crowds(request: pytest.FixtureRequest) -> Crowds:
    return Crowds(request, fill)


@pytest.fixture(scope="module", params=DATABASES, ids="-".join)
def crowded(request: pytest.FixtureRequest, crowds: Crowds) -> Holdfast:
    return crowds.get(*request.param)


@pytest.fixture(scope="module")
def measured(crowded: Holdfast) -> Store:
    return crowded.store


def plan(store: Store, statement: Any, **params: Any) -> str:
    word = "EXPLAIN QUERY PLAN " if store.dialect.name == "sqlite" else "EXPLAIN "
    explained = replace(statement, raw=word + statement.raw)
    rows = store.write(lambda tx: tx.many(explained, **params))
    return "\n".join(str(row.get("detail", row.get("QUERY PLAN"))) for row in rows)


def reads_all(text: str) -> bool:
    """Whether a table of jobs or stages is read from one end to the other."""
    return bool(
        re.search(r"Seq Scan on job", text)
        or re.search(r"SCAN (holdfast_job\w*|job|history|stage)\b", text)
    )


def ids(store: Store, table: str, many: int) -> list[Any]:
    return look(store, f"SELECT org_id, id FROM holdfast.{table} LIMIT {many}")


def test_a_statement_that_reads_all_of_history_is_noticed(measured: Store) -> None:
    assert reads_all(plan(measured, JOBS.count_all_jobs))


def test_archiving_finds_its_jobs_by_their_end(measured: Store) -> None:
    text = plan(measured, RETENTION.find_archivable, after_ms=3_600_000, limit=1_000)

    assert "job_archivable" in text, text
    assert not reads_all(text), text


@pytest.mark.parametrize("many", [1, 250])
@pytest.mark.parametrize("name", ["archive_jobs", "delete_jobs"])
def test_archiving_moves_each_job_by_its_key(measured: Store, name: str, many: int) -> None:
    ended = ids(measured, "job", many)
    text = plan(measured, getattr(RETENTION, name), ended=ended)

    assert not reads_all(text), text


@pytest.mark.parametrize("many", [1, 250])
def test_pruning_deletes_each_job_by_its_key(measured: Store, many: int) -> None:
    text = plan(measured, RETENTION.prune_history, ended=ids(measured, "job_history", many))

    assert not reads_all(text), text


@pytest.mark.parametrize(
    ("name", "index"),
    [("list_archived_kinds", "job_history_of_kind"), ("list_failed_kinds", "job_failed")],
)
def test_the_kinds_are_found_one_after_the_other(measured: Store, name: str, index: str) -> None:
    text = plan(measured, getattr(RETENTION, name))

    assert index in text, text
    assert not reads_all(text), text


@pytest.mark.parametrize("many", [1, 40])
@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("find_prunable", "job_history_of_kind"),
        ("find_prunable_failed", "dead_letter_over"),
        ("find_prunable_replays", "job_failed_replay"),
    ],
)
def test_what_is_over_is_found_by_kind_and_end(
    measured: Store, name: str, index: str, many: int
) -> None:
    kind = {"category": "general", "state": "completed", "keep_ms": 90 * 86_400_000}
    kinds = [{**kind, "job_type": f"order.{number}"} for number in range(many)]
    text = plan(measured, getattr(RETENTION, name), kinds=kinds, limit=1_000)

    assert index in text, text
    assert not reads_all(text), text


@pytest.mark.parametrize("many", [1, 10, 250])
def test_a_key_in_history_is_found_by_the_key(measured: Store, many: int) -> None:
    keys = [{"org_id": ORG, "idempotency_key": f"k{number}"} for number in range(many)]
    text = plan(measured, SQL.find_archived, keys=keys)

    assert not reads_all(text), text


@pytest.mark.parametrize("many", [1, 10, 250])
def test_an_enqueue_asks_history_by_the_key(crowded: Holdfast, measured: Store, many: int) -> None:
    (chunk,) = crowded._chunks("order.ship", [{} for _ in range(many)], ORG, {}, whole=True)
    batch = chunk()
    text = plan(measured, SQL.insert_jobs, jobs=batch.jobs, shared=batch.shared)

    history = [line for line in text.splitlines() if "history" in line]
    assert history, text
    assert not re.search(r"Seq Scan|SCAN", "\n".join(history)), text


def test_one_job_one_key_and_one_page_are_found_in_either_table(measured: Store) -> None:
    (job,) = ids(measured, "job_history", 1)
    one = plan(measured, SQL.find_job, org_id=ORG, id=job["id"])
    key = plan(measured, SQL.find_key, org_id=ORG, idempotency_key="k")
    page = plan(
        measured,
        JOBS.list_jobs,
        org_id=ORG,
        before="ffffffff-ffff-ffff-ffff-ffffffffffff",
        state=None,
        job_type=None,
        queue=None,
        error_class=None,
        limit=50,
    )

    for text in (one, key, page):
        assert not reads_all(text), text


def test_the_trigger_that_guards_a_key_uses_the_index(crowded: Holdfast, measured: Store) -> None:
    """The cost: an enqueue of one job reads only a few pages of history."""
    if measured.dialect.name == "sqlite":
        text = plan(
            measured,
            replace(
                SQL.find_key,
                raw="SELECT 1 FROM holdfast.job_history"
                " WHERE org_id = :org_id AND idempotency_key = :key",
            ),
            org_id=ORG,
            key="k",
        )
        assert not reads_all(text), text
        return
    scans = (
        "SELECT seq_scan + pg_stat_get_xact_numscans('holdfast.job_history'::regclass) AS n"
        " FROM pg_stat_user_tables WHERE relname = 'job_history'"
    )

    def read_all(tx: Any) -> int:
        found = replace(SQL.find_key, raw=scans)
        before = tx.one(found)["n"]
        (chunk,) = crowded._chunks("order.ship", [{} for _ in range(300)], ORG, {}, whole=True)
        batch = chunk()
        tx.many(SQL.insert_jobs, jobs=batch.jobs, shared=batch.shared)
        return int(tx.one(found)["n"]) - int(before)

    assert measured.write(read_all) == 0
