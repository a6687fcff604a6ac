"""Violations of definitions on PostgreSQL: functions, triggers, policies, rights and tables."""

from __future__ import annotations

from collections.abc import Iterator

from tests.operate.plants.plant import Plant


def postgres_plants() -> Iterator[Plant]:
    def schema(name: str, text: str, subject: str, undo: str = "") -> Plant:
        return Plant(
            f"PostgreSQL: {name}",
            tuple(part for part in text.split(";;") if part.strip()),
            subject,
            ("postgres",),
            undo,
            is_schema=True,
        )

    nothing = "BEGIN RETURN NULL; END"
    yield schema(
        "refuse() does nothing",
        "CREATE OR REPLACE FUNCTION holdfast.refuse() RETURNS trigger LANGUAGE plpgsql AS"
        " $$BEGIN RETURN coalesce(NEW, OLD); END$$",
        "function:refuse",
    )
    yield schema(
        "record_enqueued() does nothing",
        "CREATE OR REPLACE FUNCTION holdfast.record_enqueued() RETURNS trigger LANGUAGE plpgsql"
        f" SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $${nothing}$$",
        "function:record_enqueued",
    )
    yield schema(
        "record_started() does nothing",
        "CREATE OR REPLACE FUNCTION holdfast.record_started() RETURNS trigger LANGUAGE plpgsql"
        f" AS $${nothing}$$",
        "function:record_started",
    )
    yield schema(
        "refuse_archived() does nothing",
        "CREATE OR REPLACE FUNCTION holdfast.refuse_archived() RETURNS trigger LANGUAGE plpgsql"
        f" AS $${nothing}$$",
        "function:refuse_archived",
    )
    yield schema(
        "trigger disabled", "ALTER TABLE holdfast.job DISABLE TRIGGER job_edge", "job_edge"
    )
    yield schema(
        "trigger for replicas only",
        "ALTER TABLE holdfast.job ENABLE REPLICA TRIGGER job_edge",
        "job_edge",
    )
    yield schema("trigger dropped", "DROP TRIGGER job_edge ON holdfast.job", "job_edge")
    yield schema(
        "trigger with another condition",
        "DROP TRIGGER job_edge ON holdfast.job;; CREATE TRIGGER job_edge AFTER UPDATE OF state ON"
        " holdfast.job FOR EACH ROW WHEN (false) EXECUTE FUNCTION holdfast.refuse('x')",
        "job_edge",
    )
    yield schema(
        "trigger on other columns",
        "DROP TRIGGER job_event_never_changes ON holdfast.job_event;;"
        " CREATE TRIGGER job_event_never_changes AFTER UPDATE OF id ON holdfast.job_event"
        " FOR EACH ROW WHEN (true) EXECUTE FUNCTION holdfast.refuse('the audit is append-only')",
        "job_event_never_changes",
    )
    yield schema(
        "trigger on another event",
        "DROP TRIGGER job_event_never_leaves ON holdfast.job_event;;"
        " CREATE TRIGGER job_event_never_leaves BEFORE TRUNCATE ON holdfast.job_event"
        " FOR EACH STATEMENT EXECUTE FUNCTION holdfast.refuse('the audit is append-only')",
        "job_event_never_leaves",
    )
    yield schema(
        "trigger with another function",
        "CREATE FUNCTION public.nothing() RETURNS trigger LANGUAGE plpgsql AS"
        f" $${nothing}$$;; DROP TRIGGER job_edge ON holdfast.job;;"
        " CREATE TRIGGER job_edge AFTER UPDATE OF state ON holdfast.job"
        " FOR EACH ROW EXECUTE FUNCTION public.nothing()",
        "job_edge",
    )
    yield schema(
        "trigger added that swallows writes",
        "CREATE FUNCTION public.nothing() RETURNS trigger LANGUAGE plpgsql AS"
        f" $${nothing}$$;; CREATE TRIGGER aaa BEFORE INSERT ON holdfast.job_event"
        " FOR EACH ROW EXECUTE FUNCTION public.nothing()",
        "aaa",
    )
    yield schema(
        "rule added that swallows writes",
        "CREATE RULE quiet AS ON DELETE TO holdfast.job_event DO INSTEAD NOTHING",
        "quiet",
    )
    yield schema(
        "policy opened",
        "ALTER POLICY tenant_sees_itself ON holdfast.job USING (true)",
        "job",
    )
    yield schema(
        "policy for reading only",
        "DROP POLICY tenant_sees_itself ON holdfast.job;; CREATE POLICY tenant_sees_itself ON"
        " holdfast.job FOR SELECT TO holdfast_tenant USING"
        " (org_id = nullif(current_setting('holdfast.org_id', true), '')::uuid)",
        "job",
    )
    yield schema(
        "policy with another setting",
        "ALTER POLICY tenant_sees_itself ON holdfast.job USING"
        " (org_id = nullif(current_setting('holdfast.org_id2', true), '')::uuid)",
        "job",
    )
    yield schema(
        "policy without a check",
        "ALTER POLICY tenant_sees_itself ON holdfast.job WITH CHECK (true)",
        "job",
    )
    yield schema("policy dropped", "DROP POLICY engine_serves_all ON holdfast.job", "job")
    yield schema("policy added", "CREATE POLICY all_see ON holdfast.job USING (true)", "job")
    yield schema(
        "policy for another role",
        "ALTER POLICY engine_serves_all ON holdfast.job TO PUBLIC",
        "job",
    )
    yield schema(
        "row-level security off", "ALTER TABLE holdfast.job DISABLE ROW LEVEL SECURITY", "job"
    )
    yield schema(
        "row-level security not forced",
        "ALTER TABLE holdfast.job NO FORCE ROW LEVEL SECURITY",
        "job",
    )
    for grantee in ("holdfast_engine", "holdfast_tenant", "holdfast_auditor", "PUBLIC"):
        yield schema(
            f"audit may be changed by {grantee}",
            f"GRANT UPDATE, DELETE ON holdfast.job_event TO {grantee}",
            "job_event",
        )
    yield schema(
        "audit may be changed by another role",
        "CREATE ROLE stranger;; GRANT UPDATE, DELETE ON holdfast.job_event TO stranger",
        "job_event",
        undo="DROP OWNED BY stranger;; DROP ROLE stranger",
    )
    yield schema(
        "column may be changed by tenants",
        "GRANT UPDATE (result) ON holdfast.job TO holdfast_tenant",
        "job",
    )
    yield schema(
        "seals may be truncated",
        "GRANT TRUNCATE ON holdfast.audit_seal TO holdfast_engine",
        "audit_seal",
    )
    yield schema(
        "grant revoked", "REVOKE INSERT ON holdfast.job_event FROM holdfast_engine", "job_event"
    )
    yield schema(
        "schema open to all",
        "GRANT CREATE ON SCHEMA holdfast TO holdfast_tenant",
        "schema:holdfast",
    )
    yield schema(
        "security definer dropped",
        "ALTER FUNCTION holdfast.record_enqueued() SECURITY INVOKER",
        "function:record_enqueued",
    )
    yield schema(
        "security definer added",
        "ALTER FUNCTION holdfast.record_started() SECURITY DEFINER",
        "function:record_started",
    )
    yield schema(
        "search path changed",
        "ALTER FUNCTION holdfast.record_enqueued() SET search_path = pg_catalog, public",
        "function:record_enqueued",
    )
    yield schema(
        "search path removed",
        "ALTER FUNCTION holdfast.record_enqueued() RESET search_path",
        "function:record_enqueued",
    )
    yield schema(
        "function open to all",
        "GRANT EXECUTE ON FUNCTION holdfast.is_full TO PUBLIC",
        "function:is_full",
    )
    yield schema(
        "constraint dropped",
        "ALTER TABLE holdfast.job DROP CONSTRAINT job_state_known",
        "job_state_known",
    )
    yield schema(
        "constraint not validated",
        "ALTER TABLE holdfast.job DROP CONSTRAINT job_attempts_in_budget;; ALTER TABLE holdfast.job"
        " ADD CONSTRAINT job_attempts_in_budget CHECK (attempt_count >= 0"
        " AND attempt_count <= max_attempts) NOT VALID",
        "job_attempts_in_budget",
    )
    yield schema(
        "constraint weakened",
        "ALTER TABLE holdfast.job DROP CONSTRAINT job_attempts_in_budget;; ALTER TABLE holdfast.job"
        " ADD CONSTRAINT job_attempts_in_budget CHECK (true)",
        "job_attempts_in_budget",
    )
    yield schema(
        "foreign key dropped",
        "ALTER TABLE holdfast.dead_letter DROP CONSTRAINT dead_letter_org_id_job_id_fkey",
        "dead_letter_org_id_job_id_fkey",
    )
    yield schema("index dropped", "DROP INDEX holdfast.job_lane", "job_lane")
    yield schema(
        "unique index replaced",
        "DROP INDEX holdfast.job_once_per_unit;; CREATE INDEX job_once_per_unit ON holdfast.job"
        " (org_id, job_type, unit_key) WHERE unit_key IS NOT NULL AND replay_of IS NULL",
        "job_once_per_unit",
    )
    yield schema(
        "unique constraint dropped",
        "ALTER TABLE holdfast.job DROP CONSTRAINT job_once_per_key",
        "job_once_per_key",
    )
    yield schema(
        "column may be empty", "ALTER TABLE holdfast.job ALTER COLUMN payload DROP NOT NULL", "job"
    )
    yield schema(
        "column with another default",
        "ALTER TABLE holdfast.job ALTER COLUMN state SET DEFAULT 'canceled'",
        "job",
    )
    yield schema("column added", "ALTER TABLE holdfast.job ADD COLUMN extra text", "job")
    yield schema(
        "view replaced",
        "CREATE OR REPLACE VIEW holdfast.claimable WITH (security_invoker = true) AS SELECT queue,"
        " limit_key, org_id, turn FROM holdfast.job WHERE state = 'queued'",
        "claimable",
    )
    yield schema(
        "view with its owner's rights",
        "ALTER VIEW holdfast.job_record SET (security_invoker = false)",
        "job_record",
    )
    yield schema("table not logged", "ALTER TABLE holdfast.worker SET UNLOGGED", "worker")
    yield schema(
        "table owned by tenants",
        "ALTER TABLE holdfast.audit_note OWNER TO holdfast_tenant",
        "audit_note",
    )
    yield schema(
        "audit owned by another role",
        "CREATE ROLE stranger;; ALTER TABLE holdfast.job_event OWNER TO stranger",
        "job_event",
        undo="REASSIGN OWNED BY stranger TO CURRENT_USER;; DROP OWNED BY stranger;;"
        " DROP ROLE stranger",
    )
    yield schema(
        "all triggers off",
        "ALTER TABLE holdfast.job_event DISABLE TRIGGER ALL",
        "job_event_never_changes",
    )
    yield schema(
        "triggers off in new sessions of the engine",
        "ALTER ROLE holdfast_engine SET session_replication_role = replica",
        "setting:session_replication_role of holdfast_engine",
        undo="ALTER ROLE holdfast_engine RESET session_replication_role",
    )
    yield schema(
        "engine is a superuser",
        "ALTER ROLE holdfast_engine SUPERUSER",
        "role:holdfast_engine",
        undo="ALTER ROLE holdfast_engine NOSUPERUSER",
    )
    for function in ("record_intended", "record_rewritten"):
        definer = " SECURITY DEFINER" if function == "record_intended" else ""
        yield schema(
            f"{function}() does nothing",
            f"CREATE OR REPLACE FUNCTION holdfast.{function}() RETURNS trigger LANGUAGE plpgsql"
            f"{definer} AS $${nothing}$$",
            f"function:{function}",
        )
    yield schema(
        "enqueue_jobs() dropped",
        "DROP FUNCTION holdfast.enqueue_jobs CASCADE",
        "function:enqueue_jobs",
    )
    yield schema(
        "function owned by tenants",
        "GRANT CREATE ON SCHEMA holdfast TO holdfast_tenant;;"
        " ALTER FUNCTION holdfast.record_enqueued() OWNER TO holdfast_tenant;;"
        " REVOKE CREATE ON SCHEMA holdfast FROM holdfast_tenant",
        "function:record_enqueued",
    )
    yield schema(
        "tenants may become the engine",
        "REVOKE holdfast_tenant FROM holdfast_engine;; GRANT holdfast_engine TO holdfast_tenant",
        "role:holdfast_tenant",
        undo=(
            "REVOKE holdfast_engine FROM holdfast_tenant;; GRANT holdfast_tenant TO holdfast_engine"
        ),
    )
    yield schema(
        "tenants bypass policies",
        "ALTER ROLE holdfast_tenant BYPASSRLS",
        "role:holdfast_tenant",
        undo="ALTER ROLE holdfast_tenant NOBYPASSRLS",
    )
    yield schema(
        "migration forgotten", "DELETE FROM holdfast.migration WHERE version = 19", "migration:0019"
    )
