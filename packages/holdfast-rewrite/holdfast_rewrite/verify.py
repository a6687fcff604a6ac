"""I11, I39 to I41, I50 and a part of I49: rewrites, their jobs and verdicts, and their texts."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from hashlib import sha256
from itertools import chain

from holdfast.clock import write_instant
from holdfast.document import canonical, decode
from holdfast.operate.verify.check import Check, VerifyContext, Violation, selects
from holdfast.operate.verify.privacy import forms_of
from holdfast.store import Statements

SQL = Statements("holdfast_rewrite", "verify.sql")

# The orchestrator runs every minute; after this time it is certainly not running.
PATIENCE = timedelta(hours=1)
# A shorter text may occur anywhere by chance.
SHORTEST_TEXT = 12


def _find_left(context: VerifyContext) -> Iterator[Violation]:
    patience = max(PATIENCE, timedelta(seconds=2 * context.settings.rewrite.abandoned_seconds))
    yield from context.find(SQL.find_left, left_since=write_instant(context.now - patience))
    yield from context.find(SQL.find_untimely)


def _find_parted(context: VerifyContext) -> Iterator[Violation]:
    yield from context.find(SQL.find_parted)
    yield from context.find(SQL.find_mismatched)
    yield from context.find(SQL.find_wrong_snapshots)
    for row in context.tx.stream(SQL.list_documents, org_id=context.org_id):
        document = decode(row["document"])
        digest = sha256(canonical(document).encode()).hexdigest()
        if digest != row["request_hash"]:
            yield Violation(
                str(row["org_id"]), row["subject"], "its document is not the one hashed"
            )
        elif document.get("original_text") != row["original_text"]:
            detail = "its message is not the text of its document"
            yield Violation(str(row["org_id"]), row["subject"], detail)


def _find_texts(context: VerifyContext) -> Iterator[Violation]:
    yield from context.find(SQL.find_unerased)
    told = (SQL.list_told, SQL.list_told_of_requests)
    for row in chain.from_iterable(context.tx.stream(each, org_id=context.org_id) for each in told):
        for kind in ("original_text", "rewritten_text"):
            text = row[kind]
            if text is None or len(text) < SHORTEST_TEXT:
                continue
            if any(form in row["words"] for form in forms_of(text)):
                detail = f"its {kind} lies in {row['place']}"
                yield Violation(str(row["org_id"]), row["subject"], detail)


CHECKS = (
    Check(
        "I11",
        "A rewrite request has one output per recipient, in the requested language.",
        selects(SQL.find_without_output, SQL.find_wrong_outputs),
    ),
    Check(
        "I39",
        "A rewrite request has the state of its job, and both name the same people.",
        _find_parted,
    ),
    Check(
        "I40",
        "A rewrite request has a job or a failure code, and its final state was reported.",
        _find_left,
    ),
    Check(
        "I41",
        "Rewrite texts are stored only in their own columns.",
        _find_texts,
    ),
    Check(
        "I49",
        "The output of a rewrite has not changed since it was stored.",
        selects(SQL.find_changed_outputs),
    ),
    Check(
        "I50",
        "A rewrite is stored with the verdict that its route demands.",
        selects(SQL.find_unjudged, SQL.find_parted_drafts),
    ),
)
