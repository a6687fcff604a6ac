-- The maximum cost of the model calls of a step, in whole trillionths of a dollar; NULL without one.
-- The extension that records costs enforces it.
ALTER TABLE holdfast.workflow_step ADD COLUMN budget_pico bigint;
