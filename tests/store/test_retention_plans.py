"""No statement of retention or of an enqueue reads the facts of every ended job.

The rows are long: the planner counts pages, and 5,000 rows of 1 kB take as many as 20,000 short
ones.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.engine.claim import claim_jobs
from holdfast.engine.job import SYSTEM, Completed, Dead, Fault
from holdfast.engine.settle import settle
from holdfast.store import Statements, Store
from tests.store.crowd import KINDS as DATABASES
from tests.store.crowd import Crowds
from tests.story import ORG, look

SQL = Statements("holdfast.engine", "job.sql")
RETENTION = Statements("holdfast.engine", "retention.sql")

KINDS = ("order.pack", "order.ship")


def fill(hf: Holdfast) -> None:
    """5,000 completed jobs, 1,000 failed ones, 500 that wait."""
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

    end(5_000, Completed())
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


LARGE = "envelope|outcome|attempt|remainder"


def reads_all(text: str) -> bool:
    """Whether a table of the facts of jobs is read from one end to the other."""
    aliases = f"{LARGE}|job|past|gone"
    return bool(
        re.search(rf"Seq Scan on job_({LARGE})\b", text)
        or re.search(
            rf"SCAN (holdfast_job_({LARGE})|{aliases})(?! USING (COVERING )?INDEX)\b", text
        )
    )


def ids(store: Store, many: int) -> list[Any]:
    text = f"SELECT org_id, job_id AS id FROM holdfast.job_outcome LIMIT {many}"
    return look(store, text)


def test_a_statement_that_reads_every_outcome_is_noticed(measured: Store) -> None:
    every = replace(SQL.read_clock, raw="SELECT * FROM holdfast.job_outcome")

    assert reads_all(plan(measured, every))


@pytest.mark.parametrize("many", [1, 250])
def test_pruning_deletes_each_job_by_its_key(measured: Store, many: int) -> None:
    text = plan(measured, RETENTION.delete_jobs, ended=ids(measured, many))

    assert not reads_all(text), text


@pytest.mark.parametrize("many", [1, 40])
@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("find_prunable", "job_outcome_ended"),
        ("find_prunable_failed", "dead_letter_over"),
        ("find_prunable_replays", "job_outcome_failed|job_replay"),
    ],
)
def test_what_is_over_is_found_by_its_end(
    measured: Store, name: str, index: str, many: int
) -> None:
    rule = {"category": "general", "state": "completed", "keep_ms": 90 * 86_400_000}
    rules = [{**rule, "job_type": f"order.{number}"} for number in range(many)]
    text = plan(
        measured,
        getattr(RETENTION, name),
        rules=rules,
        shortest_ms=90 * 86_400_000,
        limit=1_000,
    )

    assert re.search(index, text), text
    assert not reads_all(text), text


@pytest.mark.parametrize("many", [1, 10, 250])
def test_an_enqueue_looks_for_keys_by_index(crowded: Holdfast, measured: Store, many: int) -> None:
    (chunk,) = crowded._chunks("order.ship", [{} for _ in range(many)], ORG, {}, whole=True)
    batch = chunk()
    text = plan(measured, SQL.insert_jobs, jobs=batch.jobs, shared=batch.shared)

    assert not reads_all(text), text


def test_one_job_and_one_key_are_found_by_index(measured: Store) -> None:
    (job,) = ids(measured, 1)
    one = plan(measured, SQL.find_job, org_id=ORG, id=job["id"])
    key = plan(measured, SQL.find_key, org_id=ORG, idempotency_key="k", key_of=None)

    assert not reads_all(one), one
    assert not reads_all(key), key
