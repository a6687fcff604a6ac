-- The jobs that a budget of a workflow step has allowed to call a model. Their entries in the ledger
-- are what the step has spent; a replay is a job of its own. Rows stay like those of the ledger.
CREATE TABLE holdfast.budgeted_job (
    org_id {uuid} NOT NULL,
    workflow_id {uuid} NOT NULL,
    step text NOT NULL,
    job_id {uuid} NOT NULL,
    PRIMARY KEY (org_id, workflow_id, step, job_id)
);

CREATE INDEX provider_call_of_job ON holdfast.provider_call (org_id, job_id);
