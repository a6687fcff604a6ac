"""The checks of seals for the invariants I33, I36 and I48."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.operate.verify.check import Check, VerifyContext, Violation, selects
from holdfast.operate.verify.timing import find_ahead_in
from holdfast.sealed_audit.chain import check_seals
from holdfast.store import Statements

SQL = Statements("holdfast.sealed_audit", "verify.sql")


def _find_tampering(context: VerifyContext) -> Iterator[Violation]:
    found = check_seals(
        lambda work: work(context.tx), context.org_id, key=context.settings.audit_key
    )
    for place in found:
        subject = "audit" if place.seal is None else f"seal:{place.seal}"
        seq = "" if place.seq is None else f" ({place.seq})"
        yield Violation(place.org_id, subject, place.problem + seq)


def _find_ahead(context: VerifyContext) -> Iterator[Violation]:
    return find_ahead_in(context, SQL.find_ahead)


CHECKS = (
    Check("I33", "The audit matches its seals.", _find_tampering),
    Check("I36", "No seal timestamp is in the future.", _find_ahead),
    Check(
        "I48",
        "No event is missing after the newest seal.",
        selects(SQL.find_missing_events),
        is_of_store=True,
    ),
)
