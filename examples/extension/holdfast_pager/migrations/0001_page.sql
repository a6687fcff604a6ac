CREATE TABLE holdfast.pager_page (
    org_id {uuid} NOT NULL,
    number text NOT NULL,
    PRIMARY KEY (org_id, number)
);
CREATE TABLE holdfast.pager_failure (
    org_id {uuid} NOT NULL,
    job_id {uuid} NOT NULL,
    PRIMARY KEY (org_id, job_id)
);
