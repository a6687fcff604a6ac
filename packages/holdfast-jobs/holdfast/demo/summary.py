"""The counts at the end: of the jobs from the database, and those that the acts reported."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

from holdfast.demo.acts import TOTALS, ActState, Count
from holdfast.demo.app import hf
from holdfast.demo.waits import SQL, Fairness, measure
from holdfast.engine.job import State
from holdfast.store import Store


@dataclass(frozen=True, slots=True)
class Summary:
    """The counts of the demo. ``problems`` is empty if everything held."""

    enqueued: int
    executions: int
    completed: int
    completed_once: int
    retried: int
    rescued: int
    deadlettered: int
    lost: int
    doubled: int
    tampered: int
    fairness: Fairness
    problems: tuple[str, ...]
    acts: tuple[ActState, ...] = ()

    @property
    def lines(self) -> list[Count]:
        """The counts of the jobs."""
        return [
            Count("enqueued", self.enqueued, "accepted jobs"),
            Count(
                "executions", self.executions, "at least one per job, more after a kill or retry"
            ),
            Count("completed", self.completed_once, "one recorded outcome each"),
            Count("retried", self.retried, "failed once, succeeded on the second attempt"),
            Count("rescued", self.rescued, "claimed by the killed worker, run by the other"),
            Count("dead-lettered", self.deadlettered, "a bug in the handler, not retried"),
            Count("lost", self.lost, "accepted without an outcome"),
            Count("doubled", self.doubled, "more than one outcome"),
            Count("tampered", self.tampered, "events that differ from the sealed audit"),
        ]

    @property
    def totals(self) -> str:
        """The counts that must be 0, over the jobs and all acts: ``lost 0, doubled 0``."""
        counts = [*self.lines, *(count for act in self.acts for count in act.counts)]
        sums = {
            name: sum(count.count for count in counts if count.name == name)
            for name in TOTALS
            if any(count.name == name for count in counts)
        }
        return ", ".join(f"{name} {total:,}" for name, total in sums.items())

    def with_acts(self, acts: Sequence[ActState]) -> Summary:
        """The summary with the counts and problems of the acts."""
        problems = [problem for act in acts for problem in act.problems]
        problems += [
            f"{act.title}: {count.name} is 0, not {count.count}"
            for act in acts
            for count in act.counts
            if count.name in TOTALS and count.count
        ]
        return replace(self, acts=tuple(acts), problems=(*self.problems, *problems))


def summarize(store: Store, accepted: Set[str]) -> Summary:
    """Compare the accepted jobs with the stored jobs and the audit."""
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
        "rescued": sum(1 for row in mine if row["crashes"]),
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
        "only the job with a bug is dead-lettered": counts["deadlettered"] == letters == 1,
        "all others are completed": counts["completed"] == len(accepted) - 1,
        "the job with the unavailable upstream was retried": counts["retried"] >= 1,
        "the jobs of the killed worker were rescued": counts["rescued"] >= 1,
        "the quiet tenants waited much less than the flood": fairness.holds,
        "the audit matches its seals": counts["tampered"] == 0,
    }
    problems = tuple(name for name, holds in rules.items() if not holds)
    return Summary(**counts, fairness=fairness, problems=problems)


def _count_tampering() -> int:
    """Seal all audit events and verify them. Without the extension there is nothing to verify."""
    if hf.extensions.find_named("seal") is None:
        return 0
    admin = hf.operate(actor="user:demo", role="admin")
    admin.audit.seal()
    return sum(1 for _ in admin.audit.verify())
