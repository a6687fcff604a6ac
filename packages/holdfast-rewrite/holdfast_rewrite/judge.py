"""The work of a judge's job: loads a draft with its original, builds the request, rules.

A draft has one judge's job, and the judge is asked once: a second attempt is made only if no
request of the first one left. The route was fixed with the route of the rewrite. The ruling follows
from the gate and the verdict; an answer has no other effect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.document import decode, encode
from holdfast.engine.job import ResultWithRows
from holdfast.errors import Permanent
from holdfast.store import Row, Tx
from holdfast_llm.batch.work import Item
from holdfast_llm.provider.reply import Reply
from holdfast_llm.provider.request import Request
from holdfast_llm.provider.route import Route
from holdfast_rewrite.draft import SQL, output_of
from holdfast_rewrite.enums import Mark
from holdfast_rewrite.failure import JudgeAsked, RequestUnfit, TextErased
from holdfast_rewrite.judge_prompt import judge_request
from holdfast_rewrite.verdict import NoVerdict, Ruling, Verdict, read_verdict, rule
from holdfast_rewrite.work import Unfit

# The payload of a judge's job: ids and codes, never text.
_PAYLOAD = ("rewrite_request_id", "recipient_user_id", "source_locale", "target_locale", "lane")


def payload_of(row: Row) -> dict[str, str]:
    """Return the stored payload of the judge's job for a draft."""
    return {name: str(row[name]) for name in _PAYLOAD}


def unit_of(row: Row) -> str:
    """Return the execution unit: one rewrite of one message."""
    return f"{row['rewrite_request_id']}:{row['recipient_user_id']}:judge"


@dataclass(frozen=True, slots=True)
class Judged:
    """A draft and its original, as they are judged; in memory only."""

    draft: Row = field(repr=False)
    original: str = field(repr=False)
    rewrite: str = field(repr=False)
    target_locale: str
    sends_temperature: bool
    judge_rejects: bool


@dataclass(frozen=True, slots=True)
class JudgeWork:
    """Requests and processes one verdict, in a batch or in a direct call."""

    def load(self, tx: Tx, items: Sequence[Item]) -> Mapping[str, Judged | Unfit]:
        """Load the drafts of these jobs in one read. An error affects only its own job."""
        asked = [
            {"org_id": item.org_id, "job_id": item.job_id, "attempt": item.attempt}
            for item in items
        ]
        rows = {str(row["job_id"]): row for row in tx.many(SQL.load_drafts, items=asked)}
        return {item.job_id: _loaded(item, rows.get(item.job_id)) for item in items}

    def request(self, item: Item) -> Request:
        """Build the judge's request with both texts as data."""
        judged = _judged_of(item)
        return judge_request(
            original=judged.original,
            rewrite=judged.rewrite,
            target_locale=judged.target_locale,
            prompt_version=item.route.prompt_version,
            sends_temperature=judged.sends_temperature,
        )

    def accept(self, item: Item, reply: Reply) -> ResultWithRows:
        """Return the ruling, and the output if the rewrite is stored."""
        judged = _judged_of(item)
        draft = judged.draft
        verdict, why_not = _verdict_of(judged, reply)
        ruled = rule(Mark(draft["gate"]), verdict, judge_rejects=judged.judge_rejects)
        ruling = {
            "org_id": draft["org_id"],
            "rewrite_request_id": draft["rewrite_request_id"],
            "state": ruled.ruling,
            "findings": None if verdict is None else encode(list(verdict.findings)),
            "no_verdict_code": why_not,
            "hold_reason": ruled.reason,
        }
        rows: dict[str, list[dict[str, Any]]] = {"rulings": [ruling]}
        if ruled.ruling is Ruling.STORED:
            rows["outputs"] = [output_of(draft)]
        result = {"rewrite_request_id": draft["rewrite_request_id"], "ruling": ruled.ruling.value}
        return ResultWithRows(result, rows)


def _verdict_of(judged: Judged, reply: Reply) -> tuple[Verdict | None, str | None]:
    try:
        return read_verdict(reply.text, original=judged.original, rewrite=judged.rewrite), None
    except NoVerdict as exc:
        return None, exc.code


def _judged_of(item: Item) -> Judged:
    if isinstance(item.loaded, Unfit):
        raise item.loaded.error
    assert isinstance(item.loaded, Judged), "a judge's job is loaded before it is worked on"
    return item.loaded


def _loaded(item: Item, row: Row | None) -> Judged | Unfit:
    if row is None:
        return Unfit(RequestUnfit(code="no_draft"))
    try:
        return _assemble(item, row)
    except Permanent as error:
        return Unfit(error)
    except (KeyError, TypeError, ValueError):
        # The row was edited by hand; the error's message may quote it.
        return Unfit(RequestUnfit(code="unreadable"))


def _assemble(item: Item, row: Row) -> Judged:
    """Assemble the texts if the job's ids, its route, its draft and its request agree."""
    if row["was_asked"]:
        # An earlier attempt may have been paid for.
        raise JudgeAsked
    if item.payload != payload_of(row) or item.unit_key != unit_of(row):
        raise RequestUnfit(code="other_ids")
    decision = decode(row["routing_decision"])["judge"]
    if Route.read(decision) != item.route:
        raise RequestUnfit(code="other_route")
    erased = (row["erased_at"], row["request_erased_at"])
    if erased != (None, None) or row["rewritten_text"] is None or row["original_text"] is None:
        raise TextErased
    return Judged(
        row,
        row["original_text"],
        row["rewritten_text"],
        row["target_locale"],
        bool(decision["sends_temperature"]),
        bool(decision["rejects"]),
    )
