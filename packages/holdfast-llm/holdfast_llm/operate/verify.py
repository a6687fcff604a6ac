"""Invariants I22 to I26: batches at providers match the jobs that they were sent for."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from functools import lru_cache

from holdfast.clock import write_instant
from holdfast.document import decode
from holdfast.operate.verify.check import Check, VerifyContext, Violation, selects
from holdfast.operate.verify.lifecycle import find_stale_in
from holdfast.operate.verify.privacy import find_secrets_in
from holdfast.operate.verify.timing import find_ahead_in
from holdfast.store import Statements
from holdfast_llm.batch.cost import read_group_key
from holdfast_llm.batch.group import custom_id
from holdfast_llm.provider.route import ExecutionMode, Route

SQL = Statements("holdfast_llm.operate", "verify.sql")


def _find_misnumbered(context: VerifyContext) -> Iterator[Violation]:
    keep = timedelta(days=context.settings.retention.keep_days)
    yield from context.find(SQL.find_gaps, kept_since=write_instant(context.now - keep))
    for row in context.tx.stream(SQL.list_names):
        batch_id, place = row["batch_id"], row["batch_item_index"]
        # The last part is signed with a key that may have changed since.
        wanted, _, _ = custom_id(b"", batch_id, place, "", 0).rpartition("_")
        if row["custom_id"].rpartition("_")[0] != wanted:
            subject = f"item:{batch_id}:{place}"
            yield Violation(
                str(row["org_id"]), subject, "its custom id does not match its position"
            )


def _find_mixed(context: VerifyContext) -> Iterator[Violation]:
    for row in context.tx.stream(SQL.list_routes, org_id=context.org_id):
        org_id, subject = str(row["org_id"]), row["subject"]
        if row["batch_group"] not in _groups(row["group_key"], row["execution_mode"]):
            yield Violation(org_id, subject, "its group differs from its batch's")
        if row["has_job"] and row["group_key"] != _group_of(row["routing_decision"]):
            yield Violation(org_id, subject, "its job belongs to another group")


@lru_cache(maxsize=256)
def _groups(group_key: str, mode: str) -> frozenset[str]:
    """The groups of batches that may hold an item: its own, or a merged one of its model."""
    try:
        group = read_group_key(group_key)
    except ValueError:
        return frozenset()
    if mode != ExecutionMode.BATCH:
        # Direct calls in one group share all fields of the group key.
        return frozenset({group_key})
    return frozenset({group_key, Route(group["provider"], "", group["model"]).group_key})


def _group_of(decision: str | None) -> str | None:
    """The group of a job's routing decision; None if it is missing or invalid."""
    try:
        return Route.read(decode(decision or "{}")).group_key
    except ValueError:
        return None


def _find_stale(context: VerifyContext) -> Iterator[Violation]:
    return find_stale_in(context, SQL.find_stale)


def _find_secrets(context: VerifyContext) -> Iterator[Violation]:
    return find_secrets_in(context, [SQL.list_answers])


def _find_ahead(context: VerifyContext) -> Iterator[Violation]:
    return find_ahead_in(context, SQL.find_ahead)


# Each adds the rows of batch processing to the core check with its id.
_PARTS = (
    Check("I5", "Expired claims outside a batch are rescued.", _find_stale),
    Check(
        "I29",
        "Batch items and calls belong to the tenant of their job.",
        selects(SQL.find_foreign_parts),
    ),
    Check("I31", "Recorded answers contain no secrets.", _find_secrets),
    Check("I36", "No batch timestamp is in the future.", _find_ahead),
    Check("I37", "Every answer is recorded in the ledger.", selects(SQL.find_unbooked)),
    Check(
        "I49",
        "Batch items match their events.",
        selects(
            SQL.find_changed_items,
            SQL.find_unknown_items,
            SQL.find_renamed_batches,
            SQL.find_denied_items,
        ),
    ),
)

CHECKS = (
    *_PARTS,
    Check(
        "I22",
        "A submitted job has a batch and an item in it.",
        selects(SQL.find_unplaced, SQL.find_strayed, SQL.find_renamed),
    ),
    Check(
        "I23",
        "Batch items are numbered without gaps, and their custom ids match the batch.",
        _find_misnumbered,
        is_of_store=True,
    ),
    Check(
        "I24",
        "All items of a batch belong to the same group, and so do their jobs.",
        _find_mixed,
    ),
    Check(
        "I25",
        "A finished batch has an outcome for every item, recorded on its job.",
        selects(SQL.find_unresolved, SQL.find_forgotten),
    ),
    Check(
        "I26",
        "No execution unit is in two open batches, and no two batches share a provider batch.",
        selects(SQL.find_doubled, SQL.find_shared_names),
    ),
)
