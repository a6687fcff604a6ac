"""The second transaction: enqueues requests with their jobs, or fails them.

It executes a fixed number of statements for any number of requests. Requests that another process
has already moved do not change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.actor import Actor
from holdfast.app import Holdfast
from holdfast.clock import ms
from holdfast.document import canonical
from holdfast.engine.audit import Deed, record_actions
from holdfast.engine.enqueue import Enqueued, insert_steps
from holdfast.engine.handler import Producer
from holdfast.engine.request import InsertRows, JobRequest, prepare
from holdfast.store import Row, Statements, Tx
from holdfast.store.caller_connection import run
from holdfast_rewrite.decide import Decision
from holdfast_rewrite.enums import JOB_TYPE, Status, Step, Strength
from holdfast_rewrite.intake import deed_of, sender_of
from holdfast_rewrite.model import Document
from holdfast_rewrite.payload import RowPayload
from holdfast_rewrite.validation import Answer

SQL = Statements("holdfast_rewrite", "orchestrate.sql")

_OPEN = frozenset({Step.RECEIVED, Step.QUEUED, Step.CLASSIFIED, Step.CONTEXT_BUILT, Step.ROUTED})
_ROUTED = (
    "provider",
    "adapter_kind",
    "base_url",
    "model",
    "prompt_version",
    "policy_version",
    "execution_mode",
    "cache_eligible",
    "verdict_by",
)


@dataclass(slots=True)
class Moved:
    """The result of the transaction: decisions written, jobs created, an answer for each."""

    decisions: list[Decision] = field(default_factory=list)
    answers: dict[str, Answer] = field(default_factory=dict)
    batch: InsertRows = field(default_factory=InsertRows)
    enqueued: list[Enqueued] = field(default_factory=list)


def enqueue_rewrites(
    tx: Tx,
    hf: Holdfast,
    decisions: Sequence[Decision],
    *,
    job_ids: Mapping[str, str],
    actor: Actor | None,
    producer: Producer,
    traceparent: str | None,
) -> Moved:
    """Write these decisions as *actor*, or else as each request's sender."""
    moved = Moved()
    rows = {
        row["rewrite_request_id"]: row
        for row in tx.many(SQL.lock_requests, asked=[_key(item) for item in decisions])
    }
    still = []
    for item in decisions:
        request_id = item.intake.rewrite_request_id
        row = rows.get(request_id)
        if row is not None and row["step"] in _OPEN:
            still.append(item)
        else:
            # Another process moved, canceled or erased it: return its current state.
            moved.answers[request_id] = _answer(request_id, row)
    if not still:
        return moved
    moved.decisions = _hold_cadence(tx, still)
    jobs = _insert_jobs(tx, hf, moved, job_ids, producer, traceparent)
    tx.affected(SQL.move_requests, requests=[_row(item, jobs) for item in moved.decisions])
    record_actions(tx, [deed for item in moved.decisions for deed in _deeds(item, jobs, actor)])
    for item in moved.decisions:
        request_id = item.intake.rewrite_request_id
        job_id = jobs.get(request_id)
        status = Status.FAILED if job_id is None else Status.QUEUED
        moved.answers[request_id] = Answer(request_id, job_id, status)
    return moved


def _answer(request_id: str, row: Row | None) -> Answer:
    if row is None or row["step"] in (Step.FAILED, Step.CANCELED):
        return Answer(request_id, None, Status.FAILED)
    return Answer(request_id, row["job_id"], Status.QUEUED)


def _hold_cadence(tx: Tx, decisions: Sequence[Decision]) -> list[Decision]:
    """Let the first full reframe of a sender and week pass, and fail the others.

    The unique index catches a concurrent request between this check and the write.
    """
    full = [
        item
        for item in decisions
        if item.failure is None and item.strength is Strength.FULL_REFRAME
    ]
    if not full:
        return list(decisions)
    rows = tx.many(SQL.find_over_cadence, asked=[_key(item) for item in full])
    over = {row["rewrite_request_id"] for row in rows}
    weeks: set[tuple[str, int, int]] = set()
    for item in full:
        if item.intake.week in weeks:
            over.add(item.intake.rewrite_request_id)
        weeks.add(item.intake.week)
    return [
        item.over_cadence() if item.intake.rewrite_request_id in over else item
        for item in decisions
    ]


def _insert_jobs(
    tx: Tx,
    hf: Holdfast,
    moved: Moved,
    job_ids: Mapping[str, str],
    producer: Producer,
    traceparent: str | None,
) -> dict[str, str]:
    """Enqueue the jobs and return them by request. A unit that has a job keeps it."""
    going = [item for item in moved.decisions if item.failure is None]
    if not going:
        return {}
    asked = [_job_request(item, producer, traceparent) for item in going]
    moved.batch = prepare(
        hf.registry.get(JOB_TYPE),
        [(item.payload, item) for item in asked],
        ids=[job_ids[item.intake.rewrite_request_id] for item in going],
        now=hf.clock.now(),
        payload_limit=hf.settings.payload_limit_bytes,
        known={},
        queues=hf.known_queues,
        ageing_ms=ms(hf.settings.ageing_seconds),
    )
    moved.enqueued = run(tx, insert_steps(moved.batch))
    return {
        item.intake.rewrite_request_id: job.id
        for item, job in zip(going, moved.enqueued, strict=True)
    }


def _job_request(item: Decision, producer: Producer, traceparent: str | None) -> JobRequest:
    assert item.request is not None, "what goes on has its request"
    payload = RowPayload.from_request(item.request)
    return JobRequest(
        payload=payload.document,
        org_id=item.intake.home_id,
        actor=sender_of(item.intake),
        request_id=item.intake.request_id,
        correlation_id=item.intake.correlation_id,
        traceparent=traceparent,
        unit_key=payload.unit_key,
        routing_decision=item.routing_decision,
        producer=producer,
    )


def _key(item: Decision) -> dict[str, str]:
    intake = item.intake
    return {"org_id": intake.home_id, "rewrite_request_id": intake.rewrite_request_id}


def _row(item: Decision, jobs: Mapping[str, str]) -> dict[str, Any]:
    result, locales, pack, written = (
        item.classifier_result,
        item.locales,
        item.context_pack,
        item.written,
    )
    return {
        **_key(item),
        "step": item.step,
        "failure_code": item.failure,
        "source_locale": locales and locales.source,
        "target_locale": locales and locales.target,
        "source_locale_raw": locales and locales.source_raw,
        "target_locale_raw": locales and locales.target_raw,
        "lane": locales and locales.lane,
        "topics": result and canonical([topic.value for topic in result.topics]),
        "intent": result and result.intent,
        "rewrite_strength": item.strength,
        "classifier_version": result and result.classifier_version,
        "context_pack_version": pack and pack.context_version,
        "policy_version": item.request and item.request.policy_version,
        "routing_decision": item.routing_decision and canonical(dict(item.routing_decision)),
        "rewrite_request": written and written.text,
        "request_hash": written and written.hash,
        "content_hash": written and _content_hash(item),
        "job_id": jobs.get(item.intake.rewrite_request_id),
        **{name: canonical(found) if found else None for name, found in _documents(item)},
    }


def _content_hash(item: Decision) -> str | None:
    """Return the hash to find identical requests by, if the route allows reuse."""
    decision = item.routing_decision or {}
    return item.written.content_hash if item.written and decision["cache_eligible"] else None


def _documents(item: Decision) -> Iterator[tuple[str, Mapping[str, Any] | None]]:
    """Yield the documents of a request; a complete request has them serialized."""
    for name in ("classifier_result", "context_pack", "policy"):
        made: Document | None = getattr(item, name)
        if item.written is not None:
            yield name, item.written.document[name]
        else:
            yield name, None if made is None else made.document


def _deeds(item: Decision, jobs: Mapping[str, str], actor: Actor | None) -> list[Deed]:
    """Return the audit entries of every step reached: ids and codes."""
    steps: list[tuple[Step, dict[str, Any]]] = []
    if item.classifier_result is not None:
        result = item.classifier_result
        told = {
            "classifier_version": result.classifier_version,
            "detected_language": result.detected_language,
            "language_confidence": result.language_confidence,
            "rewrite_strength": item.strength,
            "classifier_error": item.classifier_error,
        }
        steps.append((Step.CLASSIFIED, told))
    if item.context_pack is not None and item.locales is not None:
        told = {
            "context_pack_version": item.context_pack.context_version,
            "source_locale": item.locales.source,
            "target_locale": item.locales.target,
            "lane": item.locales.lane,
        }
        steps.append((Step.CONTEXT_BUILT, told))
    if item.routing_decision is not None:
        decision = item.routing_decision
        steps.append((Step.ROUTED, {name: decision.get(name) for name in _ROUTED}))
    if item.written is not None:
        job_id = jobs[item.intake.rewrite_request_id]
        steps.append((Step.ENQUEUED, {"job_id": job_id, "request_hash": item.written.hash}))
    else:
        steps.append((Step.FAILED, {"failure_code": item.failure}))
    who = actor or sender_of(item.intake)
    return [deed_of(item.intake, who, step, detail) for step, detail in steps]
