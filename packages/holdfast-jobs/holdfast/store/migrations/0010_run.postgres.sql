-- Only operators read runs: they cross tenants.
GRANT SELECT, INSERT, UPDATE, DELETE ON holdfast.worker_run TO holdfast_engine;
