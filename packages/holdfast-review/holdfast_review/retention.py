"""Retention of reviews: findings and recipients are kept for a configured time.

The change is an artifact and the messages are deliveries; both have their own retention. Only
reviews that have ended are erased. The pass is bounded and idempotent.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from holdfast.actor import Actor, ActorType
from holdfast.clock import ms
from holdfast.engine.audit import Deed, record_actions
from holdfast.engine.periodic_task import RunBudget
from holdfast.engine.runs import Application
from holdfast.store import Store, Tx
from holdfast_review.erase import SQL, forget_reviews

RUN = "review_retention"
RETENTION = Actor(ActorType.SYSTEM, RUN)
BITE = 500


def forget_once(store: Store, *, keep: timedelta, limit: int) -> int:
    """Erase up to *limit* reviews that ended *keep* ago; return how many."""

    def work(tx: Tx) -> int:
        gone = tx.many(SQL.list_overdue, keep_ms=ms(keep), limit=limit)
        if gone:
            forget_reviews(tx, gone)
            record_actions(
                tx,
                [
                    Deed(
                        RETENTION,
                        row["org_id"],
                        f"review:{row['review_id']}",
                        "review.forgotten",
                        {},
                    )
                    for row in gone
                ],
            )
        return len(gone)

    return store.write(work)


class RetentionTask:
    """The run ``review_retention``."""

    eligible_statuses: Sequence[str] = ("completed", "failed", "canceled")

    def __init__(self, app: Application) -> None:
        self.app = app

    @property
    def keep(self) -> timedelta:
        return timedelta(days=self.app.settings.review.keep_findings_days)

    def count_pending(self, budget: RunBudget) -> int:
        asked = {"keep_ms": ms(self.keep), "most": budget.profile.max_jobs_per_run}
        return int(self.app.store.read(lambda tx: tx.one(SQL.count_overdue, **asked))["reviews"])

    def perform(self, budget: RunBudget) -> None:
        while budget.may_continue and budget.left > 0:
            taken = forget_once(self.app.store, keep=self.keep, limit=min(BITE, budget.left))
            budget.counts.claimed += taken
            budget.counts.outcomes["completed"] += taken
            if taken == 0:
                return
