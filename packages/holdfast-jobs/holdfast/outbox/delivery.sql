-- Delivery lifecycle. A page holds deliveries of many tenants, so the statements cross tenants and
-- say so. Each of them names the tenant of every row it writes.

-- insert_deliveries :many — messages to send; existing deliveries stay unchanged
INSERT INTO holdfast.delivery
    (org_id, id, subject, recipient, version, channel, address, token, content, content_hash,
     is_required, job_id, deliver_job_id, not_before_at, request_id, correlation_id, endpoint,
     project_id, actor_type, actor_id, created_at, updated_at)
SELECT intents.org_id, intents.id, intents.subject, intents.recipient, intents.version,
       intents.channel, intents.address, intents.token, intents.content, intents.content_hash,
       intents.is_required, intents.job_id, intents.deliver_job_id, intents.not_before_at,
       intents.request_id, intents.correlation_id, intents.endpoint, intents.project_id,
       intents.actor_type, intents.actor_id, {now}, {now}
FROM {rows intents: org_id uuid, id uuid, subject text, recipient text, version integer,
      channel text, address text, token text, content text, content_hash text,
      is_required smallint, job_id uuid, deliver_job_id uuid, not_before_at instant,
      request_id text, correlation_id text, endpoint text, project_id uuid, actor_type text,
      actor_id text}
WHERE TRUE
ON CONFLICT (org_id, subject, recipient, version) DO NOTHING
RETURNING id, org_id;

-- find_intended :many — the existing deliveries of these identities
SELECT delivery.org_id, delivery.id, delivery.subject, delivery.recipient, delivery.version,
       delivery.channel, delivery.address, delivery.content_hash, delivery.state
FROM {rows identities: org_id uuid, subject text, recipient text, version integer}
JOIN holdfast.delivery AS delivery
  ON delivery.org_id = identities.org_id AND delivery.subject = identities.subject
 AND delivery.recipient = identities.recipient AND delivery.version = identities.version;

-- find_latest :maybe — the newest delivery of a subject to a recipient
SELECT version, ended_at
FROM holdfast.delivery
WHERE org_id = :org_id AND subject = :subject AND recipient = :recipient
ORDER BY version DESC
LIMIT 1;

-- find_outbox_key :one — crosses tenants: the key for tokens if none is configured
SELECT key FROM holdfast.outbox_key WHERE id = 1;

-- list_of_job :many — the deliveries of a job
SELECT id, org_id, subject, recipient, version, channel, token, content_hash, is_required, state,
       reason, job_id, notification_id, notified_at, confirmed_by, attempts, fence, first_sent_at,
       reconciled_at, not_before_at, request_id, correlation_id, created_at, updated_at, ended_at,
       deliver_job_id, endpoint, project_id, actor_type, actor_id
FROM holdfast.delivery
WHERE org_id = :org_id AND job_id = :job_id
ORDER BY id;

-- list_named :many — crosses tenants: these deliveries
SELECT id, org_id, subject, recipient, version, channel, token, content_hash, is_required, state,
       reason, job_id, notification_id, notified_at, confirmed_by, attempts, fence, first_sent_at,
       reconciled_at, not_before_at, request_id, correlation_id, created_at, updated_at, ended_at,
       deliver_job_id, endpoint, project_id, actor_type, actor_id
FROM holdfast.delivery
JOIN {rows named: home uuid, delivery_id uuid} ON org_id = named.home AND id = named.delivery_id
ORDER BY id;

-- await_deliveries :affected — crosses tenants: a job waits for those of these that have not ended
UPDATE holdfast.delivery
SET awaited_by = :job_id
FROM {rows named: home uuid, delivery_id uuid}
WHERE org_id = named.home AND id = named.delivery_id AND state IN ('pending', 'held')
  AND awaited_by IS DISTINCT FROM CAST(:job_id AS {uuid});

-- wake_jobs :many — crosses tenants: make jobs due that snooze until a delivery ends
UPDATE holdfast.job_waiting AS job
SET not_before_at = {now}
FROM {rows waiting: home uuid, awaiting_id uuid}
WHERE job.org_id = waiting.home AND job.job_id = waiting.awaiting_id AND job.not_before_at > {now}
RETURNING job.org_id, job.job_id AS id, job.queue;

-- take_named :many — crosses tenants: lease those of these that are due and not leased
UPDATE holdfast.delivery
SET lease_owner = :owner, lease_expires_at = {later(:lease_ms)}, fence = fence + 1,
    updated_at = {now}
FROM {rows named: home uuid, delivery_id uuid}
WHERE org_id = named.home AND id = named.delivery_id AND state = 'pending'
  AND (lease_expires_at IS NULL OR lease_expires_at <= {now})
  AND (not_before_at IS NULL OR not_before_at <= {now})
RETURNING id, org_id, subject, recipient, version, channel, token, content_hash, is_required, state,
          reason, job_id, notification_id, notified_at, confirmed_by, attempts, fence,
          first_sent_at, reconciled_at, not_before_at, request_id, correlation_id, created_at,
          updated_at, ended_at, deliver_job_id, endpoint, project_id, actor_type, actor_id,
          {now} AS now;

-- take_due :many — crosses tenants: lease unfinished attempts and abandoned deliveries.
-- A job that has not ended delivers its own deliveries; those of a dead-lettered job wait for its
-- replay. Deliveries of a canceled job are dropped at once.
UPDATE holdfast.delivery
SET lease_owner = :owner, lease_expires_at = {later(:lease_ms)}, fence = fence + 1,
    updated_at = {now}
WHERE (org_id, id) IN (
    SELECT due.org_id, due.id FROM holdfast.delivery AS due
    WHERE due.state = 'pending' AND (due.attempts > 0 OR NOT EXISTS (
          SELECT 1 FROM holdfast.job_envelope AS own
          LEFT JOIN holdfast.job_outcome AS ended
            ON ended.org_id = own.org_id AND ended.job_id = own.id
          WHERE own.org_id = due.org_id AND own.id = coalesce(due.deliver_job_id, due.job_id)
            AND (ended.state IS NULL OR ended.state = 'failed' AND due.fence = 0
                 AND due.deliver_job_id IS NULL)))
      AND (due.lease_expires_at IS NULL OR due.lease_expires_at <= {now})
      AND (due.not_before_at IS NULL OR due.not_before_at <= {now} OR due.attempts = 0 AND EXISTS (
          SELECT 1 FROM holdfast.job_outcome AS ended
          WHERE ended.org_id = due.org_id AND ended.state = 'canceled'
            AND ended.job_id = coalesce(due.deliver_job_id, due.job_id)))
      AND due.updated_at <= {later(:grace_ms)}
    ORDER BY due.updated_at, due.id
    LIMIT :limit
    {skip_locked})
RETURNING id, org_id, subject, recipient, version, channel, token, content_hash, is_required, state,
          reason, job_id, notification_id, notified_at, confirmed_by, attempts, fence,
          first_sent_at, reconciled_at, not_before_at, request_id, correlation_id, created_at,
          updated_at, ended_at, deliver_job_id, endpoint, project_id, actor_type, actor_id,
          {now} AS now;

-- count_due :one — crosses tenants: deliveries that the reconciler would find, counted up to :most
SELECT (
    SELECT count(*) FROM (
        SELECT 1 FROM holdfast.delivery AS due
        WHERE due.state = 'pending' AND (due.attempts > 0 OR NOT EXISTS (
              SELECT 1 FROM holdfast.job_envelope AS own
              LEFT JOIN holdfast.job_outcome AS ended
                ON ended.org_id = own.org_id AND ended.job_id = own.id
              WHERE own.org_id = due.org_id AND own.id = coalesce(due.deliver_job_id, due.job_id)
                AND (ended.state IS NULL OR ended.state = 'failed' AND due.fence = 0
                     AND due.deliver_job_id IS NULL)))
          AND (due.lease_expires_at IS NULL OR due.lease_expires_at <= {now})
          AND (due.not_before_at IS NULL OR due.not_before_at <= {now} OR due.attempts = 0 AND EXISTS (
              SELECT 1 FROM holdfast.job_outcome AS ended
              WHERE ended.org_id = due.org_id AND ended.state = 'canceled'
                AND ended.job_id = coalesce(due.deliver_job_id, due.job_id)))
          AND due.updated_at <= {later(:grace_ms)}
        LIMIT :most) AS found) + (
    SELECT count(*) FROM (
        SELECT 1 FROM holdfast.delivery AS marked
        WHERE marked.state = 'sent' AND marked.confirmed_by IS NULL
          AND marked.proof = 'none'
          AND (marked.lease_expires_at IS NULL OR marked.lease_expires_at <= {now})
          AND (marked.not_before_at IS NULL OR marked.not_before_at <= {now})
        LIMIT :most) AS bare) AS deliveries;

-- take_marked :many — crosses tenants: lease deliveries that are marked although no channel accepted them
UPDATE holdfast.delivery
SET lease_owner = :owner, lease_expires_at = {later(:lease_ms)}, fence = fence + 1,
    updated_at = {now}
WHERE (org_id, id) IN (
    SELECT marked.org_id, marked.id FROM holdfast.delivery AS marked
    WHERE marked.state = 'sent' AND marked.confirmed_by IS NULL AND marked.proof = 'none'
      AND (marked.lease_expires_at IS NULL OR marked.lease_expires_at <= {now})
      AND (marked.not_before_at IS NULL OR marked.not_before_at <= {now})
      -- Includes those that were marked since the last proof pass.
      AND NOT EXISTS (SELECT 1 FROM holdfast.delivery_attempt AS attempt
                      WHERE attempt.org_id = marked.org_id AND attempt.delivery_id = marked.id
                        AND attempt.outcome = 'accepted')
      AND NOT EXISTS (SELECT 1 FROM holdfast.delivery_evidence AS evidence
                      WHERE evidence.org_id = marked.org_id AND evidence.delivery_id = marked.id
                        AND evidence.verdict = 'taken')
    ORDER BY marked.id
    LIMIT :limit
    {skip_locked})
RETURNING id, org_id, subject, recipient, version, channel, token, content_hash, is_required, state,
          reason, job_id, notification_id, notified_at, confirmed_by, attempts, fence,
          first_sent_at, reconciled_at, not_before_at, request_id, correlation_id, created_at,
          updated_at, ended_at, deliver_job_id, endpoint, project_id, actor_type, actor_id,
          {now} AS now;

-- prove_marked :affected — crosses tenants: prove marks that a recorded acceptance covers
UPDATE holdfast.delivery
SET proof = 'seen'
WHERE (org_id, id) IN (
    SELECT marked.org_id, marked.id FROM holdfast.delivery AS marked
    WHERE marked.state = 'sent' AND marked.proof = 'none' AND (
        marked.confirmed_by IS NOT NULL
        OR EXISTS (SELECT 1 FROM holdfast.delivery_attempt AS attempt
                   WHERE attempt.org_id = marked.org_id AND attempt.delivery_id = marked.id
                     AND attempt.outcome = 'accepted')
        OR EXISTS (SELECT 1 FROM holdfast.delivery_evidence AS evidence
                   WHERE evidence.org_id = marked.org_id AND evidence.delivery_id = marked.id
                     AND evidence.verdict = 'taken'))
    ORDER BY marked.id
    LIMIT :limit
    {skip_locked});

-- believe_late :many — crosses tenants: late acceptances turn dropped or failed deliveries into sent ones
-- A delivery that was accepted and then undeliverable stays failed. A resend by an operator
-- overrides earlier evidence.
UPDATE holdfast.delivery AS given_up
SET state = 'sent', reason = NULL, notified_at = {now}, ended_at = {now}, reconciled_at = {now},
    fence = fence + 1, updated_at = {now},
    notification_id = coalesce((
        SELECT evidence.provider_id FROM holdfast.delivery_evidence AS evidence
        WHERE evidence.org_id = given_up.org_id AND evidence.delivery_id = given_up.id
          AND evidence.source = 'late_answer' AND evidence.verdict = 'taken'
        ORDER BY evidence.id DESC
        LIMIT 1), token)
WHERE state IN ('held', 'failed', 'dropped') AND reason <> 'undelivered' AND (org_id, id) IN (
    SELECT evidence.org_id, evidence.delivery_id FROM holdfast.delivery_evidence AS evidence
    WHERE evidence.source = 'late_answer' AND evidence.verdict = 'taken'
      AND NOT EXISTS (SELECT 1 FROM holdfast.delivery_evidence AS person
                      WHERE person.org_id = evidence.org_id
                        AND person.delivery_id = evidence.delivery_id
                        AND person.verdict = 'resend' AND person.id > evidence.id))
RETURNING id, org_id, subject, recipient, version, channel, token, content_hash, is_required, state,
          reason, job_id, notification_id, notified_at, confirmed_by, attempts, fence,
          first_sent_at, reconciled_at, not_before_at, request_id, correlation_id, created_at,
          updated_at, ended_at, deliver_job_id, endpoint, project_id, actor_type, actor_id,
          awaited_by;

-- list_attempts :many — crosses tenants: all attempts of these deliveries, in order
SELECT attempt.org_id, attempt.delivery_id, attempt.number, attempt.reason, attempt.began_at,
       attempt.outcome, attempt.code, attempt.provider_id, attempt.body_hash, attempt.ended_at,
       attempt.phase
FROM {rows named: home uuid, delivery_id uuid}
JOIN holdfast.delivery_attempt AS attempt
  ON attempt.org_id = named.home AND attempt.delivery_id = named.delivery_id
ORDER BY attempt.delivery_id, attempt.number;

-- list_evidence :many — crosses tenants: all evidence of these deliveries, in order
SELECT evidence.org_id, evidence.delivery_id, evidence.source, evidence.verdict,
       evidence.after_attempt, evidence.provider_id, evidence.code, evidence.at
FROM {rows named: home uuid, delivery_id uuid}
JOIN holdfast.delivery_evidence AS evidence
  ON evidence.org_id = named.home AND evidence.delivery_id = named.delivery_id
ORDER BY evidence.id;

-- list_canceled :many — crosses tenants: which of these have a canceled job, and since when
-- The last replay of a job counts.
SELECT told.org_id, told.id AS delivery_id, ended.finished_at AS at
FROM (
    SELECT sent.org_id, sent.id, coalesce(
        (SELECT replay.replay_job_id FROM holdfast.dead_letter_replay AS replay
         WHERE replay.org_id = sent.org_id AND replay.job_id = sent.first_job_id
         ORDER BY replay.number DESC LIMIT 1), sent.first_job_id) AS job_id
    FROM (
        SELECT delivery.org_id, delivery.id, coalesce(
            (SELECT replay.job_id FROM holdfast.dead_letter_replay AS replay
             WHERE replay.org_id = delivery.org_id
               AND replay.replay_job_id = coalesce(delivery.deliver_job_id, delivery.job_id)),
            delivery.deliver_job_id, delivery.job_id) AS first_job_id
        FROM {rows named: home uuid, delivery_id uuid}
        JOIN holdfast.delivery AS delivery
          ON delivery.org_id = named.home AND delivery.id = named.delivery_id) AS sent) AS told
JOIN holdfast.job_outcome AS ended
  ON ended.org_id = told.org_id AND ended.job_id = told.job_id AND ended.state = 'canceled';

-- list_addresses :many — crosses tenants: addresses of these deliveries, for a fuzzy lookup
SELECT delivery.org_id, delivery.id, delivery.address
FROM {rows named: home uuid, delivery_id uuid}
JOIN holdfast.delivery AS delivery
  ON delivery.org_id = named.home AND delivery.id = named.delivery_id;

-- hold_deliveries :many — crosses tenants: renew the lease of those of these that are still held
UPDATE holdfast.delivery
SET lease_expires_at = {later(:lease_ms)}, updated_at = {now}
FROM {rows held: home uuid, delivery_id uuid, was bigint}
WHERE org_id = held.home AND id = held.delivery_id AND fence = held.was
  AND state IN ('pending', 'sent')
RETURNING org_id, id;

-- insert_evidence :affected — crosses tenants: evidence for deliveries that still exist
-- Only PostgreSQL locks the row: SQLite has one writer.
INSERT INTO holdfast.delivery_evidence
    (org_id, delivery_id, source, verdict, provider_id, code, after_attempt, at)
SELECT said.org_id, said.delivery_id, said.source, said.verdict, said.provider_id, said.code,
       said.after_attempt, {now}
FROM {rows said: org_id uuid, delivery_id uuid, source text, verdict text, provider_id text,
      code text, after_attempt integer}
JOIN holdfast.delivery AS delivery
  ON delivery.org_id = said.org_id AND delivery.id = said.delivery_id
-- Wait for a concurrent erase; evidence without a delivery would fail the page.
{only postgres}FOR KEY SHARE OF delivery{end};

-- begin_attempts :many — crosses tenants: count an attempt, if the delivery is leased by us and unmarked
-- Repeated after a commit without an answer, it counts the same attempt.
UPDATE holdfast.delivery
SET attempts = tries.nth, first_sent_at = coalesce(first_sent_at, {now}),
    lease_expires_at = {later(:lease_ms)}, updated_at = {now}
FROM {rows tries: home uuid, delivery_id uuid, was bigint, nth integer}
WHERE org_id = tries.home AND id = tries.delivery_id AND fence = tries.was AND state = 'pending'
  AND notified_at IS NULL AND attempts IN (tries.nth - 1, tries.nth)
RETURNING org_id, id, attempts, address, content, first_sent_at, {now} AS now;

-- insert_attempts :affected — crosses tenants: attempts, stored before they are made
INSERT INTO holdfast.delivery_attempt
    (org_id, delivery_id, number, reason, fence, worker_id, body_hash, phase, began_at)
SELECT tries.org_id, tries.delivery_id, tries.number, tries.reason, tries.fence, :worker_id,
       tries.body_hash, tries.phase, {now}
FROM {rows tries: org_id uuid, delivery_id uuid, number integer, reason text, fence bigint,
      body_hash text, phase text}
WHERE TRUE
ON CONFLICT (org_id, delivery_id, number) DO NOTHING;

-- commit_attempt :affected — the attempt passes the commit point of its channel
UPDATE holdfast.delivery_attempt
SET phase = 'committed'
WHERE org_id = :org_id AND delivery_id = :delivery_id AND number = :number AND fence = :fence
  AND outcome IS NULL;

-- end_attempts :affected — crosses tenants: outcomes of attempts, also after the lease has expired
UPDATE holdfast.delivery_attempt
SET outcome = ends.word, code = ends.what, provider_id = ends.given_id, ended_at = {now}
FROM {rows ends: home uuid, of_delivery uuid, nth integer, word text, what text, given_id text}
WHERE org_id = ends.home AND delivery_id = ends.of_delivery AND number = ends.nth
  AND outcome IS NULL;

-- mark_deliveries :many — crosses tenants: state and marks of deliveries in one write, if leased by us
UPDATE holdfast.delivery
SET state = marks.word, reason = marks.why,
    notification_id = coalesce(marks.given_id, notification_id),
    notified_at = CASE WHEN marks.word = 'sent' THEN {now} END,
    ended_at = CASE WHEN marks.word IN ('sent', 'dropped', 'failed') THEN {now} END,
    reconciled_at = CASE WHEN marks.is_found = 1 THEN {now} ELSE reconciled_at END,
    not_before_at = CASE WHEN marks.delay_ms IS NULL THEN NULL ELSE {later(marks.delay_ms)} END,
    lease_owner = NULL, lease_expires_at = NULL, updated_at = {now}
FROM {rows marks: home uuid, delivery_id uuid, was bigint, word text, why text, given_id text,
      is_found smallint, delay_ms bigint}
WHERE org_id = marks.home AND id = marks.delivery_id AND fence = marks.was AND state = 'pending'
RETURNING org_id, id, state, awaited_by;

-- clear_marks :many — crosses tenants: the channel does not know these; send them again
UPDATE holdfast.delivery
SET state = 'pending', reason = NULL, notification_id = NULL, notified_at = NULL, ended_at = NULL,
    reconciled_at = {now}, not_before_at = NULL, lease_owner = NULL, lease_expires_at = NULL,
    updated_at = {now}
FROM {rows cleared: home uuid, delivery_id uuid, was bigint}
WHERE org_id = cleared.home AND id = cleared.delivery_id AND fence = cleared.was
  AND state = 'sent'
RETURNING org_id, id;

-- keep_marks :many — crosses tenants: these stay marked: proven, unprovable, or looked up later
UPDATE holdfast.delivery
SET proof = kept.word,
    not_before_at = CASE WHEN kept.delay_ms IS NULL THEN NULL ELSE {later(kept.delay_ms)} END,
    lease_owner = NULL, lease_expires_at = NULL, updated_at = {now}
FROM {rows kept: home uuid, delivery_id uuid, was bigint, word text, delay_ms bigint}
WHERE org_id = kept.home AND id = kept.delivery_id AND fence = kept.was AND state = 'sent'
RETURNING org_id, id;
