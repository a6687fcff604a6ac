"""Violations of jobs: their facts, their places, missing jobs, and forged ones."""

from __future__ import annotations

from collections.abc import Iterator

from tests.operate.plants.plant import (
    COLUMNS,
    EARLIER,
    FORGED,
    LATER,
    NOWHERE,
    OTHER,
    Plant,
    change,
    delete,
    end,
    enter,
    event,
    leave,
)


def job_plants() -> Iterator[Plant]:
    detailed = {
        "priority": "priority = 0",
        "unit key": "unit_key = 'month-3'",
        "unit key cleared": "unit_key = NULL",
        "traceparent": "traceparent = '00-1af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'",
        "traceparent cleared": "traceparent = NULL",
        "idempotency key": "idempotency_key = idempotency_key || 'x'",
        "limit key": "limit_key = 'other'",
        "position": f"turn = '{NOWHERE}'",
        "category": "category = 'maintenance'",
        "queue": "queue = 'q:critical'",
        "queue and its origin": "queue = 'q:critical', origin_queue = 'q:critical'",
        "not before, later": f"not_before_at = {LATER}",
        "not before, earlier": f"not_before_at = {EARLIER}",
        "not before, cleared": "not_before_at = NULL",
        "max attempts": "max_attempts = 100",
        "stage": "stage = 'other'",
        "pipeline version": "pipeline_version = 'v9'",
        "project": f"project_id = '{NOWHERE}'",
        "actor": "actor_id = 'eve'",
        "request id": "request_id = 'request-2'",
        "correlation id": "correlation_id = 'correlation-2'",
        "creation time": f"created_at = {EARLIER}",
        "payload": """payload = '{"name": "Eve"}'""",
        "payload and its hash": """payload = '{"name": "Eve"}', payload_hash = 'abc'""",
        "payload key only": """payload = '{"nbme": "Ada"}'""",
        "job type": "job_type = 'report.make'",
        "tenant": f"org_id = '{OTHER}'",
        "routing decision added": """routing_decision = '{"model": "m"}'""",
        "replay of": f"replay_of = '{NOWHERE}'",
        "scheduled time added": f"scheduled_for = {LATER}",
        "number of its event": "event_id = event_id + 1",
    }
    for name, changes in detailed.items():
        yield change(f"waiting job: {name}", "detailed", "envelope", changes)
    yield change(
        "deferred notification: scheduled time", "delayed", "envelope", f"scheduled_for = {LATER}"
    )
    yield change("deferred notification: queue", "delayed", "waiting", "queue = 'q:notifications'")
    yield change("rewrite at provider: routing", "submitted", "envelope", "routing_decision = '{}'")
    yield change(
        "rewrite at provider: model",
        "submitted",
        "envelope",
        """routing_decision = '{"provider": "openai", "model": "model-2"}'""",
    )
    done = {
        "result": """result = '{"seen": 9}'""",
        "key expiry": f"key_expires_at = {LATER}",
        "key expiry before its end": f"key_expires_at = {EARLIER}",
        "end": f"finished_at = {EARLIER}",
        "attempts": "attempt_count = 1",
        "last error": "last_error = 'x'",
        "stage": "stage = 'other'",
        "state": "state = 'canceled', result = NULL",
        "lease token": "lease_token = 5",
        "worker": "settled_by = 'eve'",
        "claim": "claimed_by = 'eve'",
        "number of its event": "event_id = event_id - 1",
        "number of its claim": "started_event_id = started_event_id - 1",
        "event cleared": "event_id = NULL, settled_by = NULL",
    }
    for name, changes in done.items():
        yield change(f"completed job: {name}", "busy.done.id", "outcome", changes)
    yield change("completed job: max attempts", "busy.done.id", "envelope", "max_attempts = 100")
    yield Plant(
        "completed job: reopened",
        (
            "DELETE FROM holdfast.job_outcome WHERE job_id = '{busy.done.id}'",
            enter("ready", "busy.done.id"),
        ),
        "{busy.done.id}",
    )
    retried = {
        "last error": "last_error = 'it was nothing'",
        "error class": "error_class = 'GONE'",
        "last error time": f"last_error_at = {EARLIER}",
        "first failure": f"first_failed_at = {EARLIER}",
        "attempts": "attempt_count = 0",
        "attempts above the budget": "attempt_count = 9",
        "not before, cleared": "not_before_at = NULL",
        "not before, later": f"not_before_at = {LATER}",
        "number": "number = 2",
        "lease token": "lease_token = 2",
        "stage": "stage = 'other'",
        "max attempts": "max_attempts = 100",
        "pipeline version": "pipeline_version = 'v9'",
        "provider batch": "provider_batch_id = 'batch-1'",
        "worker": "claimed_by = 'eve'",
        "claim time": f"claimed_at = {EARLIER}",
    }
    for name, changes in retried.items():
        yield change(f"retried job: {name}", "busy.deferred.id", "attempt", changes)
    yield Plant(
        "retried job: attempt deleted",
        ("DELETE FROM holdfast.job_attempt WHERE job_id = '{busy.deferred.id}'",),
        "{busy.deferred.id}",
    )
    yield change(
        "stages of a completed job: last error",
        "busy.staged.id",
        "attempt",
        "last_error = 'it was nothing', error_class = 'GONE'",
    )
    yield change("failed job: last error", "busy.dead.id", "outcome", "last_error = 'nothing'")
    yield change("failed job: max attempts", "busy.dead.id", "attempt", "max_attempts = 100")
    yield change(
        "rewrite at provider: batch", "submitted", "submitted", "provider_batch_id = 'batch-x'"
    )


def place_plants() -> Iterator[Plant]:
    """Violations of the places where jobs are until they end."""
    for place, job, changed in (
        (
            "ready",
            "busy.waiting.id",
            ("queue", "limit key", "turn", "creation time", "lease token", "unit", "tenant"),
        ),
        (
            "waiting",
            "busy.deferred.id",
            (
                "queue",
                "limit key",
                "turn",
                "creation time",
                "lease token",
                "unit",
                "tenant",
                "not before, later",
                "not before, earlier",
                "not before, cleared",
            ),
        ),
        (
            "running",
            "busy.running.id",
            (
                "queue",
                "limit key",
                "turn",
                "lease token",
                "tenant",
                "stage",
                "attempts",
                "max attempts",
                "worker",
                "claim time",
                "endless lease",
                "number of its event",
            ),
        ),
        ("submitted", "submitted", ("queue", "lease token", "tenant", "worker", "claim time")),
    ):
        for name in changed:
            yield change(f"{place} job: {name}", job, place, _CHANGES[name])
    for job in ("detailed", "delayed"):
        yield change(
            f"first wait of {job}: not before", job, "waiting", _CHANGES["not before, later"]
        )
    for name, job in (
        ("ready", "busy.waiting.id"),
        ("waiting", "busy.deferred.id"),
        ("running", "busy.running.id"),
        ("submitted", "submitted"),
    ):
        yield Plant(f"{name} job: in no place", leave(job), f"{{{job}}}")
    for name, place, job in (
        ("running", "ready", "busy.running.id"),
        ("submitted", "ready", "submitted"),
        ("deferred", "ready", "busy.deferred.id"),
        ("completed", "ready", "busy.done.id"),
        ("running", "waiting", "busy.running.id"),
        ("completed", "waiting", "busy.done.id"),
    ):
        yield Plant(f"{name} job: also {place}", (enter(place, job, 1),), f"{{{job}}}")
    yield Plant(
        "deferred notification: waits in two queues",
        (
            *leave("delayed"),
            enter("ready", "delayed"),
            enter("ready", "delayed").replace("origin_queue", "queue"),
        ),
        "{delayed}",
    )
    for place, job in (
        ("ready", "busy.waiting.id"),
        ("waiting", "busy.deferred.id"),
        ("running", "busy.running.id"),
        ("submitted", "submitted"),
        ("attempt", "busy.deferred.id"),
        ("outcome", "busy.done.id"),
        ("cancel", "stopping"),
    ):
        yield Plant(
            f"{place}: of no job",
            (f"UPDATE holdfast.job_{place} SET job_id = '{NOWHERE}' WHERE job_id = '{{{job}}}'",),
            NOWHERE,
        )


_CHANGES = {
    "queue": "queue = 'q:critical'",
    "limit key": "limit_key = 'other'",
    "turn": f"turn = '{NOWHERE}'",
    "creation time": f"created_at = {EARLIER}",
    "lease token": "lease_token = 5",
    "unit": "unit = 'x'",
    "tenant": f"org_id = '{OTHER}'",
    "not before, later": f"not_before_at = {LATER}",
    "not before, earlier": f"not_before_at = {EARLIER}",
    "not before, cleared": "not_before_at = NULL",
    "stage": "stage = 'other'",
    "attempts": "attempt_count = 1",
    "max attempts": "max_attempts = 100",
    "worker": "claimed_by = 'eve'",
    "claim time": f"claimed_at = {EARLIER}",
    "endless lease": "lease_expires_at = '2099-01-01T00:00:00.000Z'",
    "number of its event": "started_event_id = started_event_id - 1",
}


def older_plants() -> Iterator[Plant]:
    """Violations of a job that ended long ago."""
    for name, table, changes in (
        ("result", "outcome", "result = '{\"seen\": 9}'"),
        ("payload", "envelope", """payload = '{"n": 7}'"""),
        ("key", "envelope", "idempotency_key = idempotency_key || 'x'"),
        ("key expiry", "outcome", f"key_expires_at = {LATER}"),
        ("state", "outcome", "state = 'canceled', result = NULL"),
        ("priority", "envelope", "priority = 0"),
    ):
        yield change(f"older job: {name}", "busy.archived.id", table, changes)
    yield Plant("older job: deleted", delete("busy.archived.id"), "{busy.archived.id}")
    yield Plant(
        "older job: key of a job without a stored one",
        (
            (
                "UPDATE holdfast.job_envelope SET idempotency_key = (SELECT idempotency_key"
                " FROM (SELECT * FROM holdfast.job) AS other WHERE other.id = '{busy.waiting.id}')"
                " WHERE id = '{busy.archived.id}'"
            ),
        ),
        "{busy.archived.id}",
    )


def remainder_plants() -> Iterator[Plant]:
    """Violations of what is kept of pruned jobs."""
    for name, text in (
        ("deleted", "DELETE FROM holdfast.job_remainder"),
        ("events", "UPDATE holdfast.job_remainder SET events = '[]'"),
    ):
        yield Plant(f"pruned job: remainder {name}", (text,), "{busy.pruned.id}")


def deletion_plants() -> Iterator[Plant]:
    for name, job in (
        ("waiting", "busy.waiting.id"),
        ("running", "busy.running.id"),
        ("completed", "busy.done.id"),
        ("at provider", "submitted"),
    ):
        yield Plant(f"deleted job: {name}", delete(job), f"{{{job}}}")
    yield Plant(
        "deleted job: failed, with its dead letter",
        (
            "DELETE FROM holdfast.dead_letter WHERE job_id = '{busy.dead.id}'",
            *delete("busy.dead.id"),
        ),
        "{busy.dead.id}",
    )
    yield Plant(
        "deleted job: waiting, with its sealed events",
        (
            (
                "DELETE FROM holdfast.audit_event WHERE id ="
                " (SELECT event_id FROM holdfast.job_envelope WHERE id = '{busy.waiting.id}')"
            ),
            *delete("busy.waiting.id"),
        ),
        "seal:",
    )
    yield Plant(
        "deleted job: pruned by hand and said to be",
        (event("job.pruned", "busy.waiting.id"), *delete("busy.waiting.id")),
        "{busy.waiting.id}",
    )


def cancel_plants() -> Iterator[Plant]:
    request = (
        "INSERT INTO holdfast.job_cancel (org_id, job_id, requested_at)"
        " SELECT org_id, id, created_at FROM holdfast.job_envelope WHERE id = '{%s}'"
    )
    for name, job in (
        ("waiting", "busy.waiting.id"),
        ("running", "busy.running.id"),
        ("deferred", "busy.deferred.id"),
    ):
        yield Plant(f"cancel request of a {name} job", (request % job,), f"{{{job}}}")
        yield Plant(
            f"forged cancel: {name} job",
            (end(job, "canceled"), event("job.canceled", job), *leave(job)),
            f"{{{job}}}",
        )
    yield Plant(
        "cancel request removed",
        ("DELETE FROM holdfast.job_cancel WHERE job_id = '{stopping}'",),
        "{stopping}",
    )
    yield Plant(
        "forged cancel: with a request",
        (
            request % "busy.waiting.id",
            end("busy.waiting.id", "canceled"),
            event("job.cancel_requested", "busy.waiting.id"),
            event("job.canceled", "busy.waiting.id"),
            *leave("busy.waiting.id"),
        ),
        "{busy.waiting.id}",
    )
    yield Plant(
        "forged success",
        (
            end("busy.running.id", "completed", "'1'"),
            event("job.succeeded", "busy.running.id"),
            *leave("busy.running.id"),
        ),
        "{busy.running.id}",
    )
    forged = (
        (
            f"INSERT INTO holdfast.job_envelope ({COLUMNS}) SELECT {FORGED}"
            " FROM holdfast.job_envelope WHERE id = '{busy.waiting.id}'"
        ),
        enter("ready", "busy.waiting.id")
        .replace(" id,", f" '{NOWHERE}',")
        .replace("coalesce(turn, id)", f"'{NOWHERE}'"),
    )
    yield Plant("forged job", forged, NOWHERE)
    yield Plant(
        "forged job with an event",
        (
            *forged,
            (
                "INSERT INTO holdfast.audit_event (org_id, job_id, job_type, name, attempt,"
                " actor_type, actor_id, request_id, correlation_id, at) SELECT org_id,"
                f" '{NOWHERE}', job_type, 'job.enqueued', 1, actor_type, actor_id, 'x', 'x',"
                " created_at FROM holdfast.job_envelope WHERE id = '{busy.waiting.id}'"
            ),
        ),
        NOWHERE,
    )


def unreachable_plants() -> Iterator[Plant]:
    """Violations that verify does not find; docs/operations/verify.md lists the same reasons."""
    for name, text, subject, reason in (
        (
            "completed job: key last seen",
            (
                "INSERT INTO holdfast.job_key_seen (org_id, job_id, last_seen_at) SELECT org_id,"
                " id, created_at FROM holdfast.job_envelope WHERE id = '{busy.done.id}'"
            ),
            "{busy.done.id}",
            "repeated enqueues write it without an event",
        ),
        (
            "queue: weight",
            "UPDATE holdfast.queue SET weight = 9 WHERE name = 'q:default'",
            "queue:q:default",
            "rules of queues come from the settings of each process",
        ),
        (
            "ledger: cost of a call",
            "UPDATE holdfast.provider_call SET cost_pico = 1 WHERE job_id = '{rewrite_job}'",
            "item:",
            "no other row repeats what a provider charged",
        ),
    ):
        yield Plant(name, (text,), subject, out_of_reach=reason)
