-- The schema that the answer of an item was requested with. A deployment may change a job type's
-- schema while answers are pending; NULL if it was not recorded.
ALTER TABLE holdfast.batch_item ADD COLUMN schema_hash text;
