"""What became of every job that was accepted: asked of the database, not remembered."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from holdfast.demo.app import hf
from holdfast.demo.waits import SQL, Fairness, measure
from holdfast.engine.job import State
from holdfast.store import Store


@dataclass(frozen=True, slots=True)
class Verdict:
    """The demo's accounts. ``problems`` is empty when everything is as promised."""

    enqueued: int
    executions: int
    completed: int
    completed_once: int
    retried: int
    brought_back: int
    deadlettered: int
    lost: int
    doubled: int
    tampered: int
    fairness: Fairness
    problems: tuple[str, ...]

    @property
    def lines(self) -> list[tuple[str, int, str]]:
        """The summary as rows: what, how many, and what that means."""
        return [
            ("enqueued", self.enqueued, "accepted, each under its own key"),
            ("executions", self.executions, "at least once each; more after a kill or retry"),
            ("completed", self.completed_once, "one recorded outcome each"),
            ("retried", self.retried, "failed once, worked the second time"),
            ("brought back", self.brought_back, "from the worker that was killed"),
            ("dead-lettered", self.deadlettered, "a bug in the handler: kept, not tried again"),
            ("lost", self.lost, "accepted and not ended"),
            ("doubled", self.doubled, "ended more than once"),
            ("tampered", self.tampered, "places where the sealed audit was changed"),
        ]


def judge(store: Store, accepted: Set[str]) -> Verdict:
    """Hold what was accepted against what the job table and the audit say."""
    rows = store.read(lambda tx: tx.many(SQL.list_accounts))
    letters = store.read(lambda tx: tx.one(SQL.count_letters))["letters"]
    mine = [row for row in rows if row["id"] in accepted]
    completed = [row for row in mine if row["state"] == State.COMPLETED]
    ended = [row for row in mine if row["ends"] >= 1 and State.read(row["state"]).is_terminal]
    fairness = measure(store)
    counts = {
        "enqueued": len(accepted),
        "executions": sum(row["starts"] for row in mine),
        "completed": len(completed),
        "completed_once": sum(1 for row in completed if row["successes"] == row["ends"] == 1),
        "retried": sum(1 for row in completed if row["failures"]),
        "brought_back": sum(1 for row in mine if row["crashes"]),
        "deadlettered": sum(1 for row in mine if row["state"] == State.FAILED),
        "lost": len(accepted) - len(ended),
        "doubled": sum(1 for row in mine if row["ends"] > 1),
        "tampered": _count_tampering(),
    }
    rules = {
        "every accepted job is in the database": len(mine) == len(rows) == len(accepted),
        "nothing is lost": counts["lost"] == 0,
        "nothing is doubled": counts["doubled"] == 0,
        "every completed job has one recorded outcome": (
            counts["completed"] == counts["completed_once"] > 0
        ),
        "only the job with a bug is dead": counts["deadlettered"] == letters == 1,
        "all others are completed": counts["completed"] == len(accepted) - 1,
        "the flaky upstream was asked again": counts["retried"] >= 1,
        "the killed worker's jobs came back": counts["brought_back"] >= 1,
        "the quiet tenants waited much less than the flood": fairness.holds,
        "the audit is as it was sealed": counts["tampered"] == 0,
    }
    problems = tuple(name for name, holds in rules.items() if not holds)
    return Verdict(**counts, fairness=fairness, problems=problems)


def _count_tampering() -> int:
    """Seal all audit events and verify them. Without the extension there is nothing to verify."""
    if hf.extensions.find_named("seal") is None:
        return 0
    admin = hf.operate(actor="user:demo", role="admin")
    admin.audit.seal()
    return sum(1 for _ in admin.audit.verify())
