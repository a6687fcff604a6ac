-- For gauges and retention: open batches, and ended batches by age.
CREATE INDEX provider_batch_live ON holdfast.provider_batch (state, created_at)
    WHERE state NOT IN ('collected', 'released');
CREATE INDEX provider_batch_over ON holdfast.provider_batch (updated_at)
    WHERE state IN ('collected', 'released');
-- Calls without a price.
CREATE INDEX provider_call_unpriced ON holdfast.provider_call (occurred_at)
    WHERE cost_pico IS NULL;
