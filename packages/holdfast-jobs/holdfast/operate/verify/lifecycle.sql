-- The invariants of the job lifecycle, I1 to I10. Each statement selects violations: the tenant,
-- the subject and the detail. With :org_id only those of one tenant.
--
-- The history of a job is read from its own events and facts, by their indexes, and nothing is sorted
-- or held that grows with the store. job.failed is not a separate step: it is written together with
-- job.retried or job.deadlettered, in either order. Only checks of the state read the view
-- holdfast.job.

-- steps :fragment — the events of the outer row job, from its facts and its own rows of the audit
-- It is the view job_event, written out: SQLite would read the whole view for each job.
SELECT event.id, event.name, event.attempt
FROM holdfast.audit_event AS event
WHERE event.jobs IS NULL AND event.job_id = job.id AND event.org_id = job.org_id
  AND event.name IN ('job.advanced', 'job.submitted', 'job.failed', 'job.retried', 'job.snoozed',
                     'job.released', 'job.succeeded', 'job.deadlettered', 'job.canceled')
UNION ALL
SELECT job.event_id, 'job.enqueued', 1
UNION ALL
SELECT fact.started_event_id, 'job.started', fact.started_attempt
FROM holdfast.job_running AS fact
WHERE fact.org_id = job.org_id AND fact.job_id = job.id
UNION ALL
SELECT fact.started_event_id, 'job.started', fact.started_attempt
FROM holdfast.job_submitted AS fact
WHERE fact.org_id = job.org_id AND fact.job_id = job.id
UNION ALL
SELECT fact.started_event_id, 'job.started', fact.started_attempt
FROM holdfast.job_attempt AS fact
WHERE fact.org_id = job.org_id AND fact.job_id = job.id AND fact.started_event_id IS NOT NULL
UNION ALL
SELECT fact.started_event_id, 'job.started', fact.started_attempt
FROM holdfast.job_outcome AS fact
WHERE fact.org_id = job.org_id AND fact.job_id = job.id AND fact.started_event_id IS NOT NULL
UNION ALL
SELECT fact.event_id, 'job.succeeded', fact.attempt_count + 1
FROM holdfast.job_outcome AS fact
WHERE fact.org_id = job.org_id AND fact.job_id = job.id AND fact.event_id IS NOT NULL

-- find_untold :many — I1, crosses tenants: jobs whose state does not match their event history
SELECT found.org_id, 'job:' || CAST(found.id AS text) AS subject,
       'its state is ' || found.state || ', its event history ends in '
           || coalesce(found.told, 'nothing')
           AS detail
FROM (
    SELECT job.org_id, job.id, state.state, (
        SELECT CASE step.name
                   WHEN 'job.started' THEN 'processing' WHEN 'job.advanced' THEN 'processing'
                   WHEN 'job.succeeded' THEN 'completed' WHEN 'job.deadlettered' THEN 'failed'
                   WHEN 'job.submitted' THEN 'batch_submitted'
                   WHEN 'job.canceled' THEN 'canceled' ELSE 'queued' END
        FROM (
            {use steps}
        ) AS step
        WHERE step.name <> 'job.failed'
        ORDER BY CASE WHEN step.name IN ('job.succeeded', 'job.deadlettered', 'job.canceled') THEN 0 ELSE 1 END,
                 CASE WHEN step.name IN ('job.succeeded', 'job.deadlettered', 'job.canceled') THEN step.id ELSE -step.id END
        LIMIT 1) AS told
    FROM holdfast.job_envelope AS job
    JOIN holdfast.job AS state ON state.org_id = job.org_id AND state.id = job.id
    WHERE CAST(:org_id AS {uuid}) IS NULL OR job.org_id = :org_id
) AS found
WHERE found.told IS DISTINCT FROM found.state;

-- find_unrecorded :many — I1, crosses tenants: enqueues, claims and successes that the audit does not have
-- The events of these follow from the rows of the job, and a row of the audit names the jobs of a
-- group: its id is that of the last event.
SELECT fact.org_id, 'job:' || CAST(fact.job_id AS text) AS subject,
       'the audit has no event ' || CAST(fact.event_id AS text) || ', its ' || fact.name AS detail
FROM (
    SELECT org_id, id AS job_id, event_id, 'job.enqueued' AS name, 1 AS attempt, actor_type,
           actor_id, created_at AS at
    FROM holdfast.job_envelope
    UNION ALL
    SELECT org_id, job_id, started_event_id, 'job.started', started_attempt,
           'system', claimed_by, claimed_at
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
LEFT JOIN holdfast.audit_event AS told ON told.id = (
    SELECT min(event.id) FROM holdfast.audit_event AS event WHERE event.id >= fact.event_id)
WHERE (CAST(:org_id AS {uuid}) IS NULL OR fact.org_id = :org_id)
  AND (told.id IS NULL OR told.jobs IS NULL OR told.org_id <> fact.org_id
       OR told.name <> fact.name OR told.id - told.events >= fact.event_id
       OR {at(told.jobs, fact.event_id - told.id + told.events - 1)}
          IS DISTINCT FROM fact.job_id);

-- find_leaps :many — I1, crosses tenants: events that cannot follow the previous one
-- Events after an end belong to I3.
SELECT found.org_id, 'job:' || CAST(found.id AS text) AS subject,
       'event ' || CAST(found.wrong AS text) || ' is not a valid transition from the previous event' AS detail
FROM (
    SELECT job.org_id, job.id, (
        SELECT min(step.id) FROM (
            SELECT told.id, told.name, lag(told.name) OVER (ORDER BY told.id) AS before
            FROM (
                {use steps}
            ) AS told
            WHERE told.name <> 'job.failed'
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
    FROM holdfast.job_envelope AS job
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
        FROM holdfast.audit_event AS event
        WHERE event.jobs IS NULL AND event.job_id = job.id AND event.org_id = job.org_id
          AND event.name IN ('job.advanced', 'job.submitted', 'job.retried', 'job.snoozed',
              'job.released')
          AND (event.name = 'job.advanced' OR {field(event.detail, lease_token)} IS NOT NULL)
    ) AS surplus
    FROM holdfast.job_envelope AS job
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
            SELECT told.id, told.attempt, lag(told.name) OVER (ORDER BY told.id) AS before,
                   lag(told.attempt) OVER (ORDER BY told.id) AS attempt_before
            FROM (
                {use steps}
            ) AS told
        ) AS step
        WHERE step.attempt < step.attempt_before AND step.before <> 'job.advanced'
    ) AS wrong
    FROM holdfast.job_envelope AS job
    WHERE CAST(:org_id AS {uuid}) IS NULL OR job.org_id = :org_id
) AS found
WHERE found.wrong IS NOT NULL;

-- find_ends :many — I3, crosses tenants: ended jobs whose end is not the last step, or not the only end
SELECT found.org_id, 'job:' || CAST(found.id AS text) AS subject,
       'the audit has ' || CAST(found.told AS text) || ' events from its final one on, not one' AS detail
FROM (
    SELECT job.org_id, job.id, (
        SELECT count(*) FROM (
            SELECT min(CASE WHEN told.name IN ('job.succeeded', 'job.deadlettered', 'job.canceled')
                            THEN told.id END) OVER () AS ends_at,
                   told.id
            FROM (
                {use steps}
            ) AS told
            WHERE told.name <> 'job.failed'
        ) AS step
        WHERE step.id >= step.ends_at
    ) AS told
    FROM holdfast.job_outcome AS ended
    JOIN holdfast.job_envelope AS job ON job.org_id = ended.org_id AND job.id = ended.job_id
    WHERE CAST(:org_id AS {uuid}) IS NULL OR ended.org_id = :org_id
) AS found
WHERE found.told <> 1;

-- find_nowhere :many — I4, crosses tenants: jobs that have not ended and are in no place
SELECT job.org_id, 'job:' || CAST(job.id AS text) AS subject,
       'it has not ended, and is neither waiting nor running nor submitted' AS detail
FROM holdfast.job_envelope AS job
WHERE (CAST(:org_id AS {uuid}) IS NULL OR job.org_id = :org_id)
  AND NOT EXISTS (SELECT 1 FROM holdfast.job_outcome AS outcome
                  WHERE outcome.org_id = job.org_id AND outcome.job_id = job.id)
  AND NOT EXISTS (SELECT 1 FROM holdfast.job_ready AS ready
                  WHERE ready.queue IN (job.origin_queue, job.queue)
                    AND ready.limit_key = job.limit_key AND ready.org_id = job.org_id
                    AND ready.turn = coalesce(job.turn, job.id) AND ready.job_id = job.id)
  AND NOT EXISTS (SELECT 1 FROM holdfast.job_waiting AS waiting
                  WHERE waiting.org_id = job.org_id AND waiting.job_id = job.id)
  AND NOT EXISTS (SELECT 1 FROM holdfast.job_running AS running
                  WHERE running.org_id = job.org_id AND running.job_id = job.id)
  AND NOT EXISTS (SELECT 1 FROM holdfast.job_submitted AS submitted
                  WHERE submitted.org_id = job.org_id AND submitted.job_id = job.id);

-- find_elsewhere :many — I4, crosses tenants: jobs in a place that are in another one or have ended
SELECT place.org_id, 'job:' || CAST(place.job_id AS text) AS subject,
       'it is ' || place.name || CASE
           WHEN outcome.job_id IS NOT NULL THEN ' and has ended'
           WHEN submitted.job_id IS NOT NULL THEN ' and submitted'
           WHEN running.job_id IS NOT NULL THEN ' and running'
           WHEN waiting.job_id IS NOT NULL THEN ' and waiting'
           ELSE ' twice' END AS detail
FROM (
    SELECT org_id, job_id, 'ready' AS name, 1 AS rank, queue, limit_key, turn
    FROM holdfast.job_ready
    UNION ALL
    SELECT org_id, job_id, 'waiting', 2, NULL, NULL, NULL FROM holdfast.job_waiting
    UNION ALL
    SELECT org_id, job_id, 'running', 3, NULL, NULL, NULL FROM holdfast.job_running
    UNION ALL
    SELECT org_id, job_id, 'submitted', 4, NULL, NULL, NULL FROM holdfast.job_submitted
) AS place
LEFT JOIN holdfast.job_outcome AS outcome
  ON outcome.org_id = place.org_id AND outcome.job_id = place.job_id
LEFT JOIN holdfast.job_submitted AS submitted
  ON submitted.org_id = place.org_id AND submitted.job_id = place.job_id AND place.rank < 4
LEFT JOIN holdfast.job_running AS running
  ON running.org_id = place.org_id AND running.job_id = place.job_id AND place.rank < 3
LEFT JOIN holdfast.job_waiting AS waiting
  ON waiting.org_id = place.org_id AND waiting.job_id = place.job_id AND place.rank < 2
LEFT JOIN holdfast.job_envelope AS job
  ON job.org_id = place.org_id AND job.id = place.job_id AND job.queue IS NOT NULL
  AND place.queue = job.queue
LEFT JOIN holdfast.job_ready AS twin
  ON twin.queue = job.origin_queue AND twin.limit_key = place.limit_key
  AND twin.org_id = place.org_id AND twin.turn = place.turn AND twin.job_id = place.job_id
  AND job.origin_queue <> job.queue
WHERE (CAST(:org_id AS {uuid}) IS NULL OR place.org_id = :org_id)
  AND (outcome.job_id IS NOT NULL OR submitted.job_id IS NOT NULL OR running.job_id IS NOT NULL
       OR waiting.job_id IS NOT NULL OR twin.job_id IS NOT NULL);

-- find_misplaced :many — I4, crosses tenants: places with other columns than the job and its last attempt
-- A released or retried job returns to its origin queue; its first queue may be another one.
SELECT found.org_id, 'job:' || CAST(found.job_id AS text) AS subject,
       'it is ' || found.name || ' ' || found.wrong AS detail
FROM (
    SELECT place.org_id, place.job_id, place.name, CASE
        WHEN place.queue NOT IN (job.origin_queue, coalesce(job.queue, job.origin_queue))
            THEN 'with another queue'
        WHEN place.limit_key <> job.limit_key THEN 'with another limit_key'
        WHEN place.turn <> coalesce(job.turn, job.id) THEN 'with another turn'
        WHEN place.created_at <> job.created_at THEN 'with another created_at'
        WHEN place.unit <> coalesce(job.job_type || job.unit_key, '') THEN 'with another unit'
        WHEN place.stage <> coalesce(last.stage, job.stage) THEN 'with another stage'
        WHEN place.attempt_count <> coalesce(last.attempt_count, 0) THEN 'with another attempt_count'
        WHEN place.max_attempts <> coalesce(last.max_attempts, job.max_attempts)
            THEN 'with another max_attempts'
        WHEN place.lease_token <> coalesce(last.lease_token, 0) + CASE
                WHEN place.name IN ('ready', 'waiting') OR coalesce(last.keeps_lease, FALSE)
                THEN 0 ELSE 1 END
            THEN 'with another lease_token'
        WHEN place.name IN ('ready', 'waiting') AND coalesce(last.keeps_lease, FALSE)
            THEN 'although its last attempt kept the lease'
        WHEN place.lease_expires_at < place.claimed_at OR trim(place.claimed_by) = ''
            THEN 'without a valid lease'
        END AS wrong
    FROM (
        SELECT org_id, job_id, 'running' AS name, queue, limit_key, turn, NULL AS created_at,
               NULL AS unit, lease_token, stage, attempt_count, max_attempts, claimed_at,
               lease_expires_at, claimed_by
        FROM holdfast.job_running
        UNION ALL
        SELECT org_id, job_id, 'ready', queue, limit_key, turn, created_at, unit, lease_token,
               NULL, NULL, NULL, NULL, NULL, NULL
        FROM holdfast.job_ready
        UNION ALL
        SELECT org_id, job_id, 'waiting', queue, limit_key, turn, created_at, unit, lease_token,
               NULL, NULL, NULL, NULL, NULL, NULL
        FROM holdfast.job_waiting
        UNION ALL
        SELECT org_id, job_id, 'submitted', queue, NULL, NULL, NULL, NULL, lease_token, NULL,
               NULL, NULL, NULL, NULL, NULL
        FROM holdfast.job_submitted
    ) AS place
    CROSS JOIN holdfast.job_envelope AS job
    {last_attempt last: place.org_id, place.job_id}
    WHERE job.org_id = place.org_id AND job.id = place.job_id
      AND (CAST(:org_id AS {uuid}) IS NULL OR place.org_id = :org_id)
) AS found
WHERE found.wrong IS NOT NULL;

-- find_stale :many — I5, crosses tenants: expired leases that were not rescued
-- Batch processing rescues and checks its own claims.
SELECT running.org_id, 'job:' || CAST(running.job_id AS text) AS subject,
       'its expired lease was not rescued; it was claimed by ' || running.claimed_by AS detail
FROM holdfast.job_running AS running
WHERE running.lease_expires_at < CAST(:stale_since AS {instant}) AND running.limit_key <> '~batch'
  AND (CAST(:org_id AS {uuid}) IS NULL OR running.org_id = :org_id);

-- find_miscounted :many — I6, crosses tenants: attempts that differ from those in the audit
SELECT found.org_id, 'job:' || CAST(found.id AS text) AS subject,
       CAST(found.attempt_count AS text) || ' of ' || CAST(found.max_attempts AS text)
           || ' attempts are counted, the audit has ' || CAST(found.told AS text) AS detail
FROM (
    SELECT job.org_id, job.id, job.attempt_count, job.max_attempts, (
        SELECT count(*) FROM holdfast.audit_event AS event
        WHERE event.jobs IS NULL AND event.job_id = job.id AND event.org_id = job.org_id
          AND event.name = 'job.failed'
          AND event.id > coalesce((
              SELECT max(advance.id) FROM holdfast.audit_event AS advance
              WHERE advance.jobs IS NULL AND advance.job_id = job.id
                AND advance.org_id = job.org_id AND advance.name = 'job.advanced'), 0)
    ) AS told
    FROM holdfast.job AS job
    WHERE CAST(:org_id AS {uuid}) IS NULL OR job.org_id = :org_id
) AS found
WHERE found.told <> found.attempt_count
   OR found.attempt_count NOT BETWEEN 0 AND found.max_attempts;

-- find_uneven_attempts :many — I6, crosses tenants: attempts that do not follow one another
-- A claim has one token; the next claim has the next one.
SELECT found.org_id, 'job:' || CAST(found.job_id AS text) AS subject,
       'attempt ' || CAST(found.number AS text) || ' ' || found.wrong AS detail
FROM (
    SELECT step.org_id, step.job_id, step.number, CASE
        WHEN step.number <> coalesce(step.number_before, 0) + 1
            THEN 'does not follow attempt ' || CAST(coalesce(step.number_before, 0) AS text)
        WHEN step.lease_token <> coalesce(step.token_before, 0)
                + CASE WHEN coalesce(step.kept_before, FALSE) THEN 0 ELSE 1 END
            THEN 'has lease token ' || CAST(step.lease_token AS text) || ' after '
                 || CAST(coalesce(step.token_before, 0) AS text)
        WHEN step.attempt_count NOT BETWEEN 0 AND step.max_attempts
            THEN 'counts ' || CAST(step.attempt_count AS text) || ' of '
                 || CAST(step.max_attempts AS text) || ' attempts'
        END AS wrong
    FROM (
        SELECT attempt.org_id, attempt.job_id, attempt.number, attempt.lease_token,
               attempt.attempt_count, attempt.max_attempts,
               lag(attempt.number) OVER each_job AS number_before,
               lag(attempt.lease_token) OVER each_job AS token_before,
               lag(attempt.keeps_lease) OVER each_job AS kept_before
        FROM holdfast.job_attempt AS attempt
        WHERE CAST(:org_id AS {uuid}) IS NULL OR attempt.org_id = :org_id
        WINDOW each_job AS (PARTITION BY attempt.org_id, attempt.job_id ORDER BY attempt.number)
    ) AS step
) AS found
WHERE found.wrong IS NOT NULL;

-- find_miscounted_stages :many — I6, crosses tenants: finished stages with another attempt than the one that finished them
-- A stage without an event was finished by the job that this one replays.
SELECT found.org_id, 'job:' || CAST(found.job_id AS text) AS subject,
       'stage ' || found.stage || ' counts ' || CAST(found.attempts AS text)
           || ' attempts, the audit has ' || CAST(found.told AS text) AS detail
FROM (
    SELECT stage.org_id, stage.job_id, stage.stage, stage.attempts, (
        SELECT max(event.attempt) FROM holdfast.audit_event AS event
        WHERE event.jobs IS NULL AND event.job_id = stage.job_id AND event.org_id = stage.org_id
          AND event.name = 'job.advanced' AND {field(event.detail, stage)} = stage.stage
    ) AS told
    FROM holdfast.job_stage AS stage
    WHERE stage.finished_at IS NOT NULL
      AND (CAST(:org_id AS {uuid}) IS NULL OR stage.org_id = :org_id)
) AS found
WHERE found.told <> found.attempts;

-- find_tokens :many — I7, crosses tenants: tokens that do not equal the number of claims
SELECT found.org_id, 'job:' || CAST(found.id AS text) AS subject,
       'its lease token is ' || CAST(found.lease_token AS text) || ', it has '
           || CAST(found.claims AS text) || ' claims' AS detail
FROM (
    SELECT job.org_id, job.id, job.lease_token,
           (SELECT count(*) FROM holdfast.job_attempt AS fact
            WHERE fact.org_id = job.org_id AND fact.job_id = job.id
              AND fact.started_event_id IS NOT NULL)
           + (SELECT count(*) FROM holdfast.job_running AS fact
              WHERE fact.org_id = job.org_id AND fact.job_id = job.id)
           + (SELECT count(*) FROM holdfast.job_submitted AS fact
              WHERE fact.org_id = job.org_id AND fact.job_id = job.id)
           + (SELECT count(*) FROM holdfast.job_outcome AS fact
              WHERE fact.org_id = job.org_id AND fact.job_id = job.id
                AND fact.started_event_id IS NOT NULL) AS claims
    FROM holdfast.job AS job
    WHERE CAST(:org_id AS {uuid}) IS NULL OR job.org_id = :org_id
) AS found
WHERE found.claims <> found.lease_token;

-- find_wrong_claims :many — I7, crosses tenants: outcomes of another claim than the last one
-- Only a cancel ends a job that is not claimed.
SELECT outcome.org_id, 'job:' || CAST(outcome.job_id AS text) AS subject,
       'it ended with lease token ' || CAST(outcome.lease_token AS text) || ', its last attempt has '
           || CAST(coalesce(last.lease_token, 0) AS text) AS detail
FROM holdfast.job_outcome AS outcome
LEFT JOIN (
    SELECT attempt.org_id, attempt.job_id, attempt.lease_token, attempt.keeps_lease
    FROM holdfast.job_attempt AS attempt
    WHERE NOT EXISTS (SELECT 1 FROM holdfast.job_attempt AS next
                      WHERE next.org_id = attempt.org_id AND next.job_id = attempt.job_id
                        AND next.number = attempt.number + 1)
) AS last ON last.org_id = outcome.org_id AND last.job_id = outcome.job_id
WHERE (CAST(:org_id AS {uuid}) IS NULL OR outcome.org_id = :org_id)
  AND outcome.lease_token <> coalesce(last.lease_token, 0)
          + CASE WHEN coalesce(last.keeps_lease, FALSE) THEN 0 ELSE 1 END
  AND NOT (outcome.state = 'canceled' AND NOT coalesce(last.keeps_lease, FALSE)
           AND outcome.lease_token = coalesce(last.lease_token, 0));

-- find_lost_tokens :many — I7, crosses tenants: lost claims with a token that was never issued
SELECT job.org_id, 'job:' || CAST(job.id AS text) AS subject,
       'event ' || CAST(event.id AS text) || ' records the loss of a lease that was never issued' AS detail
FROM holdfast.audit_event AS event
CROSS JOIN holdfast.job AS job
WHERE event.name = 'job.lease_lost' AND job.org_id = event.org_id AND job.id = event.job_id
  AND CASE WHEN trim(CAST({field(event.detail, lease_token)} AS text), '0123456789') = ''
            AND length(CAST({field(event.detail, lease_token)} AS text)) BETWEEN 1 AND 18
           THEN CAST({field(event.detail, lease_token)} AS bigint) NOT BETWEEN 1 AND job.lease_token
           ELSE TRUE END
  AND (CAST(:org_id AS {uuid}) IS NULL OR job.org_id = :org_id);

-- find_early :many — I8, crosses tenants: retries that are due before the failure that they follow
-- A stale claim is requeued with its earlier due time.
SELECT waiting.org_id, 'job:' || CAST(waiting.job_id AS text) AS subject,
       'its retry is due before its last failure' AS detail
FROM holdfast.job_waiting AS waiting
JOIN holdfast.job_attempt AS last
  ON last.org_id = waiting.org_id AND last.job_id = waiting.job_id AND last.number = (
    SELECT max(newest.number) FROM holdfast.job_attempt AS newest
    WHERE newest.org_id = waiting.org_id AND newest.job_id = waiting.job_id)
WHERE waiting.not_before_at < last.last_error_at AND last.last_error <> 'stale_claim_requeued'
  AND (CAST(:org_id AS {uuid}) IS NULL OR waiting.org_id = :org_id);

-- find_changed :many — I9, crosses tenants: jobs that differ from their enqueue event
-- The digest of the event covers the other columns (I43). CROSS JOIN makes SQLite start with the job;
-- it would look for each pair of job and event.
SELECT job.org_id, 'job:' || CAST(job.id AS text) AS subject,
       'changed since it was enqueued:'
           || CASE WHEN job.actor_type <> told.actor_type OR job.actor_id <> told.actor_id
                   THEN ' actor' ELSE '' END
           || CASE WHEN job.created_at <> told.at THEN ' created_at' ELSE '' END AS detail
FROM holdfast.job_envelope AS job
CROSS JOIN holdfast.audit_event AS told
WHERE told.id = (
      SELECT min(event.id) FROM holdfast.audit_event AS event WHERE event.id >= job.event_id)
  AND (CAST(:org_id AS {uuid}) IS NULL OR job.org_id = :org_id)
  AND told.name = 'job.enqueued' AND told.org_id = job.org_id
  AND told.id - told.events < job.event_id
  AND (job.actor_type <> told.actor_type OR job.actor_id <> told.actor_id
       OR job.created_at <> told.at);

-- find_half_ended :many — I10, crosses tenants: outcomes and stages with missing or contradicting columns
SELECT outcome.org_id, 'job:' || CAST(outcome.job_id AS text) AS subject,
       CASE WHEN outcome.state NOT IN ('completed', 'failed', 'canceled')
            THEN 'it ended as ' || outcome.state
            WHEN (outcome.state = 'completed') <> (outcome.result IS NOT NULL)
            THEN 'it is ' || outcome.state || CASE WHEN outcome.result IS NULL
                THEN ' and has no result' ELSE ' and has a result' END
            WHEN outcome.key_expires_at < outcome.finished_at THEN 'its key expires before its end'
            WHEN outcome.state = 'failed' THEN 'it failed without an error or an error class'
            ELSE 'it is ' || outcome.state || ' and has an error' END AS detail
FROM holdfast.job_outcome AS outcome
WHERE (CAST(:org_id AS {uuid}) IS NULL OR outcome.org_id = :org_id)
  AND (outcome.state NOT IN ('completed', 'failed', 'canceled')
       OR (outcome.state = 'completed') <> (outcome.result IS NOT NULL)
       OR outcome.key_expires_at < outcome.finished_at
       OR (outcome.state = 'failed') <> (outcome.error_class IS NOT NULL)
       OR (outcome.state = 'failed') <> (outcome.last_error IS NOT NULL))
UNION ALL
SELECT attempt.org_id, 'job:' || CAST(attempt.job_id AS text),
       'attempt ' || CAST(attempt.number AS text) || ' has a part of an error'
FROM holdfast.job_attempt AS attempt
WHERE (CAST(:org_id AS {uuid}) IS NULL OR attempt.org_id = :org_id)
  AND ((attempt.last_error IS NULL) <> (attempt.error_class IS NULL)
       OR (attempt.last_error IS NULL) <> (attempt.last_error_at IS NULL)
       OR (attempt.last_error IS NULL) <> (attempt.first_failed_at IS NULL))
UNION ALL
SELECT stage.org_id, 'job:' || CAST(stage.job_id AS text),
       'stage ' || stage.stage || CASE WHEN stage.finished_at IS NULL
           THEN ' has a result but is not finished' ELSE ' is finished without a result' END
FROM holdfast.job_stage AS stage
WHERE (stage.output IS NULL) <> (stage.finished_at IS NULL)
  AND (CAST(:org_id AS {uuid}) IS NULL OR stage.org_id = :org_id);
