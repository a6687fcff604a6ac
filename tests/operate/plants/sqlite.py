"""Violations of definitions on SQLite: triggers, indexes, views and tables."""

from __future__ import annotations

from collections.abc import Iterator

from tests.operate.plants.plant import Plant


def sqlite_plants() -> Iterator[Plant]:
    def schema(name: str, text: str, subject: str) -> Plant:
        return Plant(
            f"SQLite: {name}", tuple(text.split(";;")), subject, ("sqlite",), is_schema=True
        )

    yield schema("trigger dropped", "DROP TRIGGER job_ended", "job_ended")
    yield schema(
        "trigger does nothing",
        "DROP TRIGGER job_ready_leaves;; CREATE TRIGGER job_ready_leaves BEFORE DELETE"
        " ON holdfast_job_ready BEGIN SELECT 1; END",
        "job_ready_leaves",
    )
    yield schema(
        "audit trigger does nothing",
        "DROP TRIGGER job_enqueued;; CREATE TRIGGER job_enqueued AFTER INSERT"
        " ON holdfast_job_envelope BEGIN SELECT 1; END",
        "job_enqueued",
    )
    yield schema(
        "trigger with another condition",
        "DROP TRIGGER job_event_never_changes;; CREATE TRIGGER job_event_never_changes BEFORE"
        " UPDATE ON holdfast_audit_event WHEN FALSE BEGIN SELECT RAISE(ABORT, 'x'); END",
        "job_event_never_changes",
    )
    yield schema(
        "trigger moved to another table",
        "DROP TRIGGER job_event_never_leaves;; CREATE TRIGGER job_event_never_leaves BEFORE"
        " DELETE ON holdfast_migration BEGIN SELECT 1; END",
        "job_event_never_leaves",
    )
    yield schema(
        "trigger added that swallows writes",
        "CREATE TRIGGER aaa BEFORE INSERT ON holdfast_audit_event BEGIN SELECT RAISE(IGNORE); END",
        "aaa",
    )
    yield schema("index dropped", "DROP INDEX job_ready_oldest", "job_ready_oldest")
    yield schema(
        "unique index replaced",
        "DROP INDEX job_once_per_unit;; CREATE INDEX job_once_per_unit ON holdfast_job_envelope"
        " (org_id, job_type, unit_key) WHERE unit_key IS NOT NULL AND replay_of IS NULL",
        "job_once_per_unit",
    )
    yield schema(
        "view replaced",
        "DROP VIEW holdfast_job_event;; CREATE VIEW holdfast_job_event AS SELECT id, org_id,"
        " project_id, job_id, job_type, name, attempt, actor_type, actor_id, request_id,"
        " correlation_id, at, detail, digest FROM holdfast_audit_event",
        "job_event",
    )
    yield schema(
        "constraint removed",
        "PRAGMA writable_schema = ON;; UPDATE sqlite_master SET sql = replace(sql,"
        " 'CHECK (attempt_count BETWEEN 0 AND max_attempts)', 'CHECK (TRUE)')"
        " WHERE name = 'holdfast_job_attempt'",
        "job_attempt",
    )
    yield schema(
        "foreign key removed",
        "PRAGMA writable_schema = ON;; UPDATE sqlite_master SET sql = replace(sql,"
        " 'FOREIGN KEY (org_id, job_id) REFERENCES holdfast_job_envelope (org_id, id)"
        " ON DELETE CASCADE,',"
        " '')"
        " WHERE name = 'holdfast_dead_letter'",
        "dead_letter",
    )
    yield schema(
        "column added", "ALTER TABLE holdfast_job_envelope ADD COLUMN extra TEXT", "job_envelope"
    )
    yield schema(
        "migration forgotten", "DELETE FROM holdfast_migration WHERE version = 19", "migration:0019"
    )
