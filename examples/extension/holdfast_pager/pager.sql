-- insert_pages :affected — in the transaction that completes the jobs
INSERT INTO holdfast.pager_page (org_id, number)
SELECT pages.org_id, pages.number FROM {rows pages: org_id uuid, number text} WHERE true
ON CONFLICT DO NOTHING;

-- insert_failures :affected — crosses tenants: jobs that failed, in the transaction that fails them
INSERT INTO holdfast.pager_failure (org_id, job_id)
SELECT jobs.org_id, jobs.job_id FROM {rows jobs: org_id uuid, job_id uuid} WHERE true
ON CONFLICT DO NOTHING;

-- list_pages :many — the pages of one tenant
SELECT number FROM holdfast.pager_page WHERE org_id = :org_id ORDER BY number;

-- count_failures :one — the failed pages of one tenant
SELECT count(*) AS failures FROM holdfast.pager_failure WHERE org_id = :org_id;

-- find_unnumbered :many — PAGER1, crosses tenants: a page without a number
SELECT org_id, 'page' AS subject, 'it has no number' AS detail
FROM holdfast.pager_page WHERE number = '';
