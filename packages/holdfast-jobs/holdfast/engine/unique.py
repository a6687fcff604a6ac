"""Jobs that are unique while they wait or run, and jobs with a deadline: how they are written.

An enqueue locks the row of its unique key before it looks at the job that holds the key, so two
concurrent enqueues with one key run one after the other. A job that is replaced is canceled as
superseded: a stored payload never changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from holdfast.clock import read_instant, write_instant
from holdfast.document import encode
from holdfast.engine import audit
from holdfast.engine.job import SYSTEM
from holdfast.engine.request import InsertRows
from holdfast.engine.unique_key import UniqueKey
from holdfast.store import Row, Statements
from holdfast.store.caller_connection import Steps

SQL = Statements("holdfast.engine", "unique.sql")
JOB_SQL = Statements("holdfast.engine", "job.sql")

SUPERSEDED = "superseded"

A = TypeVar("A")


@dataclass(slots=True)
class FlowChanges:
    """What becomes of the jobs of an enqueue: the rows to insert, and the answers for the others.

    *taken* names, for a job that is not inserted, the job of the same enqueue that has its key.
    """

    insert: InsertRows
    held: dict[str, Row] = field(default_factory=dict)
    taken: dict[str, str] = field(default_factory=dict)
    holds: list[dict[str, Any]] = field(default_factory=list)
    superseded: dict[str, str] = field(default_factory=dict)


def has_flow(batch: InsertRows) -> bool:
    """Whether a batch needs more than the insert of its rows."""
    return bool(batch.unique_keys or batch.deadlines)


def plan_steps(batch: InsertRows, *, as_caller: bool) -> Steps[FlowChanges]:
    """Lock the keys of a batch and decide which of its jobs are inserted.

    With *as_caller*, the connection may have only the privileges of a tenant.
    """
    if not batch.unique_keys:
        return FlowChanges(batch)
    chosen, taken = _choose(batch)
    keys = [
        {
            "place": place,
            "org_id": batch.shared_of(job)["org_id"],
            "job_type": batch.shared_of(job)["job_type"],
            "unique_key": batch.unique_keys[job["id"]].text,
            "job_id": job["id"],
        }
        for place, job in enumerate(chosen)
    ]
    if as_caller:
        rows = yield SQL.lock_keys_as_caller, {"keys": encode(keys)}
    else:
        yield SQL.lock_keys, {"keys": keys}
        rows = yield SQL.find_holders, {"keys": keys}
    return _decide(batch, chosen, taken, {row["place"]: row for row in rows})


def _choose(batch: InsertRows) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """One job for each key: the first, or the last if a new job replaces an earlier one."""
    by_key: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for job in batch.jobs:
        key = batch.unique_keys.get(job["id"])
        if key is not None:
            by_key.setdefault((batch.shared_of(job)["org_id"], key.text), []).append(job)
    chosen: list[dict[str, Any]] = []
    taken: dict[str, str] = {}
    for jobs in by_key.values():
        own = jobs[-1] if batch.unique_keys[jobs[-1]["id"]].replaces else jobs[0]
        chosen.append(own)
        taken |= {job["id"]: own["id"] for job in jobs if job is not own}
    return chosen, taken


def _decide(
    batch: InsertRows,
    chosen: Sequence[dict[str, Any]],
    taken: dict[str, str],
    holders: Mapping[int, Row],
) -> FlowChanges:
    changes = FlowChanges(
        InsertRows(has_producer=batch.has_producer, made_at=batch.made_at), taken=taken
    )
    for place, job in enumerate(chosen):
        holder, key = holders[place], batch.unique_keys[job["id"]]
        # The same id: an earlier attempt was committed and only its reply was lost.
        is_own = holder["job_id"] == job["id"]
        is_held = key.is_held(holder["state"], holder["lease_token"])
        if not is_own and is_held and not key.replaces:
            changes.held[job["id"]] = holder
            continue
        if not is_own and is_held:
            changes.superseded[holder["job_id"]] = job["id"]
        changes.holds.append(_hold(batch, job, key, holder if is_held else None))
    due = {hold["job_id"]: hold["due_at"] for hold in changes.holds}
    _add_rows(changes.insert, batch, [job for job in batch.jobs if _is_inserted(job, changes)], due)
    return changes


def _is_inserted(job: Mapping[str, Any], changes: FlowChanges) -> bool:
    return job["id"] not in changes.held and job["id"] not in changes.taken


def _hold(
    batch: InsertRows, job: Mapping[str, Any], key: UniqueKey, holder: Row | None
) -> dict[str, Any]:
    since = None
    if holder is not None and key.replaces:
        since = read_instant(holder["waiting_since"])
    assert batch.made_at is not None
    due_at = key.due_at(batch.made_at, since)
    return {
        "org_id": batch.shared_of(job)["org_id"],
        "job_type": batch.shared_of(job)["job_type"],
        "unique_key": key.text,
        "job_id": job["id"],
        "replaces": key.replaces,
        "waiting_since": None if since is None else write_instant(since),
        "due_at": None if due_at is None else write_instant(due_at),
    }


def _add_rows(
    part: InsertRows,
    batch: InsertRows,
    jobs: Iterable[dict[str, Any]],
    due: Mapping[str, str | None],
) -> None:
    """Add *jobs* with their shared columns; a debounced job gets columns of its own."""
    places: dict[Any, int] = {}
    for job in jobs:
        due_at = due.get(job["id"])
        place = places.setdefault((job["frame"], due_at), len(part.shared))
        if place == len(part.shared):
            frame = {**batch.shared_of(job), "frame": place, "jobs": 0}
            part.shared.append(frame if due_at is None else {**frame, "not_before_at": due_at})
        part.shared[place]["jobs"] += 1
        part.jobs.append({**job, "frame": place})
        if job["id"] in batch.deadlines:
            part.deadlines[job["id"]] = batch.deadlines[job["id"]]


def finish_steps(
    changes: FlowChanges, created: Mapping[str, str], *, as_caller: bool
) -> Steps[list[tuple[str, str, str]]]:
    """Write the keys and deadlines of inserted jobs; cancel the jobs that they supersede.

    *created* are the stored ids by requested id. Returns tenant, id and type of canceled jobs.
    """
    holds = [
        {**hold, "job_id": created[hold["job_id"]]}
        for hold in changes.holds
        if hold["job_id"] in created
    ]
    deadlines = [
        {
            "org_id": changes.insert.shared_of(job)["org_id"],
            "job_id": created[job["id"]],
            "deadline_at": changes.insert.deadlines[job["id"]],
        }
        for job in changes.insert.jobs
        if job["id"] in changes.insert.deadlines and job["id"] in created
    ]
    if as_caller:
        if holds or deadlines:
            given = {"holds": encode(holds), "deadlines": encode(deadlines)}
            yield SQL.write_flow_as_caller, given
        return []
    if deadlines:
        yield SQL.insert_deadlines, {"deadlines": deadlines}
    if holds:
        yield SQL.hold_keys, {"holds": holds}
    org_of = {hold["job_id"]: hold["org_id"] for hold in holds}
    old = [
        {"org_id": org_of[new_id], "id": old_id}
        for old_id, new_id in changes.superseded.items()
        if new_id in org_of
    ]
    if not old:
        return []
    ended = yield SQL.supersede_jobs, {"jobs": old}
    if len(ended) < len(old):
        found = {(row["org_id"], row["id"]) for row in ended}
        rest = [row for row in old if (row["org_id"], row["id"]) not in found]
        ended = [*ended, *(yield SQL.supersede_jobs, {"jobs": rest})]
    canceled = (yield JOB_SQL.count_attempts, {"jobs": ended}) if ended else []
    entries = [
        audit.Entry(
            row["org_id"],
            row["id"],
            "job.canceled",
            row["attempt_count"] + 1,
            {"reason": SUPERSEDED, "superseded_by": changes.superseded[row["id"]]},
        )
        for row in canceled
    ]
    if entries:
        yield audit.record_step(SYSTEM, entries)
    return [(row["org_id"], row["id"], row["job_type"]) for row in canceled]


def flow_steps(
    batch: InsertRows,
    write_steps: Callable[[InsertRows], Steps[list[A]]],
    answer: Callable[..., A],
    *,
    as_caller: bool = False,
) -> Steps[list[A]]:
    """Insert rows of which some have a unique key or a deadline. *answer* makes an Enqueued."""
    changes = yield from plan_steps(batch, as_caller=as_caller)
    written = (yield from write_steps(changes.insert)) if changes.insert.jobs else []
    found: dict[str, Any] = {
        job["id"]: one for job, one in zip(changes.insert.jobs, written, strict=True)
    }
    created = {job_id: one.id for job_id, one in found.items() if one.created}
    batch.superseded = yield from finish_steps(changes, created, as_caller=as_caller)
    jobs = {job["id"]: job for job in batch.jobs}
    for job_id, holder in changes.held.items():
        frame = batch.shared_of(jobs[job_id])
        found[job_id] = answer(
            holder["job_id"],
            frame["org_id"],
            frame["job_type"],
            holder["idempotency_key"],
            read_instant(holder["created_at"]),
            created=False,
        )
    for job_id, own in changes.taken.items():
        found[job_id] = replace(found[own], created=False)
    return [found[job["id"]] for job in batch.jobs]
