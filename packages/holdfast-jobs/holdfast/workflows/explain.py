"""Why a job waits for an event, for ``holdfast explain``."""

from __future__ import annotations

from holdfast.clock import read_instant
from holdfast.engine.job import State
from holdfast.operate.explanation import ExtensionReasons, Reason, Situation, utc
from holdfast.store import Tx
from holdfast.workflows.wait import SLEEP, SQL


def explain_wait(tx: Tx, situation: Situation) -> ExtensionReasons | None:
    """The event or the time that a queued job waits for."""
    if situation.state is not State.QUEUED or situation.job["not_before_at"] is None:
        return None
    first = situation.job["replay_of"] or situation.job["id"]
    rows = tx.many(SQL.list_waits, org_id=situation.job["org_id"], job_id=first)
    held = next((row for row in rows if row["state"] == "waiting"), None)
    if held is None:
        return None
    until = None if held["deadline_at"] is None else read_instant(held["deadline_at"])
    job_id = situation.job["id"]
    if held["name"] == SLEEP:
        line = f"Job {job_id} sleeps until {utc(until)}."
        then = "It continues at that time."
    else:
        limit = "" if until is None else f", until {utc(until)}"
        line = f"Job {job_id} waits for the event {held['name']!r}{limit}."
        then = f"Send it: holdfast events send {held['name']} --job {job_id}"
    found = situation.explain(Reason.AWAITS_EVENT, line, then, until, event=held["name"])
    return ExtensionReasons(before=found)
