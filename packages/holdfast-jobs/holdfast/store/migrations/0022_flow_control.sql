-- The job that holds each unique key of a tenant and job type. An enqueue locks the row of its key,
-- so that enqueues with one key run one after the other. Whether the key is free depends on the
-- state of that job: nothing has to be released when it ends.
CREATE TABLE holdfast.unique_key (
    org_id {uuid} NOT NULL,
    job_type text NOT NULL,
    unique_key text NOT NULL,
    job_id {uuid} NOT NULL,
    -- When the first job of a debounced series was enqueued.
    waiting_since {instant} NOT NULL,
    updated_at {instant} NOT NULL,
    PRIMARY KEY (org_id, job_type, unique_key)
);
CREATE INDEX unique_key_updated ON holdfast.unique_key (updated_at);

-- The time after which a job is not started any more. A pass closes the rows whose time has come.
CREATE TABLE holdfast.job_deadline (
    org_id {uuid} NOT NULL,
    job_id {uuid} NOT NULL,
    deadline_at {instant} NOT NULL,
    closed_at {instant},
    PRIMARY KEY (org_id, job_id)
);
CREATE INDEX job_deadline_open ON holdfast.job_deadline (deadline_at) WHERE closed_at IS NULL;
CREATE INDEX job_deadline_closed ON holdfast.job_deadline (closed_at) WHERE closed_at IS NOT NULL;

{refuse job_deadline_write_once BEFORE UPDATE OF org_id, job_id, deadline_at ON holdfast.job_deadline
WHEN NEW.org_id <> OLD.org_id OR NEW.job_id <> OLD.job_id OR NEW.deadline_at <> OLD.deadline_at
SAYING 'a deadline never changes'};

-- The tenants of a schedule that enqueues one job for each of them at every tick: 'all', or
-- 'declared' if the application lists them. NULL: the tenant in org_id.
ALTER TABLE holdfast.schedule ADD COLUMN tenants text;
{refuse schedule_tenants_known_added BEFORE INSERT ON holdfast.schedule
WHEN NEW.tenants IS NOT NULL AND (NEW.tenants NOT IN ('all', 'declared') OR NEW.job_type IS NULL)
SAYING 'a schedule of several tenants enqueues jobs for all or for the declared ones'};
{refuse schedule_tenants_known_changed BEFORE UPDATE OF tenants ON holdfast.schedule
WHEN NEW.tenants IS NOT NULL AND (NEW.tenants NOT IN ('all', 'declared') OR NEW.job_type IS NULL)
SAYING 'a schedule of several tenants enqueues jobs for all or for the declared ones'};
