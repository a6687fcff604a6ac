-- The job that was enqueued to send a delivery, if any. A job that intends and sends its own
-- delivery is in job_id. Jobs are pruned earlier: no foreign key.
ALTER TABLE holdfast.delivery ADD COLUMN deliver_job_id {uuid};

CREATE INDEX delivery_of_deliver_job ON holdfast.delivery (org_id, deliver_job_id)
    WHERE deliver_job_id IS NOT NULL;
