-- Costs at providers, and the circuits of accounts.

-- The ledger: one row per call and per item of a batch, written once with its outcome. Money is in
-- whole trillionths of a dollar: $2.50 per million tokens is 2,500,000 per token. The cost of a
-- batch that cannot be divided among tenants has the nil tenant.
CREATE TABLE holdfast.provider_call (
    org_id {uuid} NOT NULL,
    batch_id {uuid} NOT NULL,
    -- -1: a whole batch, where its items are not known.
    batch_item_index integer NOT NULL,
    -- '' for a call of its own.
    provider_batch_id text NOT NULL,
    kind text NOT NULL,
    job_id {uuid},
    job_type text,
    attempt integer,
    account text NOT NULL,
    provider text NOT NULL,
    model text NOT NULL,
    -- What the provider says it ran, which may be more exact than what was asked for.
    model_billed text,
    execution_mode text NOT NULL,
    lane text NOT NULL,
    source_locale text NOT NULL,
    target_locale text NOT NULL,
    provider_request_id text,
    input_tokens bigint NOT NULL,
    cache_read_tokens bigint NOT NULL,
    cache_write_short_tokens bigint NOT NULL,
    cache_write_long_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    -- Told for information: it is inside output_tokens.
    reasoning_tokens bigint NOT NULL,
    is_priced boolean NOT NULL,
    cost_pico bigint,
    -- What the same tokens cost by a call of its own; NULL where nobody named that price.
    direct_pico bigint,
    -- What it may have cost where nobody knows: a call without an answer. A budget counts it.
    at_most_pico bigint,
    -- Which price it was: the model's pattern and the day from which it holds.
    price text,
    occurred_at {instant} NOT NULL,
    recorded_at {instant} NOT NULL,
    PRIMARY KEY (org_id, batch_id, batch_item_index, provider_batch_id, kind),
    CONSTRAINT provider_call_kind_known CHECK (kind IN ('actual', 'free', 'unknown', 'orphan')),
    CONSTRAINT provider_call_mode_known CHECK (execution_mode IN ('batch', 'async')),
    -- An unknown price is no price of zero.
    CONSTRAINT provider_call_priced_iff_cost CHECK (is_priced = (cost_pico IS NOT NULL)),
    CONSTRAINT provider_call_counts_up CHECK (
        input_tokens >= 0 AND cache_read_tokens >= 0 AND cache_write_short_tokens >= 0
        AND cache_write_long_tokens >= 0 AND output_tokens >= 0 AND reasoning_tokens >= 0
        AND (cost_pico IS NULL OR cost_pico >= 0) AND (direct_pico IS NULL OR direct_pico >= 0)
        AND (at_most_pico IS NULL OR at_most_pico >= 0)),
    CONSTRAINT provider_call_free_costs_nothing CHECK (kind <> 'free' OR cost_pico = 0)
);

-- A tenant's cost of today.
CREATE INDEX provider_call_of_day ON holdfast.provider_call (org_id, occurred_at);

{refuse provider_call_never_changes BEFORE UPDATE ON holdfast.provider_call
WHEN TRUE SAYING 'the ledger is append-only'};
{refuse provider_call_never_leaves BEFORE DELETE ON holdfast.provider_call
WHEN TRUE SAYING 'the ledger is append-only'};

-- The maximum cost of an open item, for its budget; NULL without a price.
ALTER TABLE holdfast.batch_item ADD COLUMN reserve_pico bigint;

-- Accounts that refuse every request: wrong key, no credit, exhausted quota. Nothing is sent to
-- them until open_until. They belong to no tenant.
CREATE TABLE holdfast.provider_account (
    account text NOT NULL PRIMARY KEY,
    provider text NOT NULL,
    error_code text NOT NULL,
    http_status integer,
    -- How often in a row it was opened: each time for longer.
    times integer NOT NULL,
    opened_at {instant} NOT NULL,
    open_until {instant} NOT NULL,
    -- While one call finds out whether it answers again, no other is made.
    probe_until {instant},
    -- It answered again.
    closed_at {instant},
    CONSTRAINT provider_account_opened CHECK (times > 0 AND open_until >= opened_at)
);
