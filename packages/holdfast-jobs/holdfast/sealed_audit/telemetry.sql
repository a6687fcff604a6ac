-- Statements for the metrics and the doctor check of sealing.

-- read_lag :one — crosses tenants: how far the seals are behind the audit
SELECT found.unsealed, {ms_since(found.at)} AS unsealed_ms
FROM (SELECT (SELECT coalesce(max(event.id), 0) FROM holdfast.audit_event AS event)
                 - cursor.sealed_to AS unsealed,
             (SELECT event.at FROM holdfast.audit_event AS event
              WHERE event.id > cursor.sealed_to ORDER BY event.id LIMIT 1) AS at
      FROM holdfast.audit_cursor AS cursor
      WHERE cursor.only_row = 1) AS found;
