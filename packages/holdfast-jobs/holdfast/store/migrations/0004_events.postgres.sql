-- SQLite numbers events by its rowid. Here the key starts with the tenant, and sealing reads the
-- events of all tenants in order.
ALTER TABLE holdfast.job_event ADD PRIMARY KEY (org_id, id);
CREATE INDEX job_event_in_order ON holdfast.job_event (id);

-- Writes the first audit event of every job, for every client that inserts one. Once per statement,
-- not per row. The digest covers the immutable columns; columns that a settle may change follow it
-- in plain text. SECURITY DEFINER: a tenant may enqueue, and may not write the audit in any other
-- way.
CREATE FUNCTION holdfast.record_enqueued() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO holdfast.job_event
        (org_id, project_id, job_id, job_type, name, attempt, actor_type, actor_id, request_id,
         correlation_id, at, detail, digest)
    SELECT org_id, project_id, id, job_type, 'job.enqueued', 1, actor_type, actor_id, request_id,
           correlation_id, created_at,
           jsonb_build_object('queue', queue, 'payload_hash', payload_hash)
           || CASE WHEN not_before_at IS NULL THEN '{}'
                   ELSE jsonb_build_object('not_before_at', {stamp(added.not_before_at)}) END,
           concat_ws(':', {digest enqueue added}, max_attempts, stage, pipeline_version)
    FROM added;
    RETURN NULL;
END $$;
CREATE TRIGGER job_enqueued AFTER INSERT ON holdfast.job
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION holdfast.record_enqueued();

-- Writes an audit event for every claim, so that a claim is one statement that commits by itself.
CREATE FUNCTION holdfast.record_started() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO holdfast.job_event
        (org_id, project_id, job_id, job_type, name, attempt, actor_type, actor_id, request_id,
         correlation_id, at)
    VALUES
        (NEW.org_id, NEW.project_id, NEW.id, NEW.job_type, 'job.started', NEW.attempt_count + 1,
         'system', NEW.claimed_by, NEW.request_id, NEW.correlation_id, NEW.claimed_at);
    RETURN NULL;
END $$;
CREATE TRIGGER job_started AFTER UPDATE OF lease_token ON holdfast.job FOR EACH ROW
    WHEN (NEW.lease_token <> OLD.lease_token) EXECUTE FUNCTION holdfast.record_started();

CREATE TRIGGER job_event_never_truncated BEFORE TRUNCATE ON holdfast.job_event
    FOR EACH STATEMENT EXECUTE FUNCTION holdfast.refuse('the audit is append-only');

-- Every job is updated twice, which leaves dead rows. Vacuum early and in small steps.
ALTER TABLE holdfast.job SET (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_insert_scale_factor = 0.1, autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 1);
