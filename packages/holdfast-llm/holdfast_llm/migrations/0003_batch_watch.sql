-- What looks at batches from outside: how many are under way, and which are over for long enough.
CREATE INDEX provider_batch_live ON holdfast.provider_batch (state, created_at)
    WHERE state NOT IN ('collected', 'released');
CREATE INDEX provider_batch_over ON holdfast.provider_batch (updated_at)
    WHERE state IN ('collected', 'released');
-- What has no price yet, which somebody has to name.
CREATE INDEX provider_call_unpriced ON holdfast.provider_call (occurred_at)
    WHERE cost_pico IS NULL;
