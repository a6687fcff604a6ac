GRANT INSERT (deliver_job_id) ON holdfast.delivery TO holdfast_tenant;

-- Writes the first audit event of every delivery, for every client that inserts one, with a digest
-- of content and recipient. Its id takes the place of a job id. SECURITY DEFINER: a tenant may
-- intend a delivery, and may not write the audit in any other way.
CREATE FUNCTION holdfast.record_intended() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO holdfast.audit_event
        (org_id, project_id, job_id, job_type, name, attempt, actor_type, actor_id, request_id,
         correlation_id, at, detail, digest)
    SELECT org_id, project_id, id, 'delivery', 'delivery.intended', 1, actor_type, actor_id,
           request_id, correlation_id, created_at,
           jsonb_build_object('delivery_id', id, 'channel', channel,
                              'actor', actor_type || ':' || actor_id,
                              'job_id', coalesce(deliver_job_id, job_id)),
           {digest delivery added}
    FROM added;
    RETURN NULL;
END $$;
REVOKE ALL ON FUNCTION holdfast.record_intended() FROM PUBLIC;
CREATE TRIGGER delivery_intended AFTER INSERT ON holdfast.delivery
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION holdfast.record_intended();
