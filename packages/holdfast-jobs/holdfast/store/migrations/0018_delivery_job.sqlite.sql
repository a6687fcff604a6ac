-- Writes the first audit event of every delivery, for every client that inserts one, with a digest
-- of content and recipient. Its id takes the place of a job id.
CREATE TRIGGER delivery_intended AFTER INSERT ON holdfast_delivery BEGIN
    INSERT INTO holdfast_audit_event
        (org_id, project_id, job_id, job_type, name, attempt, actor_type, actor_id, request_id,
         correlation_id, at, detail, digest)
    VALUES
        (NEW.org_id, NEW.project_id, NEW.id, 'delivery', 'delivery.intended', 1, NEW.actor_type,
         NEW.actor_id, NEW.request_id, NEW.correlation_id, NEW.created_at,
         json_object('delivery_id', NEW.id, 'channel', NEW.channel,
                     'actor', NEW.actor_type || ':' || NEW.actor_id,
                     'job_id', coalesce(NEW.deliver_job_id, NEW.job_id)), {digest delivery NEW});
END;
