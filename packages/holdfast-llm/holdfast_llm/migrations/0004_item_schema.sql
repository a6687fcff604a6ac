-- Which schema the answer of an item was asked for. A deployment may change a job type's schema while
-- its answers are out; NULL where nobody wrote it down.
ALTER TABLE holdfast.batch_item ADD COLUMN schema_hash text;
