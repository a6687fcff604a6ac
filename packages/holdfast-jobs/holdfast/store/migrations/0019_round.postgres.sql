GRANT SELECT, INSERT, UPDATE, DELETE ON holdfast.queue_round TO holdfast_engine;
