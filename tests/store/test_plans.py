"""No statement of the claim path reads a whole table of jobs.

The rows are long: the planner counts pages, and 5,000 rows of 1 kB take as many as 20,000 short
ones.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.document import encode
from holdfast.engine.claim import claim_jobs
from holdfast.engine.fairness import NIL_ID
from holdfast.engine.job import SYSTEM, Claimed, Completed, Fault, Outcome, Retry, Submitted
from holdfast.engine.settle import change_of, settle
from holdfast.store import Statement, Statements, Store
from tests.store.crowd import KINDS, Crowds
from tests.story import ORG, OTHER_ORG

SQL = Statements("holdfast.engine", "job.sql")
JOBS = Statements("holdfast.operate", "jobs.sql")
MAINTENANCE_SQL = Statements("holdfast.engine", "maintenance.sql")
RUN_SQL = Statements("holdfast.engine", "run.sql")
FLOW = Statements("holdfast.engine", "flow.sql")
UNIQUE_SQL = Statements("holdfast.engine", "unique.sql")
SEAL = Statements("holdfast.sealed_audit", "seal.sql")
LIFECYCLE = Statements("holdfast.operate.verify", "lifecycle.sql")
TENANCY = Statements("holdfast.operate.verify", "tenancy.sql")

FAULT = Fault("GONE", "it is gone, " * 100, retryable=True)
RESULT = encode({"text": "x" * 1_000})
FINISHED, RUNNING, DEFERRED, WAITING = 2_000, 250, 750, 6_000


def fill(hf: Holdfast) -> None:
    hf.job("order.ship")(lambda job, payload: payload)

    def enqueue(many: int, **options: Any) -> None:
        for org_id in (ORG, OTHER_ORG):
            payloads = [{"n": n, "text": "x" * 1_000} for n in range(many // 2)]
            hf.enqueue_many("order.ship", payloads, org_id=org_id, **options)

    def take(many: int) -> list[Any]:
        return claim_jobs(hf.store, queue="q:default", worker_id="w1", limit=many, lease_ms=60_000)

    enqueue(FINISHED)
    settle(hf.store, [(job, Retry(FAULT, None)) for job in take(FINISHED)], actor=SYSTEM)
    settle(hf.store, [(job, Completed(RESULT)) for job in take(FINISHED)], actor=SYSTEM)
    enqueue(RUNNING)
    take(RUNNING)
    enqueue(WAITING)
    enqueue(DEFERRED, not_before_at=hf.clock.now() + timedelta(days=7))


@pytest.fixture(scope="module")
def crowds(request: pytest.FixtureRequest) -> Crowds:
    return Crowds(request, fill)


@pytest.fixture(scope="module", params=KINDS, ids="-".join)
def measured(request: pytest.FixtureRequest, crowds: Crowds) -> Holdfast:
    return crowds.get(*request.param)


def plan(store: Store, statement: Any, **params: Any) -> str:
    word = "EXPLAIN QUERY PLAN " if store.dialect.name == "sqlite" else "EXPLAIN "
    explained = replace(statement, raw=word + statement.raw)
    rows = store.write(lambda tx: tx.many(explained, **params))
    return "\n".join(str(row.get("detail", row.get("QUERY PLAN"))) for row in rows)


# Tables with a row for many jobs, and the names that statements give them. Those of claimed jobs
# have as many rows as there are workers' slots.
LARGE = "envelope|ready|waiting|attempt|outcome"
ALIASES = f"{LARGE}|job|asked|past|ended"


def reads_all_jobs(text: str) -> bool:
    return bool(
        re.search(rf"Seq Scan on job_({LARGE})\b", text)
        or re.search(
            rf"SCAN (holdfast_job_({LARGE})|{ALIASES})(?! USING (COVERING )?INDEX)\b", text
        )
    )


def test_a_statement_that_reads_every_job_is_noticed(measured: Holdfast) -> None:
    for table in ("job_envelope", "job_ready", "job_outcome"):
        every = replace(JOBS.count_all_jobs, raw=f"SELECT * FROM holdfast.{table}")
        assert reads_all_jobs(plan(measured.store, every)), table


# The index of the backlogs, which is the primary key of job_ready.
def reads_backlogs(text: str) -> bool:
    return "job_ready_pkey" in text or bool(
        re.search(
            r"SEARCH \w+ USING PRIMARY KEY \(queue=\?( AND limit_key=\?)?( AND org_id[=>]\?)?", text
        )
    )


@pytest.mark.parametrize("limit", [1, 25, 125])
def test_a_claim_looks_at_due_jobs_only(measured: Holdfast, limit: int) -> None:
    text = plan(
        measured.store,
        SQL.claim_jobs,
        queue="q:default",
        worker_id="w1",
        limit=limit,
        lease_ms=1,
        revision=1,
        shares=[{"limit_key": "", "org_id": org_id, "quota": limit} for org_id in (ORG, OTHER_ORG)],
        backlog_count=2,
    )

    assert reads_backlogs(text), text
    assert "job_ready_oldest" not in text, text
    assert not reads_all_jobs(text), text


def test_a_claim_from_many_keys_finds_each_by_index(measured: Holdfast) -> None:
    text = plan(
        measured.store,
        SQL.claim_jobs,
        worker_id="w1",
        limit=125,
        lease_ms=1,
        revision=1,
        shares=[
            {"queue": "q:default", "limit_key": f"customer:{n}", "org_id": ORG, "quota": 1}
            for n in range(125)
        ],
        backlog_count=125,
    )

    assert reads_backlogs(text), text
    assert not reads_all_jobs(text), text


@pytest.mark.parametrize("of_batch", [0, 1])
@pytest.mark.parametrize("limit", [1, 25, 125])
def test_a_claim_of_the_oldest_looks_at_due_jobs_only(
    measured: Holdfast, limit: int, of_batch: int
) -> None:
    text = plan(
        measured.store,
        SQL.claim_oldest,
        queues=[{"place": 0, "name": "q:default"}, {"place": 1, "name": "q:exports"}],
        queue_count=2,
        worker_id="w1",
        limit=limit,
        tenant_room=limit,
        lease_ms=1,
        revision=1,
        keys=[{"limit_key": "", "room": limit}],
        patterns=[{"prefix": "customer:", "room": 1}],
        caps=[],
        types=[],
        any_type=1,
        without=[],
        any_route=1,
        shut=[],
        waits_too=0,
        of_batch=of_batch,
    )

    in_batches = of_batch and not measured.store.is_embedded
    assert ("job_ready_batched" if in_batches else "job_ready_oldest") in text, text
    assert "job_waiting_due" in text, text
    assert not reads_all_jobs(text), text
    # Once, for the result.
    assert text.count("SCAN found") <= 1, text
    # SQLite looks the jobs up by their key alone: a further column repeats the subquery per row.
    assert text.count("CORRELATED LIST SUBQUERY") <= 1, text


def test_a_look_around_and_a_promotion_find_their_jobs_by_index(measured: Holdfast) -> None:
    looked = plan(measured.store, FLOW.poll_queues, queues=[{"name": "q:default"}] * 6)
    seed = {"queue": "q:default", "limit_key": "", "served": NIL_ID}
    lanes = plan(
        measured.store, FLOW.find_backlogs, seeds=[seed], seed_count=1, backlogs=256, reach=1_000
    )
    promoted = plan(measured.store, FLOW.promote_due, queue="q:default", limit=1_000)

    assert reads_backlogs(lanes), lanes
    assert not reads_all_jobs(lanes), lanes
    assert reads_backlogs(looked), looked
    assert not reads_all_jobs(looked), looked
    assert "job_waiting_due" in promoted, promoted
    assert not reads_all_jobs(promoted), promoted


def test_a_rescue_looks_at_leased_jobs_only(measured: Holdfast) -> None:
    text = plan(measured.store, SQL.find_stale, limit=500, dead_worker_id=None)

    assert "running" in text, text
    assert not reads_all_jobs(text), text


SETTLED: dict[str, Outcome] = {
    "insert_outcomes": Completed(),
    "insert_outcomes_of_batch": Completed(),
    "insert_attempts": Retry(FAULT, 5_000),
    "insert_attempts_of_batch": Retry(FAULT, 5_000),
    "insert_submitted": Submitted("batch_1"),
}


@pytest.mark.parametrize("name", list(SETTLED))
@pytest.mark.parametrize("size", [1, 10, 250])
def test_settling_finds_each_job_by_its_key(measured: Holdfast, size: int, name: str) -> None:
    running = claimed_of(measured, size)
    changes = [change_of(job, SETTLED[name]) for job in running]

    text = plan(measured.store, getattr(SQL, name), changes=changes, actor_id="w1")

    assert not reads_all_jobs(text), text


@pytest.mark.parametrize("size", [1, 250])
def test_canceling_finds_each_job_by_its_key(measured: Holdfast, size: int) -> None:
    jobs = [{"org_id": job.org_id, "id": job.id} for job in claimed_of(measured, size)]

    for statement in (
        SQL.hold_places,
        SQL.hold_claims,
        SQL.insert_cancels,
        SQL.cancel_jobs,
        SQL.find_cancels,
        UNIQUE_SQL.supersede_jobs,
    ):
        text = plan(measured.store, statement, jobs=jobs)
        assert not reads_all_jobs(text), text


@pytest.mark.parametrize("size", [1, 250])
def test_renewing_and_recording_find_each_job_by_its_key(measured: Holdfast, size: int) -> None:
    running = claimed_of(measured, size)
    held = [{"org_id": job.org_id, "id": job.id, "lease_token": job.lease_token} for job in running]
    named = [
        {"org_id": job.org_id, "id": job.id, "name": "x", "attempt": 1, "detail": None}
        for job in running
    ]

    renewed = plan(measured.store, SQL.renew_leases, held=held, lease_ms=1)
    recorded = plan(
        measured.store, SQL.insert_events, events=named, actor_type="system", actor_id="x"
    )

    assert not reads_all_jobs(renewed), renewed
    assert not reads_all_jobs(recorded), recorded


def test_a_duplicate_is_found_by_its_key(measured: Holdfast) -> None:
    keys = [{"org_id": ORG, "idempotency_key": f"k{n}", "key_of": None} for n in range(10)]

    text = plan(measured.store, SQL.find_duplicates, keys=keys)

    assert not reads_all_jobs(text), text


def test_one_job_and_one_page_are_found_by_key(measured: Holdfast) -> None:
    (job,) = claimed_of(measured, 1)
    one = plan(measured.store, SQL.find_job, org_id=job.org_id, id=job.id)
    page = plan(
        measured.store,
        JOBS.list_jobs,
        org_id=ORG,
        before="ffffffff-ffff-ffff-ffff-ffffffffffff",
        state=None,
        job_type=None,
        error_class=None,
        queue=None,
        limit=50,
    )

    assert not reads_all_jobs(one), one
    assert not reads_all_jobs(page), page


def test_sealing_reads_the_audit_by_its_counter(measured: Holdfast) -> None:
    text = plan(measured.store, SEAL.list_unsealed, after=10, upto=1_000_000, limit=2_000)

    assert not re.search(
        r"Seq Scan on audit_event|SCAN (holdfast_audit_event|event)(?! USING)", text
    ), text


@pytest.mark.parametrize("statement", [LIFECYCLE.find_changed, TENANCY.find_foreign_jobs])
def test_verify_finds_the_event_of_each_enqueue_by_its_id(
    measured: Holdfast, statement: Statement
) -> None:
    text = plan(measured.store, statement, org_id=None)

    by_id = (
        r"SEARCH told USING INTEGER PRIMARY KEY \(rowid=|Index Scan using \w+ on audit_event told"
    )
    assert re.search(by_id, text), text


def claimed_of(hf: Holdfast, size: int) -> list[Any]:
    rows = hf.store.read(lambda tx: tx.values(replace(SQL.find_stale, raw=_RUNNING), limit=size))
    assert len(rows) == size
    return [Claimed(*row) for row in rows]


_RUNNING = (
    "SELECT id, org_id, project_id, job_type, category, actor_type, actor_id, request_id,"
    " correlation_id, idempotency_key, payload, priority, unit_key, scheduled_for, traceparent,"
    " routing_decision, replay_of, created_at, queue, stage, pipeline_version, attempt_count,"
    " max_attempts, lease_token, claimed_at, claimed_by, cancel_requested_at, first_failed_at"
    " FROM holdfast.job WHERE state = 'processing' LIMIT :limit"
)


def test_the_look_for_maintenance_reads_no_table_of_jobs(measured: Holdfast) -> None:
    text = plan(
        measured.store,
        MAINTENANCE_SQL.find_maintenance,
        queues=[{"name": "q:default"}, {"name": "q:maintenance"}],
        prune_ms=86_400_000,
        keep_ms=86_400_000,
        runs_ms=86_400_000,
        patience_ms=60_000,
    )

    assert not reads_all_jobs(text), text


def test_a_run_counts_its_pending_jobs_queue_by_queue(measured: Holdfast) -> None:
    text = plan(
        measured.store,
        RUN_SQL.count_pending,
        queues=[{"name": "q:default"}, {"name": "q:maintenance"}],
        job_types=None,
        of_batch=0,
        early=0,
        most=100,
    )

    assert not reads_all_jobs(text), text
