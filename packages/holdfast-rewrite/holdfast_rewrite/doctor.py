"""The doctor's check of the complaint rewrite."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from holdfast.clock import ms, read_instant
from holdfast.operate.doctor.finding import RUN, CheckContext, Finding, Severity, last_of
from holdfast.operate.doctor.finding import SQL as DOCTOR
from holdfast.operate.plural import counted
from holdfast.store import Statements
from holdfast_rewrite.enums import ORCHESTRATOR_RUN as ORCHESTRATOR

SQL = Statements("holdfast_rewrite", "doctor.sql")
OK, PROBLEM = Severity.OK, Severity.PROBLEM

# The orchestrator runs every minute.
PATIENCE = timedelta(minutes=30)


def check_rewrites(context: CheckContext) -> Iterator[Finding]:
    """Check for requests that the orchestrator should have continued."""
    limits = context.limits
    (row,) = context.many(SQL.count_left, age_ms=ms(PATIENCE), limit=limits.count)
    yield from _check_held(context)
    if not row["requests"]:
        yield Finding("rewrites", OK, "No rewrite is overdue.")
        return
    ran = {
        run["name"]: run["started_at"]
        for run in context.many(DOCTOR.find_last_runs, runs=[{"name": ORCHESTRATOR}])
    }
    yield Finding(
        "rewrites",
        PROBLEM,
        f"{counted(row['requests'], 'rewrite waits', 'rewrites wait')} for the orchestrator since"
        f" {read_instant(row['since']):%F %T} UTC; {last_of(ORCHESTRATOR, ran)}.",
        RUN.format(name=ORCHESTRATOR),
        {"requests": row["requests"]},
    )


def _check_held(context: CheckContext) -> Iterator[Finding]:
    """Report rewrites that wait for a person for longer than the settings allow."""
    patience = timedelta(hours=context.settings.rewrite.held_alert_hours)
    (row,) = context.many(SQL.count_held, age_ms=ms(patience), limit=context.limits.count)
    if row["rewrites"]:
        yield Finding(
            "rewrites",
            PROBLEM,
            f"{counted(row['rewrites'], 'rewrite')} held for review, the oldest since"
            f" {read_instant(row['since']):%F %T} UTC.",
            "Decide them: holdfast rewrite held list.",
            {"held": row["rewrites"]},
        )
