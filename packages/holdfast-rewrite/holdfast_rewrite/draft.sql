-- Statements of drafts: rewrites that passed the gate and wait for a verdict or a person.

-- insert_drafts :affected — crosses tenants: drafts, in the transaction that completes the jobs
INSERT INTO holdfast.rewrite_draft
    (org_id, rewrite_request_id, recipient_user_id, state, rewritten_text, output_language,
     provider, model, prompt_version, policy_version, lexicon_version, gate, eval_result, findings,
     hold_reason, held_at, created_at, updated_at)
SELECT drafts.org_id, drafts.rewrite_request_id, drafts.recipient_user_id, drafts.state,
       drafts.rewritten_text, drafts.output_language, drafts.provider, drafts.model,
       drafts.prompt_version, drafts.policy_version, drafts.lexicon_version, drafts.gate,
       drafts.eval_result, drafts.findings, drafts.hold_reason,
       CASE WHEN drafts.hold_reason IS NOT NULL THEN {now} END, {now}, {now}
FROM {rows drafts: org_id uuid, rewrite_request_id uuid, recipient_user_id uuid, state text,
      rewritten_text text, output_language text, provider text, model text, prompt_version text,
      policy_version text, lexicon_version text, gate text, eval_result json, findings json,
      hold_reason text};

-- settle_drafts :affected — crosses tenants: rulings, in the transaction that completes the judges
-- Only a held draft keeps its text: a stored one has it in its output.
UPDATE holdfast.rewrite_draft AS draft
SET state = rulings.state, findings = rulings.findings,
    no_verdict_code = rulings.no_verdict_code, hold_reason = rulings.hold_reason,
    held_at = CASE WHEN rulings.hold_reason IS NOT NULL THEN {now} END,
    rewritten_text = CASE WHEN rulings.state = 'held' THEN draft.rewritten_text END,
    updated_at = {now}
FROM {rows rulings: org_id uuid, rewrite_request_id uuid, state text, findings json,
      no_verdict_code text, hold_reason text}
WHERE draft.org_id = rulings.org_id AND draft.rewrite_request_id = rulings.rewrite_request_id
  AND draft.state = 'judging';

-- load_drafts :many — crosses tenants: a page of judges' jobs with drafts and requests, in one read
SELECT items.job_id, draft.org_id, draft.rewrite_request_id, draft.recipient_user_id, draft.state,
       draft.rewritten_text, draft.output_language, draft.provider, draft.model,
       draft.prompt_version, draft.policy_version, draft.lexicon_version, draft.gate,
       CAST(draft.eval_result AS text) AS eval_result, draft.erased_at,
       request.source_locale, request.target_locale, request.lane, request.routing_decision,
       message.original_text, request.erased_at AS request_erased_at,
       CASE WHEN EXISTS (
           SELECT 1 FROM holdfast.batch_item AS earlier
           WHERE earlier.org_id = items.org_id AND earlier.job_id = items.job_id
             AND earlier.attempt < items.attempt AND earlier.state NOT IN ('released', 'not_run'))
       THEN 1 ELSE 0 END AS was_asked
FROM {rows items: org_id uuid, job_id uuid, attempt integer}
JOIN holdfast.rewrite_draft AS draft
  ON draft.org_id = items.org_id AND draft.judge_job_id = items.job_id
JOIN holdfast.rewrite_request AS request
  ON request.org_id = draft.org_id AND request.rewrite_request_id = draft.rewrite_request_id
JOIN holdfast.rewrite_message AS message
  ON message.org_id = draft.org_id AND message.rewrite_request_id = draft.rewrite_request_id;

-- count_open :one — crosses tenants: drafts that the orchestrator has to work on, up to a bound
SELECT (SELECT count(*) FROM (
            SELECT 1 FROM holdfast.rewrite_draft
            WHERE state = 'judging' AND judge_job_id IS NULL LIMIT :most) AS unjudged)
     + (SELECT count(*) FROM (
            SELECT 1 FROM holdfast.rewrite_draft
            WHERE state <> 'judging' AND told_at IS NULL LIMIT :most) AS untold)
     + (SELECT count(*) FROM (
            SELECT 1 FROM holdfast.rewrite_draft
            WHERE state = 'held' AND held_at <= {later(-CAST(:held_ms AS bigint))}
            LIMIT :most) AS expired) AS drafts;

-- list_unjudged :many — crosses tenants: drafts without a judge's job, oldest first
SELECT draft.org_id, draft.rewrite_request_id, draft.recipient_user_id, request.source_locale,
       request.target_locale, request.lane, request.routing_decision, request.request_id,
       request.correlation_id
FROM holdfast.rewrite_draft AS draft
JOIN holdfast.rewrite_request AS request
  ON request.org_id = draft.org_id AND request.rewrite_request_id = draft.rewrite_request_id
WHERE draft.state = 'judging' AND draft.judge_job_id IS NULL
ORDER BY draft.created_at
LIMIT :limit
{skip_held(draft)};

-- assign_judges :affected — crosses tenants: the judge's job of each draft, once
UPDATE holdfast.rewrite_draft AS draft
SET judge_job_id = judges.job_id, judge_model = judges.model, judge_version = judges.version,
    updated_at = {now}
FROM {rows judges: org_id uuid, rewrite_request_id uuid, job_id uuid, model text, version text}
WHERE draft.org_id = judges.org_id AND draft.rewrite_request_id = judges.rewrite_request_id
  AND draft.state = 'judging' AND draft.judge_job_id IS NULL;

-- hold_unjudged :affected — crosses tenants: drafts whose judge has no account any more
UPDATE holdfast.rewrite_draft AS draft
SET state = 'held', hold_reason = 'no_verdict', no_verdict_code = 'no_route', held_at = {now},
    updated_at = {now}
FROM {rows held: org_id uuid, id uuid}
WHERE draft.org_id = held.org_id AND draft.rewrite_request_id = held.id
  AND draft.state = 'judging';

-- hold_requests :affected — crosses tenants: the requests of these drafts
UPDATE holdfast.rewrite_request AS request
SET step = 'held', updated_at = {now}
FROM {rows held: org_id uuid, id uuid}
WHERE request.org_id = held.org_id AND request.rewrite_request_id = held.id
  AND request.step = 'judging';

-- list_untold :many — crosses tenants: drafts whose verdict or hold the audit does not have yet
SELECT draft.org_id, draft.rewrite_request_id, draft.state, draft.gate, draft.findings,
       draft.no_verdict_code, draft.hold_reason, draft.judge_job_id, draft.judge_model,
       draft.judge_version, request.surface, request.rewrite_strength, request.lane,
       request.request_id, request.correlation_id
FROM holdfast.rewrite_draft AS draft
JOIN holdfast.rewrite_request AS request
  ON request.org_id = draft.org_id AND request.rewrite_request_id = draft.rewrite_request_id
WHERE draft.state <> 'judging' AND draft.told_at IS NULL
ORDER BY draft.updated_at
LIMIT :limit
{skip_held(draft)};

-- mark_told :many — crosses tenants: mark drafts as recorded in the audit, once each
UPDATE holdfast.rewrite_draft AS draft
SET told_at = {now}
FROM {rows told: org_id uuid, id uuid}
WHERE draft.org_id = told.org_id AND draft.rewrite_request_id = told.id AND draft.told_at IS NULL
RETURNING rewrite_request_id;

-- list_expired :many — crosses tenants: held rewrites past their retention, oldest first
SELECT draft.org_id, draft.rewrite_request_id, request.request_id, request.correlation_id
FROM holdfast.rewrite_draft AS draft
JOIN holdfast.rewrite_request AS request
  ON request.org_id = draft.org_id AND request.rewrite_request_id = draft.rewrite_request_id
WHERE draft.state = 'held' AND draft.held_at <= {later(-CAST(:held_ms AS bigint))}
ORDER BY draft.held_at
LIMIT :limit
{skip_held(draft)};

-- reject_requests :affected — crosses tenants: requests whose held rewrite is rejected or expired
UPDATE holdfast.rewrite_request AS request
SET step = 'failed', status = 'failed', failure_code = decided.failure_code, failed_at = {now},
    updated_at = {now}
FROM {rows decided: org_id uuid, id uuid, failure_code text}
WHERE request.org_id = decided.org_id AND request.rewrite_request_id = decided.id
  AND request.step = 'held';

-- complete_request :affected — the request of a held rewrite that a person approved
UPDATE holdfast.rewrite_request
SET step = 'completed', status = 'completed', rewrite_completed_at = {now},
    output_recipient_user_id = recipient_user_id, updated_at = {now}
WHERE org_id = :org_id AND rewrite_request_id = :id AND step = 'held' AND erased_at IS NULL;

-- decide_drafts :many — crosses tenants: a held draft is decided once, and its text leaves
UPDATE holdfast.rewrite_draft AS draft
SET state = CASE WHEN decided.decision IN ('approve', 'edit') THEN 'stored' ELSE 'rejected' END,
    decision = decided.decision, decided_by = decided.decided_by, decided_at = {now},
    rewritten_text = NULL, updated_at = {now}
FROM {rows decided: org_id uuid, id uuid, decision text, decided_by text}
WHERE draft.org_id = decided.org_id AND draft.rewrite_request_id = decided.id
  AND draft.state = 'held'
RETURNING rewrite_request_id;

-- list_held :many — crosses tenants: the queue of held rewrites without text, oldest first
SELECT draft.org_id AS home_id, draft.rewrite_request_id, draft.hold_reason, draft.held_at,
       draft.gate, draft.findings, draft.no_verdict_code, draft.output_language, request.lane,
       request.rewrite_strength, request.surface
FROM holdfast.rewrite_draft AS draft
JOIN holdfast.rewrite_request AS request
  ON request.org_id = draft.org_id AND request.rewrite_request_id = draft.rewrite_request_id
WHERE draft.state = 'held'
  AND (CAST(:org_id AS {uuid}) IS NULL OR draft.org_id = :org_id)
  AND (CAST(:reason AS text) IS NULL OR draft.hold_reason = :reason)
ORDER BY draft.held_at, draft.rewrite_request_id
LIMIT :limit;

-- find_held_ids :many — crosses tenants: ids of held rewrites in a range
SELECT rewrite_request_id AS id FROM holdfast.rewrite_draft
WHERE state = 'held' AND rewrite_request_id >= :low AND rewrite_request_id <= :high
ORDER BY rewrite_request_id
LIMIT :limit;

-- find_held :maybe — crosses tenants: one draft with its texts, for a person who decides
SELECT draft.org_id, draft.rewrite_request_id, draft.recipient_user_id, draft.state,
       draft.rewritten_text, draft.output_language, draft.provider, draft.model,
       draft.prompt_version, draft.policy_version, draft.lexicon_version, draft.gate,
       CAST(draft.eval_result AS text) AS eval_result, draft.findings, draft.no_verdict_code,
       draft.hold_reason, draft.held_at, draft.judge_job_id, draft.judge_model,
       draft.judge_version, draft.told_at, draft.decision,
       request.sender_user_id, request.source_locale, request.target_locale, request.lane,
       request.surface, request.rewrite_strength, request.rewrite_request, request.request_id,
       request.correlation_id, request.step, message.original_text
FROM holdfast.rewrite_draft AS draft
JOIN holdfast.rewrite_request AS request
  ON request.org_id = draft.org_id AND request.rewrite_request_id = draft.rewrite_request_id
LEFT JOIN holdfast.rewrite_message AS message
  ON message.org_id = draft.org_id AND message.rewrite_request_id = draft.rewrite_request_id
WHERE draft.rewrite_request_id = :id
  AND (CAST(:org_id AS {uuid}) IS NULL OR draft.org_id = :org_id)
{lock_row(draft)};

-- count_held :many — crosses tenants: held rewrites by reason, up to a bound
SELECT held.hold_reason AS reason, count(*) AS rewrites, max({ms_since(held.held_at)}) AS age_ms
FROM (SELECT hold_reason, held_at FROM holdfast.rewrite_draft
      WHERE state = 'held' ORDER BY held_at LIMIT :bound) AS held
GROUP BY held.hold_reason;
