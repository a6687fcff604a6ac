"""Explain: the reason for a job's state, and what has to happen next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from holdfast.clock import read_instant
from holdfast.config import Settings
from holdfast.config.extensions import built_in_run
from holdfast.document import decode
from holdfast.engine.job import State
from holdfast.engine.worker.heartbeat import list_workers
from holdfast.errors import JobNotFound
from holdfast.extension import Extension
from holdfast.operate.authorization import Action, OperatorContext
from holdfast.operate.dead_letter import DeadLetter
from holdfast.operate.explanation import (
    NO_REASONS,
    Explanation,
    ExtensionReasons,
    Reason,
    Situation,
)
from holdfast.operate.locate import locate_job
from holdfast.operate.reason import reason_of
from holdfast.operate.replay import SQL as LETTERS
from holdfast.operate.waiting import AHEAD
from holdfast.store import Row, Statements, Tx
from holdfast.store.read_limit import shared_reads

SQL = Statements("holdfast.operate", "explain.sql")

# Late cancel requests for an ended job are events too; this many are skipped.
TURNS = 50

__all__ = ["Explanation", "Reason", "explain_job"]


def explain_job(context: OperatorContext, job_id: str) -> Explanation:
    """Explain a job's state. Raises JobNotFound for another tenant's job."""
    org_id, job_id = locate_job(context, Action.LOOK, job_id)
    extensions = context.migrated_extensions

    def work(tx: Tx) -> tuple[Situation, ExtensionReasons]:
        situation = look_at(tx, context.settings, org_id, job_id)
        return situation, _ask(tx, situation, extensions)

    # The answer depends on workers, on the rules of queues and on the jobs before it.
    with shared_reads():
        return reason_of(*context.store.read(work))


def _ask(tx: Tx, situation: Situation, extensions: Sequence[Extension]) -> ExtensionReasons:
    """Return the reasons of the first extension that knows the job."""
    for extension in extensions:
        reasons = extension.explain(tx, situation)
        if reasons is not None and reasons != NO_REASONS:
            return reasons
    return NO_REASONS


def look_at(tx: Tx, settings: Settings, org_id: str, job_id: str) -> Situation:
    """Read everything about a job, in a fixed number of statements on one snapshot."""
    job = tx.maybe(SQL.find_subject, org_id=org_id, id=job_id)
    if job is None:
        raise JobNotFound(job_id)
    known: dict[str, Any] = {
        "turns": tx.many(SQL.list_turns, org_id=org_id, id=job_id, limit=TURNS),
        "workers": list_workers(tx),
        "deliveries": _list_deliveries(tx, org_id, job_id),
    }
    match Situation(job, settings).state:
        case State.QUEUED:
            known |= _look_around(tx, Situation(job, settings))
        case State.FAILED:
            # The failure of a replay is recorded in the dead letter of the original job.
            of = {"org_id": org_id, "job_id": job["replay_of"] or job_id}
            letter, replay = tx.maybe(LETTERS.find_letter, **of), tx.maybe(SQL.find_replay, **of)
            known["letter"] = None if letter is None else DeadLetter.from_row(letter)
            known["replay_job_id"] = None if replay is None else replay["replay_job_id"]
        case _:
            pass
    return Situation(job, settings, **known)


def _list_deliveries(tx: Tx, org_id: str, job_id: str) -> list[Row]:
    """Return the unsent deliveries that the job intended or was enqueued for."""
    own = {"org_id": org_id, "id": job_id}
    found = tx.maybe(SQL.find_posted, **own)
    ids = [] if found is None else decode(found["payload"]).get("deliveries", [])
    return tx.many(SQL.count_deliveries, **own, posted=[{"delivery_id": str(one)} for one in ids])


def _look_around(tx: Tx, waiting: Situation) -> dict[str, Any]:
    """Read the limits, workers and jobs that may hold up a waiting job."""
    job = waiting.job
    lane = {"queue": waiting.queue, "org_id": job["org_id"], "limit_key": job["limit_key"]}
    ahead = 0
    # A due job that is not promoted yet has no position in its backlog.
    if job["not_before_at"] is None:
        ahead = tx.one(SQL.count_ahead, **lane, turn=job["turn"], limit=AHEAD)["ahead"]
    return {
        "limits": tx.one(SQL.find_limits, **lane),
        "running": tx.one(SQL.count_running, **lane),
        "ahead": ahead,
        "runs": _runs_of(tx, waiting),
    }


def _runs_of(tx: Tx, waiting: Situation) -> Mapping[str, datetime | None]:
    """Return the runs that would claim the job, and when each is due."""
    names = _runs_for(waiting)
    if not names:
        return {}
    rows = tx.many(SQL.find_next_runs, runs=[{"name": name} for name in names])
    due = {row["run_name"]: read_instant(row["next_fire_at"]) for row in rows}
    return {name: due.get(name) for name in names}


def _runs_for(waiting: Situation) -> list[str]:
    return [
        name
        for name, run in waiting.settings.runs.items()
        # A built-in run or a run of an extension claims no other jobs.
        if built_in_run(name) is None
        and waiting.queue in run.queues
        and (not run.job_types or waiting.job["job_type"] in run.job_types)
    ]
