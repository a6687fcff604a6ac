-- The invariants of recorded changes, I42 to I46, I48 and I49, in the shape of lifecycle.sql. They
-- start with the events and check the rows. An event holds digests of the written columns
-- (store/digest.py): 32 characters each, joined by colons.

-- find_vanished :many — I42, crosses tenants: enqueued jobs that are in no table and were not pruned
SELECT event.org_id, 'job:' || CAST(event.job_id AS text) AS subject,
       'it was enqueued, but is neither stored nor recorded as pruned' AS detail
FROM holdfast.job_event AS event
WHERE event.name = 'job.enqueued' AND (CAST(:org_id AS {uuid}) IS NULL OR event.org_id = :org_id)
  AND NOT EXISTS (SELECT 1 FROM holdfast.job AS job
                  WHERE job.org_id = event.org_id AND job.id = event.job_id)
  AND NOT EXISTS (SELECT 1 FROM holdfast.job_history AS job
                  WHERE job.org_id = event.org_id AND job.id = event.job_id)
  AND NOT EXISTS (SELECT 1 FROM holdfast.job_event AS pruned
                  WHERE pruned.job_id = event.job_id AND pruned.org_id = event.org_id
                    AND pruned.name = 'job.pruned');

-- find_half_pruned :many — I42, crosses tenants: pruned jobs that still exist, or had not ended
SELECT event.org_id, 'job:' || CAST(event.job_id AS text) AS subject,
       CASE WHEN EXISTS (SELECT 1 FROM holdfast.job_record AS job
                         WHERE job.org_id = event.org_id AND job.id = event.job_id)
            THEN 'it was pruned and is still stored'
            ELSE 'it was pruned and had not ended as event ' || CAST(event.id AS text)
                 || ' says' END AS detail
FROM holdfast.job_event AS event
WHERE event.name = 'job.pruned' AND (CAST(:org_id AS {uuid}) IS NULL OR event.org_id = :org_id)
  AND (EXISTS (SELECT 1 FROM holdfast.job_record AS job
               WHERE job.org_id = event.org_id AND job.id = event.job_id)
       OR NOT EXISTS (
           SELECT 1 FROM holdfast.job_event AS ending
           WHERE ending.job_id = event.job_id AND ending.org_id = event.org_id
             AND ending.id < event.id
             AND ending.name IN ('job.succeeded', 'job.deadlettered', 'job.canceled')
             AND substr(ending.digest, 1, 32) = event.digest));

-- find_changed_enqueues :many — I43, crosses tenants: jobs that differ from the digest of their enqueue
SELECT job.org_id, 'job:' || CAST(job.id AS text) AS subject,
       CASE WHEN event.digest IS NULL
            THEN 'event ' || CAST(event.id AS text) || ' has no digest of what its enqueue wrote'
            ELSE 'a value that its enqueue wrote has changed' END AS detail
FROM holdfast.job_record AS job
CROSS JOIN holdfast.job_event AS event
WHERE event.job_id = job.id AND event.org_id = job.org_id AND event.name = 'job.enqueued'
  AND (CAST(:org_id AS {uuid}) IS NULL OR job.org_id = :org_id)
  AND substr(coalesce(event.digest, ''), 1, 32) <> {digest enqueue job};

-- find_changed_states :many — I44, crosses tenants: jobs that differ from the digest of their last change
-- Between changes only promotion writes to a job: it clears not_before_at and sets the queue to
-- origin_queue.
SELECT found.org_id, 'job:' || CAST(found.id AS text) AS subject, found.detail
FROM (
    SELECT job.org_id, job.id, CASE
        WHEN event.digest IS NULL
            THEN 'event ' || CAST(event.id AS text) || ' has no digest of what it wrote'
        WHEN event.name <> 'job.enqueued'
                AND substr(event.digest, 1, 32) <> {digest state job}
            THEN 'a value that event ' || CAST(event.id AS text) || ' wrote has changed'
        WHEN event.name = 'job.enqueued'
                AND (substr(event.digest, 34) <> CAST(job.max_attempts AS text)
                         || ':' || job.stage || ':' || job.pipeline_version
                     OR job.attempt_count <> 0 OR job.cancel_requested_at IS NOT NULL
                     OR job.provider_batch_id IS NOT NULL OR job.first_failed_at IS NOT NULL
                     OR job.last_error_at IS NOT NULL OR job.finished_at IS NOT NULL
                     OR job.error_class IS NOT NULL OR job.result IS NOT NULL
                     OR job.last_error IS NOT NULL)
            THEN 'it has changed since it was enqueued, without an event'
        WHEN job.finished_at <> job.updated_at THEN 'it was changed after its end'
        WHEN job.not_before_at IS NOT NULL
                AND {stamp(job.not_before_at)}
                    IS DISTINCT FROM {field(event.detail, not_before_at)}
            THEN 'it is deferred to another time than event ' || CAST(event.id AS text)
                 || ' says'
        WHEN job.not_before_at IS NULL
                AND CAST({field(event.detail, not_before_at)} AS {instant})
                    > CAST(:due AS {instant})
            THEN 'it is not deferred, but event ' || CAST(event.id AS text) || ' says it is'
        WHEN job.state <> 'failed' AND job.queue <> job.origin_queue
                AND (job.not_before_at IS NULL OR NOT EXISTS (
                    SELECT 1 FROM holdfast.job_event AS first
                    WHERE first.job_id = job.id AND first.org_id = job.org_id
                      AND first.name = 'job.enqueued'
                      AND {field(first.detail, queue)} = job.queue))
            THEN 'it is on ' || job.queue || ', but no event moved it there'
        WHEN event.name = 'job.enqueued' AND job.not_before_at IS NOT NULL
                AND job.queue <> coalesce({field(event.detail, queue)}, '')
            THEN 'it is on ' || job.queue || ', but was enqueued to another queue'
        END AS detail
    FROM holdfast.job_record AS job
    CROSS JOIN holdfast.job_event AS event
    WHERE (CAST(:org_id AS {uuid}) IS NULL OR job.org_id = :org_id)
      AND event.id = (
          SELECT max(last.id) FROM holdfast.job_event AS last
          WHERE last.job_id = job.id AND last.org_id = job.org_id
            AND last.name IN ('job.enqueued', 'job.succeeded', 'job.advanced', 'job.retried',
                'job.snoozed', 'job.released', 'job.woken', 'job.submitted', 'job.deadlettered',
                'job.canceled', 'job.cancel_requested')
            -- A late cancel request refers to an ended job, perhaps in history.
            AND NOT (last.name = 'job.cancel_requested'
                     AND coalesce({field(last.detail, answer)}, '') = 'too_late'))
) AS found
WHERE found.detail IS NOT NULL;

-- find_changed_claims :many — I44, crosses tenants: claims that differ from their event
SELECT job.org_id, 'job:' || CAST(job.id AS text) AS subject,
       CASE WHEN job.lease_expires_at > CAST(:longest AS {instant})
            THEN 'its lease is longer than the maximum'
            ELSE 'it is claimed by another worker or at another time than event '
                 || CAST(event.id AS text) || ' says' END AS detail
FROM holdfast.job AS job
CROSS JOIN holdfast.job_event AS event
WHERE job.state = 'processing' AND (CAST(:org_id AS {uuid}) IS NULL OR job.org_id = :org_id)
  AND event.id = (SELECT max(last.id) FROM holdfast.job_event AS last
                  WHERE last.job_id = job.id AND last.org_id = job.org_id
                    AND last.name = 'job.started')
  AND (event.actor_id <> job.claimed_by OR event.at <> job.claimed_at
       OR job.lease_expires_at > CAST(:longest AS {instant}));

-- find_changed_errors :many — I44, crosses tenants: errors of jobs that differ from the recorded failure
SELECT job.org_id, 'job:' || CAST(job.id AS text) AS subject,
       'its last failure is another one than event ' || CAST(event.id AS text) || ' says' AS detail
FROM holdfast.job_record AS job
CROSS JOIN holdfast.job_event AS event
WHERE (CAST(:org_id AS {uuid}) IS NULL OR job.org_id = :org_id)
  AND event.id = (SELECT max(last.id) FROM holdfast.job_event AS last
                  WHERE last.job_id = job.id AND last.org_id = job.org_id
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
           coalesce((SELECT {digest stage stage} FROM holdfast.job_stage AS stage
                     WHERE stage.org_id = event.org_id AND stage.job_id = event.job_id
                       AND stage.stage = {field(event.detail, stage)}),
                    (SELECT {digest stage stage} FROM holdfast.job_stage_history AS stage
                     WHERE stage.org_id = event.org_id AND stage.job_id = event.job_id
                       AND stage.stage = {field(event.detail, stage)})) AS digest
    FROM holdfast.job_event AS event
    WHERE event.name IN ('job.advanced', 'job.succeeded')
      AND {field(event.detail, stage)} IS NOT NULL
      AND (CAST(:org_id AS {uuid}) IS NULL OR event.org_id = :org_id)
      AND (EXISTS (SELECT 1 FROM holdfast.job AS job
                   WHERE job.org_id = event.org_id AND job.id = event.job_id)
           OR EXISTS (SELECT 1 FROM holdfast.job_history AS job
                      WHERE job.org_id = event.org_id AND job.id = event.job_id))
) AS found
WHERE found.digest IS DISTINCT FROM found.told;

-- find_invented_stages :many — I45, crosses tenants: finished stages without an event
-- A replay begins with stages that the previous job finished.
SELECT stage.org_id, 'job:' || CAST(stage.job_id AS text) AS subject,
       'stage ' || stage.stage || ' is finished without an event' AS detail
FROM (
    SELECT org_id, job_id, stage, finished_at FROM holdfast.job_stage
    UNION ALL
    SELECT org_id, job_id, stage, finished_at FROM holdfast.job_stage_history
) AS stage
JOIN holdfast.job_record AS job ON job.org_id = stage.org_id AND job.id = stage.job_id
WHERE stage.finished_at IS NOT NULL AND job.replay_of IS NULL
  AND (CAST(:org_id AS {uuid}) IS NULL OR stage.org_id = :org_id)
  AND NOT EXISTS (SELECT 1 FROM holdfast.job_event AS event
                  WHERE event.job_id = stage.job_id AND event.org_id = stage.org_id
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
               FROM (
                   SELECT org_id, job_id, stage, attempts, finished_at, output
                   FROM holdfast.job_stage
                   UNION ALL
                   SELECT org_id, job_id, stage, attempts, finished_at, output
                   FROM holdfast.job_stage_history
               ) AS stage
               WHERE stage.org_id = replay.org_id AND stage.job_id = replay.id
                 AND stage.finished_at IS NOT NULL
                 AND NOT EXISTS (SELECT 1 FROM holdfast.job_event AS own
                                 WHERE own.job_id = replay.id AND own.org_id = replay.org_id
                                   AND own.name IN ('job.advanced', 'job.succeeded')
                                   AND {field(own.detail, stage)} = stage.stage)
               ORDER BY stage.stage) AS taken) AS digest
    FROM holdfast.job_record AS replay
    CROSS JOIN holdfast.job_event AS event
    WHERE replay.replay_of IS NOT NULL
      AND event.job_id = replay.replay_of AND event.org_id = replay.org_id
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
    CROSS JOIN holdfast.job_event AS event
    WHERE (CAST(:org_id AS {uuid}) IS NULL OR letter.org_id = :org_id)
      AND event.id = (SELECT max(last.id) FROM holdfast.job_event AS last
                      WHERE last.job_id = letter.job_id AND last.org_id = letter.org_id
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
           (SELECT event.name FROM holdfast.job_event AS event
            WHERE event.job_id = subjects.id
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
JOIN holdfast.job_event AS event ON event.id = (
    SELECT max(last.id) FROM holdfast.job_event AS last
    WHERE last.job_id = subjects.id
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
CROSS JOIN holdfast.job_event AS event
WHERE event.job_id = delivery.id AND event.org_id = delivery.org_id
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
           (SELECT event.name FROM holdfast.job_event AS event
            WHERE event.job_id = pages.subject_id AND event.org_id = delivery.org_id
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
FROM holdfast.job_event AS event
WHERE event.name = 'delivery.intended'
  AND (CAST(:org_id AS {uuid}) IS NULL OR event.org_id = :org_id)
  AND NOT EXISTS (SELECT 1 FROM holdfast.delivery AS delivery
                  WHERE delivery.org_id = event.org_id AND delivery.id = event.job_id)
  AND NOT EXISTS (SELECT 1 FROM holdfast.job_event AS removed
                  WHERE removed.job_id = event.job_id AND removed.org_id = event.org_id
                    AND removed.name = 'delivery.removed');

-- find_unrecorded_deliveries :many — I49, crosses tenants: deliveries without an event
SELECT delivery.org_id, 'delivery:' || CAST(delivery.id AS text) AS subject,
       'it has no event of its intent' AS detail
FROM holdfast.delivery AS delivery
WHERE (CAST(:org_id AS {uuid}) IS NULL OR delivery.org_id = :org_id)
  AND NOT EXISTS (SELECT 1 FROM holdfast.job_event AS event
                  WHERE event.job_id = delivery.id AND event.org_id = delivery.org_id
                    AND event.name = 'delivery.intended');
