"""The work of a rewrite job: loads the text, builds the prompt and validates the answer.

It writes and stores nothing.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

from holdfast.clock import Clock
from holdfast.document import decode
from holdfast.engine.job import ResultWithRows
from holdfast.errors import Permanent
from holdfast.store import Row, Statements, Tx
from holdfast_llm.batch.work import Item, read_route
from holdfast_llm.provider.reply import Reply
from holdfast_llm.provider.request import Request
from holdfast_rewrite.detect import Detector
from holdfast_rewrite.draft import Draft
from holdfast_rewrite.enums import Mark, Status, VerdictBy
from holdfast_rewrite.evaluate import evaluate
from holdfast_rewrite.failure import RequestUnfit, TextErased
from holdfast_rewrite.gate import GateCode
from holdfast_rewrite.model import BadRewrite, RewriteRequest
from holdfast_rewrite.output import Output, rejection_of, respond
from holdfast_rewrite.payload import JobPayload, RowPayload
from holdfast_rewrite.prompt import prompt_for
from holdfast_rewrite.verdict import HoldReason

SQL = Statements("holdfast_rewrite", "work.sql")


@dataclass(frozen=True, slots=True)
class Unfit:
    """A job that cannot be executed, and why."""

    error: Permanent


@dataclass(frozen=True, slots=True)
class Reusable:
    """A job with the output of an identical, completed request."""

    payload: JobPayload
    rewrite_request_id: str
    rewritten_text: str = field(repr=False)
    output_language: str
    # Whether the judge saw that output and found nothing.
    is_clean: bool = False


@dataclass(frozen=True, slots=True)
class RewriteWork:
    """Requests and validates one rewrite, in a batch or in a direct call."""

    detector: Detector
    clock: Clock

    def load(self, tx: Tx, items: Sequence[Item]) -> Mapping[str, JobPayload | Reusable | Unfit]:
        """Load the payloads of these jobs in one read. An error affects only its own job.

        If a route allows reuse, outputs of identical requests are loaded as well.
        """
        asked = [{"org_id": item.org_id, "job_id": item.job_id} for item in items]
        rows = {str(row["job_id"]): row for row in tx.many(SQL.load_requests, items=asked)}
        loaded = {item.job_id: _payload(item, rows.get(item.job_id)) for item in items}
        return {**loaded, **_reusable(tx, loaded)}

    def reuse(self, item: Item) -> ResultWithRows | None:
        """Return the output of an identical request, if it passes validation for this one."""
        if not isinstance(item.loaded, Reusable):
            return None
        earlier = item.loaded
        try:
            draft = self._gated(item, earlier.rewritten_text, earlier.output_language)
        except Permanent:
            # An output that no longer passes is requested again.
            return None
        kept = _reused(item, draft, is_clean=earlier.is_clean)
        return ResultWithRows({**kept.result, "reused_from": earlier.rewrite_request_id}, kept.rows)

    def request(self, item: Item) -> Request:
        """Build the prompt of the route's version with the text of this request."""
        return prompt_for(payload_of(item).rewrite_request, item.route.prompt_version)

    def accept(self, item: Item, reply: Reply) -> ResultWithRows:
        """Return the output or the draft to store. Raises OutputRejected with codes only."""
        # Count, validate and store the same normalized text.
        text = unicodedata.normalize("NFC", str(reply.data["rewritten_text"]))
        return _kept(item, self._gated(item, text, str(reply.data["output_language"])))

    def _gated(self, item: Item, text: str, output_language: str) -> Draft:
        """Return the rewrite if it passes the gate."""
        job = payload_of(item)
        request = job.rewrite_request
        found = evaluate(
            request, rewritten_text=text, output_language=output_language, detector=self.detector
        )
        if found.verdict is Mark.FAIL:
            raise rejection_of(found)
        response = respond(
            request, text, found, prompt_version=item.route.prompt_version, now=self.clock.now()
        )
        output = Output(job.home_id, item.route.provider, item.route.model, response)
        return Draft(output, found.verdict)


def _kept(item: Item, draft: Draft) -> ResultWithRows:
    """Return what to store: the output, or a draft that waits for the judge or a person."""
    match _verdict_by(item):
        case VerdictBy.GATE if GateCode.UNRELATED in draft.output.response.eval_result.flags:
            # It may be another person's text, which no policy delivers without a look.
            return _held(item, draft)
        case VerdictBy.GATE:
            return ResultWithRows(_ids(item), {"outputs": [draft.output.row]})
        case VerdictBy.JUDGE:
            return ResultWithRows({**_ids(item), "draft": draft.state}, {"drafts": [draft.row]})
        case VerdictBy.PERSON:
            return _held(item, draft)
        case other:
            assert_never(other)


def _reused(item: Item, draft: Draft, *, is_clean: bool) -> ResultWithRows:
    """Return what to store of an earlier output. The same rewrite is not judged again."""
    if _verdict_by(item) is VerdictBy.GATE:
        return _kept(item, draft)
    if _verdict_by(item) is VerdictBy.JUDGE and is_clean and draft.gate is Mark.PASS:
        rows = {"drafts": [draft.judged_row], "outputs": [draft.output.row]}
        return ResultWithRows(_ids(item), rows)
    return _held(item, draft)


def _held(item: Item, draft: Draft) -> ResultWithRows:
    held = replace(draft, reason=HoldReason.POLICY)
    return ResultWithRows({**_ids(item), "draft": held.state}, {"drafts": [held.row]})


def _ids(item: Item) -> dict[str, str]:
    job = payload_of(item)
    return {
        "rewrite_request_id": job.rewrite_request_id,
        "recipient_user_id": job.recipient_user_id,
    }


def _verdict_by(item: Item) -> VerdictBy:
    """Return who decides, as the stored route says. No setting and no answer changes it."""
    return VerdictBy(payload_of(item).routing_decision.get("verdict_by", VerdictBy.GATE))


def payload_of(item: Item) -> JobPayload:
    """Return the payload loaded for an item, or raise why there is none."""
    if isinstance(item.loaded, Unfit):
        raise item.loaded.error
    if isinstance(item.loaded, Reusable):
        return item.loaded.payload
    assert isinstance(item.loaded, JobPayload), "a rewrite job is loaded before it is worked on"
    return item.loaded


def _reusable(tx: Tx, loaded: Mapping[str, JobPayload | Unfit]) -> dict[str, Reusable]:
    eligible = {
        job_id: payload
        for job_id, payload in loaded.items()
        if isinstance(payload, JobPayload) and payload.routing_decision.get("cache_eligible")
    }
    if not eligible:
        return {}
    asked = [{"org_id": one.home_id, "job_id": job_id} for job_id, one in eligible.items()]
    # The latest of them: the rows are sorted oldest first.
    return {
        str(row["job_id"]): Reusable(
            eligible[str(row["job_id"])],
            str(row["rewrite_request_id"]),
            row["rewritten_text"],
            row["output_language"],
            row["findings"] is not None and decode(row["findings"]) == [],
        )
        for row in tx.many(SQL.find_reusable, items=asked)
    }


def _payload(item: Item, row: Row | None) -> JobPayload | Unfit:
    if row is None:
        return Unfit(RequestUnfit(code="no_request"))
    try:
        return _assemble(item, row)
    except Permanent as error:
        return Unfit(error)
    except (BadRewrite, ValueError):
        # The row was edited by hand; the error's message may quote it.
        return Unfit(RequestUnfit(code="unreadable"))


def _assemble(item: Item, row: Row) -> JobPayload:
    """Assemble the payload if the job's ids, its row and its stored request agree."""
    stored = RowPayload.read({name: row[name] for name in RowPayload.__dataclass_fields__})
    if RowPayload.read(item.payload) != stored or item.unit_key != stored.unit_key:
        raise RequestUnfit(code="other_ids")
    if item.org_id != stored.home_id:
        raise RequestUnfit(code="other_home")
    if read_route(row["routing_decision"]) != item.route:
        raise RequestUnfit(code="other_route")
    if row["erased_at"] is not None or row["rewrite_request"] is None:
        raise TextErased
    request = RewriteRequest.read(decode(row["rewrite_request"]))
    if request.hash != row["request_hash"] or RowPayload.from_request(request) != stored:
        raise RequestUnfit(code="other_request")
    return JobPayload.from_row(
        stored,
        request,
        job_id=item.job_id,
        provider_batch_id=row["provider_batch_id"],
        routing_decision=decode(row["job_decision"]),
        attempt=row["attempt_count"] + 1,
        max_attempts=row["max_attempts"],
        status=Status(row["status"]),
    )
