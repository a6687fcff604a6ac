-- record_calls :many bulk — one row per call or item; a repeat for the same answers adds none
-- The common part of the items of a batch is sent and parsed once: on SQLite an item takes 48
-- microseconds instead of 97.
WITH common AS MATERIALIZED (
    SELECT * FROM {rows g: shared int, batch_id uuid, provider_batch_id text, kind text,
        job_type text, attempt int, account text, provider text, model text, model_billed text,
        execution_mode text, lane text, source_locale text, target_locale text, price text})
INSERT INTO holdfast.provider_call (
    org_id, batch_id, batch_item_index, provider_batch_id, kind, job_id, job_type, attempt, account,
    provider, model, model_billed, execution_mode, lane, source_locale, target_locale,
    provider_request_id, input_tokens, cache_read_tokens, cache_write_short_tokens,
    cache_write_long_tokens, output_tokens, reasoning_tokens, is_priced, cost_pico, direct_pico,
    at_most_pico, price, occurred_at, recorded_at)
SELECT
    r.org_id, g.batch_id, r.batch_item_index, g.provider_batch_id, g.kind, r.job_id, g.job_type,
    g.attempt, g.account, g.provider, g.model, g.model_billed, g.execution_mode, g.lane,
    g.source_locale, g.target_locale, r.provider_request_id, r.input_tokens, r.cache_read_tokens,
    r.cache_write_short_tokens, r.cache_write_long_tokens, r.output_tokens, r.reasoning_tokens,
    r.cost_pico IS NOT NULL, r.cost_pico, r.direct_pico,
    -- Without a price or a token count, the reserve is the maximum cost.
    CASE WHEN r.cost_pico IS NULL THEN coalesce(r.at_most_pico, (
        SELECT item.reserve_pico FROM holdfast.batch_item AS item
        WHERE item.batch_id = g.batch_id AND item.batch_item_index = r.batch_item_index)) END,
    g.price,
    -- A provider's clock may be ahead: no call is later than its record.
    CASE WHEN r.occurred_at < {now} THEN r.occurred_at ELSE {now} END, {now}
FROM {rows r: shared int, org_id uuid, batch_item_index int, job_id uuid, provider_request_id text,
    input_tokens bigint, cache_read_tokens bigint, cache_write_short_tokens bigint,
    cache_write_long_tokens bigint, output_tokens bigint, reasoning_tokens bigint, cost_pico bigint,
    direct_pico bigint, at_most_pico bigint, occurred_at instant}
JOIN common AS g ON g.shared = r.shared
WHERE TRUE
ON CONFLICT (org_id, batch_id, batch_item_index, provider_batch_id, kind) DO NOTHING
RETURNING provider, model, kind, is_priced;

-- sum_costs :many — crosses tenants: costs by the requested dimension
SELECT
    CASE WHEN :by_org = 1 THEN org_id END AS org_id,
    CASE WHEN :by_provider = 1 THEN provider END AS provider,
    CASE WHEN :by_model = 1 THEN model END AS model,
    CASE WHEN :by_mode = 1 THEN execution_mode END AS execution_mode,
    CASE WHEN :by_pair = 1 THEN source_locale END AS source_locale,
    CASE WHEN :by_pair = 1 THEN target_locale END AS target_locale,
    CASE WHEN :by_type = 1 THEN job_type END AS job_type,
    CASE WHEN :by_day = 1 THEN
        substr({stamp(occurred_at)}, 1, 10)
    END AS day,
    count(*) AS calls,
    sum(CASE WHEN kind = 'orphan' THEN 1 ELSE 0 END) AS orphans,
    sum(CASE WHEN kind = 'unknown' THEN 1 ELSE 0 END) AS unknown,
    sum(CASE WHEN is_priced THEN 0 ELSE 1 END) AS unpriced,
    sum(input_tokens) AS input_tokens,
    sum(cache_read_tokens) AS cache_read_tokens,
    sum(cache_write_short_tokens + cache_write_long_tokens) AS cache_write_tokens,
    sum(output_tokens) AS output_tokens,
    sum(reasoning_tokens) AS reasoning_tokens,
    coalesce(sum(cost_pico), 0) AS cost_pico,
    coalesce(sum(at_most_pico), 0) AS at_most_pico,
    -- Only calls with both prices can be compared.
    sum(CASE WHEN cost_pico IS NOT NULL AND direct_pico IS NOT NULL THEN 1 ELSE 0 END) AS compared,
    coalesce(sum(CASE WHEN direct_pico IS NOT NULL THEN cost_pico END), 0) AS compared_pico,
    coalesce(sum(CASE WHEN cost_pico IS NOT NULL THEN direct_pico END), 0) AS direct_pico
FROM holdfast.provider_call
WHERE occurred_at >= :since AND occurred_at < :until
  AND (CAST(:org_id AS {uuid}) IS NULL OR org_id = :org_id)
GROUP BY 1, 2, 3, 4, 5, 6, 7, 8
ORDER BY cost_pico DESC, 1, 2, 3, 4, 5, 6, 7, 8;

-- sum_spent :many — a tenant's cost of today, and the maximum cost of its open items
SELECT
    r.org_id,
    (SELECT coalesce(sum(coalesce(spent.cost_pico, spent.at_most_pico, 0)), 0)
        FROM holdfast.provider_call AS spent
        WHERE spent.org_id = r.org_id AND spent.occurred_at >=
            CAST(substr({stamp({now})}, 1, 10) || 'T00:00:00.000Z' AS {instant})
    ) AS spent_pico,
    (SELECT coalesce(sum(item.reserve_pico), 0)
        FROM holdfast.batch_item AS item
        WHERE item.org_id = r.org_id AND item.is_open = 1) AS open_pico,
    {now} AS now
FROM {rows r: org_id uuid};

-- sum_step_spent :many — crosses tenants: the cost of steps, and the maximum cost of their open items
SELECT
    r.org_id, r.workflow_id, r.step,
    (SELECT coalesce(sum(coalesce(spent.cost_pico, spent.at_most_pico, 0)), 0)
        FROM holdfast.budgeted_job AS allowed
        JOIN holdfast.provider_call AS spent
          ON spent.org_id = allowed.org_id AND spent.job_id = allowed.job_id
        WHERE allowed.org_id = r.org_id AND allowed.workflow_id = r.workflow_id
          AND allowed.step = r.step) AS spent_pico,
    (SELECT coalesce(sum(item.reserve_pico), 0)
        FROM holdfast.budgeted_job AS allowed
        JOIN holdfast.batch_item AS item
          ON item.org_id = allowed.org_id AND item.job_id = allowed.job_id
        WHERE allowed.org_id = r.org_id AND allowed.workflow_id = r.workflow_id
          AND allowed.step = r.step AND item.is_open = 1) AS open_pico
FROM {rows r: org_id uuid, workflow_id uuid, step text};

-- allow_jobs :affected — crosses tenants: these jobs may call a model within the budget of their step
INSERT INTO holdfast.budgeted_job (org_id, workflow_id, step, job_id)
SELECT r.org_id, r.workflow_id, r.step, r.job_id
FROM {rows r: org_id uuid, workflow_id uuid, step text, job_id uuid}
WHERE TRUE
ON CONFLICT (org_id, workflow_id, step, job_id) DO NOTHING;

-- open_circuit :maybe — crosses tenants: stop sending to an account; an open circuit is not changed
-- Each pause is four times as long as the previous one. After :most refusals in a row there are no
-- automatic probes.
INSERT INTO holdfast.provider_account AS circuit (
    account, provider, error_code, http_status, times, opened_at, open_until)
VALUES (:account, :provider, :error_code, :http_status, 1, {now}, {later(:first_ms)})
ON CONFLICT (account) DO UPDATE SET
    provider = excluded.provider,
    error_code = excluded.error_code,
    http_status = excluded.http_status,
    times = CASE WHEN circuit.closed_at IS NULL THEN circuit.times + 1 ELSE 1 END,
    opened_at = {now},
    open_until = {later(CASE
        WHEN circuit.closed_at IS NOT NULL THEN CAST(:first_ms AS bigint)
        WHEN circuit.times + 1 >= :most THEN CAST(:shut_ms AS bigint)
        WHEN circuit.times >= 8 THEN CAST(:longest_ms AS bigint)
        WHEN (CAST(:first_ms AS bigint) << (2 * circuit.times)) > :longest_ms
            THEN CAST(:longest_ms AS bigint)
        ELSE CAST(:first_ms AS bigint) << (2 * circuit.times) END)},
    probe_until = NULL,
    closed_at = NULL
WHERE circuit.closed_at IS NOT NULL OR circuit.open_until <= {now}
RETURNING times, open_until;

-- close_circuit :affected — crosses tenants: the account answers again
UPDATE holdfast.provider_account SET closed_at = {now}, probe_until = NULL
WHERE account = :account AND closed_at IS NULL;

-- close_circuits :affected — crosses tenants: the same for all accounts that answered
UPDATE holdfast.provider_account SET closed_at = {now}, probe_until = NULL
WHERE closed_at IS NULL
  AND account IN (SELECT answered.account FROM {rows answered: account text});

-- find_open_circuits :many — crosses tenants: accounts with an open circuit
SELECT account FROM holdfast.provider_account
WHERE closed_at IS NULL AND (open_until > {now} OR probe_until > {now});

-- find_circuit :maybe — crosses tenants: the circuit of an account that has not answered since its refusal
SELECT account FROM holdfast.provider_account WHERE account = :account AND closed_at IS NULL;

-- take_probe :affected — crosses tenants: the pause is over; reserve the one probe call
UPDATE holdfast.provider_account SET probe_until = {later(:lease_ms)}
WHERE account = :account AND closed_at IS NULL AND open_until <= {now}
  AND (probe_until IS NULL OR probe_until <= {now});

-- allow_probe :affected — crosses tenants: an operator ends the pause
UPDATE holdfast.provider_account SET open_until = {now}, opened_at = {now}, times = 1
WHERE account = :account AND closed_at IS NULL;

-- list_circuits :many — crosses tenants: every account that ever refused
SELECT account, provider, error_code, http_status, times, opened_at, open_until, closed_at
FROM holdfast.provider_account ORDER BY account;
