-- Workers serve every tenant: none of them looks at the machines behind.
GRANT SELECT, INSERT, UPDATE, DELETE ON holdfast.worker TO holdfast_engine;
