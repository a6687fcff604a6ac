-- A key or a unit is taken as long as its job is kept, in history too.
CREATE TRIGGER job_not_in_history AFTER INSERT ON holdfast_job BEGIN
    SELECT RAISE(ABORT, 'job_once_per_key: the job of this key is in history')
    WHERE EXISTS (
        SELECT 1 FROM holdfast_job_history
        WHERE org_id = NEW.org_id AND idempotency_key = NEW.idempotency_key);
    SELECT RAISE(ABORT, 'job_once_per_unit: the job of this unit is in history')
    WHERE NEW.unit_key IS NOT NULL AND EXISTS (
        SELECT 1 FROM holdfast_job_history
        WHERE org_id = NEW.org_id AND job_type = NEW.job_type AND unit_key = NEW.unit_key);
END;
