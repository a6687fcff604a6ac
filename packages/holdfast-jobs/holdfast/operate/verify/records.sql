-- The invariants of recorded changes, I42 to I46, I48 and I49, in the shape of lifecycle.sql. They
-- start with the events and check the rows. An event holds digests of the written columns
-- (store/digest.py): 32 characters each, joined by colons.

-- find_vanished :many — I42, crosses tenants: recorded jobs and claims that are not stored and were not pruned
SELECT entry.org_id, 'job:' || CAST(entry.job_id AS text) AS subject,
       CASE entry.name
           WHEN 'job.enqueued' THEN 'it was enqueued, but is neither stored nor recorded as pruned'
           WHEN 'job.started' THEN 'event ' || CAST(entry.id AS text)
               || ' says that it was claimed, and no claim has that event'
           ELSE 'event ' || CAST(entry.id AS text)
               || ' says that it succeeded, and its outcome does not' END AS detail
FROM (
    SELECT event.org_id, event.name, event.id - event.events + item.key + 1 AS id,
           item.value AS job_id
    FROM holdfast.audit_event AS event
    CROSS JOIN {each(event.jobs) AS item}
    WHERE event.jobs IS NOT NULL
      AND (CAST(:org_id AS {uuid}) IS NULL OR event.org_id = :org_id)
) AS entry
WHERE NOT EXISTS (SELECT 1 FROM holdfast.job_envelope AS fact
                  WHERE entry.name = 'job.enqueued' AND fact.org_id = entry.org_id
                    AND fact.id = entry.job_id AND fact.event_id = entry.id)
  AND NOT EXISTS (SELECT 1 FROM holdfast.job_outcome AS fact
                  WHERE fact.org_id = entry.org_id AND fact.job_id = entry.job_id
                    AND CASE entry.name WHEN 'job.started' THEN fact.started_event_id
                                        WHEN 'job.succeeded' THEN fact.event_id END = entry.id)
  AND NOT EXISTS (SELECT 1 FROM holdfast.job_running AS fact
                  WHERE entry.name = 'job.started' AND fact.org_id = entry.org_id
                    AND fact.job_id = entry.job_id AND fact.started_event_id = entry.id)
  AND NOT EXISTS (SELECT 1 FROM holdfast.job_submitted AS fact
                  WHERE entry.name = 'job.started' AND fact.org_id = entry.org_id
                    AND fact.job_id = entry.job_id AND fact.started_event_id = entry.id)
  AND NOT EXISTS (SELECT 1 FROM holdfast.job_attempt AS fact
                  WHERE entry.name = 'job.started' AND fact.org_id = entry.org_id
                    AND fact.job_id = entry.job_id AND fact.started_event_id = entry.id)
  AND NOT (EXISTS (SELECT 1 FROM holdfast.audit_event AS pruned
                   WHERE pruned.job_id = entry.job_id AND pruned.jobs IS NULL
                     AND pruned.org_id = entry.org_id AND pruned.name = 'job.pruned')
           AND EXISTS (SELECT 1 FROM holdfast.job_remainder AS gone
                       WHERE gone.org_id = entry.org_id AND gone.job_id = entry.job_id));

-- find_half_pruned :many — I42, crosses tenants: pruned jobs that still exist, or had not ended
SELECT event.org_id, 'job:' || CAST(event.job_id AS text) AS subject,
       CASE WHEN EXISTS (SELECT 1 FROM holdfast.job_envelope AS job
                         WHERE job.org_id = event.org_id AND job.id = event.job_id)
            THEN 'it was pruned and is still stored'
            ELSE 'it was pruned and had not ended as event ' || CAST(event.id AS text)
                 || ' says' END AS detail
FROM holdfast.audit_event AS event
WHERE event.name = 'job.pruned' AND (CAST(:org_id AS {uuid}) IS NULL OR event.org_id = :org_id)
  AND (EXISTS (SELECT 1 FROM holdfast.job_envelope AS job
               WHERE job.org_id = event.org_id AND job.id = event.job_id)
       OR NOT EXISTS (
           SELECT 1 FROM holdfast.audit_event AS ending
           WHERE ending.jobs IS NULL AND ending.job_id = event.job_id
             AND ending.org_id = event.org_id AND ending.id < event.id
             AND ending.name IN ('job.succeeded', 'job.deadlettered', 'job.canceled')
             AND substr(ending.digest, 1, 32) = event.digest)
       -- The event of a group has the digests of the outcomes, which find_changed_successes
       -- compares.
       AND NOT EXISTS (
           SELECT 1 FROM holdfast.job_remainder AS gone
           CROSS JOIN {elements(gone.events) AS past}
           WHERE gone.org_id = event.org_id AND gone.job_id = event.job_id
             AND {field(past.value, name)} = 'job.succeeded'));

-- find_changed_enqueues :many — I43, crosses tenants: jobs that differ from the digest of their enqueue
-- The digest of a group covers its jobs in their order.
SELECT found.org_id,
       CASE WHEN found.events = 1
            THEN 'job:' || CAST({at(found.jobs, 0)} AS text)
            ELSE 'event:' || CAST(found.id AS text) END AS subject,
       CASE WHEN found.digest IS NULL
            THEN 'event ' || CAST(found.id AS text) || ' has no digest of what it wrote'
            ELSE 'a value that an enqueue wrote has changed' END AS detail
FROM (
    SELECT event.org_id, event.id, event.events, event.digest, event.jobs, (
        SELECT {group_digest(part.digest)} FROM (
            SELECT coalesce(
                       (SELECT {digest enqueue job} || ':' || CAST(job.max_attempts AS text)
                               || ':' || job.stage || ':' || job.pipeline_version
                        FROM holdfast.job_envelope AS job
                        WHERE job.org_id = event.org_id AND job.id = item.value),
                       (SELECT {field(past.value, digest)}
                        FROM holdfast.job_remainder AS gone
                        CROSS JOIN {elements(gone.events) AS past}
                        WHERE gone.org_id = event.org_id AND gone.job_id = item.value
                          AND {field(past.value, name)} = 'job.enqueued'), '') AS digest
            FROM {each(event.jobs) AS item}
            ORDER BY item.key
        ) AS part) AS made
    FROM holdfast.audit_event AS event
    WHERE event.name = 'job.enqueued' AND event.jobs IS NOT NULL
      AND (CAST(:org_id AS {uuid}) IS NULL OR event.org_id = :org_id)
) AS found
WHERE found.digest IS DISTINCT FROM found.made;

-- find_changed_successes :many — I44, crosses tenants: outcomes that differ from the digest of their event
SELECT found.org_id,
       CASE WHEN found.events = 1
            THEN 'job:' || CAST({at(found.jobs, 0)} AS text)
            ELSE 'event:' || CAST(found.id AS text) END AS subject,
       CASE WHEN found.digest IS NULL
            THEN 'event ' || CAST(found.id AS text) || ' has no digest of what it wrote'
            ELSE 'a value that a completion wrote has changed' END AS detail
FROM (
    SELECT event.org_id, event.id, event.events, event.digest, event.jobs, (
        SELECT {group_digest(part.digest)} FROM (
            SELECT coalesce(
                       (SELECT {digest outcome ended} FROM holdfast.job_outcome AS ended
                        WHERE ended.org_id = event.org_id AND ended.job_id = item.value),
                       (SELECT {field(past.value, digest)}
                        FROM holdfast.job_remainder AS gone
                        CROSS JOIN {elements(gone.events) AS past}
                        WHERE gone.org_id = event.org_id AND gone.job_id = item.value
                          AND {field(past.value, name)} = 'job.succeeded'), '') AS digest
            FROM {each(event.jobs) AS item}
            ORDER BY item.key
        ) AS part) AS made
    FROM holdfast.audit_event AS event
    WHERE event.name = 'job.succeeded' AND event.jobs IS NOT NULL
      AND (CAST(:org_id AS {uuid}) IS NULL OR event.org_id = :org_id)
) AS found
WHERE found.digest IS DISTINCT FROM found.made;

-- find_changed_states :many — I44, crosses tenants: jobs that differ from the digest of their last change
-- Between changes only promotion moves a job: it clears not_before_at. A completion whose event is
-- one of a group has its own digest.
SELECT found.org_id, 'job:' || CAST(found.id AS text) AS subject, found.detail
FROM (
    SELECT job.org_id, job.id, CASE
        WHEN event.id IS NULL
                AND (job.finished_at IS NOT NULL OR job.cancel_requested_at IS NOT NULL
                     OR job.provider_batch_id IS NOT NULL
                     OR EXISTS (SELECT 1 FROM holdfast.job_attempt AS attempt
                                WHERE attempt.org_id = job.org_id AND attempt.job_id = job.id))
            THEN 'it has changed since it was enqueued, without an event'
        WHEN event.id IS NOT NULL AND event.digest IS NULL
            THEN 'event ' || CAST(event.id AS text) || ' has no digest of what it wrote'
        WHEN substr(event.digest, 1, 32) <> {digest state job}
            THEN 'a value that event ' || CAST(event.id AS text) || ' wrote has changed'
        WHEN job.not_before_at IS NOT NULL
                AND {stamp(job.not_before_at)} IS DISTINCT FROM
                    CASE WHEN event.id IS NULL THEN {stamp(asked.not_before_at)}
                         ELSE {field(event.detail, not_before_at)} END
            THEN 'it is deferred to another time than its last event says'
        WHEN job.not_before_at IS NULL
                AND CASE WHEN event.id IS NULL THEN asked.not_before_at
                         ELSE CAST({field(event.detail, not_before_at)} AS {instant}) END
                    > CAST(:due AS {instant})
            THEN 'it is not deferred, but its last event says it is'
        WHEN job.not_before_at IS NOT NULL AND job.queue <>
                CASE WHEN event.id IS NULL THEN coalesce(asked.queue, asked.origin_queue)
                     ELSE asked.origin_queue END
            THEN 'it is on ' || job.queue || ', but no event moved it there'
        END AS detail
    FROM holdfast.job AS job
    JOIN holdfast.job_envelope AS asked ON asked.org_id = job.org_id AND asked.id = job.id
    LEFT JOIN holdfast.audit_event AS event ON event.org_id = job.org_id AND event.id = (
        SELECT max(last.id) FROM holdfast.audit_event AS last
        WHERE last.jobs IS NULL AND last.job_id = job.id AND last.org_id = job.org_id
          AND last.name IN ('job.succeeded', 'job.advanced', 'job.retried', 'job.snoozed',
            'job.released', 'job.woken', 'job.submitted', 'job.deadlettered', 'job.canceled',
            'job.cancel_requested')
          -- A late cancel request refers to an ended job.
          AND NOT (last.name = 'job.cancel_requested'
                   AND coalesce({field(last.detail, answer)}, '') = 'too_late'))
    WHERE (CAST(:org_id AS {uuid}) IS NULL OR job.org_id = :org_id)
      AND NOT EXISTS (SELECT 1 FROM holdfast.job_outcome AS outcome
                      WHERE outcome.org_id = job.org_id AND outcome.job_id = job.id
                        AND outcome.event_id IS NOT NULL)
) AS found
WHERE found.detail IS NOT NULL;

-- find_changed_claims :many — I44, crosses tenants: claims and completions that differ from their event
SELECT fact.org_id, 'job:' || CAST(fact.job_id AS text) AS subject,
       'event ' || CAST(fact.event_id AS text) || ', its ' || fact.name
           || ', names another attempt, worker or time' AS detail
FROM (
    SELECT org_id, job_id, started_event_id AS event_id, 'job.started' AS name,
           started_attempt AS attempt, 'system' AS actor_type, claimed_by AS actor_id, claimed_at AS at
    FROM holdfast.job_running
    UNION ALL
    SELECT org_id, job_id, started_event_id, 'job.started', started_attempt, 'system', claimed_by,
           claimed_at
    FROM holdfast.job_submitted
    UNION ALL
    SELECT org_id, job_id, started_event_id, 'job.started', started_attempt, 'system', claimed_by,
           claimed_at
    FROM holdfast.job_attempt
    WHERE started_event_id IS NOT NULL
    UNION ALL
    SELECT org_id, job_id, started_event_id, 'job.started', started_attempt, 'system', claimed_by,
           claimed_at
    FROM holdfast.job_outcome
    WHERE started_event_id IS NOT NULL
    UNION ALL
    SELECT org_id, job_id, event_id, 'job.succeeded', attempt_count + 1, 'system', settled_by,
           finished_at
    FROM holdfast.job_outcome
    WHERE event_id IS NOT NULL
) AS fact
CROSS JOIN holdfast.audit_event AS told
WHERE told.id = (
      SELECT min(event.id) FROM holdfast.audit_event AS event WHERE event.id >= fact.event_id)
  AND (CAST(:org_id AS {uuid}) IS NULL OR fact.org_id = :org_id)
  AND told.name = fact.name AND told.id - told.events < fact.event_id
  AND (told.attempt <> fact.attempt OR told.actor_type <> fact.actor_type
       OR told.actor_id <> fact.actor_id OR told.at <> fact.at);

-- find_long_leases :many — I44, crosses tenants: leases that are longer than the maximum
SELECT running.org_id, 'job:' || CAST(running.job_id AS text) AS subject,
       'its lease is longer than the maximum' AS detail
FROM holdfast.job_running AS running
WHERE running.lease_expires_at > CAST(:longest AS {instant})
  AND (CAST(:org_id AS {uuid}) IS NULL OR running.org_id = :org_id);

-- find_changed_attempts :many — I44, crosses tenants: attempts that differ from the event that recorded them
-- The event has a digest of the job as the attempt left it: with the cancel request, if that came
-- before. A job that waits for an event which has arrived meanwhile is due earlier than its attempt
-- says.
SELECT attempt.org_id, 'job:' || CAST(attempt.job_id AS text) AS subject,
       'attempt ' || CAST(attempt.number AS text) || ' is not what its event says' AS detail
FROM holdfast.job_attempt AS attempt
WHERE (CAST(:org_id AS {uuid}) IS NULL OR attempt.org_id = :org_id)
  AND NOT EXISTS (
    SELECT 1 FROM holdfast.audit_event AS event
    CROSS JOIN (
        SELECT attempt.stage, attempt.pipeline_version, attempt.attempt_count,
               attempt.max_attempts, CAST(NULL AS {instant}) AS cancel_requested_at,
               attempt.provider_batch_id, attempt.first_failed_at, attempt.last_error_at,
               CAST(NULL AS {instant}) AS finished_at, CAST(NULL AS {instant}) AS key_expires_at,
               attempt.error_class, CAST(NULL AS text) AS result, attempt.last_error
        UNION ALL
        SELECT attempt.stage, attempt.pipeline_version, attempt.attempt_count,
               attempt.max_attempts, cancel.requested_at,
               attempt.provider_batch_id, attempt.first_failed_at, attempt.last_error_at,
               CAST(NULL AS {instant}), CAST(NULL AS {instant}), attempt.error_class,
               CAST(NULL AS text), attempt.last_error
        FROM holdfast.job_cancel AS cancel
        WHERE cancel.org_id = attempt.org_id AND cancel.job_id = attempt.job_id
    ) AS state
    WHERE event.jobs IS NULL AND event.job_id = attempt.job_id AND event.org_id = attempt.org_id
      AND CASE WHEN attempt.keeps_lease THEN event.name = 'job.advanced'
               ELSE event.name IN ('job.retried', 'job.snoozed', 'job.released') END
      AND CAST({field(event.detail, lease_token)} AS text) = CAST(attempt.lease_token AS text)
      AND (NOT ({stamp(attempt.not_before_at)}
                IS DISTINCT FROM {field(event.detail, not_before_at)})
           OR (event.name = 'job.snoozed'
               AND CAST({field(event.detail, not_before_at)} AS {instant}) < attempt.not_before_at))
      AND substr(event.digest, 1, 32) = {digest state state});

-- find_changed_errors :many — I44, crosses tenants: errors of jobs that differ from the recorded failure
SELECT job.org_id, 'job:' || CAST(job.id AS text) AS subject,
       'its last failure is another one than event ' || CAST(event.id AS text) || ' says' AS detail
FROM holdfast.job AS job
CROSS JOIN holdfast.audit_event AS event
WHERE (CAST(:org_id AS {uuid}) IS NULL OR job.org_id = :org_id)
  AND event.org_id = job.org_id
  AND event.id = (SELECT max(last.id) FROM holdfast.audit_event AS last
                  WHERE last.jobs IS NULL AND last.job_id = job.id AND last.org_id = job.org_id
                    AND last.name = 'job.failed')
  AND (job.error_class IS DISTINCT FROM {field(event.detail, error_class)}
       OR job.last_error IS DISTINCT FROM {field(event.detail, last_error)});

-- find_changed_stages :many — I45, crosses tenants: finished stages that differ from their event
SELECT found.org_id, 'job:' || CAST(found.job_id AS text) AS subject,
       'stage ' || found.stage || CASE WHEN found.digest IS NULL
           THEN ' is not stored, and event ' || CAST(found.id AS text) || ' says it finished'
           ELSE ' is not what event ' || CAST(found.id AS text) || ' says' END AS detail
FROM (
    SELECT event.org_id, event.job_id, event.id, {field(event.detail, stage)} AS stage,
           substr(coalesce(event.digest, ''), 34, 32) AS told,
           (SELECT {digest stage stage} FROM holdfast.job_stage AS stage
            WHERE stage.org_id = event.org_id AND stage.job_id = event.job_id
              AND stage.stage = {field(event.detail, stage)}) AS digest
    FROM holdfast.audit_event AS event
    WHERE event.jobs IS NULL AND event.name IN ('job.advanced', 'job.succeeded')
      AND {field(event.detail, stage)} IS NOT NULL
      AND (CAST(:org_id AS {uuid}) IS NULL OR event.org_id = :org_id)
      AND EXISTS (SELECT 1 FROM holdfast.job_envelope AS job
                  WHERE job.org_id = event.org_id AND job.id = event.job_id)
) AS found
WHERE found.digest IS DISTINCT FROM found.told;

-- find_invented_stages :many — I45, crosses tenants: finished stages without an event
-- A replay begins with stages that the previous job finished.
SELECT stage.org_id, 'job:' || CAST(stage.job_id AS text) AS subject,
       'stage ' || stage.stage || ' is finished without an event' AS detail
FROM holdfast.job_stage AS stage
JOIN holdfast.job_envelope AS job ON job.org_id = stage.org_id AND job.id = stage.job_id
WHERE stage.finished_at IS NOT NULL AND job.replay_of IS NULL
  AND (CAST(:org_id AS {uuid}) IS NULL OR stage.org_id = :org_id)
  AND NOT EXISTS (SELECT 1 FROM holdfast.audit_event AS event
                  WHERE event.jobs IS NULL AND event.job_id = stage.job_id AND event.org_id = stage.org_id
                    AND event.name IN ('job.advanced', 'job.succeeded')
                    AND {field(event.detail, stage)} = stage.stage);

-- find_changed_takeovers :many — I45, crosses tenants: stages of a replay that differ from those that it began with
SELECT found.org_id, 'job:' || CAST(found.replay_id AS text) AS subject,
       'its copied stages are not those that event ' || CAST(found.id AS text)
           || ' recorded' AS detail
FROM (
    SELECT replay.org_id, replay.id AS replay_id, event.id,
           substr(coalesce(event.digest, ''), 67, 32) AS told,
           (SELECT {hash(coalesce({joined(taken.digest)}, ''))} FROM (
               SELECT {digest stage stage} AS digest
               FROM holdfast.job_stage AS stage
               WHERE stage.org_id = replay.org_id AND stage.job_id = replay.id
                 AND stage.finished_at IS NOT NULL
                 AND NOT EXISTS (SELECT 1 FROM holdfast.audit_event AS own
                                 WHERE own.jobs IS NULL AND own.job_id = replay.id AND own.org_id = replay.org_id
                                   AND own.name IN ('job.advanced', 'job.succeeded')
                                   AND {field(own.detail, stage)} = stage.stage)
               ORDER BY stage.stage) AS taken) AS digest
    FROM holdfast.job_envelope AS replay
    CROSS JOIN holdfast.audit_event AS event
    WHERE replay.replay_of IS NOT NULL
      AND event.jobs IS NULL AND event.job_id = replay.replay_of AND event.org_id = replay.org_id
      AND event.name = 'dead_letter.replay_requested'
      AND {field(event.detail, replay_job_id)} = CAST(replay.id AS text)
      AND (CAST(:org_id AS {uuid}) IS NULL OR replay.org_id = :org_id)
) AS found
WHERE found.digest IS DISTINCT FROM found.told;

-- find_changed_letters :many — I46, crosses tenants: dead letters that differ from their last event
SELECT found.org_id, 'dead_letter:' || CAST(found.job_id AS text) AS subject,
       'it, its replays or its notes are not what event ' || CAST(found.id AS text)
           || ' recorded' AS detail
FROM (
    SELECT letter.org_id, letter.job_id, event.id,
           substr(coalesce(event.digest, ''), 34, 32) AS told,
           {hash({digest letter letter} || coalesce((
               SELECT {joined(replays.digest)} FROM (
                   SELECT {digest replay replay} AS digest
                   FROM holdfast.dead_letter_replay AS replay
                   WHERE replay.org_id = letter.org_id AND replay.job_id = letter.job_id
                   ORDER BY replay.number) AS replays), '') || coalesce((
               SELECT {joined(notes.digest)} FROM (
                   SELECT {digest note note} AS digest
                   FROM holdfast.dead_letter_note AS note
                   WHERE note.org_id = letter.org_id AND note.job_id = letter.job_id
                   ORDER BY note.id) AS notes), ''))} AS digest
    FROM holdfast.dead_letter AS letter
    CROSS JOIN holdfast.audit_event AS event
    WHERE (CAST(:org_id AS {uuid}) IS NULL OR letter.org_id = :org_id)
      AND event.id = (SELECT max(last.id) FROM holdfast.audit_event AS last
                      WHERE last.jobs IS NULL AND last.job_id = letter.job_id AND last.org_id = letter.org_id
                        AND (last.name = 'job.deadlettered' OR substr(last.name, 1, 12) = 'dead_letter.'))
) AS found
WHERE found.digest IS DISTINCT FROM found.told;

-- list_pausable :many — I49, crosses tenants: queues and schedules by the subjects of their events
SELECT 'queue:' || name AS subject FROM holdfast.queue
UNION ALL
SELECT 'schedule:' || name FROM holdfast.schedule;

-- find_changed_pauses :many — I49, crosses tenants: queues and schedules whose pause differs from their last event
SELECT CAST('00000000-0000-0000-0000-000000000000' AS {uuid}) AS org_id, found.subject,
       CASE WHEN found.paused_at IS NULL THEN 'it is not paused, but its last event is a pause'
            ELSE 'it is paused without an event' END AS detail
FROM (
    SELECT subjects.subject,
           CASE WHEN substr(subjects.subject, 1, 6) = 'queue:'
                THEN (SELECT queue.paused_at FROM holdfast.queue AS queue
                      WHERE 'queue:' || queue.name = subjects.subject)
                ELSE (SELECT schedule.paused_at FROM holdfast.schedule AS schedule
                      WHERE 'schedule:' || schedule.name = subjects.subject) END AS paused_at,
           (SELECT event.name FROM holdfast.audit_event AS event
            WHERE event.jobs IS NULL AND event.job_id = subjects.id
              AND event.name IN ('queue.paused', 'queue.resumed', 'schedule.paused',
                                 'schedule.resumed', 'schedule.removed')
            ORDER BY event.id DESC LIMIT 1) AS told
    FROM {rows subjects: subject text, id uuid}
) AS found
WHERE (found.paused_at IS NOT NULL)
      <> (coalesce(found.told, '') IN ('queue.paused', 'schedule.paused'));

-- find_changed_schedules :many — I49, crosses tenants: schedules that differ from their last event
SELECT CAST('00000000-0000-0000-0000-000000000000' AS {uuid}) AS org_id, subjects.subject,
       'it is not as event ' || CAST(event.id AS text) || ' set it' AS detail
FROM {rows subjects: subject text, id uuid}
JOIN holdfast.schedule AS schedule ON 'schedule:' || schedule.name = subjects.subject
JOIN holdfast.audit_event AS event ON event.id = (
    SELECT max(last.id) FROM holdfast.audit_event AS last
    WHERE last.jobs IS NULL AND last.job_id = subjects.id
      AND last.name IN ('schedule.declared', 'schedule.added', 'schedule.changed',
                        'schedule.reset'))
WHERE schedule.cron IS DISTINCT FROM {field(event.detail, cron)}
   OR CAST(schedule.every_ms AS text)
      IS DISTINCT FROM CAST({field(event.detail, every_ms)} AS text)
   OR schedule.zone IS DISTINCT FROM {field(event.detail, zone)}
   OR schedule.catch_up IS DISTINCT FROM {field(event.detail, catch_up)}
   OR schedule.job_type IS DISTINCT FROM {field(event.detail, job_type)}
   OR schedule.run_name IS DISTINCT FROM {field(event.detail, run_name)}
   OR CAST(schedule.org_id AS text) IS DISTINCT FROM {field(event.detail, org_id)};

-- find_changed_deliveries :many — I49, crosses tenants: deliveries that differ from their recorded content
SELECT delivery.org_id, 'delivery:' || CAST(delivery.id AS text) AS subject,
       'its content or recipient is not what event ' || CAST(event.id AS text) || ' recorded' AS detail
FROM holdfast.delivery AS delivery
CROSS JOIN holdfast.audit_event AS event
WHERE event.jobs IS NULL AND event.job_id = delivery.id AND event.org_id = delivery.org_id
  AND event.name = 'delivery.intended'
  AND (CAST(:org_id AS {uuid}) IS NULL OR delivery.org_id = :org_id)
  AND (coalesce(event.digest, '') <> {digest delivery delivery}
       OR event.request_id <> delivery.request_id
       OR event.correlation_id <> delivery.correlation_id);


-- list_deliveries :many — I49, crosses tenants unless one is named: deliveries, page by page
SELECT org_id, id FROM holdfast.delivery
WHERE (org_id, id) > (:after_org, :after_id)
  AND (CAST(:org_id AS {uuid}) IS NULL OR org_id = :org_id)
ORDER BY org_id, id
LIMIT :limit;

-- find_moved_deliveries :many — I49, crosses tenants: deliveries whose state differs from their last event
SELECT found.org_id, 'delivery:' || CAST(found.id AS text) AS subject,
       'it is ' || found.state || ', and its last event is ' || coalesce(found.told, 'its intent')
           AS detail
FROM (
    SELECT delivery.org_id, delivery.id, delivery.state, delivery.proof,
           (SELECT event.name FROM holdfast.audit_event AS event
            WHERE event.jobs IS NULL AND event.job_id = pages.subject_id AND event.org_id = delivery.org_id
              AND event.name IN ('delivery.sent', 'delivery.backfilled', 'delivery.confirmed',
                  'delivery.held', 'delivery.dropped', 'delivery.failed', 'delivery.requeued',
                  'delivery.resent')
            ORDER BY event.id DESC LIMIT 1) AS told
    FROM {rows pages: home uuid, delivery_id uuid, subject_id uuid}
    JOIN holdfast.delivery AS delivery
      ON delivery.org_id = pages.home AND delivery.id = pages.delivery_id
) AS found
WHERE found.state <> CASE found.told
    WHEN 'delivery.sent' THEN 'sent' WHEN 'delivery.backfilled' THEN 'sent'
    WHEN 'delivery.confirmed' THEN 'sent' WHEN 'delivery.held' THEN 'held'
    WHEN 'delivery.dropped' THEN 'dropped' WHEN 'delivery.failed' THEN 'failed'
    ELSE 'pending' END
  -- A lookup found it at the channel, regardless of who marked it.
  AND NOT (found.state = 'sent' AND found.proof = 'seen');

-- find_vanished_deliveries :many — I49, crosses tenants: intended deliveries that are not stored and were not removed
SELECT event.org_id, 'delivery:' || CAST(event.job_id AS text) AS subject,
       'it was intended, but is neither stored nor recorded as removed' AS detail
FROM holdfast.audit_event AS event
WHERE event.name = 'delivery.intended'
  AND (CAST(:org_id AS {uuid}) IS NULL OR event.org_id = :org_id)
  AND NOT EXISTS (SELECT 1 FROM holdfast.delivery AS delivery
                  WHERE delivery.org_id = event.org_id AND delivery.id = event.job_id)
  AND NOT EXISTS (SELECT 1 FROM holdfast.audit_event AS removed
                  WHERE removed.jobs IS NULL AND removed.job_id = event.job_id AND removed.org_id = event.org_id
                    AND removed.name = 'delivery.removed');

-- find_unrecorded_deliveries :many — I49, crosses tenants: deliveries without an event
SELECT delivery.org_id, 'delivery:' || CAST(delivery.id AS text) AS subject,
       'it has no event of its intent' AS detail
FROM holdfast.delivery AS delivery
WHERE (CAST(:org_id AS {uuid}) IS NULL OR delivery.org_id = :org_id)
  AND NOT EXISTS (SELECT 1 FROM holdfast.audit_event AS event
                  WHERE event.jobs IS NULL AND event.job_id = delivery.id AND event.org_id = delivery.org_id
                    AND event.name = 'delivery.intended');
