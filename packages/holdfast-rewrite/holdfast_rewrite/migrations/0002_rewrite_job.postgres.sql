-- An ordinary view would run with its owner's rights and show every tenant to everybody.
ALTER VIEW holdfast.rewrite_job SET (security_invoker = true);
GRANT SELECT ON holdfast.rewrite_job TO holdfast_engine;

-- The audit vouches for what a rewrite became: a digest of the output, never its text.
CREATE FUNCTION holdfast.record_rewritten() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO holdfast.audit_event
        (org_id, job_id, job_type, name, attempt, actor_type, actor_id, request_id,
         correlation_id, at, detail, digest)
    SELECT added.org_id, added.rewrite_request_id, 'rewrite', 'rewrite.output_stored', 1, 'system',
           'holdfast', request.request_id, request.correlation_id, added.created_at,
           jsonb_build_object('rewrite_request_id', added.rewrite_request_id),
           {digest output added}
    FROM added
    JOIN holdfast.rewrite_request AS request
      ON request.org_id = added.org_id AND request.rewrite_request_id = added.rewrite_request_id;
    RETURN NULL;
END $$;
REVOKE ALL ON FUNCTION holdfast.record_rewritten() FROM PUBLIC;
CREATE TRIGGER rewrite_output_stored AFTER INSERT ON holdfast.rewrite_output
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION holdfast.record_rewritten();
