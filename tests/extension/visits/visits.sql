-- add_visit :affected — one visitor of a tenant
INSERT INTO holdfast.visit (org_id, visitor) VALUES (:org_id, :visitor);

-- count_visits :one — crosses tenants: of all tenants together
SELECT count(*) AS visits FROM holdfast.visit;

-- find_unnamed :many — V1, crosses tenants: a visitor without a name
SELECT org_id, 'visitor:' || visitor AS subject, 'it has no name' AS detail
FROM holdfast.visit WHERE visitor = '';

-- forget_visits :affected — crosses tenants: what the bounded run does
DELETE FROM holdfast.visit;
