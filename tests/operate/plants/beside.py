"""Violations outside of jobs: rewrites, batches, deliveries, artifacts, schedules."""

from __future__ import annotations

from collections.abc import Iterator

from tests.operate.plants.plant import EARLIER, NOWHERE, OTHER, Plant


def other_plants() -> Iterator[Plant]:
    request = "WHERE rewrite_request_id = '{rewritten}'"
    item = "WHERE job_id = '{rewrite_job}'"
    yield Plant(
        "rewrite: recipient",
        (f"UPDATE holdfast.rewrite_request SET recipient_user_id = '{NOWHERE}' {request}",),
        "{rewritten}",
    )
    yield Plant(
        "rewrite: language",
        (f"UPDATE holdfast.rewrite_request SET target_locale = 'fr' {request}",),
        "{rewritten}",
    )
    yield Plant(
        "rewrite: output deleted",
        (f"DELETE FROM holdfast.rewrite_output {request}",),
        "{rewritten}",
    )
    yield Plant(
        "rewrite: status",
        (f"UPDATE holdfast.rewrite_request SET status = 'queued' {request}",),
        "{rewritten}",
    )
    yield Plant(
        "rewrite: document",
        (f"""UPDATE holdfast.rewrite_request SET rewrite_request = '{{"a": 1}}' {request}""",),
        "{rewritten}",
    )
    yield Plant(
        "rewrite: message",
        (f"UPDATE holdfast.rewrite_message SET original_text = 'Another text' {request}",),
        "{rewritten}",
    )
    yield Plant(
        "batch item: name at the provider",
        (f"UPDATE holdfast.batch_item SET custom_id = 'x' {item}",),
        "item:",
    )
    yield Plant(
        "batch item: group",
        (f"UPDATE holdfast.batch_item SET group_key = 'x' {item}",),
        "item:",
    )
    yield Plant(
        "batch item: job",
        (f"UPDATE holdfast.batch_item SET job_id = '{{busy.done.id}}' {item}",),
        "item:",
    )
    yield Plant("batch item: deleted", (f"DELETE FROM holdfast.batch_item {item}",), "batch:")
    for name, change in (
        ("unit", "unit = 'x'"),
        ("attempt", "attempt = 9"),
        ("echo", "echo = 'x'"),
        ("tokens", "input_tokens = 9"),
        ("schema", "schema_hash = 'x'"),
        ("type", "job_type = 'x'"),
        ("creation time", f"created_at = {EARLIER}"),
    ):
        yield Plant(
            f"batch item: {name}",
            (f"UPDATE holdfast.batch_item SET {change} {item}",),
            "item:",
        )
    yield Plant(
        "batch item: job that never was",
        (f"UPDATE holdfast.batch_item SET job_id = '{NOWHERE}' {item}",),
        "item:",
    )
    yield Plant(
        "batch item: reopened",
        (f"UPDATE holdfast.batch_item SET state = 'open', is_open = 1, recorded_at = NULL {item}",),
        "item:",
    )
    yield Plant(
        "batch item: failed",
        (f"UPDATE holdfast.batch_item SET state = 'failed' {item}",),
        "item:",
    )
    yield Plant(
        "batch: deleted",
        ("DELETE FROM holdfast.provider_batch WHERE state = 'collected'",),
        "",
    )
    yield Plant(
        "batch: state",
        ("UPDATE holdfast.provider_batch SET state = 'prepared' WHERE state = 'submitted'",),
        "",
    )
    yield Plant(
        "batch: name at the provider",
        (("UPDATE holdfast.provider_batch SET provider_batch_id = 'x' WHERE state = 'submitted'"),),
        "",
    )
    yield Plant(
        "batch item: claim",
        ("UPDATE holdfast.batch_item SET lease_token = 9 WHERE job_id = '{submitted}'",),
        "item:",
    )
    yield Plant("ledger: call deleted", (f"DELETE FROM holdfast.provider_call {item}",), "item:")
    told = "WHERE id = '{delivery}'"
    of_told = "WHERE delivery_id = '{delivery}'"
    yield Plant(
        "delivery: id at the channel",
        (f"UPDATE holdfast.delivery SET notification_id = NULL {told}",),
        "{delivery}",
    )
    yield Plant(
        "delivery: mark",
        (f"UPDATE holdfast.delivery SET notified_at = {EARLIER} {told}",),
        "{delivery}",
    )
    yield Plant(
        "delivery: attempt deleted",
        (f"DELETE FROM holdfast.delivery_attempt {of_told}",),
        "{delivery}",
    )
    yield Plant(
        "delivery: attempt without its proof",
        (f"UPDATE holdfast.delivery_attempt SET outcome = 'unsure' {of_told}",),
        "{delivery}",
    )
    yield Plant(
        "delivery: content",
        (
            (
                """UPDATE holdfast.delivery SET content = '{"subject": "Eve", "text": "x","""
                f""" "html": null, "data": {{}}}}' {told}"""
            ),
        ),
        "{delivery}",
    )
    yield Plant(
        "delivery: recipient",
        (f"UPDATE holdfast.delivery SET recipient = 'eve' {told}",),
        "{delivery}",
    )
    yield Plant(
        "delivery: address",
        (f"UPDATE holdfast.delivery SET address = 'eve' {told}",),
        "{delivery}",
    )
    waiting = "WHERE id = '{pending}'"
    for name, change in (
        ("recipient", "recipient = 'eve'"),
        ("address", "address = 'eve'"),
        ("subject", "subject = 'sheet.other'"),
        ("channel", "channel = 'email'"),
        ("token", "token = 'x'"),
        ("endpoint", "endpoint = 'x'"),
        ("not required", "is_required = 1 - is_required"),
        ("content hash", "content_hash = 'x'"),
        ("job", f"deliver_job_id = '{NOWHERE}'"),
        ("request", "request_id = 'x'"),
        ("tenant", f"org_id = '{OTHER}'"),
        ("creation time", f"created_at = {EARLIER}"),
        (
            "marked as sent",
            (
                "state = 'sent', notified_at = updated_at, notification_id = 'x',"
                " ended_at = updated_at"
            ),
        ),
    ):
        yield Plant(
            f"pending delivery: {name}",
            (f"UPDATE holdfast.delivery SET {change} {waiting}",),
            "{pending}",
        )
    yield Plant(
        "pending delivery: deleted", (f"DELETE FROM holdfast.delivery {waiting}",), "{pending}"
    )
    yield Plant(
        "pending delivery: given up",
        (
            (
                "UPDATE holdfast.delivery SET state = 'dropped', reason = 'operator',"
                f" ended_at = updated_at {waiting}"
            ),
        ),
        "{pending}",
    )
    yield Plant("delivery: deleted", (f"DELETE FROM holdfast.delivery {told}",), "{delivery}")
    yield Plant(
        "delivery: to be sent again",
        (
            (
                "UPDATE holdfast.delivery SET state = 'pending', notified_at = NULL,"
                f" notification_id = NULL, ended_at = NULL {told}"
            ),
        ),
        "{delivery}",
    )
    yield Plant(
        "delivery: forged",
        (
            (
                "INSERT INTO holdfast.delivery (org_id, id, subject, recipient, version, channel,"
                " address, token, content, content_hash, request_id, correlation_id, created_at,"
                f" updated_at) SELECT org_id, '{NOWHERE}', subject, 'eve', version, channel, 'eve',"
                " token || 'x', content, content_hash, request_id, correlation_id, created_at,"
                " updated_at FROM holdfast.delivery WHERE id = '{pending}'"
            ),
        ),
        NOWHERE,
    )
    yield Plant(
        "rewrite: text of the output",
        (f"UPDATE holdfast.rewrite_output SET rewritten_text = 'Leave.' {request}",),
        "{rewritten}",
    )
    yield Plant(
        "schedule: interval",
        ("UPDATE holdfast.schedule SET every_ms = 60000 WHERE name = 'hourly'",),
        "schedule:hourly",
    )
    yield Plant(
        "schedule: paused",
        (
            (
                "UPDATE holdfast.schedule SET paused_at = updated_at, paused_by = 'eve',"
                " pause_reason = 'x' WHERE name = 'hourly'"
            ),
        ),
        "schedule:hourly",
    )
    yield Plant(
        "queue: paused",
        (
            (
                "UPDATE holdfast.queue SET paused_at = updated_at, paused_by = 'eve',"
                " pause_reason = 'x' WHERE name = 'q:default'"
            ),
        ),
        "queue:q:default",
    )
    yield Plant(
        "delivery: version", (f"UPDATE holdfast.delivery SET version = 9 {told}",), "{delivery}"
    )
    yield Plant(
        "artifact: tenant",
        (f"UPDATE holdfast.artifact SET org_id = '{OTHER}' WHERE job_id IS NOT NULL",),
        "artifact:",
    )
    yield Plant(
        "artifact: checksum",
        (f"UPDATE holdfast.artifact SET sha256 = '{'0' * 64}' WHERE state = 'stored'",),
        "artifact:",
    )
    yield Plant(
        "schedule tick: deleted job",
        (
            (
                "UPDATE holdfast.schedule_tick SET job_id = NULL, outcome = 'skipped'"
                " WHERE job_id IS NOT NULL"
            ),
        ),
        "tick:",
    )
    yield Plant(
        "run: counts",
        ("UPDATE holdfast.worker_run SET succeeded_count = 99 WHERE claimed_count > 0",),
        "run:",
    )
