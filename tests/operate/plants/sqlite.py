"""Violations of definitions on SQLite: triggers, indexes, views and tables."""

from __future__ import annotations

from collections.abc import Iterator

from tests.operate.plants.plant import Plant


def sqlite_plants() -> Iterator[Plant]:
    def schema(name: str, text: str, subject: str) -> Plant:
        return Plant(
            f"SQLite: {name}", tuple(text.split(";;")), subject, ("sqlite",), is_schema=True
        )

    yield schema("trigger dropped", "DROP TRIGGER job_edge", "job_edge")
    yield schema(
        "trigger does nothing",
        "DROP TRIGGER job_edge;; CREATE TRIGGER job_edge BEFORE UPDATE OF state ON holdfast_job"
        " BEGIN SELECT 1; END",
        "job_edge",
    )
    yield schema(
        "audit trigger does nothing",
        "DROP TRIGGER job_enqueued;; CREATE TRIGGER job_enqueued AFTER INSERT ON holdfast_job"
        " BEGIN SELECT 1; END",
        "job_enqueued",
    )
    yield schema(
        "trigger with another condition",
        "DROP TRIGGER job_event_never_changes;; CREATE TRIGGER job_event_never_changes BEFORE"
        " UPDATE ON holdfast_job_event WHEN FALSE BEGIN SELECT RAISE(ABORT, 'x'); END",
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
        "CREATE TRIGGER aaa BEFORE INSERT ON holdfast_job_event BEGIN SELECT RAISE(IGNORE); END",
        "aaa",
    )
    yield schema("index dropped", "DROP INDEX job_lane", "job_lane")
    yield schema(
        "unique index replaced",
        "DROP INDEX job_once_per_unit;; CREATE INDEX job_once_per_unit ON holdfast_job"
        " (org_id, job_type, unit_key) WHERE unit_key IS NOT NULL AND replay_of IS NULL",
        "job_once_per_unit",
    )
    yield schema(
        "view replaced",
        "DROP VIEW holdfast_claimable;; CREATE VIEW holdfast_claimable AS SELECT queue, limit_key,"
        " org_id, turn FROM holdfast_job WHERE state = 'queued'",
        "claimable",
    )
    yield schema(
        "constraint removed",
        "PRAGMA writable_schema = ON;; UPDATE sqlite_master SET sql = replace(sql,"
        " 'CHECK (attempt_count BETWEEN 0 AND max_attempts)', 'CHECK (TRUE)')"
        " WHERE name = 'holdfast_job'",
        "job",
    )
    yield schema(
        "foreign key removed",
        "PRAGMA writable_schema = ON;; UPDATE sqlite_master SET sql = replace(sql,"
        " 'FOREIGN KEY (org_id, job_id) REFERENCES holdfast_job (org_id, id) ON DELETE CASCADE,',"
        " '')"
        " WHERE name = 'holdfast_dead_letter'",
        "dead_letter",
    )
    yield schema("column added", "ALTER TABLE holdfast_job ADD COLUMN extra TEXT", "job")
    yield schema(
        "migration forgotten", "DELETE FROM holdfast_migration WHERE version = 19", "migration:0019"
    )
