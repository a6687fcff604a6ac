-- What was kept of a paid answer goes when its job stops waiting for it.
CREATE TRIGGER job_forgets_batch_answer AFTER UPDATE OF state ON holdfast_job
WHEN OLD.state = 'batch_submitted' AND NEW.state <> 'batch_submitted' BEGIN
    DELETE FROM holdfast_batch_answer WHERE org_id = OLD.org_id AND job_id = OLD.id;
END;
CREATE TRIGGER job_gone_forgets_batch_answer AFTER DELETE ON holdfast_job
WHEN OLD.state = 'batch_submitted' BEGIN
    DELETE FROM holdfast_batch_answer WHERE org_id = OLD.org_id AND job_id = OLD.id;
END;
