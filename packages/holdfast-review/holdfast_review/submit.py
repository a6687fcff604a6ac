"""Submit a review: deduplicate the request, then create the review and its job.

Deduplication comes first: a known key returns its review, whatever else was requested, and so does
a version that has a review. Any other request is checked against the versions that succeeded. Then
one transaction writes the review, its recipients and its job. A posted patch is stored right before
that, and deleted if a concurrent request won.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.actor import SYSTEM, Actor
from holdfast.app import Holdfast
from holdfast.clock import ms
from holdfast.document import canonical
from holdfast.engine.audit import Deed, record_actions
from holdfast.engine.enqueue import Enqueued, events_of, insert_steps
from holdfast.engine.execute import current
from holdfast.engine.job import State
from holdfast.engine.request import InsertRows, JobRequest, full_key, prepare
from holdfast.errors import Forbidden, RuleBroken
from holdfast.ids import read_uuid
from holdfast.store import Row, Statements, Tx
from holdfast.store.caller_connection import run
from holdfast_review import show
from holdfast_review.check import check_given
from holdfast_review.enums import JOB_TYPE, Answer
from holdfast_review.failure import InvalidReview
from holdfast_review.model import (
    LONGEST_NAME,
    Given,
    Recipient,
    Review,
    Source,
    read_name,
    read_recipients,
    read_source,
    read_version,
)
from holdfast_review.origin import FetchesOrigin
from holdfast_review.posted import Posted, drop_posted, read_posted, store_posted
from holdfast_review.seal import SQL as SEAL
from holdfast_review.version import check_version

SQL = Statements("holdfast_review", "submit.sql")

LONGEST_KEY = 500
# Constraints that concurrent requests may violate. The second request is then a duplicate.
_RACES = frozenset({"review_once", "review_once_per_key"})


@dataclass(frozen=True, slots=True)
class Submitted:
    """The review for a request. *differs* if it was created for a different request."""

    review: Review
    answer: Answer
    differs: bool = False

    @property
    def created(self) -> bool:
        return self.answer is Answer.CREATED


@dataclass(frozen=True, slots=True)
class Sender:
    """The submitter, and the cause of the request."""

    actor: Actor = SYSTEM
    request_id: str | None = None
    correlation_id: str | None = None
    traceparent: str | None = None


@dataclass(slots=True)
class _Written:
    """What the transaction found or created."""

    review_id: str
    answer: Answer
    differs: bool = False
    # It ended without a result.
    is_lost: bool = False
    batch: InsertRows = field(default_factory=InsertRows)
    enqueued: Sequence[Enqueued] = ()


def read_request(
    *,
    org_id: str,
    changelist_id: str,
    review_version: int | str,
    idempotency_key: str,
    source: Source,
    recipients: Sequence[Recipient],
    is_rerun: bool,
) -> Given:
    """Validate a request. Raises InvalidReview, which names every bad field but no value."""
    bad: dict[str, str] = {}
    try:
        tenant = read_uuid(org_id)
    except ValueError as exc:
        tenant, bad["org_id"] = "", str(exc)
    given = Given(
        org_id=tenant,
        changelist_id=read_name("changelist_id", changelist_id, bad, LONGEST_NAME),
        review_version=read_version(review_version, bad),
        idempotency_key=read_name("idempotency_key", idempotency_key, bad, LONGEST_KEY),
        source=read_source(source, bad),
        recipients=read_recipients(recipients, bad),
        is_rerun=bool(is_rerun),
    )
    if bad:
        raise InvalidReview(bad)
    return given


def submit(hf: Holdfast, given: Given, sender: Sender, fetch: object = None) -> Submitted:
    """Create the requested review, or return the existing one.

    Changes that *fetch* can never get, invalid patches and unreachable recipients are rejected.
    """
    running = current.get()
    if running is not None and running.org_id != given.org_id:
        raise Forbidden(
            f"Job {running.id} of tenant {running.org_id} cannot submit for another tenant."
        )
    if running is not None:
        sender = Sender(
            sender.actor, running.request_id, running.correlation_id, running.traceparent
        )
    hf.sync()
    key = full_key(JOB_TYPE, given.org_id, None, given.idempotency_key)
    posted: Posted | None = None
    if given.source.data is not None:
        # A custom fetch reads the patch as stored, so it is redacted here.
        is_sealed = isinstance(fetch, FetchesOrigin)
        posted = read_posted(hf, given.source.data, is_sealed=is_sealed)
        given = replace(given, source=posted.source)
    if hf.store.read(lambda tx: _find_or_check(tx, given, key)) is None:
        # Outside any transaction, because it reads repositories and stores a patch.
        check_given(hf, given, sender.actor, fetch, posted)
        if posted is not None:
            source = store_posted(hf, posted, org_id=given.org_id, actor=sender.actor)
            given = replace(given, source=source)
            return _submit_stored(hf, given, key, sender)
    return _pass_gate(hf, given, key, sender)


def _submit_stored(hf: Holdfast, given: Given, key: str, sender: Sender) -> Submitted:
    """Submit with a stored patch, and delete the patch if no review was created for it."""
    try:
        submitted = _pass_gate(hf, given, key, sender)
    except InvalidReview:
        drop_posted(hf, given.source, org_id=given.org_id, actor=sender.actor)
        raise
    # After other failures the review may exist; a patch without one expires.
    if not submitted.created:
        drop_posted(hf, given.source, org_id=given.org_id, actor=sender.actor)
    return submitted


def _find_or_check(tx: Tx, given: Given, key: str) -> _Written | None:
    """Return the existing review, or check that the version may run."""
    known = _find(tx, given, key)
    if known is None:
        whose = {"org_id": given.org_id, "changelist_id": given.changelist_id}
        row = tx.maybe(SQL.find_succeeded, **whose)
        succeeded = None if row is None else row["succeeded_version"]
        check_version(given.review_version, succeeded=succeeded, is_rerun=given.is_rerun)
    return known


def _pass_gate(hf: Holdfast, given: Given, key: str, sender: Sender) -> Submitted:
    """Find the existing review or create one, in one transaction."""
    review_id, job_id = hf.ids.take(2)

    def work(tx: Tx) -> _Written:
        known = _find(tx, given, key)
        succeeded: int | None = None
        if known is None or known.answer is not Answer.SAME_KEY:
            whose = {"org_id": given.org_id, "changelist_id": given.changelist_id}
            succeeded = tx.one(SQL.hold_changelist, **whose)["succeeded_version"]
            known = _find(tx, given, key)
        if known is None or _is_overtaken(known, given, succeeded):
            check_version(given.review_version, succeeded=succeeded, is_rerun=given.is_rerun)
        if known is not None:
            _tell_difference(tx, given, known, sender)
            return known
        return _write(tx, hf, given, key, sender, review_id=review_id, job_id=job_id)

    try:
        written = hf.store.write(work)
    except RuleBroken as exc:
        if exc.rule not in _RACES:
            raise
        written = hf.store.write(work)
    _announce(hf, written)
    review = show.find_review(hf.store, org_id=given.org_id, review_id=written.review_id)
    return Submitted(review, written.answer, written.differs)


def recipients_of(hf: Holdfast, review: Review) -> list[Recipient]:
    """Return the recipients of a review. Raises InvalidReview if an address was deleted."""
    asked = {
        "org_id": review.org_id, "review_id": review.review_id, "subject": review.subject
    }  # fmt: skip
    rows = hf.store.read(lambda tx: tx.many(SQL.list_told_before, **asked))
    if any(row["address"] is None for row in rows):
        problem = f"must be named: not all addresses of version {review.review_version} are kept"
        raise InvalidReview({"recipients": problem})
    return [
        Recipient(row["recipient"], row["channel"], row["address"], bool(row["is_required"]))
        for row in rows
    ]


def _find(tx: Tx, given: Given, key: str) -> _Written | None:
    """Find the existing review, by key and then by version."""
    rows = tx.many(
        SQL.find_known,
        org_id=given.org_id,
        idempotency_key=key,
        changelist_id=given.changelist_id,
        review_version=given.review_version,
    )
    by_key = [row for row in rows if row["idempotency_key"] == key]
    for row in by_key or rows:
        answer = Answer.SAME_KEY if by_key else Answer.SAME_VERSION
        is_lost = row["status"] in (State.FAILED, State.CANCELED)
        return _Written(row["review_id"], answer, _differs(row, given), is_lost)
    return None


def _is_overtaken(known: _Written, given: Given, succeeded: int | None) -> bool:
    """Return whether a version failed and a higher one has succeeded."""
    if known.answer is not Answer.SAME_VERSION or succeeded is None:
        return False
    return known.is_lost and given.review_version < succeeded


def _differs(row: Row, given: Given) -> bool:
    return bool(row["request_hash"] != given.hash)


def _tell_difference(tx: Tx, given: Given, known: _Written, sender: Sender) -> None:
    """Audit a request that differs from its existing review."""
    if not known.differs:
        return
    detail = {
        "review_id": known.review_id,
        "asked_version": given.review_version,
        "request_hash": given.hash,
        "answer": known.answer.value,
    }
    record_actions(tx, [_deed(given, known.review_id, "duplicate_differs", detail, sender)])


def _write(
    tx: Tx,
    hf: Holdfast,
    given: Given,
    key: str,
    sender: Sender,
    *,
    review_id: str,
    job_id: str,
) -> _Written:
    row = {
        "org_id": given.org_id,
        "review_id": review_id,
        "changelist_id": given.changelist_id,
        "review_version": given.review_version,
        "idempotency_key": key,
        "request_hash": given.hash,
        "source": canonical(given.source.document),
        "is_rerun": int(given.is_rerun),
        "job_id": job_id,
        "request_id": sender.request_id or job_id,
        "correlation_id": sender.correlation_id or sender.request_id or job_id,
    }
    tx.affected(SQL.insert_review, reviews=[row])
    ids = {"org_id": given.org_id, "review_id": review_id}
    if given.source.seal_key:
        tx.affected(SEAL.insert_key, seal_key=given.source.seal_key, **ids)
    if given.recipients:
        told = [_recipient(one) for one in given.recipients]
        tx.affected(SQL.insert_recipients, recipients=told, **ids)
    batch = _prepare(hf, given, key, sender, review_id, job_id)
    enqueued = run(tx, insert_steps(batch))
    if enqueued[0].id != job_id:
        raise InvalidReview({"idempotency_key": "belongs to a job that is not a review"})
    detail = {
        "changelist_id": given.changelist_id,
        "review_version": given.review_version,
        "job_id": job_id,
        "is_rerun": given.is_rerun,
        "recipients": len(given.recipients),
    }
    record_actions(tx, [_deed(given, review_id, "submitted", detail, sender)])
    return _Written(review_id, Answer.CREATED, batch=batch, enqueued=enqueued)


def _recipient(one: Recipient) -> dict[str, Any]:
    return {
        "recipient": one.name,
        "channel": one.channel,
        "address": one.address,
        "is_required": int(one.is_required),
    }


def _prepare(
    hf: Holdfast, given: Given, key: str, sender: Sender, review_id: str, job_id: str
) -> InsertRows:
    """Build the job of a review. Its payload is only an id; the review's row has the rest."""
    request = JobRequest(
        payload={"review_id": review_id},
        org_id=given.org_id,
        actor=sender.actor,
        idempotency_key=key,
        request_id=sender.request_id,
        correlation_id=sender.correlation_id,
        traceparent=sender.traceparent,
    )
    return prepare(
        hf.registry.get(JOB_TYPE),
        [(request.payload, request)],
        ids=[job_id],
        now=hf.clock.now(),
        payload_limit=hf.settings.payload_limit_bytes,
        known={},
        queues=hf.known_queues,
        ageing_ms=ms(hf.settings.ageing_seconds),
    )


def _deed(given: Given, review_id: str, name: str, detail: dict[str, Any], sender: Sender) -> Deed:
    return Deed(
        sender.actor,
        given.org_id,
        f"review:{review_id}",
        f"review.{name}",
        detail,
        sender.request_id,
        sender.correlation_id,
    )


def _announce(hf: Holdfast, written: _Written) -> None:
    if not written.enqueued:
        return
    hf.store.announce(written.batch.queues)
    if hf.events.subscribers:
        for event in events_of([written.batch], written.enqueued):
            hf.events.emit(event)
