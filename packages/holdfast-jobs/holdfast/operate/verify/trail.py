"""I33 and I34: the audit is whole, as it was sealed, and says of every act whose it was."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.clock import ms
from holdfast.engine.chain import check_seals
from holdfast.operate.audit import SLACK
from holdfast.operate.verify.check import Check, VerifyContext, Violation, selects
from holdfast.store import Statements

SQL = Statements("holdfast.operate.verify", "trail.sql")


def _find_tampering(context: VerifyContext) -> Iterator[Violation]:
    found = check_seals(
        lambda work: work(context.tx), context.org_id, key=context.settings.audit_key
    )
    for place in found:
        subject = "audit" if place.seal is None else f"seal:{place.seal}"
        seq = "" if place.seq is None else f" ({place.seq})"
        yield Violation(place.org_id, subject, place.problem + seq)
    yield from context.find(SQL.find_incomplete)
    # Whoever looks for a span of time relies on it.
    yield from context.find(SQL.find_out_of_order, tolerance_ms=ms(SLACK))


CHECKS = (
    Check(
        "I33",
        "The audit is as it was sealed, without gaps, whole in its fields and in order.",
        _find_tampering,
    ),
    Check(
        "I34",
        "Every event names who did it, and an operator's act a role that may.",
        selects(SQL.find_nobody, SQL.find_roles),
    ),
)
