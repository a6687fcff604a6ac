-- Every job has its first audit event, whoever wrote the row.
CREATE TRIGGER job_enqueued AFTER INSERT ON holdfast_job BEGIN
    INSERT INTO holdfast_job_event
        (org_id, project_id, job_id, job_type, name, attempt, actor_type, actor_id, request_id,
         correlation_id, at, detail)
    VALUES
        (NEW.org_id, NEW.project_id, NEW.id, NEW.job_type, 'job.enqueued', 1, NEW.actor_type,
         NEW.actor_id, NEW.request_id, NEW.correlation_id, NEW.created_at,
         json_object('queue', NEW.queue, 'payload_hash', NEW.payload_hash));
END;
