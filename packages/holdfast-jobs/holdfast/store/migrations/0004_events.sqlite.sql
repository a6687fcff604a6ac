-- Writes the first audit event of every job, for every client that inserts one. The digest covers
-- the immutable columns; columns that a settle may change follow it in plain text.
CREATE TRIGGER job_enqueued AFTER INSERT ON holdfast_job BEGIN
    INSERT INTO holdfast_job_event
        (org_id, project_id, job_id, job_type, name, attempt, actor_type, actor_id, request_id,
         correlation_id, at, detail, digest)
    VALUES
        (NEW.org_id, NEW.project_id, NEW.id, NEW.job_type, 'job.enqueued', 1, NEW.actor_type,
         NEW.actor_id, NEW.request_id, NEW.correlation_id, NEW.created_at,
         CASE WHEN NEW.not_before_at IS NULL
              THEN json_object('queue', NEW.queue, 'payload_hash', NEW.payload_hash)
              ELSE json_object('queue', NEW.queue, 'payload_hash', NEW.payload_hash,
                               'not_before_at', NEW.not_before_at) END,
         {digest enqueue NEW} || ':' || NEW.max_attempts || ':' || NEW.stage || ':'
             || NEW.pipeline_version);
END;

-- Writes an audit event for every claim, so that a claim is one statement that commits by itself.
CREATE TRIGGER job_started AFTER UPDATE OF lease_token ON holdfast_job
WHEN NEW.lease_token <> OLD.lease_token BEGIN
    INSERT INTO holdfast_job_event
        (org_id, project_id, job_id, job_type, name, attempt, actor_type, actor_id, request_id,
         correlation_id, at)
    VALUES
        (NEW.org_id, NEW.project_id, NEW.id, NEW.job_type, 'job.started', NEW.attempt_count + 1,
         'system', NEW.claimed_by, NEW.request_id, NEW.correlation_id, NEW.claimed_at);
END;
