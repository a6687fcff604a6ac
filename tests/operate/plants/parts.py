"""Violations of what belongs to jobs: stages, dead letters and the audit."""

from __future__ import annotations

from collections.abc import Iterator

from tests.operate.plants.plant import EARLIER, NOWHERE, OTHER, Plant, delete, event


def stage_plants() -> Iterator[Plant]:
    def stage(name: str, what: str, job: str) -> Plant:
        where = f"WHERE job_id = '{{{job}}}' AND stage = 'think'"
        verb = "DELETE FROM holdfast.job_stage"
        text = f"{verb if what == 'DELETE' else f'UPDATE holdfast.job_stage SET {what}'} {where}"
        return Plant(name, (text,), f"{{{job}}}")

    for name, what in (
        ("output", """output = '{"by": "eve"}'"""),
        ("attempts", "attempts = 9"),
        ("end", f"finished_at = {EARLIER}"),
        ("deleted", "DELETE"),
        ("tenant", f"org_id = '{OTHER}'"),
        ("renamed", "stage = 'other'"),
    ):
        yield stage(f"stage: {name}", what, "pipeline")
    yield stage("stage of a dead job: output", "output = '1'", "busy.dead.id")
    yield stage("stage of an older job: output", "output = '1'", "busy.staged.id")
    yield stage("stage of an older job: deleted", "DELETE", "busy.staged.id")
    yield stage("stage of a replay: output", "output = '1'", "replay")
    yield stage("stage of a replay: deleted", "DELETE", "replay")
    yield Plant(
        "stage: invented",
        (
            (
                "INSERT INTO holdfast.job_stage (org_id, job_id, stage, attempts, output,"
                " updated_at, finished_at) SELECT org_id, job_id, 'other', attempts, output,"
                " updated_at, finished_at FROM holdfast.job_stage"
                " WHERE job_id = '{pipeline}' AND stage = 'think'"
            ),
        ),
        "{pipeline}",
    )
    yield Plant(
        "stage: last output",
        (
            (
                "UPDATE holdfast.job_stage SET output = '1' WHERE job_id = '{pipeline}'"
                " AND stage = 'tell'"
            ),
        ),
        "{pipeline}",
    )


def letter_plants() -> Iterator[Plant]:
    letter = {
        "attempts": "attempts = 9",
        "last error": "last_error = 'it was nothing'",
        "stack": "last_stack = 'elsewhere'",
        "context": "sanitized_context = '{}'",
        "first failure": f"first_failure_at = {EARLIER}",
        "last failure": f"last_failure_at = {EARLIER}, first_failure_at = {EARLIER}",
        "creation time": f"created_at = {EARLIER}",
        "queue": "queue = 'q:critical'",
        "discarded": "state = 'discarded', ending = 'x', ended_at = updated_at, version = 2",
        "version": "version = 7",
    }
    for name, changes in letter.items():
        yield Plant(
            f"dead letter: {name}",
            (f"UPDATE holdfast.dead_letter SET {changes} WHERE job_id = '{{busy.dead.id}}'",),
            "{busy.dead.id}",
        )
    for name, changes in (
        ("evidence", "evidence_ref = 'INC-8'"),
        ("checklist", "checklist = '{}'"),
        ("kind", "kind = 'data'"),
    ):
        yield Plant(
            f"validated dead letter: {name}",
            (f"UPDATE holdfast.dead_letter SET {changes} WHERE job_id = '{{relapsed}}'",),
            "{relapsed}",
        )
    yield Plant(
        "dead letter: deleted",
        ("DELETE FROM holdfast.dead_letter WHERE job_id = '{busy.dead.id}'",),
        "{busy.dead.id}",
    )
    yield Plant(
        "replay: reason",
        ("UPDATE holdfast.dead_letter_replay SET reason = 'x' WHERE job_id = '{mended}'",),
        "{mended}",
    )
    yield Plant(
        "replay: deleted",
        ("DELETE FROM holdfast.dead_letter_replay WHERE job_id = '{mended}'",),
        "{mended}",
    )
    yield Plant(
        "note: changed",
        ("UPDATE holdfast.dead_letter_note SET body = 'x' WHERE job_id = '{mended}'",),
        "{mended}",
    )
    yield Plant(
        "note: deleted",
        ("DELETE FROM holdfast.dead_letter_note WHERE job_id = '{mended}'",),
        "{mended}",
    )


def audit_plants() -> Iterator[Plant]:
    # One row of the audit may name several jobs that were enqueued, started or completed together.
    of_done = "id = (SELECT event_id FROM holdfast.job_outcome WHERE job_id = '{busy.done.id}')"
    of_fresh = "id = (SELECT event_id FROM holdfast.job_envelope WHERE id = '{fresh}')"
    for name, what in (
        ("edited", "UPDATE holdfast.audit_event SET actor_id = 'eve'"),
        ("deleted", "DELETE FROM holdfast.audit_event"),
        ("another digest", "UPDATE holdfast.audit_event SET digest = 'x'"),
        ("another number of jobs", "UPDATE holdfast.audit_event SET events = 2"),
    ):
        yield Plant(f"sealed event: {name}", (f"{what} WHERE {of_done}",), "seal:")
    for name, changes in (
        ("edited actor", "actor_id = 'eve'"),
        ("edited time", f"at = {EARLIER}"),
        ("another name", "name = 'job.started'"),
        ("another tenant", f"org_id = '{OTHER}'"),
        ("another digest", "digest = 'x' || substr(digest, 2)"),
        ("no digest", "digest = NULL"),
    ):
        yield Plant(
            f"event before sealing: {name}",
            (f"UPDATE holdfast.audit_event SET {changes} WHERE {of_fresh}",),
            "{fresh}",
        )
    for database, jobs in (
        ("sqlite", f"""'["{NOWHERE}"]'"""),
        ("postgres", f"ARRAY['{NOWHERE}'::uuid]"),
    ):
        yield Plant(
            f"event before sealing: another job on {database}",
            (f"UPDATE holdfast.audit_event SET jobs = {jobs} WHERE {of_fresh}",),
            "{fresh}",
            on=(database,),
        )
        yield Plant(
            f"event before sealing: enqueue of a job that never was on {database}",
            (
                (
                    "INSERT INTO holdfast.audit_event (org_id, name, attempt, actor_type,"
                    f" actor_id, at, jobs, digest) SELECT org_id, name, attempt, actor_type,"
                    f" actor_id, at, {jobs}, digest FROM holdfast.audit_event WHERE {of_fresh}"
                ),
            ),
            NOWHERE,
            on=(database,),
        )
    yield Plant(
        "event before sealing: no digest of a retry",
        (
            (
                "UPDATE holdfast.audit_event SET digest = NULL"
                " WHERE job_id = '{fresh_failure}' AND name = 'job.retried'"
            ),
        ),
        "{fresh_failure}",
    )
    yield Plant(
        "sealed event: digest changed with its job",
        (
            "UPDATE holdfast.job_envelope SET priority = 0 WHERE id = '{busy.done.id}'",
            (
                "UPDATE holdfast.audit_event SET digest = NULL WHERE id = (SELECT event_id"
                " FROM holdfast.job_envelope WHERE id = '{busy.done.id}')"
            ),
        ),
        "seal:",
    )
    yield Plant(
        "audit: last event deleted",
        ("DELETE FROM holdfast.audit_event WHERE id = (SELECT max(id) FROM holdfast.audit_event)",),
        "{fresh}",
    )
    yield Plant(
        "audit: newest seal deleted with its events",
        (
            (
                "DELETE FROM holdfast.audit_event WHERE id >= (SELECT max(first_event_id)"
                " FROM holdfast.audit_seal) AND id <= (SELECT max(last_event_id)"
                " FROM holdfast.audit_seal)"
            ),
            (
                "DELETE FROM holdfast.audit_seal WHERE last_event_id ="
                " (SELECT max(last_event_id) FROM holdfast.audit_seal)"
            ),
        ),
        "",
    )
    yield Plant(
        "event before sealing: edited error",
        (
            (
                "UPDATE holdfast.audit_event"
                """ SET detail = '{"error_class": "GONE", "last_error": "x"}'"""
                " WHERE job_id = '{fresh_failure}' AND name = 'job.failed'"
            ),
        ),
        "{fresh_failure}",
    )
    yield Plant(
        "event before sealing: deleted",
        (f"DELETE FROM holdfast.audit_event WHERE {of_fresh}",),
        "{fresh}",
    )
    yield Plant(
        "event before sealing: deleted with its job",
        (
            f"DELETE FROM holdfast.audit_event WHERE {of_fresh}",
            *delete("fresh"),
        ),
        "audit",
    )
    yield Plant(
        "event before sealing: deleted with its job, and the server's counts reset",
        (
            f"DELETE FROM holdfast.audit_event WHERE {of_fresh}",
            *delete("fresh"),
            "SELECT pg_stat_reset()",
        ),
        "audit",
        on=("postgres",),
        out_of_reach="a rolled back transaction leaves the same gap in the ids of events",
    )
    yield Plant("event before sealing: inserted", (event("job.succeeded", "fresh"),), "{fresh}")
    yield Plant(
        "seal: digest",
        ("UPDATE holdfast.audit_seal SET digest = 'x' WHERE number = 1",),
        "seal:1",
    )
    yield Plant(
        "seal: leaves",
        (
            (
                "UPDATE holdfast.audit_seal SET leaves = substr(leaves, 33), event_count ="
                " event_count - 1 WHERE number = 1"
            ),
        ),
        "seal:1",
    )
    yield Plant("seal: deleted", ("DELETE FROM holdfast.audit_seal WHERE number = 1",), "seal:1")
    yield Plant("sealing: set back", ("UPDATE holdfast.audit_cursor SET sealed_to = 0",), "audit")
