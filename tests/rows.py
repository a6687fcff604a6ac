"""Rows that tests write themselves, to set up a situation or to be refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import psycopg
import pytest

from holdfast import Holdfast
from holdfast.errors import RuleBroken
from holdfast.store import Store
from holdfast.store.dialect import POSTGRES, to_psycopg
from tests.story import by_hand

LONG_AGO = "2000-01-01T00:00:00.000Z"

ENVELOPE = """
org_id id event_id turn created_at not_before_at scheduled_for project_id replay_of max_attempts
priority job_type category origin_queue queue limit_key stage pipeline_version actor_type actor_id
request_id correlation_id idempotency_key unit_key payload_hash traceparent routing_decision payload
"""


def expire_lease(store: Store, job_id: str) -> None:
    """End the lease of a running job."""
    by_hand(
        store,
        "UPDATE holdfast.job_running SET lease_expires_at = :at WHERE job_id = :id",
        at=LONG_AGO,
        id=job_id,
    )


def copy_of_envelope(changed: Mapping[str, str]) -> str:
    """An INSERT that copies the envelope of the job :id, with these columns from expressions."""
    names = ENVELOPE.split()
    given = {"event_id": "event_id + 1000000", **changed}
    values = ", ".join(given.get(name, name) for name in names)
    return (
        f"INSERT INTO holdfast.job_envelope ({', '.join(names)})"
        f" SELECT {values} FROM holdfast.job_envelope WHERE id = :id"
    )


# The claim of a running job; any other if it is not running.
_HELD = ", ".join(
    f"coalesce((SELECT held.{column} FROM holdfast.job_running AS held"
    f" WHERE held.org_id = asked.org_id AND held.job_id = asked.id), {other})"
    for column, other in {
        "started_event_id": "1",
        "claimed_at": "asked.created_at",
        "claimed_by": "'w1'",
        "started_attempt": "1",
    }.items()
)


def outcome_of(
    state: str, *, lease_token: int = 1, result: str | None = None, error: str | None = None
) -> str:
    """An INSERT of an outcome of the job :id."""
    result = result or ("'1'" if state == "completed" else "NULL")
    claim = f"{lease_token}, {_HELD}" if lease_token else "0, NULL, NULL, NULL, NULL"
    count = int(state == "failed" and lease_token > 0)
    error = error or ("'DEFECT', 'broken'" if state == "failed" else "NULL, NULL")
    return (
        "INSERT INTO holdfast.job_outcome (org_id, job_id, finished_at, key_expires_at,"
        " lease_token, started_event_id, claimed_at, claimed_by, started_attempt, attempt_count,"
        " state, result, error_class, last_error)"
        f" SELECT org_id, id, created_at, created_at, {claim}, {count}, '{state}',"
        f" CAST({result} AS {{json}}), {error} FROM holdfast.job_envelope AS asked WHERE id = :id"
    )


def refused_by(hf: Holdfast, text: str, **params: Any) -> str:
    """The name of the rule by which the database refuses this statement to anyone.

    On PostgreSQL the statement is run by the owner of the tables, and not run again.
    """
    if hf.store.dialect is not POSTGRES:
        with pytest.raises(RuleBroken) as broken:
            by_hand(hf.store, text, **params)
        return broken.value.rule
    with (
        psycopg.connect(hf.settings.db) as connection,
        pytest.raises(psycopg.errors.IntegrityError) as refused,
    ):
        connection.execute(to_psycopg(POSTGRES.render(text)).encode(), params)
    return refused.value.diag.constraint_name or str(refused.value)


def attempt_of(*, attempt_count: int, lease_token: int) -> str:
    """An INSERT of an attempt of the job :id, which ends its claim."""
    return (
        "INSERT INTO holdfast.job_attempt (org_id, job_id, number, lease_token, ended_at,"
        " started_event_id, claimed_at, claimed_by, started_attempt, attempt_count, max_attempts,"
        " keeps_lease, stage, pipeline_version)"
        f" SELECT org_id, id, 1, {lease_token}, created_at, {_HELD},"
        f" {attempt_count}, max_attempts, FALSE, stage, pipeline_version"
        " FROM holdfast.job_envelope AS asked WHERE id = :id"
    )


def claim_by_hand(store: Store, job_id: str) -> None:
    """Claim a ready job for a worker that does not exist."""
    by_hand(
        store,
        "INSERT INTO holdfast.job_running (org_id, job_id, turn, started_event_id, claimed_at,"
        " lease_expires_at, lease_token, started_attempt, attempt_count, max_attempts, queue,"
        " limit_key, stage, claimed_by)"
        " SELECT ready.org_id, ready.job_id, ready.turn, {next_event}, {now}, {later(60000)},"
        " ready.lease_token + 1, job.attempt_count + 1, job.attempt_count, job.max_attempts,"
        " ready.queue, ready.limit_key, job.stage, 'w'"
        " FROM holdfast.job_ready AS ready JOIN holdfast.job AS job"
        " ON job.org_id = ready.org_id AND job.id = ready.job_id WHERE ready.job_id = :id",
        id=job_id,
    )


def requeue(store: Store, job_id: str, *, attempt_count: int = 0) -> None:
    """Queue a claimed or submitted job again, as only its worker or its collector does."""
    for place in ("running", "submitted"):
        by_hand(
            store,
            "INSERT INTO holdfast.job_attempt (org_id, job_id, number, lease_token,"
            " started_event_id, claimed_at, ended_at, started_attempt, attempt_count, max_attempts,"
            " keeps_lease, claimed_by, stage, pipeline_version, provider_batch_id)"
            " SELECT job.org_id, job.id, 1 + (SELECT count(*) FROM holdfast.job_attempt AS earlier"
            " WHERE earlier.org_id = job.org_id AND earlier.job_id = job.id), job.lease_token,"
            " held.started_event_id, held.claimed_at, {now}, held.started_attempt,"
            f" {attempt_count}, job.max_attempts, FALSE, held.claimed_by, job.stage,"
            " job.pipeline_version, job.provider_batch_id"
            f" FROM holdfast.job_{place} AS held JOIN holdfast.job AS job"
            " ON job.org_id = held.org_id AND job.id = held.job_id WHERE job.id = :id",
            id=job_id,
        )
