"""Passes of the orchestrator over drafts: enqueue the judges' jobs, tell the audit, expire holds.

Each pass is one transaction with a fixed number of statements. Passes are idempotent and may run
concurrently.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from holdfast.actor import Actor, ActorType
from holdfast.app import Holdfast
from holdfast.clock import ms
from holdfast.document import decode
from holdfast.engine.audit import Deed, record_actions
from holdfast.engine.enqueue import Enqueued, events_of, insert_steps
from holdfast.engine.handler import Producer
from holdfast.engine.request import InsertRows, JobRequest, prepare
from holdfast.store import Row, Store, Tx
from holdfast.store.caller_connection import run
from holdfast_rewrite.draft import SQL
from holdfast_rewrite.enums import JUDGE_TYPE, FailureCode, Step
from holdfast_rewrite.erase import deed_of, ids_of
from holdfast_rewrite.event import RewriteJudged, RewriteMoved
from holdfast_rewrite.judge import payload_of, unit_of
from holdfast_rewrite.settings import RewriteSettings

_log = logging.getLogger("holdfast.rewrite")

ORCHESTRATOR = Actor(ActorType.SYSTEM, "rewrite_orchestrator")
RETENTION = Actor(ActorType.SYSTEM, "rewrite_retention")
_DAY_MS = 86_400_000


def count_drafts(store: Store, settings: RewriteSettings, *, most: int) -> int:
    """Count the drafts that the passes would work on, up to three times *most*."""
    held_ms = settings.keep_held_days * _DAY_MS
    row = store.read(lambda tx: tx.one(SQL.count_open, most=most, held_ms=held_ms))
    return int(row["drafts"])


# -- judges' jobs


def enqueue_judges_once(hf: Holdfast, producer: Producer, *, limit: int) -> int:
    """Enqueue the judges' jobs of up to *limit* drafts; return how many.

    A draft and its job are linked in one transaction, so each draft gets one job.
    """
    if JUDGE_TYPE not in hf.registry.handlers:
        return 0
    hf.sync()
    batch, enqueued = hf.store.write(lambda tx: _enqueue(tx, hf, producer, limit))
    if enqueued:
        hf.store.announce(batch.queues)
        if hf.events.subscribers:
            for event in events_of([batch], enqueued):
                hf.events.emit(event)
    return len(enqueued)


def _enqueue(
    tx: Tx, hf: Holdfast, producer: Producer, limit: int
) -> tuple[InsertRows, list[Enqueued]]:
    rows = _routable(tx, hf, tx.many(SQL.list_unjudged, limit=limit))
    if not rows:
        return InsertRows(), []
    asked = [_job_request(row, producer) for row in rows]
    batch = prepare(
        hf.registry.get(JUDGE_TYPE),
        [(item.payload, item) for item in asked],
        ids=hf.ids.take(len(rows)),
        now=hf.clock.now(),
        payload_limit=hf.settings.payload_limit_bytes,
        known={},
        queues=hf.known_queues,
        ageing_ms=ms(hf.settings.ageing_seconds),
    )
    enqueued = run(tx, insert_steps(batch))
    judges = [_judge_row(row, job) for row, job in zip(rows, enqueued, strict=True)]
    tx.affected(SQL.assign_judges, judges=judges)
    return batch, enqueued


def _routable(tx: Tx, hf: Holdfast, rows: Sequence[Row]) -> list[Row]:
    """Return the drafts whose judge can be reached; hold the others, which get no verdict."""
    router = hf.registry.get(JUDGE_TYPE).router
    assert router is not None, "a job type of batch processing has a router"
    kept, lost = [], []
    for row in rows:
        try:
            router(decode(row["routing_decision"])["judge"])
        except ValueError:
            lost.append(row)
        else:
            kept.append(row)
    if lost:
        _log.error("%d drafts are held: the settings have no account for their judge", len(lost))
        held = ids_of(lost)
        tx.affected(SQL.hold_unjudged, held=held)
        tx.affected(SQL.hold_requests, held=held)
    return kept


def _job_request(row: Row, producer: Producer) -> JobRequest:
    return JobRequest(
        payload=payload_of(row),
        org_id=row["org_id"],
        actor=ORCHESTRATOR,
        request_id=row["request_id"],
        correlation_id=row["correlation_id"],
        unit_key=unit_of(row),
        # The stored decision: no answer of a model and no later setting changes it.
        routing_decision=decode(row["routing_decision"])["judge"],
        producer=producer,
    )


def _judge_row(row: Row, job: Enqueued) -> dict[str, Any]:
    route = decode(row["routing_decision"])["judge"]
    return {
        "org_id": row["org_id"],
        "rewrite_request_id": row["rewrite_request_id"],
        "job_id": job.id,
        "model": route["model"],
        "version": route["prompt_version"],
    }


# -- the audit


def tell_judged_once(store: Store, *, limit: int) -> tuple[int, list[RewriteJudged | RewriteMoved]]:
    """Record verdicts and holds of up to *limit* drafts in the audit."""

    def work(tx: Tx) -> list[Row]:
        rows = tx.many(SQL.list_untold, limit=limit)
        return tell_drafts(tx, rows) if rows else []

    told = store.write(work)
    return len(told), [event for row in told for event in _events(row)]


def tell_drafts(tx: Tx, rows: Sequence[Row]) -> list[Row]:
    """Record the verdicts and holds of these drafts, each once; return those that were new."""
    marked = tx.many(SQL.mark_told, told=ids_of(list(rows)))
    ids = {row["rewrite_request_id"] for row in marked}
    mine = [row for row in rows if row["rewrite_request_id"] in ids]
    record_actions(tx, [deed for row in mine for deed in _deeds(row)])
    return mine


def verdict_of(row: Row) -> tuple[str, tuple[str, ...]]:
    """Return the verdict of a draft as one word, and its codes."""
    if row["findings"] is None:
        return "none", ()
    codes = tuple(decode(row["findings"]))
    return ("findings" if codes else "clean"), codes


def _deeds(row: Row) -> list[Deed]:
    found = []
    if row["judge_job_id"] is not None:
        verdict, codes = verdict_of(row)
        detail: dict[str, object] = {
            "job_id": row["judge_job_id"],
            "verdict": verdict,
            "codes": list(codes),
            "model": row["judge_model"],
            "prompt_version": row["judge_version"],
        }
        if row["no_verdict_code"] is not None:
            detail["no_verdict_code"] = row["no_verdict_code"]
        found.append(deed_of(row, ORCHESTRATOR, "rewrite_judged", detail))
    if row["hold_reason"] is not None:
        detail = {"reason": row["hold_reason"], "gate": row["gate"]}
        found.append(deed_of(row, ORCHESTRATOR, Step.HELD.event, detail))
    return found


def _events(row: Row) -> list[RewriteJudged | RewriteMoved]:
    found: list[RewriteJudged | RewriteMoved] = []
    request_id, org_id = row["rewrite_request_id"], row["org_id"]
    if row["judge_job_id"] is not None:
        verdict, codes = verdict_of(row)
        found.append(RewriteJudged(request_id, org_id, verdict, codes))
    if row["hold_reason"] is not None:
        strength, lane = row["rewrite_strength"], row["lane"]
        found.append(RewriteMoved(request_id, org_id, Step.HELD, row["surface"], strength, lane))
    return found


# -- retention


def expire_held_once(store: Store, settings: RewriteSettings, *, limit: int) -> int:
    """Reject up to *limit* rewrites that were held for longer than their retention."""
    held_ms = settings.keep_held_days * _DAY_MS

    def work(tx: Tx) -> int:
        rows = tx.many(SQL.list_expired, limit=limit, held_ms=held_ms)
        if rows:
            reject_drafts(tx, rows, "expire", RETENTION.id, FailureCode.HELD_EXPIRED)
            record_actions(
                tx, [deed_of(row, RETENTION, "rewrite_held_expired", {}) for row in rows]
            )
        return len(rows)

    return store.write(work)


def reject_drafts(
    tx: Tx, rows: Sequence[Row], decision: str, decided_by: str, failure: FailureCode
) -> bool:
    """Reject held drafts and fail their requests; return whether all of them were held."""
    ids = ids_of(list(rows))
    decided = [{**one, "decision": decision, "decided_by": decided_by} for one in ids]
    taken = tx.many(SQL.decide_drafts, decided=decided)
    tx.affected(SQL.reject_requests, decided=[{**one, "failure_code": failure} for one in ids])
    return len(taken) == len(rows)
