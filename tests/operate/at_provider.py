"""Hand-written batches and circuits, for tests that only read them."""

from __future__ import annotations

import itertools
from datetime import datetime

from holdfast import Holdfast
from holdfast.clock import write_instant
from holdfast.ids import IdSource
from holdfast_llm.batch.group import custom_id
from tests.operate.planting import rules_aside
from tests.story import by_hand

_numbers = itertools.count(1)


def plant_batch(
    hf: Holdfast,
    state: str,
    *,
    items: int = 3,
    group_key: str = "openai|model-1||||||",
    mode: str = "batch",
) -> str:
    """A batch in *state* that is due now, without its items; its id."""
    batch_id = IdSource(hf.clock).new()
    named = state in ("submitted", "ended", "collected")
    by_hand(
        hf.store,
        "INSERT INTO holdfast.provider_batch (id, account, provider, adapter_kind, model,"
        " execution_mode, group_key, state, items, bytes, input_tokens, create_attempt,"
        " creating_at, provider_batch_id, submitted_at, collected_at, next_at, error_code,"
        " created_at, updated_at)"
        " VALUES (:id, 'openai|acc', 'openai', 'openai_responses', 'model-1', :mode, :group_key,"
        " :state, :items, 10, 10, 1, {now}, :provider_batch_id,"
        " CASE WHEN :named = 1 THEN {now} END, CASE WHEN :state = 'collected' THEN {now} END,"
        " {now}, 'code_x', {now}, {now}) RETURNING id",
        id=batch_id,
        state=state,
        items=items,
        group_key=group_key,
        mode=mode,
        named=int(named),
        provider_batch_id=f"batch_{next(_numbers)}" if named else None,
    )
    return batch_id


def plant_claim_of_submitter(
    hf: Holdfast, job_id: str, claimed_by: str, *, until: datetime
) -> None:
    """Make a submitted job claimed again, as it was before its submission was recorded."""
    with rules_aside(hf) as run:
        run(
            "INSERT INTO holdfast.job_running (org_id, job_id, turn, started_event_id, claimed_at,"
            " lease_expires_at, lease_token, started_attempt, attempt_count, max_attempts, queue,"
            " limit_key, stage, claimed_by) SELECT held.org_id, held.job_id,"
            " coalesce(job.turn, job.id), held.started_event_id, held.claimed_at, :until,"
            " held.lease_token, held.started_attempt, held.started_attempt - 1, job.max_attempts,"
            " held.queue, job.limit_key, held.stage, :claimed_by"
            " FROM holdfast.job_submitted AS held JOIN holdfast.job_envelope AS job"
            " ON job.org_id = held.org_id AND job.id = held.job_id WHERE held.job_id = :id",
            id=job_id,
            claimed_by=claimed_by,
            until=write_instant(until),
        )
        run("DELETE FROM holdfast.job_submitted WHERE job_id = :id", id=job_id)


def plant_circuit(hf: Holdfast, provider: str, *, minutes: int = 5) -> None:
    """An account at *provider* that refuses every call."""
    by_hand(
        hf.store,
        "INSERT INTO holdfast.provider_account (account, provider, error_code, http_status, times,"
        " opened_at, open_until)"
        " VALUES (:account, :provider, 'insufficient_quota', 429, 2, {now}, {later(:ms)})"
        " RETURNING account",
        account=f"{provider}|acc",
        provider=provider,
        ms=minutes * 60_000,
    )


def plant_items(
    hf: Holdfast,
    batch_id: str,
    org_id: str,
    count: int,
    *,
    state: str = "open",
    mode: str = "batch",
) -> list[str]:
    """Add *count* items of jobs that do not exist to a batch; return the ids of those jobs."""
    jobs = IdSource(hf.clock).take(count)
    for number, job_id in enumerate(jobs):
        by_hand(
            hf.store,
            "INSERT INTO holdfast.batch_item (batch_id, batch_item_index, org_id, job_id, job_type,"
            " execution_mode, unit, attempt, lease_token, custom_id, echo, group_key, input_tokens,"
            " created_at) SELECT id, :number, :org_id, :job_id, 'text.shorten', :mode, :unit, 1,"
            " 1, :name, 'e', group_key, 10, {now} FROM holdfast.provider_batch WHERE id = :batch_id"
            " RETURNING batch_id",
            batch_id=batch_id,
            number=number,
            org_id=org_id,
            job_id=job_id,
            unit=job_id,
            mode=mode,
            name=custom_id(b"key", batch_id, number, job_id, 1),
        )
    if state != "open":
        by_hand(
            hf.store,
            "UPDATE holdfast.batch_item SET state = :state, is_open = 0, recorded_at = {now}"
            " WHERE batch_id = :batch_id RETURNING batch_id",
            batch_id=batch_id,
            state=state,
        )
    return jobs
