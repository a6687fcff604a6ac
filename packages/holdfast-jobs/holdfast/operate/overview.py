"""The state of the system at a glance: failed, held and waiting work, and throughput.

Every read is bounded. It takes a fixed number of statements, each of which reads a limited number
of rows by an index, and PostgreSQL stops one that takes longer than two seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from holdfast.arguments import checked, instance, text
from holdfast.clock import read_instant
from holdfast.document import decode
from holdfast.operate.authorization import Action, OperatorContext
from holdfast.operate.jobs import JobFilter, JobRow
from holdfast.operate.locate import locate_job
from holdfast.operate.page import NEWEST, Page, check_limit, read_id
from holdfast.operate.refusal import InvalidAction
from holdfast.store import Row, Statements, Tx

SQL = Statements("holdfast.operate", "overview.sql")

T = TypeVar("T")

BOUND = 10_000
"""The counting limit: a count with this value means "at least this many"."""
BUDGET = 50_000
"""How many ready jobs the backlogs of all tenants count together."""
EVENTS = 20_000
"""The number of audit events that the throughput is counted from."""
REACH = 5_000
"""The number of rows that one page of a search reads."""
MINUTES = 60
DEEPEST = 200
_OUTCOMES = ("succeeded", "retried", "deadlettered")


@dataclass(frozen=True, slots=True)
class LetterGroup:
    """Open dead letters with the same cause, by state."""

    job_type: str
    error_class: str
    letters: int
    tenants: int
    escalated: int
    oldest_at: datetime
    newest_at: datetime
    states: Mapping[str, int]
    # The kinds that triage gave them.
    kinds: frozenset[str]


@dataclass(frozen=True, slots=True)
class HeldGroup:
    """Held deliveries with the same channel and reason."""

    channel: str
    reason: str | None
    deliveries: int
    oldest_at: datetime


@dataclass(frozen=True, slots=True)
class TenantBacklog:
    """The ready jobs of one tenant in one queue, and how long the next one has been ready.

    With *is_capped* there are at least this many.
    """

    queue: str
    org_id: str
    jobs: int
    ready_at: datetime | None
    is_capped: bool = False


@dataclass(frozen=True, slots=True)
class RunningCount:
    """The running jobs of one tenant in one queue."""

    queue: str
    org_id: str
    jobs: int


@dataclass(frozen=True, slots=True)
class Depth:
    """The jobs of one queue. Counts of deferred and running jobs stop at :data:`BOUND`."""

    queue: str
    ready: int
    deferred: int
    running: int
    tenants: int
    ready_at: datetime | None
    # Whether there are at least so many ready jobs.
    is_capped: bool = False


@dataclass(frozen=True, slots=True)
class Throughput:
    """Outcomes of attempts by minute, oldest first. *whole* is False if only a part was read."""

    now: datetime
    succeeded: tuple[int, ...]
    retried: tuple[int, ...]
    deadlettered: tuple[int, ...]
    whole: bool


@dataclass(frozen=True, slots=True)
class StageView:
    """One stage of a job, without its result, which may be private."""

    stage: str
    attempts: int | None
    progress: Any
    updated_at: datetime
    finished_at: datetime | None


@checked(
    InvalidAction,
    checks={"before": text, "wanted": instance(JobFilter)},
)
class Overview:
    """The state of the system for the actor of *context*."""

    def __init__(self, context: OperatorContext) -> None:
        self.context = context

    def dead_letters(self, *, org_id: str | None = None) -> tuple[LetterGroup, ...]:
        """Open dead letters grouped by job type and error class, the largest group first."""
        tenant = self._tenant(org_id)
        rows = self._read(lambda tx: tx.many(SQL.group_letters, org_id=tenant, bound=BOUND))
        groups: dict[tuple[str, str], list[Row]] = {}
        for row in rows:
            groups.setdefault((row["job_type"], row["error_class"]), []).append(row)
        found = [_letter_group(*cause, some) for cause, some in groups.items()]
        return tuple(sorted(found, key=lambda group: -group.letters))

    def held_deliveries(self, *, org_id: str | None = None) -> tuple[HeldGroup, ...]:
        """Held deliveries grouped by channel and reason, the largest group first."""
        tenant = self._tenant(org_id)
        rows = self._read(lambda tx: tx.many(SQL.group_held, org_id=tenant, bound=BOUND))
        return tuple(
            HeldGroup(
                row["channel"], row["reason"], row["deliveries"], read_instant(row["oldest_at"])
            )
            for row in rows
        )

    def backlogs(self, *, org_id: str | None = None) -> tuple[TenantBacklog, ...]:
        """Ready jobs by queue and tenant; the one that waits longest first."""
        tenant = self._tenant(org_id)
        asked = self._queues()
        rows = self._read(lambda tx: _backlogs(tx, asked, tenant))
        found = _joined(rows)
        return tuple(sorted(found, key=lambda one: (one.ready_at is None, one.ready_at)))

    def running(self, *, org_id: str | None = None) -> tuple[RunningCount, ...]:
        """Running jobs by queue and tenant."""
        tenant = self._tenant(org_id)
        rows = self._read(lambda tx: tx.many(SQL.count_running, org_id=tenant, bound=BOUND))
        return tuple(RunningCount(row["queue"], str(row["org_id"]), row["jobs"]) for row in rows)

    def depths(self) -> tuple[Depth, ...]:
        """Ready, deferred and running jobs of each queue, in order of names."""
        self.context.check(Action.LOOK, org_id=None, subject="overview")
        asked = self._queues()

        def work(tx: Tx) -> tuple[list[Row], list[Row], list[Row]]:
            return (
                _backlogs(tx, asked, None),
                tx.many(SQL.count_deferred, queues=asked, bound=BOUND),
                tx.many(SQL.count_running, org_id=None, bound=BOUND),
            )

        ready, deferred, running = self._read(work)
        waiting = _joined(ready)
        later = {row["queue"]: row["jobs"] for row in deferred}
        found = []
        for name in sorted(one["name"] for one in asked):
            own = [one for one in waiting if one.queue == name]
            times = [one.ready_at for one in own if one.ready_at is not None]
            found.append(
                Depth(
                    name,
                    sum(one.jobs for one in own),
                    later.get(name, 0),
                    sum(row["jobs"] for row in running if row["queue"] == name),
                    len(own),
                    min(times, default=None),
                    any(one.is_capped for one in own),
                )
            )
        return tuple(found)

    def throughput(self, *, org_id: str | None = None) -> Throughput:
        """Succeeded, retried and dead-lettered attempts of the last hour, by minute."""
        tenant = self._tenant(org_id)

        def work(tx: Tx) -> tuple[list[Row], Row | None]:
            rows = tx.many(SQL.count_outcomes, org_id=tenant, bound=EVENTS)
            return rows, tx.maybe(SQL.find_reach, bound=EVENTS)

        rows, reach = self._read(work)
        now = self.context.app.clock.now()
        counts = {name: [0] * MINUTES for name in _OUTCOMES}
        for row in rows:
            ago = int(row["minutes_ago"])
            if 0 <= ago < MINUTES:
                counts[row["name"].removeprefix("job.")][MINUTES - 1 - ago] += row["events"]
        is_whole = reach is None or (now - read_instant(reach["at"])).total_seconds() > 3600
        succeeded, retried, deadlettered = (tuple(counts[name]) for name in _OUTCOMES)
        return Throughput(now, succeeded, retried, deadlettered, is_whole)

    def search(
        self,
        wanted: JobFilter | None = None,
        *,
        limit: int = 50,
        before: str | None = None,
    ) -> Page[JobRow]:
        """Jobs that match, newest first. One page reads a bounded number of rows.

        A page may therefore be short, or empty, although *next* continues the search.
        """
        wanted = (wanted or JobFilter()).check()
        org_id = self.context.tenant_for(Action.LOOK, wanted.org_id, subject="jobs")
        filters = {
            "state": wanted.state,
            "job_type": wanted.job_type,
            "queue": wanted.queue,
            "error_class": wanted.error_class,
        }
        at = {"before": _place(before, org_id)}
        params = {**filters, **at, "limit": check_limit(limit) + 1}
        is_filtered = any(value is not None for value in filters.values())
        reach = REACH if is_filtered else params["limit"]

        def work(tx: Tx) -> tuple[list[Row], Any]:
            if org_id is not None:
                own = {"org_id": org_id, "reach": reach}
                end = tx.maybe(SQL.find_search_end, **at, **own)
                found = tx.many(SQL.search_jobs, **params, **own)
                return found, None if end is None else end["place"]
            read = tx.one(SQL.find_search_rows, **at, reach=reach)
            if read["last"] is None:
                return [], None
            rows = {name: read[name] for name in ("first", "last")}
            found = tx.many(SQL.search_all_jobs, **params, **rows)
            return found, read["first"] if read["has_more"] else None

        rows, end = self._read(work)
        following = None if end is None else str(end)
        if len(rows) > limit:
            following = str(rows[limit - 1]["place"])
        return Page(tuple(JobRow.from_row(row) for row in rows[:limit]), following)

    def stages(self, job_id: str) -> tuple[StageView, ...]:
        """The stages of a job and their progress. Raises JobNotFound for another tenant's."""
        org_id, job_id = locate_job(self.context, Action.LOOK, job_id)
        key = {"org_id": org_id, "job_id": job_id}
        rows = self._read(lambda tx: tx.many(SQL.list_stages, **key))
        return tuple(
            StageView(
                row["stage"],
                row["attempts"],
                None if row["progress"] is None else decode(row["progress"]),
                read_instant(row["updated_at"]),
                None if row["finished_at"] is None else read_instant(row["finished_at"]),
            )
            for row in rows
        )

    def _tenant(self, org_id: str | None) -> str | None:
        return self.context.tenant_for(Action.LOOK, org_id, subject="overview")

    def _queues(self) -> list[dict[str, str]]:
        app = self.context.app
        names = {*app.known_queues, *app.queues.rules().queues} - {"q:deadletter"}
        return [{"name": name} for name in sorted(names)]

    def _read(self, work: Callable[[Tx], T]) -> T:
        def bounded(tx: Tx) -> T:
            tx.one(SQL.bound_reading)
            return work(tx)

        return self.context.store.read(bounded)


def _backlogs(tx: Tx, queues: Sequence[Mapping[str, str]], org_id: str | None) -> list[Row]:
    limits = {"bound": BOUND, "budget": BUDGET, "deepest": DEEPEST}
    return tx.many(SQL.list_backlogs, queues=queues, org_id=org_id, **limits)


def _joined(rows: Sequence[Row]) -> list[TenantBacklog]:
    """Join the backlogs of one tenant in one queue, which limit keys divide."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["queue"], str(row["org_id"])), []).append(row)
    found = []
    for (queue, org_id), some in groups.items():
        times = [read_instant(row["ready_at"]) for row in some if row["ready_at"] is not None]
        jobs = sum(row["jobs"] for row in some)
        is_capped = any(row["jobs"] >= row["bound"] for row in some)
        found.append(TenantBacklog(queue, org_id, jobs, min(times, default=None), is_capped))
    return found


def _letter_group(job_type: str, error_class: str, rows: Sequence[Row]) -> LetterGroup:
    states: dict[str, int] = {}
    for row in rows:
        states[row["state"]] = states.get(row["state"], 0) + row["letters"]
    return LetterGroup(
        job_type,
        error_class,
        sum(states.values()),
        max(row["tenants"] for row in rows),
        sum(row["escalated"] for row in rows),
        min(read_instant(row["oldest_at"]) for row in rows),
        max(read_instant(row["newest_at"]) for row in rows),
        states,
        frozenset(row["kind"] for row in rows if row["kind"] is not None),
    )


def _place(before: str | None, org_id: str | None) -> str | int:
    """Parse the cursor of a search; raises InvalidAction."""
    if org_id is not None:
        return NEWEST if before is None else read_id("before", before)
    if before is None:
        return 2**62
    if not (before.isascii() and before.isdigit() and len(before) < 19):
        raise InvalidAction({"before": "must be the value of next from the previous page"})
    return int(before)
