-- Statements of the event stream of frontends.

-- list_changed :many — what a person may know of these rewrites: as a sender the status, as a recipient the arrival
SELECT status.rewrite_request_id, 'sent' AS role, status.status, status.has_failed,
       status.completed_at, status.sender_reveal_at
FROM {rows changed: request_id uuid, job_id uuid}
JOIN holdfast.rewrite_request AS request
  ON request.org_id = :org_id
 AND (request.rewrite_request_id = changed.request_id OR request.job_id = changed.job_id)
JOIN holdfast.rewrite_status AS status
  ON status.org_id = request.org_id AND status.rewrite_request_id = request.rewrite_request_id
WHERE status.sender_user_id = :user_id
UNION ALL
SELECT request.rewrite_request_id, 'received' AS role, request.status, 0 AS has_failed,
       request.rewrite_completed_at AS completed_at, request.sender_reveal_at
FROM {rows changed: request_id uuid, job_id uuid}
JOIN holdfast.rewrite_request AS request
  ON request.org_id = :org_id
 AND (request.rewrite_request_id = changed.request_id OR request.job_id = changed.job_id)
JOIN holdfast.recipient_snapshot AS snapshot
  ON snapshot.org_id = request.org_id
 AND snapshot.recipient_snapshot_id = request.recipient_snapshot_id
WHERE request.recipient_user_id = :user_id AND request.status = 'completed'
  AND request.erased_at IS NULL AND CAST(snapshot.recipient_user_ids AS text) = :named;
