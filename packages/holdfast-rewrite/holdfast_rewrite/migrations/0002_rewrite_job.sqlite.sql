-- The audit vouches for what a rewrite became: a digest of the output, never its text.
CREATE TRIGGER rewrite_output_stored AFTER INSERT ON holdfast_rewrite_output BEGIN
    INSERT INTO holdfast_audit_event
        (org_id, job_id, job_type, name, attempt, actor_type, actor_id, request_id,
         correlation_id, at, detail, digest)
    SELECT NEW.org_id, NEW.rewrite_request_id, 'rewrite', 'rewrite.output_stored', 1, 'system',
           'holdfast', request.request_id, request.correlation_id, NEW.created_at,
           json_object('rewrite_request_id', NEW.rewrite_request_id), {digest output NEW}
    FROM holdfast_rewrite_request AS request
    WHERE request.org_id = NEW.org_id AND request.rewrite_request_id = NEW.rewrite_request_id;
END;
