-- Workers serve every tenant: tenants have no access to this table.
GRANT SELECT, INSERT, UPDATE, DELETE ON holdfast.worker TO holdfast_engine;
