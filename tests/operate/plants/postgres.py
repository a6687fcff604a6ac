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
    for function in ("enqueue_envelopes", "start_jobs", "end_attempts", "end_jobs", "refuse_move"):
        definer = "" if function == "refuse_move" else " SECURITY DEFINER"
        yield schema(
            f"{function}() does nothing",
            f"CREATE OR REPLACE FUNCTION holdfast.{function}() RETURNS trigger LANGUAGE plpgsql"
            f"{definer} SET search_path = pg_catalog, pg_temp AS $${nothing}$$",
            f"function:{function}",
        )
    envelope = "holdfast.job_envelope"
    outcome = "holdfast.job_outcome"
    yield schema(
        "trigger disabled", f"ALTER TABLE {outcome} DISABLE TRIGGER job_ended", "job_ended"
    )
    yield schema(
        "trigger for replicas only",
        f"ALTER TABLE {outcome} ENABLE REPLICA TRIGGER job_ended",
        "job_ended",
    )
    yield schema("trigger dropped", f"DROP TRIGGER job_ended ON {outcome}", "job_ended")
    yield schema(
        "trigger with another condition",
        "DROP TRIGGER job_ready_follows ON holdfast.job_ready;; CREATE TRIGGER job_ready_follows"
        " BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON holdfast.job_ready"
        " FOR EACH STATEMENT WHEN (false) EXECUTE FUNCTION holdfast.refuse_move()",
        "job_ready_follows",
    )
    yield schema(
        "trigger on other columns",
        "DROP TRIGGER job_event_never_changes ON holdfast.audit_event;;"
        " CREATE TRIGGER job_event_never_changes AFTER UPDATE OF id ON holdfast.audit_event"
        " FOR EACH ROW WHEN (true) EXECUTE FUNCTION holdfast.refuse('the audit is append-only')",
        "job_event_never_changes",
    )
    yield schema(
        "trigger on another event",
        "DROP TRIGGER job_event_never_leaves ON holdfast.audit_event;;"
        " CREATE TRIGGER job_event_never_leaves BEFORE TRUNCATE ON holdfast.audit_event"
        " FOR EACH STATEMENT EXECUTE FUNCTION holdfast.refuse('the audit is append-only')",
        "job_event_never_leaves",
    )
    yield schema(
        "trigger with another function",
        "CREATE FUNCTION public.nothing() RETURNS trigger LANGUAGE plpgsql AS"
        f" $${nothing}$$;; DROP TRIGGER job_ended ON {outcome};;"
        f" CREATE TRIGGER job_ended AFTER INSERT ON {outcome}"
        " FOR EACH ROW EXECUTE FUNCTION public.nothing()",
        "job_ended",
    )
    yield schema(
        "trigger added that swallows writes",
        "CREATE FUNCTION public.nothing() RETURNS trigger LANGUAGE plpgsql AS"
        f" $${nothing}$$;; CREATE TRIGGER aaa BEFORE INSERT ON holdfast.audit_event"
        " FOR EACH ROW EXECUTE FUNCTION public.nothing()",
        "aaa",
    )
    yield schema(
        "rule added that swallows writes",
        "CREATE RULE quiet AS ON DELETE TO holdfast.audit_event DO INSTEAD NOTHING",
        "quiet",
    )
    yield schema(
        "policy opened",
        "ALTER POLICY tenant_sees_itself ON holdfast.job_envelope USING (true)",
        "job_envelope",
    )
    yield schema(
        "policy for reading only",
        "DROP POLICY tenant_sees_itself ON holdfast.job_envelope;; CREATE POLICY"
        " tenant_sees_itself ON holdfast.job_envelope FOR SELECT TO holdfast_tenant USING"
        " (org_id = nullif(current_setting('holdfast.org_id', true), '')::uuid)",
        "job_envelope",
    )
    yield schema(
        "policy with another setting",
        "ALTER POLICY tenant_sees_itself ON holdfast.job_envelope USING"
        " (org_id = nullif(current_setting('holdfast.org_id2', true), '')::uuid)",
        "job_envelope",
    )
    yield schema(
        "policy without a check",
        "ALTER POLICY tenant_sees_itself ON holdfast.job_envelope WITH CHECK (true)",
        "job_envelope",
    )
    yield schema(
        "policy dropped", "DROP POLICY engine_serves_all ON holdfast.job_envelope", "job_envelope"
    )
    yield schema(
        "policy added",
        "CREATE POLICY all_see ON holdfast.job_envelope USING (true)",
        "job_envelope",
    )
    yield schema(
        "policy for another role",
        "ALTER POLICY engine_serves_all ON holdfast.job_envelope TO PUBLIC",
        "job_envelope",
    )
    yield schema(
        "row-level security off",
        "ALTER TABLE holdfast.job_envelope DISABLE ROW LEVEL SECURITY",
        "job_envelope",
    )
    yield schema(
        "row-level security not forced",
        "ALTER TABLE holdfast.job_envelope NO FORCE ROW LEVEL SECURITY",
        "job_envelope",
    )
    for grantee in ("holdfast_engine", "holdfast_tenant", "holdfast_auditor", "PUBLIC"):
        yield schema(
            f"audit may be changed by {grantee}",
            f"GRANT UPDATE, DELETE ON holdfast.audit_event TO {grantee}",
            "audit_event",
        )
    yield schema(
        "audit may be changed by another role",
        "CREATE ROLE stranger;; GRANT UPDATE, DELETE ON holdfast.audit_event TO stranger",
        "audit_event",
        undo="DROP OWNED BY stranger;; DROP ROLE stranger",
    )
    yield schema(
        "column may be changed by tenants",
        "GRANT UPDATE (payload) ON holdfast.job_envelope TO holdfast_tenant",
        "job_envelope",
    )
    yield schema(
        "seals may be truncated",
        "GRANT TRUNCATE ON holdfast.audit_seal TO holdfast_engine",
        "audit_seal",
    )
    yield schema(
        "grant revoked", "REVOKE INSERT ON holdfast.audit_event FROM holdfast_engine", "audit_event"
    )
    yield schema(
        "schema open to all",
        "GRANT CREATE ON SCHEMA holdfast TO holdfast_tenant",
        "schema:holdfast",
    )
    yield schema(
        "security definer dropped",
        "ALTER FUNCTION holdfast.enqueue_envelopes() SECURITY INVOKER",
        "function:enqueue_envelopes",
    )
    yield schema(
        "security definer added",
        "ALTER FUNCTION holdfast.refuse_move() SECURITY DEFINER",
        "function:refuse_move",
    )
    yield schema(
        "search path changed",
        "ALTER FUNCTION holdfast.enqueue_envelopes() SET search_path = pg_catalog, public",
        "function:enqueue_envelopes",
    )
    yield schema(
        "search path removed",
        "ALTER FUNCTION holdfast.enqueue_envelopes() RESET search_path",
        "function:enqueue_envelopes",
    )
    yield schema(
        "function open to all",
        "GRANT EXECUTE ON FUNCTION holdfast.is_full TO PUBLIC",
        "function:is_full",
    )
    yield schema(
        "constraint dropped",
        f"ALTER TABLE {outcome} DROP CONSTRAINT job_outcome_known",
        "job_outcome_known",
    )
    yield schema(
        "constraint not validated",
        "ALTER TABLE holdfast.job_attempt DROP CONSTRAINT job_attempts_in_budget;;"
        " ALTER TABLE holdfast.job_attempt"
        " ADD CONSTRAINT job_attempts_in_budget CHECK (attempt_count >= 0"
        " AND attempt_count <= max_attempts) NOT VALID",
        "job_attempts_in_budget",
    )
    yield schema(
        "constraint weakened",
        "ALTER TABLE holdfast.job_attempt DROP CONSTRAINT job_attempts_in_budget;;"
        " ALTER TABLE holdfast.job_attempt"
        " ADD CONSTRAINT job_attempts_in_budget CHECK (true)",
        "job_attempts_in_budget",
    )
    yield schema(
        "foreign key dropped",
        "ALTER TABLE holdfast.dead_letter DROP CONSTRAINT dead_letter_org_id_job_id_fkey",
        "dead_letter_org_id_job_id_fkey",
    )
    yield schema("index dropped", "DROP INDEX holdfast.job_ready_oldest", "job_ready_oldest")
    yield schema(
        "unique index replaced",
        f"DROP INDEX holdfast.job_once_per_unit;; CREATE INDEX job_once_per_unit ON {envelope}"
        " (org_id, job_type, unit_key) WHERE unit_key IS NOT NULL AND replay_of IS NULL",
        "job_once_per_unit",
    )
    yield schema(
        "unique constraint dropped",
        f"ALTER TABLE {outcome} DROP CONSTRAINT job_outcome_pkey",
        "job_outcome_pkey",
    )
    yield schema(
        "column may be empty",
        "ALTER TABLE holdfast.job_envelope ALTER COLUMN payload DROP NOT NULL",
        "job_envelope",
    )
    yield schema(
        "column with another default",
        "ALTER TABLE holdfast.job_envelope ALTER COLUMN limit_key SET DEFAULT 'x'",
        "job_envelope",
    )
    yield schema(
        "column added", "ALTER TABLE holdfast.job_envelope ADD COLUMN extra text", "job_envelope"
    )
    yield schema(
        "view replaced",
        "CREATE OR REPLACE VIEW holdfast.job_event WITH (security_invoker = true) AS SELECT id,"
        " org_id, project_id, job_id, job_type, name, attempt, actor_type, actor_id, request_id,"
        " correlation_id, at, detail, digest FROM holdfast.audit_event",
        "job_event",
    )
    yield schema(
        "view with its owner's rights",
        "ALTER VIEW holdfast.job SET (security_invoker = false)",
        "view:job",
    )
    yield schema("table not logged", "ALTER TABLE holdfast.worker SET UNLOGGED", "worker")
    yield schema(
        "table owned by tenants",
        "ALTER TABLE holdfast.audit_note OWNER TO holdfast_tenant",
        "audit_note",
    )
    yield schema(
        "audit owned by another role",
        "CREATE ROLE stranger;; ALTER TABLE holdfast.audit_event OWNER TO stranger",
        "audit_event",
        undo="REASSIGN OWNED BY stranger TO CURRENT_USER;; DROP OWNED BY stranger;;"
        " DROP ROLE stranger",
    )
    yield schema(
        "all triggers off",
        "ALTER TABLE holdfast.audit_event DISABLE TRIGGER ALL",
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
        " ALTER FUNCTION holdfast.enqueue_envelopes() OWNER TO holdfast_tenant;;"
        " REVOKE CREATE ON SCHEMA holdfast FROM holdfast_tenant",
        "function:enqueue_envelopes",
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
