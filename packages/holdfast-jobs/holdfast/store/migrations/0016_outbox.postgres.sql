ALTER TABLE holdfast.delivery_evidence ADD PRIMARY KEY (org_id, id);

DO $$
DECLARE
    tenanted text;
BEGIN
    FOREACH tenanted IN ARRAY ARRAY['delivery', 'delivery_attempt', 'delivery_evidence'] LOOP
        EXECUTE format('ALTER TABLE holdfast.%I ENABLE ROW LEVEL SECURITY', tenanted);
        EXECUTE format('ALTER TABLE holdfast.%I FORCE ROW LEVEL SECURITY', tenanted);
        EXECUTE format(
            'CREATE POLICY engine_serves_all ON holdfast.%I TO holdfast_engine'
            ' USING (true) WITH CHECK (true)', tenanted);
        EXECUTE format(
            'CREATE POLICY tenant_sees_itself ON holdfast.%I TO holdfast_tenant'
            ' USING (org_id = (SELECT holdfast.current_tenant()))'
            ' WITH CHECK (org_id = (SELECT holdfast.current_tenant()))',
            tenanted);
        EXECUTE format(
            'GRANT SELECT, INSERT, UPDATE, DELETE ON holdfast.%I TO holdfast_engine', tenanted);
    END LOOP;
END $$;

-- A handler intends deliveries in its own transaction and reads their state. It cannot write the
-- columns that the engine records.
GRANT SELECT ON holdfast.delivery TO holdfast_tenant;
GRANT INSERT (org_id, id, subject, recipient, version, channel, address, token, content,
    content_hash, is_required, job_id, not_before_at, request_id, correlation_id, endpoint,
    project_id, actor_type, actor_id, created_at, updated_at) ON holdfast.delivery TO holdfast_tenant;

GRANT SELECT ON holdfast.outbox_key TO holdfast_engine;
GRANT SELECT, INSERT, UPDATE, DELETE ON holdfast.channel_circuit TO holdfast_engine;
