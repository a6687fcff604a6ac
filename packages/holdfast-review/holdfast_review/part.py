"""The second stage with batch processing: one job for each part of a change.

Each part is stored as an artifact, and its row is written before its job, so every answer has a
row. The stage snoozes, without counting attempts, until all parts are answered. Each part has five
attempts. A dead part fails the stage; a replay requests only the missing answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from holdfast.app import Holdfast
from holdfast.artifacts.artifact import Access, Artifact
from holdfast.document import decode, encode, stable_hash
from holdfast.engine.context import Context
from holdfast.engine.job import DEFAULT_QUEUE, ResultWithRows, State
from holdfast.engine.request import JobRequest
from holdfast.engine.retry import CRITIC
from holdfast.errors import ArtifactNotFound, Snooze
from holdfast.store import Row, Statements, Tx
from holdfast_llm.batch.work import Item
from holdfast_llm.provider.reply import Reply
from holdfast_llm.provider.request import Request
from holdfast_llm.provider.route import ExecutionMode, Route
from holdfast_review.criticise import (
    KEEP_PARTS,
    READ_LIMITS,
    describe,
    read_change,
    read_written,
    write_read,
)
from holdfast_review.enums import LLM, PART_JOB_TYPE
from holdfast_review.failure import PartsFailed, ReviewErased, ReviewUnfit
from holdfast_review.merge import Read, merge, read_findings
from holdfast_review.model import Criticism, Review
from holdfast_review.patch import Change, parse_patch, write_patch
from holdfast_review.prompt import PROMPT_VERSION, prompt_for
from holdfast_review.refusal import ChangeMissing
from holdfast_review.split import PART_CHARS, Part, split_change

SQL = Statements("holdfast_review", "part.sql")

# Batches take minutes to hours.
GLANCE = timedelta(minutes=1)
ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class PartWork:
    """Builds the request for one part of a change and parses its findings; writes nothing."""

    hf: Holdfast

    def load(self, tx: Tx, items: Sequence[Item]) -> Mapping[str, Row]:
        """Load the locations of the parts of these jobs in one read."""
        wanted = [
            {
                "org_id": item.org_id,
                "job_id": item.job_id,
                "review_id": item.payload["review_id"],
                "number": item.payload["part"],
            }
            for item in items
        ]
        return {str(row["job_id"]): row for row in tx.many(SQL.load_parts, wanted=wanted)}

    def request(self, item: Item) -> Request:
        """Build the prompt of the route's version for the part."""
        return prompt_for(self._part(item), item.route.prompt_version)

    def accept(self, item: Item, reply: Reply) -> ResultWithRows:
        """Return the valid findings."""
        read = read_findings(reply.data, self._part(item).files)
        row = {
            "org_id": item.org_id,
            "review_id": item.payload["review_id"],
            "number": item.payload["part"],
            "change_key": item.payload["change_key"],
            "answer": encode(write_read(read)),
        }
        return ResultWithRows(
            {"findings": len(read.findings), "dropped": read.dropped}, {"said": [row]}
        )

    def _part(self, item: Item) -> Part:
        row = item.loaded
        if row is not None and row["status"] == State.CANCELED:
            # The review ended, so the part is canceled with it and not billed.
            self.hf.cancel(item.job_id, org_id=item.org_id, reason="review canceled")
            raise Snooze(GLANCE)
        if row is None or row["change_key"] != item.payload["change_key"]:
            # Another change is under review, or its answers were merged already.
            raise ReviewUnfit(job_id=item.job_id, missing="part")
        if row["erased_at"] is not None:
            raise ReviewErased(review_id=item.payload["review_id"])
        try:
            with self.hf.artifacts.open(
                row["artifact_id"], org_id=item.org_id, is_operator=True
            ) as reader:
                data = reader.read()
        except ArtifactNotFound:
            raise ChangeMissing(what="artifact") from None
        return Part(item.payload["part"], parse_patch(data, READ_LIMITS).files)


class BatchCritic:
    """Reviews changes through one route, with one batch job for each part.

    Creating it declares the job type ``review.criticise``.
    """

    def __init__(self, hf: Holdfast, route: Route, part_chars: int = PART_CHARS) -> None:
        self.hf = hf
        self.route = route
        self.part_chars = part_chars
        declare = hf.batch(
            PART_JOB_TYPE,
            route=route,
            queue=DEFAULT_QUEUE,
            max_attempts=ATTEMPTS,
            retry=CRITIC,
            stores=SQL.keep_answers,
            stage=LLM,
        )
        declare(PartWork(hf))

    def __call__(self, job: Context, review: Review, fetched: Mapping[str, Any]) -> Criticism:
        """Return the model's review of the change. Raises Snooze until all parts are answered."""
        key = stable_hash(fetched["sha256"], self.route.prompt_version, self.part_chars)
        rows = self._list(review)
        if not rows or any(_is_over(row, key, job.id) for row in rows):
            self._divide(job, review, fetched, key, rows)
            rows = self._list(review)
        self._ask(job, review, key, [row for row in rows if row["asked_by"] is None])
        self._check(job, rows)
        answers = [read_written(decode(row["answer"])) for row in rows]
        return self._put_together(job, fetched, answers)

    def _list(self, review: Review) -> list[Row]:
        ids = _ids(review)
        return self.hf.store.read(lambda tx: tx.many(SQL.list_parts, **ids))

    def _divide(
        self,
        job: Context,
        review: Review,
        fetched: Mapping[str, Any],
        key: str,
        rows: Sequence[Row],
    ) -> None:
        """Store the unanswered parts, and delete outdated ones."""
        answered = {
            row["number"] for row in rows if row["change_key"] == key and row["answer"] is not None
        }
        parts = split_change(read_change(job, fetched), self.part_chars)
        made = [
            {"number": part.number, "change_key": key, "artifact_id": _store(job, part)}
            for part in parts
            if part.number not in answered
        ]
        ids = _ids(review)

        def work(tx: Tx) -> None:
            job.check_lease(tx)
            if not tx.affected(SQL.hold_review, **ids):
                raise ReviewErased(review_id=review.review_id)
            tx.affected(SQL.delete_parts, change_key=key, **ids)
            if made:
                tx.affected(SQL.insert_parts, parts=made, **ids)

        self.hf.store.write(work)

    def _ask(self, job: Context, review: Review, key: str, rows: Sequence[Row]) -> None:
        """Enqueue the jobs of parts. After a crash, the same jobs are enqueued again."""
        waiting = [row["number"] for row in rows if row["answer"] is None]
        if not waiting:
            return
        requests = [
            JobRequest(
                payload={"review_id": review.review_id, "part": number, "change_key": key},
                org_id=review.org_id,
                actor=job.actor,
                # Another prompt, for example after a deployment, needs another answer.
                idempotency_key=f"{job.id}:{key[:16]}:{number}",
            )
            for number in waiting
        ]
        enqueued = self.hf.enqueue_many(PART_JOB_TYPE, requests)
        asked = [
            {"number": number, "job_id": one.id}
            for number, one in zip(waiting, enqueued, strict=True)
        ]
        ids = {"asked_by": job.id, **_ids(review)}
        self.hf.store.write(lambda tx: tx.affected(SQL.mark_asked, asked=asked, **ids))

    def _check(self, job: Context, rows: Sequence[Row]) -> None:
        """Raise Snooze while parts are pending, or PartsFailed if one failed and none is."""
        open_parts = [row for row in rows if row["answer"] is None]
        if not open_parts:
            return
        over = [row for row in open_parts if row["state"] and State.read(row["state"]).is_terminal]
        job.progress(len(rows) - len(open_parts), len(rows))
        if len(over) < len(open_parts):
            raise Snooze(GLANCE)
        first = over[0]
        raise PartsFailed(
            failed=len(over),
            parts=len(rows),
            part_job=str(first["job_id"]),
            part_error=str(first["error_class"] or first["state"]),
        )

    def _put_together(
        self, job: Context, fetched: Mapping[str, Any], answers: Sequence[Read]
    ) -> Criticism:
        change = read_change(job, fetched)
        merged = merge(answers, change)
        detail = describe(self.route, merged, len(answers), change)
        return Criticism(merged.findings, merged.summary, {**detail, "mode": "batch"})


def make_batch_critic(hf: Holdfast) -> BatchCritic | None:
    """Build the critic from the settings; None if they name no model, which the stage reports."""
    said = hf.settings.review
    if said.provider is None or said.adapter_kind is None or said.model is None:
        return None
    route = Route(
        said.provider,
        said.adapter_kind,
        said.model,
        prompt_version=PROMPT_VERSION,
        execution_mode=ExecutionMode.BATCH,
    )
    return BatchCritic(hf, route)


def _ids(review: Review) -> dict[str, str]:
    return {"org_id": review.org_id, "review_id": review.review_id}


def _is_over(row: Row, key: str, job_id: str) -> bool:
    """Return whether a row is for another change, or unanswered and from an earlier job."""
    if row["change_key"] != key:
        return True
    return row["answer"] is None and str(row["asked_by"] or job_id) != job_id


def _store(job: Context, part: Part) -> str:
    stored: Artifact = job.artifacts.put(
        write_patch(Change(part.files)),
        name=f"part-{part.number}.diff",
        media_type="text/x-diff",
        keep=KEEP_PARTS,
        access=Access.OWNER,
    )
    return stored.id
