"""Cancel many jobs by filter, with a dry run. Each job is canceled like a single one.

Pages follow the primary key of the jobs, and each page is one transaction with a fixed number of
statements.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from holdfast.actor import Role
from holdfast.clock import read_instant, write_instant
from holdfast.engine.audit import JOB_SQL, PLATFORM_ORG, Deed, record_actions
from holdfast.engine.cancel import CancelAnswer, may_cancel, request_cancels
from holdfast.engine.job import State
from holdfast.errors import Forbidden
from holdfast.operate.admit import admit
from holdfast.operate.authorization import Action, OperatorContext
from holdfast.operate.bulk_page import BulkCount, BulkPage
from holdfast.operate.cancel import LONGEST_REASON
from holdfast.operate.page import NEWEST, read_id
from holdfast.operate.refusal import InvalidAction
from holdfast.store import Row, Statements, Tx

if TYPE_CHECKING:
    from holdfast.operate.jobs import JobFilter

SQL = Statements("holdfast.operate", "cancel_all.sql")
OVERVIEW_SQL = Statements("holdfast.operate", "overview.sql")

SUBJECT = "jobs"
LONGEST = 10_000
# How many jobs a count reads at most of each part of the unfinished jobs, and a page of all jobs.
REACH = 10_000
PAGE = 500
REFUSED = "refused"
_FIRST_ID = "00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True, slots=True)
class CancelAllAnswer:
    """The result of a bulk cancel; for a dry run, how many jobs match.

    *is_capped* means that the counting stopped, so more jobs may match.
    """

    is_dry_run: bool
    matched: int
    is_capped: bool
    done: int = 0
    requested: int = 0
    too_late: int = 0
    refused: int = 0


def cancel_matching(
    context: OperatorContext, wanted: JobFilter, *, reason: str, is_dry_run: bool, limit: int
) -> CancelAllAnswer:
    """Cancel the jobs that match *wanted*, at most *limit* of them."""
    if not 1 <= limit <= LONGEST:
        raise InvalidAction({"limit": f"must be from 1 to {LONGEST}"})
    pages = cancel_pages(context, wanted, reason=reason)
    found = pages.count()
    answer = CancelAllAnswer(is_dry_run, found.matched, found.is_capped)
    if is_dry_run:
        return answer
    counts: Counter[str] = Counter()
    cursor: str | None = pages.first_cursor()
    while cursor is not None and counts.total() < limit:
        left, at = limit - counts.total(), cursor
        page = context.store.write(lambda tx, at=at, left=left: pages.act(tx, at, left))  # type: ignore[misc]
        counts.update(page.counts)
        cursor = page.next
    return CancelAllAnswer(
        is_dry_run,
        answer.matched,
        answer.is_capped,
        counts[CancelAnswer.CANCELED],
        counts[CancelAnswer.REQUESTED],
        counts[CancelAnswer.TOO_LATE],
        counts[REFUSED],
    )


def cancel_pages(
    context: OperatorContext,
    wanted: JobFilter,
    *,
    reason: str,
    detail: Mapping[str, Any] | None = None,
    without: str | None = None,
) -> CancelPages:
    """Return the pages of a cancel that *context* may do. The job *without* is left out."""
    wanted = wanted.check()
    org_id = context.tenant_for(Action.CANCEL, wanted.org_id, subject=SUBJECT)
    if wanted == type(wanted)():
        raise InvalidAction({"filter": "is empty and would match everything; name a condition"})
    if wanted.state is not None and State(wanted.state).is_terminal:
        raise InvalidAction({"state": f"{wanted.state} jobs cannot be canceled"})
    if org_id is None and context.role is not Role.ADMIN:
        refusal = Forbidden(
            "cancel across tenants requires the role admin; pass org_id for one tenant."
        )
        context.refuse(Action.CANCEL, refusal, org_id=None, subject=SUBJECT)
    reason = admit(
        context, Action.CANCEL, reason, org_id=org_id, subject=SUBJECT, longest=LONGEST_REASON
    )
    return CancelPages(context, wanted, org_id, reason, detail or {}, without)


@dataclass(frozen=True, slots=True)
class CancelPages:
    """The pages of a bulk cancel."""

    context: OperatorContext
    wanted: JobFilter
    org_id: str | None
    reason: str
    detail: Mapping[str, Any] = field(default_factory=dict)
    without: str | None = None
    name: str = Action.CANCEL
    subject: str = SUBJECT

    def count(self) -> BulkCount:
        """Count the jobs that match, within a bounded number of reads."""
        wanted = self.wanted
        params: dict[str, Any] = {
            "state": wanted.state,
            "job_type": wanted.job_type,
            "queue": wanted.queue,
            "error_class": wanted.error_class,
            "reach": REACH,
        }

        def work(tx: Tx) -> list[Row]:
            tx.one(OVERVIEW_SQL.bound_reading)
            if self.org_id is not None:
                return tx.many(SQL.count_unfinished_of, **params, org_id=self.org_id)
            return tx.many(SQL.count_unfinished, **params)

        rows = self.context.store.read(work)
        matched = sum(int(row["jobs"]) for row in rows)
        is_capped = any(row["seen"] >= REACH for row in rows)
        return BulkCount(matched, matched, is_capped)

    def first_cursor(self) -> str:
        """The cursor before the first job; jobs that are created later are left out."""
        now = read_instant(self.context.store.one(SQL.find_end)["now"])
        # Written instants have no microseconds.
        until = write_instant(now + timedelta(milliseconds=1))
        return f"{until}/{self.org_id or PLATFORM_ORG}/{_FIRST_ID}"

    def act(self, tx: Tx, cursor: str, limit: int = PAGE) -> BulkPage:
        """Cancel the matching jobs of one page, at most *limit* of them."""
        until, after_org, after_id = _read_cursor(cursor)
        place = {"after_org": after_org, "after_id": after_id, "last_org": self.org_id or NEWEST}
        rows = tx.many(SQL.page_jobs, **place, until=until, limit=PAGE, reach=REACH)
        # A page with fewer jobs has read all that it may.
        end = rows[-1] if len(rows) >= PAGE else tx.maybe(SQL.find_page_end, **place, reach=REACH)
        matching = list(filter(self._matches, rows))
        if len(matching) > limit:
            matching = matching[:limit]
            end = matching[-1]
        counts: Counter[str] = Counter()
        who: dict[str, Any] = {"actor": self.context.actor}
        allowed, refused = list[Row](), list[Row]()
        rule = {**who, "role": self.context.role, "registry": self.context.registry}
        named = [{"org_id": row["org_id"], "id": row["id"]} for row in matching]
        for row in tx.many(JOB_SQL.list_cancelable, jobs=named) if named else ():
            (allowed if may_cancel(row, **rule) else refused).append(row)
        if allowed:
            detail = {"filter": self._filter, **self.detail}
            made = request_cancels(tx, allowed, **who, reason=self.reason, detail=detail)
            counts.update(made.values())
        if refused:
            counts[REFUSED] = len(refused)
            record_actions(tx, [self._refusal(row) for row in refused])
        following = None if end is None else f"{until}/{end['org_id']}/{end['id']}"
        return BulkPage(following, {str(name): found for name, found in counts.items()})

    def finish(self) -> None:
        """Nothing follows."""

    def _matches(self, row: Row) -> bool:
        wanted = self.wanted
        return (
            row["finished_at"] is None
            and row["cancel_requested_at"] is None
            and bool(row["is_earlier"])
            and str(row["id"]) != self.without
            and wanted.state in (None, row["state"])
            and wanted.job_type in (None, row["job_type"])
            and wanted.queue in (None, row["queue"])
            and wanted.error_class in (None, row["error_class"])
        )

    @property
    def _filter(self) -> str:
        return str(self.wanted)

    def _refusal(self, row: Row) -> Deed:
        detail = {"action": Action.CANCEL, "role": self.context.role, "why": Forbidden.__name__}
        subject = f"job:{row['id']}"
        return Deed(self.context.actor, str(row["org_id"]), subject, "operator.refused", detail)


def _read_cursor(cursor: str) -> tuple[str, str, str]:
    until, _, key = cursor.partition("/")
    org_id, _, job_id = key.partition("/")
    try:
        read_instant(until)
    except ValueError:
        raise InvalidAction({"cursor": "must be one of this bulk action"}) from None
    return until, read_id("cursor", org_id), read_id("cursor", job_id)
