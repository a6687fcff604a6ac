"""Violations of jobs: rows of an enqueue or a settle, missing jobs, and forged ones."""

from __future__ import annotations

from collections.abc import Iterator

from tests.operate.plants.plant import (
    COLUMNS,
    COPIED,
    EARLIER,
    FORGED,
    LATER,
    NOWHERE,
    OTHER,
    Plant,
    change,
    event,
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
        "state": "state = 'canceled', finished_at = created_at, key_expires_at = created_at",
        "cancel request": "cancel_requested_at = created_at",
        "error": "last_error = 'x', error_class = 'GONE', last_error_at = created_at",
        "provider batch": "provider_batch_id = 'batch-1'",
    }
    for name, changes in detailed.items():
        yield change(f"waiting job: {name}", "detailed", changes)
    yield change("deferred notification: scheduled time", "delayed", f"scheduled_for = {LATER}")
    yield change("deferred notification: queue", "delayed", "queue = origin_queue")
    yield change("waiting job: deferred", "busy.waiting.id", f"not_before_at = {LATER}")
    yield change("rewrite at provider: routing decision", "submitted", "routing_decision = '{}'")
    yield change(
        "rewrite at provider: model",
        "submitted",
        """routing_decision = '{"provider": "openai", "model": "model-2"}'""",
    )
    done = {
        "result": """result = '{"seen": 9}'""",
        "key expiry": f"key_expires_at = {LATER}",
        "end": f"finished_at = {EARLIER}",
        "end and last change": f"finished_at = {EARLIER}, updated_at = {EARLIER}",
        "last change": f"updated_at = {EARLIER}",
        "attempts": "attempt_count = 1",
        "max attempts": "max_attempts = 100",
        "last error": "last_error = 'x'",
        "stage": "stage = 'other'",
        "state reopened": "state = 'queued', result = NULL, finished_at = NULL,"
        " key_expires_at = NULL",
        "lease token": "lease_token = 5",
    }
    for name, changes in done.items():
        yield change(f"completed job: {name}", "busy.done.id", changes)
    retried = {
        "last error": "last_error = 'it was nothing'",
        "error class": "error_class = 'GONE'",
        "last error time": f"last_error_at = {EARLIER}",
        "first failure": f"first_failed_at = {EARLIER}",
        "attempts": "attempt_count = 0",
        "not before, cleared": "not_before_at = NULL",
        "not before, later": f"not_before_at = {LATER}",
    }
    for name, changes in retried.items():
        yield change(f"retried job: {name}", "busy.deferred.id", changes)
    running = {
        "worker": "claimed_by = 'eve'",
        "claim time": f"claimed_at = {EARLIER}",
        "endless lease": "lease_expires_at = '2099-01-01T00:00:00.000Z'",
        "cancel request": "cancel_requested_at = claimed_at",
    }
    for name, changes in running.items():
        yield change(f"running job: {name}", "busy.running.id", changes)
    yield change("running job: cancel request removed", "stopping", "cancel_requested_at = NULL")
    yield change("failed job: last error", "busy.dead.id", "last_error = 'it was nothing'")
    yield change("failed job: max attempts", "busy.dead.id", "max_attempts = 100")
    yield change("rewrite at provider: batch", "submitted", "provider_batch_id = 'batch-x'")


def history_plants() -> Iterator[Plant]:
    history = {
        "result": "result = '{\"seen\": 9}'",
        "payload": """payload = '{"n": 7}'""",
        "key": "idempotency_key = idempotency_key || 'x'",
        "key expiry": f"key_expires_at = {LATER}",
        "state": "state = 'canceled', result = NULL",
        "priority": "priority = 0",
    }
    for name, changes in history.items():
        yield change(f"archived job: {name}", "busy.archived.id", changes, "job_history")
    yield Plant(
        "archived job: deleted",
        ("DELETE FROM holdfast.job_history WHERE id = '{busy.archived.id}'",),
        "{busy.archived.id}",
    )
    yield Plant(
        "archived job: copied back",
        (
            (
                f"INSERT INTO holdfast.job ({COLUMNS}) SELECT {COLUMNS} FROM holdfast.job_history"
                " WHERE id = '{busy.archived.id}'"
            ),
        ),
        "{busy.archived.id}",
    )
    yield Plant(
        "completed job: copied into history",
        (
            (
                f"INSERT INTO holdfast.job_history ({COLUMNS}) SELECT {COLUMNS} FROM holdfast.job"
                " WHERE id = '{busy.done.id}'"
            ),
        ),
        "{busy.done.id}",
    )
    yield Plant(
        "completed job: copied into history under another key",
        (
            (
                f"INSERT INTO holdfast.job_history ({COLUMNS}) SELECT"
                f" {COPIED} FROM holdfast.job WHERE id = '{{busy.done.id}}'"
            ),
        ),
        "{busy.done.id}",
    )


def deletion_plants() -> Iterator[Plant]:
    for name, job in (
        ("waiting", "busy.waiting.id"),
        ("running", "busy.running.id"),
        ("completed", "busy.done.id"),
        ("at provider", "submitted"),
    ):
        yield Plant(
            f"deleted job: {name}",
            (f"DELETE FROM holdfast.job WHERE id = '{{{job}}}'",),
            f"{{{job}}}",
        )
    yield Plant(
        "deleted job: failed, with its dead letter",
        (
            "DELETE FROM holdfast.dead_letter WHERE job_id = '{busy.dead.id}'",
            "DELETE FROM holdfast.job_stage WHERE job_id = '{busy.dead.id}'",
            "DELETE FROM holdfast.job WHERE id = '{busy.dead.id}'",
        ),
        "{busy.dead.id}",
    )
    yield Plant(
        "deleted job: waiting, with its sealed events",
        (
            "DELETE FROM holdfast.job_event WHERE job_id = '{busy.waiting.id}'",
            "DELETE FROM holdfast.job WHERE id = '{busy.waiting.id}'",
        ),
        "seal:",
    )
    yield Plant(
        "deleted job: pruned by hand and said to be",
        (
            event("job.pruned", "busy.waiting.id"),
            "DELETE FROM holdfast.job WHERE id = '{busy.waiting.id}'",
        ),
        "{busy.waiting.id}",
    )


def cancel_plants() -> Iterator[Plant]:
    canceled = (
        "UPDATE holdfast.job SET state = 'canceled', finished_at = updated_at, claimed_by = NULL,"
        " claimed_at = NULL, lease_expires_at = NULL, key_expires_at = '2026-12-01T00:00:00.000Z'"
    )
    for name, job in (("waiting", "busy.waiting.id"), ("running", "busy.running.id")):
        yield Plant(
            f"forged cancel: {name} job",
            (f"{canceled} WHERE id = '{{{job}}}'", event("job.canceled", job)),
            f"{{{job}}}",
        )
    yield Plant(
        "forged cancel: with a request",
        (
            f"{canceled}, cancel_requested_at = updated_at WHERE id = '{{busy.waiting.id}}'",
            event("job.cancel_requested", "busy.waiting.id"),
            event("job.canceled", "busy.waiting.id"),
        ),
        "{busy.waiting.id}",
    )
    yield Plant(
        "forged success",
        (
            (
                "UPDATE holdfast.job SET state = 'completed', finished_at = updated_at,"
                " result = '1', claimed_by = NULL, claimed_at = NULL, lease_expires_at = NULL,"
                " key_expires_at = '2026-12-01T00:00:00.000Z' WHERE id = '{busy.running.id}'"
            ),
            event("job.succeeded", "busy.running.id"),
        ),
        "{busy.running.id}",
    )
    yield Plant(
        "forged job",
        (
            (
                f"INSERT INTO holdfast.job ({COLUMNS}) SELECT {FORGED} FROM holdfast.job"
                " WHERE id = '{busy.waiting.id}'"
            ),
        ),
        NOWHERE,
    )
    yield Plant(
        "forged job with an event",
        (
            (
                f"INSERT INTO holdfast.job ({COLUMNS}) SELECT {FORGED} FROM holdfast.job"
                " WHERE id = '{busy.waiting.id}'"
            ),
            (
                "INSERT INTO holdfast.job_event (org_id, job_id, job_type, name, attempt,"
                " actor_type, actor_id, request_id, correlation_id, at, detail, digest) SELECT"
                " org_id,"
                f" '{NOWHERE}', job_type, name, attempt, actor_type, actor_id, request_id,"
                " correlation_id, at, detail, digest FROM holdfast.job_event"
                " WHERE job_id = '{busy.waiting.id}' AND name = 'job.enqueued'"
            ),
        ),
        NOWHERE,
    )


def unreachable_plants() -> Iterator[Plant]:
    """Violations that verify does not find; docs/operations/verify.md lists the same reasons."""
    for name, text, subject, reason in (
        (
            "waiting job: last change",
            f"UPDATE holdfast.job SET updated_at = {EARLIER} WHERE id = '{{busy.waiting.id}}'",
            "{busy.waiting.id}",
            "promotion writes it without an event",
        ),
        (
            "completed job: key last seen",
            f"UPDATE holdfast.job SET key_last_seen_at = {EARLIER} WHERE id = '{{busy.done.id}}'",
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
