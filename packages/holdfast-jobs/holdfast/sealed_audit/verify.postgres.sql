-- PostgreSQL numbers events with gaps.

-- find_missing_events :many — I48, crosses tenants: events above the newest seal that were deleted
-- A rollback leaves a gap in the numbers, so a gap alone is not evidence. Holdfast deletes no
-- event: a gap counts once the server has counted deleted rows. I33 covers the sealed events.
SELECT CAST('00000000-0000-0000-0000-000000000000' AS uuid) AS org_id, 'audit' AS subject,
       'rows of audit_event were deleted, and of the numbers above '
           || CAST(found.sealed_to AS text) || ' there are ' || CAST(found.missing AS text)
           || ' missing' AS detail
FROM (
    SELECT cursor.sealed_to,
           greatest(coalesce(numbered.last_value, 0),
                    (SELECT coalesce(max(event.id), 0) FROM holdfast.audit_event AS event))
           - cursor.sealed_to
           - (SELECT coalesce(sum(event.events), 0) FROM holdfast.audit_event AS event
              WHERE event.id > cursor.sealed_to)
               AS missing
    FROM holdfast.audit_cursor AS cursor
    LEFT JOIN pg_catalog.pg_sequences AS numbered
      ON numbered.schemaname = 'holdfast' AND numbered.sequencename = 'audit_event_id_seq'
) AS found
WHERE found.missing > 0
  AND pg_catalog.pg_stat_get_tuples_deleted(CAST('holdfast.audit_event' AS regclass)) > 0;
