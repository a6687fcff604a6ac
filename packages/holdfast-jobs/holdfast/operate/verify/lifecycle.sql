-- The invariants of the job lifecycle, I1 to I10. Each statement selects violations: the tenant,
-- the subject and the detail. With :org_id only those of one tenant. Jobs in history are included.
--
-- The history of a job is read from its own events, by the index on their job: the audit outlives
-- the jobs, and nothing is sorted or held that grows with the store. job.failed is not a separate
-- step: it is written together with job.retried or job.deadlettered, in either order.

-- find_untold :many — I1, crosses tenants: jobs whose state does not match their event history
SELECT found.org_id, 'job:' || CAST(found.id AS text) AS subject,
       'its state is ' || found.state || ', its event history ends in '
           || coalesce(found.told, 'nothing')
           AS detail
FROM (
    SELECT job.org_id, job.id, job.state, (
        SELECT CASE event.name
                   WHEN 'job.started' THEN 'processing' WHEN 'job.advanced' THEN 'processing'
                   WHEN 'job.succeeded' THEN 'completed' WHEN 'job.deadlettered' THEN 'failed'
                   WHEN 'job.submitted' THEN 'batch_submitted'
                   WHEN 'job.canceled' THEN 'canceled' ELSE 'queued' END
        FROM holdfast.job_event AS event
        WHERE event.job_id = job.id AND event.org_id = job.org_id
          AND event.name IN ('job.enqueued', 'job.started', 'job.advanced', 'job.submitted',
              'job.retried', 'job.snoozed', 'job.released', 'job.succeeded', 'job.deadlettered',
              'job.canceled')
        ORDER BY CASE WHEN event.name IN ('job.succeeded', 'job.deadlettered', 'job.canceled')
                      THEN 0 ELSE 1 END,
                 CASE WHEN event.name IN ('job.succeeded', 'job.deadlettered', 'job.canceled')
                      THEN event.id ELSE -event.id END
        LIMIT 1) AS told
    FROM holdfast.job_record AS job
    WHERE CAST(:org_id AS {uuid}) IS NULL OR job.org_id = :org_id
) AS found
WHERE found.told IS DISTINCT FROM found.state;

-- find_leaps :many — I1, crosses tenants: events that cannot follow the previous one
-- Events after an end belong to I3.
SELECT found.org_id, 'job:' || CAST(found.id AS text) AS subject,
       'event ' || CAST(found.wrong AS text) || ' is not a valid transition from the previous event' AS detail
FROM (
    SELECT job.org_id, job.id, (
        SELECT min(step.id) FROM (
            SELECT event.id, event.name, lag(event.name) OVER (ORDER BY event.id) AS before
            FROM holdfast.job_event AS event
            WHERE event.job_id = job.id AND event.org_id = job.org_id
              AND event.name IN ('job.enqueued', 'job.started', 'job.advanced', 'job.submitted',
                  'job.retried', 'job.snoozed', 'job.released', 'job.succeeded',
                  'job.deadlettered', 'job.canceled')
        ) AS step
        WHERE NOT CASE
            WHEN step.before IS NULL THEN step.name = 'job.enqueued'
            WHEN step.before IN ('job.succeeded', 'job.deadlettered', 'job.canceled') THEN TRUE
            WHEN step.name = 'job.enqueued' THEN FALSE
            WHEN step.name = 'job.canceled' THEN TRUE
            WHEN step.before IN ('job.started', 'job.advanced') THEN step.name <> 'job.started'
            WHEN step.before = 'job.submitted'
                THEN step.name NOT IN ('job.started', 'job.submitted')
            ELSE step.name = 'job.started' END
    ) AS wrong
    FROM holdfast.job_record AS job
    WHERE CAST(:org_id AS {uuid}) IS NULL OR job.org_id = :org_id
) AS found
WHERE found.wrong IS NOT NULL;

-- find_doubled :many — I1, crosses tenants: stages that advanced twice, or claims that ended twice
-- Events without a claim are left to find_leaps.
SELECT found.org_id, 'job:' || CAST(found.id AS text) AS subject,
       'the audit has ' || CAST(found.surplus AS text) || ' outcomes twice' AS detail
FROM (
    SELECT job.org_id, job.id, (
        SELECT count(*) - count(DISTINCT CASE event.name
            WHEN 'job.advanced' THEN 'stage ' || coalesce({field(event.detail, stage)}, '')
            WHEN 'job.submitted'
                THEN 'submitted ' || CAST({field(event.detail, lease_token)} AS text)
            ELSE 'closed ' || CAST({field(event.detail, lease_token)} AS text) END)
        FROM holdfast.job_event AS event
        WHERE event.job_id = job.id AND event.org_id = job.org_id
          AND event.name IN ('job.advanced', 'job.submitted', 'job.retried', 'job.snoozed',
              'job.released')
          AND (event.name = 'job.advanced' OR {field(event.detail, lease_token)} IS NOT NULL)
    ) AS surplus
    FROM holdfast.job_record AS job
    WHERE CAST(:org_id AS {uuid}) IS NULL OR job.org_id = :org_id
) AS found
WHERE found.surplus > 0;

-- find_attempts_going_back :many — I2, crosses tenants: attempts that restart without a new stage
SELECT found.org_id, 'job:' || CAST(found.id AS text) AS subject,
       'event ' || CAST(found.wrong AS text) || ' has a lower attempt than the previous event'
           AS detail
FROM (
    SELECT job.org_id, job.id, (
        SELECT min(step.id) FROM (
            SELECT event.id, event.attempt,
                   lag(event.name) OVER (ORDER BY event.id) AS before,
                   lag(event.attempt) OVER (ORDER BY event.id) AS attempt_before
            FROM holdfast.job_event AS event
            WHERE event.job_id = job.id AND event.org_id = job.org_id
              AND event.name IN ('job.enqueued', 'job.started', 'job.advanced', 'job.submitted',
                  'job.failed', 'job.retried', 'job.snoozed', 'job.released', 'job.succeeded',
                  'job.deadlettered', 'job.canceled')
        ) AS step
        WHERE step.attempt < step.attempt_before AND step.before <> 'job.advanced'
    ) AS wrong
    FROM holdfast.job_record AS job
    WHERE CAST(:org_id AS {uuid}) IS NULL OR job.org_id = :org_id
) AS found
WHERE found.wrong IS NOT NULL;

-- find_ends :many — I3, crosses tenants: ended jobs whose end is not the last step, or not the only end
SELECT found.org_id, 'job:' || CAST(found.id AS text) AS subject,
       'the audit has ' || CAST(found.told AS text) || ' events from its final one on, not one' AS detail
FROM (
    SELECT job.org_id, job.id, (
        SELECT count(*) FROM holdfast.job_event AS event
        WHERE event.job_id = job.id AND event.org_id = job.org_id
          AND event.name IN ('job.enqueued', 'job.started', 'job.advanced', 'job.submitted',
              'job.retried', 'job.snoozed', 'job.released', 'job.succeeded', 'job.deadlettered',
              'job.canceled')
          AND event.id >= (
              SELECT min(ending.id) FROM holdfast.job_event AS ending
              WHERE ending.job_id = job.id AND ending.org_id = job.org_id
                AND ending.name IN ('job.succeeded', 'job.deadlettered', 'job.canceled'))
    ) AS told
    FROM holdfast.job_record AS job
    WHERE job.state IN ('completed', 'failed', 'canceled')
      AND (CAST(:org_id AS {uuid}) IS NULL OR job.org_id = :org_id)
) AS found
WHERE found.told <> 1;

-- find_leases :many — I4, crosses tenants: processing jobs without a lease, or others with one
SELECT job.org_id, 'job:' || CAST(job.id AS text) AS subject,
       CASE WHEN job.state = 'processing' THEN 'it is processing without a complete lease'
            WHEN job.lease_token < 0 THEN 'its lease token is negative'
            ELSE 'it is ' || job.state || ' but has lease columns' END AS detail
FROM holdfast.job_record AS job
WHERE (CAST(:org_id AS {uuid}) IS NULL OR job.org_id = :org_id)
  AND ((job.state = 'processing') <> (job.claimed_by IS NOT NULL)
       OR (job.state = 'processing') <> (job.claimed_at IS NOT NULL)
       OR (job.state = 'processing') <> (job.lease_expires_at IS NOT NULL)
       OR job.lease_token < CASE WHEN job.state = 'processing' THEN 1 ELSE 0 END);

-- find_stale :many — I5, crosses tenants: expired leases that were not rescued
-- Batch processing rescues and checks its own claims.
SELECT job.org_id, 'job:' || CAST(job.id AS text) AS subject,
       'its expired lease was not rescued; it was claimed by '
           || coalesce(job.claimed_by, 'no worker') AS detail
FROM holdfast.job AS job
WHERE job.state = 'processing' AND job.lease_expires_at < CAST(:stale_since AS {instant})
  AND job.limit_key <> '~batch'
  AND (CAST(:org_id AS {uuid}) IS NULL OR job.org_id = :org_id);

-- find_miscounted :many — I6, crosses tenants: attempts that differ from those in the audit
SELECT found.org_id, 'job:' || CAST(found.id AS text) AS subject,
       CAST(found.attempt_count AS text) || ' of ' || CAST(found.max_attempts AS text)
           || ' attempts are counted, the audit has ' || CAST(found.told AS text) AS detail
FROM (
    SELECT job.org_id, job.id, job.attempt_count, job.max_attempts, (
        SELECT count(*) FROM holdfast.job_event AS event
        WHERE event.job_id = job.id AND event.org_id = job.org_id AND event.name = 'job.failed'
          AND event.id > coalesce((
              SELECT max(advance.id) FROM holdfast.job_event AS advance
              WHERE advance.job_id = job.id AND advance.org_id = job.org_id
                AND advance.name = 'job.advanced'), 0)
    ) AS told
    FROM holdfast.job_record AS job
    WHERE CAST(:org_id AS {uuid}) IS NULL OR job.org_id = :org_id
) AS found
WHERE found.told <> found.attempt_count
   OR found.attempt_count NOT BETWEEN 0 AND found.max_attempts;

-- find_miscounted_stages :many — I6, crosses tenants: finished stages with another attempt than the one that finished them
-- A stage without an event was finished by the job that this one replays.
SELECT found.org_id, 'job:' || CAST(found.job_id AS text) AS subject,
       'stage ' || found.stage || ' counts ' || CAST(found.attempts AS text)
           || ' attempts, the audit has ' || CAST(found.told AS text) AS detail
FROM (
    SELECT stage.org_id, stage.job_id, stage.stage, stage.attempts, (
        SELECT max(event.attempt) FROM holdfast.job_event AS event
        WHERE event.job_id = stage.job_id AND event.org_id = stage.org_id
          AND event.name = 'job.advanced' AND {field(event.detail, stage)} = stage.stage
    ) AS told
    FROM (
        SELECT org_id, job_id, stage, attempts, finished_at FROM holdfast.job_stage
        UNION ALL
        SELECT org_id, job_id, stage, attempts, finished_at FROM holdfast.job_stage_history
    ) AS stage
    WHERE stage.finished_at IS NOT NULL
      AND (CAST(:org_id AS {uuid}) IS NULL OR stage.org_id = :org_id)
) AS found
WHERE found.told <> found.attempts;

-- find_tokens :many — I7, crosses tenants: tokens that do not equal the number of claims
SELECT found.org_id, 'job:' || CAST(found.id AS text) AS subject,
       'its lease token is ' || CAST(found.lease_token AS text) || ', the audit has '
           || CAST(found.told AS text) || ' claims' AS detail
FROM (
    SELECT job.org_id, job.id, job.lease_token, (
        SELECT count(*) FROM holdfast.job_event AS event
        WHERE event.job_id = job.id AND event.org_id = job.org_id AND event.name = 'job.started'
    ) AS told
    FROM holdfast.job_record AS job
    WHERE CAST(:org_id AS {uuid}) IS NULL OR job.org_id = :org_id
) AS found
WHERE found.told <> found.lease_token;

-- find_lost_tokens :many — I7, crosses tenants: lost claims with a token that was never issued
SELECT job.org_id, 'job:' || CAST(job.id AS text) AS subject,
       'event ' || CAST(event.id AS text) || ' records the loss of a lease that was never issued' AS detail
FROM holdfast.job_record AS job
CROSS JOIN holdfast.job_event AS event
WHERE event.job_id = job.id AND event.org_id = job.org_id AND event.name = 'job.lease_lost'
  AND CASE WHEN trim(CAST({field(event.detail, lease_token)} AS text), '0123456789') = ''
            AND length(CAST({field(event.detail, lease_token)} AS text)) BETWEEN 1 AND 18
           THEN CAST({field(event.detail, lease_token)} AS bigint) NOT BETWEEN 1 AND job.lease_token
           ELSE TRUE END
  AND (CAST(:org_id AS {uuid}) IS NULL OR job.org_id = :org_id);

-- find_early :many — I8, crosses tenants: retries that are due before the failure that they follow
-- A stale claim is requeued with its earlier due time.
SELECT job.org_id, 'job:' || CAST(job.id AS text) AS subject,
       'its retry is due before its last failure' AS detail
FROM holdfast.job AS job
WHERE job.state = 'queued' AND job.not_before_at < job.last_error_at
  AND job.last_error <> 'stale_claim_requeued'
  AND (CAST(:org_id AS {uuid}) IS NULL OR job.org_id = :org_id);

-- find_changed :many — I9, crosses tenants: jobs that differ from their enqueue event
SELECT job.org_id, 'job:' || CAST(job.id AS text) AS subject,
       'changed since it was enqueued:'
           || CASE WHEN job.job_type <> event.job_type THEN ' job_type' ELSE '' END
           || CASE WHEN job.project_id IS DISTINCT FROM event.project_id
                   THEN ' project_id' ELSE '' END
           || CASE WHEN job.actor_type <> event.actor_type OR job.actor_id <> event.actor_id
                   THEN ' actor' ELSE '' END
           || CASE WHEN job.request_id <> event.request_id THEN ' request_id' ELSE '' END
           || CASE WHEN job.correlation_id <> event.correlation_id
                   THEN ' correlation_id' ELSE '' END
           || CASE WHEN job.created_at <> event.at THEN ' created_at' ELSE '' END
           || CASE WHEN job.payload_hash IS DISTINCT FROM {field(event.detail, payload_hash)}
                   THEN ' payload_hash' ELSE '' END
           || CASE WHEN coalesce({field(event.detail, queue)}, '')
                        NOT IN (job.origin_queue, 'q:maintenance')
                   THEN ' origin_queue' ELSE '' END AS detail
FROM holdfast.job_record AS job
CROSS JOIN holdfast.job_event AS event
WHERE event.job_id = job.id AND event.org_id = job.org_id AND event.name = 'job.enqueued'
  AND (CAST(:org_id AS {uuid}) IS NULL OR job.org_id = :org_id)
  AND (job.job_type <> event.job_type OR job.project_id IS DISTINCT FROM event.project_id
       OR job.actor_type <> event.actor_type OR job.actor_id <> event.actor_id
       OR job.request_id <> event.request_id OR job.correlation_id <> event.correlation_id
       OR job.created_at <> event.at
       OR job.payload_hash IS DISTINCT FROM {field(event.detail, payload_hash)}
       OR coalesce({field(event.detail, queue)}, '')
          NOT IN (job.origin_queue, 'q:maintenance'));

-- find_half_ended :many — I10, crosses tenants: ended jobs with missing columns, and others with them
SELECT job.org_id, 'job:' || CAST(job.id AS text) AS subject,
       CASE WHEN (job.state = 'completed') <> (job.result IS NOT NULL)
            THEN 'it is ' || job.state || CASE WHEN job.result IS NULL
                THEN ' and has no result' ELSE ' and has a result' END
            WHEN (job.state = 'failed') <> (job.queue = 'q:deadletter')
            THEN 'it is ' || job.state || ' on ' || job.queue
            WHEN (job.state IN ('completed', 'failed', 'canceled'))
                <> (job.finished_at IS NOT NULL AND job.key_expires_at IS NOT NULL)
            THEN 'it is ' || job.state || ' but finished_at or key_expires_at does not match'
            ELSE 'it failed without an error class' END AS detail
FROM holdfast.job_record AS job
WHERE (CAST(:org_id AS {uuid}) IS NULL OR job.org_id = :org_id)
  AND ((job.state = 'completed') <> (job.result IS NOT NULL)
       OR (job.state = 'failed') <> (job.queue = 'q:deadletter')
       OR (job.state IN ('completed', 'failed', 'canceled'))
          <> (job.finished_at IS NOT NULL AND job.key_expires_at IS NOT NULL)
       OR (job.finished_at IS NULL) <> (job.key_expires_at IS NULL)
       OR (job.state = 'failed' AND (job.error_class IS NULL OR job.last_error IS NULL
           OR job.last_error_at IS NULL)))
UNION ALL
SELECT stage.org_id, 'job:' || CAST(stage.job_id AS text),
       'stage ' || stage.stage || CASE WHEN stage.finished_at IS NULL
           THEN ' has a result but is not finished' ELSE ' is finished without a result' END
FROM (
    SELECT org_id, job_id, stage, output, finished_at FROM holdfast.job_stage
    UNION ALL
    SELECT org_id, job_id, stage, output, finished_at FROM holdfast.job_stage_history
) AS stage
WHERE (stage.output IS NULL) <> (stage.finished_at IS NULL)
  AND (CAST(:org_id AS {uuid}) IS NULL OR stage.org_id = :org_id);
