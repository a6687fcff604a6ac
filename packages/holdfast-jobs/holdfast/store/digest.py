"""Digests of rows: the audit records a change's content without repeating it.

``{digest enqueue job}`` in a statement is the digest of the columns below of the row ``job``: 32
hexadecimal characters of a SHA-256. Verify recomputes and compares it. A database compares only
digests that it made itself, so the two may encode values differently.

Both encodings distinguish NULL from empty text and separate neighbouring values. SQLite hashes a
JSON array. PostgreSQL joins the values with a control character that none of them may contain, free
text last: 0.9 microseconds a row; hashing a whole row's text takes 2.0. Instants are hashed as
seconds since 1970, because their text depends on the session's time zone.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Sequence

LENGTH = 32
FUNCTION = "holdfast_digest"

COVERED: dict[str, Sequence[str]] = {
    # Columns of a job that its enqueue wrote and that the audit does not store.
    "enqueue": (
        "category",
        "job_type",
        "priority",
        "project_id?",
        "unit_key?",
        "limit_key",
        "turn?",
        "not_before_at?",
        "scheduled_for?",
        "traceparent?",
        "replay_of?",
        "origin_queue",
        "queue?",
        "payload_hash",
        "request_id?",
        "correlation_id?",
        "idempotency_key?",
        "routing_decision?",
        "payload",
    ),
    # Columns of a job that claims do not change, but outcomes, failures and cancel requests do.
    "state": (
        "stage",
        "pipeline_version",
        "attempt_count",
        "max_attempts",
        "cancel_requested_at?",
        "provider_batch_id?",
        "first_failed_at?",
        "last_error_at?",
        "finished_at?",
        "key_expires_at?",
        "error_class?",
        "result?",
        "last_error?",
    ),
    # Columns of an outcome.
    "outcome": (
        "lease_token",
        "attempt_count",
        "state",
        "finished_at",
        "key_expires_at",
        "stage?",
        "provider_batch_id?",
        "result?",
    ),
    "stage": ("stage", "attempts", "finished_at?", "output?"),
    "letter": (
        "job_type",
        "queue",
        "stage",
        "error_class",
        "attempts",
        "first_failure_at",
        "last_failure_at",
        "created_at",
        "state",
        "version",
        "kind?",
        "is_safe_to_repeat?",
        "replay_count",
        "failed_replay_id?",
        "escalated_at?",
        "verified_at?",
        "ended_at?",
        "updated_at",
        "sanitized_context",
        "checklist?",
        "evidence_ref?",
        "fixed_by?",
        "last_error",
        "ending?",
        "last_stack",
    ),
    "replay": (
        "number",
        "replay_job_id",
        "full_restart",
        "failed_stage",
        "stage",
        "actor_type",
        "requested_at",
        "outcome?",
        "error_class?",
        "ended_at?",
        "actor_id",
        "reason",
    ),
    # Columns of a delivery: content and recipient.
    "delivery": (
        "version",
        "channel",
        "token",
        "content_hash",
        "is_required",
        "created_at",
        "job_id?",
        "deliver_job_id?",
        "endpoint",
        "address",
        "recipient",
        "subject",
    ),
    # Columns of a batch item that were written before the batch was submitted.
    "item": (
        "batch_id",
        "batch_item_index",
        "job_type",
        "execution_mode",
        "attempt",
        "lease_token",
        "input_tokens",
        "reserve_pico?",
        "schema_hash?",
        "created_at",
        "unit",
        "custom_id",
        "echo",
        "group_key",
    ),
    # Columns of a rewrite's output, until its text is erased.
    "output": (
        "recipient_user_id",
        "output_language",
        "target_locale",
        "created_at",
        "provider",
        "model",
        "prompt_version",
        "policy_version",
        "lexicon_version",
        "eval_result?",
        "rewritten_text?",
    ),
    "note": ("id", "actor_type", "created_at", "actor_id", "body"),
}
"""The columns of each digest; a question mark follows those that may be NULL.

A released list never changes: stored audit digests were computed with it.
"""

_INSTANTS = ("_at", "scheduled_for")


def digest_of(database: str, kind: str, row: str) -> str:
    """Return the expression for the digest *kind* of the row with the alias *row*."""
    columns = COVERED[kind]
    if database == "sqlite":
        *names, last = (f"{row}.{column.rstrip('?')}" for column in columns)
        if columns[-1].endswith("?"):
            last = f"coalesce({last}, char(30))"
        # Outside the array, the quotes of a payload need no escaping, which saves 1 microsecond.
        return hash_of(database, f"json_array({', '.join(names)}) || {last}")
    values = ", ".join(_postgres_value(row, column) for column in columns)
    return hash_of(database, f"concat_ws(E'\\x1f', {values})")


def hash_of(database: str, text: str) -> str:
    """Return the expression for the digest of a text."""
    if database == "sqlite":
        return f"{FUNCTION}({text})"
    return f"encode(substr(sha256(convert_to({text}, 'UTF8')), 1, {LENGTH // 2}), 'hex')"


def _postgres_value(row: str, column: str) -> str:
    name = column.rstrip("?")
    value = f"{row}.{name}"
    if name.endswith(_INSTANTS):
        value = f"EXTRACT(EPOCH FROM {value})"
    return f"coalesce(CAST({value} AS text), E'\\x1e')" if column.endswith("?") else value


def register(connection: sqlite3.Connection) -> None:
    """Register the digest function on a SQLite connection, for triggers and statements."""
    connection.create_function(FUNCTION, 1, _digest, deterministic=True)


def _digest(text: str | bytes | float | None) -> str:
    data = text if isinstance(text, bytes) else str(text).encode("utf-8", "surrogatepass")
    return hashlib.sha256(data).hexdigest()[:LENGTH]
