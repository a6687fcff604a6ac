-- The tenant that this transaction is bound to; none while holdfast.org_id is unset. nullif, because
-- the setting reads '' and not NULL after the transaction that set it.
CREATE FUNCTION holdfast.current_tenant() RETURNS uuid
LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    SELECT nullif(current_setting('holdfast.org_id', true), '')::uuid
$$;

-- Whether the caller has the rights of the engine. In a function that runs with its owner's rights
-- current_user is the owner. The caller is the role that the session has set, or else its login.
CREATE FUNCTION holdfast.is_engine() RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    SELECT pg_has_role(
        CASE current_setting('role') WHEN 'none' THEN session_user
             ELSE current_setting('role')::name END,
        'holdfast_engine', 'USAGE')
$$;

-- Row-level security, forced on every table with a tenant. The engine role serves all tenants; the
-- tenant role sees the one named in holdfast.org_id and nobody when it is unset. nullif, because
-- the setting reads '' and not NULL after the transaction that set it.
DO $$
DECLARE
    tenanted text;
BEGIN
    FOREACH tenanted IN ARRAY ARRAY['job', 'job_stage', 'dead_letter', 'job_event', 'audit_seal',
                                    'lease_extension'] LOOP
        EXECUTE format('ALTER TABLE holdfast.%I ENABLE ROW LEVEL SECURITY', tenanted);
        EXECUTE format('ALTER TABLE holdfast.%I FORCE ROW LEVEL SECURITY', tenanted);
        EXECUTE format(
            'CREATE POLICY engine_serves_all ON holdfast.%I TO holdfast_engine'
            ' USING (true) WITH CHECK (true)', tenanted);
        EXECUTE format(
            'CREATE POLICY tenant_sees_itself ON holdfast.%I TO holdfast_tenant'
            ' USING (org_id = nullif(current_setting(''holdfast.org_id'', true), '''')::uuid)'
            ' WITH CHECK (org_id = nullif(current_setting(''holdfast.org_id'', true), '''')::uuid)',
            tenanted);
    END LOOP;
END $$;

-- An ordinary view would run with its owner's rights and show every tenant to everybody.
ALTER VIEW holdfast.idempotency_key SET (security_invoker = true);

GRANT SELECT, INSERT, UPDATE, DELETE ON holdfast.job, holdfast.job_stage, holdfast.dead_letter,
    holdfast.lease_extension TO holdfast_engine;
GRANT SELECT, INSERT ON holdfast.job_event, holdfast.audit_seal TO holdfast_engine;
GRANT SELECT, UPDATE ON holdfast.audit_cursor TO holdfast_engine;
GRANT SELECT ON holdfast.migration, holdfast.idempotency_key TO holdfast_engine, holdfast_tenant;
GRANT SELECT ON holdfast.job, holdfast.job_stage, holdfast.dead_letter, holdfast.job_event,
    holdfast.audit_seal TO holdfast_tenant;

-- A tenant writes none of these tables. It enqueues through functions with their owner's rights,
-- which fill in or check whatever a caller may not choose.
GRANT EXECUTE ON FUNCTION holdfast.current_tenant TO holdfast_engine, holdfast_tenant;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA holdfast FROM PUBLIC;
